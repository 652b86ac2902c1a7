//! Segments of one connection, in any order, with any numbers: whatever they are, they give
//! connections and a verdict, and the same connections in another capture.
#![no_main]

use std::net::SocketAddr;

use fullpipe_diagnose::{diagnose, find_remedies};
use fullpipe_flow::{ExplainedTransfers, FinishedFlows, FlowTable, FlowsWithTimes, match_flows};
use fullpipe_units::{Span, Time};
use fullpipe_wire::{CapturedSegment, SegmentOptions};
use libfuzzer_sys::fuzz_target;

/// Bytes of the input that make one segment.
const SEGMENT: usize = 28;

fuzz_target!(|data: &[u8]| {
    let finished = captured(data, 0..usize::MAX);
    for transfer in &finished.transfers {
        assert!(!transfer.flows.is_empty() && transfer.flows.len() <= finished.flows.len());
        let verdict = diagnose(&transfer.evidence);
        find_remedies(&transfer.evidence, &verdict);
    }
    let flows = FlowsWithTimes {
        flows: &finished.flows,
        times: &finished.times,
    };
    assert_eq!(match_flows(flows, flows).len(), finished.flows.len());
    // A capture that began later and ended sooner.
    let count = data.len() / SEGMENT;
    let part = captured(data, count / 4..count - count / 3);
    let part = FlowsWithTimes {
        flows: &part.flows,
        times: &part.times,
    };
    match_flows(flows, part);
    match_flows(part, flows);
});

/// Returns the connections of the segments with these numbers.
fn captured(data: &[u8], range: std::ops::Range<usize>) -> FinishedFlows {
    let mut flows = FlowTable::default();
    let mut at = Time::ZERO;
    for (number, bytes) in data.chunks_exact(SEGMENT).enumerate() {
        at = at + Span::from_micros(u64::from(half(bytes, 0)));
        if range.contains(&number) {
            flows.add_segment(&segment(bytes), at);
        }
    }
    flows.finish_flows(ExplainedTransfers::Largest(2))
}

fn segment(bytes: &[u8]) -> CapturedSegment {
    let kind = bytes[2];
    let port = 40_000 + u16::from(kind >> 6);
    let [client, server] =
        [([192, 0, 2, 1], port), ([198, 51, 100, 2], 5201)].map(SocketAddr::from);
    let (source, destination) = if kind & 1 == 0 {
        (client, server)
    } else {
        (server, client)
    };
    let options = SegmentOptions {
        mss: (kind & 2 != 0).then(|| half(bytes, 20)),
        window_scale: (kind & 4 != 0).then_some(bytes[22]),
        timestamps: (kind & 8 != 0).then(|| (word(bytes, 12), word(bytes, 16))),
        cut: bytes[23] & 4 != 0,
        ..SegmentOptions::default()
    };
    CapturedSegment {
        source,
        destination,
        network: u32::from(kind >> 5 & 1),
        overhead: 0,
        sequence: word(bytes, 4),
        acknowledgement: word(bytes, 8),
        flags: u16::from(bytes[3]),
        window: half(bytes, 24),
        payload: u32::from(half(bytes, 26)) << (bytes[23] & 3),
        options,
        identification: (kind & 16 != 0).then(|| half(bytes, 22)),
        hops_left: 64,
        traffic_class: 0,
        checksum: 0,
        checksum_is_unfinished: false,
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
