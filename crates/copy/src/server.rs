//! A server that shares a folder, as the near end reaches it.

use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_control::{PinnedTls, TlsError, canonical};
use fullpipe_iperf::Key;
use fullpipe_sys::tcp_info;
use fullpipe_units::{Span, printable};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::connect::Credentials;
use crate::data_stream::DataStream;
use crate::halves::halves;
use crate::joining::Early;
use crate::locks::lock;
use crate::options::CopyError;
use crate::ssh::{Held, Link, Pipes};

/// Time to connect, and for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Prefix of what the keys of TLS follow from, so that no other use of the same key gives the same bytes.
const PURPOSE: &[u8] = b"fullpipe share 1";

/// Returns TLS between those who have this key. Only the digest of it is used: it may have any length.
///
/// # Errors
/// Fails if the library cannot make a key.
pub(crate) fn tls_of(key: &Key) -> Result<PinnedTls, TlsError> {
    PinnedTls::of_secret(&key.tag(&[PURPOSE]))
}

/// Connects to a server, which proves that it has the key, as this end does. Meanwhile begins to make as many
/// connections for data as `count` says for the round-trip time, if any are wanted.
///
/// # Errors
/// Fails if no key is given, the server cannot be reached, or does not have the key.
pub(crate) fn call(
    host: &str,
    port: u16,
    key: Option<&Key>,
    link: &Link,
    count: &dyn Fn(Span) -> u16,
) -> Result<(Pipes, Option<Early>), CopyError> {
    let key = key.ok_or(CopyError::Places("a server wants a key: name its file with --key-file"))?;
    let server = || format!("{}:{port}", printable(host));
    let failed = |cause| CopyError::Server { server: server(), cause };
    let (stream, early) = connect(host, port, key, count).map_err(&failed)?;
    *lock(link) = Some(Held::Connection(stream.socket().try_clone().map_err(&failed)?));
    let (from, to) = halves(stream).map_err(&failed)?;
    Ok((Pipes { to: Box::new(to), from: Box::new(BufReader::with_capacity(128 << 10, from)) }, early))
}

fn connect(host: &str, port: u16, key: &Key, count: &dyn Fn(Span) -> u16) -> io::Result<(DataStream, Option<Early>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let connected = LocalSet::new().block_on(&runtime, async {
        timeout(CONNECT_TIMEOUT, async {
            let stream = TcpStream::connect((host, port)).await?;
            let early = begin_early(&stream, key, count)?;
            let tls = tls_of(key).map_err(io::Error::other)?;
            Ok((DataStream::of(tls.call(stream).await?)?, early))
        })
        .await
    });
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn begin_early(called: &TcpStream, key: &Key, count: &dyn Fn(Span) -> u16) -> io::Result<Option<Early>> {
    let count = count(tcp_info(called)?.rtt.unwrap_or_default());
    if count == 0 {
        return Ok(None);
    }
    let credentials = Credentials::of_tls(key, tls_of(key).map_err(io::Error::other)?.with_parts());
    Ok(Some(Early::begin(called.peer_addr()?, credentials, count)))
}

/// Returns the address of the server, if there is one, and the shortest round-trip time to it so far.
pub(crate) fn peer(link: &Link) -> Option<(SocketAddr, Span)> {
    match &*lock(link) {
        Some(Held::Connection(socket)) => {
            let info = tcp_info(socket).ok()?;
            let rtt = info.min_rtt.or(info.rtt).unwrap_or_default();
            Some((canonical(socket.peer_addr().ok()?), rtt))
        }
        _ => None,
    }
}
