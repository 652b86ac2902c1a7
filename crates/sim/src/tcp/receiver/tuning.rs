//! The size of the receive buffer, and how it grows (`tcp_rcv_space_adjust`: dynamic right-sizing).

use fullpipe_record::KernelVersion;

use super::Receiver;

/// The rules by which a kernel lets receive buffers grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AutotuningRules {
    /// Never: `tcp_moderate_rcvbuf` is off, or a program fixed the buffer.
    Off,
    /// Before 6.16: four times of what was read in a round trip while that grows.
    Generous,
    /// 6.16 and 6.17: twice of that (65c5287892e9).
    Doubling,
    /// Since 6.18: twice, and more while it grows (aa251c84636c).
    Growing,
    /// Since 6.19: the same, but less on ways shorter than a millisecond (`tcp_rcvbuf_low_rtt`,
    /// ecfea98b7d0d).
    GrowingFarAway,
}

impl AutotuningRules {
    /// The rules of a kernel, for a buffer that it tunes.
    pub fn for_kernel(kernel: KernelVersion) -> Self {
        let newer = [
            (19, Self::GrowingFarAway),
            (18, Self::Growing),
            (16, Self::Doubling),
        ];
        newer
            .into_iter()
            .find(|(minor, _)| kernel >= KernelVersion::new(6, *minor))
            .map_or(Self::Generous, |(_, rules)| rules)
    }

    /// The window for `copied` bytes that were read in a round trip of `rtt` microseconds, `before`
    /// in the one before, with `behind` bytes out of order (`tcp_rcvbuf_grow`).
    fn receive_window(self, copied: u64, before: u64, behind: u64, rtt: u64, mss: u64) -> u64 {
        const LOW_RTT: u64 = 1_000;
        let twice = copied << 1;
        match self {
            Self::Off => 0,
            Self::Generous => {
                let window = twice + 16 * mss;
                window.saturating_add(window_growth(window, copied, before))
            }
            Self::Doubling => twice + behind,
            Self::GrowingFarAway if rtt < LOW_RTT => twice + twice * rtt / LOW_RTT + behind,
            Self::Growing | Self::GrowingFarAway => {
                twice.saturating_add(window_growth(twice, copied, before)) + behind
            }
        }
    }
}

/// Twice what a window grows by if a program read `copied` bytes, and `before` in the round trip
/// before.
fn window_growth(window: u64, copied: u64, before: u64) -> u64 {
    let more =
        u128::from(window) * u128::from(copied.saturating_sub(before)) / u128::from(before.max(1));
    2 * u64::try_from(more)
        .unwrap_or(u64::MAX >> 2)
        .min(u64::MAX >> 2)
}

/// The measurements that the growth follows.
#[derive(Debug, Clone)]
pub(super) struct BufferTuning {
    rules: AutotuningRules,
    mss: u64,
    /// `rcvq_space`: bytes read in the last round trip, bytes read when it began, and when that
    /// was.
    pub(super) space: u64,
    read: u64,
    at: u64,
    /// `rcv_rtt_est`: eight times the round-trip time; zero before the first sample.
    pub(super) rtt8: u64,
    /// A window is received when the byte at the end of it has arrived; since when.
    window: (u64, u64),
}

impl BufferTuning {
    /// Of a connection that advertises a window since a time.
    pub(super) const fn new(
        rules: AutotuningRules,
        mss: u64,
        space: u64,
        window: (u64, u64),
    ) -> Self {
        Self {
            rules,
            mss,
            space,
            read: 0,
            at: window.1,
            rtt8: 0,
            window,
        }
    }

    /// Takes the time in which a whole window arrived, up to byte `received`
    /// (`tcp_rcv_rtt_measure`).
    pub(super) fn window_arrived(&mut self, received: u64, window: u64, now: u64) {
        let (until, since) = self.window;
        if received < until {
            return;
        }
        let sample = (now - since).max(1) << 3;
        if self.rtt8 == 0 || sample < self.rtt8 {
            self.rtt8 = sample;
        }
        self.window = (received + window, now);
    }

    /// Takes a round-trip time by a stamp that came back (`tcp_rcv_rtt_measure_ts`). While data is
    /// unread, the program is part of it (since 6.16, as is the preference for the least).
    pub(super) fn measure_rtt(&mut self, sample: u64, unread: bool) {
        let careful = self.rules >= AutotuningRules::Doubling;
        if sample == 0 {
            return;
        }
        if self.rtt8 == 0 || (careful && sample << 3 < self.rtt8) {
            self.rtt8 = sample << 3;
        } else if !(careful && unread) {
            self.rtt8 = self.rtt8 - (self.rtt8 >> 3) + sample;
        }
    }

