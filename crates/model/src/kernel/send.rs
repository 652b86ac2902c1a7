use fullpipe_record::{HostSettings, Segmentation, Writer};
use fullpipe_units::{ByteCount, Ratio, SegCount};

use super::stored_sndbuf;
use crate::Likely;
use crate::loss::CongestionControl;

/// The send buffer of a socket when it has grown: bytes written and not yet acknowledged.
///
/// Without a request (`tcp_sndbuf_expand`) it follows the congestion window up to `tcp_wmem[2]`; a `SO_SNDBUF` request
/// fixes it. How much of it is payload, [`payload_share`] tells.
pub fn send_buffer(settings: &HostSettings, request: Option<ByteCount>) -> ByteCount {
    request.map_or(settings.tcp_wmem.max, |request| stored_sndbuf(settings, request))
}

/// The send buffer of a socket that asked for nothing, while its congestion window is `cwnd` segments of `mss`
/// (`tcp_sndbuf_expand`): two windows, three under BBR, of at least ten segments, up to `tcp_wmem[2]`.
///
/// It never shrinks, so `cwnd` is the largest so far. Where a path reorders by more segments than `cwnd`, it is larger.
pub fn send_buffer_at(
    settings: &HostSettings,
    control: CongestionControl,
    cwnd: SegCount,
    mss: ByteCount,
) -> ByteCount {
    const INITIAL_WINDOW: SegCount = SegCount::new(10);
    let segments = cwnd.max(INITIAL_WINDOW).get().saturating_mul(control.send_windows());
    let grown = SegCount::new(segments).of_size(memory_per_segment(mss));
    grown.max(settings.tcp_wmem.default).min(settings.tcp_wmem.max)
}

/// The congestion window from which on the send buffer is `tcp_wmem[2]` and grows no more.
///
/// Payload takes less memory than the buffer is reckoned by, so it binds only at larger windows: 4 MiB stop growing at
/// 911 segments of 1448 bytes under CUBIC, and hold 2896.
pub fn send_buffer_full_at(settings: &HostSettings, control: CongestionControl, mss: ByteCount) -> SegCount {
    let per_window_segment = memory_per_segment(mss).get().saturating_mul(control.send_windows());
    SegCount::new(settings.tcp_wmem.max.get().div_ceil(per_window_segment))
}

/// Memory that a send buffer reckons for each segment of `mss`: a buffer of a power of two that holds the payload and
/// 576 bytes of headers and `skb_shared_info`, and 256 of `sk_buff`: 2304 for 1448 bytes.
///
/// Measured so on Linux 6.18: 30 segments at first, under BBR, are 69 120 bytes at MTU 1500 and 499 200 at 9000. Kernels
/// of distributions that keep more room for headers (`MAX_TCP_HEADER` of 320 bytes, not 256) cross the next power of two
/// at MTU 1500: 4352, seen as `tb87040` where this gives 46 080. There the buffer is full at half the window.
pub fn memory_per_segment(mss: ByteCount) -> ByteCount {
    const MAX_TCP_HEADER: ByteCount = ByteCount::new(256);
    const SHARED_INFO: ByteCount = ByteCount::new(320);
    const SK_BUFF: ByteCount = ByteCount::new(256);
    let data = (mss + MAX_TCP_HEADER + SHARED_INFO).get();
    ByteCount::new(data.checked_next_power_of_two().unwrap_or(u64::MAX)) + SK_BUFF
}

/// Payload in a send buffer: nearly all of it where TCP builds trains (0.99 to 1.00 measured on Linux 6.18), and 1448 of
/// every 2280 bytes where each segment is held on its own (measured at MTU 1500; assumed for others).
pub fn payload_share(segmentation: Segmentation) -> Ratio {
    match segmentation {
        Segmentation::Trains => Ratio::ONE,
        Segmentation::Exact => Ratio::of(1448.0, 2280.0),
    }
}

