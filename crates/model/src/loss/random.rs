//! Losses that come at random, every packet with the same chance: the mean window, and how far a transfer that sees few
//! of them may be from it.
//!
//! The factors are those of a simulation, round trip by round trip, of Linux's Reno and CUBIC (`tcp_cong.c`,
//! `tcp_cubic.c` with fast convergence and its Reno estimate) under independent losses; the tests repeat it. For Reno it
//! gives 1.31 ÷ √p, as Mathis et al. print for random losses.

use fullpipe_units::{ByteCount, Ratio, Span};

use super::{BBR_ABSORBS, CongestionControl, Cubic, FORMULAS_HOLD_TO, Flow, MathisConstant, in_bytes, pftk};
use crate::{Likely, window};

/// Mean window ÷ CUBIC's formula for even losses, where the window is CUBIC's own.
const CUBIC_AT_RANDOM: f64 = 1.13;
/// The window of CUBIC in its Reno region, at a loss of one.
const CUBIC_AS_RENO: f64 = 1.27;
/// What Linux's retransmission timeout adds to the round-trip time, at least (`TCP_RTO_MIN`).
const LEAST_RTO: Span = Span::from_millis(200);
/// What the formula itself may be off: packets lost in bursts, recoveries that last, segments sent in trains.
const FORMULA: f64 = 0.2;
/// Beyond one percent, the same for [`pftk()`], which knows neither SACK nor tail loss probes.
const FORMULA_WITH_TIMEOUTS: f64 = 0.6;
/// Standard deviations that an interval covers to either side: 19 of 20 transfers.
const COVERED: f64 = 2.0;

impl CongestionControl {
    /// The mean window under `loss` that comes at random, or `None` where loss does not bound it: as
    /// [`CongestionControl::window`] says, whose losses are even.
    ///
    /// Even losses cut a window that is always the same; random ones leave some windows alone for long, and these send
    /// most: Reno's mean is 1.09 times, CUBIC's 1.05 to 1.17 times that of even losses. Beyond one percent timeouts
    /// decide, and it is [`pftk()`] with every segment acknowledged and Linux's least timeout where that is less.
    pub fn window_at_random(self, loss: Ratio, rtt: Span, mss: ByteCount) -> Option<ByteCount> {
        let own = match self {
            _ if loss == Ratio::ZERO => return None,
            Self::Bbr if loss.get() <= BBR_ABSORBS => return None,
            Self::Cubic => {
                let curve = Cubic::default().own_segments(loss, rtt) * CUBIC_AT_RANDOM;
                in_bytes(curve.max(CUBIC_AS_RENO / loss.get().sqrt()), loss, mss)
            }
            Self::Reno | Self::Bbr => MathisConstant::Random.window(loss, mss),
        };
        Some(if loss.get() > FORMULAS_HOLD_TO { own.min(with_timeouts(loss, rtt, mss)) } else { own })
    }

    /// Standard deviation ÷ mean of a rate over one loss; over n losses it is so much less by √n.
    fn scatter(self) -> f64 {
        match self {
            Self::Reno | Self::Bbr => 0.52,
            Self::Cubic => 0.85,
        }
    }
}

/// What [`pftk()`] has in flight where each segment is acknowledged.
fn with_timeouts(loss: Ratio, rtt: Span, mss: ByteCount) -> ByteCount {
    let flow = Flow { mss, rtt, rto: rtt + LEAST_RTO, acknowledged_together: 1, max_window: None };
    window::bdp(pftk(&flow, loss), rtt)
}

/// The losses that a transfer should see.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sight {
    /// In steady state, of all streams together.
    pub(crate) steady: f64,
    /// Before it, of all streams together: those that bring windows down from where slow start left them.
    pub(crate) descent: f64,
}

impl Sight {
    /// Losses of one stream on the way down from `peak` to `mean` segments.
    pub(crate) fn descent(control: CongestionControl, peak: f64, mean: f64) -> f64 {
        (libm::log(peak / mean) / -libm::log(control.backoff())).max(0.0)
    }

    /// How far the rate of a transfer that sees these losses may be from that of [`CongestionControl::window_at_random`].
    ///
    /// Packets sent are losses seen ÷ p, whatever the congestion control: so chance leaves ± twice the scatter ÷ √losses,
    /// and the descent, which takes next to no time, adds its losses to those of the steady state.
    pub(crate) fn likely(self, control: CongestionControl, loss: Ratio) -> Likely {
        let formula = if loss.get() > FORMULAS_HOLD_TO { FORMULA_WITH_TIMEOUTS } else { FORMULA };
        let chance = COVERED * control.scatter() / self.steady.sqrt();
        let apart = (formula * formula + chance * chance).sqrt();
        Likely::new(1.0 / (1.0 + apart), 1.0, 1.0 + apart + self.descent / self.steady)
    }
}

