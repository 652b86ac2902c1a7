//! Copies between two processes of this host: mostly with a script in the place of ssh, once over a real one.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use fullpipe_testkit::{Running, fullpipe, within};
use serde_json::Value;

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
        scene.script("ssh", "shift; echo Welcome; exec sh -c \"$*\"");
        scene
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn far(&self, name: &str) -> String {
        format!("localhost:{}", self.path(name).display())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = fullpipe();
        let program = command.get_program().to_str().unwrap().to_owned();
        command.args(["copy", "--json", "--far-path", &program, "-e", self.path("ssh").to_str().unwrap()]);
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
        let content: Vec<u8> = (0..(mib << 20) + 12_345).map(|at| ((at as u64 * at as u64) >> 7) as u8).collect();
        fs::write(&path, content).unwrap();
        path
    }
}

fn copied(output: &Output) -> Value {
    let document: Value = serde_json::from_slice(&output.stdout).expect("standard output is one document");
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
    fs::write(root.join("a").join(std::ffi::OsStr::from_bytes(b"caf\xe9\n\x1b[2J")), "no UTF-8").unwrap();
    let sparse = File::create(root.join("a/sparse")).unwrap();
    sparse.set_len(9 << 20).unwrap();
    sparse.write_all_at(b"data", 5 << 20).unwrap();
    for index in 0..300 {
        fs::write(root.join(format!("a/b/small-{index}")), vec![index as u8; index * 11]).unwrap();
    }
}

