use super::*;
use proptest::prelude::*;

fn stream(flags: u32, upper: u32) -> Vec<u8> {
    let mut bytes = vec![0; 36];
    put_word(&mut bytes, 0, flags);
    put_word(&mut bytes, EXTENSION_FLAGS, upper);
    bytes
}

#[test]
fn each_kind_of_test_is_known_by_its_flags() {
    for (flags, upper, kind) in [
        (0, 0, Iperf2TestKind::Upload),
        (0x4001_0078, 0, Iperf2TestKind::Upload),
        (0x3031_3233, 0x3233_3435, Iperf2TestKind::Upload), // "0123…", plain payload
        (0x4401_0078, 0x0400_0000, Iperf2TestKind::Reverse),
        (0x4401_0078, 0x0800_0000, Iperf2TestKind::FullDuplex),
        (0xC001_0079, 0, Iperf2TestKind::Dual),
        (0xC001_0078, 0, Iperf2TestKind::Tradeoff),
        (0x8000_0001, 0, Iperf2TestKind::Dual),
        (0x8000_0000, 0, Iperf2TestKind::Tradeoff),
        (0x0080_0000, 0, Iperf2TestKind::BounceBack),
        (0x5001_007C, 0, Iperf2TestKind::Permit),
    ] {
        let header = Iperf2Header::read_stream(&stream(flags, upper)).unwrap();
        assert_eq!(
            (header.kind, header.waits_for_answer),
            (kind, false),
            "{flags:#x}"
        );
    }
    let detecting = Iperf2Header::read_stream(&stream(0x4601_0078, 0)).unwrap();
    assert_eq!(
        (detecting.kind, detecting.waits_for_answer),
        (Iperf2TestKind::Upload, true)
    );
}

/// The first 36 bytes of iperf 2.1.8 with these options, recorded.
#[test]
fn recorded_clients_of_2_1_8_are_understood() {
    let plain = Iperf2Header {
        kind: Iperf2TestKind::Upload,
        waits_for_answer: false,
    };
    for (options, flags, upper, header) in [
        ("", [0x40, 0x01, 0x00, 0x78], 0x00, plain),
        (
            "-R",
            [0x44, 0x01, 0x00, 0x78],
            0x04,
            Iperf2Header {
                kind: Iperf2TestKind::Reverse,
                ..plain
            },
        ),
        (
            "--full-duplex",
            [0x44, 0x01, 0x00, 0x78],
            0x08,
            Iperf2Header {
                kind: Iperf2TestKind::FullDuplex,
                ..plain
            },
        ),
        (
            "-d",
            [0xC0, 0x01, 0x00, 0x79],
            0x00,
            Iperf2Header {
                kind: Iperf2TestKind::Dual,
                ..plain
            },
        ),
        (
            "-r",
            [0xC0, 0x01, 0x00, 0x78],
            0x00,
            Iperf2Header {
                kind: Iperf2TestKind::Tradeoff,
                ..plain
            },
        ),
        (
            "-X",
            [0x46, 0x01, 0x00, 0x78],
            0x00,
            Iperf2Header {
                waits_for_answer: true,
                ..plain
            },
        ),
        (
            "--bounceback",
            [0x00, 0x80, 0x00, 0x00],
            0x00,
            Iperf2Header {
                kind: Iperf2TestKind::BounceBack,
                ..plain
            },
        ),
        (
            "--permit-key",
            [0x50, 0x01, 0x00, 0x7C],
            0x00,
            Iperf2Header {
                kind: Iperf2TestKind::Permit,
                ..plain
            },
        ),
    ] {
        let mut stream = flags.to_vec();
        stream.extend(
            b"\x00\x00\x00\x01\x00\x00\x14\xB1\x00\x00\x00\x00\x00\x00\x00\x00\xFF\xFF\xFF\x9C",
        );
        stream.extend([0, 0, 0, 0, 0, 0, 0, 0, upper, 0, 0, 0]);
        assert_eq!(
            Iperf2Header::read_stream(&stream),
            Some(header),
            "{options}"
        );
    }
}

