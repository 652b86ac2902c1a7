//! Figures as text, for sentences and tables.

use fullpipe_record::BurstRate;

use crate::prelude::*;
use crate::signals::{CaptureView, Row, SenderView, path};

/// Returns the end of a sentence about the stated capacity; nothing where none was stated.
pub(crate) fn could_carry(figures: &SenderView) -> String {
    path::stated_capacity(figures)
        .map_or_else(String::new, |rate| format!("; the path could carry {rate}"))
}

/// Returns ` in 3 streams together`; nothing of one stream.
pub(crate) fn in_streams(figures: &SenderView) -> String {
    match figures.stream_count() {
        1 => String::new(),
        streams => format!(" in {streams} streams together"),
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

/// Returns the figures of a capture that decide.
pub(crate) fn capture_rows(capture: &CaptureEvidence) -> Vec<Row> {
    let place = match capture.point {
        Some(At::Sender) => "at the sender",
        Some(At::Receiver) => "at the receiver",
        Some(_) => "between the ends",
        None => "at a place that the packets do not show",
    };
    let only = capture.only.map(|end| match end {
        At::Sender => "of the sender alone",
        _ => "of the receiver alone",
    });
    let two_way = only.is_none();
    let lost = (capture.lost_before > 0).then(|| count_noun(capture.lost_before, "segment"));
    vec![
        ("captured", Some(place.to_owned())),
        ("captured packets", only.map(str::to_owned)),
        (
            "sent on acknowledgements",
            capture.clocked.map(|share| share.to_string()),
        ),
        (
            "little in flight",
            two_way.then(|| format!("{} of the time", capture.idle)),
        ),
        (
            "sent most often at",
            capture
                .departures
                .map(|burst| sent_most_often_at(burst, capture.sustained)),
        ),
        (
            "acknowledged most often at",
            capture.acknowledgements.map(text_of_burst),
        ),
        (
            "no full segments",
            Some(format!("{} of the packets", capture.partial)),
        ),
        ("lost before this point", lost),
    ]
}

/// Returns the most frequent rate of the data, with what was sustained where that is clearly less.
fn sent_most_often_at(burst: BurstRate, sustained: Option<BitRate>) -> String {
    const FASTER: f64 = 1.1;
    let own = text_of_burst(burst);
    match sustained.filter(|sustained| burst.rate > sustained.scale_by(FASTER)) {
        Some(sustained) => format!("{own}, in bursts; over 200 ms at most {sustained}"),
        None => own,
    }
}

fn text_of_burst(burst: BurstRate) -> String {
    format!("{}, {} of the data", burst.rate, burst.share)
}

impl CaptureView<'_> {
    /// Returns the mean of the bytes in flight.
    pub(crate) fn flight_text(&self) -> String {
        size_text(self.figures.mean_size(|one| one.outstanding))
    }

    /// Returns `over 20 ms that is 30 Mbit/s`.
    pub(crate) fn rate_text(&self) -> String {
        let (rate, rtt) = (self.figures.rate, time_text(self.figures.rtt));
        format!("over {rtt} that is {rate}")
    }

    /// Returns the receiver's window. If neither a handshake nor the data in flight shows its scale,
    /// it is never full.
    pub(crate) fn window_text(&self) -> String {
        match self.figures.mean_size(|one| one.window) {
            None if self.lacks_handshake() => "more, whatever the scale of its windows,".to_owned(),
            window => size_text(window),
        }
    }
}
