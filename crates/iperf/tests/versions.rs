//! The changes between the releases of iperf3, each break with the bytes of the releases before or
//! after it, in virtual time.
//!
//! Bytes that are called recorded came from a real program. The others are written from what the
//! sources of that release send, as there is no such program here.

use fullpipe_iperf::{
    ClientAction, ClientSession, DatagramCount, ErrorNumber, MAX_TEST, ServerAction, ServerOutput,
    ServerSession, SessionStep, TestCookie, TestError, TestParameters, TestResults, Timeouts,
    data_connections, udp,
};
use fullpipe_record::{Direction, Request, Transport};
use fullpipe_units::{BitRate, ByteCount, Span, Time};

fn message(json: &str) -> Vec<u8> {
    [
        &u32::try_from(json.len()).unwrap().to_be_bytes()[..],
        json.as_bytes(),
    ]
    .concat()
}

/// A session whose client sent `parameters`, and what it is to prepare for.
fn session(parameters: &str) -> (ServerSession, Request) {
    let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
    server.receive_bytes(Time::ZERO, &message(parameters));
    let request = std::iter::from_fn(|| server.next_action()).find_map(|action| match action {
        ServerAction::ExpectStreams(request) => Some(request),
        _ => None,
    });
    (
        server,
        request.expect("the parameters should have been accepted"),
    )
}

/// Runs the session's test from `from` until its data has flowed for `flow`; whether it is still
/// being waited for.
fn flows_for(server: &mut ServerSession, streams: u16, flow: Span) -> bool {
    for _ in 0..streams {
        assert!(server.stream_connected(Time::ZERO));
    }
    let end = Time::ZERO + flow;
    server.check_deadline(end);
    server.receive_bytes(end, &[4]);
    let said: Vec<_> = std::iter::from_fn(|| server.next_action()).collect();
    said.contains(&ServerAction::StopTransfer)
}

/// A client that has sent its parameters for `request`.
fn asking(request: &Request) -> ClientSession {
    let mut client = ClientSession::new(
        request,
        TestCookie::from_random([0; 36]),
        Time::ZERO,
        Timeouts::default(),
    )
    .unwrap();
    client.receive_bytes(Time::ZERO, &[9]);
    while client.next_action().is_some() {}
    client
}

/// Returns what a client gets out of a whole test in which the server sends `results`.
fn stated(request: &Request, results: &str) -> TestResults {
    let mut client = asking(request);
    client.receive_bytes(Time::ZERO, &[10]);
    client.streams_opened(Time::ZERO);
    client.receive_bytes(Time::ZERO, &[1, 2]);
    client.transfer_finished(Time::ZERO);
    client.receive_bytes(Time::ZERO, &[13]);
    client.local_results(Time::ZERO, TestResults::default());
    client.receive_bytes(Time::ZERO, &message(results));
    client.receive_bytes(Time::ZERO, &[14]);
    match std::iter::from_fn(|| client.next_action()).last() {
        Some(ClientAction::Finished(results)) => results,
        other => panic!("the test should have finished, not {other:?}"),
    }
}

fn failure(client: &mut ClientSession) -> TestError {
    match std::iter::from_fn(|| client.next_action()).last() {
        Some(ClientAction::Failed(error)) => error,
        other => panic!("the test should have failed, not {other:?}"),
    }
}

fn datagrams() -> Request {
    Request {
        transport: Transport::Udp,
        block: ByteCount::new(1448),
        rate: Some(BitRate::from_mbps(1)),
        ..Request::default()
    }
}

/// Results of iperf3 3.12, asked for its output, at the end of a UDP test in which 7 and 50 of 86
/// datagrams were left out.
const RECEIVER_3_12: &str = concat!(
    r#"{"cpu_util_total":0.39543444539624478,"cpu_util_user":0.036464241891047161,"#,
    r#""cpu_util_system":0.35885444400713079,"sender_has_retransmits":18446744073709551615,"#,
    r#""server_output_text":"Accepted connection from 127.0.0.1, port 34514\n","#,
    r#""streams":[{"id":1,"bytes":121632,"retransmits":18446744073709551615,"jitter":0.0002340369400763856,"#,
    r#""errors":2,"packets":86,"start_time":0,"end_time":0.863805}]}"#
);

