//! When a transfer will be complete, from its progress so far.

use fullpipe_record::CompletionForecast;
use fullpipe_units::{BitRate, ByteCount, Span};

use crate::difference::mean_and_square_error;

/// Most points of a history: when there are as many, every second one is dropped.
const MAX_POINTS: usize = 512;

/// Blocks into which the steady part is cut.
const BLOCKS: usize = 8;

/// Quantile of the normal distribution with 5 % above it.
const NORMAL_95: f64 = 1.644_853_626_951_472_2;

/// The ramp is over once the rate is this share of that of the later half.
const RAMP_SHARE: f64 = 0.9;

/// Parts of the time so far, over one of which a rate of the ramp is taken.
const RAMP_PARTS: usize = 20;

/// Standard deviation of the logarithm of the rate that drifts in a length of the steady part where
/// nothing has varied, and the same as a share of the variation of its blocks where that is seen:
/// the mean of a rate that varies varies, too. Fitted to 353 simulated transfers and 134 of real
/// kernels, of all limits, 20 s to 600 s long.
const UNSEEN_DRIFT: f64 = 0.002;
const SHARE_OF_DRIFT: f64 = 0.55;

/// Lengths beyond which drift adds no more: none of those transfers was asked earlier.
const MAX_LENGTHS: f64 = 20.0;

/// Bytes of a transfer that had passed, by time.
#[derive(Debug, Clone, Default)]
pub struct ProgressHistory {
    points: Vec<(Span, ByteCount)>,
    /// Least time between two points.
    spacing: Span,
}

impl ProgressHistory {
    /// Notes that `bytes` had passed at a time, later than all before. Of many points, evenly
    /// spaced ones are kept.
    pub fn push_progress(&mut self, at: Span, bytes: ByteCount) {
        if let [.., (before, _), _] = self.points[..]
            && at.saturating_sub(before) < self.spacing
        {
            self.points.pop();
        }
        self.points.push((at, bytes));
        if self.points.len() >= MAX_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1 || index == MAX_POINTS
            });
            if let [(first, _), .., (last, _)] = self.points[..] {
                self.spacing = last.saturating_sub(first) / self.points.len() as u64;
            }
        }
    }

    /// Returns how long the next `left` bytes will take; `None` while there are too few points, or
    /// nothing passes.
    ///
    /// The rate is the mean of what follows the ramp. The interval is that of a normal distribution
    /// of the logarithm of the time, whose variance adds up the error of that mean, the variation
    /// of the mean of what remains (both from batch means, as [`crate::within_run`] has them), and a
    /// random walk of the rate.
    pub fn forecast_completion(&self, left: ByteCount) -> Option<CompletionForecast> {
        let steady = SteadyProgress::from_history(self)?;
        let time = steady.rate.time_for(left);
        let factor = libm::exp(NORMAL_95 * steady.deviation(time));
        Some(CompletionForecast {
            time,
            low: time.scale_by(1.0 / factor),
            high: time.scale_by(factor),
            efficiency: None,
        })
    }

    /// Returns the bytes that had passed at a time between the first point and the last.
    fn bytes_at(&self, at: Span) -> f64 {
        let next = self.points.partition_point(|(time, _)| *time < at);
        let Some((end, bytes)) = self.points.get(next) else {
            return self.points.last().map_or(0.0, |(_, bytes)| bytes.as_f64());
        };
        let Some((start, before)) = next.checked_sub(1).map(|index| self.points[index]) else {
            return bytes.as_f64();
        };
        let share = at.saturating_sub(start).as_secs_f64()
            / end.saturating_sub(start).as_secs_f64().max(1e-9);
        before.as_f64() + (bytes.as_f64() - before.as_f64()) * share
    }

    /// Returns the mean rate between two times, in bytes a second; zero of no time.
    fn mean_rate(&self, from: Span, until: Span) -> f64 {
        let time = until.saturating_sub(from).as_secs_f64();
        if time > 0.0 {
            (self.bytes_at(until) - self.bytes_at(from)) / time
        } else {
            0.0
        }
    }

    /// Returns when the ramp was over, at half of the time at the latest.
    fn ramp_end(&self, first: Span, last: Span) -> Span {
        let whole = last.saturating_sub(first);
        let (middle, window) = (first + whole / 2, whole / RAMP_PARTS as u64);
        let late = self.mean_rate(middle, last);
        let early = self.points.iter().map(|(at, _)| *at);
        early
            .take_while(|at| *at < middle)
            .find(|at| self.mean_rate(*at, *at + window) >= RAMP_SHARE * late)
            .unwrap_or(middle)
    }
}

/// The part of a history after its ramp.
struct SteadyProgress {
    rate: BitRate,
    duration: Span,
    blocks: usize,
    /// Variance of the rates of blocks ÷ the square of their mean.
    variance: f64,
    /// Part of it that differs from one block to the next: half of the mean square of successive
    /// differences, which a drift hardly raises (von Neumann, Annals of Mathematical Statistics 12,
    /// 1941).
    successive: f64,
}

