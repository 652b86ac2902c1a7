//! The far relay: near relays that prove themselves, and the targets that they ask for.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use fullpipe_control::{AuthenticatedPeer, PeerTls, PendingPlace};
use fullpipe_iperf::SharedKey;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::message::{PAD, TAKES_BLOCKS, TAKES_PADDING, TargetRequest, TargetStatus};
use crate::rules::{AllowedTargets, TargetAddress, is_target_permitted};
use crate::sockets::{
    CONNECT_DEADLINE, NEXT_ADDRESS, connect_to_any, resolve_target, timeout_error,
};
use crate::window::{HeldWindow, read_padding, send_padding};

/// Time in which a caller must prove itself, and in which a request must be complete.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// The settings of a far relay for its callers and their targets.
pub(crate) struct FarSettings {
    pub targets: Vec<AllowedTargets>,
    pub key: SharedKey,
    pub tls: Option<PeerTls>,
}

/// A target that was not connected.
enum TargetFailure {
    Forbidden,
    Unreachable(io::Error),
}

impl FarSettings {
    /// Waits for the proof of a caller. `None` if it loses its place meanwhile.
    ///
    /// # Errors
    /// Fails if it does not have the key, closes the connection, or takes too long.
    pub(crate) async fn accept_caller(
        &self,
        stream: TcpStream,
        place: &mut PendingPlace,
    ) -> io::Result<Option<AuthenticatedPeer>> {
        in_time(async {
            let Some(readable) = place.wait_for_first_byte(&stream).await else {
                return Ok(None);
            };
            readable?;
            place
                .unless_lost(AuthenticatedPeer::accept_peer(
                    stream,
                    &self.key,
                    self.tls.as_ref(),
                ))
                .await
                .transpose()
        })
        .await
    }

    /// Waits for the request of a near relay, for as long as it likes, then for `room`, and connects
    /// to its target. `None` if the near relay closes the connection without a request.
    ///
    /// # Errors
    /// Fails if the request is wrong, there is no room, or the target is not permitted or not there;
    /// the near relay knows it then.
    pub(crate) async fn serve_request(
        &self,
        mut peer: AuthenticatedPeer,
        room: impl Future<Output = io::Result<()>>,
    ) -> io::Result<Option<(AuthenticatedPeer, TargetRequest, TcpStream)>> {
        let Some((text, window)) = read_request(&mut peer).await? else {
            return Ok(None);
        };
        let request = TargetRequest::from_bytes(&text)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        room.await?;
        let target = &request.target;
        let (status, reached) = match self.connect_target(target).await {
            Ok(stream) => (TargetStatus::Connected, Ok(stream)),
            Err(TargetFailure::Forbidden) => (
                TargetStatus::Forbidden,
                Err(format!("the target {target} is not permitted")),
            ),
            Err(TargetFailure::Unreachable(error)) => (
                TargetStatus::Unreachable,
                Err(format!("the target {target} cannot be reached: {error}")),
            ),
        };
        peer.control.send_bytes(&[status.to_byte()]).await?;
        if let Some(window) = window {
            window.release_window(&peer);
        }
        match reached {
            Ok(stream) => Ok(Some((peer, request, stream))),
            Err(why) => {
                spawn_local(timeout(HANDSHAKE_DEADLINE, close_gracefully(peer)));
                Err(io::Error::other(why))
            }
        }
    }

    async fn connect_target(&self, target: &TargetAddress) -> Result<TcpStream, TargetFailure> {
        let reached = async {
            let addresses = resolve_target(target)
                .await
                .map_err(TargetFailure::Unreachable)?;
            // The address is checked that is connected to, whatever the name means a moment later.
            let permitted: Vec<_> = addresses
                .into_iter()
                .filter(|address| is_target_permitted(&self.targets, *address))
                .collect();
            if permitted.is_empty() {
                return Err(TargetFailure::Forbidden);
            }
            connect_to_any(&permitted, NEXT_ADDRESS)
                .await
                .map_err(TargetFailure::Unreachable)
        };
        timeout(CONNECT_DEADLINE, reached)
            .await
            .unwrap_or_else(|_| Err(TargetFailure::Unreachable(timeout_error(CONNECT_DEADLINE))))
    }
}

/// Reads the request of a near relay, and answers what it asks before. Returns its text and the
/// window that is held; `None` if the near relay closes the connection.
async fn read_request(
    peer: &mut AuthenticatedPeer,
) -> io::Result<Option<(Vec<u8>, Option<HeldWindow>)>> {
    let mut window = None;
    loop {
        let Ok(length) = peer.control.read_u8().await else {
            return Ok(None);
        };
        let text = in_time(receive_exact(peer, length.into())).await?;
        match &text[..] {
            [] => {
                peer.control
                    .send_bytes(&[TAKES_BLOCKS | TAKES_PADDING])
                    .await?;
            }
            PAD => {
                in_time(read_padding(peer)).await?;
                in_time(send_padding(peer)).await?;
                window = Some(HeldWindow::hold_window(peer));
            }
            _ => return Ok(Some((text, window))),
        }
    }
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(HANDSHAKE_DEADLINE, step)
        .await
        .unwrap_or_else(|_| Err(timeout_error(HANDSHAKE_DEADLINE)))
}

/// Closes a connection so that what was sent arrives: what comes is discarded until the other end
/// closes, too. If it were left unread, the kernel would reset the connection.
async fn close_gracefully(peer: AuthenticatedPeer) -> io::Result<()> {
    let stream = peer.control.tcp_stream();
    let socket = SockRef::from(stream);
    socket.set_linger(None)?;
    socket.shutdown(Shutdown::Write)?;
    let mut discarded = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut discarded) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}

async fn receive_exact(peer: &mut AuthenticatedPeer, length: usize) -> io::Result<Vec<u8>> {
    let mut text = vec![0; length];
    peer.control.read_exact(&mut text).await?;
    let mut tag = [0; AuthenticatedPeer::TAG];
    peer.control.read_exact(&mut tag).await?;
    if !peer.verifies_tag(&tag, &text) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the request is not of the caller",
        ));
    }
    Ok(text)
}
