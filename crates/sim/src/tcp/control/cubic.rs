use crate::tcp::window::{CongestionWindow, ConnectionMoment};

/// β = 717/1024.
const BETA: u64 = 717;
/// Scale of β and of C.
const SCALE: u64 = 1024;
/// C = 410/1024.
const C: u64 = 410;
/// 2^40 ÷ C, of which the cube root of a distance in segments gives a time in 1024ths of a second.
const CUBE_FACTOR: u64 = (1 << 40) / C;
/// 8 · (1024 + β) ÷ 3 ÷ (1024 − β), rounded down.
const FRIENDLY_SCALE: u64 = 8 * (SCALE + BETA) / 3 / (SCALE - BETA);

/// `hystart_low_window`.
const HYSTART_MIN_WINDOW: u64 = 16;
/// `hystart_ack_delta_us`: acknowledgements that follow each other closer are a train.
const ACK_TRAIN_GAP: u64 = 2_000;
/// `HYSTART_MIN_SAMPLES`.
const DELAY_SAMPLES: u32 = 8;
/// `HYSTART_DELAY_MIN` and `HYSTART_DELAY_MAX`.
const DELAY_RANGE: (u64, u64) = (4_000, 16_000);

/// CUBIC (`tcp_cubic.c`, version 2.3, which is unchanged from 5.5 to 6.18): the curve in ticks and
/// 1024ths of a second, friendliness to Reno, and HyStart. Times of HyStart are microseconds.
///
/// The kernel's fields of 32 bits overflow beyond a million segments; these have 64, so that larger
/// windows follow the same curve.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cubic {
    hz: u64,
    /// `cnt`: acknowledged segments for which the window grows by one.
    per_segment: u64,
    /// `last_max_cwnd`.
    last_max: u64,
    last_cwnd: u64,
    /// `last_time`: the tick in which the curve was last computed.
    last_tick: u64,
    /// `bic_origin_point`: the plateau of the curve.
    plateau: u64,
    /// `bic_K`: time from the begin of the epoch to the plateau, in 1024ths of a second.
    to_plateau: u64,
    /// `delay_min`.
    min_delay: u64,
    /// `epoch_start`, a tick; none between a loss and the first growth after it.
    epoch: Option<u64>,
    /// `ack_cnt`.
    acked: u64,
    /// `tcp_cwnd`: window that Reno would have.
    reno: u64,
    hystart: HyStart,
}

/// Hybrid slow start: ends it before the queue overflows.
#[derive(Debug, Clone, Default)]
struct HyStart {
    found: bool,
    round_start: u64,
    /// The round ends when this segment is acknowledged.
    round_end: u64,
    last_ack: u64,
    min_rtt: u64,
    samples: u32,
}

impl Cubic {
    pub(crate) fn new(hz: u64, moment: &ConnectionMoment) -> Self {
        let mut cubic = Self {
            hz,
            ..Self::default()
        };
        cubic.hystart.begin_round(moment);
        cubic
    }

    /// `cubictcp_recalc_ssthresh`, with fast convergence.
    pub(crate) fn on_loss(&mut self, cwnd: u64) -> u64 {
        self.epoch = None;
        self.last_max = if cwnd < self.last_max {
            cwnd * (SCALE + BETA) / (2 * SCALE)
        } else {
            cwnd
        };
        (cwnd * BETA / SCALE).max(2)
    }

    /// `cubictcp_state`: a timeout forgets everything.
    pub(crate) fn timed_out(&mut self, moment: &ConnectionMoment) {
        *self = Self::new(self.hz, moment);
    }

    /// `cubictcp_cwnd_event`: an idle time does not count on the curve.
    pub(crate) fn restart_after_idle(&mut self, idle: u64, tick: u64) {
        self.epoch = self.epoch.map(|epoch| (epoch + idle).min(tick));
    }

    /// `bictcp_update`.
    pub(crate) fn acks_per_segment(&mut self, cwnd: u64, acked: u64, tick: u64) -> u64 {
        self.acked += acked;
        if self.last_cwnd == cwnd && tick.saturating_sub(self.last_tick) <= self.hz / 32 {
            return self.per_segment;
        }
        // At most once in a tick.
        if self.epoch.is_none() || tick != self.last_tick {
            self.last_cwnd = cwnd;
            self.last_tick = tick;
            let epoch = self
                .epoch
                .unwrap_or_else(|| self.begin_epoch(cwnd, acked, tick));
            self.follow_curve(cwnd, tick.saturating_sub(epoch));
        }
        self.be_friendly(cwnd);
        self.per_segment = self.per_segment.max(2);
        self.per_segment
    }

