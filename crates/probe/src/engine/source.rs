//! The source of what a TCP stream sends, and the method of handing it to the kernel.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use fullpipe_sys::{
    MappedPages, ZeroCopyCompletions, allow_zero_copy, lock, receive_completions, send_zero_copy,
};
use rustix::event::PollFlags;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;

use super::lane::StreamRole;
use super::plan::TransferPlan;
use super::shared::{COPIED, TransferState, fill_incompressible, to_length, wait_for_socket};
use super::storage::FileStorage;

/// Time for which the last notices of completed sends are waited for.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(100);

/// Bytes that all streams of this process share: the largest block of iperf3. What clients ask a
/// server to send then costs no memory for each stream.
const SHARED: usize = 1 << 20;

/// The bytes that all streams send, while there are any.
static DATA: Mutex<Weak<MappedPages>> = Mutex::new(Weak::new());

/// The bytes that all streams send, as a file in memory, while there are any.
static FILE: Mutex<Weak<File>> = Mutex::new(Weak::new());

/// The bytes that a stream sends.
pub(crate) struct StreamSource {
    data: Arc<MappedPages>,
    method: SendMethod,
}

/// A method of handing the kernel what is sent.
#[derive(Debug)]
enum SendMethod {
    /// Copied.
    Copy,
    /// As pages of a file that holds the same.
    File(Arc<File>),
    /// As the pages that it lies in.
    ZeroCopy(ZeroCopySends),
    /// Copied, after it was read from storage into the buffer; the part of it that has not been
    /// sent.
    Storage(Arc<FileStorage>, Vec<u8>, Range<usize>),
}

/// Sends without a copy.
#[derive(Debug, Default)]
struct ZeroCopySends {
    asked: u64,
    completed: ZeroCopyCompletions,
    /// True after a send for which there was no room until the end of another one.
    lacks_room: bool,
}

impl StreamSource {
    /// Returns a source as `plan` asks for it, or one that copies the same bytes, with a note why.
    pub(crate) fn new(
        socket: &TcpStream,
        plan: &TransferPlan,
        shared: &TransferState,
    ) -> io::Result<Self> {
        let block = to_length(plan.block.get());
        let data = shared_data(block)?;
        let method = match shared.storage() {
            Some(storage) if storage.is_read() => {
                let chunk = if plan.bounds_unsent {
                    block.min(to_length(COPIED))
                } else {
                    block
                };
                SendMethod::Storage(Arc::clone(storage), vec![0; chunk], 0..0)
            }
            _ if plan.sendfile => shared_file(&data).map_or_else(
                |error| {
                    shared.add_note(format!(
                        "data was copied instead of sent from a file, which cannot be made: {error}"
                    ));
                    SendMethod::Copy
                },
                SendMethod::File,
            ),
            _ if plan.zero_copy => allow_zero_copy(socket).map_or_else(
                |error| {
                    shared.add_note(format!(
                        "data was copied, as this socket sends nothing without: {error}"
                    ));
                    SendMethod::Copy
                },
                |()| SendMethod::ZeroCopy(ZeroCopySends::default()),
            ),
            _ => SendMethod::Copy,
        };
        Ok(Self { data, method })
    }

    /// Writes up to `length` bytes, no more than a block; how many the kernel took, none at the end
    /// of what there is.
    pub(crate) fn write_block(
        &mut self,
        mut socket: &TcpStream,
        length: usize,
    ) -> io::Result<usize> {
        match &mut self.method {
            SendMethod::Copy => socket.write(&self.data[..length]),
            SendMethod::File(file) => Ok(sendfile(socket, file, Some(&mut 0), length)?),
            SendMethod::ZeroCopy(sends) => sends.send_pages(socket, &self.data, length),
            SendMethod::Storage(storage, buffer, rest) => {
                if rest.start == rest.end {
                    *rest = 0..storage.read_chunk(buffer)?;
                }
                if rest.end == 0 {
                    return Ok(0);
                }
                let written =
                    socket.write(&buffer[rest.start..rest.end.min(rest.start + length)])?;
                rest.start += written;
                Ok(written)
            }
        }
    }

    /// Waits until the socket may take more, for `timeout` at most.
    pub(crate) fn wait_for_room(&mut self, socket: &TcpStream, timeout: Duration) {
        let what = match &mut self.method {
            SendMethod::ZeroCopy(sends) => sends.awaited_event(socket),
            SendMethod::Copy | SendMethod::File(_) | SendMethod::Storage(..) => PollFlags::OUT,
        };
        wait_for_socket(socket, what, timeout);
    }

