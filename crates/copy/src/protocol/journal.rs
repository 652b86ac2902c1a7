use fullpipe_units::ByteCount;

use super::bytes::{ByteReader, Field};
use super::{Digest, FileIdentity};

/// First bytes of a journal, with its version.
const MAGIC: &[u8; 8] = b"fpjourn2";

/// Bytes of the header and of a record.
const HEADER: usize = 48;
const RECORD: usize = 48;

/// Bytes of a record that its check covers.
const CHECKED: usize = RECORD - 8;

const VERIFIED: u32 = 1;
const DURABLE: u32 = 2;

/// Writes the records of a file that is not complete: which of its chunks are verified.
///
/// A record of a chunk is written after its data, but a disk may get it before. Only what stands
/// before the last mark ([`JournalFormat::durable_record`]) is sure to be on disk. The rest is to
/// be read and verified again: a new start of the host, a disk that fails to write or a file system
/// that is unmounted without its disk may have lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalFormat {
    identity: FileIdentity,
    size: ByteCount,
}

/// Chunks that an earlier run has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredChunks {
    /// Chunks whose data is on disk.
    pub verified: Vec<(u32, Digest)>,
    /// Chunks whose data may be lost.
    pub doubtful: Vec<(u32, Digest)>,
    /// Bytes of the journal that are sound; what follows is to be cut off.
    pub length: ByteCount,
    /// Bytes of the journal up to the last mark that everything before is on disk.
    pub durable: ByteCount,
}

impl JournalFormat {
    /// Returns the journal of a file of this identity and size.
    pub const fn new(identity: FileIdentity, size: ByteCount) -> Self {
        Self { identity, size }
    }

    /// Returns the header, with which the journal begins.
    pub fn header_bytes(&self) -> Vec<u8> {
        [&MAGIC[..], &self.identity.0, &self.size.get().to_le_bytes()].concat()
    }

    /// Returns the record of a verified chunk.
    pub fn verified_record(&self, index: u32, hash: &Digest) -> Vec<u8> {
        self.encode_record(index, VERIFIED, hash)
    }

    /// Returns the mark that everything before is on disk.
    pub fn durable_record(&self) -> Vec<u8> {
        self.encode_record(0, DURABLE, &[0; 32])
    }

    fn encode_record(&self, index: u32, kind: u32, hash: &Digest) -> Vec<u8> {
        let mut record = [&index.to_le_bytes()[..], &kind.to_le_bytes(), hash].concat();
        record.extend(self.record_check(&record));
        record
    }

