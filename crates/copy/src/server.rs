//! A server that shares a folder, as the near end reaches it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_control::{PinnedTls, canonical_address, single_threaded_runtime};
use fullpipe_iperf::SharedKey;
use fullpipe_sys::tcp_info;
use fullpipe_units::{Span, printable_line};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::connect::CopyCredentials;
use crate::data_stream::DataStream;
use crate::halves::split_stream;
use crate::joining::EarlyConnections;
use crate::options::CopyError;
use crate::ssh::{Link, LinkHolder, LinkPipes};
use fullpipe_sys::lock;

/// Time to connect, and for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Prefix of what the keys of TLS follow from, so that no other use of the same key gives the same
/// bytes.
const PURPOSE: &[u8] = b"fullpipe share 1";

/// Returns TLS between those who have this key. Only the digest of it is used: it may have any
/// length.
///
/// # Errors
/// Fails if the library cannot make a key.
pub(crate) fn tls_of(key: &SharedKey) -> io::Result<PinnedTls> {
    PinnedTls::of_secret(&key.tag_parts(&[PURPOSE])).map_err(io::Error::other)
}

/// Connects to a server, which proves that it has the key, as this end does. Meanwhile begins to
/// make as many connections for data as `count` says for the round-trip time, if any are wanted.
///
/// # Errors
/// Fails if no key is given, the server cannot be reached, or does not have the key.
pub(crate) fn call_server(
    host: &str,
    port: u16,
    key: Option<&SharedKey>,
    link: &Link,
    count: &dyn Fn(Span) -> u16,
) -> Result<(LinkPipes, Option<EarlyConnections>), CopyError> {
    let key = key.ok_or(CopyError::Places(
        "a server wants a key: name its file with --key-file",
    ))?;
    let connected = connect_server(host, port, key, count).and_then(|(stream, early)| {
        *lock(link) = Some(LinkHolder::Connection(stream.tcp_socket().try_clone()?));
        Ok((split_stream(stream)?, early))
    });
    let ((from, to), early) = connected.map_err(|cause| CopyError::Server {
        server: format!("{}:{port}", printable_line(host)),
        cause,
    })?;
    Ok((LinkPipes::new(to, from), early))
}

fn connect_server(
    host: &str,
    port: u16,
    key: &SharedKey,
    count: &dyn Fn(Span) -> u16,
) -> io::Result<(DataStream, Option<EarlyConnections>)> {
    let runtime = single_threaded_runtime()?;
    let connected = LocalSet::new().block_on(&runtime, async {
        timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect((host, port)).await?;
            let early = begin_early(&stream, key, count)?;
            let connection = tls_of(key)?.connect_pinned(stream).await?;
            Ok((DataStream::from_control(connection)?, early))
        })
        .await
    });
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn begin_early(
    called: &TcpStream,
    key: &SharedKey,
    count: &dyn Fn(Span) -> u16,
) -> io::Result<Option<EarlyConnections>> {
    let count = count(tcp_info(called)?.rtt.unwrap_or_default());
    if count == 0 {
        return Ok(None);
    }
    let credentials = CopyCredentials::of_tls(key, tls_of(key)?.with_parts());
    Ok(Some(EarlyConnections::start_dialling(
        called.peer_addr()?,
        credentials,
        count,
    )))
}

/// Returns the address of the server, if there is one, and the shortest round-trip time to it so
/// far.
pub(crate) fn server_address(link: &Link) -> Option<(SocketAddr, Span)> {
    match &*lock(link) {
        Some(LinkHolder::Connection(socket)) => {
            let info = tcp_info(socket).ok()?;
            let rtt = info.min_rtt.or(info.rtt).unwrap_or_default();
            Some((canonical_address(socket.peer_addr().ok()?), rtt))
        }
        _ => None,
    }
}
