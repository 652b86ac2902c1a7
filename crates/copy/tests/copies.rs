//! Copies between two processes of this host: mostly with a script in the place of ssh, once over a
//! real one.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{
    Running, SshServer, free_port, fullpipe, note_skipped, random_bytes, random_digits, require,
    within, write_program,
};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Two folders, and a script that runs the far end on this host.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["near", "far"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let scene = Self { folder };
        scene.script(
            "ssh",
            "shift; echo Welcome; printf 'last login: now '; exec sh -c \"$*\"",
        );
        scene
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        write_program(&path, &format!("#!/bin/sh\n{text}\n"));
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn far(&self, name: &str) -> String {
        format!("localhost:{}", self.path(name).display())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command_in_text(arguments);
        command.arg("--json");
        command
    }

    fn command_in_text(&self, arguments: &[&str]) -> Command {
        let mut command = fullpipe();
        let program = command.get_program().to_str().unwrap().to_owned();
        command.args([
            "copy",
            "--far-path",
            &program,
            "-e",
            self.path("ssh").to_str().unwrap(),
        ]);
        command.args(arguments);
        command
    }

    fn copy(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        copied(&output)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Running::start(&mut self.command(arguments)).finish(TIMEOUT)
    }

    /// Makes a file that does not compress, of so many MiB and a bit.
    fn file(&self, name: &str, mib: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, random_bytes((mib << 20) + 12_345)).unwrap();
        path
    }
}

