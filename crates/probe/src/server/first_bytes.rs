//! The first bytes of a connection, which show what kind of client opened it.

use std::time::Duration;

use fullpipe_iperf::{CallerKind, TestCookie, classify_first_bytes};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of a connection, and the client that they show.
pub(super) struct FirstBytes {
    pub caller: CallerKind,
    /// The bytes that were read. If the client is iperf2, they are part of its data.
    pub bytes: Vec<u8>,
}

/// Reads no more bytes than are needed to classify the client, for at most `timeout`.
pub(super) async fn read_first_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    timeout: Duration,
) -> FirstBytes {
    let mut bytes = Vec::with_capacity(TestCookie::LENGTH);
    let read = tokio::time::timeout(timeout, read_caller(stream, &mut bytes)).await;
    FirstBytes {
        caller: read.unwrap_or(CallerKind::Unknown),
        bytes,
    }
}

async fn read_caller(
    stream: &mut (impl AsyncRead + Unpin),
    first_bytes: &mut Vec<u8>,
) -> CallerKind {
    let mut bytes = [0; TestCookie::LENGTH];
    loop {
        match classify_first_bytes(first_bytes) {
            CallerKind::Undecided => {}
            decided => return decided,
        }
        // Never beyond the cookie: the bytes after it belong to the test.
        let missing = TestCookie::LENGTH - first_bytes.len();
        match stream.read(&mut bytes[..missing]).await {
            Ok(0) | Err(_) => return CallerKind::Unknown,
            Ok(length) => first_bytes.extend_from_slice(&bytes[..length]),
        }
    }
}
