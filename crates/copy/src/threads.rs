use std::io;
use std::sync::mpsc::{Receiver, channel};
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
