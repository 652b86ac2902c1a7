use super::*;

#[test]
fn what_anybody_can_cause_is_reported_at_once_and_then_once_a_minute_and_at_the_end() {
    let mut reported = Vec::new();
    let report = &mut |event| reported.push(format!("{event:?}"));
    let mut reporter = EventReporter::new(report);
    let (client, why) = (
        SocketAddr::from(([192, 0, 2, 1], 9)),
        "it is late".to_owned(),
    );
    let refused = RefusedConnections {
        client: client.ip(),
        why: why.clone(),
        connections: 1,
    };
    let now = Instant::now();
    for _ in 0..3 {
        reporter.report_event(RelayEvent::Rejected(refused.clone()), now);
        reporter.report_event(
            RelayEvent::NotRelayed {
                client,
                why: why.clone(),
            },
            now,
        );
        reporter.report_event(
            RelayEvent::NotAccepting {
                why: "no descriptors".to_owned(),
            },
            now,
        );
    }
    reporter.report_due(now);
    reporter.report_due(now + REPORT_INTERVAL);
    reporter.report_event(RelayEvent::Rejected(refused), now + REPORT_INTERVAL);
    reporter.report_due(now + REPORT_INTERVAL);
    reporter.report_all(now + REPORT_INTERVAL);
    let [first, second, third, last] = &reported[..] else {
        panic!("{reported:?}")
    };
    assert!(
        first.contains("connections: 1") && second.contains("NotAccepting"),
        "{reported:?}"
    );
    assert!(
        third.contains("connections: 5") && last.contains("connections: 1"),
        "{reported:?}"
    );
}
