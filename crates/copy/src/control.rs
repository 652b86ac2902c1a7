//! Messages over a stream of bytes, in both directions.

use fullpipe_sys::start_thread;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::protocol::{ALIVE, CopyMessage, MAX_FRAME};

use crate::options::CopyError;
use crate::pulse::{ALIVE_INTERVAL, SilenceWatch};
use crate::shared::SharedFlag;

/// Frames that wait to be written. Who adds one more waits.
const MAX_WAITING: usize = 256;

/// Bytes that are written at once, if they wait already.
const BATCH: usize = 256 << 10;

/// Reads frames.
pub(crate) struct FrameReader<R> {
    from: R,
    frame: Vec<u8>,
    pulse: Arc<SilenceWatch>,
}

impl<R: Read> FrameReader<R> {
    pub(crate) fn new(from: R, pulse: &Arc<SilenceWatch>) -> Self {
        Self {
            from,
            frame: Vec::new(),
            pulse: Arc::clone(pulse),
        }
    }

    /// Returns the next frame without its length, which is empty if the other end says only that it
    /// is there; `None` at the end.
    ///
    /// # Errors
    /// Fails if the stream breaks or ends within a frame, and with `InvalidData` if the frame is
    /// too long.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<&[u8]>> {
        Ok(self.read_frame()?.then_some(&self.frame))
    }

    /// Returns the next frame with a message.
    ///
    /// # Errors
    /// Fails if the other end has gone away.
    pub(crate) fn next_message(&mut self) -> Result<&[u8], CopyError> {
        while self.read_frame().is_ok_and(|is_there| is_there) {
            if !self.frame.is_empty() {
                return Ok(&self.frame);
            }
        }
        Err(CopyError::Gone)
    }

    /// Reads the next frame; returns false at the end.
    fn read_frame(&mut self) -> io::Result<bool> {
        let mut length = [0; 4];
        let first = loop {
            match self.pulse.while_reading(|| self.from.read(&mut length)) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if first == 0 {
            return Ok(false);
        }
        self.pulse
            .while_reading(|| self.from.read_exact(&mut length[first..]))?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message is too long",
            ));
        }
        self.frame.resize(length, 0);
        self.pulse
            .while_reading(|| self.from.read_exact(&mut self.frame))?;
        Ok(true)
    }
}

/// Sends messages, from any thread, in the order in which they are given.
#[derive(Clone)]
pub(crate) struct MessageSender {
    frames: SyncSender<Vec<u8>>,
    is_broken: Arc<SharedFlag>,
}

impl MessageSender {
    /// Starts the thread that writes: what is sent, and after a while without that, that this end
    /// is there. It ends when no sender is left, or when the stream breaks, which the one who reads
    /// the other direction notices.
    pub(crate) fn start_writer(
        to: impl Write + Send + 'static,
        pulse: &Arc<SilenceWatch>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (frames, receiver) = sync_channel(MAX_WAITING);
        let (pulse, is_broken) = (Arc::clone(pulse), Arc::<SharedFlag>::default());
        let breaks = Arc::clone(&is_broken);
        let writer = start_thread("copy-control", move || {
            if write_all(to, &receiver, &pulse).is_err() {
                breaks.raise_flag();
            }
        })?;
        Ok((Self { frames, is_broken }, writer))
    }

    /// Returns true once the stream has broken. Who has gone is known a few seconds later at the
    /// latest, if its host is there: this end says each second that it is there, too.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.is_raised()
    }

    pub(crate) fn send_message(&self, message: &CopyMessage<'_>) {
        self.send_frame(message.to_frame());
    }

    /// Closes the direction, behind the reason if the copy has failed for one that the other end
    /// does not know.
    pub(crate) fn close_after<T>(&self, done: &Result<T, CopyError>) {
        if let Err(error) = done
            && let Some(code) = error.code_for_peer()
        {
            let why = error.to_string();
            self.send_message(&CopyMessage::Refused { code, why });
        }
        self.close_direction();
    }

    /// Closes the direction behind what was sent before, though others may still try to send.
    pub(crate) fn close_direction(&self) {
        self.send_frame(Vec::new());
    }

    fn send_frame(&self, frame: Vec<u8>) {
        // No thread receives when the stream has broken.
        let _ = self.frames.send(frame);
    }
}

/// Data that takes the same way as the messages: whole frames only.
impl Write for MessageSender {
    fn write(&mut self, frame: &[u8]) -> io::Result<usize> {
        self.frames
            .send(frame.to_vec())
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(frame.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(
    mut to: impl Write,
    frames: &Receiver<Vec<u8>>,
    pulse: &SilenceWatch,
) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut is_closed = false;
    while !is_closed {
        match frames.recv_timeout(ALIVE_INTERVAL) {
            Ok(frame) if !frame.is_empty() => batch.extend(frame),
            Err(RecvTimeoutError::Timeout) => batch.extend(ALIVE),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
        }
        while batch.len() < BATCH
            && !is_closed
            && let Ok(frame) = frames.try_recv()
        {
            is_closed = frame.is_empty();
            batch.extend(frame);
        }
        pulse.while_writing(|| to.write_all(&batch).and_then(|()| to.flush()))?;
        batch.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn frames(bytes: &[u8]) -> FrameReader<&[u8]> {
        FrameReader::new(bytes, &SilenceWatch::new(Duration::from_secs(9)))
    }

    #[test]
    fn a_frame_that_is_too_long_or_ends_early_is_an_error() {
        let bytes = [2, 0, 0, 0, 7, 8, 0, 0, 0, 0, 1, 0, 0, 0, 9];
        let mut all = frames(&bytes);
        assert_eq!(all.next_frame().unwrap(), Some(&[7, 8][..]));
        assert_eq!(all.next_frame().unwrap(), Some(&[][..]));
        assert_eq!(all.next_frame().unwrap(), Some(&[9][..]));
        assert_eq!(all.next_frame().unwrap(), None);
        let mut messages = frames(&bytes[6..]);
        assert_eq!(messages.next_message().unwrap(), [9]);
        assert!(messages.next_message().is_err());
        let kind = |bytes: &[u8]| frames(bytes).next_frame().unwrap_err().kind();
        assert_eq!(kind(&[2, 0, 0, 0, 7]), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[2, 0]), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[0xff; 8]), io::ErrorKind::InvalidData);
    }

    #[test]
    fn an_end_with_nothing_to_say_says_that_it_is_there() {
        let (reader, writer) = io::pipe().unwrap();
        let pulse = SilenceWatch::new(Duration::from_secs(9));
        let (out, thread) = MessageSender::start_writer(writer, &pulse).unwrap();
        let mut alive = [0xff; 4];
        (&reader).read_exact(&mut alive).unwrap();
        assert_eq!(alive, ALIVE);
        out.send_message(&CopyMessage::Finished);
        out.close_direction();
        thread.join().unwrap();
        assert_eq!(
            FrameReader::new(reader, &pulse).next_message().unwrap(),
            &CopyMessage::Finished.to_frame()[4..]
        );
    }
}
