//! Figures that `TCP_INFO` always has.

#![expect(
    clippy::unnecessary_wraps,
    reason = "other fields of TCP_INFO may be missing"
)]

use fullpipe_units::{ByteCount, SegCount};

pub(crate) fn segments(count: u64) -> Option<SegCount> {
    Some(SegCount::new(count))
}

pub(crate) fn bytes(count: u64) -> Option<ByteCount> {
    Some(ByteCount::new(count))
}
