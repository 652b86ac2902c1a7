//! Trees that are copied, and what has become of them.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use fullpipe_copy::protocol::{CHUNK, EntryPath};
use fullpipe_testkit::make_digits;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng as _;

use crate::stage::USER;

/// Bytes of the header and of a record of a journal, and the number of the kind of record that
/// notes a chunk.
const HEADER: usize = 48;
const RECORD: usize = 48;
const VERIFIED: u32 = 1;

/// Entries by their paths.
type Entries = BTreeMap<Vec<u8>, Entry>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: u32,
    /// That of links is not kept.
    modified: Option<(i64, i64)>,
    inode: u64,
    names: u64,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Folder,
    File(Vec<u8>),
    Link(Vec<u8>),
}

/// A tree: what is copied, and what is at the destination before.
#[derive(Debug)]
pub(crate) struct Tree {
    new: Entries,
    old: Entries,
}

impl Tree {
    /// Makes a tree in the folder `from`, and an older state of a part of it in `to`.
    pub(crate) fn make(seed: u64, from: &Path, to: &Path) -> Self {
        let mut random = Pcg32::new(seed, 1);
        make(&mut random, from, true);
        if !random.next_u32().is_multiple_of(3) {
            make(&mut random, to, false);
        }
        Self {
            new: entries(from),
            old: entries(to),
        }
    }

    /// Bytes of its files.
    pub(crate) fn bytes(&self) -> u64 {
        files(&self.new)
            .map(|(_, content)| content.len() as u64)
            .sum()
    }

    /// Returns the bytes that a receiver has verified: those of files under their names, and of
    /// chunks that a journal records. If the disk has lost nothing, those must be right.
    pub(crate) fn held(&self, to: &Path, may_be_wrong: bool) -> u64 {
        let there = entries(to);
        let held = |(path, content): (&Vec<u8>, &Vec<u8>)| {
            let is_there = there
                .get(path)
                .is_some_and(|entry| entry.is_copy_of(&self.new[path]));
            if is_there {
                content.len() as u64
            } else {
                recorded(to, path, content, may_be_wrong)
            }
        };
        files(&self.new).map(held).sum()
    }

    /// Returns the part of the bytes that has arrived.
    pub(crate) fn arrived(&self, to: &Path) -> f64 {
        let is_new = |path: &[u8], length: u64| match self.new.get(path).map(|entry| &entry.content)
        {
            Some(Content::File(new)) => new.len() as u64 == length,
            _ => false,
        };
        let mut bytes = 0;
        for_each(to, &mut |path, state| {
            let name = String::from_utf8_lossy(path);
            if name.ends_with("fullpipe-journal") {
                bytes += (state.len().saturating_sub(HEADER as u64) / RECORD as u64) * CHUNK as u64;
            } else if is_new(path, state.len()) {
                bytes += state.len();
            }
        });
        bytes as f64 / self.bytes() as f64
    }

    /// Fails if something has a name of the tree and is neither its new state nor its old one, or
    /// has another name that is not that of a file of a transfer.
    pub(crate) fn assert_nothing_half(&self, to: &Path, course: &str) {
        for (path, entry) in entries(to) {
            let name = path.escape_ascii().to_string();
            if name.ends_with(".fullpipe-part") || name.ends_with(".fullpipe-journal") {
                continue;
            }
            let states = [self.new.get(&path), self.old.get(&path)];
            let is_whole = states
                .iter()
                .flatten()
                .any(|state| state.content == entry.content);
            assert!(is_whole, "{name} is half of something: {course}");
        }
    }

    pub(crate) fn assert_same(&self, to: &Path, course: &str) {
        let there = entries(to);
        let names = |entries: &Entries| {
            entries
                .keys()
                .map(|path| path.escape_ascii().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&self.new), names(&there), "{course}");
        for ((path, new), found) in self.new.iter().zip(there.values()) {
            let name = path.escape_ascii().to_string();
            let attributes = |entry: &Entry| (entry.mode, entry.modified, entry.names);
            assert_eq!(attributes(new), attributes(found), "{name}: {course}");
            assert!(
                new.content == found.content,
                "{name} has other content: {course}"
            );
        }
    }
}

impl Entry {
    /// Returns true if a copy would find it to be there.
    fn is_copy_of(&self, other: &Self) -> bool {
        self.modified == other.modified && self.content == other.content
    }
}

/// Returns the files, each once.
fn files(entries: &Entries) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
    let mut seen = HashSet::new();
    entries
        .iter()
        .filter_map(move |(path, entry)| match &entry.content {
            Content::File(content) if seen.insert(entry.inode) => Some((path, content)),
            _ => None,
        })
}

