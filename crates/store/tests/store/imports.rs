//! Results of other programs, as these wrote them.

use fullpipe_record::{Direction, StoredDocument, StoredFacts};
use fullpipe_store::{NewDocument, read_import};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use jiff::Timestamp;

const TCP: &[u8] = include_bytes!("../files/iperf3-tcp.json");
const REVERSE: &[u8] = include_bytes!("../files/iperf3-reverse.json");
const SERVER: &[u8] = include_bytes!("../files/iperf3-server.json");
const BIDIR: &[u8] = include_bytes!("../files/iperf3-bidir.json");
const OLD_BIDIR: &[u8] = include_bytes!("../files/iperf3-3.12-bidir.json");
const OLD_BIDIR_SERVER: &[u8] = include_bytes!("../files/iperf3-3.12-bidir-server.json");
const OLD_UDP_BIDIR_SERVER: &[u8] = include_bytes!("../files/iperf3-3.12-udp-bidir-server.json");
const UDP: &[u8] = include_bytes!("../files/iperf3-udp.json");
const STREAM: &[u8] = include_bytes!("../files/iperf3-stream.jsonl");
const STREAM_FULL: &[u8] = include_bytes!("../files/iperf3-stream-full.jsonl");
const REFUSED: &[u8] = include_bytes!("../files/iperf3-refused.json");
const FLENT: &[u8] = include_bytes!("../files/upload.flent.gz");
const THROUGHPUT: &[u8] = include_bytes!("../files/pscheduler-throughput.json");
const RTT: &[u8] = include_bytes!("../files/pscheduler-rtt.json");

fn read(bytes: &[u8]) -> Vec<NewDocument> {
    read_import(bytes, Timestamp::UNIX_EPOCH).unwrap()
}

/// Returns the head of the only document, whose body must be the whole file.
fn only(bytes: &[u8]) -> StoredDocument {
    let mut documents = read(bytes);
    assert_eq!(documents.len(), 1);
    let only = documents.remove(0);
    assert_eq!(
        only.body.trim_ascii(),
        bytes.trim_ascii(),
        "the original stays as it was"
    );
    only.head
}

fn is_about(rate: Option<BitRate>, mbps: f64) -> bool {
    rate.is_some_and(|rate| (rate.as_mbps() / mbps - 1.0).abs() < 0.15)
}

#[test]
fn a_test_of_iperf3() {
    let head = only(TCP);
    assert_eq!(
        (head.kind.as_str(), head.host.as_str(), head.peer.as_str()),
        ("foreign/iperf3", "alpha", "127.0.0.1")
    );
    assert_eq!(head.path_key, "alpha → 127.0.0.1");
    assert!(
        head.request_key
            .starts_with("tcp upload, 2 streams, 1 s, target_bitrate=100000000"),
        "{head:?}"
    );
    assert!(
        head.started.starts_with("20") && head.program.starts_with("iperf 3."),
        "{head:?}"
    );
    let [facts] = &head.facts[..] else {
        panic!("{head:?}")
    };
    assert!(is_about(facts.rate, 200.0), "{facts:?}");
    assert!(
        facts.valid && facts.direction == Direction::Upload && facts.streams == Some(2),
        "{facts:?}"
    );
    assert_eq!(facts.buffer.map(ByteCount::get), Some(256 << 10));
    assert!(
        facts.retransmits.is_some() && facts.window.is_some() && facts.congestion.is_some(),
        "{facts:?}"
    );
    assert!(
        facts
            .rtt_loaded
            .is_some_and(|rtt| rtt < Span::from_millis(5)),
        "{facts:?}"
    );
    assert!(
        facts.cpu_sender.is_some_and(|share| share.get() < 1.0) && facts.cpu_receiver.is_some(),
        "{facts:?}"
    );
    assert_eq!(facts.loss, None);
}

#[test]
fn a_reverse_test_is_a_download_at_both_ends() {
    for file in [REVERSE, SERVER] {
        let head = only(file);
        let [facts] = &head.facts[..] else {
            panic!("{head:?}")
        };
        assert_eq!(facts.direction, Direction::Download);
        assert!(is_about(facts.rate, 50.0) && facts.valid, "{facts:?}");
    }
    let (client, server) = (only(REVERSE).facts.remove(0), only(SERVER).facts.remove(0));
    assert_eq!(
        client.cpu_sender, server.cpu_sender,
        "the server sent, and both state its processor time"
    );
    // Only the sender's kernel estimates the round-trip time.
    assert!(client.rtt_loaded.is_none() && server.rtt_loaded.is_some());
}

