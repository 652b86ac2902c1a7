//! The format of the result, for commands that run for a while.

use std::path::{Path, PathBuf};

use crate::terminal::Format;

/// The flags for JSON.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Print one JSON document
    #[arg(long, short = 'J')]
    json: bool,
    /// Print one JSON object a line for each event
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
    /// Write the result as one HTML file with charts
    #[arg(long, value_name = "FILE", conflicts_with = "json_lines")]
    html: Option<PathBuf>,
}

impl OutputArguments {
    pub(crate) fn format(&self) -> Format {
        Format::of(self.json, self.json_lines)
    }

    pub(crate) fn page(&self) -> Option<&Path> {
        self.html.as_deref()
    }
}