/// Returns the bytes of chunks that the journal of a file records, and that are there.
fn recorded(to: &Path, path: &[u8], content: &[u8], may_be_wrong: bool) -> u64 {
    let path = EntryPath::new(path).unwrap();
    let folder = below(to, path.parent_path().unwrap_or_default());
    let working = |journal| below(&folder, &path.working_name(journal, USER));
    let (Ok(data), Ok(journal)) = (File::open(working(false)), fs::read(working(true))) else {
        return 0;
    };
    let mut chunks = HashSet::new();
    for record in journal
        .get(HEADER..)
        .unwrap_or_default()
        .chunks_exact(RECORD)
    {
        let field = |at| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
        if field(4) == VERIFIED {
            chunks.insert(field(0) as usize);
        }
    }
    let mut bytes = 0;
    for index in chunks {
        let Some(chunk) = content.chunks(CHUNK).nth(index) else {
            panic!("a journal records chunk {index}")
        };
        let mut there = vec![0; chunk.len()];
        let is_right = data
            .read_exact_at(&mut there, (index * CHUNK) as u64)
            .is_ok()
            && there == chunk;
        assert!(
            is_right || may_be_wrong,
            "{path}: the journal records chunk {index}, which is not there"
        );
        bytes += if is_right { chunk.len() as u64 } else { 0 };
    }
    bytes
}

fn below(folder: &Path, path: &[u8]) -> PathBuf {
    folder.join(OsStr::from_bytes(path))
}

/// Calls `each` with everything below a folder. What vanishes meanwhile is left out.
fn for_each(root: &Path, each: &mut dyn FnMut(&[u8], &fs::Metadata)) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, Ok(state)) = (entry.path(), entry.metadata()) else {
                continue;
            };
            each(
                path.strip_prefix(root).unwrap().as_os_str().as_bytes(),
                &state,
            );
            if state.is_dir() {
                folders.push(path);
            }
        }
    }
}

fn entries(root: &Path) -> Entries {
    let mut entries = Entries::new();
    for_each(root, &mut |path, state| {
        // ext4 has it.
        if path == b"lost+found" {
            return;
        }
        let open = below(root, path);
        let content = match state {
            _ if state.is_dir() => Content::Folder,
            _ if state.is_symlink() => Content::Link(
                fs::read_link(&open)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            ),
            _ => Content::File(fs::read(&open).unwrap()),
        };
        let modified = (!state.is_symlink()).then(|| (state.mtime(), state.mtime_nsec()));
        let names = if state.is_dir() { 0 } else { state.nlink() };
        entries.insert(
            path.to_vec(),
            Entry {
                mode: state.mode(),
                modified,
                inode: state.ino(),
                names,
                content,
            },
        );
    });
    entries
}

/// Makes the new state of a tree, or an older one that lacks some of it.
fn make(random: &mut Pcg32, root: &Path, is_new: bool) {
    let top = root.join("a");
    for folder in ["a/deep/er", "a/empty", "a/fixed"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for index in 0..2 {
        let length = (1 << 20) + random.next_u32() as usize % (4 << 20);
        file(random, &top.join(format!("large-{index}")), length, is_new);
    }
    for index in 0..40 {
        let folder = ["", "deep", "deep/er", "fixed"][index % 4];
        let length = random.next_u32() as usize % 30_000;
        file(
            random,
            &top.join(folder).join(format!("small-{index}")),
            length,
            is_new,
        );
    }
    let sparse = File::create(top.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse
        .write_all_at(if is_new { b"data" } else { b"older" }, 2 << 20)
        .unwrap();
    if is_new || random.next_u32().is_multiple_of(2) {
        file(random, &top.join("linked"), 2000, true);
        fs::hard_link(top.join("linked"), top.join("deep/second")).unwrap();
    }
    symlink(if is_new { "small-0" } else { "large-0" }, top.join("link")).unwrap();
    for_each(root, &mut |path, _| {
        lchown(below(root, path), Some(USER), Some(USER)).unwrap();
    });
    if is_new {
        set_attributes(random, &top);
    }
}

/// Makes a file, one of two with digits, which compress. An older state lacks one of three.
fn file(random: &mut Pcg32, path: &Path, length: usize, is_new: bool) {
    if !is_new && random.next_u32().is_multiple_of(3) {
        return;
    }
    let mut content = vec![0; length];
    random.fill_bytes(&mut content);
    if random.next_u32().is_multiple_of(2) {
        make_digits(&mut content);
    }
    fs::write(path, content).unwrap();
}

/// Sets modes, also such that its owner may not write, and times, also some to come.
fn set_attributes(random: &mut Pcg32, top: &Path) {
    let mut entries = vec![top.to_owned()];
    for_each(top, &mut |path, state| {
        if !state.is_symlink() {
            entries.push(below(top, path));
        }
    });
    // The inner ones first.
    for path in entries.iter().rev() {
        let open = File::open(path).unwrap();
        let seconds = u64::from(random.next_u32() % 3_000_000_000);
        open.set_modified(UNIX_EPOCH + Duration::new(seconds, random.next_u32() % 1_000_000_000))
            .unwrap();
        let is_folder = path.is_dir();
        let modes: &[u32] = if is_folder {
            &[0o755, 0o700, 0o555]
        } else {
            &[0o644, 0o600, 0o444, 0o755]
        };
        open.set_permissions(Permissions::from_mode(
            modes[random.next_u32() as usize % modes.len()],
        ))
        .unwrap();
    }
}
