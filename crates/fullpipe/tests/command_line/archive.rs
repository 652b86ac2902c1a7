//! The archive as its users have it: kept, listed, imported, exported; and what may go wrong.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fullpipe_store::{ArchiveLocation, Store, read_import};
use fullpipe_testkit::{
    Running, assert_says, document, free_port, require, sentence, wait_for_listener, within,
};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{fullpipe, run};
use crate::far_end;

/// A user with a folder for data of their own.
struct User(TempDir);

impl User {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = fullpipe(arguments);
        command
            .env("XDG_DATA_HOME", self.0.path())
            .env_remove("FULLPIPE_STORE");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments), 20)
    }

    /// Returns the document of a command that succeeds.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        document(&output)
    }

    fn stored(&self) -> Vec<Value> {
        self.json(&["store", "list"])["stored"]
            .as_array()
            .unwrap()
            .clone()
    }
}

/// Runs the program as nobody, bound to where nobody may read it, whatever folder it was built in.
fn as_nobody(arguments: &[&str]) -> Output {
    let script = "mount -t tmpfs -o mode=755 tmpfs /mnt; touch /mnt/fullpipe; mount --bind \"$1\" /mnt/fullpipe; \
                  shift; cd /; exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/fullpipe \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-ec",
        script,
        "sh",
        env!("CARGO_BIN_EXE_fullpipe"),
    ]);
    run(command.args(arguments).env_remove("FULLPIPE_STORE"), 20)
}

