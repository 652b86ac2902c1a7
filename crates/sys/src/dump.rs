//! Answers that the kernel gives by netlink, and lists of them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// `struct nlmsghdr`, and behind it an error number or a `struct ifinfomsg`.
pub(crate) const HEADER_LENGTH: usize = 16;

/// The kernel answers at once, or not at all.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes that the kernel sends at once (`NLMSG_GOODSIZE` and what drivers ask for).
const BUFFER: usize = 64 * 1024;

/// A netlink message: header and payload.
pub(crate) fn netlink_message(kind: u16, flags: libc::c_int, payload: &[u8]) -> Vec<u8> {
    let mut message = ((HEADER_LENGTH + payload.len()) as u32)
        .to_ne_bytes()
        .to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(payload);
    message
}

/// Returns a socket for requests to the kernel by this protocol of netlink; `None` is that of
/// devices and routes.
pub(crate) fn netlink_socket(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?)
}

/// Asks for the list of `kind` and shows each message of it to `visit`: its kind, and what follows
/// its header.
pub(crate) fn dump_list(
    protocol: Option<Protocol>,
    kind: u16,
    payload: &[u8],
    visit: &mut dyn FnMut(u16, &[u8]),
) -> io::Result<()> {
    let socket = netlink_socket(protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
    let request = netlink_message(kind, libc::NLM_F_DUMP, payload);
    send(&socket, &request, SendFlags::empty())?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let (length, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        if read_messages(&buffer[..length], visit)? == DumpProgress::Ended {
            return Ok(());
        }
    }
}

/// True if more is to come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DumpProgress {
    GoesOn,
    Ended,
}

/// Reads the messages of one datagram.
pub(crate) fn read_messages(
    mut messages: &[u8],
    visit: &mut dyn FnMut(u16, &[u8]),
) -> io::Result<DumpProgress> {
    while let Some((length, rest)) = messages.split_first_chunk() {
        let length = u32::from_ne_bytes(*length) as usize;
        let payload = messages.get(HEADER_LENGTH..length);
        let (Some((kind, _)), Some(payload)) = (rest.split_first_chunk(), payload) else {
            let why = "the kernel's list is cut off";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        match i32::from(u16::from_ne_bytes(*kind)) {
            libc::NLMSG_DONE => return check_completion(payload).map(|()| DumpProgress::Ended),
            libc::NLMSG_ERROR => {
                return check_acknowledgement(messages).map(|()| DumpProgress::Ended);
            }
            _ => visit(u16::from_ne_bytes(*kind), payload),
        }
        messages = messages
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Ok(DumpProgress::GoesOn)
}

/// The end of a list carries the error that cut it short, below zero (`netlink_dump_done`).
fn check_completion(end: &[u8]) -> io::Result<()> {
    match parse_u32(end).map(u32::cast_signed) {
        Some(errno @ ..0) => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
        _ => Ok(()),
    }
}

/// The attributes of a message, each with its kind.
pub(crate) fn parse_attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk()?;
        let (kind, _) = behind.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes(*length));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The upper bits say how the value is made, not what it is (`NLA_TYPE_MASK`).
        Some((u16::from_ne_bytes(*kind) & 0x3fff, value))
    })
}

/// The value of the first attribute of this kind.
pub(crate) fn attribute(within: &[u8], wanted: u16) -> Option<&[u8]> {
    parse_attributes(within)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

/// The number of 32 bits in the first attribute of this kind.
pub(crate) fn attribute_u32(within: &[u8], wanted: u16) -> Option<u32> {
    attribute(within, wanted).and_then(parse_u32)
}

/// The family of an address, and its bytes.
pub(crate) fn address_bytes(address: IpAddr) -> (i32, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    }
}

/// The address of a family that `bytes` begin with.
pub(crate) fn address_of(family: i32, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(*bytes.first_chunk()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*bytes.first_chunk()?).into()),
        _ => None,
    }
}

/// An acknowledgement is an error with the number zero; any other is negative.
pub(crate) fn check_acknowledgement(answer: &[u8]) -> io::Result<()> {
    match u32_at(answer, HEADER_LENGTH).map(u32::cast_signed) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "an answer without an error number",
        )),
    }
}

/// A number of 32 bits.
pub(crate) fn parse_u32(value: &[u8]) -> Option<u32> {
    value.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The number of 32 bits at `at`; `None` beyond the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    parse_u32(bytes.get(at..)?)
}

/// The number of 32 bits at `at`; zero beyond the end.
pub(crate) fn read_word(bytes: &[u8], at: usize) -> u32 {
    u32_at(bytes, at).unwrap_or_default()
}

/// A text that ends with a zero byte, or with its attribute.
pub(crate) fn parse_text(value: &[u8]) -> String {
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_messages_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = read_messages(&bytes, &mut |_, payload| {
                parse_attributes(payload).for_each(|(_, value)| { let _ = (parse_u32(value), parse_text(value)); });
            });
        }
    }

    #[test]
    fn a_list_ends_where_the_kernel_says() {
        let done = netlink_message(libc::NLMSG_DONE as u16, 0, &[0; 4]);
        let one = netlink_message(16, 0, &[7; 4]);
        let mut seen = Vec::new();
        let both = [one.clone(), done].concat();
        assert_eq!(
            read_messages(&both, &mut |kind, payload| seen
                .push((kind, payload.to_vec())))
            .unwrap(),
            DumpProgress::Ended
        );
        assert_eq!(seen, [(16, vec![7; 4])]);
        assert_eq!(
            read_messages(&one, &mut |_, _| {}).unwrap(),
            DumpProgress::GoesOn
        );
    }

    #[test]
    fn a_list_that_the_kernel_could_not_complete_is_none() {
        let ended = |errno: i32| {
            read_messages(
                &netlink_message(libc::NLMSG_DONE as u16, 0, &errno.to_ne_bytes()),
                &mut |_, _| {},
            )
        };
        assert_eq!(
            ended(-libc::ENOENT).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(ended(i32::MIN).is_err() && ended(0).is_ok());
        assert!(
            read_messages(
                &netlink_message(libc::NLMSG_DONE as u16, 0, &[]),
                &mut |_, _| {}
            )
            .is_ok()
        );
    }
}
