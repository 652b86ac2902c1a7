//! The cost of `--live`: figures for a person, as they judge the machine, too.

#![expect(
    clippy::print_stdout,
    reason = "figures of a run, shown by --nocapture"
)]

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fullpipe_testkit::{Mark, Running, document, lateness, path, require};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::common::pseudo_terminal;
use crate::lab_up::Up;

/// Pairs that are measured, each in another order than the one before.
const PAIRS: usize = 8;

/// Seconds of a measurement.
const SECONDS: &str = "4";

/// Student's t for 95 %, two-sided, with [`PAIRS`] − 1 degrees of freedom.
const T: f64 = 2.365;

/// Length of a tick of the kernel's times, in seconds (`USER_HZ`).
const TICK: f64 = 0.01;

/// A path of 1 Gbit/s and 20 ms.
const SCENARIO: &str = "name = \"live\"\ntitle = \"1 Gbit/s and 20 ms\"\n[path]\nrate = \"1Gbit/s\"\nrtt = \"20ms\"\n\
                        [[step]]\nname = \"as it is\"\n";

/// A lab over that path, with a server at its receiving host.
struct Bench {
    lab: Up,
    receiver: String,
    _server: Running,
}

/// A measurement.
struct Run {
    /// Rate in Mbit/s.
    rate: f64,
    /// Processor time of the whole program, in cores.
    cpu: f64,
    /// Processor time of the thread that draws, in cores.
    drawing: Option<f64>,
}

impl Bench {
    fn start(mark: &Mark) -> Self {
        let scenario = format!(
            "{}/live-{}.toml",
            env!("CARGO_TARGET_TMPDIR"),
            mark.as_str()
        );
        fs::write(&scenario, SCENARIO).unwrap();
        let lab = Up::of(&scenario, mark, &["--json-lines"]);
        let receiver = lab.event()["data"]["receiver"].as_str().unwrap().to_owned();
        let server =
            Running::start(&mut lab.join("receiver", &[env!("CARGO_BIN_EXE_fullpipe"), "serve"]));
        sleep(Duration::from_secs(1));
        Self {
            lab,
            receiver,
            _server: server,
        }
    }

    fn measure(&self, is_live: bool) -> Run {
        let (ours, theirs) = pseudo_terminal();
        tcsetwinsize(
            &theirs,
            Winsize {
                ws_row: 24,
                ws_col: 80,
                ws_xpixel: 0,
                ws_ypixel: 0,
            },
        )
        .unwrap();
        let mut reading = ours.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut reading, &mut std::io::sink()));
        let program = env!("CARGO_BIN_EXE_fullpipe");
        let mut exec = self.lab.join(
            "sender",
            &[program, "measure", &self.receiver, "--json", "-t", SECONDS],
        );
        exec.args(is_live.then_some("--live"));
        exec.env("TERM", "xterm-256color")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(theirs);
        let child = exec.spawn().unwrap();
        // It ends only once its document is read.
        let output = std::thread::spawn(move || child.wait_with_output().unwrap());
        let (begun, mut drawing) = (Instant::now(), None);
        while !output.is_finished() {
            drawing = ticks_of("live")
                .map(|ticks| ticks * TICK / begun.elapsed().as_secs_f64())
                .or(drawing);
            sleep(Duration::from_millis(200));
        }
        let measurement = document(&output.join().unwrap())["measurement"].clone();
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let cpu = &measurement["local"]["cpu"];
        Run {
            rate: number(&measurement["summary"]["rate"]) / 1e6,
            cpu: number(&cpu["user"]) + number(&cpu["system"]),
            drawing,
        }
    }
}

/// Returns the processor time of the thread of this name, in ticks (`utime` and `stime` of
/// `proc_pid_stat(5)`).
fn ticks_of(name: &str) -> Option<f64> {
    let tasks = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|process| {
            let program = fs::read_link(process.path().join("exe")).ok()?;
            program
                .ends_with("fullpipe")
                .then(|| process.path().join("task"))
        });
    let threads = tasks
        .filter_map(|tasks| fs::read_dir(tasks).ok())
        .flat_map(Iterator::flatten);
    let mut stats =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let stat = stats.find(|stat| stat.contains(&format!("({name})")))?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    Some(
        [11, 12]
            .iter()
            .filter_map(|field| fields.get(*field)?.parse::<f64>().ok())
            .sum(),
    )
}

/// Returns the mean and half of its 95 % interval.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (count - 1.0);
    (mean, T * (variance / count).sqrt())
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    #[ignore = "prints figures, which judge the machine too"]
    fn a_picture_costs_no_rate() {
        require!(Lab, Unshare);
        let _path = path();
        let mark = Mark::new();
        let bench = Bench::start(&mark);
        bench.measure(false);
        let pair = |number: usize| {
            let order = [number.is_multiple_of(2), !number.is_multiple_of(2)];
            let mut runs = order.map(|is_live| bench.measure(is_live));
            if !order[0] {
                runs.swap(0, 1);
            }
            runs
        };
        let (pairs, late) = lateness(|| (0..PAIRS).map(pair).collect::<Vec<[Run; 2]>>());
        let of = |figure: &dyn Fn(&[Run; 2]) -> f64| {
            mean(&pairs.iter().map(figure).collect::<Vec<f64>>())
        };
        let (live, plain) = (of(&|[live, _]| live.rate), of(&|[_, plain]| plain.rate));
        let difference = of(&|[live, plain]| (live.rate / plain.rate - 1.0) * 100.0);
        let cpu = of(&|[live, plain]| (live.cpu - plain.cpu) * 100.0);
        let drawing = of(&|[live, _]| live.drawing.unwrap_or(f64::NAN) * 100.0);
        println!(
            "{PAIRS} pairs of {SECONDS} s over 1 Gbit/s × 20 ms; the machine was late by {late:?} at most"
        );
        println!(
            "with --live {:.1} ± {:.1} Mbit/s, without {:.1} ± {:.1} Mbit/s",
            live.0, live.1, plain.0, plain.1
        );
        println!(
            "difference of the rates {:+.2} % ± {:.2} %",
            difference.0, difference.1
        );
        println!(
            "processor time of the whole program {:+.2} % ± {:.2} % of a core",
            cpu.0, cpu.1
        );
        println!(
            "processor time of the drawing thread {:.2} % ± {:.2} % of a core",
            drawing.0, drawing.1
        );
    }
}
