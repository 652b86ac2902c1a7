//! Slow start without loss: the window doubles every round trip (RFC 5681 §3.1 with appropriate
//! byte counting).

use crate::loss::CubicConstants;
use crate::prelude::*;

/// The first window (RFC 6928), in segments.
pub const INITIAL_WINDOW: SegCount = SegCount::new(10);

/// Returns the course of slow start to `window`: ⌈log₂(window ÷ (10 · `mss`))⌉ rounds of one `rtt`
/// each.
///
/// Holds where slow start is not left early, by loss or by `HyStart`, and where neither end's
/// buffer lags behind.
pub fn slow_start(window: ByteCount, mss: ByteCount, rtt: Span) -> Ramp {
    let first = INITIAL_WINDOW.of_size(mss);
    let rounds = doubling_rounds(first, window);
    // 10 · mss · (1 + 2 + 4 + …)
    let sent = u128::from(first.get()) * ((1_u128 << rounds) - 1);
    Ramp {
        rounds,
        duration: rtt * u64::from(rounds),
        bytes: ByteCount::new(u64::try_from(sent).unwrap_or(u64::MAX)),
    }
}

/// Returns the time that the window takes to fill a path under CUBIC, whose `HyStart` may leave
/// slow start before there is loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RampRange {
    /// Slow start goes on to the whole window: `HyStart` finds nothing, or not too early.
    pub soonest: Span,
    /// Slow start ends at half the window, and CUBIC grows from there.
    pub latest: Span,
}

/// The time to reach `window` under Linux's CUBIC, with slow start undisturbed and with it left at
/// half the window.
///
/// `hystart_update` of `tcp_cubic.c` ends slow start, once the window is 16 segments or more, when
/// the acknowledgements of one round arrive in a train (no gap above 2 ms) longer than half the
/// least round-trip time (than all of it where the socket is paced), or when the least of the
/// round's first eight samples exceeds the least round-trip time by an eighth of that, at least 4
/// ms and at most 16 ms. A train is that long only if half the window was in flight when it began:
/// there `latest` leaves slow start. It is a cautious end of the range: where acknowledgements come
/// at the bottleneck's pace the window has grown to one BDP by the time that the train is too long,
/// and the exit costs nothing. Delay that other traffic makes can end slow start anywhere from 16
/// segments on, which no range covers.
///
/// From there CUBIC follows its curve with K = 0 (RFC 9438 §4.10): ∛(window ÷ 2C). But as long as
/// there was no loss, Linux also grows by at least a twentieth of the window per round trip, and
/// never by more than a half: 14.2 round trips at most, 1.7 at least.
pub fn ramp_range(window: ByteCount, mss: ByteCount, rtt: Span) -> RampRange {
    let soonest = slow_start(window, mss, rtt).duration;
    let half = window.scale_by(0.5);
    if mss == ByteCount::ZERO || half < HYSTART_LOW_WINDOW.of_size(mss) {
        return RampRange {
            soonest,
            latest: soonest,
        };
    }
    let by_curve = CubicConstants::default().growth_time(half.as_f64() / mss.as_f64());
    let [least, most] =
        [FASTEST, SLOWEST].map(|growth| rtt.scale_by(libm::log(2.0) / libm::log(growth)));
    let growth = by_curve.clamp(least, most);
    RampRange {
        soonest,
        latest: slow_start(half, mss, rtt).duration + growth,
    }
}

/// ⌈log₂(window ÷ first)⌉; none where `first` is nothing, as no window is then ever reached.
fn doubling_rounds(first: ByteCount, window: ByteCount) -> u32 {
    if first == ByteCount::ZERO || window <= first {
        return 0;
    }
    let times = window.get().div_ceil(first.get());
    u64::BITS - (times - 1).leading_zeros()
}

