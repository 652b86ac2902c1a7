//! `--live` at a real pseudo-terminal: the picture is there, the result on standard output.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{Running, document, free_port, require, sentence, wait_for_listener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::common::{fullpipe, pseudo_terminal, run};

/// Longest time for one step of a test, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The begin of the alternate screen.
const ENTER: &str = "\x1b[?1049h";

/// The end of the alternate screen, and the cursor again.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal whose other end we hold.
struct Desk {
    ours: File,
    theirs: File,
    /// Settings before a program used it.
    before: Termios,
    written: Vec<u8>,
}

impl Desk {
    fn new(columns: u16, rows: u16) -> Self {
        let (ours, theirs) = pseudo_terminal();
        let before = tcgetattr(&theirs).unwrap();
        let desk = Self {
            ours,
            theirs,
            before,
            written: Vec::new(),
        };
        desk.resize(columns, rows);
        desk
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.ours, size).unwrap();
    }

    /// Starts the program with this terminal, and with pipes for its output.
    fn start(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
        let program = fullpipe(arguments);
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(program.get_program())
            .args(program.get_args());
        command
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env("XDG_DATA_HOME", "/dev/null/none");
        command
            .env_remove("FULLPIPE_STORE")
            .envs(variables.iter().copied());
        let end = self.theirs.try_clone().unwrap();
        command
            .stdin(end)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Reads what was written to the terminal, for a tenth of a second at most.
    fn read(&mut self) {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        if poll(
            &mut [PollFd::new(&self.ours, PollFlags::IN)],
            Some(&timeout),
        )
        .unwrap()
            == 1
        {
            let mut bytes = [0; 8_192];
            let length = self.ours.read(&mut bytes).unwrap();
            self.written.extend(&bytes[..length]);
        }
    }

    /// Waits until so many pictures have begun, one after another.
    fn wait_for_pictures(&mut self, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        while String::from_utf8_lossy(&self.written)
            .matches(ENTER)
            .count()
            < count
        {
            assert!(Instant::now() < deadline, "{}", self.shown());
            self.read();
        }
    }

    /// Waits until the terminal shows `text`.
    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.shown().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text} is not shown:\n{}",
                self.shown()
            );
            self.read();
        }
    }

    /// Returns the lines that the terminal shows.
    fn shown(&self) -> String {
        let mut lines = vec![vec![' '; 200]; 60];
        let (mut row, mut column) = (0, 0);
        let written = String::from_utf8_lossy(&self.written);
        let mut rest = written.chars();
        while let Some(next) = rest.next() {
            if next != '\x1b' {
                if let Some(place) = lines
                    .get_mut(row)
                    .and_then(|line: &mut Vec<char>| line.get_mut(column))
                {
                    *place = next;
                }
                column += 1;
                continue;
            }
            let sequence: String = rest
                .by_ref()
                .skip(1)
                .take_while(|c| !"HJhlm".contains(*c))
                .collect();
            let last = written[..written.len() - rest.as_str().len()]
                .chars()
                .last();
            match last {
                Some('H') => {
                    let mut place = sequence
                        .split(';')
                        .map(|number| number.parse::<usize>().unwrap() - 1);
                    (row, column) = (place.next().unwrap(), place.next().unwrap());
                }
                Some('J') => lines.iter_mut().for_each(|line| line.fill(' ')),
                _ => {}
            }
        }
        lines
            .iter()
            .map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n")
            .collect()
    }

    /// Waits for the end of the program, and asserts that the terminal is as it was.
    fn finish(mut self, mut child: Child) -> Output {
        let mut pipe = child.stdout.take().unwrap();
        let printed = thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let deadline = Instant::now() + TIMEOUT;
        while child.try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < deadline,
                "it does not end:\n{}",
                self.shown()
            );
            self.read();
        }
        self.read();
        assert!(
            String::from_utf8_lossy(&self.written).ends_with(LEAVE),
            "the alternate screen is left"
        );
        let after = tcgetattr(&self.theirs).unwrap();
        assert_eq!(
            after.local_modes, self.before.local_modes,
            "the terminal is as it was"
        );
        assert_eq!(
            after.input_modes, self.before.input_modes,
            "the terminal is as it was"
        );
        let output = child.wait_with_output().unwrap();
        Output {
            stdout: printed.join().unwrap(),
            ..output
        }
    }
}

