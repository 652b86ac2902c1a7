//! `bench simulator-speed`: how fast, and in how much memory, transfers are simulated.

use std::fmt::Write;
use std::fs;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use fullpipe_record::LossPattern;
use fullpipe_sim::{Granularity, Plan, Simulation};
use fullpipe_units::{ByteCount, Ratio, Span, Time};

use crate::ns3;
use crate::process::{Process, RunError, last_words};
use crate::say;
use crate::transfer::{plan, simulated, started};

/// The transfers to simulate.
#[derive(Debug, Args)]
pub(crate) struct SimulatorSpeed {
    /// Number of runs of each, of which the fastest counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    rounds: u16,
    /// Do not run ns-3
    #[arg(long)]
    without_ns3: bool,
    /// Simulate this transfer alone, in this process
    #[arg(long, hide = true, value_name = "NUMBER")]
    only: Option<usize>,
}

/// The longest that the runs of one transfer may take.
const TIMEOUT: Duration = Duration::from_mins(10);

/// A transfer, and what is asked of its simulation.
struct Transfer {
    name: &'static str,
    plan: fn() -> Plan,
    asked: &'static str,
}

const TRANSFERS: [Transfer; 12] = [
    Transfer { name: "1 Gbit/s x 100 ms, 20 s, segments", plan: || common(Granularity::Segment), asked: "5 M/s" },
    Transfer { name: "1 Gbit/s x 100 ms, 20 s, cut", plan: || common(Granularity::Cut), asked: "" },
    Transfer { name: "1 Gbit/s x 100 ms, 20 s, trains", plan: || common(Granularity::Train), asked: "120 M/s" },
    Transfer { name: "100 Gbit/s x 200 ms, 60 s, trains", plan: || far(Granularity::Train), asked: "3 s, 64 MB" },
    Transfer { name: "10 000 flows, 100G x 50 ms, 10 s, cut", plan: || many(Granularity::Cut), asked: "20 s, 300 MB" },
    Transfer {
        name: "10 000 flows, 100G x 50 ms, 10 s, trains",
        plan: || many(Granularity::Train),
        asked: "20 s, 300 MB",
    },
    Transfer { name: "50 Mbit/s x 600 ms, 1 h, cut", plan: || satellite(Granularity::Cut), asked: "1.5 s" },
    Transfer { name: "50 Mbit/s x 600 ms, 1 h, trains", plan: || satellite(Granularity::Train), asked: "1.5 s" },
    Transfer { name: "1 Gbit/s x 100 ms, 1e-5, 1 h, cut", plan: || lossy(Granularity::Cut), asked: "1.5 s" },
    Transfer { name: "1 Gbit/s x 100 ms, 1e-5, 1 h, trains", plan: || lossy(Granularity::Train), asked: "1.5 s" },
    Transfer { name: "half of 2.6 M segments lost, cut", plan: || halved(Granularity::Cut), asked: "3 s" },
    Transfer { name: "half of 2.6 M segments lost, trains", plan: || halved(Granularity::Train), asked: "3 s" },
];

/// Time and memory of a simulation.
struct Figures {
    segments: f64,
    /// Simulated, and spent.
    seconds: [f64; 2],
    /// Peak memory of the process, in MB.
    memory: f64,
}

impl SimulatorSpeed {
    /// Prints the figures of each transfer. The exit code depends on nothing but that they could be run.
    pub(crate) fn run(&self, stop: &AtomicBool) -> ExitCode {
        if let Some(transfer) = self.only.and_then(|number| TRANSFERS.get(number)) {
            say(false, &self.fastest(transfer).line());
            return ExitCode::SUCCESS;
        }
        match self.all(stop) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(true, &format!("fullpipe-bench: {error}\n"));
                ExitCode::FAILURE
            }
        }
    }

    fn all(&self, stop: &AtomicBool) -> Result<(), RunError> {
        let fastest = format!("fastest of {} runs on one processor, peak memory of the process\n\n", self.rounds);
        say(false, &fastest);
        say(false, &format!("  {:<40}{:>8}{:>9}{:>8}{:>7}  asked\n", "", "wall s", "M seg/s", "x real", "MB"));
        for (number, transfer) in TRANSFERS.iter().enumerate() {
            let figures = self.in_a_process(number, stop)?;
            say(false, &format!("  {:<40}{}  {}\n", transfer.name, figures.columns(), transfer.asked));
        }
        say(false, &fairness());
        say(false, &if self.without_ns3 { String::new() } else { ns3::comparison(stop)? });
        Ok(())
    }

    /// Runs a transfer in a process of its own, whose memory nothing else has used.
    fn in_a_process(&self, number: usize, stop: &AtomicBool) -> Result<Figures, RunError> {
        let mut command = Command::new(std::env::current_exe().map_err(RunError::failed)?);
        command.args(["simulator-speed", "--only", &number.to_string(), "--rounds", &self.rounds.to_string()]);
        let ended = Process::start(&mut command)?.finish(TIMEOUT, stop)?;
        let failed = || RunError::Failed(last_words(&ended.stderr, "printed no figures"));
        Figures::of_line(&ended.stdout).ok_or_else(failed)
    }

    fn fastest(&self, transfer: &Transfer) -> Figures {
        let runs = (0..self.rounds).map(|_| simulated((transfer.plan)()));
        let (segments, seconds) = runs.min_by(|(_, one), (_, other)| one[1].total_cmp(&other[1])).unwrap_or_default();
        Figures { segments, seconds, memory: peak_memory() }
    }
}

