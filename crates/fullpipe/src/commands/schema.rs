use fullpipe_report as report;

use super::Run;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// Print the JSON schema of what --json and --json-lines print.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print the schema of one line of --json-lines instead
    #[arg(long)]
    events: bool,
}

impl Run for Arguments {
    fn run(&self, terminal: &Terminal) -> Result<(), Failure> {
        terminal.result(&if self.events { report::event_schema() } else { report::schema() });
        Ok(())
    }
}
