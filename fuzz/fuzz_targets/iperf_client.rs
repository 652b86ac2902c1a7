//! A client whose server sends the input, in chunks, while the driver does its part. The first byte
//! says what kind of test it is; then the first of each chunk says how long that is and what the
//! driver does after it.
#![no_main]

use fullpipe_iperf::{ClientSession, TestCookie, TestResults, Timeouts};
use fullpipe_record::{Direction, Request, Transport};
use fullpipe_units::{ByteCount, Span, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    let request = Request {
        transport: if kind & 1 == 0 {
            Transport::Tcp
        } else {
            Transport::Udp
        },
        direction: [Direction::Upload, Direction::Download, Direction::Both]
            [usize::from(kind >> 1) % 3],
        block: ByteCount::new(1448),
        ..Request::default()
    };
    let cookie = TestCookie::from_random([0; 36]);
    let mut client = ClientSession::new(&request, cookie, Time::ZERO, Timeouts::default())
        .expect("the request can be sent");
    let (mut now, mut rest) = (Time::ZERO, data);
    while let Some((head, tail)) = rest.split_first() {
        let (chunk, after) = tail.split_at(tail.len().min(usize::from(head >> 3)));
        client.receive_bytes(now, chunk);
        match head & 7 {
            0 => client.streams_opened(now),
            1 => client.transfer_finished(now),
            2 => client.local_results(now, TestResults::default()),
            3 => client.connection_closed(),
            4 => client.interrupt_test(),
            5 => {
                now = now + Span::from_secs(11);
                client.check_deadline(now);
            }
            _ => {}
        }
        while client.next_action().is_some() {}
        rest = after;
    }
});
