//! Copies over emulated paths: next to other traffic, and by QUIC where packets are lost.

/// Tests whose figures are judged.
mod tests_alone {
    use std::fs;
    use std::path::Path;
    use std::process::Output;
    use std::thread;
    use std::time::Duration;

    use crate::common::run;
    use crate::lab_up::Up;
    use fullpipe_testkit::{
        Mark, Running, document, lateness, path, random_bytes, require, valid_within, within,
        write_secret,
    };
    use rustix::process::{Pid, Signal, kill_process};
    use serde_json::Value;

    const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");
    const TIMEOUT: Duration = Duration::from_secs(40);

    const RECEIVER: &str = "198.18.0.2";

    /// Rate of the path, and the part of it that payload has in segments of 1448 bytes, with their
    /// headers.
    const RATE: f64 = 20e6;
    const PAYLOAD: f64 = 1448.0 / 1514.0;

    /// Time for which a program may wait for a processor while round trips of 600 ms are counted.
    const MAX_WAIT: Duration = Duration::from_millis(100);

    /// Bytes that cross in seven seconds at the rate of the path.
    const SIZE: usize = 17_000_000;

    /// Returns the path, with this loss, that a copy shares with others.
    fn shared(loss: &str) -> String {
        format!("rate = \"20Mbit/s\"\nrtt = \"40ms\"\nloss = \"{loss}\"")
    }

    /// Starts a path with a queue of one BDP, a server in its receiver, and writes a file of so
    /// many bytes for it.
    fn scene(mark: &Mark, folder: &Path, path: &str, size: usize) -> (Up, Running) {
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let text = format!(
            "name = \"shared\"\ntitle = \"A path\"\n[path]\n{path}\nqueue = \"1bdp\"\n[[step]]\nname = \"none\"\n"
        );
        fs::write(at("path.toml"), text).unwrap();
        write_secret(at("key"), "correct horse battery");
        fs::write(at("file"), random_bytes(size)).unwrap();
        fs::create_dir(at("to")).unwrap();
        let up = Up::of(&at("path.toml"), mark, &["--json-lines"]);
        up.event();
        let server = serve(&up, folder);
        (up, server)
    }

    /// Starts a server in the receiver.
    fn serve(up: &Up, folder: &Path) -> Running {
        let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let serve = [
            PROGRAM,
            "serve",
            "--no-iperf2",
            "--share",
            &at("to"),
            "--key-file",
            &at("key"),
        ];
        let server = Running::start(&mut up.join("receiver", &serve));
        let listens = || {
            let tables = run(
                &mut up.join("receiver", &["cat", "/proc/net/tcp", "/proc/net/tcp6"]),
                20,
            )
            .stdout;
            let tables = String::from_utf8_lossy(&tables).into_owned();
            // 0A is LISTEN of the kernel's tcp_states.h.
            let listens = |port: &str| {
                tables
                    .lines()
                    .any(|line| line.contains(port) && line.contains(" 0A "))
            };
            [":1451 ", ":1452 "].iter().all(|port| listens(port))
        };
        assert!(within(TIMEOUT, listens), "nobody listens");
        server
    }

    /// Lateness that one packet in a hundred of the path may exceed: an eighth of its round trip of
    /// 40 ms, at which CUBIC takes a queue for full (`HYSTART_DELAY_THRESH` in `tcp_cubic.c`).
    const MAX_LATENESS: f64 = 5e-3;

    /// Events of the path, one for each 0.2 s.
    #[derive(Default)]
    struct Seen {
        statuses: Vec<Value>,
    }

    impl Seen {
        /// Adds what has come since, and returns the mean rate of the path over the last so many
        /// events.
        fn rate_of_last(&mut self, up: &Up, count: usize) -> f64 {
            self.statuses.extend(
                up.events()
                    .into_iter()
                    .filter(|event| event["data"]["forward"].is_object()),
            );
            let rates = self
                .statuses
                .iter()
                .rev()
                .take(count)
                .map(|event| number(&event["data"]["forward"]["rate"]));
            rates.sum::<f64>() / count as f64
        }

