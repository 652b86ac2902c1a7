//! The thread of a stream whose data is framed by HTTP or a WebSocket, inside TLS or not.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fullpipe_control::{MAX_RECORD, RecordError, TlsRecords};
use fullpipe_http::{BodyDecoder, BodyPart, Ndt7Endpoint, RuleBroken};
use fullpipe_sys::{MappedPages, lock, tcp_info};
use fullpipe_units::{ByteCount, Span};
use rustix::event::PollFlags;
use socket2::SockRef;

use super::lane::{RunningStream, StreamRole};
use super::plan::TransferPlan;
use super::shared::{MAX_WAIT, POLL_INTERVAL, TransferState, to_length, wait_for_socket};
use super::source::shared_data;
use super::tcp::{SendBufferRoom, SendRetry, UnsentBound};
use crate::http2::{Http2Client, Http2Server};

/// Bytes that are read at once, besides a part of a record of TLS.
const READ: usize = 128 << 10;

/// Bytes of content of an answer that are handed over at once.
const PIECE: usize = 64 << 10;

/// State of a TCP connection that was reset or given up (`TCP_CLOSE`).
const CLOSED: u8 = 7;

/// Shortest time between two looks at a socket that has enough to send.
const DRAIN_INTERVAL: Duration = Duration::from_millis(4);

/// A connection whose data is framed. It stays usable after the transfer if that came to its own
/// end.
pub(crate) struct FramedStream {
    pub socket: TcpStream,
    state: Mutex<FramedState>,
}

/// The state of a framed stream, which its thread holds while it runs.
pub(crate) struct FramedState {
    /// The keys of TLS; `None` in the clear.
    pub records: Option<TlsRecords>,
    /// Payload that came and was not read.
    pub input: Vec<u8>,
    pub framing: Framing,
    /// True once nothing of the transfer is left to send or to read.
    pub has_ended: bool,
}

/// The frames of a stream.
pub(crate) enum Framing {
    /// So many bytes of content are still to be sent.
    Content(u64),
    /// A body is received.
    Body(BodyDecoder),
    /// A test of ndt7.
    Ndt7(Box<Ndt7Endpoint>),
    /// Loads and small answers of a server by HTTP/2.
    Http2(Box<Http2Server>),
    /// A load and its probes of a client by HTTP/2.
    Http2Load(Box<Http2Client>),
}

impl FramedStream {
    pub(crate) fn new(
        socket: TcpStream,
        records: Option<TlsRecords>,
        input: Vec<u8>,
        framing: Framing,
    ) -> Arc<Self> {
        let state = FramedState {
            records,
            input,
            framing,
            has_ended: false,
        };
        Arc::new(Self {
            socket,
            state: Mutex::new(state),
        })
    }

    /// Returns the state, for which the thread of the stream is waited for.
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, FramedState> {
        lock(&self.state)
    }

    /// Returns true if the transfer came to its own end. Never waits.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.has_ended)
    }

    /// Returns true if nothing that was written can arrive any more.
    pub(crate) fn is_reset(&self) -> bool {
        tcp_info(&self.socket).is_ok_and(|info| info.state == Some(CLOSED))
    }

    /// Returns the socket and the state, once no thread has the stream.
    pub(crate) fn into_parts(stream: Arc<Self>) -> Option<(TcpStream, FramedState)> {
        let stream = Arc::into_inner(stream)?;
        let state = stream.state.into_inner().ok()?;
        Some((stream.socket, state))
    }
}

impl Framing {
    /// Takes payload of the other end from the begin of `bytes`. Returns how much of it was taken,
    /// and how much of that is data.
    fn take_input(&mut self, bytes: &[u8]) -> Result<(usize, u64), RuleBroken> {
        match self {
            Self::Content(_) => Ok((0, 0)),
            Self::Body(decoder) => take_body(decoder, bytes),
            Self::Ndt7(endpoint) => Ok((bytes.len(), endpoint.take_input(bytes)?)),
            Self::Http2(server) => Ok((bytes.len(), server.take_input(bytes)?)),
            Self::Http2Load(client) => Ok((bytes.len(), client.take_input(bytes)?)),
        }
    }

    /// Appends what is to be sent now to `into`. Returns how much of it is data.
    fn push_output(&mut self, now: Moment<'_>, data: &[u8], into: &mut Vec<u8>) -> u64 {
        match self {
            Self::Content(left) => {
                let length = to_length(*left).min(PIECE).min(data.len());
                into.extend_from_slice(&data[..length]);
                *left -= length as u64;
                length as u64
            }
            Self::Body(_) => 0,
            Self::Ndt7(endpoint) => {
                endpoint.push_output(now.at, || tcp_info(now.socket).ok(), data, into)
            }
            Self::Http2(server) => server.push_output(now.at, now.room, into),
            Self::Http2Load(client) => client.push_output(now.room, into),
        }
    }

