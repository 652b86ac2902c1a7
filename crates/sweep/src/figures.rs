//! Figures of runs that answer what Cottrell asked of his.

use fullpipe_record::{Measurement, SweepRtt, SweepRun};
use fullpipe_stats::{Magnitude, rank_correlation};
use fullpipe_units::{BitRate, Ratio, SegCount, Span};

/// Fewest intervals that show if streams depend on each other.
const MIN_INTERVALS: usize = 4;
/// Fewest runs that show a correlation.
const MIN_RUNS: usize = 5;

/// Returns the variance of the rate of all streams over the sum of the variances of each, after the ramp.
pub(crate) fn together(measurement: &Measurement) -> Option<Ratio> {
    let ramp = measurement.summary.steady.map(|steady| steady.ramp)?;
    let steady: Vec<Vec<f64>> = measurement
        .intervals
        .iter()
        .filter(|interval| interval.from >= ramp && interval.streams.len() > 1)
        .map(|interval| interval.streams.iter().map(|stream| stream.bytes.as_f64()).collect())
        .collect();
    let streams = steady.first()?.len();
    // The last interval may be shorter than the others.
    let whole = &steady[..steady.len() - 1];
    if whole.len() < MIN_INTERVALS || whole.iter().any(|rates| rates.len() != streams) {
        return None;
    }
    let all = variance(&whole.iter().map(|rates| rates.iter().sum()).collect::<Vec<f64>>());
    let each: f64 = (0..streams).map(|of| variance(&whole.iter().map(|rates| rates[of]).collect::<Vec<f64>>())).sum();
    (each > 0.0).then(|| Ratio::of(all, each))
}

/// Returns the rate from which on round trips are longer under load, and the correlations of their growth.
pub(crate) fn growth_of_rtt(runs: &[SweepRun]) -> Option<SweepRtt> {
    let growth = |run: &SweepRun| Some(run.loaded_rtt?.saturating_sub(run.idle_rtt?));
    let seen: Vec<(&SweepRun, BitRate, Span)> =
        runs.iter().filter_map(|run| Some((run, run.rate?, growth(run)?))).collect();
    if seen.len() < MIN_RUNS {
        return None;
    }
    Some(SweepRtt {
        climbs_from: runs.iter().filter(|run| run.is_rtt_longer() == Some(true)).filter_map(|run| run.rate).min(),
        with_rate: with(&seen, |_, rate| rate),
        with_window: with(&seen, |run, _| run.cell.window),
        with_streams: with(&seen, |run, _| SegCount::new(run.cell.streams.into())),
        with_product: with(&seen, |run, _| run.cell.product()),
    })
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64
}

/// Returns the rank correlation of a quantity of runs with the growth of their round trips; 0 where one of both never
/// varies.
fn with<X: Magnitude>(seen: &[(&SweepRun, BitRate, Span)], of: impl Fn(&SweepRun, BitRate) -> X) -> f64 {
    let pairs: Vec<(X, Span)> = seen.iter().map(|(run, rate, growth)| (of(run, *rate), *growth)).collect();
    rank_correlation(&pairs).map_or(0.0, |correlation| correlation.coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{SweepCell, SweepReason};
    use fullpipe_units::ByteCount;

    #[test]
    fn round_trips_that_grow_with_the_rate_alone_go_with_nothing_else() {
        let run = |mbps: u64| SweepRun {
            cell: SweepCell { window: ByteCount::from_kib(64), streams: 4 },
            reason: SweepReason::Grid,
            rate: Some(BitRate::from_mbps(mbps)),
            sent: ByteCount::ZERO,
            took: Span::ZERO,
            idle_rtt: Some(Span::from_millis(20)),
            loaded_rtt: Some(Span::from_millis(20 + mbps * mbps / 100)),
            retransmits: None,
            together: None,
            broken: Vec::new(),
        };
        let runs: Vec<SweepRun> = [10, 40, 20, 80, 30].map(run).to_vec();
        let grown = growth_of_rtt(&runs).unwrap();
        assert!((grown.with_rate - 1.0).abs() < 1e-9, "{grown:?}");
        let set = [grown.with_window, grown.with_streams, grown.with_product];
        assert!(set.iter().all(|with| with.abs() < 1e-9), "{grown:?}");
        assert_eq!(grown.climbs_from, Some(BitRate::from_mbps(20)));
        assert_eq!(growth_of_rtt(&runs[1..]), None, "of four runs no correlation is known");
    }
}
