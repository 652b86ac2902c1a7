//! A measurement under way.

use fullpipe_diagnose::diagnose;
use fullpipe_probe::{StreamSnapshot, TestSnapshot};
use fullpipe_record::{Direction, Evidence, Framing, Measurement, Request, Transport, Verdict};
use fullpipe_report::chart::displayable_text;
use fullpipe_units::{BitRate, Ratio, Span, count_noun};
use ratatui_core::layout::Size;
use ratatui_core::text::Line;

use crate::live::course::TransferHistory;
use crate::live::frame::{
    LivePage, RATE, clock_text, dim_line, named_line, sentence_lines, share_bar,
};

/// Lines from which on streams are drawn, four at least.
const ROOM_FOR_STREAMS: u16 = 18;

/// Lines from which on the limit has a sentence.
const ROOM_FOR_SENTENCE: u16 = 14;

/// Results of earlier measurements that are drawn where there is room.
const MAX_ENDED: usize = 4;

/// Something that happened in a measurement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MeasurementUpdate {
    /// Data begins to flow; the load, with every default filled in.
    Connected(Box<Request>),
    /// A tenth of a second has passed.
    Snapshot(TestSnapshot),
    /// The measurement as if it ended now.
    SoFar(Box<Measurement>),
    /// One of several measurements has ended; its result in a line.
    Ended(String),
}

/// The state of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct MeasurementPage {
    target: String,
    request: Request,
    /// Capacity of the path, if it is known.
    bandwidth: Option<BitRate>,
    is_connected: bool,
    course: TransferHistory,
    idle: Option<Span>,
    limit: Option<Verdict>,
    /// The results of earlier measurements.
    ended: Vec<String>,
}

impl MeasurementPage {
    /// Returns the state before a measurement of `target` with the load `request` begins. A
    /// capacity makes the limit surer.
    pub(crate) fn new(target: &str, request: &Request, bandwidth: Option<BitRate>) -> Self {
        Self {
            target: displayable_text(target),
            request: request.clone(),
            bandwidth,
            is_connected: false,
            course: TransferHistory::new(),
            idle: None,
            limit: None,
            ended: Vec::new(),
        }
    }

    /// Returns the time at which the load ends, if it has one.
    fn load_end(&self) -> Option<Span> {
        self.request
            .bytes
            .is_none()
            .then(|| self.request.omit + self.request.duration)
    }

    fn limit_lines(&self, width: usize, room: u16) -> Vec<Line<'static>> {
        if self.request.transport == Transport::Udp {
            return Vec::new();
        }
        let Some(verdict) = &self.limit else {
            return vec![named_line("Limit so far:", "not yet known".to_owned())];
        };
        let share = format!(
            "{}, in {:.0} % of the judged time",
            verdict.name(),
            verdict.share.as_percent()
        );
        let mut lines = vec![named_line("Limit so far:", share)];
        if room >= ROOM_FOR_SENTENCE {
            let sentence = displayable_text(&verdict.sentence);
            lines.extend(sentence_lines(&sentence, width));
        }
        lines
    }

    /// Returns the last results of earlier measurements.
    fn earlier_results(&self, room: u16) -> Vec<Line<'static>> {
        let most = if room < ROOM_FOR_STREAMS {
            1
        } else {
            MAX_ENDED
        };
        let from = self.ended.len().saturating_sub(most);
        self.ended[from..].iter().cloned().map(dim_line).collect()
    }

    /// Draws up to `most` streams, or all in a word.
    fn stream_lines(&self, width: usize, most: usize) -> Vec<Line<'static>> {
        let streams = self.course.stream_rates();
        if streams.len() < 2 || most < 2 {
            return Vec::new();
        }
        let fastest = streams
            .iter()
            .map(|(_, rate)| *rate)
            .max()
            .unwrap_or_default();
        let drawn = if streams.len() > most {
            most - 1
        } else {
            streams.len()
        };
        let (drawn, rest) = streams.split_at(drawn);
        let lines = drawn
            .iter()
            .enumerate()
            .map(|(index, stream)| stream_line(index, stream, fastest, width));
        lines.chain(remaining_line(rest)).collect()
    }

    /// Returns the time or the bytes of the load, and what has passed of it.
    fn progress_line(&self, width: usize) -> Line<'static> {
        if !self.is_connected {
            return named_line("Connecting", String::new());
        }
        let (at, bytes) = (self.course.last_time(), self.course.total_bytes());
        let (share, text) = match (self.load_end(), self.request.bytes) {
            (Some(end), _) => (
                Ratio::from_quotient(at.as_secs_f64(), end.as_secs_f64()),
                format!("{} of {}, {bytes}", clock_text(at), clock_text(end)),
            ),
            (None, budget) => {
                let budget = budget.unwrap_or_default();
                (
                    Ratio::from_quotient(bytes.as_f64(), budget.as_f64()),
                    format!("{bytes} of {budget}, {}", clock_text(at)),
                )
            }
        };
        let room = width.saturating_sub(text.chars().count() + 2);
        let bar = share_bar(share.get(), room.min(40));
        Line::from(format!("{text}  {bar}"))
    }
}

