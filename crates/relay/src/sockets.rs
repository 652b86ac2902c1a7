//! Sockets as a relay wants them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_control::{ListenError, listen_tcp, most_descriptors};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::timeout;

use crate::options::{RelayError, RelayOptions};
use crate::pipes::MAX_PIPES;
use crate::rules::Target;

/// Bytes that are accepted of one side and not yet sent to the other, besides those of its window. With 128 KiB the
/// relay is woken so often that it takes half as much processor time again; more than this saves nothing.
const UNSENT: u32 = 1 << 20;

/// Time for a connection to a target or a far relay.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Time without data after which the other end is asked whether it is there, and between two such questions.
const KEEPALIVE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Descriptors for other uses than connections.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Returns a socket that listens where `options` say.
///
/// # Errors
/// Fails if the address is in use, or not one of this host.
pub(crate) fn listen(options: &RelayOptions) -> Result<TcpListener, ListenError> {
    listen_tcp(options.address, options.port, |socket| socket.set_linger(Some(Duration::ZERO)))
}

/// Sets what every socket has. It is reset whenever it goes, even if the program is killed, unless it is set to close
/// in order: the FIN of a relay that dies would be taken for the end of the data.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))
}

/// Returns the addresses of `target`.
///
/// # Errors
/// Fails if the name is not known.
pub(crate) async fn resolve(target: &Target) -> io::Result<Vec<SocketAddr>> {
    let found = lookup_host((target.host.as_str(), target.port)).await?;
    Ok(found.map(canonical).collect())
}

/// Returns an address of IPv4 as one, also where it came as one of IPv6.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Connects to the first of `addresses` that answers.
///
/// # Errors
/// Fails with the error of the last of them.
pub(crate) async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                prepare(&stream)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Resolves `target` and connects to it, within the deadline.
///
/// # Errors
/// Fails if it is not known, does not answer or is `ours`, the address at which a client called this relay, and with
/// `TimedOut` at the deadline.
pub(crate) async fn reach(target: &Target, ours: Option<SocketAddr>) -> io::Result<TcpStream> {
    let reached = async {
        let addresses = resolve(target).await?;
        // Each connection would make another one.
        if ours.is_some_and(|ours| addresses.contains(&canonical(ours))) {
            return Err(io::Error::other("it is this relay itself"));
        }
        connect(&addresses).await
    };
    timeout(CONNECT_DEADLINE, reached).await.unwrap_or_else(|_| Err(late(CONNECT_DEADLINE)))
}

pub(crate) fn late(deadline: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", deadline.as_secs()))
}

/// Raises the limit of open files to its maximum.
///
/// # Errors
/// Fails if it is too low for so many connections.
pub(crate) fn raise_descriptors(connections: u32) -> Result<(), RelayError> {
    let permitted = most_descriptors();
    let needed = 2 * (u64::from(connections) + MAX_PIPES as u64) + RESERVED_DESCRIPTORS;
    if permitted < needed {
        return Err(RelayError::Descriptors { wanted: connections, needed, permitted });
    }
    Ok(())
}
