use super::*;
use crate::MAX_TEST;
use fullpipe_units::BitRate;
use proptest::prelude::*;

fn json_of(parameters: &TestParameters) -> String {
    String::from_utf8(parameters.encode_message()[4..].to_vec()).unwrap()
}

fn refused(json: &str) -> i32 {
    TestParameters::decode_json(json.as_bytes())
        .unwrap()
        .to_request()
        .unwrap_err()
        .number
        .get()
}

fn accepted(json: &str) -> Request {
    TestParameters::decode_json(json.as_bytes())
        .unwrap()
        .to_request()
        .unwrap()
}

#[test]
fn the_default_test_is_sent_with_the_keys_of_iperf3() {
    let parameters = TestParameters::from_request(&Request::default()).unwrap();
    assert_eq!(
        json_of(&parameters),
        concat!(
            r#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":1,"len":131072,"#,
            r#""client_version":"fullpipe "#,
            env!("CARGO_PKG_VERSION"),
            r#"","x_fullpipe":{"version":3}}"#
        )
    );
}

#[test]
fn what_is_asked_for_is_sent_in_the_order_of_iperf3() {
    let parameters = TestParameters::from_request(&Request {
        direction: Direction::Download,
        streams: 2,
        omit: Span::from_millis(300),
        bytes: Some(ByteCount::from_mib(1)),
        buffer: Buffer::Request(ByteCount::from_kib(64)),
        congestion: Some("reno".to_owned()),
        mss: Some(ByteCount::new(1400)),
        ..Request::default()
    })
    .unwrap();
    let keys = concat!(
        r#"{"tcp":true,"omit":1,"time":0,"num":1048576,"blockcount":0,"MSS":1400,"parallel":2,"reverse":true,"#,
        r#""window":65536,"len":131072,"congestion":"reno","client_version""#
    );
    assert!(
        json_of(&parameters).starts_with(keys),
        "{}",
        json_of(&parameters)
    );
}

#[test]
fn a_wish_for_copies_and_single_datagrams_reaches_a_fullpipe_server() {
    let asked = Request {
        rx_copy: true,
        no_gso: true,
        ..Request::default()
    };
    let json = json_of(
        &TestParameters::from_request(&asked)
            .unwrap()
            .with_request(&asked),
    );
    assert_eq!(accepted(&json), asked);
}

#[test]
fn a_part_of_a_second_is_omitted_by_both_ends() {
    let asked = Request {
        omit: Span::from_millis(300),
        ..Request::default()
    };
    let parameters = TestParameters::from_request(&asked)
        .unwrap()
        .with_request(&asked);
    assert_eq!(accepted(&json_of(&parameters)).omit, asked.omit);
    let other = Request {
        omit: Span::from_secs(9),
        ..asked
    };
    let contradicts = parameters.with_request(&other);
    assert_eq!(
        accepted(&json_of(&contradicts)).omit,
        Span::from_secs(1),
        "iperf3's key decides"
    );
}

#[test]
fn recorded_parameters_of_3_12_are_understood() {
    let upload = accepted(concat!(
        r#"{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072,"#,
        r#""pacing_timer":1000,"client_version":"3.12"}"#
    ));
    assert_eq!(
        upload,
        Request {
            duration: Span::from_secs(1),
            ..Request::default()
        }
    );
    let by_bytes = accepted(concat!(
        r#"{"tcp":true,"omit":0,"time":0,"num":1048576,"blockcount":0,"parallel":1,"len":131072,"#,
        r#""pacing_timer":1000,"client_version":"3.12"}"#
    ));
    assert_eq!(
        (by_bytes.bytes, by_bytes.duration),
        (Some(ByteCount::from_mib(1)), MAX_TEST)
    );
}

#[test]
fn a_reverse_test_of_3_12_keeps_its_buffer_and_congestion_control() {
    let request = accepted(concat!(
        r#"{"tcp":true,"omit":1,"time":1,"num":0,"blockcount":0,"MSS":1400,"parallel":2,"reverse":true,"#,
        r#""window":65536,"len":131072,"pacing_timer":1000,"congestion":"reno","client_version":"3.12"}"#
    ));
    let expected = Request {
        direction: Direction::Download,
        streams: 2,
        duration: Span::from_secs(1),
        omit: Span::from_secs(1),
        buffer: Buffer::Request(ByteCount::from_kib(64)),
        congestion: Some("reno".to_owned()),
        mss: Some(ByteCount::new(1400)),
        ..Request::default()
    };
    assert_eq!(request, expected);
}

