use fullpipe_report as report;

use crate::terminal::Terminal;

/// Prints the JSON schema of the document that --json prints, or of the lines that --json-lines prints.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The schema of one line of --json-lines
    #[arg(long)]
    events: bool,
}

pub(crate) fn run(arguments: &Arguments, terminal: &Terminal) {
    terminal.result(&if arguments.events { report::event_schema() } else { report::schema() });
}
