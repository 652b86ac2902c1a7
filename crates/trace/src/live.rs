//! A capture of what passes a network device now.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fullpipe_sys::{CAPTURED_LENGTH, CaptureSocket, CapturedFrame};
use fullpipe_wire::{LinkType, pcap_header, pcap_record};

use crate::CaptureError;
use crate::file::PacketFile;

/// Time after which a wait for packets asks whether it shall end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Opens a capture of the TCP segments that pass device `name` of the calling thread's network
/// namespace, or any of its devices for the name "any". It ends once `is_over` returns true. Its
/// notes have the number of packets that the kernel dropped.
///
/// # Errors
///
/// Fails without `CAP_NET_RAW` over the namespace, and if there is no such device. The capture ends
/// with an error once the device is down or away.
pub fn capture_live(
    name: &str,
    is_over: impl FnMut() -> bool + Send + 'static,
) -> Result<PacketFile, CaptureError> {
    let socket =
        CaptureSocket::open(name, &[]).map_err(|source| CaptureError::of_device(name, source))?;
    let drops = Arc::new(AtomicU64::new(0));
    let unread = pcap_header(LinkType::RAW, CAPTURED_LENGTH).to_vec();
    let live = LiveCapture {
        socket,
        drops: Arc::clone(&drops),
        is_over: Box::new(is_over),
        unread,
        read: 0,
        end: None,
    };
    Ok(PacketFile::new(live, name)?.with_drops(drops))
}

/// Packets as a file.
struct LiveCapture {
    socket: CaptureSocket,
    /// Packets that the kernel dropped, once the capture is over.
    drops: Arc<AtomicU64>,
    is_over: Box<dyn FnMut() -> bool + Send>,
    unread: Vec<u8>,
    /// Bytes of `unread` that were read.
    read: usize,
    end: Option<io::Result<()>>,
}

impl Read for LiveCapture {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.unread.len() {
            self.unread.clear();
            self.read = 0;
            match &mut self.end {
                Some(end) => return std::mem::replace(end, Ok(())).map(|()| 0),
                None => self.receive_packets(),
            }
        }
        let length = buffer.len().min(self.unread.len() - self.read);
        buffer[..length].copy_from_slice(&self.unread[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}

impl LiveCapture {
    /// Waits for packets, or for the end.
    fn receive_packets(&mut self) {
        let unread = &mut self.unread;
        let mut add = |frame: CapturedFrame| add_packet(unread, &frame);
        let end = match self.socket.read(POLL_INTERVAL, &mut add) {
            Ok(_) if !(self.is_over)() => return,
            Ok(_) => self.socket.drain_frames(&mut add),
            Err(error) => Err(error),
        };
        self.drops
            .store(self.socket.drop_count().unwrap_or_default(), Relaxed);
        self.end = Some(end.map_err(|error| match error.kind() {
            io::ErrorKind::NetworkDown => {
                io::Error::new(error.kind(), "the device is down or away")
            }
            _ => error,
        }));
    }
}

/// Adds a packet with its header of `pcap-savefile(5)`.
fn add_packet(bytes: &mut Vec<u8>, frame: &CapturedFrame) {
    bytes.extend(pcap_record(
        frame.at,
        frame.bytes.len() as u32,
        frame.original,
    ));
    bytes.extend(frame.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Time;

    #[test]
    fn packets_are_read_back_with_the_drops() {
        let mut bytes = pcap_header(LinkType::RAW, CAPTURED_LENGTH).to_vec();
        let at = Time::from_nanos(1_700_000_000_123_456_789);
        add_packet(
            &mut bytes,
            &CapturedFrame {
                at,
                bytes: &[0x45, 1, 2],
                original: 60,
            },
        );
        let drops = Arc::new(AtomicU64::new(0));
        let mut file = PacketFile::new(io::Cursor::new(bytes), "eth7")
            .unwrap()
            .with_drops(Arc::clone(&drops));
        let read = file.next_packet().unwrap().unwrap();
        assert_eq!(
            (read.at, read.bytes, read.original),
            (at, &[0x45, 1, 2][..], 60)
        );
        assert_eq!(read.link, LinkType::RAW);
        drops.store(12, Relaxed);
        assert!(file.next_packet().unwrap().is_none());
        let notes = file.file_notes();
        assert_eq!((notes.drops, notes.cut_end), (Some(12), false));
    }
}
