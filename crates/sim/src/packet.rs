use std::net::IpAddr;

use fullpipe_link::{Edited, Train};
use fullpipe_record::{Edit, Framing};
use fullpipe_tcp::{Ack, Blocks, Burst, Stamp};
use fullpipe_units::{ByteCount, SegCount, Time};

/// Packets of one connection as the path sees them: fields, and no payload. There may be millions in a queue, so they
/// are small.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    /// Packets on the wire.
    segments: u32,
    /// IP bytes of each, of which a header can count 65 535.
    bytes: u16,
    pub(crate) content: Content,
    pub(crate) is_spoiled: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Data(Data),
    Acknowledgement {
        next: u64,
        blocks: Blocks,
        stamp: Stamp,
        echo: Stamp,
        /// The window field, to which each end applies its own shift.
        window: u16,
    },
    Datagrams(Numbered),
    /// An echo request or its answer, with its number.
    Echo(u32),
    /// The answer of a router to segments that are too big for the link behind it.
    TooBig,
    /// The message of a control connection that ends the transfer.
    End,
}

/// The fields of datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered {
    /// Number of the first, from 1.
    pub(crate) first: u64,
    pub(crate) sent: Time,
}

/// The fields of segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Data {
    first: u64,
    stamp: Stamp,
    echo: Stamp,
    pushes: bool,
    is_probe: bool,
}

impl Data {
    /// So many segments of it.
    pub(crate) fn burst(&self, segments: SegCount) -> Burst {
        let &Self { first, stamp, echo, pushes, is_probe } = self;
        Burst { first, segments, stamp, echo, pushes, is_probe }
    }
}

impl Content {
    /// An acknowledgement as an end understands it that shifts windows by `scale`; `None` for anything else.
    pub(crate) fn into_ack(self, scale: u8) -> Option<Ack> {
        let Self::Acknowledgement { next, blocks, stamp, echo, window } = self else { return None };
        Some(Ack { next, window: ByteCount::new(u64::from(window) << scale), blocks, stamp, echo })
    }
}

impl Packet {
    /// Segments of `bytes` each.
    pub(crate) fn data(flow: u32, bytes: ByteCount, burst: &Burst) -> Self {
        let &Burst { first, segments, stamp, echo, pushes, is_probe } = burst;
        let data = Data { first, stamp, echo, pushes, is_probe };
        Self { segments: segments.get() as u32, ..Self::one(flow, bytes, Content::Data(data)) }
    }

    /// An acknowledgement of `bytes`, whose window counts in units of 2^`scale`.
    pub(crate) fn ack(flow: u32, bytes: ByteCount, ack: Ack, scale: u8) -> Self {
        let content = Content::Acknowledgement {
            next: ack.next,
            blocks: ack.blocks,
            stamp: ack.stamp,
            echo: ack.echo,
            window: (ack.window.get() >> scale).min(u64::from(u16::MAX)) as u16,
        };
        Self::one(flow, bytes, content)
    }

    /// Datagrams of `bytes` each.
    pub(crate) fn datagrams(flow: u32, bytes: ByteCount, count: SegCount, numbered: Numbered) -> Self {
        Self { segments: count.get() as u32, ..Self::one(flow, bytes, Content::Datagrams(numbered)) }
    }

    /// The echo request with this number.
    pub(crate) fn echo(number: u32, bytes: ByteCount) -> Self {
        Self::one(u32::MAX - 1, bytes, Content::Echo(number))
    }

    /// The message that ends a transfer.
    pub(crate) fn end(bytes: ByteCount) -> Self {
        Self::one(u32::MAX, bytes, Content::End)
    }

    /// A single packet.
    fn one(flow: u32, bytes: ByteCount, content: Content) -> Self {
        Self { flow, segments: 1, bytes: size(bytes), content, is_spoiled: false }
    }
}

fn size(bytes: ByteCount) -> u16 {
    u16::try_from(bytes.get()).unwrap_or(u16::MAX)
}

impl Train for Packet {
    fn segments(&self) -> SegCount {
        SegCount::new(u64::from(self.segments))
    }

    fn segment_bytes(&self) -> ByteCount {
        ByteCount::new(u64::from(self.bytes))
    }

    fn ip_bytes(&self) -> ByteCount {
        self.segments().of_size(self.segment_bytes())
    }

    /// In one multiplication, which cannot overflow.
    fn wire_bytes(&self, framing: Framing) -> ByteCount {
        ByteCount::new(u64::from(self.segments) * (u64::from(self.bytes) + framing.overhead().get()))
    }

    #[inline]
    fn split_off(&mut self, at: SegCount) -> Self {
        let content = match &mut self.content {
            Content::Data(data) => {
                let rest = Data { first: data.first + at.get(), ..*data };
                data.pushes = false;
                Content::Data(rest)
            }
            Content::Datagrams(numbered) => {
                Content::Datagrams(Numbered { first: numbered.first + at.get(), ..*numbered })
            }
            other => other.clone(),
        };
        let segments = self.segments - at.get() as u32;
        self.segments = at.get() as u32;
        Self { segments, content, ..*self }
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
            (Edit::ClampWindow(most), Content::Acknowledgement { window, .. }) if u64::from(*window) > most.get() => {
                *window = most.get() as u16;
                Edited::Changed
            }
            _ => Edited::Unchanged,
        }
    }

    fn time_exceeded(&self, _: IpAddr) -> Option<Self> {
        None
    }

    fn too_big(&self, _: ByteCount) -> Option<Self> {
        /// Most of a packet that is sent back with an answer about it (RFC 1812, 4.3.2.3).
        const ANSWER: ByteCount = ByteCount::new(576);
        let answers = matches!(self.content, Content::Data(_));
        answers.then(|| Self::one(self.flow, ANSWER, Content::TooBig))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 48, "{}", size_of::<Packet>());
    }
}
