//! One of the two sockets of a relayed connection, in the clear or inside TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::replace;
use std::net::{Shutdown, TcpStream};

use fullpipe_control::{QueueSample, QueueWatch, StalledBytes, TlsRecords};
use fullpipe_model::improvement::LOSS_TOLERANT;
use fullpipe_model::unqueued::{SenderSample, UnqueuedLoss};
use fullpipe_record::TcpInfo;
use fullpipe_sys::{socket_memory, tcp_info};
use fullpipe_units::{ByteCount, Ratio, Span, Time};
use rustix::event::epoll::EventFlags;
use rustix::io::ioctl_fionread;
use socket2::SockRef;

/// `TCP_CLOSE_WAIT` of the kernel's `tcp_states.h`: the other end has closed.
const CLOSE_WAIT: u8 = 8;

/// `TCP_CLOSE` of the kernel's `tcp_states.h`.
const CLOSE: u8 = 7;

/// The events of a FIN and of a reset.
const ENDS: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// Bytes that are copied at once, and at most those that a direction without a pipe holds.
pub(crate) const COPY_BYTES: usize = 32 << 10;

/// A socket, and what epoll said of it last.
pub(crate) struct RelaySocket {
    pub socket: TcpStream,
    pub tls: Option<Box<TlsRecords>>,
    pub readable: bool,
    pub writable: bool,
    /// Events that have come, without urgent data that was read and an error that was dealt with.
    noted: EventFlags,
    /// It was reset before it became a leg: true if the FIN of the other end came first.
    early_failure: Option<bool>,
    /// Bytes read from the socket, those of TLS included, also before it became a leg.
    read: u64,
    /// Bytes given to the socket, those of TLS included.
    pub written: u64,
    /// Bytes that were given to the socket before, which count as acknowledged.
    before: u64,
    losses: SocketLosses,
    queue: QueueWatch,
    /// Bytes that had been written when the other end last had acknowledged all of them.
    settled: u64,
}

/// The losses on the way from a leg to its other end.
enum SocketLosses {
    /// And the bytes that had been written at the last sample.
    Watched(Box<UnqueuedLoss>, u64),
    /// This share, without a queue, and BBR is used since, if this host permits it.
    Known(Ratio),
}

/// The result of a read from a side.
pub(crate) enum ReadResult {
    Bytes(usize),
    Nothing,
    End,
}

impl RelaySocket {
    pub(crate) fn new(socket: TcpStream, tls: Option<TlsRecords>) -> Self {
        let (info, unread) = arrived_bytes(&socket);
        // Of one that was reset before, the kernel's error alone tells whether a FIN came first.
        let early_failure = (info.state == Some(CLOSE))
            .then(|| socket.take_error().ok().flatten())
            .flatten()
            .map(|error| error.kind() == ErrorKind::BrokenPipe);
        let has_fin = info.state == Some(CLOSE_WAIT) || early_failure == Some(true);
        let received = count_or_zero(info.bytes_received).saturating_sub(u64::from(has_fin));
        let read = received.saturating_sub(unread);
        Self {
            socket,
            tls: tls.map(Box::new),
            readable: true,
            writable: true,
            noted: EventFlags::empty(),
            early_failure,
            read,
            written: 0,
            before: sent_before(&info),
            losses: SocketLosses::Watched(Box::default(), 0),
            queue: QueueWatch::default(),
            settled: 0,
        }
    }

    /// Returns true if something was written that the other end may not have acknowledged.
    pub(crate) const fn is_unsettled(&self) -> bool {
        self.settled < self.written
    }

    /// Looks at the queue to the other end, and returns the bytes that it does not take. Those in
    /// `source`, which is read only as they are taken, count as well.
    pub(crate) fn stalled_bytes(&mut self, source: &Self, at: Span) -> StalledBytes {
        if !self.is_unsettled() {
            return StalledBytes::default();
        }
        let Ok(mut sample) = QueueSample::from_socket(&self.socket) else {
            return StalledBytes::default();
        };
        if sample.queued == ByteCount::ZERO {
            self.settled = self.written;
        } else {
            sample.queued +=
                socket_memory(&source.socket).map_or(ByteCount::ZERO, |memory| memory.rmem_alloc);
        }
        self.queue.follow(at, &sample)
    }

    /// Takes a sample, unless nothing was written since the last one, and changes to BBR once
    /// packets are lost without a queue: other congestion controls take that for a full path.
    pub(crate) fn watch_losses(&mut self, at: Time) {
        let SocketLosses::Watched(loss, written) = &mut self.losses else {
            return;
        };
        if replace(written, self.written) == self.written {
            return;
        }
        let Ok(info) = tcp_info(&self.socket) else {
            return;
        };
        if let Some(share) = loss.add_sample(at, SenderSample::from_infos(&[info])) {
            // Where this host does not permit it, the connection goes on as it is.
            let changed = SockRef::from(&self.socket).set_tcp_congestion(LOSS_TOLERANT.as_bytes());
            tracing::info!(?changed, %share, "packets are lost without a queue");
            self.losses = SocketLosses::Known(share);
        }
    }