fn serving() -> (Running, String) {
    let port = free_port().to_string();
    let server = Running::start(&mut fullpipe(&["serve", "-p", &port]));
    wait_for_listener(port.parse().unwrap());
    (server, port)
}

/// Returns the text of standard output, on which there is no picture.
fn result(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        !text.contains("\x1b[?1049h") && !text.contains("q ends it"),
        "{text}"
    );
    text
}

/// A measurement of a minute, at a rate that disturbs nobody.
const LONG: [&str; 6] = ["measure", "127.0.0.1", "--live", "-t60", "-b20M", "-p"];

#[test]
fn a_measurement_is_drawn_and_q_ends_it_with_the_result() {
    require!(Unshare);
    let (_server, port) = serving();
    let mut desk = Desk::new(80, 24);
    let child = desk.start(&[&LONG[..], &[&port]].concat(), &[]);
    desk.wait_for("rate, Mbit/s");
    desk.wait_for(" % of the judged time");
    desk.ours.write_all(b"x\x1b[Aq").unwrap();
    let output = desk.finish(child);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let result = result(&output);
    // An end soon after the first second belongs to its interval.
    assert!(
        result.contains("0.0–1.") && result.contains("limited by"),
        "{result}"
    );
}

#[test]
fn a_terminal_of_another_size_has_another_picture_and_a_closed_one_ends_with_the_result() {
    require!(Unshare);
    let (_server, port) = serving();
    let mut desk = Desk::new(80, 24);
    let child = desk.start(&[&LONG[..], &[&port]].concat(), &[]);
    desk.wait_for("of 60 s");
    desk.resize(30, 5);
    desk.wait_for("30 × 5 characters are too few");
    desk.resize(120, 40);
    let deadline = Instant::now() + TIMEOUT;
    while desk.shown().lines().position(|line| line == "q ends it") != Some(39) {
        assert!(
            Instant::now() < deadline,
            "it is not drawn anew:\n{}",
            desk.shown()
        );
        desk.read();
    }
    drop(desk);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(result(&output).contains("limited by"), "{output:?}");
}

#[test]
fn a_picture_without_colour_precedes_a_document() {
    require!(Unshare);
    let (_server, port) = serving();
    for (variables, has_colour) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut desk = Desk::new(80, 24);
        let arguments = [
            "measure",
            "127.0.0.1",
            "--live",
            "--json",
            "-t2",
            "-b20M",
            "-p",
            &port,
        ];
        let child = desk.start(&arguments, variables);
        desk.wait_for("rate, Mbit/s");
        assert_eq!(
            String::from_utf8_lossy(&desk.written).contains("38;5;"),
            has_colour
        );
        let output = desk.finish(child);
        assert_eq!(document(&output)["kind"], "measurement");
    }
}

#[test]
fn two_requests_to_end_give_the_terminal_back_at_once() {
    require!(Unshare);
    let (_server, port) = serving();
    let mut desk = Desk::new(80, 24);
    let child = desk.start(&[&LONG[..], &[&port]].concat(), &[]);
    desk.wait_for("of 60 s");
    // A second request while the first is carried out.
    desk.ours.write_all(b"\x03").unwrap();
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    assert_eq!(desk.finish(child).status.code(), Some(130));
}

#[test]
fn without_a_terminal_that_can_draw_there_is_a_sentence_and_no_picture() {
    require!(Unshare);
    let desk = Desk::new(80, 24);
    for command in ["measure", "sweep"] {
        let arguments = [command, "127.0.0.1", "--live", "-p", "9"];
        let mut detached = Command::new("setsid");
        detached
            .arg("--wait")
            .arg(fullpipe(&[]).get_program())
            .args(arguments);
        assert!(sentence(&run(&mut detached, 20), 2).contains("--live needs a terminal"));
        let output = desk
            .start(&arguments, &[("TERM", "dumb")])
            .wait_with_output()
            .unwrap();
        assert!(
            sentence(&output, 2).contains("terminal of type \"dumb\""),
            "{output:?}"
        );
    }
    assert_eq!(
        tcgetattr(&desk.theirs).unwrap().local_modes,
        desk.before.local_modes
    );
    let iperf2 = run(
        &mut fullpipe(&["measure", "127.0.0.1", "--live", "--iperf2"]),
        20,
    );
    assert_eq!(iperf2.status.code(), Some(2), "{iperf2:?}");
}

