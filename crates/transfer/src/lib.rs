//! A file transfer, as far as it can be decided without a file or a socket.
//!
//! * In: bytes of a name. Out: an [`EntryPath`] that leads to nothing outside its folder, or a
//!   [`PathError`].
//! * In: patterns as rsync has them. Out: [`ExcludePatterns`] that say what stays behind.
//! * In: chunks of a file, in any order. Out: a [`VerifiedChunks`] that knows which are missing,
//!   and the BLAKE3 digest of the whole file, as `b3sum` prints it.
//! * In: bytes of the other end. Out: [`CopyMessage`]s, with bounds on everything that has a
//!   length.
//! * In: bytes of a journal. Out: the chunks that an earlier run has verified
//!   ([`RecoveredChunks`]).
//! * In: samples of connections. Out: the rate of a transfer that gives way to all other traffic
//!   ([`ScavengerControl`]), of one whose connections count as one user ([`CoupledRate`]), or of
//!   one under BBR that leaves no queue ([`DelayBound`]).
//!
//! Whatever the other end sends is taken for hostile: nothing here panics or allocates more than
//! was sent.

mod attributes;
mod bytes;
mod chunks;
mod coupling;
mod delay_bound;
mod entry;
#[cfg(test)]
mod fluid_test;
mod journal;
mod message;
mod path;
mod pattern;
mod rounds;
mod scavenger;

pub use attributes::{AttributeError, AttributeKind, ExtendedAttributes};
pub use chunks::{
    BLOCK, CHUNK, ChunkBlocks, Digest, FileChunks, VerifiedChunks, ZEROS, block_count, block_hash,
    block_length, chunk_hash, to_hexadecimal,
};
pub use coupling::CoupledRate;
pub use delay_bound::DelayBound;
pub use entry::{EntryKind, FileIdentity, ModificationTime, TreeEntry};
pub use journal::{JournalFormat, RecoveredChunks};
pub use message::{
    AGAIN, ALIVE, CopyAnswer, CopyMessage, CopyRequest, DATA_HEADER, DataHead, DataHeader,
    FileOutcome, MAX_FRAME, MessageError, VERSION,
};
pub use path::{EntryPath, PathError};
pub use pattern::ExcludePatterns;
pub use rounds::{StreamsSample, unsmoothed_rtt};
pub use scavenger::ScavengerControl;
