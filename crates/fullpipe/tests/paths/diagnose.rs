//! `fullpipe diagnose`: transfers of its own, and of others that it watches.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{
    Mark, Postgres, Running, SshServer, assert_says, document, free_port, load_slot, path, require,
    sentence, valid_within, wait_for_listener, within,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longest time until a program has printed its report, in seconds.
const TIMEOUT: u64 = 40;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const LACKING: i32 = 3;
const INTERRUPTED: i32 = 130;

/// Returns the sentence of `fullpipe diagnose` with `arguments`, which must exit with `code` and
/// leave nothing behind.
fn stated(arguments: &[&str], code: i32) -> String {
    let mark = Mark::new();
    let output = run(
        mark.put_on(&mut fullpipe(&[&["diagnose"], arguments].concat())),
        TIMEOUT,
    );
    mark.assert_gone(&BTreeSet::new());
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    sentence(&output, code)
}

/// Returns the error of clap for a wrong command line.
fn refused(arguments: &[&str]) -> String {
    let output = run(&mut fullpipe(&[&["diagnose"], arguments].concat()), TIMEOUT);
    assert_eq!(output.status.code(), Some(USAGE));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_cannot_be_diagnosed_is_one_sentence() {
    assert_says(
        &stated(&["--pid", "1073741824"], FAILED),
        &["no process 1073741824"],
    );
    let nowhere = ["--connection", "127.0.0.1:9", "192.0.2.1:9"];
    assert_says(
        &stated(&nowhere, FAILED),
        &["127.0.0.1:9", "192.0.2.1:9", "ss -tn"],
    );
    assert_says(
        &stated(&["--", "nosuchprogram"], FAILED),
        &["cannot start `nosuchprogram`", "No such file"],
    );
    assert_says(
        &stated(&["--", "true"], FAILED),
        &["true ended with code 0", "too little"],
    );
    assert_says(
        &stated(&["--", "sh", "-c", "exit 7"], FAILED),
        &["sh ended with code 7"],
    );
    let port = free_port().to_string();
    assert_says(
        &stated(&["127.0.0.1", "-p", &port], FAILED),
        &["refused", "fullpipe serve"],
    );
    assert_says(
        &stated(&["127.0.0.1", "--udp"], USAGE),
        &["--udp", "fullpipe measure"],
    );
    assert_says(
        &stated(&["--pid", "1", "--apply", "1"], USAGE),
        &["--apply", "host"],
    );
    assert_says(
        &stated(&["--pid", "1", "-P", "4", "-R"], USAGE),
        &["leave out --streams, --reverse"],
    );
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    assert_says(&refused(&[]), &["--pid", "required"]);
    assert_says(
        &refused(&["h", "--pid", "1"]),
        &["--pid", "cannot be used with"],
    );
    assert_says(&refused(&["h", "--keep"]), &["--apply"]);
    assert_says(&refused(&["ftp://h/file"]), &["ftp://", "https://"]);
    assert_says(
        &refused(&["--connection", "127.0.0.1:9"]),
        &["--connection"],
    );
    assert_says(
        &refused(&["--connection", "127.0.0.1:9", "there"]),
        &["--connection", "there"],
    );
}

#[test]
fn what_a_command_has_started_ends_with_it() {
    let said = stated(
        &["-q", "-t", "0.3", "--", "sh", "-c", "sleep 77; true"],
        FAILED,
    );
    assert_says(&said, &["sh ended by signal 15", "too little"]);
}

#[test]
fn a_process_without_data_is_reported_as_such_when_the_time_is_over() {
    let idle = Running::start(Command::new("sleep").arg("60"));
    let (began, pid) = (Instant::now(), idle.pid().to_string());
    assert_says(
        &stated(&["--pid", &pid, "-t", "0.5"], FAILED),
        &["process", &pid, "too little"],
    );
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// Reads from the one who calls, a little at a time, until `stop` has gone.
fn read_slowly(listener: &TcpListener, stop: &Receiver<()>) {
    let (mut caller, _) = listener.accept().unwrap();
    while stop.recv_timeout(Duration::from_millis(8)) == Err(RecvTimeoutError::Timeout) {
        let _ = caller.read(&mut [0; 16_000]).unwrap();
    }
}

#[test]
fn the_file_that_a_process_reads_is_complete_at_a_stated_time() {
    const SIZE: u64 = 1 << 30;
    require!(Socat);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big file");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("TCP:{},sndbuf=60000", listener.local_addr().unwrap());
    let (ended, stop) = channel();
    let reader = thread::spawn(move || read_slowly(&listener, &stop));
    let sender = Running::start(
        Command::new("socat")
            .args(["-u", "-b", "8192"])
            .args([format!("FILE:{}", path.display()), target]),
    );
    let pid = sender.pid().to_string();
    let seen = |more: &[&str]| {
        let words = [&["diagnose", "--pid", &pid, "-t", "3", "--json"], more].concat();
        document(&run(&mut fullpipe(&words), TIMEOUT))["diagnosis"]["completion"].clone()
    };
    let (of_file, stated) = (seen(&[]), seen(&["--size", "100GB"]));
    drop((ended, sender));
    assert!(reader.join().is_ok());
    assert_eq!(of_file["file"], path.display().to_string());
    assert_eq!(
        (&of_file["size"], &stated["file"]),
        (&SIZE.into(), &Value::Null)
    );
    for completion in [of_file, stated] {
        let [size, passed] = ["size", "passed"].map(|name| completion[name].as_f64().unwrap());
        let forecast = &completion["forecast"];
        let [low, time, high] =
            ["low", "time", "high"].map(|name| forecast[name].as_f64().unwrap());
        assert!(
            0.0 < passed && passed < size && low < time && time < high,
            "{completion}"
        );
        // It reads 2 MB a second at most.
        assert!(time > 0.5 * (size - passed) / 2e6, "{completion}");
    }
}

#[test]
fn a_connection_that_closes_before_it_shows_anything_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ends = [
        client.local_addr().unwrap().to_string(),
        client.peer_addr().unwrap().to_string(),
    ];
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        drop((client, listener));
    });
    let began = Instant::now();
    let output = run(
        &mut fullpipe(&["diagnose", "--connection", &ends[0], &ends[1], "-t", "30"]),
        TIMEOUT,
    );
    closing.join().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_says(
        &sentence(&output, FAILED),
        &["too little", &ends[0], &ends[1]],
    );
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "it did not wait for the time"
    );
}

