//! The rate of several streams over one path.

use fullpipe_units::BitRate;

/// The rate of `streams` of which `each` alone would have that rate: their sum, up to the
/// `capacity`.
///
/// With `each` as window ÷ RTT it is the rule of parallel windows; with `each` by Mathis's formula
/// it is that of Hacker, Athey and Noble 2002, which holds as long as the streams' own load adds no
/// loss: not once the link is full.
pub fn combined_rate(streams: u16, each: BitRate, capacity: BitRate) -> BitRate {
    BitRate::from_bps(each.bps().saturating_mul(streams.into())).min(capacity)
}

/// The fewest streams of that rate `each` that fill `capacity`: more add loss and queue, not rate.
/// `None` where no number that fits does.
pub fn to_fill(each: BitRate, capacity: BitRate) -> Option<u16> {
    if capacity == BitRate::ZERO {
        return Some(0);
    }
    capacity
        .bps()
        .checked_next_multiple_of(each.bps())?
        .checked_div(each.bps())?
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::mathis_window;
    use crate::window;
    use fullpipe_units::{ByteCount, Ratio, Span};
    use proptest::prelude::*;

    #[test]
    fn parallel_windows_of_64_kib_fill_a_gigabit_with_191() {
        let rtt = Span::from_millis(100);
        let each = window::rate_of_window(ByteCount::from_kib(64), rtt);
        let gigabit = BitRate::from_mbps(1000);
        assert_eq!(to_fill(each, gigabit), Some(191));
        assert_eq!(combined_rate(10, each, gigabit).to_string(), "52.43 Mbit/s");
        assert_eq!(combined_rate(191, each, gigabit), gigabit);
    }

    #[test]
    fn under_loss_streams_add_up_until_the_link_is_full() {
        let rtt = Span::from_millis(100);
        let each =
            window::rate_of_window(mathis_window(Ratio::new(1e-4), ByteCount::new(1460)), rtt);
        assert_eq!(each.to_string(), "14.31 Mbit/s");
        assert_eq!(
            combined_rate(4, each, BitRate::from_mbps(100)).to_string(),
            "57.22 Mbit/s"
        );
        assert_eq!(to_fill(each, BitRate::from_mbps(100)), Some(7));
    }

    #[test]
    fn no_rate_fills_nothing() {
        assert_eq!(to_fill(BitRate::ZERO, BitRate::from_bps(1)), None);
        assert_eq!(to_fill(BitRate::from_bps(1), BitRate::from_mbps(1)), None);
        assert_eq!(to_fill(window::UNBOUNDED, window::UNBOUNDED), Some(1));
        assert_eq!(to_fill(BitRate::ZERO, BitRate::ZERO), Some(0));
    }

    proptest! {
        #[test]
        fn the_number_that_fills_fills_and_one_less_does_not(each: u64, capacity: u64, streams: u16) {
            let (each, capacity) = (BitRate::from_bps(each), BitRate::from_bps(capacity));
            prop_assert!(combined_rate(streams, each, capacity) <= combined_rate(streams.saturating_add(1), each, capacity));
            if let Some(fills) = to_fill(each, capacity) {
                prop_assert_eq!(combined_rate(fills, each, capacity), capacity);
                prop_assert!(fills == 0 || combined_rate(fills - 1, each, capacity) < capacity);
            }
        }
    }
}
