//! Bins whose width is a share of the values in them.

/// Returns the bin of `value`: each doubling has 2^`bits` of them, of equal width.
pub(crate) fn bin_index(value: u64, bits: u32) -> u16 {
    let value = value.max(1);
    let doublings = value.ilog2();
    let scaled = if doublings >= bits {
        value >> (doublings - bits)
    } else {
        value << (bits - doublings)
    };
    let within = scaled & ((1 << bits) - 1);
    ((u64::from(doublings) << bits) | within) as u16
}

/// Returns the middle of a bin.
pub(crate) fn bin_middle(bin: u16, bits: u32) -> u64 {
    let parts = f64::from(1_u32 << bits);
    let (doublings, within) = (bin >> bits, f64::from(bin & ((1 << bits) - 1)));
    (f64::from(doublings).exp2() * (1.0 + (within + 0.5) / parts)) as u64
}

/// Amounts by bin. Few bins are in use, so they are kept in order and not by place.
#[derive(Debug, Clone, Default)]
pub(crate) struct BinnedAmounts<T = u64> {
    all: Vec<(u16, T)>,
    /// Places of those that were changed last, by the last bits of their bins.
    last: [u16; 8],
}

impl<T: Default> BinnedAmounts<T> {
    /// Returns the bytes that they take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.all.capacity() * size_of::<(u16, T)>()
    }

    /// Returns the amount of a bin.
    pub(crate) fn amount_mut(&mut self, bin: u16) -> &mut T {
        // Most follow another of their bin, or a few of other bins.
        let last = &mut self.last[usize::from(bin) % 8];
        let mut place = usize::from(*last);
        if self.all.get(place).is_none_or(|last| last.0 != bin) {
            place = self.all.partition_point(|known| known.0 < bin);
            if self.all.get(place).is_none_or(|known| known.0 != bin) {
                self.all.insert(place, (bin, T::default()));
            }
            *last = place as u16;
        }
        &mut self.all[place].1
    }

    /// Returns bins and their amounts in ascending order of the bins.
    pub(crate) fn bin_amounts(&self) -> &[(u16, T)] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_in_order_whatever_they_were_added_in() {
        let mut amounts = BinnedAmounts::<u64>::default();
        for (bin, amount) in [(7, 1), (7, 2), (3, 5), (9, 1), (7, 4), (3, 1)] {
            *amounts.amount_mut(bin) += amount;
        }
        assert_eq!(amounts.bin_amounts(), [(3, 6), (7, 7), (9, 1)]);
    }

    #[test]
    fn a_value_is_as_far_from_the_middle_of_its_bin_as_half_its_width() {
        for bits in [5, 6] {
            for value in [
                1_u64 << 20,
                1_000_003,
                123_456_789,
                u64::from(u32::MAX),
                1 << 40,
                u64::MAX,
            ] {
                let off = bin_middle(bin_index(value, bits), bits) as f64 / value as f64 - 1.0;
                assert!(
                    off.abs() <= 0.5 / f64::from(1_u32 << bits) + 1e-9,
                    "{value}: {off}"
                );
            }
            assert!(bin_index(1_000, bits) < bin_index(1_100, bits));
        }
        assert_eq!(bin_index(0, 5), bin_index(1, 5));
    }
}