#[test]
fn a_test_both_ways_has_two_directions() {
    let head = only(BIDIR);
    let directions: Vec<Direction> = head.facts.iter().map(|facts| facts.direction).collect();
    assert_eq!(directions, [Direction::Upload, Direction::Download]);
    assert!(
        head.facts
            .iter()
            .all(|facts| facts.valid && is_about(facts.rate, 20.0)),
        "{head:?}"
    );
}

#[test]
fn a_test_both_ways_of_a_version_that_does_not_state_it_in_the_request() {
    let head = only(OLD_BIDIR);
    assert!(
        head.program == "iperf 3.12" && head.request_key.starts_with("tcp both ways, 1 stream"),
        "{head:?}"
    );
    let directions: Vec<Direction> = head.facts.iter().map(|facts| facts.direction).collect();
    assert_eq!(directions, [Direction::Upload, Direction::Download]);
    assert!(
        head.facts
            .iter()
            .all(|facts| facts.valid && is_about(facts.rate, 1.0)),
        "{head:?}"
    );
}

/// Its client received 131 072 bytes, and so did the server, over one stream each way.
#[test]
fn each_end_of_a_test_both_ways_knows_the_figures_of_what_it_sent() {
    let sent = |head: &StoredDocument, end: usize| head.facts[end].sent.map(ByteCount::get);
    let (client, server) = (only(OLD_BIDIR), only(OLD_BIDIR_SERVER));
    for (head, sends) in [(&client, 0), (&server, 1)] {
        let [own, other] = [&head.facts[sends], &head.facts[1 - sends]];
        assert!(own.rtt_loaded.is_some() && own.window.is_some(), "{own:?}");
        assert_eq!((other.rtt_loaded, other.window), (None, None), "{other:?}");
        assert_eq!(
            [sent(head, 0), sent(head, 1)],
            [Some(131_072); 2],
            "a server states no bytes for an upload"
        );
    }
}

#[test]
fn a_server_that_sends_knows_no_loss() {
    let facts = only(OLD_UDP_BIDIR_SERVER).facts;
    assert_eq!([facts[0].loss, facts[1].loss], [Some(Ratio::ZERO), None]);
}

#[test]
fn datagrams_have_a_loss() {
    let head = only(UDP);
    assert!(
        head.request_key.starts_with("udp upload, 1 stream"),
        "{head:?}"
    );
    assert!(is_about(head.facts[0].rate, 5.0), "{head:?}");
    assert_eq!(head.facts[0].loss.map(Ratio::get), Some(0.0));
}

#[test]
fn datagrams_of_an_old_iperf3_have_one_sum_that_was_sent() {
    let text = String::from_utf8(UDP.to_vec())
        .unwrap()
        .replace("sum_received", "old")
        .replace("sum_sent", "older");
    let text = text.replace("\"lost_percent\":\t0", "\"lost_percent\":\t50");
    assert!(is_about(only(text.as_bytes()).facts[0].rate, 2.5));
}

#[test]
fn a_stream_of_events_is_the_same_as_one_object() {
    let head = only(STREAM);
    assert_eq!(head.kind, "foreign/iperf3");
    assert!(
        is_about(head.facts[0].rate, 100.0) && head.facts[0].valid,
        "{head:?}"
    );
    // One that was cut off has no end, and no rate.
    let start = STREAM.split(|byte| *byte == b'\n').next().unwrap();
    assert!(!only(start).facts[0].valid);
}

#[test]
fn a_log_that_was_appended_to_has_a_document_for_each_test() {
    let log = [TCP, REVERSE, b"\n\n", UDP].concat();
    let documents = read(&log);
    assert_eq!(documents.len(), 3);
    assert_eq!(documents[1].body, REVERSE.trim_ascii());
    assert_eq!(read(&[STREAM, STREAM].concat()).len(), 2);
}

