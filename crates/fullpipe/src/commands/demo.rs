use fullpipe_experiment::{ExperimentTarget, LabTarget, VirtualTarget, run as run_loop};
use fullpipe_lab::{Backend, Lab, LabPlan, check_congestion_control};
use fullpipe_record::{Experiment, Steady};

use super::lab::parse_backend;
use super::prelude::*;
use crate::commands::emulated::EmulatedArguments;
use crate::values::some_test_time;

/// The whole loop on an emulated path: predict, measure, fix, prove.
///
/// Joins two hosts by an emulated long path, predicts and measures one TCP stream, names its limit,
/// applies the best remedy, measures again, and undoes the remedy.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    #[command(flatten)]
    emulated: EmulatedArguments,
    /// Congestion control: cubic, reno, bbr, …
    #[arg(
        long,
        help_heading = "Load",
        short = 'C',
        default_value = "cubic",
        value_name = "NAME"
    )]
    congestion: String,
    /// Duration of each measurement
    #[arg(
        long,
        short = 't',
        help_heading = "Load",
        default_value = "12",
        value_parser = some_test_time,
        value_name = "SECONDS"
    )]
    time: Span,
    /// Seed of the random losses
    #[arg(long, help_heading = "Lab", default_value_t = 1, value_parser = integer_parser(0..=u64::MAX), value_name = "NUMBER")]
    seed: u64,
    /// Simulate the path and both hosts in virtual time instead of building a lab
    ///
    /// The hosts have the default settings of Linux 6.18 but for `--sender` and `--receiver`. No
    /// processor and no network card take part. Takes a moment, and needs no privileges.
    #[arg(long = "virtual", help_heading = "Lab", conflicts_with = "backend")]
    is_virtual: bool,
    /// Backend of the path: auto, tun, packet or kernel
    ///
    /// `tun` connects the hosts to the emulated link by TUN interfaces, `packet` by packet sockets.
    /// `auto` uses `tun` if /dev/net/tun can be opened, or else `packet`. `kernel` replaces the
    /// emulated link by the tbf and netem of the kernel, which support only rate, queue, loss and
    /// delay.
    #[arg(long, help_heading = "Lab", default_value = "auto", value_parser = parse_backend, value_name = "KIND")]
    backend: Backend,
    #[command(flatten)]
    output: OutputArguments,
}

impl RunCommand for DemoArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let path = self.emulated.emulated_path()?;
        let [sender, receiver] = self.emulated.host_changes()?;
        if self.is_virtual {
            let target = VirtualTarget::new(path, [&sender, &receiver], self.seed);
            return show_loop(self, &target, terminal);
        }
        check_congestion_control(&self.congestion)?;
        terminal.print_progress(&report::experiment_announcement(self.time));
        let backend = self.backend;
        let lab = Lab::start(&LabPlan {
            path,
            seed: self.seed,
            sender,
            receiver,
            backend,
            interactive: false,
        })?;
        show_loop(self, &LabTarget::new(&lab), terminal)
    }
}

/// Runs the loop over `target` and prints its stages.
fn show_loop(
    arguments: &DemoArguments,
    target: &dyn ExperimentTarget,
    terminal: &Terminal,
) -> Result {
    let flag = super::interrupt_flag()?;
    let request = Request {
        congestion: Some(arguments.congestion.clone()),
        duration: arguments.time,
        ..Request::default()
    };
    let mut progress = DemoProgress {
        request: &request,
        steady: None,
        is_proof: false,
        terminal,
    };
    let experiment = run_loop(target, &request, Interrupt(&flag), &mut |event| {
        terminal.print_event(event);
        progress.show_event(event);
    })?;
    terminal.print_result(&report::experiment_result(&experiment));
    terminal.print_event(&Event::Experiment(Box::new(experiment.clone())));
    terminal.print_content(Content::Experiment {
        experiment: Box::new(experiment.clone()),
    });
    check_outcome(&experiment)
}

/// Prints the stages of the loop as text.
struct DemoProgress<'p> {
    request: &'p Request,
    /// Steady part of the last measurement.
    steady: Option<Steady>,
    /// True once a remedy is applied.
    is_proof: bool,
    terminal: &'p Terminal,
}

impl DemoProgress<'_> {
    fn show_event(&mut self, event: &Event) {
        let text = match event {
            Event::Predicted(predicted) => {
                report::path_text(&predicted.path, &predicted.prediction) + &self.interval_head()
            }
            Event::Interval(interval) => report::interval_line(self.request, interval) + "\n",
            Event::Measurement(measurement) => self.measurement_text(measurement),
            Event::Remedies(remedies) => report::remedies_text(remedies, self.steady),
            Event::Applied(applied) => {
                self.is_proof = true;
                report::proof_begins(&applied.remedy, &applied.prediction) + &self.interval_head()
            }
            Event::Undone(undone) => report::undo_text(undone),
            _ => return,
        };
        self.terminal.print_progress(&text);
    }

    fn interval_head(&self) -> String {
        let head = report::interval_head(self.request);
        format!("\n{head}\n")
    }

    fn measurement_text(&mut self, measurement: &Measurement) -> String {
        self.steady = measurement.summary.steady;
        let mut text = report::measurement_figures(measurement);
        if let Some(verdict) = measurement.limit.as_ref().filter(|_| !self.is_proof) {
            text += &report::verdict_text(verdict);
        }
        text
    }
}

/// Fails if an experiment was cut short, is invalid, or could not be undone.
fn check_outcome(experiment: &Experiment) -> Result {
    let measurements = [
        Some(&experiment.measurement),
        experiment.proof.as_ref().map(|proof| &proof.measurement),
    ];
    let mut measurements = measurements.into_iter().flatten();
    let is_restored = experiment
        .undone
        .as_ref()
        .is_none_or(|undone| undone.restored);
    let is_good = is_restored && measurements.all(|measurement| measurement.validity.is_valid());
    Failure::after_report(None, experiment.interrupted, is_good)
}
