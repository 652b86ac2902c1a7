use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// The order of the two runs of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairOrder {
    /// A, then B.
    Ab,
    /// B, then A.
    Ba,
}

/// Returns the order within each of `pairs` pairs: half of them begin with A (of an odd number, one
/// pair more or less), in random places that follow from `seed`. Neither drift nor an advantage of
/// the first run then favours A or B.
pub fn pair_orders(pairs: usize, seed: u64) -> Vec<PairOrder> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let first = usize::from(random.next_u64() % 2 == 0);
    let mut orders: Vec<PairOrder> = (0..pairs)
        .map(|pair| {
            if (pair + first) % 2 == 0 {
                PairOrder::Ab
            } else {
                PairOrder::Ba
            }
        })
        .collect();
    shuffle(&mut orders, &mut random);
    orders
}

/// Fisher and Yates's shuffle.
pub(crate) fn shuffle<T>(values: &mut [T], random: &mut Pcg64Mcg) {
    for last in (1..values.len()).rev() {
        let other = (random.next_u64() % (last as u64 + 1)) as usize;
        values.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_pairs_begin_with_a_in_an_order_that_follows_from_the_seed() {
        for seed in 0..50 {
            let orders = pair_orders(12, seed);
            assert_eq!(
                orders
                    .iter()
                    .filter(|order| **order == PairOrder::Ab)
                    .count(),
                6
            );
            assert_eq!(orders, pair_orders(12, seed));
        }
        assert_ne!(pair_orders(12, 1), pair_orders(12, 2));
        let odd = (0..200)
            .filter(|seed| pair_orders(1, *seed) == [PairOrder::Ab])
            .count();
        assert!(
            (70..130).contains(&odd),
            "{odd} of 200 single pairs begin with A"
        );
    }
}
