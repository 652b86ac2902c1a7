//! The threads of TCP streams.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_record::Writer;
use fullpipe_sys::{Pages, socket_memory};
use fullpipe_units::{ByteCount, Span};
use rustix::net::{RecvFlags, recv};
use socket2::SockRef;

use crate::lane::{Role, Stream};
use crate::pace::Allowance;
use crate::pause::Pause;
use crate::plan::TransferPlan;
use crate::shared::{Shared, length};
use crate::source::Source;
use crate::storage::Storage;

/// Longest that a sending thread waits before it tries a full socket again.
const MAX_RETRY: Span = Span::from_millis(1);

/// Shortest, so that a short path does not make it spin.
const MIN_RETRY: Span = Span::from_micros(50);

/// Writes until it is stopped, or the budget is spent, or the other end is gone.
pub(crate) fn send(socket: &TcpStream, stream: &Stream, shared: &Shared, plan: &TransferPlan) -> io::Result<()> {
    socket.set_nonblocking(plan.writer == Writer::Retrying)?;
    let mut source = Source::new(socket, plan, shared)?;
    let sent = send_from(&mut source, socket, stream, shared, plan);
    source.finish(socket, shared);
    sent
}

fn send_from(
    source: &mut Source,
    socket: &TcpStream,
    stream: &Stream,
    shared: &Shared,
    plan: &TransferPlan,
) -> io::Result<()> {
    let retry = retry_after(plan.base_rtt);
    let stopped = || shared.stopped(Role::Sender);
    let mut room = Room::of(plan.writer, SockRef::from(socket).tcp_mss().unwrap_or_default());
    let mut allowance = Allowance::of_bytes(plan);
    let mut grant = Grant::of(plan, shared);
    while !stopped() {
        let fitting = room.fitting(socket, plan.block.get().min(allowance.wait(stopped)));
        if fitting == 0 {
            source.wait(socket, retry);
            continue;
        }
        let wanted = grant.take(fitting, shared);
        if wanted == 0 {
            return Ok(());
        }
        let result = source.write(socket, length(wanted));
        let done = *result.as_ref().unwrap_or(&0) as u64;
        stream.count().bytes += ByteCount::new(done);
        grant.written(wanted, done, shared);
        room.taken(done);
        allowance.taken(done);
        match result {
            // Storage has no more.
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The kernel calls a socket writable only when a third of its buffer is free. Trying again after `retry`,
            // writable or not, keeps the buffer full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => source.wait(socket, retry),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if source.falls_back(&error, shared) => {}
            Err(error) => return if stopped() { Ok(()) } else { Err(error) },
        }
    }
    Ok(())
}

/// Share that a stream takes from the budget of all streams.
enum Grant {
    /// As many bytes as it can write now; the rest goes back.
    Bytes,
    /// One block at a time: the size of a block, and what is left to write of the one that was taken.
    Blocks { block: u64, left: u64 },
}

impl Grant {
    fn of(plan: &TransferPlan, shared: &Shared) -> Self {
        let is_file = shared.storage().is_some_and(|storage| storage.is_read());
        if plan.whole_blocks && plan.budget.is_some() && !is_file {
            Self::Blocks { block: plan.block.get(), left: 0 }
        } else {
            Self::Bytes
        }
    }

    /// Takes up to `wanted` bytes; none once the budget is spent.
    fn take(&mut self, wanted: u64, shared: &Shared) -> u64 {
        match self {
            Self::Bytes => shared.take(wanted),
            Self::Blocks { block, left } => {
                if *left == 0 && shared.take(*block) > 0 {
                    *left = *block;
                }
                wanted.min(*left)
            }
        }
    }

    /// Notes that `done` of the `taken` bytes were written.
    fn written(&mut self, taken: u64, done: u64, shared: &Shared) {
        match self {
            Self::Bytes => shared.give_back(taken - done),
            Self::Blocks { left, .. } => *left -= done,
        }
    }
}

/// Room that is left in a send buffer.
///
/// The kernel checks its limit only where a write begins another packet. While the last one waits for the congestion
/// window and is sent bit by bit, a write adds to it without a check (seen on Linux 6.18: 3.5 MB in a buffer of 312 500
/// bytes). A writer that is to fill its buffer, and no more, must check it itself.
enum Room {
    /// As ordinary programs: the kernel decides.
    Unasked,
    /// At least so many bytes, when last asked, on a connection with segments of that payload.
    AtLeast(u64, u64),
}

/// Bytes that are written at least, without a last segment that is not full: less than the kernel itself goes beyond
/// the limit.
const MIN_CHUNK: u64 = 16_384;

