use fullpipe_record::{HostSettings, Segmentation, Writer};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use super::stored_sndbuf;
use crate::loss::CongestionControl;
use crate::{LikelyFactor, window};

/// The send buffer of a socket when it has grown: bytes written and not yet acknowledged.
///
/// Without a request (`tcp_sndbuf_expand`) it follows the congestion window up to `tcp_wmem[2]`; a
/// `SO_SNDBUF` request fixes it. [`mean_fill`] gives the share that is payload.
pub fn send_buffer(settings: &HostSettings, request: Option<ByteCount>) -> ByteCount {
    request.map_or(settings.tcp_wmem.max, |request| {
        stored_sndbuf(settings, request)
    })
}

/// The send buffer of a socket that asked for nothing, while its congestion window is `cwnd`
/// segments of `mss` (`tcp_sndbuf_expand`): two windows, three under BBR, of at least ten segments,
/// up to `tcp_wmem[2]`.
///
/// The buffer never shrinks, so `cwnd` is the largest so far. Where a path reorders by more
/// segments than `cwnd`, the window is larger.
pub fn send_buffer_at(
    settings: &HostSettings,
    control: CongestionControl,
    cwnd: SegCount,
    mss: ByteCount,
) -> ByteCount {
    const INITIAL_WINDOW: SegCount = SegCount::new(10);
    let segments = cwnd
        .max(INITIAL_WINDOW)
        .get()
        .saturating_mul(control.send_windows());
    let grown = SegCount::new(segments).of_size(memory_per_segment(mss));
    grown
        .max(settings.tcp_wmem.default)
        .min(settings.tcp_wmem.max)
}

/// The congestion window from which on the send buffer is `tcp_wmem[2]` and grows no more.
///
/// Payload takes less memory than the buffer is reckoned by, so it binds only at larger windows: 4
/// MiB stop growing at 911 segments of 1448 bytes under CUBIC, and hold 2896.
pub fn send_buffer_full_at(
    settings: &HostSettings,
    control: CongestionControl,
    mss: ByteCount,
) -> SegCount {
    let per_window_segment = memory_per_segment(mss)
        .get()
        .saturating_mul(control.send_windows());
    SegCount::new(settings.tcp_wmem.max.get().div_ceil(per_window_segment))
}

/// Memory that a send buffer reckons for each segment of `mss`: a buffer of a power of two that
/// holds the payload and 576 bytes of headers and `skb_shared_info`, and 256 of `sk_buff`: 2304 for
/// 1448 bytes.
///
/// Measured so on Linux 6.18: 30 segments at first, under BBR, are 69 120 bytes at MTU 1500 and 499
/// 200 at 9000. Kernels of distributions that keep more room for headers (`MAX_TCP_HEADER` of 320
/// bytes, not 256) cross the next power of two at MTU 1500: 4352, seen as `tb87040` where this
/// gives 46 080. There the buffer is full at half the window.
pub fn memory_per_segment(mss: ByteCount) -> ByteCount {
    const MAX_TCP_HEADER: ByteCount = ByteCount::new(256);
    const SHARED_INFO: ByteCount = ByteCount::new(320);
    const SK_BUFF: ByteCount = ByteCount::new(256);
    let data = (mss + MAX_TCP_HEADER + SHARED_INFO).get();
    ByteCount::new(data.checked_next_power_of_two().unwrap_or(u64::MAX)) + SK_BUFF
}