#[test]
fn processes_of_others_are_refused() {
    require!(Root, Unshare);
    // The program is bound to where nobody may read it, whatever folder it was built in.
    let script = "mount -t tmpfs -o mode=755 tmpfs /mnt; touch /mnt/fullpipe; mount --bind \"$1\" /mnt/fullpipe; cd /; \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/fullpipe diagnose --pid 1";
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-ec",
        script,
        "sh",
        env!("CARGO_BIN_EXE_fullpipe"),
    ]);
    assert_says(
        &sentence(&run(&mut command, TIMEOUT), LACKING),
        &["process 1", "another user's", "sudo"],
    );
}

#[test]
fn a_download_without_curl_or_without_a_server_is_reported() {
    let mut without = fullpipe(&["diagnose", "https://127.0.0.1:9/"]);
    let output = run(without.env("PATH", "/nonexistent"), TIMEOUT);
    assert_says(
        &sentence(&output, FAILED),
        &["cannot start `curl`", "install it"],
    );
    require!(Curl);
    let url = format!("http://127.0.0.1:{}/", free_port());
    assert_says(
        &stated(&[&url], FAILED),
        &["cannot diagnose", &url, "curl: (7)"],
    );
}

/// `fullpipe serve`, which does not outlive its test.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        let port = free_port();
        let mut command = fullpipe(&["serve", "-B", "127.0.0.1", "-p", &port.to_string()]);
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_listener(port);
        Self {
            child,
            port: port.to_string(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) const SELF: &str = env!("CARGO_BIN_EXE_fullpipe");

#[test]
fn a_command_is_explained_and_its_output_passes_through() {
    let server = Server::start();
    let command = [
        SELF,
        "measure",
        "127.0.0.1",
        "-p",
        &server.port,
        "-t",
        "1.5",
        "-b",
        "40M",
    ];
    let output = run(
        &mut fullpipe(&[&["diagnose", "--json", "--"], &command[..]].concat()),
        TIMEOUT,
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = document(&output)["diagnosis"].clone();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("limited by"),
        "the command's own words"
    );
    assert_eq!(report["command"]["code"], 0);
    assert_eq!(report["command"]["words"][0], SELF);
    let found = &report["transfers"][0];
    let transfer = &found["transfer"];
    assert_eq!(
        (&transfer["program"], &transfer["direction"]),
        (&"fullpipe".into(), &"upload".into())
    );
    assert_eq!(
        transfer["streams"], 1,
        "the control connection is no stream of it"
    );
    let rate = transfer["rate"].as_f64().unwrap();
    assert!((30e6..50e6).contains(&rate), "{rate}");
    assert_eq!(found["verdict"]["kind"], "sender-application", "{found:#}");
    assert_eq!(found["verdict"]["basis"], "sender");
    assert!(
        found["evidence"]["sender_samples"]
            .as_array()
            .unwrap()
            .len()
            >= 5
    );
}

#[test]
fn a_command_that_does_not_end_is_ended_after_its_time() {
    // `diagnose -t 10 -- COMMAND` took as long as the command.
    let server = Server::start();
    let command = [
        SELF,
        "measure",
        "127.0.0.1",
        "-p",
        &server.port,
        "-t",
        "60",
        "-b",
        "40M",
    ];
    let output = run(
        &mut fullpipe(&[&["diagnose", "--json", "-t", "1", "--"], &command[..]].concat()),
        TIMEOUT,
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("is asked to end"),
        "{output:?}"
    );
    let ran = document(&output)["diagnosis"]["command"]["ran"]
        .as_f64()
        .unwrap();
    assert!((1.0..10.0).contains(&ran), "{ran}");
}

#[test]
fn a_measurement_is_explained_at_length_and_a_remedy_for_people_is_not_tried() {
    let server = Server::start();
    // The goodput is the stated capacity: only a wider pipe would help.
    let load = [
        "127.0.0.1",
        "-p",
        &server.port,
        "-t",
        "1.5",
        "-b",
        "40M",
        "--bandwidth",
        "40M",
    ];
    let output = run(&mut fullpipe(&[&["diagnose"], &load[..]].concat()), TIMEOUT);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert_says(
        &text,
        &[
            "\nLimit\n",
            "Seen from both ends",
            "\nWhat would help\n  Nothing to change on the hosts",
        ],
    );
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.contains("sysctl")),
        "{text}"
    );
    let output = run(
        &mut fullpipe(&[&["diagnose", "--json", "--apply", "1"], &load[..]].concat()),
        TIMEOUT,
    );
    let stated = document(&output);
    assert_eq!(output.status.code(), Some(FAILED));
    assert_says(
        stated["error"]["message"].as_str().unwrap(),
        &["there is nothing to apply", "no setting of the hosts"],
    );
    assert_eq!(
        stated["measurement"]["limit"],
        stated["diagnosis"]["transfers"][0]["verdict"]
    );
    let output = run(
        &mut fullpipe(&[&["diagnose", "--json", "--apply", "nosuch"], &load[..]].concat()),
        TIMEOUT,
    );
    assert_eq!(output.status.code(), Some(USAGE));
    assert_says(
        document(&output)["error"]["message"].as_str().unwrap(),
        &["nosuch", "there are none"],
    );
}

