//! The lab as people use it, and that nothing of it remains however it ends.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Mark, Running, document, lateness, load_slot, path, require, sentence, valid_within, within,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// Longest time for one command, in seconds.
const TIMEOUT: u64 = 60;

const INTERRUPTED: i32 = 130;

/// A scenario of one short step.
fn tiny() -> String {
    scenario(
        "tiny",
        "[path]\nrate = \"50Mbit/s\"\nrtt = \"10ms\"\nqueue = \"1bdp\"\n\n\
         [[step]]\nname = \"as it is\"\nduration = \"2s\"\n",
    )
}

/// Returns the file of a scenario of this name with these sections; each call writes one of its
/// own.
fn scenario(name: &str, sections: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{name}-{}-{number}.toml", std::process::id()));
    std::fs::write(
        &file,
        format!("name = \"{name}\"\ntitle = \"A path of a test\"\n\n{sections}"),
    )
    .unwrap();
    file.to_str().unwrap().to_owned()
}

/// The report of `lab run` on a scenario, once all of its steps were measured.
fn measured(file: &str, timeout: u64) -> Value {
    ran_with(&[file], timeout)
}

/// The report of `lab run` with these arguments, once all of its steps were measured.
fn ran_with(arguments: &[&str], timeout: u64) -> Value {
    valid_within(3, || {
        let command = [&["lab", "run", "--json"], arguments].concat();
        let output = run(&mut fullpipe(&command), timeout);
        let report = document(&output)["lab"][0].clone();
        let steps = report["steps"].as_array().unwrap();
        let unfit = steps
            .iter()
            .filter(|step| step["measured"].is_null())
            .map(|step| step["missed"].to_string())
            .collect();
        (report, unfit)
    })
}

/// Runs a program in a host of the tiny scenario.
fn exec(host: &str, command: &[&str]) -> Command {
    fullpipe(&[&["lab", "exec", &tiny(), host, "--"], command].concat())
}

/// Runs a shell script in the sender that has left a daemon behind when it goes on to `then`.
fn with_daemon(mark: &Mark, then: &str) -> Command {
    let script = format!(
        "setsid sleep {} </dev/null >/dev/null 2>&1 & {then}",
        mark.as_str()
    );
    let mut command = exec("sender", &["sh", "-c", &script]);
    mark.put_on(&mut command);
    command
}

/// Network namespaces of what is marked, but for that of this test.
fn foreign_namespaces(mark: &Mark) -> BTreeSet<PathBuf> {
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    mark.network_namespaces()
        .into_iter()
        .filter(|namespace| *namespace != ours)
        .collect()
}

/// Waits until the marked daemon lives; the network namespaces of its lab.
fn namespaces_of_lab(mark: &Mark) -> BTreeSet<PathBuf> {
    let daemon = format!("sleep {}", mark.as_str());
    let lives = || {
        mark.processes()
            .iter()
            .any(|(_, command)| *command == daemon)
    };
    assert!(
        within(Duration::from_secs(10), lives),
        "no daemon in the lab: {:?}",
        mark.processes()
    );
    let namespaces = foreign_namespaces(mark);
    assert!(!namespaces.is_empty(), "the lab has networks of its own");
    namespaces
}

/// What is stated of a load, the limit that it makes, and how near the kernel comes to the
/// prediction.
const STATED: [(&str, &str); 8] = [
    ("--sndbuf 64KiB", "send-buffer/so-sndbuf"),
    ("--rcvbuf 32KiB", "receive-window/so-rcvbuf"),
    ("--app-window 64KiB", "application-window/other"),
    ("--requests 4x32KiB", "application-window/other"),
    ("--request-size 4292", "application-window/other"),
    (
        "--request-size 64KiB --pause 100ms",
        "sender-application/idle",
    ),
    ("--read-rate 20M", "receiver-application/slow-reader"),
    ("--fq-rate 20M", "pacing/max-pacing-rate"),
];

#[test]
fn what_has_no_effect_in_a_lab_is_refused_in_a_sentence() {
    for (flags, parts) in [
        (
            "--rtt 20ms --receiver-os windows-10",
            &["this machine's Linux", "fullpipe simulate"][..],
        ),
        ("--rtt 20ms --quic", &["this machine's Linux"]),
        ("--rtt 20ms --flow-cap 1G", &["--flow-cap", "policer="]),
        ("--rtt 20ms --cpu-rate 1G", &["--cpu-rate", "--read-rate"]),
        ("--rtt 20ms,30ms", &["one transfer", "fullpipe simulate"]),
        ("--rtt 20ms --pause 1s", &["--pause", "--request-size"]),
        (
            "--rtt 20ms --window 64KiB --rcvbuf 64KiB",
            &["--window and --rcvbuf"],
        ),
        (
            "--rtt 20ms -w 64KiB --sndbuf 64KiB --rcvbuf 64KiB",
            &["--buffer has no effect"],
        ),
    ] {
        let words: Vec<&str> = ["lab", "run"].into_iter().chain(flags.split(' ')).collect();
        let said = sentence(&run(&mut fullpipe(&words), TIMEOUT), 2);
        for part in parts {
            assert!(said.contains(part), "{flags}: {said}");
        }
    }
}

