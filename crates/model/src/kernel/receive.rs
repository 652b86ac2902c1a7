use fullpipe_record::{HostSettings, KernelVersion};
use fullpipe_units::{ByteCount, SegCount};

use super::{WindowShare, rmem_max, stored_rcvbuf};

/// The window of a first packet fills its 16 bits, and the buffer behind it is twice that
/// (a337531b942b).
const FIRST_WINDOW_OF_64_KIB: KernelVersion = KernelVersion::new(4, 20);
/// The window behind a handshake may be larger than what its packets can say (378979e94e95; also in
/// stable releases of June 2024).
const WINDOW_BEHIND_HANDSHAKE: KernelVersion = KernelVersion::new(6, 10);
/// Largest shift of RFC 7323 §2.3.
const MAX_SCALE: u8 = 14;

/// The receive buffer of a socket when it has grown, and the window that it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffer {
    space: ByteCount,
    share: WindowShare,
    scale: Option<u8>,
}

impl ReceiveBuffer {
    /// The buffer of a socket that asked for nothing: `tcp_rmem[2]` once the kernel has tuned it,
    /// or `tcp_rmem[1]` where `tcp_moderate_rcvbuf` is off, or that is the larger: a socket begins
    /// with it, and never has less.
    pub fn autotuned_buffer(settings: &HostSettings) -> Self {
        let (space, share) = if settings.moderate_rcvbuf {
            (
                settings.tcp_rmem.max.max(settings.tcp_rmem.default),
                WindowShare::settled_share(settings),
            )
        } else {
            (
                settings.tcp_rmem.default,
                WindowShare::settled_fixed(settings),
            )
        };
        Self {
            space,
            share,
            scale: window_scale(settings, None),
        }
    }

    /// The buffer of a socket that asked for `SO_RCVBUF` before it connected or listened.
    pub fn fixed_buffer(settings: &HostSettings, request: ByteCount) -> Self {
        let space = stored_rcvbuf(settings, request);
        let clamp = WindowShare::at_first(settings).window_from_space(space);
        Self {
            space,
            share: WindowShare::settled_fixed(settings),
            scale: window_scale(settings, Some(clamp)),
        }
    }

    /// The buffer for packets that carry `mss`, where the socket learns its share from them.
    #[must_use]
    pub fn with_packets(self, settings: &HostSettings, mss: ByteCount) -> Self {
        Self {
            share: self.share.of_packets(settings, mss),
            ..self
        }
    }

    /// The buffer without the window-scale option, as where the other end does not offer it.
    #[must_use]
    pub fn without_scaling(self) -> Self {
        Self {
            scale: None,
            ..self
        }
    }

    /// Bytes of the buffer.
    pub fn buffer_bytes(self) -> ByteCount {
        self.space
    }

    /// Share of it that is window.
    pub fn window_share(self) -> WindowShare {
        self.share
    }

    /// The shift in the receiver's window-scale option; `None` without the option.
    pub fn window_shift(self) -> Option<u8> {
        self.scale
    }

    /// The largest window: the share of the buffer, or what the scale can say if that is less.
    pub fn max_window(self) -> ByteCount {
        self.share
            .window_from_space(self.space)
            .min(largest_window(self.scale))
    }

    /// The window as it works: what a sender that always has data may keep in flight, in segments
    /// of `mss`.
    ///
    /// One segment is still in the buffer when its acknowledgement is sent. The rest of the window
    /// is rounded up to a multiple of 2^scale; without a scale it is rounded down to whole segments
    /// (`__tcp_select_window`). [`super::filled_window`] says whether its last part is used. Exact
    /// for fixed buffers from 16 620 to 1 676 608 bytes on Linux 6.18; for tuned ones within the
    /// trains that the interface joins. A window of less than two segments is sent in halves
    /// (`tcp_bound_to_half_wnd`).
    pub fn in_flight(self, mss: ByteCount) -> ByteCount {
        if mss == ByteCount::ZERO {
            return ByteCount::ZERO;
        }
        let segment = segment_in_window(mss, self.max_window()).max(ByteCount::new(1));
        let free = self
            .share
            .window_from_space(self.space)
            .saturating_sub(segment);
        match self.scale {
            None | Some(0) => whole_segments(free.min(largest_window(self.scale)), segment),
            Some(scale) => rounded_up(free, scale).min(self.max_window()),
        }
    }
}

