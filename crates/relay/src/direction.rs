//! One direction of a relayed connection: bytes read from one side, held if need be, and written to the other.

use std::io;

use fullpipe_control::{MAX_RECORD, RecordError};
use rustix::pipe::{SpliceFlags, splice};

use crate::blocks::{BLOCK_BYTES, BlockError, BlockReader, Codec};
use crate::leg::{COPY_BYTES, Got, Leg};
use crate::message::{Status, StatusError};
use crate::packer::Packer;
use crate::pipes::{PIPE_BYTES, Pipe, Pipes};

/// Bytes of TLS that are opened at once: the begin of a record that is held, and at least one whole record.
const RECORD_BYTES: usize = 2 * MAX_RECORD;

/// Payload of a block, at most, where there are very many connections: less hardly shrinks.
const MIN_BLOCK_BYTES: usize = 16 << 10;

/// Memory of a worker for blocks of which a part was written, or has arrived, as long as that leaves each connection
/// enough.
const MAX_IN_BLOCKS: usize = 32 << 20;

/// Reads of one direction before the next connection has its turn.
const TURNS: usize = 4;

/// Pipes and memory that the connections of a worker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pipes: Pipes,
    /// Bytes that have just been read.
    scratch: Box<[u8]>,
    /// Records that are about to be written.
    sealed: Vec<u8>,
    /// Made for the first connection that compresses.
    codec: Option<Box<Codec>>,
    /// Payload of a block, at most.
    block_bytes: usize,
}

/// The blocks of a direction between relays that compress.
#[derive(Debug, Default)]
pub(crate) enum Blocks {
    /// There are none.
    #[default]
    None,
    /// The direction leads to the other relay, so blocks are made.
    Made(Packer),
    /// The direction comes from the other relay, so blocks are read.
    Read(BlockReader),
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Payload that was read.
    pub(crate) read: u64,
    pipe: Option<(Pipe, usize)>,
    /// Bytes that were read, and sealed if they go into TLS, and not yet written.
    rest: Vec<u8>,
    /// The source has closed.
    has_ended: bool,
    /// The last read was a large one, so the next goes through a pipe.
    is_bulk: bool,
    /// The next byte is the status of the far relay.
    expects_status: bool,
    blocks: Blocks,
}

/// The result of the turn of a direction.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The direction waits for an event.
    Waits,
    /// The direction could go on, but others have their turn.
    Again,
    /// Everything was passed on, and the source has closed.
    Ended,
    /// The source failed.
    SourceFailed,
    /// The source sent bytes that are none of TLS, no status, or no blocks.
    Malformed,
    /// The destination failed.
    DestinationFailed(io::Error),
    /// The far relay did not connect to the target.
    Refused(Status),
}

/// An error of one of the two sides.
enum Failed {
    Source(io::Error),
    Destination(io::Error),
    Refused(Status),
}

impl Direction {
    /// Returns a direction that begins with a status of the far relay if it `expects_status`.
    pub(crate) fn new(expects_status: bool, blocks: Blocks) -> Self {
        Self { expects_status, blocks, ..Self::default() }
    }

    /// Returns the payload, at most, that was read and of which the destination has not acknowledged the last
    /// `unacknowledged` bytes.
    pub(crate) fn undelivered(&self, unacknowledged: u64) -> u64 {
        let held = (self.rest.len() + self.pipe.as_ref().map_or(0, |(_, bytes)| *bytes)) as u64;
        match &self.blocks {
            // TLS adds to it, and there is no more than was read.
            Blocks::None => (held + unacknowledged).min(self.read),
            Blocks::Made(packer) => packer.payload_in(held + unacknowledged).min(self.read),
            Blocks::Read(reader) => held + unacknowledged + reader.held_payload(),
        }
    }

    /// Returns true if the far relay has not said that it is connected.
    pub(crate) const fn expects_status(&self) -> bool {
        self.expects_status
    }

    /// Returns true if bytes wait here until the destination takes them.
    pub(crate) const fn is_held_up(&self) -> bool {
        self.pipe.is_some() || !self.rest.is_empty()
    }

    /// Returns the bytes of blocks between the relays; `None` if they do not compress.
    pub(crate) fn block_bytes(&self) -> Option<u64> {
        match &self.blocks {
            Blocks::None => None,
            Blocks::Made(packer) => Some(packer.wire),
            Blocks::Read(reader) => Some(reader.wire),
        }
    }

    /// Gives the pipe back.
    pub(crate) fn release(&mut self, shared: &mut Shared) {
        if let Some((pipe, _)) = self.pipe.take() {
            shared.pipes.discard(pipe);
        }
    }

