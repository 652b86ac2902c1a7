//! Load engines that are installed here, side by side: alternating in one run, medians, and ratios
//! with their 95 % interval. That prints, and gates nothing; so do `trace`, of programs that read
//! captures, and `web`, of servers of the web. `diagnosis` and `independent` hold the verdicts
//! against planted limits, and `corpus` against the packets of captures; the exit code of the first
//! says whether enough are right, that of the last whether anything is wrong.

mod case;
mod comparison;
mod corpus;
mod diagnosis;
mod emulated;
mod figures;
mod independent;
mod judged;
mod lab;
mod lab_figures;
mod machine;
mod network;
mod process;
mod program;
mod report;
mod start;
mod throughput;
mod trace;
mod web;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand, ValueEnum};
use fullpipe_lab::{AwakeProcessors, keeper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::case::Case;
use crate::comparison::Effort;
use crate::corpus::CorpusCheck;
use crate::diagnosis::LabCases;
use crate::independent::{Drawing, Peer};
use crate::machine::Machine;
use crate::program::Tools;
use crate::report::{Heading, Report, case_head, outcome_text};
use crate::trace::CaptureReading;
use crate::web::WebDownloads;

const AFTER_HELP: &str = "\
Each program runs in turn, in reverse order every other round. A ratio is that
of the rounds (Hodges-Lehmann), with its 95 % interval (signed ranks; Student's
of fewer than six rounds). CPU time is user and system time of client and
server; what the kernel does in interrupts is charged to nobody, so the busy
time of the whole machine stands next to it, and holds whatever else runs here.

iperf3 runs for whole seconds only.

Exit codes: 0 done, whatever came out; 1 of diagnosis: fewer verdicts are right
than must be, of corpus: there is a finding; 2 the command line is wrong; 3
there is no fullpipe to run, or no record to read; 130 interrupted.";

/// The machine lacks what is needed.
const LACKING: u8 = 3;
/// The user stopped it.
const INTERRUPTED: u8 = 130;

/// Compares load engines on this machine: fullpipe, iperf3 and iperf2, in turn.
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_HELP, max_term_width = 80, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    other: Option<Other>,
    /// The cases to compare; everything if not given
    #[arg(value_enum, value_name = "CASE")]
    cases: Vec<Case>,
    /// Number of runs of each program; `start` has 20 rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    rounds: u16,
    /// Length of each run
    #[arg(long, default_value = "2", value_parser = seconds, value_name = "SECONDS")]
    time: f64,
    /// The program [default: next to this one]
    #[arg(long, value_name = "PATH")]
    fullpipe: Option<PathBuf>,
    /// The iperf3 to compare with
    #[arg(long, default_value = "iperf3", value_name = "PATH")]
    iperf3: PathBuf,
    /// The iperf2 to compare with
    #[arg(long, default_value = "iperf", value_name = "PATH")]
    iperf: PathBuf,
    /// Do not keep the processors awake
    #[arg(long)]
    let_sleep: bool,
    /// Print one JSON document; the text goes to standard error
    #[arg(long, short = 'J')]
    json: bool,
}

/// Commands that are no comparison.
#[derive(Debug, Subcommand)]
enum Other {
    /// Hold the diagnosis against transfers with one planted limit each
    Diagnosis(LabCases),
    /// Hold the program against limits drawn from a seed, over paths made by the kernel, with other
    /// programs
    Independent(Drawing),
    /// Hold verdicts on a folder of captures against the packets themselves, and counts against
    /// tshark and tcptrace
    Corpus(CorpusCheck),
    /// Compare how fast captures are read: fullpipe, tcptrace and tshark, in turn
    Trace(CaptureReading),
    /// Compare how fast curl downloads with TLS: from `fullpipe serve --web` and from nginx, in turn
    Web(WebDownloads),
    /// Send or receive as a program does that nobody tuned
    #[command(hide = true)]
    Peer(Peer),
}

