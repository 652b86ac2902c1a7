//! Figures as text, for sentences and tables.

use fullpipe_units::{BitRate, ByteCount, Ratio, Span, count_noun};

use crate::signals::path;
use crate::signals::sender::SenderView;

/// A row of the figures that decided: its name, and its text where the evidence has it.
pub(crate) type Row = (&'static str, Option<String>);

/// Figures that the sentences of most limits have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BasicFacts {
    /// Mean rate of all streams.
    pub(crate) rate: BitRate,
    /// Median round-trip time of the judged part.
    pub(crate) rtt: Option<Span>,
    /// Round-trip time of the idle path.
    pub(crate) idle_rtt: Option<Span>,
    streams: u16,
    /// Payload that the stated bandwidth can carry.
    capacity: Option<BitRate>,
}

impl BasicFacts {
    pub(crate) fn from_figures(figures: &SenderView) -> Self {
        Self {
            rate: figures.rate,
            rtt: figures.rtt,
            idle_rtt: figures.idle_rtt,
            streams: figures.stream_count(),
            capacity: path::stated_capacity(figures),
        }
    }

    /// Returns the end of a sentence about the stated capacity; nothing where none was stated.
    pub(crate) fn could_carry(&self) -> String {
        self.capacity
            .map_or_else(String::new, |rate| format!("; the path could carry {rate}"))
    }

    /// Returns ` in 3 streams together`; nothing of one stream.
    pub(crate) fn in_streams(&self) -> String {
        match self.streams {
            1 => String::new(),
            streams => format!(" in {streams} streams together"),
        }
    }
}

/// Returns the mean of the bytes in flight, of the advertised window.
pub(crate) fn in_flight(figures: &SenderView) -> Row {
    let sizes = (
        figures.mean_size(|snapshot| snapshot.outstanding),
        figures.mean_size(|snapshot| snapshot.window),
    );
    ("in flight mean", part_of(sizes))
}

/// Returns the mean of the bytes that were written and not sent.
pub(crate) fn unsent_row(figures: &SenderView) -> Row {
    (
        "unsent mean",
        figures
            .mean_size(|snapshot| snapshot.not_sent)
            .map(|size| size.to_string()),
    )
}

/// Returns the mean of the bytes in the pipe, of the congestion window.
fn in_pipe(figures: &SenderView) -> Row {
    if figures.evidence.capture.is_some() {
        // A capture shows no congestion window.
        return in_flight(figures);
    }
    let sizes = (
        figures.mean_size(|snapshot| snapshot.sample.pipe_bytes()),
        figures.mean_size(|snapshot| snapshot.cwnd),
    );
    ("pipe mean", part_of(sizes))
}

/// Returns the mean of the bytes in the send buffer, of its largest size.
pub(crate) fn queued_row(figures: &SenderView) -> Row {
    let sizes = (
        figures.mean_size(|snapshot| snapshot.queued),
        figures.max_size(|snapshot| snapshot.sndbuf),
    );
    ("wmem_queued mean", part_of(sizes))
}

/// Returns the share of the time in which the sender had nothing to send.
pub(crate) fn idle_row(figures: &SenderView) -> Row {
    (
        "idle",
        figures
            .idle_share()
            .map(|idle| format!("{idle} of the judged time")),
    )
}

/// Returns the row with the number of times that the streams went into recovery.
fn recoveries_row(figures: &SenderView) -> Row {
    (
        "recoveries seen",
        figures
            .retransmitted_segments()
            .map(|lost| lost.episodes.to_string()),
    )
}

/// Returns the payload that the stated bandwidth can carry.
fn capacity_row(figures: &SenderView) -> Row {
    (
        "stated capacity",
        path::stated_capacity(figures).map(|rate| rate.to_string()),
    )
}

/// Returns the figures that show the course of the windows and of the buffer.
pub(crate) fn trend_rows(figures: &SenderView) -> Vec<Row> {
    vec![
        in_flight(figures),
        in_pipe(figures),
        queued_row(figures),
        unsent_row(figures),
        idle_row(figures),
    ]
}

/// Returns the figures that show the load of the path.
pub(crate) fn of_path(figures: &SenderView) -> Vec<Row> {
    vec![
        in_pipe(figures),
        unsent_row(figures),
        recoveries_row(figures),
        capacity_row(figures),
    ]
}

/// Returns a clock of the kernel as a share of the time in which there was something to send.
pub(crate) fn clock_row(name: &'static str, share: Option<Ratio>) -> Row {
    (
        name,
        share.map(|share| format!("{share} of the time data was under way, by the kernel's clock")),
    )
}

fn part_of((part, whole): (Option<ByteCount>, Option<ByteCount>)) -> Option<String> {
    Some(format!("{} of {}", part?, whole?))
}

/// `100 of 3 streams`.
pub(crate) fn of_streams(snapshots: usize, streams: usize) -> String {
    format!("{snapshots} of {}", count_noun(streams, "stream"))
}

pub(crate) fn size_text(size: Option<ByteCount>) -> String {
    size.map_or_else(|| UNKNOWN_FIGURE.to_owned(), |size| size.to_string())
}

pub(crate) fn time_text(span: Option<Span>) -> String {
    span.map_or_else(|| UNKNOWN_FIGURE.to_owned(), |span| span.to_string())
}

pub(crate) fn rate_text(rate: Option<BitRate>) -> String {
    rate.map_or_else(|| UNKNOWN_FIGURE.to_owned(), |rate| rate.to_string())
}

/// Returns the clause that states the `rate` which a size allows over `rtt`; empty where one of them
/// is unknown.
pub(crate) fn rate_clause(rate: Option<BitRate>, rtt: Option<Span>) -> String {
    rate.zip(rtt).map_or_else(String::new, |(rate, rtt)| {
        format!(", which is {rate} over {rtt}")
    })
}

/// In place of a figure that the evidence does not have.
const UNKNOWN_FIGURE: &str = "an unknown amount";
