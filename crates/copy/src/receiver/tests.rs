mod deletion;

use super::arriving::MAX_BEGUN;
use super::*;
use crate::control::MessageSender;
use crate::finish::finish_copy;
use crate::part::working_entry;
use crate::pulse::SilenceWatch;
use fullpipe_control::BlockCompressor;
use rustix::fs::Mode;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use crate::protocol::{
    AGAIN, BLOCK, CHUNK, DataHead, DataHeader, Digest, ZEROS, block_hash, chunk_hash,
};

/// The bytes that were sent to the other end, and whether that has gone.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<u8>>>, Arc<SharedFlag>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.is_raised() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        lock(&self.0).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Bench {
    receiver: Arc<FileReceiver>,
    sent: Sent,
    folder: tempfile::TempDir,
    writer: thread::JoinHandle<()>,
}

impl Bench {
    fn new(tops: Option<&[&str]>) -> Self {
        let tops = tops.map(|tops| tops.iter().map(|top| top.as_bytes().to_vec()).collect());
        Self::with(|options| options.tops = tops)
    }

    fn with(change: impl FnOnce(&mut ReceiveOptions)) -> Self {
        Self::within(tempfile::tempdir().unwrap(), change)
    }

    fn within(folder: tempfile::TempDir, change: impl FnOnce(&mut ReceiveOptions)) -> Self {
        let sent = Sent::default();
        let (out, writer) =
            MessageSender::start_writer(sent.clone(), &SilenceWatch::new(Duration::from_secs(9)))
                .unwrap();
        let mut options = ReceiveOptions {
            root: FolderRoot::User,
            path: folder.path().to_owned(),
            dry_run: false,
            delete: true,
            excludes: ExcludePatterns::default(),
            verify_disk: true,
            attributes: true,
            timeout: Duration::from_secs(2),
            tops: None,
        };
        change(&mut options);
        let receiver = Arc::new(FileReceiver::new(
            TransferContext::new(out, Arc::default(), None),
            options,
        ));
        receiver
            .handle_message(CopyMessage::Begin {
                single: false,
                content: true,
            })
            .unwrap();
        Self {
            receiver,
            sent,
            folder,
            writer,
        }
    }

    fn entry(&self, path: &str, kind: EntryKind) -> Result<(), CopyError> {
        self.entry_with(path, kind, ExtendedAttributes::default())
    }

    fn entry_with(
        &self,
        path: &str,
        kind: EntryKind,
        attributes: ExtendedAttributes,
    ) -> Result<(), CopyError> {
        self.handle(CopyMessage::Entry(TreeEntry {
            path: EntryPath::new(path).unwrap(),
            kind,
            attributes,
        }))
    }

    /// Carries out a message, and waits until files that are whole by it are completed.
    fn handle(&self, message: CopyMessage<'_>) -> Result<(), CopyError> {
        let handled = self.receiver.handle_message(message);
        while lock(&self.receiver.whole).is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        handled
    }

    fn file(&self, path: &str, size: u64) -> Result<(), CopyError> {
        let modified = ModificationTime {
            seconds: 1_000_000,
            nanoseconds: 7,
        };
        let kind = EntryKind::File {
            mode: 0o640,
            modified,
            size: ByteCount::new(size),
            identity: FileIdentity([1; 32]),
        };
        self.entry(path, kind)
    }

    /// Sends a chunk, its last block first.
    fn data(&self, file: u32, chunk: u32, size: u64, content: &[u8]) -> Result<(), CopyError> {
        let mut blocks: Vec<_> = (0..).zip(content.chunks(BLOCK)).collect();
        blocks.reverse();
        blocks
            .into_iter()
            .try_for_each(|(block, content)| self.block([file, chunk], block, size, content))
    }

    fn block(
        &self,
        [file, chunk]: [u32; 2],
        block: u8,
        size: u64,
        content: &[u8],
    ) -> Result<(), CopyError> {
        let hash = block_hash(ByteCount::new(size), chunk, block, content);
        self.handle(data(file, chunk, block, hash, content))
    }

    /// Ends the list, and returns everything that was sent.
    fn end(self) -> (Vec<CopyMessage<'static>>, tempfile::TempDir) {
        self.receiver
            .handle_message(CopyMessage::EndOfList { complete: true })
            .unwrap();
        finish_copy(&self.receiver);
        self.receiver.common.out.close_direction();
        self.writer.join().unwrap();
        let bytes = lock(&self.sent.0).clone().leak();
        let mut frames = Vec::new();
        let mut rest: &'static [u8] = bytes;
        while let Some((length, more)) = rest.split_first_chunk() {
            let (frame, more) = more.split_at(u32::from_le_bytes(*length) as usize);
            // On a busy host a test lasts so long that this end says that it is there.
            if !frame.is_empty() {
                frames.push(CopyMessage::read(frame).unwrap());
            }
            rest = more;
        }
        (frames, self.folder)
    }
}

