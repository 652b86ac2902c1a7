//! A file transfer, as far as it can be decided without a file or a socket.
//!
//! * In: bytes of a name. Out: an [`EntryPath`] that leads to nothing outside its folder, or a [`PathError`].
//! * In: patterns as rsync has them. Out: [`Excludes`] that say what stays behind.
//! * In: chunks of a file, in any order. Out: a [`Verified`] that knows which are missing, and the BLAKE3 digest of the
//!   whole file, as `b3sum` prints it.
//! * In: bytes of the other end. Out: [`Message`]s, with bounds on everything that has a length.
//! * In: bytes of a journal. Out: the chunks that an earlier run has verified ([`Recovered`]).
//! * In: samples of connections. Out: the rate of a transfer that gives way to all other traffic ([`Scavenger`]), of
//!   one whose connections count as one user ([`Coupling`]), or of one under BBR that leaves no queue ([`DelayBound`]).
//!
//! Whatever the other end sends is taken for hostile: nothing here panics or allocates more than was sent.

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

pub use attributes::{AttributeError, AttributeKind, Attributes};
pub use chunks::{
    BLOCK, Blocks, CHUNK, Chunks, Digest, Verified, ZEROS, block_count, block_hash, block_length, chunk_hash,
    hexadecimal,
};
pub use coupling::Coupling;
pub use delay_bound::DelayBound;
pub use entry::{Entry, EntryKind, Identity, ModificationTime};
pub use journal::{Journal, Recovered};
pub use message::{
    AGAIN, ALIVE, DATA_HEADER, DataHeader, Head, Hello, MAX_FRAME, Message, MessageError, Outcome, Ready, VERSION,
};
pub use path::{EntryPath, PathError};
pub use pattern::Excludes;
pub use rounds::{StreamsSample, unsmoothed};
pub use scavenger::Scavenger;
