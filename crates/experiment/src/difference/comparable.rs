use std::collections::{BTreeMap, BTreeSet};

use fullpipe_record::{Measurement, RouteReport};
use fullpipe_units::{Span, count_noun};

/// Idle round-trip times of one path differ by less than this factor, and by more than [`CLOCKS`]
/// on two.
const OTHER_PATH: f64 = 1.5;

/// Differences of round-trip times that hosts and clocks make of nothing.
const CLOCKS: Span = Span::from_millis(2);

/// Returns the reasons for which the runs `a` and `b` are not comparable, a sentence each: another
/// peer, kernel, MTU, route, version of the program, direction or transport, or an idle round-trip
/// time of another path. What a record does not hold is no reason.
pub fn comparability_faults(a: &[Measurement], b: &[Measurement]) -> Vec<String> {
    let attributes = [a, b].map(|runs| {
        let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (name, value) in runs.iter().flat_map(run_attributes) {
            values.entry(name).or_default().insert(value);
        }
        values
    });
    let [of_a, of_b] = &attributes;
    let differences = of_a.iter().filter_map(|(name, a)| {
        let b = of_b.get(name).filter(|b| *b != a)?;
        Some(format!(
            "{name}: {} in A, {} in B",
            join_values(a),
            join_values(b)
        ))
    });
    differences
        .chain(other_rtt(a, b))
        .chain(in_both(a, b))
        .collect()
}

fn join_values(values: &BTreeSet<String>) -> String {
    values
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" and ")
}

/// Returns the attributes that must be the same in all runs, each with its value, as far as they
/// are known.
fn run_attributes(run: &Measurement) -> Vec<(&'static str, String)> {
    let ends = [&run.local, &run.remote];
    let [here, there] = ends.map(|end| end.host.clone().unwrap_or_default());
    let [mtu_here, mtu_there] = ends.map(|end| {
        end.device
            .as_ref()
            .map(|device| device.mtu.get().to_string())
    });
    let path_mtu = run
        .sending_end()
        .samples
        .last()
        .and_then(|sample| sample.tcp.path_mtu);
    let attributes = [
        ("this host", known(here.name)),
        ("the other host", known(there.name)),
        (
            "the other end's address",
            known(host_address(&run.peer.address)),
        ),
        ("kernel of this host", known(here.kernel)),
        ("kernel of the other host", known(there.kernel)),
        ("version of fullpipe here", here.program),
        ("version of fullpipe there", there.program),
        ("MTU of this host's device", mtu_here),
        ("MTU of the other host's device", mtu_there),
        ("path MTU", path_mtu.map(|mtu| mtu.get().to_string())),
        ("route", run.route.as_ref().map(route_text)),
        (
            "direction",
            Some(format!("{:?}", run.request.direction).to_lowercase()),
        ),
        (
            "transport",
            Some(format!("{:?}", run.request.transport).to_uppercase()),
        ),
    ];
    attributes
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn known(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// Without the port, which may differ.
fn host_address(with_port: &str) -> String {
    with_port
        .rsplit_once(':')
        .map_or(with_port, |(address, _)| address)
        .to_owned()
}

fn route_text(report: &RouteReport) -> String {
    let hop =
        |hop: &fullpipe_record::Hop| hop.addresses.first().map_or("?", String::as_str).to_owned();
    report.hops.iter().map(hop).collect::<Vec<_>>().join(" → ")
}

/// Returns the reason that idle round-trip times are, if they are those of two paths.
fn other_rtt(a: &[Measurement], b: &[Measurement]) -> Option<String> {
    let [of_a, of_b] = [a, b].map(|runs| {
        let idle = runs.iter().filter_map(|run| run.rtt.idle);
        idle.map(|rtt| rtt.min).min()
    });
    let (of_a, of_b) = (of_a?, of_b?);
    let (short, long) = (of_a.min(of_b), of_a.max(of_b));
    let is_other = long > short.scale_by(OTHER_PATH) && long.saturating_sub(short) > CLOCKS;
    is_other.then(|| format!("idle round-trip time: {of_a} in A, {of_b} in B, as of two paths"))
}

fn in_both(a: &[Measurement], b: &[Measurement]) -> Option<String> {
    let is_in_b =
        |run: &&Measurement| !run.id.is_empty() && b.iter().any(|other| other.id == run.id);
    let count = a.iter().filter(is_in_b).count();
    (count > 0).then(|| format!("{} both in A and in B", count_noun(count, "measurement")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::test_run::run;
    use fullpipe_record::{Direction, HostIdentity, RttStats};

    #[test]
    fn runs_over_one_path_are_comparable() {
        assert_eq!(
            comparability_faults(&[run(10, "1"), run(9, "2")], &[run(10, "3")]),
            [""; 0]
        );
    }

    #[test]
    fn what_differs_is_named() {
        let mut b = run(10, "2");
        b.local.host = Some(HostIdentity {
            kernel: "5.10.0".to_owned(),
            ..run(1, "").local.host.unwrap()
        });
        b.request.direction = Direction::Download;
        b.peer.address = "198.51.100.7:5201".to_owned();
        let reasons = comparability_faults(&[run(10, "1")], &[b]).join("\n");
        for part in [
            "kernel of this host: ",
            "5.10.0 in B",
            "upload in A, download in B",
            "198.51.100.7 in B",
        ] {
            assert!(reasons.contains(part), "{part} is not in {reasons}");
        }
    }

    #[test]
    fn another_round_trip_time_is_another_path() {
        let mut b = run(10, "2");
        b.rtt.idle = RttStats::from_samples(vec![Span::from_millis(48)]);
        let mut a = run(10, "1");
        a.rtt.idle = RttStats::from_samples(vec![Span::from_millis(20)]);
        assert!(
            comparability_faults(&[a.clone()], &[b])[0]
                .starts_with("idle round-trip time: 20 ms in A, 48 ms in B")
        );
        let mut close = run(10, "2");
        close.rtt.idle = RttStats::from_samples(vec![Span::from_millis(21)]);
        assert_eq!(comparability_faults(&[a], &[close]), [""; 0]);
    }

    #[test]
    fn a_measurement_is_not_compared_with_itself() {
        assert_eq!(
            comparability_faults(&[run(10, "1")], &[run(10, "1")]),
            ["1 measurement both in A and in B"]
        );
    }
}