        /// Returns the reasons for which a run is not to be judged: none of one that `is_right`,
        /// and otherwise that the path was late in it.
        fn reasons(self, is_right: bool) -> Vec<String> {
            let late = |event: &Value| {
                let ways = ["forward", "reverse"]
                    .map(|way| event["data"][way]["lateness_p99"].as_f64().unwrap_or(0.0));
                ways[0].max(ways[1])
            };
            let late = self.statuses.iter().map(late).fold(0.0, f64::max);
            let is_late = !is_right && late > MAX_LATENESS;
            is_late
                .then(|| format!("the path was {late} s late"))
                .into_iter()
                .collect()
        }
    }

    /// Returns a number of a document; NaN, which passes no bound, if it is not there.
    fn number(value: &Value) -> f64 {
        value.as_f64().unwrap_or(f64::NAN)
    }

    /// Returns the intervals of a measurement after so many seconds.
    fn intervals_after(measurement: &Value, seconds: f64) -> Vec<&Value> {
        let intervals = measurement["intervals"].as_array().unwrap().iter();
        intervals
            .filter(|interval| number(&interval["from"]) > seconds)
            .collect()
    }

    fn mean_rate(intervals: &[&Value]) -> f64 {
        intervals
            .iter()
            .map(|interval| number(&interval["rate"]))
            .sum::<f64>()
            / intervals.len() as f64
    }

    /// A copy that writes what happens into a file.
    struct Copying {
        running: Running,
        log: String,
    }

    impl Copying {
        fn start(up: &Up, folder: &Path, flags: &str) -> Self {
            let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
            let _ = fs::remove_file(at("to/file"));
            let (file, key, log) = (at("file"), at("key"), at("copy.log"));
            let to = format!("fullpipe://{RECEIVER}/");
            let copy = format!(
                "exec {PROGRAM} copy {file} {to} --key-file {key} --json-lines {flags} > {log}"
            );
            Self {
                running: Running::start(&mut up.join("sender", &["sh", "-c", &copy])),
                log,
            }
        }

        fn events(log: &str) -> Vec<Value> {
            let text = fs::read_to_string(log).unwrap_or_default();
            // The last line may not be whole yet.
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect()
        }

        /// Waits until a step of it begins with these words.
        fn wait_for(&self, words: &str) {
            let says = |event: &Value| {
                event["data"]["text"]
                    .as_str()
                    .is_some_and(|text| text.starts_with(words))
            };
            assert!(
                within(TIMEOUT, || Self::events(&self.log).iter().any(says)),
                "it does not say {words}"
            );
        }

        /// Returns the report.
        fn finish(self) -> Value {
            let output = self.running.finish(TIMEOUT);
            let copied = Self::events(&self.log)
                .into_iter()
                .rfind(|event| event["event"] == "copy");
            copied.unwrap_or_else(|| panic!("{output:?}"))["data"].clone()
        }
    }

    fn copied(output: &Output) -> Value {
        document(output)["copy"].clone()
    }

    /// Others keep all of the path but for the time that it takes to see them, and to look whether
    /// they have gone.
    #[test]
    fn a_scavenging_copy_leaves_a_path_to_others_and_fills_it_when_they_stop() {
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let (up, _server) = scene(&mark, folder.path(), &shared("0"), SIZE);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let key = at("key");
        let measure = [
            PROGRAM,
            "measure",
            RECEIVER,
            "-C",
            "cubic",
            "-t",
            "9",
            "--json",
            "--key-file",
            &key,
        ];
        let (kept, alone, done) = valid_within(3, || {
            let mut seen = Seen::default();
            let other = Running::start(&mut up.join("sender", &measure));
            assert!(
                within(TIMEOUT, || seen.rate_of_last(&up, 2) > 0.8 * RATE),
                "the other does not begin"
            );
            let copy = Copying::start(&up, folder.path(), "--scavenge");
            let measured = document(&other.finish(TIMEOUT))["measurement"].clone();
            // The other had the path for a second or two before, and the copy finds it loaded
            // within two more.
            let kept = mean_rate(&intervals_after(&measured, 4.9)) / (RATE * PAYLOAD);
            // What is left of the file takes the path five seconds.
            let mut alone: f64 = 0.0;
            let fills = within(TIMEOUT, || {
                alone = alone.max(seen.rate_of_last(&up, 5) / RATE);
                alone > 0.9
                    || Copying::events(&copy.log)
                        .iter()
                        .any(|event| event["event"] == "copy")
            });
            let done = copy.finish();
            assert!(fills, "it goes on for ever");
            let is_right =
                kept > 0.9 && alone > 0.9 && (0.2..0.8).contains(&number(&done["gave_way"]));
            ((kept, alone, done), seen.reasons(is_right))
        });
        assert!(
            kept > 0.9 && alone > 0.9,
            "the other kept {kept}, then it took {alone}: {done}"
        );
        assert!((0.2..0.8).contains(&number(&done["gave_way"])), "{done}");
        assert!(fs::read(at("file")).unwrap() == fs::read(folder.path().join("to/file")).unwrap());
    }