    /// Returns the share of packets that are lost without a queue, if it is known.
    pub(crate) fn loss_ratio(&self) -> Option<Ratio> {
        match self.losses {
            SocketLosses::Watched(..) => None,
            SocketLosses::Known(share) => Some(share),
        }
    }

    /// Notes what epoll says; each event is reported once.
    pub(crate) fn note_events(&mut self, flags: EventFlags) {
        self.noted |= flags;
        self.readable |= flags.intersects(EventFlags::IN | EventFlags::PRI | ENDS);
        self.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
    }

    /// Returns true if urgent data has come: reads end before it, and `splice(2)` never gets
    /// beyond.
    pub(crate) const fn has_urgent(&self) -> bool {
        self.noted.contains(EventFlags::PRI)
    }

    /// Reads from the socket itself.
    pub(crate) fn read_socket(&mut self, into: &mut [u8]) -> io::Result<ReadResult> {
        let wanted = into.len();
        let got = (&self.socket).read(into);
        self.record_read(got, wanted)
    }

    /// Makes of the result of a read, or a splice, of `wanted` bytes what it means.
    pub(crate) fn record_read(
        &mut self,
        result: io::Result<usize>,
        wanted: usize,
    ) -> io::Result<ReadResult> {
        match result {
            Ok(0) if self.was_reset() => Err(ErrorKind::ConnectionReset.into()),
            Ok(0) => Ok(ReadResult::End),
            Ok(count) => {
                self.read += count as u64;
                // After less than was wanted, epoll reports what comes next, unless it has reported
                // the last already.
                self.readable = count == wanted || self.noted.intersects(EventFlags::PRI | ENDS);
                Ok(ReadResult::Bytes(count))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                self.noted.remove(EventFlags::PRI);
                Ok(ReadResult::Nothing)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(ReadResult::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Writes to the socket itself, as much as it takes; zero if that is nothing now.
    pub(crate) fn write_socket(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&self.socket).write(bytes);
        self.record_write(written)
    }

    /// Makes of the result of a write, or a splice, what it means.
    pub(crate) fn record_write(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Ok(count) => {
                self.written += count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                Ok(0)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Reads payload to the front of `buffer`, out of records if there is TLS. Zero bytes are no
    /// end then: parts of records came.
    ///
    /// # Errors
    /// Fails with `InvalidData` for what is no record of the other end, and with `UnexpectedEof`
    /// for a FIN that TLS did not announce, which anybody on the path can send.
    pub(crate) fn read_payload(&mut self, buffer: &mut [u8]) -> io::Result<ReadResult> {
        let Some(mut tls) = self.tls.take() else {
            return self.read_socket(&mut buffer[..COPY_BYTES]);
        };
        let got = self.read_records(&mut tls, buffer);
        self.tls = Some(tls);
        got
    }

    fn read_records(&mut self, tls: &mut TlsRecords, buffer: &mut [u8]) -> io::Result<ReadResult> {
        let arrived = tls.take_arrived();
        if !arrived.is_empty() {
            buffer[..arrived.len()].copy_from_slice(&arrived);
            return Ok(ReadResult::Bytes(arrived.len()));
        }
        let held = tls.partial_record().len();
        buffer[..held].copy_from_slice(tls.partial_record());
        match self.read_socket(&mut buffer[held..])? {
            ReadResult::Bytes(count) => {
                let opened = tls.open_records(&mut buffer[..held + count]);
                opened
                    .map(ReadResult::Bytes)
                    .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
            }
            ReadResult::Nothing => Ok(ReadResult::Nothing),
            ReadResult::End => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Returns true if the other end closed its direction of TLS, and everything before that has
    /// been read.
    pub(crate) fn tls_has_ended(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_ended())
    }

    /// Sends the FIN, after that of TLS.
    pub(crate) fn shut_down(&self) {
        // A socket that is reset says so when it is used next.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Lets the kernel close the socket in order. Until then, whatever ends this program resets it.
    pub(crate) fn close_in_order(&self) {
        let _ = SockRef::from(&self.socket).set_linger(None);
    }

    /// Removes the error of the socket that epoll has reported. Returns whether the FIN of the
    /// other end came before it; `None` if there is no error.
    pub(crate) fn take_failure(&mut self) -> Option<bool> {
        if let Some(has_closed) = self.early_failure.take() {
            return Some(has_closed);
        }
        if !self.noted.contains(EventFlags::ERR) {
            return None;
        }
        self.noted.remove(EventFlags::ERR);
        let error = self.socket.take_error().ok().flatten()?;
        // The kernel says EPIPE after the FIN, but ECONNRESET if this end has closed, too.
        Some(error.kind() == ErrorKind::BrokenPipe || self.has_closed())
    }

    /// Returns true if the other end has reset the connection without a FIN. The kernel tells that
    /// once, and reports an end to whoever asks later; `splice(2)` to a socket hides it where some
    /// bytes went before (`splice_to_socket`).
    fn was_reset(&self) -> bool {
        self.socket_info().state == Some(CLOSE) && !self.has_closed()
    }

    /// Returns true if the FIN of the other end has come, read or not.
    pub(crate) fn has_closed(&self) -> bool {
        // The kernel counts it as one byte.
        count_or_zero(self.socket_info().bytes_received) > self.read + unread_bytes(&self.socket)
    }

    /// Returns the figures of the kernel; empty if there are none.
    pub(crate) fn socket_info(&self) -> TcpInfo {
        tcp_info(&self.socket).unwrap_or_default()
    }

    /// Returns the number of bytes that the socket took and the other end has not acknowledged.
    pub(crate) fn unacknowledged_bytes(&self, info: &TcpInfo) -> u64 {
        let acknowledged = info.bytes_acked.map_or(0, ByteCount::get);
        self.written
            .saturating_sub(acknowledged.saturating_sub(self.before))
    }
}

fn sent_before(info: &TcpInfo) -> u64 {
    count_or_zero(info.bytes_sent).saturating_sub(count_or_zero(info.bytes_retrans))
}

fn count_or_zero(count: Option<ByteCount>) -> u64 {
    count.map_or(0, ByteCount::get)
}

/// Returns the figures of a socket that nobody reads, with the bytes that had come then and were not
/// read, without a FIN.
fn arrived_bytes(socket: &TcpStream) -> (TcpInfo, u64) {
    let mut info = tcp_info(socket).unwrap_or_default();
    loop {
        let unread = unread_bytes(socket);
        // The kernel reads the state before it locks the counts (`tcp_get_info`). What is not read
        // fills the window, and then no more comes.
        let next = tcp_info(socket).unwrap_or_default();
        if (next.state, next.bytes_received) == (info.state, info.bytes_received) {
            return (next, unread);
        }
        info = next;
    }
}

/// Returns the bytes that have come and were not read, without a FIN.
fn unread_bytes(socket: &TcpStream) -> u64 {
    ioctl_fionread(socket).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testkit::within;
    use std::net::TcpListener;
    use std::time::Duration;

    /// Two connected sockets.
    fn ends() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [caller, listener.accept().unwrap().0]
    }

    /// A leg that has read some bytes before it became one, and some later. Its other end has
    /// closed if `closes`, this end if `both`, and then the other is reset.
    fn reset(closes: bool, both: bool) -> RelaySocket {
        let [mut other, mut socket] = ends();
        other.write_all(b"some bytes").unwrap();
        socket.read_exact(&mut [0; 4]).unwrap();
        let mut leg = RelaySocket::new(socket, None);
        assert!(matches!(
            leg.read_socket(&mut [0; 3]),
            Ok(ReadResult::Bytes(3))
        ));
        if closes {
            other.shutdown(Shutdown::Write).unwrap();
        }
        if both {
            leg.shut_down();
        }
        SockRef::from(&other)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(other);
        assert!(within(Duration::from_secs(5), || leg.socket_info().state
            == Some(CLOSE)));
        leg.note_events(EventFlags::ERR);
        leg
    }

    #[test]
    fn a_reset_that_somebody_else_was_told_of_is_no_end() {
        let read_all = |mut leg: RelaySocket| {
            // As `splice(2)` does to a socket that has taken some bytes before.
            let _ = leg.socket.take_error();
            loop {
                match leg.read_socket(&mut [0; 64]) {
                    Ok(ReadResult::Bytes(_)) => {}
                    Ok(ReadResult::End) => return true,
                    Ok(ReadResult::Nothing) => panic!("it has ended"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                        return false;
                    }
                }
            }
        };
        assert!(!read_all(reset(false, false)));
        assert!(!read_all(reset(false, true)));
        assert!(read_all(reset(true, false)));
        assert!(read_all(reset(true, true)));
    }

    #[test]
    fn a_leg_knows_whether_a_fin_came_before_the_reset() {
        assert_eq!(reset(false, false).take_failure(), Some(false));
        assert_eq!(reset(true, false).take_failure(), Some(true));
        assert_eq!(reset(false, true).take_failure(), Some(false));
        // After two FINs there is no reset.
        assert_eq!(reset(true, true).take_failure(), None);
        assert!(
            reset(true, true).has_closed()
                && reset(true, false).has_closed()
                && !reset(false, true).has_closed()
        );
    }
}
