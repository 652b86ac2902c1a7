use super::*;
use crate::engine::{PlannedStream, StreamChannel, TransferPlan};
use std::net::{TcpListener, TcpStream};

/// A test of a number of bytes at a very low rate once ended after two minutes without an
/// acknowledgement.
#[test]
fn time_in_which_nothing_was_to_be_acknowledged_does_not_count() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let without_acknowledgement = |rate| {
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _unread = listener.accept().unwrap();
        let block = ByteCount::new(1_000);
        let request = Request {
            bytes: Some(ByteCount::from_mib(1024)),
            block,
            rate,
            ..Request::default()
        };
        let lane = PlannedStream {
            channel: StreamChannel::Tcp(sender),
            role: StreamRole::Sender,
        };
        let transfer =
            RunningTransfer::start_transfer(vec![lane], TransferPlan::from_request(&request, None))
                .unwrap();
        let mut progress = CountedTransfer::new(transfer, None, request, vec![Direction::Upload]);
        while progress.origin().elapsed() < Duration::from_secs(3) {
            progress.take_passed_intervals();
            std::thread::sleep(Duration::from_millis(10));
        }
        progress.time_without_acknowledgement()
    };
    assert!(without_acknowledgement(Some(BitRate::from_bps(8))) < Span::from_millis(1_500));
    assert!(without_acknowledgement(None) > Span::from_millis(2_000));
}

#[test]
fn late_updates_do_not_move_the_boundaries() {
    let mut boundaries = IntervalBoundaries::new(Span::from_secs(1), Span::ZERO);
    let passed: Vec<Span> = (0..1_000)
        .filter_map(|update| boundaries.passed_boundary(Span::from_millis(update * 13)))
        .collect();
    assert_eq!(passed, (1..=12).map(Span::from_secs).collect::<Vec<_>>());
}

#[test]
fn boundaries_between_two_updates_count_once() {
    let mut boundaries = IntervalBoundaries::new(Span::from_secs(1), Span::ZERO);
    assert_eq!(
        boundaries.passed_boundary(Span::from_millis(3_400)),
        Some(Span::from_secs(3))
    );
    assert_eq!(boundaries.passed_boundary(Span::from_millis(3_900)), None);
    assert_eq!(
        boundaries.passed_boundary(Span::from_secs(4)),
        Some(Span::from_secs(4))
    );
}

#[test]
fn intervals_of_no_length_never_end() {
    let mut boundaries = IntervalBoundaries::new(Span::ZERO, Span::ZERO);
    assert_eq!(boundaries.passed_boundary(Span::from_secs(9)), None);
}

#[test]
fn intervals_begin_where_the_omitted_time_ends() {
    let mut boundaries = IntervalBoundaries::new(Span::from_secs(2), Span::from_secs(1));
    assert_eq!(boundaries.passed_boundary(Span::from_millis(2_900)), None);
    assert_eq!(
        boundaries.passed_boundary(Span::from_millis(3_010)),
        Some(Span::from_secs(3))
    );
    assert_eq!(
        boundaries.passed_boundary(Span::from_millis(7_500)),
        Some(Span::from_secs(7))
    );
}