#[test]
fn a_program_runs_in_each_host_and_its_exit_code_is_passed_on() {
    require!(Lab);
    let _slot = load_slot();
    for (host, code) in [("sender", 0), ("receiver", 7)] {
        let output = run(
            &mut exec(host, &["sh", "-c", &format!("uname -n; exit {code}")]),
            TIMEOUT,
        );
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{host}\n"));
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    let killed = run(&mut exec("sender", &["sh", "-c", "kill -9 $$"]), TIMEOUT);
    assert_eq!(killed.status.code(), Some(137));
}

#[test]
fn a_program_that_does_not_exist_is_one_sentence() {
    require!(Lab);
    let _slot = load_slot();
    let output = run(&mut exec("sender", &["nosuchprogram"]), TIMEOUT);
    assert!(sentence(&output, 1).contains("start `nosuchprogram` in the sender"));
}

/// The end of the program was once waited for without end.
#[test]
fn a_lab_whose_keeper_is_stopped_ends_in_a_sentence_once_the_program_has_ended() {
    require!(Lab);
    let _slot = load_slot();
    let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("go-on");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", file.display());
    let lab = Running::start(mark.put_on(&mut exec("sender", &["sh", "-c", &script])));
    let waits = || {
        mark.processes()
            .iter()
            .any(|(_, command)| command.contains("go-on") && command.starts_with("sh"))
    };
    assert!(
        within(Duration::from_secs(10), waits),
        "{:?}",
        mark.processes()
    );
    let namespaces = foreign_namespaces(&mark);
    kill_process(keeper(&mark), Signal::STOP).unwrap();
    std::fs::write(&file, "").unwrap();
    let said = sentence(&lab.finish(Duration::from_secs(TIMEOUT)), 1);
    assert!(
        said.contains("did not report the end of `sh` in time") && said.contains("is stopped"),
        "{said}"
    );
    mark.assert_gone(&namespaces);
}

/// Returns the first process inside a marked lab.
fn keeper(mark: &Mark) -> Pid {
    let is_first = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
    };
    let keeper = mark
        .processes()
        .into_iter()
        .map(|(pid, _)| pid)
        .find(is_first);
    Pid::from_raw(keeper.expect("the lab has a keeper").cast_signed()).unwrap()
}

/// A packet of a capture: its time, its length, and its headers from IP on.
struct Captured {
    nanos: u64,
    length: u64,
    headers: Vec<u8>,
}

/// The packets of a file in the format of pcap-savefile(5).
fn captured(file: &Path) -> Vec<Captured> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    let mut at = 24;
    let next = || {
        let (begin, kept) = (
            at,
            if at < bytes.len() {
                word(at + 8) as usize
            } else {
                return None;
            },
        );
        at = begin + 16 + kept;
        let nanos = word(begin) * 1_000_000_000 + word(begin + 4);
        Some(Captured {
            nanos,
            length: word(begin + 12),
            headers: bytes[begin + 16..at].to_vec(),
        })
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_capture_bears_the_paths_own_times_and_tcpdump_reads_it() {
    require!(Lab, Tcpdump);
    let _slot = load_slot();
    let folder = tempfile::tempdir().unwrap();
    let command = [
        "lab",
        "run",
        &tiny(),
        "--json",
        "--capture",
        folder.path().to_str().unwrap(),
    ];
    document(&run(&mut fullpipe(&command), TIMEOUT));
    let files =
        ["sender", "receiver"].map(|end| folder.path().join(format!("tiny-as-it-is-1-{end}.pcap")));
    let [near, far] = files.each_ref().map(|file| captured(file));
    for (file, packets) in files.iter().zip([&near, &far]) {
        assert!(
            packets
                .windows(2)
                .all(|pair| pair[0].nanos <= pair[1].nanos),
            "out of order: {}",
            file.display()
        );
        let output = run(
            Command::new("tcpdump")
                .args(["-n", "--nano", "-r"])
                .arg(file),
            TIMEOUT,
        );
        let stated = String::from_utf8_lossy(&output.stdout);
        let (flows, count) = (
            stated.matches("IP 198.18.0.1.").count(),
            stated.lines().count(),
        );
        assert!(
            flows > 100 && count == packets.len(),
            "{count} of {} packets, {flows} of them the sender's",
            packets.len()
        );
    }
    // The first SYN and its answer find the link idle: rate and delay are all that passes between
    // the two ends.
    let first = |packets: &[Captured], flags: u8| {
        let position = packets
            .iter()
            .position(|packet| packet.headers[9] == 6 && packet.headers[33] == flags);
        position
            .map(|position| (packets[position].nanos, packets[position].length))
            .unwrap()
    };
    for (flags, from, to) in [(0x02, &near, &far), (0x12, &far, &near)] {
        let ((sent, length), (arrived, _)) = (first(from, flags), first(to, flags));
        let exact = 5_000_000 + (length + 38) * 8 * 1_000 / 50;
        assert!(
            (exact..exact + 50_000).contains(&(arrived - sent)),
            "{} ns in place of {exact}",
            arrived - sent
        );
    }
}

#[test]
fn a_capture_ends_at_its_size_and_replaces_no_other() {
    require!(Lab);
    let _slot = load_slot();
    let folder = tempfile::tempdir().unwrap();
    let earlier = folder.path().join("tiny-as-it-is-1-receiver.pcap");
    std::fs::write(&earlier, "of an earlier run").unwrap();
    let flags = [
        "--capture",
        folder.path().to_str().unwrap(),
        "--capture-size",
        "4KiB",
    ];
    let output = run(
        &mut fullpipe(&[&["lab", "run", &tiny(), "--json"], &flags[..]].concat()),
        TIMEOUT,
    );
    let run = document(&output)["lab"][0]["steps"][0]["runs"][0].clone();
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains("the capture lacks "), "{warnings}");
    assert!(
        run["capture"]["left_out"].as_u64() > Some(1_000),
        "{}",
        run["capture"]
    );
    let size = std::fs::metadata(folder.path().join("tiny-as-it-is-2-sender.pcap"))
        .unwrap()
        .len();
    assert!((3_000..=4_096).contains(&size), "{size} B");
    assert_eq!(
        std::fs::read_to_string(&earlier).unwrap(),
        "of an earlier run"
    );
}

