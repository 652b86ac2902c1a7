//! Messages over a stream of bytes, in both directions.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use fullpipe_transfer::{MAX_FRAME, Message};

/// Frames that wait to be written. Who adds one more waits.
const MAX_WAITING: usize = 256;

/// Bytes that are written at once, if they wait already.
const BATCH: usize = 256 << 10;

/// Reads frames.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    from: R,
    frame: Vec<u8>,
}

impl<R: Read> Frames<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, frame: Vec::new() }
    }

    /// Returns the next frame without its length; `None` at the end.
    ///
    /// # Errors
    /// Fails if the stream breaks or ends within a frame, and with `InvalidData` if the frame is too long.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut length = [0; 4];
        let first = loop {
            match self.from.read(&mut length) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if first == 0 {
            return Ok(None);
        }
        self.from.read_exact(&mut length[first..])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        self.frame.resize(length, 0);
        self.from.read_exact(&mut self.frame)?;
        Ok(Some(&self.frame))
    }
}

/// Sends messages, from any thread, in the order in which they are given.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing(SyncSender<Vec<u8>>);

impl Outgoing {
    /// Starts the thread that writes. It ends when nobody is left who sends, or when the stream breaks, which the one
    /// who reads the other direction notices.
    pub(crate) fn start(to: impl Write + Send + 'static) -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let thread = thread::Builder::new().name("copy-control".to_owned());
        let writer = thread.spawn(move || {
            let _ = write_all(to, &receiver);
        })?;
        Ok((Self(sender), writer))
    }

    pub(crate) fn send(&self, message: &Message<'_>) {
        self.send_frame(message.frame());
    }

    /// Closes the direction behind what was sent before, though others may still try to send.
    pub(crate) fn close(&self) {
        self.send_frame(Vec::new());
    }

    fn send_frame(&self, frame: Vec<u8>) {
        // Nobody receives when the stream has broken.
        let _ = self.0.send(frame);
    }
}

/// Data that takes the same way as the messages: whole frames only.
impl Write for Outgoing {
    fn write(&mut self, frame: &[u8]) -> io::Result<usize> {
        self.0.send(frame.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(frame.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(mut to: impl Write, frames: &Receiver<Vec<u8>>) -> io::Result<()> {
    let mut batch = Vec::new();
    while let Ok(frame) = frames.recv()
        && !frame.is_empty()
    {
        batch.extend(frame);
        while batch.len() < BATCH
            && let Ok(frame) = frames.try_recv()
        {
            if frame.is_empty() {
                to.write_all(&batch)?;
                return to.flush();
            }
            batch.extend(frame);
        }
        to.write_all(&batch)?;
        to.flush()?;
        batch.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_too_long_or_ends_early_is_an_error() {
        let mut frames = Frames::new(&[2, 0, 0, 0, 7, 8, 0, 0, 0, 0][..]);
        assert_eq!(frames.next().unwrap(), Some(&[7, 8][..]));
        assert_eq!(frames.next().unwrap(), Some(&[][..]));
        assert_eq!(frames.next().unwrap(), None);
        let kind = |bytes: &[u8]| Frames::new(bytes).next().unwrap_err().kind();
        assert_eq!(kind(&[2, 0, 0, 0, 7]), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[2, 0]), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[0xff; 8]), io::ErrorKind::InvalidData);
    }
}
