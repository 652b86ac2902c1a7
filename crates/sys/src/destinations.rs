//! Datagrams with the address of this host that they were sent to, and from which the answer must
//! leave: a UDP socket of all addresses answers from the one that the routes prefer (`IP_PKTINFO`,
//! `ip(7)`; `IPV6_PKTINFO`, RFC 3542, section 6).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::addr::{SocketAddrArg as _, SocketAddrOpaque};

use crate::control::{ControlBuffer, control_message, control_messages};
use crate::dump::address_of;
use crate::message;
use crate::socket::set_option;

/// Room for `struct in6_pktinfo` with its header.
const CONTROL_LENGTH: usize = 40;

/// A datagram that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Bytes of it that are in the buffer.
    pub length: usize,
    /// Source of the datagram.
    pub from: SocketAddr,
    /// The address of this host that it was sent to, where [`report_destinations`] asked for it. A
    /// socket of both families reports one of IPv4 as an IPv6 address that stands for it, as it
    /// does with the source.
    pub to: Option<IpAddr>,
}

/// Has the kernel report to which address each datagram was sent.
///
/// # Errors
/// Fails as `setsockopt` does.
pub fn report_destinations(socket: impl AsFd) -> io::Result<()> {
    let yes = 1_i32.to_ne_bytes();
    // One of IPv4 refuses the first.
    set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &yes)
        .or_else(|_| set_option(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &yes))
}

/// Receives a datagram, which is cut off where `buffer` is too short.
///
/// # Errors
/// Fails as `recvmsg` does, and with `InvalidData` if the source is no IP address.
pub fn receive_with_destination(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<ReceivedDatagram> {
    let message = message::receive_message(socket, buffer, 0)?;
    let from = message.peer_address().ok_or(io::ErrorKind::InvalidData)?;
    Ok(ReceivedDatagram {
        length: message.length,
        from,
        to: parse_destination(&message.stated.0),
    })
}

/// Sends a datagram to `to`, from the address `from` of this host, which [`ReceivedDatagram::to`]
/// has stated, or without one from that which the routes prefer.
///
/// # Errors
/// Fails as `sendmsg` does, for example if this host does not have the address `from`.
pub fn send_from(
    socket: impl AsFd,
    data: &[u8],
    to: SocketAddr,
    from: Option<IpAddr>,
) -> io::Result<usize> {
    let mut control = ControlBuffer::<CONTROL_LENGTH>::EMPTY;
    let stated = from.map_or(Ok(0), |from| write_source(&mut control.0, from))?;
    let mut part = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    let send = |name: *const SocketAddrOpaque, length| {
        let mut header = message::EMPTY_HEADER;
        header.msg_name = name.cast_mut().cast();
        header.msg_namelen = length;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = stated as _;
        // SAFETY: the descriptor is open for the borrow; name, part and control buffer live until
        // the call returns, with their lengths, and the part is `data`. The kernel only reads them.
        unsafe {
            libc::sendmsg(
                socket.as_fd().as_raw_fd(),
                &raw const header,
                libc::MSG_NOSIGNAL,
            )
        }
    };
    // SAFETY: the name is read within its length, and no longer than the call lasts.
    let sent = unsafe { to.with_sockaddr(send) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Writes the control message that names a source; returns its length.
fn write_source(into: &mut [u8], from: IpAddr) -> io::Result<usize> {
    // The device follows from the destination.
    let device = 0_i32.to_ne_bytes();
    match from {
        IpAddr::V4(from) => {
            let info = [device, from.octets(), [0; 4]].concat();
            control_message(into, libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
        }
        IpAddr::V6(from) => {
            let info = [&from.octets()[..], &device].concat();
            control_message(into, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
        }
    }
    .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Reads `struct in_pktinfo` or `in6_pktinfo`.
fn parse_destination(stated: &[u8]) -> Option<IpAddr> {
    control_messages(stated).find_map(|message| match (message.level, message.kind) {
        // Behind the number of the device.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => address_of(libc::AF_INET, message.data.get(4..)?),
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => address_of(libc::AF_INET6, message.data),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;

    #[test]
    fn an_answer_leaves_from_the_address_that_was_called() {
        for bound in ["0.0.0.0:0", "[::]:0"] {
            let server = UdpSocket::bind(bound).unwrap();
            report_destinations(&server).unwrap();
            let port = server.local_addr().unwrap().port();
            for called in [[127, 0, 0, 2], [127, 0, 0, 9]] {
                let called = SocketAddr::from((called, port));
                let client = UdpSocket::bind("127.0.0.1:0").unwrap();
                client.send_to(b"question", called).unwrap();
                let mut buffer = [0; 100];
                let received = receive_with_destination(&server, &mut buffer).unwrap();
                assert_eq!(
                    (&buffer[..received.length], received.from.port()),
                    (&b"question"[..], port_of(&client))
                );
                assert_eq!(received.to.map(|to| to.to_canonical()), Some(called.ip()));
                assert_eq!(
                    send_from(&server, b"answer", received.from, received.to).unwrap(),
                    6
                );
                assert_eq!(client.recv_from(&mut buffer).unwrap(), (6, called));
                // Without an address the routes decide.
                send_from(&server, b"answer", received.from, None).unwrap();
                assert_eq!(
                    client.recv_from(&mut buffer).unwrap().1.ip(),
                    client.local_addr().unwrap().ip()
                );
            }
        }
    }

    fn port_of(socket: &UdpSocket) -> u16 {
        socket.local_addr().unwrap().port()
    }

    #[test]
    fn an_address_of_another_host_is_no_source() {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        assert!(send_from(&socket, b"x", to, Some([192, 0, 2, 1].into())).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(stated in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_destination(&stated);
        }
    }
}
