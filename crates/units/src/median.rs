use crate::BitRate;

/// Returns the median of some values, the upper one of two in the middle; `None` of no values.
pub fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Returns the median of some rates, half-way between two in the middle; `None` of no rates.
pub fn median_rate(rates: &[BitRate]) -> Option<BitRate> {
    let mut sorted = rates.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    let [lower, upper] = [last / 2, sorted.len() / 2].map(|index| sorted[index].as_f64());
    Some(BitRate::from_bps_f64(lower.midpoint(upper)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_of_two_in_the_middle_is_the_median() {
        assert_eq!(median(vec![5, 1, 3]), Some(3));
        assert_eq!(median(vec![4, 1, 3, 2]), Some(3));
        assert_eq!(median::<u8>(Vec::new()), None);
    }

    #[test]
    fn the_median_of_two_rates_is_between_them() {
        let of = |mbps: &[u64]| median_rate(&mbps.iter().copied().map(BitRate::from_mbps).collect::<Vec<_>>());
        assert_eq!(of(&[5, 1, 3]), Some(BitRate::from_mbps(3)));
        assert_eq!(of(&[4, 1, 3, 2]), Some(BitRate::from_bps(2_500_000)));
        assert_eq!(of(&[]), None);
    }
}
