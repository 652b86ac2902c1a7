//! `fullpipe diff`: two results, or two settings measured in pairs.

mod documents;

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod pairs;

        use crate::commands::load::AccessArguments;
    } else {
        use super::elsewhere::{AccessArguments, pairs};
    }
}

use clap::Arg;
use fullpipe_experiment::{comparability_faults, compare_samples};
use fullpipe_record::DifferenceReport;

use super::prelude::*;
use crate::values::some_test_time;

/// The difference between two results or settings, with its interval.
///
/// `fullpipe diff A B` compares what measure or diagnose printed with --json, or what the archive
/// keeps. A and B are files, identifiers of `fullpipe store list`, or lists of both with commas; a
/// file may hold several documents, an array of them, or the events of --json-lines; - is standard
/// input.
///
/// `fullpipe diff HOST --pairs 12 -- -C cubic -- -C bbr` measures two settings in pairs of random
/// order, A behind the first -- and B behind the second, with the flags of measure. What happens to
/// the path meanwhile falls on both.
#[derive(Debug, Args)]
#[command(mut_args(of_pairs))]
pub(crate) struct DiffArguments {
    /// Files or identifiers of A; with --pairs, the server: HOST or HOST:PORT
    #[arg(value_name = "A|HOST")]
    a: String,
    /// Files or identifiers of B
    #[arg(required_unless_present_any = ["pairs", "sides"], conflicts_with_all = ["pairs", "sides"])]
    b: Option<String>,
    /// Flags of A, then -- and those of B
    #[arg(last = true, requires = "pairs", value_name = "FLAGS")]
    sides: Vec<String>,
    /// Measure so many pairs of runs
    #[arg(
        long,
        value_name = "N",
        value_parser = integer_parser(2..=1000_u32),
        requires = "sides",
        help_heading = "Pairs"
    )]
    pairs: Option<u32>,
    /// Duration of each run [default: 5]
    #[arg(long, short, value_parser = some_test_time, value_name = "SECONDS", help_heading = "Pairs")]
    time: Option<Span>,
    /// Send more than 1 GiB, and UDP faster than 10 Mbit/s, without asking
    #[arg(long, help_heading = "Pairs")]
    yes: bool,
    /// Compare though path, MTU, kernel or version of the program differ
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    archive: PlaceArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl RunCommand for DiffArguments {
    fn output(&self) -> OutputChoice<'_> {
        self.output.output_choice()
    }

    fn run(&self, terminal: &Terminal) -> Result {
        match (self.pairs, &self.b) {
            (Some(pairs), _) => pairs::run(self, pairs, terminal),
            (None, Some(b)) => self.compare_measurements(b, terminal),
            (None, None) => Err(usage_failure(
                "one result alone has no difference; name a second one",
            )),
        }
    }
}

impl DiffArguments {
    /// Compares measurements that are there.
    fn compare_measurements(&self, b: &str, terminal: &Terminal) -> Result {
        if self.a == "-" && b == "-" {
            return Err(usage_failure("A and B cannot both be standard input"));
        }
        let samples = [
            documents::read_runs(&self.a, &self.archive)?,
            documents::read_runs(b, &self.archive)?,
        ];
        let reasons = comparability_faults(&samples[0].measurements, &samples[1].measurements);
        if !self.anyway && !reasons.is_empty() {
            let reasons = reasons.join("; ");
            return Err(usage_failure(format!(
                "A and B are not comparable: {reasons}; add --anyway to compare them"
            )));
        }
        let compared = compare_samples(samples)?;
        print_difference(
            DifferenceReport {
                incomparable: reasons,
                ..compared
            },
            None,
            terminal,
        );
        Ok(())
    }
}

/// Only pairs are measured, and only they have a server. That B needs no pairs would make up for
/// their absence. The archive has what was measured before.
fn of_pairs(flag: Arg) -> Arg {
    if flag.get_id() == "store" {
        return flag.conflicts_with("pairs");
    }
    let is_of_pairs = matches!(
        flag.get_help_heading(),
        Some("Server" | "Security" | "Pairs")
    );
    if is_of_pairs && flag.get_id() != "pairs" {
        flag.requires("pairs").conflicts_with("b")
    } else {
        flag
    }
}

/// Prints the report.
fn print_difference(compared: DifferenceReport, error: Option<&ErrorReport>, terminal: &Terminal) {
    terminal.print_result(&report::difference_text(&compared));
    terminal.print_event(&Event::Difference(Box::new(compared.clone())));
    terminal.print_report(
        Content::Difference {
            difference: Box::new(compared),
        },
        error,
    );
}
