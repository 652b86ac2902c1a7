//! Configuration of network devices by `ioctl`, in the network namespace of the calling thread.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use fullpipe_units::{ByteCount, SegCount};

use crate::route::set_link;
use crate::socket::control_socket;

/// A point-to-point link as one end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Link {
    /// Address of this end.
    pub local: Ipv4Addr,
    /// Address of the other end.
    pub peer: Ipv4Addr,
    /// Largest IP packet.
    pub mtu: ByteCount,
    /// Packets that the device holds for its reader before it drops.
    pub transmit_queue: SegCount,
}

/// Gives device `name` its addresses, its MTU and its queue, and brings it up; the kernel routes
/// the peer to it.
///
/// # Errors
/// Fails with the kernel's error at the step that failed, with the step named.
pub fn configure_ipv4(name: &str, link: Ipv4Link) -> io::Result<()> {
    let control = control_socket()?;
    set_interface(
        &control,
        name,
        "its address",
        libc::SIOCSIFADDR,
        |request| {
            request.ifr_ifru.ifru_addr = socket_address(link.local);
        },
    )?;
    set_interface(
        &control,
        name,
        "its peer's address",
        libc::SIOCSIFDSTADDR,
        |request| {
            request.ifr_ifru.ifru_dstaddr = socket_address(link.peer);
        },
    )?;
    set_mtu(&control, name, link.mtu)?;
    set_device_queue_length(name, link.transmit_queue)?;
    bring_up(&control, name, 0)
}

/// Gives Ethernet device `name` the hardware address `address`.
///
/// # Errors
/// Fails with the kernel's error.
pub fn set_ethernet_address(name: &str, address: [u8; 6]) -> io::Result<()> {
    let mut data = [0; 14];
    data[..6].copy_from_slice(&address.map(|byte| byte as libc::c_char));
    set_interface(
        &control_socket()?,
        name,
        "its hardware address",
        libc::SIOCSIFHWADDR,
        |request| {
            request.ifr_ifru.ifru_hwaddr = libc::sockaddr {
                sa_family: libc::ARPHRD_ETHER,
                sa_data: data,
            };
        },
    )
}

/// Brings Ethernet device `name` up without an address, for frames with packets of up to `mtu`.
///
/// # Errors
/// Fails with the kernel's error at the step that failed, with the step named.
pub fn ethernet_up(name: &str, mtu: ByteCount) -> io::Result<()> {
    let control = control_socket()?;
    set_mtu(&control, name, mtu)?;
    bring_up(&control, name, libc::IFF_NOARP)
}

/// Makes device `name`, which is up, ask no other host for hardware addresses. The kernel then puts
/// the device's own address into both places of a frame (`arp_constructor`), so that two devices
/// with one address understand each other.
///
/// # Errors
/// Fails with the kernel's error.
pub fn without_arp(name: &str) -> io::Result<()> {
    bring_up(&control_socket()?, name, libc::IFF_NOARP)
}

/// Makes device `name`, which [`configure_ipv4`] has set up, lead to its peer and nowhere else.
/// Before, it is a way to the whole network of its peer's address, which an Ethernet device takes
/// to be as large as the address's class.
///
/// # Errors
/// Fails with the kernel's error.
pub fn lead_to_peer_alone(name: &str) -> io::Result<()> {
    set_netmask(name, Ipv4Addr::BROADCAST)
}

/// Makes device `name`, which [`configure_ipv4`] has set up, lead to every address that begins with
/// the same 24 bits as that of its peer.
///
/// # Errors
/// Fails with the kernel's error.
pub fn lead_to_network_of_peer(name: &str) -> io::Result<()> {
    set_netmask(name, Ipv4Addr::new(255, 255, 255, 0))
}

/// Makes TCP build single segments for device `name` (`gso_max_segs` 1), by one `RTM_SETLINK`.
///
/// Switching the device's own segmentation off is not enough: since Linux 4.17 TCP builds trains
/// for every device, lets the kernel cut them at the last moment, and meanwhile defers to make them
/// longer (`tcp_tso_should_defer`), so that it sends in bursts and leaves a part of its window
/// unused.
///
/// # Errors
/// Fails with the kernel's error.
pub fn single_segments(name: &str) -> io::Result<()> {
    set_link(name, libc::IFLA_GSO_MAX_SEGS, 1)
        .map_err(|cause| interface_error("its longest train", name, &cause))
}

/// Gives device `name` the largest IP packet `mtu`.
///
/// # Errors
/// Fails with the kernel's error: `InvalidInput` where the device cannot carry such packets.
pub fn set_device_mtu(name: &str, mtu: ByteCount) -> io::Result<()> {
    set_mtu(&control_socket()?, name, mtu)
}

/// Lets so many packets wait for device `name`, trains of segments counted as one, where its
/// queueing discipline has no limit of its own (`txqueuelen`). Disciplines that size a ring by it,
/// as `pfifo_fast`, size it anew.
///
/// # Errors
/// Fails with the kernel's error: `ERANGE` where it is not an `int` of the kernel's.
pub fn set_device_queue_length(name: &str, packets: SegCount) -> io::Result<()> {
    // Root of the user namespace that owns the network may do this, which `SIOCSIFTXQLEN` refuses.
    let packets =
        u32::try_from(packets.get()).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))?;
    set_link(name, libc::IFLA_TXQLEN, packets)
        .map_err(|cause| interface_error("its queue length", name, &cause))
}

/// Brings the loopback device up.
///
/// # Errors
/// Fails with the kernel's error.
pub fn loopback_up() -> io::Result<()> {
    bring_up(&control_socket()?, "lo", 0)
}

/// An empty request for device `name`.
pub(crate) fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is a plain C structure of integers and byte arrays, for which all zeros is a
    // value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("\"{name}\" is too long for a device"),
        ));
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(request)
}

fn set_mtu(control: &OwnedFd, name: &str, mtu: ByteCount) -> io::Result<()> {
    set_interface(control, name, "its MTU", libc::SIOCSIFMTU, |request| {
        request.ifr_ifru.ifru_mtu = mtu.get() as i32;
    })
}

fn set_netmask(name: &str, mask: Ipv4Addr) -> io::Result<()> {
    set_interface(
        &control_socket()?,
        name,
        "its netmask",
        libc::SIOCSIFNETMASK,
        |request| {
            request.ifr_ifru.ifru_netmask = socket_address(mask);
        },
    )
}

fn bring_up(control: &OwnedFd, name: &str, flags: libc::c_int) -> io::Result<()> {
    set_interface(control, name, "its state", libc::SIOCSIFFLAGS, |request| {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING | flags) as libc::c_short;
    })
}

fn set_interface(
    control: &OwnedFd,
    name: &str,
    what: &str,
    number: libc::c_ulong,
    fill: impl FnOnce(&mut libc::ifreq),
) -> io::Result<()> {
    let mut request = interface_request(name)?;
    fill(&mut request);
    // SAFETY: each of these requests reads one `ifreq`, which `request` is; the descriptor is open.
    if unsafe { libc::ioctl(control.as_raw_fd(), number as _, &raw mut request) } < 0 {
        return Err(interface_error(what, name, &io::Error::last_os_error()));
    }
    Ok(())
}

fn interface_error(what: &str, name: &str, cause: &io::Error) -> io::Error {
    io::Error::new(
        cause.kind(),
        format!("cannot set {what} on device {name}: {cause}"),
    )
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let octets = address.octets().map(|byte| byte as libc::c_char);
    let mut data = [0; 14];
    // `sockaddr_in` seen as `sockaddr`: two bytes of port, then the address in network order.
    data[2..6].copy_from_slice(&octets);
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}
