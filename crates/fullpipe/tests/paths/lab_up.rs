//! A lab that stands, and programs that join it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{fullpipe, pseudo_terminal, run};
use fullpipe_testkit::{Mark, Running, document, load_slot, require, sentence, within};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

/// The longest that anything here may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `fullpipe lab up` over 50 Mbit/s and 20 ms, under a name of its own; it does not outlive the
/// test.
pub(crate) struct Up {
    program: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

impl Up {
    fn start(mark: &Mark, flags: &[&str]) -> Self {
        Self::of(&scenario(mark), mark, flags)
    }

    pub(crate) fn of(scenario: &str, mark: &Mark, flags: &[&str]) -> Self {
        let name = format!("up-{}", mark.as_str());
        let mut command = fullpipe(&["lab", "up", scenario, "--name", &name, "--interval", "0.2"]);
        mark.put_on(command.args(flags));
        let mut program = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (said, lines) = mpsc::channel();
        let output = BufReader::new(program.stdout.take().unwrap());
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| said.send(line))
        });
        Self {
            input: program.stdin.take(),
            program,
            lines,
            name,
        }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(TIMEOUT).expect("it says something")
    }

    pub(crate) fn event(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Returns the events up to now, and those of half a second more.
    pub(crate) fn events(&self) -> Vec<Value> {
        let until = Instant::now() + Duration::from_millis(500);
        let next = || {
            self.lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
                .ok()
        };
        std::iter::from_fn(next)
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }

    /// A program in one of its hosts.
    pub(crate) fn join(&self, host: &str, command: &[&str]) -> Command {
        fullpipe(&[&["lab", "exec", "--join", &self.name, host, "--"], command].concat())
    }

    /// Sends a signal to the program, which is also the path.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program), signal).unwrap();
    }

    fn exit_code(&mut self) -> Option<i32> {
        let ended = within(TIMEOUT, || self.program.try_wait().unwrap().is_some());
        assert!(ended, "it does not end");
        self.program.wait().unwrap().code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// A scenario file of the test with that mark.
fn scenario(mark: &Mark) -> String {
    scenario_with(mark, "rtt = \"20ms\"", "")
}

/// The same with these lines of its path, and below its step.
fn scenario_with(mark: &Mark, path: &str, cross_traffic: &str) -> String {
    let text = format!(
        "name = \"stands\"\ntitle = \"A path that stands\"\n[path]\nrate = \"50Mbit/s\"\n{path}\n\
         [[step]]\nname = \"none\"\n{cross_traffic}"
    );
    let file =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("up-{}.toml", mark.as_str()));
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn foreign_namespaces(mark: &Mark) -> BTreeSet<PathBuf> {
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    mark.network_namespaces()
        .into_iter()
        .filter(|namespace| *namespace != ours)
        .collect()
}

/// Returns the measurement, valid or not, once there is one.
fn measured(output: &std::process::Output) -> Option<Value> {
    let measurement = document(output)["measurement"].take();
    measurement.is_object().then(|| {
        let is_valid = measurement["validity"]["broken"]
            .as_array()
            .unwrap()
            .is_empty();
        assert_eq!(
            output.status.code(),
            Some(i32::from(!is_valid)),
            "{measurement:#}"
        );
        measurement
    })
}

/// A program that joined took such a result for valid.
#[test]
fn a_result_over_a_path_that_stood_still_is_invalid_for_a_program_that_joined() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let up = Up::start(&mark, &["--json-lines"]);
    let receiver = up.event()["data"]["receiver"].as_str().unwrap().to_owned();
    let program = env!("CARGO_BIN_EXE_fullpipe");
    let _server = Running::start(&mut up.join("receiver", &[program, "serve"]));
    let listens = "until grep -q :1451 /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done";
    assert!(
        run(&mut up.join("receiver", &["sh", "-c", listens]), 20)
            .status
            .success()
    );
    let measure = [
        program, "measure", &receiver, "-t", "3", "-b", "10M", "--json",
    ];
    let watched = [
        program, "diagnose", "--json", "--", program, "measure", &receiver, "-t", "3", "-b", "10M",
    ];
    for (command, path) in [(&measure[..], "/measurement"), (&watched[..], "/diagnosis")] {
        let running = Running::start(&mut up.join("sender", command));
        thread::sleep(Duration::from_millis(1500));
        up.signal(Signal::STOP);
        thread::sleep(Duration::from_millis(400));
        up.signal(Signal::CONT);
        let output = running.finish(TIMEOUT);
        let report = document(&output);
        let validity = report.pointer(path).map(|one| &one["validity"]).unwrap();
        let broken = validity["broken"].as_array().unwrap();
        assert!(
            broken
                .iter()
                .any(|why| why.as_str().unwrap().contains("late")),
            "{validity:#}"
        );
        assert!(
            validity["longest_gap"].as_f64().unwrap() > 0.3,
            "{validity:#}"
        );
        assert_eq!(output.status.code(), Some(1), "{command:?}");
    }
}

