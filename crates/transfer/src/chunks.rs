use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};
use fullpipe_units::ByteCount;

/// Bytes of a chunk. A power of two of KiB, so that its hash is a node of the file's own BLAKE3 tree (BLAKE3, section
/// 2.1).
pub const CHUNK: usize = 1 << 20;

/// A chunk of a hole.
pub static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// A BLAKE3 digest, or the chaining value of a chunk.
pub type Digest = [u8; 32];

/// Returns bytes as hexadecimal digits, as `b3sum` prints them.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// A row of chunks of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// Index of the first.
    pub first: u32,
    /// Their number.
    pub count: u32,
}

impl Chunks {
    /// Returns all chunks of a file of `size`; `None` if there are more than 2³² − 1, which is 4 PiB.
    pub fn of(size: ByteCount) -> Option<Self> {
        let count = u32::try_from(size.get().div_ceil(CHUNK as u64)).ok()?;
        Some(Self { first: 0, count })
    }

    /// Returns the bytes of these chunks of a file of `size`.
    pub fn bytes(self, size: ByteCount) -> ByteCount {
        let at = |index: u64| (index * CHUNK as u64).min(size.get());
        let (first, count) = (u64::from(self.first), u64::from(self.count));
        ByteCount::new(at(first + count) - at(first))
    }

    /// Returns true if all of `other` are among these.
    pub fn cover(self, other: Self) -> bool {
        let end = |chunks: Self| u64::from(chunks.first) + u64::from(chunks.count);
        self.first <= other.first && end(other) <= end(self)
    }
}

/// Returns the hash of the chunk `index` of a file of `size`: a node of the tree of the file, or its root if the file
/// has only one chunk.
///
/// # Panics
/// Panics if `content` is empty or longer than a chunk.
pub fn chunk_hash(size: ByteCount, index: u32, content: &[u8]) -> Digest {
    assert!(!content.is_empty() && content.len() <= CHUNK, "a chunk has 1 to 2²⁰ bytes");
    if size.get() <= CHUNK as u64 {
        return blake3::hash(content).into();
    }
    Hasher::new().set_input_offset(u64::from(index) * CHUNK as u64).update(content).finalize_non_root()
}

/// The chunks of a file that have arrived and were verified, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    size: ByteCount,
    hashes: BTreeMap<u32, Digest>,
}

impl Verified {
    /// Returns the state of a file of `size` of which nothing has arrived.
    pub const fn new(size: ByteCount) -> Self {
        Self { size, hashes: BTreeMap::new() }
    }

    /// Notes a chunk. Returns false if it was there already, or the file has no such chunk.
    pub fn insert(&mut self, index: u32, hash: Digest) -> bool {
        self.length(index).is_some() && self.hashes.insert(index, hash).is_none()
    }

    /// Forgets a chunk: it is missing again.
    pub fn remove(&mut self, index: u32) {
        self.hashes.remove(&index);
    }

    /// Returns true if the chunk is there.
    pub fn contains(&self, index: u32) -> bool {
        self.hashes.contains_key(&index)
    }

    /// Returns the bytes of the chunk `index`; `None` if the file has no such chunk.
    pub fn length(&self, index: u32) -> Option<usize> {
        let begin = u64::from(index) * CHUNK as u64;
        (begin < self.size.get()).then(|| (self.size.get() - begin).min(CHUNK as u64) as usize)
    }

