use std::cmp::Ordering;

use crate::{BitRate, ByteCount, Ratio, SegCount, Span};

/// A quantity of which two values have one half-way between them.
pub trait Midpoint: Copy {
    /// Returns the order of two values; it is total.
    fn order(&self, other: &Self) -> Ordering;

    /// Returns the value half-way to `other`, rounded down in the smallest unit.
    #[must_use]
    fn midpoint(self, other: Self) -> Self;
}

/// Returns the median of some values, half-way between the two in the middle of an even number;
/// `None` of no values.
pub fn median<T: Midpoint>(mut values: Vec<T>) -> Option<T> {
    let middle = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    // Much faster than sorting all of them.
    let (lower, upper, _) =
        (middle < values.len()).then(|| values.select_nth_unstable_by(middle, T::order))?;
    let below = lower.iter().copied().max_by(T::order).filter(|_| !is_odd);
    Some(below.map_or(*upper, |below| below.midpoint(*upper)))
}

/// Implements the trait for integers, and for quantities of a whole number.
macro_rules! midpoint {
    ($($number:ty),+; $($quantity:ty: $read:ident, $make:ident);+) => {
        $(impl Midpoint for $number {
            fn order(&self, other: &Self) -> Ordering {
                self.cmp(other)
            }

            fn midpoint(self, other: Self) -> Self {
                <$number>::midpoint(self, other)
            }
        })+
        $(impl Midpoint for $quantity {
            fn order(&self, other: &Self) -> Ordering {
                self.cmp(other)
            }

            fn midpoint(self, other: Self) -> Self {
                Self::$make(self.$read().midpoint(other.$read()))
            }
        })+
    };
}

midpoint!(u32, u64, i64; BitRate: bps, from_bps; ByteCount: get, new; SegCount: get, new; Span: as_nanos, from_nanos);

impl Midpoint for f64 {
    fn order(&self, other: &Self) -> Ordering {
        self.total_cmp(other)
    }

    fn midpoint(self, other: Self) -> Self {
        Self::midpoint(self, other)
    }
}

impl Midpoint for Ratio {
    fn order(&self, other: &Self) -> Ordering {
        self.get().total_cmp(&other.get())
    }

    fn midpoint(self, other: Self) -> Self {
        Self::new(self.get().midpoint(other.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_median_of_an_even_number_is_half_way_between_two() {
        for (values, middle) in [
            (vec![5, 1, 3], Some(3)),
            (vec![4, 1, 3, 2], Some(2)),
            (vec![7], Some(7)),
            (vec![], None),
        ] {
            assert_eq!(median::<u64>(values), middle);
        }
        // Four files: 619.1 was the upper one.
        let rates = [425.3, 400.1, 619.1, 941.2].map(|mbps| BitRate::from_bps_f64(mbps * 1e6));
        assert_eq!(median(rates.to_vec()), Some(BitRate::from_bps(522_200_000)));
        assert_eq!(
            median(vec![Span::from_nanos(1), Span::from_nanos(4)]),
            Some(Span::from_nanos(2))
        );
        assert_eq!(
            median(vec![Ratio::new(0.5), Ratio::new(0.25)]),
            Some(Ratio::new(0.375))
        );
    }

    proptest! {
        #[test]
        fn half_of_the_values_lie_on_either_side(values in prop::collection::vec(-1e9_f64..1e9, 1..40)) {
            let middle = median(values.clone()).unwrap();
            let count = |is: fn(f64, f64) -> bool| values.iter().filter(|value| is(**value, middle)).count();
            prop_assert!(2 * count(|value, middle| value < middle) <= values.len());
            prop_assert!(2 * count(|value, middle| value > middle) <= values.len());
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let expected = sorted[(sorted.len() - 1) / 2].midpoint(sorted[sorted.len() / 2]);
            prop_assert!((middle - expected).abs() < 1e-9, "{} of {:?}", middle, sorted);
        }
    }
}
