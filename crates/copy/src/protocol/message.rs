//! Both directions of a transfer, as frames: four bytes with the length of what follows, one with
//! the kind, the rest by kind. Numbers are little-endian.

use thiserror::Error;

use super::bytes::{ByteReader, Field, Wrong, kinds, structure};
use super::{BLOCK, CHUNK, Digest, EntryPath, FileChunks, TreeEntry};

/// Version of the messages. Ends of different versions do not understand each other.
pub const VERSION: u16 = 9;

/// The frame without a message: its sender is there and has nothing to say.
pub const ALIVE: [u8; 4] = [0; 4];

/// Bit of the number of a file that is sent for the second time, because it changed while it was
/// read.
pub const AGAIN: u32 = 1 << 31;

/// Bytes of the head of a block that its check covers.
const CHECKED: usize = 4 + 1 + 4 + 4 + 1 + 1 + 32;

/// Bytes of the check.
const CHECK: usize = 8;

/// Bytes of the frame of a block before its content.
pub const DATA_HEADER: usize = CHECKED + CHECK;

/// Bytes of a frame at most, without its length.
pub const MAX_FRAME: usize = DATA_HEADER - 4 + CHUNK;

/// A request of the near end, which its user started, to the far one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct CopyRequest {
    /// Version of the messages.
    pub version: u16,
    /// True if the far end sends.
    pub far_sends: bool,
    /// Nothing is changed at the receiver.
    pub dry_run: bool,
    /// Entries that the sender does not have are deleted at the receiver.
    pub delete: bool,
    /// The receiver reads every file back from its disk.
    pub verify_disk: bool,
    /// The sender gives way to all other traffic.
    pub scavenge: bool,
    /// The sender never changes to BBR.
    pub no_bbr: bool,
    /// The sender compresses nothing.
    pub no_compress: bool,
    /// Extended attributes and access lists are kept.
    pub attributes: bool,
    /// The far end shall listen for QUIC, too.
    pub quic: bool,
    /// Seconds after which an end that receives nothing gives up.
    pub timeout: u16,
    /// Secret of the connections for data.
    pub secret: [u8; 32],
    /// First and last port to listen on; zeros for any.
    pub ports: (u16, u16),
    /// Bits per second that the sender may send; zero for any rate.
    pub limit: u64,
    /// Paths at the far end, as its user wrote them.
    pub paths: Vec<Vec<u8>>,
    /// Patterns of what stays behind.
    pub excludes: Vec<Vec<u8>>,
    /// Networks between whose addresses data is not encrypted.
    pub unencrypted: Vec<Vec<u8>>,
    /// Settings of the near host as JSON.
    pub settings: Vec<u8>,
}

/// The answer to a [`CopyRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyAnswer {
    /// Port on which the far end listens; zero if it does not.
    pub port: u16,
    /// UDP port on which it listens for QUIC; zero if it does not.
    pub quic_port: u16,
    /// Address of the far end as the near end reached it, if ssh says so.
    pub address: Vec<u8>,
    /// Settings of the far host as JSON.
    pub settings: Vec<u8>,
}

/// The result for one file, at the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOutcome {
    /// The file is there under its name, complete, durable, of this digest.
    Copied(Digest),
    /// The file was there already.
    Present,
    /// The file would be copied, had that been asked for.
    Wanted,
    /// The file is not there, for this reason.
    Failed(String),
}

/// The head of a block of a chunk, or of a chunk that is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Number of the file: its place among the regular files of the list; with [`AGAIN`] in its
    /// second attempt.
    pub file: u32,
    /// Index of the chunk.
    pub chunk: u32,
    /// Index of the block; zero for a hole, which is a whole chunk.
    pub block: u8,
    /// The sender wants to know that it has arrived.
    pub reports: bool,
    /// The content of the block follows compressed by zstd.
    pub packed: bool,
    /// Hash of its content.
    pub hash: Digest,
}

/// The head of what crosses on a connection for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataHead {
    /// The first: the number of the connection.
    Stream(u16),
    /// A block of a chunk, with the bytes that follow; none for a hole.
    Block(DataHeader, usize),
    /// The last.
    End,
}