    /// Returns true if `error` says that this socket does not take data by this method, in which
    /// case it is copied from now on.
    pub(crate) fn falls_back(&mut self, error: &io::Error, shared: &TransferState) -> bool {
        let errno = Errno::from_io_error(error);
        let why = match &self.method {
            SendMethod::File(_)
                if matches!(errno, Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) =>
            {
                "data was copied instead of sent from a file, which the socket refused"
            }
            // With nothing under way whose end would make room, there will never be any.
            SendMethod::ZeroCopy(sends)
                if errno == Some(Errno::NOBUFS) && sends.under_way() == 0 =>
            {
                "data was copied, as the kernel has no room for sends without (net.core.optmem_max, RLIMIT_MEMLOCK)"
            }
            _ => return false,
        };
        shared.add_note(format!("{why}: {error}"));
        self.method = SendMethod::Copy;
        true
    }

    /// Notes how many sends without a copy the kernel copied, as far as that is known soon after
    /// the last: on a long path data is under way for long.
    pub(crate) fn finish_sending(mut self, socket: &TcpStream, shared: &TransferState) {
        let SendMethod::ZeroCopy(sends) = &mut self.method else {
            return;
        };
        let deadline = Instant::now() + COMPLETION_TIMEOUT;
        while sends.under_way() > 0
            && Instant::now() < deadline
            && !shared.is_stopped(StreamRole::Receiver)
        {
            wait_for_socket(socket, PollFlags::ERR, Duration::from_millis(1));
            sends.collect_completions(socket);
        }
        let ZeroCopyCompletions { done, copied } = sends.completed;
        if copied > 0 {
            let share = if copied == done { "all" } else { "some" };
            shared.add_note(format!(
                "the kernel copied {share} of what it was to send without a copy: over loopback it always does, \
                 and where the device cannot gather"
            ));
        }
    }
}

impl ZeroCopySends {
    fn send_pages(
        &mut self,
        socket: &TcpStream,
        data: &MappedPages,
        length: usize,
    ) -> io::Result<usize> {
        // Notices take the room that sends need.
        self.collect_completions(socket);
        let result = send_zero_copy(socket, data, length);
        self.record_send(result)
    }

    /// Notes the `result` of a send. For one without room the kernel's error would say that there
    /// is no memory.
    fn record_send(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        let is_without_room =
            |error: &io::Error| error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error());
        self.lacks_room = self.under_way() > 0 && result.as_ref().is_err_and(is_without_room);
        if self.lacks_room {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.asked += u64::from(result.is_ok());
        result
    }

    /// Collects notices, because with one of them every wait ends at once, and returns the event
    /// that is to be waited for: a notice, if a send had no room and none has come. The socket is
    /// writable all the time then.
    fn awaited_event(&mut self, socket: &TcpStream) -> PollFlags {
        let before = self.completed.done;
        self.collect_completions(socket);
        if self.lacks_room && self.completed.done == before {
            PollFlags::ERR
        } else {
            PollFlags::OUT
        }
    }

    fn collect_completions(&mut self, socket: &TcpStream) {
        if self.under_way() == 0 {
            return;
        }
        // Where notices cannot be read, the next send says why.
        let Ok(found) = receive_completions(socket) else {
            return;
        };
        self.completed.done += found.done;
        self.completed.copied += found.copied;
    }

    fn under_way(&self) -> u64 {
        self.asked.saturating_sub(self.completed.done)
    }
}

/// Returns at least `length` bytes to send: those that other streams send, if they are as many.
pub(super) fn shared_data(length: usize) -> io::Result<Arc<MappedPages>> {
    let mut latest = lock(&DATA);
    if let Some(data) = latest.upgrade().filter(|data| data.len() >= length) {
        return Ok(data);
    }
    let mut data = MappedPages::new(length.max(SHARED))?;
    fill_incompressible(&mut data);
    let data = Arc::new(data);
    *latest = Arc::downgrade(&data);
    Ok(data)
}