    fn record_check(&self, record: &[u8]) -> [u8; 8] {
        let hash = blake3::hash(&[&self.identity.0, record].concat());
        hash.as_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// Reads a journal; `None` if it is of another file, or of another state of it. Reading ends at
    /// the first record that is torn or damaged.
    pub fn recover_chunks(&self, bytes: &[u8]) -> Option<RecoveredChunks> {
        let (header, records) = bytes.split_at_checked(HEADER)?;
        if header != self.header_bytes() {
            return None;
        }
        let begin = ByteCount::new(HEADER as u64);
        let mut recovered = RecoveredChunks {
            verified: Vec::new(),
            doubtful: Vec::new(),
            length: begin,
            durable: begin,
        };
        for (index, kind, hash) in self.sound_records(records) {
            recovered.length += ByteCount::new(RECORD as u64);
            match kind {
                VERIFIED => recovered.doubtful.push((index, hash)),
                DURABLE => {
                    recovered.verified.append(&mut recovered.doubtful);
                    recovered.durable = recovered.length;
                }
                _ => break,
            }
        }
        Some(recovered)
    }

    /// Returns the offsets of the records in a journal of chunks that are wrong after all. Once all
    /// of its data is on disk, the mark that says so ([`JournalFormat::durable_record`]) takes the
    /// place of each: the journal is never without the other chunks, whenever the writer is killed.
    pub fn places_of(&self, bytes: &[u8], is_wrong: impl Fn(u32) -> bool) -> Vec<ByteCount> {
        let records = self
            .sound_records(bytes.get(HEADER..).unwrap_or_default())
            .enumerate();
        let wrong = records.filter(|(_, (index, kind, _))| *kind == VERIFIED && is_wrong(*index));
        wrong
            .map(|(at, _)| ByteCount::new((HEADER + at * RECORD) as u64))
            .collect()
    }

    /// Returns the records up to the first that is torn or damaged.
    fn sound_records(&self, records: &[u8]) -> impl Iterator<Item = (u32, u32, Digest)> {
        records
            .chunks_exact(RECORD)
            .map_while(|record| self.parse_record(record))
    }

    fn parse_record(&self, record: &[u8]) -> Option<(u32, u32, Digest)> {
        let (checked, check) = record.split_at_checked(CHECKED)?;
        if self.record_check(checked) != check {
            return None;
        }
        let mut reader = ByteReader(checked);
        Some((
            Field::read(&mut reader).ok()?,
            Field::read(&mut reader).ok()?,
            Field::read(&mut reader).ok()?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn journal() -> JournalFormat {
        JournalFormat::new(FileIdentity([3; 32]), ByteCount::from_mib(9))
    }

    fn written() -> Vec<u8> {
        let journal = journal();
        [
            journal.header_bytes(),
            journal.verified_record(4, &[4; 32]),
            journal.durable_record(),
            journal.verified_record(2, &[2; 32]),
        ]
        .concat()
    }

    fn indexes(chunks: &[(u32, Digest)]) -> Vec<u32> {
        chunks.iter().map(|(index, _)| *index).collect()
    }

    #[test]
    fn only_what_was_durable_is_sure() {
        let recovered = journal().recover_chunks(&written()).unwrap();
        assert_eq!(
            (indexes(&recovered.verified), indexes(&recovered.doubtful)),
            (vec![4], vec![2])
        );
        assert_eq!(recovered.length.get(), written().len() as u64);
        assert_eq!(recovered.durable.get(), (HEADER + 2 * RECORD) as u64);
        let unmarked = journal()
            .recover_chunks(&written()[..HEADER + RECORD])
            .unwrap();
        assert_eq!(
            (unmarked.doubtful.len(), unmarked.durable.get()),
            (1, HEADER as u64)
        );
    }

    #[test]
    fn another_file_or_state_has_no_journal_here() {
        let other = JournalFormat {
            identity: FileIdentity([4; 32]),
            ..journal()
        };
        assert_eq!(other.recover_chunks(&written()), None);
        let other = JournalFormat {
            size: ByteCount::from_mib(8),
            ..journal()
        };
        assert_eq!(other.recover_chunks(&written()), None);
        assert_eq!(journal().recover_chunks(b""), None);
    }

    #[test]
    fn what_is_wrong_is_taken_back_and_the_rest_is_there_at_every_moment() {
        let journal = journal();
        let chunk = |index: u8| journal.verified_record(index.into(), &[index; 32]);
        let mut written = [
            journal.header_bytes(),
            chunk(4),
            chunk(1),
            journal.durable_record(),
            chunk(2),
            chunk(4),
            chunk(3),
        ]
        .concat();
        let places = journal.places_of(&written, |index| [1, 4].contains(&index));
        assert_eq!(
            places
                .iter()
                .map(|place| place.get() as usize)
                .collect::<Vec<_>>(),
            [0, 1, 4].map(|at| HEADER + at * RECORD)
        );
        let right = |bytes: &[u8]| {
            let recovered = journal.recover_chunks(bytes).unwrap();
            let mut chunks = indexes(&[recovered.verified, recovered.doubtful].concat());
            chunks.retain(|index| [2, 3].contains(index));
            chunks
        };
        for place in places {
            assert_eq!(right(&written), [2, 3]);
            written[place.get() as usize..][..RECORD].copy_from_slice(&journal.durable_record());
        }
        let recovered = journal.recover_chunks(&written).unwrap();
        assert_eq!(
            (indexes(&recovered.verified), indexes(&recovered.doubtful)),
            (vec![2], vec![3])
        );
        assert!(
            journal
                .places_of(&written, |index| [1, 4].contains(&index))
                .is_empty()
        );
    }

    proptest! {
        #[test]
        fn a_torn_or_flipped_record_ends_the_journal(at in HEADER..HEADER + 3 * RECORD, bit in 0_u8..8, cut: bool) {
            let mut bytes = written();
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
            let before = (at - HEADER) / RECORD;
            let recovered = journal().recover_chunks(&bytes).unwrap();
            prop_assert_eq!(recovered.length.get() as usize, HEADER + before * RECORD);
            prop_assert_eq!(recovered.verified.len(), usize::from(before > 1));
        }
    }
}