/// A message. `'b` is the lifetime of the bytes that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyMessage<'b> {
    /// Near → far, the first.
    Hello(CopyRequest),
    /// Far → near, the first.
    Ready(CopyAnswer),
    /// Either end gives up, for this reason, with this exit code.
    Refused {
        /// Exit code.
        code: u8,
        /// One sentence.
        why: String,
    },
    /// Near → far: connect to this port of mine.
    Dial {
        /// The port.
        port: u16,
    },
    /// Near → far: connect to this UDP port of mine by QUIC.
    DialQuic {
        /// The port.
        port: u16,
    },
    /// Near → far: these connections carry data; with none, this one does.
    Streams {
        /// The number of TCP connections.
        count: u16,
        /// The number of TCP connections that carry data at first. The others wait until they are
        /// needed.
        active: u16,
        /// The number of streams on the QUIC connection. Next to TCP connections they wait until
        /// they are needed.
        quic: u16,
    },
    /// Sender → receiver: the list begins.
    Begin {
        /// The list is of a single file, which may get another name.
        single: bool,
        /// The content of a folder is sent, and not the folder itself.
        content: bool,
    },
    /// Sender → receiver: the next entry.
    Entry(TreeEntry),
    /// Sender → receiver: the list ends.
    EndOfList {
        /// Every folder could be read.
        complete: bool,
    },
    /// Receiver → sender: these chunks are wanted.
    Want {
        /// Number of the file.
        file: u32,
        /// The chunks.
        chunks: FileChunks,
    },
    /// Receiver → sender: blocks of this chunk have arrived and are right.
    Got {
        /// Number of the file.
        file: u32,
        /// Index of the chunk.
        chunk: u32,
        /// A bit for each block that has not, the first the lowest; none if the whole chunk is
        /// there.
        missing: u16,
    },
    /// Receiver → sender: what became of a file.
    Outcome {
        /// Number of the file.
        file: u32,
        /// The result.
        outcome: FileOutcome,
    },
    /// Receiver → sender: this was deleted, or would be.
    Deleted {
        /// Path below the folder of the transfer.
        path: EntryPath,
    },
    /// Receiver → sender: a dry run would make this folder or link.
    WouldCopy {
        /// Path below the folder of the transfer.
        path: EntryPath,
    },
    /// Either end: this cannot be sent or made, or changed meanwhile.
    Unreadable {
        /// Number of the file; the highest number for what is no file, or is not listed.
        file: u32,
        /// One sentence.
        why: String,
    },
    /// Sender → receiver: this file changed while it was read, and is sent again in its new state,
    /// under its number with [`AGAIN`].
    Again {
        /// Number of the file.
        file: u32,
        /// The file as it is now.
        entry: TreeEntry,
    },
    /// Either end: something that a user should know.
    Note {
        /// One sentence.
        text: String,
    },
    /// Receiver → sender: a connection for data broke.
    Lost {
        /// Number of the connection.
        index: u16,
    },
    /// Sender → receiver: a block of a chunk.
    Data {
        /// The file, the chunk, the block and its hash.
        header: DataHeader,
        /// Content of the block; nothing for a hole.
        content: &'b [u8],
    },
    /// Receiver → sender: everything is done.
    Finished,
    /// Either end, after that: its figures as JSON.
    Figures(Vec<u8>),
}

/// The error of bytes that are no message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the other end sent a message of kind {kind} that is wrong: {why}")]
pub struct MessageError {
    kind: u8,
    why: String,
}

/// Kinds of messages that are not only read by kind.
const HELLO: u8 = 0;
pub(crate) const DATA: u8 = 16;

/// Flags of a block.
const REPORTS: u8 = 1;
const PACKED: u8 = 2;

/// Number in place of a file's in a head that is no chunk's.
const NO_FILE: u32 = u32::MAX;

/// Number in place of a connection's that marks the last head.
const NO_STREAM: u32 = u32::MAX;

impl DataHeader {
    /// Returns the bytes that stand before the `length` bytes of content.
    pub fn frame_bytes(&self, length: usize) -> [u8; DATA_HEADER] {
        let mut bytes = [0; DATA_HEADER];
        bytes[..4].copy_from_slice(&((DATA_HEADER - 4 + length) as u32).to_le_bytes());
        bytes[4] = DATA;
        bytes[5..9].copy_from_slice(&self.file.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.chunk.to_le_bytes());
        [bytes[13], bytes[14]] = [
            self.block,
            (u8::from(self.reports) * REPORTS) | (u8::from(self.packed) * PACKED),
        ];
        bytes[15..CHECKED].copy_from_slice(&self.hash);
        let check = head_check(&bytes[..CHECKED]);
        bytes[CHECKED..].copy_from_slice(&check);
        bytes
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        let (file, chunk) = (Field::read(reader)?, Field::read(reader)?);
        let (block, flags) = (Field::read(reader)?, u8::read(reader)?);
        if flags & !(REPORTS | PACKED) != 0 {
            return Err(Wrong::Number(flags));
        }
        let (reports, packed) = (flags & REPORTS != 0, flags & PACKED != 0);
        Ok(Self {
            file,
            chunk,
            block,
            reports,
            packed,
            hash: reader.read_array()?,
        })
    }

    /// Reads what follows the kind, to its end.
    pub(crate) fn read_block<'b>(reader: &mut ByteReader<'b>) -> Result<(Self, &'b [u8]), Wrong> {
        let header = Self::read(reader)?;
        let check: [u8; CHECK] = reader.read_array()?;
        let content = reader.take_bytes(reader.0.len())?;
        if content.len() > BLOCK {
            return Err(Wrong::Length);
        }
        if header.frame_bytes(content.len())[CHECKED..] != check {
            return Err(Wrong::Damaged);
        }
        Ok((header, content))
    }
}

