//! Hosts behind `ssh://`, over loopback: what is started there, and what is left.

use std::fs;
use std::process::Command;
use std::time::Duration;

use fullpipe_testkit::{
    Running, SshServer, assert_says, document, free_port, require, sentence, within,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{fullpipe, run};

/// Longest time for one step of a test, also on a busy machine, in seconds.
const TIMEOUT: u64 = 60;

/// A server of OpenSSH on loopback, and what its sessions leave.
struct Host {
    sshd: SshServer,
    _server: Running,
}

impl Host {
    fn start() -> Self {
        let sshd = SshServer::on(free_port());
        let server = sshd.start();
        Self {
            sshd,
            _server: server,
        }
    }

    /// Returns the program with these words, which reaches this host by its own client.
    fn command(&self, words: &[&str]) -> Command {
        let ssh = self.sshd.client();
        fullpipe(&[words, &["ssh://127.0.0.1", "--ssh", &ssh]].concat())
    }

    /// Returns true if no program is in the caches of those who logged in.
    fn has_nothing(&self) -> bool {
        let left = fs::read_dir(self.sshd.cache());
        left.is_ok_and(|mut left| left.next().is_none())
    }

    fn is_deserted(&self) -> bool {
        within(Duration::from_secs(20), || self.sshd.far_ends().is_empty())
    }
}

#[test]
fn a_measurement_over_ssh_needs_no_server_and_leaves_nothing() {
    require!(Root, Sshd);
    let host = Host::start();
    let output = run(
        &mut host.command(&[
            "measure",
            "-t",
            "1",
            "-b",
            "20M",
            "--json",
            "--leave-nothing",
        ]),
        TIMEOUT,
    );
    let report = document(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let measurement = &report["measurement"];
    assert!(
        measurement["remote"]["settings"].is_object(),
        "{measurement:#}"
    );
    assert!(host.is_deserted());
    assert!(host.has_nothing());
}

#[test]
fn data_goes_through_ssh_where_nothing_else_passes() {
    require!(Root, Sshd);
    let host = Host::start();
    let words = ["measure", "-t", "1", "-P", "2", "--through-ssh", "--json"];
    let output = run(&mut host.command(&words), TIMEOUT);
    let measurement = &document(&output)["measurement"];
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let carried = measurement["summary"]["received"].as_u64();
    assert!(carried > Some(1 << 20), "{measurement:#}");
    let warning = measurement["warnings"][0].as_str();
    assert!(
        warning.is_some_and(|text| text.starts_with("the data went through ssh")),
        "{measurement:#}"
    );
    assert!(measurement["limit"].is_null(), "{measurement:#}");
    assert!(host.is_deserted());
    let refused = run(
        &mut fullpipe(&["measure", "127.0.0.1", "--through-ssh"]),
        TIMEOUT,
    );
    assert_says(
        &sentence(&refused, 2),
        &["--through-ssh needs a host of ssh"],
    );
}

#[test]
fn a_far_end_over_ssh_ends_with_whoever_started_it() {
    require!(Root, Sshd);
    let host = Host::start();
    for victim in ["near", "ssh", "far"] {
        let near = Running::start(&mut host.command(&["measure", "-t", "30", "-b", "20M"]));
        assert!(
            within(Duration::from_secs(TIMEOUT), || !host
                .sshd
                .far_ends()
                .is_empty()),
            "{victim}"
        );
        let near_pid = Pid::from_raw(near.pid().cast_signed()).unwrap();
        let pid = match victim {
            "near" => near_pid,
            "ssh" => child_of(near_pid).unwrap(),
            _ => host.sshd.far_ends()[0],
        };
        kill_process(pid, Signal::KILL).unwrap();
        assert!(host.is_deserted(), "{victim}");
        let output = near.finish(Duration::from_secs(TIMEOUT));
        assert_ne!(output.status.code(), Some(0), "{victim}");
    }
}

/// Returns the ssh that a process has started.
fn child_of(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

#[test]
fn a_program_that_was_brought_is_found_again() {
    require!(Root, Sshd);
    let host = Host::start();
    let folder = host.sshd.cache().join("fullpipe");
    let kept = || {
        let output = run(
            &mut host.command(&["measure", "-t", "1", "-b", "20M", "-q"]),
            TIMEOUT,
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let files = fs::read_dir(&folder).unwrap().flatten();
        let made = files.map(|file| {
            let file = file.path().join("fullpipe");
            (fs::metadata(&file).unwrap().modified().unwrap(), file)
        });
        made.collect::<Vec<_>>()
    };
    let first = kept();
    assert_eq!((first.len(), &kept()), (1, &first));
}

#[test]
fn a_copy_brings_the_program_to_a_host_that_has_none() {
    require!(Root, Sshd);
    let host = Host::start();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("here");
    fs::write(&here, "what is copied").unwrap();
    for name in ["first", "second"] {
        let copied = folder.path().join(name);
        let place = format!("127.0.0.1:{}", copied.display());
        let ssh = host.sshd.client();
        let words = ["copy", "-e", &ssh, here.to_str().unwrap(), &place];
        let output = run(&mut fullpipe(&words), TIMEOUT);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(fs::read_to_string(&copied).unwrap(), "what is copied");
        assert!(String::from_utf8_lossy(&output.stdout).contains("it is sent there"));
    }
    let kept = fs::read_dir(host.sshd.cache().join("fullpipe")).unwrap();
    assert_eq!(kept.count(), 1);
}

#[test]
fn settings_of_a_host_behind_ssh_are_shown_and_tried_as_here() {
    require!(Root, Sshd);
    let host = Host::start();
    let shown = document(&run(
        &mut host.command(&["host", "show", "--json"]),
        TIMEOUT,
    ));
    assert_eq!(shown["kind"], "host-settings", "{shown:#}");
    let words = ["host", "apply", "tcp_wmem=65MiB", "--dry-run"];
    let planned = run(&mut host.command(&words), TIMEOUT);
    let said = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert_says(&said, &["68157440", "Nothing was changed"]);
    let refused = run(
        &mut host.command(&["host", "advise", "--rtt", "80ms"]),
        TIMEOUT,
    );
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn what_ssh_cannot_reach_or_must_not_is_one_sentence() {
    let refused = |words: &[&str], code| sentence(&run(&mut fullpipe(words), TIMEOUT), code);
    for (words, code, part) in [
        (
            &["measure", "ssh://h", "--iperf2"][..],
            2,
            "leave out --iperf2",
        ),
        (
            &["measure", "ssh://h", "--ssh", "/nonexistent/ssh"],
            1,
            "cannot be started",
        ),
        (
            &["measure", "ssh://h", "--ssh", "false"],
            1,
            "before its shell answered",
        ),
        (
            &[
                "diagnose",
                "ssh://h",
                "--ssh",
                "sh -c 'echo fullpipe far end 1 Linux sparc64 -; cat'",
            ],
            3,
            "runs Linux on sparc64",
        ),
        (
            &[
                "host",
                "show",
                "ssh://h",
                "--ssh",
                "sh -c 'echo fullpipe far end 1 Darwin arm64 -; cat'",
            ],
            3,
            "runs Darwin on arm64",
        ),
        (
            &["copy", "Cargo.toml", "h:x", "-e", "sh -c 'exit 127'"],
            1,
            "before its shell answered",
        ),
        (
            &[
                "copy",
                "Cargo.toml",
                "h:x",
                "-e",
                "sh -c 'exit 127'",
                "--far-path",
                "fp",
            ],
            3,
            "h has no fp",
        ),
    ] {
        assert_says(&refused(words, code), &[part]);
    }
}
