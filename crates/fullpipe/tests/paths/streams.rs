//! Many data connections over a long path are open after a few round trips.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fullpipe_testkit::{Mark, Running, document, lateness, path, require, valid_within, within};
use serde_json::Value;

use crate::common::{fullpipe, run};

/// Longest time for one program, in seconds.
const TIMEOUT: u64 = 40;

/// The path's round trip, in seconds.
const RTT: f64 = 0.05;

/// Time for which a program may wait for a processor while round trips of 50 ms are counted.
const MAX_WAIT: Duration = Duration::from_millis(20);

const STREAMS: usize = 16;

const RECEIVER: &str = "198.18.0.2";

/// `fullpipe lab up`, which does not outlive its test.
struct Lab {
    program: Child,
    name: String,
}

impl Lab {
    fn start(mark: &Mark) -> Self {
        let name = format!("streams-{}", mark.as_str());
        let text = "name = \"streams\"\ntitle = \"A long path\"\n[path]\nrate = \"100Mbit/s\"\nrtt = \"50ms\"\n\
                    [[step]]\nname = \"none\"\n";
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
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

    fn host(&self, host: &str, command: &[&str]) -> Command {
        fullpipe(&[&["lab", "exec", "--join", &self.name, host, "--"], command].concat())
    }

    /// A server in the receiving host.
    fn serve(&self, command: &[&str]) -> Running {
        let server = Running::start(&mut self.host("receiver", command));
        let listens = || {
            let output = run(
                &mut self.host("receiver", &["cat", "/proc/net/tcp", "/proc/net/tcp6"]),
                TIMEOUT,
            );
            String::from_utf8_lossy(&output.stdout).contains(":1451 ")
        };
        assert!(within(Duration::from_secs(20), listens), "nobody listens");
        server
    }

    /// Returns the measurement of a short test with these flags, of which every stream carried
    /// data, and all were open within so many round trips. A run with more in which the machine was
    /// late is repeated.
    fn opened_within(&self, round_trips: f64, flags: &[&str]) -> Value {
        let streams = STREAMS.to_string();
        let measure = [
            env!("CARGO_BIN_EXE_fullpipe"),
            "measure",
            RECEIVER,
            "--json",
            "-t",
            "0.3",
            "-P",
            &streams,
        ];
        let set_up = |measurement: &Value| measurement["setup"].as_f64().unwrap() / RTT;
        let measurement = valid_within(3, || {
            let (output, late) = lateness(|| {
                run(
                    &mut self.host("sender", &[&measure, flags].concat()),
                    TIMEOUT,
                )
            });
            let measurement = document(&output)["measurement"].clone();
            let is_late = late > MAX_WAIT && set_up(&measurement) >= round_trips;
            (
                measurement,
                is_late
                    .then(|| format!("the machine was {late:?} late"))
                    .into_iter()
                    .collect(),
            )
        });
        let (taken, what) = (set_up(&measurement), flags.join(" "));
        assert!(
            (1.0..round_trips).contains(&taken),
            "{what}: {taken} round trips"
        );
        let streams = measurement["streams"].as_array().unwrap();
        assert!(
            streams
                .iter()
                .all(|stream| stream["received"].as_u64() > Some(0)),
            "{what}: {streams:#?}"
        );
        measurement
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn sixteen_streams_do_not_cost_a_round_trip_each() {
        require!(Lab);
        let _path = path();
        let mark = Mark::new();
        let lab = Lab::start(&mark);
        let _server = lab.serve(&[env!("CARGO_BIN_EXE_fullpipe"), "serve"]);
        for flags in [
            &[][..],
            &["-R"],
            &["-u", "-b", "200k"],
            &["-u", "-b", "200k", "-R"],
        ] {
            let measurement = lab.opened_within(6.0, flags);
            assert_eq!(measurement["streams"].as_array().unwrap().len(), STREAMS);
        }
        // The second direction begins when the server has the first.
        for flags in [&["--bidir"][..], &["--bidir", "-u", "-b", "200k"]] {
            let measurement = lab.opened_within(10.0, flags);
            let of = |direction: &str| {
                let streams = measurement["streams"].as_array().unwrap();
                streams
                    .iter()
                    .filter(|stream| stream["direction"] == direction)
                    .count()
            };
            assert_eq!((of("upload"), of("download")), (STREAMS, STREAMS));
        }
    }

    #[test]
    fn sixteen_streams_to_iperf3_do_not_cost_a_round_trip_each() {
        require!(Lab, Iperf3);
        let _path = path();
        let mark = Mark::new();
        let lab = Lab::start(&mark);
        let _server = lab.serve(&["iperf3", "-s"]);
        for (flags, round_trips) in [(&[][..], 6.0), (&["-R"], 6.0), (&["--bidir"], 10.0)] {
            lab.opened_within(round_trips, flags);
        }
        // It confuses hellos that arrive together.
        lab.opened_within(2.0 * STREAMS as f64, &["-u", "-b", "200k"]);
    }
}
