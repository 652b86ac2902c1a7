//! Configuration of network devices by netlink, for what `ioctl` does not offer or permits to the machine's root only.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::namespace::NetNamespace;

/// `struct nlmsghdr`, and behind it an error number or a `struct ifinfomsg`.
const HEADER_LENGTH: usize = 16;

/// `struct ifinfomsg`; all zeros names no device by its number.
const NO_DEVICE: [u8; 16] = [0; 16];

/// The other end of a pair, among the data of a `veth` device (`linux/veth.h`).
const VETH_INFO_PEER: u16 = 1;

/// Makes a pair of Ethernet devices that lead to each other, one in each of two network namespaces, both called `name`.
/// They go with the first namespace that goes.
///
/// # Errors
/// What the kernel says: `PermissionDenied` without the capability in both namespaces, `AlreadyExists` if one of them
/// has a device of that name.
pub fn create_veth(name: &str, [first, second]: [&NetNamespace; 2]) -> io::Result<()> {
    request(&create_veth_request(name, [first, second].map(|network| network.as_fd().as_raw_fd())))
}

fn create_veth_request(name: &str, [first, second]: [i32; 2]) -> Vec<u8> {
    let mut peer = NO_DEVICE.to_vec();
    push_place(&mut peer, name, second);
    let (mut data, mut kind) = (Vec::new(), Vec::new());
    push_attribute(&mut data, VETH_INFO_PEER, &peer);
    push_attribute(&mut kind, libc::IFLA_INFO_KIND, b"veth");
    push_attribute(&mut kind, libc::IFLA_INFO_DATA, &data);
    let mut attributes = Vec::new();
    push_place(&mut attributes, name, first);
    push_attribute(&mut attributes, libc::IFLA_LINKINFO, &kind);
    link_request(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &attributes)
}

/// What a new device is called, and in which network namespace it is.
fn push_place(attributes: &mut Vec<u8>, name: &str, network: i32) {
    push_attribute(attributes, libc::IFLA_IFNAME, &terminated(name));
    push_attribute(attributes, libc::IFLA_NET_NS_FD, &network.to_ne_bytes());
}

/// Gives device `name` in the network namespace of the calling thread the 32-bit `attribute` (`IFLA_…`).
///
/// # Errors
/// What the kernel says.
pub(crate) fn set_link(name: &str, attribute: u16, value: u32) -> io::Result<()> {
    request(&set_link_request(name, attribute, value))
}

/// `RTM_SETLINK` for the device of that name.
fn set_link_request(name: &str, attribute: u16, value: u32) -> Vec<u8> {
    let mut attributes = Vec::new();
    push_attribute(&mut attributes, libc::IFLA_IFNAME, &terminated(name));
    push_attribute(&mut attributes, attribute, &value.to_ne_bytes());
    link_request(libc::RTM_SETLINK, 0, &attributes)
}

/// Sends a request, and waits for the kernel to say what became of it.
fn request(message: &[u8]) -> io::Result<()> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, message, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    acknowledged(&answer[..length])
}

/// A request about a device that its attributes name, to be acknowledged.
fn link_request(kind: u16, flags: libc::c_int, attributes: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_LENGTH];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16).to_ne_bytes());
    message.extend(NO_DEVICE);
    message.extend(attributes);
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
}

fn terminated(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}

/// Length, kind and value, filled up to a multiple of four bytes.
fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len() as u16;
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// An acknowledgement is an error with the number zero; any other is negative.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let number = answer.get(HEADER_LENGTH..HEADER_LENGTH + 4).and_then(|bytes| bytes.try_into().ok());
    match number.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer without an error number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_as_long_as_it_says() {
        let message = set_link_request("path0", libc::IFLA_TXQLEN, 20_000);
        assert_eq!(message.len(), 16 + 16 + 12 + 8);
        assert_eq!(message[..4], 52_u32.to_ne_bytes());
        assert_eq!(message[32..44], [&[10, 0, 3, 0], "path0\0\0\0".as_bytes()].concat());
    }

    #[test]
    fn a_pair_of_devices_is_described_from_the_inside_out() {
        let message = create_veth_request("pair0", [3, 4]);
        let place = 12 + 8;
        let peer = 4 + 16 + place;
        let kind = 8 + 4 + peer;
        assert_eq!(message.len(), 16 + 16 + place + 4 + kind);
        assert_eq!(message[..4], (message.len() as u32).to_ne_bytes());
        assert!(message.ends_with(&[8, 0, 28, 0, 4, 0, 0, 0]), "the peer's namespace comes last");
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let error = set_link("no-such-device", libc::IFLA_TXQLEN, 1).unwrap_err();
        let refused = [libc::ENODEV, libc::EPERM];
        assert!(error.raw_os_error().is_some_and(|errno| refused.contains(&errno)), "{error}");
    }
}
