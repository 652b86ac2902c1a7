//! The value at which an answer turns from yes to no.

/// The value at which a question turns, found by halving: each holds a question that is answered the other way just
/// beyond.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Critical<T> {
    /// No value of the range will do.
    Never,
    /// Every value of the range will do.
    Always,
    /// This will do, and its neighbour will not.
    At(T),
}

impl<T> Critical<T> {
    pub(crate) fn map<U>(self, to: impl FnOnce(T) -> U) -> Critical<U> {
        match self {
            Self::Never => Critical::Never,
            Self::Always => Critical::Always,
            Self::At(value) => Critical::At(to(value)),
        }
    }
}

/// The least of `low..=high` that will do, where more is never worse.
pub(crate) fn least(low: u64, high: u64, will_do: impl Fn(u64) -> bool) -> Critical<u64> {
    if will_do(low) {
        return Critical::Always;
    }
    if !will_do(high) {
        return Critical::Never;
    }
    let (mut too_little, mut enough) = (low, high);
    while enough - too_little > 1 {
        let middle = too_little.midpoint(enough);
        if will_do(middle) { enough = middle } else { too_little = middle }
    }
    Critical::At(enough)
}

/// The most of `low..=high` that will do, where less is never worse.
pub(crate) fn most(low: u64, high: u64, will_do: impl Fn(u64) -> bool) -> Critical<u64> {
    match least(low, high, |value| !will_do(value)) {
        Critical::Never => Critical::Always,
        Critical::Always => Critical::Never,
        Critical::At(too_much) => Critical::At(too_much - 1),
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
                turn if turn <= low => Critical::Always,
                turn if turn > high => Critical::Never,
                turn => Critical::At(turn),
            };
            prop_assert_eq!(least(low, high, |value| value >= turn), expected);
            let expected = match turn {
                turn if turn < low => Critical::Never,
                turn if turn >= high => Critical::Always,
                turn => Critical::At(turn),
            };
            prop_assert_eq!(most(low, high, |value| value <= turn), expected);
        }
    }
}
