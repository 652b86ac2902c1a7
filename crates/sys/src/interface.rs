//! Configuration of network devices by `ioctl`, in the network namespace of the calling thread.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use fullpipe_units::{ByteCount, SegCount};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socket, socket_with};

use crate::route::set_transmit_queue;

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

/// Gives device `name` its addresses, its MTU and its queue, and brings it up; the kernel routes the peer to it.
///
/// # Errors
/// What the kernel says to the step that failed, with the step named.
pub fn configure_ipv4(name: &str, link: Ipv4Link) -> io::Result<()> {
    let control = control_socket()?;
    set(&control, name, "its address", libc::SIOCSIFADDR, |request| {
        request.ifr_ifru.ifru_addr = socket_address(link.local);
    })?;
    set(&control, name, "its peer's address", libc::SIOCSIFDSTADDR, |request| {
        request.ifr_ifru.ifru_dstaddr = socket_address(link.peer);
    })?;
    set(&control, name, "its MTU", libc::SIOCSIFMTU, |request| request.ifr_ifru.ifru_mtu = link.mtu.get() as i32)?;
    set_transmit_queue(name, link.transmit_queue).map_err(|cause| failed("its queue length", name, &cause))?;
    bring_up(&control, name)
}

/// Makes TCP build single segments for device `name` (`gso_max_segs` 1), by one `RTM_SETLINK`.
///
/// Switching the device's own segmentation off is not enough: since Linux 4.17 TCP builds trains for every device, lets the
/// kernel cut them at the last moment, and meanwhile defers to make them longer (`tcp_tso_should_defer`), so that it
/// sends in bursts and leaves a part of its window unused.
///
/// # Errors
/// What the kernel says.
pub fn single_segments(name: &str) -> io::Result<()> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let index = name_to_index(control_socket()?, name)?;
    rustix::net::send(&socket, &set_link_request(index, libc::IFLA_GSO_MAX_SEGS, 1), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match link_error(&answer[..length]) {
        Some(0) => Ok(()),
        Some(negative) => Err(io::Error::from_raw_os_error(-negative)),
        None => Err(io::Error::other("the kernel's answer about a device is too short")),
    }
}

/// Brings the loopback device up.
///
/// # Errors
/// What the kernel says.
pub fn loopback_up() -> io::Result<()> {
    bring_up(&control_socket()?, "lo")
}

/// An empty request for device `name`.
pub(crate) fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is a plain C structure of integers and byte arrays, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("\"{name}\" is too long for a device")));
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(request)
}

/// A `RTM_SETLINK` message that gives the device with `index` the 32-bit `attribute`: `nlmsghdr`, `ifinfomsg`, `rtattr`,
/// value, all native-endian, as `linux/rtnetlink.h` has them.
fn set_link_request(index: u32, attribute: u16, value: u32) -> Vec<u8> {
    const HEADER: u32 = 16;
    const INTERFACE: u32 = 16;
    const ATTRIBUTE: u16 = 8;
    let mut message = Vec::new();
    message.extend((HEADER + INTERFACE + u32::from(ATTRIBUTE)).to_ne_bytes());
    message.extend(libc::RTM_SETLINK.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
    message.extend([0; 8]); // sequence and port: one question, one answer
    message.extend([0; 4]); // family, padding, device type
    message.extend(index.to_ne_bytes());
    message.extend([0; 8]); // flags and their mask: unchanged
    message.extend(ATTRIBUTE.to_ne_bytes());
    message.extend(attribute.to_ne_bytes());
    message.extend(value.to_ne_bytes());
    message
}

/// The error number in an `NLMSG_ERROR` answer, behind its header: 0 or negative.
fn link_error(answer: &[u8]) -> Option<i32> {
    answer.get(16..20)?.try_into().ok().map(i32::from_ne_bytes)
}

fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::INET, SocketType::DGRAM, None)?)
}

fn bring_up(control: &OwnedFd, name: &str) -> io::Result<()> {
    set(control, name, "its state", libc::SIOCSIFFLAGS, |request| {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    })
}

fn set(
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
        return Err(failed(what, name, &io::Error::last_os_error()));
    }
    Ok(())
}

fn failed(what: &str, name: &str, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("cannot set {what} on device {name}: {cause}"))
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let octets = address.octets().map(|byte| byte as libc::c_char);
    let mut data = [0; 14];
    // `sockaddr_in` seen as `sockaddr`: two bytes of port, then the address in network order.
    data[2..6].copy_from_slice(&octets);
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}