#[test]
fn a_ramp_shows_the_steps_that_have_ended() {
    require!(Unshare);
    let (_server, port) = serving();
    let mut desk = Desk::new(80, 24);
    let child = desk.start(
        &[
            "measure",
            "127.0.0.1",
            "--live",
            "--ramp",
            "5M..9M/2",
            "-t1",
            "-p",
            &port,
        ],
        &[],
    );
    desk.wait_for("of 1 s");
    desk.wait_for("5 Mbit/s");
    let output = desk.finish(child);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(result(&output).contains("9 Mbit/s"), "{output:?}");
}

#[test]
fn a_repeated_measurement_has_a_picture_each_time_and_its_result_between() {
    require!(Unshare);
    let (_server, port) = serving();
    let data = tempfile::tempdir().unwrap();
    let mut desk = Desk::new(80, 24);
    let arguments = [
        "measure",
        "127.0.0.1",
        "--live",
        "--every",
        "3s",
        "-t1",
        "-b20M",
        "-p",
        &port,
    ];
    let child = desk.start(
        &arguments,
        &[("XDG_DATA_HOME", data.path().to_str().unwrap())],
    );
    desk.wait_for_pictures(3);
    desk.wait_for("of 1 s");
    desk.ours.write_all(b"q").unwrap();
    let output = desk.finish(child);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(
        result(&output).matches("limited by").count() >= 2,
        "{output:?}"
    );
}

#[test]
fn a_server_shows_its_tests() {
    require!(Unshare);
    let port = free_port();
    let mut desk = Desk::new(100, 24);
    let server = desk.start(&["serve", "--live", "-p", &port.to_string()], &[]);
    wait_for_listener(port);
    desk.wait_for("no test at the moment");
    let client = fullpipe(&[
        "measure",
        "127.0.0.1",
        "-t60",
        "-b20M",
        "-p",
        &port.to_string(),
    ]);
    let client = Running::start(&mut { client });
    desk.wait_for("1 under way");
    desk.wait_for("TCP, upload, 1 stream");
    desk.wait_for(" MiB");
    client.interrupt();
    client.finish(TIMEOUT);
    desk.wait_for("0 under way, 1 ended");
    desk.ours.write_all(b"q").unwrap();
    let output = desk.finish(server);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(result(&output).contains("listening on"), "{output:?}");
}

#[test]
fn a_sweep_shows_its_map() {
    require!(Unshare);
    let state = tempfile::tempdir().unwrap();
    let folder: &Path = state.path();
    let mut desk = Desk::new(80, 24);
    // A sweep of a few runs in virtual time may be over before its second picture.
    let grid = ["--full", "--windows", "16KiB..4MiB", "--streams", "1..16"];
    let arguments = [
        &[
            "lab",
            "sweep",
            "slac-sweep",
            "--virtual",
            "--live",
            "--json",
        ][..],
        &grid,
    ]
    .concat();
    let child = desk.start(&arguments, &[("XDG_STATE_HOME", folder.to_str().unwrap())]);
    desk.wait_for("Knee so far:");
    desk.wait_for("Now: ");
    let output = desk.finish(child);
    assert_eq!(document(&output)["kind"], "sweep");
}

#[test]
fn a_stopped_terminal_holds_nobody_up() {
    require!(Unshare);
    let (_server, port) = serving();
    let desk = Desk::new(200, 60);
    let arguments = [
        "measure",
        "127.0.0.1",
        "--live",
        "--json",
        "-t3",
        "-b20M",
        "-p",
        &port,
    ];
    // Nobody reads what is drawn: the terminal's buffer is soon full.
    let output = desk.start(&arguments, &[]).wait_with_output().unwrap();
    assert_eq!(document(&output)["kind"], "measurement");
}