/// Returns the payload of a segment of at most `mss` to a receiver whose largest window so far is
/// `window`: half of that, or all of a very small one (`tcp_bound_to_half_wnd`).
pub fn segment_in_window(mss: ByteCount, window: ByteCount) -> ByteCount {
    /// `TCP_MSS_DEFAULT`.
    const DEFAULT: ByteCount = ByteCount::new(536);
    /// A packet of 68 bytes, less a header of TCP with timestamps.
    const MIN: ByteCount = ByteCount::new(36);
    let cutoff = if window > DEFAULT {
        ByteCount::new(window.get() / 2)
    } else {
        window
    };
    if cutoff == ByteCount::ZERO {
        mss
    } else {
        mss.min(cutoff.max(MIN))
    }
}

/// The largest window that a header of 16 bits can say under this scale (RFC 7323 §2.2): 65 535 ·
/// 2^scale.
///
/// `None` is a connection without the option. Scales above 14 count as 14.
pub fn largest_window(scale: Option<u8>) -> ByteCount {
    ByteCount::new(65_535 << scale.unwrap_or(0).min(MAX_SCALE))
}

/// The window in the first packet of a socket that asked for nothing (`tcp_select_initial_window`):
/// whole segments of what its share of `tcp_rmem[1]` holds, at most what 16 bits can say; before
/// Linux 4.20 at most 20 segments of 1460 bytes, which is assumed of kernels before 3.11 too,
/// although they offer less.
///
/// `mss` is the segment without timestamps in a SYN, which cannot know whether they will be agreed
/// on, and with them in the answer. Measured on Linux 6.18 at MTU 1500 and 9000: 64 240 and 62 720
/// bytes in the SYN, 65 160 and 62 636 in the answer.
pub fn first_window(settings: &HostSettings, mss: ByteCount) -> ByteCount {
    let space = WindowShare::at_first(settings).window_from_space(settings.tcp_rmem.default);
    let window = offered_at_first(space, mss);
    if settings.kernel < FIRST_WINDOW_OF_64_KIB {
        window.min(twenty_segments(mss))
    } else {
        window
    }
}

/// Returns the window of a first packet with `space` for it: whole segments, if there is more than
/// one, and at most what 16 bits can say (`tcp_select_initial_window`).
pub fn offered_at_first(space: ByteCount, mss: ByteCount) -> ByteCount {
    window_of_space(space, mss).min(largest_window(None))
}

/// Returns the window with `space` for it, of which a first packet offered `offered`, once the
/// handshake is over: all of it since Linux 6.10, where the scale can say so.
pub fn window_behind_handshake(
    settings: &HostSettings,
    [space, offered]: [ByteCount; 2],
    mss: ByteCount,
    scale: Option<u8>,
) -> ByteCount {
    if settings.kernel < WINDOW_BEHIND_HANDSHAKE {
        return offered;
    }
    offered.max(window_of_space(space, mss).min(largest_window(scale)))
}

/// Whole segments, if there is more than one.
fn window_of_space(space: ByteCount, mss: ByteCount) -> ByteCount {
    if space > mss {
        whole_segments(space, mss)
    } else {
        space
    }
}

/// The `SO_RCVBUF` request that makes the kernel advertise `window`, and so carry ⌊window ÷ mss⌋
/// segments.
///
/// The scale follows from the share at first and the window from the share once learnt. So since
/// Linux 6.10.4 windows from 65 536 · 2ⁿ to 1.25 times that (to 1.37 times at MTU 9000) cannot be
/// had; the answer is then the least request that carries more. Where it exceeds
/// [`super::rmem_max`] the kernel cuts it.
pub fn request_for_window(settings: &HostSettings, window: ByteCount, mss: ByteCount) -> ByteCount {
    let carrying = WindowShare::settled_fixed(settings)
        .of_packets(settings, mss)
        .space_from_window(window + mss);
    let scaling = match least_scale(whole_segments(window, mss)) {
        0 => ByteCount::ZERO,
        scale => {
            WindowShare::at_first(settings).space_from_window(ByteCount::new(1 << (15 + scale)))
        }
    };
    ByteCount::new(carrying.max(scaling).get().div_ceil(2))
}

/// The shift that a socket offers (`tcp_select_initial_window`): enough for the largest buffer it
/// may come to have, or, where it is fixed, for its window at first.
fn window_scale(settings: &HostSettings, fixed: Option<ByteCount>) -> Option<u8> {
    if !settings.window_scaling {
        return None;
    }
    let largest = settings
        .tcp_rmem
        .max
        .max(rmem_max(settings))
        .min(largest_window(Some(MAX_SCALE)));
    let space = fixed.map_or(largest, |window| window.min(largest)).get();
    let scale = space.checked_ilog2().unwrap_or(0).saturating_sub(15);
    Some(u8::try_from(scale).unwrap_or(MAX_SCALE).min(MAX_SCALE))
}

