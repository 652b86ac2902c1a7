//! UDP at 95 Mbit/s through 100 Mbit/s and a queue of 16 packets, over an emulated path: whoever
//! sends in bursts loses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_lab::{Backend, Host, Lab, LabProgram, OutputLine, ProgramStdio, ValidityWatch};
use fullpipe_record::Validity;
use fullpipe_units::Span;

use crate::comparison::{Outcome, Quantity, alternate};
use crate::figures::{self, Figures};
use crate::lab;
use crate::process::{Ended, RunError};
use crate::program::{Load, Program, Tools, Traffic};

/// The path. 95 Mbit/s of datagrams are 99.3 Mbit/s with their headers on Ethernet.
const PATH: &str = "rate=100Mbit/s,rtt=10ms,queue=16packets,mtu=1500,framing=ethernet";
const MEGABITS: u16 = 95;

const CONTESTANTS: [(&str, Program); 2] =
    [("fullpipe", Program::Fullpipe), ("iperf3", Program::Iperf3)];
const PORT: u16 = 5201;

/// Length of the intervals, each of which is judged by itself: on a machine that is busy now and
/// then a run of seconds rarely counts.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time for which the link may stand still in an interval that counts: half as long as its queue
/// lasts (16 packets, 1.97 ms). What came meanwhile reaches the queue at once, behind what the
/// sender, which may be eight datagrams late, sends at once.
const MAX_STANDSTILL: Span = Span::from_micros(980);

/// Time that a program may take beyond that of its load.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest that Ctrl-C goes unheard.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Compares how much each program loses.
pub(crate) fn compare(seconds: f64, rounds: usize, tools: &Tools, stop: &AtomicBool) -> Outcome {
    let lab = match lab::path_of(PATH).and_then(|path| lab::start(path, Backend::default())) {
        Ok(lab) => lab,
        Err(why) => return Outcome::skipped(&why),
    };
    let load = Load {
        traffic: Traffic::Paced(MEGABITS),
        streams: 1,
        seconds,
    };
    let names = CONTESTANTS.map(|(name, _)| name.to_owned());
    let mut seen = [const { Vec::new() }; CONTESTANTS.len()];
    let outcome = alternate(
        &names,
        &[Quantity::ShareLost, Quantity::BitsPerSecond],
        rounds,
        |number| {
            let (figures, intervals) = run(&lab, CONTESTANTS[number].1, &load, tools, stop)?;
            let judged = Judged::of(&figures, &intervals)?;
            seen[number].push(judged);
            Ok(vec![
                judged.share_lost(),
                figures.bytes as f64 * 8.0 / figures.time.as_secs_f64(),
            ])
        },
    );
    outcome.with_notes(
        names
            .iter()
            .zip(&seen)
            .map(|(name, seen)| note(name, seen))
            .collect(),
    )
}

/// The losses of each run: a median hides the one in ten that lost some.
fn note(name: &str, seen: &[Judged]) -> String {
    let (valid, all) = seen.iter().fold((0, 0), |(valid, all), run| {
        (valid + run.valid, all + run.all)
    });
    let losses: Vec<String> = seen.iter().map(|run| run.dropped.to_string()).collect();
    let whole = Judged {
        valid,
        all,
        dropped: seen.iter().map(|run| run.dropped).sum(),
        sent: seen.iter().map(|run| run.sent).sum(),
    };
    format!(
        "{name}: {valid} of {all} intervals count; in these the queue dropped {} packets in all, {:.1e} of those sent; \
         run by run {}",
        whole.dropped,
        whole.share_lost(),
        losses.join(" ")
    )
}

/// A run, by those of its intervals in which the link did its part.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Judged {
    valid: usize,
    all: usize,
    /// Packets that found the queue full, in the intervals that count.
    dropped: u64,
    /// Datagrams sent in these, about.
    sent: f64,
}