impl Figures {
    fn line(&self) -> String {
        let Self { segments, seconds: [simulated, spent], memory } = self;
        format!("{segments} {simulated} {spent} {memory}\n")
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
        let mut next = || numbers.next();
        Some(Self { segments: next()?, seconds: [next()?, next()?], memory: next()? })
    }

    fn columns(&self) -> String {
        let Self { segments, seconds: [simulated, spent], memory } = self;
        format!("{spent:>8.3}{:>9.2}{:>8.1}{memory:>7.1}", segments / spent / 1e6, simulated / spent)
    }
}

/// Returns how fairly a thousand flows share a link, and how steadily they fill it.
fn fairness() -> String {
    const FLOWS: u16 = 1_000;
    const SECONDS: u64 = 60;
    let mut simulation = started(plan(10_000, 50, SECONDS, |plan| plan.request.streams = FLOWS));
    let acknowledged = |simulation: &Simulation| simulation.segments().map(|[_, all]| all as f64).collect::<Vec<_>>();
    let mut courses = vec![vec![0.0; usize::from(FLOWS)]];
    for second in 1..=SECONDS {
        simulation.run_until(Time::ZERO + Span::from_secs(second));
        courses.push(acknowledged(&simulation));
    }
    let between = |from: usize, to: usize| -> Vec<f64> {
        courses[to].iter().zip(&courses[from]).map(|(to, from)| to - from).collect()
    };
    let sums: Vec<f64> = (11..courses.len()).map(|second| between(second - 1, second).iter().sum()).collect();
    let (least, most) = sums.iter().fold((f64::MAX, 0.0_f64), |(least, most), sum| (least.min(*sum), most.max(*sum)));
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    let last = courses.len() - 1;
    let mut text = format!("\n{FLOWS} flows on 10 Gbit/s x 50 ms, {SECONDS} s\n\n");
    let fair = [jain(&between(0, last)), jain(&between(last - 10, last))];
    let _ = writeln!(text, "  Jain's index of all {:.3}, of the last 10 s {:.3}; asked 0.9", fair[0], fair[1]);
    let share = (most - least) / mean * 100.0;
    let _ = writeln!(text, "  their sum in a second varies by {share:.2} % from the eleventh on; asked < 10 %");
    text
}

/// Returns Jain's index of fairness: one where all are equal.
fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = (values.iter().sum::<f64>(), values.iter().map(|value| value * value).sum::<f64>());
    sum * sum / (values.len() as f64 * squares)
}

/// The most memory that this process has had, in MB.
fn peak_memory() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib: f64 = line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default();
    kib * 1024.0 / 1e6
}

fn common(granularity: Granularity) -> Plan {
    plan(1_000, 100, 20, |plan| plan.granularity = granularity)
}

fn far(granularity: Granularity) -> Plan {
    plan(100_000, 200, 60, |plan| plan.granularity = granularity)
}

fn many(granularity: Granularity) -> Plan {
    plan(100_000, 50, 10, |plan| {
        plan.granularity = granularity;
        plan.request.streams = 10_000;
    })
}

fn satellite(granularity: Granularity) -> Plan {
    plan(50, 600, 3_600, |plan| plan.granularity = granularity)
}

fn lossy(granularity: Granularity) -> Plan {
    plan(1_000, 100, 3_600, |plan| {
        plan.granularity = granularity;
        plan.path.forward.loss = Some(Ratio::new(1e-5));
    })
}

/// Slow start up to a window of 2.6 million segments, of which every second one is lost. A window has at most a
/// gigabyte, so that the segments are small.
fn halved(granularity: Granularity) -> Plan {
    const WINDOW: u64 = 2_600_000;
    plan(100_000, 100, 10, |plan| {
        plan.granularity = granularity;
        plan.path.forward.queue = None;
        plan.path.forward.mtu = ByteCount::new(452);
        plan.request.congestion = Some("reno".to_owned());
        let lost = (0..WINDOW / 2).map(|number| WINDOW + 2 * number).collect();
        plan.path.forward.effects.losses = Some(LossPattern::ListedData(lost));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transfer_can_be_simulated() {
        for transfer in &TRANSFERS {
            let mut plan = (transfer.plan)();
            (plan.request.duration, plan.request.streams) = (Span::from_millis(300), plan.request.streams.min(10));
            assert!(simulated(plan).0 > 0.0, "{}", transfer.name);
        }
    }

    #[test]
    fn figures_are_read_as_they_are_written() {
        let figures = Figures { segments: 1e7, seconds: [20.0, 2.5], memory: 3.25 };
        let read = Figures::of_line(&figures.line()).unwrap();
        assert_eq!(read.columns(), "   2.500     4.00     8.0    3.2");
        assert!(Figures::of_line("1 2 x").is_none());
    }

    #[test]
    fn one_of_two_that_has_all_is_half_fair() {
        assert!((jain(&[3.0, 3.0]) - 1.0).abs() < 1e-12 && (jain(&[3.0, 0.0]) - 0.5).abs() < 1e-12);
    }
}
