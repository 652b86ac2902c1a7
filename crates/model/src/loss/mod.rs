//! The congestion window, or the rate, that a loss rate leaves in steady state: one file a family
//! of formulas.
//!
//! | formula | losses | holds for |
//! |---|---|---|
//! | [`mathis_window()`], [`reno_window`] | one in 1/p packets, no timeout | Reno, p up to 1 % |
//! | [`pftk_rate`](pftk_rate()) | bursts that end in timeouts too | Reno, p up to some 30 % |
//! | [`CubicConstants`], [`cubic_window()`] | as Mathis | CUBIC, p up to 1 % |
//! | [`highspeed_window()`] | as Mathis | `HighSpeed` TCP, p up to 1 % |
//! | [`bbr`] | any, as it does not ask | BBR |
//!
//! Windows are those that no buffer cuts.

pub mod bbr;

mod cubic;
mod highspeed;
mod mathis;
mod pftk;
mod random;

use crate::prelude::*;

pub(crate) use bbr::{ABSORBS as BBR_ABSORBS, PROBE_RTT_EVERY};
pub use cubic::{CubicConstants, cubic_window};
pub use highspeed::highspeed_window;
use mathis::random_window;
pub use mathis::{mathis_window, reno_window};
pub(crate) use pftk::some_of;
pub use pftk::{PftkFlow, pftk_rate};
pub(crate) use random::{SeenLosses, smooth_min};

/// Loss up to which the formulas without timeouts hold.
pub(crate) const FORMULAS_HOLD_TO: f64 = 0.01;

/// A congestion control that has a formula here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionControl {
    /// One segment more per round trip, half after a loss (RFC 5681).
    Reno,
    /// Linux's default (RFC 9438).
    Cubic,
    /// For very large windows (RFC 3649).
    HighSpeed,
    /// As in Linux, which has version 1.
    Bbr,
}

impl CongestionControl {
    /// The one of this name in `tcp_congestion_control`, if it has a formula here.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "reno" => Some(Self::Reno),
            "cubic" => Some(Self::Cubic),
            "highspeed" => Some(Self::HighSpeed),
            "bbr" => Some(Self::Bbr),
            _ => None,
        }
    }

    /// The name of the congestion control as people write it.
    pub const fn display_name(self) -> &'static str {
        match self {
            Self::Reno => "Reno",
            Self::Cubic => "CUBIC",
            Self::HighSpeed => "HighSpeed TCP",
            Self::Bbr => "BBR",
        }
    }

    /// Windows that the kernel lets a send buffer grow to (`tcp_sndbuf_expand`).
    pub(crate) const fn send_windows(self) -> u64 {
        match self {
            Self::Reno | Self::Cubic | Self::HighSpeed => 2,
            Self::Bbr => 3,
        }
    }

    /// β: what is left of the window after a loss; for `HighSpeed` TCP the least, which it has as
    /// Reno up to 38 segments.
    pub(crate) fn backoff_factor(self) -> f64 {
        match self {
            Self::Reno | Self::HighSpeed => 0.5,
            Self::Cubic => CubicConstants::default().backoff.get(),
            Self::Bbr => 1.0,
        }
    }

    /// The mean window under `loss`, or `None` where loss does not bound it: without loss, and for
    /// BBR below the ten percent that its model of the path absorbs. Above that BBR is taken as
    /// Reno, for want of a formula.
    pub fn mean_window(self, loss: Ratio, rtt: Span, mss: ByteCount) -> Option<ByteCount> {
        match self {
            _ if loss == Ratio::ZERO => None,
            Self::Bbr if loss.get() <= BBR_ABSORBS => None,
            Self::Cubic => Some(cubic_window(loss, rtt, mss)),
            Self::HighSpeed => Some(highspeed_window(loss, mss)),
            Self::Reno | Self::Bbr => Some(reno_window(loss, mss)),
        }
    }

    /// The shortest drop-tail queue, in BDPs, with which one stream keeps the link full across a
    /// back-off: (1 − β) ÷ β.
    pub fn queue_needed(self) -> Ratio {
        Ratio::new((1.0 - self.backoff_factor()) / self.backoff_factor())
    }
}

/// A window in bytes: nothing where every packet is lost, without bound where none is.
fn in_bytes(segments: f64, loss: Ratio, mss: ByteCount) -> ByteCount {
    if loss >= Ratio::ONE || mss == ByteCount::ZERO {
        ByteCount::ZERO
    } else {
        ByteCount::from_f64(segments * mss.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window;
    use proptest::prelude::*;

    /// One segment is a thousand units, so that a window keeps three places.
    const UNIT: ByteCount = ByteCount::new(1000);

    #[test]
    fn queues_keep_a_link_full() {
        for (control, queue) in [
            (CongestionControl::Reno, "1.00"),
            (CongestionControl::Cubic, "0.43"),
            (CongestionControl::Bbr, "0.00"),
        ] {
            assert_eq!(format!("{:.2}", control.queue_needed().get()), queue);
        }
    }

    #[test]
    fn bbr_absorbs_what_halves_the_others() {
        let window = |control: CongestionControl, loss| {
            control.mean_window(Ratio::new(loss), Span::from_millis(100), UNIT)
        };
        assert_eq!(window(CongestionControl::Bbr, 0.05), None);
        assert!(window(CongestionControl::Bbr, 0.25).is_some());
        assert!(window(CongestionControl::Cubic, 0.05).is_some());
        assert_eq!(window(CongestionControl::Reno, 0.0), None);
    }

    #[test]
    fn formulas_at_their_ends() {
        let all = |loss, mss| {
            [
                mathis_window(loss, mss),
                reno_window(loss, mss),
                cubic_window(loss, Span::MAX, mss),
                cubic_window(loss, Span::ZERO, mss),
                highspeed_window(loss, mss),
            ]
        };
        assert_eq!(all(Ratio::ONE, UNIT), [ByteCount::ZERO; 5]);
        assert_eq!(all(Ratio::new(f64::MAX), UNIT), [ByteCount::ZERO; 5]);
        assert_eq!(all(Ratio::ZERO, ByteCount::ZERO), [ByteCount::ZERO; 5]);
        assert_eq!(all(Ratio::ZERO, UNIT), [ByteCount::new(u64::MAX); 5]);
    }

    proptest! {
        #[test]
        fn more_loss_or_a_longer_way_is_never_faster(
            loss in 1e-9_f64..1.2, more in 0_f64..1.0, millis in 1_u64..2000, longer in 0_u64..2000,
        ) {
            for control in [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Bbr] {
                let rate = |loss: f64, millis: u64| {
                    let rtt = Span::from_millis(millis);
                    control.mean_window(Ratio::new(loss), rtt, UNIT).map_or(window::UNBOUNDED, |w| window::rate_of_window(w, rtt))
                };
                prop_assert!(rate(loss, millis) >= rate(loss + more, millis));
                // Windows are whole bytes, so a rate may be off by one in its thousandths of a
                // segment.
                prop_assert!(rate(loss, millis).scale_by(1.001) >= rate(loss, millis + longer));
            }
        }
    }
}
