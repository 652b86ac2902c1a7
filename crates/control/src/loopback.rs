//! Connections of loopback for the tests of this room.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::single_threaded_runtime;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a test to its end.
///
/// # Panics
/// If it takes too long.
pub(crate) fn run_test(test: impl Future<Output = ()>) {
    let runtime = single_threaded_runtime().unwrap();
    runtime.block_on(async { timeout(TIMEOUT, test).await.unwrap() });
}

/// Returns the end of the caller and that of the listener.
pub(crate) async fn connected_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    (caller, listener.accept().await.unwrap().0)
}