fn data(file: u32, chunk: u32, block: u8, hash: Digest, content: &[u8]) -> CopyMessage<'_> {
    CopyMessage::Data {
        header: DataHeader {
            file,
            chunk,
            block,
            reports: true,
            packed: false,
            hash,
        },
        content,
    }
}

fn outcomes(sent: &[CopyMessage<'_>]) -> Vec<(u32, FileOutcome)> {
    let outcome = |message: &CopyMessage<'_>| match message {
        CopyMessage::Outcome { file, outcome } => Some((*file, outcome.clone())),
        _ => None,
    };
    sent.iter().filter_map(outcome).collect()
}

#[test]
fn a_chunk_that_arrives_wrong_is_wanted_again() {
    let bench = Bench::new(None);
    bench.file("file", 5).unwrap();
    let hash = chunk_hash(ByteCount::new(5), 0, b"right");
    bench.handle(data(0, 0, 0, hash, b"wrong")).unwrap();
    assert!(!bench.folder.path().join("file").exists());
    bench.data(0, 0, 5, b"right").unwrap();
    let (sent, folder) = bench.end();
    let wanted = sent
        .iter()
        .filter(|message| matches!(message, CopyMessage::Want { file: 0, .. }))
        .count();
    assert_eq!((wanted, outcomes(&sent).len()), (2, 1));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"right");
    let state = fs::metadata(folder.path().join("file")).unwrap();
    assert_eq!(
        (
            state.permissions().mode() & 0o777,
            state.mtime(),
            state.mtime_nsec()
        ),
        (0o640, 1_000_000, 7)
    );
}

/// A copy to `/dev/null` by root once made a file of it.
#[test]
fn devices_pipes_and_sockets_are_not_replaced() {
    let bench = Bench::new(None);
    let names = ["file", "link"].map(|name| bench.folder.path().join(name));
    let _sockets = names
        .each_ref()
        .map(|name| UnixListener::bind(name).unwrap());
    bench.file("file", 5).unwrap();
    bench
        .entry(
            "link",
            EntryKind::SymbolicLink {
                target: b"target".to_vec(),
            },
        )
        .unwrap();
    let (sent, _folder) = bench.end();
    let why = "a device, a pipe or a socket has its name";
    assert_eq!(outcomes(&sent), [(0, FileOutcome::Failed(why.to_owned()))]);
    assert!(
        sent.iter()
            .any(|message| format!("{message:?}").contains(&format!("link: {why}"))),
        "{sent:?}"
    );
    assert!(
        names
            .iter()
            .all(|name| fs::symlink_metadata(name).unwrap().file_type().is_socket())
    );
}

/// As rsync does.
#[test]
fn a_pipe_that_the_sender_lacks_is_deleted_and_one_that_it_leaves_out_is_not() {
    let bench = Bench::new(None);
    let pipe = |name: &str| {
        let path = bench.folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR).unwrap();
        path
    };
    let (lacking, left_out) = (pipe("lacking"), pipe("left-out"));
    let _socket = UnixListener::bind(bench.folder.path().join("socket")).unwrap();
    fs::write(bench.folder.path().join("other"), "no pipe here").unwrap();
    for name in ["left-out", "other"] {
        bench.entry(name, EntryKind::LeftOut).unwrap();
    }
    let (sent, folder) = bench.end();
    assert!(!lacking.exists() && left_out.exists() && folder.path().join("other").exists());
    let deleted = sent.iter().filter_map(|message| match message {
        CopyMessage::Deleted { path } => Some(path.to_string()),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), ["lacking", "socket"]);
}

#[test]
fn attributes_that_cannot_be_set_are_said_once_and_nothing_fails() {
    let bench = Bench::new(None);
    for name in ["one", "two"] {
        let mut attributes = ExtendedAttributes::default();
        attributes
            .insert_attribute(b"system.posix_acl_access", b"nonsense")
            .unwrap();
        let kind = EntryKind::Folder {
            mode: 0o755,
            modified: ModificationTime::default(),
        };
        bench.entry_with(name, kind, attributes).unwrap();
    }
    let (sent, folder) = bench.end();
    let notes = sent
        .iter()
        .filter(|message| matches!(message, CopyMessage::Note { .. }))
        .count();
    let failed = sent
        .iter()
        .any(|message| matches!(message, CopyMessage::Unreadable { .. }));
    assert_eq!((notes, failed), (1, false), "{sent:?}");
    assert!(folder.path().join("one").is_dir() && folder.path().join("two").is_dir());
}

