//! Packet sockets: the IPv4 packets of one Ethernet device, as reads and writes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use fullpipe_units::ByteCount;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::dump::read_word;
use crate::socket::{check_call, enable_option, socket_option};

/// Receive buffer of a socket where root asks for it. The kernel counts its own administration too,
/// half again a small packet, and allows twice what is asked for: a tenth of a second of 1 Gbit/s
/// in small packets.
const RECEIVE_BUFFER: ByteCount = ByteCount::from_mib(16);

/// Opens a socket on device `name` in the network namespace of the calling thread, which the socket
/// keeps alive. Each read returns one frame that carries IPv4 and arrived at the device, and each
/// write sends one: `struct virtio_net_hdr` (10 bytes, `linux/virtio_net.h`), the Ethernet header
/// (14 bytes), the IP packet. It may be a train of segments that the kernel has not cut, with
/// checksums that it has not summed, as the first header says. The descriptor is non-blocking.
///
/// Writes go past the device's queueing discipline; one that it cannot take fails with `ENOBUFS`.
/// Arrivals that find the socket's buffer full are dropped: [`packet_drops`] counts them.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_RAW` over the namespace, `ENODEV` if there is no such
/// device.
pub fn open_packet_socket(name: &str) -> io::Result<OwnedFd> {
    // Without a protocol it receives nothing yet, so that all it ever receives is from this device.
    let socket = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    enable_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR)?;
    enable_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS)?;
    let size = RECEIVE_BUFFER.get() as usize;
    // The limit `rmem_max` binds everybody but the machine's root.
    sockopt::set_socket_recv_buffer_size_force(&socket, size)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, size))?;
    bind_to(
        &socket,
        name_to_index(&socket, name)?,
        libc::ETH_P_IP as u16,
    )?;
    Ok(socket)
}

/// Frames that found the buffer of packet socket `socket` full since the last call
/// (`PACKET_STATISTICS`).
///
/// # Errors
/// Fails as `getsockopt` does, for example for a descriptor that is no packet socket.
pub fn packet_drops(socket: impl AsFd) -> io::Result<u64> {
    // `struct tpacket_stats`: frames, those dropped among them.
    let answer = socket_option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, 8)?;
    Ok(read_word(&answer, 4).into())
}

/// Binds to packets of this protocol (`ETH_P_…`) of one device. Of one protocol other than all the
/// kernel hands over arrivals only, not what others send, and without a copy.
pub(crate) fn bind_to(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is a plain C structure of integers and byte arrays, for which all zeros
    // is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel reads `length` bytes of `address`, which it has.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    check_call(result == 0)
}
