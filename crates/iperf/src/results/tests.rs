use super::*;
use fullpipe_record::{Sample, TcpInfo};
use proptest::prelude::*;

const RECEIVER_3_12: &str = concat!(
    r#"{"cpu_util_total":99.391625559072267,"cpu_util_user":0.19480910617488059,"#,
    r#""cpu_util_system":99.1968164528974,"sender_has_retransmits":18446744073709551615,"#,
    r#""congestion_used":"reno","streams":[{"id":1,"bytes":672240628,"retransmits":18446744073709551615,"#,
    r#""jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":0.999942},"#,
    r#"{"id":3,"bytes":662088788,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"#,
    r#""start_time":0,"end_time":0.999949}]}"#
);

fn read(json: &str) -> Result<TestResults, TestError> {
    TestResults::decode_json(json.as_bytes(), 2)
}

fn stream(stream: u16, bytes: u64, retransmits: Option<u64>) -> StreamResult {
    StreamResult {
        stream,
        bytes: ByteCount::new(bytes),
        retransmits: retransmits.map(SegCount::new),
        from: Span::ZERO,
        to: Span::from_millis(1500),
        datagrams: DatagramCounts::default(),
    }
}

fn datagrams(packets: u64, lost: u64, omitted: Option<(u64, u64)>) -> DatagramCounts {
    DatagramCounts {
        total: DatagramCount { packets, lost },
        omitted: omitted.map(|(packets, lost)| DatagramCount { packets, lost }),
        jitter: Span::from_micros(12),
    }
}

#[test]
fn a_recorded_receiver_of_3_12_has_no_retransmits() {
    let results = read(RECEIVER_3_12).unwrap();
    assert_eq!(
        results
            .streams
            .iter()
            .map(|s| (s.stream, s.bytes.get()))
            .collect::<Vec<_>>(),
        [(0, 672_240_628), (1, 662_088_788)]
    );
    assert!(results.streams.iter().all(|s| s.retransmits.is_none()));
    assert_eq!(results.streams[1].to, Span::from_micros(999_949));
    assert_eq!(results.congestion.as_deref(), Some("reno"));
    assert!((results.cpu.system.as_percent() - 99.196_816).abs() < 1e-6);
}

#[test]
fn a_recorded_sender_of_3_12_has_some() {
    let results = read(concat!(
            r#"{"cpu_util_total":96.8240859425705,"cpu_util_user":1.8799698333089592,"#,
            r#""cpu_util_system":94.944116109261529,"sender_has_retransmits":1,"congestion_used":"bbr","#,
            r#""streams":[{"id":1,"bytes":3221749760,"retransmits":25,"jitter":0,"errors":0,"packets":0,"#,
            r#""start_time":0,"end_time":1.000117}]}"#
        ))
        .unwrap();
    assert_eq!(results.streams[0].retransmits, Some(SegCount::new(25)));
}

#[test]
fn escape_codes_are_no_congestion_control() {
    let congestion = |name: &str| {
        let json = format!(r#"{{"congestion_used":"{name}","streams":[]}}"#);
        TestResults::decode_json(json.as_bytes(), 1)
            .unwrap()
            .congestion
    };
    assert_eq!(congestion(r"\u001b[2Jcubic"), None);
    assert_eq!(congestion("cubic").as_deref(), Some("cubic"));
}

#[test]
fn results_of_3_1_lack_times_and_congestion_control() {
    let results = read(
        r#"{"cpu_util_total":1,"cpu_util_user":0,"cpu_util_system":1,"sender_has_retransmits":-1,
            "streams":[{"id":1,"bytes":5,"retransmits":-1,"jitter":0,"errors":0,"packets":0}]}"#,
    )
    .unwrap();
    assert_eq!(
        (results.streams[0].from, results.streams[0].to),
        (Span::ZERO, Span::ZERO)
    );
    assert_eq!(results.congestion, None);
}

