use fullpipe_units::median;

/// Returns the median of each value with `around` values on either side, fewer at the ends.
pub(super) fn running_medians(values: &[f64], around: usize) -> Vec<f64> {
    (0..values.len())
        .map(|index| {
            let end = (index + around + 1).min(values.len());
            let window = &values[index.saturating_sub(around)..end];
            median(window.to_vec()).unwrap_or(values[index])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_median_keeps_steps_and_drops_bursts() {
        let values = [1.0, 1.0, 9.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0];
        assert_eq!(
            running_medians(&values, 1),
            [1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0]
        );
        assert_eq!(running_medians(&[], 3), [0.0; 0]);
    }
}
