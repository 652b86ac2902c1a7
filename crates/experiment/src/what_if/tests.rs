use super::*;

fn plan() -> SimulationPlan {
    let path = parse_path_flag("rate=100M,rtt=20ms", &PathSpec::demo_path()).unwrap();
    let host = HostSettings::of_linux_6_18();
    SimulationPlan::new(path, [host.clone(), host], Request::default(), 1)
}

fn changed(changes: &[&str]) -> SimulationPlan {
    let changes: Vec<PastChange> = changes
        .iter()
        .map(|text| PastChange::read(text).unwrap())
        .collect();
    all_together(&changes.iter().collect::<Vec<_>>(), plan(), &|_| {
        panic!("no file")
    })
    .unwrap()
}

#[test]
fn all_changes_together_are_the_same_in_any_order() {
    let changes = ["queue=1bdp", "rate=1G", "streams=2"];
    let [mut path, request] =
        [[0, 1, 2], [2, 1, 0]].map(|order| changed(&order.map(|index| changes[index])));
    assert_eq!(
        (&path.path, &path.request),
        (&request.path, &request.request)
    );
    assert_eq!(path.path.forward.queue, Some(ByteCount::new(2_500_000)));
    path = changed(&["rate=1G", "queue=64KiB", "queue=1bdp"]);
    assert_eq!(
        path.path.forward.queue,
        Some(ByteCount::new(2_500_000)),
        "the last one counts"
    );
}

#[test]
fn nothing_is_sent_from_buffers_of_0_bytes_and_a_pace_of_0_is_none() {
    for text in ["window=0", "buffer=0"] {
        assert!(
            PastChange::read(text).unwrap_err().contains("of 0 bytes"),
            "{text}"
        );
    }
    assert_eq!(changed(&["pacing=0"]).request.pacing, None);
    assert_eq!(
        changed(&["pacing=5M"]).request.pacing,
        Some(BitRate::from_mbps(5))
    );
}

#[test]
fn loads_that_no_flag_asks_for_are_refused() {
    let load = |streams, interval| {
        check_load(&Request {
            streams,
            interval,
            ..Request::default()
        })
    };
    assert_eq!(load(10_000, MIN_INTERVAL), Ok(()));
    assert_eq!(load(1, Span::ZERO), Ok(()));
    assert!(
        load(10_001, MIN_INTERVAL)
            .unwrap_err()
            .contains("10001 streams")
    );
    assert!(
        load(1, Span::from_nanos(1))
            .unwrap_err()
            .contains("intervals")
    );
}
