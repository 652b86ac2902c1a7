//! The course of a transfer as lines of marks.

use fullpipe_record::Sample;

use super::prelude::*;
use super::table::HEIGHTS;

/// Marks of a line.
const MARKS: usize = 34;

/// In flight and window are drawn to one scale unless the window is larger by more than this
/// factor.
const COMPARABLE: f64 = 4.0;

/// Share by which a round-trip time grows at least from the lowest mark to the highest.
const MIN_GROWTH: f64 = 0.25;

/// Returns the rate, the bytes in flight, the window, the round-trip times and the retransmissions
/// of a stream over time, each with its least and its most; nothing where there are too few
/// samples.
pub(crate) fn stream_over_time(samples: &[&Sample]) -> String {
    let [Some(first), Some(last)] = [samples.first(), samples.last()] else {
        return String::new();
    };
    let (begin, duration) = (first.at, last.at.saturating_sub(first.at));
    if samples.len() < 4 || duration == Span::ZERO {
        return String::new();
    }
    let bins = SampleBins {
        samples,
        begin,
        width: duration.as_secs_f64() / MARKS as f64,
    };
    let rows = std::iter::once(rate_row(&bins))
        .chain(window_rows(&bins))
        .chain(rtt_row(&bins))
        .chain(retransmission_row(&bins));
    let rows = rows.map(|(name, marks, scale)| [name.to_owned(), marks, scale]);
    let table = TextTable::from_rows("||", rows);
    let each = format!(
        "Course: {:.1} s, {} a mark",
        duration.as_secs_f64(),
        seconds_label(bins.width)
    );
    heading_line(&each) + &table.render(2)
}

/// The name of a line, its marks, and their scale.
type CourseRow = (&'static str, String, String);

fn rate_row(bins: &SampleBins<'_>) -> CourseRow {
    let rates = bins.bin_rates();
    let marks = height_marks(&rates, 0.0, greatest_value(&rates));
    let scale = value_range(&rates, |bps| BitRate::from_bps(bps as u64).to_string());
    ("rate", marks, scale)
}

/// Returns the rows of the data in flight and of the window, as far as they are known.
fn window_rows(bins: &SampleBins<'_>) -> impl Iterator<Item = CourseRow> {
    let flight = bins.highest_bytes(Sample::outstanding_bytes);
    let window = bins.highest_bytes(|sample| sample.tcp.snd_wnd);
    let mut tops = [greatest_value(&flight), greatest_value(&window)];
    if tops[1] <= tops[0] * COMPARABLE {
        tops = [tops[0].max(tops[1]); 2];
    }
    let known = [("in flight", flight, tops[0]), ("window", window, tops[1])]
        .into_iter()
        .filter(|(_, bytes, _)| !bytes.is_empty());
    known.map(|(name, bytes, top)| {
        let scale = value_range(&bytes, |value| format!("{value:.0} B"));
        (name, height_marks(&bytes, 0.0, top), scale)
    })
}

fn rtt_row(bins: &SampleBins<'_>) -> Option<CourseRow> {
    let rtts = bins.highest_values(|sample| sample.tcp.rtt.map(Span::as_secs_f64));
    let floor = least_value(&rtts);
    let top = greatest_value(&rtts).max(floor * (1.0 + MIN_GROWTH));
    let scale = value_range(&rtts, |secs| round_trip(Span::from_secs_f64(secs)));
    (!rtts.is_empty()).then(|| ("RTT", height_marks(&rtts, floor, top), scale))
}

fn retransmission_row(bins: &SampleBins<'_>) -> Option<CourseRow> {
    let (marks, packets) = bins.retransmission_marks();
    (packets > 0).then(|| ("retransmitted", marks, count_noun(packets, "packet")))
}

fn seconds_label(secs: f64) -> String {
    if secs < 1.0 {
        format!("{:.0} ms", secs * 1e3)
    } else {
        format!("{secs:.1} s")
    }
}

/// The samples of each mark.
struct SampleBins<'s> {
    samples: &'s [&'s Sample],
    begin: Span,
    /// Seconds.
    width: f64,
}

