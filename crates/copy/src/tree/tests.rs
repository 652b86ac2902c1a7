use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn path(text: &str) -> EntryPath {
    EntryPath::new(text).unwrap()
}

#[test]
fn no_link_on_the_way_is_followed() {
    let outside = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "secret").unwrap();
    symlink(outside.path(), inside.path().join("link")).unwrap();
    symlink(outside.path().join("file"), inside.path().join("file")).unwrap();
    let tree = FolderTree::open_root(inside.path()).unwrap();
    assert!(tree.locate_entry(&path("link/new")).is_err());
    assert!(tree.open_entry(&path("link/file"), OFlags::RDONLY).is_err());
    assert!(tree.open_entry(&path("file"), OFlags::RDONLY).is_err());
    assert!(
        tree.locate_entry(&path("file"))
            .unwrap()
            .open_file(OFlags::RDONLY)
            .is_err()
    );
    assert!(
        tree.locate_entry(&path("link"))
            .unwrap()
            .make_folder()
            .is_err()
    );
}

#[test]
fn a_kernel_that_cannot_open_a_path_at_once_opens_the_same_name_by_name() {
    let outside = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir().unwrap();
    fs::create_dir_all(inside.path().join("a/b")).unwrap();
    for file in [outside.path().join("file"), inside.path().join("a/b/file")] {
        fs::write(file, "content").unwrap();
    }
    symlink(outside.path(), inside.path().join("a/link")).unwrap();
    symlink("b/file", inside.path().join("a/file")).unwrap();
    let root = openat(CWD, inside.path(), FOLDER, Mode::empty()).unwrap();
    let paths = [
        "a/b/file",
        "a/b",
        "a/file",
        "a/link",
        "a/link/file",
        "a/none",
        "a/b/file/none",
    ];
    for path in paths {
        for flags in [OFlags::RDONLY, FOLDER, SEARCHED] {
            let at_once = open_beneath(&root, path.as_bytes(), flags).is_ok();
            let by_name = open_name_by_name(&root, path.as_bytes(), flags).is_ok();
            assert_eq!(at_once, by_name, "{path} {flags:?}");
        }
    }
    for path in ["../file", "a/../a/b/file", "/etc", ""] {
        let refused = open_name_by_name(&root, path.as_bytes(), OFlags::RDONLY);
        assert!(refused.is_err(), "{path}");
    }
}

#[test]
fn a_folder_that_becomes_a_link_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir().unwrap();
    fs::create_dir(inside.path().join("a")).unwrap();
    let tree = FolderTree::open_root(inside.path()).unwrap();
    let before = tree.locate_entry(&path("a/file")).unwrap();
    fs::rename(inside.path().join("a"), inside.path().join("b")).unwrap();
    symlink(outside.path(), inside.path().join("a")).unwrap();
    before.open_file(OFlags::CREATE | OFlags::RDWR).unwrap();
    assert!(inside.path().join("b/file").exists());
    tree.locate_entry(&path("b/other")).unwrap();
    assert!(tree.locate_entry(&path("a/file")).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn removing_a_tree_leaves_what_its_links_lead_to() {
    let outside = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "kept").unwrap();
    fs::create_dir_all(inside.path().join("a/b")).unwrap();
    symlink(outside.path(), inside.path().join("a/b/link")).unwrap();
    FolderTree::open_root(inside.path())
        .unwrap()
        .locate_entry(&path("a"))
        .unwrap()
        .remove_all()
        .unwrap();
    assert!(!inside.path().join("a").exists() && outside.path().join("file").exists());
}
