//! `--delete` and `--dry-run`.

use super::*;
use crate::tree::folder_names;

fn folder(mode: u16) -> EntryKind {
    EntryKind::Folder {
        mode,
        modified: ModificationTime::default(),
    }
}

fn link_to(target: &str) -> EntryKind {
    EntryKind::SymbolicLink {
        target: target.as_bytes().to_vec(),
    }
}

impl Bench {
    fn without(patterns: &[&str], dry_run: bool) -> Self {
        let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        Self::with(|options| {
            (options.excludes, options.dry_run) = (ExcludePatterns::new(patterns), dry_run);
        })
    }

    /// Makes files with their folders.
    fn holds(&self, paths: &[&str]) {
        for path in paths.iter().map(|path| self.folder.path().join(path)) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "here before").unwrap();
        }
    }
}

/// Returns the paths that were said to be deleted, and those that a dry run would copy.
fn named(sent: &[CopyMessage<'_>]) -> [Vec<String>; 2] {
    let paths =
        |path: fn(&CopyMessage<'_>) -> Option<String>| sent.iter().filter_map(path).collect();
    let deleted = |message: &CopyMessage<'_>| match message {
        CopyMessage::Deleted { path } => Some(path.to_string()),
        _ => None,
    };
    let wanted = |message: &CopyMessage<'_>| match message {
        CopyMessage::WouldCopy { path } => Some(path.to_string()),
        _ => None,
    };
    [paths(deleted), paths(wanted)]
}

fn problems(sent: &[CopyMessage<'_>]) -> Vec<String> {
    let problem = |message: &CopyMessage<'_>| match message {
        CopyMessage::Unreadable { why, .. } => Some(why.clone()),
        _ => None,
    };
    sent.iter().filter_map(problem).collect()
}

fn entries(folder: &Path) -> Vec<String> {
    let found = folder_names(fs::File::open(folder).unwrap()).unwrap();
    found
        .into_iter()
        .map(|name| String::from_utf8(name).unwrap())
        .collect()
}

/// A folder that the sender lacks was once deleted with what is excluded in it.
#[test]
fn what_is_excluded_stays_in_a_folder_that_the_sender_lacks() {
    for dry_run in [true, false] {
        let bench = Bench::without(&["*.keep", "mine/"], dry_run);
        bench.holds(&[
            "old/x.keep",
            "old/z",
            "old/in/y",
            "old/mine/w",
            "gone/in/v",
            "u",
        ]);
        let (sent, folder) = bench.end();
        assert_eq!(
            named(&sent)[0],
            ["gone", "old/in", "old/z", "u"],
            "{dry_run}"
        );
        let at = |path: &str| folder.path().join(path).exists();
        assert!(at("old/x.keep") && at("old/mine/w"));
        assert!(
            ["gone", "old/in", "old/z", "u"]
                .into_iter()
                .all(|path| at(path) == dry_run)
        );
    }
}

/// A hostile far end once had all of the destination deleted by such a message.
#[test]
fn who_was_asked_for_names_has_nothing_else_deleted() {
    let bench = Bench::new(Some(&["asked"]));
    bench.holds(&["asked/old", "mine/file"]);
    bench.entry("asked", folder(0o755)).unwrap();
    let (sent, here) = bench.end();
    assert_eq!(named(&sent)[0], ["asked/old"]);
    assert_eq!(entries(here.path()), ["asked", "mine"]);
}

#[test]
fn a_file_makes_room_for_a_folder_and_a_folder_for_what_is_none() {
    for dry_run in [true, false] {
        let bench = Bench::without(&["*.keep"], dry_run);
        bench.holds(&["folder", "file/in/x", "link/x", "kept/x.keep", "kept/y"]);
        symlink("nowhere", bench.folder.path().join("other-folder")).unwrap();
        bench.entry("folder", folder(0o755)).unwrap();
        bench.file("folder/inner", 0).unwrap();
        bench.entry("other-folder", folder(0o755)).unwrap();
        bench.entry("other-folder/inner", link_to("x")).unwrap();
        bench.file("file", 0).unwrap();
        bench.entry("link", link_to("x")).unwrap();
        bench.file("kept", 0).unwrap();
        let (sent, here) = bench.end();
        let [deleted, wanted] = named(&sent);
        assert_eq!(
            deleted,
            ["folder", "other-folder", "file", "link", "kept/y"],
            "{dry_run}"
        );
        assert_eq!(problems(&sent), [""; 0], "{dry_run}");
        let held = FileOutcome::Failed("a folder has its name".to_owned());
        assert_eq!(outcomes(&sent).pop(), Some((2, held)));
        if dry_run {
            assert_eq!(
                outcomes(&sent)[..2],
                [(0, FileOutcome::Wanted), (1, FileOutcome::Wanted)]
            );
            assert_eq!(
                wanted,
                ["folder", "other-folder", "other-folder/inner", "link"]
            );
            assert!(here.path().join("folder").is_file() && here.path().join("file/in/x").exists());
        } else {
            assert!(
                here.path().join("other-folder").is_dir() && here.path().join("file").is_file()
            );
            assert_eq!(
                fs::read_link(here.path().join("link")).unwrap(),
                Path::new("x")
            );
        }
    }
}

#[test]
fn without_that_being_asked_for_nothing_makes_room() {
    let bench = Bench::with(|options| options.delete = false);
    bench.holds(&["folder", "file/x"]);
    bench.entry("folder", folder(0o755)).unwrap();
    bench.file("file", 0).unwrap();
    let (sent, here) = bench.end();
    assert_eq!(
        problems(&sent),
        ["folder: something that is no folder has its name"]
    );
    assert!(here.path().join("folder").is_file() && here.path().join("file/x").exists());
}

/// A dry run once named regular files alone.
#[test]
fn a_dry_run_names_folders_and_links_that_would_be_new() {
    let bench = Bench::with(|options| (options.dry_run, options.delete) = (true, false));
    bench.holds(&["there/file", "taken/file", "second"]);
    fs::hard_link(
        bench.folder.path().join("second"),
        bench.folder.path().join("there/second"),
    )
    .unwrap();
    for (name, target) in [("there/link", "same"), ("there/other", "before")] {
        symlink(target, bench.folder.path().join(name)).unwrap();
    }
    bench.entry("there", folder(0o755)).unwrap();
    bench.entry("there/link", link_to("same")).unwrap();
    bench.entry("there/other", link_to("after")).unwrap();
    bench.entry("taken", link_to("x")).unwrap();
    bench.entry("new", folder(0o755)).unwrap();
    bench.entry("new/inner", folder(0o755)).unwrap();
    bench.file("new/inner/file", 5).unwrap();
    bench.file("second", 5).unwrap();
    bench.entry("there/file/x", link_to("x")).unwrap();
    for path in ["there/second", "new/second", "there/file"] {
        bench
            .entry(
                path,
                EntryKind::HardLink {
                    first: EntryPath::new("second").unwrap(),
                },
            )
            .unwrap();
    }
    let (sent, here) = bench.end();
    assert_eq!(
        named(&sent)[1],
        [
            "there/other",
            "new",
            "new/inner",
            "new/second",
            "there/file"
        ]
    );
    assert_eq!(
        outcomes(&sent),
        [(0, FileOutcome::Wanted), (1, FileOutcome::Wanted)]
    );
    assert_eq!(
        problems(&sent),
        [
            "taken: a folder has its name",
            "there/file/x: Not a directory (os error 20)"
        ]
    );
    assert!(!here.path().join("new").exists());
}
