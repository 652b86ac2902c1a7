/// The congestion window, in segments.
#[derive(Debug, Clone)]
pub(crate) struct CongestionWindow {
    /// `snd_cwnd`.
    pub(crate) cwnd: u64,
    /// `snd_ssthresh`.
    pub(crate) ssthresh: u64,
    /// `snd_cwnd_cnt`: acknowledged since the window last grew by one.
    pub(crate) count: u64,
    /// `is_cwnd_limited`.
    pub(crate) limited: bool,
    /// `max_packets_out`: the most in flight in the last window.
    max_out: u64,
    /// `cwnd_usage_seq`: the segment with whose acknowledgement the two are taken anew.
    usage_until: u64,
}

/// The state of a connection when a congestion control is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionMoment {
    /// Of the host's clock.
    pub(crate) micros: u64,
    pub(crate) ticks: u64,
    /// `snd_una`.
    pub(crate) acknowledged: u64,
    /// `snd_nxt`.
    pub(crate) next: u64,
    /// Bytes a second.
    pub(crate) pacing_rate: u64,
    pub(crate) is_paced: bool,
}

impl CongestionWindow {
    /// `TCP_INFINITE_SSTHRESH`.
    pub(crate) const UNSET: u64 = 0x7fff_ffff;
    /// `TCP_INIT_CWND` (RFC 6928).
    pub(crate) const INITIAL: u64 = 10;

    pub(crate) const fn new(cwnd: u64) -> Self {
        Self {
            cwnd,
            ssthresh: Self::UNSET,
            count: 0,
            limited: false,
            max_out: 0,
            usage_until: 0,
        }
    }

    /// `tcp_in_slow_start`.
    pub(crate) const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// `tcp_is_cwnd_limited`: in slow start the window may grow to twice what was in use.
    pub(crate) const fn is_limiting(&self) -> bool {
        self.limited || (self.in_slow_start() && self.cwnd < 2 * self.max_out)
    }

    /// Grows by what was acknowledged, up to the threshold; returns the rest (`tcp_slow_start`).
    pub(crate) fn slow_start(&mut self, acked: u64) -> u64 {
        let cwnd = (self.cwnd + acked).min(self.ssthresh);
        let rest = acked - (cwnd - self.cwnd);
        self.cwnd = cwnd;
        rest
    }

    /// Grows by one for each `per_segment` acknowledged (`tcp_cong_avoid_ai`).
    pub(crate) fn grow_additively(&mut self, per_segment: u64, acked: u64) {
        let per_segment = per_segment.max(1);
        if self.count >= per_segment {
            self.count = 0;
            self.cwnd += 1;
        }
        self.count += acked;
        if self.count >= per_segment {
            let grown = self.count / per_segment;
            self.count -= grown * per_segment;
            self.cwnd += grown;
        }
    }

    /// Notes whether the window held data back, with `out` segments outstanding (first half of
    /// `tcp_cwnd_validate`).
    pub(crate) fn note_use(&mut self, limited: bool, acknowledged: u64, next: u64, out: u64) {
        if acknowledged >= self.usage_until || limited || (!self.limited && out > self.max_out) {
            self.limited = limited;
            self.max_out = out;
            self.usage_until = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_ends_at_its_threshold() {
        let mut window = CongestionWindow::new(10);
        window.ssthresh = 15;
        assert_eq!((window.slow_start(3), window.cwnd), (0, 13));
        assert_eq!((window.slow_start(3), window.cwnd), (1, 15));
        assert!(!window.in_slow_start());
    }

    #[test]
    fn reno_grows_by_a_segment_a_window() {
        let mut window = CongestionWindow::new(10);
        for _ in 0..10 {
            window.grow_additively(10, 1);
        }
        assert_eq!(window.cwnd, 11);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = CongestionWindow::new(10);
        window.note_use(false, 0, 5, 5);
        assert!(!window.is_limiting());
        window.note_use(false, 2, 8, 6);
        assert!(
            window.is_limiting(),
            "in slow start up to twice what was out"
        );
        window.ssthresh = 5;
        assert!(!window.is_limiting());
        window.note_use(true, 3, 9, 10);
        assert!(window.is_limiting());
    }
}