/// The least scale that can say `window`, or the largest there is.
fn least_scale(window: ByteCount) -> u8 {
    (0..MAX_SCALE)
        .find(|&scale| largest_window(Some(scale)) >= window)
        .unwrap_or(MAX_SCALE)
}

/// `tcp_default_init_rwnd`: fewer of larger segments, but two.
fn twenty_segments(mss: ByteCount) -> ByteCount {
    const WHOLE: u64 = 20 * 1460;
    let segments = WHOLE.checked_div(mss.get()).unwrap_or(0).clamp(2, 20);
    SegCount::new(segments).of_size(mss)
}

/// The least multiple of 2^`scale` that is no less than `window`.
fn rounded_up(window: ByteCount, scale: u8) -> ByteCount {
    ByteCount::new(window.get().next_multiple_of(1 << scale.min(MAX_SCALE)))
}

fn whole_segments(window: ByteCount, mss: ByteCount) -> ByteCount {
    let rest = window.get().checked_rem(mss.get()).unwrap_or(0);
    window.saturating_sub(ByteCount::new(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, kernel};
    use proptest::prelude::*;

    const MSS: ByteCount = ByteCount::new(1448);

    fn with_rmem(max: ByteCount) -> HostSettings {
        let mut settings = fixture::default_settings("6.18.44");
        settings.tcp_rmem = settings.tcp_rmem.with_max(max);
        settings
    }

    #[test]
    fn scales_as_linux_picks_them() {
        for (mib, scale) in [
            (6, 7),
            (16, 9),
            (32, 10),
            (256, 13),
            (1024, 14),
            (1 << 20, 14),
        ] {
            let settings = with_rmem(ByteCount::from_mib(mib));
            assert_eq!(
                ReceiveBuffer::autotuned_buffer(&settings).window_shift(),
                Some(scale),
                "tcp_rmem {mib} MiB"
            );
        }
        let settings = fixture::default_settings("6.18.44");
        for (kib, scale) in [
            (16, 0),
            (64, 1),
            (256, 3),
            (1024, 5),
            (2048, 6),
            (4096, 7),
            (16_384, 7),
        ] {
            let buffer = ReceiveBuffer::fixed_buffer(&settings, ByteCount::from_kib(kib));
            assert_eq!(buffer.window_shift(), Some(scale), "SO_RCVBUF {kib} KiB");
        }
    }

    #[test]
    fn a_buffer_never_has_less_than_a_socket_begins_with() {
        // Linux 6.18 with "4096 131072 70313": 131 072 bytes before and after a transfer.
        let mut settings = with_rmem(ByteCount::new(70_313));
        assert_eq!(
            ReceiveBuffer::autotuned_buffer(&settings)
                .buffer_bytes()
                .get(),
            70_313
        );
        settings.tcp_rmem.default = ByteCount::new(131_072);
        assert_eq!(
            ReceiveBuffer::autotuned_buffer(&settings)
                .buffer_bytes()
                .get(),
            131_072
        );
    }

    #[test]
    fn a_scale_says_up_to_a_gigabyte() {
        assert_eq!(largest_window(Some(14)).get(), 1_073_725_440);
        assert_eq!(largest_window(Some(200)).get(), 1_073_725_440);
        assert_eq!(largest_window(Some(0)).get(), 65_535);
        assert_eq!(largest_window(None).get(), 65_535);
    }

    #[test]
    fn fixed_buffers_carry_all_but_one_segment() {
        let settings = fixture::default_settings("6.18.44");
        // Each seen in captures of Linux 6.18.44: in flight for more than nine tenths of the time.
        for (request, segments) in [
            (17_520, 14),
            (26_280, 21),
            (35_000, 29),
            (50_000, 42),
            (75_000, 63),
            (83_000, 70),
            (90_000, 76),
            (100_000, 85),
            (104_708, 89),
            (131_072, 112),
        ] {
            let buffer = ReceiveBuffer::fixed_buffer(&settings, ByteCount::new(request));
            assert_eq!(buffer.in_flight(MSS).get() / 1448, segments, "{request}");
        }
    }

    #[test]
    fn a_window_with_a_scale_is_rounded_up_and_filled() {
        // The windows that were advertised, all in flight, over token buckets at 5 to 204 Mbit/s.
        let host = with_rmem(ByteCount::from_mib(64));
        for (request, window) in [(65_536, 80_480), (174_674, 216_902)] {
            let buffer = ReceiveBuffer::fixed_buffer(&host, ByteCount::new(request));
            let free = buffer.in_flight(MSS).get();
            assert!(free.abs_diff(window) < 64, "{request}: {free}");
        }
        for (space, window) in [(11_287, 5_632), (28_846, 16_640)] {
            let buffer = ReceiveBuffer::autotuned_buffer(&with_rmem(ByteCount::new(space)));
            assert_eq!(
                (buffer.window_shift(), buffer.in_flight(MSS).get()),
                (Some(7), window)
            );
        }
    }

    #[test]
    fn three_quarters_of_a_fixed_buffer_less_a_segment() {
        let settings = HostSettings {
            adv_win_scale: 2,
            ..fixture::default_settings("3.2.0")
        };
        // The 75 000 bytes settled at 73 552 in the author's captures.
        for (request, window, filled) in [
            (50_000, 75_000, 73_552),
            (75_000, 112_500, 111_052),
            (83_000, 124_500, 123_052),
            (125_000, 187_500, 186_052),
        ] {
            let buffer = ReceiveBuffer::fixed_buffer(&settings, ByteCount::new(request));
            assert_eq!(
                (buffer.max_window().get(), buffer.in_flight(MSS).get()),
                (window, filled)
            );
        }
    }

    #[test]
    fn first_packets_offer_whole_segments_of_64_kib() {
        for (kernel, mss, window) in [
            ("6.18.0", 1460, 64_240),
            ("6.18.0", 1448, 65_160),
            ("6.18.0", 8960, 62_720),
            ("6.18.0", 8948, 62_636),
            ("5.15.0", 1460, 64_240),
            // A quarter of the buffer at first.
            ("6.6.0", 1460, 32_120),
            ("4.19.0", 1460, 29_200),
            ("4.19.0", 1448, 28_960),
            ("4.19.0", 8960, 26_880),
        ] {
            let got = first_window(
                &kernel::default_settings(kernel.parse().unwrap()),
                ByteCount::new(mss),
            );
            assert_eq!(got.get(), window, "{kernel}, {mss}");
        }
    }

    /// Linux 6.18 with a request of 201 159 bytes had a window of 199 824 before the first message
    /// arrived.
    #[test]
    fn since_6_10_a_window_is_whole_behind_its_handshake() {
        let space = ByteCount::new(201_159);
        for (kernel, scale, window) in [
            ("6.18.0", Some(2), 199_824),
            ("6.10.0", Some(1), 131_070),
            ("6.18.0", None, 65_535),
            ("6.9.0", Some(2), 65_535),
        ] {
            let settings = kernel::default_settings(kernel.parse().unwrap());
            let offered = offered_at_first(space, MSS);
            let got = window_behind_handshake(&settings, [space, offered], MSS, scale);
            assert_eq!(got.get(), window, "{kernel}, {scale:?}");
        }
    }

    #[test]
    fn a_fixed_buffer_may_outgrow_its_scale() {
        // At first half of 120 000 B, which needs no scale; once learnt 75 000 B, which no header
        // can then say.
        let buffer = ReceiveBuffer::fixed_buffer(
            &fixture::default_settings("6.18.44"),
            ByteCount::new(60_000),
        );
        assert_eq!(buffer.window_shift(), Some(0));
        assert_eq!(buffer.max_window().get(), 65_535);
        assert_eq!(buffer.in_flight(MSS).get(), 45 * 1448);
    }

    #[test]
    fn without_tuning_the_buffer_stays_at_its_default() {
        let settings = HostSettings {
            moderate_rcvbuf: false,
            ..fixture::default_settings("6.18.44")
        };
        assert_eq!(
            ReceiveBuffer::autotuned_buffer(&settings).buffer_bytes(),
            ByteCount::from_kib(128)
        );
        assert_eq!(
            ReceiveBuffer::autotuned_buffer(&settings)
                .max_window()
                .get(),
            81_920
        );
    }

    #[test]
    fn without_scaling_windows_end_at_16_bits() {
        let settings = HostSettings {
            window_scaling: false,
            ..fixture::default_settings("6.18.44")
        };
        let own = ReceiveBuffer::autotuned_buffer(&settings);
        let others = ReceiveBuffer::autotuned_buffer(&fixture::default_settings("6.18.44"))
            .without_scaling();
        assert_eq!(own, others);
        assert_eq!(own.in_flight(MSS).get(), 45 * 1448);
    }

    #[test]
    fn a_window_below_two_segments_goes_in_halves() {
        let buffer = ReceiveBuffer::fixed_buffer(
            &fixture::default_settings("6.18.44"),
            ByteCount::new(8_760),
        );
        assert_eq!(buffer.max_window().get(), 10_950);
        assert_eq!(buffer.in_flight(ByteCount::new(8_948)).get(), 5_475);
    }

    #[test]
    fn windows_of_the_papers_can_be_asked_for() {
        let settings = fixture::default_settings("6.18.44");
        // Whole segments without a scale, else the most that a header can state under it.
        for (window, carried) in [
            (17_520, 17_376),
            (65_536, 65_160),
            (131_072, 131_070),
            (262_144, 262_140),
            (524_288, 524_280),
            (1_048_576, 1_048_560),
            (2_097_152, 2_097_120),
            (4_194_304, 4_194_240),
        ] {
            let request = request_for_window(&settings, ByteCount::new(window), MSS);
            let got = ReceiveBuffer::fixed_buffer(&settings, request).in_flight(MSS);
            assert_eq!(got.get(), carried, "{window}");
        }
    }

    #[test]
    fn a_window_between_two_scales_gives_the_next_larger() {
        let settings = fixture::default_settings("6.18.44");
        let request = request_for_window(&settings, ByteCount::new(70_000), MSS);
        assert_eq!(request, ByteCount::from_kib(64));
    }

    fn kernels() -> impl Strategy<Value = HostSettings> {
        let kernel = prop::sample::select(vec![
            "3.2.0", "5.15.0", "6.6.0", "6.10.0", "6.10.4", "6.18.44",
        ]);
        (
            kernel,
            -3_i32..6,
            0_u64..1 << 40,
            0_u64..1 << 40,
            any::<bool>(),
        )
            .prop_map(|(kernel, adv_win_scale, rmem, rmem_max, moderate_rcvbuf)| {
                let mut settings = fixture::default_settings(kernel);
                settings.tcp_rmem = settings.tcp_rmem.with_max(ByteCount::new(rmem));
                settings.rmem_max = Some(ByteCount::new(rmem_max));
                HostSettings {
                    adv_win_scale,
                    moderate_rcvbuf,
                    ..settings
                }
            })
    }

    proptest! {
        #[test]
        fn a_larger_request_never_carries_less(
            settings in kernels(), request: u32, more: u32, mss in 0_u64..70_000,
        ) {
            let carried = |request| {
                ReceiveBuffer::fixed_buffer(&settings, ByteCount::new(request)).in_flight(ByteCount::new(mss))
            };
            let request = u64::from(request);
            prop_assert!(carried(request + u64::from(more)) >= carried(request));
        }

        #[test]
        fn a_larger_tcp_rmem_never_carries_less(before in kernels(), more in 0_u64..1 << 40, mss in 0_u64..70_000) {
            let mut after = before.clone();
            after.tcp_rmem.max += ByteCount::new(more);
            let carried = |settings| ReceiveBuffer::autotuned_buffer(settings).in_flight(ByteCount::new(mss));
            prop_assert!(carried(&after) >= carried(&before));
        }

        #[test]
        fn nothing_in_flight_exceeds_the_window(settings in kernels(), request: u64, mss: u64) {
            for buffer in [
                ReceiveBuffer::autotuned_buffer(&settings),
                ReceiveBuffer::fixed_buffer(&settings, ByteCount::new(request)),
            ] {
                prop_assert!(buffer.in_flight(ByteCount::new(mss)) <= buffer.max_window());
            }
        }

        #[test]
        fn what_is_asked_for_a_window_carries_it(
            kernel in prop::sample::select(vec!["5.15.0", "6.6.0", "6.10.0", "6.18.44"]),
            window in 20_000_u64..400_000_000,
            mss in 500_u64..9_000,
        ) {
            let mut settings = fixture::default_settings(kernel);
            settings.rmem_max = Some(ByteCount::from_mib(1024));
            let (window, mss) = (ByteCount::new(window), ByteCount::new(mss));
            let request = request_for_window(&settings, window, mss);
            let buffer = ReceiveBuffer::fixed_buffer(&settings, request).with_packets(&settings, mss);
            prop_assume!(buffer.buffer_bytes().get() < (1 << 31) - 2);
            prop_assert!(buffer.in_flight(mss) >= whole_segments(window, mss));
            // The request may have to be as long as the scale takes, of which one half is the
            // window at first.
            let most = 1.28 * (buffer.window_share().as_ratio().get() / 0.625).max(1.0);
            prop_assert!(buffer.in_flight(mss).as_f64() <= most * (window + mss).as_f64());
        }

        #[test]
        fn a_first_window_fits_its_header(settings in kernels(), mss: u64) {
            prop_assert!(first_window(&settings, ByteCount::new(mss)) <= largest_window(None));
        }

        #[test]
        fn any_window_has_a_request(settings in kernels(), window: u64, mss: u64) {
            let _ = request_for_window(&settings, ByteCount::new(window), ByteCount::new(mss));
        }
    }
}
