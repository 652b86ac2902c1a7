//! The format of the result, for commands that run for a while.

use crate::terminal::Format;

/// The flags for JSON.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Print one JSON document
    #[arg(long, short = 'J')]
    json: bool,
    /// Print one JSON object a line for each event
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
}

impl OutputArguments {
    pub(crate) fn format(self) -> Format {
        Format::of(self.json, self.json_lines)
    }
}
