//! `fullpipe host`, in network namespaces of the test's own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use crate::common::{fullpipe, pseudo_terminal, run};
use fullpipe_sys::NetNamespace;
use fullpipe_testkit::{
    Running, document, lateness, network_sysctls, path, require, sentence, valid_within, within,
};
use fullpipe_units::median;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest time for every command but `--temporary`, in seconds.
const TIMEOUT: u64 = 20;

const WMEM: &str = "/proc/sys/net/ipv4/tcp_wmem";

/// Settings that a namespace has of its own.
const SETTINGS: [&str; 6] = [
    "tcp_wmem=64MiB",
    "net.ipv4.tcp_rmem=4096 131072 67108864",
    "net.ipv4.tcp_slow_start_after_idle=0",
    "offload:lo:gro=off",
    "mtu:lo=9000",
    "txqueuelen:lo=77",
];

/// The calling thread in a network namespace of its own, with a folder for journals.
struct Bench {
    folder: TempDir,
    _network: NetNamespace,
}

impl Bench {
    fn new() -> Self {
        Self {
            _network: NetNamespace::create().unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn journal(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    fn command(&self, action: &str, arguments: &[&str]) -> Command {
        fullpipe(&[&["host", action, "--journal", self.journal()], arguments].concat())
    }

    fn host(&self, action: &str, arguments: &[&str]) -> Output {
        run(&mut self.command(action, arguments), TIMEOUT)
    }

    fn succeeds(&self, action: &str, arguments: &[&str]) -> String {
        let output = self.host(action, arguments);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The processes that take changes of this journal back in time.
    fn watchers(&self) -> Vec<i32> {
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let folder = entry.ok()?.path();
            let command = fs::read_to_string(folder.join("cmdline")).ok()?;
            let is_watcher = command.contains("\0watch\0") && command.contains(self.journal());
            is_watcher
                .then(|| folder.file_name()?.to_str()?.parse().ok())
                .flatten()
        });
        processes.collect()
    }

    fn has_journal(&self) -> bool {
        fs::read_dir(self.folder.path())
            .unwrap()
            .any(|entry| entry.unwrap().path().extension().is_some())
    }
}

/// Returns every readable sysctl of the network, to the byte, and the devices.
fn everything() -> BTreeMap<String, String> {
    let mut all = network_sysctls();
    for device in fullpipe_sys::list_devices().unwrap() {
        all.insert(
            device.name.clone(),
            format!(
                "{device:?} {:?}",
                fullpipe_sys::device_features(&device.name).unwrap()
            ),
        );
    }
    all
}

#[test]
fn show_answers_in_eighty_columns() {
    let path = ["host", "show", "--rtt", "100ms", "--bandwidth", "1G"];
    let text = String::from_utf8(run(&mut fullpipe(&path), TIMEOUT).stdout).unwrap();
    let wide: Vec<&str> = text
        .lines()
        .filter(|line| line.chars().count() > 80)
        .collect();
    assert!(wide.is_empty(), "{wide:#?}");
    let shown = document(&run(fullpipe(&path).arg("--json"), TIMEOUT));
    assert_eq!(
        shown["host_settings"]["allows"].as_array().unwrap().len(),
        4
    );
    assert!(
        shown["host_settings"]["devices"]
            .as_array()
            .unwrap()
            .iter()
            .any(|device| device["name"] == "lo")
    );
}

#[test]
fn what_is_advised_can_be_applied_and_undone() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let path = ["--rtt", "200ms", "--bandwidth", "1G"];
    let advised = document(&run(
        fullpipe(&["host", "advise", "--json"]).args(path),
        TIMEOUT,
    ));
    let advice = &advised["host_advice"];
    assert_eq!(advice["before"]["limit"], "send-buffer", "{advice}");
    assert_eq!(advice["after"]["limit"], "capacity", "{advice}");
    let dry = bench.succeeds("apply", &[&path[..], &["--dry-run"]].concat());
    assert!(
        dry.contains("- 4096 16384 4194304") && dry.contains("Nothing was changed"),
        "{dry}"
    );
    assert_eq!(everything(), before);
    bench.succeeds("apply", &path);
    let written = fs::read_to_string(WMEM).unwrap();
    assert!(advice["changes"].as_array().unwrap().iter().any(|change| {
        let to: Vec<&str> = change["to"].as_str().unwrap().split(' ').collect();
        change["setting"] == "net.ipv4.tcp_wmem" && written.split_whitespace().eq(to)
    }));
    assert!(
        bench
            .succeeds("undo", &[])
            .contains("Everything is as it was")
    );
    assert_eq!(everything(), before);
    assert!(bench.succeeds("undo", &[]).contains("nothing to put back"));
}

#[test]
fn copied_advice_that_harms_is_named_and_repaired() {
    require!(Root);
    let bench = Bench::new();
    for (name, value) in [
        ("tcp_timestamps", "0"),
        ("tcp_window_scaling", "0"),
        ("tcp_rmem", "4096 16777216 33554432"),
    ] {
        fs::write(format!("/proc/sys/net/ipv4/{name}"), value).unwrap();
    }
    let path = ["--rtt", "100ms", "--bandwidth", "1G"];
    let advised = document(&run(
        fullpipe(&["host", "advise", "--json"]).args(path),
        TIMEOUT,
    ));
    let of = |list: &str| -> Vec<String> {
        let entries = advised["host_advice"][list].as_array().unwrap();
        entries
            .iter()
            .map(|entry| entry["setting"].as_str().unwrap().to_owned())
            .collect()
    };
    let named = of("folklore");
    for name in [
        "net.ipv4.tcp_timestamps",
        "net.ipv4.tcp_window_scaling",
        "net.ipv4.tcp_rmem",
    ] {
        assert!(
            named.iter().any(|found| found == name),
            "{name} is not in {named:?}"
        );
    }
    let changed = of("changes");
    for name in ["net.ipv4.tcp_timestamps", "net.ipv4.tcp_window_scaling"] {
        assert!(
            changed.iter().any(|found| found == name),
            "{name} is not in {changed:?}"
        );
    }
    bench.succeeds("apply", &path);
    assert_eq!(
        fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps")
            .unwrap()
            .trim(),
        "1"
    );
    bench.succeeds("undo", &[]);
    assert_eq!(
        fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps")
            .unwrap()
            .trim(),
        "0"
    );
}

#[test]
fn killed_at_any_moment_it_leaves_a_way_back() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let seed = 7;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    // Moments are taken from so long, which follows the machine: an apply takes longer on a busy
    // disk.
    let mut span = Duration::from_millis(20);
    let mut met = 0;
    for round in 0..100 {
        let mut killed = |action, arguments: &[&str]| {
            let mut running = Running::start(&mut bench.command(action, arguments));
            std::thread::sleep(span.mul_f64(f64::from(random.next_u32()) / f64::from(u32::MAX)));
            running.kill();
        };
        killed("apply", &SETTINGS);
        let is_changed = everything() != before;
        met += u32::from(is_changed);
        killed("undo", &[]);
        bench.succeeds("undo", &[]);
        assert_eq!(everything(), before, "seed {seed}, round {round}");
        assert!(!bench.has_journal(), "seed {seed}, round {round}");
        if met == 10 {
            return;
        }
        span = span.mul_f64(if is_changed { 0.8 } else { 1.25 });
    }
    panic!("{met} of a hundred were killed after their first change, within {span:?}");
}

