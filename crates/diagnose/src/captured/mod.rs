//! The verdict from a capture: what was in flight against the window, losses, the queue, and how
//! the sender sends.

pub(crate) use sentence::{capture_rows, captured_sentence};

mod path;
mod sender;
mod sentence;
mod silence;
mod window;
