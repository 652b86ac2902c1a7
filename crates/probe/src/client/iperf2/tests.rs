use super::*;
use std::net::TcpListener;

#[test]
fn an_upload_of_bytes_that_nobody_reads_breaks_off() {
    // Its backlog takes the connection, and no program reads.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let destination = Destination {
        without_echoes: true,
        ..Destination::default()
    };
    let request = Request {
        bytes: Some(ByteCount::from_mib(256)),
        ..Request::default()
    };
    let (max_silence, never) = (Span::from_millis(300), AtomicBool::new(false));
    let upload = over_tcp(
        &destination,
        &[address],
        &request,
        max_silence,
        &never,
        &mut |_| {},
    )
    .unwrap();
    let why = upload.broken_off.unwrap();
    assert!(why.contains("acknowledged nothing for 300 ms"), "{why}");
    let stream = &upload.streams[0];
    assert!(
        stream.received > ByteCount::ZERO && stream.received < stream.sent,
        "{stream:?}"
    );
}

#[test]
fn only_time_without_another_acknowledgement_counts() {
    let mut acknowledged = AcknowledgementWatch::with_max_silence(Span::from_secs(10));
    let mut is_overdue = |seconds, bytes: Option<u64>| {
        acknowledged.is_overdue(Span::from_secs(seconds), || bytes.map(ByteCount::new))
    };
    assert!(!is_overdue(9, Some(0)) && !is_overdue(10, Some(1)) && !is_overdue(20, Some(1)));
    assert!(is_overdue(21, Some(1)) && !is_overdue(22, Some(2)) && is_overdue(33, Some(2)));
    assert!(
        !is_overdue(60, None) && !is_overdue(70, Some(2)) && is_overdue(71, Some(2)),
        "nothing was missing"
    );
}