#[test]
fn a_rate_that_the_load_was_asked_for_is_lifted_and_measured_again() {
    let server = Server::start();
    let load = [
        "diagnose",
        "127.0.0.1",
        "-p",
        &server.port,
        "-t",
        "1.5",
        "-b",
        "40M",
        "--apply",
        "1",
    ];
    let report = document(&run(fullpipe(&load).arg("--json"), TIMEOUT));
    let diagnosis = &report["diagnosis"];
    let best = &diagnosis["transfers"][0]["remedies"][0];
    assert_eq!(
        (&best["id"], &best["changes"][0]["setting"]),
        (&"higher-rate".into(), &"rate".into()),
        "{diagnosis:#}"
    );
    let trial = &diagnosis["trial"];
    let mbps = |rate: &Value| rate.as_f64().unwrap() / 1e6;
    assert!((35.0..45.0).contains(&mbps(&trial["before"])), "{trial:#}");
    assert!(mbps(&trial["measured"]) > 100.0, "{trial:#}");
    assert_eq!(
        trial["measurement"]["request"]["rate"],
        Value::Null,
        "{trial:#}"
    );
    assert_eq!(
        trial["predicted"],
        Value::Null,
        "no path bounds what a host sends to itself: {trial:#}"
    );
    let text = String::from_utf8(run(&mut fullpipe(&load), TIMEOUT).stdout).unwrap();
    assert_says(
        &text,
        &[
            "fullpipe measure HOST    (without -b)",
            "With higher-rate",
            "It was undone.",
        ],
    );
}

#[test]
fn an_interrupt_ends_a_command_and_the_watching() {
    let mark = Mark::new();
    let mut command = fullpipe(&["diagnose", "--", "sleep", "60"]);
    let running = Running::start(mark.put_on(&mut command));
    running.interrupt();
    let output = running.finish(Duration::from_secs(20));
    mark.assert_gone(&BTreeSet::new());
    assert_says(
        &sentence(&output, INTERRUPTED),
        &["sleep ended by signal 15"],
    );
}

/// Sends one client as many bytes as it takes, 100 kB every 5 ms, behind the head of an answer in
/// HTTP.
fn web_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let _ = client.read(&mut [0; 4096]);
        let mut alive = client.write_all(b"HTTP/1.0 200 OK\r\n\r\n").is_ok();
        while alive {
            alive = client.write_all(&vec![0; 100_000]).is_ok();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    port
}

