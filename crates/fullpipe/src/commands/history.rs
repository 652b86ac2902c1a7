use fullpipe_store::Store;
use jiff::Timestamp;

use super::prelude::*;
use crate::values::parse_past_time;

/// Show what changed on the way to a host, and when.
///
/// Shows the runs towards HOST that the archive keeps: a series for each path, load and direction,
/// with the medians of each day. Runs that are invalid take no part.
#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// The other end, by name or address
    host: String,
    /// Runs since this time: 30d, 12h, 2026-03-12
    #[arg(long, value_parser = parse_past_time, value_name = "TIME")]
    since: Option<Timestamp>,
    #[command(flatten)]
    json: JsonArgument,
    /// Write the result as one HTML file with charts
    #[arg(
        long,
        help_heading = "Output",
        value_name = "FILE",
        hide_short_help = true
    )]
    html: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgument,
}

impl RunCommand for HistoryArguments {
    fn output(&self) -> OutputChoice<'_> {
        (self.json.output_choice().0, self.html.as_deref())
    }

    fn run(&self, terminal: &Terminal) -> Result {
        let history = Store::open(&self.place.location()?)?.host_history(&self.host, self.since)?;
        terminal.print_result(&report::history_text(&history));
        terminal.print_content(Content::History {
            history: Box::new(history),
        });
        Ok(())
    }
}
