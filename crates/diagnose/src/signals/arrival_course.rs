//! The course of the arrivals of a connection: how evenly its data comes, and whether what comes
//! repeats with the round trip.

use crate::prelude::*;

/// When data last came before each sample, and how far ahead of a constant rate it then was.
pub(crate) struct ArrivalCourse {
    arrivals: Vec<Arrival>,
    /// Time since the last data that nineteen of twenty samples keep to.
    pub(crate) usual_silence: Span,
    /// Resolution of the kernel's count of the time since the last data.
    pub(crate) tick: Span,
}

/// All times in seconds.
#[derive(Clone, Copy)]
struct Arrival {
    at: f64,
    bytes: f64,
    silence: f64,
    /// Time by which the data so far is ahead of a constant rate.
    ahead: f64,
}

/// Samples of a connection that are enough to see the course of its arrivals.
const MIN_COURSE_SAMPLES: usize = 20;

impl ArrivalCourse {
    /// Takes samples of one connection, by time. `None` where they are few, or do not show when
    /// data came.
    pub(crate) fn from_samples(flow: &[&Sample]) -> Option<Self> {
        let mut arrivals: Vec<Arrival> = flow.iter().filter_map(|one| arrival(one)).collect();
        if arrivals.len() < MIN_COURSE_SAMPLES {
            return None;
        }
        subtract_line(&mut arrivals)?;
        let silences = flow
            .iter()
            .filter_map(|sample| sample.tcp.since_data_received);
        let mut silences: Vec<Span> = silences.collect();
        silences.sort_unstable();
        let tick = silences.iter().find(|silence| **silence > Span::ZERO);
        let mut course = Self {
            arrivals,
            usual_silence: silences[(silences.len() - 1) * 19 / 20],
            tick: tick.copied().unwrap_or_default(),
        };
        // Bursts so short that each has come as a whole are seen by the time after them.
        if course.usual_silence > course.unevenness().scale_by(SHORT_BURSTS) {
            for one in &mut course.arrivals {
                one.at += one.silence;
                one.ahead -= one.silence;
            }
        }
        Some(course)
    }

    /// Returns the range of nine tenths of the times by which data was ahead of a constant rate, or
    /// behind it.
    pub(crate) fn unevenness(&self) -> Span {
        let mut ahead: Vec<f64> = self.arrivals.iter().map(|one| one.ahead).collect();
        ahead.sort_by(f64::total_cmp);
        let last = (ahead.len() - 1) as f64;
        let [low, high] = [0.05, 0.95].map(|share| ahead[(last * share) as usize]);
        Span::from_secs_f64(high - low)
    }

    /// Returns the least share of the variance that the phase leaves unexplained, over periods from
    /// `shortest` to `longest` (phase dispersion minimization: Stellingwerf, Astrophysical Journal
    /// 224, 1978). It is about 1 where nothing repeats with such a period.
    pub(crate) fn variance_left(&self, shortest: Span, longest: Span) -> f64 {
        /// Periods for each that the length of the course distinguishes.
        const OVERSAMPLING: f64 = 6.0;
        let begin = self.arrivals.len().saturating_sub(MAX_PERIODIC_SAMPLES);
        let arrivals = &self.arrivals[begin..];
        let length = arrivals[arrivals.len() - 1].at - arrivals[0].at;
        let (mut period, longest) = (shortest.as_secs_f64(), longest.as_secs_f64().min(length));
        let least_step = ((longest - period) / MAX_PERIODS).max(MIN_PERIOD_STEP);
        let mut least = f64::INFINITY;
        while period > 0.0 && period <= longest {
            least = least.min(variance_within_phases(arrivals, period));
            period += (period * period / length / OVERSAMPLING).max(least_step);
        }
        least / variance(arrivals.iter().map(|one| one.ahead), 1)
    }
}

/// Parts of a round trip in which arrivals are compared with those of others.
const PHASES_OF_ROUND_TRIP: usize = 8;

fn variance_within_phases(arrivals: &[Arrival], period: f64) -> f64 {
    let mut phases: [Vec<f64>; PHASES_OF_ROUND_TRIP] = Default::default();
    for one in arrivals {
        let phase = (one.at / period).fract() * PHASES_OF_ROUND_TRIP as f64;
        phases[phase as usize % PHASES_OF_ROUND_TRIP].push(one.ahead);
    }
    let used = phases.iter().filter(|phase| !phase.is_empty()).count();
    let all: f64 = phases
        .iter()
        .map(|phase| variance(phase.iter().copied(), 1) * phase.len().saturating_sub(1) as f64)
        .sum();
    all / arrivals.len().saturating_sub(used).max(1) as f64
}

fn arrival(sample: &Sample) -> Option<Arrival> {
    let silence = sample.tcp.since_data_received?.as_secs_f64();
    Some(Arrival {
        at: sample.at.as_secs_f64() - silence,
        silence,
        bytes: sample.tcp.bytes_received?.as_f64(),
        ahead: 0.0,
    })
}

/// Sets by how much each arrival is ahead of the line of least squares. `None` where nothing moves.
fn subtract_line(arrivals: &mut [Arrival]) -> Option<()> {
    let at = mean(arrivals.iter().map(|one| one.at));
    let bytes = mean(arrivals.iter().map(|one| one.bytes));
    let deviations = arrivals.iter().map(|one| (one.at - at, one.bytes - bytes));
    let covariance: f64 = deviations.clone().map(|(at, bytes)| at * bytes).sum();
    let rate = covariance / deviations.map(|(at, _)| at * at).sum::<f64>();
    if !(rate > 0.0 && rate.is_finite()) {
        return None;
    }
    for one in arrivals {
        one.ahead = (one.bytes - bytes) / rate - (one.at - at);
    }
    Some(())
}

/// Returns the variance of some figures, of which so many degrees of freedom are lost.
fn variance(figures: impl Iterator<Item = f64> + Clone, lost: usize) -> f64 {
    let count = figures.clone().count();
    let mean = mean(figures.clone());
    let squares: f64 = figures.map(|figure| (figure - mean).powi(2)).sum();
    squares / count.saturating_sub(lost).max(1) as f64
}

fn mean(figures: impl Iterator<Item = f64> + Clone) -> f64 {
    figures.clone().sum::<f64>() / figures.count().max(1) as f64
}

/// Samples, the last ones, in which periods are sought, and about the most periods that are
/// tried: a judgement takes a bounded time whatever the length of the transfer and its round trips.
const MAX_PERIODIC_SAMPLES: usize = 1000;
const MAX_PERIODS: f64 = 40_000.0;
/// The least step from one period to the next, in seconds.
const MIN_PERIOD_STEP: f64 = 1e-6;
/// Times without data ÷ the unevenness of what came, from which bursts are short.
const SHORT_BURSTS: f64 = 1.5;
