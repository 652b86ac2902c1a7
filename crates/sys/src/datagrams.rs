//! Many datagrams with one system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use fullpipe_units::{ByteCount, Span};

use crate::control::{ControlBuffer, control_messages};
use crate::socket::{check_call, enable_option, set_option};

/// Messages that one call sends or receives at most.
pub const MAX_MESSAGES: usize = 64;

/// Datagrams that the kernel cuts one message into at most (`UDP_MAX_SEGMENTS`; 128 since Linux
/// 6.8).
pub const MAX_SEGMENTS: usize = 64;

/// `include/uapi/linux/udp.h`.
const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;

/// Room for the control messages that the kernel passes with a message: a time and a length, each
/// with its header.
const CONTROL_LENGTH: usize = 64;

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceivedMessage {
    /// Bytes of it that are in the buffer.
    pub length: usize,
    /// Bytes of each datagram in it but the last, which may be shorter, where the kernel has joined
    /// several (`UDP_GRO`).
    pub segment: Option<usize>,
    /// When the kernel received it, since 1970, where [`stamp_arrivals`] asked for it.
    pub at: Option<Span>,
}

impl ReceivedMessage {
    /// Returns true if the message is more than one datagram.
    pub fn is_joined(&self) -> bool {
        self.segment.is_some_and(|segment| segment < self.length)
    }
}

/// Sends `data` on a connected socket, in messages of `size` bytes of which the last may be
/// shorter, at most [`MAX_MESSAGES`] of them; how many bytes were sent. It waits for room as any
/// write to the socket does.
///
/// # Errors
/// Fails as `sendmmsg` does for the first message; for a later one, the next call does.
pub fn send_messages(socket: impl AsFd, data: &[u8], size: usize) -> io::Result<usize> {
    let mut parts = [EMPTY_PART; MAX_MESSAGES];
    let mut headers = [EMPTY_MESSAGE; MAX_MESSAGES];
    let mut count = 0;
    for (message, (part, header)) in data
        .chunks(size.max(1))
        .zip(parts.iter_mut().zip(&mut headers))
    {
        part.iov_base = message.as_ptr().cast_mut().cast();
        part.iov_len = message.len();
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: the descriptor is open for the borrow; the first `count` headers point to parts that
    // live on this stack, and these to parts of `data`, which the kernel only reads. Of the headers
    // it writes `msg_len` alone.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_NOSIGNAL,
        )
    };
    check_call(sent >= 0)?;
    Ok(headers[..sent as usize]
        .iter()
        .map(|header| header.msg_len as usize)
        .sum())
}

/// Receives messages into `data`, one each `slot` bytes, and describes each in `arrivals`; how many
/// they are. It waits for the first as any read from the socket does, and for no other. What is
/// longer than a slot is cut off.
///
/// # Errors
/// Fails as `recvmmsg` does.
pub fn receive_messages(
    socket: impl AsFd,
    data: &mut [u8],
    slot: usize,
    arrivals: &mut [ReceivedMessage; MAX_MESSAGES],
) -> io::Result<usize> {
    let mut parts = [EMPTY_PART; MAX_MESSAGES];
    let mut headers = [EMPTY_MESSAGE; MAX_MESSAGES];
    let mut controls = [ControlBuffer::<CONTROL_LENGTH>::EMPTY; MAX_MESSAGES];
    let mut count = 0;
    let rooms = parts.iter_mut().zip(&mut headers).zip(&mut controls);
    for (room, ((part, header), control)) in data.chunks_mut(slot.max(1)).zip(rooms) {
        part.iov_base = room.as_mut_ptr().cast();
        part.iov_len = room.len();
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = CONTROL_LENGTH as _;
        count += 1;
    }
    let flags = libc::MSG_WAITFORONE;
    // SAFETY: the descriptor is open for the borrow; the first `count` headers point to parts and
    // control buffers on this stack, with their lengths, and the parts to parts of `data`, which is
    // borrowed mutably. No time limit is given.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_fd().as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            flags,
            std::ptr::null_mut(),
        )
    };
    check_call(received >= 0)?;
    let received = received as usize;
    for ((arrival, header), control) in arrivals.iter_mut().zip(&headers[..received]).zip(&controls)
    {
        *arrival = ReceivedMessage {
            length: header.msg_len as usize,
            ..read_control(&control.0)
        };
    }
    Ok(received)
}

/// Has the kernel cut what is written to a UDP socket into datagrams of `size` bytes
/// (`UDP_SEGMENT`, Linux 4.18), or no longer.
///
/// # Errors
/// Fails as `setsockopt` does, for example where the kernel lacks it.
pub fn cut_datagrams(socket: impl AsFd, size: Option<ByteCount>) -> io::Result<()> {
    let size = size.map_or(0, ByteCount::get) as i32;
    set_option(socket, libc::SOL_UDP, UDP_SEGMENT, &size.to_ne_bytes())
}

