use super::ownership::lock_outcome;
use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::protocol::{BLOCK, ZEROS, chunk_hash, chunk_length};

const IDENTITY: FileIdentity = FileIdentity([2; 32]);
const SIZE: ByteCount = ByteCount::new(3 * CHUNK as u64 + 10);
const TIME: ModificationTime = ModificationTime {
    seconds: 1000,
    nanoseconds: 5,
};

fn open(
    tree: &FolderTree,
    path: &EntryPath,
    identity: FileIdentity,
    verified: &mut VerifiedChunks,
) -> PartialFile {
    let (part, lost) = PartialFile::open_part(tree, path, SIZE, identity, verified).unwrap();
    assert!(lost.is_empty());
    part
}

/// A folder of the test's own, and the file in it.
fn place() -> (tempfile::TempDir, FolderTree, EntryPath) {
    let folder = tempfile::tempdir().unwrap();
    let tree = FolderTree::open_root(folder.path()).unwrap();
    (folder, tree, EntryPath::new("file").unwrap())
}

/// A part with these chunks.
fn part_with(
    tree: &FolderTree,
    path: &EntryPath,
    indexes: &[u32],
) -> (PartialFile, VerifiedChunks) {
    let mut verified = VerifiedChunks::new(SIZE);
    let mut part = open(tree, path, IDENTITY, &mut verified);
    for index in indexes {
        write(&mut part, &mut verified, *index, SIZE);
    }
    (part, verified)
}

fn working_path(folder: &tempfile::TempDir, tree: &FolderTree, path: &EntryPath) -> PathBuf {
    folder.path().join(OsStr::from_bytes(
        &working_entry(&tree.locate_entry(path).unwrap(), path, false).name,
    ))
}

fn content(index: u32, size: ByteCount) -> Vec<u8> {
    let length = chunk_length(size, index).unwrap();
    (0..length)
        .map(|at| (at as u32 * 7 + index) as u8)
        .collect()
}

fn write(part: &mut PartialFile, verified: &mut VerifiedChunks, index: u32, size: ByteCount) {
    let content = content(index, size);
    for (block, content) in (0..).zip(content.chunks(BLOCK)) {
        part.new_writer()
            .write_block(index, block, content)
            .unwrap();
    }
    let hash = chunk_hash(size, index, &content);
    if let Some(due) = part.record_chunk(index, &hash, content.len()).unwrap() {
        let synced = due.carry_out();
        part.end_sync(&due, synced).unwrap();
    }
    verified.insert_chunk(index, hash);
}

