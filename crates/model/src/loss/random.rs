//! Losses that come at random, every packet with the same chance: the mean window, and how far a
//! transfer that sees few of them may be from it.
//!
//! The factors are those of a simulation, packet by packet, of Linux's Reno and CUBIC
//! (`tcp_cong.c`, `tcp_cubic.c` with fast convergence and its Reno estimate in whole segments)
//! under independent losses; the tests repeat it. For Reno it gives 1.31 ÷ √p, as Mathis et al.
//! print for random losses; the formulas are within eight percent of it.

use super::{
    BBR_ABSORBS, CongestionControl, CubicConstants, FORMULAS_HOLD_TO, PftkFlow, highspeed_window,
    in_bytes, pftk_rate, random_window,
};
use crate::prelude::*;
use crate::{LikelyFactor, window};

/// Mean window ÷ CUBIC's formula for even losses, where the window is CUBIC's own.
const CUBIC_AT_RANDOM: f64 = 1.15;
/// The window of CUBIC in its Reno region, at a loss of one …
const CUBIC_AS_RENO: f64 = 1.30;
/// … and by how many segments it lags, as it follows an estimate that grows in whole ones.
const CUBIC_LAGS: f64 = 3.0;
/// Shortest time that Linux's retransmission timeout adds to the round-trip time (`TCP_RTO_MIN`).
const MIN_RTO: Span = Span::from_millis(200);
/// Error of the formula itself: recoveries that last, segments sent in trains, acknowledgements
/// that wait.
const FORMULA: f64 = 0.15;
/// Beyond one percent, the same for [`pftk_rate()`], which knows neither SACK nor tail loss probes.
const FORMULA_WITH_TIMEOUTS: f64 = 0.6;
/// Standard deviations that an interval covers to either side: 19 of 20 transfers.
const COVERED: f64 = 2.0;

impl CongestionControl {
    /// The mean window under `loss` that comes at random, or `None` where loss does not bound it:
    /// as [`CongestionControl::mean_window`] says, whose losses are even.
    ///
    /// Even losses cut a window that is always the same; random ones leave some windows alone for
    /// long, and these send most: Reno's mean is 1.09 times that of even losses, CUBIC's 0.9 to
    /// 1.25 times. Beyond one percent timeouts decide, and it is [`pftk_rate()`] with every segment
    /// acknowledged and Linux's least timeout where that is less.
    pub fn window_at_random(self, loss: Ratio, rtt: Span, mss: ByteCount) -> Option<ByteCount> {
        let own = match self {
            _ if loss == Ratio::ZERO => return None,
            Self::Bbr if loss.get() <= BBR_ABSORBS => return None,
            Self::Cubic => {
                let curve = CubicConstants::default().own_segments(loss, rtt) * CUBIC_AT_RANDOM;
                let as_reno = CUBIC_AS_RENO / loss.get().sqrt();
                in_bytes(
                    smooth_max(curve, (as_reno - CUBIC_LAGS).max(as_reno / 2.0)),
                    loss,
                    mss,
                )
            }
            // Not simulated: even losses, which promise less.
            Self::HighSpeed => highspeed_window(loss, mss),
            Self::Reno | Self::Bbr => random_window(loss, mss),
        };
        Some(if loss.get() > FORMULAS_HOLD_TO {
            own.min(with_timeouts(loss, rtt, mss))
        } else {
            own
        })
    }

    /// Standard deviation ÷ mean of a rate over one loss; over n losses it is so much less by √n.
    fn rate_deviation(self) -> f64 {
        match self {
            Self::Reno | Self::Bbr => 0.52,
            Self::Cubic | Self::HighSpeed => 0.85,
        }
    }
}

/// A window that follows the larger of two, and now this, now that where they are close: (a⁶ +
/// b⁶)^⅙.
fn smooth_max(a: f64, b: f64) -> f64 {
    let (least, most) = if a < b { (a, b) } else { (b, a) };
    let cubed = (least / most) * (least / most) * (least / most);
    if cubed.is_finite() {
        most * libm::cbrt((1.0 + cubed * cubed).sqrt())
    } else {
        most
    }
}

/// Returns the bytes that [`pftk_rate()`] has in flight where each segment is acknowledged.
fn with_timeouts(loss: Ratio, rtt: Span, mss: ByteCount) -> ByteCount {
    let flow = PftkFlow {
        mss,
        rtt,
        rto: rtt + MIN_RTO,
    };
    window::bdp(pftk_rate(&flow, loss), rtt)
}

/// The losses that a transfer should see.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SeenLosses {
    /// In steady state, of all streams together.
    pub(crate) steady: f64,
    /// Before it, of all streams together: those that bring windows down from where slow start left
    /// them.
    pub(crate) descent: f64,
}

impl SeenLosses {
    /// Losses of one stream on the way down from `peak` to `mean` segments.
    pub(crate) fn descent_losses(control: CongestionControl, peak: f64, mean: f64) -> f64 {
        (libm::log(peak / mean) / -libm::log(control.backoff_factor())).max(0.0)
    }

    /// Returns the interval of the rate of a transfer that sees these losses, as shares of that of
    /// [`CongestionControl::window_at_random`].
    ///
    /// Packets sent are losses seen ÷ p, whatever the congestion control: so chance leaves ± twice
    /// the scatter ÷ √losses, and the descent, which takes next to no time, adds its losses to
    /// those of the steady state.
    pub(crate) fn likely_rate(self, control: CongestionControl, loss: Ratio) -> LikelyFactor {
        let formula = if loss.get() > FORMULAS_HOLD_TO {
            FORMULA_WITH_TIMEOUTS
        } else {
            FORMULA
        };
        let chance = COVERED * control.rate_deviation() / self.steady.sqrt();
        let apart = (formula * formula + chance * chance).sqrt();
        LikelyFactor::new(
            1.0 / (1.0 + apart),
            1.0,
            1.0 + apart + self.descent / self.steady,
        )
    }
}

/// Two ceilings of which one comes by chance, `a` and `b` ≥ 0: (a⁻³ + b⁻³)^(−⅓).
///
/// A window that loss keeps swinging is cut at its peaks by whatever else bounds it, so the mean is
/// below either. The exponent fits the simulation to four percent where a ≤ 0.5 b or a ≥ 2 b and to
/// eight between, for Reno and CUBIC, for a window's bound and for a link with a queue; where the
/// two are equal it gives 0.79.
pub(crate) fn smooth_min(a: f64, b: f64) -> f64 {
    let (least, most) = if a < b { (a, b) } else { (b, a) };
    if most == 0.0 {
        return 0.0;
    }
    let share = least / most;
    least / libm::cbrt(1.0 + share * share * share)
}

#[cfg(test)]
mod tests;
