//! UDP sockets for QUIC.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fullpipe_control::canonical_address;
use fullpipe_sys::socket_memory;
use fullpipe_units::ByteCount;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover,
    set_ipv6_mtu_discover, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force,
    set_socket_send_buffer_size, set_socket_send_buffer_size_force,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::pipe::UdpBuffer;

/// Buffers that are asked for: what 1 Gbit/s brings while the thread waits 30 ms for a processor.
/// The kernel counts each datagram with what it needs around it, so it keeps twice as much.
const BUFFER: usize = 4 << 20;

/// IP and UDP headers.
const IPV4_HEADERS: u32 = 20 + 8;
const IPV6_HEADERS: u32 = 40 + 8;

/// Bytes of a datagram that every path of QUIC carries (RFC 9000, section 14).
pub(super) const MIN_DATAGRAM: u16 = 1200;

/// Bytes of a datagram at most. Ten of them must fit into one message to the kernel.
pub(super) const MAX_DATAGRAM: u16 = 6400;

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
    let socket = new(address)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn new(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if let IpAddr::V6(ip) = address.ip() {
        socket.set_only_v6(!ip.is_unspecified() && ip.to_ipv4_mapped().is_none())?;
    }
    socket.set_nonblocking(true)?;
    // The library finds out what the path carries; nothing on the way may cut a datagram. One
    // family refuses each.
    let _ = set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE);
    let _ = set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE);
    Ok(socket)
}

/// Has the kernel take nothing of anybody but `remote` any more, and sends from `local`, which that
/// has called. To connect a socket of all addresses would give it the one that the routes prefer,
/// so this is another socket at the same port, to which the kernel passes what fits it better
/// (`udp4_lib_lookup2`).
pub(super) fn connect_accepted(
    shared: &UdpSocket,
    local: Option<IpAddr>,
    remote: SocketAddr,
) -> io::Result<UdpSocket> {
    let mut own = shared.local_addr()?;
    let Some(local) = local.filter(|_| own.ip().is_unspecified()) else {
        let socket = shared.try_clone()?;
        socket.connect(remote)?;
        return Ok(socket);
    };
    own.set_ip(local);
    if let (SocketAddr::V6(own), SocketAddr::V6(remote)) = (&mut own, remote) {
        own.set_scope_id(remote.scope_id());
    }
    let socket = new(own)?;
    // Only from now on: two who listen must not have one port. Others of this host than this user
    // may not share it.
    SockRef::from(shared).set_reuse_port(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&own.into())?;
    socket.connect(&remote.into())?;
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
