//! The thread that sends a stream of datagrams.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_iperf::udp::{DatagramHeader, MIN_PAYLOAD};
use fullpipe_sys::{MAX_MESSAGES, MAX_SEGMENTS, cut_datagrams, send_messages};
use fullpipe_units::{ByteCount, Span};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::lane::{RunningStream, StreamRole};
use super::pace::WriteAllowance;
use super::plan::TransferPlan;
use super::shared::{
    POLL_INTERVAL, TransferState, incompressible_bytes, to_length, wait_for_socket,
};

/// Bytes that are handed to the kernel at once: more than that brings nothing, and drives the data
/// from the cache.
const MAX_AT_ONCE: usize = 256 * 1024;

/// Longest payload of a UDP datagram over IPv4.
const MAX_PAYLOAD: usize = 65_507;

/// Time to wait if the kernel has no room for a datagram, and does not say when it will.
const NO_ROOM: Duration = Duration::from_micros(100);

/// Sends numbered datagrams until it is stopped, or the budget is spent, or no receiver is there.
pub(crate) fn send_datagrams(
    socket: &UdpSocket,
    stream: &RunningStream,
    shared: &TransferState,
    plan: &TransferPlan,
) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let plan = TransferPlan {
        block: plan.block.max(ByteCount::new(MIN_PAYLOAD as u64)),
        ..*plan
    };
    let size = plan.block.get();
    let mut train = DatagramTrain::new(socket, shared, &plan);
    let mut allowance = WriteAllowance::of_datagrams(&plan);
    let mut absence = ReceiverAbsence::default();
    while !shared.is_stopped(StreamRole::Sender) {
        let allowed = allowance.wait_for_bytes(|| shared.is_stopped(StreamRole::Sender));
        let allowed = (allowed / size).min(train.max_datagrams());
        // The last datagram is a whole one too.
        let count = shared.take_budget(allowed * size).div_ceil(size);
        if count == 0 {
            return Ok(());
        }
        let result = train.send_train(socket, count);
        let sent = *result.as_ref().unwrap_or(&0);
        let mut counts = stream.lock_count();
        counts.bytes += plan.block * sent;
        counts.datagrams_sent += sent;
        drop(counts);
        shared.give_back((count - sent) * size);
        allowance.note_used(sent * size);
        match result {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for_socket(socket, PollFlags::OUT, POLL_INTERVAL);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                thread::sleep(NO_ROOM);
            }
            Err(error) if absence.may_pass(&error) => thread::sleep(NO_ROOM),
            Err(error) if train.falls_back(socket, &error, shared) => {}
            Err(_) if shared.is_stopped(StreamRole::Sender) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Datagrams that are sent together.
struct DatagramTrain {
    data: Vec<u8>,
    size: usize,
    /// Datagrams in one message, which the kernel cuts apart.
    segments: usize,
    wide: bool,
    notes_lack_of_offload: bool,
    /// Number of the next datagram.
    next: u64,
}

impl DatagramTrain {
    fn new(socket: &UdpSocket, shared: &TransferState, plan: &TransferPlan) -> Self {
        let size = to_length(plan.block.get());
        let fitting = (MAX_PAYLOAD / size).clamp(1, MAX_SEGMENTS);
        let mut segments = 1;
        if plan.offload && fitting > 1 {
            match cut_datagrams(socket, Some(plan.block)) {
                Ok(()) => segments = fitting,
                Err(error) if plan.notes_lack_of_offload => shared.add_note(one_by_one(&error)),
                Err(_) => {}
            }
        }
        let messages = (MAX_AT_ONCE / (size * segments)).clamp(1, MAX_MESSAGES);
        Self {
            data: incompressible_bytes(size * segments * messages),
            size,
            segments,
            wide: plan.wide_counters,
            notes_lack_of_offload: plan.notes_lack_of_offload,
            next: 1,
        }
    }

    /// Datagrams that it holds.
    fn max_datagrams(&self) -> u64 {
        (self.data.len() / self.size) as u64
    }

    /// Sends up to `count` datagrams, no more than it holds; how many it sent. What was not sent
    /// keeps its number.
    fn send_train(&mut self, socket: &UdpSocket, count: u64) -> io::Result<u64> {
        let data = &mut self.data[..to_length(count) * self.size];
        let sent = monotonic_time();
        for (datagram, sequence) in data.chunks_mut(self.size).zip(self.next..) {
            if let Some(payload) = datagram.first_chunk_mut() {
                DatagramHeader { sent, sequence }.write_payload(self.wide, payload);
            }
        }
        let sent = (send_messages(socket, data, self.size * self.segments)? / self.size) as u64;
        self.next += sent;
        Ok(sent)
    }

    /// Returns true if `error` may mean that this path takes no datagrams that are yet to be cut,
    /// and each will be sent by itself from now on.
    fn falls_back(
        &mut self,
        socket: &UdpSocket,
        error: &io::Error,
        shared: &TransferState,
    ) -> bool {
        let refused = [Errno::INVAL, Errno::IO, Errno::MSGSIZE].map(Errno::raw_os_error);
        let falls_back = self.segments > 1
            && error
                .raw_os_error()
                .is_some_and(|number| refused.contains(&number));
        if falls_back {
            if self.notes_lack_of_offload {
                shared.add_note(one_by_one(error));
            }
            // What could be set can be unset.
            let _ = cut_datagrams(socket, None);
            self.segments = 1;
            self.data.truncate(self.size * MAX_MESSAGES);
        }
        falls_back
    }
}

fn one_by_one(error: &io::Error) -> String {
    format!(
        "datagrams were handed to the kernel one by one, as it cuts none for this socket: {error}"
    )
}

/// The sender's clock, which is never set.
fn monotonic_time() -> Span {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is negative.
    Span::from_secs(time.tv_sec.unsigned_abs()) + Span::from_nanos(time.tv_nsec.unsigned_abs())
}

/// The time since which the network has reported that no receiver is there.
#[derive(Default)]
struct ReceiverAbsence {
    /// When it first said so, and last.
    said: Option<(Instant, Instant)>,
}

impl ReceiverAbsence {
    /// Time for which it must have reported so to be believed: the other end may be about to come.
    const MAX_LATENESS: Duration = Duration::from_secs(1);

    /// After how long a word has nothing to do with the one before. Hosts may say it only once a
    /// second.
    const FORGOTTEN: Duration = Duration::from_secs(3);

    /// Returns true if `error` says that no receiver is there, and that is not certain yet.
    fn may_pass(&mut self, error: &io::Error) -> bool {
        let absent = [
            ErrorKind::ConnectionRefused,
            ErrorKind::HostUnreachable,
            ErrorKind::NetworkUnreachable,
        ];
        absent.contains(&error.kind()) && self.may_pass_at(Instant::now())
    }

    fn may_pass_at(&mut self, now: Instant) -> bool {
        let recent = self
            .said
            .filter(|(_, last)| now.duration_since(*last) < Self::FORGOTTEN);
        let first = recent.map_or(now, |(first, _)| first);
        self.said = Some((first, now));
        now.duration_since(first) < Self::MAX_LATENESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::Request;

    #[test]
    fn a_path_that_takes_no_datagrams_to_be_cut_gets_each_by_itself() {
        let (left, right) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        left.connect(right.local_addr().unwrap()).unwrap();
        let request = Request {
            block: ByteCount::new(1_000),
            offload: true,
            ..Request::default()
        };
        let shared = TransferState::new(None, None);
        let mut train =
            DatagramTrain::new(&left, &shared, &TransferPlan::from_request(&request, None));
        assert!(train.segments > 1 && train.max_datagrams() > 10);
        assert!(!train.falls_back(&left, &Errno::CONNREFUSED.into(), &shared));
        assert!(train.falls_back(&left, &Errno::INVAL.into(), &shared));
        assert!(!train.falls_back(&left, &Errno::INVAL.into(), &shared));
        assert_eq!((train.send_train(&left, 10).unwrap(), train.next), (10, 11));
        right
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        for _ in 0..10 {
            assert_eq!(right.recv(&mut [0; 2_000]).unwrap(), 1_000);
        }
        assert_eq!(shared.take_notes().len(), 1);
    }

    #[test]
    fn nobody_there_is_believed_after_a_second() {
        let (mut absence, start) = (ReceiverAbsence::default(), Instant::now());
        let mut passes = |millis| absence.may_pass_at(start + Duration::from_millis(millis));
        assert!(passes(0) && passes(500) && passes(999));
        // Long silence in between: the other end was there.
        assert!(passes(5_000) && passes(5_900));
        assert!(!passes(6_000));
    }
}
