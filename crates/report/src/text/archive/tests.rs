use super::*;
use crate::text::without_marks;
use fullpipe_record::HistoryPoint;

fn document() -> StoredDocument {
    StoredDocument {
        id: "01a2121b-a32a-720a-9996-66dd5db307ad".to_owned(),
        kind: "measurement".to_owned(),
        started: "2026-03-12T10:00:00.25Z".to_owned(),
        peer: "a-host-with-a-long-name.of-a-long-domain.example.org".to_owned(),
        facts: vec![StoredFacts {
            steady: Some(BitRate::from_mbps(941)),
            limit: Some("receiver-application".to_owned()),
            cause: Some("window-scale-rewritten".to_owned()),
            ..StoredFacts::default()
        }],
        ..StoredDocument::default()
    }
}

#[test]
fn a_list_fits_a_terminal_and_shows_the_end_of_the_identifier() {
    let list = without_marks(&document_list(&[document()]));
    assert!(
        list.lines().all(|line| line.chars().count() <= 80),
        "{list}"
    );
    for part in [
        "5db307ad  2026-03-12 10:00  a-host-with-a-…",
        "941 Mbit/s",
        "invalid",
    ] {
        assert!(list.contains(part), "{list}");
    }
    assert_eq!(without_marks(&document_list(&[])), "no documents\n");
}

#[test]
fn one_document_has_all_figures_that_are_known_and_no_others() {
    let text = without_marks(&stored_document(&document()));
    assert!(
        text.contains("upload (invalid)")
            && text.contains("receiver-application/window-scale-rewritten")
    );
    assert!(
        !text.contains("loss") && !text.contains("campaign"),
        "{text}"
    );
}

#[test]
fn a_history_shows_changes_first_and_the_newest_days() {
    let day = |number: usize| HistoryDay {
        date: format!("day-{number}"),
        runs: 4,
        rate: BitRate::from_mbps(612),
        min: BitRate::from_mbps(600),
        max: BitRate::from_mbps(620),
        rtt_idle: None,
        limit: Some("receiver-application/slow-reader".to_owned()),
    };
    let point = HistoryPoint {
        id: String::new(),
        started: String::new(),
        rate: BitRate::from_mbps(612),
        rtt_idle: None,
        rtt_loaded: None,
        limit: None,
        valid: true,
    };
    let series = HistorySeries {
        path_key: "alpha → 192.0.2.1".to_owned(),
        request_key: "tcp upload, 1 stream, 10 s".to_owned(),
        direction: Direction::Upload,
        points: vec![point],
        days: (0..40).map(day).collect(),
        changes: Vec::new(),
        detectable: None,
    };
    let text = without_marks(&history_text(&HistoryReport {
        host: "beta".to_owned(),
        series: vec![series.clone()],
    }));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(
        text.contains("(1 run)") && text.contains("day-39") && !text.contains("day-8 "),
        "{text}"
    );
    assert!(
        text.contains("1 valid run cannot show a change of the rate: that takes 16."),
        "{text}"
    );
    assert!(
        text.contains("9 earlier days not shown") && !text.contains("idle RTT"),
        "{text}"
    );
    let quiet = HistorySeries {
        detectable: Some(Ratio::new(0.1234)),
        ..series
    };
    let sentence =
        "No change of the rate: one of 13 % or more, with 8 of the 1 runs or more on either side";
    assert!(
        no_change(&quiet).is_some_and(|said| said.starts_with(sentence)),
        "{:?}",
        no_change(&quiet)
    );
    let none = without_marks(&history_text(&HistoryReport {
        host: "beta".to_owned(),
        series: Vec::new(),
    }));
    assert_eq!(none, "no runs towards beta are kept\n");
}
