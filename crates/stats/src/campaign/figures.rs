//! Figures of runs that answer what Cottrell asked of his.

use crate::correlation::partial_rank_correlation;
use crate::{Magnitude, rank_correlation};
use fullpipe_record::{Measurement, SweepCell, SweepRtt, SweepRun};
use fullpipe_units::{BitRate, Ratio, SegCount, Span};

/// Fewest intervals that show if streams depend on each other.
const MIN_INTERVALS: usize = 4;
/// Fewest runs that show a correlation.
const MIN_RUNS: usize = 5;

/// Returns the variance of the rate of all streams over the sum of the variances of each, after the
/// ramp.
pub fn stream_variance_ratio(measurement: &Measurement) -> Option<Ratio> {
    let ramp = measurement.summary.steady.map(|steady| steady.ramp)?;
    let steady: Vec<Vec<f64>> = measurement
        .intervals
        .iter()
        .filter(|interval| interval.from >= ramp && interval.streams.len() > 1)
        .map(|interval| {
            interval
                .streams
                .iter()
                .map(|stream| stream.bytes.as_f64())
                .collect()
        })
        .collect();
    // The last interval may be shorter than the others.
    variance_ratio(&steady[..steady.len().saturating_sub(1)])
}

/// Returns the variance of the sum of the streams of each interval over the sum of the variances of
/// each stream.
fn variance_ratio(whole: &[Vec<f64>]) -> Option<Ratio> {
    let streams = whole.first()?.len();
    if whole.len() < MIN_INTERVALS || whole.iter().any(|rates| rates.len() != streams) {
        return None;
    }
    let all = variance(
        &whole
            .iter()
            .map(|rates| rates.iter().sum())
            .collect::<Vec<f64>>(),
    );
    let each: f64 = (0..streams)
        .map(|of| variance(&whole.iter().map(|rates| rates[of]).collect::<Vec<f64>>()))
        .sum();
    (each > 0.0).then(|| Ratio::from_quotient(all, each))
}

/// Returns the rate from which on round trips are longer under load, and the correlations of their
/// growth.
pub fn growth_of_rtt(runs: &[SweepRun]) -> Option<SweepRtt> {
    let seen: Vec<(&SweepRun, BitRate, Span)> = runs
        .iter()
        .filter_map(|run| {
            let growth = run.loaded_rtt?.saturating_sub(run.idle_rtt?);
            Some((run, run.rate?, growth))
        })
        .collect();
    if seen.len() < MIN_RUNS {
        return None;
    }
    let pairs: Vec<(BitRate, Span)> = seen
        .iter()
        .map(|(_, rate, growth)| (*rate, *growth))
        .collect();
    Some(SweepRtt {
        climbs_from: climbs_from(runs),
        with_rate: rank_correlation(&pairs).map_or(0.0, |correlation| correlation.coefficient),
        with_window: at_same_rate(&seen, |cell| cell.window),
        with_streams: at_same_rate(&seen, |cell| SegCount::new(cell.streams.into())),
        with_product: at_same_rate(&seen, SweepCell::flight_capacity),
    })
}

/// Returns the rate that best divides the runs with longer round trips from the others: few of the
/// first are slower, and few of the others as fast.
fn climbs_from(runs: &[SweepRun]) -> Option<BitRate> {
    let seen: Vec<(BitRate, bool)> = runs
        .iter()
        .filter_map(|run| Some((run.rate?, run.is_rtt_longer()?)))
        .collect();
    let rates = seen
        .iter()
        .filter(|(_, longer)| *longer)
        .map(|(rate, _)| Some(*rate));
    rates
        .chain([None])
        .min_by_key(|from| (count_exceptions(&seen, *from), *from))
        .flatten()
}

/// Returns the number of runs whose round trips are longer though they are slower than `from`, or
/// not longer though they are as fast.
fn count_exceptions(seen: &[(BitRate, bool)], from: Option<BitRate>) -> usize {
    seen.iter()
        .filter(|(rate, longer)| from.is_some_and(|from| *rate >= from) != *longer)
        .count()
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum::<f64>()
        / values.len() as f64
}