#[test]
fn datagrams_beyond_the_link_are_lost_as_predicted_and_starve_tcp() {
    require!(Lab);
    let _slot = load_slot();
    let file = scenario(
        "starved",
        "[path]\nrate = \"20Mbit/s\"\nrtt = \"20ms\"\nqueue = \"200ms\"\n\n\
         [[step]]\nname = \"datagrams\"\ntransport = \"udp\"\nrate = \"25M\"\nduration = \"3s\"\n\
         capacity = { within = \"10%\" }\nloss = { within = \"2%\" }\n\n\
         [[step]]\nname = \"alone\"\nwindow = \"16KiB\"\nduration = \"3s\"\n\n\
         [[step]]\nname = \"cross traffic\"\nwindow = \"16KiB\"\nomit = \"2s\"\nduration = \"3s\"\n\
         fills = { within = \"15%\" }\n\
         [[step.cross_traffic]]\ntransport = \"udp\"\nstreams = 2\nrate = \"25M\"\nafter = \"500ms\"\n\n\
         [[bound]]\nratio = [\"cross traffic\", \"alone\"]\nat_most = \"50%\"\n",
    );
    let report = measured(&file, 2 * TIMEOUT);
    assert_eq!(
        report["passed"],
        true,
        "{:?} {}",
        report["steps"]
            .as_array()
            .map(|steps| steps.iter().map(|step| &step["missed"]).collect::<Vec<_>>()),
        report["missed"]
    );
    let datagrams = &report["steps"][0]["datagrams"];
    // A fifth of 25 Mbit/s, and what the headers take.
    let lost = datagrams["loss"].as_f64().unwrap();
    assert!((0.1..0.35).contains(&lost), "{datagrams}");
    let cross_traffic = &report["steps"][2]["cross_traffic"][0];
    assert_eq!(
        (
            cross_traffic["phases"].as_u64(),
            cross_traffic["request"]["streams"].as_u64()
        ),
        (Some(1), Some(2))
    );
    assert!(
        cross_traffic["loss"].as_f64().unwrap() > 0.4,
        "{cross_traffic}"
    );
}

#[test]
fn a_step_may_have_its_own_path_and_loads_that_grow() {
    require!(Lab);
    let _slot = load_slot();
    let file = scenario(
        "ways",
        "[path]\nrate = \"20Mbit/s\"\nrtt = \"40ms\"\nqueue = \"200ms\"\n\n\
         [[step]]\nname = \"far\"\nwindow = \"16KiB\"\nduration = \"3s\"\n\n\
         [[step]]\nname = \"near\"\nwindow = \"16KiB\"\nduration = \"3s\"\npath = { rtt = \"20ms\" }\n\n\
         [[step]]\nname = \"climb\"\ntransport = \"udp\"\n\
         ramp = { from = \"50%\", to = \"120%\", loads = 2 }\nduration = \"2s\"\n\n\
         [[bound]]\nratio = [\"near\", \"far\"]\nexpect = \"kernel_model\"\nwithin = \"15%\"\n",
    );
    let report = measured(&file, 2 * TIMEOUT);
    assert_eq!(report["passed"], true, "{report}");
    let step = |index: usize| &report["steps"][index];
    assert_eq!(
        (
            &step(0)["path"],
            step(1)["path"]["forward"]["delay"].as_f64()
        ),
        (&Value::Null, Some(0.01))
    );
    let ramp = &step(2)["ramp"];
    assert_eq!(ramp["steps"].as_array().unwrap().len(), 2);
    // The queue grows under the second load alone.
    assert_eq!(step(2)["measured"], ramp["steps"][1]["offered"]);
    assert_eq!(ramp["slower_from"], ramp["steps"][1]["offered"]);
}