#[test]
fn results_are_sent_with_the_keys_and_ids_of_iperf3() {
    let results = TestResults {
        cpu: Cpu {
            user: Ratio::new(0.25),
            system: Ratio::new(0.5),
        },
        congestion: Some("cubic".to_owned()),
        streams: vec![stream(0, 7, Some(3)), stream(1, 8, None)],
        ..TestResults::default()
    };
    assert_eq!(
        std::str::from_utf8(&results.encode_message(true)[4..]).unwrap(),
        concat!(
            r#"{"cpu_util_total":75.0,"cpu_util_user":25.0,"cpu_util_system":50.0,"sender_has_retransmits":1,"#,
            r#""congestion_used":"cubic","streams":[{"id":1,"bytes":7,"retransmits":3,"jitter":0.0,"errors":0,"#,
            r#""omitted_errors":0,"packets":0,"omitted_packets":0,"start_time":0.0,"end_time":1.5},"#,
            r#"{"id":3,"bytes":8,"retransmits":-1,"jitter":0.0,"errors":0,"omitted_errors":0,"packets":0,"#,
            r#""omitted_packets":0,"start_time":0.0,"end_time":1.5}]}"#
        )
    );
}

#[test]
fn a_sender_says_whether_it_counts_retransmissions() {
    let said = |sends, retransmits| {
        let results = TestResults {
            streams: vec![stream(0, 7, retransmits)],
            ..TestResults::default()
        };
        let json: serde_json::Value =
            serde_json::from_slice(&results.encode_message(sends)[4..]).unwrap();
        json["sender_has_retransmits"].as_i64()
    };
    // As recorded from 3.12: a sender of TCP, one of UDP, and a receiver.
    assert_eq!(
        (said(true, Some(0)), said(true, None), said(false, None)),
        (Some(1), Some(0), Some(-1))
    );
}

#[test]
fn datagrams_are_sent_as_iperf3_counts_them() {
    let seen = Datagrams {
        received: 90,
        lost: 10,
        lost_like_iperf3: 7,
        jitter: Span::from_micros(12),
        ..Datagrams::default()
    };
    let omitted = Datagrams {
        received: 19,
        lost: 1,
        lost_like_iperf3: 1,
        ..Datagrams::default()
    };
    let counts = DatagramCounts::from_receiver(&seen, &omitted);
    assert_eq!(counts, datagrams(100, 7, Some((20, 1))));
    assert_eq!(
        counts.counted_datagrams(),
        DatagramCount {
            packets: 80,
            lost: 6
        }
    );
    let results = TestResults {
        streams: vec![StreamResult {
            datagrams: counts,
            ..stream(0, 7, None)
        }],
        ..TestResults::default()
    };
    let json = String::from_utf8(results.encode_message(true)[4..].to_vec()).unwrap();
    let keys =
        r#""jitter":0.000012,"errors":7,"omitted_errors":1,"packets":100,"omitted_packets":20,"#;
    assert!(json.contains(keys), "{json}");
}

