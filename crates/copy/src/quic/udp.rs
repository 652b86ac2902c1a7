//! UDP sockets for QUIC.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fullpipe_control::canonical_address;
use fullpipe_sys::socket_memory;
use fullpipe_units::ByteCount;
use rustix::net::sockopt::{
    ip_mtu, ipv6_mtu, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force,
    set_socket_send_buffer_size, set_socket_send_buffer_size_force,
};
use socket2::{Domain, Protocol, Socket, Type};

/// Buffers that are asked for: what 1 Gbit/s brings while the thread waits 30 ms for a processor.
/// The kernel counts each datagram with what it needs around it, so it keeps twice as much.
const BUFFER: usize = 4 << 20;

/// IP and UDP headers.
const IPV4_HEADERS: u32 = 20 + 8;
const IPV6_HEADERS: u32 = 40 + 8;

/// Bytes of a datagram that every path of QUIC carries (RFC 9000, section 14).
const MIN_DATAGRAM: u16 = 1200;

/// Bytes of a datagram at most. Ten of them must fit into one message to the kernel.
pub(super) const MAX_DATAGRAM: u16 = 6400;

/// The receive buffer of a UDP socket: what was asked for, and what the kernel permitted.
#[derive(Debug, Clone, Copy)]
pub(super) struct UdpBuffer {
    pub asked: ByteCount,
    pub permitted: ByteCount,
}

/// Returns a socket on the first free port of a range; on any if both are zero. Without an address
/// it has all, of both families if the host has IPv6.
pub(super) fn bind_port(
    address: Option<IpAddr>,
    (first, last): (u16, u16),
) -> io::Result<UdpSocket> {
    let addresses = match address {
        Some(address) => vec![address],
        None => vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
    };
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        for port in first..=last.max(first) {
            match bind_to(SocketAddr::new(address, port)) {
                Ok(socket) => return Ok(socket),
                Err(error) => failed = error,
            }
        }
    }
    Err(failed)
}

fn bind_to(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if let IpAddr::V6(ip) = address.ip() {
        socket.set_only_v6(!ip.is_unspecified() && ip.to_ipv4_mapped().is_none())?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Returns a socket that speaks with one address.
pub(super) fn connect_socket(remote: SocketAddr) -> io::Result<UdpSocket> {
    let any = if remote.is_ipv4() {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = bind_to(SocketAddr::new(any, 0))?;
    socket.connect(remote)?;
    Ok(socket)
}

/// Asks for large buffers, and returns what the kernel permitted.
pub(super) fn enlarge_buffers(socket: &UdpSocket) -> UdpBuffer {
    // Only an administrator may exceed the maximum.
    let _ = set_socket_send_buffer_size_force(socket, BUFFER)
        .or_else(|_| set_socket_send_buffer_size(socket, BUFFER));
    let _ = set_socket_recv_buffer_size_force(socket, BUFFER)
        .or_else(|_| set_socket_recv_buffer_size(socket, BUFFER));
    // The kernel states twice what was asked for.
    let permitted = socket_memory(socket).map_or(0, |memory| memory.rcvbuf.get() / 2);
    UdpBuffer {
        asked: ByteCount::new(BUFFER as u64),
        permitted: ByteCount::new(permitted),
    }
}

/// Returns the datagrams that the kernel knows the way to an address to carry, within the bounds of
/// this program.
pub(super) fn largest_datagram(remote: SocketAddr) -> u16 {
    let remote = canonical_address(remote);
    let known = connect_socket(remote).and_then(|socket| {
        Ok(if remote.is_ipv4() {
            ip_mtu(&socket)?.saturating_sub(IPV4_HEADERS)
        } else {
            ipv6_mtu(&socket)?.saturating_sub(IPV6_HEADERS)
        })
    });
    known.map_or(MIN_DATAGRAM, |size| {
        size.clamp(MIN_DATAGRAM.into(), MAX_DATAGRAM.into()) as u16
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_stay_within_their_ports_and_know_what_the_way_carries() {
        let first = bind_port(None, (0, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        assert!(bind_port(None, (port, port)).is_err());
        assert_eq!(
            largest_datagram(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
            MAX_DATAGRAM
        );
        let buffer = enlarge_buffers(&first);
        assert!(
            buffer.permitted > ByteCount::ZERO && buffer.permitted <= buffer.asked,
            "{buffer:?}"
        );
    }
}
