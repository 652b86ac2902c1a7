//! Payloads: iperf3's datagrams, and everything of iperf2. What is read can be written and is read
//! again as the same, and no answer is longer than what it answers.
#![no_main]

use fullpipe_iperf::{classify_first_datagram, iperf2, udp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (udp::is_hello(data), udp::is_reply(data), classify_first_datagram(data));
    for wide in [false, true] {
        if let Some(header) = udp::Header::read(wide, data) {
            let mut payload = [0; udp::MIN_PAYLOAD];
            header.write(wide, &mut payload);
            let again = udp::Header::read(wide, &payload).expect("what was written can be read");
            assert_eq!(again.sequence, header.sequence);
        }
    }
    let _ = (iperf2::Header::read(data), iperf2::Header::read_datagram(data));
    if let Some(datagram) = iperf2::Datagram::read(data) {
        let mut payload = [0; iperf2::Datagram::LENGTH];
        datagram.write(&mut payload);
        let again = iperf2::Datagram::read(&payload).expect("what was written can be read");
        assert_eq!(again.number, datagram.number);
    }
    if let Some(report) = iperf2::Report::read(data) {
        let _ = report.as_seen();
        if let Some(answer) = report.answer(data) {
            assert!(answer.len() <= data.len());
            let again = iperf2::Report::read(&answer).expect("what was written can be read");
            assert_eq!(again.bytes, report.bytes);
        }
    }
});
