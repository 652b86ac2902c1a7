//! `bench corpus`: a check of the judge that needs no labels. Each capture of a folder is read,
//! each of its transfers is judged, and each verdict is held against what the packets show by
//! themselves.
//!
//! [`witness`] reads the packets anew, [`contradictions`] holds the verdicts against them, and
//! [`other_readers`] asks tshark and tcptrace for their counts of the same files.

mod command;
mod contradictions;
mod other_readers;
mod witness;

pub(crate) use command::CorpusCheck;

/// Returns the sender's capture of a clean transfer of a megabyte over 20 Mbit/s × 20 ms.
#[cfg(test)]
fn simulated_capture() -> Vec<u8> {
    use fullpipe_record::{HostSettings, Request};
    use fullpipe_scenario::{PathSpec, parse_path_flag};
    use fullpipe_sim::{Simulation, SimulationPlan};
    use fullpipe_units::{ByteCount, Span};

    let path = parse_path_flag("rate=20M,rtt=20ms,queue=4bdp", &PathSpec::demo_path()).unwrap();
    let host = HostSettings::of_linux_6_18();
    let request = Request {
        bytes: Some(ByteCount::new(1_000_000)),
        ..Request::default()
    };
    let mut simulation =
        Simulation::with_captures(SimulationPlan::new(path, [host.clone(), host], request, 1))
            .unwrap();
    while !simulation.is_over() {
        simulation.run_until(simulation.current_time() + Span::from_secs(1));
    }
    let [sender, _] = simulation.take_captures().unwrap();
    sender
}
