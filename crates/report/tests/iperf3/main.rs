//! iperf3's output of invented tests, kept as snapshots.

use fullpipe_record::{
    ConnectedTest, Cpu, Datagrams, Direction, EndReport, Interval, Measurement, Peer, Request,
    RttReport, SocketReadback, StreamInterval, StreamSummary, Summary, TcpInfo, Transport,
    Validity,
};
use fullpipe_report::iperf3::{
    JsonOutput, RateUnit, TestHeader, TestRole, TextOptions, TextOutput, greeting_lines,
    listening_line,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

#[test]
fn tcp_both_ways_over_two_streams() {
    let request = Request {
        direction: Direction::Both,
        streams: 2,
        omit: Span::from_secs(1),
        ..request()
    };
    insta::assert_snapshot!("tcp_client", text(TestRole::Client, true, &request));
    insta::assert_snapshot!("tcp_server", text(TestRole::Server, true, &request));
    insta::assert_snapshot!("tcp_client_json", json(TestRole::Client, &request));
}

#[test]
fn udp_with_losses() {
    let request = Request {
        transport: Transport::Udp,
        direction: Direction::Both,
        streams: 2,
        rate: Some(BitRate::from_mbps(10)),
        title: Some("a title".to_owned()),
        extra_data: Some("a text".to_owned()),
        ..request()
    };
    insta::assert_snapshot!("udp_client", text(TestRole::Client, false, &request));
    insta::assert_snapshot!("udp_server", text(TestRole::Server, false, &request));
    insta::assert_snapshot!("udp_client_json", json(TestRole::Client, &request));
}

#[test]
fn events_are_one_line_each_and_say_what_the_document_says() {
    let request = Request {
        direction: Direction::Both,
        ..request()
    };
    let (mut events, mut document) = (
        fresh(TestRole::Client, &request),
        fresh(TestRole::Client, &request),
    );
    let mut lines = vec![events.add_connections(&test_header(), &connections(&request))];
    document.add_connections(&test_header(), &connections(&request));
    for interval in intervals(&request) {
        lines.extend(events.interval_event(&interval));
        document.add_interval(&interval);
    }
    lines.push(events.add_results(&seen(&request, TestRole::Client)));
    document.add_results(&seen(&request, TestRole::Client));
    let lines: Vec<serde_json::Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let document: serde_json::Value = serde_json::from_str(&document.document_text()).unwrap();
    let names: Vec<&str> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["start", "interval", "interval", "end"]);
    assert_eq!(lines[0]["data"], document["start"]);
    assert_eq!(lines[1]["data"], document["intervals"][0]);
    assert_eq!(lines[3]["data"], document["end"]);
}

#[test]
fn a_server_that_receives_states_no_figures_of_the_sender() {
    let mut seen = seen(&request(), TestRole::Server);
    seen.streams[0].retransmits = None;
    let mut json = fresh(TestRole::Server, &request());
    json.add_connections(&test_header(), &connections(&request()));
    let event: serde_json::Value = serde_json::from_str(&json.add_results(&seen)).unwrap();
    let [sum, sender] = [
        &event["data"]["sum_sent"],
        &event["data"]["streams"][0]["sender"],
    ];
    for figure in ["retransmits", "max_snd_cwnd", "mean_rtt"] {
        assert!(
            sum.get(figure).is_none() && sender.get(figure).is_none(),
            "{event}"
        );
    }
    assert_eq!(
        (sender["socket"].as_u64(), sender["sender"].as_bool()),
        (Some(5), Some(false))
    );
}

#[test]
fn a_test_that_never_began_has_a_start_and_an_error() {
    let mut json = fresh(TestRole::Client, &request());
    assert_eq!(
        json.add_failure("no luck"),
        "{\"event\":\"error\",\"data\":\"no luck\"}\n"
    );
    insta::assert_snapshot!(json.document_text());
}

#[test]
fn output_of_a_server_is_kept_as_what_it_is() {
    let mut json = fresh(TestRole::Client, &request());
    assert_eq!(
        json.server_output("a line\n"),
        "{\"event\":\"server_output_text\",\"data\":\"a line\\n\"}\n"
    );
    assert_eq!(
        json.server_output("{\"a\":\n1}"),
        "{\"event\":\"server_output_json\",\"data\":{\"a\": 1}}\n"
    );
    let document: serde_json::Value = serde_json::from_str(&json.document_text()).unwrap();
    assert_eq!(document["server_output_text"], "a line\n");
    assert_eq!(document["server_output_json"]["a"], 1);
}