impl LivePage for MeasurementPage {
    type Update = MeasurementUpdate;

    fn apply_update(&mut self, _: Span, update: MeasurementUpdate) {
        match update {
            MeasurementUpdate::Connected(request) => {
                self.request = *request;
                self.is_connected = true;
                self.course = TransferHistory::new();
                self.limit = None;
            }
            MeasurementUpdate::Snapshot(snapshot) => self.course.push(snapshot),
            MeasurementUpdate::Ended(line) => self.ended.push(displayable_text(&line)),
            MeasurementUpdate::SoFar(measurement) => {
                self.idle = measurement.rtt.idle.map(|idle| idle.min);
                // As `measure` judges it at the end.
                if self.request.transport == Transport::Tcp {
                    self.limit = Some(diagnose(&Evidence::from_measurement(
                        &measurement,
                        self.bandwidth,
                        Framing::Ethernet,
                    )));
                }
            }
        }
    }

    fn title(&self) -> (String, String) {
        (
            format!("fullpipe measure {}", self.target),
            describe_load(&self.request),
        )
    }

    fn page_lines(&self, _: Span, room: Size) -> Vec<Line<'static>> {
        let width = usize::from(room.width);
        let limit = self.limit_lines(width, room.height);
        let most = if room.height < ROOM_FOR_STREAMS {
            0
        } else {
            4 + room.height.saturating_sub(22) / 2
        };
        let streams = self.stream_lines(width, most.into());
        let ended = self.earlier_results(room.height);
        let drawn =
            usize::from(room.height).saturating_sub(limit.len() + streams.len() + ended.len() + 1);
        let mut lines = self
            .course
            .draw_charts(room.width, drawn, self.load_end(), self.idle);
        lines.resize(drawn, Line::default());
        lines.extend(limit);
        lines.extend(streams);
        lines.extend(ended);
        lines.push(self.progress_line(width));
        lines
    }
}

/// Returns the line of a stream, with a bar for its share of the fastest rate.
fn stream_line(
    index: usize,
    (stream, rate): &(StreamSnapshot, BitRate),
    fastest: BitRate,
    width: usize,
) -> Line<'static> {
    let way = if stream.direction == Direction::Download {
        "down"
    } else {
        "up"
    };
    let share = Ratio::from_quotient(rate.as_f64(), fastest.as_f64()).get();
    let bar = share_bar(share, width.saturating_sub(37).min(60));
    let (rate, bytes) = (rate.to_string(), stream.bytes);
    Line::styled(
        format!("{index:>3} {way:<4} {bar} {rate:>12} {bytes:>10}"),
        RATE,
    )
}

/// Returns the line on the streams that have none of their own, if there are any.
fn remaining_line(rest: &[(StreamSnapshot, BitRate)]) -> Option<Line<'static>> {
    let rates = rest.iter().map(|(_, rate)| *rate);
    let (least, most) = (rates.clone().min()?, rates.max()?);
    Some(dim_line(format!(
        "    and {} more, {least} to {most} each",
        rest.len()
    )))
}