fn main() -> ExitCode {
    // Before anything else, because the keeper of an emulated path may not have a second thread.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == keeper::ARGUMENT)
    {
        return keeper::main();
    }
    let cli = Cli::parse();
    let work = |stop: &AtomicBool| match &cli.other {
        Some(Other::Diagnosis(cases)) => {
            let program = fullpipe(cases.judging.fullpipe.as_ref());
            cases.judging.run(cases, &program, stop)
        }
        Some(Other::Independent(cases)) => {
            let program = fullpipe(cases.judging.fullpipe.as_ref());
            cases.judging.run(cases, &program, stop)
        }
        Some(Other::Corpus(check)) => check.run(stop),
        Some(Other::Trace(reading)) => reading.run(&fullpipe(reading.fullpipe.as_ref()), stop),
        Some(Other::Web(downloads)) => downloads.run(&fullpipe(downloads.fullpipe.as_ref()), stop),
        Some(Other::Peer(peer)) => peer.run(),
        None => run(&cli, stop),
    };
    match interrupt_flag().map(|stop| work(&stop)) {
        Ok(code) => code,
        Err(error) => {
            say(
                true,
                &format!("fullpipe-bench: cannot listen for Ctrl-C: {error}\n"),
            );
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, stop: &AtomicBool) -> ExitCode {
    let tools = Tools::find(
        fullpipe(cli.fullpipe.as_ref()),
        cli.iperf3.clone(),
        cli.iperf.clone(),
        stop,
    );
    if stop.load(Ordering::Relaxed) {
        return ExitCode::from(INTERRUPTED);
    }
    if let Err(why) = &tools.fullpipe.version {
        let hint = "`cargo build --release` builds it, and --fullpipe PATH names another";
        say(true, &format!("fullpipe-bench: {why}; {hint}\n"));
        return ExitCode::from(LACKING);
    }
    let keeps_awake = !cli.let_sleep && AwakeProcessors::keep_awake().is_held();
    let effort = Effort {
        seconds: cli.time,
        rounds: cli.rounds.into(),
        keeps_awake,
    };
    let heading = Heading::new(Machine::read(), effort, &tools);
    say(cli.json, &heading.text());
    let mut report = Report::new(heading);
    let interrupted = cases(cli).into_iter().any(|case| {
        say(cli.json, &format!("\n{}", case_head(case)));
        let _awake = keeps_awake.then(AwakeProcessors::keep_awake);
        let outcome = case.run(effort, &tools, stop);
        say(cli.json, &outcome_text(&outcome));
        let interrupted = outcome.interrupted;
        report.add(case, outcome);
        interrupted
    });
    if cli.json {
        say(false, &format!("{}\n", report.json()));
    }
    if interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    }
}

fn cases(cli: &Cli) -> Vec<Case> {
    if cli.cases.is_empty() {
        Case::value_variants().to_vec()
    } else {
        cli.cases.clone()
    }
}

/// Returns where cargo puts both programs.
fn fullpipe(named: Option<&PathBuf>) -> PathBuf {
    let sibling = || {
        std::env::current_exe()
            .unwrap_or_default()
            .with_file_name("fullpipe")
    };
    named.cloned().unwrap_or_else(sibling)
}

/// A flag that Ctrl-C sets, so that what there is gets printed; the second Ctrl-C ends the program
/// at once, and the kernel what it has started.
fn interrupt_flag() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            INTERRUPTED.into(),
            Arc::clone(&flag),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text} is no number of seconds"))?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("0.1 to 3600 seconds are possible".to_owned())
    }
}

/// A reader that went away is no failure of ours.
fn say(to_errors: bool, text: &str) {
    let (mut output, mut errors) = (io::stdout(), io::stderr());
    let to: &mut dyn Write = if to_errors { &mut errors } else { &mut output };
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_run_has_a_sensible_length() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(
            ["0", "-1", "nan", "inf", "x"]
                .iter()
                .all(|text| seconds(text).is_err())
        );
    }
}
