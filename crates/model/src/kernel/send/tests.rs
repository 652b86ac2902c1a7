use super::*;
use crate::kernel::ReceiveBuffer;
use crate::test_fixture;
use proptest::prelude::*;

#[test]
fn by_default_four_mebibytes_end_at_a_third_of_a_gigabit() {
    let buffer = send_buffer(&test_fixture::default_settings("6.18.44"), None);
    for (rtt_ms, rate) in [(100, "335.5 Mbit/s"), (200, "167.8 Mbit/s")] {
        assert_eq!(
            window::rate_of_window(buffer, Span::from_millis(rtt_ms)).to_string(),
            rate
        );
    }
}

const MSS: ByteCount = ByteCount::new(1448);

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
        let mut settings = test_fixture::default_settings("6.18.44");
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
fn a_program_that_asks_fills_two_thirds_and_what_it_writes_at_a_time() {
    let buffer = send_buffer(&test_fixture::default_settings("6.18.44"), None);
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
    let settings = test_fixture::default_settings("6.18.44");
    assert_eq!(
        send_buffer(&settings, Some(ByteCount::new(50_000))).get(),
        100_000
    );
    assert_eq!(
        send_buffer(&settings, Some(ByteCount::from_mib(64))),
        ByteCount::from_mib(8)
    );
}

fn of(segmentation: Segmentation, writer: Writer, buffer: ByteCount, millis: u64) -> LikelyFactor {
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
