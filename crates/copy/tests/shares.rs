//! Copies with `fullpipe serve --share`, over loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{
    Running, allow_descriptors, free_port, fullpipe, load_slot, random_bytes, require,
    wait_for_listener, within, write_secret,
};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

const TIMEOUT: Duration = Duration::from_mins(1);

/// A server that shares a folder, and a folder of a client.
struct Scene {
    folder: tempfile::TempDir,
    port: u16,
    server: Running,
}

impl Scene {
    /// Shares the folder `shared`, with these flags.
    fn new(suffix: &str, flags: &[&str]) -> Self {
        Self::start(fullpipe(), suffix, flags)
    }

    /// Does the same with a `command` that runs the program.
    fn start(mut command: Command, suffix: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["near", "shared", "outside"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, key) in [
            ("key", "correct horse battery"),
            ("other", "correct horse batterz"),
        ] {
            write_secret(folder.path().join(name), key);
        }
        let (tests, port) = (free_port().to_string(), free_port());
        let shared = format!("{}{suffix}", folder.path().join("shared").display());
        command.args([
            "serve",
            "--no-iperf2",
            "-p",
            &tests,
            "--share",
            &shared,
            "--share-port",
            &port.to_string(),
        ]);
        command
            .arg("--key-file")
            .arg(folder.path().join("key"))
            .args(flags);
        let server = Running::start(&mut command);
        wait_for_listener(port);
        Self {
            folder,
            port,
            server,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn near(&self, name: &str) -> String {
        self.path("near").join(name).to_str().unwrap().to_owned()
    }

    fn far(&self, path: &str) -> String {
        format!("fullpipe://127.0.0.1:{}/{path}", self.port)
    }

    fn run(&self, key: &str, arguments: &[&str]) -> Output {
        let mut command = fullpipe();
        command
            .args(["copy", "--json", "--key-file"])
            .arg(self.path(key))
            .args(arguments);
        Running::start(&mut command).finish(TIMEOUT)
    }

    /// Returns the report of a copy, or the error of one that failed, with the exit code.
    fn copy(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.run("key", arguments);
        let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let content = if document["copy"].is_null() {
            "error"
        } else {
            "copy"
        };
        (output.status.code(), document[content].take())
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| ((at as u64 * at as u64) >> 7) as u8)
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_tree_crosses_to_a_shared_folder_and_back() {
    let scene = Scene::new("", &[]);
    fs::create_dir_all(scene.near("tree/deep").as_str()).unwrap();
    fs::write(scene.near("tree/deep/file"), content(3_000_000)).unwrap();
    for index in 0..50 {
        fs::write(
            scene.near(&format!("tree/small-{index}")),
            content(index * 100),
        )
        .unwrap();
    }
    let (code, up) = scene.copy(&[&scene.near("tree"), &scene.far("")]);
    assert_eq!(
        (code, up["files"].as_u64(), up["transport"].as_str()),
        (Some(0), Some(51), Some("tcp")),
        "{up}"
    );
    assert_eq!(
        fs::read(scene.path("shared/tree/deep/file")).unwrap(),
        content(3_000_000)
    );
    let (code, back) = scene.copy(&[&scene.far("tree/deep/file"), &scene.near("renamed")]);
    assert_eq!((code, back["files"].as_u64()), (Some(0), Some(1)), "{back}");
    assert_eq!(fs::read(scene.near("renamed")).unwrap(), content(3_000_000));
    let (code, again) = scene.copy(&[&scene.near("tree/"), &scene.far("new"), "--delete"]);
    assert_eq!(
        (code, again["files"].as_u64()),
        (Some(0), Some(51)),
        "{again}"
    );
    assert_eq!(names(&scene.path("shared")), ["new", "tree"]);
}

/// It took the connection of the call, whose windows are small, after a wait of eight seconds.
#[test]
fn where_only_the_port_of_the_call_can_be_reached_connections_carry_the_data_at_once() {
    require!(Root, Nft, Unshare);
    let scene = Scene::new("", &[]);
    fs::write(scene.path("shared/file"), content(3_000_000)).unwrap();
    let (server, port) = (scene.server.pid().to_string(), scene.port.to_string());
    // The client has a network of its own, from which only this port of the server's can be called.
    let script = r#"
        set -e
        ip link add client type veth peer name server netns $SERVER
        trap 'ip link del client' EXIT
        ip addr add 198.51.100.1/30 dev client; ip link set client up; ip link set lo up
        nsenter -t $SERVER -n sh -c 'ip addr add 198.51.100.2/30 dev server; ip link set server up'
        nft "add table inet t; add chain inet t c { type filter hook output priority 0; }
             add rule inet t c meta l4proto { tcp, udp } th dport != $PORT drop"
        "$@""#;
    let near = scene.near("file");
    let mut command = Command::new("unshare");
    command
        .args(["-n", "sh", "-c", script, "sh"])
        .arg(fullpipe().get_program());
    command
        .args(["copy", "--json", "--key-file"])
        .arg(scene.path("key"));
    command.args([&format!("fullpipe://198.51.100.2:{port}/file"), &near]);
    let output = Running::start(command.envs([("SERVER", server), ("PORT", port)])).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let copy = &document["copy"];
    assert_eq!(copy["transport"].as_str(), Some("tcp"), "{copy}");
    assert!(copy["set_up"].as_f64().unwrap() < 4.0, "{copy}");
    assert_eq!(fs::read(near).unwrap(), content(3_000_000));
}

/// It only broke the connection.
#[test]
fn a_copy_beyond_those_that_a_server_serves_at_once_is_refused_with_a_reason() {
    let scene = Scene::new("", &["--max-tests", "1"]);
    fs::write(scene.path("shared/file"), random_bytes(20_000_000)).unwrap();
    let mut command = fullpipe();
    command
        .args(["copy", "--bwlimit", "10Mbit/s", "--key-file"])
        .arg(scene.path("key"));
    let _first = Running::start(command.args([&scene.far("file"), &scene.near("file")]));
    let is_under_way = || {
        names(&scene.path("near"))
            .iter()
            .any(|name| name.ends_with(".fullpipe-part"))
    };
    assert!(within(TIMEOUT, is_under_way));
    let (code, error) = scene.copy(&[&scene.far("file"), &scene.near("second")]);
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.to_string().contains("too many copies are under way"),
        "{error}"
    );
}

#[test]
fn nothing_outside_the_folder_is_read_or_written() {
    let scene = Scene::new("", &[]);
    fs::write(scene.near("file"), "mine").unwrap();
    fs::write(scene.path("outside/secret"), "secret").unwrap();
    symlink(scene.path("outside"), scene.path("shared/link")).unwrap();
    symlink(scene.path("outside/secret"), scene.path("shared/file-link")).unwrap();
    let absolute = scene.path("outside").display().to_string();
    for path in [
        "../outside",
        "link",
        "link/",
        "/etc",
        &format!("/{absolute}"),
        "../../../../etc",
        "a/../../outside",
    ] {
        let (up, _) = scene.copy(&[&scene.near("file"), &scene.far(path)]);
        let (down, _) = scene.copy(&[&scene.far(&format!("{path}/secret")), &scene.near("taken")]);
        assert!(up != Some(0) && down != Some(0), "{path}");
    }
    assert!(
        fs::symlink_metadata(scene.path("shared/link"))
            .unwrap()
            .is_symlink()
    );
    let (code, _) = scene.copy(&[&scene.far("file-link"), &scene.near("taken")]);
    assert_eq!(code, Some(0));
    assert!(
        fs::symlink_metadata(scene.near("taken"))
            .unwrap()
            .is_symlink(),
        "a link is copied as one"
    );
    assert_eq!(names(&scene.path("outside")), ["secret"]);
    assert_eq!(fs::read(scene.path("outside/secret")).unwrap(), b"secret");
}

#[test]
fn a_folder_that_is_read_only_is_read_and_not_changed() {
    let scene = Scene::new(":ro", &[]);
    fs::write(scene.path("shared/file"), "shared").unwrap();
    let (code, error) = scene.copy(&[&scene.near(""), &scene.far(""), "--delete"]);
    assert_eq!(code, Some(1));
    assert!(
        error
            .to_string()
            .contains("lets its folder be read, not changed"),
        "{error}"
    );
    let (code, dry) = scene.copy(&[&scene.near(""), &scene.far(""), "--delete", "--dry-run"]);
    assert_eq!((code, dry["deleted"].as_u64()), (Some(0), Some(1)), "{dry}");
    assert_eq!(
        scene.copy(&[&scene.far("file"), &scene.near("file")]).0,
        Some(0)
    );
    assert_eq!(fs::read(scene.near("file")).unwrap(), b"shared");
    assert_eq!(names(&scene.path("shared")), ["file"]);
}

#[test]
fn bounds_of_bytes_and_of_networks_are_kept() {
    let scene = Scene::new("", &["--max-bytes", "1MB"]);
    fs::write(scene.near("small"), content(10_000)).unwrap();
    fs::write(scene.near("large"), content(2_000_000)).unwrap();
    let (code, done) = scene.copy(&[&scene.near("small"), &scene.near("large"), &scene.far("")]);
    assert_eq!(
        (code, done["files"].as_u64(), done["failed"].as_u64()),
        (Some(1), Some(1), Some(1)),
        "{done}"
    );
    assert!(
        done["failures"][0]
            .as_str()
            .unwrap()
            .starts_with("large: the server lets no copy have more"),
        "{done}"
    );
    assert_eq!(names(&scene.path("shared")), ["small"]);
    fs::write(scene.path("shared/large"), content(2_000_000)).unwrap();
    assert_eq!(
        scene.copy(&[&scene.far("large"), &scene.near("back")]).0,
        Some(1)
    );
    let denied = Scene::new("", &["--deny", "127.0.0.1"]);
    assert_eq!(
        denied.copy(&[&denied.far("x"), &denied.near("x")]).0,
        Some(1)
    );
}

#[test]
fn who_does_not_have_the_key_gets_nothing() {
    let scene = Scene::new("", &[]);
    fs::write(scene.path("shared/file"), "shared").unwrap();
    let output = scene.run("other", &[&scene.far("file"), &scene.near("file")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("does not have the same key"),
        "{output:?}"
    );
    let mut command = fullpipe();
    command.args(["copy", &scene.far("file"), &scene.near("file")]);
    let output = Running::start(&mut command).finish(TIMEOUT);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let mut raw = TcpStream::connect(("127.0.0.1", scene.port)).unwrap();
    raw.write_all(b"fpeer 1\n0123456789012345678901234567890123456789")
        .unwrap();
    let mut answer = Vec::new();
    raw.set_read_timeout(Some(TIMEOUT)).unwrap();
    let _ = raw.read_to_end(&mut answer);
    assert!(answer.len() < 64, "it answers in the clear: {answer:?}");
    assert_eq!(
        scene.copy(&[&scene.far("file"), &scene.near("file")]).0,
        Some(0)
    );
}

/// A copy to the port of tests failed, as if another program answered.
#[test]
fn one_port_serves_copies_and_measurements() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    write_secret(&key, "correct horse battery");
    fs::create_dir(folder.path().join("shared")).unwrap();
    fs::write(folder.path().join("file"), content(3_000_000)).unwrap();
    let [port, own] = [(); 2].map(|()| free_port().to_string());
    // Copies have a port of their own besides, or none.
    for share_port in [&own, &port] {
        let mut command = fullpipe();
        command
            .args(["serve", "-p", &port, "--share-port", share_port, "--share"])
            .arg(folder.path().join("shared"));
        let _server = Running::start(command.arg("--key-file").arg(&key));
        wait_for_listener(port.parse().unwrap());
        for at in [&port, share_port] {
            let mut command = fullpipe();
            command
                .args(["copy", "--key-file"])
                .arg(&key)
                .arg(folder.path().join("file"));
            let copied = Running::start(command.arg(format!("fullpipe://127.0.0.1:{at}/{at}")))
                .finish(TIMEOUT);
            assert!(copied.status.success(), "{copied:?}");
            assert_eq!(
                fs::read(folder.path().join("shared").join(at)).unwrap(),
                content(3_000_000)
            );
            fs::remove_file(folder.path().join("shared").join(at)).unwrap();
        }
        let mut command = fullpipe();
        command
            .args([
                "measure",
                "127.0.0.1",
                "-n",
                "1M",
                "-p",
                &port,
                "--key-file",
            ])
            .arg(&key);
        let measured = Running::start(&mut command).finish(TIMEOUT);
        assert!(measured.status.success(), "{measured:?}");
        let refused = Running::start(fullpipe().args(["iperf3", "-c", "127.0.0.1", "-p", &port]))
            .finish(TIMEOUT);
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("asks for a key"),
            "{refused:?}"
        );
    }
}

/// Opens a connection from one of this host's many loopback addresses.
fn call(port: u16, last: u8) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 9, last], 0)).into())?;
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
    Ok(socket.into())
}

