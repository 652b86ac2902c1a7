//! Payloads: iperf3's datagrams, and everything of iperf2. What is read can be written and is read
//! again as the same, and no answer is longer than what it answers.
#![no_main]

use fullpipe_iperf::{classify_first_datagram, iperf2, udp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = (
        udp::is_hello(data),
        udp::is_reply(data),
        classify_first_datagram(data),
    );
    for wide in [false, true] {
        if let Some(header) = udp::DatagramHeader::read_payload(wide, data) {
            let mut payload = [0; udp::MIN_PAYLOAD];
            header.write_payload(wide, &mut payload);
            let again = udp::DatagramHeader::read_payload(wide, &payload)
                .expect("what was written can be read");
            assert_eq!(again.sequence, header.sequence);
        }
    }
    let _ = (
        iperf2::Iperf2Header::read_stream(data),
        iperf2::Iperf2Header::read_datagram(data),
    );
    if let Some(datagram) = iperf2::Iperf2Datagram::read_payload(data) {
        let mut payload = [0; iperf2::Iperf2Datagram::LENGTH];
        datagram.write_payload(&mut payload);
        let again =
            iperf2::Iperf2Datagram::read_payload(&payload).expect("what was written can be read");
        assert_eq!(again.number, datagram.number);
    }
    if let Some(report) = iperf2::Iperf2Report::read_answer(data) {
        let _ = report.as_seen();
        if let Some(answer) = report.encode_answer(data) {
            assert!(answer.len() <= data.len());
            let again =
                iperf2::Iperf2Report::read_answer(&answer).expect("what was written can be read");
            assert_eq!(again.bytes, report.bytes);
        }
    }
});