#[test]
fn what_iperf3_counted_of_datagrams_is_read() {
    let stated = |keys: &str| {
        let json = format!(r#"{{"streams":[{{"id":1,"bytes":5,"retransmits":-1,{keys}}}]}}"#);
        read(&json).unwrap().streams[0].datagrams
    };
    let common = r#""jitter":1.2e-5,"errors":7,"packets":100"#;
    assert_eq!(stated(common), datagrams(100, 7, None));
    assert_eq!(
        stated(&format!(r#"{common},"omitted_errors":1"#)),
        datagrams(100, 7, None)
    );
    assert_eq!(
        stated(&format!(
            r#"{common},"omitted_errors":-1,"omitted_packets":3"#
        )),
        datagrams(100, 7, None)
    );
    let whole = stated(&format!(
        r#"{common},"omitted_errors":1,"omitted_packets":20"#
    ));
    assert_eq!(whole, datagrams(100, 7, Some((20, 1))));
    let seen = whole.as_seen();
    assert_eq!(
        (seen.received, seen.lost, seen.lost_like_iperf3),
        (74, 6, 6)
    );
    // Counters that cannot be, and more lost than sent.
    let none =
        stated(r#""jitter":-1,"errors":18446744073709551615,"packets":18446744073709551615"#);
    assert_eq!(
        (none.total, none.jitter),
        (DatagramCount::default(), Span::ZERO)
    );
    assert_eq!(
        stated(r#""errors":9,"packets":2,"omitted_errors":1,"omitted_packets":3"#)
            .as_seen()
            .received,
        0
    );
}

#[test]
fn the_servers_output_arrives_as_text_or_json() {
    for output in [
        ServerOutput::Text("[  5] 0.00-1.00 sec\n".to_owned()),
        ServerOutput::Json("{\"start\": {\"version\": \"iperf 3.12\"}}".to_owned()),
    ] {
        let sent = TestResults {
            server_output: Some(output.clone()),
            ..TestResults::default()
        };
        let received = TestResults::decode_json(&sent.encode_message(true)[4..], 1).unwrap();
        assert_eq!(received.server_output, Some(output));
    }
    let broken = TestResults {
        server_output: Some(ServerOutput::Json("{".to_owned())),
        ..TestResults::default()
    };
    let received = TestResults::decode_json(&broken.encode_message(true)[4..], 1).unwrap();
    assert_eq!(
        received.server_output,
        Some(ServerOutput::Text("{".to_owned()))
    );
    let long = TestResults {
        server_output: Some(ServerOutput::Text("x".repeat(17 << 20))),
        ..TestResults::default()
    };
    assert_eq!(
        TestResults::decode_json(&long.encode_message(true)[4..], 1).unwrap(),
        TestResults::default()
    );
}

#[test]
fn a_malformed_extension_is_no_error() {
    for extension in ["7", "{\"samples\":7}", "null", "[]", "{\"samples\":[{}]}"] {
        let results = read(&format!("{{\"streams\":[],\"x_fullpipe\":{extension}}}")).unwrap();
        assert_eq!(results.report, None, "{extension}");
    }
}

#[test]
fn useless_streams_are_malformed() {
    for streams in [
        r#"[{"bytes":1}]"#,
        r#"[{"id":1}]"#,
        r#"[{"id":1,"bytes":-5}]"#,
        r#"[{"id":1,"bytes":"5"}]"#,
        r#"[{"id":2,"bytes":1}]"#,
        r#"[{"id":4,"bytes":1}]"#,
        r#"[{"id":-1,"bytes":1}]"#,
        r#"[{"id":1,"bytes":1},{"id":1,"bytes":2}]"#,
        "7",
        "{}",
    ] {
        let result = read(&format!("{{\"streams\":{streams}}}"));
        assert!(
            matches!(result, Err(TestError::Malformed { .. })),
            "{streams}: {result:?}"
        );
    }
    let many = format!("{{\"streams\":[{}]}}", vec!["{}"; 1_000_000].join(","));
    assert!(
        read(&many)
            .unwrap_err()
            .to_string()
            .contains("more streams")
    );
}

#[test]
fn a_report_that_is_too_long_goes_without_its_samples() {
    let sample = Sample {
        at: Span::from_millis(1),
        stream: 0,
        bytes: ByteCount::new(1),
        tcp: TcpInfo::default(),
        memory: None,
    };
    let report = |samples| EndReport {
        cpu: Some(Cpu::default()),
        samples: vec![sample.clone(); samples],
        ..EndReport::default()
    };
    for (samples, kept) in [(10, 10), (20_000, 0)] {
        let sent = TestResults {
            report: Some(Box::new(report(samples))),
            ..TestResults::default()
        };
        let bytes = sent.encode_message(true);
        assert!(bytes.len() <= 4 + (16 << 20));
        let received = TestResults::decode_json(&bytes[4..], 1).unwrap();
        assert_eq!(received.report.as_deref(), Some(&report(kept)));
    }
}

proptest! {
    #[test]
    fn results_arrive_as_they_were_sent(
        counts in prop::collection::vec((0..1_u64 << 60, prop::option::of(0..1_u64 << 40)), 0..=256),
        omitted in prop::option::of((0..1_u64 << 40, 0..1_u64 << 40)),
    ) {
        let stream_of = |(n, (bytes, again)): (u16, (u64, Option<u64>))| StreamResult {
            datagrams: datagrams(bytes, again.unwrap_or(0), omitted),
            ..stream(n, bytes, again)
        };
        let streams = (0..).zip(counts).map(stream_of).collect();
        let sent = TestResults { streams, congestion: Some("bbr".to_owned()), ..TestResults::default() };
        prop_assert_eq!(TestResults::decode_json(&sent.encode_message(true)[4..], 256).unwrap(), sent);
    }

    #[test]
    fn any_change_of_a_message_is_read_or_refused(at in 0..RECEIVER_3_12.len(), byte in any::<u8>()) {
        let mut bytes = RECEIVER_3_12.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = TestResults::decode_json(&bytes, 2);
    }
}