fn copied(output: &Output) -> Value {
    let document: Value =
        serde_json::from_slice(&output.stdout).expect("standard output is one document");
    document["copy"].clone()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn is_same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

/// A tree with everything that a tree may have.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/empty")).unwrap();
    fs::write(root.join("a/file"), "content").unwrap();
    fs::write(root.join("a/nothing"), "").unwrap();
    fs::set_permissions(root.join("a/file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(root.join("a/file"), root.join("a/b/second")).unwrap();
    symlink("../file", root.join("a/b/link")).unwrap();
    symlink("/nowhere", root.join("a/b/broken")).unwrap();
    fs::write(
        root.join("a")
            .join(std::ffi::OsStr::from_bytes(b"caf\xe9\n\x1b[2J")),
        "no UTF-8",
    )
    .unwrap();
    let sparse = File::create(root.join("a/sparse")).unwrap();
    sparse.set_len(9 << 20).unwrap();
    sparse.write_all_at(b"data", 5 << 20).unwrap();
    for index in 0..300 {
        fs::write(
            root.join(format!("a/b/small-{index}")),
            vec![index as u8; index * 11],
        )
        .unwrap();
    }
}

/// Everything of a tree that is kept, as lines.
fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, state) = (entry.path(), entry.metadata().unwrap());
            let name = path
                .strip_prefix(root)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .escape_ascii()
                .to_string();
            let time = if state.is_symlink() {
                0
            } else {
                state.mtime_nsec() + state.mtime() * 1_000_000_000
            };
            let links = if state.is_file() { state.nlink() } else { 0 };
            lines.push(format!(
                "{name} {:o} {time} {links} {}",
                state.mode(),
                if state.is_dir() { 0 } else { state.len() }
            ));
            if state.is_dir() {
                folders.push(path);
            } else if state.is_file() {
                lines.push(format!(
                    "{name} {:?}",
                    fs::read(&path)
                        .unwrap()
                        .iter()
                        .map(|byte| u64::from(*byte))
                        .sum::<u64>()
                ));
            } else if state.is_symlink() {
                lines.push(format!(
                    "{name} -> {}",
                    fs::read_link(&path).unwrap().display()
                ));
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_tree_crosses_both_ways_and_is_the_same() {
    cross_both_ways("tcp");
}

#[test]
fn a_tree_crosses_both_ways_by_quic_and_is_the_same() {
    cross_both_ways("quic");
}

fn cross_both_ways(transport: &str) {
    let scene = Scene::new();
    tree(&scene.path("near"));
    let near = text(&scene.path("near/a")).to_owned();
    let up = scene.copy(&[&near, &scene.far("far"), "--transport", transport]);
    assert_eq!(listing(&scene.path("near")), listing(&scene.path("far")));
    assert_eq!(
        (up["failed"].as_u64(), up["transport"].as_str()),
        (Some(0), Some(transport)),
        "{up}"
    );
    let blocks = fs::metadata(scene.path("far/a/sparse")).unwrap().blocks();
    assert!(blocks * 512 < 3 << 20, "holes stay holes: {blocks}");
    let again = scene.copy(&[&near, &scene.far("far"), "--transport", transport]);
    assert_eq!(
        (again["files"].as_u64(), again["present"].as_u64()),
        (Some(0), Some(304)),
        "{again}"
    );
    let back = text(&scene.path("back")).to_owned();
    let down = scene.copy(&[&scene.far("far/"), &back, "--transport", transport]);
    assert_eq!(down["transport"].as_str(), Some(transport), "{down}");
    assert_eq!(listing(&scene.path("near")), listing(&scene.path("back")));
}

/// An access list that lets a user of this number read and write, as the kernel has it in an
/// attribute (`include/uapi/linux/posix_acl_xattr.h`).
fn access_list(user: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    // The owner, a user, the group, the mask, others.
    let entries = [
        (1_u16, 6_u16, NOBODY),
        (2, 6, user),
        (4, 0, NOBODY),
        (16, 6, NOBODY),
        (32, 0, NOBODY),
    ];
    let fields = |(tag, permissions, id): (u16, u16, u32)| {
        let (tag, permissions, id) = (
            tag.to_le_bytes(),
            permissions.to_le_bytes(),
            id.to_le_bytes(),
        );
        [&tag[..], &permissions, &id].concat()
    };
    [2_u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain(entries.map(fields))
        .flatten()
        .collect()
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1 << 16];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Attributes that a tree shall have, by path and name. Returns false if the file system has none.
fn set_attributes(root: &Path) -> bool {
    fs::create_dir_all(root.join("a/inner")).unwrap();
    fs::write(root.join("a/file"), "content").unwrap();
    fs::write(root.join("a/plain"), "content").unwrap();
    fs::write(root.join("a/large"), vec![7; 3 << 20]).unwrap();
    let all = [
        ("a", "user.folder", b"of a folder".to_vec()),
        ("a", DEFAULT, access_list(1234)),
        ("a/file", "user.one", b"1".to_vec()),
        ("a/file", "user.empty", Vec::new()),
        ("a/file", ACCESS, access_list(4321)),
        ("a/large", "user.long", vec![0xff; 2000]),
    ];
    all.iter()
        .all(|(path, name, value)| set(&root.join(path), name, value))
}

#[test]
fn access_lists_and_attributes_cross_if_that_is_asked_for() {
    let scene = Scene::new();
    let (near, far) = (scene.path("near"), scene.path("far"));
    if !set_attributes(&near) {
        return note_skipped(
            "copies: access lists",
            "this file system has no such attributes",
        );
    }
    let source = text(&near.join("a")).to_owned();
    scene.copy(&[&source, &scene.far("far")]);
    assert_eq!(
        (
            attribute(&far.join("a/file"), "user.one"),
            attribute(&far.join("a"), DEFAULT)
        ),
        (None, None)
    );
    // What is there gets them, and a dry run says so.
    let mut dry = scene.command_in_text(&[&source, &scene.far("far"), "-a", "--dry-run"]);
    let dry = Running::start(&mut dry).finish(TIMEOUT);
    let said = String::from_utf8_lossy(&[dry.stdout, dry.stderr].concat()).into_owned();
    assert!(
        said.contains("a/file would get other extended attributes") && !said.contains("a/plain"),
        "{said}"
    );
    assert_eq!(attribute(&far.join("a/file"), "user.one"), None);
    let again = scene.copy(&["-a", &source, &scene.far("far")]);
    assert_eq!(
        (again["files"].as_u64(), again["failed"].as_u64()),
        (Some(0), Some(0)),
        "{again}"
    );
    // And so does what is new, both ways; a file without any inherits none of its folder.
    assert!(set(scene.folder.path(), DEFAULT, &access_list(99)));
    let back = scene.path("back");
    scene.copy(&["-a", &scene.far("far/a"), &format!("{}/", text(&back))]);
    for root in [&far, &back] {
        for (path, name) in [
            ("a", "user.folder"),
            ("a", DEFAULT),
            ("a", ACCESS),
            ("a/inner", DEFAULT),
            ("a/file", "user.one"),
            ("a/file", "user.empty"),
            ("a/file", ACCESS),
            ("a/plain", ACCESS),
            ("a/large", "user.long"),
        ] {
            let expected = attribute(&near.join(path), name);
            assert_eq!(
                attribute(&root.join(path), name),
                expected,
                "{} {path} {name}",
                root.display()
            );
        }
        assert_eq!(listing(&near.join("a")), listing(&root.join("a")));
    }
    // What the sender no longer has goes.
    rustix::fs::removexattr(near.join("a/file"), "user.one").unwrap();
    scene.copy(&["-a", &source, &scene.far("far")]);
    assert_eq!(attribute(&far.join("a/file"), "user.one"), None);
    assert!(attribute(&far.join("a/file"), ACCESS).is_some());
}

#[test]
fn attributes_that_give_rights_stay_behind_which_is_said_once() {
    require!(Root);
    let scene = Scene::new();
    for name in ["one", "two"] {
        let path = scene.path("near").join(name);
        fs::write(&path, name).unwrap();
        if !(set(&path, "trusted.x", b"x") && set(&path, "user.x", b"x")) {
            return note_skipped(
                "copies: attributes that give rights",
                "this file system has no such attributes",
            );
        }
    }
    let arguments = [
        "-a".to_owned(),
        format!("{}/", text(&scene.path("near"))),
        scene.far("far"),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = Running::start(&mut scene.command_in_text(&arguments)).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(
        said.matches("does not keep its trusted.*").count(),
        1,
        "{said}"
    );
    for name in ["one", "two"] {
        let path = scene.path("far").join(name);
        assert_eq!(
            (attribute(&path, "trusted.x"), attribute(&path, "user.x")),
            (None, Some(b"x".to_vec()))
        );
    }
}

#[test]
fn a_file_gets_another_name_and_its_digest_is_that_of_b3sum() {
    let scene = Scene::new();
    let file = scene.file("near/file", 5);
    let done = scene.copy(&[text(&file), &scene.far("far/renamed"), "--verify-disk"]);
    assert!(is_same(&file, &scene.path("far/renamed")));
    assert_eq!(done["digest"].as_str().map(str::len), Some(64));
    let back = scene.copy(&[
        &scene.far("far/renamed"),
        text(&scene.path("near/other")),
        "--verify-disk",
    ]);
    assert_eq!(back["digest"], done["digest"]);
    assert!(is_same(&file, &scene.path("near/other")));
}

#[test]
fn what_is_excluded_stays_and_what_is_gone_is_deleted() {
    let scene = Scene::new();
    for name in ["near/keep", "near/skip.o", "far/old", "far/mine.o"] {
        fs::write(scene.path(name), name).unwrap();
    }
    fs::create_dir_all(scene.path("far/older/deep")).unwrap();
    // The sender has a pipe that it leaves out; the one of that name stays, as for rsync, and
    // another one goes.
    for pipe in ["near/pipe", "far/pipe", "far/other-pipe"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, scene.path(pipe), rustix::fs::Mode::RUSR).unwrap();
    }
    let arguments = [
        &format!("{}/", scene.path("near").display()),
        &scene.far("far"),
        "--delete",
        "--exclude",
        "*.o",
    ];
    let names = |folder: &str| {
        let mut names: Vec<_> = fs::read_dir(scene.path(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let dry = scene.copy(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(
        (dry["files"].as_u64(), dry["deleted"].as_u64()),
        (Some(1), Some(3)),
        "{dry}"
    );
    assert_eq!(
        names("far"),
        ["mine.o", "old", "older", "other-pipe", "pipe"]
    );
    // Nothing crossed, so nothing limited it.
    assert_eq!(
        [dry.get("transport"), dry.get("limit")],
        [None, None],
        "{dry}"
    );
    let pipe = json!(["pipe: it is neither file nor folder nor link"]);
    assert_eq!(
        (dry["left_out"].as_u64(), &dry["left_out_entries"]),
        (Some(1), &pipe),
        "{dry}"
    );
    // The far end's pipes are left out, too, and named here.
    let down = scene.copy(&[&scene.far("far/"), text(&scene.path("near")), "--dry-run"]);
    assert_eq!(down["left_out"].as_u64(), Some(2), "{down}");
    let done = scene.copy(&arguments);
    assert_eq!(
        (&done["left_out_entries"], done["transport"].as_str()),
        (&pipe, Some("tcp")),
        "{done}"
    );
    assert_eq!(
        (done["files"].as_u64(), done["deleted"].as_u64()),
        (Some(1), Some(3)),
        "{done}"
    );
    assert_eq!(names("far"), ["keep", "mine.o", "pipe"]);
}

/// Bytes that the journals in a folder record as verified.
fn recorded(folder: &Path) -> u64 {
    let journals = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let journals = journals.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "fullpipe-journal")
    });
    journals
        .map(|path| (fs::metadata(path).unwrap().len().saturating_sub(48) / 48) << 20)
        .sum()
}

#[test]
fn a_copy_that_was_killed_at_either_end_continues_where_it_was() {
    continue_after_the_kill_of_either_end("tcp");
}

#[test]
fn a_copy_by_quic_that_was_killed_at_either_end_continues_where_it_was() {
    continue_after_the_kill_of_either_end("quic");
}

fn continue_after_the_kill_of_either_end(transport: &str) {
    let scene = Scene::new();
    let file = scene.file("near/file", 40);
    let far = scene.script(
        "ssh",
        "shift; echo $$ > \"${0%/*}/pid\"; exec sh -c \"exec $*\"",
    );
    assert!(far.ends_with("ssh"));
    let slow = ["--transport", transport, "--bwlimit", "100Mbit/s"];
    for (round, kills_far) in [false, true].into_iter().enumerate() {
        let _ = fs::remove_file(scene.path("far/file"));
        let (source, destination) = (text(&file).to_owned(), scene.far("far"));
        let mut running = Running::start(
            &mut scene.command(&[&[source.as_str(), &destination], &slow[..]].concat()),
        );
        let enough = (round as u64 + 1) * (6 << 20);
        assert!(
            within(TIMEOUT, || recorded(&scene.path("far")) > enough),
            "nothing is recorded"
        );
        if kills_far {
            let pid: i32 = fs::read_to_string(scene.path("pid"))
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let killed = Command::new("kill")
                .args(["-9", &pid.to_string()])
                .status()
                .unwrap();
            assert!(killed.success());
            let output = running.finish(TIMEOUT);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
        } else {
            running.kill();
            drop(running);
        }
        // The far end notices that the near one has gone.
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            !scene.path("far/file").exists(),
            "no half file has its final name"
        );
        let before = recorded(&scene.path("far"));
        let done = scene.copy(&[&source, &destination, "--transport", transport]);
        assert!(is_same(&file, &scene.path("far/file")));
        let (bytes, sent) = (
            done["bytes"].as_u64().unwrap(),
            done["transferred"].as_u64().unwrap(),
        );
        assert!(
            before > enough && sent + before <= bytes + (1 << 20),
            "{sent} of {bytes} again, {before} before"
        );
        assert_eq!(fs::read_dir(scene.path("far")).unwrap().count(), 1);
    }
}

#[test]
fn what_cannot_be_copied_is_named_and_the_rest_is_right() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("near/a")).unwrap();
    fs::create_dir_all(scene.path("far/a/file")).unwrap();
    fs::write(scene.path("near/a/file"), "a folder has its name there").unwrap();
    fs::write(scene.path("near/a/other"), "right").unwrap();
    let output = scene.run(&[text(&scene.path("near/a")), &scene.far("far")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let done = copied(&output);
    assert!(
        done["failures"][0]
            .as_str()
            .unwrap()
            .starts_with("a/file: a folder has its name"),
        "{done}"
    );
    assert_eq!(fs::read(scene.path("far/a/other")).unwrap(), b"right");
}

#[test]
fn a_full_disk_is_said_and_what_fits_is_right() {
    require!(Root, Unshare);
    let scene = Scene::new();
    let file = scene.file("near/file", 5);
    fs::write(scene.path("near/small"), "it fits").unwrap();
    // A namespace of its own ends with the far end, and the small file system with it.
    scene.script(
        "ssh",
        "shift; exec unshare -m sh -c \"mount -t tmpfs -o size=2m none ${0%/*}/far && exec $*\"",
    );
    let output = scene.run(&[
        text(&scene.path("near/small")),
        text(&file),
        &scene.far("far"),
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let done = copied(&output);
    assert_eq!(
        (done["files"].as_u64(), done["failed"].as_u64()),
        (Some(1), Some(1)),
        "{done}"
    );
    let failure = done["failures"][0].as_str().unwrap();
    assert!(
        failure.starts_with("file: ") && failure.contains("No space left on device"),
        "{done}"
    );
}

#[test]
fn a_folder_that_is_read_only_is_said_and_the_rest_is_right() {
    require!(Root, Unshare);
    let scene = Scene::new();
    for folder in ["near/a/fixed", "far/a/fixed"] {
        fs::create_dir_all(scene.path(folder)).unwrap();
    }
    for file in ["near/a/fixed/file", "near/a/other"] {
        fs::write(scene.path(file), file).unwrap();
    }
    let mount = "mount --bind -o ro ${0%/*}/far/a/fixed ${0%/*}/far/a/fixed";
    scene.script(
        "ssh",
        &format!("shift; exec unshare -m sh -c \"{mount} && exec $*\""),
    );
    let output = scene.run(&[text(&scene.path("near/a")), &scene.far("far")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let done = copied(&output);
    let failures = done["failures"].to_string();
    assert!(
        failures.contains("a/fixed/file: ") && failures.contains("Read-only file system"),
        "{done}"
    );
    assert_eq!(
        fs::read(scene.path("far/a/other")).unwrap(),
        b"near/a/other"
    );
    assert!(!scene.path("far/a/fixed/file").exists());
}

/// Carries out a copy without the rights of root over permissions, and returns it with its exit
/// code.
fn copy_as_owner(scene: &Scene, arguments: &[&str]) -> (Option<i32>, Value) {
    let copy = scene.command(arguments);
    let mut command = Command::new("setpriv");
    if is_root() {
        command.arg("--bounding-set=-dac_override,-dac_read_search");
    }
    command.arg(copy.get_program()).args(copy.get_args());
    let output = Running::start(&mut command).finish(TIMEOUT);
    (output.status.code(), copied(&output))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

/// Modes of folders that their owner may not list, or not change.
const CLOSED: [u32; 4] = [0o300, 0o100, 0o500, 0o000];

/// It was opened for reading: "Permission denied", where `cp` copies.
#[test]
fn a_folder_that_may_not_be_listed_takes_files_and_gives_those_that_are_named() {
    let scene = Scene::new();
    let file = scene.file("near/file", 2);
    set_mode(&scene.path("far"), 0o333);
    let (code, done) = copy_as_owner(&scene, &[text(&file), &scene.far("far/")]);
    assert_eq!((code, &done["files"]), (Some(0), &json!(1)), "{done}");
    let (code, done) = copy_as_owner(
        &scene,
        &[&scene.far("far/file"), text(&scene.path("near/back"))],
    );
    assert_eq!((code, &done["files"]), (Some(0), &json!(1)), "{done}");
    assert!(is_same(&file, &scene.path("near/back")) && mode(&scene.path("far")) == 0o333);
    // What cannot be listed is not compared, which is said.
    let (code, done) = copy_as_owner(
        &scene,
        &[
            "--delete",
            &format!("{}/", text(&scene.path("near"))),
            &scene.far("far"),
        ],
    );
    assert!(
        code == Some(1)
            && done["failures"]
                .to_string()
                .contains("nothing is deleted in it"),
        "{done}"
    );
    set_mode(&scene.path("far"), 0o755);
    assert!(is_same(&file, &scene.path("far/file")));
}

/// Each copy failed anew, and the folder kept its mode.
#[test]
fn a_folder_that_its_owner_has_closed_is_opened_for_the_copy_and_gets_the_mode_of_the_source() {
    for closed in CLOSED {
        let scene = Scene::new();
        for folder in ["near/in/deep", "far/in/deep", "far/gone/deep"] {
            fs::create_dir_all(scene.path(folder)).unwrap();
            fs::write(scene.path(folder).join("old"), "old").unwrap();
        }
        fs::write(scene.path("near/in/deep/new"), "new").unwrap();
        for folder in ["far/in/deep", "far/in", "far/gone/deep", "far/gone"] {
            set_mode(&scene.path(folder), closed);
        }
        let arguments = [
            "--delete",
            &format!("{}/", text(&scene.path("near"))),
            &scene.far("far"),
        ];
        for _ in 0..2 {
            let (code, done) = copy_as_owner(&scene, &arguments);
            assert_eq!(code, Some(0), "{closed:o}: {done}");
            assert_eq!(
                listing(&scene.path("near")),
                listing(&scene.path("far")),
                "{closed:o}"
            );
        }
        // A mode of the source closes the folder behind the copy, and the next copy opens it again.
        for (content, is_readable) in [("other", false), ("another", true)] {
            // An ordinary owner may not write into the closed folder either.
            set_mode(&scene.path("near/in/deep"), 0o700);
            fs::write(scene.path("near/in/deep/new"), content).unwrap();
            if !is_readable {
                set_mode(&scene.path("near/in/deep"), closed);
            }
            let (code, done) = copy_as_owner(&scene, &arguments);
            assert_eq!(
                mode(&scene.path("far/in/deep")),
                mode(&scene.path("near/in/deep")),
                "{closed:o}: {done}"
            );
            assert!(
                code == Some(0) || !is_readable && closed != 0o500,
                "{closed:o}: {done}"
            );
        }
        assert_eq!(
            listing(&scene.path("near")),
            listing(&scene.path("far")),
            "{closed:o}"
        );
    }
}

/// The working files of an earlier copy in it were out of reach.
#[test]
fn a_copy_into_a_folder_that_was_closed_meanwhile_continues_where_it_was() {
    for closed in CLOSED {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("near/in")).unwrap();
        let file = scene.file("near/in/file", 8);
        let arguments = [
            &format!("{}/", text(&scene.path("near")))[..],
            &scene.far("far"),
        ];
        let mut near = Running::start(
            &mut scene.command(&[&arguments[..], &["--bwlimit", "40Mbit/s"]].concat()),
        );
        let folder = scene.path("far/in");
        assert!(
            within(TIMEOUT, || folder.is_dir() && recorded(&folder) > 2 << 20),
            "nothing arrives"
        );
        near.kill();
        drop(near);
        let held = recorded(&folder);
        set_mode(&folder, closed);
        let (code, done) = copy_as_owner(&scene, &arguments);
        assert_eq!(code, Some(0), "{closed:o}: {done}");
        let sent = done["transferred"].as_u64().unwrap();
        assert!(
            is_same(&file, &folder.join("file")) && sent <= (8 << 20) + 12_345 - held,
            "{closed:o}: {done}"
        );
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Starts a slow copy of `near` and of a file next to it, and returns once data of the first has
/// arrived.
fn slow_copy(scene: &Scene) -> Running {
    let file = scene.file("near/file", 30);
    let last = scene.path("near/last");
    fs::write(&last, "right").unwrap();
    let arguments = [
        text(&file),
        text(&last),
        &scene.far("far"),
        "--bwlimit",
        "100Mbit/s",
    ];
    let running = Running::start(&mut scene.command(&arguments));
    assert!(
        within(TIMEOUT, || recorded(&scene.path("far")) > 0),
        "nothing arrives"
    );
    running
}

/// Writes a mark into the file that is copied.
fn change(scene: &Scene, mark: &[u8]) {
    File::options()
        .write(true)
        .open(scene.path("near/file"))
        .unwrap()
        .write_all_at(mark, 0)
        .unwrap();
}

#[test]
fn a_file_that_changes_while_it_is_read_is_copied_once_more() {
    let scene = Scene::new();
    let running = slow_copy(&scene);
    change(&scene, b"changed");
    let output = running.finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(is_same(&scene.path("near/file"), &scene.path("far/file")));
    assert_eq!(fs::read(scene.path("far/last")).unwrap(), b"right");
    assert_eq!(fs::read_dir(scene.path("far")).unwrap().count(), 2);
}

#[test]
fn a_file_that_goes_on_changing_fails_alone() {
    let scene = Scene::new();
    let running = slow_copy(&scene);
    let is_over = AtomicBool::new(false);
    let output = thread::scope(|threads| {
        threads.spawn(|| {
            // The copy, or its time, is over before that.
            for round in 0_u32..3000 {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                change(&scene, &round.to_le_bytes());
                thread::sleep(Duration::from_millis(20));
            }
        });
        let output = running.finish(TIMEOUT);
        is_over.store(true, Ordering::Relaxed);
        output
    });
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let done = copied(&output);
    assert!(
        done["failures"][0]
            .as_str()
            .unwrap()
            .starts_with("file: it changed twice while it was copied"),
        "{done}"
    );
    assert_eq!(fs::read(scene.path("far/last")).unwrap(), b"right");
    assert!(!scene.path("far/file").exists());
    scene.copy(&[text(&scene.path("near/file")), &scene.far("far")]);
    assert!(is_same(&scene.path("near/file"), &scene.path("far/file")));
}

#[test]
fn a_file_that_vanishes_while_it_is_read_fails_alone() {
    let scene = Scene::new();
    let running = slow_copy(&scene);
    fs::remove_file(scene.path("near/file")).unwrap();
    let output = running.finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        copied(&output)["failures"][0].as_str(),
        Some("file: it vanished while it was copied")
    );
    assert_eq!(fs::read(scene.path("far/last")).unwrap(), b"right");
    assert!(!scene.path("far/file").exists());
}

fn signal(pid: &str, signal: &str) {
    assert!(
        Command::new("kill")
            .args([signal, pid])
            .status()
            .unwrap()
            .success()
    );
}

/// A stopped process is what a network without any sign of life looks like from its other end.
#[test]
fn a_far_end_that_receives_nothing_lets_the_next_copy_have_its_files() {
    let scene = Scene::new();
    let file = scene.file("near/file", 40);
    let arguments = [
        text(&file).to_owned(),
        scene.far("far"),
        "--timeout".to_owned(),
        "2".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stopped =
        Running::start(&mut scene.command(&[&arguments[..], &["--bwlimit", "100Mbit/s"]].concat()));
    assert!(
        within(TIMEOUT, || recorded(&scene.path("far")) > 6 << 20),
        "nothing is recorded"
    );
    signal(&stopped.pid().to_string(), "-STOP");
    let began = Instant::now();
    let output = Running::start(&mut scene.command_in_text(&arguments)).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        said.contains("another transfer holds file; waiting up to 7 s"),
        "{said}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
    assert!(is_same(&file, &scene.path("far/file")));
    assert_eq!(fs::read_dir(scene.path("far")).unwrap().count(), 1);
}

#[test]
fn a_near_end_that_receives_nothing_gives_up() {
    let scene = Scene::new();
    let file = scene.file("near/file", 40);
    scene.script(
        "ssh",
        "shift; echo $$ > \"${0%/*}/pid\"; exec sh -c \"exec $*\"",
    );
    let arguments = [
        text(&file),
        &scene.far("far"),
        "--timeout",
        "2",
        "--bwlimit",
        "100Mbit/s",
    ]
    .map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let running = Running::start(&mut scene.command(&arguments));
    assert!(
        within(TIMEOUT, || recorded(&scene.path("far")) > 0),
        "nothing is recorded"
    );
    let far = fs::read_to_string(scene.path("pid")).unwrap();
    signal(far.trim(), "-STOP");
    let output = running.finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        document
            .to_string()
            .contains("the other end has said nothing for 2 s"),
        "{document}"
    );
}

#[test]
fn between_named_addresses_data_may_cross_in_the_clear() {
    let scene = Scene::new();
    let file = scene.file("near/file", 3);
    let reason = |networks: &[&str]| {
        let _ = fs::remove_file(scene.path("far/file"));
        let destination = scene.far("far");
        let mut arguments = vec![text(&file), &destination];
        for network in networks {
            arguments.extend(["--insecure-data", network]);
        }
        let done = scene.copy(&arguments);
        assert!(is_same(&file, &scene.path("far/file")));
        done["reason"].as_str().unwrap().to_owned()
    };
    assert!(reason(&["127.0.0.0/8", "::1"]).contains("; not encrypted, as asked for"));
    assert!(reason(&["192.0.2.0/24"]).contains("; encrypted, because"));
    assert!(!reason(&[]).contains("encrypted"));
}

#[test]
fn without_a_port_for_tcp_quic_carries_the_data_and_ssh_where_that_is_not_wanted() {
    let scene = Scene::new();
    let file = scene.file("near/file", 3);
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (wanted, transport) in [("tcp", "ssh"), ("auto", "quic")] {
        let _ = fs::remove_file(scene.path("far/file"));
        let done = scene.copy(&[
            text(&file),
            &scene.far("far"),
            "--ports",
            &port,
            "--transport",
            wanted,
        ]);
        assert_eq!(done["transport"].as_str(), Some(transport), "{done}");
        assert!(
            done["reason"]
                .as_str()
                .unwrap()
                .contains("the far end has no free port of the range"),
            "{done}"
        );
        assert!(is_same(&file, &scene.path("far/file")));
    }
}

/// Copies a file in a network of its own that drops all packets of this protocol.
fn copy_without(scene: &Scene, protocol: &str, file: &Path, transport: &str) -> Value {
    let rules = format!(
        "ip link set lo up; nft 'add table inet t; add chain inet t c {{ type filter hook input priority 0; }}; \
         add rule inet t c meta l4proto {protocol} drop'; exec \"$@\""
    );
    let destination = format!("127.0.0.1:{}", scene.path("far").display());
    let copy = scene.command(&[text(file), &destination, "--transport", transport]);
    let mut command = Command::new("unshare");
    command
        .args(["-n", "sh", "-c", &rules, "sh"])
        .arg(copy.get_program())
        .args(copy.get_args());
    let output = Running::start(&mut command).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(is_same(file, &scene.path("far/file")));
    copied(&output)
}

#[test]
fn where_tcp_does_not_pass_quic_carries_the_data_which_is_said() {
    require!(Root, Nft, Tc, Unshare);
    let scene = Scene::new();
    let file = scene.file("near/file", 3);
    let began = Instant::now();
    let done = copy_without(&scene, "tcp", &file, "auto");
    let reason = done["reason"].as_str().unwrap();
    assert_eq!(done["transport"].as_str(), Some("quic"), "{done}");
    assert!(
        reason.starts_with("QUIC with 4 streams, RTT ") && reason.contains("; not TCP, because "),
        "{reason}"
    );
    assert!(
        reason.ends_with(", and it cannot reach this host"),
        "{reason}"
    );
    // Four seconds for TCP in each direction would be more.
    assert!(
        began.elapsed() < Duration::from_millis(7500),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn where_udp_does_not_pass_tcp_carries_the_data_which_is_said() {
    require!(Root, Nft, Tc, Unshare);
    let scene = Scene::new();
    let file = scene.file("near/file", 3);
    let done = copy_without(&scene, "udp", &file, "quic");
    let reason = done["reason"].as_str().unwrap();
    assert_eq!(done["transport"].as_str(), Some("tcp"), "{done}");
    assert!(
        reason.contains("; not QUIC, because 127.0.0.1 cannot be reached at UDP port "),
        "{reason}"
    );
    assert!(
        reason.ends_with(", and it cannot reach this host"),
        "{reason}"
    );
}

/// Two networks of this test's own with these addresses. `$FAR` runs in the other one.
const TWO_NETWORKS: &str = r#"
    unshare -n sleep 60 & far=$!
    trap 'kill $far' EXIT
    export FAR="nsenter -t $far -n"
    while [ "$(readlink /proc/$far/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    ip link set lo up
    ip link add near type veth peer name far netns $far
    for address in $NEAR_ADDRESSES; do ip addr add $address dev near nodad; done
    for address in $FAR_ADDRESSES; do $FAR ip addr add $address dev far nodad; done
    $FAR ip link set lo up
    $FAR ip link set far addrgenmode none
    $FAR ip link set far up
    ip link set near addrgenmode none
    ip link set near up
    $FAR sh -c "$RULES"
"#;

/// A copy to another network.
struct Between<'a> {
    /// Addresses of each host, with their prefixes.
    near: &'a str,
    far: &'a str,
    /// Rules of the far network.
    rules: &'a str,
    /// The connection of ssh, and the far host as the near one knows it.
    from_ssh: &'a str,
    host: &'a str,
    transport: &'a str,
}

impl Between<'_> {
    fn copy(&self, scene: &Scene, file: &Path) -> Value {
        let _ = fs::remove_file(scene.path("far/file"));
        let from_ssh = self.from_ssh;
        scene.script(
            "ssh",
            &format!("shift; export SSH_CONNECTION='{from_ssh}'; exec $FAR sh -c \"$*\""),
        );
        let destination = format!("[{}]:{}", self.host, scene.path("far").display());
        let copy = scene.command(&[text(file), &destination, "--transport", self.transport]);
        let script = format!("set -e; {TWO_NETWORKS}\n\"$@\"");
        let mut command = Command::new("unshare");
        command
            .args(["-n", "sh", "-c", &script, "sh"])
            .arg(copy.get_program())
            .args(copy.get_args());
        command.envs([
            ("NEAR_ADDRESSES", self.near),
            ("FAR_ADDRESSES", self.far),
            ("RULES", self.rules),
        ]);
        let output = Running::start(&mut command).finish(TIMEOUT);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(is_same(file, &scene.path("far/file")));
        copied(&output)
    }
}

/// The scope of the addresses was lost, so that ssh carried the data.
#[test]
fn between_link_local_addresses_connections_carry_the_data_in_either_direction() {
    require!(Root, Nft, Tc, Unshare);
    let scene = Scene::new();
    let file = scene.file("near/file", 3);
    let no_calls = "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                    add rule inet t c tcp flags & (syn|ack) == syn reject with tcp reset'";
    for (rules, transport, found) in [
        ("", "tcp", "tcp"),
        (no_calls, "tcp", "tcp-from-far-end"),
        ("", "quic", "quic"),
    ] {
        let (near, far, from_ssh) = (
            "fe80::1/64",
            "fe80::2/64",
            "fe80::1%far 1234 fe80::2%far 22",
        );
        let done = Between {
            near,
            far,
            rules,
            from_ssh,
            host: "fe80::2%near",
            transport,
        }
        .copy(&scene, &file);
        assert_eq!(done["transport"].as_str(), Some(found), "{done}");
    }
}

/// The end that listened once answered from the address that its routes prefer, which the other end
/// did not take.
#[test]
fn quic_carries_the_data_whichever_address_of_a_host_is_called() {
    require!(Root, Nft, Tc, Unshare);
    let scene = Scene::new();
    let file = scene.file("near/file", 3);
    for (network, prefix) in [("192.0.2.", 24), ("2001:db8::", 64), ("fe80::", 64)] {
        let addresses = |hosts: [u8; 2]| {
            hosts
                .map(|host| format!("{network}{host}/{prefix}"))
                .join(" ")
        };
        let (near, far) = (addresses([1, 2]), addresses([3, 4]));
        let scope = |device: &'static str| if network == "fe80::" { device } else { "" };
        // Nobody has the fifth address, so the far end calls the near one.
        for (near_host, far_host, found) in [
            (1, 3, "quic"),
            (1, 4, "quic"),
            (1, 5, "quic-from-far-end"),
            (2, 5, "quic-from-far-end"),
        ] {
            let from_ssh = format!(
                "{network}{near_host}{} 1234 {network}{far_host}{} 22",
                scope("%far"),
                scope("%far")
            );
            let host = format!("{network}{far_host}{}", scope("%near"));
            let (near, far) = (&*near, &*far);
            let copy = Between {
                near,
                far,
                rules: "",
                from_ssh: &from_ssh,
                host: &host,
                transport: "quic",
            };
            let done = copy.copy(&scene, &file);
            assert_eq!(
                done["transport"].as_str(),
                Some(found),
                "{far_host}: {done}"
            );
        }
    }
}

#[test]
fn a_copy_by_quic_has_the_streams_and_the_rate_that_are_asked_for() {
    let scene = Scene::new();
    let file = scene.file("near/file", 8);
    let limits = [
        "--transport",
        "quic",
        "--streams",
        "2",
        "--bwlimit",
        "40Mbit/s",
    ];
    let done = scene.copy(&[&[text(&file), &scene.far("far")], &limits[..]].concat());
    assert!(is_same(&file, &scene.path("far/file")));
    assert_eq!(
        (done["transport"].as_str(), done["streams"].as_u64()),
        (Some("quic"), Some(2)),
        "{done}"
    );
    assert_eq!(
        (done["limit"].as_str(), done["congestion_control"].as_str()),
        (Some("rate-limit"), Some("cubic"))
    );
    for refused in [&["--scavenge"][..], &["--insecure-data", "127.0.0.0/8"]] {
        let output = scene.run(
            &[
                &[text(&file), &scene.far("far"), "--transport", "quic"],
                refused,
            ]
            .concat(),
        );
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("leave out --"),
            "{output:?}"
        );
    }
}

/// By each way, in both directions.
#[test]
fn digits_cross_compressed_over_a_slow_way_and_what_does_not_compress_as_it_is() {
    let scene = Scene::new();
    let [digits, random] = ["near/digits", "near/random"].map(|name| scene.path(name));
    fs::write(&digits, random_digits(1 << 20)).unwrap();
    fs::write(&random, random_bytes(1 << 20)).unwrap();
    let back = scene.path("near/back");
    let saved = |from: &str, to: &str, more: &[&str]| {
        // Slower than one processor with other work compresses, and than a disk with other work
        // writes.
        let done = scene.copy(&[&[from, to, "--bwlimit", "10Mbit/s"], more].concat());
        assert!(
            done["limit"] == "rate-limit" || done["transport"] == "quic",
            "{done}"
        );
        done["saved"].as_u64().unwrap() * 100 / done["bytes"].as_u64().unwrap()
    };
    for transport in ["tcp", "quic"] {
        let far = scene.far(transport);
        let up = saved(text(&digits), &far, &["--transport", transport]);
        assert!(is_same(&digits, &scene.path(transport)));
        let down = saved(&far, text(&back), &["--transport", transport]);
        assert!(is_same(&digits, &back));
        fs::remove_file(&back).unwrap();
        assert!(
            (10..55).contains(&up) && (10..55).contains(&down),
            "{transport}: {up} % up, {down} % down"
        );
    }
    assert_eq!(saved(text(&random), &scene.far("random"), &[]), 0);
    assert_eq!(
        saved(text(&digits), &scene.far("plain"), &["--no-compress"]),
        0
    );
    assert_eq!(
        saved(&scene.far("plain"), text(&back), &["--no-compress"]),
        0
    );
}

#[test]
fn a_wrong_command_line_and_a_missing_far_end_have_their_exit_codes() {
    let scene = Scene::new();
    let code = |arguments: &[&str]| {
        let output = scene.run(arguments);
        assert_eq!(
            serde_json::from_slice::<Value>(&output.stdout).unwrap()["kind"],
            "error",
            "{output:?}"
        );
        output.status.code()
    };
    assert_eq!(code(&["a", "b"]), Some(2));
    assert_eq!(code(&["/nowhere/at/all", "host:dir"]), Some(2));
    assert_eq!(
        code(&[&scene.far("nothing"), text(&scene.path("near"))]),
        Some(2)
    );
    scene.script("ssh", "exit 127");
    assert_eq!(code(&[text(&scene.path("near")), "host:dir"]), Some(3));
    scene.script("ssh", "exit 255");
    assert_eq!(code(&[text(&scene.path("near")), "host:dir"]), Some(1));
}

#[test]
fn a_file_crosses_over_a_real_ssh() {
    require!(Sshd, Root);
    let scene = Scene::new();
    let sshd = SshServer::on(free_port());
    let _server = sshd.start();
    let file = scene.file("near/file", 8);
    let mut command = fullpipe();
    let program = command.get_program().to_str().unwrap().to_owned();
    let destination = format!("127.0.0.1:{}", scene.path("far").display());
    command.args([
        "copy",
        "--json",
        "--far-path",
        &program,
        "-e",
        &sshd.client(),
        text(&file),
        &destination,
    ]);
    let output = Running::start(&mut command).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(copied(&output)["transport"].as_str(), Some("tcp"));
    assert!(is_same(&file, &scene.path("far/file")));
}
