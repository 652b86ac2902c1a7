//! A segment for the tests of this room.

use std::net::SocketAddr;

use fullpipe_wire::{CapturedSegment, SegmentOptions};

/// Returns an empty one without flags and options.
pub(crate) fn empty_segment() -> CapturedSegment {
    CapturedSegment {
        source: SocketAddr::from(([192, 0, 2, 1], 40_000)),
        destination: SocketAddr::from(([198, 51, 100, 2], 5201)),
        network: 0,
        overhead: 0,
        sequence: 0,
        acknowledgement: 0,
        flags: 0,
        window: 1_000,
        payload: 0,
        options: SegmentOptions::default(),
        identification: None,
        hops_left: 64,
        traffic_class: 0,
        checksum: 0,
        checksum_is_unfinished: false,
    }
}
