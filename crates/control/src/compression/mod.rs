//! Compression of payload, block by block, where it saves more time than it takes.
//!
//! * In: a block, a level and a buffer. Out: the block by zstd, if that fits into the buffer
//!   ([`BlockCompressor`]), and back ([`BlockDecompressor`]): no block becomes larger than the
//!   buffer of its receiver.
//! * In: the bytes that compression saved of a block, the time that it took, and the rate of the
//!   way. Out: whether the next block is compressed, and how hard ([`CompressionChoice`]).
//!
//! Pure: no module of this folder touches a clock, a file or a socket.

mod choice;
mod codec;

pub use choice::{CompressionChoice, CompressionTrial};
pub use codec::{BlockCompressor, BlockDecompressor};
