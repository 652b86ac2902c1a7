//! Messages with the times at which the kernel passed them, on their way out and in.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use fullpipe_units::Span;

use crate::control::control_messages;
use crate::datagrams::parse_timespec;
use crate::message;
use crate::socket::set_option;

/// A message, and when the kernel passed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampedMessage {
    /// Bytes of it that are in the buffer.
    pub length: usize,
    /// Source of the message, if that is an IP address.
    pub from: Option<SocketAddr>,
    /// When it came in from its device or went out to it, by the wall clock, since 1970.
    pub at: Option<Span>,
}

/// Has the kernel report when each message arrived and, if they are asked for, when each left
/// (`SO_TIMESTAMPING`, by software). The second come with the messages themselves to
/// [`receive_departure`].
///
/// # Errors
/// Fails as `setsockopt` does.
pub fn stamp_passages(socket: impl AsFd, departures: bool) -> io::Result<()> {
    let arrivals = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let flags = if departures {
        arrivals | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    } else {
        arrivals
    };
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        &flags.to_ne_bytes(),
    )
}

/// The next message, which is cut off where `buffer` is too short; waits for none.
///
/// # Errors
/// Fails as `recvmsg` does: with `WouldBlock` where there is none.
pub fn receive_arrival(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<TimestampedMessage> {
    receive_timestamped(socket, buffer, libc::MSG_DONTWAIT)
}

/// The next message that has left, with all its headers before it; waits for none.
///
/// # Errors
/// Fails as `recvmsg` does: with `WouldBlock` where none has.
pub fn receive_departure(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<TimestampedMessage> {
    receive_timestamped(socket, buffer, libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE)
}

fn receive_timestamped(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: i32,
) -> io::Result<TimestampedMessage> {
    let message = message::receive_message(socket, buffer, flags)?;
    Ok(TimestampedMessage {
        length: message.length,
        from: message.peer_address(),
        at: software_stamp(&message.stated.0),
    })
}

/// The stamp that the kernel made by software: the first of `struct scm_timestamping`.
fn software_stamp(stated: &[u8]) -> Option<Span> {
    let is_stamp = (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING);
    let found =
        control_messages(stated).find(|message| (message.level, message.kind) == is_stamp)?;
    parse_timespec(found.data).filter(|stamp| *stamp > Span::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant, SystemTime};

    fn now() -> Span {
        SystemTime::UNIX_EPOCH.elapsed().unwrap().into()
    }

    /// Returns the first message that arrives within five seconds.
    fn eventually(mut read: impl FnMut() -> io::Result<TimestampedMessage>) -> TimestampedMessage {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match read() {
                Ok(found) => return found,
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
    fn a_message_is_stamped_when_it_leaves_and_when_it_arrives() {
        for address in fullpipe_testkit::loopback_addresses(module_path!()) {
            let [left, right] = [0; 2].map(|port| UdpSocket::bind((address, port)).unwrap());
            left.connect(right.local_addr().unwrap()).unwrap();
            stamp_passages(&left, true).unwrap();
            stamp_passages(&right, false).unwrap();
            // The kernel begins to stamp what comes a moment after it was first asked to, by a
            // worker of its own.
            let deadline = Instant::now() + Duration::from_secs(5);
            let (before, gone, come) = loop {
                let before = now();
                left.send(b"from left to right").unwrap();
                let mut buffer = [0; 100];
                let gone = eventually(|| receive_departure(&left, &mut buffer));
                assert!(buffer[..gone.length].ends_with(b"from left to right"));
                let come = eventually(|| receive_arrival(&right, &mut buffer));
                assert_eq!((come.length, come.from), (18, left.local_addr().ok()));
                match gone.at.zip(come.at) {
                    Some((gone, come)) => break (before, gone, come),
                    None => assert!(Instant::now() < deadline, "nothing is stamped"),
                }
            };
            // The wall clock may be set meanwhile, but not by a second.
            let slack = Span::from_secs(1);
            assert!(
                before <= gone + slack && gone <= come + slack && come <= now() + slack,
                "{before} {gone} {come}"
            );
        }
    }

    #[test]
    fn where_nothing_came_nobody_waits() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        stamp_passages(&socket, true).unwrap();
        for nothing in [
            receive_arrival(&socket, &mut [0; 8]),
            receive_departure(&socket, &mut [0; 8]),
        ] {
            assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    proptest! {
        #[test]
        fn any_control_data_is_read(stated in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = software_stamp(&stated);
        }
    }
}
