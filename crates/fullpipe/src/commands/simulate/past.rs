//! Measurements that are simulated again, with changes.

use fullpipe_experiment::{ExperimentError, PastChange, PastOptions, PastTransfer};

use crate::commands::document;
use crate::commands::prelude::*;
use crate::sibling::read_sibling;

/// Flags of transfers that were never measured.
const OF_NEW_TRANSFERS: [&str; 7] = [
    "scenario",
    "PathLists",
    "LoadArguments",
    "LoadLists",
    "granularity",
    "RowArguments",
    "csv",
];

/// The measurement, and the changes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Past measurement")]
pub(super) struct PastArguments {
    /// Measurement to simulate again, as measure, demo or lab run print it with --json; - is
    /// standard input
    ///
    /// An emulated path is in the record. Any other is inferred from what was measured, which the
    /// output states; keys of --path override that.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_NEW_TRANSFERS)]
    from: Option<String>,
    /// Simulate it with this change, too: congestion=bbr, queue=0.1bdp, `receiver.tcp_rmem=64MiB`;
    /// repeatable
    ///
    /// Keys are congestion, streams, window, buffer, pacing, those of --path, and those of --sender
    /// and --receiver behind `sender.` and `receiver.`. Several changes are also simulated all
    /// together. `remedies` stands for each remedy for the limit, the best first.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        requires = "from",
        conflicts_with_all = OF_NEW_TRANSFERS,
        value_parser = |text: &str| PastChange::read(text)
    )]
    what_if: Vec<PastChange>,
}

impl PastArguments {
    /// Returns the measurements in the file, if there is one.
    ///
    /// # Errors
    /// Fails if it cannot be read or has no measurement.
    pub(super) fn read_transfers(&self) -> Result<Option<Vec<PastTransfer>>> {
        self.from.as_deref().map(read_past_transfers).transpose()
    }

    /// Simulates measurements that were made and prints what comes out.
    pub(super) fn run(
        &self,
        past: Vec<PastTransfer>,
        options: &PastOptions<'_>,
        interrupt: Interrupt<'_>,
        terminal: &Terminal,
    ) -> Result {
        let mut reports = Vec::new();
        let mut interrupted = false;
        for past in past {
            let files = &|name: &str| read_sibling(Path::new(""), name);
            let report = match past.what_if(&self.what_if, options, files, interrupt) {
                Err(ExperimentError::Interrupted) if !reports.is_empty() => {
                    interrupted = true;
                    break;
                }
                report => report?,
            };
            terminal.print_result(&report::what_if(&report));
            terminal.print_event(&Event::WhatIf(Box::new(report.clone())));
            reports.push(report);
        }
        terminal.print_content(Content::WhatIf { what_if: reports });
        Failure::after_report(None, interrupted, true)
    }
}

/// Reads the measurements in a file.
fn read_past_transfers(file: &str) -> Result<Vec<PastTransfer>> {
    let (name, document) = (document::name_of(file), document::read_document(file)?);
    PastTransfer::all_in(document).map_err(|why| usage_failure(format!("{name}: {why}")))
}