impl Judged {
    fn of(figures: &Figures, intervals: &[Interval]) -> Result<Self, RunError> {
        let datagrams = figures
            .datagrams
            .ok_or_else(|| RunError::failed("it does not say what became of the datagrams"))?;
        let valid: Vec<&Interval> = intervals
            .iter()
            .filter(|interval| interval.is_valid())
            .collect();
        if valid.is_empty() {
            let least = intervals
                .iter()
                .map(|interval| interval.stood_still)
                .min()
                .unwrap_or_default();
            return Err(RunError::Failed(format!(
                "the link stood still for at least {least} in every interval"
            )));
        }
        let part = valid.len() as f64 / intervals.len() as f64;
        Ok(Self {
            valid: valid.len(),
            all: intervals.len(),
            dropped: valid.iter().map(|interval| interval.dropped).sum(),
            sent: (datagrams.arrived + datagrams.lost) as f64 * part,
        })
    }

    fn share_lost(&self) -> f64 {
        self.dropped as f64 / self.sent.max(1.0)
    }
}

/// The figures of the lab in an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    stood_still: Span,
    /// By the queue.
    dropped: u64,
    /// By devices, which no program is to blame for.
    dropped_elsewhere: u64,
}

impl Interval {
    fn of(validity: &Validity) -> Self {
        Self {
            stood_still: validity.longest_gap.unwrap_or(Span::MAX),
            dropped: validity.queue_drops.unwrap_or(0),
            dropped_elsewhere: validity.device_drops.unwrap_or(0),
        }
    }

    /// Returns whether what was dropped in it is the sender's doing. It is judged by the standstill
    /// alone, whatever was dropped.
    fn is_valid(&self) -> bool {
        self.stood_still <= MAX_STANDSTILL && self.dropped_elsewhere == 0
    }
}

/// Runs a program once over `lab`, with a snapshot of it every tenth of a second.
pub(crate) fn run(
    lab: &Lab,
    program: Program,
    load: &Load,
    tools: &Tools,
    stop: &AtomicBool,
) -> Result<(Figures, Vec<Interval>), RunError> {
    let mut intervals = Vec::new();
    let mut snapshot = Snapshot {
        lab,
        watch: Some(lab.start_watch().map_err(RunError::failed)?),
        intervals: &mut intervals,
    };
    let ended = watched(lab, program, load, tools, stop, &mut || snapshot.now())?;
    drop(snapshot);
    let figures = figures::read(program, &ended, "").map_err(RunError::Failed)?;
    Ok((figures, intervals))
}

/// Runs a program once over `lab`, with a `snapshot` of whatever every tenth of a second; what the
/// program wrote.
pub(crate) fn watched(
    lab: &Lab,
    program: Program,
    load: &Load,
    tools: &Tools,
    stop: &AtomicBool,
    snapshot: &mut dyn FnMut() -> Result<(), RunError>,
) -> Result<Ended, RunError> {
    let address = lab.host_address(Host::Receiver);
    let mut server = program.server(tools, address, PORT, load.traffic);
    server.arg("-1");
    if program == Program::Iperf3 {
        // Otherwise the line that says that it listens stays in its buffer.
        server.arg("--forceflush");
    }
    let server = start(lab, Host::Receiver, &server)?;
    wait_for_listener(&server, stop)?;
    let client = start(
        lab,
        Host::Sender,
        &program.client(tools, address, PORT, load, &[]),
    )?;
    let ended = finish(
        client,
        Duration::from_secs_f64(load.seconds.ceil()) + TIMEOUT,
        stop,
        snapshot,
    );
    // It has served its one client; whatever became of that, it does not stay.
    server
        .finish_within(if ended.is_ok() {
            TIMEOUT
        } else {
            Duration::ZERO
        })
        .map_err(RunError::failed)?;
    ended
}

/// The lab's own report of each interval, one behind the other.
struct Snapshot<'l> {
    lab: &'l Lab,
    watch: Option<ValidityWatch<'l>>,
    intervals: &'l mut Vec<Interval>,
}

impl Snapshot<'_> {
    fn now(&mut self) -> Result<(), RunError> {
        if let Some(watch) = self.watch.take() {
            self.intervals.push(Interval::of(
                &watch.finish_watch().map_err(RunError::failed)?,
            ));
        }
        self.watch = Some(self.lab.start_watch().map_err(RunError::failed)?);
        Ok(())
    }
}