/// The payload in a send buffer ÷ the buffer, on average over `rtt`, as a writer keeps it.
///
/// Each packet costs 832 bytes in addition to its payload (measured: 1448 of every 2280 bytes where
/// segments are held one by one). A writer that checks its buffer every 64th of the round trip, or
/// every millisecond, leaves what is acknowledged in between, and its thread wakes late: together
/// as if the round trip were a twelfth longer, at most 1.5 ms. Where any room is left it puts in a
/// whole chunk, so that on average half a chunk is more than the buffer, whose limit the kernel
/// looks at only where another packet begins. Measured on Linux 6.18 with CUBIC, Reno and BBR from
/// 2 to 680 Mbit/s, over 10 to 200 ms and buffers from 50 KB to 8.7 MB: 0.79 to 0.99, this within
/// four percent, and five where chunks are cut, which are given either way. Where they are cut, a
/// flow of CUBIC or Reno whose window has grown in spite of the buffer sometimes sends them whole:
/// up to 1.08 then, which the upper end allows for. A buffer of few chunks holds a whole number of
/// them: another is put in as long as those that were cut and sent leave room (measured over 40
/// Mbit/s × 34 ms: 15, 29, 31, 43, 46 and 61 KB in 17, 26, 34, 43, 51 and 68 KB, this within five
/// percent).
///
/// A sleeping writer is woken only when a third of the buffer is free (`sk_stream_write_space`),
/// and how much is depends on how what was acknowledged comes in: 0.70 to 0.87 at 1 Gbit/s, 50 to
/// 200 ms and 1 to 8 MiB; 0.66 to 0.74 of what segments held one by one leave of small buffers. The
/// middle is an estimate. With buffers so small that the train is not of 64 KiB, a write of more
/// than one train overruns the buffer up to the congestion window: the kernel looks at the limit
/// only where it begins another packet, and cuts the last one before it is full. Then a sleeping
/// writer does better than this.
pub fn mean_fill(
    writer: Writer,
    segmentation: Segmentation,
    mss: ByteCount,
    buffer: ByteCount,
    rtt: Span,
) -> LikelyFactor {
    let rate = window::rate_of_window(buffer, rtt);
    let (packet, whole, put_in) = match segmentation {
        Segmentation::Trains => (
            train_size(cut_chunk(mss, rate), mss, rate),
            train_size(write_chunk(mss), mss, rate),
            write_chunk(mss),
        ),
        Segmentation::Exact => (mss, mss, mss),
    };
    let memory = memory_share(packet);
    match writer {
        Writer::Retrying => {
            let late =
                Ratio::from_quotient(CHECK_DELAY.min(rtt / 12).as_secs_f64(), rtt.as_secs_f64())
                    .get();
            let overrun = 1.0
                + 0.5 * Ratio::from_quotient(put_in.as_f64(), buffer.max(put_in).as_f64()).get();
            let smooth = overrun / (1.0 + memory + late);
            let share = Ratio::from_quotient(put_in.as_f64(), buffer.as_f64()).get();
            let chunks = (1.0 / share.max(f64::MIN_POSITIVE) / (1.0 + memory)).ceil();
            let of = if chunks <= FEW_CHUNKS {
                chunks * share / (1.0 + late)
            } else {
                smooth
            };
            let off = if packet < whole { 0.05 } else { 0.04 };
            let most = ((1.0 + off) * of.max(smooth)).max(overrun / (1.0 + memory_share(whole)));
            LikelyFactor::new((1.0 - off) * of.min(smooth), of, most)
        }
        Writer::Blocking => {
            let payload = 1.0 / (1.0 + memory);
            LikelyFactor::new(0.62 * payload, 0.76 * payload, 0.89 * payload)
        }
    }
}

/// Returns the length of a train: what is sent in a millisecond (`tcp_tso_autosize`), at least the
/// chunk that a writer puts in at once, and at most 64 KiB.
fn train_size(chunk: ByteCount, mss: ByteCount, rate: BitRate) -> ByteCount {
    rate.bytes_in(TRAIN_LASTS)
        .max(chunk)
        .min(LONG_TRAIN)
        .max(mss)
}

/// Returns the memory that a packet costs beside its payload, as a share of that.
fn memory_share(packet: ByteCount) -> f64 {
    PACKET_COSTS.as_f64() / packet.as_f64().max(1.0)
}