    /// Returns the bytes that are there.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.hashes.keys().filter_map(|index| self.length(*index)).map(|length| length as u64).sum())
    }

    /// Returns the chunks that are there, with their hashes, in their order.
    pub fn hashes(&self) -> impl Iterator<Item = (u32, Digest)> {
        self.hashes.iter().map(|(index, hash)| (*index, *hash))
    }

    /// Returns the chunks that are missing, in rows, in their order.
    pub fn missing(&self) -> Vec<Chunks> {
        let end = self.size.get().div_ceil(CHUNK as u64) as u32;
        let mut rows = Vec::new();
        let mut next = 0;
        for index in self.hashes.keys().copied().chain([end]) {
            if index > next {
                rows.push(Chunks { first: next, count: index - next });
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
    pub fn digest(&self) -> Option<Digest> {
        if !self.is_complete() {
            return None;
        }
        let hashes: Vec<Digest> = self.hashes.values().copied().collect();
        Some(match hashes.as_slice() {
            [] => *blake3::hash(&[]).as_bytes(),
            [only] => *only,
            _ => {
                let (left, right) = halves(&hashes, self.size.get());
                merge_subtrees_root(&left, &right, Mode::Hash).into()
            }
        })
    }
}

/// Returns the nodes under that of `size` bytes, whose chunks have these hashes: two or more.
fn halves(hashes: &[Digest], size: u64) -> (Digest, Digest) {
    let left = left_subtree_len(size);
    let (first, second) = hashes.split_at((left / CHUNK as u64) as usize);
    (node(first, left), node(second, size - left))
}

fn node(hashes: &[Digest], size: u64) -> Digest {
    if let [only] = hashes {
        return *only;
    }
    let (left, right) = halves(hashes, size);
    merge_subtrees_non_root(&left, &right, Mode::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|index| (index / 1000 % 251) as u8).collect()
    }

    #[test]
    fn chunks_in_any_order_give_the_digest_of_the_whole_file() {
        for size in [0, 1, 1023, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5, 4 * CHUNK, 7 * CHUNK - 1] {
            let content = content(size);
            let count = ByteCount::new(size as u64);
            let mut verified = Verified::new(count);
            for (index, chunk) in content.chunks(CHUNK).enumerate().collect::<Vec<_>>().into_iter().rev() {
                assert_eq!(verified.digest(), None, "{size}");
                assert!(verified.insert(index as u32, chunk_hash(count, index as u32, chunk)));
            }
            assert_eq!(verified.digest(), Some(blake3::hash(&content).into()), "{size}");
            assert_eq!(verified.bytes(), count);
        }
    }

    #[test]
    fn a_changed_bit_or_another_place_gives_another_hash() {
        let size = ByteCount::new(3 * CHUNK as u64);
        let mut chunk = content(CHUNK);
        let hash = chunk_hash(size, 1, &chunk);
        assert_ne!(hash, chunk_hash(size, 2, &chunk));
        assert_eq!(hexadecimal(&[0, 0x1f, 0xff]), "001fff");
        chunk[CHUNK / 2] ^= 1;
        assert_ne!(hash, chunk_hash(size, 1, &chunk));
    }

    #[test]
    fn missing_chunks_are_listed_in_rows() {
        let mut verified = Verified::new(ByteCount::new(5 * CHUNK as u64 + 1));
        let rows =
            |verified: &Verified| verified.missing().iter().map(|row| (row.first, row.count)).collect::<Vec<_>>();
        assert_eq!(rows(&verified), [(0, 6)]);
        assert!(verified.insert(0, [0; 32]) && verified.insert(3, [0; 32]) && !verified.insert(3, [0; 32]));
        assert!(!verified.insert(6, [0; 32]));
        assert_eq!(rows(&verified), [(1, 2), (4, 2)]);
        assert!(verified.insert(1, [0; 32]));
        verified.remove(1);
        assert_eq!(rows(&verified), [(1, 2), (4, 2)]);
        assert_eq!((verified.length(5), verified.length(6)), (Some(1), None));
        assert!(Verified::new(ByteCount::ZERO).missing().is_empty());
    }

    #[test]
    fn sizes_that_lie_allocate_nothing() {
        let verified = Verified::new(ByteCount::new(u64::MAX));
        assert_eq!(verified.bytes(), ByteCount::ZERO);
        assert!(!verified.is_complete() && Chunks::of(ByteCount::new(u64::MAX)).is_none());
        let all = Chunks { first: 0, count: 4 };
        assert!(all.cover(Chunks { first: 3, count: 1 }) && !all.cover(Chunks { first: 3, count: 2 }));
        assert!(!all.cover(Chunks { first: u32::MAX, count: u32::MAX }));
        let size = ByteCount::new(2 * CHUNK as u64 + 7);
        assert_eq!(all.bytes(size), size);
        assert_eq!(Chunks { first: 2, count: 5 }.bytes(size).get(), 7);
    }
}
