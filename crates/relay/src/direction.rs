//! One direction of a relayed connection: bytes read from one side, held if need be, and written to
//! the other.

use std::io;

use fullpipe_control::{MAX_RECORD, RecordError};
use rustix::pipe::{SpliceFlags, splice};

use crate::blocks::{BLOCK_BYTES, BlockCodec, BlockReader};
use crate::leg::{COPY_BYTES, ReadResult, RelaySocket};
use crate::message::TargetStatus;
use crate::packer::BlockPacker;
use crate::pipes::{PIPE_BYTES, PipePool, SplicePipe};

/// Bytes of TLS that are opened at once: the begin of a record that is held, and at least one whole
/// record.
const RECORD_BYTES: usize = 2 * MAX_RECORD;

/// Payload of a block, at most, where there are very many connections: less hardly shrinks.
const MIN_BLOCK_BYTES: usize = 16 << 10;

/// Memory of a worker for blocks of which a part was written, or has arrived, as long as that
/// leaves each connection enough.
const MAX_IN_BLOCKS: usize = 32 << 20;

/// Reads of one direction before the next connection has its turn.
const TURNS: usize = 4;

/// Pipes and memory that the connections of a worker share.
pub(crate) struct WorkerBuffers {
    pub pipes: PipePool,
    /// Bytes that have just been read.
    scratch: Box<[u8]>,
    /// Records that are about to be written.
    sealed: Vec<u8>,
    /// Made for the first connection that compresses.
    codec: Option<Box<BlockCodec>>,
    /// Payload of a block, at most.
    block_bytes: usize,
}

/// The blocks of a direction between relays that compress.
#[derive(Default)]
pub(crate) enum DirectionBlocks {
    /// There are none.
    #[default]
    None,
    /// The direction leads to the other relay, so blocks are made.
    Made(BlockPacker),
    /// The direction comes from the other relay, so blocks are read.
    Read(BlockReader),
}

/// One direction.
#[derive(Default)]
pub(crate) struct RelayDirection {
    /// Payload that was read.
    pub read: u64,
    pipe: Option<(SplicePipe, usize)>,
    /// Bytes that were read, and sealed if they go into TLS, and not yet written.
    rest: Vec<u8>,
    /// The source has closed.
    has_ended: bool,
    /// The last read was a large one, so the next goes through a pipe.
    is_bulk: bool,
    /// The next byte is the status of the far relay.
    pub expects_status: bool,
    blocks: DirectionBlocks,
}

/// The result of the turn of a direction.
pub(crate) enum MoveResult {
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
    Refused(TargetStatus),
}

/// An error of one of the two sides.
enum SideError {
    Source(io::Error),
    Destination(io::Error),
    Refused(TargetStatus),
}

impl RelayDirection {
    /// Returns a direction that begins with a status of the far relay if it `expects_status`.
    pub(crate) fn new(expects_status: bool, blocks: DirectionBlocks) -> Self {
        Self {
            expects_status,
            blocks,
            ..Self::default()
        }
    }

    /// Returns the payload, at most, that was read and of which the destination has not
    /// acknowledged the last `unacknowledged` bytes.
    pub(crate) fn undelivered_bytes(&self, unacknowledged: u64) -> u64 {
        let held = (self.rest.len() + self.pipe.as_ref().map_or(0, |(_, bytes)| *bytes)) as u64;
        match &self.blocks {
            // TLS adds to it, and there is no more than was read.
            DirectionBlocks::None => (held + unacknowledged).min(self.read),
            DirectionBlocks::Made(packer) => {
                packer.payload_in(held + unacknowledged).min(self.read)
            }
            DirectionBlocks::Read(reader) => held + unacknowledged + reader.held_payload(),
        }
    }

    /// Returns true if bytes wait here until the destination takes them.
    pub(crate) const fn is_held_up(&self) -> bool {
        self.pipe.is_some() || !self.rest.is_empty()
    }

    /// Returns the bytes of blocks between the relays; `None` if they do not compress.
    pub(crate) fn block_bytes(&self) -> Option<u64> {
        match &self.blocks {
            DirectionBlocks::None => None,
            DirectionBlocks::Made(packer) => Some(packer.wire),
            DirectionBlocks::Read(reader) => Some(reader.wire),
        }
    }

    /// Gives the pipe back.
    pub(crate) fn release_pipe(&mut self, shared: &mut WorkerBuffers) {
        if let Some((pipe, _)) = self.pipe.take() {
            shared.pipes.discard_pipe(pipe);
        }
    }

    /// Moves bytes from `from` to `to` until one of them has to be waited for.
    pub(crate) fn move_bytes(
        &mut self,
        from: &mut RelaySocket,
        to: &mut RelaySocket,
        shared: &mut WorkerBuffers,
    ) -> MoveResult {
        match self.try_move(from, to, shared) {
            Ok(turn) => turn,
            Err(SideError::Source(error)) => {
                tracing::debug!(%error, "a side failed");
                if error.kind() == io::ErrorKind::InvalidData {
                    MoveResult::Malformed
                } else {
                    MoveResult::SourceFailed
                }
            }
            Err(SideError::Destination(error)) => MoveResult::DestinationFailed(error),
            Err(SideError::Refused(status)) => MoveResult::Refused(status),
        }
    }

