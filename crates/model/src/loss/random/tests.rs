use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const MSS: ByteCount = ByteCount::new(1448);

/// Independent losses: the packets that still pass before the next one.
struct Losses {
    state: u64,
    p: f64,
    passing: u64,
}

impl Losses {
    fn new(p: f64) -> Self {
        let mut losses = Self {
            state: 0x2545_f491_4f6c_dd1d,
            p,
            passing: 0,
        };
        losses.passing = losses.gap();
        losses
    }

    fn gap(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let uniform = ((self.state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (libm::log(uniform) / libm::log(1.0 - self.p)) as u64
    }

    fn hits_next(&mut self) -> bool {
        let hit = self.passing == 0;
        self.passing = if hit { self.gap() } else { self.passing - 1 };
        hit
    }
}

/// Linux's congestion window after slow start, in whole segments.
struct Window {
    control: CongestionControl,
    size: u64,
    /// Acknowledged towards the next growth by one, and how many that takes.
    credit: u64,
    price: u64,
    curve: Curve,
}

/// State of CUBIC.
struct Curve {
    /// Window before the last loss.
    last_peak: u64,
    /// The window at which the curve is flat, and its time.
    plateau: (f64, f64),
    since: Option<f64>,
    /// The window that Reno would have, and the part of its next segment that was acknowledged.
    as_reno: u64,
    towards: u64,
    /// The window and the time when it last read the clock.
    read_time: (u64, f64),
}

impl Window {
    fn new(control: CongestionControl, size: u64) -> Self {
        let plateau = (size as f64, 0.0);
        let curve = Curve {
            last_peak: size,
            plateau,
            since: None,
            as_reno: size,
            towards: 0,
            read_time: (0, 0.0),
        };
        Self {
            control,
            size,
            credit: 0,
            price: size,
            curve,
        }
    }

    /// Cuts the window after a loss.
    fn cut(&mut self) -> u64 {
        let keeps = self.control.backoff_factor();
        let converges = if self.size < self.curve.last_peak {
            f64::midpoint(1.0, keeps)
        } else {
            1.0
        };
        self.curve.last_peak = (self.size as f64 * converges) as u64;
        self.curve.since = None;
        ((self.size as f64 * keeps) as u64).max(2)
    }

    fn acknowledged(&mut self, now: f64, rtt: f64) {
        self.price = match self.control {
            CongestionControl::Reno => self.size,
            _ => self.curve.price(self.size, self.price, now, rtt),
        };
        if self.credit >= self.price {
            self.credit = 0;
            self.size += 1;
        }
        self.credit += 1;
        if self.credit >= self.price {
            self.credit -= self.price;
            self.size += 1;
        }
    }
}

impl Curve {
    /// Returns the segments to acknowledge for a growth by one, if it was `before`. The clock
    /// ticks every 4 ms and is read at no sooner than 28 ms after the last time, unless the
    /// window has grown.
    fn price(&mut self, size: u64, before: u64, now: f64, rtt: f64) -> u64 {
        const TICKS: f64 = 250.0;
        self.towards += 1;
        let now = (now * TICKS).floor() / TICKS;
        let (read_size, read_time) = self.read_time;
        if read_size == size && now - read_time < 7.5 / TICKS {
            return before;
        }
        let mut price = before;
        if self.since.is_none() || now > read_time {
            self.read_time = (size, now);
            let target = self.target(size, now, rtt);
            price = if target > size {
                size / (target - size)
            } else {
                100 * size
            };
        }
        // One segment for 1.875 windows acknowledged.
        let segment = size * 15 / 8;
        self.as_reno += self.towards / segment;
        self.towards %= segment;
        if self.as_reno > size {
            price = price.min(size / (self.as_reno - size));
        }
        price.max(2)
    }

    fn target(&mut self, size: u64, now: f64, rtt: f64) -> u64 {
        let since = *self.since.get_or_insert_with(|| {
            (self.as_reno, self.towards) = (size, 1);
            let k = libm::cbrt(self.last_peak.saturating_sub(size) as f64 / 0.4);
            self.plateau = (self.last_peak.max(size) as f64, k);
            now
        });
        let (height, k) = self.plateau;
        let past = now - since + rtt - k;
        (height + 0.4 * past * past * past) as u64
    }
}

/// The mean packets per round trip that arrive, block after block of so many seconds, until so
/// many packets are lost; in steady state, with windows of at most `bound`, lost packets
/// retransmitted and rate halved in proportion (RFC 6937).
fn blocks(
    control: CongestionControl,
    p: f64,
    rtt: f64,
    bound: u64,
    losses: u64,
    seconds: f64,
) -> Vec<f64> {
    let mut window = Window::new(control, ((1.2 / p.sqrt()) as u64).min(bound));
    let mut chance = Losses::new(p);
    let mut flying: VecDeque<(f64, bool)> = (0..window.size)
        .map(|_| (0.0, chance.hits_next()))
        .collect();
    let (mut sent, mut seen, mut lost) = (flying.len() as u64, 0, 0);
    // While it recovers: the last packet sent before, the share of arrivals answered, and what
    // is due of it.
    let mut recovery: Option<(u64, f64, f64)> = None;
    let (mut arrived, mut began, mut means) = (0_u64, 0.0, Vec::new());
    while lost < losses {
        let (at, hit) = flying.pop_front().unwrap();
        let now = at + rtt;
        seen += 1;
        if recovery.is_some_and(|(until, _, _)| seen > until) {
            recovery = None;
        }
        if hit {
            lost += 1;
            if recovery.is_none() {
                let before = window.size;
                window.size = window.cut();
                recovery = Some((sent, window.size as f64 / before as f64, 0.0));
            }
        } else {
            arrived += 1;
            if recovery.is_none() {
                window.acknowledged(now, rtt);
                window.size = window.size.min(bound);
            }
        }
        let due = match &mut recovery {
            Some((_, share, due)) => {
                *due += *share;
                let whole = *due as u64;
                *due -= whole as f64;
                whole
            }
            None => window.size.saturating_sub(flying.len() as u64),
        };
        let due = due.max(u64::from(flying.is_empty()));
        flying.extend((0..due).map(|_| (now, chance.hits_next())));
        sent += due;
        // What comes before fifty losses is left out.
        if lost < 50 {
            (arrived, began) = (0, now);
        } else if now >= began + seconds {
            means.push(arrived as f64 * rtt / (now - began));
            (arrived, began) = (0, now);
        }
    }
    means
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean window over so many losses.
fn simulated(control: CongestionControl, p: f64, rtt: f64, bound: u64, losses: u64) -> f64 {
    mean(&blocks(control, p, rtt, bound, losses, rtt * 10.0))
}

fn formula(control: CongestionControl, p: f64, rtt: f64) -> f64 {
    let window = control
        .window_at_random(Ratio::new(p), Span::from_secs_f64(rtt), MSS)
        .unwrap();
    window.as_f64() / MSS.as_f64()
}

#[test]
fn the_simulation_of_linux_gives_the_same_means() {
    for (control, p, rtt) in [
        (CongestionControl::Reno, 1e-3, 0.05),
        (CongestionControl::Reno, 3e-4, 0.05),
        // Reno's region, both regions in turn, and CUBIC's own.
        (CongestionControl::Cubic, 1e-3, 0.02),
        (CongestionControl::Cubic, 1e-2, 0.02),
        (CongestionControl::Cubic, 1e-3, 0.1),
        (CongestionControl::Cubic, 1e-3, 0.2),
        (CongestionControl::Cubic, 3e-4, 0.2),
    ] {
        let simulated = simulated(control, p, rtt, u64::MAX, 3_000);
        let expected = formula(control, p, rtt);
        assert!(
            (simulated / expected - 1.0).abs() < 0.08,
            "{} at {p} over {rtt} s: {simulated:.1} simulated, {expected:.1} by the formula",
            control.display_name()
        );
    }
}

#[test]
fn the_simulation_scatters_as_much() {
    for (control, p, rtt) in [
        (CongestionControl::Reno, 1e-3, 0.05),
        (CongestionControl::Cubic, 1e-3, 0.2),
    ] {
        // So long as twenty losses take on average.
        let length = 20.0 * rtt / (p * formula(control, p, rtt));
        let blocks = blocks(control, p, rtt, u64::MAX, 6_000, length);
        let middle = mean(&blocks);
        let variance = mean(
            &blocks
                .iter()
                .map(|block| (block - middle) * (block - middle))
                .collect::<Vec<_>>(),
        );
        let scatter = variance.sqrt() / middle * 20_f64.sqrt();
        assert!(
            (scatter / control.rate_deviation() - 1.0).abs() < 0.15,
            "{}: {scatter:.2}",
            control.display_name()
        );
    }
}

#[test]
fn a_bound_close_to_the_mean_takes_a_fifth() {
    for (control, p, rtt) in [
        (CongestionControl::Reno, 1e-3, 0.05),
        (CongestionControl::Cubic, 1e-3, 0.2),
    ] {
        let free = simulated(control, p, rtt, u64::MAX, 3_000);
        for (times, within) in [
            (0.3, 0.05),
            (0.5, 0.05),
            (0.7, 0.08),
            (1.0, 0.08),
            (1.4, 0.08),
            (2.0, 0.05),
        ] {
            let bound = (free * times) as u64;
            let bounded = simulated(control, p, rtt, bound, 3_000);
            let expected = smooth_min(free, bound as f64);
            assert!(
                (bounded / expected - 1.0).abs() < within,
                "{} bound at {times}: {bounded:.1} simulated, {expected:.1} by the formula",
                control.display_name()
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
        let likely =
            SeenLosses { steady, descent }.likely_rate(CongestionControl::Cubic, Ratio::new(1e-4));
        format!("{:.2} {:.2}", likely.low.get(), likely.high.get())
    };
    // Two losses after a slow start to the full gigabit: 2.5 to 6.6 times the mean was
    // measured.
    assert_eq!(of(2.0, 10.0), "0.45 7.21");
    assert_eq!(of(20.0, 10.0), "0.71 1.91");
    assert_eq!(of(200.0, 10.0), "0.84 1.24");
}

#[test]
fn beyond_a_percent_timeouts_decide() {
    let at = |loss| formula(CongestionControl::Cubic, loss, 0.1);
    assert!(at(0.011) < at(0.01));
    // 4.0 simulated without timeouts.
    assert!((2.5..4.0).contains(&at(0.05)), "{}", at(0.05));
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
                window.map_or(window::UNBOUNDED, |window| window::rate_of_window(window, rtt))
            };
            prop_assert!(rate(loss, millis) >= rate(loss + more, millis));
            prop_assert!(rate(loss, millis).scale_by(1.001) >= rate(loss, millis + longer));
        }
    }

    #[test]
    fn an_interval_holds_its_middle(steady in 0.0_f64..1e12, descent in 0.0_f64..1e3, loss in 0.0_f64..1.0) {
        let likely = SeenLosses { steady, descent }.likely_rate(CongestionControl::Reno, Ratio::new(loss));
        prop_assert!(likely.low <= likely.mid && likely.mid <= likely.high);
    }

    #[test]
    fn two_ceilings_leave_less_than_either(a in 0.0_f64..1e19, b in 0.0_f64..1e19) {
        let both = smooth_min(a, b);
        prop_assert!(both <= a.min(b) && both >= 0.79 * a.min(b));
    }
}