/// Two short stretches, and a long one between them.
const STRETCHES: &str = "[path]\nrate = \"20Mbit/s\"\nrtt = \"100ms\"\n\n[near]\nrtt = \"2ms\"\n\n[far]\nrtt = \"2ms\"\n\n";

#[test]
fn hosts_between_stretches_forward_packets_and_may_be_entered() {
    require!(Lab);
    let _slot = load_slot();
    let file = scenario(
        "stretches",
        &format!("{STRETCHES}[[step]]\nname = \"direct\"\n"),
    );
    for (host, others) in [
        ("sender", ["198.18.0.2", "198.18.0.22"]),
        ("far-relay", ["198.18.0.1", "198.18.0.21"]),
    ] {
        // A host that is reached refuses a connection at once.
        let knock = format!(
            "uname -n; for a in {} {}; do echo >/dev/tcp/$a/9; done",
            others[0], others[1]
        );
        let mut knocking = fullpipe(&["lab", "exec", &file, host, "--", "bash", "-c", &knock]);
        // The shell says it in the user's language.
        let output = run(knocking.env("LC_ALL", "C"), TIMEOUT);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("{host}\n"),
            "{output:?}"
        );
        let refused = String::from_utf8_lossy(&output.stderr)
            .matches("connect: Connection refused")
            .count();
        assert_eq!(refused, 2, "{output:?}");
    }
    let output = run(&mut exec("near-relay", &["true"]), TIMEOUT);
    assert!(
        sentence(&output, 2).contains("has no near-relay: its path has no stretches"),
        "{output:?}"
    );
}

#[test]
fn nothing_remains_of_a_lab_that_ended_well_or_badly() {
    require!(Lab);
    let _slot = load_slot();
    for code in [0, 7] {
        let mark = Mark::new();
        let running = Running::start(&mut with_daemon(&mark, &format!("sleep 1; exit {code}")));
        let namespaces = namespaces_of_lab(&mark);
        assert_eq!(
            running.finish(Duration::from_secs(TIMEOUT)).status.code(),
            Some(code)
        );
        mark.assert_gone(&namespaces);
    }
}

#[test]
fn nothing_remains_of_a_lab_whose_program_was_interrupted() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let mut command = with_daemon(&mark, &format!("sleep {}", mark.as_str()));
    // As a terminal does: everything in the foreground is interrupted, but not the daemon.
    let running = Running::start(command.process_group(0));
    let namespaces = namespaces_of_lab(&mark);
    let group = Pid::from_raw(running.pid().cast_signed()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    assert_eq!(
        running.finish(Duration::from_secs(TIMEOUT)).status.code(),
        Some(INTERRUPTED)
    );
    mark.assert_gone(&namespaces);
}

#[test]
fn nothing_remains_of_a_run_that_was_interrupted() {
    require!(Lab);
    let _slot = load_slot();
    for wait in [100, 400, 800, 1_500] {
        let mark = Mark::new();
        let running = Running::start(mark.put_on(&mut fullpipe(&["lab", "run", &tiny()])));
        thread::sleep(Duration::from_millis(wait));
        running.interrupt();
        let output = running.finish(Duration::from_secs(TIMEOUT));
        sentence(&output, INTERRUPTED);
        mark.assert_gone(&BTreeSet::new());
    }
}

/// The server once gave up its report after five seconds, in the middle of it.
#[test]
fn a_slow_path_gets_its_results_through() {
    require!(Lab);
    let _slot = load_slot();
    let arguments = ["demo", "--path", "rate=256k,rtt=100ms", "-t", "8", "--json"];
    let output = run(&mut fullpipe(&arguments), 90);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("\"speaks_fullpipe\": true"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn nothing_remains_of_a_lab_that_was_killed_at_any_moment() {
    require!(Lab);
    let _slot = load_slot();
    kill_at_any_moment(8, Duration::from_millis(1_500), |mark| {
        with_daemon(mark, &format!("sleep {}", mark.as_str()))
    });
}

#[test]
fn nothing_remains_of_a_lab_that_was_killed_under_load() {
    require!(Lab);
    let _slot = load_slot();
    for backend in ["tun", "packet"] {
        kill_at_any_moment(3, Duration::from_secs(4), |mark| {
            let mut demo = fullpipe(&[
                "demo",
                "--path",
                "rate=200M,rtt=10ms",
                "-t",
                "5",
                "--backend",
                backend,
            ]);
            mark.put_on(&mut demo);
            demo
        });
    }
}

/// Kills what `command` makes so many times, each after a time of at most `longest`, and holds that
/// nothing remains.
#[expect(
    clippy::print_stdout,
    reason = "the runner shows it where the test fails"
)]
fn kill_at_any_moment(times: u32, longest: Duration, command: impl Fn(&Mark) -> Command) {
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    for _ in 0..times {
        let moment = longest.mul_f64(f64::from(random.next_u32()) / f64::from(u32::MAX));
        println!("seed {seed}: killed after {moment:?}");
        let mark = Mark::new();
        let mut running = Running::start(&mut command(&mark));
        thread::sleep(moment);
        let namespaces = foreign_namespaces(&mark);
        running.kill();
        mark.assert_gone(&namespaces);
    }
}