    /// Called when the program has read up to byte `read` of `received`, with the times of the last
    /// segment, which counts since 6.19, and of the call. Returns the window that the buffer must
    /// yield, if it is to grow.
    pub(super) fn after_read(
        &mut self,
        read: u64,
        received: u64,
        behind: u64,
        [arrived, now]: [u64; 2],
    ) -> Option<u64> {
        let now = if self.rules >= AutotuningRules::GrowingFarAway {
            arrived
        } else {
            now
        };
        if self.rtt8 == 0 || now.saturating_sub(self.at) < self.rtt8 >> 3 {
            return None;
        }
        let unread = if self.rules >= AutotuningRules::Doubling {
            received.saturating_sub(read)
        } else {
            0
        };
        let copied = (read - self.read).saturating_sub(unread);
        self.read = read;
        self.at = now;
        if copied <= self.space {
            return None;
        }
        let before = std::mem::replace(&mut self.space, copied);
        self.window_for(copied, before, behind)
    }

    /// The window for the same rate, where data arrives out of order (since 6.16).
    pub(super) fn out_of_order(&self, behind: u64) -> Option<u64> {
        if self.rules < AutotuningRules::Doubling {
            return None;
        }
        self.window_for(self.space, self.space, behind)
    }

    fn window_for(&self, copied: u64, before: u64, behind: u64) -> Option<u64> {
        let window = self
            .rules
            .receive_window(copied, before, behind, self.rtt8 >> 3, self.mss);
        (self.rules > AutotuningRules::Off).then_some(window)
    }
}

impl Receiver {
    /// The first data shows what share of its memory is payload (`tcp_measure_rcv_mss`, since 6.6),
    /// and the clamp follows (`tcp_set_window_clamp`).
    pub(super) fn learn_share(&mut self) {
        if self.share == self.learnt_share {
            return;
        }
        self.share = self.learnt_share;
        let clamp = self.window_of(self.buffer);
        if clamp < self.clamp {
            self.threshold = self.threshold.min(clamp);
        } else {
            self.threshold = self.threshold.max(self.window.min(clamp));
        }
        self.clamp = clamp;
        self.tuning.space = self.tuning.space.min(clamp);
    }

    /// `tcp_grow_window`: the window follows the data, two segments for each.
    pub(super) fn grow_window(&mut self, bytes: u64) {
        let free = self.window_of(self.buffer.saturating_sub(self.allocated));
        let room = self.clamp.min(free).saturating_sub(self.threshold);
        if room > 0 {
            self.threshold += room.min(2 * bytes.max(self.mss));
            self.quick |= 1;
        }
    }

    pub(super) fn grow_buffer(&mut self, window: Option<u64>) {
        let Some(window) = window else { return };
        let wanted = (u128::from(window) * 256).div_ceil(u128::from(self.share.max(1)));
        if self.grow_buffer_to(u64::try_from(wanted).unwrap_or(u64::MAX)) {
            self.clamp = self.window_of(self.buffer);
        }
    }

    pub(super) fn grow_buffer_to(&mut self, wanted: u64) -> bool {
        let wanted = wanted.min(self.max_buffer);
        let grows = wanted > self.buffer;
        self.buffer = self.buffer.max(wanted);
        grows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_age_has_its_rules() {
        for (kernel, rules) in [
            ("5.15.0", AutotuningRules::Generous),
            ("6.15.3", AutotuningRules::Generous),
            ("6.16.0", AutotuningRules::Doubling),
            ("6.17.9", AutotuningRules::Doubling),
            ("6.18.44", AutotuningRules::Growing),
            ("7.0", AutotuningRules::GrowingFarAway),
        ] {
            assert_eq!(
                AutotuningRules::for_kernel(kernel.parse().unwrap()),
                rules,
                "{kernel}"
            );
        }
    }

    #[test]
    fn windows_when_the_rate_doubles_and_when_it_stays() {
        for (rules, doubled, same) in [
            (
                AutotuningRules::Generous,
                3 * (200_000 + 16_000),
                200_000 + 16_000,
            ),
            (AutotuningRules::Doubling, 200_000, 200_000),
            (AutotuningRules::Growing, 600_000, 200_000),
        ] {
            assert_eq!(
                rules.receive_window(100_000, 50_000, 0, 50_000, 1_000),
                doubled,
                "{rules:?}"
            );
            assert_eq!(
                rules.receive_window(100_000, 100_000, 0, 50_000, 1_000),
                same,
                "{rules:?}"
            );
        }
        assert_eq!(
            AutotuningRules::GrowingFarAway.receive_window(100_000, 50_000, 7, 500, 1_000),
            300_007
        );
    }

    #[test]
    fn a_round_trip_is_the_time_of_a_window_and_never_longer_than_its_shortest() {
        let mut tuning =
            BufferTuning::new(AutotuningRules::Growing, 1_000, 10_000, (11_000, 1_000));
        tuning.window_arrived(10_000, 10_000, 90_000);
        assert_eq!(tuning.rtt8, 0);
        tuning.window_arrived(11_000, 20_000, 101_000);
        assert_eq!(tuning.rtt8 >> 3, 100_000);
        tuning.window_arrived(31_000, 20_000, 301_000);
        assert_eq!(tuning.rtt8 >> 3, 100_000);
        tuning.measure_rtt(60_000, false);
        assert_eq!(tuning.rtt8 >> 3, 60_000);
        assert_eq!(tuning.after_read(30_000, 30_000, 0, [0, 60_999]), None);
        assert_eq!(
            tuning.after_read(30_000, 30_000, 0, [0, 61_000]),
            Some(60_000 + 2 * 120_000)
        );
    }
}
