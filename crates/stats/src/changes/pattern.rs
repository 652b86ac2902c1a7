use fullpipe_units::{Span, Time, median};

const DAY: Span = Span::from_secs(24 * 3600);

/// A regular pattern of time.
struct TimePattern {
    /// Time after which it repeats.
    period: Span,
    /// Parts of the period that may differ.
    parts: u64,
    /// Time that a history must cover to show it.
    shown_after: Span,
}

const PATTERNS: [TimePattern; 2] = [
    TimePattern {
        period: DAY,
        parts: 24,
        shown_after: Span::from_secs(14 * 24 * 3600),
    },
    TimePattern {
        period: Span::from_secs(7 * 24 * 3600),
        parts: 7,
        shown_after: Span::from_secs(28 * 24 * 3600),
    },
];

/// Runs in a part of the period without which its median says too little.
const MIN_RUNS: usize = 4;

/// Returns `logs` without what hours and weekdays have in common.
pub(super) fn without_patterns(times: &[Time], logs: Vec<f64>) -> Vec<f64> {
    PATTERNS
        .iter()
        .fold(logs, |logs, pattern| pattern.removed_from(times, logs))
}

impl TimePattern {
    fn removed_from(&self, times: &[Time], logs: Vec<f64>) -> Vec<f64> {
        let covered = times
            .first()
            .zip(times.last())
            .map_or(Span::ZERO, |(first, last)| last.duration_since(*first));
        if covered < self.shown_after {
            return logs;
        }
        let mut away = vec![Vec::new(); self.parts as usize];
        for ((at, log), level) in times
            .iter()
            .zip(&logs)
            .zip(self.period_medians(times, &logs))
        {
            away[self.part_at(*at)].push(log - level);
        }
        let of_part: Vec<f64> = away
            .into_iter()
            .map(|away| {
                let is_enough = away.len() >= MIN_RUNS;
                median(away).filter(|_| is_enough).unwrap_or(0.0)
            })
            .collect();
        times
            .iter()
            .zip(logs)
            .map(|(at, log)| log - of_part[self.part_at(*at)])
            .collect()
    }

    /// Returns the part of the period in which `at` is, from 0.
    fn part_at(&self, at: Time) -> usize {
        let of_part = self.period.as_nanos() / self.parts;
        (at.as_nanos() % self.period.as_nanos() / of_part) as usize
    }

    /// Returns the median over the period around each time, in which all parts are alike present.
    fn period_medians(&self, times: &[Time], logs: &[f64]) -> Vec<f64> {
        let half = self.period.as_nanos() / 2;
        let (mut from, mut to) = (0, 0);
        let levels = times.iter().map(|at| {
            from += times[from..]
                .iter()
                .take_while(|time| time.as_nanos() + half < at.as_nanos())
                .count();
            to += times[to..]
                .iter()
                .take_while(|time| time.as_nanos() <= at.as_nanos().saturating_add(half))
                .count();
            median(logs[from..to].to_vec()).unwrap_or(0.0)
        });
        levels.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_and_weekend_are_removed_and_a_step_is_kept() {
        let hours: Vec<u64> = (0..60 * 24).step_by(3).collect();
        let times: Vec<Time> = hours
            .iter()
            .map(|hour| Time::ZERO + Span::from_secs(hour * 3600))
            .collect();
        let step = |hour: &u64| if *hour < 30 * 24 { 0.0 } else { -0.3 };
        let busy = |hour: &u64| {
            if (9..18).contains(&(hour % 24)) {
                -0.2
            } else {
                0.0
            }
        };
        let logs = hours.iter().map(|hour| step(hour) + busy(hour)).collect();
        let left = without_patterns(&times, logs);
        let away = |(hour, left): (&u64, &f64)| (left - step(hour)).abs();
        assert!(
            hours.iter().zip(&left).map(away).all(|away| away < 1e-9),
            "{left:?}"
        );
    }

    #[test]
    fn a_short_history_keeps_everything() {
        let times: Vec<Time> = (0..40)
            .map(|hour| Time::ZERO + Span::from_secs(hour * 3600))
            .collect();
        let logs: Vec<f64> = (0..40).map(|hour| f64::from(hour % 24)).collect();
        assert_eq!(without_patterns(&times, logs.clone()), logs);
        assert_eq!(without_patterns(&[], vec![]), [0.0; 0]);
    }
}