#[test]
fn a_download_is_explained_and_bounded_in_time_and_in_bytes() {
    require!(Curl);
    for bound in [["-t", "1.5"], ["-n", "10M"]] {
        let url = format!("http://127.0.0.1:{}/", web_server());
        let began = Instant::now();
        let output = run(fullpipe(&["diagnose", &url, "--json"]).args(bound), TIMEOUT);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{bound:?}: {:?}",
            began.elapsed()
        );
        let transfer = document(&output)["diagnosis"]["transfers"][0]["transfer"].clone();
        assert_eq!(
            (&transfer["program"], &transfer["direction"]),
            (&"curl".into(), &"download".into())
        );
        assert!(transfer["bytes"].as_f64().unwrap() > 1e6, "{transfer}");
    }
}

/// `fullpipe lab up`, which does not outlive its test.
pub(crate) struct Lab {
    program: Child,
    name: String,
}

impl Lab {
    pub(crate) const RECEIVER: &str = "198.18.0.2";

    pub(crate) fn start(mark: &Mark, path: &str, sender: &str) -> Self {
        let name = format!("diagnose-{}", mark.as_str());
        let text = format!(
            "name = \"d\"\ntitle = \"t\"\n[path]\n{path}\n[sender]\n{sender}\n[[step]]\nname = \"none\"\n"
        );
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        let mut command = fullpipe(&["lab", "up", file.to_str().unwrap(), "--name", &name]);
        let program = mark
            .put_on(&mut command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lab = Self { program, name };
        let up = || {
            run(&mut lab.host("receiver", &["true"]), TIMEOUT)
                .status
                .success()
        };
        assert!(
            within(Duration::from_secs(20), up),
            "the lab does not come up"
        );
        lab
    }

    pub(crate) fn host(&self, host: &str, command: &[&str]) -> Command {
        fullpipe(&[&["lab", "exec", "--join", &self.name, host, "--"], command].concat())
    }

    pub(crate) fn sender(&self, command: &[&str]) -> Output {
        run(&mut self.host("sender", command), TIMEOUT)
    }

    pub(crate) fn receiver(&self, command: &[&str]) -> Output {
        run(&mut self.host("receiver", command), TIMEOUT)
    }

    /// A server in the receiving host.
    pub(crate) fn serve(&self, command: &[&str], port: u16) -> Running {
        let server = Running::start(&mut self.host("receiver", command));
        let port = format!(":{port:04X} ");
        let listens = || {
            let output = run(
                &mut self.host("receiver", &["cat", "/proc/net/tcp", "/proc/net/tcp6"]),
                TIMEOUT,
            );
            String::from_utf8_lossy(&output.stdout).contains(&port)
        };
        assert!(
            within(Duration::from_secs(20), listens),
            "nobody listens on{port}"
        );
        server
    }

    fn tcp_wmem(&self) -> String {
        String::from_utf8(self.sender(&["cat", "/proc/sys/net/ipv4/tcp_wmem"]).stdout).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Returns why a result is not valid, as the lab reported it to the program that measured.
fn invalid(report: &Value) -> Vec<String> {
    let trial = &report["diagnosis"]["trial"]["measurement"];
    let all = [&report["measurement"], &report["diagnosis"], trial]
        .map(|of| of["validity"]["broken"].as_array());
    all.into_iter()
        .flatten()
        .flatten()
        .map(Value::to_string)
        .collect()
}

/// Returns the document that a program in the sending host prints, of a run in which the machine
/// itself neither lost nor delayed anything: the path is far from full, so that only the machine
/// can cause retransmissions and delays.
pub(crate) fn undisturbed(lab: &Lab, idle_rtt: f64, command: &[&str]) -> Value {
    valid_within(4, || {
        let output = lab.sender(command);
        let report = document(&output);
        let mut broken = invalid(&report);
        assert_eq!(
            output.status.code(),
            Some(i32::from(!broken.is_empty())),
            "{output:#?}"
        );
        let evidence = &report["diagnosis"]["transfers"][0]["evidence"];
        let seen = [
            &evidence["sender_samples"],
            &evidence["receiver_samples"],
            &report["measurement"]["local"]["samples"],
        ];
        let samples: Vec<&Value> = seen
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .collect();
        let most = |field: &str| {
            samples
                .iter()
                .filter_map(|sample| sample["tcp"][field].as_f64())
                .fold(0.0, f64::max)
        };
        let (again, late) = (most("total_retrans"), most("out_of_order_in"));
        let mut times: Vec<f64> = samples
            .iter()
            .filter_map(|sample| sample["tcp"]["rtt"].as_f64())
            .collect();
        times.sort_by(f64::total_cmp);
        let rtt = times.get(times.len() / 2).copied().unwrap_or(0.0);
        let is_broken = again + late > 0.0 || rtt > 1.15 * idle_rtt;
        broken.extend(
            is_broken.then(|| format!("{again} packets sent again, {late} out of order, {rtt} s")),
        );
        (report, broken)
    })
}

pub(crate) fn verdict(report: &Value) -> (&str, &str) {
    let verdict = &report["diagnosis"]["transfers"][0]["verdict"];
    (
        verdict["kind"].as_str().unwrap(),
        verdict["cause"].as_str().unwrap(),
    )
}

#[test]
fn a_remedy_is_applied_proven_and_undone_and_others_are_watched() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let lab = Lab::start(
        &mark,
        "rate = \"40Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1bdp\"",
        "tcp_wmem = \"64KiB\"",
    );
    let _server = lab.serve(&[SELF, "serve"], 5201);
    let before = lab.tcp_wmem();
    let own = [
        SELF,
        "diagnose",
        Lab::RECEIVER,
        "-t",
        "3",
        "-C",
        "cubic",
        "--bandwidth",
        "40M",
        "--json",
    ];
    let folder = tempfile::tempdir().unwrap();
    let journal = ["--journal", folder.path().to_str().unwrap()];

    let report = undisturbed(
        &lab,
        0.040,
        &[&own[..], &["--apply", "raise-tcp-wmem"], &journal].concat(),
    );
    assert_eq!(
        verdict(&report),
        ("send-buffer", "tcp-wmem-max"),
        "{report:#}"
    );
    let trial = &report["diagnosis"]["trial"];
    let rate = |of: &Value| of.as_f64().unwrap();
    assert!(
        rate(&trial["measured"]) > 2.0 * rate(&trial["before"]),
        "{trial:#}"
    );
    assert!(
        rate(&trial["predicted"]["bits_per_second"]) > 2.0 * rate(&trial["before"]),
        "{trial:#}"
    );
    assert_eq!(
        (&trial["kept"], &trial["not_undone"]),
        (&false.into(), &Value::Null)
    );
    assert_eq!(lab.tcp_wmem(), before, "it was undone");

    // A program that is not ours, from its sending and from its receiving end.
    let foreign = [
        SELF,
        "diagnose",
        "--json",
        "--",
        SELF,
        "measure",
        Lab::RECEIVER,
        "-t",
        "3",
        "-C",
        "cubic",
    ];
    let sending = undisturbed(&lab, 0.040, &foreign);
    assert_eq!(
        verdict(&sending),
        ("send-buffer", "tcp-wmem-max"),
        "{sending:#}"
    );
    let receiving = undisturbed(&lab, 0.040, &[&foreign[..], &["-R", "-w", "50K"]].concat());
    assert_eq!(
        verdict(&receiving),
        ("receive-window", "so-rcvbuf"),
        "{receiving:#}"
    );
    assert_eq!(
        receiving["diagnosis"]["transfers"][0]["verdict"]["basis"],
        "receiver"
    );
    let asked = &receiving["diagnosis"]["transfers"][0]["evidence"]["request"]["buffer"];
    assert_eq!(
        asked["request"],
        50 << 10,
        "asked of the other program's own socket: {asked}"
    );

    let kept = lab.sender(&[&own[..], &["--apply", "1", "--keep"], &journal].concat());
    assert_eq!(document(&kept)["diagnosis"]["trial"]["kept"], true);
    assert_ne!(lab.tcp_wmem(), before, "it was left in place");
    let undone = lab.sender(&[&[SELF, "host", "undo"][..], &journal].concat());
    assert_eq!(
        lab.tcp_wmem(),
        before,
        "what was kept can still be undone: {undone:?}"
    );
}

#[test]
fn a_setting_of_a_trial_that_is_killed_does_not_stay() {
    require!(Lab);
    let _slot = load_slot();
    let (mark, trial_mark) = (Mark::new(), Mark::new());
    let path = "rate = \"40Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1bdp\"";
    let lab = Lab::start(&mark, path, "tcp_wmem = \"64KiB\"");
    let _server = lab.serve(&[SELF, "serve"], 5201);
    let before = lab.tcp_wmem();
    let folder = tempfile::tempdir().unwrap();
    let load = ["-t", "3", "-C", "cubic", "--bandwidth", "40M"];
    let apply = [
        "--apply",
        "raise-tcp-wmem",
        "--journal",
        folder.path().to_str().unwrap(),
    ];
    let command = [&[SELF, "diagnose", Lab::RECEIVER][..], &load, &apply].concat();
    let trial = Running::start(trial_mark.put_on(&mut lab.host("sender", &command)));
    let is_changed = || lab.tcp_wmem() != before;
    assert!(
        within(Duration::from_secs(20), is_changed),
        "nothing is tried"
    );
    let itself = format!("{SELF} diagnose");
    let processes = trial_mark.processes().into_iter();
    let pid = processes
        .filter(|(_, line)| line.starts_with(&itself))
        .find_map(|(pid, _)| Pid::from_raw(pid.cast_signed()));
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    let is_back = || lab.tcp_wmem() == before;
    assert!(within(Duration::from_secs(10), is_back), "it stays");
    let output = trial.finish(Duration::from_secs(10));
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    trial_mark.assert_gone(&BTreeSet::new());
}

/// Returns the settings of the sending host that a remedy may change.
fn queue_and_paces(lab: &Lab) -> String {
    let stated =
        "tc qdisc show dev path0; sysctl net.ipv4.tcp_pacing_ca_ratio net.ipv4.tcp_mtu_probing";
    String::from_utf8(lab.sender(&["sh", "-ec", stated]).stdout).unwrap()
}

/// Returns the report of a trial of remedy `id` on a load with these `flags`. Asserts that every
/// setting is as before then and that no journal is left.
fn tried(lab: &Lab, id: &str, flags: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let before = queue_and_paces(lab);
    let own = [
        SELF,
        "diagnose",
        Lab::RECEIVER,
        "--json",
        "-C",
        "cubic",
        "--bandwidth",
        "20M",
        "--apply",
        id,
    ];
    let journal = ["--journal", folder.path().to_str().unwrap()];
    let report = document(&lab.sender(&[&own[..], &journal, flags].concat()));
    assert_eq!(
        queue_and_paces(lab),
        before,
        "{id} was undone: {:#}",
        report["diagnosis"]["trial"]["not_undone"]
    );
    let left = fs::read_dir(folder.path())
        .unwrap()
        .any(|entry| entry.unwrap().path().extension().is_some());
    assert!(!left, "{id} leaves no journal");
    report
}

/// Limits of 8 Mbit/s or so on a path of 20, which the sender's own host, or the load that it was
/// asked for, sets.
#[test]
fn what_the_sending_host_holds_back_itself_is_lifted_proven_and_put_back() {
    require!(Lab, Tc);
    let _slot = load_slot();
    let mark = Mark::new();
    let lab = Lab::start(
        &mark,
        "rate = \"20Mbit/s\"\nrtt = \"40ms\"\nqueue = \"2bdp\"",
        "tcp_wmem = \"4MiB\"",
    );
    let _server = lab.serve(&[SELF, "serve"], 5201);
    let shaper = "tc qdisc add dev path0 root tbf rate 9mbit burst 64kb limit 64mb";
    for (plant, flag, id, limit) in [
        (
            "true",
            ["-b", "8M"],
            "higher-rate",
            ("sender-application", "rate-limited"),
        ),
        (
            "true",
            ["--fq-rate", "8M"],
            "higher-pace",
            ("pacing", "max-pacing-rate"),
        ),
        (
            shaper,
            ["-P", "1"],
            "default-queueing-discipline",
            ("pacing", "qdisc"),
        ),
        // Without the discipline fq, a socket is paced from the moment it asks for a pace.
        (
            "tc qdisc del dev path0 root; sysctl -w net.ipv4.tcp_pacing_ca_ratio=25",
            ["--fq-rate", "80M"],
            "default-pacing-ratios",
            ("pacing", "congestion-control"),
        ),
    ] {
        assert!(
            lab.sender(&["sh", "-ec", plant]).status.success(),
            "{plant}"
        );
        let report = tried(&lab, id, &[&["-t", "3"], &flag[..]].concat());
        assert_eq!(verdict(&report), limit, "{report:#}");
        let trial = &report["diagnosis"]["trial"];
        let rate = |of: &Value| of.as_f64().unwrap();
        assert!(
            rate(&trial["measured"]) > 1.3 * rate(&trial["before"]),
            "{id}: {trial:#}"
        );
        let of_predicted = rate(&trial["measured"]) / rate(&trial["predicted"]["bits_per_second"]);
        assert!((0.8..1.1).contains(&of_predicted), "{id}: {trial:#}");
        assert_eq!(trial["not_undone"], Value::Null);
    }
}

/// In both directions: the server's reports were longer than a packet that passes, and the end of
/// the test, which is behind them, never came.
#[test]
fn a_black_hole_is_probed_and_the_probing_undone() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let hole = "rate = \"20Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1bdp\"\nnarrow = \"1400 swallowed\"";
    let lab = Lab::start(&mark, hole, "tcp_wmem = \"4MiB\"");
    let _server = lab.serve(&[SELF, "serve"], 5201);
    let report = tried(&lab, "probe-the-mtu", &["-t", "8"]);
    assert_eq!(verdict(&report), ("mtu", "black-hole"), "{report:#}");
    let trial = &report["diagnosis"]["trial"];
    let rate = |of: &Value| of.as_f64().unwrap();
    assert!(
        rate(&trial["before"]) < 1e5 && rate(&trial["measured"]) > 1e6,
        "{trial:#}"
    );
    assert!(
        rate(&trial["measured"]) < rate(&trial["predicted"]["high"]),
        "{trial:#}"
    );
}

#[test]
fn what_the_other_end_must_change_is_refused_with_the_command_for_it() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let lab = Lab::start(
        &mark,
        "rate = \"40Mbit/s\"\nrtt = \"40ms\"\nqueue = \"1bdp\"",
        "tcp_wmem = \"64KiB\"",
    );
    let _server = lab.serve(&[SELF, "serve"], 5201);
    // The receiving host asks, and cannot change the sending one.
    let _far = Running::start(&mut lab.host("sender", &[SELF, "serve", "-p", "5301"]));
    std::thread::sleep(Duration::from_secs(1));
    let download = [
        SELF,
        "diagnose",
        "198.18.0.1:5301",
        "-R",
        "-t",
        "3",
        "-C",
        "cubic",
        "--bandwidth",
        "40M",
        "--apply",
        "1",
    ];
    let output = run(&mut lab.host("receiver", &download), TIMEOUT);
    let said = [
        "raise-tcp-wmem-with-bbr changes the other end, the sender 198.18.0.1, which",
        "` there and diagnose again",
    ];
    assert_says(
        &sentence(&output, LACKING),
        &[&said[..], &["run `sysctl -w net.ipv4.tcp_wmem"]].concat(),
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("\nLimit\n").count(), 1, "{text}");
    assert!(!text.contains("With raise-tcp-wmem"), "{text}");
}

