//! Figures of runs that answer what Cottrell asked of his.

use fullpipe_record::{Measurement, SweepRtt, SweepRun};
use fullpipe_units::Ratio;

/// Fewest intervals and runs that show a correlation.
const MIN_POINTS: usize = 4;

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
    if whole.len() < MIN_POINTS || whole.iter().any(|rates| rates.len() != streams) {
        return None;
    }
    let all = variance(&whole.iter().map(|rates| rates.iter().sum()).collect::<Vec<f64>>());
    let each: f64 = (0..streams).map(|of| variance(&whole.iter().map(|rates| rates[of]).collect::<Vec<f64>>())).sum();
    (each > 0.0).then(|| Ratio::of(all, each))
}

/// Returns the rate from which on round trips are longer under load, and the correlations of their growth.
pub(crate) fn growth_of_rtt(runs: &[SweepRun]) -> Option<SweepRtt> {
    let seen: Vec<(&SweepRun, f64, f64)> = runs
        .iter()
        .filter_map(|run| Some((run, run.rate?.as_f64(), run.loaded_rtt?.as_secs_f64() - run.idle_rtt?.as_secs_f64())))
        .collect();
    if seen.len() < MIN_POINTS {
        return None;
    }
    let growth: Vec<f64> = seen.iter().map(|(_, _, growth)| *growth).collect();
    let with =
        |of: &dyn Fn(&SweepRun) -> f64| correlation(&seen.iter().map(|(run, ..)| of(run)).collect::<Vec<_>>(), &growth);
    Some(SweepRtt {
        climbs_from: runs.iter().filter(|run| run.is_rtt_longer() == Some(true)).filter_map(|run| run.rate).min(),
        with_rate: correlation(&seen.iter().map(|(_, rate, _)| *rate).collect::<Vec<_>>(), &growth),
        with_window: with(&|run| run.cell.window.as_f64()),
        with_streams: with(&|run| f64::from(run.cell.streams)),
        with_product: with(&|run| run.cell.product().as_f64()),
    })
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64
}

/// Returns Spearman's rank correlation: Pearson's of the ranks, equal values with their mean rank; 0 where one of both
/// never varies.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let middle = (a.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>();
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    if spread > 0.0 { product(&a, &b) / spread } else { 0.0 }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count() as f64;
    let equal = |value: f64| values.iter().filter(|other| other.total_cmp(&value).is_eq()).count() as f64;
    values.iter().map(|value| below(*value) + (equal(*value) - 1.0) / 2.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_correlation_is_of_ranks() {
        let rising = [1.0, 2.0, 30.0, 400.0];
        assert!((correlation(&rising, &[1.0, 2.0, 3.0, 4.0]) - 1.0).abs() < 1e-12);
        assert!((correlation(&rising, &[4.0, 3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert!(correlation(&rising, &[5.0; 4]).abs() < 1e-12);
        assert_eq!(ranks(&[2.0, 1.0, 2.0]), [1.5, 0.0, 1.5]);
    }
}
