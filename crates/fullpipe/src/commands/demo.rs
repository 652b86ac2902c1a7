use std::path::Path;

use fullpipe_experiment::{Interrupt, LabTarget, run as run_loop};
use fullpipe_lab::{Backend, Lab, Plan, find_congestion_control};
use fullpipe_record::{Change, Content, Document, Event, Experiment, Request, Steady};
use fullpipe_report as report;
use fullpipe_scenario::{PathSpec, parse_host_flag, parse_path_flag_with};
use fullpipe_units::Span;

use crate::cli::{OutputArguments, backend, duration};
use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::sibling::read_sibling;
use crate::terminal::Terminal;

/// Two hosts, an emulated long path between them, and one TCP stream: says what the path should carry, predicts, measures,
/// names the limit, applies the best remedy, measures again, and undoes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The path; what is not named stays as in `rate=1G,rtt=100ms,loss=0%,queue=1bdp` with `mtu=1500,framing=ethernet`
    #[arg(long, value_name = "KEY=VALUE,…")]
    path: Option<String>,
    /// Settings of the sending host, as in a scenario: `tcp_wmem=64MiB,…`
    #[arg(long, value_name = "KEY=VALUE,…")]
    sender: Option<String>,
    /// Settings of the receiving host
    #[arg(long, value_name = "KEY=VALUE,…")]
    receiver: Option<String>,
    /// Congestion control of the stream
    #[arg(long, short = 'C', default_value = "cubic", value_name = "NAME")]
    congestion: String,
    /// How long each measurement lasts
    #[arg(long, short = 't', default_value = "12", value_parser = duration, value_name = "SECONDS")]
    time: Span,
    /// From which losses are drawn
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// How packets reach the emulated link: `tun`, `packet` (packet sockets), or `auto`, the first that this machine permits;
    /// or `kernel`, in place of the link: the kernel's own tbf and netem, for rate, queue, loss and delay alone
    #[arg(long, default_value = "auto", value_parser = backend, value_name = "KIND")]
    backend: Backend,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

pub(crate) fn run(arguments: &Arguments, terminal: &Terminal) -> Result<(), Failure> {
    let path = match &arguments.path {
        Some(flag) => parse_path_flag_with(flag, &PathSpec::demo(), &|file| read_sibling(Path::new(""), file))
            .map_err(|error| in_flag("--path", &error))?,
        None => PathSpec::demo().path()?,
    };
    let sender = changes("--sender", arguments.sender.as_deref())?;
    let receiver = changes("--receiver", arguments.receiver.as_deref())?;
    find_congestion_control(&arguments.congestion)?;
    let flag = super::interrupt_flag()?;

    terminal.progress(&report::begins(arguments.time, terminal.style()));
    let backend = arguments.backend;
    let lab = Lab::start(&Plan { path, seed: arguments.seed, sender, receiver, backend, interactive: false })?;
    let request =
        Request { congestion: Some(arguments.congestion.clone()), duration: arguments.time, ..Request::default() };
    let mut progress = Progress { request: &request, steady: None, is_proof: false, terminal };
    let experiment = run_loop(&LabTarget::new(&lab), &request, Interrupt(&flag), &mut |event| {
        terminal.event(event);
        progress.show(event);
    })?;
    terminal.result(&report::result(&experiment, terminal.style()));
    terminal.event(&Event::Experiment(Box::new(experiment.clone())));
    terminal.document(&Document::new(Content::Experiment { experiment: Box::new(experiment.clone()) }));
    outcome(&experiment)
}

fn changes(flag: &str, text: Option<&str>) -> Result<Vec<Change>, Failure> {
    text.map_or_else(|| Ok(Vec::new()), |text| parse_host_flag(text).map_err(|error| in_flag(flag, &error)))
}

fn in_flag(flag: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(USAGE, format!("{flag}: {error}"))
}

/// Prints the stages of the loop as text.
struct Progress<'p> {
    request: &'p Request,
    /// Steady part of the last measurement.
    steady: Option<Steady>,
    /// True once a remedy is applied.
    is_proof: bool,
    terminal: &'p Terminal,
}

impl Progress<'_> {
    fn show(&mut self, event: &Event) {
        let style = self.terminal.style();
        let print = |text: &str| self.terminal.progress(text);
        match event {
            Event::Predicted(predicted) => {
                print(&report::path(&predicted.path, &predicted.prediction, style));
                print(&format!("\n{}\n", report::interval_head(self.request, style)));
            }
            Event::Interval(interval) => {
                print(&format!("{}\n", report::interval_line(self.request, interval, style)));
            }
            Event::Measurement(measurement) => {
                print(&report::figures(measurement, style));
                if let Some(verdict) = measurement.limit.as_ref().filter(|_| !self.is_proof) {
                    print(&report::judged(verdict, style));
                }
                self.steady = measurement.summary.steady;
            }
            Event::Remedies(remedies) => print(&report::remedies(remedies, self.steady, style)),
            Event::Applied(applied) => {
                print(&report::proof_begins(&applied.remedy, &applied.prediction, style));
                print(&format!("\n{}\n", report::interval_head(self.request, style)));
                self.is_proof = true;
            }
            Event::Undone(undone) => print(&report::undone(undone, style)),
            _ => {}
        }
    }
}

/// An experiment that was cut short, is invalid, or could not be undone is no success.
fn outcome(experiment: &Experiment) -> Result<(), Failure> {
    let measurements = [Some(&experiment.measurement), experiment.proof.as_ref().map(|proof| &proof.measurement)];
    let mut measurements = measurements.into_iter().flatten();
    if experiment.interrupted {
        return Err(Failure::already_printed(INTERRUPTED));
    }
    if experiment.undone.as_ref().is_some_and(|undone| !undone.restored) {
        return Err(Failure::already_printed(FAILED));
    }
    if measurements.any(|measurement| !measurement.validity.is_valid()) {
        return Err(Failure::already_printed(FAILED));
    }
    Ok(())
}
