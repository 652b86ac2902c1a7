//! One of the two sockets of a relayed connection, in the clear or inside TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::replace;
use std::net::{Shutdown, TcpStream};

use fullpipe_control::Records;
use fullpipe_model::improvement::LOSS_TOLERANT;
use fullpipe_model::unqueued::{SenderSample, UnqueuedLoss};
use fullpipe_record::TcpInfo;
use fullpipe_sys::tcp_info;
use fullpipe_units::{ByteCount, Ratio, Time};
use rustix::event::epoll::EventFlags;
use socket2::SockRef;

/// Bytes that are copied at once, and at most those that a direction without a pipe holds.
pub(crate) const COPY_BYTES: usize = 32 << 10;

/// A socket, and what epoll said of it last.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) socket: TcpStream,
    pub(crate) tls: Option<Box<Records>>,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Its FIN or a reset has come, so that a short read is not the last.
    has_hung_up: bool,
    /// Bytes given to the socket, those of TLS included.
    pub(crate) written: u64,
    /// Bytes that were given to the socket before, which count as acknowledged.
    before: u64,
    losses: Losses,
}

/// The losses on the way from a leg to its other end.
#[derive(Debug)]
enum Losses {
    /// And the bytes that had been written at the last sample.
    Watched(Box<UnqueuedLoss>, u64),
    /// This share, without a queue, and BBR is used since, if this host permits it.
    Known(Ratio),
}

/// The result of a read from a side.
pub(crate) enum Got {
    Bytes(usize),
    Nothing,
    End,
}

impl Leg {
    pub(crate) fn new(socket: TcpStream, tls: Option<Records>) -> Self {
        let before = tcp_info(&socket).map_or(0, |info| sent_before(&info));
        Self {
            socket,
            tls: tls.map(Box::new),
            readable: true,
            writable: true,
            has_hung_up: false,
            written: 0,
            before,
            losses: Losses::Watched(Box::default(), 0),
        }
    }

    /// Takes a sample, unless nothing was written since the last one, and changes to BBR once packets are lost without
    /// a queue: other congestion controls take that for a full path.
    pub(crate) fn watch_losses(&mut self, at: Time) {
        let Losses::Watched(loss, written) = &mut self.losses else { return };
        if replace(written, self.written) == self.written {
            return;
        }
        let Ok(info) = tcp_info(&self.socket) else { return };
        if let Some(share) = loss.follow(at, SenderSample::of(&[info])) {
            // Where this host does not permit it, the connection goes on as it is.
            let changed = SockRef::from(&self.socket).set_tcp_congestion(LOSS_TOLERANT.as_bytes());
            tracing::info!(?changed, %share, "packets are lost without a queue");
            self.losses = Losses::Known(share);
        }
    }

    /// Returns the share of packets that are lost without a queue, if it is known.
    pub(crate) fn lost(&self) -> Option<Ratio> {
        match self.losses {
            Losses::Watched(..) => None,
            Losses::Known(share) => Some(share),
        }
    }

    /// Notes what epoll says; each event is reported once.
    pub(crate) fn note(&mut self, flags: EventFlags) {
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.has_hung_up |= flags.intersects(ends);
        self.readable |= flags.intersects(EventFlags::IN | ends);
        self.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
    }

    /// Reads from the socket itself.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Got> {
        let wanted = into.len();
        let got = (&self.socket).read(into);
        self.got(got, wanted)
    }

    /// Makes of the result of a read, or a splice, of `wanted` bytes what it means.
    pub(crate) fn got(&mut self, result: io::Result<usize>, wanted: usize) -> io::Result<Got> {
        match result {
            Ok(0) => Ok(Got::End),
            Ok(count) => {
                // After less than was wanted, epoll reports what comes next.
                self.readable = count == wanted || self.has_hung_up;
                Ok(Got::Bytes(count))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(Got::Nothing)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Got::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Writes to the socket itself, as much as it takes; zero if that is nothing now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&self.socket).write(bytes);
        self.wrote(written)
    }

    /// Makes of the result of a write, or a splice, what it means.
    pub(crate) fn wrote(&mut self, result: io::Result<usize>) -> io::Result<usize> {
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

    /// Reads payload to the front of `buffer`, out of records if there is TLS. Zero bytes are no end then: parts of
    /// records came.
    ///
    /// # Errors
    /// Fails with `InvalidData` for what is no record of the other end, and with `UnexpectedEof` for a FIN that TLS did
    /// not announce, which anybody on the path can send.
    pub(crate) fn read_payload(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        let Some(mut tls) = self.tls.take() else { return self.read(&mut buffer[..COPY_BYTES]) };
        let got = self.read_records(&mut tls, buffer);
        self.tls = Some(tls);
        got
    }

    fn read_records(&mut self, tls: &mut Records, buffer: &mut [u8]) -> io::Result<Got> {
        let arrived = tls.take_arrived();
        if !arrived.is_empty() {
            buffer[..arrived.len()].copy_from_slice(&arrived);
            return Ok(Got::Bytes(arrived.len()));
        }
        let held = tls.held().len();
        buffer[..held].copy_from_slice(tls.held());
        match self.read(&mut buffer[held..])? {
            Got::Bytes(count) => {
                let opened = tls.open(&mut buffer[..held + count]);
                opened.map(Got::Bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
            }
            Got::Nothing => Ok(Got::Nothing),
            Got::End => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Returns whether the other end closed its direction of TLS, and everything before that has been read.
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

    /// Returns the error of the socket, which is then removed from it.
    pub(crate) fn error(&self) -> Option<io::Error> {
        self.socket.take_error().ok().flatten()
    }

    /// Returns the figures of the kernel; empty if there are none.
    pub(crate) fn info(&self) -> TcpInfo {
        tcp_info(&self.socket).unwrap_or_default()
    }

    /// Returns how many bytes the socket took that the other end has not acknowledged.
    pub(crate) fn unacknowledged(&self, info: &TcpInfo) -> u64 {
        let acknowledged = info.bytes_acked.map_or(0, ByteCount::get);
        self.written.saturating_sub(acknowledged.saturating_sub(self.before))
    }
}

fn sent_before(info: &TcpInfo) -> u64 {
    let bytes = |count: Option<ByteCount>| count.map_or(0, ByteCount::get);
    bytes(info.bytes_sent).saturating_sub(bytes(info.bytes_retrans))
}
