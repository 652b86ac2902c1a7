use super::*;
use proptest::prelude::*;

const MSS: ByteCount = ByteCount::new(1448);
const RTT: Span = Span::from_millis(100);
const TEN: SegCount = SegCount::new(10);

fn flow(b: u16) -> PftkFlow {
    PftkFlow {
        mss: MSS,
        rtt: RTT,
        rto: Span::from_secs(1),
        acknowledged_together: b,
        max_window: None,
    }
}

fn of(segments: u64) -> ByteCount {
    SegCount::new(segments).of_size(MSS)
}

#[test]
fn four_sizes_under_four_losses() {
    let losses = [0.0, 1e-4, 1e-3, 1e-2];
    for (data, printed) in [
        (100, ["0.442", "0.444", "0.465", "1.054"]),
        (1000, ["0.970", "1.024", "2.342", "14.343"]),
        (10_000, ["1.533", "5.778", "35.590", "151.276"]),
    ] {
        let got = losses.map(|loss| {
            format!(
                "{:.3}",
                transfer_latency(&flow(2), TEN, of(data), Ratio::new(loss))
                    .data_duration()
                    .as_secs_f64()
            )
        });
        assert_eq!(got, printed, "{data} segments");
    }
    assert_eq!(
        transfer_latency(&flow(2), TEN, of(10), Ratio::ZERO).data_duration(),
        RTT
    );
}

#[test]
fn slow_start_that_doubles() {
    for (data, seconds) in [(100, "0.346"), (1000, "0.666"), (10_000, "0.997")] {
        let got = transfer_latency(&flow(1), TEN, of(data), Ratio::ZERO).data_duration();
        assert_eq!(format!("{:.3}", got.as_secs_f64()), seconds);
    }
}

/// Segment k + 1 is the first one lost with (1 − p)ᵏ · p.
#[test]
fn the_segments_of_slow_start_are_a_mean_over_the_first_loss() {
    for (data, p) in [(5_u32, 0.3), (100, 0.01), (1000, 1e-3)] {
        let none_of = |k: u32| libm::pow(1.0 - p, f64::from(k));
        let sum = (0..data)
            .map(|k| none_of(k) * p * f64::from(k))
            .sum::<f64>()
            + none_of(data) * f64::from(data);
        let got = slow_start_segments(f64::from(data), p);
        // The paper adds the lost segment, to transfers without a loss as well.
        assert!(
            (got - (sum + 1.0)).abs() < 1e-9 * sum,
            "{got}, not {sum} + 1"
        );
    }
}

/// One window a round trip, up to the largest.
#[test]
fn rounds_up_to_the_largest_window_and_beyond() {
    let bounded = PftkFlow {
        max_window: Some(of(80)),
        ..flow(1)
    };
    // 10, 20, 40, 80, 80, 80: 310 in six.
    for (data, rounds) in [
        (10, 1.0),
        (30, 2.0),
        (70, 3.0),
        (150, 4.0),
        (230, 5.0),
        (310, 6.0),
    ] {
        let got = slow_start_rounds(&bounded, 10.0, data.into());
        assert!((got - rounds).abs() < 1e-9, "{data}: {got}");
    }
}

#[test]
fn handshakes_and_delayed_acknowledgements_come_on_top() {
    let lossless = transfer_latency(&flow(2), SegCount::new(1), of(1), Ratio::ZERO);
    assert_eq!(
        (lossless.handshake, lossless.delayed_acknowledgement),
        (RTT, Span::from_millis(100))
    );
    assert_eq!(
        lossless.total_duration(),
        lossless.data_duration() + RTT * 2
    );
    assert_eq!(
        transfer_latency(&flow(2), TEN, of(1), Ratio::ZERO).delayed_acknowledgement,
        Span::ZERO
    );
    // With p = 0.1 either way a SYN needs 1/8 s more in the mean.
    assert_eq!(
        transfer_latency(&flow(2), TEN, of(1), Ratio::new(0.1)).handshake,
        RTT + Span::from_millis(250)
    );
    assert_eq!(
        transfer_latency(&flow(2), TEN, of(1), Ratio::new(0.5)).handshake,
        Span::MAX
    );
}

#[test]
fn nothing_takes_no_time_and_total_loss_for_ever() {
    assert_eq!(
        transfer_latency(&flow(2), TEN, ByteCount::ZERO, Ratio::new(0.1)).data_duration(),
        Span::ZERO
    );
    assert_eq!(
        transfer_latency(&flow(2), TEN, of(100), Ratio::ONE).data_duration(),
        Span::MAX
    );
    let gigabit = BitRate::from_mbps(1000);
    assert_eq!(
        transfer_time(ByteCount::ZERO, MSS, RTT, gigabit, None),
        Span::ZERO
    );
    assert_eq!(
        transfer_time(of(1), MSS, RTT, BitRate::ZERO, None),
        Span::MAX
    );
}