#[test]
fn keys_change_the_path_while_it_stands() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let mut up = Up::start(&mark, &["--json-lines"]);
    let receiver = up.event()["data"]["receiver"].as_str().unwrap().to_owned();
    let program = env!("CARGO_BIN_EXE_fullpipe");
    let server = Running::start(&mut up.join("receiver", &[program, "serve"]));
    let measure = [program, "measure", &receiver, "-n", "1K", "--json"];
    // The shortest round trip is never shorter than the path's.
    let round_trip = |up: &Up| {
        let mut client = up.join("sender", &measure);
        let measurement = (0..20).find_map(|_| {
            thread::sleep(Duration::from_millis(100));
            let output = run(&mut client, 30);
            measured(&output)
        });
        let measured = measurement.expect("a measurement succeeds once the server listens");
        measured["rtt"]["idle"]["min"].as_f64().unwrap()
    };
    assert!((0.020..0.060).contains(&round_trip(&up)));
    // Nine times a quarter more: 149 ms.
    writeln!(up.input.as_mut().unwrap(), "D\nD\nD\nD\nD\nD\nD\nD\nD").unwrap();
    let stated = within(TIMEOUT, || {
        up.lines.try_iter().any(|line| {
            let event: Value = serde_json::from_str(&line).unwrap();
            event["event"] == "changed" && event["data"][0]["delay"].as_f64().unwrap() > 0.07
        })
    });
    assert!(stated, "it says what the path has become");
    assert!(round_trip(&up) > 0.149);
    drop(server);
}

#[test]
fn programs_that_join_meet_over_its_path() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let mut up = Up::start(&mark, &["--json-lines"]);
    let event = up.event();
    assert_eq!(
        (event["event"].as_str(), event["data"]["name"].as_str()),
        (Some("up"), Some(&*up.name)),
        "{event}"
    );
    let receiver = event["data"]["receiver"].as_str().unwrap().to_owned();

    let said = run(
        &mut up.join("receiver", &["sh", "-c", "uname -n; pwd; exit 7"]),
        30,
    );
    let folder = std::env::current_dir().unwrap();
    assert_eq!(said.status.code(), Some(7), "{said:?}");
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        format!("receiver\n{}\n", folder.display())
    );

    let program = env!("CARGO_BIN_EXE_fullpipe");
    let server = Running::start(&mut up.join("receiver", &[program, "serve", "--one-off"]));
    let measure = [program, "measure", &receiver, "-t", "2", "--json"];
    let mut client = up.join("sender", &measure);
    let measurement = (0..20).find_map(|_| {
        thread::sleep(Duration::from_millis(200));
        let output = run(&mut client, 30);
        measured(&output)
    });
    let measured = measurement.expect("a measurement succeeds once the server listens");
    let rate = measured["summary"]["rate"].as_f64().unwrap();
    assert!((20e6..50e6).contains(&rate), "{rate} over 50 Mbit/s");
    assert!(server.finish(TIMEOUT).status.success());

    let busiest = up
        .lines
        .try_iter()
        .filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let (busiest, queue) = busiest.fold((0.0_f64, 0.0_f64), |(rate, queue), event| {
        assert_eq!(event["event"], "path");
        let number = |key: &str| event["data"]["forward"][key].as_f64().unwrap();
        (rate.max(number("rate")), queue.max(number("queue")))
    });
    assert!(
        (25e6..75e6).contains(&busiest) && queue > 0.0,
        "the live line said {busiest} bit/s and {queue} B"
    );

    let namespaces = foreign_namespaces(&mark);
    up.input.as_mut().unwrap().write_all(b"q\n").unwrap();
    assert_eq!(up.exit_code(), Some(0));
    mark.assert_gone(&namespaces);
}