/// How full a writer keeps its send buffer, on average.
///
/// The kernel wakes a sleeping writer when a third of the buffer is free (`sk_stream_write_space`). Measured on Linux
/// 6.18 with CUBIC at 1 Gbit/s, 50 to 200 ms and buffers of 1 to 8 MiB: 0.70 to 0.87 asleep (the middle is an estimate),
/// 0.97 to 0.98 with a retry each millisecond, which is given the three percent of any rule either way.
pub fn writer_fill(writer: Writer) -> Likely {
    match writer {
        Writer::Retrying => Likely::new(0.945, 0.975, 1.0),
        Writer::Blocking => Likely::new(0.70, 0.78, 0.87),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, window};
    use fullpipe_units::Span;
    use proptest::prelude::*;

    #[test]
    fn by_default_four_mebibytes_end_at_a_third_of_a_gigabit() {
        let buffer = send_buffer(&fixture::settings("6.18.44"), None);
        for (rtt_ms, rate) in [(100, "335.5 Mbit/s"), (200, "167.8 Mbit/s")] {
            assert_eq!(window::rate(buffer, Span::from_millis(rtt_ms)).to_string(), rate);
        }
    }

    const MSS: ByteCount = ByteCount::new(1448);

    #[test]
    fn a_send_buffer_grows_with_the_congestion_window() {
        let settings = fixture::settings("6.18.44");
        let at = |control, cwnd, mss| send_buffer_at(&settings, control, SegCount::new(cwnd), mss).get();
        assert_eq!(at(CongestionControl::Cubic, 0, MSS), 46_080);
        assert_eq!(at(CongestionControl::Cubic, 10, MSS), 46_080);
        assert_eq!(at(CongestionControl::Reno, 100, MSS), 460_800);
        assert_eq!(at(CongestionControl::Cubic, 100_000, MSS), 4_194_304);
        // Measured after the handshake.
        assert_eq!(at(CongestionControl::Bbr, 10, MSS), 69_120);
        assert_eq!(at(CongestionControl::Bbr, 10, ByteCount::new(8948)), 499_200);
    }

    #[test]
    fn a_send_buffer_stops_growing_long_before_it_binds() {
        let settings = fixture::settings("6.18.44");
        assert_eq!(send_buffer_full_at(&settings, CongestionControl::Cubic, MSS), SegCount::new(911));
        assert_eq!(send_buffer_full_at(&settings, CongestionControl::Bbr, MSS), SegCount::new(607));
        assert_eq!(send_buffer(&settings, None).get() / MSS.get(), 2896);
    }

    #[test]
    fn a_request_is_doubled_and_bounded() {
        let settings = fixture::settings("6.18.44");
        assert_eq!(send_buffer(&settings, Some(ByteCount::new(50_000))).get(), 100_000);
        assert_eq!(send_buffer(&settings, Some(ByteCount::from_mib(64))), ByteCount::from_mib(8));
    }

    #[test]
    fn the_sleeping_writer_that_was_measured_is_within_bounds() {
        // iperf3 reached 283 Mbit/s where the buffer allows 335.5.
        let fill = writer_fill(Writer::Blocking);
        assert!(fill.low.get() < 283.0 / 335.5 && 283.0 / 335.5 < fill.high.get());
    }

    proptest! {
        #[test]
        fn a_larger_window_never_has_a_smaller_buffer(cwnd: u64, more: u64, mss: u64, bbr: bool) {
            let control = if bbr { CongestionControl::Bbr } else { CongestionControl::Cubic };
            let settings = fixture::settings("6.18.44");
            let at = |cwnd| send_buffer_at(&settings, control, SegCount::new(cwnd), ByteCount::new(mss));
            prop_assert!(at(cwnd.saturating_add(more)) >= at(cwnd));
            let full = send_buffer_full_at(&settings, control, ByteCount::new(mss)).get();
            prop_assert_eq!(at(full), settings.tcp_wmem.max);
            prop_assert!(full <= 11 || at(full - 1) < settings.tcp_wmem.max);
        }
    }
}
