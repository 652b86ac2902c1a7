use std::collections::BTreeMap;
use std::sync::LazyLock;

use blake3::Hasher;
use blake3::hazmat::{
    HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use fullpipe_units::ByteCount;

/// Bytes of a chunk. A power of two of KiB, so that its hash is a node of the file's own BLAKE3
/// tree (BLAKE3, section 2.1).
pub const CHUNK: usize = 1 << 20;

/// Bytes of a block of a chunk, which crosses with one head. A power of two of KiB, so that its
/// hash, too, is a node of the tree of the file.
pub const BLOCK: usize = 1 << 16;

/// A chunk of a hole. In the program's file it would be a megabyte.
pub static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; CHUNK]);

/// A BLAKE3 digest, or the chaining value of a chunk.
pub type Digest = [u8; 32];

/// A row of chunks of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileChunks {
    /// Index of the first.
    pub first: u32,
    /// Number of chunks.
    pub count: u32,
}

impl FileChunks {
    /// Returns all chunks of a file of `size`; `None` if there are more than 2³² − 1, which is 4
    /// PiB.
    pub fn from_size(size: ByteCount) -> Option<Self> {
        let count = u32::try_from(size.get().div_ceil(CHUNK as u64)).ok()?;
        Some(Self { first: 0, count })
    }

    /// Returns the bytes of these chunks of a file of `size`.
    pub fn byte_count(self, size: ByteCount) -> ByteCount {
        let [first, end] =
            [self.first.into(), self.end()].map(|index| (index * CHUNK as u64).min(size.get()));
        ByteCount::new(end - first)
    }

    /// Returns true if all of `other` are among these.
    pub fn contains_all(self, other: Self) -> bool {
        self.first <= other.first && other.end() <= self.end()
    }

    /// Returns the index behind the last.
    const fn end(self) -> u64 {
        self.first as u64 + self.count as u64
    }
}

/// Returns the hash of the chunk `index` of a file of `size`: a node of the tree of the file, or
/// its root if the file has only one chunk.
///
/// # Panics
/// Panics if `content` is empty or longer than a chunk.
pub fn chunk_hash(size: ByteCount, index: u32, content: &[u8]) -> Digest {
    node_hash(size, CHUNK, block_offset(index, 0), content)
}

/// Returns the hash of what stands in a file of `size` from `offset` on: a node over `unit` bytes,
/// or the root if the file has no more.
fn node_hash(size: ByteCount, unit: usize, offset: u64, content: &[u8]) -> Digest {
    assert!(
        (1..=unit).contains(&content.len()),
        "a part of a file has 1 to {unit} bytes"
    );
    if size.get() <= unit as u64 {
        return blake3::hash(content).into();
    }
    Hasher::new()
        .set_input_offset(offset)
        .update(content)
        .finalize_non_root()
}

/// Returns the place of a block in its file.
pub(crate) fn block_offset(chunk: u32, block: u8) -> u64 {
    u64::from(chunk) * CHUNK as u64 + u64::from(block) * BLOCK as u64
}

/// Returns the bytes of the chunk `index` of a file of `size`; `None` if the file has no such chunk.
pub fn chunk_length(size: ByteCount, index: u32) -> Option<usize> {
    let left = size.get().checked_sub(block_offset(index, 0))?;
    (left > 0).then(|| left.min(CHUNK as u64) as usize)
}

/// Returns the number of the blocks of a chunk of `length` bytes: 1 to 16.
pub fn block_count(length: usize) -> u8 {
    length.div_ceil(BLOCK).clamp(1, CHUNK / BLOCK) as u8
}

/// Returns the bytes of the block `index` of a chunk of `length` bytes; `None` if the chunk has no
/// such block.
pub fn block_length(length: usize, index: u8) -> Option<usize> {
    let begin = usize::from(index) * BLOCK;
    (begin < length).then(|| (length - begin).min(BLOCK))
}

/// Returns the hash of the block `index` of the chunk `chunk` of a file of `size`: a node of the
/// tree of the file, or its root if the file has only one block.
///
/// # Panics
/// Panics if `content` is empty or longer than a block.
pub fn block_hash(size: ByteCount, chunk: u32, index: u8, content: &[u8]) -> Digest {
    node_hash(size, BLOCK, block_offset(chunk, index), content)
}

/// The blocks of a chunk that have arrived, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkBlocks {
    /// Bytes of the chunk.
    length: usize,
    /// The file has no other chunk.
    is_whole_file: bool,
    hashes: Vec<Option<Digest>>,
    /// A bit for each block that is not there, the first the lowest.
    missing: u16,
}

impl ChunkBlocks {
    /// Returns the state of the chunk `chunk` of a file of `size` of which nothing has arrived.
    pub fn new(size: ByteCount, chunk: u32) -> Self {
        let length = chunk_length(size, chunk).unwrap_or(0);
        let count = block_count(length);
        let missing = u16::MAX >> (u16::BITS - u32::from(count));
        let is_whole_file = size.get() <= CHUNK as u64;
        Self {
            length,
            is_whole_file,
            hashes: vec![None; count.into()],
            missing,
        }
    }