/// Returns the rank correlation of a quantity of settings with the growth of their round trips, at
/// the same rate; 0 where one of both never varies.
fn at_same_rate<X: Magnitude>(
    seen: &[(&SweepRun, BitRate, Span)],
    of: impl Fn(SweepCell) -> X,
) -> f64 {
    let runs: Vec<(X, Span, BitRate)> = seen
        .iter()
        .map(|(run, rate, growth)| (of(run.cell), *growth, *rate))
        .collect();
    partial_rank_correlation(&runs).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::SweepReason;
    use fullpipe_units::ByteCount;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    fn run(streams: u16, mbps: u64, loaded: Span) -> SweepRun {
        SweepRun {
            cell: SweepCell {
                window: ByteCount::from_kib(64),
                streams,
            },
            reason: SweepReason::Grid,
            rate: Some(BitRate::from_mbps(mbps)),
            sent: ByteCount::ZERO,
            took: Span::ZERO,
            idle_rtt: Some(Span::from_millis(20)),
            loaded_rtt: Some(loaded),
            retransmits: None,
            together: None,
            load: None,
            device: None,
            broken: Vec::new(),
        }
    }

    #[test]
    fn round_trips_that_grow_with_the_rate_alone_go_with_nothing_else() {
        let of = |mbps: u64| run(4, mbps, Span::from_millis(20 + mbps * mbps / 100));
        let runs: Vec<SweepRun> = [10, 40, 20, 80, 30].map(of).to_vec();
        let grown = growth_of_rtt(&runs).unwrap();
        assert!((grown.with_rate - 1.0).abs() < 1e-9, "{grown:?}");
        let set = [grown.with_window, grown.with_streams, grown.with_product];
        assert!(set.iter().all(|with| with.abs() < 1e-9), "{grown:?}");
        assert_eq!(grown.climbs_from, Some(BitRate::from_mbps(20)));
        assert_eq!(
            growth_of_rtt(&runs[1..]),
            None,
            "of four runs no correlation is known"
        );
    }

    #[test]
    fn round_trips_that_grow_at_the_same_rate_go_with_what_was_set() {
        // The queue fills with the streams once the path is full.
        let of = |streams: u16| {
            let mbps = (u64::from(streams) * 20).min(100 - u64::from(streams * 7 % 5));
            run(
                streams,
                mbps,
                Span::from_millis(20 + u64::from(streams.saturating_sub(5)) * 4),
            )
        };
        let grown = growth_of_rtt(&(1..20).map(of).collect::<Vec<_>>()).unwrap();
        assert!(
            grown.with_streams > 0.8 && grown.with_window.abs() < 1e-9,
            "{grown:?}"
        );
        assert!(
            grown.climbs_from >= Some(BitRate::from_mbps(95)),
            "{grown:?}"
        );
    }

    #[test]
    fn one_slow_run_with_a_long_round_trip_is_an_exception() {
        let mut runs: Vec<SweepRun> = (1..20)
            .map(|step| {
                run(
                    4,
                    step * 30,
                    Span::from_millis(if step * 30 > 320 { 30 } else { 20 }),
                )
            })
            .collect();
        runs.push(run(4, 50, Span::from_millis(60)));
        assert_eq!(
            growth_of_rtt(&runs).unwrap().climbs_from,
            Some(BitRate::from_mbps(330))
        );
        let never: Vec<SweepRun> = (1..20)
            .map(|step| run(4, step * 30, Span::from_millis(20)))
            .collect();
        assert_eq!(growth_of_rtt(&never).unwrap().climbs_from, None);
    }

    #[test]
    fn streams_that_take_up_what_one_leaves_vary_less_together() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let drawn: Vec<[f64; 4]> = (0..200)
            .map(|_| [(); 4].map(|()| (random.next_u64() >> 40) as f64 / 16_777_216.0))
            .collect();
        let of = |rates: &dyn Fn(&[f64; 4]) -> [f64; 4]| {
            let intervals: Vec<Vec<f64>> =
                drawn.iter().map(|drawn| rates(drawn).to_vec()).collect();
            variance_ratio(&intervals).unwrap().get()
        };
        // One is held back, by more and by less, and the three others share what it leaves.
        let taken_up = of(&|[one, a, b, c]| {
            [
                -one,
                one / 3.0 + a / 9.0,
                one / 3.0 + b / 9.0,
                one / 3.0 + c / 9.0,
            ]
        });
        let [apart, all_alike] = [of(&|drawn| *drawn), of(&|[one, ..]| [*one; 4])];
        assert!(
            taken_up < 0.1 && (0.8..1.2).contains(&apart) && all_alike > 3.9,
            "{taken_up} {apart} {all_alike}"
        );
        assert_eq!(variance_ratio(&[]), None);
    }
}
