//! Packets that were captured twice, as by a mirror of both ports of a switch.

use fullpipe_units::{Span, Time};
use fullpipe_wire::Segment;

/// Packets that are remembered.
const REMEMBERED: usize = 16;

/// Maximum time between both captures of a packet.
const MAX_LAG: Span = Span::from_millis(10);

/// Fields that both captures of a packet share. A segment that is sent again differs in its identification or
/// timestamp.
type Fields = (u32, u32, u32, u16, u16, Option<u16>, u16, Option<(u32, u32)>);

/// The last packets of an end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent {
    packets: [Option<(Fields, Time)>; REMEMBERED],
    next: usize,
}

impl Recent {
    /// Returns true if `segment` was captured before, and remembers it otherwise.
    pub(crate) fn repeats(&mut self, segment: &Segment, at: Time) -> bool {
        // Without an identification (IPv6, or zero) only the checksum could show that a segment was sent again.
        let fields = (
            segment.sequence,
            segment.acknowledgement,
            segment.payload,
            segment.flags,
            segment.window,
            segment.identification,
            segment.checksum,
            segment.options.timestamps,
        );
        let same = |(known, when): &(Fields, Time)| *known == fields && at.since(*when) <= MAX_LAG;
        let is_known = segment.identification.is_some_and(|id| id != 0) || segment.options.timestamps.is_some();
        if is_known && self.packets.iter().flatten().any(same) {
            return true;
        }
        self.packets[self.next] = Some((fields, at));
        self.next = (self.next + 1) % REMEMBERED;
        false
    }
}
