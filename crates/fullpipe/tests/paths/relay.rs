//! A pair of relays with compression over an emulated long stretch.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::common::run;
use crate::lab_up::Up;
use fullpipe_testkit::{
    Mark, Running, load_slot, path, require, valid_within, within, write_secret,
};
use rustix::process::Signal;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");

/// Rate of the long stretch.
const RATE: f64 = 20e6;

/// Part of it that payload has in segments of 1448 bytes, with their headers.
const PAYLOAD: f64 = 1448.0 / 1514.0;

/// Lateness that one packet in a hundred of the path may exceed in a run that is judged: an eighth
/// of a round trip of 40 ms, and of one of 98 ms (`MAX_RARE_LATENESS` of the lab).
const MAX_LATENESS: f64 = 5e-3;
const LONG_LATENESS: f64 = 12e-3;

/// A pair between hosts of a lab that stands.
struct Pair {
    up: Up,
    folder: tempfile::TempDir,
    _programs: [Running; 2],
}

impl Pair {
    fn start(mark: &Mark, near_flags: &[&str]) -> Self {
        Self::over("rate = \"20Mbit/s\"\nrtt = \"40ms\"", mark, near_flags)
    }

    /// A pair with this long stretch between them.
    fn over(path: &str, mark: &Mark, near_flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let text = format!(
            "name = \"pair\"\ntitle = \"A pair\"\n[path]\n{path}\n[near]\nrtt = \"1ms\"\n[far]\nrtt = \"1ms\"\n\
             [[step]]\nname = \"none\"\n"
        );
        fs::write(at("pair.toml"), text).unwrap();
        write_secret(at("key"), "correct horse battery");
        let up = Up::of(&at("pair.toml"), mark, &["--json-lines"]);
        up.event();
        let log = |name: &str| at(&format!("{name}.log"));
        let start = |host: &str, arguments: &str| {
            let command = format!(
                "exec {PROGRAM} relay --json-lines --key-file {} {arguments} > {}",
                at("key"),
                log(host)
            );
            let running = Running::start(&mut up.join(host, &["bash", "-c", &command]));
            let listens =
                || fs::read_to_string(log(host)).is_ok_and(|text| text.contains("\"listening\""));
            assert!(within(TIMEOUT, listens), "{host} does not listen");
            running
        };
        let far = start("far-relay", "--listen :8443 --allow-to 198.18.0.2/32:9001");
        let near = "--listen :9000 --to 198.18.0.2:9001 --via 198.18.0.22:8443";
        let near = start("near-relay", &format!("{near} {}", near_flags.join(" ")));
        Self {
            _programs: [far, near],
            up,
            folder,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends `bytes` from sender to receiver. Returns what the near relay reports of the
    /// connection.
    fn carry(&self, bytes: &[u8]) -> Value {
        let (sent, received) = (self.at("sent"), self.at("received"));
        fs::write(&sent, bytes).unwrap();
        let receive = format!(
            "exec socat -u TCP-LISTEN:9001,reuseaddr OPEN:{},creat,trunc",
            received.display()
        );
        let receiver = Running::start(&mut self.up.join("receiver", &["bash", "-c", &receive]));
        let send = format!("exec cat {} > /dev/tcp/198.18.0.21/9000", sent.display());
        let listens = "until ss -ltnH 'sport = :9001' | grep -q .; do sleep 0.05; done";
        assert!(
            run(&mut self.up.join("receiver", &["bash", "-c", listens]), 20)
                .status
                .success()
        );
        let output = run(&mut self.up.join("sender", &["bash", "-c", &send]), 30);
        assert!(output.status.success(), "{output:?}");
        assert!(receiver.finish(TIMEOUT).status.success());
        assert!(fs::read(&received).unwrap() == bytes);
        self.reported("near-relay", TIMEOUT)
    }

    /// Returns the seconds from the call of a server at this address until its answer of 100 KiB is
    /// there.
    fn first_answer(&self, server: &str) -> f64 {
        let request = format!(
            "began=${{EPOCHREALTIME/./}}; exec 3<>/dev/tcp/{server}; echo request >&3; \
             [ $(head -c 102400 <&3 | wc -c) = 102400 ] && echo $((${{EPOCHREALTIME/./}} - began))"
        );
        let output = run(&mut self.up.join("sender", &["bash", "-c", &request]), 20);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse::<f64>()
            .unwrap()
            / 1e6
    }

    /// Does `work`, and returns its result with the reason for which it is not to be judged: it is
    /// not right, and the path was late meanwhile.
    fn on_time<T>(
        &self,
        allowed: f64,
        work: impl FnOnce() -> T,
        is_right: impl FnOnce(&T) -> bool,
    ) -> (T, Vec<String>) {
        self.up.events();
        let result = work();
        let late = |event: &Value| event["data"]["forward"]["lateness_p99"].as_f64();
        let late = self.up.events().iter().filter_map(late).fold(0.0, f64::max);
        let is_late = late > allowed && !is_right(&result);
        (
            result,
            is_late
                .then(|| format!("the path was {late} s late"))
                .into_iter()
                .collect(),
        )
    }

    /// Waits for the report of a relay about the last connection.
    fn reported(&self, relay: &str, timeout: Duration) -> Value {
        let mut done = None;
        let reported = within(timeout, || {
            let log = fs::read_to_string(self.at(&format!("{relay}.log"))).unwrap();
            let line = log
                .lines()
                .rfind(|line| line.contains("\"relayed\""))
                .map(str::to_owned);
            done = line.map(|line| serde_json::from_str::<Value>(&line).unwrap()["data"].clone());
            done.is_some()
        });
        assert!(reported, "{relay} reports no connection");
        done.unwrap()
    }
}

/// Text of random words of a small vocabulary, of which zstd leaves about a third.
fn text(length: usize) -> Vec<u8> {
    let mut random = random_numbers(3);
    let words: Vec<Vec<u8>> = (0..2000)
        .map(|_| {
            (0..5 + random() % 6)
                .map(|_| b'a' + (random() % 26) as u8)
                .chain([b' '])
                .collect()
        })
        .collect();
    let mut text: Vec<u8> = Vec::new();
    while text.len() < length {
        text.extend(&words[random() as usize % words.len()]);
    }
    text
}

fn random_numbers(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

#[test]
fn random_bytes_cost_little_with_compression_which_turns_itself_off() {
    require!(Lab, Socat, Tc);
    let _slot = load_slot();
    let mut random = random_numbers(4);
    let sent: Vec<u8> = (0..6_000_000).map(|_| (random() >> 8) as u8).collect();
    let done = Pair::start(&Mark::new(), &["--compress"]).carry(&sent);
    let on_the_wire = done["compression"]["from_client"].as_f64().unwrap();
    assert!(on_the_wire < 1.001 * sent.len() as f64, "{done}");
    let at_best = sent.len() as f64 * 8.0 / (RATE * PAYLOAD);
    assert!(done["duration"].as_f64().unwrap() > at_best, "{done}");
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn text_crosses_a_pair_that_compresses_at_twice_the_rate_of_the_path() {
        require!(Lab, Socat, Tc);
        let _path = path();
        let done = valid_within(3, || {
            let pair = Pair::start(&Mark::new(), &["--compress"]);
            let is_right =
                |done: &Value| done["compression"]["effective_rate"].as_f64() >= Some(2.0 * RATE);
            pair.on_time(MAX_LATENESS, || pair.carry(&text(15_000_000)), is_right)
        });
        let blocks = &done["compression"];
        let number = |value: &Value| value.as_f64().unwrap();
        let ratio = number(&done["from_client"]) / number(&blocks["from_client"]);
        let (effective, wire) = (
            number(&blocks["effective_rate"]),
            number(&blocks["wire_rate"]),
        );
        assert!((2.3..4.0).contains(&ratio), "{done}");
        assert!(effective >= 2.0 * RATE && wire <= RATE, "{done}");
    }

    #[test]
    fn a_connection_that_waited_answers_a_first_request_in_little_more_than_two_round_trips() {
        require!(Lab, Socat, Tc);
        let _path = path();
        let pair = Pair::over("rate = \"100Mbit/s\"\nrtt = \"98ms\"", &Mark::new(), &[]);
        let serve = "exec socat TCP-LISTEN:9001,fork,reuseaddr SYSTEM:'read request; head -c 102400 /dev/zero'";
        let _server = Running::start(&mut pair.up.join("receiver", &["bash", "-c", serve]));
        let has_grown = "until ss -tinH 'sport = :8443' | grep -qE 'cwnd:(2[4-9]|[3-9][0-9])'; do sleep 0.05; done; \
                         sleep 1";
        assert!(
            run(
                &mut pair.up.join("far-relay", &["bash", "-c", has_grown]),
                20
            )
            .status
            .success()
        );
        let servers = ["198.18.0.2/9001", "198.18.0.21/9000"];
        let answers = || servers.map(|server| pair.first_answer(server));
        let [direct, through] = valid_within(3, || {
            pair.on_time(LONG_LATENESS, answers, |[direct, through]| {
                *through <= 0.6 * direct
            })
        });
        assert!(
            through <= 0.6 * direct,
            "{through} s through the pair, {direct} s direct"
        );
    }

    #[test]
    #[ignore = "takes more than two minutes"]
    fn a_path_that_is_dead_ends_connections_at_both_relays_and_carries_new_ones_later() {
        require!(Lab, Socat, Tc);
        let _path = path();
        let pair = Pair::start(&Mark::new(), &[]);
        let receive = "exec socat -u TCP-LISTEN:9001,reuseaddr OPEN:/dev/null";
        let receiver = Running::start(&mut pair.up.join("receiver", &["bash", "-c", receive]));
        let endless = "sleep 1; exec cat /dev/zero > /dev/tcp/198.18.0.21/9000";
        let sender = Running::start(&mut pair.up.join("sender", &["bash", "-c", endless]));
        thread::sleep(Duration::from_secs(3));
        pair.up.signal(Signal::STOP);
        // Two minutes of silence, and ten seconds between two checks. All stretches are dead.
        for relay in ["near-relay", "far-relay"] {
            let done = pair.reported(relay, Duration::from_secs(140));
            assert!(
                done["ending"]
                    .as_str()
                    .is_some_and(|ending| ending.ends_with("-reset")),
                "{relay}: {done}"
            );
        }
        drop((sender, receiver));
        pair.up.signal(Signal::CONT);
        pair.carry(&text(100_000));
    }
}