fn head_check(head: &[u8]) -> [u8; CHECK] {
    blake3::hash(head)
        .as_bytes()
        .first_chunk()
        .copied()
        .unwrap_or_default()
}

impl DataHead {
    /// Returns the bytes of the head.
    pub fn to_bytes(&self) -> [u8; DATA_HEADER] {
        let chunk = match self {
            Self::Stream(index) => u32::from(*index),
            Self::Block(header, length) => return header.frame_bytes(*length),
            Self::End => NO_STREAM,
        };
        let mark = DataHeader {
            file: NO_FILE,
            chunk,
            block: 0,
            reports: false,
            packed: false,
            hash: Digest::default(),
        };
        mark.frame_bytes(0)
    }

    /// Reads a head; `None` if it was damaged on the way, or is none.
    pub fn from_reader(bytes: &[u8; DATA_HEADER]) -> Option<Self> {
        let (checked, check_of_sender) = bytes.split_at(CHECKED);
        let (length, body) = checked.split_first_chunk()?;
        let content = (u32::from_le_bytes(*length) as usize).checked_sub(DATA_HEADER - 4)?;
        let mut reader = ByteReader(body);
        let is_sound = head_check(checked) == check_of_sender
            && u8::read(&mut reader).ok()? == DATA
            && content <= BLOCK;
        let header = DataHeader::read(&mut reader).ok()?;
        let head = match (header.file, header.chunk) {
            (NO_FILE, NO_STREAM) => Self::End,
            (NO_FILE, index) => Self::Stream(u16::try_from(index).ok()?),
            _ => Self::Block(header, content),
        };
        is_sound.then_some(head)
    }
}

impl<'b> CopyMessage<'b> {
    /// Returns the whole frame.
    pub fn to_frame(&self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        self.put(&mut frame);
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame
    }

    /// Reads the part of a frame that follows its length.
    ///
    /// # Errors
    /// Fails if it is no message of this version, or has bytes too many or too few.
    pub fn read(bytes: &'b [u8]) -> Result<Self, MessageError> {
        let mut reader = ByteReader(bytes);
        let why = match Field::read(&mut reader) {
            _ if bytes.is_empty() => "it is empty".to_owned(),
            Ok(message) if reader.0.is_empty() => return Ok(message),
            Ok(_) => "it has bytes too many".to_owned(),
            Err(error) => error.to_string(),
        };
        let kind = bytes.first().copied().unwrap_or_default();
        Err(MessageError { kind, why })
    }
}

structure!(CopyRequest {
    version,
    far_sends,
    dry_run,
    delete,
    verify_disk,
    scavenge,
    no_bbr,
    no_compress,
    attributes,
    quic,
    timeout,
    secret,
    ports,
    limit,
    paths,
    excludes,
    unencrypted,
    settings
});
structure!(CopyAnswer {
    port,
    quic_port,
    address,
    settings
});
structure!(FileChunks { first, count });

impl<'b> Field<'b> for CopyMessage<'b> {
    kinds! { |_| Wrong::Kind, blocks Data;
        0 Hello { 0 hello }
        1 Ready { 0 ready }
        2 Refused { code code, why why }
        3 Dial { port port }
        4 Streams { count count, active active, quic quic }
        5 Begin { single single, content content }
        6 Entry { 0 entry }
        7 EndOfList { complete complete }
        8 Want { file file, chunks chunks }
        9 Got { file file, chunk chunk, missing missing }
        10 Outcome { file file, outcome outcome }
        11 Deleted { path path }
        12 Unreadable { file file, why why }
        13 Note { text text }
        14 Again { file file, entry entry }
        15 Lost { index index }
        17 Finished {}
        18 Figures { 0 json }
        19 DialQuic { port port }
        20 WouldCopy { path path }
    }
}

impl<'b> Field<'b> for FileOutcome {
    kinds! { Wrong::Number;
        0 Copied { 0 digest }
        1 Present {}
        2 Wanted {}
        3 Failed { 0 why }
    }
}

impl CopyRequest {
    /// Returns the version of a request of any version, which are alike up to there; `None` if a
    /// message is no request.
    pub fn version_of(message: &[u8]) -> Option<u16> {
        let [kind, low, high, ..] = *message else {
            return None;
        };
        (kind == HELLO).then_some(u16::from_le_bytes([low, high]))
    }

    /// Returns true if the message crosses whole: its lists, and what is in them, have no more than
    /// 65 535 entries or bytes, and all fit into a frame.
    pub fn fits_frame(&self) -> bool {
        let mut lists = [&self.paths, &self.excludes, &self.unencrypted].into_iter();
        let are_whole = lists.all(|list| {
            is_countable(list.len()) && list.iter().all(|item| is_countable(item.len()))
        });
        if !are_whole || !is_countable(self.settings.len()) {
            return false;
        }
        let mut written = vec![HELLO];
        self.put(&mut written);
        written.len() <= MAX_FRAME
    }
}

const fn is_countable(length: usize) -> bool {
    length <= u16::MAX as usize
}

#[cfg(test)]
mod tests;
