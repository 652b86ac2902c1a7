//! The rate of BBR over a path: it paces at the rate that it measured, and does not ask about loss
//! until that spoils the measurement.
//!
//! Version 1 is Linux's (`tcp_bbr.c`), from which the constants are. There is no formula for BBR
//! with other flows, nor beyond the loss that it stands.

use crate::prelude::*;

/// Loss up to which BBR keeps its rate as well as the model says. From here to 20 % it falls below
/// it, and beyond its probes do not make up for what is lost (1 − 1 ÷ 1.25, `bbr_pacing_gain[0]`).
pub(crate) const ABSORBS: f64 = 0.10;

/// The share of the time outside the probes for the round-trip time: every 10 s four segments are
/// in flight for 200 ms or one `rtt`, whichever is longer, and the window takes one more to fall
/// and one to rise.
///
/// Measured on Linux 6.18: a flow of 12 s over 200 ms lost 4.6 %, flows of less than 10 s nothing.
pub fn sending_share(rtt: Span) -> Ratio {
    let spent = rtt.max(PROBE_RTT_LASTS) + rtt * 2;
    Ratio::new(1.0 - spent.as_secs_f64() / PROBE_RTT_EVERY.as_secs_f64())
}

/// `bbr_probe_rtt_mode_ms`.
const PROBE_RTT_LASTS: Span = Span::from_millis(200);
/// `bbr_min_rtt_win_sec`.
pub(crate) const PROBE_RTT_EVERY: Span = Span::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn probing_for_the_round_trip_costs_two_percent_and_more_on_long_ways() {
        for (millis, fills_link) in [
            (1, "97.98 %"),
            (200, "94 %"),
            (600, "82 %"),
            (20_000, "0 %"),
        ] {
            assert_eq!(
                sending_share(Span::from_millis(millis)).to_string(),
                fills_link
            );
        }
    }

    /// The estimate is the largest of the last ten rounds; one in eight probes.
    #[test]
    fn an_estimate_outlasts_less_than_a_fifth_of_loss_and_decays_under_more() {
        for (loss, holds) in [(0.15, true), (0.19, true), (0.21, false), (0.3, false)] {
            let mut rounds = vec![1.0_f64; 10];
            for round in 0..400 {
                let estimate = rounds.iter().rev().take(10).copied().fold(0.0, f64::max);
                let gain = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0][round % 8];
                rounds.push((estimate * gain * (1.0 - loss)).min(1.0 - loss));
            }
            let kept = rounds.last().unwrap() / (1.0 - loss);
            assert_eq!(kept > 0.5, holds, "{loss}: {kept}");
        }
    }

    proptest! {
        #[test]
        fn a_longer_way_never_leaves_more(nanos: u64, longer: u64) {
            let share = |nanos| sending_share(Span::from_nanos(nanos));
            prop_assert!(share(nanos) >= share(nanos.saturating_add(longer)));
        }
    }
}
