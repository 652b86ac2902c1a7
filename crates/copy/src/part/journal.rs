//! The journal of a part on disk.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use fullpipe_units::ByteCount;

use super::ownership::own_file;
use crate::protocol::{
    CHUNK, Digest, JournalFormat, RecoveredChunks, VerifiedChunks, block_offset, chunk_hash,
    chunk_length,
};
use crate::tree::TreeEntryName;

/// Opens a journal to go on with it, and returns the chunks that it records of `data`; `None` if it
/// is of another file, or of another state of it. Those behind the last durable mark are read: the
/// disk may have lost them.
pub(super) fn open_journal(
    within: &TreeEntryName,
    data: &File,
    format: &JournalFormat,
    size: ByteCount,
) -> io::Result<Option<(File, VerifiedChunks)>> {
    let Ok(mut journal) = own_file(within) else {
        return Ok(None);
    };
    let Some(recovered) = read_journal(&mut journal, format, size)? else {
        return Ok(None);
    };
    let RecoveredChunks {
        verified: durable,
        mut doubtful,
        length,
        durable: marked,
    } = recovered;
    let records = doubtful.len();
    doubtful.retain(|(index, hash)| is_there(data, size, *index, hash));
    let are_all_there = doubtful.len() == records;
    journal.set_len(if are_all_there { length } else { marked }.get())?;
    journal.seek(SeekFrom::End(0))?;
    if records > 0 {
        if let Err(error) = data.sync_data() {
            journal.set_len(marked.get())?;
            return Err(error);
        }
        let cut_off: &[_] = if are_all_there { &[] } else { &doubtful };
        write_durable_mark(&mut journal, format, cut_off)?;
    }
    let mut verified = VerifiedChunks::new(size);
    for (index, hash) in durable.into_iter().chain(doubtful) {
        verified.insert_chunk(index, hash);
    }
    Ok(Some((journal, verified)))
}

/// Adds records of chunks to a journal, and the mark that everything is durable. On a full disk it
/// stays as it is.
fn write_durable_mark(
    journal: &mut File,
    format: &JournalFormat,
    chunks: &[(u32, Digest)],
) -> io::Result<()> {
    let records = chunks
        .iter()
        .flat_map(|(index, hash)| format.verified_record(*index, hash));
    let bytes: Vec<u8> = records.chain(format.durable_record()).collect();
    let length = journal.stream_position()?;
    if journal.write_all(&bytes).is_err() {
        journal.set_len(length)?;
        journal.seek(SeekFrom::Start(length))?;
    }
    Ok(())
}

pub(super) fn read_journal(
    journal: &mut File,
    format: &JournalFormat,
    size: ByteCount,
) -> io::Result<Option<RecoveredChunks>> {
    Ok(format.recover_chunks(&journal_content(journal, size)?))
}

fn journal_content(journal: &mut File, size: ByteCount) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Chunks are recorded once, but for those that were sent twice.
    let most = 4096 + size.get() / CHUNK as u64 * 200;
    journal.rewind()?;
    journal.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes the records of chunks back that are not in `verified`. The data is durable, and is marked
/// so in their place: to write the journal anew would lose the others if this end were killed
/// meanwhile.
pub(super) fn take_back(
    journal: &mut File,
    format: &JournalFormat,
    verified: &VerifiedChunks,
    size: ByteCount,
) -> io::Result<()> {
    for place in format.places_of(&journal_content(journal, size)?, |index| {
        verified.hash_at(index).is_none()
    }) {
        journal.write_all_at(&format.durable_record(), place.get())?;
    }
    journal.seek(SeekFrom::End(0))?;
    write_durable_mark(journal, format, &[])?;
    journal.sync_data()
}

/// Returns true if the data has the content of this hash in a chunk.
pub(super) fn is_there(data: &File, size: ByteCount, index: u32, hash: &Digest) -> bool {
    let Some(length) = chunk_length(size, index) else {
        return false;
    };
    let mut content = vec![0; length];
    let read = data.read_exact_at(&mut content, block_offset(index, 0));
    read.is_ok() && chunk_hash(size, index, &content) == *hash
}