impl Room {
    const fn of(writer: Writer, segment: u32) -> Self {
        match writer {
            Writer::Blocking => Self::Unasked,
            Writer::Retrying => Self::AtLeast(0, segment as u64),
        }
    }

    /// Returns how much of `block` fits; looks only where it has to.
    fn fitting(&mut self, socket: &TcpStream, block: u64) -> u64 {
        let Self::AtLeast(room, segment) = self else { return block };
        if *room < block {
            // A socket that cannot be asked is left to the kernel.
            *room =
                socket_memory(socket).map_or(u64::MAX, |memory| memory.sndbuf.saturating_sub(memory.wmem_queued).get());
        }
        match *room {
            0 => 0,
            room if room >= block => block,
            // A few bytes would make a packet of their own, and cost as much memory as a whole one.
            room => block.min(in_whole(room.max(MIN_CHUNK), *segment)),
        }
    }

    fn taken(&mut self, bytes: u64) {
        if let Self::AtLeast(room, _) = self {
            *room = room.saturating_sub(bytes);
        }
    }
}

/// So many bytes, without what would be less than a segment at their end.
///
/// If the buffer holds little more than the window, such an end is sent alone, and the window then has room for less
/// than a segment as long as it is on its way: a window of 12 segments carried 11.3 of them (Linux 6.18).
const fn in_whole(bytes: u64, segment: u64) -> u64 {
    if segment == 0 || bytes < segment { bytes } else { bytes - bytes % segment }
}

/// Reads until it is stopped or the other end has finished.
pub(crate) fn receive(socket: &TcpStream, stream: &Stream, shared: &Shared, plan: &TransferPlan) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let stopped = || shared.stopped(Role::Receiver);
    let mut sink = Sink::new(plan, shared)?;
    let mut pause = Pause::new();
    while !stopped() {
        match sink.take(socket) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                stream.count().bytes += ByteCount::new(length as u64);
                pause.read(length as u64);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause.until_more(socket),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return if stopped() { Ok(()) } else { Err(error) },
        }
    }
    Ok(())
}

/// Bytes that are discarded at once.
const DISCARDED: u64 = 4 << 20;

/// Bytes that are copied at once, at most: more would not stay in the processor's cache.
const COPIED: u64 = 128 << 10;

/// The place to which a receiver puts what arrives.
struct Sink {
    data: Pages,
    /// True if the kernel is to throw away what arrives, and leave `data` as it is.
    discard: bool,
    storage: Option<Arc<Storage>>,
}

impl Sink {
    fn new(plan: &TransferPlan, shared: &Shared) -> io::Result<Self> {
        let storage = shared.storage().filter(|storage| !storage.is_read()).map(Arc::clone);
        let discard = plan.discard && storage.is_none();
        let bytes = match (discard, &storage) {
            // Pages that nobody writes take no memory.
            (true, _) => DISCARDED,
            (false, None) => plan.block.get().min(COPIED),
            (false, Some(_)) => plan.block.get(),
        };
        Ok(Self { data: Pages::new(length(bytes))?, discard, storage })
    }

    /// Takes what has arrived from the socket; how many bytes, none at the end.
    fn take(&mut self, mut socket: &TcpStream) -> io::Result<usize> {
        if self.discard {
            return Ok(recv(socket, &mut *self.data, RecvFlags::TRUNC)?.1);
        }
        let length = socket.read(&mut self.data)?;
        if let Some(storage) = &self.storage {
            storage.append(&self.data[..length])?;
        }
        Ok(length)
    }
}

fn retry_after(base_rtt: Option<Span>) -> Duration {
    base_rtt.map_or(MAX_RETRY, |rtt| rtt / 64).clamp(MIN_RETRY, MAX_RETRY).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_no_segment_that_is_not_full() {
        let socket = TcpStream::connect(std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let socket = socket.unwrap();
        let fitting = |room, block| Room::AtLeast(room, 1_448).fitting(&socket, block);
        assert_eq!([fitting(20_000, 18_000), fitting(40_000, 40_000)], [18_000, 40_000], "a block that fits is whole");
        assert_eq!([in_whole(MIN_CHUNK, 1_448), in_whole(14_480, 1_448)], [11 * 1_448, 10 * 1_448]);
        assert_eq!(
            [in_whole(MIN_CHUNK, 8_948), in_whole(MIN_CHUNK, 0), in_whole(MIN_CHUNK, 65_483)],
            [8_948, MIN_CHUNK, MIN_CHUNK]
        );
        let left_to_the_kernel = Room::Unasked.fitting(&socket, 18_000);
        assert_eq!(left_to_the_kernel, 18_000);
    }
}