/// Two addresses locked everybody out for four seconds, and for ever if they called again.
#[test]
fn silent_connections_keep_nobody_from_copying() {
    let _slot = load_slot();
    allow_descriptors(20_000).unwrap();
    let scene = Scene::new("", &[]);
    fs::write(scene.path("shared/file"), content(100_000)).unwrap();
    let copy = |index: u32| {
        let began = Instant::now();
        let (code, done) = scene.copy(&[&scene.far("file"), &scene.near(&format!("copy-{index}"))]);
        assert_eq!(code, Some(0), "{done}");
        began.elapsed()
    };
    let usual = copy(0);
    let is_over = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let (begun, is_under_way) = channel();
        scope.spawn(|| {
            let begun = begun;
            for _ in (0..20).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let calls = (0..128).flat_map(|_| 1..=32);
                let silent: Vec<_> = calls
                    .map_while(|last| call(scene.port, last).ok())
                    .collect();
                let _ = begun.send(silent.len());
                thread::sleep(Duration::from_secs(3));
            }
        });
        assert_eq!(is_under_way.recv(), Ok(32 * 128));
        let longest = (1..=20).map(copy).max();
        is_over.store(true, Ordering::Relaxed);
        longest.unwrap()
    });
    assert!(
        longest < usual + Duration::from_secs(1),
        "{longest:?}, {usual:?} before"
    );
}

