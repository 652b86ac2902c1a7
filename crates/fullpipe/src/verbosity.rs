//! The steps of the program, reported on standard error.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::terminal::{LogWriter, shows_colours};

/// Reports the program's own events from now on: steps with 1, details with 2, everything with
/// more. Reports nothing with 0.
pub(crate) fn report_events(verbosity: u8) {
    let level = match verbosity {
        0 => return,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| LogWriter)
        .with_ansi(shows_colours(&io::stderr()))
        .with_timer(uptime())
        // A reader that went away is no failure of ours.
        .log_internal_errors(false);
    // Libraries below have events of their own, which would drown ours.
    let ours = Targets::new().with_target("fullpipe", level);
    // Fails only where events are reported already.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(ours))
        .try_init();
}
