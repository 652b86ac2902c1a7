//! Rates and round-trip times of a transfer under way, over one axis of time.

use std::collections::VecDeque;

use fullpipe_probe::{StreamSnapshot, TestSnapshot};
use fullpipe_record::Direction;
use fullpipe_report::chart::{Hue, Panel, Plot, PlotSeries, SeriesForm};
use fullpipe_units::{BitRate, ByteCount, OptionText, Span};
use ratatui_core::text::Line;

use crate::live::frame::{RATE, RTT, dim_style};
use crate::live::track::ThinnedValues;

/// Least time over which a rate is taken, so that a few samples lie in it.
const MIN_WINDOW: Span = Span::from_millis(200);

/// Most time over which a rate is taken.
const MAX_WINDOW: Span = Span::from_secs(1);

/// Least lines of a drawing of both panels, with their heads and the axis.
const BOTH: usize = 9;

/// The snapshots of a transfer so far.
#[derive(Debug, Clone)]
pub(crate) struct TransferHistory {
    /// Snapshots of the last [`MAX_WINDOW`], the oldest first, and one before them.
    recent: VecDeque<TestSnapshot>,
    sent: ThinnedValues<BitRate>,
    received: ThinnedValues<BitRate>,
    rtts: ThinnedValues<Span>,
}

impl TransferHistory {
    pub(crate) fn new() -> Self {
        Self {
            recent: VecDeque::new(),
            sent: ThinnedValues::new(),
            received: ThinnedValues::new(),
            rtts: ThinnedValues::new(),
        }
    }

    /// Adds a snapshot; one that is not later than the last has nothing new.
    pub(crate) fn push(&mut self, snapshot: TestSnapshot) {
        let now = snapshot.at;
        if self.recent.is_empty() {
            self.recent.push_back(start_of(&snapshot));
        }
        if self.recent.back().is_some_and(|last| now <= last.at) {
            return;
        }
        let rtt = snapshot.rtt;
        self.keep_recent(snapshot);
        if let Some(rtt) = rtt {
            self.rtts.push(now, rtt);
        }
        let window = rtt.unwrap_or_default().clamp(MIN_WINDOW, MAX_WINDOW);
        for (way, track) in [
            (Direction::Upload, &mut self.sent),
            (Direction::Download, &mut self.received),
        ] {
            if let Some(rate) = window_rate(&self.recent, window, |stream| stream.direction == way)
            {
                track.push(now, rate);
            }
        }
    }

    /// Keeps a snapshot, and those before it that are still needed.
    fn keep_recent(&mut self, snapshot: TestSnapshot) {
        let now = snapshot.at;
        self.recent.push_back(snapshot);
        while matches!(self.recent.get(1), Some(second) if second.at + MAX_WINDOW <= now) {
            self.recent.pop_front();
        }
    }

    /// Returns the time of the last snapshot.
    pub(crate) fn last_time(&self) -> Span {
        self.recent.back().map_or(Span::ZERO, |last| last.at)
    }

    /// Returns the bytes so far, in both directions together.
    pub(crate) fn total_bytes(&self) -> ByteCount {
        self.last_streams().iter().map(|stream| stream.bytes).sum()
    }

    /// Returns the last round-trip time.
    pub(crate) fn last_rtt(&self) -> Option<Span> {
        self.recent.back().and_then(|last| last.rtt)
    }

    /// Returns the rate of the last second in both directions together.
    pub(crate) fn recent_rate(&self) -> Option<BitRate> {
        window_rate(&self.recent, MAX_WINDOW, |_| true)
    }

    /// Returns each stream with its rate in the last second.
    pub(crate) fn stream_rates(&self) -> Vec<(StreamSnapshot, BitRate)> {
        let (Some(first), Some(last)) = (self.recent.front(), self.recent.back()) else {
            return Vec::new();
        };
        let pairs = first.streams.iter().zip(&last.streams);
        let elapsed = last.at.saturating_sub(first.at);
        pairs
            .map(|(before, now)| {
                (
                    *now,
                    BitRate::from_bytes_in(now.bytes.saturating_sub(before.bytes), elapsed),
                )
            })
            .collect()
    }

    fn last_streams(&self) -> &[StreamSnapshot] {
        self.recent.back().map_or(&[], |last| &last.streams)
    }