/// Everything of a tree that is kept, as lines.
fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, state) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
            let time = if state.is_symlink() { 0 } else { state.mtime_nsec() + state.mtime() * 1_000_000_000 };
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
                    fs::read(&path).unwrap().iter().map(|byte| u64::from(*byte)).sum::<u64>()
                ));
            } else if state.is_symlink() {
                lines.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_tree_crosses_both_ways_and_is_the_same() {
    let scene = Scene::new();
    tree(&scene.path("near"));
    let near = text(&scene.path("near/a")).to_owned();
    let up = scene.copy(&[&near, &scene.far("far")]);
    assert_eq!(listing(&scene.path("near")), listing(&scene.path("far")));
    assert_eq!((up["failed"].as_u64(), up["transport"].as_str()), (Some(0), Some("tcp")), "{up}");
    let blocks = fs::metadata(scene.path("far/a/sparse")).unwrap().blocks();
    assert!(blocks * 512 < 3 << 20, "holes stay holes: {blocks}");
    let again = scene.copy(&[&near, &scene.far("far")]);
    assert_eq!((again["files"].as_u64(), again["present"].as_u64()), (Some(0), Some(304)), "{again}");
    let back = text(&scene.path("back")).to_owned();
    scene.copy(&[&scene.far("far/"), &back]);
    assert_eq!(listing(&scene.path("near")), listing(&scene.path("back")));
}

#[test]
fn a_file_gets_another_name_and_its_digest_is_that_of_b3sum() {
    let scene = Scene::new();
    let file = scene.file("near/file", 5);
    let done = scene.copy(&[text(&file), &scene.far("far/renamed")]);
    assert!(is_same(&file, &scene.path("far/renamed")));
    assert_eq!(done["digest"].as_str().map(str::len), Some(64));
    let back = scene.copy(&[&scene.far("far/renamed"), text(&scene.path("near/other"))]);
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
    let arguments = [&format!("{}/", scene.path("near").display()), &scene.far("far"), "--delete", "--exclude", "*.o"];
    let names = |folder: &str| {
        let mut names: Vec<_> =
            fs::read_dir(scene.path(folder)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let dry = scene.copy(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!((dry["files"].as_u64(), dry["deleted"].as_u64()), (Some(1), Some(2)), "{dry}");
    assert_eq!(names("far"), ["mine.o", "old", "older"]);
    let done = scene.copy(&arguments);
    assert_eq!((done["files"].as_u64(), done["deleted"].as_u64()), (Some(1), Some(2)), "{done}");
    assert_eq!(names("far"), ["keep", "mine.o"]);
}

/// Bytes that the journals in a folder record as verified.
fn recorded(folder: &Path) -> u64 {
    let journals = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let journals = journals.filter(|path| path.extension().is_some_and(|extension| extension == "fullpipe-journal"));
    journals.map(|path| (fs::metadata(path).unwrap().len().saturating_sub(64) / 48) << 20).sum()
}

#[test]
fn a_copy_that_was_killed_at_either_end_continues_where_it_was() {
    let scene = Scene::new();
    let file = scene.file("near/file", 40);
    let far = scene.script("ssh", "shift; echo $$ > \"${0%/*}/pid\"; exec sh -c \"exec $*\"");
    assert!(far.ends_with("ssh"));
    let slow = ["--bwlimit", "100Mbit/s"];
    for (round, kills_far) in [false, true].into_iter().enumerate() {
        let _ = fs::remove_file(scene.path("far/file"));
        let (source, destination) = (text(&file).to_owned(), scene.far("far"));
        let mut running = Running::start(&mut scene.command(&[&[source.as_str(), &destination], &slow[..]].concat()));
        let enough = (round as u64 + 1) * (6 << 20);
        assert!(within(TIMEOUT, || recorded(&scene.path("far")) > enough), "nothing is recorded");
        if kills_far {
            let pid: i32 = fs::read_to_string(scene.path("pid")).unwrap().trim().parse().unwrap();
            let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
            assert!(killed.success());
            let output = running.finish(TIMEOUT);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
        } else {
            running.kill();
            drop(running);
        }
        // The far end notices that the near one has gone.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!scene.path("far/file").exists(), "no half file has its final name");
        let before = recorded(&scene.path("far"));
        let done = scene.copy(&[&source, &destination]);
        assert!(is_same(&file, &scene.path("far/file")));
        let (bytes, sent) = (done["bytes"].as_u64().unwrap(), done["transferred"].as_u64().unwrap());
        assert!(before > enough && sent + before <= bytes + (1 << 20), "{sent} of {bytes} again, {before} before");
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
    assert!(done["failures"][0].as_str().unwrap().starts_with("a/file: a folder has its name"), "{done}");
    assert_eq!(fs::read(scene.path("far/a/other")).unwrap(), b"right");
}

#[test]
fn a_full_disk_is_said() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let file = scene.file("near/file", 5);
    // A namespace of its own ends with the far end, and the small file system with it.
    scene.script("ssh", "shift; exec unshare -m sh -c \"mount -t tmpfs -o size=2m none ${0%/*}/far && exec $*\"");
    let output = scene.run(&[text(&file), &scene.far("far")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let done = copied(&output);
    assert!(done["failures"][0].as_str().unwrap().contains("No space left on device"), "{done}");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[test]
fn a_file_that_changes_while_it_is_read_fails_alone() {
    let scene = Scene::new();
    let file = scene.file("near/file", 30);
    let arguments = [text(&file), &scene.far("far"), "--bwlimit", "100Mbit/s"].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let running = Running::start(&mut scene.command(&arguments));
    assert!(within(TIMEOUT, || recorded(&scene.path("far")) > 0));
    File::options().write(true).open(&file).unwrap().write_all_at(b"changed", 0).unwrap();
    let output = running.finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(copied(&output)["failures"][0].as_str().unwrap().contains("changed while it was copied"));
    assert!(!scene.path("far/file").exists());
    scene.copy(&[text(&file), &scene.far("far")]);
    assert!(is_same(&file, &scene.path("far/file")));
}

#[test]
fn without_a_port_ssh_carries_the_data() {
    let scene = Scene::new();
    let file = scene.file("near/file", 3);
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let done = scene.copy(&[text(&file), &scene.far("far"), "--ports", &port]);
    assert_eq!(done["transport"].as_str(), Some("ssh"), "{done}");
    assert!(is_same(&file, &scene.path("far/file")));
}

#[test]
fn a_wrong_command_line_and_a_missing_far_end_have_their_exit_codes() {
    let scene = Scene::new();
    let code = |arguments: &[&str]| {
        let output = scene.run(arguments);
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["kind"], "error", "{output:?}");
        output.status.code()
    };
    assert_eq!(code(&["a", "b"]), Some(2));
    assert_eq!(code(&["/nowhere/at/all", "host:dir"]), Some(2));
    assert_eq!(code(&[&scene.far("nothing"), text(&scene.path("near"))]), Some(2));
    scene.script("ssh", "exit 127");
    assert_eq!(code(&[text(&scene.path("near")), "host:dir"]), Some(3));
    scene.script("ssh", "exit 255");
    assert_eq!(code(&[text(&scene.path("near")), "host:dir"]), Some(1));
}

/// A server of OpenSSH on loopback, with keys of its own.
struct Sshd {
    _server: Running,
    client: String,
}

impl Sshd {
    fn start(folder: &Path) -> Option<Self> {
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].into_iter().find(|path| Path::new(path).exists())?;
        if !is_root() || !(Path::new("/run/sshd").exists() || fs::create_dir("/run/sshd").is_ok()) {
            return None;
        }
        for key in ["host", "user"] {
            let path = folder.join(key);
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", text(&path)]).status();
            assert!(made.unwrap().success());
        }
        let port = fullpipe_testkit::free_port();
        let shown = folder.display();
        let server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/user.pub\n\
             PidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nStrictModes no\nUsePAM no\n"
        );
        let client = format!(
            "Port {port}\nUser root\nIdentityFile {shown}/user\nIdentitiesOnly yes\nUserKnownHostsFile /dev/null\n\
             StrictHostKeyChecking no\nBatchMode yes\nLogLevel ERROR\n"
        );
        fs::write(folder.join("server"), server).unwrap();
        fs::write(folder.join("client"), client).unwrap();
        let configuration = folder.join("server");
        let server = Running::start(Command::new(program).args(["-D", "-e", "-f", text(&configuration)]));
        assert!(within(TIMEOUT, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()), "sshd does not answer");
        Some(Self { _server: server, client: format!("ssh -F {shown}/client") })
    }
}

#[test]
fn a_file_crosses_over_a_real_ssh() {
    let scene = Scene::new();
    let Some(sshd) = Sshd::start(scene.folder.path()) else { return };
    let file = scene.file("near/file", 8);
    let mut command = fullpipe();
    let program = command.get_program().to_str().unwrap().to_owned();
    let destination = format!("127.0.0.1:{}", scene.path("far").display());
    command.args(["copy", "--json", "--far-path", &program, "-e", &sshd.client, text(&file), &destination]);
    let output = Running::start(&mut command).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(copied(&output)["transport"].as_str(), Some("tcp"));
    assert!(is_same(&file, &scene.path("far/file")));
}
