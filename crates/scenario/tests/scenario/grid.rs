use fullpipe_record::{Buffer, Change};
use fullpipe_scenario::{ScenarioGrid, builtin_grids};
use fullpipe_units::{ByteCount, Ratio, Span};
use proptest::prelude::*;

const GOOD: &str = r#"name = "n"
title = "t"
longest = "30s"
[bounds]
median = "3%"
[[block]]
rate = ["10M", "100M"]
rtt = ["10ms"]
window = ["0.5", "2"]
congestion = ["reno", "cubic"]
[[block]]
rate = ["1G"]
rtt = ["20ms"]
loss = ["1e-3"]
streams = [4]
"#;

/// Returns the error when `old`, of which there is one, is replaced by `new`.
fn stated(old: &str, new: &str) -> String {
    assert_eq!(GOOD.matches(old).count(), 1, "{old}");
    ScenarioGrid::parse("x.toml", &GOOD.replace(old, new))
        .unwrap_err()
        .to_string()
}

#[test]
fn lists_multiply() {
    let grid = ScenarioGrid::parse("x.toml", GOOD).unwrap();
    assert_eq!(
        (grid.cells.len(), grid.longest, grid.bounds.median),
        (9, Span::from_secs(30), Some(Ratio::new(0.03)))
    );
    let first = &grid.cells[0];
    assert_eq!(first.name, "10 Mbit/s × 10 ms, window 0.5 BDP, 1 × reno");
    assert_eq!(
        first.steps[0].request.buffer,
        Buffer::Window(ByteCount::new(6250))
    );
    assert_eq!(
        first.path.forward.queue,
        Some(ByteCount::new(15_380)),
        "ten packets, as a BDP is less"
    );
    let last = &grid.cells[8];
    assert_eq!(
        (last.title.as_str(), last.steps[0].request.streams),
        ("loss 0.1 %", 4)
    );
    assert_eq!(
        (last.path.forward.loss, last.path.reverse.loss),
        (Some(Ratio::new(1e-3)), Some(Ratio::ZERO))
    );
    assert_eq!(
        last.receiver,
        [Change::TcpRmemMax(ByteCount::new(20_000_000))]
    );
    assert!(
        grid.cells
            .windows(2)
            .all(|pair| pair[0].seed != pair[1].seed)
    );
}

#[test]
fn the_builtin_grids_are_grids() {
    for (name, text) in builtin_grids() {
        assert_eq!(ScenarioGrid::parse(name, text).unwrap().name, *name);
    }
}

#[test]
fn queues_are_in_bdps() {
    let text = GOOD.replace("window = [\"0.5\", \"2\"]", "queue = [\"0.5\", \"2\"]");
    let grid = ScenarioGrid::parse("x.toml", &text).unwrap();
    let first = &grid.cells[0];
    assert_eq!(first.name, "10 Mbit/s × 10 ms, queue 0.5 BDP, 1 × reno");
    assert_eq!(
        first.path.forward.queue,
        Some(ByteCount::new(6250)),
        "as it stands there, though it is a few packets"
    );
    assert_eq!(
        grid.cells[2].path.forward.queue,
        Some(ByteCount::new(25_000))
    );
    let both = GOOD.replace("[\"10ms\"]", "[\"10ms\"]\nqueue = [\"3\"]");
    assert_eq!(
        ScenarioGrid::parse("x.toml", &both).unwrap().cells[0].title,
        "window 0.5 BDP, queue 3 BDP"
    );
}

#[test]
fn bad_grids_are_reported_with_their_place() {
    for (old, new, sentence) in [
        (
            "\"10M\", ",
            "\"10ms\", ",
            "x.toml:7:8: rate: \"10ms\" is not a rate: its unit cannot be \"ms\"; write for example 100Mbit/s or 1G",
        ),
        ("[\"10ms\"]", "[]", "x.toml:8:7: rtt: it lists nothing"),
        (
            "[\"10ms\"]",
            "\"10ms\"",
            "x.toml:8:7: rtt: it must be a list, as [[rtt]] or [a, b] makes one",
        ),
        ("rtt = [\"10ms\"]", "", "x.toml:6:1: rtt: it is missing"),
        (
            "longest = \"30s\"",
            "",
            "x.toml:1:1: longest: it is missing",
        ),
        (
            "rtt = [\"10ms\"]",
            "rtt = [\"10ms\"]\nqueue = [\"0.1\"]",
            "x.toml:9:9: queue: 0.1 BDPs of 10 Mbit/s × 10 ms are 1.221 KiB, and one packet is 1.502 KiB; make it \
             longer",
        ),
        (
            "\"0.5\"",
            "\"0.1\"",
            "x.toml:9:10: window: 0.1 BDPs of 10 Mbit/s × 10 ms are 1.221 KiB; it must be from 4 KiB to below 2 GiB",
        ),
        (
            "congestion = [\"reno\", \"cubic\"]",
            "tcp_wmem = [\"1\"]",
            "x.toml:10:12: tcp_wmem: write one of window, tcp_rmem and tcp_wmem",
        ),
        (
            "streams = [4]",
            "stream = [4]",
            "x.toml:15:1: \"stream\" is not a key here; the keys are rate, rtt, queue, window, tcp_rmem, tcp_wmem, \
             loss, congestion, streams",
        ),
    ] {
        assert_eq!(stated(old, new), sentence);
    }
}

#[test]
fn lists_that_multiply_without_end_are_refused() {
    let many = vec!["\"1M\""; 200].join(", ");
    let text = GOOD.replace("\"10M\", \"100M\"", &many).replace(
        "[\"0.5\", \"2\"]",
        &format!("[{}]", vec!["50"; 60].join(", ")),
    );
    let error = ScenarioGrid::parse("x.toml", &text)
        .unwrap_err()
        .to_string();
    assert!(error.contains("more than 10000 cells"), "{error}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = ScenarioGrid::parse("x.toml", &text);
    }
}