/// Returns the bytes that a program keeps in flight that asks whether its socket takes more, writes
/// at most `each`, and asks again; `None` where that is more than `buffer` takes at a time, so that
/// it is refused before it asks.
///
/// `poll` and `select` say so while a third of the buffer is free (`tcp_poll`,
/// `__sk_stream_is_writeable`): two thirds and `each` are the most. An acknowledgement frees a
/// train at once, of 64 KiB at most, so that half of one is missing from that on average. A writer
/// that is refused overruns the buffer by part of a packet, and is woken later than its last burst
/// is acknowledged, as [`mean_fill`] has it; one that asks in time never is, and has all of this.
/// Measured of rsync on Linux 6.18 with 4 MiB over 98 ms at MTU 9000: 2.73 to 2.76 MB, and 2.76 MB
/// here.
pub fn asked_in_flight(buffer: ByteCount, each: ByteCount) -> Option<ByteCount> {
    let woken_at = buffer.scale_by(2.0 / 3.0);
    let payload =
        1.0 / (1.0 + Ratio::from_quotient(PACKET_COSTS.as_f64(), LONG_TRAIN.as_f64()).get());
    let full = woken_at + each;
    (full <= buffer).then(|| {
        full.saturating_sub(LONG_TRAIN.scale_by(0.5))
            .scale_by(payload)
    })
}

/// Returns the rate of a program that asks whether its socket takes more and writes at most `each`,
/// as [`asked_in_flight`] has it, over a path of this round-trip time and this rate of its link.
///
/// The bytes that it writes at a time leave as a burst. The last of it is acknowledged later than
/// the first by its time on the link, and only then is there room for as much again.
pub fn asked_rate(
    buffer: ByteCount,
    each: ByteCount,
    rtt: Span,
    link: Option<BitRate>,
) -> Option<BitRate> {
    let burst = link
        .filter(|link| *link > BitRate::ZERO)
        .map_or(Span::ZERO, |link| link.time_for(each));
    Some(window::rate_of_window(
        asked_in_flight(buffer, each)?,
        rtt + burst,
    ))
}

/// Returns the bytes that a sender with enough data keeps in flight where the receiver allows
/// `window`, as often as each `rtt`: all of it, or only the whole segments in it.
///
/// A packet may be sent in part only if its first segment fits into the window whole
/// (`tcp_snd_wnd_test`, `tcp_mss_split_point`). So what is left of the window beyond whole packets
/// is filled if it is a segment or more.
pub fn filled_window(
    segmentation: Segmentation,
    control: CongestionControl,
    window: ByteCount,
    mss: ByteCount,
    rtt: Span,
) -> ByteCount {
    let whole = segments_in(window, mss);
    let packet = match segmentation {
        Segmentation::Trains => {
            segments_of_packet(control, window::rate_of_window(window, rtt), mss)
        }
        Segmentation::Exact => 1,
    };
    if whole > 0 && whole.is_multiple_of(packet) {
        SegCount::new(whole).of_size(mss)
    } else {
        window
    }
}

/// The segments of each packet of a flow of `rate` that nothing but a window or a buffer limits:
/// what its pace gives in a millisecond (`tcp_tso_autosize`), two at least, or one of a slow flow
/// under BBR (`bbr_min_tso_segs`).
fn segments_of_packet(control: CongestionControl, rate: BitRate, mss: ByteCount) -> u64 {
    let (pace, least) = match control {
        CongestionControl::Bbr if rate < BBR_SENDS_PAIRS_FROM => (rate, 1),
        CongestionControl::Bbr => (rate, 2),
        _ => (rate.scale_by(PACE_OF_RATE), 2),
    };
    segments_in(pace.bytes_in(TRAIN_LASTS), mss).max(least)
}

/// The sixteen kilobytes that a writer puts in at once, in whole segments.
fn write_chunk(mss: ByteCount) -> ByteCount {
    SegCount::new(segments_in(CHUNK, mss).max(1)).of_size(mss)
}

/// The part of a chunk that a packet in the buffer stands for, on average, in a flow of `rate`.
///
/// A slow flow cuts chunks when it sends them, into trains of what its pace gives in a millisecond,
/// two segments at least. Each costs as much memory as a whole one, which the buffer does not know
/// before; so the more is cut, the less the next round holds. Measured: as if a tenth were never
/// cut. Its pace is about 2.4 times what the whole buffer would give.
fn cut_chunk(mss: ByteCount, rate: BitRate) -> ByteCount {
    let train = segments_in(rate.scale_by(PACE_OF_RATE).bytes_in(TRAIN_LASTS), mss).max(2);
    let cuts = segments_in(CHUNK, mss).max(1).div_ceil(train);
    write_chunk(mss).scale_by(1.0 / (NEVER_CUT + (1.0 - NEVER_CUT) * cuts as f64))
}

