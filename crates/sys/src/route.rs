//! Configuration of network devices by netlink, for what `ioctl` does not offer or permits to the machine's root only.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// `struct nlmsghdr`, and behind it an error number or a `struct ifinfomsg`.
const HEADER_LENGTH: usize = 16;

/// Gives device `name` in the network namespace of the calling thread the 32-bit `attribute` (`IFLA_…`).
///
/// # Errors
/// What the kernel says.
pub(crate) fn set_link(name: &str, attribute: u16, value: u32) -> io::Result<()> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &set_link_request(name, attribute, value), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    acknowledged(&answer[..length])
}

/// `RTM_SETLINK` for the device of that name, to be acknowledged.
fn set_link_request(name: &str, attribute: u16, value: u32) -> Vec<u8> {
    let mut message = vec![0; HEADER_LENGTH];
    message[4..6].copy_from_slice(&libc::RTM_SETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
    // `struct ifinfomsg`: all zeros, because the device is named instead of numbered.
    message.extend([0; 16]);
    let name: Vec<u8> = name.bytes().chain([0]).collect();
    push_attribute(&mut message, libc::IFLA_IFNAME, &name);
    push_attribute(&mut message, attribute, &value.to_ne_bytes());
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message
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
    fn a_device_that_is_not_there_is_an_error() {
        let error = set_link("no-such-device", libc::IFLA_TXQLEN, 1).unwrap_err();
        let refused = [libc::ENODEV, libc::EPERM];
        assert!(error.raw_os_error().is_some_and(|errno| refused.contains(&errno)), "{error}");
    }
}
