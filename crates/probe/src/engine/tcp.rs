//! The threads of TCP streams.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullpipe_record::{TcpInfo, Writer};
use fullpipe_sys::{MappedPages, socket_memory, tcp_info};
use fullpipe_units::{BitRate, ByteCount, Span};
use rustix::net::{RecvFlags, recv};
use socket2::SockRef;

use super::credit::{ReceiveAnswers, SendCredit};
use super::lane::{RunningStream, StreamRole};
use super::pace::WriteAllowance;
use super::pause::ReadPause;
use super::plan::TransferPlan;
use super::shared::{COPIED, MAX_WAIT, TransferState, to_length};
use super::source::StreamSource;
use super::storage::FileStorage;

/// Longest that a sending thread waits before it tries a full socket again.
const MAX_RETRY: Span = Span::from_millis(1);

/// Shortest, so that a short path does not make it spin.
const MIN_RETRY: Span = Span::from_micros(50);

/// Waits without progress after which each is twice as long as the one before: half a round trip of
/// them.
const SHORT_WAITS: u32 = 32;

/// Unsent bytes that a bounded socket may hold before its other end has acknowledged anything.
const MIN_UNSENT: u64 = 32 << 10;

/// Time over which acknowledged bytes count for the bound of unsent ones.
const UNSENT_WINDOW: Duration = Duration::from_secs(1);

/// Time between two settings of that bound.
const UNSENT_INTERVAL: Duration = Duration::from_millis(50);

/// Writes until it is stopped, or the budget is spent, or the other end is gone.
pub(crate) fn send_stream(
    socket: &TcpStream,
    stream: &RunningStream,
    shared: &TransferState,
    plan: &TransferPlan,
) -> io::Result<()> {
    socket.set_nonblocking(plan.writer == Writer::Retrying)?;
    let mut source = StreamSource::new(socket, plan, shared)?;
    let sent = send_from(&mut source, socket, stream, shared, plan);
    source.finish_sending(socket, shared);
    sent
}

