use super::*;

/// Sends `count` full segments, one each 15 ms, and has each acknowledged.
fn send(sending: &mut SentData, count: u64) {
    const MSS: u64 = 1448;
    for _ in 0..count {
        let at = Time::ZERO + Span::from_millis(15) * (sending.segments + 1);
        let acknowledged = sending.segments * MSS;
        let next = acknowledged + MSS;
        let sent = SentSegment {
            bytes: MSS,
            again: 0,
            is_first_open: true,
            next,
            acknowledged,
            mss: MSS,
            is_scale_known: true,
            is_late: false,
            is_pushed: false,
        };
        sending.record_sent_segment(sent, None, at);
        sending.record_acknowledgement(
            next,
            next,
            Some(Span::from_millis(5)),
            at + Span::from_millis(5),
        );
    }
}

#[test]
fn details_that_were_left_out_take_no_room_again_until_the_connection_is_large() {
    let mut sending = SentData::new(None);
    send(&mut sending, 100);
    let before = sending.heap_bytes();
    sending.reduce_memory();
    let thinned = sending.heap_bytes();
    assert!(thinned * 4 < before, "{thinned} of {before}");
    send(&mut sending, 1_000);
    assert_eq!(sending.heap_bytes(), thinned);
    assert_eq!(
        (sending.segments, sending.course.now.acknowledged),
        (1_100, 1_100 * 1448)
    );
    send(&mut sending, LARGE);
    assert!(
        sending.heap_bytes() > thinned,
        "{} of {thinned}",
        sending.heap_bytes()
    );
    assert!(
        sending.arrivals.most_frequent_rate().is_some()
            && sending.quiet_rounds(false, Span::ZERO, None).is_some()
    );
}
