use fullpipe_units::{BitRate, Ratio};

use crate::difference::mean_and_square_error;
use crate::student;

/// Mean of a rate within one run, with the 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateInterval {
    /// Mean.
    pub mean: BitRate,
    /// Lower end of the interval.
    pub low: BitRate,
    /// Upper end.
    pub high: BitRate,
}

impl RateInterval {
    /// Returns true if the interval reaches no further than this share of the mean to either side;
    /// never of a rate of zero.
    pub fn is_within(&self, share: Ratio) -> bool {
        let half = self.high.as_f64() - self.mean.as_f64();
        self.mean > BitRate::ZERO && half <= self.mean.as_f64() * share.get()
    }
}

/// Blocks into which a run is cut.
const BLOCKS: usize = 5;

/// Returns the mean of the steady part of one run from its rates at equal intervals, in the order
/// of time. `None` of fewer than five; what exceeds a multiple of five is cut off at the beginning.
///
/// The interval is Student's over the means of five blocks (batch means; Law, Simulation Modeling
/// and Analysis, 5th edition, 9.5.3), because samples that follow each other are alike: one over
/// single samples holds the true mean in half of all cases and fewer. With 200 samples it holds in
/// 94 % of all cases if they are alike for a 50th of the run, in 90 % for a tenth, in 61 % for
/// half. It says nothing about the next run: [`crate::paired_difference`] and
/// [`crate::unpaired_difference`] do.
pub fn within_run(rates: &[BitRate]) -> Option<RateInterval> {
    let length = rates.len() / BLOCKS;
    let means: Vec<f64> = rates[rates.len() % BLOCKS..]
        .chunks_exact(length.max(1))
        .map(|block| block.iter().map(|rate| rate.as_f64()).sum::<f64>() / length as f64)
        .collect();
    let (mean, square) = mean_and_square_error(&means).filter(|_| length > 0)?;
    let half = student::student_quantile(0.975, BLOCKS - 1) * square.sqrt();
    let [mean, low, high] = [mean, mean - half, mean + half].map(BitRate::from_bps_f64);
    Some(RateInterval { mean, low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_blocks_have_students_interval() {
        let rates: Vec<BitRate> = [99, 8, 10, 10, 11, 9, 11, 9, 11, 13, 11]
            .map(BitRate::from_mbps)
            .to_vec();
        // The first is cut off. Means of the blocks: 9, 10.5, 10, 10, 12; with 2.776 of Student's
        // table.
        let found = within_run(&rates).unwrap();
        let (mean, half) = (10.3e6, 2.776 * (1.2_f64 / 5.0).sqrt() * 1e6);
        for (is, shall) in [
            (found.mean, mean),
            (found.low, mean - half),
            (found.high, mean + half),
        ] {
            assert!((is.as_f64() - shall).abs() < 1e3, "{found:?}");
        }
        let share = 2.776 * (1.2_f64 / 5.0).sqrt() / 10.3;
        assert!(found.is_within(Ratio::new(share + 1e-3)));
        assert!(!found.is_within(Ratio::new(share - 1e-3)));
        let zero = within_run(&[BitRate::ZERO; 5]).unwrap();
        assert!(!zero.is_within(Ratio::ONE), "no rate has no share of it");
        assert_eq!((within_run(&rates[..4]), within_run(&[])), (None, None));
    }
}
