//! What the benches share with the tests: the labelled cases of the diagnosis.

pub mod diagnosis;
