//! Captures that were misread once, each with its right answer.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fullpipe_record::{At, CaptureEvidence, CaptureReport, Evidence, StallTimes};
use fullpipe_trace::{CaptureContent, CaptureUse, ExplainedTransfers, PacketFile, read_flows};
use fullpipe_units::{ByteCount, Ratio, Span};

fn read(name: &str) -> CaptureReport {
    read_all(name).report
}

fn read_all(name: &str) -> CaptureContent {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/captures")
        .join(name)
        .with_extension("pcap.gz");
    let wanted = CaptureUse {
        explained: ExplainedTransfers::Largest(1),
        is_compared: false,
    };
    let reading = read_flows(
        &mut PacketFile::open(&path).unwrap(),
        name,
        wanted,
        &AtomicBool::new(false),
    );
    assert!(reading.error.is_none(), "{:?}", reading.error);
    reading
}

/// Returns the times in which the sender of the first connection sent nothing.
fn stalls(report: &CaptureReport) -> StallTimes {
    let flow = &report.flows[0];
    flow.ends[flow.sender_index()].stalls
}

/// Returns the connections of a capture, with the evidence of the only one.
fn read_only(name: &str) -> (CaptureReport, Evidence, CaptureEvidence) {
    let CaptureContent {
        report,
        mut transfers,
        ..
    } = read_all(name);
    assert_eq!((report.flows.len(), transfers.len()), (1, 1), "{name}");
    let evidence = transfers.remove(0).evidence;
    let capture = evidence.capture.unwrap();
    (report, evidence, capture)
}

#[test]
fn four_timeouts_take_256_of_265_seconds() {
    let (report, _, _) = read_only("rto-stalls");
    let [sender, _] = &report.flows[0].ends;
    assert_eq!(
        (sender.retransmitted_packets, stalls(&report).timeout_count),
        (4, 4)
    );
    let share = stalls(&report).timeouts.as_secs_f64() / report.duration.as_secs_f64();
    assert!(
        (255.9..256.1).contains(&stalls(&report).timeouts.as_secs_f64()) && share > 0.96,
        "{:?}",
        stalls(&report)
    );
}

#[test]
fn a_window_of_zero_is_closed_at_any_scale_and_its_probes_are_no_data() {
    let (report, evidence, capture) = read_only("zero-window-mid");
    let flow = &report.flows[0];
    let [sender, receiver] =
        [flow.sender_index(), 1 - flow.sender_index()].map(|end| &flow.ends[end]);
    assert_eq!(
        (
            receiver.window.unwrap().zero,
            capture.probes,
            sender.retransmitted_packets
        ),
        (7, 6, 0)
    );
    assert_eq!(
        stalls(&report).closed_window,
        report.duration - Span::from_micros(30)
    );
    assert_eq!(
        (stalls(&report).after_data, capture.idle),
        (Span::ZERO, Ratio::ZERO)
    );
    assert!(
        evidence
            .sender_samples
            .iter()
            .skip(1)
            .all(|sample| sample.tcp.snd_wnd == Some(ByteCount::ZERO))
    );
}

#[test]
fn a_full_segment_that_is_acknowledged_after_a_wait_shows_a_server_that_was_slow() {
    let (report, _, capture) = read_only("slow-server-one-full-segment");
    let server = &report.flows[0].ends[1];
    assert_eq!(
        (server.largest, server.segment_size),
        (ByteCount::new(1406), ByteCount::new(1406))
    );
    // From the handshake on: 30 ms are the round trip of the request.
    assert_eq!(stalls(&report).before_data, Span::from_micros(1_010_990));
    assert_eq!(
        (stalls(&report).timeouts, capture.unseen),
        (Span::ZERO, ByteCount::ZERO)
    );
}

#[test]
fn keepalives_come_after_the_data() {
    let (report, _, capture) = read_only("keepalive-idle");
    let [sender, _] = &report.flows[0].ends;
    assert_eq!(
        (sender.unique_bytes, sender.retransmitted_packets),
        (ByteCount::new(289_600), 0)
    );
    assert_eq!((stalls(&report).timeouts, capture.probes), (Span::ZERO, 20));
    assert!(
        stalls(&report).after_data >= Span::from_secs(100),
        "{:?}",
        stalls(&report)
    );
}

#[test]
fn a_scale_that_a_snap_length_cut_off_is_unknown() {
    let (report, evidence, capture) = read_only("snap68");
    assert_eq!(
        (capture.sender_offers_scale, capture.receiver_offers_scale),
        (None, None)
    );
    assert!(
        evidence
            .sender_samples
            .iter()
            .all(|sample| sample.tcp.window_scaling.is_none())
    );
    // 1.4 MB are in flight: no window of 40 000 B without a scale.
    assert!(
        evidence
            .sender_samples
            .iter()
            .all(|sample| sample.tcp.snd_wnd != Some(ByteCount::new(40_000)))
    );
    assert!(report.flows[0].ends[1].window.unwrap().is_unscaled);
}

#[test]
fn a_loss_among_four_packets_is_counted_and_is_none_of_timeouts() {
    let (report, evidence, capture) = read_only("dupack-four-packets");
    let last = &evidence.sender_samples.last().unwrap().tcp;
    let segments = [last.data_segs_out, last.total_retrans].map(|count| count.unwrap().get());
    assert_eq!(
        (segments, capture.lost_before, capture.point),
        ([4, 1], 1, Some(At::Receiver))
    );
    assert!(stalls(&report).is_empty(), "{:?}", stalls(&report));
}

#[test]
fn frames_with_a_length_in_place_of_a_type_are_read() {
    let report = read("llc-snap");
    assert_eq!(
        (report.flows.len(), report.segments, report.unanswered),
        (1, report.packets, 0)
    );
    assert_eq!(report.flows[0].total_bytes().get(), 70_000);
}

#[test]
fn a_syn_that_is_answered_by_a_syn_has_an_answer() {
    let report = read("simultaneous-open");
    assert_eq!(
        (report.flows.len(), report.unanswered, &report.notes),
        (1, 0, &Vec::new())
    );
    assert!(
        report.flows[0].has_handshake && report.flows[0].ends.iter().all(|end| end.syn.is_some())
    );
}

#[test]
fn a_connection_is_one_whatever_vlan_each_direction_passes_in() {
    let plain = read("vlan-none");
    assert_eq!(
        (plain.flows.len(), plain.flows[0].total_bytes().get()),
        (1, 579_200)
    );
    for name in ["vlan-one-way", "vlan-two-ids"] {
        let report = read(name);
        assert_eq!((report.flows.len(), report.unanswered), (1, 0), "{name}");
        assert_eq!(report.flows[0], plain.flows[0], "{name}");
    }
}
