//! Sweeps that are kept, and resumed.

mod kept;
mod runs;
