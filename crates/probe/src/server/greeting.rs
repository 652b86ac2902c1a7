//! Finds out who calls.

use std::time::Duration;

use fullpipe_iperf::{Caller, Cookie, classify_first_bytes};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a caller said first.
pub(super) struct Greeting {
    pub(super) caller: Caller,
    /// What was read to find out; it belongs to the load of an iperf2 client.
    pub(super) bytes: Vec<u8>,
}

/// Reads as little as tells who calls, within `patience` in all.
pub(super) async fn greet(stream: &mut (impl AsyncRead + Unpin), timeout: Duration) -> Greeting {
    let mut bytes = Vec::with_capacity(Cookie::LENGTH);
    let read = tokio::time::timeout(timeout, read(stream, &mut bytes)).await;
    Greeting { caller: read.unwrap_or(Caller::Unknown), bytes }
}

async fn read(stream: &mut (impl AsyncRead + Unpin), greeting: &mut Vec<u8>) -> Caller {
    let mut bytes = [0; Cookie::LENGTH];
    loop {
        match classify_first_bytes(greeting) {
            Caller::Undecided => {}
            decided => return decided,
        }
        // Never beyond the cookie: what follows belongs to the test.
        let wanted = Cookie::LENGTH - greeting.len();
        match stream.read(&mut bytes[..wanted]).await {
            Ok(0) | Err(_) => return Caller::Unknown,
            Ok(length) => greeting.extend_from_slice(&bytes[..length]),
        }
    }
}