    /// Notes that no more data is wanted.
    fn close(&mut self) {
        match self {
            Self::Content(left) => *left = 0,
            Self::Body(_) => {}
            Self::Ndt7(endpoint) => endpoint.close(),
            Self::Http2(server) => server.close_loads(),
            Self::Http2Load(client) => client.close(),
        }
    }

    /// Returns true if nothing is left to read or, once all output is written, to send.
    fn has_ended(&self) -> bool {
        match self {
            Self::Content(left) => *left == 0,
            Self::Body(decoder) => decoder.has_ended(),
            Self::Ndt7(endpoint) => endpoint.has_ended(),
            Self::Http2(server) => server.has_ended(),
            Self::Http2Load(client) => client.has_ended(),
        }
    }

    /// Returns true while bytes of the other end are to be read.
    fn reads_input(&self) -> bool {
        match self {
            Self::Content(_) => false,
            Self::Body(_) | Self::Ndt7(_) => true,
            Self::Http2(server) => server.has_room(),
            Self::Http2Load(client) => client.has_room(),
        }
    }

    /// Returns the time until something is to be sent, if nothing comes.
    fn time_until_due(&self, at: Span) -> Duration {
        match self {
            Self::Ndt7(endpoint) => endpoint.next_due().saturating_sub(at).into(),
            Self::Http2Load(client) => client.time_until_due().min(MAX_WAIT),
            _ => MAX_WAIT,
        }
    }
}

/// The time of an output since the transfer began, its socket, and how many bytes it may have.
#[derive(Clone, Copy)]
struct Moment<'s> {
    at: Span,
    socket: &'s TcpStream,
    room: usize,
}

fn take_body(decoder: &mut BodyDecoder, bytes: &[u8]) -> Result<(usize, u64), RuleBroken> {
    let (mut taken, mut content) = (0, 0);
    while taken < bytes.len() {
        match decoder.take_part(&bytes[taken..], usize::MAX)? {
            BodyPart::Content(count) => {
                taken += count;
                content += count as u64;
            }
            BodyPart::Framing(count) => taken += count,
            BodyPart::End => break,
        }
    }
    Ok((taken, content))
}

/// Sends and receives on a framed stream until its frames have ended, it is stopped, or the other
/// end is gone. Counts data alone.
pub(crate) fn run_framed(
    framed: &FramedStream,
    stream: &RunningStream,
    shared: &TransferState,
    plan: &TransferPlan,
) -> io::Result<()> {
    framed.socket.set_nonblocking(true)?;
    let mut state = framed.lock_state();
    let unsent = match state.framing {
        Framing::Http2(_) | Framing::Http2Load(_) => UnsentBound::beside_answers(),
        _ => UnsentBound::of_one_load(),
    };
    let mut course = FramedCourse {
        begun: Instant::now(),
        socket: &framed.socket,
        stream,
        shared,
        output: Output::default(),
        buffer: vec![0; READ + MAX_RECORD],
        data: shared_data(PIECE)?,
        retry: SendRetry::for_rtt(plan.base_rtt),
        unsent: plan.bounds_unsent.then_some(unsent),
        room: SendBufferRoom::from_writer(
            plan.writer,
            SockRef::from(&framed.socket).tcp_mss().unwrap_or_default(),
        ),
        waits_for_drain: false,
    };
    let ran = course.run_frames(&mut state);
    let FramedState {
        framing, has_ended, ..
    } = &mut *state;
    match (&ran, framing) {
        // As clients of responsiveness end a load.
        (Err(error), Framing::Http2(_)) if is_closed(error) => Ok(()),
        // A client of ndt7 ends a test by closing a connection with messages that it has not read.
        (Err(error), Framing::Ndt7(endpoint)) if is_closed(error) => {
            endpoint.note_end();
            *has_ended = true;
            Ok(())
        }
        _ => ran,
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof
    )
}

/// The course of a framed stream.
struct FramedCourse<'s> {
    begun: Instant,
    socket: &'s TcpStream,
    stream: &'s RunningStream,
    shared: &'s TransferState,
    output: Output,
    buffer: Vec<u8>,
    data: Arc<MappedPages>,
    retry: SendRetry,
    unsent: Option<UnsentBound>,
    room: SendBufferRoom,
    /// True if the socket has enough to send for now.
    waits_for_drain: bool,
}

/// Bytes that are to be written, and how many of them are data.
#[derive(Default)]
struct Output {
    plain: Vec<u8>,
    bytes: Vec<u8>,
    written: usize,
    data: u64,
    counted: u64,
}