/// 3.0 to 3.2 leave out a `time` of zero. A server that takes it for the usual ten seconds ends a
/// test of many bytes after 49 s (iperf issue 1233).
#[test]
fn from_3_0_to_3_2_a_test_of_bytes_has_no_time() {
    let sent = r#"{"tcp":true,"omit":0,"num":107374182400,"parallel":1,"len":131072,"client_version":"3.1.3"}"#;
    let (mut server, request) = session(sent);
    assert_eq!(
        (request.bytes, request.duration),
        (Some(ByteCount::new(107_374_182_400)), MAX_TEST)
    );
    assert!(flows_for(&mut server, 1, Span::from_secs(3600)));

    // -t 0: until the client ends it.
    let (mut server, request) =
        session(r#"{"tcp":true,"omit":0,"parallel":1,"len":131072,"client_version":"3.1.3"}"#);
    assert_eq!((request.bytes, request.duration), (None, MAX_TEST));
    assert!(flows_for(&mut server, 1, Span::from_secs(3600)));
}

/// Up to 3.6 servers end a test 5 s after the time that they were asked for, so that must not be
/// less than what is meant.
#[test]
fn servers_up_to_3_6_are_reported_no_less_time_than_is_meant() {
    let request = Request {
        duration: Span::from_millis(1500),
        omit: Span::from_millis(100),
        ..Request::default()
    };
    let stated = TestParameters::from_request(&request)
        .unwrap()
        .to_request()
        .unwrap();
    assert_eq!(
        (stated.duration, stated.omit),
        (Span::from_secs(2), Span::from_secs(1))
    );
}

/// Up to 3.6 datagrams carry the wall clock, later ones the time since some start: the same bytes,
/// and only their differences say anything.
#[test]
fn stamps_by_either_clock_differ_alike() {
    let stamp = |seconds: u32, micros: u32, number: u32| {
        let bytes = [seconds, micros, number].map(u32::to_be_bytes).concat();
        udp::DatagramHeader::read_payload(false, &bytes).unwrap()
    };
    for start in [1_404_827_312, 86] {
        let (first, second) = (stamp(start, 999_900, 1), stamp(start + 1, 100, 2));
        assert_eq!(second.sent - first.sent, Span::from_micros(200));
        assert_eq!((first.sequence, second.sequence), (1, 2));
    }
}

/// Up to 3.11 hello and reply are other bytes, and `num` and `blockcount` are left out where they
/// are zero.
#[test]
fn up_to_3_11_hello_and_reply_are_others() {
    assert!(udp::is_hello(&[0x15, 0xCD, 0x5B, 0x07]));
    assert!(udp::is_reply(&[0xB1, 0x68, 0xDE, 0x3A]));
    let (mut server, request) = session(concat!(
        r#"{"udp":true,"omit":0,"time":10,"parallel":2,"len":1460,"bandwidth":1048576,"pacing_timer":1000,"#,
        r#""client_version":"3.9"}"#
    ));
    assert_eq!((request.transport, request.bytes), (Transport::Udp, None));
    assert_eq!(request.rate, Some(BitRate::from_bps(1_048_576)));
    assert!(flows_for(&mut server, 2, Span::from_secs(10)));
}

/// Returns what 3.12 asks for with every option that datagrams have. Recorded from 3.12.
#[test]
fn every_option_of_3_12_for_datagrams_is_understood() {
    let (server, request) = session(concat!(
        r#"{"udp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"reverse":true,"len":32768,"#,
        r#""bandwidth":1000000,"pacing_timer":1000,"burst":20,"TOS":184,"title":"ti","extra_data":"ex","#,
        r#""get_server_output":1,"udp_counters_64bit":1,"dont_fragment":1,"client_version":"3.12"}"#
    ));
    let expected = Request {
        direction: Direction::Download,
        duration: Span::from_secs(1),
        block: ByteCount::from_kib(32),
        burst: Some(20),
        tos: 184,
        title: Some("ti".to_owned()),
        extra_data: Some("ex".to_owned()),
        wide_counters: true,
        dont_fragment: true,
        ..datagrams()
    };
    assert_eq!(request, expected);
    assert!(
        server
            .client_parameters()
            .is_some_and(TestParameters::wants_server_output)
    );
}

/// From 3.7 on a test may have both directions. Recorded from 3.12, which received nothing.
#[test]
fn a_test_of_both_directions_has_twice_the_streams() {
    let (mut server, request) = session(concat!(
        r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"nodelay":true,"parallel":2,"bidirectional":true,"#,
        r#""len":131072,"bandwidth":10000000,"fqrate":20000000,"pacing_timer":1000,"congestion":"reno","#,
        r#""zerocopy":1,"client_version":"3.12"}"#
    ));
    let expected = Request {
        direction: Direction::Both,
        streams: 2,
        duration: Span::from_secs(1),
        rate: Some(BitRate::from_mbps(10)),
        pacing: Some(BitRate::from_mbps(20)),
        congestion: Some("reno".to_owned()),
        no_delay: true,
        sendfile: true,
        ..Request::default()
    };
    assert_eq!(request, expected);
    assert!(flows_for(
        &mut server,
        data_connections(&request),
        Span::from_secs(1)
    ));
    server.receive_bytes(
        Time::ZERO,
        &message(concat!(
            r#"{"cpu_util_total":5.98,"cpu_util_user":0,"cpu_util_system":5.98,"sender_has_retransmits":1,"#,
            r#""congestion_used":"reno","streams":["#,
            r#"{"id":1,"bytes":1310720,"retransmits":0,"jitter":0,"errors":0,"packets":0,"start_time":0,"#,
            r#""end_time":1.000117},"#,
            r#"{"id":3,"bytes":1310720,"retransmits":0,"jitter":0,"errors":0,"packets":0,"start_time":0,"#,
            r#""end_time":1.000126},"#,
            r#"{"id":4,"bytes":0,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"#,
            r#""start_time":0,"end_time":1.000128},"#,
            r#"{"id":5,"bytes":0,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"#,
            r#""start_time":0,"end_time":1.000139}]}"#
        )),
    );
    server.local_results(Time::ZERO, TestResults::default());
    server.receive_bytes(Time::ZERO, &[16]);
    let Some(ServerAction::Finished(results)) = std::iter::from_fn(|| server.next_action()).last()
    else {
        panic!("the test should have finished")
    };
    let counted: Vec<_> = results
        .streams
        .iter()
        .map(|s| (s.stream, s.bytes.get(), s.retransmits.is_some()))
        .collect();
    assert_eq!(
        counted,
        [
            (0, 1_310_720, true),
            (1, 1_310_720, true),
            (2, 0, false),
            (3, 0, false)
        ]
    );
}

/// Up to 3.13 there is 2⁶⁴−1 for −1, and no word of omitted datagrams. Recorded from 3.12.
#[test]
fn up_to_3_13_minus_one_is_2_to_64_less_1_and_nothing_is_omitted() {
    let results = stated(&datagrams(), RECEIVER_3_12);
    let stream = &results.streams[0];
    assert_eq!(stream.retransmits, None);
    assert_eq!(
        stream.datagrams.total,
        DatagramCount {
            packets: 86,
            lost: 2
        }
    );
    assert_eq!(stream.datagrams.omitted, None);
    assert_eq!(stream.datagrams.counted_datagrams(), stream.datagrams.total);
    assert_eq!(stream.datagrams.jitter, Span::from_nanos(234_037));
    let output = ServerOutput::Text("Accepted connection from 127.0.0.1, port 34514\n".to_owned());
    assert_eq!(results.server_output, Some(output));
}

/// From 3.14 on both counts of omitted datagrams are sent.
#[test]
fn from_3_14_on_what_was_omitted_is_reported() {
    let results = stated(
        &datagrams(),
        concat!(
            r#"{"cpu_util_total":1.2,"cpu_util_user":0.4,"cpu_util_system":0.8,"sender_has_retransmits":-1,"#,
            r#""streams":[{"id":1,"bytes":125000,"retransmits":-1,"jitter":2.5e-05,"errors":9,"omitted_errors":2,"#,
            r#""packets":1000,"omitted_packets":91,"start_time":0,"end_time":10.000044}]}"#
        ),
    );
    assert_eq!(results.streams[0].retransmits, None);
    assert_eq!(
        results.streams[0].datagrams.counted_datagrams(),
        DatagramCount {
            packets: 909,
            lost: 7
        }
    );
}

/// From 3.16 on a receiver counts whole blocks: of a test of less than one it saw nothing, and
/// still it is complete.
#[test]
fn from_3_16_on_less_than_a_block_is_nothing() {
    let request = Request {
        bytes: Some(ByteCount::new(102_400)),
        ..Request::default()
    };
    let results = stated(
        &request,
        concat!(
            r#"{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":-1,"#,
            r#""congestion_used":"cubic","streams":[{"id":1,"bytes":0,"retransmits":-1,"jitter":0,"errors":0,"#,
            r#""omitted_errors":0,"packets":0,"omitted_packets":0,"start_time":0,"end_time":0.04}]}"#
        ),
    );
    assert_eq!(
        (results.streams[0].bytes, results.streams[0].to),
        (ByteCount::ZERO, Span::from_millis(40))
    );
}

/// From 3.17 on tokens are encrypted with another padding. They are as long as before; what is in
/// them is for those who have the key.
#[test]
fn tokens_of_either_padding_reach_who_has_the_key() {
    let token = "A".repeat(344);
    let (server, _) = session(&format!(
        r#"{{"tcp":true,"time":1,"parallel":1,"authtoken":"{token}"}}"#
    ));
    assert_eq!(
        server
            .client_parameters()
            .and_then(TestParameters::auth_token),
        Some(token.as_str())
    );
}

/// From 3.18 on a server takes 8 KiB of parameters, and only values of the right type.
#[test]
fn from_3_18_on_parameters_are_short_and_of_their_type() {
    let all = Request {
        direction: Direction::Both,
        streams: 128,
        bytes: Some(ByteCount::new(1 << 60)),
        burst: Some(1000),
        pacing: Some(BitRate::from_bps(i64::MAX.cast_unsigned())),
        mss: Some(ByteCount::new(1460)),
        no_delay: true,
        tos: 255,
        multipath: true,
        sendfile: true,
        discard: true,
        offload: true,
        wide_counters: true,
        dont_fragment: true,
        congestion: Some("bbr".to_owned()),
        title: Some("t".repeat(500)),
        extra_data: Some("e".repeat(5000)),
        ..datagrams()
    };
    let mut client = ClientSession::new(
        &all,
        TestCookie::from_random([0; 36]),
        Time::ZERO,
        Timeouts::default(),
    )
    .unwrap();
    client.receive_bytes(Time::ZERO, &[9]);
    let Some(ClientAction::Send(sent)) = std::iter::from_fn(|| client.next_action()).last() else {
        panic!("parameters should have been sent")
    };
    assert!(sent.len() <= 4 + 8192);
    let keys: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&sent[4..]).unwrap();
    for (key, value) in &keys {
        match key.as_str() {
            "udp" | "bidirectional" | "nodelay" | "mptcp" => assert_eq!(value, true, "{key}"),
            "title" | "extra_data" | "congestion" | "client_version" => {
                assert!(value.is_string(), "{key}");
            }
            "x_fullpipe" => assert!(value.is_object()),
            _ => assert!(value.is_i64(), "{key}"),
        }
    }
    let too_long = Request {
        extra_data: Some("e".repeat(8000)),
        ..all
    };
    let refusal = TestParameters::from_request(&too_long).unwrap_err();
    assert_eq!(refusal.number, ErrorNumber::SEND_PARAMETERS);
}

