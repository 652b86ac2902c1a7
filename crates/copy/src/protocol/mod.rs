//! What an end of a copy takes from the other end, from its user and from a journal, and what it
//! answers.
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
//!
//! Pure: no module of this folder touches a clock, a file or a socket. Whatever the other end sends
//! is taken for hostile: nothing here panics or allocates more than was sent.

mod attributes;
mod bytes;
mod chunks;
mod entry;
mod journal;
mod message;
mod path;
mod pattern;

pub use attributes::{AttributeError, AttributeKind, ExtendedAttributes};
pub(crate) use chunks::block_offset;
pub use chunks::{
    BLOCK, CHUNK, ChunkBlocks, Digest, FileChunks, VerifiedChunks, ZEROS, block_count, block_hash,
    block_length, chunk_hash, chunk_length,
};
pub use entry::{EntryKind, FileIdentity, ModificationTime, TreeEntry};
pub use journal::{JournalFormat, RecoveredChunks};
pub use message::{
    AGAIN, ALIVE, CopyAnswer, CopyMessage, CopyRequest, DATA_HEADER, DataHead, DataHeader,
    FileOutcome, MAX_FRAME, MessageError, VERSION,
};
pub use path::{EntryPath, PathError};
pub use pattern::ExcludePatterns;