#[test]
fn a_rest_in_which_nothing_moved_is_left_out() {
    let request = request();
    let rest = |bytes: u64, millis: u64| Interval {
        from: Span::from_secs(2),
        to: Span::from_millis(2_000 + millis),
        bytes: ByteCount::new(bytes),
        ..interval(&request, 2, Direction::Upload)
    };
    for (bytes, millis, is_said) in [(0, 99, false), (0, 100, true), (1, 1, true)] {
        let options = TextOptions {
            role: TestRole::Server,
            unit: RateUnit::Bits,
            verbose: false,
        };
        let mut text = TextOutput::new(options, request.clone());
        assert_eq!(
            !text.interval_lines(&rest(bytes, millis)).is_empty(),
            is_said,
            "{bytes} bytes in {millis} ms"
        );
        let mut json = fresh(TestRole::Server, &request);
        assert_eq!(
            json.add_interval(&rest(bytes, millis)).is_some(),
            is_said,
            "{bytes} bytes in {millis} ms"
        );
    }
}

#[test]
fn numbers_of_a_hostile_peer_are_printed_and_no_more() {
    let request = Request {
        transport: Transport::Udp,
        ..request()
    };
    let worst = Datagrams {
        received: u64::MAX,
        lost: u64::MAX,
        lost_like_iperf3: u64::MAX,
        out_of_order_like_iperf3: u64::MAX,
        jitter: Span::MAX,
        ..Datagrams::default()
    };
    let mut seen = seen(&request, TestRole::Client);
    for stream in &mut seen.streams {
        stream.sent = ByteCount::new(u64::MAX);
        stream.received = ByteCount::new(u64::MAX);
        stream.datagrams_sent = Some(u64::MAX);
        stream.datagrams = Some(worst);
    }
    let options = TextOptions {
        role: TestRole::Client,
        unit: RateUnit::Bits,
        verbose: true,
    };
    assert!(
        TextOutput::new(options, request.clone())
            .result_lines(&seen)
            .contains("18446744073709551615/18446744073709551615 (1e+02%)")
    );
    fresh(TestRole::Client, &request).add_results(&seen);
    let printed = TextOutput::new(options, request).server_output("\u{1b}[2J\ta line\n");
    assert_eq!(printed, "\nServer output:\n\u{fffd}[2J\ta line\n\n");
}

fn text(role: TestRole, verbose: bool, request: &Request) -> String {
    let mut text = TextOutput::new(
        TextOptions {
            role,
            unit: RateUnit::Bits,
            verbose,
        },
        request.clone(),
    );
    let mut all = if verbose {
        greeting_lines(
            &test_header(),
            request
                .title
                .as_deref()
                .filter(|_| role == TestRole::Client),
        )
    } else {
        String::new()
    };
    if role == TestRole::Server {
        all += &listening_line(5201, 1);
    }
    all += &text.connection_lines(&test_header(), &connections(request));
    for interval in intervals(request) {
        all += &text.interval_lines(&interval);
    }
    all += &text.result_lines(&seen(request, role));
    if role == TestRole::Client {
        all += &text.server_output("what the server printed\n");
        all += &text.done_line();
    }
    // A snapshot would lose the spaces at the ends of lines, which are iperf3's too.
    all.replace('\n', "|\n")
}

fn json(role: TestRole, request: &Request) -> String {
    let mut json = fresh(role, request);
    json.add_connections(&test_header(), &connections(request));
    for interval in intervals(request) {
        json.add_interval(&interval);
    }
    json.add_results(&seen(request, role));
    json.document_text()
}

fn fresh(role: TestRole, request: &Request) -> JsonOutput {
    JsonOutput::new(role, request.clone(), &test_header())
}

fn request() -> Request {
    Request {
        duration: Span::from_secs(2),
        ..Request::default()
    }
}

fn test_header() -> TestHeader {
    TestHeader {
        version: "iperf 3.12 (fullpipe 1.2.3)".to_owned(),
        system: "Linux host 6.18.0 x86_64".to_owned(),
        at: Span::from_secs(1_735_787_045),
        host: "192.0.2.1".to_owned(),
        port: 5201,
    }
}

fn connections(request: &Request) -> ConnectedTest {
    let socket = |stream: u16| SocketReadback {
        stream,
        sndbuf: ByteCount::new(16_384),
        rcvbuf: ByteCount::new(131_072),
        congestion: "cubic".to_owned(),
        local: format!("[2001:db8::2]:{}", 40_000 + stream),
        remote: "192.0.2.1:5201".to_owned(),
        handshake: None,
        syn_quotes: Vec::new(),
    };
    ConnectedTest {
        request: request.clone(),
        cookie: "abcdefghijklmnopqrstuvwxyz2345672345".to_owned(),
        mss: Some(ByteCount::new(1448)),
        sockets: (0..all_streams(request)).map(socket).collect(),
    }
}

