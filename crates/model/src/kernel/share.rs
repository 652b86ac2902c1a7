use crate::prelude::*;

/// Each socket learns its share from what its packets cost (dfa2f0483360).
const LEARNS: KernelVersion = KernelVersion::new(6, 6);
/// A new socket assumes one half (697a6c8cec03).
const HALF_AT_FIRST: [KernelVersion; 4] = [
    release_version(6, 6, 33),
    release_version(6, 8, 12),
    release_version(6, 9, 3),
    release_version(6, 10, 0),
];
/// A socket with a fixed buffer learns too (05f76b2d634e); before, its window stays clamped to what
/// it was at first.
const FIXED_LEARNS: [KernelVersion; 3] = [
    release_version(6, 6, 45),
    release_version(6, 10, 4),
    release_version(6, 11, 0),
];

/// Of memory on x86-64.
const PAGE: ByteCount = ByteCount::new(4096);
/// Room before a packet (`NET_SKB_PAD`), and the headers of IPv4 and of TCP with timestamps.
const BEFORE_PAYLOAD: ByteCount = ByteCount::new(64 + 52);
/// Bytes that a packet in pages costs in addition: 512 bytes for the headers and `skb_shared_info`,
/// 256 of `sk_buff`.
const PACKET_OVERHEAD: u64 = 512 + 256;

/// The part of a receive buffer that is advertised as window; the rest is for the kernel's own
/// structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowShare {
    part: u64,
    of: u64,
}

impl WindowShare {
    /// Returns the share that a new socket advertises, and by which its window scale is chosen.
    ///
    /// Before 6.6 `tcp_adv_win_scale` decides; to 6.9 it is 1200 bytes of every
    /// `SKB_TRUESIZE(4096)` (4672 bytes on 64 bit); then one half, as in 6.6.33, 6.8.12 and 6.9.3.
    ///
    /// All of the buffer is window where the host is not Linux.
    pub fn at_first(settings: &HostSettings) -> Self {
        match settings.kernel {
            _ if settings.system.is_some() => Self::of_256(256),
            kernel if kernel < LEARNS => Self::of_adv_win_scale(settings.adv_win_scale),
            kernel if has_rule(kernel, &HALF_AT_FIRST) => Self::of_256(128),
            _ => Self::of_256(65),
        }
    }

    /// Returns the share that a socket with a tuned buffer advertises once data has flowed.
    ///
    /// From 6.6 on it is payload ÷ memory of a packet as received (`tcp_measure_rcv_mss`), in
    /// 256ths and rounded down: 1448 of 2304 bytes, so 160/256, where packets of 1500 bytes come
    /// one by one. Measured so with ten fixed buffers from 17 520 to 131 072 bytes on Linux 6.18;
    /// 162/256 was measured where the interface joins some of them.
    pub fn settled_share(settings: &HostSettings) -> Self {
        if Self::is_learnt(settings) {
            Self::of_256(160)
        } else {
            Self::at_first(settings)
        }
    }

    /// Returns the share of a socket that learns it from packets that carry `mss`. Packets that do
    /// not fit into a page lie in as many as their payload needs, behind a head of their own
    /// (`tun_alloc_skb`): 175/256 at MTU 9000. Network cards place long packets in ways of their
    /// own.
    ///
    /// Measured on Linux 6.18 through a TUN device that takes trains: 2 841 984 bytes advertised of
    /// 4 MiB, one percent less than this.
    #[must_use]
    pub fn of_packets(self, settings: &HostSettings, mss: ByteCount) -> Self {
        let learnt = Self::is_learnt(settings) && self == Self::settled_share(settings);
        if !learnt || mss + BEFORE_PAYLOAD < PAGE {
            return self;
        }
        let memory = u128::from(PACKET_OVERHEAD)
            + u128::from(mss.get().div_ceil(PAGE.get())) * u128::from(PAGE.get());
        Self::of_256(u64::try_from(u128::from(mss.get()) * 256 / memory).unwrap_or(256))
    }

