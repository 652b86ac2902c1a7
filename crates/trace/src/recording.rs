//! A capture of some connections, kept in a file while they last.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fullpipe_sys::{CAPTURED_LENGTH, CaptureSocket, CapturedFrame, CapturedPeer, start_thread};
use fullpipe_wire::LinkType;

use crate::CaptureError;
use crate::pcap_writer::PcapWriter;

/// Size of a file from which on packets are left out: about three million of them.
const MAX_SIZE: u64 = 256 << 20;

/// Time after which a wait for packets asks whether it shall end.
const POLL_INTERVAL: Duration = Duration::from_millis(60);

/// A capture that is under way. Dropped unfinished, it leaves no file.
#[derive(Debug)]
pub struct HeaderRecording {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<(RecordedCapture, PcapWriter)>>>,
}

/// The content of a capture that was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordedCapture {
    /// Packets in the file. Without any there is no file.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub dropped: u64,
    /// Packets that the file had no room for: all after it was full.
    pub left_out: u64,
}

impl HeaderRecording {
    /// Begins to keep the first 128 bytes of the packets of connections with `peers` that pass
    /// `device` of the calling thread's network namespace, in a new file of at most 256 MiB.
    ///
    /// # Errors
    ///
    /// Fails without `CAP_NET_RAW`, if there is no such device, and if the file exists or cannot be
    /// made.
    pub fn start(path: &Path, device: &str, peers: &[CapturedPeer]) -> Result<Self, CaptureError> {
        let socket = CaptureSocket::open(device, peers)
            .map_err(|source| CaptureError::of_device(device, source))?;
        let file = PcapWriter::create(path, LinkType::RAW, CAPTURED_LENGTH)
            .map_err(|source| CaptureError::of_written_file(path, source))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let thread = start_thread("capture", move || record_packets(socket, file, &flag))
            .map_err(|source| CaptureError::of_device(device, source))?;
        Ok(Self {
            path: path.to_owned(),
            is_over,
            thread: Some(thread),
        })
    }

    /// Ends the capture once all packets up to now are in the file.
    ///
    /// # Errors
    ///
    /// Fails if the file could not be written; it is then removed.
    pub fn finish(mut self) -> Result<RecordedCapture, CaptureError> {
        let ended = self
            .end_thread()
            .unwrap_or_else(|| Err(io::Error::other("the capture stopped")));
        let finished = ended.and_then(|(recorded, file)| {
            // A file without packets is dropped unfinished, and so removed.
            if recorded.packets > 0 {
                file.finish().map(|()| recorded)
            } else {
                Ok(recorded)
            }
        });
        finished.map_err(|source| CaptureError::of_written_file(&self.path, source))
    }

    fn end_thread(&mut self) -> Option<io::Result<(RecordedCapture, PcapWriter)>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for HeaderRecording {
    fn drop(&mut self) {
        // The file goes with its writer.
        let _ = self.end_thread();
    }
}

/// Writes packets until the flag is set, with those that passed until then, or the device goes
/// away.
fn record_packets(
    mut socket: CaptureSocket,
    mut file: PcapWriter,
    is_over: &AtomicBool,
) -> io::Result<(RecordedCapture, PcapWriter)> {
    let mut recorded = RecordedCapture::default();
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        let mut written = Ok(());
        let mut add = |frame: CapturedFrame<'_>| {
            if written.is_ok() {
                written = keep_frame(&mut file, &mut recorded, &frame);
            }
        };
        let read = if is_last {
            socket.drain_frames(&mut add)
        } else {
            socket.read(POLL_INTERVAL, &mut add).map(drop)
        };
        written?;
        // Once the device is down or away, the connections do not go on either.
        if is_last || read.is_err() {
            break;
        }
    }
    recorded.dropped = socket.drop_count().unwrap_or_default();
    Ok((recorded, file))
}

fn keep_frame(
    file: &mut PcapWriter,
    recorded: &mut RecordedCapture,
    frame: &CapturedFrame<'_>,
) -> io::Result<()> {
    // A smaller packet after one that was left out would make a gap that nothing shows.
    if recorded.left_out > 0 || file.written_bytes() + 16 + frame.bytes.len() as u64 > MAX_SIZE {
        recorded.left_out += 1;
        return Ok(());
    }
    recorded.packets += 1;
    file.write_packet(frame.at, frame.bytes, frame.original)
}
