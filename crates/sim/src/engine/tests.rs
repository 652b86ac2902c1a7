use super::*;
use fullpipe_record::{HostSettings, Path, PathDirection, Request};
use fullpipe_units::{BitRate, Ratio};

#[test]
fn a_deferred_read_changes_nothing_but_the_number_of_events() {
    for (loss, streams, timestamps) in [
        (None, 1, true),
        (Some(Ratio::new(1e-3)), 3, true),
        (None, 2, false),
    ] {
        let direction = PathDirection {
            loss,
            ..PathDirection::of_rate(Some(BitRate::from_mbps(50)))
        };
        let sender = HostSettings {
            timestamps,
            ..HostSettings::of_linux_6_18()
        };
        let request = Request {
            duration: Span::from_secs(3),
            streams,
            ..Request::default()
        };
        let hosts = [sender, HostSettings::of_linux_6_18()];
        let plan = SimulationPlan::new(
            Path::with_symmetric_rtt(&direction, Span::from_millis(60)),
            hosts,
            request,
            3,
        );
        let mut simulations = [plan.clone(), plan].map(|plan| Simulation::new(plan).unwrap());
        for flow in &mut simulations[1].flows {
            flow.defer_reads(false);
        }
        for simulation in &mut simulations {
            simulation.run_until(Time::from_nanos(u64::MAX));
        }
        assert!(
            simulations[0].event_count() < simulations[1].event_count(),
            "{loss:?}"
        );
        let [deferred, at_once] = simulations.map(Simulation::run_to_measurement);
        assert_eq!(
            deferred, at_once,
            "{loss:?}, {streams} streams, timestamps {timestamps}"
        );
    }
}