/// 20 Mbit/s of payload without end: 21 with what the path's framing counts.
const DATAGRAMS: &str = "[[step.cross_traffic]]\ntransport = \"udp\"\nrate = \"20Mbit/s\"\n";

/// Returns the state of the path once it carries the load of [`DATAGRAMS`].
fn with_datagrams(up: &Up) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "the path never carries the load");
        let event = up.event();
        if (20e6..22e6).contains(&event["data"]["forward"]["rate"].as_f64().unwrap_or(0.0)) {
            return event["data"]["forward"].clone();
        }
    }
}

#[test]
fn loads_with_a_step_compete_for_a_path_that_stands() {
    require!(Lab);
    let _slot = load_slot();
    for ends_by_key in [true, false] {
        let mark = Mark::new();
        let mut up = Up::of(
            &scenario_with(&mark, "rtt = \"20ms\"", DATAGRAMS),
            &mark,
            &["--json-lines"],
        );
        let introduced = up.event();
        assert_eq!(
            introduced["data"]["cross_traffic"][0]["request"]["transport"], "udp",
            "{introduced}"
        );
        with_datagrams(&up);
        let namespaces = foreign_namespaces(&mark);
        assert!(!namespaces.is_empty(), "the lab has networks of its own");
        if ends_by_key {
            up.input.as_mut().unwrap().write_all(b"q\n").unwrap();
        } else {
            let pid = Pid::from_raw(up.program.id().cast_signed()).unwrap();
            kill_process(pid, Signal::INT).unwrap();
        }
        assert_eq!(up.exit_code(), Some(if ends_by_key { 0 } else { 130 }));
        mark.assert_gone(&namespaces);
    }
}

#[test]
fn loads_with_are_left_out_and_end_with_a_lab_that_is_killed() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let alone = Up::of(
        &scenario_with(&mark, "rtt = \"20ms\"", DATAGRAMS),
        &mark,
        &["--json-lines", "--no-cross-traffic"],
    );
    assert_eq!(
        alone.event()["data"]["cross_traffic"],
        serde_json::json!([])
    );
    for _ in 0..5 {
        assert_eq!(alone.event()["data"]["forward"]["rate"], 0);
    }
    drop(alone);
    let mut up = Up::of(
        &scenario_with(&mark, "rtt = \"20ms\"", DATAGRAMS),
        &mark,
        &["--json-lines"],
    );
    with_datagrams(&up);
    let namespaces = foreign_namespaces(&mark);
    up.program.kill().unwrap();
    up.program.wait().unwrap();
    mark.assert_gone(&namespaces);
}

#[test]
fn the_kernels_own_path_stands_too() {
    require!(Lab, Tc);
    let _slot = load_slot();
    let mark = Mark::new();
    let file = scenario_with(&mark, "rtt = \"0ms\"\nqueue = \"100packets\"", DATAGRAMS);
    let mut up = Up::of(&file, &mark, &["--json-lines", "--backend", "kernel"]);
    assert_eq!(up.event()["event"], "up");
    let forward = with_datagrams(&up);
    assert!(
        forward["lateness_p99"].is_null() && forward["injected_losses"] == 0,
        "{forward}"
    );
    let namespaces = foreign_namespaces(&mark);
    writeln!(up.input.as_mut().unwrap(), "R\nq").unwrap();
    assert_eq!(up.exit_code(), Some(0));
    let changed = up.lines.try_iter().any(|line| line.contains("changed"));
    assert!(!changed, "it says that the path has changed");
    mark.assert_gone(&namespaces);
}