    /// As [`WindowShare::settled_share`], for a socket whose buffer does not grow: it learns since
    /// 6.10.4, and in 6.6.45.
    pub fn settled_fixed(settings: &HostSettings) -> Self {
        if has_rule(settings.kernel, &FIXED_LEARNS) {
            Self::settled_share(settings)
        } else {
            Self::at_first(settings)
        }
    }

    /// Returns true if this kernel learns the share from its packets, so that it depends on their
    /// size and on the interface.
    pub(crate) fn is_learnt(settings: &HostSettings) -> bool {
        settings.system.is_none() && settings.kernel >= LEARNS
    }

    /// Returns true if fixed buffers differ between the point releases of this kernel, of which
    /// later ones, and distributions under its number, have 697a6c8cec03 and 05f76b2d634e as
    /// back-ports and so advertise more.
    pub(crate) fn depends_on_point_release(settings: &HostSettings) -> bool {
        Self::is_learnt(settings) && !has_rule(settings.kernel, &FIXED_LEARNS)
    }

    /// Window that a buffer of `space` gives (`tcp_win_from_space`), rounded down.
    pub fn window_from_space(self, space: ByteCount) -> ByteCount {
        let bytes = u128::from(space.get()) * u128::from(self.part) / u128::from(self.of);
        ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// A buffer that gives `window` (`tcp_space_from_win`), rounded up.
    pub fn space_from_window(self, window: ByteCount) -> ByteCount {
        let bytes =
            (u128::from(window.get()) * u128::from(self.of)).div_ceil(u128::from(self.part));
        ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns true if all of the buffer is window.
    pub fn is_whole(self) -> bool {
        self.part == self.of
    }

    /// As a fraction of the buffer.
    pub fn as_ratio(self) -> Ratio {
        Ratio::from_quotient(self.part as f64, self.of as f64)
    }

    /// `tcp_adv_win_scale` keeps 2^−scale of the buffer back, or, where it is not positive,
    /// advertises 2^scale of it.
    fn of_adv_win_scale(scale: i32) -> Self {
        // The kernel accepts −31…31.
        let of = 1 << scale.unsigned_abs().min(31);
        if scale > 0 {
            Self { part: of - 1, of }
        } else {
            Self { part: 1, of }
        }
    }

    const fn of_256(part: u64) -> Self {
        Self { part, of: 256 }
    }
}

/// Returns true if `kernel` follows a rule that came with the last of `releases` and was carried
/// back to the others.
fn has_rule(kernel: KernelVersion, releases: &[KernelVersion]) -> bool {
    let same_series =
        |release: &&KernelVersion| (release.major, release.minor) == (kernel.major, kernel.minor);
    let since = releases.iter().find(same_series).or(releases.last());
    since.is_some_and(|&release| kernel >= release)
}

const fn release_version(major: u16, minor: u16, patch: u16) -> KernelVersion {
    KernelVersion {
        major,
        minor,
        patch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture;
    use proptest::prelude::*;

    fn percents(kernel: &str) -> [String; 3] {
        let settings = test_fixture::default_settings(kernel);
        [
            WindowShare::at_first(&settings),
            WindowShare::settled_share(&settings),
            WindowShare::settled_fixed(&settings),
        ]
        .map(|share| format!("{:.1}", share.as_ratio().as_percent()))
    }

    #[test]
    fn every_age_has_its_share() {
        for (kernel, at_first, settled, fixed) in [
            ("5.15.0", "50.0", "50.0", "50.0"),
            ("6.5.13", "50.0", "50.0", "50.0"),
            ("6.6.0", "25.4", "62.5", "25.4"),
            ("6.6.32", "25.4", "62.5", "25.4"),
            ("6.6.33", "50.0", "62.5", "50.0"),
            ("6.6.44", "50.0", "62.5", "50.0"),
            ("6.6.45", "50.0", "62.5", "62.5"),
            ("6.7.12", "25.4", "62.5", "25.4"),
            ("6.8.11", "25.4", "62.5", "25.4"),
            ("6.8.12", "50.0", "62.5", "50.0"),
            ("6.9.2", "25.4", "62.5", "25.4"),
            ("6.9.12", "50.0", "62.5", "50.0"),
            ("6.10.3", "50.0", "62.5", "50.0"),
            ("6.10.4", "50.0", "62.5", "62.5"),
            ("6.11.0", "50.0", "62.5", "62.5"),
            ("6.18.44", "50.0", "62.5", "62.5"),
            ("7.0", "50.0", "62.5", "62.5"),
        ] {
            assert_eq!(percents(kernel), [at_first, settled, fixed], "{kernel}");
        }
    }

    #[test]
    fn long_packets_waste_less_of_a_buffer() {
        let settings = test_fixture::default_settings("6.18.0");
        let share =
            |mss| WindowShare::settled_share(&settings).of_packets(&settings, ByteCount::new(mss));
        for (mss, part) in [
            (1448, 160),
            (3979, 160),
            (3980, 209),
            (4097, 117),
            (8948, 175),
            (65_483, 252),
        ] {
            assert_eq!(share(mss), WindowShare::of_256(part), "{mss}");
        }
        let seen = share(8948)
            .window_from_space(ByteCount::from_mib(4))
            .as_f64();
        assert!((seen / 2_841_984.0 - 1.0).abs() < 0.01, "{seen}");
        let old = test_fixture::default_settings("5.15.0");
        assert_eq!(
            WindowShare::settled_share(&old).of_packets(&old, ByteCount::new(8948)),
            WindowShare::settled_share(&old)
        );
    }

    proptest! {
        #[test]
        fn no_segment_is_too_long(mss in any::<u64>()) {
            let settings = test_fixture::default_settings("6.18.0");
            let share = WindowShare::settled_share(&settings).of_packets(&settings, ByteCount::new(mss)).as_ratio().get();
            prop_assert!((0.0..=1.0).contains(&share));
        }
    }

    #[test]
    fn buffers_at_three_quarters() {
        let settings = HostSettings {
            adv_win_scale: 2,
            ..test_fixture::default_settings("3.2.0")
        };
        let share = WindowShare::settled_share(&settings);
        for (window, space) in [
            (12_500, 16_667),
            (125_000, 166_667),
            (37_500, 50_000),
            (65_535, 87_380),
        ] {
            assert_eq!(share.space_from_window(ByteCount::new(window)).get(), space);
        }
        assert_eq!(
            share.window_from_space(ByteCount::new(87_380)).get(),
            65_535
        );
        assert_eq!(
            share.window_from_space(ByteCount::new(150_000)).get(),
            112_500
        );
    }

    #[test]
    fn a_scale_that_is_not_positive_divides() {
        for (scale, window) in [
            (0, 65_536),
            (-2, 16_384),
            (1, 32_768),
            (i32::MAX, 65_535),
            (i32::MIN, 0),
        ] {
            let settings = HostSettings {
                adv_win_scale: scale,
                ..test_fixture::default_settings("5.4.0")
            };
            assert_eq!(
                WindowShare::settled_share(&settings)
                    .window_from_space(ByteCount::from_kib(64))
                    .get(),
                window,
                "{scale}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_space_for_a_window_gives_it(window in 0_u64..1 << 60, scale in -3_i32..32, old: bool) {
            let kernel = if old { "5.4.0" } else { "6.18.0" };
            let settings = HostSettings { adv_win_scale: scale, ..test_fixture::default_settings(kernel) };
            let share = WindowShare::settled_share(&settings);
            prop_assert!(share.window_from_space(share.space_from_window(ByteCount::new(window))).get() >= window);
        }
    }
}