/// Returns a load in a few words: `TCP, download, 4 streams`.
pub(crate) fn describe_load(request: &Request) -> String {
    format!(
        "{}, {}, {}",
        request.transport.name(),
        request.direction.name(),
        count_noun(request.streams, "stream")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::frame::tests::shown as drawn;
    use fullpipe_probe::StreamSnapshot;
    use fullpipe_record::{At, Cause, Limit};
    use fullpipe_units::ByteCount;

    fn request(streams: u16) -> Request {
        Request {
            streams,
            ..Request::default()
        }
    }

    /// Returns a page after `tenths` of a second in which each stream grew up to its share of 400
    /// Mbit/s.
    fn page(streams: u16, tenths: u64) -> MeasurementPage {
        let mut page = MeasurementPage::new("server.example", &request(streams), None);
        page.apply_update(
            Span::ZERO,
            MeasurementUpdate::Connected(Box::new(request(streams))),
        );
        let mut bytes = vec![0; streams.into()];
        for tenth in 1..=tenths {
            for (index, bytes) in bytes.iter_mut().enumerate() {
                *bytes += tenth.min(10) * (500_000 - 3_000 * index as u64) / u64::from(streams);
            }
            let stream = |bytes: &u64| StreamSnapshot {
                direction: Direction::Upload,
                bytes: ByteCount::new(*bytes),
            };
            let streams = bytes.iter().map(stream).collect();
            let rtt = Some(Span::from_millis(20 + tenth.min(30)));
            let at = Span::from_millis(100 * tenth);
            page.apply_update(
                at,
                MeasurementUpdate::Snapshot(TestSnapshot { at, rtt, streams }),
            );
        }
        page.idle = Some(Span::from_millis(20));
        page
    }

    fn judged(page: MeasurementPage) -> MeasurementPage {
        let sentence = "The receiver's window of 1 MiB limits it: 1 MiB in each round trip of 20 ms is 419 Mbit/s, \
                        and the path has room for more.";
        let limit = Verdict {
            kind: Limit::ReceiveWindow,
            cause: Cause::SoRcvbuf,
            at: At::Receiver,
            share: Ratio::new(0.93),
            confidence: Ratio::new(0.9),
            sentence: sentence.to_owned(),
            ceilings: std::collections::BTreeMap::default(),
            runner_up: None,
            evidence: std::collections::BTreeMap::default(),
            others: Vec::new(),
            where_time_went: Vec::new(),
            basis: fullpipe_record::Basis::default(),
            candidates: Vec::new(),
            would_distinguish: None,
            other_end_would_show: None,
        };
        MeasurementPage {
            limit: Some(limit),
            ..page
        }
    }

    #[test]
    fn a_measurement_on_terminals_of_three_sizes() {
        let page = judged(page(4, 42));
        let now = Span::from_millis(4_250);
        insta::assert_snapshot!("measurement_80x24", drawn(&page, now, 80, 24));
        insta::assert_snapshot!("measurement_120x40", drawn(&page, now, 120, 40));
        insta::assert_snapshot!("measurement_40x10", drawn(&page, now, 40, 10));
    }

    #[test]
    fn before_data_flows_it_connects() {
        let page = MeasurementPage::new("a\u{1b}[2Jb\u{202e}", &request(1), None);
        let picture = drawn(&page, Span::ZERO, 80, 24);
        assert!(
            picture.contains("Connecting") && picture.contains("not yet known"),
            "{picture}"
        );
        assert!(!picture.contains(['\u{1b}', '\u{202e}']), "{picture}");
    }

    #[test]
    fn of_several_measurements_the_last_ones_stand_below_the_present_one() {
        let mut page = page(1, 42);
        for step in 1..=6 {
            page.apply_update(
                Span::ZERO,
                MeasurementUpdate::Ended(format!("step {step}\u{1b}[2J")),
            );
        }
        page.apply_update(
            Span::ZERO,
            MeasurementUpdate::Connected(Box::new(request(1))),
        );
        assert_eq!(
            (page.course.total_bytes(), page.limit.as_ref()),
            (ByteCount::ZERO, None)
        );
        let picture = drawn(&page, Span::ZERO, 80, 24);
        assert!(
            picture.contains("step 3") && picture.contains("step 6"),
            "{picture}"
        );
        assert!(
            !picture.contains("step 2") && !picture.contains('\u{1b}'),
            "{picture}"
        );
        let small = drawn(&page, Span::ZERO, 80, 12);
        assert!(
            small.contains("step 6") && !small.contains("step 5"),
            "{small}"
        );
    }

    #[test]
    fn many_streams_are_counted_where_there_is_no_room() {
        let picture = drawn(&page(128, 30), Span::from_secs(3), 80, 24);
        assert!(picture.contains(" more, "), "{picture}");
        assert_eq!(picture.lines().count(), 24);
    }

    #[test]
    fn a_load_of_bytes_shows_what_is_left_of_them() {
        let bytes = Some(ByteCount::from_mib(100));
        let mut page = page(1, 20);
        page.request.bytes = bytes;
        let picture = drawn(&page, Span::from_secs(2), 80, 24);
        assert!(picture.contains(" of 100 MiB, 2 s  █"), "{picture}");
    }

    #[test]
    fn every_size_of_terminal_shows_the_progress() {
        let page = judged(page(8, 42));
        for height in (10..60).step_by(3) {
            for width in [40, 41, 79, 200] {
                let picture = drawn(&page, Span::from_secs(4), width, height);
                assert!(
                    picture.contains(" 4 s of 10 s") || picture.contains("\n4 s of 10 s"),
                    "{width} × {height}"
                );
                assert!(
                    picture.contains("Limit so far"),
                    "{width} × {height}: {picture}"
                );
            }
        }
    }
}