/// The first datagram of iperf 2.1.8 -u -R, and the last of -u, recorded.
#[test]
fn recorded_datagrams_of_2_1_8_are_understood() {
    let first = b"\x00\x00\x00\x01\x6B\x01\xD5\x77\x00\x06\x76\x2E\x00\x00\x00\x00\
            \x6C\x01\x00\x98\x00\x00\x00\x01\x00\x00\x14\xB1\x00\x00\x00\x00\x00\x00\x00\x00\xFF\xFF\xFF\x9C\
            \x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x02\x00\x01\x00\x08\x00\x03";
    assert_eq!(
        Iperf2Header::read_datagram(first).kind,
        Iperf2TestKind::Reverse
    );
    let sent = Span::from_secs(0x6B01_D577) + Span::from_micros(0x0006_762E);
    assert_eq!(
        Iperf2Datagram::read_payload(first),
        Some(Iperf2Datagram { number: 1, sent })
    );
    let last = b"\xFF\xFF\xFF\xA3\x6B\x01\xD5\x77\x00\x06\x62\x62\xFF\xFF\xFF\xFF\x48\x01\x00\x98";
    let last = Iperf2Datagram::read_payload(last).unwrap();
    assert_eq!((last.number, last.is_last()), (-93, true));
}

#[test]
fn no_more_than_36_bytes_are_waited_for() {
    assert_eq!(Iperf2Header::read_stream(&[0; 3]), None);
    assert!(Iperf2Header::read_stream(&[0; 4]).is_some());
    let reverse = stream(0x4401_0078, 0x0400_0000);
    assert_eq!(Iperf2Header::read_stream(&reverse[..35]), None);
    assert_eq!(
        Iperf2Header::read_stream(&reverse).map(|header| header.kind),
        Some(Iperf2TestKind::Reverse)
    );
}

#[test]
fn our_header_asks_for_what_the_request_says() {
    let header = |direction| {
        Iperf2Header::tcp_header(&Request {
            direction,
            streams: 2,
            ..Request::default()
        })
    };
    assert_eq!(header(Direction::Upload), [0; HEADER_LENGTH]);
    let reverse = header(Direction::Download);
    assert_eq!(
        Iperf2Header::read_stream(&reverse).map(|header| header.kind),
        Some(Iperf2TestKind::Reverse)
    );
    assert_eq!(reverse[..4], [0x44, 0x01, 0x00, 0x78]);
    // Ten seconds are minus a thousand hundredths.
    assert_eq!(
        (reverse[7], &reverse[20..24]),
        (2, &(-1000_i32).to_be_bytes()[..])
    );
    let both = header(Direction::Both);
    assert_eq!(
        Iperf2Header::read_stream(&both).map(|header| header.kind),
        Some(Iperf2TestKind::FullDuplex)
    );
}

#[test]
fn the_amount_is_bytes_or_hundredths_of_a_second() {
    let amount = |bytes, duration| {
        super::request_amount(&Request {
            bytes,
            duration,
            ..Request::default()
        })
        .cast_signed()
    };
    assert_eq!(amount(Some(ByteCount::new(7)), Span::ZERO), 7);
    assert_eq!(amount(Some(ByteCount::new(1 << 40)), Span::ZERO), i32::MAX);
    assert_eq!(amount(None, Span::from_millis(1501)), -151);
    assert_eq!(amount(None, Span::MAX), i32::MIN);
}

#[test]
fn a_number_has_64_bits_where_the_header_says_so() {
    let sent = Span::from_secs(1_763_000_000) + Span::from_micros(7);
    let mut payload = [0; Iperf2Datagram::LENGTH];
    for number in [1, 1 << 40, -1, -(1 << 40), i64::MIN] {
        Iperf2Datagram { number, sent }.write_payload(&mut payload);
        assert_eq!(
            Iperf2Datagram::read_payload(&payload),
            Some(Iperf2Datagram { number, sent })
        );
        assert_eq!(Iperf2Datagram { number, sent }.is_last(), number < 0);
    }
    // An old client: 32 bits, and no flags.
    payload[..4].copy_from_slice(&(-5_i32).to_be_bytes());
    payload[16..].fill(0);
    assert_eq!(
        Iperf2Datagram::read_payload(&payload).map(|datagram| datagram.number),
        Some(-5)
    );
    assert_eq!(Iperf2Datagram::read_payload(&payload[..15]), None);
}