fn all_streams(request: &Request) -> u16 {
    request.streams * request.data_directions().len() as u16
}

/// One a second, of each direction, the omitted ones first.
fn intervals(request: &Request) -> Vec<Interval> {
    let seconds = (request.omit + request.duration).as_nanos() / 1_000_000_000;
    let each = (0..seconds).flat_map(|second| {
        request
            .data_directions()
            .iter()
            .map(move |&way| (second, way))
    });
    each.map(|(second, way)| interval(request, second, way))
        .collect()
}

fn interval(request: &Request, second: u64, direction: Direction) -> Interval {
    let first = if direction == Direction::Download && request.direction == Direction::Both {
        request.streams
    } else {
        0
    };
    let streams: Vec<StreamInterval> = (first..first + request.streams)
        .map(|stream| part(stream, second))
        .collect();
    let bytes: ByteCount = streams.iter().map(|stream| stream.bytes).sum();
    Interval {
        direction,
        from: Span::from_secs(second),
        to: Span::from_secs(second + 1),
        bytes,
        rate: BitRate::from_bytes_in(bytes, Span::from_secs(1)),
        retransmits: Some(SegCount::new(3)),
        rtt: None,
        echo_rtt: None,
        cwnd: None,
        omitted: Span::from_secs(second) < request.omit,
        datagrams_sent: None,
        datagrams: None,
        streams,
    }
}

fn part(stream: u16, second: u64) -> StreamInterval {
    StreamInterval {
        stream,
        bytes: ByteCount::new(1_250_000 + second * 1_000_000),
        datagrams_sent: Some(856),
        datagrams: Some(datagrams(856, 12)),
        retransmits: Some(SegCount::new(second)),
        tcp: Some(Box::new(TcpInfo {
            cwnd: Some(SegCount::new(100 + second)),
            snd_mss: Some(ByteCount::new(1448)),
            snd_wnd: Some(ByteCount::new(65_536)),
            rtt: Some(Span::from_micros(10_000 + second)),
            rtt_variation: Some(Span::from_micros(500)),
            path_mtu: Some(ByteCount::new(1500)),
            reordering: Some(SegCount::new(3)),
            ..TcpInfo::default()
        })),
    }
}

fn datagrams(sent: u64, lost: u64) -> Datagrams {
    Datagrams {
        received: sent - lost,
        lost,
        jitter: Span::from_micros(125),
        lost_like_iperf3: lost,
        out_of_order_like_iperf3: 2,
        ..Datagrams::default()
    }
}

fn seen(request: &Request, role: TestRole) -> Measurement {
    let stream = |stream: u16| StreamSummary {
        stream,
        direction: match request.direction {
            Direction::Both if stream < request.streams => Direction::Upload,
            Direction::Both => Direction::Download,
            one => one,
        },
        sent: ByteCount::new(3_500_000),
        received: ByteCount::new(3_450_000),
        retransmits: Some(SegCount::new(3)),
        datagrams_sent: (request.transport == Transport::Udp).then_some(1712),
        datagrams: (request.transport == Transport::Udp).then(|| datagrams(1712, 24)),
    };
    let end = |user, system| EndReport {
        cpu: Some(Cpu {
            user: Ratio::new(user),
            system: Ratio::new(system),
        }),
        congestion: Some("reno".to_owned()),
        ..EndReport::default()
    };
    let summary = Summary {
        duration: Span::from_millis(2_040),
        sent: ByteCount::ZERO,
        received: ByteCount::ZERO,
        rate: BitRate::ZERO,
        retransmits: None,
        steady: None,
        datagrams_sent: None,
        datagrams: None,
    };
    let host = if role == TestRole::Client {
        "192.0.2.1"
    } else {
        "192.0.2.2"
    };
    Measurement {
        id: String::new(),
        started: String::new(),
        setup: None,
        peer: Peer {
            host: host.to_owned(),
            address: format!("{host}:5201"),
            speaks_fullpipe: false,
        },
        request: request.clone(),
        resolved: None,
        run: None,
        web100: None,
        local: end(0.004, 0.25),
        remote: end(0.01, 0.5),
        streams: (0..all_streams(request)).map(stream).collect(),
        intervals: Vec::new(),
        rtt: RttReport::of_kernel(None, Vec::new()),
        summary: summary.clone(),
        reverse: (request.direction == Direction::Both).then_some(summary),
        route: None,
        limit: None,
        capture: None,
        interrupted: false,
        until_sure: None,
        broken_off: None,
        warnings: Vec::new(),
        validity: Validity::default(),
    }
}