    /// Connections for data that were made behind the server's answer took two round trips more:
    /// their TCP and TLS.
    #[test]
    fn data_crosses_to_a_server_three_round_trips_after_the_call() {
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let (up, _server) = scene(
            &mark,
            folder.path(),
            "rate = \"20Mbit/s\"\nrtt = \"600ms\"",
            10_000,
        );
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (file, key, to) = (at("file"), at("key"), format!("fullpipe://{RECEIVER}/"));
        let copy = [PROGRAM, "copy", &file, &to, "--key-file", &key, "--json"];
        // What the machine is late is late for the programs, too.
        let done = valid_within(3, || {
            let _ = fs::remove_file(at("to/file"));
            let run = || copied(&Running::start(&mut up.join("sender", &copy)).finish(TIMEOUT));
            let (done, late) = lateness(run);
            let is_late = number(&done["set_up"]) >= 2.4 && late > MAX_WAIT;
            (
                done,
                is_late
                    .then(|| format!("the machine was {late:?} late"))
                    .into_iter()
                    .collect(),
            )
        });
        let round_trips = number(&done["set_up"]) / 0.6;
        assert!(
            (3.0..4.0).contains(&round_trips) && done["transport"] == "tcp",
            "{round_trips}: {done}"
        );
        assert!(fs::read(file).unwrap() == fs::read(at("to/file")).unwrap());
    }

    /// CUBIC would carry 6 Mbit/s, so that the file would take 16 s.
    #[test]
    fn a_copy_by_quic_changes_to_bbr_where_packets_are_lost_without_a_queue() {
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let lossy = "rate = \"50Mbit/s\"\nrtt = \"25ms\"\nloss = \"1%\"";
        let (up, _server) = scene(&mark, folder.path(), lossy, 12_000_000);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (to, key) = (format!("fullpipe://{RECEIVER}/"), at("key"));
        let copy = [
            PROGRAM,
            "copy",
            &at("file"),
            &to,
            "--key-file",
            &key,
            "--transport",
            "quic",
            "--json",
        ];
        let done = valid_within(3, || {
            let mut seen = Seen::default();
            let _ = fs::remove_file(at("to/file"));
            let done = copied(&Running::start(&mut up.join("sender", &copy)).finish(TIMEOUT));
            seen.rate_of_last(&up, 1);
            let reasons =
                seen.reasons(number(&done["rate"]) > 12e6 && done["congestion_control"] == "bbr");
            (done, reasons)
        });
        let [transport, control] =
            ["transport", "congestion_control"].map(|name| done[name].as_str().unwrap());
        assert_eq!((transport, control), ("quic", "bbr"), "{done}");
        assert!(
            done["rate"].as_f64().unwrap() > 12e6 && done["retransmitted"].as_u64().unwrap() > 50,
            "{done}"
        );
        assert!(fs::read(at("file")).unwrap() == fs::read(folder.path().join("to/file")).unwrap());
    }

