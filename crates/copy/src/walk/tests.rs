use super::*;
use std::fs;
use std::os::unix::fs::symlink;

#[derive(Default)]
struct Taken(Vec<String>, Vec<String>);

impl ListReceiver for Taken {
    fn add_entry(&mut self, entry: TreeEntry, file: Option<SourceFile>) {
        let kind = match entry.kind {
            EntryKind::Folder { .. } => "folder".to_owned(),
            EntryKind::File { size, .. } => format!("{}", size.get()),
            EntryKind::SymbolicLink { target } => format!("-> {}", target.escape_ascii()),
            EntryKind::HardLink { first } => format!("= {first}"),
            EntryKind::LeftOut => "left out".to_owned(),
        };
        assert_eq!(file.is_some(), kind.parse::<u64>().is_ok());
        self.0.push(format!("{} {kind}", entry.path));
    }

    fn add_problem(&mut self, path: &[u8], why: &str) {
        self.1.push(format!("{} {why}", path.escape_ascii()));
    }

    fn not_kept(&mut self, path: &EntryPath, what: NotKept) {
        self.1.push(format!("{path} {}", what.kind));
    }

    fn not_sent(&mut self, path: &[u8], why: &str) {
        self.add_problem(path, why);
    }

    fn left_out(&mut self, path: &EntryPath) {
        self.1.push(path.to_string());
    }

    fn too_long(&mut self) {
        panic!("it is short");
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// A file of btrfs or NFS was copied from its beginning after a new start of the sender's host.
#[test]
fn a_file_is_the_same_after_another_mount_and_another_one_after_a_change() {
    let before = rustix::fs::stat("/proc/self/exe").unwrap();
    let with = |change: fn(&mut Stat)| {
        let mut stat = before;
        change(&mut stat);
        file_identity(&stat) == file_identity(&before)
    };
    assert!(with(|stat| stat.st_dev += 1));
    assert!(!with(|stat| stat.st_ino += 1) && !with(|stat| stat.st_size += 1));
    assert!(!with(|stat| stat.st_mtime_nsec ^= 1) && !with(|stat| stat.st_ctime_nsec ^= 1));
    assert!(!with(|stat| stat.st_mtime += 1) && !with(|stat| stat.st_ctime += 1));
}

#[test]
fn a_tree_is_listed_folders_first_without_following_links() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("b/empty")).unwrap();
    fs::create_dir(tree.join("skip")).unwrap();
    fs::write(tree.join("skip/x"), "x").unwrap();
    fs::write(tree.join("a"), "12345").unwrap();
    fs::write(tree.join(".y.12345678.fullpipe-part"), "part").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b/c")).unwrap();
    symlink("/etc", tree.join("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let excludes = ExcludePatterns::new([&b"skip/"[..]]);
    let list = |path: &Path| {
        let mut taken = Taken::default();
        assert!(walk_sources(
            &[CopySource::open_source(&FolderRoot::User, path).unwrap()],
            &excludes,
            false,
            &mut taken
        ));
        taken
    };
    let named = list(&tree);
    let expected = [
        "tree folder",
        "tree/a 5",
        "tree/b folder",
        "tree/link -> /etc",
        "tree/pipe left out",
        "tree/b/c = tree/a",
        "tree/b/empty folder",
    ];
    assert_eq!(named.0, expected);
    let part = "tree/.y.12345678.fullpipe-part a name is reserved for files of a transfer";
    assert_eq!(named.1, [part, "tree/pipe"]);
    let content = list(&folder.path().join("tree/"));
    assert_eq!(content.0[..2], ["a 5", "b folder"]);
    assert!(CopySource::open_source(&FolderRoot::User, &tree.join("nothing")).is_err());
    let is_single = |path: &Path| {
        CopySource::open_source(&FolderRoot::User, path)
            .unwrap()
            .is_single()
    };
    assert!(is_single(&tree.join("a")) && !is_single(&tree));
}

fn listed(sources: &[&Path]) -> Taken {
    let sources: Vec<CopySource> = sources
        .iter()
        .map(|path| CopySource::open_source(&FolderRoot::User, path).unwrap())
        .collect();
    let mut taken = Taken::default();
    assert!(walk_sources(
        &sources,
        &ExcludePatterns::default(),
        false,
        &mut taken
    ));
    taken
}

/// The receiver once took the second entry of a name for a lie.
#[test]
fn of_a_name_in_several_sources_the_first_is_sent_and_folders_become_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    for (path, content) in [
        ("a/x", "1"),
        ("a/in/y", "12"),
        ("a/kind", "1"),
        ("b/x", "123"),
        ("b/in/z", "1234"),
    ] {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), content).unwrap();
    }
    fs::create_dir(at("b/kind")).unwrap();
    fs::write(at("b/kind/lost"), "").unwrap();
    fs::hard_link(at("b/x"), at("b/x2")).unwrap();
    fs::hard_link(at("b/x"), at("b/x3")).unwrap();
    let both = listed(&[&at("a/"), &at("b/")]);
    let expected = [
        "in folder",
        "kind 1",
        "x 1",
        "in/y 2",
        "x2 3",
        "x3 = x2",
        "in/z 4",
    ];
    assert_eq!(
        both.0, expected,
        "a second name is that of a file that was sent"
    );
    assert_eq!(
        both.1,
        ["kind an earlier source has an entry of this name; so have 1 others"]
    );
    let files = listed(&[&at("a/x"), &at("b/x")]);
    assert_eq!((files.0, files.1.len()), (vec!["x 1".to_owned()], 1));
}

#[test]
fn a_name_that_resembles_a_working_one_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    for path in [
        "wait../x",
        "file..",
        "y.fullpipe-part/z",
        ".y.12345678.fullpipe-journal",
    ] {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), "").unwrap();
    }
    let all = listed(&[&at("")]);
    assert_eq!(
        all.0,
        [
            "file.. 0",
            "wait.. folder",
            "y.fullpipe-part folder",
            "y.fullpipe-part/z 0",
            "wait../x 0"
        ]
    );
    assert_eq!(
        all.1,
        [".y.12345678.fullpipe-journal a name is reserved for files of a transfer"]
    );
    let named = listed(&[&at("wait.."), &at("file..")]);
    assert_eq!(named.0, ["wait.. folder", "wait../x 0", "file.. 0"]);
    let content = listed(&[&at("wait../.."), &at("wait../.")]);
    assert_eq!(content.0.len(), 6);
}