/// Two ceilings of which one comes by chance, `a` and `b` ≥ 0: (a⁻³ + b⁻³)^(−⅓).
///
/// A window that loss keeps swinging is cut at its peaks by whatever else bounds it, so the mean is below either. The
/// exponent fits the simulation to four percent where a ≤ 0.5 b or a ≥ 2 b and to eight between, for Reno and CUBIC, for a
/// window's bound and for a link with a queue; where the two are equal it gives 0.79.
pub(crate) fn together(a: f64, b: f64) -> f64 {
    let (least, most) = if a < b { (a, b) } else { (b, a) };
    if most == 0.0 {
        return 0.0;
    }
    let share = least / most;
    least / libm::cbrt(1.0 + share * share * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: ByteCount = ByteCount::new(1448);

    /// Independent losses: the packets between two of them.
    struct Losses {
        state: u64,
        p: f64,
        next: f64,
    }

    impl Losses {
        fn new(p: f64) -> Self {
            let mut losses = Self { state: 0x2545_f491_4f6c_dd1d, p, next: 0.0 };
            losses.next = losses.gap();
            losses
        }

        fn gap(&mut self) -> f64 {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            let uniform = ((self.state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            (libm::log(uniform) / libm::log(1.0 - self.p)).floor()
        }

        /// Whether one of the next `sent` packets is lost.
        fn hit(&mut self, mut sent: f64) -> bool {
            let mut hit = false;
            while self.next < sent {
                sent -= self.next + 1.0;
                self.next = self.gap();
                hit = true;
            }
            self.next -= sent;
            hit
        }
    }

    /// Linux's window, a round trip at a time, after slow start.
    struct Simulated {
        control: CongestionControl,
        window: f64,
        /// CUBIC's: the peak that it aims at, where its curve is flat, and when; and Reno's estimate.
        last_peak: f64,
        plateau: (f64, f64),
        since: Option<f64>,
        reno: f64,
    }

    impl Simulated {
        fn cut(&mut self) {
            let fast_convergence = f64::midpoint(1.0, self.control.backoff());
            self.last_peak = self.window * if self.window < self.last_peak { fast_convergence } else { 1.0 };
            self.since = None;
            self.window = (self.window * self.control.backoff()).max(2.0);
        }

        fn grow(&mut self, now: f64, rtt: f64) {
            if self.control == CongestionControl::Reno {
                self.window += 1.0;
                return;
            }
            let since = *self.since.get_or_insert_with(|| {
                self.reno = self.window;
                let k = libm::cbrt((self.last_peak - self.window).max(0.0) / 0.4);
                self.plateau = (self.last_peak.max(self.window), k);
                now
            });
            let (height, k) = self.plateau;
            let past = now - since + rtt - k;
            let by_curve = height + 0.4 * past * past * past - self.window;
            self.reno += 3.0 * 0.3 / 1.7;
            let growth = by_curve.max(0.01).max(self.reno - self.window);
            self.window += growth.min(self.window / 2.0);
        }
    }

    /// Packets per round trip of at most `bound`, window after window, over so many losses in steady state; a loss is
    /// noticed a round trip later, and the window recovers for one before it grows.
    fn rounds(control: CongestionControl, p: f64, rtt: f64, bound: f64, losses: f64) -> Vec<f64> {
        let start = 1.2 / p.sqrt();
        let mut tcp =
            Simulated { control, window: start, last_peak: start, plateau: (start, 0.0), since: None, reno: start };
        let mut chance = Losses::new(p);
        let (mut sent, mut noticed, mut recovering) = (Vec::new(), false, false);
        let (warm, end) = (100.0 / p, (100.0 + losses) / p);
        let (mut packets, mut now) = (0.0, 0.0);
        while packets < end {
            let flight = tcp.window.floor().min(bound);
            let hit = chance.hit(flight);
            packets += flight;
            if packets > warm {
                sent.push(flight);
            }
            now += rtt;
            if noticed {
                tcp.cut();
            } else if !(recovering && hit) {
                tcp.grow(now, rtt);
            }
            tcp.window = tcp.window.min(bound);
            recovering = noticed;
            noticed = hit;
        }
        sent
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn formula(control: CongestionControl, p: f64, rtt: f64) -> f64 {
        let window = control.window_at_random(Ratio::new(p), Span::from_secs_f64(rtt), MSS).unwrap();
        window.as_f64() / MSS.as_f64()
    }

    #[test]
    fn the_simulation_of_linux_gives_the_same_means() {
        for (control, p, rtt, within) in [
            (CongestionControl::Reno, 1e-3, 0.05, 0.04),
            (CongestionControl::Reno, 1e-4, 0.05, 0.04),
            // Reno's region, both regions in turn, and CUBIC's own.
            (CongestionControl::Cubic, 1e-3, 0.02, 0.04),
            (CongestionControl::Cubic, 1e-4, 0.01, 0.04),
            (CongestionControl::Cubic, 1e-4, 0.05, 0.14),
            (CongestionControl::Cubic, 1e-4, 0.1, 0.04),
            (CongestionControl::Cubic, 1e-4, 0.2, 0.04),
            (CongestionControl::Cubic, 1e-5, 0.1, 0.04),
        ] {
            let simulated = mean(&rounds(control, p, rtt, f64::INFINITY, 10_000.0));
            let expected = formula(control, p, rtt);
            assert!(
                (simulated / expected - 1.0).abs() < within,
                "{} at {p} over {rtt} s: {simulated:.1} simulated, {expected:.1} by the formula",
                control.name()
            );
        }
    }

    #[test]
    fn the_simulation_scatters_as_much() {
        for (control, p, rtt) in [(CongestionControl::Reno, 1e-3, 0.05), (CongestionControl::Cubic, 1e-4, 0.1)] {
            let sent = rounds(control, p, rtt, f64::INFINITY, 20_000.0);
            // So many round trips as fifty losses take on average.
            let length = (50.0 / (p * mean(&sent))).round() as usize;
            let blocks: Vec<f64> = sent.chunks_exact(length).map(mean).collect();
            let middle = mean(&blocks);
            let variance = mean(&blocks.iter().map(|block| (block - middle) * (block - middle)).collect::<Vec<_>>());
            let scatter = variance.sqrt() / middle * 50_f64.sqrt();
            assert!((scatter / control.scatter() - 1.0).abs() < 0.15, "{}: {scatter:.2}", control.name());
        }
    }

    #[test]
    fn a_bound_close_to_the_mean_takes_a_fifth() {
        for (control, p, rtt) in [(CongestionControl::Reno, 1e-3, 0.05), (CongestionControl::Cubic, 1e-4, 0.1)] {
            let free = mean(&rounds(control, p, rtt, f64::INFINITY, 10_000.0));
            for (times, within) in
                [(0.3, 0.05), (0.5, 0.05), (0.7, 0.08), (1.0, 0.08), (1.4, 0.08), (2.0, 0.05), (3.0, 0.04)]
            {
                let bounded = mean(&rounds(control, p, rtt, free * times, 10_000.0));
                let expected = together(free, free * times);
                assert!(
                    (bounded / expected - 1.0).abs() < within,
                    "{} bound at {times}: {bounded:.1} simulated, {expected:.1} by the formula",
                    control.name()
                );
            }
        }
    }

    #[test]
    fn mathis_and_the_simulation_agree_on_random_losses() {
        assert!((formula(CongestionControl::Reno, 1e-4, 0.1) - 131.0).abs() < 0.01);
    }

    #[test]
    fn few_losses_leave_much_open() {
        let of = |steady, descent| {
            let likely = Sight { steady, descent }.likely(CongestionControl::Cubic, Ratio::new(1e-4));
            format!("{:.2} {:.2}", likely.low.get(), likely.high.get())
        };
        // Two losses after a slow start to the full gigabit: 2.5 to 6.6 times the mean was measured.
        assert_eq!(of(2.0, 10.0), "0.45 7.22");
        assert_eq!(of(20.0, 10.0), "0.70 1.93");
        assert_eq!(of(200.0, 10.0), "0.81 1.28");
    }

    #[test]
    fn beyond_a_percent_timeouts_decide() {
        let at = |loss| formula(CongestionControl::Cubic, loss, 0.1);
        assert!((at(0.01) - 12.7).abs() < 0.01);
        assert!(at(0.011) < 12.7 * 0.9);
        // PFTK's 3.8 segments of 1460 B with a timeout of 400 ms; here it is 300 ms.
        assert!((3.8..4.3).contains(&at(0.05)), "{}", at(0.05));
    }

    proptest! {
        #[test]
        fn more_loss_or_a_longer_way_is_never_faster(
            loss in 1e-9_f64..1.2, more in 0_f64..1.0, millis in 1_u64..2000, longer in 0_u64..2000,
        ) {
            for control in [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Bbr] {
                let rate = |loss: f64, millis: u64| {
                    let rtt = Span::from_millis(millis);
                    let window = control.window_at_random(Ratio::new(loss), rtt, ByteCount::new(1_000_000));
                    window.map_or(window::UNBOUNDED, |window| window::rate(window, rtt))
                };
                prop_assert!(rate(loss, millis) >= rate(loss + more, millis));
                prop_assert!(rate(loss, millis).scaled(1.001) >= rate(loss, millis + longer));
            }
        }

        #[test]
        fn an_interval_holds_its_middle(steady in 0.0_f64..1e12, descent in 0.0_f64..1e3, loss in 0.0_f64..1.0) {
            let likely = Sight { steady, descent }.likely(CongestionControl::Reno, Ratio::new(loss));
            prop_assert!(likely.low <= likely.mid && likely.mid <= likely.high);
        }

        #[test]
        fn two_ceilings_leave_less_than_either(a in 0.0_f64..1e19, b in 0.0_f64..1e19) {
            let both = together(a, b);
            prop_assert!(both <= a.min(b) && both >= 0.79 * a.min(b));
        }
    }
}
