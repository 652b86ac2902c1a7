/// Returns the median of some values, the upper one of two in the middle; `None` of no values.
pub fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
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
}