#[test]
fn for_a_time_means_that_it_comes_back_by_itself() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    bench.succeeds("apply", &[&SETTINGS[..], &["--temporary", "4s"]].concat());
    assert_ne!(everything(), before);
    assert!(
        within(Duration::from_secs(30), || everything() == before),
        "it did not come back"
    );
    assert!(within(Duration::from_secs(10), || !bench.has_journal()));
    assert!(sentence(&bench.host("confirm", &[]), 1).contains("no settings wait"));
    // A program that is killed has already started the process that takes its settings back.
    let mut running = Running::start(
        &mut bench.command("apply", &[&SETTINGS[..], &["--temporary", "4s"]].concat()),
    );
    let changes = within(Duration::from_secs(10), || everything() != before);
    running.kill();
    drop(running);
    assert!(
        changes && within(Duration::from_secs(30), || everything() == before),
        "it did not come back"
    );
    // Confirmed, it stays.
    bench.succeeds("apply", &[&SETTINGS[..], &["--temporary", "4s"]].concat());
    assert!(sentence(&bench.host("apply", &["tcp_wmem=8MiB"]), 1).contains("host confirm"));
    bench.succeeds("confirm", &[]);
    assert!(within(Duration::from_secs(30), || bench
        .watchers()
        .is_empty()));
    assert_ne!(everything(), before);
    bench.succeeds("undo", &[]);
    assert_eq!(everything(), before);
}

