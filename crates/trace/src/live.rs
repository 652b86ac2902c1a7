//! A capture of what passes a network device now.

use std::io::{self, Read};
use std::time::Duration;

use fullpipe_sys::{CAPTURED_LENGTH, CaptureSocket, CapturedFrame};
use fullpipe_units::Time;
use fullpipe_wire::LinkType;

use crate::CaptureError;
use crate::file::PacketFile;

/// Time after which a wait for packets asks whether it shall end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Opens a capture of the TCP segments that pass device `name` of the calling thread's network namespace, or any of its
/// devices for the name "any". It ends once `is_over` returns true. Its notes have the number of packets that the
/// kernel dropped.
///
/// # Errors
///
/// Fails without `CAP_NET_RAW` over the namespace, and if there is no such device. The capture ends with an error once
/// the device is down or away.
pub fn capture_live(name: &str, is_over: impl FnMut() -> bool + Send + 'static) -> Result<PacketFile, CaptureError> {
    let fail = |source| CaptureError::Capture { device: name.to_owned(), source };
    let socket = CaptureSocket::open(name, &[]).map_err(fail)?;
    let live = Live { socket, is_over: Box::new(is_over), unread: begin(), read: 0, end: None };
    PacketFile::new(live, name)
}

/// Packets as a file of pcapng, which has a place for drops.
struct Live {
    socket: CaptureSocket,
    is_over: Box<dyn FnMut() -> bool + Send>,
    unread: Vec<u8>,
    /// Bytes of `unread` that were read.
    read: usize,
    end: Option<io::Result<()>>,
}

impl Read for Live {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.unread.len() {
            self.unread.clear();
            self.read = 0;
            match &mut self.end {
                Some(end) => return std::mem::replace(end, Ok(())).map(|()| 0),
                None => self.receive(),
            }
        }
        let length = buffer.len().min(self.unread.len() - self.read);
        buffer[..length].copy_from_slice(&self.unread[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}

impl Live {
    /// Waits for packets, or for the end, which the number of drops is before.
    fn receive(&mut self) {
        let unread = &mut self.unread;
        let mut add = |frame: CapturedFrame| packet(unread, &frame);
        let end = match self.socket.read(POLL_INTERVAL, &mut add) {
            Ok(_) if !(self.is_over)() => return,
            Ok(_) => self.socket.drain(&mut add),
            Err(error) => Err(error),
        };
        let down = |error: io::Error| match error.kind() {
            io::ErrorKind::NetworkDown => io::Error::new(error.kind(), "the device is down or away"),
            _ => error,
        };
        statistics(&mut self.unread, self.socket.drops().unwrap_or_default());
        self.end = Some(end.map_err(down));
    }
}

/// Returns the headers of a file with one interface, whose times are in nanoseconds.
fn begin() -> Vec<u8> {
    const SECTION: u32 = 0x0A0D_0D0A;
    const BYTE_ORDER: u32 = 0x1A2B_3C4D;
    const VERSION: u32 = 1;
    const INTERFACE: u32 = 1;
    const RESOLUTION: u16 = 9;
    const NANOSECONDS: u8 = 9;
    let mut bytes = Vec::new();
    block(&mut bytes, SECTION, &[BYTE_ORDER, VERSION, u32::MAX, u32::MAX], &[]);
    let options = [option(RESOLUTION, &[NANOSECONDS]), option(0, &[])].concat();
    block(&mut bytes, INTERFACE, &[u32::from(LinkType::RAW.0), CAPTURED_LENGTH], &options);
    bytes
}

fn packet(bytes: &mut Vec<u8>, frame: &CapturedFrame) {
    const PACKET: u32 = 6;
    let [high, low] = halves(frame.at);
    block(bytes, PACKET, &[0, high, low, frame.bytes.len() as u32, frame.original], frame.bytes);
}

/// Adds the number of packets that the kernel had no room for.
fn statistics(bytes: &mut Vec<u8>, drops: u64) {
    const STATISTICS: u32 = 5;
    const DROPS: u16 = 5;
    let options = [option(DROPS, &drops.to_ne_bytes()), option(0, &[])].concat();
    block(bytes, STATISTICS, &[0, 0, 0], &options);
}

fn halves(at: Time) -> [u32; 2] {
    [(at.as_nanos() >> 32) as u32, at.as_nanos() as u32]
}

fn block(bytes: &mut Vec<u8>, kind: u32, head: &[u32], body: &[u8]) {
    let padded = body.len().next_multiple_of(4);
    let length = (12 + head.len() * 4 + padded) as u32;
    for word in [kind, length].iter().chain(head) {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(body);
    bytes.resize(bytes.len() + padded - body.len(), 0);
    bytes.extend(length.to_ne_bytes());
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [code.to_ne_bytes(), (value.len() as u16).to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_back_with_the_drops() {
        let mut bytes = begin();
        let frame =
            CapturedFrame { at: Time::from_nanos(1_700_000_000_123_456_789), bytes: &[0x45, 1, 2], original: 60 };
        packet(&mut bytes, &frame);
        statistics(&mut bytes, 12);
        let mut file = PacketFile::new(io::Cursor::new(bytes), "eth7").unwrap();
        let read = file.next_packet().unwrap().unwrap();
        assert_eq!((read.at, read.bytes, read.original), (frame.at, frame.bytes, 60));
        assert_eq!(read.link, LinkType::RAW);
        assert!(file.next_packet().unwrap().is_none());
        let notes = file.notes();
        assert_eq!((notes.drops, notes.cut_end), (Some(12), false));
    }
}