/// Lets the kernel join datagrams that arrive on a UDP socket (`UDP_GRO`, Linux 5.0).
///
/// # Errors
/// Fails as `setsockopt` does, for example where the kernel lacks it.
pub fn join_datagrams(socket: impl AsFd) -> io::Result<()> {
    enable_option(socket, libc::SOL_UDP, UDP_GRO)
}

/// Has the kernel report when each message arrived (`SO_TIMESTAMPNS`).
///
/// # Errors
/// Fails as `setsockopt` does.
pub fn stamp_arrivals(socket: impl AsFd) -> io::Result<()> {
    enable_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)
}

const EMPTY_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

const EMPTY_MESSAGE: libc::mmsghdr = {
    // SAFETY: `mmsghdr` is a plain C structure of pointers and integers, for which all zeros is a
    // value.
    unsafe { std::mem::zeroed() }
};

/// Returns the contents of a message's control messages.
fn read_control(stated: &[u8]) -> ReceivedMessage {
    let mut arrival = ReceivedMessage::default();
    for message in control_messages(stated) {
        match (message.level, message.kind) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => arrival.at = parse_timespec(message.data),
            (libc::SOL_UDP, UDP_GRO) => {
                let size = message.data.try_into().ok().map(i32::from_ne_bytes);
                arrival.segment = size
                    .and_then(|size| usize::try_from(size).ok())
                    .filter(|&size| size > 0);
            }
            _ => {}
        }
    }
    arrival
}

/// `struct timespec`.
pub(crate) fn parse_timespec(data: &[u8]) -> Option<Span> {
    let (secs, rest) = data.split_first_chunk()?;
    let (nanos, _) = rest.split_first_chunk()?;
    let secs = u64::try_from(libc::time_t::from_ne_bytes(*secs)).ok()?;
    let nanos = u64::try_from(libc::c_long::from_ne_bytes(*nanos)).ok()?;
    Some(Span::from_secs(secs) + Span::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::{Duration, SystemTime};

    fn connected() -> (UdpSocket, UdpSocket) {
        let (left, right) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        left.connect(right.local_addr().unwrap()).unwrap();
        right.connect(left.local_addr().unwrap()).unwrap();
        right
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        (left, right)
    }

    fn receive(socket: &UdpSocket) -> (Vec<u8>, Vec<ReceivedMessage>) {
        let (mut data, mut arrivals) = (
            vec![0; 65_536 * 4],
            [ReceivedMessage::default(); MAX_MESSAGES],
        );
        let count = receive_messages(socket, &mut data, 65_536, &mut arrivals).unwrap();
        (data, arrivals[..count].to_vec())
    }

    #[test]
    fn messages_arrive_as_they_were_cut() {
        let (left, right) = connected();
        stamp_arrivals(&right).unwrap();
        let data: Vec<u8> = (0..250).collect();
        assert_eq!(send_messages(&left, &data, 100).unwrap(), 250);
        let (received, arrivals) = receive(&right);
        assert_eq!(
            arrivals
                .iter()
                .map(|arrival| arrival.length)
                .collect::<Vec<_>>(),
            [100, 100, 50]
        );
        assert_eq!(received[65_536..65_636], data[100..200]);
        let now = Span::from(SystemTime::UNIX_EPOCH.elapsed().unwrap());
        assert!(arrivals.iter().all(|arrival| {
            arrival
                .at
                .is_some_and(|at| at <= now && now.saturating_sub(at) < Span::from_secs(5))
        }));
        assert!(arrivals.iter().all(|arrival| arrival.segment.is_none()));
    }

    #[test]
    fn no_more_messages_than_fit_are_sent() {
        let (left, _right) = connected();
        assert_eq!(
            send_messages(&left, &[0; 1_000], 10).unwrap(),
            MAX_MESSAGES * 10
        );
        assert_eq!(send_messages(&left, &[], 10).unwrap(), 0);
    }

    #[test]
    fn what_one_end_has_cut_the_other_may_join() {
        let (left, right) = connected();
        cut_datagrams(&left, Some(ByteCount::new(100))).unwrap();
        join_datagrams(&right).unwrap();
        assert_eq!(send_messages(&left, &[7; 250], 250).unwrap(), 250);
        let (_, arrivals) = receive(&right);
        let total: usize = arrivals.iter().map(|arrival| arrival.length).sum();
        assert_eq!(total, 250, "{arrivals:?}");
        assert!(
            arrivals
                .iter()
                .all(|arrival| arrival.length <= 100 || arrival.segment == Some(100)),
            "{arrivals:?}"
        );
    }

    #[test]
    fn a_closed_port_is_an_error_of_the_next_call() {
        let (left, right) = connected();
        drop(right);
        let sends = (0..10).map(|_| send_messages(&left, &[1], 1));
        assert!(
            sends
                .into_iter()
                .any(|sent| sent.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused))
        );
    }
}
