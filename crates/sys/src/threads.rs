//! Threads with names.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread of this name, of which the kernel shows the first 15 bytes.
///
/// # Errors
/// Fails if the system permits no more threads.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work)
}
