//! Slow start without loss: the window doubles every round trip (RFC 5681 §3.1 with appropriate byte counting).

use fullpipe_record::Ramp;
use fullpipe_units::{ByteCount, SegCount, Span};

/// The first window (RFC 6928), in segments.
pub const INITIAL_WINDOW: SegCount = SegCount::new(10);

/// How slow start reaches `window`: ⌈log₂(window ÷ (10 · `mss`))⌉ rounds of one `rtt` each.
///
/// Holds where slow start is not left early, by loss or by `HyStart`, and where neither end's buffer lags behind.
pub fn ramp(window: ByteCount, mss: ByteCount, rtt: Span) -> Ramp {
    let first = INITIAL_WINDOW.of_size(mss);
    let rounds = doublings(first, window);
    // 10 · mss · (1 + 2 + 4 + …)
    let sent = u128::from(first.get()) * ((1_u128 << rounds) - 1);
    Ramp { rounds, duration: rtt * u64::from(rounds), bytes: ByteCount::new(u64::try_from(sent).unwrap_or(u64::MAX)) }
}

/// ⌈log₂(window ÷ first)⌉; none where `first` is nothing, as no window is then ever reached.
fn doublings(first: ByteCount, window: ByteCount) -> u32 {
    if first == ByteCount::ZERO || window <= first {
        return 0;
    }
    let times = window.get().div_ceil(first.get());
    u64::BITS - (times - 1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window;
    use fullpipe_units::BitRate;
    use proptest::prelude::*;

    const MSS: ByteCount = ByteCount::new(1448);

    #[test]
    fn long_fat_networks_take_seconds_to_fill() {
        for (gbps, rtt_ms, rounds, secs, megabytes) in
            [(1, 100, 10, 1.0, "14.8"), (1, 200, 11, 2.2, "29.6"), (10, 100, 14, 1.4, "237.2")]
        {
            let rtt = Span::from_millis(rtt_ms);
            let got = ramp(window::bdp(BitRate::from_mbps(gbps * 1000), rtt), MSS, rtt);
            assert_eq!(got.rounds, rounds);
            assert_eq!(got.duration, Span::from_secs_f64(secs));
            assert_eq!(format!("{:.1}", got.bytes.as_f64() / 1e6), megabytes);
        }
    }

    #[test]
    fn rounds_change_where_the_window_passes_a_doubling() {
        for (segments, rounds) in [(0, 0), (1, 0), (10, 0), (11, 1), (20, 1), (21, 2), (40, 2), (41, 3)] {
            let got = ramp(SegCount::new(segments).of_size(MSS), MSS, Span::from_millis(1));
            assert_eq!(got.rounds, rounds, "{segments} segments");
        }
    }

    #[test]
    fn no_segment_no_ramp() {
        let got = ramp(ByteCount::new(u64::MAX), ByteCount::ZERO, Span::MAX);
        assert_eq!((got.rounds, got.bytes), (0, ByteCount::ZERO));
    }

    proptest! {
        #[test]
        fn the_last_round_reaches_the_window_and_the_one_before_does_not(window: u64, mss in 1_u64..100_000) {
            let got = ramp(ByteCount::new(window), ByteCount::new(mss), Span::MAX);
            let reached = |rounds: u32| u128::from(10 * mss) << rounds;
            prop_assert!(reached(got.rounds) >= u128::from(window));
            prop_assert!(got.rounds == 0 || reached(got.rounds - 1) < u128::from(window));
        }
    }
}