    /// Moves bytes from `from` to `to` until one of them has to be waited for.
    pub(crate) fn turn(&mut self, from: &mut Leg, to: &mut Leg, shared: &mut Shared) -> Turn {
        match self.advance(from, to, shared) {
            Ok(turn) => turn,
            Err(Failed::Source(error)) => {
                tracing::debug!(%error, "a side failed");
                if error.kind() == io::ErrorKind::InvalidData { Turn::Malformed } else { Turn::SourceFailed }
            }
            Err(Failed::Destination(error)) => Turn::DestinationFailed(error),
            Err(Failed::Refused(status)) => Turn::Refused(status),
        }
    }

    fn advance(&mut self, from: &mut Leg, to: &mut Leg, shared: &mut Shared) -> Result<Turn, Failed> {
        for _ in 0..TURNS {
            if !self.flush(to, shared).map_err(Failed::Destination)? {
                return Ok(Turn::Waits);
            }
            if self.has_ended {
                return Ok(Turn::Ended);
            }
            if self.read_block(to, shared)? {
                continue;
            }
            if from.tls_has_ended() {
                self.end(to)?;
                continue;
            }
            if !from.readable {
                return Ok(Turn::Waits);
            }
            match self.fill(from, to, shared)? {
                Got::Bytes(_) => {}
                Got::Nothing => return Ok(Turn::Waits),
                Got::End => self.end(to)?,
            }
        }
        Ok(Turn::Again)
    }

    fn end(&mut self, to: &mut Leg) -> Result<(), Failed> {
        if let Blocks::Read(reader) = &self.blocks
            && !reader.is_empty()
        {
            return Err(Failed::Source(io::ErrorKind::UnexpectedEof.into()));
        }
        self.has_ended = true;
        if let Some(tls) = &mut to.tls {
            let mut end = Vec::new();
            tls.seal_end(&mut end).map_err(unsealed)?;
            self.write_or_rest(&end, to)?;
        }
        Ok(())
    }

    /// Writes what is held. Returns whether nothing is left.
    fn flush(&mut self, to: &mut Leg, shared: &mut Shared) -> io::Result<bool> {
        Ok(self.flush_pipe(to, shared)? && self.flush_rest(to)?)
    }

    fn flush_pipe(&mut self, to: &mut Leg, shared: &mut Shared) -> io::Result<bool> {
        let Some((pipe, bytes)) = &mut self.pipe else { return Ok(true) };
        while *bytes > 0 {
            if !to.writable {
                return Ok(false);
            }
            let moved = splice(&pipe.read, None, &to.socket, None, *bytes, SpliceFlags::NONBLOCK | SpliceFlags::MOVE);
            *bytes -= to.wrote(moved.map_err(io::Error::from))?;
        }
        if let Some((pipe, _)) = self.pipe.take() {
            shared.pipes.put(pipe);
        }
        Ok(true)
    }

    fn flush_rest(&mut self, to: &mut Leg) -> io::Result<bool> {
        while !self.rest.is_empty() {
            if !to.writable {
                return Ok(false);
            }
            let written = to.write(&self.rest)?;
            self.rest.drain(..written);
        }
        // An idle connection holds no memory for this.
        self.rest = Vec::new();
        Ok(true)
    }

    /// Reads one block of the other relay, and writes its payload. Returns false if none is complete.
    fn read_block(&mut self, to: &mut Leg, shared: &mut Shared) -> Result<bool, Failed> {
        let Blocks::Read(reader) = &mut self.blocks else { return Ok(false) };
        if reader.is_empty() {
            return Ok(false);
        }
        let codec = made(&mut shared.codec).map_err(Failed::Source)?;
        let invalid = |error: BlockError| Failed::Source(io::Error::new(io::ErrorKind::InvalidData, error));
        let Some(payload) = reader.next(codec).map_err(invalid)? else { return Ok(false) };
        self.read += payload.len() as u64;
        self.write_or_rest(payload, to)?;
        Ok(true)
    }

    /// Reads payload, and writes one block to the other relay.
    fn write_block(&mut self, from: &mut Leg, to: &mut Leg, shared: &mut Shared) -> Result<Got, Failed> {
        let Blocks::Made(packer) = &mut self.blocks else { return Ok(Got::Nothing) };
        let codec = made(&mut shared.codec).map_err(Failed::Source)?;
        let got = from.read(&mut codec.input[..shared.block_bytes]).map_err(Failed::Source)?;
        let Got::Bytes(count) = got else { return Ok(got) };
        self.read += count as u64;
        let length = packer.pack(codec, count, || to.info().delivery_rate);
        self.write_or_keep(codec.block(length), to, &mut shared.sealed)?;
        Ok(got)
    }