impl SteadyProgress {
    fn from_history(history: &ProgressHistory) -> Option<Self> {
        let ((first, _), (last, _)) = (*history.points.first()?, *history.points.last()?);
        let start = history.ramp_end(first, last);
        let after = history.points.iter().filter(|(at, _)| *at > start).count();
        let (blocks, duration) = (BLOCKS.min(after), last.saturating_sub(start));
        let at = |block: usize| start + duration * block as u64 / blocks as u64;
        let rates: Vec<f64> = (0..blocks)
            .map(|block| history.mean_rate(at(block), at(block + 1)))
            .collect();
        let (mean, square_error) = mean_and_square_error(&rates).filter(|(mean, _)| *mean > 0.0)?;
        let variance = square_error * blocks as f64 / (mean * mean);
        let steps = rates.windows(2).map(|pair| (pair[1] - pair[0]) / mean);
        let squares: f64 = steps.map(|step| step * step).sum();
        Some(Self {
            rate: BitRate::from_bps_f64(mean * 8.0),
            duration,
            blocks,
            variance,
            successive: variance.min(squares / (2 * (blocks - 1)) as f64),
        })
    }

    /// Returns the standard deviation of the logarithm of a remaining time.
    fn deviation(&self, remaining: Span) -> f64 {
        let blocks = self.blocks as f64;
        let lengths = remaining.as_secs_f64() / self.duration.as_secs_f64().max(1e-9);
        let of_rest = (1.0 / (blocks * lengths.max(1e-9))).min(1.0);
        let of_chance = self.successive * (1.0 / blocks + of_rest);
        let drift = UNSEEN_DRIFT * UNSEEN_DRIFT + SHARE_OF_DRIFT * SHARE_OF_DRIFT * self.variance;
        (of_chance + drift * lengths.min(MAX_LENGTHS)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the history of a transfer at the rates of its seconds, in bytes a second.
    fn history(rates: impl IntoIterator<Item = u64>) -> ProgressHistory {
        let mut history = ProgressHistory::default();
        let mut bytes = 0;
        history.push_progress(Span::ZERO, ByteCount::ZERO);
        for (second, rate) in (1..).zip(rates) {
            bytes += rate;
            history.push_progress(Span::from_secs(second), ByteCount::new(bytes));
        }
        history
    }

    fn seconds(history: &ProgressHistory, left: u64) -> [f64; 3] {
        let forecast = history.forecast_completion(ByteCount::new(left)).unwrap();
        [forecast.low, forecast.time, forecast.high].map(Span::as_secs_f64)
    }

    #[test]
    fn a_steady_rate_goes_on() {
        let [low, time, high] = seconds(&history([1000; 20]), 60_000);
        assert!((time - 60.0).abs() < 1e-6, "{time}");
        // Three lengths remain, of which each adds the square of 0.2 %.
        assert!((high / time - libm::exp(1.645 * 0.002 * 3_f64.sqrt())).abs() < 1e-4);
        assert!((low * high / (time * time) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_first_moments_of_a_transfer_of_days_have_a_forecast_of_use() {
        let [low, time, high] = seconds(&history([1000; 10]), 1_000_000_000);
        assert!((0.9..1.0).contains(&(low / time)) && (1.0..1.1).contains(&(high / time)));
    }

    #[test]
    fn a_ramp_is_no_part_of_what_goes_on() {
        let rates = [10, 20, 40, 80, 160, 320, 640].into_iter();
        let [_, time, _] = seconds(&history(rates.chain([1000; 33])), 50_000);
        assert!((time - 50.0).abs() < 1.0, "{time}");
    }

    #[test]
    fn what_varies_and_what_changes_widens_the_interval() {
        let width = |rates: [u64; 16]| {
            let [low, _, high] = seconds(&history(rates), 64_000);
            high / low
        };
        let even = width([1000; 16]);
        let uneven = width(std::array::from_fn(|index| {
            1000 + 600 * (index as u64 / 2 % 2)
        }));
        let falling = width(std::array::from_fn(|index| 2000 - 60 * index as u64));
        assert!(uneven > 1.1 * even && falling > 1.1 * even);
    }

    #[test]
    fn what_does_not_move_has_no_forecast() {
        let left = ByteCount::new(1);
        assert_eq!(history([]).forecast_completion(left), None);
        assert_eq!(history([5]).forecast_completion(left), None);
        assert_eq!(history([0; 20]).forecast_completion(left), None);
        assert_eq!(ProgressHistory::default().forecast_completion(left), None);
    }

    #[test]
    fn a_history_of_days_stays_small_and_exact() {
        let long = history(std::iter::repeat_n(1000, 200_000));
        assert!(long.points.len() < MAX_POINTS);
        let [_, time, _] = seconds(&long, 1_000_000);
        assert!((time - 1000.0).abs() < 1.0, "{time}");
    }
}