/// Runs a program as nobody.
const NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

/// Runs the program by way of `by`, with a `/dev/net/tun` of mode `tun`, or none; the machine's own
/// is not touched.
fn with_device(tun: Option<&str>, by: &[&str], arguments: &[&str]) -> Output {
    // The program is bound to where nobody may read it, whatever folder it was built in.
    let script = "mount -t tmpfs -o mode=755 tmpfs /dev/net; \
                  [ -z \"$1\" ] || { mknod /dev/net/tun c 10 200; chmod \"$1\" /dev/net/tun; }; \
                  touch /dev/net/fullpipe; mount --bind \"$2\" /dev/net/fullpipe; shift 2; cd /; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-ec",
        script,
        "sh",
        tun.unwrap_or_default(),
        env!("CARGO_BIN_EXE_fullpipe"),
    ]);
    run(
        command.args(by).arg("/dev/net/fullpipe").args(arguments),
        TIMEOUT,
    )
}

/// A short demo by way of `by`: what it measured, as a share of what the path carries, and why that
/// does not count.
fn demo(tun: Option<&str>, by: &[&str], backend: &str) -> (f64, Vec<String>) {
    const GOODPUT: f64 = 20e6 * 1448.0 / 1538.0;
    // CUBIC may take late packets of a busy machine for a queue and leave slow start early
    // (HyStart): then two seconds are too short to fill the path. Reno does not.
    let arguments = [
        "demo",
        "--json",
        "--path",
        "rate=20M,rtt=40ms",
        "-t",
        "2",
        "-C",
        "reno",
        "--backend",
        backend,
    ];
    let output = with_device(tun, by, &arguments);
    let measurement = document(&output)["experiment"]["measurement"].clone();
    let rate = measurement["summary"]["steady"]["rate"]
        .as_f64()
        .or(measurement["summary"]["rate"].as_f64());
    let broken = measurement["validity"]["broken"]
        .as_array()
        .map(|broken| broken.iter().map(Value::to_string));
    let (Some(rate), Some(broken)) = (rate, broken) else {
        panic!("no measurement: {output:?}")
    };
    (rate / GOODPUT, broken.collect())
}

/// Packets go through, whatever a busy machine makes of their times: the link does not see hosts
/// that stand still next to other tests. Tests that run alone judge the rate.
fn a_demo_works(tun: Option<&str>, by: &[&str]) {
    let (share, broken) = demo(tun, by, "auto");
    let least = if broken.is_empty() { 0.5 } else { 0.05 };
    assert!(
        (least..1.03).contains(&share),
        "{share} of the path: {broken:?}"
    );
}

#[test]
fn an_ordinary_user_has_a_lab_where_the_device_is_open() {
    require!(Lab, Root, Unshare, UserNamespaces);
    let _slot = load_slot();
    let exec = ["lab", "exec", "--backend", "tun", "demo"];
    let output = with_device(
        Some("0666"),
        &NOBODY,
        &[&exec[..], &["sender", "--", "true"]].concat(),
    );
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let script = ["receiver", "--", "sh", "-c", "uname -n; exit 7"];
    let output = with_device(Some("0666"), &NOBODY, &[&exec[..], &script].concat());
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(7), &b"receiver\n"[..]),
        "{output:?}"
    );
    a_demo_works(Some("0666"), &NOBODY);
}

#[test]
fn an_ordinary_user_has_a_lab_where_the_device_is_closed() {
    require!(Lab, Root, Unshare, UserNamespaces);
    let _slot = load_slot();
    a_demo_works(Some("0600"), &NOBODY);
}

#[test]
fn delay_over_the_kernels_own_path_needs_netem() {
    require!(Lab, Tc);
    let _slot = load_slot();
    let output = run(
        &mut fullpipe(&[
            "lab",
            "exec",
            "--backend",
            "kernel",
            "demo",
            "sender",
            "--",
            "true",
        ]),
        TIMEOUT,
    );
    if output.status.success() {
        // Straight to the descriptor, because the test runner swallows what a test prints that
        // passes.
        let said = b"skipped: this kernel has netem, so that there is nothing to refuse\n";
        let _ = rustix::io::write(rustix::stdio::stderr(), said);
        return;
    }
    let said = sentence(&output, 3);
    assert!(
        said.contains("this kernel has no netem") && said.contains("leave `--backend kernel` out"),
        "{said}"
    );
}