    fn begin_epoch(&mut self, cwnd: u64, acked: u64, tick: u64) -> u64 {
        self.epoch = Some(tick);
        self.acked = acked;
        self.reno = cwnd;
        if self.last_max <= cwnd {
            self.to_plateau = 0;
            self.plateau = cwnd;
        } else {
            self.to_plateau = cube_root(CUBE_FACTOR * (self.last_max - cwnd));
            self.plateau = self.last_max;
        }
        tick
    }

    fn follow_curve(&mut self, cwnd: u64, ticks: u64) {
        let delay = (self.min_delay * self.hz).div_ceil(1_000_000);
        let time = ((ticks + delay) << 10) / self.hz;
        let away = u128::from(time.abs_diff(self.to_plateau));
        let distance = ((u128::from(C) * away * away * away) >> 40) as u64;
        let target = if time < self.to_plateau {
            self.plateau.saturating_sub(distance)
        } else {
            self.plateau.saturating_add(distance)
        };
        self.per_segment = if target > cwnd {
            cwnd / (target - cwnd)
        } else {
            100 * cwnd
        };
        // Before the first loss: 5 % in a round trip.
        if self.last_max == 0 {
            self.per_segment = self.per_segment.min(20);
        }
    }

    fn be_friendly(&mut self, cwnd: u64) {
        let per_segment = (cwnd * FRIENDLY_SCALE) >> 3;
        if per_segment > 0 && self.acked > per_segment {
            let grown = (self.acked - 1) / per_segment;
            self.acked -= grown * per_segment;
            self.reno += grown;
        }
        if self.reno > cwnd {
            self.per_segment = self.per_segment.min(cwnd / (self.reno - cwnd));
        }
    }

    /// `cubictcp_acked`. Delays of the first second of an epoch do not count.
    pub(crate) fn measure_rtt(
        &mut self,
        rtt: u64,
        window: &mut CongestionWindow,
        moment: &ConnectionMoment,
    ) {
        if self
            .epoch
            .is_some_and(|epoch| moment.ticks.saturating_sub(epoch) < self.hz)
        {
            return;
        }
        let delay = rtt.max(1);
        if self.min_delay == 0 || self.min_delay > delay {
            self.min_delay = delay;
        }
        if !self.hystart.found && window.in_slow_start() {
            self.hystart
                .update_delay(delay, self.min_delay, window, moment);
        }
    }
}

impl HyStart {
    fn begin_round(&mut self, moment: &ConnectionMoment) {
        self.round_start = moment.micros;
        self.last_ack = moment.micros;
        self.round_end = moment.next;
        self.min_rtt = u64::MAX;
        self.samples = 0;
    }

    /// `hystart_update`.
    fn update_delay(
        &mut self,
        delay: u64,
        min_delay: u64,
        window: &mut CongestionWindow,
        moment: &ConnectionMoment,
    ) {
        if moment.acknowledged > self.round_end {
            self.begin_round(moment);
        }
        if window.cwnd < HYSTART_MIN_WINDOW {
            return;
        }
        self.by_train(min_delay, window, moment);
        self.by_delay(delay, min_delay, window);
    }

    /// The acknowledgements of a round come close together for half the least delay; for all of it
    /// where the sender paces, which spreads them.
    fn by_train(
        &mut self,
        min_delay: u64,
        window: &mut CongestionWindow,
        moment: &ConnectionMoment,
    ) {
        if moment.micros.saturating_sub(self.last_ack) > ACK_TRAIN_GAP {
            return;
        }
        self.last_ack = moment.micros;
        let threshold = min_delay + ack_delay(moment);
        let threshold = if moment.is_paced {
            threshold
        } else {
            threshold >> 1
        };
        if moment.micros - self.round_start > threshold {
            self.found = true;
            window.ssthresh = window.cwnd;
        }
    }

    fn by_delay(&mut self, delay: u64, min_delay: u64, window: &mut CongestionWindow) {
        self.min_rtt = self.min_rtt.min(delay);
        if self.samples < DELAY_SAMPLES {
            self.samples += 1;
        } else if self.min_rtt > min_delay + (min_delay >> 3).clamp(DELAY_RANGE.0, DELAY_RANGE.1) {
            self.found = true;
            window.ssthresh = window.cwnd;
        }
    }
}