fn start<'l>(
    lab: &'l Lab,
    host: Host,
    command: &std::process::Command,
) -> Result<LabProgram<'l>, RunError> {
    let arguments: Vec<String> = command
        .get_args()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let program = command.get_program().to_string_lossy();
    lab.start_program(host, &program, &arguments, ProgramStdio::Collected)
        .map_err(RunError::failed)
}

fn wait_for_listener(server: &LabProgram<'_>, stop: &AtomicBool) -> Result<(), RunError> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        match server.next_line(INTERRUPT_POLL_INTERVAL) {
            OutputLine::Text(line) if line.to_lowercase().contains("listening") => return Ok(()),
            OutputLine::Text(_) | OutputLine::NotYet if stop.load(Ordering::Relaxed) => {
                return Err(RunError::Interrupted);
            }
            OutputLine::Text(_) | OutputLine::NotYet => {}
            OutputLine::End => break,
        }
    }
    Err(RunError::Failed(format!(
        "its server did not answer within {TIMEOUT:?}"
    )))
}

/// Returns what the client wrote until it ended, with a `snapshot` every tenth of a second; kills
/// it after `timeout`, and when `stop` is set.
fn finish(
    client: LabProgram<'_>,
    timeout: Duration,
    stop: &AtomicBool,
    snapshot: &mut dyn FnMut() -> Result<(), RunError>,
) -> Result<Ended, RunError> {
    let deadline = Instant::now() + timeout;
    let mut sampled = Instant::now();
    let mut stdout = String::new();
    let given_up = loop {
        match client.next_line(INTERRUPT_POLL_INTERVAL) {
            OutputLine::Text(line) => stdout += &(line + "\n"),
            OutputLine::NotYet => {}
            OutputLine::End => break None,
        }
        if sampled.elapsed() >= INTERVAL {
            sampled = Instant::now();
            if let Err(error) = snapshot() {
                break Some(error);
            }
        }
        if stop.load(Ordering::Relaxed) {
            break Some(RunError::Interrupted);
        }
        if Instant::now() >= deadline {
            break Some(RunError::Failed(format!(
                "did not end within {timeout:?}; killed"
            )));
        }
    };
    let last_timeout = if given_up.is_some() {
        Duration::ZERO
    } else {
        TIMEOUT
    };
    let output = client
        .finish_within(last_timeout)
        .map_err(RunError::failed)?;
    let ended = Ended {
        succeeded: output.code == 0,
        stdout,
        stderr: output.stderr,
        cpu: Duration::ZERO,
    };
    given_up.map_or(Ok(ended), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Datagrams;

    #[test]
    fn intervals_count_by_what_the_link_did_and_not_by_what_was_lost() {
        let datagrams = Some(Datagrams {
            arrived: 3_900,
            lost: 100,
        });
        let figures = Figures {
            bytes: 1,
            time: Duration::from_secs(1),
            datagrams,
        };
        let interval = |micros, dropped| Interval {
            stood_still: Span::from_micros(micros),
            dropped,
            dropped_elsewhere: 0,
        };
        let seen = [
            interval(100, 0),
            interval(900, 3),
            interval(1_500, 0),
            interval(30, 0),
        ];
        let judged = Judged::of(&figures, &seen).unwrap();
        assert_eq!(
            judged,
            Judged {
                valid: 3,
                all: 4,
                dropped: 3,
                sent: 3_000.0
            }
        );
        assert!((judged.share_lost() - 1e-3).abs() < 1e-12);
        assert!(
            note("ours", &[judged; 2])
                .contains("6 of 8 intervals count; in these the queue dropped 6 packets in all")
        );
        assert!(Judged::of(&figures, &[interval(5_000, 0)]).is_err());
        assert!(
            Judged::of(
                &figures,
                &[Interval {
                    dropped_elsewhere: 1,
                    ..interval(0, 0)
                }]
            )
            .is_err()
        );
    }
}
