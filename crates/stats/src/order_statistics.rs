//! Intervals between two of the sorted values, as rank tests give them.

/// An estimate with the interval that holds the true value in 95 % of all cases or more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Located {
    pub(crate) estimate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Returns the median of `values`, with the interval that leaves out `cut` of them at each end; `None` if that is all.
pub(crate) fn interval(mut values: Vec<f64>, cut: usize) -> Option<Located> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1 + cut).filter(|last| *last >= cut)?;
    Some(Located { estimate: median_of_sorted(&values)?, low: values[cut], high: values[last] })
}

/// Returns the largest index up to which the `shares` sum to 2.5 % at most; `None` if the first one alone exceeds that.
pub(crate) fn lower_tail(shares: &[f64]) -> Option<usize> {
    let mut sum = 0.0;
    let within = shares.iter().take_while(|share| {
        sum += **share;
        sum <= 0.025
    });
    within.count().checked_sub(1)
}

/// Returns the median; of an even count, the mean of the middle two. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    let middle = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    // Much faster than sorting all of them.
    let (lower, upper, _) = (middle < values.len()).then(|| values.select_nth_unstable_by(middle, f64::total_cmp))?;
    let below = lower.iter().copied().max_by(f64::total_cmp).filter(|_| !is_odd);
    Some(below.map_or(*upper, |below| f64::midpoint(below, *upper)))
}

/// Returns the median of sorted values, as [`median`] does.
pub(crate) fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(sorted[(sorted.len() - 1) / 2], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        for (values, middle) in [(&[3.0, 1.0, 2.0][..], Some(2.0)), (&[4.0, 1.0, 2.0, 3.0], Some(2.5)), (&[], None)] {
            assert_eq!(median(values), middle);
            let mut sorted = values.to_vec();
            sorted.sort_unstable_by(f64::total_cmp);
            assert_eq!(median_of_sorted(&sorted), middle);
        }
    }
}