#[test]
fn where_tc_is_missing_the_kernels_own_path_is_refused() {
    require!(Lab, Root, Unshare);
    let _slot = load_slot();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // The folders that only the PATH of root has are searched too.
    let hidden =
        "for folder in /usr/sbin /sbin; do mount -t tmpfs tmpfs $folder; done; exec \"$@\"";
    let mut command = Command::new("unshare");
    let program = env!("CARGO_BIN_EXE_fullpipe");
    command.args([
        "--mount",
        "sh",
        "-ec",
        hidden,
        "sh",
        "env",
        &format!("PATH={path}"),
        program,
    ]);
    command.args([
        "demo",
        "--path",
        "rtt=0ms,queue=100KB",
        "--backend",
        "kernel",
    ]);
    let said = sentence(&run(&mut command, TIMEOUT), 3);
    assert!(said.contains("`tc`, of iproute2, cannot be run"), "{said}");
}

#[test]
fn what_the_kernels_own_path_does_not_do_is_refused_before_anything_is_made() {
    let file = scenario(
        "late",
        "[path]\nrate = \"50Mbit/s\"\nrtt = \"0ms\"\nqueue = \"100packets\"\n\n[[step]]\nname = \"as it is\"\n\n\
         [[step]]\nname = \"late\"\npath = { jitter = \"uniform 2ms\" }\n",
    );
    let output = run(
        &mut fullpipe(&["lab", "run", &file, "--backend", "kernel"]),
        TIMEOUT,
    );
    assert!(
        sentence(&output, 2).contains("has no jitter") && output.stdout.is_empty(),
        "{output:?}"
    );
    let output = run(
        &mut fullpipe(&["demo", "--path", "aqm=codel", "--backend", "kernel"]),
        TIMEOUT,
    );
    assert!(
        sentence(&output, 2).contains("has no managed queues"),
        "{output:?}"
    );
    let folder = tempfile::tempdir().unwrap().path().join("captures");
    let capture = [
        "lab",
        "run",
        &tiny(),
        "--backend",
        "kernel",
        "--capture",
        folder.to_str().unwrap(),
    ];
    assert!(sentence(&run(&mut fullpipe(&capture), TIMEOUT), 2).contains("has no captures"));
    assert!(!folder.exists());
}

#[test]
fn an_ordinary_user_joins_a_lab_that_stands() {
    require!(Lab, Root, Unshare, UserNamespaces);
    let _slot = load_slot();
    let script = "\"$0\" lab up demo --name nobodys >/dev/null & turns=0; \
                  until \"$0\" lab exec --join nobodys sender -- true 2>/dev/null; do \
                      turns=$((turns + 1)); [ $turns -lt 100 ] || exit 9; sleep 0.1; \
                  done; \
                  \"$0\" lab exec --join nobodys receiver -- sh -c 'uname -n; exit 7'; code=$?; \
                  kill $!; wait $!; exit $code";
    let output = with_device(None, &[&NOBODY[..], &["sh", "-c", script]].concat(), &[]);
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(7), &b"receiver\n"[..]),
        "{output:?}"
    );
}

#[test]
fn root_without_the_capability_has_a_lab_in_a_user_namespace() {
    require!(Lab, Root, Unshare, UserNamespaces);
    let _slot = load_slot();
    let lacking = [
        "setpriv",
        "--bounding-set=-sys_admin",
        "--inh-caps=-sys_admin",
    ];
    let arguments = [
        "lab",
        "exec",
        "demo",
        "receiver",
        "--",
        "sh",
        "-c",
        "uname -n; exit 7",
    ];
    let output = with_device(None, &lacking, &arguments);
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(7), &b"receiver\n"[..]),
        "{output:?}"
    );
}

#[test]
fn where_user_namespaces_are_switched_off_an_ordinary_user_reads_which_switch_it_is() {
    require!(Lab, Root, Unshare, UserNamespaces);
    // Below a user namespace of its own, whose limit is not the machine's. Its root becomes one
    // with the map.
    let below = "unshare --user sh -ec 'until grep -q . /proc/self/uid_map; do sleep 0.01; done; \
                     exec sh -ec \"echo 0 >/proc/sys/user/max_user_namespaces; exec \\\"\\$@\\\"\" \
                     sh \"$@\"' sh \"$@\" & \
                 until echo 0 0 65536 >/proc/$!/gid_map; do sleep 0.01; done 2>/dev/null; \
                 until echo 0 0 65536 >/proc/$!/uid_map; do sleep 0.01; done 2>/dev/null; wait $!";
    let below = ["timeout", "10", "sh", "-ec", below, "sh"];
    for command in [
        &["lab", "exec", "demo", "sender", "--", "true"][..],
        &["lab", "up"],
        &["demo", "--json"],
    ] {
        let output = with_device(None, &[&below[..], &NOBODY].concat(), command);
        let said = sentence(&output, 3);
        assert!(
            said.contains("user.max_user_namespaces=10000") && said.contains("sudo"),
            "{said}"
        );
    }
}