/// Microseconds that trains wait for each other at the receiver (`hystart_ack_delay`), at most a
/// millisecond.
fn ack_delay(moment: &ConnectionMoment) -> u64 {
    const MAX_TRAINS: u64 = 4 * 65_536;
    (MAX_TRAINS * 1_000_000)
        .checked_div(moment.pacing_rate)
        .unwrap_or(0)
        .min(1_000)
}

/// The cube root, rounded down. The kernel's (`cubic_root`) is 0.2 % off on average.
fn cube_root(a: u64) -> u64 {
    let mut root = 0;
    for bit in (0..22).rev() {
        let larger = root | (1 << bit);
        if u128::from(larger).pow(3) <= u128::from(a) {
            root = larger;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A window that is in use.
    fn window(cwnd: u64) -> CongestionWindow {
        let mut window = CongestionWindow::new(cwnd);
        window.limited = true;
        window
    }

    fn moment(millis: u64, acknowledged: u64, next: u64) -> ConnectionMoment {
        ConnectionMoment {
            micros: millis * 1_000,
            ticks: millis / 4,
            acknowledged,
            next,
            pacing_rate: 10_000_000_000,
            is_paced: false,
        }
    }

    #[test]
    fn a_loss_takes_three_tenths_and_the_curve_comes_back() {
        let mut cubic = Cubic::new(250, &moment(0, 0, 0));
        assert_eq!(cubic.on_loss(1000), 700);
        let mut window = window(700);
        window.ssthresh = 700;
        let mut control = super::super::ControlState::Cubic(cubic);
        // Windows of 100 ms, acknowledged in ticks: the plateau comes after the cube root of 300 ÷
        // 0.4 = 9.1 s.
        let mut at_plateau = 0;
        for tick in 0..2_275 {
            let acked = window.cwnd / 25;
            control.grow_window(&mut window, acked, 1_000 + tick);
            if tick == 2_225 {
                at_plateau = window.cwnd;
            }
        }
        assert!((985..=1000).contains(&at_plateau), "{at_plateau}");
        assert!((990..=1010).contains(&window.cwnd), "{}", window.cwnd);
    }

    #[test]
    fn a_second_loss_below_the_first_gives_way() {
        let mut cubic = Cubic::new(250, &moment(0, 0, 0));
        cubic.on_loss(1000);
        cubic.on_loss(900);
        assert_eq!(cubic.last_max, 900 * 1741 / 2048);
    }

    #[test]
    fn hystart_ends_slow_start_when_the_delay_grows_by_an_eighth() {
        let mut window = window(100);
        let mut cubic = Cubic::new(250, &moment(0, 0, 100));
        for ack in 1..=8 {
            cubic.measure_rtt(100_000, &mut window, &moment(100 + 3 * ack, ack, 200));
        }
        assert!(window.in_slow_start());
        // A round whose least delay is above the least of all by more than 12.5 ms.
        for ack in 1..=9 {
            cubic.measure_rtt(113_000, &mut window, &moment(220 + 3 * ack, 100 + ack, 300));
        }
        assert!(!window.in_slow_start());
    }

    #[test]
    fn hystart_ends_slow_start_when_acknowledgements_come_for_half_a_round_trip() {
        let mut window = window(100);
        let mut cubic = Cubic::new(250, &moment(0, 0, 100));
        // The round begins at 100 ms; its fifty-first millisecond is beyond half the least delay.
        for millis in 0..=50 {
            cubic.measure_rtt(100_000, &mut window, &moment(100 + millis, 101, 200));
            assert!(window.in_slow_start(), "{millis}");
        }
        cubic.measure_rtt(100_000, &mut window, &moment(151, 101, 200));
        assert_eq!(window.ssthresh, 100);
    }

    proptest! {
        #[test]
        fn the_cube_root_is_rounded_down(a: u64) {
            let (root, cube) = (u128::from(cube_root(a)), |root: u128| root * root * root);
            prop_assert!(cube(root) <= u128::from(a) && u128::from(a) < cube(root + 1), "{a}");
        }

        #[test]
        fn no_window_is_too_large(cwnd in 1_u64..1 << 32, max in 1_u64..1 << 32, tick in 0_u64..1 << 32) {
            let mut cubic = Cubic::new(1000, &moment(0, 0, 0));
            cubic.on_loss(max);
            let mut window = window(cwnd);
            window.ssthresh = 2;
            let mut control = super::super::ControlState::Cubic(cubic);
            control.grow_window(&mut window, 45, 7);
            control.grow_window(&mut window, 45, 7 + tick);
            prop_assert!(window.cwnd >= cwnd && window.cwnd <= cwnd + 46);
        }
    }
}
