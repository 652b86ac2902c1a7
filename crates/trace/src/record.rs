//! A packet as both formats hold it.

use std::ops::Range;

use fullpipe_wire::LinkType;

/// Bytes of a packet that any capture keeps at most, as in libpcap.
pub(crate) const MAX_CAPTURED: u32 = 256 * 1024;

/// A packet in the input's buffer.
pub(crate) struct PacketRecord {
    /// Place of the packet's bytes in the buffer, until the input is filled again.
    pub range: Range<usize>,
    /// Nanoseconds since 1970.
    pub at: u64,
    pub link: LinkType,
    /// Number of its interface within its section.
    pub interface: u16,
    /// Length in bytes when it passed.
    pub original: u32,
}
