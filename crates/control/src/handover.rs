//! Connections that one server of a process passes on to another, so that both have one port.

use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::connection::{HANDSHAKE, by_reference};
use crate::pinned::PROTOCOL;

/// Passes connections on to another server of this process.
#[derive(Clone)]
pub struct ConnectionHandover(Arc<UnboundedSender<(StdTcpStream, SocketAddr)>>);

by_reference!(ConnectionHandover);

/// The connections that another server passes on, each with the address of its client.
#[derive(Debug)]
pub struct HandedConnections(UnboundedReceiver<(StdTcpStream, SocketAddr)>);

impl ConnectionHandover {
    /// Returns both ends.
    pub fn new() -> (Self, HandedConnections) {
        let (sender, receiver) = unbounded_channel();
        (Self(Arc::new(sender)), HandedConnections(receiver))
    }

    /// Passes on a connection that does not block, and of which nothing has been read. Without a
    /// receiver it is closed.
    pub fn pass_connection(&self, stream: StdTcpStream, client: SocketAddr) {
        let _ = self.0.send((stream, client));
    }
}

impl HandedConnections {
    /// Waits for the next connection, for ever if there is no sender.
    ///
    /// # Errors
    /// Fails if it cannot be used here.
    pub async fn next_connection(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        match self.0.recv().await {
            Some((stream, client)) => Ok((TcpStream::from_std(stream)?, client)),
            None => std::future::pending().await,
        }
    }
}

/// Returns true if the bytes that wait in `stream` are the first message of TLS
/// ([`PinnedTls`](crate::PinnedTls)): they name its protocol (RFC 7301, section 3.1). Waits until
/// that message is whole; its deadline is the caller's affair.
///
/// # Errors
/// Fails if the connection does.
pub async fn begins_pinned_tls(stream: &TcpStream) -> io::Result<bool> {
    /// Bytes of the header of a record (RFC 8446, section 5.1): its type, version and length.
    const HEADER: usize = 5;
    /// Time between two checks for bytes that are still on their way.
    const POLL_INTERVAL: Duration = Duration::from_millis(2);
    let mut first_bytes = vec![0; HEADER + (1 << 14)];
    loop {
        let length = stream.peek(&mut first_bytes).await?;
        let whole = match first_bytes[..length] {
            [HANDSHAKE, _, _, high, low, ..] => {
                HEADER + usize::from(u16::from_be_bytes([high, low]))
            }
            [HANDSHAKE, ..] => HEADER,
            _ => return Ok(false),
        };
        if length >= whole.min(first_bytes.len()) && length > HEADER {
            return Ok(first_bytes[..length]
                .windows(PROTOCOL.len())
                .any(|part| part == PROTOCOL));
        }
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{connected_pair, run_test};
    use crate::{PeerTls, PinnedTls};
    use tokio::io::AsyncWriteExt;

    #[test]
    fn the_first_message_of_pinned_tls_is_known_from_those_of_others_also_in_parts() {
        run_test(async {
            let pinned = PinnedTls::of_secret(&[1; 32]).unwrap();
            for tls in [pinned.clone(), pinned.with_parts()] {
                let (caller, called) = connected_pair().await;
                let call = tokio::spawn(async move { tls.connect_pinned(caller).await.map(drop) });
                assert!(begins_pinned_tls(&called).await.unwrap());
                call.abort();
            }
            let (caller, called) = connected_pair().await;
            let key =
                fullpipe_iperf::SharedKey::from_file_content(b"correct horse battery").unwrap();
            let call = async move {
                crate::AuthenticatedPeer::connect_peer(caller, &key, Some(&PeerTls::new().unwrap()))
                    .await
                    .map(drop)
            };
            let call = tokio::spawn(call);
            assert!(!begins_pinned_tls(&called).await.unwrap());
            call.abort();
            for (parts, expected) in [
                (&[&b"a cookie"[..]][..], false),
                (
                    &[
                        &[HANDSHAKE, 3],
                        &[1, 0],
                        &[20, 1, 0],
                        b"\0\x11fullpipe pin",
                        b"ned 1",
                    ],
                    true,
                ),
                (&[&[HANDSHAKE, 3, 1, 0, 8], b"12345678"], false),
            ] {
                let (mut caller, called) = connected_pair().await;
                let written = async {
                    for part in parts {
                        caller.write_all(part).await.unwrap();
                        sleep(Duration::from_millis(5)).await;
                    }
                };
                assert_eq!(
                    tokio::join!(begins_pinned_tls(&called), written).0.unwrap(),
                    expected,
                    "{parts:?}"
                );
            }
        });
    }
}