    /// Takes a block for the one who is about to write it. Returns false if somebody has taken it
    /// before, or the chunk has no such block.
    pub fn claim_block(&mut self, index: u8, hash: Digest) -> bool {
        let free = self
            .hashes
            .get_mut(usize::from(index))
            .filter(|taken| taken.is_none());
        free.map(|taken| *taken = Some(hash)).is_some()
    }

    /// Notes that a block that was taken is written.
    pub fn record_written(&mut self, index: u8) {
        self.missing &= !(1 << index);
    }

    /// Returns a bit for each block that is not written, the first the lowest; none if the chunk is
    /// there.
    pub const fn missing_blocks(&self) -> u16 {
        self.missing
    }

    /// Returns the hash of the chunk, as [`chunk_hash`] does; `None` if a block is missing.
    pub fn complete_hash(&self) -> Option<Digest> {
        let hashes: Vec<Digest> = self
            .hashes
            .iter()
            .copied()
            .collect::<Option<_>>()
            .filter(|_| self.missing == 0)?;
        Some(root_or_node(
            &hashes,
            self.length as u64,
            BLOCK,
            self.is_whole_file,
        ))
    }
}

/// The chunks of a file that have arrived and were verified, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedChunks {
    size: ByteCount,
    hashes: BTreeMap<u32, Digest>,
}

impl VerifiedChunks {
    /// Returns the state of a file of `size` of which nothing has arrived.
    pub const fn new(size: ByteCount) -> Self {
        Self {
            size,
            hashes: BTreeMap::new(),
        }
    }

    /// Notes a chunk. Returns false if it was there already, or the file has no such chunk.
    pub fn insert_chunk(&mut self, index: u32, hash: Digest) -> bool {
        chunk_length(self.size, index).is_some() && self.hashes.insert(index, hash).is_none()
    }

    /// Forgets a chunk: it is missing again.
    pub fn remove_chunk(&mut self, index: u32) {
        self.hashes.remove(&index);
    }

    /// Returns true if the chunk is there.
    pub fn contains_chunk(&self, index: u32) -> bool {
        self.hashes.contains_key(&index)
    }

    /// Returns the hash of the chunk; `None` if it is not there.
    pub fn hash_at(&self, index: u32) -> Option<Digest> {
        self.hashes.get(&index).copied()
    }

    /// Returns the bytes that are there.
    pub fn verified_bytes(&self) -> ByteCount {
        let chunks = self.hashes.keys();
        let lengths = chunks.filter_map(|index| chunk_length(self.size, *index));
        ByteCount::new(lengths.sum::<usize>() as u64)
    }

    /// Returns the chunks that are there, with their hashes, in their order.
    pub fn chunk_hashes(&self) -> impl Iterator<Item = (u32, Digest)> {
        self.hashes.iter().map(|(index, hash)| (*index, *hash))
    }

    /// Returns the chunks that are missing, in rows, in their order.
    pub fn missing_ranges(&self) -> Vec<FileChunks> {
        let end = self.size.get().div_ceil(CHUNK as u64) as u32;
        let mut rows = Vec::new();
        let mut next = 0;
        for index in self.hashes.keys().copied().chain([end]) {
            if index > next {
                rows.push(FileChunks {
                    first: next,
                    count: index - next,
                });
            }
            next = index.saturating_add(1);
        }
        rows
    }

    /// Returns true if nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.hashes.len() as u64 == self.size.get().div_ceil(CHUNK as u64)
    }

    /// Returns the BLAKE3 digest of the file, as `b3sum` prints it; `None` if a chunk is missing.
    pub fn file_digest(&self) -> Option<Digest> {
        if !self.is_complete() {
            return None;
        }
        let hashes: Vec<Digest> = self.hashes.values().copied().collect();
        Some(match hashes.as_slice() {
            [] => *blake3::hash(&[]).as_bytes(),
            hashes => root_or_node(hashes, self.size.get(), CHUNK, true),
        })
    }
}

/// Returns the node over `size` bytes whose parts of `unit` bytes have these hashes, which may be
/// the root of the file.
fn root_or_node(hashes: &[Digest], size: u64, unit: usize, is_root: bool) -> Digest {
    if let [only] = hashes {
        return *only;
    }
    let left = left_subtree_len(size);
    let (first, second) = hashes.split_at((left / unit as u64) as usize);
    let first = root_or_node(first, left, unit, false);
    let second = root_or_node(second, size - left, unit, false);
    if is_root {
        merge_subtrees_root(&first, &second, Mode::Hash).into()
    } else {
        merge_subtrees_non_root(&first, &second, Mode::Hash)
    }
}

#[cfg(test)]
mod tests;
