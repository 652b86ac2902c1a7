//! Throughput over loss × queue × congestion control in virtual time, segment by segment and in
//! whole trains: any change of behaviour shows in the tables.

use std::fmt::Write as _;

use fullpipe_record::{HostSettings, Path, PathDirection, Request, Segmentation};
use fullpipe_sim::{Simulation, SimulationPlan, TrainGranularity};
use fullpipe_units::{BitRate, Ratio, Span};

const QUEUES: [f64; 3] = [0.25, 1.0, 4.0];
const LOSSES: [f64; 3] = [0.0, 1e-3, 1e-2];

/// 100 Mbit/s × 60 ms for 4 s with a queue in BDPs and random loss of data: four packets are sent
/// in a hundredth of a round trip.
fn plan(control: &str, queue: f64, loss: f64, granularity: TrainGranularity) -> SimulationPlan {
    let (rate, rtt) = (BitRate::from_mbps(100), Span::from_millis(60));
    let queue = Some(rate.bytes_in(rtt).scale_by(queue));
    let direction = PathDirection {
        delay: rtt / 2,
        queue,
        ..PathDirection::of_rate(Some(rate))
    };
    let path = Path {
        forward: PathDirection {
            loss: Some(Ratio::new(loss)),
            ..direction.clone()
        },
        reverse: direction,
        segmentation: Segmentation::Trains,
    };
    let host = HostSettings::of_linux_6_18();
    let duration = Span::from_secs(4);
    let request = Request {
        duration,
        congestion: Some(control.to_owned()),
        ..Request::default()
    };
    SimulationPlan {
        granularity,
        ..SimulationPlan::new(path, [host.clone(), host], request, 1)
    }
}

/// Mbit/s, and retransmitted segments.
fn cell(plan: SimulationPlan) -> String {
    let summary = Simulation::new(plan).unwrap().run_to_measurement().summary;
    format!(
        "{:6.2} {:5}",
        summary.rate.as_mbps(),
        summary.retransmits.unwrap().get()
    )
}

fn table(control: &str) -> String {
    let mut text = "queue   loss      segments        trains\n".to_owned();
    for queue in QUEUES {
        for loss in LOSSES {
            let of = |granularity| cell(plan(control, queue, loss, granularity));
            let (single, trains) = (of(TrainGranularity::Segment), of(TrainGranularity::Train));
            writeln!(text, "{queue:5}  {loss:5}   {single}   {trains}").unwrap();
        }
    }
    text
}

#[test]
fn reno_over_queues_and_losses() {
    insta::assert_snapshot!(table("reno"));
}

#[test]
fn cubic_over_queues_and_losses() {
    insta::assert_snapshot!(table("cubic"));
}

#[test]
fn bbr_over_queues_and_losses() {
    insta::assert_snapshot!(table("bbr"));
}
