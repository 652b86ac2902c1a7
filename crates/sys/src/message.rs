//! A message with the address that it came from, or was to go to, and the control messages that the
//! kernel passes with it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use crate::control::ControlBuffer;

/// Room for the control messages that the kernel passes with a message: three times and an error
/// with an address, each with its header.
const CONTROL_LENGTH: usize = 256;

/// `struct sockaddr_in6`, the longest that is read here.
const NAME_LENGTH: usize = size_of::<libc::sockaddr_in6>();

/// A header of a message that points to nothing.
const EMPTY_HEADER: libc::msghdr = {
    // SAFETY: `msghdr` is a plain C structure of pointers and integers, for which all zeros is a
    // value.
    unsafe { std::mem::zeroed() }
};

/// A message that was received.
pub(crate) struct SocketMessage {
    /// Bytes of it that are in the buffer.
    pub length: usize,
    /// The control messages that the kernel passed with it.
    pub stated: ControlBuffer<CONTROL_LENGTH>,
    name: SocketName,
}

#[repr(C, align(8))]
struct SocketName([u8; NAME_LENGTH]);

impl SocketMessage {
    /// Returns the source of the message or, of one from the error queue, its destination; `None`
    /// if that is no IP address.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        parse_address(&self.name.0)
    }
}

/// Receives a message, which is cut off where `buffer` is too short.
///
/// # Errors
/// Fails as `recvmsg` does.
pub(crate) fn receive_message(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: i32,
) -> io::Result<SocketMessage> {
    let mut message = SocketMessage {
        length: 0,
        stated: ControlBuffer::EMPTY,
        name: SocketName([0; NAME_LENGTH]),
    };
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut header = EMPTY_HEADER;
    header.msg_name = message.name.0.as_mut_ptr().cast();
    header.msg_namelen = NAME_LENGTH as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = message.stated.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_LENGTH as _;
    // SAFETY: the descriptor is open for the borrow; name, part and control buffer live on this
    // stack with their lengths, and the part is `buffer`, which is borrowed mutably.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    message.length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    Ok(message)
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6`.
pub(crate) fn parse_address(name: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = name.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    let (first, rest) = rest.split_first_chunk::<4>()?;
    let port = u16::from_be_bytes(*port);
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(*first), port).into()),
        libc::AF_INET6 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            let (scope, _) = rest.split_first_chunk()?;
            let (flow, scope) = (u32::from_be_bytes(*first), u32::from_ne_bytes(*scope));
            Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_name_is_read(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_address(&name);
        }
    }
}
