//! Connections of another program, watched.

use fullpipe_probe::TestSnapshot;
use fullpipe_report::chart::displayable_text;
use fullpipe_units::{BitRate, Span};
use ratatui_core::layout::Size;
use ratatui_core::text::Line;

use crate::live::course::TransferHistory;
use crate::live::frame::{LivePage, clock_text, named_line, sentence_lines};

/// Something that happened while a program is watched.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WatchedUpdate {
    /// A tenth of a second has passed; what was sent is the first stream, and what arrived the
    /// second.
    Snapshot(TestSnapshot),
    /// The use that took most of the last seconds, a sentence on it, and when the file that is sent
    /// is complete.
    Now(String, String, Option<String>),
}

/// The state of the connections of a program.
#[derive(Debug, Clone)]
pub(crate) struct WatchedPage {
    title: String,
    course: TransferHistory,
    now: Option<(String, String)>,
    completion: Option<String>,
}

impl WatchedPage {
    /// Returns the state before anything is seen of what has this name: a command line, or
    /// `process 7`.
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: displayable_text(title),
            course: TransferHistory::new(),
            now: None,
            completion: None,
        }
    }
}

impl LivePage for WatchedPage {
    type Update = WatchedUpdate;

    fn apply_update(&mut self, _: Span, update: WatchedUpdate) {
        match update {
            WatchedUpdate::Snapshot(snapshot) => self.course.push(snapshot),
            WatchedUpdate::Now(limit, sentence, completion) => {
                self.completion = completion.map(|text| displayable_text(&text));
                self.now = Some((displayable_text(&limit), displayable_text(&sentence)));
            }
        }
    }

    fn title(&self) -> (String, String) {
        (
            format!("fullpipe diagnose {}", self.title),
            "watched".to_owned(),
        )
    }

    fn page_lines(&self, now: Span, room: Size) -> Vec<Line<'static>> {
        let (limit, sentence) = self
            .now
            .clone()
            .unwrap_or_else(|| ("not yet known".to_owned(), String::new()));
        let mut sentence = sentence_lines(&sentence, room.width.into());
        if let Some(completion) = &self.completion {
            sentence.extend(sentence_lines(completion, room.width.into()));
        }
        let drawn = usize::from(room.height).saturating_sub(sentence.len() + 2);
        let mut lines = self.course.draw_charts(room.width, drawn, None, None);
        lines.resize(drawn, Line::default());
        lines.push(named_line("Limit of the last seconds:", limit));
        lines.extend(sentence);
        let rate = self.course.recent_rate().unwrap_or(BitRate::ZERO);
        lines.push(Line::from(format!(
            "{}, {rate}, {}",
            clock_text(now),
            self.course.total_bytes()
        )));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::frame::tests::shown as drawn;
    use fullpipe_probe::StreamSnapshot;
    use fullpipe_record::Direction;
    use fullpipe_units::ByteCount;

    #[test]
    fn rates_both_ways_and_the_limit_are_on_the_picture() {
        let mut page = WatchedPage::new("pg_dump \u{1b}[2Jd");
        assert!(drawn(&page, Span::ZERO, 80, 20).contains("not yet known"));
        for tenth in 1..=20 {
            let stream = |direction, bytes| StreamSnapshot {
                direction,
                bytes: ByteCount::new(bytes),
            };
            let streams = vec![
                stream(Direction::Upload, 0),
                stream(Direction::Download, tenth * 125_000),
            ];
            let at = Span::from_millis(tenth * 100);
            page.apply_update(
                at,
                WatchedUpdate::Snapshot(TestSnapshot {
                    at,
                    rtt: Some(Span::from_millis(20)),
                    streams,
                }),
            );
        }
        page.apply_update(
            Span::ZERO,
            WatchedUpdate::Now(
                "send-buffer".to_owned(),
                "It is full.".to_owned(),
                Some("big.nc is complete in 9 s".to_owned()),
            ),
        );
        for (width, height) in [(80, 20), (40, 10), (200, 50)] {
            let picture = drawn(&page, Span::from_secs(2), width, height);
            for part in [
                "send-buffer",
                "It is full.",
                "big.nc is complete in 9 s",
                "10 Mbit/s",
                "2 s, ",
            ] {
                assert!(picture.contains(part), "{width} × {height}: {picture}");
            }
            assert!(!picture.contains('\u{1b}'));
        }
    }
}