/// Ten segments at once, two for each acknowledgement, one behind the other through the link.
fn packet_by_packet(data: usize, steady: BitRate) -> Span {
    let on_line = steady.time_for(MSS);
    let mut acknowledged: Vec<Span> = Vec::with_capacity(data);
    let mut line_free = Span::ZERO;
    for segment in 0..data {
        let clocked = if segment < 10 {
            Span::ZERO
        } else {
            acknowledged[(segment - 10) / 2]
        };
        line_free = clocked.max(line_free) + on_line;
        acknowledged.push(line_free + RTT);
    }
    acknowledged.last().copied().unwrap_or_default()
}

#[test]
fn transfers_take_as_long_as_sent_packet_by_packet() {
    for mbps in [1, 10, 100, 1000] {
        for data in [1_u64, 10, 11, 30, 100, 700, 1000, 10_000, 100_000] {
            let steady = BitRate::from_mbps(mbps);
            let sent = packet_by_packet(data as usize, steady);
            let got = transfer_time(of(data), MSS, RTT, steady, None);
            let off = got.as_secs_f64() - sent.as_secs_f64();
            assert!(
                off.abs() <= RTT.as_secs_f64(),
                "{data} at {mbps} Mbit/s: {got}, not {sent}"
            );
        }
    }
}

#[test]
fn ten_seconds_of_a_gigabit_lose_a_second_to_the_ramp() {
    let gigabit = BitRate::from_mbps(1000);
    let bytes = gigabit.bytes_in(Span::from_secs(10));
    // Ten rounds carry 14.8 MB and take as long as 125 MB would; then comes the last
    // acknowledgement.
    assert_eq!(
        transfer_time(bytes, MSS, RTT, gigabit, None).to_string(),
        "10.98 s"
    );
}

proptest! {
    #[test]
    fn more_bytes_a_longer_way_more_loss_or_a_lower_rate_never_end_sooner(
        bytes in 1_u64..1 << 40, more in 0_u64..1 << 40, mss in 1_u64..65_536, nanos in 0_u64..2_000_000_000,
        longer in 0_u64..2_000_000_000, bps in 1_000_u64..1 << 40, faster in 0_u64..1 << 40,
        loss in 0_f64..1.2, lossier in 0_f64..1.0,
    ) {
        let time = |bytes, nanos, bps, loss| {
            let (bytes, mss, rtt) = (ByteCount::new(bytes), ByteCount::new(mss), Span::from_nanos(nanos));
            transfer_time(bytes, mss, rtt, BitRate::from_bps(bps), Some(Ratio::new(loss))).as_secs_f64()
        };
        let now = time(bytes, nanos, bps, loss);
        // Windows are whole bytes, and a round more or less turns on one.
        let least = now * (1.0 - 1e-9) - 8.0 / bps as f64;
        prop_assert!(time(bytes + more, nanos, bps, loss) >= least);
        prop_assert!(time(bytes, nanos + longer, bps, loss) >= least);
        prop_assert!(time(bytes, nanos, bps, loss + lossier) >= least);
        prop_assert!(now >= time(bytes, nanos, bps + faster, loss) * (1.0 - 1e-9) - 8.0 / bps as f64);
    }

    #[test]
    fn more_bytes_a_longer_way_or_a_later_timeout_never_end_sooner(
        bytes in 1_u64..1 << 40, more in 0_u64..1 << 40, exponent in -9_f64..0.0, longer in 0_u64..2_000_000_000,
        b in 1_u16..3, max in proptest::option::of(1_u64..1 << 30), first in 1_u64..100,
    ) {
        let flow = PftkFlow { max_window: max.map(ByteCount::new), ..flow(b) };
        let time = |flow: &PftkFlow, bytes| {
            let loss = Ratio::new(libm::pow(10.0, exponent));
            transfer_latency(flow, SegCount::new(first), ByteCount::new(bytes), loss).total_duration().as_secs_f64() * (1.0 + 1e-9)
        };
        let longer = Span::from_nanos(longer);
        let now = time(&flow, bytes) * (1.0 - 2e-9);
        prop_assert!(time(&flow, bytes + more) >= now);
        for worse in [PftkFlow { rtt: flow.rtt + longer, ..flow }, PftkFlow { rto: flow.rto + longer, ..flow }] {
            prop_assert!(time(&worse, bytes) >= now);
        }
    }

    #[test]
    fn any_input_gives_a_time(
        bytes: u64, mss: u64, rtt: u64, rto: u64, bps: u64, b: u16, first: u64, max: Option<u64>,
        loss in proptest::num::f64::ANY,
    ) {
        let (bytes, mss) = (ByteCount::new(bytes), ByteCount::new(mss));
        let (rtt, loss) = (Span::from_nanos(rtt), Ratio::new(loss));
        let flow = PftkFlow {
            mss, rtt, rto: Span::from_nanos(rto), acknowledged_together: b, max_window: max.map(ByteCount::new),
        };
        let parts = transfer_latency(&flow, SegCount::new(first), bytes, loss);
        prop_assert!(parts.total_duration() >= parts.data_duration());
        let took = transfer_time(bytes, mss, rtt, BitRate::from_bps(bps), Some(loss));
        prop_assert!(took == Span::ZERO || BitRate::from_bytes_in(bytes, took).bps() <= bps);
    }
}