impl FramedCourse<'_> {
    fn run_frames(&mut self, state: &mut FramedState) -> io::Result<()> {
        self.take_input(state, 0)?;
        while !self.shared.is_stopped(StreamRole::Receiver) {
            if self.shared.is_stopped(StreamRole::Sender) {
                state.framing.close();
            }
            let has_read = state.framing.reads_input() && self.read_some(state)?;
            let has_written = self.write_some(state)?;
            if self.output.is_empty() && state.framing.has_ended() {
                state.has_ended = true;
                return Ok(());
            }
            if !has_read && !has_written {
                self.wait_for_socket(state);
            }
        }
        Ok(())
    }

    /// Reads once. Returns true if anything came.
    fn read_some(&mut self, state: &mut FramedState) -> io::Result<bool> {
        let held = state
            .records
            .as_ref()
            .map_or(&[][..], TlsRecords::partial_record);
        let begin = held.len();
        self.buffer[..begin].copy_from_slice(held);
        let mut socket = self.socket;
        let count = match socket.read(&mut self.buffer[begin..begin + READ]) {
            Err(error) if is_temporary(&error) => return Ok(false),
            read => read?,
        };
        if count == 0 {
            return end_of_input(state);
        }
        let length = match &mut state.records {
            None => count,
            Some(records) => records
                .open_records(&mut self.buffer[..begin + count])
                .map_err(io::Error::other)?,
        };
        self.take_input(state, length)?;
        if state.records.as_ref().is_some_and(TlsRecords::has_ended) {
            return end_of_input(state);
        }
        Ok(true)
    }

    /// Takes payload that came earlier, and then that in the buffer.
    fn take_input(&mut self, state: &mut FramedState, length: usize) -> io::Result<()> {
        let earlier = std::mem::take(&mut state.input);
        for bytes in [&earlier[..], &self.buffer[..length]] {
            let taken = state.framing.take_input(bytes);
            let (taken, data) =
                taken.map_err(|rule| io::Error::new(ErrorKind::InvalidData, rule))?;
            state.input.extend_from_slice(&bytes[taken..]);
            if data > 0 && self.stream.role == StreamRole::Receiver {
                self.stream.lock_count().bytes += ByteCount::new(data);
            }
        }
        Ok(())
    }

    /// Writes what waits, or else what is to be sent next. Returns true if the kernel took any.
    fn write_some(&mut self, state: &mut FramedState) -> io::Result<bool> {
        if let Some(unsent) = &mut self.unsent {
            unsent.update_bound(self.socket);
            self.waits_for_drain = self.output.is_empty() && unsent.is_reached(self.socket);
            if self.waits_for_drain {
                return Ok(false);
            }
        }
        if self.output.is_empty() {
            let now = Moment {
                at: self.begun.elapsed().into(),
                socket: self.socket,
                room: self.unsent.as_ref().map_or(PIECE, UnsentBound::piece),
            };
            let sealed = self.output.fill(state, now, &self.data);
            sealed.map_err(io::Error::other)?;
        }
        if self.output.is_empty() {
            return Ok(false);
        }
        let mut socket = self.socket;
        let waiting = &self.output.bytes[self.output.written..];
        let fitting = self.room.fitting_bytes(socket, waiting.len() as u64);
        if fitting == 0 {
            return Ok(false);
        }
        match socket.write(&waiting[..to_length(fitting)]) {
            Err(error) if is_temporary(&error) => Ok(false),
            written => {
                let written = written?;
                self.room.record_written(written as u64);
                let data = self.output.note_written(written);
                if self.stream.role == StreamRole::Sender {
                    self.stream.lock_count().bytes += ByteCount::new(data);
                }
                self.retry.note_progress();
                Ok(true)
            }
        }
    }

    fn wait_for_socket(&mut self, state: &FramedState) {
        let mut events = PollFlags::empty();
        let mut longest = state.framing.time_until_due(self.begun.elapsed().into());
        if state.framing.reads_input() {
            events |= PollFlags::IN;
        }
        if self.waits_for_drain {
            longest = self.retry.next_wait().max(DRAIN_INTERVAL);
        } else if self.output.is_empty() {
            // No shutdown wakes a receiver that is to close.
            longest = longest.min(POLL_INTERVAL);
        } else {
            events |= PollFlags::OUT;
            longest = self.retry.next_wait();
        }
        wait_for_socket(self.socket, events, longest);
    }
}

impl Output {
    fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    fn fill(
        &mut self,
        state: &mut FramedState,
        now: Moment<'_>,
        data: &[u8],
    ) -> Result<(), RecordError> {
        self.plain.clear();
        self.bytes.clear();
        (self.written, self.counted) = (0, 0);
        self.data = state.framing.push_output(now, data, &mut self.plain);
        match &mut state.records {
            None => std::mem::swap(&mut self.plain, &mut self.bytes),
            Some(records) if !self.plain.is_empty() => {
                records.seal_payload(&self.plain, &mut self.bytes)?;
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Notes that so many bytes more were written. Returns the share of data in them.
    fn note_written(&mut self, count: usize) -> u64 {
        self.written += count;
        let written = self.data * self.written as u64 / self.bytes.len() as u64;
        let fresh = written - self.counted;
        self.counted = written;
        fresh
    }
}

/// Ends what the other end will not end any more; fails if its body is not complete.
fn end_of_input(state: &mut FramedState) -> io::Result<bool> {
    match &mut state.framing {
        Framing::Ndt7(endpoint) => {
            endpoint.note_end();
            state.has_ended = true;
            Ok(true)
        }
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