#[test]
fn a_program_in_a_lab_ends_with_the_command_that_joined() {
    // Ended by SIGTERM, the command left its program running until the lab ended.
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let up = Up::start(&mark, &[]);
    assert!(up.line().starts_with(&up.name));
    let joined = Running::start(&mut up.join("sender", &["sleep", mark.as_str()]));
    let sleeps = || {
        mark.processes()
            .iter()
            .any(|(_, command)| *command == format!("sleep {}", mark.as_str()))
    };
    assert!(within(TIMEOUT, sleeps), "{:?}", mark.processes());
    let pid = rustix::process::Pid::from_raw(joined.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(joined.finish(TIMEOUT).status.code(), Some(128 + 15));
    assert!(!sleeps(), "{:?}", mark.processes());
}

#[test]
fn what_joined_a_lab_that_was_killed_ends_with_it() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let mut up = Up::start(&mark, &[]);
    assert!(up.line().starts_with(&up.name));
    let joined = Running::start(&mut up.join("sender", &["sleep", mark.as_str()]));
    let sleeps = || {
        mark.processes()
            .iter()
            .any(|(_, command)| *command == format!("sleep {}", mark.as_str()))
    };
    assert!(within(TIMEOUT, sleeps), "{:?}", mark.processes());
    let namespaces = foreign_namespaces(&mark);
    assert!(!namespaces.is_empty(), "the lab has networks of its own");
    up.program.kill().unwrap();
    assert_eq!(joined.finish(TIMEOUT).status.code(), Some(137));
    drop(up);
    mark.assert_gone(&namespaces);
}

#[test]
fn a_name_is_given_once_and_forgotten_with_its_lab() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let absent = run(
        &mut fullpipe(&["lab", "exec", "--join", "nobodys", "sender", "--", "true"]),
        30,
    );
    assert!(sentence(&absent, 1).contains("no lab of that name"));
    for _ in 0..2 {
        let mut up = Up::start(&mark, &[]);
        assert!(up.line().starts_with(&up.name));
        let second = run(
            &mut fullpipe(&["lab", "up", &scenario(&mark), "--name", &up.name]),
            30,
        );
        assert!(sentence(&second, 1).contains("choose another with --name"));
        up.program.kill().unwrap();
    }
}

#[test]
fn labs_that_are_up_are_listed_with_their_paths_and_ended_by_name() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let name = format!("path-{}", mark.as_str());
    let flags = [
        "lab",
        "up",
        "--path",
        "rate=30M,rtt=40ms",
        "--sender",
        "tcp_wmem=1MiB",
        "--name",
        &name,
    ];
    let up = Running::start(mark.put_on(&mut fullpipe(&flags)));
    let listed = || String::from_utf8(run(&mut fullpipe(&["lab", "ls"]), 30).stdout).unwrap();
    assert!(
        within(TIMEOUT, || listed().contains(&name)),
        "it is not listed"
    );
    let line = listed()
        .lines()
        .find(|line| line.starts_with(&name))
        .map(str::to_owned)
        .unwrap();
    assert!(
        line.contains("30 Mbit/s, RTT 40 ms, loss 0 %, since 2"),
        "{line}"
    );
    let wmem = [
        "lab",
        "exec",
        "--join",
        &name,
        "sender",
        "--",
        "cat",
        "/proc/sys/net/ipv4/tcp_wmem",
    ];
    let wmem = String::from_utf8(run(&mut fullpipe(&wmem), 30).stdout).unwrap();
    assert_eq!(wmem.split_whitespace().last(), Some("1048576"), "{wmem}");
    assert!(
        run(&mut fullpipe(&["lab", "down", &name]), 30)
            .status
            .success()
    );
    up.finish(TIMEOUT);
    assert!(!listed().contains(&name));
    assert!(
        sentence(&run(&mut fullpipe(&["lab", "down", &name]), 30), 1)
            .contains("no lab of that name")
    );
}

