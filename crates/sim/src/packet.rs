use std::net::IpAddr;

use fullpipe_link::{Edited, Train};
use fullpipe_record::Edit;
use fullpipe_tcp::{Ack, Burst};
use fullpipe_units::{ByteCount, SegCount};

/// Packets of one connection as the path sees them: fields, and no payload.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    /// IP bytes of each.
    bytes: u32,
    pub(crate) content: Content,
    pub(crate) is_spoiled: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Data(Burst),
    /// Without the window in bytes: a header holds the field, and each end applies its own shift.
    Ack(Ack, u16),
    /// The message of a control connection that ends the transfer.
    End,
}

impl Packet {
    /// Segments of `bytes` each.
    pub(crate) fn data(flow: u32, bytes: ByteCount, burst: Burst) -> Self {
        Self { flow, bytes: bytes.get() as u32, content: Content::Data(burst), is_spoiled: false }
    }

    /// An acknowledgement of `bytes`, whose window counts in units of 2^`scale`.
    pub(crate) fn ack(flow: u32, bytes: ByteCount, ack: Ack, scale: u8) -> Self {
        let field = (ack.window.get() >> scale).min(u64::from(u16::MAX)) as u16;
        Self { flow, bytes: bytes.get() as u32, content: Content::Ack(ack, field), is_spoiled: false }
    }

    /// The message that ends a transfer.
    pub(crate) fn end(bytes: ByteCount) -> Self {
        Self { flow: u32::MAX, bytes: bytes.get() as u32, content: Content::End, is_spoiled: false }
    }
}

impl Train for Packet {
    fn segments(&self) -> SegCount {
        match &self.content {
            Content::Data(burst) => burst.segments,
            Content::Ack(..) | Content::End => SegCount::new(1),
        }
    }

    fn segment_bytes(&self) -> ByteCount {
        ByteCount::new(u64::from(self.bytes))
    }

    fn ip_bytes(&self) -> ByteCount {
        self.segments().of_size(self.segment_bytes())
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        let mut rest = self.clone();
        if let (Content::Data(first), Content::Data(rest)) = (&mut self.content, &mut rest.content) {
            rest.first += at.get();
            rest.segments = first.segments - at;
            first.segments = at;
        }
        rest
    }

    fn flow(&self) -> u64 {
        u64::from(self.flow)
    }

    fn mark_ce(&mut self) -> bool {
        false
    }

    fn corrupt(&mut self, _: u64) {
        self.is_spoiled = true;
    }

    fn apply(&mut self, edit: &Edit) -> Edited {
        match (edit, &mut self.content) {
            (Edit::ClampWindow(most), Content::Ack(_, field)) if u64::from(*field) > most.get() => {
                *field = most.get() as u16;
                Edited::Changed
            }
            _ => Edited::Unchanged,
        }
    }

    fn time_exceeded(&self, _: IpAddr) -> Option<Self> {
        None
    }

    fn too_big(&self, _: ByteCount) -> Option<Self> {
        None
    }
}
