//! Blocks of payload between two relays that compress.
//!
//! ```text
//! kind, 1 byte │ length of the rest, 3 bytes │ payload, or one or more frames of zstd
//! ```
//!
//! Each block is compressed for itself, so no connection keeps a compressor. A block holds at most
//! [`BLOCK_BYTES`], compressed or not: its receiver decompresses into a buffer of that size, and
//! refuses what does not fit.

use std::io;

use fullpipe_control::{BlockCompressor, BlockDecompressor};
use thiserror::Error;

/// Payload of a block, at most, and length of a block on the wire, at most, without its header.
pub const BLOCK_BYTES: usize = 128 << 10;

/// Bytes before each block.
const HEADER: usize = 4;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

/// The error of bytes that are no blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BlockError {
    /// The first byte is no kind of a block.
    #[error("{0} is no kind of a block")]
    Kind(u8),
    /// The block is empty or too long.
    #[error("a block has {0} bytes, and may have 1 to {BLOCK_BYTES}")]
    Length(usize),
    /// The block is not compressed by zstd, is empty, or holds more than a block may.
    #[error("a block cannot be decompressed to at most {BLOCK_BYTES} bytes")]
    Compressed,
}

/// Buffers and state of zstd, which serve any number of connections in turn.
#[derive(Debug)]
pub struct BlockCodec {
    compressor: BlockCompressor,
    decompressor: BlockDecompressor,
    pub(crate) input: Box<[u8]>,
    output: Box<[u8]>,
}

/// Blocks of one direction, as they arrive.
#[derive(Debug, Default)]
pub struct BlockReader {
    held: Vec<u8>,
    /// Bytes of the blocks so far, their headers included.
    pub(crate) wire: u64,
    /// Most payload of a block for each of its bytes.
    expansion: f64,
}

impl BlockCodec {
    /// Makes the buffers, some 600 KiB.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: BlockCompressor::new()?,
            decompressor: BlockDecompressor::new()?,
            input: vec![0; BLOCK_BYTES].into(),
            output: vec![0; HEADER + BLOCK_BYTES].into(),
        })
    }

    /// Makes a block of the first `length` bytes of the input, compressed at `level` if there is
    /// one and it becomes shorter. Returns the length of the block with its header.
    pub(crate) fn pack_block(&mut self, length: usize, level: Option<i32>) -> usize {
        let packed = level.and_then(|level| self.compress_input(length, level));
        if packed.is_none() {
            self.output[HEADER..HEADER + length].copy_from_slice(&self.input[..length]);
        }
        let (kind, body) = packed.map_or((PLAIN, length), |packed| (ZSTD, packed));
        self.output[..HEADER].copy_from_slice(&block_header(kind, body));
        HEADER + body
    }

    /// Returns the first `length` bytes of the block that was made last.
    pub(crate) fn block_bytes(&self, length: usize) -> &[u8] {
        &self.output[..length]
    }

    fn compress_input(&mut self, length: usize, level: i32) -> Option<usize> {
        // What does not become shorter does not fit.
        let room = &mut self.output[HEADER..HEADER + length.saturating_sub(1)];
        self.compressor
            .compress_block(level, &self.input[..length], room)
    }
}

fn block_header(kind: u8, length: usize) -> [u8; HEADER] {
    let [_, high, middle, low] = (length as u32).to_be_bytes();
    [kind, high, middle, low]
}

