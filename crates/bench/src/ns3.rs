//! The same transfers in ns-3, where the distribution's package is installed.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fullpipe_record::Framing;
use fullpipe_sim::{Granularity, Plan, Simulation};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use tempfile::TempDir;

use crate::process::{Process, RunError, last_words};
use crate::transfer::{plan, simulated};

/// The program for ns-3.
const SOURCE: &str = include_str!("ns3.cc");

/// Modules of ns-3 that it needs: the linker takes none from another.
const MODULES: [&str; 6] = ["applications", "point-to-point", "internet", "traffic-control", "network", "core"];

/// Payload of a segment.
const SEGMENT: f64 = 1448.0;

/// Length of each transfer: ns-3 needs minutes for a second of a fast one.
const SECONDS: u64 = 4;

/// Paths: Mbit/s, milliseconds, share of packets lost.
const CELLS: [(u64, u64, f64); 4] = [(100, 20, 0.0), (100, 20, 1e-3), (1_000, 20, 0.0), (1_000, 20, 1e-3)];

/// Longest that the compiler, or a run, may take.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Result of one transfer.
struct Outcome {
    /// Segments a second of processor time.
    speed: f64,
    goodput: BitRate,
}

/// Returns the table of both simulators, or why ns-3 cannot be run.
///
/// # Errors
/// If it is interrupted.
pub(crate) fn comparison(stop: &AtomicBool) -> Result<String, RunError> {
    let mut text =
        format!("\nThe same in ns-3: one CUBIC connection, {SECONDS} s, segment by segment, a BDP of queue\n\n");
    let program = match Compiled::new(stop) {
        Ok(program) => program,
        Err(RunError::Failed(why)) => return Ok(format!("{text}  skipped: {why}\n")),
        Err(interrupted) => return Err(interrupted),
    };
    let _ = writeln!(text, "  {:<32}{:>24}{:>24}", "", "ns-3", "fullpipe");
    for (mbps, rtt, loss) in CELLS {
        let name = format!("{mbps} Mbit/s x {rtt} ms, loss {loss}");
        let plan = cell(mbps, rtt, loss);
        let [theirs, ours] = [program.run(&plan, stop), ours(plan)].map(|outcome| match outcome {
            Ok(outcome) => format!("{:.3} M/s {:>10}", outcome.speed / 1e6, outcome.goodput.to_string()),
            Err(error) => error.to_string(),
        });
        let _ = writeln!(text, "  {name:<32}{theirs:>24}{ours:>24}");
    }
    Ok(text)
}

fn cell(mbps: u64, rtt: u64, loss: f64) -> Plan {
    plan(mbps, rtt, SECONDS, |plan| {
        plan.granularity = Granularity::Segment;
        for direction in [&mut plan.path.forward, &mut plan.path.reverse] {
            // Its links add two bytes to a packet.
            direction.framing = Framing::Ip;
        }
        plan.path.forward.loss = (loss > 0.0).then(|| Ratio::new(loss));
    })
}

fn ours(plan: Plan) -> Result<Outcome, RunError> {
    let measured = Simulation::new(plan.clone()).map_err(RunError::failed)?.measure();
    let (segments, [_, spent]) = simulated(plan);
    Ok(Outcome { speed: segments / spent, goodput: measured.summary.rate })
}

/// The program, compiled into a folder that goes with it.
struct Compiled {
    folder: TempDir,
}

impl Compiled {
    fn new(stop: &AtomicBool) -> Result<Self, RunError> {
        let folder = TempDir::new().map_err(RunError::failed)?;
        let source = folder.path().join("ns3.cc");
        fs::write(&source, SOURCE).map_err(RunError::failed)?;
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O2", "-o"]).arg(program_in(folder.path())).arg(source);
        compiler.args(flags(stop)?);
        let ended = Process::start(&mut compiler)?.finish(TIMEOUT, stop)?;
        if !ended.succeeded {
            return Err(RunError::Failed(format!("g++: {}", last_words(&ended.stderr, "failed"))));
        }
        Ok(Self { folder })
    }

    fn run(&self, plan: &Plan, stop: &AtomicBool) -> Result<Outcome, RunError> {
        let path = &plan.path.forward;
        let mut command = Command::new(program_in(self.folder.path()));
        command.args([path.rate.unwrap_or_default().bps(), plan.path.rtt().as_nanos() / 2].map(|n| n.to_string()));
        command
            .args([path.queue.unwrap_or_default().get().to_string(), path.loss.unwrap_or_default().get().to_string()]);
        command.arg(SECONDS.to_string());
        let ended = Process::start(&mut command)?.finish(TIMEOUT, stop)?;
        let numbers: Vec<f64> = ended.stdout.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [bytes, spent] = numbers[..] else {
            return Err(RunError::Failed(last_words(&ended.stderr, "printed no figures")));
        };
        let goodput = BitRate::of(ByteCount::from_f64(bytes), Span::from_secs(SECONDS));
        Ok(Outcome { speed: bytes / SEGMENT / spent, goodput })
    }
}

fn program_in(folder: &Path) -> PathBuf {
    folder.join("ns3")
}

/// Returns what the compiler is to be given for the installed ns-3, whose packages carry its version in their names.
fn flags(stop: &AtomicBool) -> Result<Vec<String>, RunError> {
    let ask = |arguments: &[String]| -> Result<String, RunError> {
        let ended = Process::start(Command::new("pkg-config").args(arguments))?.finish(TIMEOUT, stop)?;
        if ended.succeeded { Ok(ended.stdout) } else { Err(RunError::Failed(last_words(&ended.stderr, "pkg-config"))) }
    };
    let all = ask(&["--list-all".to_owned()])?;
    let package = |module: &&str| {
        let names = all.lines().filter_map(|line| line.split_whitespace().next());
        let mut found = names.filter(|name| name.contains("ns3") && name.ends_with(&format!("-{module}")));
        found.next().map(str::to_owned).ok_or_else(|| RunError::Failed("ns-3 is not installed (libns3-dev)".to_owned()))
    };
    let packages = MODULES.iter().map(package).collect::<Result<Vec<_>, _>>()?;
    let flags = ask(&[vec!["--cflags".to_owned(), "--libs".to_owned()], packages].concat())?;
    Ok(flags.split_whitespace().map(str::to_owned).collect())
}