    fn try_move(
        &mut self,
        from: &mut RelaySocket,
        to: &mut RelaySocket,
        shared: &mut WorkerBuffers,
    ) -> Result<MoveResult, SideError> {
        for _ in 0..TURNS {
            if !self
                .flush_held(to, shared)
                .map_err(SideError::Destination)?
            {
                return Ok(MoveResult::Waits);
            }
            if self.has_ended {
                return Ok(MoveResult::Ended);
            }
            if self.read_block(to, shared)? {
                continue;
            }
            if from.tls_has_ended() {
                self.end_direction(to)?;
                continue;
            }
            if !from.readable {
                return Ok(MoveResult::Waits);
            }
            match self.read_and_forward(from, to, shared)? {
                ReadResult::Bytes(_) => {}
                ReadResult::Nothing => return Ok(MoveResult::Waits),
                ReadResult::End => self.end_direction(to)?,
            }
        }
        Ok(MoveResult::Again)
    }

    fn end_direction(&mut self, to: &mut RelaySocket) -> Result<(), SideError> {
        if let DirectionBlocks::Read(reader) = &self.blocks
            && !reader.is_empty()
        {
            return Err(SideError::Source(io::ErrorKind::UnexpectedEof.into()));
        }
        self.has_ended = true;
        if let Some(tls) = &mut to.tls {
            let mut end = Vec::new();
            tls.seal_end(&mut end).map_err(seal_error)?;
            self.write_or_rest(&end, to)?;
        }
        Ok(())
    }

    /// Writes what is held. Returns whether nothing is left.
    fn flush_held(&mut self, to: &mut RelaySocket, shared: &mut WorkerBuffers) -> io::Result<bool> {
        Ok(self.flush_pipe(to, shared)? && self.flush_rest(to)?)
    }

    fn flush_pipe(&mut self, to: &mut RelaySocket, shared: &mut WorkerBuffers) -> io::Result<bool> {
        let Some((pipe, bytes)) = &mut self.pipe else {
            return Ok(true);
        };
        while *bytes > 0 {
            if !to.writable {
                return Ok(false);
            }
            let moved = splice(
                &pipe.read,
                None,
                &to.socket,
                None,
                *bytes,
                SpliceFlags::NONBLOCK | SpliceFlags::MOVE,
            );
            *bytes -= to.record_write(moved.map_err(io::Error::from))?;
        }
        if let Some((pipe, _)) = self.pipe.take() {
            shared.pipes.put_back(pipe);
        }
        Ok(true)
    }

    fn flush_rest(&mut self, to: &mut RelaySocket) -> io::Result<bool> {
        while !self.rest.is_empty() {
            if !to.writable {
                return Ok(false);
            }
            let written = to.write_socket(&self.rest)?;
            self.rest.drain(..written);
        }
        // An idle connection holds no memory for this.
        self.rest = Vec::new();
        Ok(true)
    }

    /// Reads one block of the other relay, and writes its payload. Returns false if none is
    /// complete.
    fn read_block(
        &mut self,
        to: &mut RelaySocket,
        shared: &mut WorkerBuffers,
    ) -> Result<bool, SideError> {
        let DirectionBlocks::Read(reader) = &mut self.blocks else {
            return Ok(false);
        };
        if reader.is_empty() {
            return Ok(false);
        }
        let codec = codec_or_new(&mut shared.codec).map_err(SideError::Source)?;
        let Some(payload) = reader.next_payload(codec).map_err(invalid_source)? else {
            return Ok(false);
        };
        self.read += payload.len() as u64;
        self.write_or_rest(payload, to)?;
        Ok(true)
    }

    /// Reads payload, and writes one block to the other relay.
    fn write_block(
        &mut self,
        from: &mut RelaySocket,
        to: &mut RelaySocket,
        shared: &mut WorkerBuffers,
    ) -> Result<ReadResult, SideError> {
        let DirectionBlocks::Made(packer) = &mut self.blocks else {
            return Ok(ReadResult::Nothing);
        };
        let codec = codec_or_new(&mut shared.codec).map_err(SideError::Source)?;
        let got = from
            .read_socket(&mut codec.input[..shared.block_bytes])
            .map_err(SideError::Source)?;
        let ReadResult::Bytes(count) = got else {
            return Ok(got);
        };
        self.read += count as u64;
        let length = packer.pack_block(codec, count, || to.socket_info().delivery_rate);
        self.write_or_keep(codec.block_bytes(length), to, &mut shared.sealed)?;
        Ok(got)
    }

