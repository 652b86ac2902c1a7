//! The thread of one stream.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::transfer::Stream;
use fullpipe_record::Writer;
use fullpipe_sys::socket_memory;
use fullpipe_units::{ByteCount, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest that a sending thread waits before it tries a full socket again.
const LONGEST_RETRY: Span = Span::from_millis(1);

/// Shortest, so that a short path does not make it spin.
const SHORTEST_RETRY: Span = Span::from_micros(50);

/// How often a receiving thread looks whether it should end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What all streams of a transfer share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Set once no more data is to be sent, or read.
    pub(crate) stop: AtomicBool,
    /// Bytes that may still be sent, by all streams together; [`u64::MAX`] without a limit.
    pub(crate) budget: AtomicU64,
}

impl Shared {
    /// Ends every thread of a transfer that cannot be started whole.
    pub(crate) fn give_up(&self, streams: &[Stream]) {
        self.stop.store(true, Ordering::Relaxed);
        for stream in streams {
            let _ = stream.socket.shutdown(Shutdown::Both);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Takes up to `wanted` bytes from the budget.
    fn take(&self, wanted: u64) -> u64 {
        if self.budget.load(Ordering::Relaxed) == u64::MAX {
            return wanted;
        }
        let taken =
            self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(wanted)));
        taken.map_or(0, |left| left.min(wanted))
    }

    fn give_back(&self, bytes: u64) {
        if self.budget.load(Ordering::Relaxed) != u64::MAX {
            self.budget.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// Writes until told to stop, or the budget is spent, or the other end is gone. `written` counts the bytes.
pub(crate) fn send(
    mut socket: &TcpStream,
    shared: &Shared,
    written: &AtomicU64,
    block: ByteCount,
    writer: Writer,
    base_rtt: Option<Span>,
) -> io::Result<()> {
    socket.set_nonblocking(writer == Writer::Retrying)?;
    let retry = retry_after(base_rtt);
    let data = pattern(block);
    let mut room = Room::of(writer);
    while !shared.stopped() {
        let fitting = room.fitting(socket, data.len() as u64);
        if fitting == 0 {
            wait(socket, PollFlags::OUT, &retry);
            continue;
        }
        let wanted = shared.take(fitting);
        if wanted == 0 {
            return Ok(());
        }
        let result = socket.write(&data[..wanted as usize]);
        let done = *result.as_ref().unwrap_or(&0) as u64;
        written.fetch_add(done, Ordering::Relaxed);
        shared.give_back(wanted - done);
        room.taken(done);
        match result {
            Ok(_) => {}
            // The kernel calls a socket writable only when a third of its buffer is free. Trying again after `retry`,
            // writable or not, keeps the buffer full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::OUT, &retry),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return if shared.stopped() { Ok(()) } else { Err(error) },
        }
    }
    Ok(())
}

/// What still fits in a send buffer.
///
/// The kernel looks at its limit only where a write begins another packet. While the last one waits for the congestion
/// window and is sent bit by bit, a write adds to it without a look (seen on Linux 6.18: 3.5 MB in a buffer of 312 500
/// bytes). A writer that is to fill its buffer, and no more, must look itself.
enum Room {
    /// As ordinary programs: the kernel decides.
    Unasked,
    /// At least so many bytes, when last looked.
    AtLeast(u64),
}

/// What is written at least: less than the kernel itself goes beyond the limit.
const PIECE: u64 = 16_384;

impl Room {
    const fn of(writer: Writer) -> Self {
        match writer {
            Writer::Blocking => Self::Unasked,
            Writer::Retrying => Self::AtLeast(0),
        }
    }

    /// How much of `block` fits; looks only where it has to.
    fn fitting(&mut self, socket: &TcpStream, block: u64) -> u64 {
        let Self::AtLeast(room) = self else { return block };
        if *room < block {
            // A socket that cannot be asked is left to the kernel.
            *room =
                socket_memory(socket).map_or(u64::MAX, |memory| memory.sndbuf.saturating_sub(memory.wmem_queued).get());
        }
        // A few bytes would make a packet of their own, and cost as much memory as a whole one.
        if *room == 0 { 0 } else { block.min((*room).max(PIECE)) }
    }

    fn taken(&mut self, bytes: u64) {
        if let Self::AtLeast(room) = self {
            *room = room.saturating_sub(bytes);
        }
    }
}

/// Reads until told to stop or the other end has finished. `read` counts the bytes.
pub(crate) fn receive(mut socket: &TcpStream, shared: &Shared, read: &AtomicU64, block: ByteCount) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut buffer = vec![0; block.get() as usize];
    while !shared.stopped() {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                read.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::IN, &LOOK),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return if shared.stopped() { Ok(()) } else { Err(error) },
        }
    }
    Ok(())
}

fn retry_after(base_rtt: Option<Span>) -> Timespec {
    let span = base_rtt.map_or(LONGEST_RETRY, |rtt| rtt / 64).clamp(SHORTEST_RETRY, LONGEST_RETRY);
    Timespec { tv_sec: 0, tv_nsec: span.as_nanos().cast_signed() }
}

fn wait(socket: &TcpStream, what: PollFlags, timeout: &Timespec) {
    // An interrupted or failed wait is one more turn of the loop.
    let _ = poll(&mut [PollFd::new(&socket.as_fd(), what)], Some(timeout));
}

/// Bytes that no path can compress away: a xorshift sequence from a fixed seed.
fn pattern(block: ByteCount) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    });
    words.flatten().take(block.get() as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_exceeded_and_comes_back() {
        let shared = Shared { stop: AtomicBool::new(false), budget: AtomicU64::new(1000) };
        assert_eq!(shared.take(600), 600);
        assert_eq!(shared.take(600), 400);
        assert_eq!(shared.take(600), 0);
        shared.give_back(100);
        assert_eq!(shared.take(600), 100);
    }

    #[test]
    fn data_does_not_repeat_within_a_block() {
        let data = pattern(ByteCount::from_kib(128));
        assert_eq!(data.len(), 131_072);
        let words: std::collections::HashSet<&[u8]> = data.chunks(8).collect();
        assert_eq!(words.len(), 16_384);
    }
}
