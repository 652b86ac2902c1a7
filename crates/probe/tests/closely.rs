//! A test that is watched closely.

mod support;

use std::sync::atomic::AtomicBool;

use fullpipe_probe::{Destination, TestEvent, TestSnapshot, watch_closely};
use fullpipe_record::{Measurement, Request};
use fullpipe_units::{BitRate, Span};

use support::with_server;

#[test]
fn the_counts_so_far_lead_to_those_of_the_whole() {
    with_server(|port| {
        let destination = &Destination {
            host: "127.0.0.1".to_owned(),
            port,
            ..Destination::default()
        };
        let rate = Some(BitRate::from_mbps(20));
        let request = Request {
            streams: 2,
            duration: Span::from_millis(2_500),
            rate,
            ..Request::default()
        };
        let (mut snapshots, mut so_far): (Vec<TestSnapshot>, Vec<Measurement>) =
            (Vec::new(), Vec::new());
        let never = AtomicBool::new(false);
        let whole = watch_closely(destination, &request, &never, &mut |event| match event {
            TestEvent::Snapshot(snapshot) => snapshots.push(snapshot.clone()),
            TestEvent::SoFar(measurement) => so_far.push(measurement.clone()),
            TestEvent::Connected(_) | TestEvent::Interval(_) => {}
        })
        .unwrap();
        // A busy machine may report late, but not more often than asked.
        assert!(
            (2..=25).contains(&snapshots.len()) && (1..=2).contains(&so_far.len()),
            "{}",
            snapshots.len()
        );
        assert!(snapshots.is_sorted_by_key(|snapshot| snapshot.at));
        for pair in snapshots.windows(2) {
            let streams = pair[0].streams.iter().zip(&pair[1].streams);
            assert!(
                pair[1].streams.len() == 2
                    && streams
                        .clone()
                        .all(|(before, after)| before.bytes <= after.bytes)
            );
        }
        assert!(snapshots.last().unwrap().rtt.is_some());
        let first = &so_far[0];
        assert!(
            first.summary.duration < whole.summary.duration
                && first.summary.sent < whole.summary.sent
        );
        assert_eq!(first.local.settings, whole.local.settings);
        assert!(first.rtt.idle.is_some() && !first.local.samples.is_empty() && !first.interrupted);
    });
}