    fn read_and_forward(
        &mut self,
        from: &mut RelaySocket,
        to: &mut RelaySocket,
        shared: &mut WorkerBuffers,
    ) -> Result<ReadResult, SideError> {
        if matches!(self.blocks, DirectionBlocks::Made(_)) {
            return self.write_block(from, to, shared);
        }
        if self.is_bulk
            && !from.has_urgent()
            && from.tls.is_none()
            && to.tls.is_none()
            && matches!(self.blocks, DirectionBlocks::None)
            && let Some(pipe) = shared.pipes.take_pipe()
        {
            match self.fill_pipe(pipe, from, shared)? {
                // Before urgent data it is none: only a read knows.
                ReadResult::End => {}
                got => return Ok(got),
            }
        }
        self.copy_through_memory(from, to, shared)
    }

    fn note_status(&mut self, byte: u8) -> Result<(), SideError> {
        match TargetStatus::from_byte(byte).map_err(invalid_source)? {
            TargetStatus::Connected => {
                self.expects_status = false;
                Ok(())
            }
            status => Err(SideError::Refused(status)),
        }
    }

    fn fill_pipe(
        &mut self,
        pipe: SplicePipe,
        from: &mut RelaySocket,
        shared: &mut WorkerBuffers,
    ) -> Result<ReadResult, SideError> {
        let moved = splice(
            &from.socket,
            None,
            &pipe.write,
            None,
            PIPE_BYTES,
            SpliceFlags::NONBLOCK | SpliceFlags::MOVE,
        );
        // A pipe is full before its bytes are, if segments are small: only nothing means that
        // nothing is there.
        let got = from
            .record_read(moved.map_err(io::Error::from), moved.unwrap_or(0))
            .map_err(SideError::Source);
        match got {
            Ok(ReadResult::Bytes(count)) => {
                self.read += count as u64;
                self.is_bulk = count >= COPY_BYTES;
                self.pipe = Some((pipe, count));
            }
            _ => shared.pipes.put_back(pipe),
        }
        got
    }

    fn copy_through_memory(
        &mut self,
        from: &mut RelaySocket,
        to: &mut RelaySocket,
        shared: &mut WorkerBuffers,
    ) -> Result<ReadResult, SideError> {
        let got = from
            .read_payload(&mut shared.scratch)
            .map_err(SideError::Source)?;
        let ReadResult::Bytes(count) = got else {
            return Ok(got);
        };
        self.is_bulk = count == COPY_BYTES;
        let mut bytes = &shared.scratch[..count];
        if self.expects_status
            && let Some((status, rest)) = bytes.split_first()
        {
            self.note_status(*status)?;
            bytes = rest;
        }
        if let DirectionBlocks::Read(reader) = &mut self.blocks {
            reader.push_bytes(bytes);
            return Ok(got);
        }
        self.read += bytes.len() as u64;
        self.write_or_keep(bytes, to, &mut shared.sealed)?;
        Ok(got)
    }

    /// Writes payload, in records if there is TLS, and keeps what the destination does not take
    /// now.
    fn write_or_keep(
        &mut self,
        payload: &[u8],
        to: &mut RelaySocket,
        sealed: &mut Vec<u8>,
    ) -> Result<(), SideError> {
        let Some(tls) = &mut to.tls else {
            return self.write_or_rest(payload, to);
        };
        sealed.clear();
        tls.seal_payload(payload, sealed).map_err(seal_error)?;
        self.write_or_rest(sealed, to)
    }

    fn write_or_rest(&mut self, bytes: &[u8], to: &mut RelaySocket) -> Result<(), SideError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = to.write_socket(bytes).map_err(SideError::Destination)?;
        self.rest = bytes[written..].to_vec();
        Ok(())
    }
}

/// Returns the error of a side that sent what breaks the rules.
fn invalid_source(error: impl std::error::Error + Send + Sync + 'static) -> SideError {
    SideError::Source(io::Error::new(io::ErrorKind::InvalidData, error))
}

fn seal_error(error: RecordError) -> SideError {
    SideError::Destination(io::Error::other(error))
}

impl WorkerBuffers {
    pub(crate) fn new(pipes: PipePool) -> Self {
        let scratch = vec![0; RECORD_BYTES].into();
        Self {
            pipes,
            scratch,
            sealed: Vec::new(),
            codec: None,
            block_bytes: BLOCK_BYTES,
        }
    }

    /// Divides the memory for blocks that are on their way among so many connections.
    pub(crate) fn share_among(&mut self, connections: usize) {
        self.block_bytes = (MAX_IN_BLOCKS / connections.max(1)).clamp(MIN_BLOCK_BYTES, BLOCK_BYTES);
    }
}

fn codec_or_new(codec: &mut Option<Box<BlockCodec>>) -> io::Result<&mut BlockCodec> {
    match codec {
        Some(codec) => Ok(codec),
        none => Ok(none.insert(Box::new(BlockCodec::new()?))),
    }
}
