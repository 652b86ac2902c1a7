//! Values for tests.

use fullpipe_record::{Direction, Interval};
use fullpipe_units::{BitRate, ByteCount, Span};

/// Returns an interval of an upload of 1 MiB, which lasts for the second after `second`.
pub(crate) fn upload_interval(second: u64) -> Interval {
    Interval {
        direction: Direction::Upload,
        from: Span::from_secs(second),
        to: Span::from_secs(second + 1),
        bytes: ByteCount::from_mib(1),
        rate: BitRate::from_mbps(8),
        retransmits: None,
        rtt: None,
        echo_rtt: None,
        cwnd: None,
        omitted: false,
        datagrams_sent: None,
        datagrams: None,
        streams: Vec::new(),
    }
}