    fn fill(&mut self, from: &mut Leg, to: &mut Leg, shared: &mut Shared) -> Result<Got, Failed> {
        if matches!(self.blocks, Blocks::Made(_)) {
            return self.write_block(from, to, shared);
        }
        if self.is_bulk
            && !from.has_urgent()
            && from.tls.is_none()
            && to.tls.is_none()
            && matches!(self.blocks, Blocks::None)
            && let Some(pipe) = shared.pipes.take()
        {
            match self.fill_pipe(pipe, from, shared)? {
                // Before urgent data it is none: only a read knows.
                Got::End => {}
                got => return Ok(got),
            }
        }
        self.copy(from, to, shared)
    }

    fn note_status(&mut self, byte: u8) -> Result<(), Failed> {
        let invalid = |error: StatusError| Failed::Source(io::Error::new(io::ErrorKind::InvalidData, error));
        match Status::from_byte(byte).map_err(invalid)? {
            Status::Connected => {
                self.expects_status = false;
                Ok(())
            }
            status => Err(Failed::Refused(status)),
        }
    }

    fn fill_pipe(&mut self, pipe: Pipe, from: &mut Leg, shared: &mut Shared) -> Result<Got, Failed> {
        let moved =
            splice(&from.socket, None, &pipe.write, None, PIPE_BYTES, SpliceFlags::NONBLOCK | SpliceFlags::MOVE);
        // A pipe is full before its bytes are, if segments are small: only nothing means that nothing is there.
        let got = from.got(moved.map_err(io::Error::from), moved.unwrap_or(0)).map_err(Failed::Source);
        match got {
            Ok(Got::Bytes(count)) => {
                self.read += count as u64;
                self.is_bulk = count >= COPY_BYTES;
                self.pipe = Some((pipe, count));
            }
            _ => shared.pipes.put(pipe),
        }
        got
    }

    fn copy(&mut self, from: &mut Leg, to: &mut Leg, shared: &mut Shared) -> Result<Got, Failed> {
        let got = from.read_payload(&mut shared.scratch).map_err(Failed::Source)?;
        let Got::Bytes(count) = got else { return Ok(got) };
        self.is_bulk = count == COPY_BYTES;
        let mut bytes = &shared.scratch[..count];
        if self.expects_status
            && let Some((status, rest)) = bytes.split_first()
        {
            self.note_status(*status)?;
            bytes = rest;
        }
        if let Blocks::Read(reader) = &mut self.blocks {
            reader.push(bytes);
            return Ok(got);
        }
        self.read += bytes.len() as u64;
        self.write_or_keep(bytes, to, &mut shared.sealed)?;
        Ok(got)
    }

    /// Writes payload, in records if there is TLS, and keeps what the destination does not take now.
    fn write_or_keep(&mut self, payload: &[u8], to: &mut Leg, sealed: &mut Vec<u8>) -> Result<(), Failed> {
        let Some(tls) = &mut to.tls else { return self.write_or_rest(payload, to) };
        sealed.clear();
        tls.seal(payload, sealed).map_err(unsealed)?;
        self.write_or_rest(sealed, to)
    }

    fn write_or_rest(&mut self, bytes: &[u8], to: &mut Leg) -> Result<(), Failed> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = to.write(bytes).map_err(Failed::Destination)?;
        self.rest = bytes[written..].to_vec();
        Ok(())
    }
}

fn unsealed(error: RecordError) -> Failed {
    Failed::Destination(io::Error::other(error))
}

impl Shared {
    pub(crate) fn new(pipes: Pipes) -> Self {
        let scratch = vec![0; RECORD_BYTES].into();
        Self { pipes, scratch, sealed: Vec::new(), codec: None, block_bytes: BLOCK_BYTES }
    }

    /// Divides the memory for blocks that are on their way among so many connections.
    pub(crate) fn share_among(&mut self, connections: usize) {
        self.block_bytes = (MAX_IN_BLOCKS / connections.max(1)).clamp(MIN_BLOCK_BYTES, BLOCK_BYTES);
    }
}

fn made(codec: &mut Option<Box<Codec>>) -> io::Result<&mut Codec> {
    match codec {
        Some(codec) => Ok(codec),
        none => Ok(none.insert(Box::new(Codec::new()?))),
    }
}
