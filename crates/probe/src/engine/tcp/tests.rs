use super::*;

/// A stalled download was tried again each 64th of a round trip, for ever: 128 of them took two
/// processors.
#[test]
fn a_socket_that_stays_full_is_tried_less_and_less_often() {
    let mut retry = SendRetry::for_rtt(Some(Span::from_millis(16)));
    let shortest = Duration::from_micros(250);
    assert!(
        (0..SHORT_WAITS).all(|_| retry.next_wait() == shortest),
        "half a round trip of short waits"
    );
    let (mut passed, mut tries) = (Duration::ZERO, 0);
    while passed < Duration::from_mins(1) {
        passed += retry.next_wait();
        tries += 1;
    }
    assert!(tries < 80, "{tries} in a minute");
    retry.note_progress();
    assert_eq!(
        retry.next_wait(),
        MAX_WAIT / 2,
        "what is read now and then does not make the waits short"
    );
    for _ in 0..12 {
        retry.note_progress();
    }
    assert_eq!(retry.next_wait(), shortest);
}

#[test]
fn the_unsent_bytes_of_a_socket_are_bounded_by_what_was_lately_acknowledged() {
    let mut bound = UnsentBound::of_one_load();
    let start = bound.set;
    let mut after = |millis: u64, acknowledged| {
        bound.unsent_bytes(start + Duration::from_millis(millis), acknowledged)
    };
    assert_eq!(after(0, 0), MIN_UNSENT);
    // In the first round trips as in any other: 1 Gbit/s.
    assert_eq!(after(100, 12_500_000), MIN_UNSENT + 3_125_000);
    for millis in (100..10_000).step_by(100) {
        let bytes = after(millis, millis * 125_000);
        assert!(
            millis < 1_000 || (31_250_000..=MIN_UNSENT + 62_500_000).contains(&bytes),
            "{bytes} at {millis}"
        );
    }
    let last = [10_500, 12_600].map(|millis| after(millis, 1_250_000_000));
    assert!(last[0] > MIN_UNSENT && last[1] == MIN_UNSENT, "{last:?}");
}

#[test]
fn a_window_that_grows_raises_the_bound_beside_answers() {
    let bound = UnsentBound::beside_answers();
    let info = TcpInfo {
        cwnd: Some(fullpipe_units::SegCount::new(100)),
        snd_mss: Some(ByteCount::new(1448)),
        rtt: Some(Span::from_millis(10)),
        ..TcpInfo::default()
    };
    // A 64th of the 14.48 MB that it lets through in a second.
    assert_eq!(bound.sendable_bytes(&info), 226_250);
    assert_eq!(bound.sendable_bytes(&TcpInfo::default()), 0);
}

#[test]
fn chunks_have_no_segment_that_is_not_full() {
    let socket = TcpStream::connect(
        std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap(),
    );
    let socket = socket.unwrap();
    let fitting = |room, block| SendBufferRoom::AtLeast(room, 1_448).fitting_bytes(&socket, block);
    assert_eq!(
        [fitting(20_000, 18_000), fitting(40_000, 40_000)],
        [18_000, 40_000],
        "a block that fits is whole"
    );
    assert_eq!(
        [in_whole(MIN_CHUNK, 1_448), in_whole(14_480, 1_448)],
        [11 * 1_448, 10 * 1_448]
    );
    assert_eq!(
        [
            in_whole(MIN_CHUNK, 8_948),
            in_whole(MIN_CHUNK, 0),
            in_whole(MIN_CHUNK, 65_483)
        ],
        [8_948, MIN_CHUNK, MIN_CHUNK]
    );
    let left_to_the_kernel = SendBufferRoom::Unasked.fitting_bytes(&socket, 18_000);
    assert_eq!(left_to_the_kernel, 18_000);
}
