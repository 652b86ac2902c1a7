use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with this name.
///
/// # Errors
/// Fails if the host has no thread left.
pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(work)
}