/// A switch of 3.12 may be a number, which later releases take for off; ours are never numbers.
#[test]
fn a_switch_that_is_a_number_is_off_as_from_3_18_on() {
    let (_, request) =
        session(r#"{"tcp":true,"time":1,"parallel":1,"len":131072,"reverse":1,"nodelay":1}"#);
    assert_eq!(
        (request.direction, request.no_delay),
        (Direction::Upload, false)
    );
}

/// 3.2 to 3.18 send one number when they refuse a user, 3.19 and 3.20 two, and 3.21 none at all.
#[test]
fn a_refused_user_is_reported_so_by_every_release() {
    for numbers in [&[0xFE, 0, 0, 0, 142][..], &[0xFE, 0, 0, 0, 142, 0, 0, 0, 0]] {
        let mut client = asking(&Request::default());
        client.receive_bytes(Time::ZERO, numbers);
        client.connection_closed();
        let error = failure(&mut client);
        assert!(
            matches!(
                &error,
                TestError::Server {
                    step: SessionStep::Parameters,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .ends_with("it did not accept the user name and password (iperf3 error 142)")
        );
    }
    let mut client = asking(&Request::default());
    client.connection_closed();
    assert!(
        failure(&mut client)
            .to_string()
            .contains("ask for a user name and password")
    );
}

/// From 3.19 on Multipath TCP and discarding in the kernel can be asked for.
#[test]
fn from_3_19_on_there_are_mptcp_and_skip_rx_copy() {
    let (_, request) = session(concat!(
        r#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":1,"mptcp":true,"len":131072,"#,
        r#""pacing_timer":1000,"skip_rx_copy":1,"client_version":"3.19"}"#
    ));
    assert!(request.multipath && request.discard);
}

/// From 3.21 on clients always say what they offload, also where that is nothing. Recorded from
/// 3.21.
#[test]
fn from_3_21_on_offload_is_always_reported() {
    let recorded = concat!(
        r#"{"udp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":16332,"bandwidth":1000000,"#,
        r#""pacing_timer":1000,"gso":0,"gso_dg_size":0,"gso_bf_size":65507,"gro":0,"gro_bf_size":65507,"#,
        r#""client_version":"3.21"}"#
    );
    let (mut server, request) = session(recorded);
    let expected = Request {
        duration: Span::from_secs(1),
        block: ByteCount::new(16_332),
        ..datagrams()
    };
    assert_eq!(request, expected);
    assert!(flows_for(&mut server, 1, Span::from_secs(1)));
    let (_, request) = session(&recorded.replace(r#""gso":0"#, r#""gso":1"#));
    assert!(request.offload);
}

/// A request that 3.21 and later would refuse is refused before it is sent.
#[test]
fn what_3_21_refuses_is_not_asked_for() {
    for (request, number) in [
        (
            Request {
                omit: Span::from_secs(601),
                ..Request::default()
            },
            ErrorNumber::OMIT,
        ),
        (
            Request {
                streams: 129,
                ..Request::default()
            },
            ErrorNumber::STREAMS,
        ),
        (
            Request {
                mss: Some(ByteCount::new(32_768)),
                ..Request::default()
            },
            ErrorNumber::MSS,
        ),
        (
            Request {
                burst: Some(1001),
                ..Request::default()
            },
            ErrorNumber::BURST,
        ),
        (
            Request {
                block: ByteCount::new(65_508),
                ..datagrams()
            },
            ErrorNumber::UDP_BLOCK_SIZE,
        ),
    ] {
        let refused = ClientSession::new(
            &request,
            TestCookie::from_random([0; 36]),
            Time::ZERO,
            Timeouts::default(),
        );
        assert_eq!(refused.map(|_| ()).unwrap_err().number, number);
    }
}