    /// Draws rate and round-trip time in so many columns and lines; the rate alone where there is
    /// no room for both. The axis reaches to `end` at least, and `idle` is the round-trip time
    /// without load.
    pub(crate) fn draw_charts(
        &self,
        width: u16,
        lines: usize,
        end: Option<Span>,
        idle: Option<Span>,
    ) -> Vec<Line<'static>> {
        let has_rtt = lines >= BOTH && !self.rtts.is_empty();
        let drawn = lines.saturating_sub(if has_rtt { 3 } else { 2 });
        let rtt = if has_rtt { drawn * 2 / 5 } else { 0 };
        let rate = drawn - rtt;
        let mut plot = Plot::new("Rate and round-trip time").with_panel(self.rate_panel(has_rtt));
        if has_rtt {
            plot = plot.with_panel(self.rtt_panel(idle));
        }
        if let Some(end) = end {
            plot = plot.with_axis_end(end);
        }
        let text = plot.text_in(width.into(), &[rate, rtt]);
        let rows = text.lines().enumerate();
        rows.map(|(row, line)| {
            let style = match row {
                row if row <= rate => RATE,
                row if has_rtt && row <= rate + 1 + rtt => RTT,
                _ => dim_style(),
            };
            Line::styled(line.to_owned(), style)
        })
        .collect()
    }

    fn rate_panel(&self, has_rtt: bool) -> Panel {
        let mut panel = Panel::new("rate");
        let both = !self.sent.is_empty() && !self.received.is_empty();
        for (name, hue, track) in [
            ("up", Hue::Blue, &self.sent),
            ("down", Hue::Orange, &self.received),
        ] {
            let last = track.points().last().map_text(|(_, rate)| rate.to_string());
            let label = if both { format!("{name} {last}") } else { last };
            panel = panel.with_series(
                PlotSeries::new(name, SeriesForm::Line, hue, track.points()).with_label(&label),
            );
        }
        match self.last_rtt().filter(|_| !has_rtt) {
            // A label without a line.
            Some(rtt) => panel.with_level(BitRate::ZERO, &format!("RTT {rtt}")),
            None => panel,
        }
    }

    fn rtt_panel(&self, idle: Option<Span>) -> Panel {
        let last = self.last_rtt().map_text(|rtt| rtt.to_string());
        let panel = Panel::new("RTT").with_series(
            PlotSeries::new("RTT", SeriesForm::Line, Hue::Orange, self.rtts.points())
                .with_label(&last),
        );
        match idle {
            Some(idle) => panel.with_level(idle, &format!("{idle} idle")),
            None => panel,
        }
    }
}

/// Returns the state of the streams of a snapshot before any of their data.
fn start_of(snapshot: &TestSnapshot) -> TestSnapshot {
    let mut start = TestSnapshot {
        at: Span::ZERO,
        rtt: None,
        ..snapshot.clone()
    };
    for stream in &mut start.streams {
        stream.bytes = ByteCount::ZERO;
    }
    start
}

/// Returns the rate of the streams that count, over the last `window` or what there is of it;
/// `None` without streams or time.
fn window_rate(
    recent: &VecDeque<TestSnapshot>,
    window: Span,
    counts: impl Fn(&StreamSnapshot) -> bool,
) -> Option<BitRate> {
    let last = recent.back()?;
    let first = recent
        .iter()
        .rev()
        .find(|before| before.at + window <= last.at)
        .or(recent.front())?;
    let [before, now]: [ByteCount; 2] = [first, last].map(|snapshot| {
        let counted = snapshot.streams.iter().filter(|stream| counts(stream));
        counted.map(|stream| stream.bytes).sum()
    });
    let elapsed = last.at.saturating_sub(first.at);
    let is_known = elapsed > Span::ZERO && last.streams.iter().any(counts);
    is_known.then(|| BitRate::from_bytes_in(now.saturating_sub(before), elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(millis: u64, bytes: u64) -> TestSnapshot {
        let stream = StreamSnapshot {
            direction: Direction::Upload,
            bytes: ByteCount::new(bytes),
        };
        TestSnapshot {
            at: Span::from_millis(millis),
            rtt: Some(Span::from_millis(20)),
            streams: vec![stream],
        }
    }

    #[test]
    fn rates_are_those_of_the_last_moments() {
        let mut course = TransferHistory::new();
        // 10 Mbit/s for two seconds, then nothing.
        (1..=20).for_each(|tenth| course.push(snapshot(tenth * 100, tenth * 125_000)));
        assert_eq!(course.recent_rate(), Some(BitRate::from_mbps(10)));
        (21..=25).for_each(|tenth| course.push(snapshot(tenth * 100, 2_500_000)));
        assert_eq!(course.recent_rate(), Some(BitRate::from_mbps(5)));
        assert_eq!(course.sent.points().last().unwrap().1, BitRate::ZERO);
        assert_eq!(
            (course.total_bytes(), course.last_time()),
            (ByteCount::new(2_500_000), Span::from_millis(2_500))
        );
        assert!(course.received.is_empty() && course.recent.len() <= 12);
        // A snapshot of the same samples has nothing new.
        course.push(snapshot(2_500, 9_999_999));
        assert_eq!(course.total_bytes(), ByteCount::new(2_500_000));
    }
}
