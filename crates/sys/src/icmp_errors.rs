//! ICMP errors about messages that the network did not deliver (`IP_RECVERR`, `IPV6_RECVERR`;
//! `ip(7)`): the packets of ICMP that answer them, which the kernel gives to the socket that sent
//! them and to nobody else. No privilege is needed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use crate::control::control_messages;
use crate::message::{self, parse_address};
use crate::socket::enable_option;

/// `struct sock_extended_err` (`include/uapi/linux/errqueue.h`): where its fields begin, and the
/// address behind it.
const ORIGIN: usize = 4;
const KIND: usize = 5;
const CODE: usize = 6;
const INFORMATION: usize = 8;
const OFFENDER: usize = 16;

const ORIGIN_LOCAL: u8 = 1;
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;

/// An ICMP error about a message that this socket sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// Bytes of the message, from its first, that are in the buffer: as many as the packet of ICMP
    /// quotes.
    pub quoted: usize,
    /// Destination of the message.
    pub target: Option<SocketAddr>,
    /// Address that reports the error; `None` if it is this host itself, of a message that it did
    /// not send.
    pub by: Option<IpAddr>,
    /// Type of the packet of ICMP (of its version 6 where the address is one of IPv6); 0 of this
    /// host itself.
    pub kind: u8,
    /// Code of the packet of ICMP.
    pub code: u8,
    /// The largest packet that passes, where that is what it is about; otherwise without meaning.
    pub mtu: u32,
}

/// Has the kernel keep what the network says of the messages of a `socket` of IPv4 or IPv6, for
/// [`icmp_error`].
///
/// # Errors
/// Fails as `setsockopt` does.
pub fn enable_recverr(socket: impl AsFd, is_ipv6: bool) -> io::Result<()> {
    let (level, name) = if is_ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    } else {
        (libc::IPPROTO_IP, libc::IP_RECVERR)
    };
    enable_option(socket, level, name)
}

/// The next that was kept; waits for none. `None` if it is about something else.
///
/// # Errors
/// Fails as `recvmsg` does: with `WouldBlock` where there is none.
pub fn icmp_error(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<IcmpError>> {
    let message =
        message::receive_message(socket, buffer, libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE)?;
    Ok(parse_icmp_error(&message.stated.0).map(|stated| IcmpError {
        quoted: message.length,
        target: message.peer_address(),
        ..stated
    }))
}

fn parse_icmp_error(stated: &[u8]) -> Option<IcmpError> {
    let kinds = [
        (libc::IPPROTO_IP, libc::IP_RECVERR),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    ];
    let found =
        control_messages(stated).find(|message| kinds.contains(&(message.level, message.kind)))?;
    let data = found.data;
    let by = match *data.get(ORIGIN)? {
        ORIGIN_LOCAL => None,
        ORIGIN_ICMP | ORIGIN_ICMP6 => Some(parse_address(data.get(OFFENDER..)?)?.ip()),
        _ => return None,
    };
    let mtu = u32::from_ne_bytes(*data.get(INFORMATION..)?.first_chunk()?);
    Some(IcmpError {
        quoted: 0,
        target: None,
        by,
        kind: *data.get(KIND)?,
        code: *data.get(CODE)?,
        mtu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    /// Returns the first error that arrives within five seconds.
    fn eventually(socket: &UdpSocket, buffer: &mut [u8]) -> IcmpError {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match icmp_error(socket, buffer) {
                Ok(found) => return found.unwrap(),
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_port_where_nobody_listens_is_reported_with_the_message_and_its_target() {
        const PORT_UNREACHABLE: [(u8, u8); 2] = [(3, 3), (1, 4)];
        let addresses = fullpipe_testkit::loopback_addresses(module_path!()).into_iter();
        for (any, expected) in addresses.map(|address| (address, 0)).zip(PORT_UNREACHABLE) {
            let closed = UdpSocket::bind(any).unwrap();
            let target = closed.local_addr().unwrap();
            drop(closed);
            let socket = UdpSocket::bind(any).unwrap();
            enable_recverr(&socket, target.is_ipv6()).unwrap();
            socket.send_to(b"is anybody there?", target).unwrap();
            let mut buffer = [0; 100];
            let found = eventually(&socket, &mut buffer);
            assert_eq!(&buffer[..found.quoted], b"is anybody there?");
            assert_eq!((found.target, found.by), (Some(target), Some(target.ip())));
            assert_eq!((found.kind, found.code), expected);
        }
    }

    #[test]
    fn without_an_error_nobody_waits() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        enable_recverr(&socket, false).unwrap();
        assert_eq!(
            icmp_error(&socket, &mut []).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    proptest! {
        #[test]
        fn any_control_data_is_read(stated in proptest::collection::vec(any::<u8>(), 0..100)) {
            let header = [&(16 + stated.len()).to_ne_bytes()[..], &[0; 4], &libc::IP_RECVERR.to_ne_bytes()].concat();
            let error = [&header[..], &stated].concat();
            let _ = (parse_icmp_error(&stated), parse_icmp_error(&error));
        }
    }
}