#[test]
fn a_part_that_was_left_is_continued_and_another_state_of_the_file_is_not() {
    let (folder, tree, path) = place();
    let size = SIZE;
    let mut verified = recover_chunks(&tree, &path, size, IDENTITY).unwrap();
    let mut part = open(&tree, &path, IDENTITY, &mut verified);
    for index in [3, 1] {
        write(&mut part, &mut verified, index, size);
    }
    let busy = recover_chunks(&tree, &path, size, IDENTITY).unwrap_err();
    assert_eq!(
        busy.kind(),
        io::ErrorKind::ResourceBusy,
        "two transfers write one file"
    );
    let small = recover_chunks(&tree, &path, ByteCount::new(1), IDENTITY).unwrap_err();
    assert_eq!(small.kind(), io::ErrorKind::ResourceBusy);
    drop(part);
    assert_eq!(
        recover_chunks(&tree, &path, size, IDENTITY).unwrap(),
        verified
    );
    let mut verified = recover_chunks(&tree, &path, size, IDENTITY).unwrap();
    let (mut part, lost) =
        PartialFile::open_part(&tree, &path, size, IDENTITY, &mut verified).unwrap();
    assert!(lost.is_empty() && part.is_locked);
    for index in [0, 2] {
        write(&mut part, &mut verified, index, size);
    }
    part.finish_file(0o640, TIME).unwrap();
    let whole: Vec<u8> = (0..4).flat_map(|index| content(index, size)).collect();
    assert!(fs::read(folder.path().join("file")).unwrap() == whole);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // A part of an older state is removed.
    drop(open(&tree, &path, IDENTITY, &mut VerifiedChunks::new(size)));
    assert_eq!(
        recover_chunks(&tree, &path, size, FileIdentity([3; 32]))
            .unwrap()
            .verified_bytes(),
        ByteCount::ZERO
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The journal once counted as long as the host ran. A disk that fails to write, or is pulled,
/// may lose the data alone.
#[test]
fn what_the_disk_has_lost_does_not_count_and_what_it_has_counts_for_good() {
    let (folder, tree, path) = place();
    let (part, mut verified) = part_with(&tree, &path, &[3, 1, 0]);
    drop(part);
    let lose = |chunk| {
        let file = File::options()
            .write(true)
            .open(working_path(&folder, &tree, &path))
            .unwrap();
        file.write_all_at(&ZEROS[..], chunk * CHUNK as u64).unwrap();
    };
    lose(1);
    let after = recover_chunks(&tree, &path, SIZE, IDENTITY).unwrap();
    verified.remove_chunk(1);
    assert_eq!(after, verified);
    // It was marked as durable, and is not read again.
    lose(0);
    assert_eq!(
        recover_chunks(&tree, &path, SIZE, IDENTITY).unwrap(),
        verified
    );
    let mut part = open(&tree, &path, IDENTITY, &mut verified);
    write(&mut part, &mut verified, 2, SIZE);
    drop(part);
    assert_eq!(
        recover_chunks(&tree, &path, SIZE, IDENTITY).unwrap(),
        verified
    );
    assert_eq!(
        recover_chunks(&tree, &path, SIZE, IDENTITY).unwrap(),
        verified
    );
}

/// Another copy to the same name may begin, and be killed, between the list of the first and
/// its first chunk.
#[test]
fn a_part_that_another_transfer_has_had_meanwhile_is_written_anew() {
    let (folder, tree, path) = place();
    let (mut verified, mut of_other) = (VerifiedChunks::new(SIZE), VerifiedChunks::new(SIZE));
    write(
        &mut open(&tree, &path, IDENTITY, &mut verified),
        &mut verified,
        1,
        SIZE,
    );
    // One of the same file has only more.
    let mut more = verified.clone();
    write(
        &mut open(&tree, &path, IDENTITY, &mut more),
        &mut more,
        3,
        SIZE,
    );
    drop(open(&tree, &path, IDENTITY, &mut verified));
    assert_eq!(recover_chunks(&tree, &path, SIZE, IDENTITY).unwrap(), more);
    // One of another file has other chunks.
    let mut other = open(&tree, &path, FileIdentity([3; 32]), &mut of_other);
    other.new_writer().write_block(0, 0, b"other").unwrap();
    write(&mut other, &mut of_other, 2, SIZE);
    drop(other);
    let (mut part, lost) =
        PartialFile::open_part(&tree, &path, SIZE, IDENTITY, &mut verified).unwrap();
    assert_eq!(
        (lost, verified.verified_bytes(), part.is_fresh),
        (vec![1], ByteCount::ZERO, true)
    );
    for index in [1, 2, 3] {
        write(&mut part, &mut verified, index, SIZE);
    }
    part.finish_file(0o640, TIME).unwrap();
    let whole = [
        vec![0; CHUNK],
        content(1, SIZE),
        content(2, SIZE),
        content(3, SIZE),
    ]
    .concat();
    assert!(fs::read(folder.path().join("file")).unwrap() == whole);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The kernel reports once that it could not write a page, and takes it for written from then
/// on.
#[test]
fn what_a_failed_fsync_may_have_lost_does_not_count_in_the_next_run() {
    let (folder, tree, path) = place();
    let (mut part, mut verified) = part_with(&tree, &path, &[1]);
    part.unmarked = DURABLE_INTERVAL;
    write(&mut part, &mut verified, 3, SIZE);
    let durable = verified.clone();
    write(&mut part, &mut verified, 0, SIZE);
    // A pipe has no fsync.
    let data = std::mem::replace(
        &mut part.data,
        Arc::new(File::from(OwnedFd::from(io::pipe().unwrap().0))),
    );
    part.make_durable().unwrap_err();
    part.data = data;
    write(&mut part, &mut verified, 2, SIZE);
    part.finish_file(0o640, TIME).unwrap_err();
    assert!(!folder.path().join("file").exists());
    assert_eq!(
        recover_chunks(&tree, &path, SIZE, IDENTITY).unwrap(),
        durable
    );
}

fn indexes(chunks: Vec<(u32, Digest)>) -> Vec<u32> {
    chunks.into_iter().map(|(index, _)| index).collect()
}

/// All connections of a file once waited while one made it durable.
#[test]
fn what_is_recorded_while_the_data_is_made_durable_is_behind_the_mark() {
    let (_folder, tree, path) = place();
    let (mut part, mut verified) = part_with(&tree, &path, &[1]);
    part.unmarked = DURABLE_INTERVAL;
    let due = part.record_chunk(3, &[3; 32], 10).unwrap().unwrap();
    part.unmarked = DURABLE_INTERVAL;
    write(&mut part, &mut verified, 0, SIZE);
    let recorded = |part: &mut PartialFile| {
        let (format, journal) = part.journal.as_mut().unwrap();
        let recovered = read_journal(journal, format, SIZE).unwrap().unwrap();
        (indexes(recovered.verified), indexes(recovered.doubtful))
    };
    // Whoever is killed now has nothing that is sure.
    assert_eq!(recorded(&mut part), (vec![], vec![1, 3, 3, 0]));
    let synced = due.carry_out();
    part.end_sync(&due, synced).unwrap();
    assert_eq!(recorded(&mut part), (vec![1, 3], vec![0]));
    assert!(part.record_chunk(2, &[2; 32], 10).unwrap().is_some());
}

/// The kernel says so only to the first who asks, which may be another thread than the one that
/// ends the file.
#[test]
fn a_sync_that_fails_ends_the_file_even_if_another_thread_gives_it_its_name() {
    let (folder, tree, path) = place();
    let (mut part, _) = part_with(&tree, &path, &[0, 1, 2]);
    part.unmarked = DURABLE_INTERVAL;
    let mut due = part.record_chunk(3, &[3; 32], 10).unwrap().unwrap();
    // A pipe has no fsync.
    due.data = Arc::new(File::from(OwnedFd::from(io::pipe().unwrap().0)));
    due.carry_out().unwrap_err();
    part.make_durable().unwrap_err();
    part.finish_file(0o640, TIME).unwrap_err();
    assert!(!folder.path().join("file").exists());
    assert_eq!(
        recover_chunks(&tree, &path, SIZE, IDENTITY)
            .unwrap()
            .verified_bytes(),
        ByteCount::ZERO
    );
}

/// The journal was cut to nothing and written anew: who was killed in between began from
/// nothing.
#[test]
fn a_journal_that_cannot_shrink_is_enough_to_take_back_what_is_wrong_on_the_disk() {
    let (_folder, tree, path) = place();
    let (mut part, mut verified) = part_with(&tree, &path, &[3, 1, 0]);
    let (_, journal) = part.journal.as_mut().unwrap();
    let mut sealed = File::from(memfd_create("journal", MemfdFlags::ALLOW_SEALING).unwrap());
    journal.rewind().unwrap();
    io::copy(journal, &mut sealed).unwrap();
    fcntl_add_seals(&sealed, SealFlags::SHRINK).unwrap();
    *journal = sealed;
    part.new_writer().write_block(1, 0, b"wrong").unwrap();
    assert_eq!(part.wrong_on_disk(&mut verified).unwrap(), [1]);
    write(&mut part, &mut verified, 2, SIZE);
    let (format, journal) = part.journal.as_mut().unwrap();
    let recovered = read_journal(journal, format, SIZE).unwrap().unwrap();
    assert_eq!(
        (indexes(recovered.verified), indexes(recovered.doubtful)),
        (vec![3, 0], vec![2])
    );
}

#[test]
fn a_journal_that_cannot_take_back_what_is_wrong_does_not_count() {
    let (_folder, tree, path) = place();
    let (mut part, mut verified) = part_with(&tree, &path, &[1]);
    let (_, journal) = part.journal.as_mut().unwrap();
    *journal = File::open(format!("/proc/self/fd/{}", journal.as_raw_fd())).unwrap();
    part.new_writer().write_block(1, 0, b"wrong").unwrap();
    part.wrong_on_disk(&mut verified).unwrap_err();
    drop(part);
    assert_eq!(
        recover_chunks(&tree, &path, SIZE, IDENTITY)
            .unwrap()
            .verified_bytes(),
        ByteCount::ZERO
    );
}

#[test]
fn what_has_taken_a_working_name_gets_no_other_and_stays() {
    for size in [SIZE, ByteCount::new(5)] {
        let folder = tempfile::tempdir().unwrap();
        let (tree, path) = (
            FolderTree::open_root(folder.path()).unwrap(),
            EntryPath::new("file").unwrap(),
        );
        let (part, _) =
            PartialFile::open_part(&tree, &path, size, IDENTITY, &mut VerifiedChunks::new(size))
                .unwrap();
        let working = working_path(&folder, &tree, &path);
        fs::remove_file(&working).unwrap();
        fs::write(&working, "half of another").unwrap();
        part.finish_file(0o640, TIME).unwrap_err();
        assert!(!folder.path().join("file").exists());
        assert_eq!(fs::read(&working).unwrap(), b"half of another");
    }
}

#[test]
fn a_file_that_was_removed_before_it_was_locked_belongs_to_another_transfer() {
    let (_folder, tree, path) = place();
    let within = working_entry(&tree.locate_entry(&path).unwrap(), &path, false);
    let made = within
        .open_file(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
        .unwrap();
    let part = open(&tree, &path, IDENTITY, &mut VerifiedChunks::new(SIZE));
    assert_eq!(
        lock_opened(&within, made).unwrap_err().kind(),
        io::ErrorKind::ResourceBusy
    );
    assert!(within.is_same_file(part.file()).unwrap());
    assert_eq!(
        remove_unlocked(&within).unwrap_err().kind(),
        io::ErrorKind::ResourceBusy
    );
}

#[test]
fn a_file_system_without_locks_can_be_written() {
    assert_eq!(lock_outcome(Ok(())).unwrap(), Some(true));
    for (error, taken) in [
        (Errno::WOULDBLOCK, None),
        (Errno::INTR, None),
        (Errno::NOLCK, Some(false)),
        (Errno::NOSYS, Some(false)),
        (Errno::OPNOTSUPP, Some(false)),
    ] {
        assert_eq!(lock_outcome(Err(error)).unwrap(), taken, "{error}");
    }
    assert!(lock_outcome(Err(Errno::BADF)).is_err());
}

#[test]
fn what_is_left_of_a_file_is_removed_unless_it_is_being_written() {
    let (folder, tree, path) = place();
    let count = || fs::read_dir(folder.path()).unwrap().count();
    let part = open(&tree, &path, IDENTITY, &mut VerifiedChunks::new(SIZE));
    remove_left(&tree, &path).unwrap();
    assert_eq!(count(), 2);
    drop(part);
    remove_left(&tree, &path).unwrap();
    assert_eq!(count(), 0);
    // Only its journal outlives a transfer that was killed when its file had its name.
    drop(open(&tree, &path, IDENTITY, &mut VerifiedChunks::new(SIZE)));
    fs::remove_file(working_path(&folder, &tree, &path)).unwrap();
    remove_left(&tree, &path).unwrap();
    assert_eq!(count(), 0);
}

#[test]
fn a_working_name_that_somebody_prepared_is_not_written_through() {
    let (folder, tree, path) = place();
    let working = working_path(&folder, &tree, &path);
    let victim = folder.path().join("victim");
    fs::write(&victim, "victim").unwrap();
    for prepare in [std::os::unix::fs::symlink::<_, _>, fs::hard_link] {
        prepare(victim.as_path(), working.as_path()).unwrap();
        let size = ByteCount::new(3);
        let (part, _) =
            PartialFile::open_part(&tree, &path, size, IDENTITY, &mut VerifiedChunks::new(size))
                .unwrap();
        part.new_writer().write_block(0, 0, b"new").unwrap();
        part.finish_file(0o600, ModificationTime::default())
            .unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"victim");
    }
}