#[test]
fn a_stream_with_its_full_output_is_one_document() {
    let head = only(STREAM_FULL);
    assert_eq!(head.facts[0].rate, Some(BitRate::from_mbps(24)));
    assert_eq!(
        read(&[STREAM_FULL, STREAM, TCP, STREAM_FULL].concat()).len(),
        4
    );
    // An end that is missing among the events stands in the whole.
    let text = String::from_utf8(STREAM_FULL.to_vec()).unwrap();
    let without_end: String = text
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("{\"event\": \"end\""))
        .collect();
    assert_ne!(without_end, text);
    assert_eq!(only(without_end.as_bytes()).facts, head.facts);
}

#[test]
fn a_document_is_the_same_in_every_encoding() {
    for file in [TCP, STREAM, THROUGHPUT] {
        let (text, plain) = (std::str::from_utf8(file).unwrap(), only(file));
        let units = |mark: &str, order: fn(u16) -> [u8; 2]| {
            format!("{mark}{text}")
                .encode_utf16()
                .flat_map(order)
                .collect::<Vec<u8>>()
        };
        for encoded in [
            format!("\u{feff}{text}").into_bytes(),
            units("\u{feff}", u16::to_le_bytes),
            units("\u{feff}", u16::to_be_bytes),
            units("", u16::to_le_bytes),
        ] {
            assert_eq!(only(&encoded), plain);
        }
        assert_eq!(read(&format!("\u{feff}{text}{text}").into_bytes()).len(), 2);
    }
}

#[test]
fn what_a_shell_left_around_a_document_is_passed_over() {
    let around: &[&[u8]] = &[
        b"$ iperf3 -c beta -J\nwarning: \"UDP block size\n",
        TCP,
        b"\niperf3: interrupt - [exiting]\n",
        UDP,
        b"done",
    ];
    let documents = read(&around.concat());
    assert_eq!(
        documents
            .iter()
            .map(|one| &one.body[..])
            .collect::<Vec<_>>(),
        [TCP.trim_ascii(), UDP.trim_ascii()]
    );
    assert_eq!(documents[0].head, only(TCP));
}

#[test]
fn numbers_that_json_does_not_have_are_not_known() {
    let text = String::from_utf8(UDP.to_vec()).unwrap();
    let lost = text.rfind("\"lost_percent\":").unwrap() + "\"lost_percent\":".len();
    let end = lost + text[lost..].find(['\n', ',', '}']).unwrap();
    for number in ["-nan", "nan", "inf"] {
        let head = only(format!("{}{number}{}", &text[..lost], &text[end..]).as_bytes());
        assert!(
            head.facts[0].loss.is_none() && head.facts[0].rate.is_some(),
            "{number}: {head:?}"
        );
    }
}

/// Returns the facts of data of flent with these series at these places.
fn flent(places: &str, series: &str) -> StoredFacts {
    let data = format!(
        "{{\"version\":4,\"metadata\":{{\"NAME\":\"rtt_fair_up\",\"LENGTH\":10,\"TIME\":\"2026-01-01T00:00:00Z\",\
         \"SERIES_META\":{{\"TCP upload loss\":{{\"UNITS\":\"packets\"}}}}}},\"x_values\":[{places}],\
         \"results\":{{{series}}}}}"
    );
    only(data.as_bytes()).facts.remove(0)
}

#[test]
fn series_that_flent_computed_are_no_streams() {
    let facts = flent(
        "0,1",
        "\"TCP upload BE1\":[6,6],\"TCP upload BE2\":[3,3],\"TCP upload avg\":[4.5,4.5],\"TCP upload sum\":[9,9],\
         \"TCP upload fairness\":[0.9,0.9],\"TCP upload::tcp_cwnd\":[80,80],\"TCP upload loss\":[7,7]",
    );
    assert_eq!(
        (facts.streams, facts.rate),
        (Some(2), Some(BitRate::from_mbps(9)))
    );
}

#[test]
fn a_sparse_series_of_flent_is_weighed_by_time() {
    // 10 Mbit/s for two seconds, then 1 Mbit/s for eight, of which it reports once.
    let places = "0,1,2,3,4,5,6,7,8,9,10";
    let facts = flent(
        places,
        "\"TCP upload\":[null,10,10,null,null,null,null,null,null,null,1]",
    );
    assert_eq!(facts.rate, Some(BitRate::from_bps(2_800_000)));
    let even = flent("0,0.5,1,1.5", "\"TCP upload\":[null,8,null,8]");
    assert_eq!(even.rate, Some(BitRate::from_mbps(8)));
    assert_eq!(
        flent("", "\"TCP upload\":[5]").rate,
        Some(BitRate::from_mbps(5))
    );
}

