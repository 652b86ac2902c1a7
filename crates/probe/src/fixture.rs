//! Values for tests.

use fullpipe_record::{Direction, Interval};
use fullpipe_units::{BitRate, ByteCount, Span};

/// Returns an interval of an upload of 1 MiB, which lasts for the second after `second`.
pub(crate) fn upload_interval(second: u64) -> Interval {
    let times = [second, second + 1].map(Span::from_secs);
    Interval {
        rate: BitRate::from_mbps(8),
        ..Interval::from_bytes(Direction::Upload, times, ByteCount::from_mib(1))
    }
}