impl BlockReader {
    /// Takes bytes that have arrived.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Returns true if every block was complete and has been returned.
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the payload of the next block, 1 to [`BLOCK_BYTES`] bytes; `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// Fails if it is none, or holds more than a block may. Then nothing that follows can be read.
    pub fn next_payload<'c>(
        &mut self,
        codec: &'c mut BlockCodec,
    ) -> Result<Option<&'c [u8]>, BlockError> {
        let Some((&[kind, high, middle, low], rest)) = self.held.split_first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if kind != PLAIN && kind != ZSTD {
            return Err(BlockError::Kind(kind));
        }
        if length == 0 || length > BLOCK_BYTES {
            return Err(BlockError::Length(length));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let into = &mut codec.output[..BLOCK_BYTES];
        let payload = if kind == PLAIN {
            into[..length].copy_from_slice(body);
            length
        } else {
            let unpacked = codec.decompressor.decompress_block(body, into);
            unpacked
                .filter(|payload| *payload > 0)
                .ok_or(BlockError::Compressed)?
        };
        let wire = HEADER + length;
        self.wire += wire as u64;
        self.expansion = self.expansion.max(payload as f64 / wire as f64);
        self.held.drain(..wire);
        if self.held.is_empty() {
            // An idle connection holds no memory for this.
            self.held = Vec::new();
        }
        Ok(Some(&codec.output[..payload]))
    }

    /// Returns the payload, at most, of what has arrived and has not been returned.
    pub(crate) fn held_payload(&self) -> u64 {
        payload_in(self.held.len() as u64, self.expansion)
    }
}

/// Returns the payload, at most, that `wire` bytes hold of blocks which expand up to `expansion`
/// times: the first byte may be the last of a block.
pub(crate) fn payload_in(wire: u64, expansion: f64) -> u64 {
    if wire == 0 {
        0
    } else {
        (wire as f64 * expansion) as u64 + BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(codec: &mut BlockCodec, payload: &[u8], level: Option<i32>) -> Vec<u8> {
        codec.input[..payload.len()].copy_from_slice(payload);
        let length = codec.pack_block(payload.len(), level);
        codec.block_bytes(length).to_vec()
    }

    /// Returns a block of zstd with `body`.
    fn compressed(body: &[u8]) -> Vec<u8> {
        [&block_header(ZSTD, body.len())[..], body].concat()
    }

    fn read(bytes: &[u8]) -> Result<Option<Vec<u8>>, BlockError> {
        let mut reader = BlockReader::default();
        reader.push_bytes(bytes);
        reader
            .next_payload(&mut BlockCodec::new().unwrap())
            .map(|payload| payload.map(<[u8]>::to_vec))
    }

    #[test]
    fn text_becomes_shorter_and_random_bytes_pass_as_they_are() {
        let mut codec = BlockCodec::new().unwrap();
        let text: Vec<u8> = (0..9000)
            .flat_map(|line| format!("line {line}\n").into_bytes())
            .collect();
        let block = packed(&mut codec, &text, Some(1));
        assert!(
            block.len() * 2 < text.len() && block[0] == ZSTD,
            "{}",
            block.len()
        );
        assert_eq!(read(&block), Ok(Some(text.clone())));
        let mut random = vec![0; BLOCK_BYTES];
        fill_at_random(&mut random);
        let block = packed(&mut codec, &random, Some(1));
        assert_eq!((block.len(), block[0]), (HEADER + BLOCK_BYTES, PLAIN));
        assert_eq!(read(&block), Ok(Some(random)));
        assert_eq!(packed(&mut codec, &text, None).len(), HEADER + text.len());
    }

    fn fill_at_random(bytes: &mut [u8]) {
        let mut state = 1_u64;
        for byte in bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    }

    #[test]
    fn a_bomb_is_refused_and_nothing_larger_than_a_block_is_made() {
        let full = zstd::bulk::compress(&vec![0; BLOCK_BYTES], 1).unwrap();
        assert_eq!(
            read(&compressed(&full)).unwrap().unwrap().len(),
            BLOCK_BYTES
        );
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
        assert!(bomb.len() < BLOCK_BYTES);
        assert_eq!(read(&compressed(&bomb)), Err(BlockError::Compressed));
        // Many frames in one block, each small enough.
        assert_eq!(
            read(&compressed(&full.repeat(2))),
            Err(BlockError::Compressed)
        );
        // A frame that states a window of 2 GiB and no size.
        let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        assert_eq!(read(&compressed(&wide)), Err(BlockError::Compressed));
    }

    #[test]
    fn what_is_no_block_is_refused() {
        assert_eq!(read(&[2, 0, 0, 1, 0]), Err(BlockError::Kind(2)));
        assert_eq!(read(&[PLAIN, 0, 0, 0]), Err(BlockError::Length(0)));
        assert_eq!(
            read(&[ZSTD, 2, 0, 1]),
            Err(BlockError::Length(BLOCK_BYTES + 1))
        );
        assert_eq!(read(&compressed(b"rubbish")), Err(BlockError::Compressed));
        assert_eq!(
            read(&compressed(&zstd::bulk::compress(b"", 1).unwrap())),
            Err(BlockError::Compressed)
        );
        assert_eq!(read(&[PLAIN, 0, 0, 2, 7]), Ok(None));
    }

    proptest! {
        /// In whatever parts blocks arrive, their payload is that of their sender.
        #[test]
        fn blocks_arrive_in_any_parts(
            payloads in prop::collection::vec((prop::collection::vec(0_u8..4, 1..400), any::<bool>()), 1..8),
            part in 1_usize..500,
        ) {
            let mut codec = BlockCodec::new().unwrap();
            let mut wire = Vec::new();
            for (payload, compresses) in &payloads {
                wire.extend(packed(&mut codec, payload, compresses.then_some(3)));
            }
            let mut reader = BlockReader::default();
            let mut arrived = Vec::new();
            for bytes in wire.chunks(part) {
                reader.push_bytes(bytes);
                while let Some(payload) = reader.next_payload(&mut codec).unwrap() {
                    arrived.extend_from_slice(payload);
                }
            }
            let sent: Vec<u8> = payloads.into_iter().flat_map(|(payload, _)| payload).collect();
            prop_assert_eq!(arrived, sent);
            prop_assert!(reader.is_empty() && reader.wire == wire.len() as u64);
        }
    }
}