/// Runs the program on a copy of an archive, on a disk of its own that is full or read-only.
fn on_bad_disk(from: &Path, spoil: &str, arguments: &[&str]) -> Output {
    let script = format!(
        "mount -t tmpfs -o size=2m none /mnt; cp \"$1\"/archive.db* /mnt; {spoil}; shift; \
         exec \"$@\" --store /mnt/archive.db"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec", &script, "sh"])
        .arg(from)
        .arg(env!("CARGO_BIN_EXE_fullpipe"));
    run(command.args(arguments), 20)
}

/// SQLite makes files next to its own to read it: "disk I/O error", "unable to open database file".
#[test]
fn an_archive_on_a_disk_that_is_full_or_read_only_is_read_and_refuses_more() {
    require!(Root, Unshare);
    let folder = tempfile::tempdir().unwrap();
    let [file, open, closed] =
        ["archive.db", "open", "closed"].map(|name| folder.path().join(name));
    let copy_to = |to: &Path| {
        fs::create_dir(to).unwrap();
        for name in ["archive.db", "archive.db-wal"] {
            let _ = fs::copy(folder.path().join(name), to.join(name));
        }
    };
    let documents = read_import(
        &fs::read(self::file("iperf3-tcp.json")).unwrap(),
        Timestamp::now(),
    )
    .unwrap();
    let mut store = Store::create(&ArchiveLocation::File(file)).unwrap();
    store.put_document(&documents[0]).unwrap();
    // As a program leaves it that is killed: what was kept last is in the log.
    copy_to(&open);
    drop(store);
    copy_to(&closed);
    let full = "head -c 9m /dev/zero > /mnt/fill 2> /dev/null || true";
    let read_only = "mount -o remount,ro /mnt";
    for (from, spoil, is_read) in [
        (&closed, full, true),
        (&closed, read_only, true),
        (&open, full, true),
        (&open, read_only, false),
    ] {
        let listed = on_bad_disk(from, spoil, &["store", "list", "--json"]);
        let what = format!("{} {spoil}: {listed:?}", from.display());
        if is_read {
            assert!(listed.status.success(), "{what}");
            assert_eq!(
                document(&listed)["stored"].as_array().map(Vec::len),
                Some(1),
                "{what}"
            );
        } else {
            assert!(
                sentence(&listed, 1).contains("copy it with its log"),
                "{what}"
            );
        }
        let refused = on_bad_disk(
            from,
            spoil,
            &["store", "import", &self::file("iperf3-udp.json")],
        );
        let code = refused
            .status
            .code()
            .filter(|code| [1, 3].contains(code))
            .unwrap_or_else(|| panic!("{refused:?}"));
        assert!(
            sentence(&refused, code).contains("the archive /mnt/archive.db: "),
            "{refused:?}"
        );
    }
}

#[test]
fn an_archive_of_another_user_is_refused_with_the_reason() {
    require!(Root, Unshare);
    let owner = User::new();
    assert!(owner.run(&["store", "create"]).status.success());
    let place = owner.0.path().join("fullpipe/archive.db");
    let place = place.to_str().unwrap();
    // The folder, or the file alone.
    for mode in [0o700, 0o755] {
        fs::set_permissions(owner.0.path(), fs::Permissions::from_mode(mode)).unwrap();
        for command in ["store list", "store create", "store path", "history host"] {
            let words: Vec<&str> = command.split(' ').chain(["--store", place]).collect();
            assert_says(
                &sentence(&as_nobody(&words), 3),
                &["the archive", place, "Permission denied", "--store"],
            );
        }
    }
}

#[test]
fn a_password_in_a_wrong_place_is_not_printed() {
    let user = User::new();
    for place in ["postgress://me:secret@db/x", "mysql://db/x?password=secret"] {
        let by_flag = user.run(&["store", "list", "--store", place]);
        let by_variable = run(
            user.command(&["store", "list"])
                .env("FULLPIPE_STORE", place),
            20,
        );
        for output in [by_flag, by_variable] {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(
                said.contains("is no place for an archive") && !said.contains("secret"),
                "{said}"
            );
            assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        }
        let output = user.run(&["store", "list", "--json", "--store", place]);
        let error = document(&output)["error"].to_string();
        assert!(
            error.contains("'--store <FILE|URL>'") && !error.contains("secret"),
            "{error}"
        );
        assert_eq!(
            String::from_utf8_lossy(&output.stderr)
                .matches("secret")
                .count(),
            0
        );
    }
}

fn file(name: &str) -> String {
    format!("{}/../store/tests/files/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_measurement_is_kept_once_there_is_an_archive() {
    let user = User::new();
    let (_server, port) = far_end();
    let measure = [
        "measure",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        "0.3",
        "-b",
        "20M",
    ];
    assert!(user.run(&measure).status.success());
    assert_eq!(
        sentence(&user.run(&["store", "list"]), 2)
            .matches("fullpipe store create")
            .count(),
        1
    );
    assert_eq!(user.json(&["store", "path"])["archive"]["exists"], false);

    assert_eq!(user.json(&["store", "create"])["archive"]["version"], 3);
    let measured = user.json(&measure);
    assert!(
        user.run(&[&measure[..], &["--no-store"]].concat())
            .status
            .success()
    );
    let stored = user.stored();
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_eq!(
        (&stored[0]["kind"], &stored[0]["id"]),
        (&"measurement".into(), &measured["measurement"]["id"])
    );
    assert_eq!(
        stored[0]["facts"][0]["limit"],
        measured["measurement"]["limit"]["kind"]
    );

    let id = stored[0]["id"].as_str().unwrap();
    let original = user.run(&["store", "show", &id[24..], "--original"]);
    assert_eq!(
        document(&original),
        measured,
        "the document comes back as it was printed"
    );
    assert_says(
        &text(&user.run(&["store", "show", id])),
        &[id, "upload", "limit"],
    );
    let history = user.json(&["history", "127.0.0.1"]);
    assert_eq!(
        history["history"]["series"][0]["points"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_says(
        &text(&user.run(&["history", "127.0.0.1"])),
        &["→ 127.0.0.1", "1 run", "median"],
    );
    assert_eq!(user.json(&["store", "check"])["archive_check"]["stale"], 0);
}

#[test]
fn a_diagnosis_and_a_scenario_are_kept() {
    let user = User::new();
    user.json(&["store", "create"]);
    let (_server, port) = far_end();
    user.json(&[
        "diagnose",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        "0.3",
        "-b",
        "20M",
    ]);
    let lab = user.run(&[
        "lab",
        "run",
        "--virtual",
        "--time-scale",
        "0.1",
        "elsen-window",
        "--json",
    ]);
    assert!(lab.status.code().is_some_and(|code| code < 2), "{lab:?}");
    let stored = user.stored();
    let kinds: Vec<&str> = stored
        .iter()
        .map(|document| document["kind"].as_str().unwrap())
        .collect();
    assert!(
        kinds.contains(&"diagnosis") && kinds.contains(&"lab"),
        "{kinds:?}"
    );
    let lab = stored
        .iter()
        .find(|document| document["kind"] == "lab")
        .unwrap();
    assert_eq!(
        (&lab["campaign"], &lab["peer"]),
        (&"elsen-window".into(), &"".into())
    );
    assert!(
        lab["facts"]
            .as_array()
            .is_some_and(|facts| !facts.is_empty() && facts[0]["step"] != "")
    );
    assert_eq!(user.json(&["store", "check"])["archive_check"]["stale"], 0);
}

#[test]
fn measurements_at_an_interval_end_cleanly() {
    let user = User::new();
    let (_server, port) = far_end();
    let mut command = user.command(&[
        "measure",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        "0.2",
        "-b",
        "9M",
        "--every",
        "1",
    ]);
    let running = Running::start(command.env("TZ", "NPT-5:45"));
    assert!(within(Duration::from_secs(30), || user
        .0
        .path()
        .join("fullpipe/archive.db")
        .exists()));
    assert!(within(Duration::from_secs(30), || user
        .run(&["store", "list"])
        .status
        .success()
        && user.stored().len() > 1));
    running.interrupt();
    let output = running.finish(Duration::from_secs(20));
    assert_eq!(
        (output.status.code(), output.stderr.len()),
        (Some(130), 0),
        "{output:?}"
    );
    // One line a run, which begins with its local time.
    let lines = text(&output);
    assert!(lines.lines().count() >= 2, "{lines}");
    for line in lines.lines() {
        let (at, rest) = line.split_once("  ").unwrap();
        assert!(
            at.parse::<jiff::Timestamp>().is_ok() && at.ends_with("+05:45"),
            "{line}"
        );
        assert_says(rest, &["Mbit/s, RTT ", "limited by "]);
    }
}

/// A sweep makes the archive, and from then on other commands keep what they measure.
#[test]
fn the_first_result_that_is_kept_unasked_is_announced_with_the_way_to_stop_it() {
    let user = User::new();
    let (_server, port) = far_end();
    user.json(&["store", "create"]);
    let measure = ["measure", "127.0.0.1", "-p", &port, "-t", "0.2", "-b", "9M"];
    let said = |arguments: &[&str]| {
        let output = user.run(&[&measure[..], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(said(&["--no-store"]), "");
    let first = said(&[]);
    assert_says(
        &first,
        &[
            "kept in ",
            "fullpipe/archive.db",
            "from now on; --no-store keeps none\n",
        ],
    );
    assert_eq!(said(&[]), "");
    assert_eq!(user.stored().len(), 2);
}

#[test]
fn an_archive_that_takes_nothing_fails_no_measurement() {
    let user = User::new();
    let (_server, port) = far_end();
    let measure = [
        "measure",
        "127.0.0.1",
        "-p",
        &port,
        "-t",
        "0.2",
        "-b",
        "9M",
        "--json",
    ];
    for place in [
        "/dev/null/archive.db",
        "postgres://127.0.0.1:1/none",
        "mysql://x/y",
    ] {
        let output = run(user.command(&measure).env("FULLPIPE_STORE", place), 20);
        assert_eq!(
            sentence(&output, 0)
                .matches("the result is not kept: ")
                .count(),
            1
        );
        assert_eq!(document(&output)["kind"], "measurement");
    }
}

#[test]
fn a_full_disk_fails_no_measurement_and_loses_nothing() {
    require!(Root, Unshare);
    let user = User::new();
    let (_server, port) = far_end();
    let disk = user.0.path().to_str().unwrap();
    // A disk of its own, which ends with the shell.
    let script = r#"
        mount -t tmpfs -o size=300k none "$DISK" || exit 9
        "$@" store import "$FIRST" || exit 8
        dd if=/dev/zero of="$DISK/rest" bs=4k 2>/dev/null
        "$@" measure 127.0.0.1 -p "$PORT" -t 0.2 -b 9M --json >/dev/null || exit 7
        "$@" store import "$SECOND" && exit 6
        rm "$DISK/rest"
        "$@" store check && "$@" store list
    "#;
    let program = fullpipe(&[]).get_program().to_owned();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(program);
    command
        .env("XDG_DATA_HOME", disk)
        .env("DISK", disk)
        .env("PORT", port)
        .env_remove("FULLPIPE_STORE");
    command
        .env("FIRST", file("iperf3-tcp.json"))
        .env("SECOND", file("iperf3-udp.json"));
    let output = run(&mut command, 60);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        errors
            .lines()
            .filter(|line| line.contains(" disk "))
            .count(),
        2,
        "{errors}"
    );
    assert!(
        errors.contains("the result is not kept: cannot "),
        "{errors}"
    );
    assert_says(&text(&output), &["1 document, 0 damaged", "iperf3"]);
}

#[test]
fn files_of_other_programs_are_imported_once() {
    let user = User::new();
    let (tcp, flent) = (file("iperf3-tcp.json"), file("upload.flent.gz"));
    let imported = user.json(&["store", "import", &tcp, &flent]);
    let kinds: Vec<&Value> = imported["imported"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| &file["kind"])
        .collect();
    assert_eq!(kinds, ["foreign/iperf3", "foreign/flent"]);
    let again = user.json(&["store", "import", &tcp]);
    assert_eq!(again["imported"][0]["known"], 1);
    assert_eq!(user.stored().len(), 2);
    let id = imported["imported"][1]["ids"][0].as_str().unwrap();
    let original = user.run(&["store", "show", id, "--original"]);
    assert_eq!(original.stdout, fs::read(&flent).unwrap());
    let listed = user.json(&[
        "store",
        "list",
        "--kind",
        "foreign",
        "--peer",
        "beta.example.org",
    ]);
    assert_eq!(listed["stored"].as_array().unwrap().len(), 1);
    assert_says(
        &text(&user.run(&["store", "list"])),
        &["started (UTC)", "beta.example.o…", "flent", "83.8 Mbit/s"],
    );
}

#[test]
fn a_difference_of_other_programs_is_refused_by_their_name() {
    let user = User::new();
    let (tcp, flent) = (file("iperf3-tcp.json"), file("upload.flent.gz"));
    let imported = user.json(&["store", "import", &tcp, &flent]);
    let [first, second] = [0, 1].map(|index| {
        imported["imported"][index]["ids"][0]
            .as_str()
            .unwrap()
            .to_owned()
    });
    for (sides, program) in [
        ([&first, &second], "iperf3"),
        ([&second, &first], "flent"),
        ([&tcp, &tcp], "iperf3"),
    ] {
        let refused = user.run(&["diff", sides[0], sides[1]]);
        let said = String::from_utf8_lossy(&refused.stderr)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert_says(
            &said,
            &[&format!(
                "a result of {program}: documents of other programs cannot be compared"
            )],
        );
    }
}

#[test]
fn an_import_says_that_it_takes_thinning_back() {
    let user = User::new();
    let tcp = file("iperf3-tcp.json");
    user.json(&["store", "import", &tcp]);
    user.json(&["store", "thin", "--documents", "1h"]);
    let again = user.json(&["store", "import", &tcp])["imported"][0].clone();
    assert_eq!(
        (&again["known"], &again["restored"]),
        (&0.into(), &1.into()),
        "{again}"
    );
    user.json(&["store", "thin", "--documents", "1h"]);
    let said = text(&user.run(&["store", "import", &tcp, &tcp]));
    let in_one_line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_says(
        &in_one_line,
        &["0 kept, 1 whole again", "0 kept, 1 known already"],
    );
}

/// One request to end left them waiting for 20 s.
#[test]
fn a_silent_server_of_an_archive_is_not_waited_for_after_a_request_to_end() {
    let user = User::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!(
        "postgres://me@127.0.0.1:{}/x",
        silent.local_addr().unwrap().port()
    );
    let port = free_port().to_string();
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    let measure = ["measure", "127.0.0.1", "-p", &port, "-t", "0.2"];
    let (every, resume) = (
        ["--every", "1h"],
        ["sweep", "127.0.0.1", "--resume", "last"],
    );
    for (command, signal, code) in [
        (measure.to_vec(), Signal::TERM, 0),
        ([&measure[..], &every].concat(), Signal::INT, 130),
        (resume.to_vec(), Signal::TERM, 130),
    ] {
        let running = Running::start(user.command(&command).args(["--store", &place]));
        let _connection = silent.accept().unwrap();
        kill_process(Pid::from_raw(running.pid().cast_signed()).unwrap(), signal).unwrap();
        let output = running.finish(Duration::from_secs(10));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
        assert!(
            said.contains("interrupted while the archive was waited for"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn a_malformed_file_keeps_no_other_out() {
    let user = User::new();
    let bad = user.0.path().join("bad.json");
    fs::write(&bad, "{\"start\":").unwrap();
    let files = [
        bad.to_str().unwrap(),
        &file("iperf3-udp.json"),
        "/nonexistent",
        &file("iperf3-refused.json"),
    ];
    let output = user.run(&[&["store", "import"], &files[..], &["--json"]].concat());
    assert_eq!(sentence(&output, 2), "3 of 4 files were refused");
    let document = document(&output);
    let errors: Vec<bool> = document["imported"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["error"].is_string())
        .collect();
    assert_eq!(errors, [true, false, true, true]);
    assert_eq!(document["error"]["exit_code"], 2);
    assert_eq!(user.stored().len(), 1);
}

/// With an archive, every measurement from then on would be kept.
#[test]
fn a_file_that_is_refused_makes_no_archive() {
    let user = User::new();
    assert_eq!(
        sentence(&user.run(&["store", "import", "/nonexistent"]), 2),
        "the file was refused"
    );
    assert_says(
        &sentence(&user.run(&["store", "list"]), 2),
        &["there is no archive"],
    );
}

#[test]
fn what_is_exported_has_no_names_if_they_are_redacted() {
    let user = User::new();
    user.json(&[
        "store",
        "import",
        &file("upload.flent.gz"),
        &file("pscheduler-throughput.json"),
    ]);
    let secret = ["alpha", "beta.example.org", "ps1.example.org", "ps2"];
    let id = user.stored()[0]["id"].as_str().unwrap().to_owned();
    let exports: [&[&str]; 5] = [
        &["store", "export", "--csv"],
        &["store", "export", "--json-lines"],
        &["store", "list"],
        &["store", "show", &id, "--json"],
        &["store", "show", &id, "--original"],
    ];
    for export in exports {
        let open = text_of_any(&user.run(export));
        assert!(
            secret.iter().any(|name| open.contains(name)),
            "{export:?}: {open}"
        );
        let redacted = text(&user.run(&[export, &["--redact"]].concat()));
        assert!(
            secret.iter().all(|name| !redacted.contains(name)) && !redacted.is_empty(),
            "{export:?}: {redacted}"
        );
    }
    let csv = text(&user.run(&["store", "export"]));
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 3);
    assert!(
        rows[0].starts_with("id,kind,schema,started,") && rows[1].contains("2026-03-12T11:00:00Z"),
        "{csv}"
    );
    let lines = text(&user.run(&["store", "export", "--json-lines"]));
    assert!(
        lines
            .lines()
            .all(|line| serde_json::from_str::<Value>(line).unwrap()["kind"] == "stored"),
        "{lines}"
    );
}

/// Returns the text of an output that may be compressed.
fn text_of_any(output: &Output) -> String {
    let is_packed = output.stdout.starts_with(&[0x1f, 0x8b]);
    if is_packed {
        "alpha".to_owned()
    } else {
        text(output)
    }
}

#[test]
fn old_bodies_are_removed_and_their_facts_stay() {
    let user = User::new();
    user.json(&["store", "import", &file("pscheduler-rtt.json")]);
    let thinned = user.json(&["store", "thin", "--documents", "2026-03-13"]);
    assert_eq!(thinned["archive_thinned"]["bodies"], 1);
    let stored = &user.stored()[0];
    assert_eq!(
        (&stored["thinned"], &stored["facts"][0]["rtt_idle"]),
        (&true.into(), &0.0312.into())
    );
    let id = stored["id"].as_str().unwrap();
    assert_says(
        &sentence(&user.run(&["store", "show", id, "--original"]), 1),
        &[id, "removed"],
    );
    assert!(user.run(&["store", "thin"]).status.code() == Some(2));
}

/// Documents that were lost on a full disk once ended with code 0.
#[test]
fn what_standard_output_does_not_take_is_a_failure() {
    let user = User::new();
    assert!(
        user.run(&["store", "import", &file("iperf3-tcp.json")])
            .status
            .success()
    );
    let id = user.stored()[0]["id"].as_str().unwrap().to_owned();
    for arguments in [
        &["store", "export"][..],
        &["store", "export", "--json-lines"],
        &["store", "show", "--original", &id],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = user.command(arguments).stdout(full).output().unwrap();
        assert_says(
            &sentence(&output, 1),
            &["standard output is not complete", "No space left"],
        );
    }
}

#[test]
fn a_wrong_place_or_identifier_is_one_sentence() {
    let user = User::new();
    user.json(&["store", "create"]);
    let cases: [(&[&str], i32, &str); 5] = [
        (&["store", "show", "0123456789abcdef"], 2, "no document"),
        (&["store", "show", "%"], 2, "no document"),
        (
            &["store", "list", "--store", "/nonexistent/archive.db"],
            2,
            "no archive at /nonexistent",
        ),
        (
            &[
                "history",
                "HOST",
                "--store",
                "postgres://me:secret@127.0.0.1:1/x",
            ],
            1,
            "postgres://me@127.0.0.1:1/x",
        ),
        (
            &["store", "create", "--store", "/dev/null/x"],
            1,
            "cannot open the archive /dev/null/x",
        ),
    ];
    for (arguments, code, part) in cases {
        assert_says(&sentence(&user.run(arguments), code), &[part]);
        let json = user.run(&[arguments, &["--json"]].concat());
        assert_eq!(document(&json)["error"]["exit_code"], code);
    }
    assert!(!Path::new("/nonexistent").exists());
}