/// Runs a command under `tcpdump` and `fullpipe diagnose --json`: the file of the capture, this
/// program, the command. The capture has begun before it, however long that takes on a busy machine.
const CAPTURED: &str = "file=$1; shift; log=\"$file.log\"; : > \"$log\"; \
                        tcpdump --immediate-mode -i path0 -s 96 -w \"$file\" tcp 2> \"$log\" & dump=$!; \
                        for _ in $(seq 200); do grep -q listening \"$log\" && break; sleep 0.1; done; \
                        \"$0\" diagnose --json -- \"$@\"; code=$?; sleep 0.3; kill $dump; wait $dump; exit $code";

/// Returns the time in seconds for which a capture of the sender's device shows answers on their
/// way to requests: up to `rtt` before each data packet that arrives after one that was sent, and
/// as long as half of that at least.
fn awaited(capture: &str, rtt: f64) -> f64 {
    let fields = ["-e", "frame.time_epoch", "-e", "ip.src", "-e", "tcp.stream"];
    let mut tshark = Command::new("tshark");
    let output = run(
        tshark
            .args(["-r", capture, "-Y", "tcp.len > 0", "-T", "fields"])
            .args(fields),
        TIMEOUT,
    );
    let mut sent: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
    let mut sum = 0.0;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let (at, stream) = (words[0].parse::<f64>().unwrap(), words[2].to_owned());
        if words[1] == "198.18.0.1" {
            sent.insert(stream, at);
        } else if let Some(sent) = sent.remove(&stream).filter(|sent| at - sent > rtt / 2.0) {
            sum += (at - sent).min(rtt);
        }
    }
    sum
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    /// Watches a command in the sending host, over 300 Mbit/s × 80 ms. Asserts that the round trips
    /// of its requests are stated within 15 %, and that no remedy promises to save time in which no
    /// data was under way.
    fn assert_time(lab: &Lab, command: &[&str]) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("sender.pcap").display().to_string();
        let report = valid_within(3, || {
            let output = lab.sender(&[&["sh", "-c", CAPTURED, SELF, &capture], command].concat());
            let report = document(&output);
            assert!(
                report["diagnosis"]["validity"]["lateness_mean"].is_number(),
                "the lab reports it: {report:#}"
            );
            let broken = invalid(&report);
            assert_eq!(
                output.status.code(),
                Some(i32::from(!broken.is_empty())),
                "{report:#}"
            );
            (report, broken)
        });
        let diagnosis = &report["diagnosis"];
        let seconds = |name: &str| diagnosis["time"][name].as_f64().unwrap();
        let (stated, truth) = (seconds("requests"), awaited(&capture, 0.080));
        assert!(
            (stated / truth - 1.0).abs() < 0.15,
            "{stated} s, and not {truth} s: {:#}",
            diagnosis["time"]
        );
        for remedy in diagnosis["transfers"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["remedies"].as_array())
        {
            for one in remedy
                .iter()
                .filter(|remedy| !remedy["predicted"].is_null())
            {
                let predicted = one["command_time"]["predicted"].as_f64().unwrap();
                assert!(
                    predicted >= seconds("whole") - seconds("data") - 1e-6,
                    "{one:#}"
                );
            }
        }
        report
    }

    fn lab_of_300_mbps(mark: &Mark) -> Lab {
        Lab::start(
            mark,
            "rate = \"300Mbit/s\"\nrtt = \"80ms\"\nqueue = \"1bdp\"",
            "tcp_wmem = \"4MiB\"",
        )
    }

    #[test]
    fn the_queries_of_a_dump_are_not_taken_for_its_data() {
        require!(Lab, Root, Postgres, Socat, Tcpdump, Tshark);
        let _path = path();
        let (mark, database) = (Mark::new(), Postgres::start());
        database.database("d");
        for number in 0..20 {
            database.execute("d", &format!("CREATE TABLE t{number} (id int, x text)"));
        }
        database.execute(
            "d",
            "INSERT INTO t0 SELECT i, repeat(md5(i::text), 3) FROM generate_series(1, 200000) i",
        );
        let lab = lab_of_300_mbps(&mark);
        let socket = format!("UNIX-CONNECT:{}", database.socket().display());
        let _server = lab.serve(&["socat", "TCP-LISTEN:5432,fork,reuseaddr", &socket], 5432);
        let dump = [
            "pg_dump",
            "-h",
            Lab::RECEIVER,
            "-U",
            "postgres",
            "-f",
            "/dev/null",
            "d",
        ];
        let report = assert_time(&lab, &dump);
        let time = &report["diagnosis"]["time"];
        assert!(
            time["requests"].as_f64() > time["data"].as_f64(),
            "{time:#}"
        );
        assert!(time["data"].as_f64() > Some(0.5), "20 MB: {time:#}");
        let query = |number: u32| {
            format!(
                "psql -Xqh {} -U postgres -c 'select {number}' d;",
                Lab::RECEIVER
            )
        };
        let queries: String = (0..10).map(query).collect();
        let report = assert_time(&lab, &["sh", "-c", &queries]);
        assert_eq!(
            report["diagnosis"]["transfers"].as_array().unwrap().len(),
            0,
            "it moves next to nothing"
        );
    }

    #[test]
    fn the_handshakes_of_an_rsync_of_small_files_are_named() {
        require!(Lab, Root, Sshd, Rsync, Tcpdump, Tshark);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let [from, to] =
            ["from", "to"].map(|name| folder.path().join(name).display().to_string() + "/");
        fs::create_dir(&from).unwrap();
        (0..300).for_each(|number| fs::write(format!("{from}{number}"), [7; 3000]).unwrap());
        let sshd = SshServer::on(2222);
        let lab = lab_of_300_mbps(&mark);
        let command = sshd.command();
        let _server = lab.serve(
            &command.iter().map(String::as_str).collect::<Vec<_>>(),
            2222,
        );
        let remote = format!("{}:{from}", Lab::RECEIVER);
        assert_time(&lab, &["rsync", "-a", "-e", &sshd.client(), &remote, &to]);
    }

    /// 2 MiB over 250 ms: 67 Mbit/s, on a path of 200 Mbit/s; slow enough for what a busy machine
    /// has left for its ciphers.
    #[test]
    fn the_window_of_a_real_ssh_is_named_from_either_end() {
        require!(Lab, Root, Sshd);
        let _path = path();
        let mark = Mark::new();
        let sshd = SshServer::on(2222);
        let lab = Lab::start(
            &mark,
            "rate = \"200Mbit/s\"\nrtt = \"250ms\"\nqueue = \"1bdp\"",
            "tcp_wmem = \"32MiB\"",
        );
        let command = sshd.command();
        let _server = lab.serve(
            &command.iter().map(String::as_str).collect::<Vec<_>>(),
            2222,
        );
        let ssh = format!("{} {}", sshd.client(), Lab::RECEIVER);
        for script in [
            format!("head -c 20M /dev/zero | {ssh} 'cat > /dev/null'"),
            format!("{ssh} 'head -c 20M /dev/zero' > /dev/null"),
        ] {
            let report = undisturbed(
                &lab,
                0.250,
                &[SELF, "diagnose", "--json", "--", "sh", "-c", &script],
            );
            assert_eq!(
                verdict(&report),
                ("application-window", "ssh-channel"),
                "{script}: {report:#}"
            );
            assert_eq!(
                report["diagnosis"]["transfers"][0]["transfer"]["program"],
                "ssh"
            );
        }
    }
}