#[test]
fn a_container_without_the_device_has_a_lab() {
    require!(Lab, Root, Unshare);
    let _slot = load_slot();
    a_demo_works(None, &[]);
}

#[test]
fn who_insists_on_tun_is_reported_how_to_open_the_device() {
    require!(Lab, Root, Unshare, UserNamespaces);
    let _slot = load_slot();
    for command in [
        &[
            "lab",
            "exec",
            "--backend",
            "tun",
            "demo",
            "sender",
            "--",
            "true",
        ][..],
        &["demo", "--json", "--backend", "tun"],
    ] {
        let output = with_device(Some("0600"), &NOBODY, command);
        let said = sentence(&output, 3);
        for part in ["/dev/net/tun", "sudo", "chmod 0666 /dev/net/tun"] {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
        let said = sentence(&with_device(None, &NOBODY, command), 3);
        for part in ["/dev/net/tun", "modprobe tun", "--device /dev/net/tun"] {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
    }
}

#[test]
fn packets_of_two_sizes_are_too_much_for_packet_sockets() {
    require!(Lab);
    let _slot = load_slot();
    let text = "name = \"two\"\ntitle = \"Two MTUs\"\n[path]\nrtt = \"1ms\"\nmtu = 9000\n[path.reverse]\nmtu = 1500\n\
                [[step]]\nname = \"never\"\n";
    let file =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("two-{}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let command = [
        "lab",
        "exec",
        "--backend",
        "packet",
        file.to_str().unwrap(),
        "sender",
        "--",
        "true",
    ];
    let said = sentence(&run(&mut fullpipe(&command), TIMEOUT), 3);
    assert!(said.contains("one MTU for both directions"), "{said}");
}

#[test]
fn a_backend_that_there_is_not_is_refused_with_those_that_there_are() {
    let said = sentence(
        &run(
            &mut fullpipe(&["demo", "--json", "--backend", "netem"]),
            TIMEOUT,
        ),
        2,
    );
    assert!(
        said.contains("netem") && said.contains("auto, tun, packet and kernel"),
        "{said}"
    );
}

#[test]
fn a_congestion_control_that_this_kernel_lacks_is_refused_before_anything_is_made() {
    let sections = "[path]\nrtt = \"10ms\"\n\n[[step]]\nname = \"as it is\"\n";
    let step = scenario("nosuch", &format!("{sections}congestion = \"nosuch\"\n"));
    let cross_traffic = scenario(
        "others",
        &format!("{sections}[[step.cross_traffic]]\ncongestion = \"nosuch\"\n"),
    );
    for (command, place) in [
        (&["demo", "-C", "nosuch"][..], String::new()),
        (
            &["lab", "run", &tiny(), &step],
            format!("{step}:9:14: congestion: "),
        ),
        (
            &["lab", "run", &cross_traffic],
            format!("{cross_traffic}:10:14: congestion: "),
        ),
    ] {
        let output = run(&mut fullpipe(command), TIMEOUT);
        let said = sentence(&output, 3);
        let expected = format!("{place}this kernel has no congestion control `nosuch`; it has ");
        assert!(said.contains(&expected) && said.contains("reno"), "{said}");
        assert!(output.stdout.is_empty(), "nothing began: {output:?}");
    }
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn the_kernel_does_what_flags_state_of_a_load() {
        require!(Lab);
        let _alone = path();
        for (load, limit) in STATED {
            let line = format!("--bandwidth 100M --rtt 20ms -C cubic -t 5 {load}");
            let words: Vec<&str> = line.split(' ').collect();
            let step = ran_with(&words, TIMEOUT)["steps"][0].clone();
            // Those before it did not count.
            let verdict = &step["runs"].as_array().unwrap().last().unwrap()["limit"];
            let found = [&verdict["kind"], &verdict["cause"]].map(|name| name.as_str().unwrap());
            assert_eq!(found.join("/"), limit, "{load}: {verdict}");
            let accuracy = step["accuracy"].as_f64().unwrap();
            assert!((accuracy - 1.0).abs() <= 0.15, "{load}: {accuracy}");
        }
    }

    #[test]
    fn a_scenario_is_run_and_measured() {
        require!(Lab);
        let _path = path();
        let report = valid_within(3, || {
            let output = run(&mut fullpipe(&["lab", "run", &tiny(), "--json"]), TIMEOUT);
            let report = document(&output)["lab"][0].clone();
            let passed = report["passed"] == true;
            assert_eq!(output.status.success(), passed, "{output:?}");
            (
                report.clone(),
                if passed {
                    vec![]
                } else {
                    vec![report["steps"][0]["missed"].to_string()]
                },
            )
        });
        let step = &report["steps"][0];
        let (measured, predicted) = (
            step["measured"].as_f64().unwrap(),
            step["prediction"]["kernel_model"].as_f64().unwrap(),
        );
        assert!(
            (measured / predicted - 1.0).abs() < 0.05,
            "{measured} measured of {predicted}"
        );
    }

    #[test]
    fn a_pair_of_relays_fills_the_long_stretch_for_hosts_with_small_windows() {
        require!(Lab);
        let _path = path();
        let steps = "[[step]]\nname = \"direct\"\nwindow = \"32KiB\"\nduration = \"3s\"\n\n\
                     [[step]]\nname = \"relays\"\nrelays = true\nwindow = \"32KiB\"\nduration = \"5s\"\n";
        let report = measured(&scenario("relays", &format!("{STRETCHES}{steps}")), 120);
        let rate = |step: usize| report["steps"][step]["measured"].as_f64().unwrap();
        let predicted = |step: usize| {
            report["steps"][step]["prediction"]["kernel_model"]
                .as_f64()
                .unwrap()
        };
        for step in [0, 1] {
            assert!(
                (rate(step) / predicted(step) - 1.0).abs() < 0.15,
                "{report:#}"
            );
        }
        assert!(rate(1) > 5.0 * rate(0), "{report:#}");
    }

    #[test]
    fn a_grid_is_run_and_held_against_its_predictions() {
        require!(Lab);
        let _path = path();
        let text = "name = \"one\"\ntitle = \"One cell\"\nlongest = \"5s\"\n[bounds]\nmedian = \"0.0001%\"\n\
                    [[block]]\nrate = [\"50Mbit/s\"]\nrtt = [\"20ms\"]\nwindow = [\"0.5\"]\n";
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("grid-{}.toml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let report = valid_within(1, || {
            let output = run(
                &mut fullpipe(&[
                    "lab",
                    "grid",
                    file.to_str().unwrap(),
                    "--against",
                    "virtual",
                    "--json",
                ]),
                2 * TIMEOUT,
            );
            let report = document(&output)["grid"].clone();
            // No measurement is that close to its prediction.
            assert!(
                !output.status.success() && report["passed"] == false,
                "{output:?}"
            );
            let broken = report["cells"][0]["measured"]
                .is_null()
                .then(|| report["cells"][0]["broken"].to_string());
            (report, broken.into_iter().collect())
        });
        let cell = &report["cells"][0];
        let (measured, predicted) = (
            cell["measured"].as_f64().unwrap(),
            cell["prediction"]["kernel_model"].as_f64().unwrap(),
        );
        assert!(
            (measured / predicted - 1.0).abs() < 0.08,
            "{measured} measured of {predicted}"
        );
        // The run of the kernel and that of virtual time had the same path, load and settings.
        let rate = |run: &str| cell[run]["rate"].as_f64().unwrap();
        assert!(
            (rate("simulated") / rate("kernel") - 1.0).abs() < 0.08,
            "{} and {}",
            cell["simulated"],
            cell["kernel"]
        );
        assert_eq!(report["simulated_without_loss"]["cells"], 1);
        assert_eq!(
            (
                report["by_rule"]["cells"].as_u64(),
                report["missed"].as_array().unwrap().len()
            ),
            (Some(1), 1)
        );
    }

    #[test]
    #[ignore = "judges the machine too: a path of full rate needs processors that nobody takes away"]
    fn the_kernels_own_path_carries_its_rate_for_root_and_for_ordinary_users() {
        const GOODPUT: f64 = 100e6 * 1448.0 / 1538.0;
        const QUEUE_LASTS: Duration = Duration::from_millis(8);
        require!(Lab, Root, Unshare, UserNamespaces, Tc);
        let _path = path();
        let path = "rate=100M,rtt=0ms,queue=100KB";
        let arguments = [
            "demo",
            "--json",
            "--path",
            path,
            "-t",
            "3",
            "--backend",
            "kernel",
        ];
        for by in [&[][..], &NOBODY] {
            let share = valid_within(3, || {
                let (output, late) = lateness(|| with_device(None, by, &arguments));
                let measurement = document(&output)["experiment"]["measurement"].clone();
                let rate = measurement["summary"]["rate"]
                    .as_f64()
                    .unwrap_or_else(|| panic!("no measurement: {output:?}"));
                assert!(
                    measurement["validity"]["lateness_mean"].is_null(),
                    "{}",
                    measurement["validity"]
                );
                let broken = measurement["validity"]["broken"].as_array().unwrap();
                let mut broken: Vec<String> = broken.iter().map(Value::to_string).collect();
                let share = rate / GOODPUT;
                // No link of ours is in this path to report that the machine stood still for longer
                // than the queue lasts.
                let stood_still = share < 0.97 && late > QUEUE_LASTS;
                broken.extend(stood_still.then(|| {
                    format!("{share} of what the path carries, the machine {late:?} late")
                }));
                (share, broken)
            });
            assert!(
                (0.97..1.03).contains(&share),
                "{share} of what the path carries, by {by:?}"
            );
        }
    }

    #[test]
    fn packet_sockets_carry_what_tun_carries() {
        require!(Lab, Root, Unshare);
        let _path = path();
        let share = valid_within(3, || demo(Some("0600"), &[], "packet"));
        assert!((0.97..1.03).contains(&share), "{share} of the path");
    }
}