    /// By the formula of Mathis et al. (1997), CUBIC as Reno has √(3/2) / √p = 22 segments in a
    /// round trip of 40 ms at a loss of 0.3 %: 6.5 Mbit/s alone, and two of its kind 0.65 of the
    /// path. BBR by itself keeps two BDP on their way, 80 ms, and drives the other out. At 60 ms,
    /// the longest round trip that passes, the other has 4.3 Mbit/s; half of that is left for the
    /// luck of six seconds.
    #[test]
    fn a_copy_under_bbr_leaves_to_others_what_loss_has_left_to_them() {
        const MIN_KEPT: f64 = 0.5 * 4.3e6;
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let (up, _server) = scene(&mark, folder.path(), &shared("3e-3"), 2 * SIZE);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let key = at("key");
        let measure = [
            PROGRAM,
            "measure",
            RECEIVER,
            "-C",
            "cubic",
            "-t",
            "10",
            "--json",
            "--key-file",
            &key,
        ];
        let (kept, rtt, together, done) = valid_within(3, || {
            let mut seen = Seen::default();
            let copy = Copying::start(&up, folder.path(), "");
            copy.wait_for("BBR from here on");
            let other = Running::start(&mut up.join("sender", &measure));
            let measured = document(&other.finish(TIMEOUT))["measurement"].clone();
            let together = seen.rate_of_last(&up, 25) / RATE;
            let late = intervals_after(&measured, 3.9);
            let mut rtts: Vec<f64> = late
                .iter()
                .map(|interval| number(&interval["rtt"]))
                .collect();
            rtts.sort_by(f64::total_cmp);
            let (kept, rtt) = (mean_rate(&late), rtts[rtts.len() / 2]);
            let is_right = kept > MIN_KEPT && rtt < 0.06 && together > 0.7;
            ((kept, rtt, together, copy.finish()), seen.reasons(is_right))
        });
        assert_eq!(done["congestion_control"], "bbr", "{done}");
        let what = format!("{kept} bit/s at {rtt} s, together {together}: {done}");
        assert!(kept > MIN_KEPT && rtt < 0.06 && together > 0.7, "{what}");
        assert!(fs::read(at("file")).unwrap() == fs::read(folder.path().join("to/file")).unwrap());
    }

    /// Kills the programs with this command that use a folder.
    fn kill(command: &str, folder: &Path) {
        let begin = format!("{PROGRAM}\0{command}\0");
        let is_one =
            |line: String| line.starts_with(&begin) && line.contains(folder.to_str().unwrap());
        let numbers = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let ones = numbers.filter(|pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(is_one)
        });
        // It may have ended.
        for pid in ones.filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    #[test]
    #[ignore = "takes some minutes"]
    #[expect(clippy::print_stdout, reason = "the figures of each round")]
    fn a_copy_that_is_killed_50_times_continues_where_it_was() {
        const MIB: u64 = 1 << 20;
        const BYTES: u64 = 6 * MIB;
        require!(Lab);
        let _path = path();
        let (mark, folder) = (Mark::new(), tempfile::tempdir().unwrap());
        let fast = "rate = \"100Mbit/s\"\nrtt = \"20ms\"";
        let (up, mut server) = scene(&mark, folder.path(), fast, BYTES as usize);
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (to, key) = (format!("fullpipe://{RECEIVER}/"), at("key"));
        let copy = [
            PROGRAM,
            "copy",
            &at("file"),
            &to,
            "--key-file",
            &key,
            "--json",
        ];
        let (content, mut struck) = (fs::read(at("file")).unwrap(), 0);
        for round in 0..50 {
            let _ = fs::remove_file(at("to/file"));
            let running = Running::start(&mut up.join("sender", &copy));
            // Fifty moments, the early ones not first.
            thread::sleep(Duration::from_millis(100 + round * 19 % 50 * 18));
            kill(["copy", "serve"][round as usize % 2], folder.path());
            let was_done = running.finish(TIMEOUT).status.success();
            if round % 2 == 1 {
                server.finish(TIMEOUT);
                server = serve(&up, folder.path());
            }
            let found = fs::read(at("to/file")).ok();
            assert!(
                found.as_ref().is_none_or(|found| *found == content),
                "round {round}: half of it has its name"
            );
            let held = if found.is_some() {
                BYTES
            } else {
                recorded(&folder.path().join("to")) * MIB
            };
            let done = copied(&Running::start(&mut up.join("sender", &copy)).finish(TIMEOUT));
            let sent = done["transferred"].as_u64().unwrap();
            println!("round {round}: {held} bytes were there, {sent} of {BYTES} were sent");
            assert!(
                (sent + held).saturating_sub(BYTES) * 100 <= held,
                "round {round}: {held} were there: {done}"
            );
            assert!(
                fs::read(at("to/file")).unwrap() == content
                    && fs::read_dir(at("to")).unwrap().count() == 1
            );
            struck += u32::from(!was_done);
        }
        println!("{struck} of 50 copies had not ended");
        assert!(struck > 25);
    }

    /// Returns the number of chunks that the journals in a folder record.
    fn recorded(folder: &Path) -> u64 {
        let journals = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let journals = journals.filter(|path| {
            path.extension()
                .is_some_and(|end| end == "fullpipe-journal")
        });
        journals
            .map(|path| fs::metadata(path).unwrap().len().saturating_sub(48) / 48)
            .sum()
    }
}
