use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connects by `call` to the first of `addresses` that answers. Each is called once those before it
/// have failed, or the last of them has not answered within `pause` (RFC 8305, section 5). The
/// others are dropped then. Returns what its call has made.
///
/// # Errors
/// Fails if none answers, with the last reason.
pub async fn connect_to_first<T, C>(
    addresses: &[SocketAddr],
    pause: Duration,
    call: impl Fn(SocketAddr) -> C,
) -> io::Result<T>
where
    T: Send + 'static,
    C: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    let mut left = addresses.iter();
    let mut calls = JoinSet::new();
    loop {
        match left.next() {
            Some(address) => drop(calls.spawn(call(*address))),
            None if calls.is_empty() => return Err(failed),
            None => {}
        }
        let called = match timeout(pause, calls.join_next()).await {
            Ok(called) => called,
            // There is no other address to try meanwhile.
            Err(_) if left.len() == 0 => calls.join_next().await,
            Err(_) => continue,
        };
        match called.transpose()? {
            Some(Ok(made)) => return Ok(made),
            Some(Err(error)) => failed = error,
            None => {}
        }
    }
}
