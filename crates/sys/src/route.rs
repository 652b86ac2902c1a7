//! Configuration of network devices by netlink, for what `ioctl` does not offer or permits to the
//! machine's root only.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::netdevice::index_to_name;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::dump::{
    HEADER_LENGTH, address_bytes, attribute_u32, check_acknowledgement, netlink_message,
    netlink_socket,
};
use crate::namespace::NetNamespace;
use crate::socket::control_socket;

/// `struct ifinfomsg`; all zeros names no device by its number.
const NO_DEVICE: [u8; 16] = [0; 16];

/// The other end of a pair, among the data of a `veth` device (`linux/veth.h`).
const VETH_INFO_PEER: u16 = 1;

/// Makes a pair of Ethernet devices that lead to each other, one in each of two network namespaces,
/// both called `name`. They go with the first namespace that goes.
///
/// # Errors
/// Fails with the kernel's error: `PermissionDenied` without the capability in both namespaces,
/// `AlreadyExists` if one of them has a device of that name.
pub fn create_veth(name: &str, [first, second]: [&NetNamespace; 2]) -> io::Result<()> {
    send_request(&create_veth_request(
        name,
        [first, second].map(|network| network.as_fd().as_raw_fd()),
    ))
}

fn create_veth_request(name: &str, [first, second]: [i32; 2]) -> Vec<u8> {
    let mut peer = NO_DEVICE.to_vec();
    push_place(&mut peer, name, second);
    let (mut data, mut kind) = (Vec::new(), Vec::new());
    push_attribute(&mut data, VETH_INFO_PEER, &peer);
    push_attribute(&mut kind, libc::IFLA_INFO_KIND, b"veth");
    push_attribute(&mut kind, libc::IFLA_INFO_DATA, &data);
    let mut link = NO_DEVICE.to_vec();
    push_place(&mut link, name, first);
    push_attribute(&mut link, libc::IFLA_LINKINFO, &kind);
    netlink_message(
        libc::RTM_NEWLINK,
        libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL,
        &link,
    )
}

/// Name and network namespace of a new device.
fn push_place(attributes: &mut Vec<u8>, name: &str, network: i32) {
    push_attribute(attributes, libc::IFLA_IFNAME, &nul_terminated(name));
    push_attribute(attributes, libc::IFLA_NET_NS_FD, &network.to_ne_bytes());
}

/// Gives device `name` in the network namespace of the calling thread the 32-bit `attribute`
/// (`IFLA_…`).
///
/// # Errors
/// Fails with the kernel's error.
pub(crate) fn set_link(name: &str, attribute: u16, value: u32) -> io::Result<()> {
    send_request(&set_link_request(name, attribute, value))
}

/// `RTM_SETLINK` for the device of that name.
fn set_link_request(name: &str, attribute: u16, value: u32) -> Vec<u8> {
    let mut link = named_link(name);
    push_attribute(&mut link, attribute, &value.to_ne_bytes());
    netlink_message(libc::RTM_SETLINK, libc::NLM_F_ACK, &link)
}

/// `RTM_GETLINK` for the device of that name, which is answered with the device and not with an
/// acknowledgement.
pub(crate) fn get_link_request(name: &str) -> Vec<u8> {
    netlink_message(libc::RTM_GETLINK, 0, &named_link(name))
}

/// `struct ifinfomsg` with the name of a device.
fn named_link(name: &str) -> Vec<u8> {
    let mut link = NO_DEVICE.to_vec();
    push_attribute(&mut link, libc::IFLA_IFNAME, &nul_terminated(name));
    link
}

/// The device by which this host's packets to `target` leave, as things are.
///
/// # Errors
/// Fails with the kernel's error: `NetworkUnreachable` where there is no route.
pub fn output_device(target: IpAddr) -> io::Result<String> {
    let mut answer = [0; 1024];
    let answer = ask(&route_request(target), &mut answer)?;
    let attributes = answer.get(HEADER_LENGTH + ROUTE_LENGTH..);
    let index = attribute_u32(attributes.unwrap_or_default(), libc::RTA_OIF);
    let index = index
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer without a device"))?;
    Ok(index_to_name(control_socket()?, index)?)
}

/// `struct rtmsg`.
const ROUTE_LENGTH: usize = 12;

/// `RTM_GETROUTE` for one address.
fn route_request(target: IpAddr) -> Vec<u8> {
    let (family, address) = address_bytes(target);
    let mut route = vec![0; ROUTE_LENGTH];
    route[..2].copy_from_slice(&[family as u8, (address.len() * 8) as u8]);
    push_attribute(&mut route, libc::RTA_DST, &address);
    netlink_message(libc::RTM_GETROUTE, 0, &route)
}

/// Sends a request, and waits for the kernel to say what became of it.
pub(crate) fn send_request(message: &[u8]) -> io::Result<()> {
    check_acknowledgement(exchange_messages(message, &mut [0; 1024])?)
}

/// Sends a request, and waits for the answer.
pub(crate) fn ask<'a>(message: &[u8], buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let answer = exchange_messages(message, buffer)?;
    if answer.get(4..6) == Some(&libc::NLMSG_ERROR.to_ne_bytes()[..2]) {
        check_acknowledgement(answer)?;
    }
    Ok(answer)
}

fn exchange_messages<'a>(message: &[u8], buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let socket = netlink_socket(None)?;
    send(&socket, message, SendFlags::empty())?;
    let (length, _) = recv(&socket, &mut *buffer, RecvFlags::empty())?;
    Ok(&buffer[..length])
}

pub(crate) fn nul_terminated(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}

/// Length, kind and value, filled up to a multiple of four bytes.
pub(crate) fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len() as u16;
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::attribute;

    #[test]
    fn the_request_is_as_long_as_it_says() {
        let message = set_link_request("path0", libc::IFLA_TXQLEN, 20_000);
        assert_eq!(message.len(), 16 + 16 + 12 + 8);
        assert_eq!(message[..4], 52_u32.to_ne_bytes());
        assert_eq!(
            message[32..44],
            [&[10, 0, 3, 0], "path0\0\0\0".as_bytes()].concat()
        );
    }

    #[test]
    fn a_pair_of_devices_is_described_from_the_inside_out() {
        let message = create_veth_request("pair0", [3, 4]);
        let place = 12 + 8;
        let peer = 4 + 16 + place;
        let kind = 8 + 4 + peer;
        assert_eq!(message.len(), 16 + 16 + place + 4 + kind);
        assert_eq!(message[..4], (message.len() as u32).to_ne_bytes());
        assert!(
            message.ends_with(&[8, 0, 28, 0, 4, 0, 0, 0]),
            "the peer's namespace comes last"
        );
    }

    #[test]
    fn packets_to_this_host_leave_by_loopback_and_others_by_one_device_or_none() {
        assert_eq!(output_device([127, 0, 0, 1].into()).unwrap(), "lo");
        // There may be no route, and no IPv6.
        for elsewhere in ["192.0.2.1", "2001:db8::1"] {
            let device = output_device(elsewhere.parse().unwrap());
            assert!(
                device.is_err() || device.is_ok_and(|device| device != "lo"),
                "{elsewhere}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_attributes_are_read(attributes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let _ = attribute(&attributes, libc::RTA_OIF);
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let error = set_link("no-such-device", libc::IFLA_TXQLEN, 1).unwrap_err();
        let refused = [libc::ENODEV, libc::EPERM];
        assert!(
            error
                .raw_os_error()
                .is_some_and(|errno| refused.contains(&errno)),
            "{error}"
        );
    }
}
