//! The threads of TCP streams.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fullpipe_record::Writer;
use fullpipe_sys::socket_memory;
use fullpipe_units::{ByteCount, Span};
use rustix::event::PollFlags;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::lane::{Role, Stream};
use crate::pace::Allowance;
use crate::shared::{LOOK, Shared, pattern, wait};
use crate::transfer::TransferPlan;

/// Longest that a sending thread waits before it tries a full socket again.
const LONGEST_RETRY: Span = Span::from_millis(1);

/// Shortest, so that a short path does not make it spin.
const SHORTEST_RETRY: Span = Span::from_micros(50);

/// Writes until told to stop, or the budget is spent, or the other end is gone.
pub(crate) fn send(socket: &TcpStream, stream: &Stream, shared: &Shared, plan: &TransferPlan) -> io::Result<()> {
    socket.set_nonblocking(plan.writer == Writer::Retrying)?;
    let retry = retry_after(plan.base_rtt);
    let stopped = || shared.stopped(Role::Sender);
    let mut source = Source::new(plan, shared);
    let mut room = Room::of(plan.writer);
    // A byte stream has no shape of its own that making up for a delay could spoil.
    let mut allowance = Allowance::new(plan, u64::MAX);
    while !stopped() {
        let fitting = room.fitting(socket, plan.block.get().min(allowance.wait(stopped)));
        if fitting == 0 {
            wait(socket, PollFlags::OUT, retry);
            continue;
        }
        let wanted = shared.take(fitting);
        if wanted == 0 {
            return Ok(());
        }
        let result = source.write(socket, wanted as usize);
        let done = *result.as_ref().unwrap_or(&0) as u64;
        stream.count().bytes += ByteCount::new(done);
        shared.give_back(wanted - done);
        room.taken(done);
        allowance.taken(done);
        match result {
            Ok(_) => {}
            // The kernel calls a socket writable only when a third of its buffer is free. Trying again after `retry`,
            // writable or not, keeps the buffer full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::OUT, retry),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if source.falls_back(&error, shared) => {}
            Err(error) => return if stopped() { Ok(()) } else { Err(error) },
        }
    }
    Ok(())
}

/// Where what is sent comes from.
struct Source {
    data: Vec<u8>,
    /// The same in a file, whose pages the kernel sends without copying.
    file: Option<File>,
}

impl Source {
    fn new(plan: &TransferPlan, shared: &Shared) -> Self {
        let data = pattern(plan.block.get() as usize);
        let file = plan.sendfile.then(|| file_in_memory(&data));
        if let Some(Err(error)) = &file {
            shared.note(format!("data was copied instead of sent from a file, which cannot be made: {error}"));
        }
        Self { data, file: file.and_then(Result::ok) }
    }

    fn write(&self, mut socket: &TcpStream, length: usize) -> io::Result<usize> {
        match &self.file {
            Some(file) => Ok(sendfile(socket, file, Some(&mut 0), length)?),
            None => socket.write(&self.data[..length]),
        }
    }

    /// Whether `error` says that this socket takes no file, and data will be copied from now on.
    fn falls_back(&mut self, error: &io::Error, shared: &Shared) -> bool {
        let refused = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP].map(Errno::raw_os_error);
        let falls_back = self.file.is_some() && error.raw_os_error().is_some_and(|number| refused.contains(&number));
        if falls_back {
            shared.note(format!("data was copied instead of sent from a file, which the socket refused: {error}"));
            self.file = None;
        }
        falls_back
    }
}

fn file_in_memory(data: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("fullpipe", MemfdFlags::CLOEXEC)?);
    file.write_all(data)?;
    Ok(file)
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

/// Reads until told to stop or the other end has finished.
pub(crate) fn receive(socket: &TcpStream, stream: &Stream, shared: &Shared, plan: &TransferPlan) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let stopped = || shared.stopped(Role::Receiver);
    let mut buffer = vec![0; plan.block.get() as usize];
    while !stopped() {
        match read(socket, &mut buffer, plan.discard) {
            Ok(0) => return Ok(()),
            Ok(length) => stream.count().bytes += ByteCount::new(length as u64),
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::IN, LOOK),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return if stopped() { Ok(()) } else { Err(error) },
        }
    }
    Ok(())
}

/// Reads into `buffer`; with `discard`, takes as much from the socket and leaves `buffer` as it is.
fn read(mut socket: &TcpStream, buffer: &mut [u8], discard: bool) -> io::Result<usize> {
    if discard { Ok(recv(socket, buffer, RecvFlags::TRUNC)?.1) } else { socket.read(buffer) }
}

fn retry_after(base_rtt: Option<Span>) -> Duration {
    base_rtt.map_or(LONGEST_RETRY, |rtt| rtt / 64).clamp(SHORTEST_RETRY, LONGEST_RETRY).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::Request;

    #[test]
    fn a_socket_that_takes_no_file_gets_copies_and_the_user_is_told() {
        let shared = Shared::new(None);
        let request = Request { sendfile: true, ..Request::default() };
        let mut source = Source::new(&TransferPlan::of(&request, None), &shared);
        assert!(source.file.is_some());
        assert!(!source.falls_back(&Errno::CONNRESET.into(), &shared));
        assert!(source.falls_back(&Errno::INVAL.into(), &shared) && source.file.is_none());
        // A copy that is refused is an error like any other.
        assert!(!source.falls_back(&Errno::INVAL.into(), &shared));
        assert_eq!(shared.take_notes().len(), 1);
    }
}
