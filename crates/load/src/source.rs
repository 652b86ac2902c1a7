//! Where what a TCP stream sends comes from, and how the kernel gets it.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullpipe_sys::{Completions, Pages, allow_zero_copy, completions, send_zero_copy};
use rustix::event::PollFlags;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;

use crate::lane::Role;
use crate::shared::{Shared, fill, wait};
use crate::storage::Storage;
use crate::transfer::TransferPlan;

/// How long the last notices of completed sends are waited for.
const LAST_NOTICES: Duration = Duration::from_millis(100);

/// What a stream sends.
#[derive(Debug)]
pub(crate) struct Source {
    data: Pages,
    way: Way,
}

/// How it gets into the kernel.
#[derive(Debug)]
enum Way {
    /// Copied.
    Copy,
    /// As pages of a file that holds the same.
    File(File),
    /// As the pages that it lies in.
    ZeroCopy(Sends),
    /// Copied, after it was read from storage; the part of the last piece that has not been sent.
    Storage(Arc<Storage>, Range<usize>),
}

/// Sends without a copy.
#[derive(Debug, Default)]
struct Sends {
    asked: u64,
    heard_of: Completions,
}

impl Source {
    /// What `plan` says, or a copy of the same bytes with a note why.
    pub(crate) fn new(socket: &TcpStream, plan: &TransferPlan, shared: &Shared) -> io::Result<Self> {
        let mut data = Pages::new(plan.block.get() as usize)?;
        fill(&mut data);
        let way = match shared.storage() {
            Some(storage) if storage.is_read() => Way::Storage(Arc::clone(storage), 0..0),
            _ if plan.sendfile => file_in_memory(&data).map_or_else(
                |error| {
                    shared.note(format!("data was copied instead of sent from a file, which cannot be made: {error}"));
                    Way::Copy
                },
                Way::File,
            ),
            _ if plan.zero_copy => allow_zero_copy(socket).map_or_else(
                |error| {
                    shared.note(format!("data was copied, as this socket sends nothing without: {error}"));
                    Way::Copy
                },
                |()| Way::ZeroCopy(Sends::default()),
            ),
            _ => Way::Copy,
        };
        Ok(Self { data, way })
    }

    /// Writes up to `length` bytes, no more than a block; how many the kernel took, none at the end of what there is.
    pub(crate) fn write(&mut self, mut socket: &TcpStream, length: usize) -> io::Result<usize> {
        match &mut self.way {
            Way::Copy => socket.write(&self.data[..length]),
            Way::File(file) => Ok(sendfile(socket, file, Some(&mut 0), length)?),
            Way::ZeroCopy(sends) => sends.send(socket, &self.data, length),
            Way::Storage(storage, rest) => {
                if rest.start == rest.end {
                    *rest = 0..storage.next(&mut self.data)?;
                }
                if rest.end == 0 {
                    return Ok(0);
                }
                let written = socket.write(&self.data[rest.start..rest.end.min(rest.start + length)])?;
                rest.start += written;
                Ok(written)
            }
        }
    }

    /// Whether `error` says that this socket does not take data this way, and it will be copied from now on.
    pub(crate) fn falls_back(&mut self, error: &io::Error, shared: &Shared) -> bool {
        let is = |errnos: &[Errno]| errnos.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
        let why = match &self.way {
            Way::File(_) if is(&[Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP]) => {
                "data was copied instead of sent from a file, which the socket refused"
            }
            // With nothing under way whose end would make room, there will never be any.
            Way::ZeroCopy(sends) if is(&[Errno::NOBUFS]) && sends.under_way() == 0 => {
                "data was copied, as the kernel has no room for sends without (net.core.optmem_max, RLIMIT_MEMLOCK)"
            }
            _ => return false,
        };
        shared.note(format!("{why}: {error}"));
        self.way = Way::Copy;
        true
    }

    /// Says what became of sends without a copy, as far as it is known soon after the last: what is under way may be long
    /// on a long path.
    pub(crate) fn finish(mut self, socket: &TcpStream, shared: &Shared) {
        let Way::ZeroCopy(sends) = &mut self.way else { return };
        let deadline = Instant::now() + LAST_NOTICES;
        while sends.under_way() > 0 && Instant::now() < deadline && !shared.stopped(Role::Receiver) {
            wait(socket, PollFlags::ERR, Duration::from_millis(1));
            sends.collect(socket);
        }
        let Completions { done, copied } = sends.heard_of;
        if copied > 0 {
            let share = if copied == done { "all" } else { "some" };
            shared.note(format!(
                "the kernel copied {share} of what it was to send without a copy: over loopback it always does, and where \
                 the device cannot gather"
            ));
        }
    }
}

impl Sends {
    fn send(&mut self, socket: &TcpStream, data: &Pages, length: usize) -> io::Result<usize> {
        // Notices take the room that sends need.
        self.collect(socket);
        match send_zero_copy(socket, data, length) {
            Ok(sent) => {
                self.asked += 1;
                Ok(sent)
            }
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) && self.under_way() > 0 => {
                Err(ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error),
        }
    }

    fn collect(&mut self, socket: &TcpStream) {
        if self.under_way() == 0 {
            return;
        }
        // Where notices cannot be read, the next send says why.
        let Ok(found) = completions(socket) else { return };
        self.heard_of.done += found.done;
        self.heard_of.copied += found.copied;
    }

    fn under_way(&self) -> u64 {
        self.asked.saturating_sub(self.heard_of.done)
    }
}

fn file_in_memory(data: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("fullpipe", MemfdFlags::CLOEXEC)?);
    file.write_all(data)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::Request;
    use std::net::TcpListener;

    fn source(request: &Request) -> (Source, [TcpStream; 2], Shared) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        let shared = Shared::new(None, None);
        (Source::new(&socket, &TransferPlan::of(request, None), &shared).unwrap(), [socket, peer], shared)
    }

    #[test]
    fn a_socket_that_takes_no_file_gets_copies_and_the_user_is_reported() {
        let (mut source, _, shared) = source(&Request { sendfile: true, ..Request::default() });
        assert!(matches!(source.way, Way::File(_)));
        assert!(!source.falls_back(&Errno::CONNRESET.into(), &shared));
        assert!(source.falls_back(&Errno::INVAL.into(), &shared) && matches!(source.way, Way::Copy));
        // A copy that is refused is an error like any other.
        assert!(!source.falls_back(&Errno::INVAL.into(), &shared));
        assert_eq!(shared.take_notes().len(), 1);
    }

    #[test]
    fn a_kernel_without_room_for_sends_in_place_gets_copies_and_the_user_is_reported() {
        let (mut source, sockets, shared) = source(&Request { zero_copy: true, ..Request::default() });
        assert!(source.write(&sockets[0], 1_000).unwrap() > 0);
        assert!(!source.falls_back(&Errno::NOBUFS.into(), &shared), "its end will make room");
        if let Way::ZeroCopy(sends) = &mut source.way {
            sends.heard_of.done = 1;
        }
        assert!(source.falls_back(&Errno::NOBUFS.into(), &shared) && matches!(source.way, Way::Copy));
        assert_eq!(shared.take_notes().len(), 1);
    }
}
