//! Intervals between two of the sorted values, as rank tests give them.

use fullpipe_units::median;

/// An estimate with the interval that holds the true value in 95 % of all cases or more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct IntervalEstimate {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Returns the median of `values`, with the interval that leaves out `cut` of them at each end;
/// `None` if that is all.
pub(crate) fn median_interval(mut values: Vec<f64>, cut: usize) -> Option<IntervalEstimate> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values
        .len()
        .checked_sub(1 + cut)
        .filter(|last| *last >= cut)?;
    Some(IntervalEstimate {
        estimate: median(values.clone())?,
        low: values[cut],
        high: values[last],
    })
}

/// Returns the largest index up to which the `shares` sum to 2.5 % at most; `None` if the first one
/// alone exceeds that.
pub(crate) fn lower_tail(shares: &[f64]) -> Option<usize> {
    let mut sum = 0.0;
    let within = shares.iter().take_while(|share| {
        sum += **share;
        sum <= 0.025
    });
    within.count().checked_sub(1)
}