#[test]
fn what_takes_changes_back_in_time_ends_with_them_and_when_it_is_asked_to() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let for_an_hour = || {
        bench.succeeds("apply", &[&SETTINGS[..], &["--temporary", "1h"]].concat());
        let watchers = bench.watchers();
        assert_eq!(watchers.len(), 1, "{watchers:?}");
        watchers[0]
    };
    for_an_hour();
    bench.succeeds("undo", &[]);
    assert!(
        within(Duration::from_secs(30), || bench.watchers().is_empty()),
        "after the undo"
    );
    let watcher = for_an_hour();
    assert_ne!(everything(), before);
    kill_process(Pid::from_raw(watcher).unwrap(), Signal::TERM).unwrap();
    assert!(
        within(Duration::from_secs(30), || bench.watchers().is_empty()),
        "after the request to end"
    );
    assert_eq!(everything(), before);
    assert!(!bench.has_journal());
}

/// Starts `host apply --temporary` at a terminal and waits until it asks; what the terminal then
/// shows, and the program.
fn at_a_terminal(bench: &Bench, time: &str) -> (File, Child) {
    let (mut ours, theirs) = pseudo_terminal();
    let end = || theirs.try_clone().unwrap();
    let mut command = bench.command("apply", &["tcp_wmem=64MiB", "--temporary", time]);
    let child = command.stdin(end()).stdout(end()).spawn().unwrap();
    read_until(&mut ours, "Enter keeps it.");
    (ours, child)
}

/// Reads what a terminal shows, up to and with `text`.
fn read_until(terminal: &mut File, text: &str) {
    let timeout = Timespec {
        tv_sec: TIMEOUT.cast_signed(),
        tv_nsec: 0,
    };
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains(text) {
        let waited = poll(
            &mut [PollFd::new(&*terminal, PollFlags::IN)],
            Some(&timeout),
        )
        .unwrap();
        assert_eq!(
            waited,
            1,
            "nothing more is shown than {:?}",
            String::from_utf8_lossy(&shown)
        );
        let mut byte = [0];
        terminal.read_exact(&mut byte).unwrap();
        shown.push(byte[0]);
    }
}

#[test]
fn enter_keeps_what_was_applied_for_a_time() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let (mut terminal, mut child) = at_a_terminal(&bench, "60s");
    terminal.write_all(b"\n").unwrap();
    read_until(&mut terminal, "It stays");
    assert!(child.wait().unwrap().success());
    assert_ne!(everything(), before);
    bench.succeeds("undo", &[]);
    let (mut terminal, mut child) = at_a_terminal(&bench, "1s");
    read_until(&mut terminal, "as it was");
    assert!(child.wait().unwrap().success());
    assert_eq!(everything(), before);
}

#[test]
fn without_permission_nothing_is_changed() {
    require!(Root, UserNamespaces);
    let bench = Bench::new();
    let before = everything();
    let ours = bench.command("apply", &SETTINGS);
    let mut nobody = Command::new("setpriv");
    nobody
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(ours.get_program())
        .args(ours.get_args());
    let stated = sentence(&run(&mut nobody, TIMEOUT), 3);
    assert!(
        stated.contains("net.ipv4.tcp_wmem") && stated.contains("nothing was changed"),
        "{stated}"
    );
    let mut homeless = Command::new("setpriv");
    homeless
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(ours.get_program());
    homeless
        .args(["host", "apply", "tcp_wmem=64MiB"])
        .env("HOME", "/nonexistent");
    assert_eq!(sentence(&run(&mut homeless, TIMEOUT), 3), stated);
    assert_eq!(everything(), before);
    assert!(!bench.has_journal());
    // What only the first namespace may write, to root of another.
    let stated = sentence(
        &bench.host("apply", &["tcp_wmem=64MiB", "net.core.rmem_max=1000000"]),
        3,
    );
    assert!(stated.contains("net.core.rmem_max"), "{stated}");
    assert_eq!(everything(), before);
}

