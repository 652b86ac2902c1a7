//! A server session whose client sends the input, in chunks, while the driver does its part. The
//! first byte of each chunk says how long it is and what the driver does after it.
#![no_main]

use fullpipe_iperf::{ServerOutput, ServerSession, TestResults, Timeouts, classify_first_bytes};
use fullpipe_record::EndReport;
use fullpipe_units::{Span, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = classify_first_bytes(data);
    let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
    let (mut now, mut rest) = (Time::ZERO, data);
    while let Some((head, tail)) = rest.split_first() {
        let (chunk, after) = tail.split_at(tail.len().min(usize::from(head >> 3)));
        server.receive_bytes(now, chunk);
        match head & 7 {
            0 => {
                let _ = server.stream_connected(now);
            }
            1 => {
                let server_output = Some(ServerOutput::Json("{}".to_owned()));
                server.local_results(
                    now,
                    TestResults {
                        server_output,
                        ..TestResults::default()
                    },
                );
            }
            2 => {
                now = now + Span::from_secs(5);
                server.check_deadline(now);
            }
            3 => server.send_report(&EndReport::default()),
            _ => {}
        }
        while server.next_action().is_some() {}
        rest = after;
    }
    server.connection_closed();
});
