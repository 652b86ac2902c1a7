//! Sockets that listen, and how many connections there is room for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

use crate::error::ServeError;

/// Connections that may wait to be accepted: a rejected must not make a single caller wait for its second attempt.
const BACKLOG: i32 = 4096;

/// Bytes of datagrams that may wait to be read.
const DATAGRAM_BUFFER: usize = 4 << 20;

/// Descriptors that are never given to connections: listeners, settings that are read, the log, the runtime's own.
const RESERVE: u64 = 64;

/// The fewest descriptors with which a server can serve a test.
const MIN_DESCRIPTORS: u64 = 64;

/// A socket that listens on `address`; without one, on every address of both families where the host has IPv6.
///
/// # Errors
/// If the address is taken or not ours.
pub(super) fn listen(address: Option<IpAddr>, port: u16) -> Result<TcpListener, ServeError> {
    let bind = |address: IpAddr| {
        let address = SocketAddr::new(address, port);
        bind(address).map_err(|cause| ServeError::Listen { address, cause })
    };
    match address {
        Some(address) => bind(address),
        None => bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|error| match error {
            ServeError::Listen { ref cause, .. } if cause.kind() == io::ErrorKind::AddrInUse => Err(error),
            _ => bind(Ipv4Addr::UNSPECIFIED.into()),
        }),
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    // What a caller asked with tells of devices on the way. A kernel that keeps it not is no reason to stop.
    let _ = fullpipe_sys::save_syn(&socket);
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A UDP socket at the same address as `listener`. Others may be at it too: those of streams, each connected to its peer.
///
/// # Errors
/// What the kernel says.
pub(super) fn listen_for_datagrams(listener: &TcpListener) -> io::Result<UdpSocket> {
    let address = listener.local_addr()?;
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(SockRef::from(listener).only_v6()?)?;
    }
    socket.set_reuse_address(true)?;
    // As much as the kernel permits: iperf2 clients do not wait until they are waited for.
    let _ = socket.set_recv_buffer_size(DATAGRAM_BUFFER);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// An address as people write it: a socket for both families gives IPv4 callers as `::ffff:192.0.2.1`.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(mapped) => {
            mapped.ip().to_ipv4_mapped().map_or(address, |plain| SocketAddr::new(plain.into(), mapped.port()))
        }
        SocketAddr::V4(_) => address,
    }
}

/// Returns how many connections this process may hold, after asking for all descriptors that it may have.
///
/// # Errors
/// If there are too few descriptors for any test.
pub(super) fn room() -> Result<u32, ServeError> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = if setrlimit(Resource::Nofile, wanted).is_ok() { limit.maximum } else { limit.current };
    room_within(current.unwrap_or(u64::MAX))
}

fn room_within(descriptors: u64) -> Result<u32, ServeError> {
    if descriptors < MIN_DESCRIPTORS {
        return Err(ServeError::Descriptors { permitted: descriptors, needed: MIN_DESCRIPTORS });
    }
    Ok(u32::try_from(descriptors - RESERVE.min(descriptors / 2)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_callers_keep_their_ipv4_address() {
        let seen = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(seen("[::ffff:192.0.2.1]:5201"), "192.0.2.1:5201");
        assert_eq!(seen("[2001:db8::1]:5201"), "[2001:db8::1]:5201");
    }

    #[test]
    fn a_server_with_few_descriptors_serves_or_says_why_not() {
        assert_eq!(room_within(64).ok(), Some(32));
        assert_eq!(room_within(1024).ok(), Some(960));
        let error = room_within(63).unwrap_err().to_string();
        assert!(error.contains("63 open files") && error.contains("ulimit -n"), "{error}");
    }
}