/// `hystart_low_window`.
const HYSTART_LOW_WINDOW: SegCount = SegCount::new(16);
/// `bictcp_update` lets the window grow by one for 20 acknowledged at the least, while no loss was
/// seen …
const SLOWEST: f64 = 1.05;
/// … and by one for 2 at the most.
const FASTEST: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window;
    use fullpipe_units::BitRate;
    use proptest::prelude::*;

    const MSS: ByteCount = ByteCount::new(1448);

    #[test]
    fn long_fat_networks_take_seconds_to_fill() {
        for (gbps, rtt_ms, rounds, secs, megabytes) in [
            (1, 100, 10, 1.0, "14.8"),
            (1, 200, 11, 2.2, "29.6"),
            (10, 100, 14, 1.4, "237.2"),
        ] {
            let rtt = Span::from_millis(rtt_ms);
            let got = slow_start(window::bdp(BitRate::from_mbps(gbps * 1000), rtt), MSS, rtt);
            assert_eq!(got.rounds, rounds);
            assert_eq!(got.duration, Span::from_secs_f64(secs));
            assert_eq!(format!("{:.1}", got.bytes.as_f64() / 1e6), megabytes);
        }
    }

    #[test]
    fn rounds_change_where_the_window_passes_a_doubling() {
        for (segments, rounds) in [
            (0, 0),
            (1, 0),
            (10, 0),
            (11, 1),
            (20, 1),
            (21, 2),
            (40, 2),
            (41, 3),
        ] {
            let got = slow_start(
                SegCount::new(segments).of_size(MSS),
                MSS,
                Span::from_millis(1),
            );
            assert_eq!(got.rounds, rounds, "{segments} segments");
        }
    }

    #[test]
    fn no_segment_no_ramp() {
        let got = slow_start(ByteCount::new(u64::MAX), ByteCount::ZERO, Span::MAX);
        assert_eq!((got.rounds, got.bytes), (0, ByteCount::ZERO));
    }

    #[test]
    fn hystart_costs_a_gigabit_over_a_tenth_of_a_second_one_and_a_third_seconds() {
        let rtt = Span::from_millis(100);
        let got = ramp_range(window::bdp(BitRate::from_mbps(1000), rtt), MSS, rtt);
        assert_eq!(got.soonest, Span::from_secs(1));
        // Nine rounds to half of 8633 segments, then ln 2 ÷ ln 1.05 = 14.2 rounds; CUBIC's curve
        // alone would take 22.1 s.
        assert_eq!(got.latest.to_string(), "2.321 s");
        let curve = CubicConstants::default().growth_time(8633.0 / 2.0);
        assert_eq!(curve.to_string(), "22.1 s");
    }

    #[test]
    fn on_a_way_of_seconds_the_curve_is_faster_than_a_twentieth_a_round() {
        let rtt = Span::from_secs(2);
        let got = ramp_range(SegCount::new(1000).of_size(MSS), MSS, rtt);
        // ∛(500 ÷ 0.4) = 10.77 s after six rounds.
        assert_eq!(got.latest.to_string(), "22.77 s");
    }

    #[test]
    fn hystart_leaves_small_windows_alone() {
        let at = |segments| {
            ramp_range(
                SegCount::new(segments).of_size(MSS),
                MSS,
                Span::from_millis(100),
            )
        };
        assert_eq!(at(31).latest, at(31).soonest);
        assert!(at(32).latest > at(32).soonest);
        assert_eq!(
            ramp_range(ByteCount::ZERO, ByteCount::ZERO, Span::MAX).latest,
            Span::ZERO
        );
    }

    /// Acknowledgements arrive one a unit of time, a round trip is as many units as the BDP has
    /// segments, and each adds a segment to the window.
    #[test]
    fn a_train_of_half_the_round_trip_needs_half_the_window_in_flight_and_leaves_it_whole() {
        for bdp in [100_u32, 733, 1000, 8633] {
            let mut in_flight = 10;
            while in_flight <= bdp / 2 {
                in_flight *= 2;
            }
            let when_found = in_flight + bdp / 2;
            assert!(
                in_flight > bdp / 2 && (bdp..=bdp * 3 / 2).contains(&when_found),
                "{when_found} of {bdp}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_latest_is_never_before_the_soonest_and_a_longer_way_never_faster(
            window: u64, mss: u64, nanos: u64, longer: u64,
        ) {
            let at = |nanos| ramp_range(ByteCount::new(window), ByteCount::new(mss), Span::from_nanos(nanos));
            let (near, far) = (at(nanos), at(nanos.saturating_add(longer)));
            prop_assert!(near.latest >= near.soonest);
            prop_assert!(near.soonest <= far.soonest && near.latest <= far.latest);
        }

        #[test]
        fn the_last_round_reaches_the_window_and_the_one_before_does_not(window: u64, mss in 1_u64..100_000) {
            let got = slow_start(ByteCount::new(window), ByteCount::new(mss), Span::MAX);
            let reached = |rounds: u32| u128::from(10 * mss) << rounds;
            prop_assert!(reached(got.rounds) >= u128::from(window));
            prop_assert!(got.rounds == 0 || reached(got.rounds - 1) < u128::from(window));
        }
    }
}
