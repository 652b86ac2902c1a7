//! Completion times that were forecast on the way, held against those that came.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fullpipe_experiment::sender_progress;
use fullpipe_stats::ProgressHistory;
use fullpipe_units::{BitRate, ByteCount, Span, median};

use super::Random;
use super::record::Record;

/// Seconds that a transfer may last.
const SECONDS: [f64; 2] = [20.0, 600.0];

/// Share of the shortest time that a transfer must take: one that its limit lets end at once has
/// nothing to forecast.
const MIN_SHARE_OF_TIME: f64 = 0.9;

/// Most segments of a transfer, so that it is simulated in seconds.
const MAX_SEGMENTS: f64 = 1.5e6;

/// Shares of the bytes after which the rest is forecast.
const ASKED_AT: [f64; 3] = [0.05, 0.25, 0.5];

/// A forecast is narrow if it reaches no further than this share of the whole time to either side.
const NARROW: f64 = 0.1;

/// Draws the time that a transfer at up to this rate lasts.
pub(crate) fn draw_duration(seed: u64, rate: BitRate) -> Span {
    let [least, most] = SECONDS;
    let bearable = MAX_SEGMENTS * 1500.0 * 8.0 / rate.as_f64();
    let drawn = Random::new(seed ^ 0xC0_4D1E).log_uniform(least, most);
    Span::from_secs_f64(drawn.min(bearable.max(least)))
}

/// A forecast on the way, and what came.
struct AskedCompletion<'r> {
    record: &'r Record,
    /// Whole time that was forecast ÷ that which came.
    time_share: f64,
    is_inside: bool,
    /// Half the width of the interval ÷ the whole time that was forecast.
    half_width: f64,
}

impl<'r> AskedCompletion<'r> {
    /// Forecasts the end of a transfer after a share of its bytes; `None` if it took less than the
    /// shortest time, or too little passed for a forecast.
    fn from_record(record: &'r Record, share: f64) -> Option<Self> {
        let evidence = record.evidence.as_ref()?;
        let progress = sender_progress(&evidence.sender_samples);
        let (_, size) = *progress.last()?;
        let (end, _) = *progress.iter().find(|(_, bytes)| *bytes >= size)?;
        if end < Span::from_secs_f64(SECONDS[0]).scale_by(MIN_SHARE_OF_TIME) {
            return None;
        }
        let mut history = ProgressHistory::default();
        for (at, bytes) in progress {
            history.push_progress(at, bytes);
            if size > ByteCount::ZERO && bytes >= size.scale_by(share) {
                let left = size.saturating_sub(bytes);
                let forecast = history.forecast_completion(left)?.since_start(at);
                let [low, time, high] =
                    [forecast.low, forecast.time, forecast.high].map(Span::as_secs_f64);
                return Some(Self {
                    record,
                    time_share: time / end.as_secs_f64(),
                    is_inside: (forecast.low..=forecast.high).contains(&end),
                    half_width: (high - low) / 2.0 / time,
                });
            }
        }
        None
    }
}

/// Returns how often the completion time lies within its forecast, and how wide that is: of all
/// transfers, and of those whose planted limit held, which have a verdict to judge.
pub(crate) fn completion_text(records: &[Record]) -> String {
    let all: Vec<&Record> = records.iter().collect();
    let held = records.iter().filter(|one| one.left_out().is_none());
    let sets = [
        ("all transfers", all),
        ("those whose limit held", held.collect()),
    ];
    let texts = sets.map(|(name, counted)| {
        let asked = ASKED_AT.map(|share| share_text(&counted, share));
        format!("\ncompletion of {name}\n{}", asked.concat())
    });
    texts.concat()
}

fn share_text(records: &[&Record], share: f64) -> String {
    let asked: Vec<AskedCompletion<'_>> = records
        .iter()
        .filter_map(|record| AskedCompletion::from_record(record, share))
        .collect();
    let percent = |is_meant: &dyn Fn(&AskedCompletion<'_>) -> bool| {
        let count = asked.iter().filter(|one| is_meant(one)).count();
        100.0 * count as f64 / asked.len().max(1) as f64
    };
    let of_all = |figure: &dyn Fn(&AskedCompletion<'_>) -> f64| {
        median(asked.iter().map(figure).collect()).unwrap_or(0.0)
    };
    let mut text = format!(
        "at {:.0} %: {} forecasts, {:.1} % inside; half-width {:.1} % in the median, ≤ {:.0} % in {:.1} %; time × {:.3}\n",
        share * 100.0,
        asked.len(),
        percent(&|one| one.is_inside),
        of_all(&|one| one.half_width) * 100.0,
        NARROW * 100.0,
        percent(&|one| one.half_width <= NARROW),
        of_all(&|one| one.time_share),
    );
    let mut families: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for one in &asked {
        let [all, inside, narrow] = families.entry(&one.record.expected).or_default();
        *all += 1;
        *inside += usize::from(one.is_inside);
        *narrow += usize::from(one.half_width <= NARROW);
    }
    for (family, [all, inside, narrow]) in families {
        let _ = writeln!(
            text,
            "  {family}: {inside} of {all} inside, {narrow} narrow"
        );
    }
    text
}