fn send_from(
    source: &mut StreamSource,
    socket: &TcpStream,
    stream: &RunningStream,
    shared: &TransferState,
    plan: &TransferPlan,
) -> io::Result<()> {
    let mut retry = SendRetry::for_rtt(plan.base_rtt);
    let mut unsent = plan.bounds_unsent.then(UnsentBound::of_one_load);
    let mut room = SendBufferRoom::from_writer(
        plan.writer,
        SockRef::from(socket).tcp_mss().unwrap_or_default(),
    );
    let mut allowance = WriteAllowance::of_bytes(plan);
    let mut credit = SendCredit::from_plan(plan);
    if credit.is_some() {
        socket.set_nodelay(true)?;
    }
    let mut grant = BudgetShare::from_plan(plan, shared);
    while !shared.is_stopped(StreamRole::Sender) {
        if let Some(unsent) = &mut unsent {
            unsent.update_bound(socket);
        }
        let mut allowed = allowance.wait_for_bytes(|| shared.is_stopped(StreamRole::Sender));
        if let Some(credit) = &mut credit {
            let stopped = || shared.is_stopped(StreamRole::Sender);
            match credit.wait_for_bytes(socket, stopped) {
                Ok(bytes) => allowed = allowed.min(bytes),
                Err(_) if stopped() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let fitting = room.fitting_bytes(socket, plan.block.get().min(allowed));
        if fitting == 0 {
            source.wait_for_room(socket, retry.next_wait());
            continue;
        }
        let wanted = grant.take_bytes(fitting, shared);
        if wanted == 0 {
            return Ok(());
        }
        let result = source.write_block(socket, to_length(wanted));
        let done = *result.as_ref().unwrap_or(&0) as u64;
        stream.lock_count().bytes += ByteCount::new(done);
        grant.record_written(wanted, done, shared);
        room.record_written(done);
        allowance.note_used(done);
        if let Some(credit) = &mut credit {
            credit.note_written(done);
        }
        match result {
            // Storage has no more.
            Ok(0) => return Ok(()),
            Ok(_) => retry.note_progress(),
            // The kernel calls a socket writable only when a third of its buffer is free. Trying
            // again soon, writable or not, keeps the buffer full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                source.wait_for_room(socket, retry.next_wait());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if source.falls_back(&error, shared) => {}
            Err(_) if shared.is_stopped(StreamRole::Sender) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The waits of a sender for a socket that is full: short ones, which keep its buffer full, as long
/// as there is progress, and longer and longer ones when there is none: a peer that reads nothing
/// must cost nothing.
pub(super) struct SendRetry {
    shortest: Duration,
    wait: Duration,
    /// Waits since the last progress.
    waits: u32,
}

impl SendRetry {
    pub(super) fn for_rtt(base_rtt: Option<Span>) -> Self {
        let shortest = base_rtt
            .map_or(MAX_RETRY, |rtt| rtt / 64)
            .clamp(MIN_RETRY, MAX_RETRY)
            .into();
        Self {
            shortest,
            wait: shortest,
            waits: 0,
        }
    }

    /// Returns the time to wait for room, at whose beginning there was none.
    pub(super) fn next_wait(&mut self) -> Duration {
        self.waits = self.waits.saturating_add(1);
        if self.waits > SHORT_WAITS {
            self.wait = (self.wait * 2).min(MAX_WAIT);
        }
        self.wait
    }

    /// Halves the wait: a peer that reads a little now and then does not make it short.
    pub(super) fn note_progress(&mut self) {
        self.waits = 0;
        self.wait = (self.wait / 2).max(self.shortest);
    }
}

/// Bytes that a socket beside answers may hold because its window is large, though little was
/// acknowledged: a client that stops to read must not fill the memory.
const MAX_AHEAD: u64 = 128 << 10;

/// Bounds above this need no closer look than the kernel's.
const MAX_CHECKED: u64 = 512 << 10;

/// The bound of the bytes that a socket holds unsent (`TCP_NOTSENT_LOWAT`): a share of what its
/// other end has lately acknowledged in a second, and some more. That fills any path whose other
/// end reads; one that reads nothing fills no memory.
pub(super) struct UnsentBound {
    /// The time of the latest setting.
    set: Instant,
    /// When acknowledged bytes were counted for a window, and how many they were: for the one
    /// before this and for this.
    marks: [(Instant, u64); 2],
    bytes: u64,
    /// The bound of an end that has acknowledged nothing.
    least: u64,
    /// One more in so many bytes that were acknowledged.
    share: u64,
}

impl UnsentBound {
    /// Returns the bound of a connection that carries nothing but a load: a quarter of a second.
    pub(super) fn of_one_load() -> Self {
        Self::new(MIN_UNSENT, 4)
    }

    /// Returns the bound of a connection on which small answers are not to wait behind the load:
    /// 16 ms of what was acknowledged.
    pub(super) fn beside_answers() -> Self {
        Self::new(MIN_UNSENT / 4, 64)
    }

    fn new(least: u64, share: u64) -> Self {
        let now = Instant::now();
        Self {
            set: now,
            marks: [(now, 0); 2],
            bytes: 0,
            least,
            share,
        }
    }

    /// Sets the bound of `socket` if it is time to. A kernel that takes none leaves the socket as
    /// it is.
    pub(super) fn update_bound(&mut self, socket: &TcpStream) {
        let now = Instant::now();
        if self.bytes > 0 && now.duration_since(self.set) < UNSENT_INTERVAL {
            return;
        }
        let info = tcp_info(socket).unwrap_or_default();
        let acknowledged = info.bytes_acked.unwrap_or_default().get();
        let mut bytes = self.unsent_bytes(now, acknowledged);
        if self.is_beside_answers() {
            bytes = bytes.max(self.least + self.sendable_bytes(&info).min(MAX_AHEAD));
        }
        if bytes != self.bytes {
            let _ = SockRef::from(socket)
                .set_tcp_notsent_lowat(u32::try_from(bytes).unwrap_or(u32::MAX / 2));
        }
        (self.set, self.bytes) = (now, bytes);
    }

    fn unsent_bytes(&mut self, now: Instant, acknowledged: u64) -> u64 {
        if now.duration_since(self.marks[1].0) >= UNSENT_WINDOW {
            self.marks = [self.marks[1], (now, acknowledged)];
        }
        self.least + acknowledged.saturating_sub(self.marks[0].1) / self.share
    }

    /// Returns true if `socket`, on which answers are not to wait, has enough to send: the kernel
    /// itself lets a bound be exceeded by a segment that it has begun, of up to 64 KiB.
    pub(super) fn is_reached(&self, socket: &TcpStream) -> bool {
        self.is_beside_answers()
            && self.bytes < MAX_CHECKED
            && tcp_info(socket).is_ok_and(|info| {
                let enough = self.bytes.max(self.least + self.sendable_bytes(&info));
                let unsent = info.not_sent.unwrap_or_default().get();
                enough < MAX_CHECKED && unsent > enough / 2
            })
    }

    const fn is_beside_answers(&self) -> bool {
        self.least < MIN_UNSENT
    }

    /// Returns the bytes that the congestion window lets through in the time of the bound: while it
    /// grows, more than what was acknowledged says.
    fn sendable_bytes(&self, info: &TcpInfo) -> u64 {
        let window = info.snd_mss.unwrap_or_default() * info.cwnd.unwrap_or_default().get();
        let round_trip = info.rtt.unwrap_or_default().max(Span::from_micros(1));
        let rate = BitRate::from_bytes_in(window, round_trip);
        rate.bytes_in(Span::from_secs(1) / self.share).get()
    }

    /// Returns the bytes that are worth writing at once: half of the bound, within what is neither
    /// many calls nor more than the processor's cache.
    pub(super) fn piece(&self) -> usize {
        to_length(self.bytes / 2).clamp(4 << 10, 64 << 10)
    }
}

/// Share that a stream takes from the budget of all streams.
enum BudgetShare {
    /// As many bytes as it can write now; the rest goes back.
    Bytes,
    /// One block at a time: the size of a block, and what is left to write of the one that was
    /// taken.
    Blocks { block: u64, left: u64 },
}

impl BudgetShare {
    fn from_plan(plan: &TransferPlan, shared: &TransferState) -> Self {
        let is_file = shared.storage().is_some_and(|storage| storage.is_read());
        if plan.whole_blocks && plan.budget.is_some() && !is_file {
            Self::Blocks {
                block: plan.block.get(),
                left: 0,
            }
        } else {
            Self::Bytes
        }
    }

    /// Takes up to `wanted` bytes; none once the budget is spent.
    fn take_bytes(&mut self, wanted: u64, shared: &TransferState) -> u64 {
        match self {
            Self::Bytes => shared.take_budget(wanted),
            Self::Blocks { block, left } => {
                if *left == 0 && shared.take_budget(*block) > 0 {
                    *left = *block;
                }
                wanted.min(*left)
            }
        }
    }

    /// Notes that `done` of the `taken` bytes were written.
    fn record_written(&mut self, taken: u64, done: u64, shared: &TransferState) {
        match self {
            Self::Bytes => shared.give_back(taken - done),
            Self::Blocks { left, .. } => *left -= done,
        }
    }
}

/// Room that is left in a send buffer.
///
/// The kernel checks its limit only where a write begins another packet. While the last one waits
/// for the congestion window and is sent bit by bit, a write adds to it without a check (seen on
/// Linux 6.18: 3.5 MB in a buffer of 312 500 bytes). A writer that is to fill its buffer, and no
/// more, must check it itself.
pub(super) enum SendBufferRoom {
    /// As ordinary programs: the kernel decides.
    Unasked,
    /// At least so many bytes, when last asked, on a connection with segments of that payload.
    AtLeast(u64, u64),
}

/// Bytes that are written at least, without a last segment that is not full: less than the kernel
/// itself goes beyond the limit.
const MIN_CHUNK: u64 = 16_384;

impl SendBufferRoom {
    pub(super) const fn from_writer(writer: Writer, segment: u32) -> Self {
        match writer {
            Writer::Blocking => Self::Unasked,
            Writer::Retrying => Self::AtLeast(0, segment as u64),
        }
    }

    /// Returns the bytes of `block` that fit the send buffer; asks the kernel only where it has to.
    pub(super) fn fitting_bytes(&mut self, socket: &TcpStream, block: u64) -> u64 {
        let Self::AtLeast(room, segment) = self else {
            return block;
        };
        if *room < block {
            // A socket that cannot be asked is left to the kernel.
            *room = socket_memory(socket).map_or(u64::MAX, |memory| {
                memory.sndbuf.saturating_sub(memory.wmem_queued).get()
            });
        }
        match *room {
            0 => 0,
            room if room >= block => block,
            // A few bytes would make a packet of their own, and cost as much memory as a whole one.
            room => block.min(in_whole(room.max(MIN_CHUNK), *segment)),
        }
    }

    pub(super) fn record_written(&mut self, bytes: u64) {
        if let Self::AtLeast(room, _) = self {
            *room = room.saturating_sub(bytes);
        }
    }
}

/// So many bytes, without what would be less than a segment at their end.
///
/// If the buffer holds little more than the window, such an end is sent alone, and the window then
/// has room for less than a segment as long as it is on its way: a window of 12 segments carried
/// 11.3 of them (Linux 6.18).
const fn in_whole(bytes: u64, segment: u64) -> u64 {
    if segment == 0 || bytes < segment {
        bytes
    } else {
        bytes - bytes % segment
    }
}

/// Reads until it is stopped or the other end has finished.
pub(crate) fn receive_stream(
    socket: &TcpStream,
    stream: &RunningStream,
    shared: &TransferState,
    plan: &TransferPlan,
) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut sink = ReceiveSink::new(plan, shared)?;
    let mut pause = ReadPause::new();
    let mut allowance = WriteAllowance::of_reads(plan);
    let mut answers = plan.app_window.map(ReceiveAnswers::new);
    if answers.is_some() {
        socket.set_nodelay(true)?;
    }
    while !shared.is_stopped(StreamRole::Receiver) {
        let allowed = allowance.wait_for_bytes(|| shared.is_stopped(StreamRole::Receiver));
        let read = sink.read_arrived(socket, to_length(allowed));
        if let Some(answers) = &mut answers {
            answers.answer(socket, *read.as_ref().unwrap_or(&0) as u64);
        }
        match read {
            Ok(0) => return Ok(()),
            Ok(length) => {
                stream.lock_count().bytes += ByteCount::new(length as u64);
                allowance.note_used(length as u64);
                pause.note_read(length as u64);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause.until_more(socket),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) if shared.is_stopped(StreamRole::Receiver) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes that are discarded at once.
const DISCARDED: u64 = 4 << 20;

/// The place to which a receiver puts what arrives.
struct ReceiveSink {
    data: MappedPages,
    /// True if the kernel is to throw away what arrives, and leave `data` as it is.
    discard: bool,
    storage: Option<Arc<FileStorage>>,
}

impl ReceiveSink {
    fn new(plan: &TransferPlan, shared: &TransferState) -> io::Result<Self> {
        let storage = shared
            .storage()
            .filter(|storage| !storage.is_read())
            .map(Arc::clone);
        let discard = plan.discard && storage.is_none();
        // Pages that no thread writes take no memory.
        let bytes = if discard {
            DISCARDED
        } else {
            plan.block.get().min(COPIED)
        };
        Ok(Self {
            data: MappedPages::new(to_length(bytes))?,
            discard,
            storage,
        })
    }

    /// Takes up to `most` bytes of what has arrived from the socket; how many, none at the end.
    fn read_arrived(&mut self, mut socket: &TcpStream, most: usize) -> io::Result<usize> {
        let most = most.min(self.data.len());
        if self.discard {
            return Ok(recv(socket, &mut self.data[..most], RecvFlags::TRUNC)?.1);
        }
        let length = socket.read(&mut self.data[..most])?;
        if let Some(storage) = &self.storage {
            storage.append_chunk(&self.data[..length])?;
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests;