#[test]
fn what_cannot_be_is_reported_in_a_sentence() {
    require!(Root);
    let bench = Bench::new();
    let before = everything();
    let stated = |arguments: &[&str], code, part: &str| {
        let stated = sentence(&bench.host("apply", arguments), code);
        assert!(stated.contains(part), "{stated}");
        assert_eq!(everything(), before, "{stated}");
    };
    stated(
        &["tcp_wmem=8MiB", "net.ipv4.tcp_congestion_control=nonesuch"],
        3,
        "tcp_congestion_control",
    );
    stated(&["tcp_wmem=8MiB", "mtu:eth77=1500"], 3, "eth77");
    stated(
        &["tcp_wmem=8MiB", "qdisc:lo=nonesuch"],
        3,
        "queueing discipline of lo",
    );
    stated(
        &["tcp_wmem=8MiB", "route:10.0.0.0/8:window=1000"],
        3,
        "there is no such route",
    );
    stated(&["tcp_wmem=8MiB", "--persist"], 1, "--persist");
    bench.succeeds("apply", &["tcp_wmem=8MiB"]);
    fs::write(WMEM, "4096 16384 5000000").unwrap();
    let undone = bench.host("undo", &[]);
    assert_eq!(undone.status.code(), Some(1));
    let text = String::from_utf8(undone.stdout).unwrap();
    assert!(text.contains("net.ipv4.tcp_wmem was left alone"), "{text}");
    let entries = fs::read_dir(bench.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for journal in entries.filter(|path| path.extension().is_some()) {
        fs::write(journal, "{\"opened\":\n{}\n").unwrap();
    }
    assert!(sentence(&bench.host("undo", &[]), 2).contains("line 1"));
}

#[test]
fn what_is_persisted_outlives_a_boot_and_its_undo_too() {
    require!(Root, Unshare);
    let folder = tempfile::tempdir().unwrap();
    // In namespaces whose first process is theirs, as in a container.
    let script = r#"
        mount -t tmpfs none /etc/sysctl.d
        cat /proc/sys/net/ipv4/tcp_wmem > "$2/before"
        "$1" host apply tcp_wmem=64MiB mtu:lo=9000 --persist --journal "$2/journal"
        "$1" host apply net.ipv4.tcp_sack=0 --persist --journal "$2/journal"
        grep "^net.ipv4.tcp_wmem = 4096 16384 67108864$" /etc/sysctl.d/90-fullpipe.conf
        grep "^net.ipv4.tcp_sack = 0$" /etc/sysctl.d/90-fullpipe.conf
        # A boot has set what the file says, and everything else anew.
        sed -i "s/$(cat /proc/sys/kernel/random/boot_id)/00000000-0000-0000-0000-000000000000/" "$2"/journal/*.jsonl
        "$1" host undo --journal "$2/journal"
        cmp "$2/before" /proc/sys/net/ipv4/tcp_wmem
        test "$(cat /proc/sys/net/ipv4/tcp_sack)" = 1
        test -z "$(ls /etc/sysctl.d)"
        test "$(ls "$2/journal")" = lock
    "#;
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "sh",
        "-exc",
        script,
        "sh",
    ]);
    command
        .arg(env!("CARGO_BIN_EXE_fullpipe"))
        .arg(folder.path());
    let output = run(&mut command, TIMEOUT);
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Tests of time, which the load of others would lengthen.
mod tests_alone {
    use super::*;

    #[test]
    fn show_answers_within_fifty_milliseconds() {
        const SOON: Duration = Duration::from_millis(50);
        let _path = path();
        let arguments = ["host", "show", "--rtt", "100ms", "--bandwidth", "1G"];
        let shown = || {
            let start = Instant::now();
            assert!(fullpipe(&arguments).output().unwrap().status.success());
            start.elapsed().as_secs_f64()
        };
        let usual = valid_within(3, || {
            let (times, late) = lateness(|| (0..15).map(|_| shown()).collect());
            let is_late = late > Duration::from_millis(10);
            (
                median(times).unwrap(),
                is_late
                    .then(|| format!("threads wake {late:?} late"))
                    .into_iter()
                    .collect(),
            )
        });
        assert!(usual < SOON.as_secs_f64(), "{usual} s, the median of 15");
    }
}
