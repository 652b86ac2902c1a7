use super::*;
use fullpipe_units::SegCount;
use proptest::prelude::*;

const MSS: ByteCount = ByteCount::new(1448);
const RTT: Span = Span::from_millis(100);

fn of(segments: u64) -> ByteCount {
    SegCount::new(segments).of_size(MSS)
}

#[test]
fn nothing_takes_no_time_and_no_rate_for_ever() {
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
    fn any_input_gives_a_time(
        bytes: u64, mss: u64, rtt: u64, bps: u64, loss in proptest::num::f64::ANY,
    ) {
        let (bytes, mss) = (ByteCount::new(bytes), ByteCount::new(mss));
        let (rtt, loss) = (Span::from_nanos(rtt), Ratio::new(loss));
        let took = transfer_time(bytes, mss, rtt, BitRate::from_bps(bps), Some(loss));
        prop_assert!(took == Span::ZERO || BitRate::from_bytes_in(bytes, took).bps() <= bps);
    }
}
