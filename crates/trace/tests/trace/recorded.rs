//! Captures that were misread once, each with its right answer.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_record::CaptureReport;
use fullpipe_trace::{Explained, PacketFile, Wanted, read_flows};

fn read(name: &str) -> CaptureReport {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(name).with_extension("pcap.gz");
    let wanted = Wanted { explained: Explained::Largest(1), is_compared: false };
    let reading = read_flows(&mut PacketFile::open(&path).unwrap(), name, wanted, &AtomicBool::new(false));
    assert!(reading.error.is_none(), "{:?}", reading.error);
    reading.report
}

#[test]
fn frames_with_a_length_in_place_of_a_type_are_read() {
    let report = read("llc-snap");
    assert_eq!((report.flows.len(), report.segments, report.unanswered), (1, report.packets, 0));
    assert_eq!(report.flows[0].bytes().get(), 70_000);
}

#[test]
fn a_syn_that_is_answered_by_a_syn_has_an_answer() {
    let report = read("simultaneous-open");
    assert_eq!((report.flows.len(), report.unanswered, &report.notes), (1, 0, &Vec::new()));
    assert!(report.flows[0].has_handshake && report.flows[0].ends.iter().all(|end| end.syn.is_some()));
}

#[test]
fn a_connection_is_one_whatever_vlan_each_direction_passes_in() {
    let plain = read("vlan-none");
    assert_eq!((plain.flows.len(), plain.flows[0].bytes().get()), (1, 579_200));
    for name in ["vlan-one-way", "vlan-two-ids"] {
        let report = read(name);
        assert_eq!((report.flows.len(), report.unanswered), (1, 0), "{name}");
        assert_eq!(report.flows[0], plain.flows[0], "{name}");
    }
}
