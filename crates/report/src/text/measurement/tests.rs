use super::*;
use fullpipe_record::{CpuSample, DeviceReport, QdiscReport};
use fullpipe_units::ByteCount;

#[test]
fn of_what_was_sent_no_more_arrived() {
    let line = |way, sent, received| {
        let (sent, received) = (ByteCount::from_kib(sent), ByteCount::from_kib(received));
        let (duration, rate) = (Span::from_secs(1), BitRate::from_mbps(1));
        let (retransmits, steady, datagrams_sent, datagrams) = (None, None, None, None);
        totals_of(
            way,
            &Summary {
                duration,
                sent,
                received,
                rate,
                retransmits,
                steady,
                datagrams_sent,
                datagrams,
            },
        )
    };
    assert!(line(Direction::Upload, 12, 11).contains("sent 12 KiB, of which 11 KiB arrived"));
    assert!(line(Direction::Upload, 11, 12).contains("sent 11 KiB while 12 KiB arrived"));
    assert!(line(Direction::Download, 12, 11).contains("received 11 KiB of 12 KiB sent"));
    assert!(line(Direction::Download, 11, 12).contains("received 12 KiB while 11 KiB were sent"));
}

#[test]
fn what_only_the_other_end_of_a_broken_test_knows_is_not_stated() {
    let summary = |sent, received| Summary {
        duration: Span::from_millis(2_980),
        sent: ByteCount::new(sent),
        received: ByteCount::new(received),
        rate: BitRate::from_mbps(50),
        retransmits: None,
        steady: None,
        datagrams_sent: None,
        datagrams: None,
    };
    let tcp = |way, sent, received| totals_of(way, &summary(sent, received));
    assert_eq!(
        tcp(Direction::Download, 0, 18_600_000),
        "  received 17.74 MiB in 2.98 s: 50 Mbit/s\n"
    );
    assert!(
        tcp(Direction::Upload, 18_600_000, 0)
            .starts_with("  sent 17.74 MiB, of which 0 B arrived in 2.98 s")
    );
    let datagrams = Summary {
        datagrams_sent: Some(13_000),
        ..summary(18_600_000, 0)
    };
    let text = totals_of(Direction::Upload, &datagrams);
    assert_eq!(
        text,
        "  sent 17.74 MiB in 2.98 s; what arrived is not known\n"
    );
}

#[test]
fn a_machine_that_holds_nothing_back_is_not_reported() {
    let device = DeviceReport {
        name: "eth0".to_owned(),
        ..DeviceReport::default()
    };
    let processors = vec![CpuSample {
        throttled: Some(Span::ZERO),
        ..CpuSample::default()
    }];
    assert_eq!(
        held_back(
            "this",
            &EndReport {
                device: Some(device),
                processors,
                ..EndReport::default()
            }
        ),
        None
    );
    assert_eq!(held_back("the other", &EndReport::default()), None);
}

#[test]
fn what_a_machine_dropped_and_how_long_it_paused_the_program_is_one_line() {
    let queue = |kind: &str, rate, dropped| QdiscReport {
        kind: kind.to_owned(),
        rate,
        dropped,
        ..QdiscReport::default()
    };
    let device = DeviceReport {
        name: "eth\u{1b}0".to_owned(),
        dropped_in: 1,
        qdiscs: vec![
            queue("tbf", Some(BitRate::from_mbps(40)), 12),
            queue("bfifo", None, 7),
        ],
        ..DeviceReport::default()
    };
    let samples = [100, 1_500].map(|millis| CpuSample {
        throttled: Some(Span::from_millis(millis)),
        ..CpuSample::default()
    });
    let end = EndReport {
        device: Some(device),
        processors: samples.to_vec(),
        ..EndReport::default()
    };
    let expected = "At this end, tbf of eth\\u{1b}0, at 40 Mbit/s, dropped 12 packets; eth\\u{1b}0 dropped 1 \
                        packet on the way in; the quota of a control group kept the program from running for 1.50 s";
    assert_eq!(held_back("this", &end).unwrap(), expected);
}

#[test]
fn round_trips_have_no_digits_of_noise() {
    let shown = [9_684, 400, 43_296, 123_456, 50_123_456, 999_960]
        .map(|nanos| round_trip(Span::from_nanos(nanos)));
    assert_eq!(
        shown,
        ["9.7 µs", "400 ns", "43 µs", "123 µs", "50.1 ms", "1 ms"]
    );
    assert_eq!(round_trip(Span::ZERO), "0 s");
}

#[test]
fn thousands_are_separated() {
    assert_eq!(
        [0, 999, 1_000, 3_277_550].map(separate_thousands),
        ["0", "999", "1,000", "3,277,550"]
    );
}