fn report() -> Iperf2Report {
    Iperf2Report {
        bytes: ByteCount::new(5_000_000_000),
        duration: Span::from_secs(10) + Span::from_micros(17),
        lost: 12,
        out_of_order: 3,
        datagrams: 4_000_000_000,
        jitter: Span::from_micros(1_000_042),
    }
}

#[test]
fn a_report_arrives_in_both_lengths() {
    for length in [1470, 128, 127, 56] {
        let last = vec![7; length];
        let answer = report().encode_answer(&last).unwrap();
        assert_eq!(answer.len(), if length >= 128 { 128 } else { 56 });
        assert_eq!(answer[..16], last[..16]);
        assert_eq!(Iperf2Report::read_answer(&answer), Some(report()));
    }
    let wide = Iperf2Report {
        datagrams: 1 << 40,
        lost: 1 << 33,
        ..report()
    };
    assert_eq!(
        Iperf2Report::read_answer(&wide.encode_answer(&[0; 128]).unwrap()),
        Some(wide)
    );
    let narrow = Iperf2Report::read_answer(&wide.encode_answer(&[0; 56]).unwrap()).unwrap();
    assert_eq!(
        (narrow.datagrams, narrow.lost),
        (u64::from(u32::MAX), u64::from(u32::MAX))
    );
}

/// The answer of iperf 2.1.8 to a test of 100 datagrams, the last one included, of which 5, 6
/// and 50 were left out: it takes the last one, number -100 after 100, for one out of order,
/// and that for one that was lost.
#[test]
fn a_recorded_report_of_2_1_8_is_understood() {
    let mut answer = vec![0; 128];
    let words = [
        0xC800_0000,
        0,
        0x4C90,
        0,
        0x0003_3BC4,
        2,
        1,
        100,
        0,
        10,
        0,
        17,
        0,
        0x0D2E,
        0,
        0x1F5E,
        0,
        0x51,
    ];
    for (word, at) in words.into_iter().zip((16..).step_by(4)) {
        put_word(&mut answer, at, word);
    }
    let report = Iperf2Report {
        bytes: ByteCount::new(19_600),
        duration: Span::from_micros(211_908),
        lost: 2,
        out_of_order: 1,
        datagrams: 100,
        jitter: Span::from_micros(10),
    };
    assert_eq!(Iperf2Report::read_answer(&answer), Some(report));
}

#[test]
fn a_last_datagram_too_short_for_a_report_gets_none() {
    for length in 0..56 {
        assert_eq!(report().encode_answer(&vec![0; length]), None);
    }
}

#[test]
fn what_is_not_a_report_is_none() {
    assert_eq!(Iperf2Report::read_answer(&[]), None);
    assert_eq!(Iperf2Report::read_answer(&[0x80; 55]), None);
    assert_eq!(Iperf2Report::read_answer(&[0; 128]), None);
}

proptest! {
    #[test]
    fn an_answer_is_never_longer_than_what_it_answers(last in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(answer) = report().encode_answer(&last) {
            prop_assert!(answer.len() <= last.len());
        }
    }

    #[test]
    fn any_bytes_are_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Iperf2Header::read_stream(&bytes);
        let _ = Iperf2Header::read_datagram(&bytes);
        let _ = Iperf2Datagram::read_payload(&bytes);
        if let Some(report) = Iperf2Report::read_answer(&bytes) {
            let _ = report.as_seen();
            let again = Iperf2Report::read_answer(&report.encode_answer(&[0; 128]).unwrap()).unwrap();
            prop_assert_eq!(again.lost, report.lost);
        }
    }
}