impl SampleBins<'_> {
    fn bin_index(&self, sample: &Sample) -> usize {
        ((self.seconds_at(sample) / self.width) as usize).min(MARKS - 1)
    }

    /// Returns the seconds from the begin to a sample.
    fn seconds_at(&self, sample: &Sample) -> f64 {
        sample.at.saturating_sub(self.begin).as_secs_f64()
    }

    fn highest_bytes(&self, size: impl Fn(&Sample) -> Option<ByteCount>) -> Vec<f64> {
        self.highest_values(|sample| size(sample).map(ByteCount::as_f64))
    }

    /// Returns the highest value in each; one without any has that of the one before. Empty if
    /// there is none at all.
    fn highest_values(&self, value: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        let mut found = [None; MARKS];
        for sample in self.samples {
            let place = &mut found[self.bin_index(sample)];
            *place = value(sample).into_iter().chain(*place).reduce(f64::max);
        }
        let first = found.iter().flatten().next().copied();
        let carried = found.iter().scan(first, |last, value| {
            *last = value.or(*last);
            *last
        });
        carried.collect()
    }

    /// Returns the bits per second in each.
    fn bin_rates(&self) -> Vec<f64> {
        let edges: Vec<f64> = (0..=MARKS)
            .map(|edge| self.bytes_at(edge as f64 * self.width))
            .collect();
        edges
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) * 8.0 / self.width)
            .collect()
    }

    /// Returns the bytes that had arrived so many seconds after the begin, between samples in
    /// proportion.
    fn bytes_at(&self, secs: f64) -> f64 {
        let next = self
            .samples
            .partition_point(|sample| self.seconds_at(sample) <= secs);
        if next == 0 || next == self.samples.len() {
            return self.samples[next.saturating_sub(1)].bytes.as_f64();
        }
        let ends = [self.samples[next - 1], self.samples[next]];
        let [from, to] = ends.map(|sample| self.seconds_at(sample));
        let [before, after] = ends.map(|sample| sample.bytes.as_f64());
        let share = (secs - from) / (to - from).max(f64::MIN_POSITIVE);
        before + share * (after - before)
    }

    /// Returns a cross for each in which packets were retransmitted, and their number.
    fn retransmission_marks(&self) -> (String, u64) {
        let mut marks = ['·'; MARKS];
        let mut before = 0;
        for sample in self.samples {
            let now = sample.tcp.total_retrans.map_or(before, SegCount::get);
            if now > before {
                marks[self.bin_index(sample)] = '×';
            }
            before = now.max(before);
        }
        (marks.iter().collect(), before)
    }
}

fn height_marks(values: &[f64], low: f64, high: f64) -> String {
    let mut marks = String::new();
    for value in values {
        let share = (value - low) / (high - low).max(f64::MIN_POSITIVE);
        marks.push(HEIGHTS[((share * HEIGHTS.len() as f64) as usize).min(HEIGHTS.len() - 1)]);
    }
    marks
}

fn value_range(values: &[f64], text: impl Fn(f64) -> String) -> String {
    format!(
        "{} to {}",
        text(least_value(values)),
        text(greatest_value(values))
    )
}

fn least_value(values: &[f64]) -> f64 {
    values.iter().copied().reduce(f64::min).unwrap_or_default()
}

fn greatest_value(values: &[f64]) -> f64 {
    values.iter().copied().reduce(f64::max).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::without_marks;
    use fullpipe_record::TcpInfo;

    /// Ten seconds at 8 Mbit/s, less than half of that in the second half, in which a packet was
    /// retransmitted.
    fn samples() -> Vec<Sample> {
        let sample = |number: u64| {
            let (early, late) = (number.min(50), number.saturating_sub(50));
            let bytes = ByteCount::new(early * 100_000 + late * 40_000);
            let flight = if late == 0 { 40_000 } else { 20_000 };
            Sample {
                at: Span::from_millis(number * 100),
                stream: 0,
                bytes,
                tcp: TcpInfo {
                    bytes_sent: Some(bytes + ByteCount::new(flight)),
                    bytes_acked: Some(bytes),
                    bytes_retrans: Some(ByteCount::ZERO),
                    snd_wnd: Some(ByteCount::new(80_000)),
                    rtt: Some(Span::from_millis(40)),
                    total_retrans: Some(SegCount::new(u64::from(number >= 70))),
                    ..TcpInfo::default()
                },
                memory: None,
            }
        };
        (0..=100).map(sample).collect()
    }

    #[test]
    fn each_line_shows_the_course_with_its_scale() {
        let samples = samples();
        let text = without_marks(&stream_over_time(&samples.iter().collect::<Vec<_>>()));
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let half = MARKS / 2;
        assert_eq!(lines[0], "Course: 10.0 s, 294 ms a mark");
        let rate = format!(
            "  rate           {}{}  3.2 Mbit/s to 8 Mbit/s",
            "█".repeat(half),
            "▄".repeat(half)
        );
        assert_eq!(lines[1], rate);
        assert!(
            lines[2].starts_with("  in flight      ▅")
                && lines[2].ends_with("▃  20000 B to 40000 B"),
            "{text}"
        );
        assert!(
            lines[3].ends_with("█  80000 B to 80000 B"),
            "drawn to the scale of the bytes in flight: {text}"
        );
        assert!(
            lines[4].contains("▁▁") && lines[4].ends_with("40 ms to 40 ms"),
            "{text}"
        );
        assert_eq!(lines[5].matches('×').count(), 1);
        assert!(lines[5].ends_with("·  1 packet"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn what_no_sample_has_in_flight_is_no_line() {
        let mut samples = samples();
        for sample in &mut samples {
            (sample.tcp.unacked, sample.tcp.bytes_acked) = (None, None);
        }
        let text = without_marks(&stream_over_time(&samples.iter().collect::<Vec<_>>()));
        assert!(
            text.contains("rate") && !text.contains("in flight"),
            "{text}"
        );
    }

    #[test]
    fn few_samples_have_no_course() {
        let samples = samples();
        for count in [0, 1, 3] {
            assert_eq!(
                without_marks(&stream_over_time(
                    &samples.iter().take(count).collect::<Vec<_>>()
                )),
                ""
            );
        }
        let at_once = vec![&samples[0]; 9];
        assert_eq!(without_marks(&stream_over_time(&at_once)), "");
    }
}
