use super::*;
use crate::text::without_marks;
use fullpipe_record::{AdvertisedWindow, BurstRate, RoundTrips, SynReport};

fn report() -> CaptureReport {
    let size = ByteCount::new;
    let sender = FlowEnd {
        address: "[2001:db8:1234:5678:9abc:def0:1234:5678]:40000".to_owned(),
        packets: 12_347,
        data_packets: 12_345,
        syns: 1,
        unique_bytes: size(17_875_560),
        retransmitted_packets: 12,
        retransmitted_bytes: size(17_376),
        late_packets: 3,
        reordered_packets: 1,
        missing_bytes: size(2_896),
        mss: Some(size(1440)),
        window_scale: Some(7),
        sack_permitted: true,
        flight: size(130_320),
        rate: BitRate::from_mbps(25),
        bursts: Some(BurstRate {
            rate: BitRate::from_mbps(100),
            share: Ratio::new(0.6),
        }),
        rtt: Some(RoundTrips {
            samples: 6_000,
            least: Span::from_micros(40_100),
            mean: Span::from_micros(40_300),
            median: Span::from_micros(40_200),
            p90: Span::from_micros(41_000),
            most: Span::from_micros(80_000),
        }),
        ..FlowEnd::default()
    };
    let window = AdvertisedWindow {
        first: size(65_535),
        least: size(0),
        most: size(131_070),
        settled: size(131_070),
        settled_share: Ratio::new(0.98),
        zero: 2,
        is_unscaled: false,
    };
    let receiver = FlowEnd {
        address: "[2001:db8:1234:5678:9abc:def0:1234:9999]:5201".to_owned(),
        packets: 6_002,
        syns: 1,
        window: Some(window),
        ..FlowEnd::default()
    };
    let flow = FlowReport {
        number: 1,
        begin: Span::ZERO,
        duration: Span::from_secs(6),
        point: Some(CapturePoint::First),
        has_handshake: true,
        overhead: size(50),
        ends: [sender, receiver],
    };
    let notes = vec!["The last packet of the file is cut off; all before it were read.".to_owned()];
    CaptureReport {
        name: "big.pcap".to_owned(),
        flows: vec![flow.clone(), flow],
        notes,
        ..CaptureReport::default()
    }
}

#[test]
fn no_line_is_longer_than_a_terminal_even_with_long_addresses() {
    let text = without_marks(&capture_text(&report(), 1));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for part in [
        "2 connections",
        "1 with less data are left out (--top).",
        "at the sender, from the first SYN on",
        "pass the path at 100 Mbit/s (60 % of the data)",
        "settled at 128 KiB (98 % of the later half)",
        "closed in 2 packets",
        "2 after a loss before this point, 1 reordered",
        "2.828 KiB that arrived",
        "add 50 B to each packet",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn times_without_data_are_shown_by_what_they_waited_for_and_a_scale_that_is_not_known_is_said() {
    let mut report = report();
    report.flows.truncate(1);
    let [sender, receiver] = &mut report.flows[0].ends;
    sender.stalls = StallTimes {
        timeouts: Span::from_secs(256),
        timeout_count: 4,
        closed_window: Span::from_millis(2_500),
        no_data: Span::from_millis(20),
        ..StallTimes::default()
    };
    receiver.window = receiver.window.map(|window| AdvertisedWindow {
        is_unscaled: true,
        zero: 7,
        ..window
    });
    let text = without_marks(&capture_text(&report, 1));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let text = unwrapped(&text);
    let times = "sent nothing 256.0 s before 4 retransmissions by timeout, 2.5 s while the window was closed";
    assert!(
        text.contains(times) && !text.contains("nothing to send"),
        "{text}"
    );
    assert!(
        text.contains("of a scale that no SYN shows, closed in 7 packets"),
        "{text}"
    );
}

#[test]
fn options_that_were_cut_off_are_not_called_absent() {
    let syn = SynReport {
        sequence: 1,
        mss: None,
        window_scale: None,
        sack: false,
        timestamps: false,
        ecn: false,
        multipath: false,
        options_cut: true,
        window: ByteCount::ZERO,
        hops_left: 64,
        dscp: 0,
    };
    let end = FlowEnd {
        syns: 1,
        mss: Some(ByteCount::new(1460)),
        syn: Some(syn),
        ..FlowEnd::default()
    };
    assert_eq!(tcp_options(&end), "MSS 1460, the rest was cut off");
    assert_eq!(
        tcp_options(&FlowEnd { syn: None, ..end }),
        "MSS 1460, no scale"
    );
}

/// Returns a text without its breaks of lines.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn of_one_direction_only_what_it_shows_is_printed() {
    let shown = |edit: fn(&mut FlowReport)| {
        let mut report = report();
        report.flows.truncate(1);
        edit(&mut report.flows[0]);
        unwrapped(&without_marks(&capture_text(&report, 1)))
    };
    let data = shown(|flow| {
        flow.ends[1] = FlowEnd {
            address: flow.ends[1].address.clone(),
            ..FlowEnd::default()
        };
        flow.ends[0].flight = ByteCount::ZERO;
    });
    assert!(
        data.contains("sender's packets alone") && data.contains("receiver: not captured"),
        "{data}"
    );
    assert!(!data.contains("in flight"), "{data}");
    let acknowledgements = shown(|flow| {
        let (address, missing_bytes) = (flow.ends[0].address.clone(), ByteCount::new(5_000_000));
        flow.ends[0] = FlowEnd {
            address,
            missing_bytes,
            ..FlowEnd::default()
        };
        (flow.has_handshake, flow.point) = (false, None);
    });
    assert!(
        acknowledgements.contains("receiver's packets alone"),
        "{acknowledgements}"
    );
    assert!(
        acknowledgements.contains("that were acknowledged"),
        "{acknowledgements}"
    );
    assert!(
        ["in flight", "retransmitted", "not captured"]
            .iter()
            .all(|row| !acknowledgements.contains(row))
    );
}

#[test]
fn packets_that_offloads_made_are_shown_with_their_segments() {
    let mut report = report();
    let sender = &mut report.flows[0].ends[0];
    (sender.bytes, sender.segment_size, sender.largest) = (
        ByteCount::new(1448 * 32_962),
        ByteCount::new(1448),
        ByteCount::new(64_000),
    );
    sender.data_packets = 1_866;
    report.flows.truncate(1);
    let text = without_marks(&capture_text(&report, 1));
    assert!(
        unwrapped(&text).contains("in 1866 packets, which offloads made of 32962 segments"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn the_size_of_segments_is_inferred_where_no_syn_shows_it() {
    let mut report = report();
    for flow in &mut report.flows {
        (flow.ends[0].mss, flow.ends[0].segment_size) = (None, ByteCount::new(8_948));
    }
    assert!(without_marks(&capture_text(&report, 1)).contains("of 8948 B, as the packets show it"));
}

#[test]
fn an_empty_capture_is_stated_in_a_line() {
    let text = without_marks(&capture_text(
        &CaptureReport {
            name: "empty.pcap".to_owned(),
            ..CaptureReport::default()
        },
        10,
    ));
    assert_eq!(text.trim(), "empty.pcap: 0 connections, 0 B of data in 0 s");
}