#[test]
fn a_lab_that_is_stopped_lets_nobody_wait_for_long() {
    require!(Lab);
    let _slot = load_slot();
    let mark = Mark::new();
    let up = Up::start(&mark, &[]);
    assert!(up.line().starts_with(&up.name));
    up.signal(Signal::STOP);
    // More than its queue takes.
    let joining: Vec<Running> = (0..12)
        .map(|_| Running::start(&mut up.join("sender", &["true"])))
        .collect();
    for program in joining {
        assert!(sentence(&program.finish(TIMEOUT), 1).contains("does not answer; is it stopped?"));
    }
}

#[test]
fn nobody_else_may_enter() {
    require!(Lab, Root, Unshare);
    let _slot = load_slot();
    let mark = Mark::new();
    let up = Up::start(&mark, &[]);
    assert!(up.line().starts_with(&up.name));
    // Another user who connects to the socket of the lab receives no descriptor and no text.
    let address = format!("fullpipe-lab/0/{}", up.name);
    let listener = rustix::net::SocketAddrUnix::new_abstract_name(address.as_bytes()).unwrap();
    let other_user = thread::spawn(move || {
        use rustix::net::{AddressFamily, RecvFlags, SocketType, connect, recv, socket};
        // The call changes the user of this thread alone, where libc would change all.
        rustix::thread::set_thread_res_uid(
            rustix::process::Uid::from_raw(65534),
            rustix::process::Uid::from_raw(65534),
            rustix::process::Uid::from_raw(65534),
        )
        .unwrap();
        let connection = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&connection, &listener).unwrap();
        let mut words = [0; 64];
        recv(&connection, &mut words, RecvFlags::empty()).map(|(length, _)| length)
    });
    let begun = Instant::now();
    assert!(matches!(
        other_user.join().unwrap(),
        Ok(0) | Err(rustix::io::Errno::CONNRESET)
    ));
    assert!(begun.elapsed() < TIMEOUT);
}

#[test]
fn a_terminal_shows_one_line_and_takes_keys() {
    // Unshare comes from util-linux, as setsid does.
    require!(Lab, Unshare);
    let _slot = load_slot();
    let mark = Mark::new();
    let (mut terminal, held) = pseudo_terminal();
    tcsetwinsize(
        &terminal,
        Winsize {
            ws_row: 24,
            ws_col: 30,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )
    .unwrap();
    let theirs = || held.try_clone().unwrap();
    let modes = tcgetattr(&held).unwrap().local_modes;
    let mut command = Command::new("setsid");
    let arguments = [
        "--ctty",
        "--wait",
        env!("CARGO_BIN_EXE_fullpipe"),
        "lab",
        "up",
        "--interval",
        "0.2",
        "--name",
    ];
    mark.put_on(command.args(arguments).arg(mark.as_str()));
    let mut up = command.stdin(theirs()).stdout(theirs()).spawn().unwrap();
    let mut shown = String::new();
    let deadline = Instant::now() + TIMEOUT;
    while shown.matches("\u{1b}[K").count() < 3 {
        assert!(Instant::now() < deadline, "{shown:?}");
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&second)).unwrap() == 0 {
            continue;
        }
        let mut bytes = [0; 1024];
        let length = terminal.read(&mut bytes).unwrap();
        shown += &String::from_utf8_lossy(&bytes[..length]);
    }
    let live: Vec<&str> = shown
        .split('\r')
        .filter_map(|part| part.strip_suffix("\u{1b}[K"))
        .collect();
    assert!(
        live.iter()
            .all(|line| line.starts_with("→ 0 bit/s") && line.chars().count() == 29),
        "{live:?}"
    );
    terminal.write_all(b"q").unwrap();
    assert!(up.wait().unwrap().success());
    assert_eq!(
        tcgetattr(&held).unwrap().local_modes,
        modes,
        "the terminal is as it was"
    );
}
