use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::net::TcpListener;

/// Maximum number of connections that wait to be accepted: in a burst, no client should have to
/// send its SYN again.
const BACKLOG: i32 = 4096;

/// The error of an address on which this process cannot listen.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {cause}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The error of the system call.
    #[source]
    pub cause: io::Error,
}

/// Returns a socket that listens on `address`; by default on every address, of both families if the
/// host has IPv6. `prepare` sets what those that are accepted have from their first moment, and the
/// device of an address that exists at one device only.
///
/// # Errors
/// Fails if the address is in use, or not one of this host.
pub fn listen_tcp(
    address: Option<IpAddr>,
    port: u16,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> Result<TcpListener, ListenError> {
    if let Some(address) = address {
        return listen_at((address, port).into(), prepare);
    }
    match listen_at((Ipv6Addr::UNSPECIFIED, port).into(), &prepare) {
        Err(error) if error.cause.kind() != io::ErrorKind::AddrInUse => {
            listen_at((Ipv4Addr::UNSPECIFIED, port).into(), prepare)
        }
        listening => listening,
    }
}

fn listen_at(
    address: SocketAddr,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> Result<TcpListener, ListenError> {
    bind_listener(address, prepare).map_err(|cause| ListenError { address, cause })
}

fn bind_listener(
    address: SocketAddr,
    prepare: impl Fn(&Socket) -> io::Result<()>,
) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    prepare(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Raises the limit of open files to its maximum, and returns the number of descriptors that this
/// process may have.
pub fn most_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let raised = if setrlimit(Resource::Nofile, wanted).is_ok() {
        limit.maximum
    } else {
        limit.current
    };
    raised.unwrap_or(u64::MAX)
}