#[test]
fn old_clients_leave_out_what_is_zero() {
    // 3.0 to 3.2 with -k 10: neither time nor num.
    let request = accepted(
        r#"{"tcp":true,"omit":0,"blockcount":10,"parallel":1,"len":1000,"client_version":"3.1.3"}"#,
    );
    assert_eq!(
        (request.bytes, request.duration),
        (Some(ByteCount::new(10_000)), MAX_TEST)
    );
    // 3.11 without num and blockcount.
    let request = accepted(
        r#"{"tcp":true,"omit":0,"time":10,"parallel":1,"len":131072,"client_version":"3.11"}"#,
    );
    assert_eq!(request, Request::default());
    // Bytes go before time.
    assert_eq!(
        accepted(r#"{"tcp":true,"num":5,"time":1}"#).duration,
        MAX_TEST
    );
    // -t 0: no limit at all.
    assert_eq!(accepted(r#"{"tcp":true}"#).duration, MAX_TEST);
}

#[test]
fn new_keys_and_wrong_types_are_ignored() {
    let request = accepted(concat!(
        r#"{"tcp":1,"udp":1,"reverse":1,"time":"5","parallel":null,"len":[1],"window":{"a":2},"congestion":7,"#,
        r#""mptcp":1,"skip_rx_copy":true,"gso":"1","TOS":true,"repeating_payload":1,"#,
        r#""x_other":{"deep":[[]]},"time2":9}"#
    ));
    assert_eq!(
        request,
        Request {
            duration: MAX_TEST,
            ..Request::default()
        }
    );
}

#[test]
fn each_value_out_of_range_has_its_number() {
    for (json, number) in [
        (r#"{"time":86401}"#, 5),
        (r#"{"time":-1}"#, 5),
        (r#"{"time":18446744073709551615}"#, 5),
        (r#"{"parallel":129}"#, 6),
        (r#"{"parallel":0}"#, 6),
        (r#"{"parallel":500}"#, 6),
        (r#"{"parallel":-4}"#, 6),
        (r#"{"len":1048577}"#, 7),
        (r#"{"len":0}"#, 7),
        (r#"{"window":536870913}"#, 8),
        (r#"{"window":-1}"#, 8),
        (r#"{"MSS":32768}"#, 10),
        (r#"{"omit":601}"#, 12),
        (r#"{"num":-1}"#, 16),
        (r#"{"blockcount":-1}"#, 16),
        (r#"{"blockcount":9223372036854775807}"#, 16),
        (r#"{"congestion":"a name that is far too long"}"#, 134),
        (r#"{"congestion":"cu\u0007bic"}"#, 134),
        (r#"{"sctp":true}"#, 18),
        (r#"{"udp":true,"len":15}"#, 20),
        (r#"{"udp":true,"len":0}"#, 20),
        (r#"{"udp":true,"len":65508}"#, 20),
        (r#"{"TOS":256}"#, 21),
        (r#"{"TOS":-1}"#, 21),
        (r#"{"burst":1001}"#, 15),
        (r#"{"burst":-1}"#, 15),
        (r#"{"bandwidth":-1}"#, 27),
        (r#"{"fqrate":18446744073709551615}"#, 27),
    ] {
        assert_eq!(refused(json), number, "{json}");
    }
}

#[test]
fn the_ends_of_each_range_are_accepted() {
    for json in [
        r#"{"udp":true,"len":16,"burst":1,"TOS":0,"parallel":1,"omit":0}"#,
        r#"{"udp":true,"len":65507,"burst":1000,"TOS":255,"parallel":128,"omit":600}"#,
        r#"{"len":1048576,"MSS":32767,"window":536870912,"time":86400,"bandwidth":9223372036854775807}"#,
    ] {
        accepted(json);
    }
    assert_eq!(accepted(r#"{"udp":true}"#).block, ByteCount::new(1460));
}

#[test]
fn a_refusal_names_what_was_asked_and_what_is_possible() {
    let refusal = TestParameters::decode_json(br#"{"parallel":500}"#)
        .unwrap()
        .to_request()
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "500 parallel streams asked for; 1 to 128 are possible"
    );
}

#[test]
fn requests_that_the_protocol_cannot_carry_are_refused_before_sending() {
    let default = Request::default;
    for (request, number) in [
        (
            Request {
                duration: Span::ZERO,
                ..default()
            },
            5,
        ),
        (
            Request {
                duration: Span::from_secs(86_401),
                ..default()
            },
            5,
        ),
        (
            Request {
                streams: 200,
                ..default()
            },
            6,
        ),
        (
            Request {
                block: ByteCount::from_mib(2),
                ..default()
            },
            7,
        ),
        (
            Request {
                buffer: Buffer::Window(ByteCount::from_kib(64)),
                ..default()
            },
            8,
        ),
        (
            Request {
                buffer: Buffer::Request(ByteCount::new(u64::MAX)),
                ..default()
            },
            8,
        ),
        (
            Request {
                bytes: Some(ByteCount::ZERO),
                ..default()
            },
            16,
        ),
        (
            Request {
                transport: Transport::Udp,
                block: ByteCount::ZERO,
                ..default()
            },
            20,
        ),
        (
            Request {
                transport: Transport::Udp,
                ..default()
            },
            20,
        ),
        (
            Request {
                burst: Some(1001),
                ..default()
            },
            15,
        ),
        (
            Request {
                rate: Some(BitRate::from_bps(0)),
                extra_data: Some("x".repeat(8192)),
                ..default()
            },
            113,
        ),
    ] {
        assert_eq!(
            TestParameters::from_request(&request)
                .unwrap_err()
                .number
                .get(),
            number,
            "{request:?}"
        );
    }
}

#[test]
fn only_fullpipe_since_version_2_proves_keys() {
    let sent = TestParameters::from_request(&Request::default()).unwrap();
    assert!(
        TestParameters::decode_json(&sent.encode_message()[4..])
            .unwrap()
            .proves_keys()
    );
    for (json, speaks_fullpipe) in [
        ("{}", false),
        (r#"{"x_fullpipe":{"version":1,"key":{"time":1}}}"#, true),
    ] {
        let received = TestParameters::decode_json(json.as_bytes()).unwrap();
        assert_eq!(
            (received.proves_keys(), received.speaks_fullpipe()),
            (false, speaks_fullpipe),
            "{json}"
        );
    }
}

#[test]
fn settings_go_with_our_extension_where_there_is_room() {
    let settings = fullpipe_record::HostSettings::of_linux_6_18();
    let stated = |extra_data: usize| {
        let request = Request {
            extra_data: Some("e".repeat(extra_data)),
            ..Request::default()
        };
        let sent = TestParameters::from_request(&request)
            .unwrap()
            .with_settings(settings.clone());
        let message = sent.encode_message();
        assert!(message.len() <= PREFIX + MAX_PARAMETERS);
        let received = TestParameters::decode_json(&message[PREFIX..]).unwrap();
        assert_eq!(received, sent);
        received.host_settings().cloned()
    };
    assert_eq!((stated(1), stated(7_900)), (Some(settings.clone()), None));
    for malformed in ["7", "{}", r#"{"kernel":"6.18"}"#, "null"] {
        let json = format!(r#"{{"x_fullpipe":{{"version":1,"settings":{malformed}}}}}"#);
        let received = TestParameters::decode_json(json.as_bytes()).unwrap();
        assert_eq!(
            (received.host_settings(), received.speaks_fullpipe()),
            (None, true),
            "{json}"
        );
    }
}

#[test]
fn only_a_well_formed_extension_counts() {
    for (json, speaks) in [
        (r#"{"x_fullpipe":{"version":1}}"#, true),
        (r#"{"x_fullpipe":{"version":2,"more":[]}}"#, true),
        (r#"{"x_fullpipe":{"version":0}}"#, false),
        (r#"{"x_fullpipe":{"version":"1"}}"#, false),
        (r#"{"x_fullpipe":true}"#, false),
        (r#"{"x_fullpipe":null}"#, false),
        ("{}", false),
    ] {
        assert_eq!(
            TestParameters::decode_json(json.as_bytes())
                .unwrap()
                .speaks_fullpipe(),
            speaks,
            "{json}"
        );
    }
}

#[test]
fn a_datagram_test_is_sent_with_the_keys_of_iperf3() {
    let request = Request {
        transport: Transport::Udp,
        direction: Direction::Both,
        block: ByteCount::new(1448),
        rate: Some(BitRate::from_mbps(1)),
        burst: Some(10),
        pacing: Some(BitRate::from_mbps(2)),
        tos: 184,
        wide_counters: true,
        dont_fragment: true,
        title: Some("x".to_owned()),
        extra_data: Some("y".to_owned()),
        ..Request::default()
    };
    let keys = concat!(
        r#"{"udp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":1,"bidirectional":true,"len":1448,"#,
        r#""bandwidth":1000000,"fqrate":2000000,"pacing_timer":1000,"burst":10,"TOS":184,"title":"x","#,
        r#""extra_data":"y","udp_counters_64bit":1,"dont_fragment":1,"client_version""#
    );
    let json = json_of(&TestParameters::from_request(&request).unwrap());
    assert!(json.starts_with(keys), "{json}");
}

#[test]
fn each_end_is_reported_of_its_own_processor() {
    let request = Request {
        processor: Some(1),
        far_processor: Some(3),
        ..Request::default()
    };
    let sent = TestParameters::from_request(&request).unwrap();
    assert!(json_of(&sent).contains("\"server_affinity\":3"));
    let asked = TestParameters::decode_json(&sent.encode_message()[4..])
        .unwrap()
        .to_request()
        .unwrap();
    assert_eq!((asked.processor, asked.far_processor), (Some(3), None));
    let nonsense = TestParameters::decode_json(br#"{"server_affinity":-1}"#)
        .unwrap()
        .to_request()
        .unwrap();
    assert_eq!(nonsense.processor, None);
}

#[test]
fn offload_is_asked_for_as_3_21_does() {
    let request = Request {
        transport: Transport::Udp,
        block: ByteCount::new(1448),
        offload: true,
        ..Request::default()
    };
    let json = json_of(&TestParameters::from_request(&request).unwrap());
    let keys = r#""gso":1,"gso_dg_size":1448,"gso_bf_size":65160,"gro":1,"gro_bf_size":65507,"#;
    assert!(json.contains(keys), "{json}");
}

#[test]
fn booleans_are_true_and_numbers_are_numbers() {
    let request = Request {
        no_delay: true,
        multipath: true,
        sendfile: true,
        discard: true,
        direction: Direction::Download,
        ..Request::default()
    };
    let json = json_of(
        &TestParameters::from_request(&request)
            .unwrap()
            .with_server_output(),
    );
    let keys: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        let is_boolean = ["tcp", "nodelay", "reverse", "mptcp"].contains(&key.as_str());
        assert_eq!(value.is_boolean(), is_boolean, "{key}");
        assert!(!is_boolean || value == true, "{key}");
    }
    for key in ["zerocopy", "skip_rx_copy", "get_server_output"] {
        assert_eq!(keys[key], 1, "{key}");
    }
}

#[test]
fn block_zero_is_the_usual_one_for_tcp() {
    let parameters = TestParameters::from_request(&Request {
        block: ByteCount::ZERO,
        ..Request::default()
    })
    .unwrap();
    assert_eq!(
        parameters.to_request().unwrap().block,
        ByteCount::from_kib(128)
    );
}

#[test]
fn output_and_token_reach_the_server() {
    let parameters = TestParameters::from_request(&Request::default()).unwrap();
    assert!(!parameters.wants_server_output() && parameters.auth_token().is_none());
    let sent = parameters
        .with_server_output()
        .with_auth_token("c2VjcmV0".to_owned())
        .unwrap();
    let received = TestParameters::decode_json(&sent.encode_message()[4..]).unwrap();
    assert_eq!(received, sent);
    assert_eq!(
        (received.wants_server_output(), received.auth_token()),
        (true, Some("c2VjcmV0"))
    );
    assert_eq!(
        sent.with_auth_token("x".repeat(8192)).unwrap_err().number,
        ErrorNumber::SEND_PARAMETERS
    );
}

#[test]
fn a_title_cannot_steer_a_terminal() {
    let request = accepted(r#"{"title":"a\u001b[2Jb\nc","extra_data":"d\ne"}"#);
    assert_eq!(
        (request.title.as_deref(), request.extra_data.as_deref()),
        (Some("a[2Jbc"), Some("d\ne"))
    );
}

prop_compose! {
    fn any_load()(
        udp in any::<bool>(),
        direction in prop::sample::select(vec![Direction::Upload, Direction::Download, Direction::Both]),
        streams in 1_u16..=128,
        seconds in 1_u64..=86_400,
        omit in 0_u64..=600,
        block in 16_u64..=65_507,
        rate in prop::option::of(1_u64..=1 << 50),
        burst in prop::option::of(1_u16..=1000),
        pacing in prop::option::of(1_u64..=1 << 50),
        tos in any::<u8>(),
    ) -> Request {
        Request {
            transport: if udp { Transport::Udp } else { Transport::Tcp },
            direction,
            streams,
            duration: Span::from_secs(seconds),
            omit: Span::from_secs(omit),
            block: ByteCount::new(block),
            rate: rate.map(BitRate::from_bps),
            burst,
            pacing: pacing.map(BitRate::from_bps),
            tos,
            ..Request::default()
        }
    }
}

prop_compose! {
    fn any_request()(
        load in any_load(),
        buffer in prop::option::of(1_u64..=512 << 20),
        mss in prop::option::of(1_u64..=32_767),
        congestion in prop::option::of("[!-~]{1,15}"),
        title in prop::option::of("[ -~]{1,40}"),
        extra_data in prop::option::of("\\PC{1,40}"),
        switches in any::<[bool; 8]>(),
    ) -> Request {
        let [no_delay, multipath, sendfile, zero_copy, discard, offload, wide_counters, dont_fragment] = switches;
        Request {
            buffer: buffer.map_or(Buffer::Automatic, |size| Buffer::Request(ByteCount::new(size))),
            mss: mss.map(ByteCount::new),
            congestion,
            title,
            extra_data,
            no_delay,
            multipath,
            // There is one key for both.
            sendfile: sendfile && !zero_copy,
            zero_copy,
            discard,
            // Only datagrams have it.
            offload: offload && load.transport == Transport::Udp,
            wide_counters,
            dont_fragment,
            ..load
        }
    }
}

proptest! {
    #[test]
    fn a_request_arrives_as_it_was_sent(request in any_request()) {
        let sent = TestParameters::from_request(&request).unwrap();
        let bytes = sent.encode_message();
        prop_assert!(bytes.len() <= 8192);
        let received = TestParameters::decode_json(&bytes[4..]).unwrap();
        prop_assert_eq!(&received, &sent);
        prop_assert_eq!(received.to_request().unwrap(), request);
    }

    #[test]
    fn any_bytes_are_parameters_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = TestParameters::decode_json(&bytes);
    }

    #[test]
    fn any_numbers_are_a_request_or_a_refusal(numbers in prop::array::uniform12(any::<i64>())) {
        let keys = [
            "omit", "time", "num", "blockcount", "MSS", "parallel", "window", "len", "bandwidth", "fqrate", "burst",
            "TOS",
        ];
        let members: Vec<String> = keys.iter().zip(numbers).map(|(key, n)| format!("\"{key}\":{n}")).collect();
        let parameters = TestParameters::decode_json(format!("{{{}}}", members.join(",")).as_bytes()).unwrap();
        let _ = parameters.to_request();
    }
}

#[test]
fn the_whole_request_travels_for_fullpipe_servers_and_says_nothing_that_iperf3s_keys_say() {
    let request = Request {
        streams: 4,
        title: Some("night".to_owned()),
        near_device: true,
        ..Request::default()
    };
    let sent = TestParameters::from_request(&request)
        .unwrap()
        .with_request(&Request {
            streams: 9,
            ..request.clone()
        });
    let received = TestParameters::decode_json(&sent.encode_message()[PREFIX..]).unwrap();
    let extension = received.x_fullpipe.as_ref().unwrap();
    assert_eq!(
        extension
            .request
            .as_ref()
            .map(|request| (request.streams, request.title.clone())),
        Some((9, None))
    );
    let judged = received.to_request().unwrap();
    assert_eq!(
        (judged.streams, judged.near_device, judged.title),
        (4, false, request.title)
    );
}
