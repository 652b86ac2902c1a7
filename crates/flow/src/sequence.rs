//! Sequence numbers of 32 bits as positions that never wrap.

/// The sequence space of one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SequenceSpace {
    /// Highest position so far.
    highest: Option<u64>,
}

impl SequenceSpace {
    /// Returns the position of `number`, which is taken as less than 2 GiB from the highest one so
    /// far.
    pub(crate) fn position(self, number: u32) -> u64 {
        // From the second round on, so that what comes before the first packet has a position too.
        const SECOND_ROUND: u64 = 1 << 32;
        let Some(highest) = self.highest else {
            return SECOND_ROUND + u64::from(number);
        };
        let distance = number.wrapping_sub(highest as u32).cast_signed();
        highest.saturating_add_signed(distance.into())
    }

    /// Takes note that `position` was reached.
    pub(crate) fn advance_to(&mut self, position: u64) {
        self.highest = self.highest.max(Some(position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_where_numbers_wrap() {
        let mut sequence = SequenceSpace::default();
        let first = sequence.position(u32::MAX - 10);
        sequence.advance_to(first);
        let second = sequence.position(20);
        assert_eq!(second - first, 31);
        sequence.advance_to(second);
        assert_eq!(
            sequence.position(u32::MAX - 10),
            first,
            "an old number keeps its position"
        );
    }
}
