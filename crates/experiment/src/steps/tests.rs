use super::*;

fn seconds(duration: u64, needed: u64, rtt_ms: u64, scale: f64) -> f64 {
    let request = Request {
        duration: Span::from_secs(duration),
        ..Request::default()
    };
    let (needed, rtt) = (Span::from_secs(needed), Span::from_millis(rtt_ms));
    scale_request(&request, rtt, needed, Ratio::new(scale))
        .duration
        .as_secs_f64()
}

#[test]
fn no_two_runs_name_the_same_file() {
    let numbers = CaptureNumbers::default();
    assert_eq!(
        numbers.capture_name("gordon-bdp", "50 MB/s: ../é", |_| false),
        "gordon-bdp-50-MB-s-----é-1"
    );
    let names = [
        ("a", "64 KiB"),
        ("a", "64 KiB"),
        ("a", "64-KiB"),
        ("a-64", "KiB"),
        ("a", "64 KiB-1"),
    ]
    .map(|(scenario, step)| numbers.capture_name(scenario, step, |_| false));
    assert_eq!(
        names,
        [
            "a-64-KiB-1",
            "a-64-KiB-2",
            "a-64-KiB-3",
            "a-64-KiB-4",
            "a-64-KiB-1-1"
        ]
    );
    assert_eq!(
        numbers.capture_name("a", "64 KiB", |name| ["a-64-KiB-5", "a-64-KiB-6"]
            .contains(&name)),
        "a-64-KiB-7"
    );
}

#[test]
fn a_shorter_load_keeps_its_ramp_and_twenty_round_trips() {
    assert!((seconds(60, 5, 100, 0.5) - 30.0).abs() < 1e-9);
    assert!((seconds(60, 5, 100, 0.01) - 5.0).abs() < 1e-9);
    assert!(
        (seconds(60, 5, 400, 0.01) - 12.0).abs() < 1e-9,
        "30 round trips"
    );
    assert!(
        (seconds(10, 20, 100, 0.5) - 10.0).abs() < 1e-9,
        "never longer than the file says"
    );
    assert!((seconds(10, 5, 10, 36.0) - 360.0).abs() < 1e-9);
    assert!(
        (seconds(10, 5, 10, 0.55) - 6.0).abs() < 1e-9,
        "whole seconds"
    );
}