#[test]
fn silent_connections_keep_nobody_from_copying_where_there_are_few_descriptors() {
    // `prlimit` comes with it.
    require!(Unshare);
    let _slot = load_slot();
    let mut command = Command::new("prlimit");
    command
        .arg("--nofile=256:256")
        .arg(fullpipe().get_program());
    let scene = Scene::start(command, "", &[]);
    fs::write(scene.path("shared/file"), content(100_000)).unwrap();
    let copy = |index: u32| {
        let began = Instant::now();
        let (code, done) = scene.copy(&[&scene.far("file"), &scene.near(&format!("copy-{index}"))]);
        assert_eq!(code, Some(0), "{done}");
        began.elapsed()
    };
    let usual = copy(0);
    let silent: Vec<_> = (0..12)
        .flat_map(|_| 1..=4)
        .map_while(|last| call(scene.port, last).ok())
        .collect();
    assert_eq!(silent.len(), 48);
    let longest = (1..=20).map(copy).max().unwrap();
    assert!(
        longest < usual + Duration::from_secs(1),
        "{longest:?}, {usual:?} before"
    );
}

/// Returns the bytes in send queues of all TCP sockets of a process.
fn unsent_bytes(process: &Running) -> u64 {
    let links = fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap();
    let links: Vec<_> = links
        .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
        .collect();
    let is_own = |inode: &str| {
        links
            .iter()
            .any(|link| link.to_str() == Some(&format!("socket:[{inode}]")))
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|file| fs::read_to_string(file).unwrap_or_default());
    let sockets = tables.iter().flat_map(|table| table.lines().skip(1));
    let sizes = sockets
        .map(|line| line.split_whitespace().collect())
        .filter_map(|fields: Vec<&str>| {
            let unsent = u64::from_str_radix(fields[4].split_once(':')?.0, 16).unwrap();
            is_own(fields[9]).then_some(unsent)
        });
    sizes.sum()
}