/// Changes a byte of the working file of `file`, as a disk might.
fn spoil(bench: &Bench, offset: u64) {
    let tree = FolderTree::open_root(bench.folder.path()).unwrap();
    let path = EntryPath::new("file").unwrap();
    let working = working_entry(&tree.locate_entry(&path).unwrap(), &path, false);
    working
        .open_file(rustix::fs::OFlags::WRONLY)
        .unwrap()
        .write_all_at(b"?", offset)
        .unwrap();
}

fn wanted(sent: &[CopyMessage<'_>]) -> Vec<(u32, u32)> {
    let wanted = |message: &CopyMessage<'_>| match message {
        CopyMessage::Want { chunks, .. } => Some((chunks.first, chunks.count)),
        _ => None,
    };
    sent.iter().filter_map(wanted).collect()
}

#[test]
fn what_a_disk_has_changed_is_found_and_wanted_again_before_the_file_has_its_name() {
    let size = 3 * CHUNK as u64;
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    let chunk = |index: u8| vec![index; CHUNK];
    for index in [0, 1] {
        bench.data(0, index, size, &chunk(index as u8)).unwrap();
    }
    spoil(&bench, 5);
    spoil(&bench, CHUNK as u64 + 77);
    bench.data(0, 2, size, &chunk(2)).unwrap();
    assert!(!bench.folder.path().join("file").exists());
    bench.data(0, 1, size, &chunk(1)).unwrap();
    spoil(&bench, CHUNK as u64 + 78);
    bench.data(0, 0, size, &chunk(0)).unwrap();
    assert!(!bench.folder.path().join("file").exists());
    bench.data(0, 1, size, &chunk(1)).unwrap();
    let (sent, folder) = bench.end();
    assert_eq!(wanted(&sent), [(0, 3), (0, 1), (1, 1), (1, 1)]);
    assert!(
        matches!(outcomes(&sent)[..], [(0, FileOutcome::Copied(_))]),
        "{sent:?}"
    );
    assert!(
        fs::read(folder.path().join("file")).unwrap() == [chunk(0), chunk(1), chunk(2)].concat()
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_hole_that_a_disk_has_changed_is_made_again() {
    let size = 2 * CHUNK as u64;
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    let hole = || {
        bench.handle(data(
            0,
            1,
            0,
            chunk_hash(ByteCount::new(size), 1, &ZEROS),
            b"",
        ))
    };
    hole().unwrap();
    spoil(&bench, CHUNK as u64 + 5);
    bench.data(0, 0, size, &vec![7; CHUNK]).unwrap();
    hole().unwrap();
    assert!(bench.receiver.is_settled());
    let (sent, folder) = bench.end();
    assert_eq!(
        (wanted(&sent), outcomes(&sent).len()),
        (vec![(0, 2), (1, 1)], 1)
    );
    assert!(
        fs::read(folder.path().join("file")).unwrap() == [vec![7; CHUNK], ZEROS.to_vec()].concat()
    );
}

/// A file that took long to read back kept this end from reading, and the other one took it for
/// gone.
#[test]
fn the_thread_that_reads_messages_does_not_complete_large_files() {
    let (size, folder) = (2 * CHUNK as u64, tempfile::tempdir().unwrap());
    // One is whole but for its name, and one lacks a chunk.
    leave_chunks(folder.path(), "whole", size, 1, &[0, 1]);
    leave(folder.path(), "part", size, 1, 0);
    let bench = Bench::within(folder, |options| options.delete = false);
    // As if a thread were completing another file.
    *lock(&bench.receiver.whole) = Some(VecDeque::new());
    for name in ["whole", "part"] {
        let modified = ModificationTime::default();
        let identity = FileIdentity([1; 32]);
        let kind = EntryKind::File {
            mode: 0o640,
            modified,
            size: ByteCount::new(size),
            identity,
        };
        let entry = TreeEntry {
            path: EntryPath::new(name).unwrap(),
            kind,
            attributes: ExtendedAttributes::default(),
        };
        bench
            .receiver
            .handle_message(CopyMessage::Entry(entry))
            .unwrap();
    }
    let content = vec![2; CHUNK];
    for (block, content) in (0..).zip(content.chunks(BLOCK)) {
        let hash = block_hash(ByteCount::new(size), 1, block, content);
        bench
            .receiver
            .handle_message(data(1, 1, block, hash, content))
            .unwrap();
    }
    let names = ["whole", "part"].map(|name| bench.folder.path().join(name));
    assert!(!names.iter().any(|name| name.exists()) && !bench.receiver.is_settled());
    // What comes late of a file that is whole does not change it.
    bench
        .receiver
        .handle_message(CopyMessage::Unreadable {
            file: 0,
            why: "it changed".to_owned(),
        })
        .unwrap();
    bench.receiver.complete_waiting();
    assert!(names.iter().all(|name| name.exists()) && bench.receiver.is_settled());
    let (sent, _folder) = bench.end();
    assert!(
        matches!(
            outcomes(&sent)[..],
            [(0, FileOutcome::Copied(_)), (1, FileOutcome::Copied(_))]
        ),
        "{sent:?}"
    );
}

#[test]
fn a_disk_that_keeps_nothing_is_named_and_the_other_end_is_not() {
    let size = 2 * CHUNK as u64;
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    bench.data(0, 1, size, &vec![1; CHUNK]).unwrap();
    for round in 0..20 {
        let (chunk, other) = (round % 2, 1 - round % 2);
        spoil(&bench, u64::from(other) * CHUNK as u64);
        bench
            .data(0, chunk, size, &vec![chunk as u8; CHUNK])
            .unwrap();
        if bench.receiver.is_settled() {
            break;
        }
    }
    assert!(bench.receiver.is_settled());
    let (sent, folder) = bench.end();
    let why = "its disk does not keep what is written".to_owned();
    assert_eq!(
        (outcomes(&sent), wanted(&sent).len()),
        (vec![(0, FileOutcome::Failed(why))], 11)
    );
    assert!(!folder.path().join("file").exists());
}

/// Leaves a chunk of the file `name` of `size` bytes behind, as a transfer that is killed.
fn leave(folder: &Path, name: &str, size: u64, identity: u8, chunk: u32) {
    leave_chunks(folder, name, size, identity, &[chunk]);
}

fn leave_chunks(folder: &Path, name: &str, size: u64, identity: u8, chunks: &[u32]) {
    let (tree, path, size) = (
        FolderTree::open_root(folder).unwrap(),
        EntryPath::new(name).unwrap(),
        ByteCount::new(size),
    );
    let (identity, verified) = (FileIdentity([identity; 32]), &mut VerifiedChunks::new(size));
    let (mut part, _) = PartialFile::open_part(&tree, &path, size, identity, verified).unwrap();
    for chunk in chunks {
        let content = vec![*chunk as u8 + 1; CHUNK];
        for (block, content) in (0..).zip(content.chunks(BLOCK)) {
            part.new_writer()
                .write_block(*chunk, block, content)
                .unwrap();
        }
        part.record_chunk(*chunk, &chunk_hash(size, *chunk, &content), CHUNK)
            .unwrap();
    }
}

/// The first ended with the other's chunks in its file, and without a word.
#[test]
fn a_copy_that_another_one_came_before_after_its_list_wants_again_what_is_lost() {
    let size = 4 * CHUNK as u64;
    let folder = tempfile::tempdir().unwrap();
    leave(folder.path(), "file", size, 1, 0);
    let bench = Bench::within(folder, |options| options.verify_disk = false);
    bench.file("file", size).unwrap();
    leave(bench.folder.path(), "file", size, 9, 2);
    for chunk in [1, 2, 3] {
        bench
            .data(0, chunk, size, &vec![chunk as u8; CHUNK])
            .unwrap();
    }
    assert!(!bench.folder.path().join("file").exists());
    bench.data(0, 0, size, &vec![0; CHUNK]).unwrap();
    let (sent, folder) = bench.end();
    assert_eq!(
        (wanted(&sent), outcomes(&sent).len()),
        (vec![(1, 3), (0, 1)], 1)
    );
    let expected: Vec<u8> = (0..4).flat_map(|chunk| vec![chunk; CHUNK]).collect();
    assert!(fs::read(folder.path().join("file")).unwrap() == expected);
}

/// Holds the file `name`, as another transfer that writes it.
fn hold(folder: &Path, name: &str) -> PartialFile {
    let (tree, path, size) = (
        FolderTree::open_root(folder).unwrap(),
        EntryPath::new(name).unwrap(),
        ByteCount::new(9),
    );
    PartialFile::open_part(
        &tree,
        &path,
        size,
        FileIdentity([9; 32]),
        &mut VerifiedChunks::new(size),
    )
    .unwrap()
    .0
}

/// It kept its place at a server, its threads and its connections for as long as the other transfer
/// lasted.
#[test]
fn a_copy_whose_other_end_has_gone_waits_for_no_file() {
    let bench = Bench::with(|options| options.timeout = Duration::from_hours(1));
    let _held = ["file", "link"].map(|name| hold(bench.folder.path(), name));
    bench.sent.1.raise_flag();
    let (done, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        bench.file("file", 2 * CHUNK as u64).unwrap();
        bench
            .entry(
                "link",
                EntryKind::SymbolicLink {
                    target: b"target".to_vec(),
                },
            )
            .unwrap();
        done.send(()).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok());
}

#[test]
fn a_hard_link_waits_for_another_transfer_as_files_do() {
    let bench = Bench::with(|options| options.timeout = Duration::from_secs(20));
    bench.file("empty", 0).unwrap();
    bench
        .entry(
            "hard",
            EntryKind::HardLink {
                first: EntryPath::new("empty").unwrap(),
            },
        )
        .unwrap();
    let (held, sent) = (hold(bench.folder.path(), "hard"), bench.sent.clone());
    let other = thread::spawn(move || {
        let waits =
            || String::from_utf8_lossy(&lock(&sent.0)).contains("another transfer holds hard");
        let until = Instant::now() + Duration::from_secs(5);
        while !waits() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        drop(held);
    });
    let (sent, folder) = bench.end();
    other.join().unwrap();
    assert!(
        !sent
            .iter()
            .any(|message| matches!(message, CopyMessage::Unreadable { .. })),
        "{sent:?}"
    );
    let inode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().ino();
    assert_eq!(inode("hard"), inode("empty"));
}

/// Each was named to the user before the reason for the end.
#[test]
fn connections_that_end_with_a_copy_that_has_failed_are_no_news() {
    for has_failed in [false, true] {
        let bench = Bench::new(None);
        if has_failed {
            bench.receiver.abort_transfer(CopyError::Gone);
        }
        bench
            .receiver
            .receive_stream(&DataHead::Stream(3).to_bytes()[..], false);
        bench.receiver.receive_stream(&[][..], true);
        bench.receiver.common.out.close_direction();
        bench.writer.join().unwrap();
        let lost = CopyMessage::Lost { index: 3 }.to_frame();
        assert_eq!(
            *lock(&bench.sent.0),
            if has_failed { Vec::new() } else { lost }
        );
    }
}

#[test]
fn a_link_that_cannot_have_its_name_leaves_nothing_behind() {
    let bench = Bench::with(|options| options.delete = false);
    for name in ["symbolic", "hard"] {
        fs::create_dir_all(bench.folder.path().join(name).join("inner")).unwrap();
    }
    bench.file("empty", 0).unwrap();
    bench
        .entry(
            "symbolic",
            EntryKind::SymbolicLink {
                target: b"target".to_vec(),
            },
        )
        .unwrap();
    bench
        .entry(
            "hard",
            EntryKind::HardLink {
                first: EntryPath::new("empty").unwrap(),
            },
        )
        .unwrap();
    let (sent, folder) = bench.end();
    let problems = sent
        .iter()
        .filter(|message| matches!(message, CopyMessage::Unreadable { .. }))
        .count();
    assert_eq!(
        (problems, fs::read_dir(folder.path()).unwrap().count()),
        (2, 3),
        "{sent:?}"
    );
}

#[test]
fn what_killed_copies_have_left_goes_unless_the_sender_has_the_file() {
    let size = 2 * CHUNK as u64;
    let folder = tempfile::tempdir().unwrap();
    for name in ["gone", "coming", "there"] {
        leave(folder.path(), name, size, 1, 0);
    }
    let there = fs::File::create(folder.path().join("there")).unwrap();
    there.set_len(size).unwrap();
    there
        .set_modified(std::time::UNIX_EPOCH + Duration::new(1_000_000, 7))
        .unwrap();
    let bench = Bench::within(folder, |options| options.verify_disk = false);
    for name in ["coming", "there"] {
        bench.file(name, size).unwrap();
    }
    bench.receiver.fail_file(0, "it vanished".to_owned());
    let (sent, folder) = bench.end();
    assert!(
        matches!(
            outcomes(&sent)[..],
            [(1, FileOutcome::Present), (0, FileOutcome::Failed(_))]
        ),
        "{sent:?}"
    );
    let names = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names
        .map(|name| name.to_str().unwrap().chars().take(7).collect::<String>())
        .collect();
    names.sort();
    assert_eq!(names, [".coming", ".coming", "there"]);
}

fn again(bench: &Bench, file: u32, size: u64) -> Result<(), CopyError> {
    let modified = ModificationTime {
        seconds: 2_000_000,
        nanoseconds: 0,
    };
    let kind = EntryKind::File {
        mode: 0o600,
        modified,
        size: ByteCount::new(size),
        identity: FileIdentity([2; 32]),
    };
    let entry = TreeEntry {
        path: EntryPath::new("ignored").unwrap(),
        kind,
        attributes: ExtendedAttributes::default(),
    };
    bench.handle(CopyMessage::Again { file, entry })
}

#[test]
fn a_file_that_changed_comes_again_and_nothing_of_its_old_state_is_kept() {
    let size = 2 * CHUNK as u64;
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    bench.file("small", 5).unwrap();
    bench.data(0, 0, size, &vec![1; CHUNK]).unwrap();
    again(&bench, 0, size + 3).unwrap();
    again(&bench, 1, 3).unwrap();
    again(&bench, 0, size).unwrap();
    // On its way when the file changed.
    bench.data(0, 1, size, &vec![1; CHUNK]).unwrap();
    bench.data(1, 0, 5, b"right").unwrap();
    let second = [vec![2; CHUNK], vec![3; CHUNK], b"end".to_vec()];
    for (chunk, content) in second.iter().enumerate() {
        bench.data(AGAIN, chunk as u32, size + 3, content).unwrap();
    }
    bench.data(AGAIN | 1, 0, 3, b"new").unwrap();
    let (sent, folder) = bench.end();
    assert!(
        matches!(
            outcomes(&sent)[..],
            [(AGAIN, FileOutcome::Copied(_)), (_, FileOutcome::Copied(_))]
        ),
        "{sent:?}"
    );
    assert!(fs::read(folder.path().join("file")).unwrap() == second.concat());
    assert_eq!(fs::read(folder.path().join("small")).unwrap(), b"new");
    assert_eq!(
        fs::metadata(folder.path().join("file")).unwrap().mtime(),
        2_000_000
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_file_that_changes_is_repeated_once_and_only_if_it_was_listed() {
    let bench = Bench::new(None);
    bench.file("file", 5).unwrap();
    let protocol = |result| assert!(matches!(result, Err(CopyError::Protocol(_))), "{result:?}");
    protocol(again(&bench, 1, 5));
    protocol(again(&bench, AGAIN, 5));
    protocol(again(&bench, 0, u64::MAX));
    again(&bench, 0, 0).unwrap();
    let (sent, folder) = bench.end();
    assert!(
        matches!(outcomes(&sent)[..], [(AGAIN, FileOutcome::Copied(_))]),
        "{sent:?}"
    );
    assert_eq!(fs::metadata(folder.path().join("file")).unwrap().len(), 0);
}

#[test]
fn chunks_of_any_order_and_holes_make_one_file() {
    let size = 2 * CHUNK as u64 + 3;
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    bench.data(0, 2, size, b"end").unwrap();
    let hash = chunk_hash(ByteCount::new(size), 1, &ZEROS);
    bench.handle(data(0, 1, 0, hash, b"")).unwrap();
    bench.data(0, 2, size, b"end").unwrap();
    let first = vec![7; CHUNK];
    bench.data(0, 0, size, &first).unwrap();
    bench.data(0, 0, size, &first).unwrap();
    let (sent, folder) = bench.end();
    let expected = [&first[..], &ZEROS, b"end"].concat();
    let mut whole = VerifiedChunks::new(ByteCount::new(size));
    for (index, chunk) in expected.chunks(CHUNK).enumerate() {
        whole.insert_chunk(
            index as u32,
            chunk_hash(ByteCount::new(size), index as u32, chunk),
        );
    }
    assert_eq!(
        outcomes(&sent),
        [(0, FileOutcome::Copied(whole.file_digest().unwrap()))]
    );
    assert!(fs::read(folder.path().join("file")).unwrap() == expected);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left of the transfer"
    );
}

#[test]
fn blocks_of_a_chunk_come_in_any_order_and_twice_and_the_sender_learns_which() {
    let size = CHUNK as u64 + 3;
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    let content: Vec<u8> = (0..CHUNK).map(|at| (at >> 9) as u8).collect();
    let block = |index: u8| &content[usize::from(index) * BLOCK..][..BLOCK];
    for index in [5, 15, 5, 0] {
        bench.block([0, 0], index, size, block(index)).unwrap();
    }
    let hash = block_hash(ByteCount::new(size), 0, 7, block(7));
    bench.handle(data(0, 0, 7, hash, block(8))).unwrap();
    assert_eq!(bench.receiver.begun.load(Ordering::Relaxed), 1);
    bench.data(0, 0, size, &content).unwrap();
    bench.block([0, 0], 3, size, block(3)).unwrap();
    bench.data(0, 1, size, b"end").unwrap();
    bench.block([0, 0], 3, size, block(3)).unwrap();
    assert_eq!(bench.receiver.begun.load(Ordering::Relaxed), 0);
    let (sent, folder) = bench.end();
    let got = sent.iter().filter_map(|message| match message {
        CopyMessage::Got { chunk, missing, .. } => Some((*chunk, *missing)),
        _ => None,
    });
    let got: Vec<_> = got.collect();
    assert_eq!(got[..3], [(0, 0xffdf), (0, 0x7fdf), (0, 0x7fde)]);
    assert_eq!(
        (got.len(), &got[got.len() - 2..]),
        (3 + 13 + 1, &[(0, 0), (1, 0)][..]),
        "{got:?}"
    );
    let wanted = sent
        .iter()
        .filter(|message| matches!(message, CopyMessage::Want { .. }))
        .count();
    assert_eq!(
        wanted, 2,
        "the file, and the chunk of which a block was wrong"
    );
    assert!(fs::read(folder.path().join("file")).unwrap() == [&content[..], b"end"].concat());
}

#[test]
fn a_hole_takes_the_place_of_blocks_and_a_sender_that_begins_too_many_chunks_is_refused() {
    let (size, sevens) = (CHUNK as u64, vec![7; BLOCK]);
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    bench.file("other", 2 * size).unwrap();
    bench.block([0, 0], 3, size, &sevens).unwrap();
    bench
        .handle(data(
            0,
            0,
            0,
            chunk_hash(ByteCount::new(size), 0, &ZEROS),
            b"",
        ))
        .unwrap();
    assert!(fs::read(bench.folder.path().join("file")).unwrap() == *ZEROS);
    assert_eq!(bench.receiver.begun.load(Ordering::Relaxed), 0);
    bench.block([1, 0], 3, 2 * size, &sevens).unwrap();
    bench.receiver.begun.store(MAX_BEGUN, Ordering::Relaxed);
    assert!(matches!(
        bench.block([1, 1], 0, 2 * size, &sevens),
        Err(CopyError::Protocol(_))
    ));
}

#[test]
fn a_compressed_block_is_what_it_says_or_wanted_again() {
    let size = BLOCK as u64 + 5;
    let bench = Bench::new(None);
    bench.file("file", size).unwrap();
    let text = b"text".repeat(BLOCK / 4);
    let compressed = |content: &[u8]| {
        let mut packed = vec![0; BLOCK];
        let length = BlockCompressor::new()
            .unwrap()
            .compress_block(1, content, &mut packed)
            .unwrap();
        packed.truncate(length);
        packed
    };
    let block = |number: u8, of: &[u8], packed: &[u8]| {
        let hash = block_hash(ByteCount::new(size), 0, number, of);
        let header = DataHeader {
            file: 0,
            chunk: 0,
            block: number,
            reports: true,
            packed: true,
            hash,
        };
        bench
            .handle(CopyMessage::Data {
                header,
                content: packed,
            })
            .unwrap();
    };
    let bomb = compressed(&vec![0; 64 << 20]);
    let wrong = [
        &b""[..],
        b"no frame",
        &bomb,
        &compressed(b""),
        &compressed(&text[1..]),
        &compressed(b"texts"),
    ];
    for wrong in wrong {
        block(0, &text, wrong);
    }
    assert_eq!(
        bench.receiver.begun.load(Ordering::Relaxed),
        0,
        "nothing was written"
    );
    block(0, &text, &compressed(&text));
    block(1, b"right", &compressed(b"right"));
    let (sent, folder) = bench.end();
    let wanted = sent
        .iter()
        .filter(|message| matches!(message, CopyMessage::Want { file: 0, .. }))
        .count();
    assert_eq!(wanted, 1 + wrong.len());
    assert!(fs::read(folder.path().join("file")).unwrap() == [&text[..], b"right"].concat());
}

#[test]
fn a_sender_that_lies_is_refused() {
    let bench = Bench::new(Some(&["asked"]));
    bench.file("asked", 5).unwrap();
    let protocol = |result| assert!(matches!(result, Err(CopyError::Protocol(_))), "{result:?}");
    protocol(bench.file("other", 5));
    protocol(bench.file("asked", 5));
    protocol(bench.file("asked/x", u64::MAX));
    protocol(bench.data(0, 0, 6, b"longer"));
    protocol(bench.data(0, 1, 5, b"right"));
    protocol(bench.block([0, 0], 1, 5, b"right"));
    protocol(bench.block([0, 0], 255, 5, b"right"));
    protocol(bench.handle(data(0, 0, 1, [0; 32], b"")));
    protocol(bench.data(9, 0, 5, b"right"));
    protocol(bench.handle(CopyMessage::Begin {
        single: true,
        content: false,
    }));
    protocol(bench.handle(CopyMessage::Finished));
    bench
        .handle(CopyMessage::EndOfList { complete: true })
        .unwrap();
    protocol(bench.file("asked/late", 5));
    assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 0);
}

#[test]
fn nothing_is_written_through_a_link_that_was_sent_or_put_there() {
    let outside = tempfile::tempdir().unwrap();
    let bench = Bench::new(None);
    let target = outside.path().as_os_str().as_bytes().to_vec();
    bench
        .entry("link", EntryKind::SymbolicLink { target })
        .unwrap();
    bench.file("link/file", 5).unwrap();
    bench
        .entry(
            "folder",
            EntryKind::Folder {
                mode: 0o755,
                modified: ModificationTime::default(),
            },
        )
        .unwrap();
    bench.file("folder/file", 5).unwrap();
    fs::rename(
        bench.folder.path().join("folder"),
        bench.folder.path().join("moved"),
    )
    .unwrap();
    symlink(outside.path(), bench.folder.path().join("folder")).unwrap();
    bench.file("reset", 1).unwrap();
    bench.data(1, 0, 5, b"right").unwrap();
    bench.data(2, 0, 1, b"1").unwrap();
    let first = EntryPath::new("link/secret").unwrap();
    bench.entry("hard", EntryKind::HardLink { first }).unwrap();
    let (sent, folder) = bench.end();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert!(
        matches!(
            outcomes(&sent)[..],
            [(0, FileOutcome::Failed(_)), .., (2, FileOutcome::Copied(_))]
        ),
        "{sent:?}"
    );
    let problems = sent
        .iter()
        .filter(|message| matches!(message, CopyMessage::Unreadable { .. }))
        .count();
    assert!(
        problems >= 2,
        "the second name, and the attributes of the folder: {sent:?}"
    );
    assert!(!folder.path().join("hard").exists());
}

#[test]
fn folders_links_and_what_is_deleted() {
    let bench = Bench::new(None);
    let old = bench.folder.path().join("old/deep");
    fs::create_dir_all(&old).unwrap();
    fs::write(old.join("file"), "old").unwrap();
    let modified = ModificationTime {
        seconds: 99,
        nanoseconds: 5,
    };
    bench
        .entry(
            "a",
            EntryKind::Folder {
                mode: 0o555,
                modified,
            },
        )
        .unwrap();
    bench.file("a/empty", 0).unwrap();
    bench
        .entry(
            "a/link",
            EntryKind::SymbolicLink {
                target: b"empty".to_vec(),
            },
        )
        .unwrap();
    bench
        .entry(
            "b",
            EntryKind::HardLink {
                first: EntryPath::new("a/empty").unwrap(),
            },
        )
        .unwrap();
    let (sent, folder) = bench.end();
    let at = |path: &str| fs::symlink_metadata(folder.path().join(path)).unwrap();
    assert_eq!(
        (
            at("a").mode() & 0o777,
            at("a").mtime(),
            at("a").mtime_nsec()
        ),
        (0o555, 99, 5)
    );
    assert_eq!((at("b").ino(), at("b").nlink()), (at("a/empty").ino(), 2));
    assert_eq!(
        fs::read_link(folder.path().join("a/link")).unwrap(),
        Path::new("empty")
    );
    assert!(!folder.path().join("old").exists());
    assert!(sent.iter().any(
        |message| matches!(message, CopyMessage::Deleted { path } if path.as_bytes() == b"old")
    ));
    assert_eq!(sent.last(), Some(&CopyMessage::Finished));
}

/// A list of files that never come took memory without an end.
#[test]
fn files_that_wait_take_a_bounded_memory_which_those_that_are_there_give_back() {
    let bench = Bench::new(None);
    lock(&bench.receiver.list)
        .take_memory(MAX_LIST.get() - 2 * WAITING_FILE)
        .unwrap();
    // An empty file is there at once.
    for index in 0..5 {
        bench.file(&format!("empty-{index}"), 0).unwrap();
    }
    bench.file("waits", 9).unwrap();
    let error = bench.file("too-many", 9).unwrap_err();
    assert!(
        error.exit_code() == 1
            && error
                .to_string()
                .contains("copy the folders one after the other"),
        "{error}"
    );
}
