//! The value at which an answer turns from yes to no.

/// The value at which a question turns, found by halving: each holds a question that is answered
/// the other way just beyond.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CriticalValue<T> {
    /// No value of the range will do.
    Never,
    /// Every value of the range will do.
    Always,
    /// This will do, and its neighbour will not.
    At(T),
}

impl<T> CriticalValue<T> {
    pub(crate) fn map<U>(self, to: impl FnOnce(T) -> U) -> CriticalValue<U> {
        match self {
            Self::Never => CriticalValue::Never,
            Self::Always => CriticalValue::Always,
            Self::At(value) => CriticalValue::At(to(value)),
        }
    }
}

/// The least of `low..=high` that will do, where more is never worse.
pub(crate) fn least_sufficient(
    low: u64,
    high: u64,
    will_do: impl Fn(u64) -> bool,
) -> CriticalValue<u64> {
    if will_do(low) {
        return CriticalValue::Always;
    }
    if !will_do(high) {
        return CriticalValue::Never;
    }
    let (mut too_little, mut enough) = (low, high);
    while enough - too_little > 1 {
        let middle = too_little.midpoint(enough);
        if will_do(middle) {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    CriticalValue::At(enough)
}

/// The most of `low..=high` that will do, where less is never worse.
pub(crate) fn most_sufficient(
    low: u64,
    high: u64,
    will_do: impl Fn(u64) -> bool,
) -> CriticalValue<u64> {
    match least_sufficient(low, high, |value| !will_do(value)) {
        CriticalValue::Never => CriticalValue::Always,
        CriticalValue::Always => CriticalValue::Never,
        CriticalValue::At(too_much) => CriticalValue::At(too_much - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_turn_is_found(low in 0_u64..1000, length in 0_u64..1000, turn in 0_u64..3000) {
            let high = low + length;
            let expected = match turn {
                turn if turn <= low => CriticalValue::Always,
                turn if turn > high => CriticalValue::Never,
                turn => CriticalValue::At(turn),
            };
            prop_assert_eq!(least_sufficient(low, high, |value| value >= turn), expected);
            let expected = match turn {
                turn if turn < low => CriticalValue::Never,
                turn if turn >= high => CriticalValue::Always,
                turn => CriticalValue::At(turn),
            };
            prop_assert_eq!(most_sufficient(low, high, |value| value <= turn), expected);
        }
    }
}
