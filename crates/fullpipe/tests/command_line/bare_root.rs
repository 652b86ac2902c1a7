//! Commands that read no setting of a host answer in a root without `/proc` and `/dev`.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Running, assert_says, document, free_port, require, sentence, wait_for_listener,
};

/// Runs the program where nothing is mounted at `/proc` and at `/dev`.
fn in_bare_root(arguments: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec"])
        .arg("mount -t tmpfs none /proc; mount -t tmpfs none /dev; exec \"$@\"")
        .args(["sh", env!("CARGO_BIN_EXE_fullpipe")])
        .args(arguments)
        .envs([("COLUMNS", "80"), ("TERM", "xterm")]);
    run(&mut command, 60)
}

#[test]
fn pure_commands_answer_without_proc_as_with_it() {
    require!(Root, Unshare);
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result.json");
    let path = "rate=100Mbit/s,rtt=50ms";
    let simulated = in_bare_root(&[
        "simulate", "--path", path, "-t", "2", "--seed", "1", "--json",
    ]);
    assert!(document(&simulated)["measurement"].is_object());
    std::fs::write(&result, &simulated.stdout).unwrap();
    let result = result.to_str().unwrap();
    let capture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../trace/tests/captures/simultaneous-open.pcap.gz");
    let capture = capture.to_str().unwrap();
    for arguments in [
        &["--version"][..],
        &["explain", "send-buffer/tcp-wmem-max"],
        &[
            "calc",
            "--kernel",
            "6.1",
            "--bandwidth",
            "1G",
            "--rtt",
            "50ms",
        ],
        &["simulate", "--path", path, "-t", "2", "--seed", "1"],
        &["trace", capture],
        &["report", result],
        &["diff", result, result],
        &["diagnose", "--from", result],
        &["schema"],
    ] {
        let [bare, usual] = [in_bare_root(arguments), run(&mut fullpipe(arguments), 60)];
        assert_eq!(bare, usual, "{arguments:?}");
        assert!(bare.status.success(), "{arguments:?}: {bare:?}");
    }
}

#[test]
fn what_reads_the_settings_of_a_host_says_that_proc_is_lacking() {
    require!(Root, Unshare);
    let port = free_port().to_string();
    let _server = Running::start(&mut fullpipe(&["serve", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    for arguments in [
        &["host", "show"][..],
        &["measure", "127.0.0.1", "-p", &port, "-t", "1"],
    ] {
        let said = sentence(&in_bare_root(arguments), 3);
        assert_says(&said, &["net.ipv4.tcp_rmem", "mount /proc"]);
    }
}

#[test]
fn a_calculation_without_proc_says_whose_settings_it_takes() {
    require!(Root, Unshare);
    let flags = ["calc", "--bandwidth", "1G", "--rtt", "50ms"];
    let kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let kernel = kernel.split(['-', '+']).next().unwrap();
    let bare = in_bare_root(&[&flags[..], &["--json"]].concat());
    let stated = run(
        &mut fullpipe(&[&flags[..], &["--kernel", kernel, "--json"]].concat()),
        60,
    );
    let [bare, stated] = [document(&bare), document(&stated)];
    let prediction = |document: &serde_json::Value| document["calculation"]["prediction"].clone();
    assert_eq!(
        prediction(&bare)["ceilings"],
        prediction(&stated)["ceilings"]
    );
    let notes = prediction(&bare)["notes"].to_string();
    assert!(notes.contains("as there is no /proc/sys"), "{notes}");
}