/// Returns a file in memory that begins with `data`: that of other streams, if it is as long.
fn shared_file(data: &[u8]) -> io::Result<Arc<File>> {
    let mut latest = lock(&FILE);
    if let Some(file) = latest.upgrade()
        && file.metadata()?.len() >= data.len() as u64
    {
        return Ok(file);
    }
    let mut file = File::from(memfd_create("fullpipe", MemfdFlags::CLOEXEC)?);
    file.write_all(data)?;
    let file = Arc::new(file);
    *latest = Arc::downgrade(&file);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::Request;
    use fullpipe_units::ByteCount;
    use std::net::TcpListener;

    fn source(request: &Request) -> (StreamSource, [TcpStream; 2], TransferState) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        let shared = TransferState::new(None, None);
        (
            StreamSource::new(&socket, &TransferPlan::from_request(request, None), &shared)
                .unwrap(),
            [socket, peer],
            shared,
        )
    }

    #[test]
    fn a_socket_that_takes_no_file_gets_copies_and_the_user_is_reported() {
        let (mut source, _, shared) = source(&Request {
            sendfile: true,
            ..Request::default()
        });
        assert!(matches!(source.method, SendMethod::File(_)));
        assert!(!source.falls_back(&Errno::CONNRESET.into(), &shared));
        assert!(
            source.falls_back(&Errno::INVAL.into(), &shared)
                && matches!(source.method, SendMethod::Copy)
        );
        // A copy that is refused is an error like any other.
        assert!(!source.falls_back(&Errno::INVAL.into(), &shared));
        assert_eq!(shared.take_notes().len(), 1);
    }

    #[test]
    fn all_streams_send_the_same_bytes_from_the_same_memory() {
        let (first, second) = (shared_data(1_000).unwrap(), shared_data(SHARED).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert!(
            shared_data(SHARED + 1).unwrap().starts_with(&second),
            "a longer block has its own"
        );
        assert!(Arc::ptr_eq(
            &shared_file(&first).unwrap(),
            &shared_file(&first).unwrap()
        ));
    }

    #[test]
    fn a_kernel_without_room_for_sends_in_place_gets_copies_and_the_user_is_reported() {
        let (mut source, sockets, shared) = source(&Request {
            zero_copy: true,
            ..Request::default()
        });
        assert!(source.write_block(&sockets[0], 1_000).unwrap() > 0);
        assert!(
            !source.falls_back(&Errno::NOBUFS.into(), &shared),
            "its end will make room"
        );
        if let SendMethod::ZeroCopy(sends) = &mut source.method {
            sends.completed.done = 1;
        }
        assert!(
            source.falls_back(&Errno::NOBUFS.into(), &shared)
                && matches!(source.method, SendMethod::Copy)
        );
        assert_eq!(shared.take_notes().len(), 1);
    }

    /// Returns the time that `source` waits for more room, in which no peer reads.
    fn waited(source: &mut StreamSource, socket: &TcpStream) -> Duration {
        let begun = Instant::now();
        source.wait_for_room(socket, Duration::from_millis(200));
        begun.elapsed()
    }

    const HALF: Duration = Duration::from_millis(100);

    #[test]
    fn notices_do_not_end_a_wait_for_room() {
        let (mut source, sockets, _) = source(&Request {
            zero_copy: true,
            ..Request::default()
        });
        sockets[0].set_nonblocking(true).unwrap();
        let SendMethod::ZeroCopy(sends) = &mut source.method else {
            panic!("no zero copy")
        };
        // Over loopback the notices of what has arrived come at once.
        while send_zero_copy(&sockets[0], &source.data, 65_536).is_ok() {
            sends.asked += 1;
        }
        // A few more come while the last packets arrive.
        assert!(
            (0..20).any(|_| waited(&mut source, &sockets[0]) > HALF),
            "notices ended every wait"
        );
    }

    /// Each stream of a server that sends a file once took as much as its client asked for.
    #[test]
    fn a_server_reads_its_file_in_small_chunks() {
        let (_, sockets, _) = source(&Request::default());
        let storage = FileStorage::for_repeating(File::open("/proc/self/exe").unwrap());
        let shared = TransferState::new(None, Some(storage));
        let request = Request {
            block: ByteCount::from_mib(1),
            ..Request::default()
        };
        let chunk = |bounds_unsent| {
            let plan = TransferPlan {
                bounds_unsent,
                ..TransferPlan::from_request(&request, None)
            };
            match StreamSource::new(&sockets[0], &plan, &shared)
                .unwrap()
                .method
            {
                SendMethod::Storage(_, chunk, _) => chunk.len(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!([chunk(true), chunk(false)], [128 << 10, 1 << 20]);
    }

    #[test]
    fn a_send_without_room_waits_for_a_notice_and_not_for_a_socket_that_is_writable() {
        let (mut source, sockets, _) = source(&Request {
            zero_copy: true,
            ..Request::default()
        });
        source.write_block(&sockets[0], 1_000).unwrap();
        let SendMethod::ZeroCopy(sends) = &mut source.method else {
            panic!("no zero copy")
        };
        // Another one, whose end never comes.
        sends.asked += 1;
        let without_room = sends.record_send(Err(Errno::NOBUFS.into())).unwrap_err();
        assert_eq!(without_room.kind(), ErrorKind::WouldBlock);
        assert!(
            waited(&mut source, &sockets[0]) < HALF,
            "a notice was there"
        );
        assert!(waited(&mut source, &sockets[0]) > HALF, "none was left");
        source.write_block(&sockets[0], 1_000).unwrap();
        assert!(waited(&mut source, &sockets[0]) < HALF, "a send had room");
    }
}
