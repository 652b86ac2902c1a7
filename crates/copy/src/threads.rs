use std::io;
use std::sync::mpsc::{Receiver, channel};

use fullpipe_sys::start_thread;

/// Starts a thread; what it returns comes out of the receiver, unless no one waits for it any more.
///
/// # Errors
/// Fails if the host has no thread left.
pub(crate) fn start_answering<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (answer, receiver) = channel();
    start_thread(name, move || drop(answer.send(work())))?;
    Ok(receiver)
}