fn segments_in(bytes: ByteCount, mss: ByteCount) -> u64 {
    bytes.get().checked_div(mss.get()).unwrap_or(0)
}

/// `sk_pacing_shift` of 10.
const TRAIN_LASTS: Span = Span::from_micros(1024);
const PACE_OF_RATE: f64 = 2.4;
/// `bbr_min_tso_rate`.
const BBR_SENDS_PAIRS_FROM: BitRate = BitRate::from_bps(1_200_000);
const NEVER_CUT: f64 = 0.1;
/// Chunks up to which a buffer holds a whole number of them, as the kernel does.
const FEW_CHUNKS: f64 = 4.0;
const CHUNK: ByteCount = ByteCount::from_kib(16);
const LONG_TRAIN: ByteCount = ByteCount::from_kib(64);
/// Headers and what the kernel keeps of a packet (`skb_shared_info`, `sk_buff`).
const PACKET_COSTS: ByteCount = ByteCount::new(832);
const CHECK_DELAY: Span = Span::from_micros(1500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::kernel::ReceiveBuffer;
    use proptest::prelude::*;

    #[test]
    fn by_default_four_mebibytes_end_at_a_third_of_a_gigabit() {
        let buffer = send_buffer(&fixture::default_settings("6.18.44"), None);
        for (rtt_ms, rate) in [(100, "335.5 Mbit/s"), (200, "167.8 Mbit/s")] {
            assert_eq!(
                window::rate_of_window(buffer, Span::from_millis(rtt_ms)).to_string(),
                rate
            );
        }
    }

    const MSS: ByteCount = ByteCount::new(1448);

    #[test]
    fn a_send_buffer_grows_with_the_congestion_window() {
        let settings = fixture::default_settings("6.18.44");
        let at =
            |control, cwnd, mss| send_buffer_at(&settings, control, SegCount::new(cwnd), mss).get();
        assert_eq!(at(CongestionControl::Cubic, 0, MSS), 46_080);
        assert_eq!(at(CongestionControl::Cubic, 10, MSS), 46_080);
        assert_eq!(at(CongestionControl::Reno, 100, MSS), 460_800);
        assert_eq!(at(CongestionControl::Cubic, 100_000, MSS), 4_194_304);
        // Measured after the handshake.
        assert_eq!(at(CongestionControl::Bbr, 10, MSS), 69_120);
        assert_eq!(
            at(CongestionControl::Bbr, 10, ByteCount::new(8948)),
            499_200
        );
    }

    #[test]
    fn a_short_window_is_filled_if_more_than_whole_packets_fit() {
        // Measured on Linux 6.18 with Reno over 131 Mbit/s × 25 ms: tcp_rmem, and segments per
        // round trip.
        for (space, measured) in [
            (16_500, 5.93),
            (18_000, 5.93),
            (19_500, 7.34),
            (22_500, 7.91),
            (24_000, 9.26),
            (27_000, 9.88),
            (28_500, 11.24),
            (31_500, 11.86),
            (33_000, 13.10),
            (36_000, 13.83),
            (45_000, 17.80),
            (46_500, 18.89),
        ] {
            let mut settings = fixture::default_settings("6.18.44");
            settings.tcp_rmem = settings.tcp_rmem.with_max(ByteCount::new(space));
            let window = ReceiveBuffer::autotuned_buffer(&settings).in_flight(MSS);
            let filled = filled_window(
                Segmentation::Trains,
                CongestionControl::Reno,
                window,
                MSS,
                Span::from_millis(25),
            );
            let off = filled.as_f64() / MSS.as_f64() / measured - 1.0;
            assert!((0.0..0.02).contains(&off), "{space}: {off}");
        }
    }

    #[test]
    fn slow_flows_of_bbr_send_whole_segments() {
        let filled = |control, window, millis| {
            let window = ByteCount::new(window);
            filled_window(
                Segmentation::Trains,
                control,
                window,
                MSS,
                Span::from_millis(millis),
            )
            .get()
        };
        // 13.88 segments at 688 kbit/s, and 10.43 at 15 Mbit/s, in packets of one segment and of
        // two.
        assert_eq!(filled(CongestionControl::Bbr, 20_096, 234), 13 * 1448);
        assert_eq!(filled(CongestionControl::Reno, 20_096, 234), 20_096);
        assert_eq!(filled(CongestionControl::Bbr, 15_104, 8), 10 * 1448);
    }

    proptest! {
        #[test]
        fn a_window_is_filled_but_for_less_than_a_segment(window: u64, mss in 1_u64..70_000, millis in 1_u64..1_000) {
            let (window, mss) = (ByteCount::new(window), ByteCount::new(mss));
            for segmentation in [Segmentation::Trains, Segmentation::Exact] {
                let rtt = Span::from_millis(millis);
                let filled = filled_window(segmentation, CongestionControl::Cubic, window, mss, rtt);
                prop_assert!(filled <= window && window.saturating_sub(filled) < mss);
            }
        }
    }

    #[test]
    fn a_send_buffer_stops_growing_long_before_it_binds() {
        let settings = fixture::default_settings("6.18.44");
        assert_eq!(
            send_buffer_full_at(&settings, CongestionControl::Cubic, MSS),
            SegCount::new(911)
        );
        assert_eq!(
            send_buffer_full_at(&settings, CongestionControl::Bbr, MSS),
            SegCount::new(607)
        );
        assert_eq!(send_buffer(&settings, None).get() / MSS.get(), 2896);
    }

    #[test]
    fn a_program_that_asks_fills_two_thirds_and_what_it_writes_at_a_time() {
        let buffer = send_buffer(&fixture::default_settings("6.18.44"), None);
        let in_flight = |kib| asked_in_flight(buffer, ByteCount::from_kib(kib)).map(ByteCount::get);
        assert!(
            in_flight(32).is_some_and(|bytes| (2_730_000..2_770_000).contains(&bytes)),
            "{:?}",
            in_flight(32)
        );
        assert!(
            in_flight(1280).is_some_and(|bytes| bytes > 4_000_000),
            "{:?}",
            in_flight(1280)
        );
        assert_eq!(in_flight(1400), None, "it is refused before it asks again");
    }

    #[test]
    fn iperf3_has_the_rates_that_were_measured() {
        let rate = |mib, rtt, mbps| {
            let (buffer, each) = (ByteCount::from_mib(mib), ByteCount::from_kib(1280));
            asked_rate(
                buffer,
                each,
                Span::from_millis(rtt),
                Some(BitRate::from_mbps(mbps)),
            )
            .unwrap()
            .as_mbps()
        };
        // Of Linux 6.18 and iperf3 3.12, at MTU 9000 and at MTU 1500.
        for (predicted, measured) in [(rate(4, 98, 1000), 290.6), (rate(4, 100, 1000), 283.0)] {
            assert!(
                (predicted / measured - 1.0_f64).abs() < 0.05,
                "{predicted:.1}, not {measured}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_program_that_asks_has_no_more_in_flight_than_its_buffer(buffer: u64, each: u64, more in 0_u64..1 << 30) {
            let each = ByteCount::new(each >> 1);
            let [small, large] = [buffer >> 1, (buffer >> 1) + more].map(ByteCount::new);
            let in_flight = asked_in_flight(small, each);
            prop_assert!(in_flight.is_none_or(|bytes| bytes <= small));
            prop_assert!(in_flight <= asked_in_flight(large, each));
        }
    }

    #[test]
    fn a_request_is_doubled_and_bounded() {
        let settings = fixture::default_settings("6.18.44");
        assert_eq!(
            send_buffer(&settings, Some(ByteCount::new(50_000))).get(),
            100_000
        );
        assert_eq!(
            send_buffer(&settings, Some(ByteCount::from_mib(64))),
            ByteCount::from_mib(8)
        );
    }

    fn of(
        segmentation: Segmentation,
        writer: Writer,
        buffer: ByteCount,
        millis: u64,
    ) -> LikelyFactor {
        mean_fill(writer, segmentation, MSS, buffer, Span::from_millis(millis))
    }

    #[test]
    fn the_sleeping_writer_that_was_measured_is_within_bounds() {
        // iperf3 reached 283 Mbit/s where the buffer allows 335.5.
        let fill = of(
            Segmentation::Trains,
            Writer::Blocking,
            ByteCount::from_mib(4),
            100,
        );
        assert!(fill.low.get() < 283.0 / 335.5 && 283.0 / 335.5 < fill.high.get());
    }

    #[test]
    fn a_writer_that_checks_fills_its_buffer_as_was_measured() {
        for (bytes, millis, measured) in [
            // Rate × round trip of the idle path ÷ buffer: two segments a train, then ten, then
            // whole chunks and more.
            (168_750, 150, 0.808),
            (234_000, 200, 0.793),
            (225_000, 40, 0.902),
            (156_250, 50, 0.897),
            (312_500, 100, 0.890),
            (134_000, 20, 0.934),
            (437_500, 50, 0.917),
            (875_000, 100, 0.935),
            (375_000, 20, 0.931),
            (281_250, 10, 0.931),
            (1_562_500, 50, 0.949),
            (3_125_000, 100, 0.959),
            (4_375_000, 50, 0.951),
            (8_750_000, 100, 0.965),
        ] {
            let fill = of(
                Segmentation::Trains,
                Writer::Retrying,
                ByteCount::new(bytes),
                millis,
            )
            .mid
            .get();
            assert!(
                (fill / measured - 1.0).abs() < 0.04,
                "{bytes} B over {millis} ms: {fill:.3}, not {measured}"
            );
        }
        // 210.8 Mbit/s of 335.5.
        let exact = of(
            Segmentation::Exact,
            Writer::Retrying,
            ByteCount::from_mib(4),
            100,
        )
        .mid
        .get();
        assert!((exact / 0.628 - 1.0).abs() < 0.01, "{exact:.3}");
    }

    #[test]
    fn a_chunk_overruns_a_small_buffer_as_was_measured() {
        for (bytes, millis, measured) in [
            (50_000, 20, 0.923),
            (75_000, 20, 0.982),
            (112_500, 20, 0.928),
            (150_000, 20, 0.923),
            (50_000, 50, 0.907),
            (75_000, 50, 0.818),
            (112_500, 50, 0.834),
            (150_000, 50, 0.926),
            (50_625, 150, 0.898),
            (75_000, 150, 0.828),
            (112_500, 150, 0.826),
            (150_000, 150, 0.825),
        ] {
            let fill = of(
                Segmentation::Trains,
                Writer::Retrying,
                ByteCount::new(bytes),
                millis,
            )
            .mid
            .get();
            assert!(
                (fill / measured - 1.0).abs() < 0.05,
                "{bytes} B over {millis} ms: {fill:.3}, not {measured}"
            );
        }
        // CUBIC and Reno, whose window had grown: chunks were not cut.
        for (bytes, millis, measured) in [
            (75_000, 50, 1.019),
            (112_500, 50, 0.952),
            (56_250, 40, 1.083),
        ] {
            let fill = of(
                Segmentation::Trains,
                Writer::Retrying,
                ByteCount::new(bytes),
                millis,
            );
            assert!(
                fill.low.get() < measured && measured < fill.high.get(),
                "{bytes} B over {millis} ms: {fill:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_larger_window_never_has_a_smaller_buffer(cwnd: u64, more: u64, mss: u64, bbr: bool) {
            let control = if bbr { CongestionControl::Bbr } else { CongestionControl::Cubic };
            let settings = fixture::default_settings("6.18.44");
            let at = |cwnd| send_buffer_at(&settings, control, SegCount::new(cwnd), ByteCount::new(mss));
            prop_assert!(at(cwnd.saturating_add(more)) >= at(cwnd));
            let full = send_buffer_full_at(&settings, control, ByteCount::new(mss)).get();
            prop_assert_eq!(at(full), settings.tcp_wmem.max);
            prop_assert!(full <= 11 || at(full - 1) < settings.tcp_wmem.max);
        }
    }
}
