//! The format of the result, for commands that run for a while.

use super::prelude::*;

/// The form of standard output, and the file for the result as a page.
pub(crate) type OutputChoice<'o> = (OutputFormat, Option<&'o Path>);

/// The flag for JSON of commands that end at once.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct JsonArgument {
    /// Print one JSON document
    #[arg(long, short = 'J', help_heading = "Output")]
    json: bool,
}

impl JsonArgument {
    pub(crate) fn output_choice(self) -> OutputChoice<'static> {
        (OutputFormat::from_flags(self.json, false), None)
    }
}

/// The flags for JSON.
#[derive(Debug, Clone, Args)]
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
    pub(crate) fn output_choice(&self) -> OutputChoice<'_> {
        (
            OutputFormat::from_flags(self.json, self.json_lines),
            self.html.as_deref(),
        )
    }
}
