//! Captures of simulated transfers: what their packets show is what the simulation did.

use fullpipe_flow::{ExplainedTransfers, FinishedFlows, FlowTable};
use fullpipe_record::{
    CapturePoint, Direction, Edit, FlowReport, HostSettings, Path, PathDirection, Request,
};
use fullpipe_sim::{Simulation, SimulationPlan};
use fullpipe_units::{BitRate, Ratio, Span, Time};
use fullpipe_wire::{CapturedContent, LinkType, read_captured};

const RTT: Span = Span::from_millis(20);
const MSS: u64 = 1448;

/// 50 Mbit/s over 20 ms for two seconds.
fn plan() -> SimulationPlan {
    let rate = BitRate::from_mbps(50);
    let direction = PathDirection {
        queue: Some(rate.bytes_in(RTT)),
        ..PathDirection::of_rate(Some(rate))
    };
    let host = HostSettings::of_linux_6_18();
    let request = Request {
        duration: Span::from_secs(2),
        ..Request::default()
    };
    SimulationPlan::new(
        Path::with_symmetric_rtt(&direction, RTT),
        [host.clone(), host],
        request,
        5,
    )
}

/// Returns what a capture shows.
fn read(file: &[u8]) -> FinishedFlows {
    let mut flows = FlowTable::default();
    let mut rest = &file[24..];
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (bytes, next) = after.split_at(number(8) as usize);
        let at = Time::from_nanos(u64::from(number(0)) * 1_000_000_000 + u64::from(number(4)));
        let CapturedContent::Tcp(segment) =
            read_captured(LinkType::RAW, bytes, number(12) as usize)
        else {
            panic!("every packet is one of TCP");
        };
        flows.add_segment(&segment, at);
        rest = next;
    }
    flows.finish_flows(ExplainedTransfers::Largest(1))
}

/// Runs a transfer and returns its captures, and the number of retransmitted segments.
fn run(plan: SimulationPlan) -> ([FinishedFlows; 2], u64) {
    let mut simulation = Simulation::with_captures(plan).unwrap();
    simulation.run_until(Time::from_nanos(u64::MAX));
    let again = simulation.segment_counts().map(|[again, _]| again).sum();
    let files = simulation.take_captures().unwrap();
    assert!(simulation.take_captures().is_none());
    (files.map(|file| read(&file)), again)
}

fn only(found: &FinishedFlows) -> &FlowReport {
    assert_eq!(found.flows.len(), 1);
    &found.flows[0]
}

#[test]
fn losses_windows_and_places_are_those_of_the_simulation() {
    let mut plan = plan();
    plan.path.forward.loss = Some(Ratio::new(0.002));
    let ([sender, receiver], again) = run(plan);
    let (near, far) = (only(&sender), only(&receiver));
    assert!(again > 5);
    assert_eq!(near.ends[0].retransmitted_bytes.get(), again * MSS);
    assert!(far.ends[0].late_packets > 0 && far.ends[0].unique_bytes <= near.ends[0].unique_bytes);
    assert_eq!(
        [near.point, far.point],
        [Some(CapturePoint::First), Some(CapturePoint::Second)]
    );
    assert_eq!((near.has_handshake, far.has_handshake), (true, true));
    assert_eq!(near.ends[1].window_scale, far.ends[1].window_scale);
    assert!(near.ends[1].window_scale.is_some() && near.ends[1].sack_packets > 0);
    let least = near.ends[0].rtt.unwrap().least.as_secs_f64();
    assert!((0.02..0.021).contains(&least), "{least}");
    assert!(sender.transfers[0].evidence.sender_samples.len() > 100);
}

#[test]
fn a_scale_that_is_stripped_is_in_the_receivers_capture_alone() {
    for direction in [Direction::Upload, Direction::Download] {
        let mut plan = plan();
        plan.request.direction = direction;
        plan.path.reverse.effects.edits = vec![Edit::StripWindowScale];
        let ([near, far], _) = run(plan);
        // The end that opened the connection is the first.
        let of_receiver = usize::from(direction == Direction::Upload);
        assert_eq!(only(&near).ends[of_receiver].window_scale, None);
        assert!(only(&far).ends[of_receiver].window_scale.is_some());
    }
}