/// Returns the bytes that files of a folder take.
fn stored_bytes(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.metadata().ok()?.blocks() * 512))
        .sum()
}

/// They held 700 MB, for as long as they liked.
#[test]
fn copies_whose_clients_stop_to_read_are_ended_once_too_much_waits_for_them() {
    let _slot = load_slot();
    allow_descriptors(4_000).unwrap();
    let scene = Scene::new("", &[]);
    fs::write(scene.path("shared/file"), random_bytes(1 << 30)).unwrap();
    let clients: Vec<Running> = (0..3)
        .map(|index| {
            let mut command = fullpipe();
            command.args([
                "copy",
                "--streams",
                "64",
                "--no-compress",
                "--transport",
                "tcp",
                "--key-file",
            ]);
            command.arg(scene.path("key"));
            Running::start(command.args([scene.far("file"), scene.near(&format!("copy-{index}"))]))
        })
        .collect();
    assert!(within(TIMEOUT, || stored_bytes(&scene.path("near")) > 60 << 20));
    for client in &clients {
        assert!(
            Command::new("kill")
                .args(["-STOP", &client.pid().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }
    let before = unsent_bytes(&scene.server);
    thread::sleep(Duration::from_secs(4));
    let is_bounded = within(Duration::from_secs(10), || {
        unsent_bytes(&scene.server) <= 64 << 20
    });
    let after = unsent_bytes(&scene.server);
    assert!(
        is_bounded,
        "{before} bytes wait when the clients stop, and {after} later"
    );
    drop(clients);
    fs::write(scene.path("shared/small"), "small").unwrap();
    assert_eq!(
        scene.copy(&[&scene.far("small"), &scene.near("small")]).0,
        Some(0)
    );
    scene.server.interrupt();
    let output = scene.server.finish(TIMEOUT);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("wait in this host's kernel"), "{said}");
}

/// Passes one connection on to `port`, and returns its own port, and both directions once that has
/// ended.
fn recording(port: u16) -> (u16, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let (recorded, recordings) = channel();
    thread::spawn(move || {
        let caller = listener.accept().unwrap().0;
        drop(listener);
        let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let directions = [
            (caller.try_clone().unwrap(), server.try_clone().unwrap()),
            (server, caller),
        ]
        .map(|(mut from, mut to)| {
            let recorded = recorded.clone();
            thread::spawn(move || {
                let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    all.extend(&buffer[..count]);
                    if to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Write);
                let _ = recorded.send(all);
            })
        });
        for direction in directions {
            direction.join().unwrap();
        }
    });
    (own, recordings)
}

#[test]
fn who_records_a_copy_can_neither_read_nor_repeat_it() {
    const SECRET: &[u8] = b"a-name-and-content-that-would-be-seen";
    let scene = Scene::new("", &[]);
    let name = String::from_utf8(SECRET.to_vec()).unwrap();
    fs::write(scene.near(&name), SECRET.repeat(100)).unwrap();
    let (port, recordings) = recording(scene.port);
    // No port is left for data, and its connections are not passed on, so that it crosses with the
    // messages.
    let taken = TcpListener::bind("[::]:0").unwrap();
    let ports = taken.local_addr().unwrap().port().to_string();
    let to = format!("fullpipe://127.0.0.1:{port}/");
    let (code, done) = scene.copy(&[
        &scene.near(&name),
        &to,
        "--ports",
        &ports,
        "--transport",
        "tcp",
        "--no-compress",
    ]);
    assert_eq!(
        (code, done["transport"].as_str()),
        (Some(0), Some("call")),
        "{done}"
    );
    assert_eq!(done.get("limit"), None, "{done}");
    let recorded: Vec<Vec<u8>> = recordings.iter().take(2).collect();
    assert!(recorded.iter().map(Vec::len).sum::<usize>() > 100 * SECRET.len());
    for direction in &recorded {
        assert!(
            !direction
                .windows(10)
                .any(|window| SECRET.starts_with(window)),
            "it can be read"
        );
    }
    fs::remove_file(scene.path("shared").join(&name)).unwrap();
    for direction in recorded {
        let mut again = TcpStream::connect(("127.0.0.1", scene.port)).unwrap();
        let _ = again.write_all(&direction);
        let _ = again.shutdown(Shutdown::Write);
        let _ = again.read_to_end(&mut Vec::new());
    }
    assert!(names(&scene.path("shared")).is_empty());
}
