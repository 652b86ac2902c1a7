//! Connections that divide the bytes of a transfer, and change while they run.

use fullpipe_record::{HostSettings, Measurement, Path, PathDirection, Request};
use fullpipe_sim::{Simulation, SimulationPlan, TransferDivision};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

const SIZE: ByteCount = ByteCount::new(20_000_000);
const CHUNK: ByteCount = ByteCount::from_mib(1);

/// The kernel's number for the state of a connection that has ended.
const CLOSED: u8 = 7;

/// A transfer of [`SIZE`] over 100 Mbit/s × 20 ms and four connections, divided so.
fn plan(division: TransferDivision) -> SimulationPlan {
    let (rate, rtt) = (BitRate::from_mbps(100), Span::from_millis(20));
    let direction = PathDirection {
        queue: Some(rate.bytes_in(rtt)),
        ..PathDirection::of_rate(Some(rate))
    };
    let hosts = [HostSettings::of_linux_6_18(), HostSettings::of_linux_6_18()];
    let request = Request {
        streams: 4,
        bytes: Some(SIZE),
        ..Request::default()
    };
    SimulationPlan {
        division,
        ..SimulationPlan::new(Path::with_symmetric_rtt(&direction, rtt), hosts, request, 7)
    }
}

fn received(measurement: &Measurement) -> ByteCount {
    measurement
        .streams
        .iter()
        .map(|stream| stream.received)
        .sum()
}

#[test]
fn every_division_moves_the_file_whole_and_the_same_way_again() {
    for division in [
        TransferDivision::Equal,
        TransferDivision::Queue(CHUNK),
        TransferDivision::Ranges(CHUNK),
    ] {
        let measure = || {
            Simulation::new(plan(division))
                .unwrap()
                .run_to_measurement()
        };
        let measured = measure();
        assert!(
            received(&measured) >= SIZE,
            "{division:?}: {}",
            received(&measured)
        );
        assert!(
            measured.summary.rate > BitRate::from_mbps(60),
            "{division:?}: {}",
            measured.summary.rate
        );
        assert_eq!(measured, measure(), "{division:?}");
    }
}

#[test]
fn connections_of_a_queue_carry_what_each_can_and_those_of_ranges_begin_two_round_trips_later() {
    let queue = Simulation::new(plan(TransferDivision::Queue(CHUNK)))
        .unwrap()
        .run_to_measurement();
    let of_each: Vec<u64> = queue
        .streams
        .iter()
        .map(|stream| stream.received.get())
        .collect();
    assert!(
        of_each.iter().any(|bytes| *bytes != of_each[0]),
        "{of_each:?}"
    );
    let mut ranges = Simulation::new(plan(TransferDivision::Ranges(CHUNK))).unwrap();
    ranges.run_until(ranges.current_time() + Span::from_millis(39));
    let acknowledged = |simulation: &Simulation| -> Vec<bool> {
        simulation
            .sender_samples()
            .iter()
            .map(|sample| sample.tcp.bytes_acked > Some(ByteCount::ZERO))
            .collect()
    };
    assert_eq!(acknowledged(&ranges), [true, false, false, false]);
    ranges.run_until(ranges.current_time() + Span::from_millis(60));
    assert_eq!(acknowledged(&ranges), [true; 4]);
    // The first one was asked for everything, and is closed where the next one began.
    let measured = ranges.run_to_measurement();
    assert!(measured.streams.len() > 4, "{}", measured.streams.len());
}

#[test]
fn a_transfer_that_changes_to_bbr_is_slowed_by_chance_losses_no_more() {
    let lossy = || {
        let mut plan = plan(TransferDivision::Queue(CHUNK));
        plan.path.forward.loss = Some(Ratio::new(0.01));
        Simulation::new(plan).unwrap()
    };
    let cubic = lossy().run_to_measurement();
    let mut changing = lossy();
    changing.run_until(changing.current_time() + Span::from_secs(1));
    changing.use_congestion("bbr").unwrap();
    assert!(changing.use_congestion("vegas").is_err());
    let bbr = changing.run_to_measurement();
    assert!(
        bbr.summary.duration.scale_by(2.0) < cubic.summary.duration,
        "{:?} {:?}",
        bbr.summary,
        cubic.summary
    );
    assert_eq!(bbr.local.sockets[0].congestion, "bbr");
}

#[test]
fn a_transfer_ends_with_the_last_connection_that_lives_and_is_not_valid_where_another_gave_up() {
    let (size, chunk) = (ByteCount::from_kib(40), ByteCount::from_kib(10));
    for division in [
        TransferDivision::Equal,
        TransferDivision::Queue(chunk),
        TransferDivision::Ranges(chunk),
    ] {
        let (mut whole, mut partial) = (0, 0);
        for seed in 0..16 {
            let mut lossy = plan(division);
            lossy.seed = seed;
            lossy.request.bytes = Some(size);
            lossy.path.forward.loss = Some(Ratio::new(0.8));
            let measured = Simulation::new(lossy).unwrap().run_to_measurement();
            assert!(
                measured.summary.duration < Span::from_secs(2_000),
                "{division:?}, {seed}: {:?}",
                measured.summary
            );
            let state = |stream: u16| {
                measured
                    .sending_end()
                    .samples
                    .iter()
                    .rfind(|sample| sample.stream == stream)
            };
            let gave_up = (0..4)
                .filter(|stream| state(*stream).unwrap().tcp.state == Some(CLOSED))
                .count();
            assert_eq!(
                measured.validity.is_valid(),
                gave_up == 0,
                "{division:?}, {seed}: {:?}",
                measured.validity
            );
            whole += usize::from(gave_up == 0);
            partial += usize::from((1..4).contains(&gave_up));
        }
        assert!(whole > 2 && partial > 2, "{division:?}: {whole} {partial}");
    }
}