#[test]
fn data_of_flent() {
    let head = only(FLENT);
    assert_eq!(
        (head.kind.as_str(), head.host.as_str(), head.peer.as_str()),
        ("foreign/flent", "alpha", "beta.example.org")
    );
    assert_eq!(
        (head.started.as_str(), head.request_key.as_str()),
        ("2026-03-12T10:00:00.25Z", "tcp_upload, 5 s, flent")
    );
    let expected = StoredFacts {
        rate: Some(BitRate::from_bps(83_800_000)),
        rtt_idle: Some(Span::from_millis(20)),
        rtt_loaded: Some(Span::from_millis(45)),
        rtt_loaded_p99: Some(Span::from_millis(46)),
        valid: true,
        streams: Some(1),
        duration: Some(Span::from_secs(5)),
        ..StoredFacts::default()
    };
    assert_eq!(head.facts, [expected]);
}

#[test]
fn runs_of_pscheduler() {
    let head = only(THROUGHPUT);
    assert_eq!(
        (head.host.as_str(), head.peer.as_str()),
        ("ps1.example.org", "ps2.example.org")
    );
    assert_eq!(
        head.request_key,
        "throughput, duration=PT10S, parallel=4, pscheduler"
    );
    let facts = &head.facts[0];
    assert_eq!(facts.rate, Some(BitRate::from_bps(941_000_001)));
    assert_eq!(
        (
            facts.streams,
            facts.retransmits.map(SegCount::get),
            facts.valid
        ),
        (Some(4), Some(12), true)
    );
    assert_eq!(facts.duration, Some(Span::from_secs(10)));
    let head = only(RTT);
    assert_eq!(
        (head.peer.as_str(), head.address.as_str()),
        ("2001:db8::2", "2001:db8::2")
    );
    assert_eq!(head.facts[0].rtt_idle, Some(Span::from_micros(31_200)));
    assert_eq!(head.facts[0].loss.map(Ratio::get), Some(0.1));
}

#[test]
fn a_malformed_file_is_refused_in_one_sentence() {
    let refused = |bytes: &[u8], part: &str| {
        let why = read_import(bytes, Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(why.contains(part) && !why.contains('\n'), "{why}");
    };
    refused(b"", "empty");
    refused(b"text", "not JSON");
    refused(&TCP[..TCP.len() / 2], "not JSON: EOF");
    refused(b"{\"a\":1}", "not a document of fullpipe");
    refused(b"[]", "JSON, but not");
    refused(b"1 2 3", "JSON, but not");
    refused(REFUSED, "Connection refused");
    refused(b"{\"event\":\"interval\",\"data\":{}}", "not the start");
    refused(&FLENT[..FLENT.len() - 9], "compression (gzip) is damaged");
    refused(
        b"{\"schema\":99,\"kind\":\"measurement\"}",
        "newer fullpipe",
    );
    refused(
        b"{\"schema\":2,\"kind\":\"measurement\"}",
        "no document of fullpipe",
    );
    refused(
        b"{\"schema\":2,\"kind\":\"table\",\"table\":[]}",
        "no measurement",
    );
    refused(b"{\"x_values\":[],\"results\":{}}", "no start time");
    refused(b"{\"test\":{\"type\":\"rtt\"}}", "no start time");
    refused(
        &[STREAM, b"{\"a\":1}"].concat(),
        "not a document of fullpipe",
    );
    refused(&[0xff, 0xfe, b'{'], "damaged text in UTF-16");
    refused("[".repeat(100_000).as_bytes(), "not JSON: EOF");
    refused(
        ("[".repeat(100_000) + &"]".repeat(100_000)).as_bytes(),
        "not JSON: recursion",
    );
}

#[test]
fn a_name_of_another_host_commands_no_terminal() {
    let text = String::from_utf8(TCP.to_vec()).unwrap();
    let head = only(
        text.replace("\"Linux alpha", "\"Linux \\u001b[2Jalpha")
            .as_bytes(),
    );
    assert_eq!(head.host, "\\u{1b}[2Jalpha");
    let long = text.replace("\"Linux alpha", &format!("\"Linux {}", "a".repeat(9999)));
    assert_eq!(only(long.as_bytes()).host.len(), 200);
}
