//! Congestion windows that have grown before a client comes.
//!
//! A new connection has ten segments on its way at first, and 100 KiB take four round trips. So the
//! relays of a pair send padding to each other over connections that wait. The kernel takes such a
//! window back after an idle time (`tcp_slow_start_after_idle_check`, RFC 2861), but not from
//! congestion controls with a rate of their own: until a client comes, a connection has BBR, where
//! the host permits it. Where it does not, and where the host's own is another one, windows last no
//! longer than a retransmission timeout unless `tcp_slow_start_after_idle` is 0.

use std::io;

use fullpipe_control::AuthenticatedPeer;
use fullpipe_model::improvement::LOSS_TOLERANT;
use socket2::SockRef;
use tokio::io::AsyncReadExt;

/// Bytes of padding each way: after them, 40 segments may be on their way, and 100 KiB take two
/// round trips.
const PADDING: usize = 48 << 10;

/// The window of a connection that waits.
pub(crate) struct HeldWindow {
    /// The congestion control of the host, if it is another one meanwhile.
    usual: Option<Vec<u8>>,
}

impl HeldWindow {
    /// Keeps the window of a connection from now on.
    pub(crate) fn hold_window(peer: &AuthenticatedPeer) -> Self {
        let socket = SockRef::from(peer.control.tcp_stream());
        let usual = socket
            .tcp_congestion()
            .ok()
            .filter(|name| !name.starts_with(LOSS_TOLERANT.as_bytes()));
        let held = usual.filter(|_| socket.set_tcp_congestion(LOSS_TOLERANT.as_bytes()).is_ok());
        Self { usual: held }
    }

    /// Gives the connection its congestion control back, once its first bytes after the idle time
    /// are sent.
    pub(crate) fn release_window(self, peer: &AuthenticatedPeer) {
        if let Some(usual) = self.usual {
            // It was permitted before.
            let _ = SockRef::from(peer.control.tcp_stream()).set_tcp_congestion(&usual);
        }
    }
}

/// Sends padding.
///
/// # Errors
/// Fails if the other end has gone.
pub(crate) async fn send_padding(peer: &mut AuthenticatedPeer) -> io::Result<()> {
    peer.control.send_bytes(&vec![0; PADDING]).await
}

/// Reads the padding of the other end.
///
/// # Errors
/// Fails if the other end has gone.
pub(crate) async fn read_padding(peer: &mut AuthenticatedPeer) -> io::Result<()> {
    let mut left = PADDING;
    let mut discarded = [0; 4096];
    while left > 0 {
        let count = peer.control.read(&mut discarded[..left.min(4096)]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= count;
    }
    Ok(())
}
