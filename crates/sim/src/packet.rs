use std::net::IpAddr;

use fullpipe_link::{EditEffect, Train};
use fullpipe_record::{Edit, Framing};
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::tcp::{AckSegment, SackBlocks, SegmentBurst, TimestampValue};

/// Packets of one connection as the path sees them: fields, and no payload. There may be millions
/// in a queue, so they are small.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedPacket {
    pub(crate) flow: u32,
    /// Packets on the wire.
    segments: u32,
    /// IP bytes of each, of which a header can count 65 535.
    bytes: u16,
    pub(crate) content: PacketContent,
    pub(crate) is_spoiled: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum PacketContent {
    Data(SegmentFields),
    Acknowledgement {
        next: u64,
        blocks: SackBlocks,
        stamp: TimestampValue,
        echo: TimestampValue,
        /// The window field, to which each end applies its own shift.
        window: u16,
    },
    Datagrams(DatagramFields),
    /// An echo request or its answer, with its number.
    Echo(u32),
    /// The answer of a router to segments that are too big for the link behind it.
    TooBig,
    /// The message of a control connection that ends the transfer.
    End,
}

/// The fields of datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramFields {
    /// Number of the first, from 1.
    pub(crate) first: u64,
    pub(crate) sent: Time,
}

/// The fields of segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentFields {
    first: u64,
    stamp: TimestampValue,
    echo: TimestampValue,
    pushes: bool,
    is_probe: bool,
}

impl SegmentFields {
    /// So many segments of it.
    pub(crate) fn segment_burst(&self, segments: SegCount) -> SegmentBurst {
        let &Self {
            first,
            stamp,
            echo,
            pushes,
            is_probe,
        } = self;
        SegmentBurst {
            first,
            segments,
            stamp,
            echo,
            pushes,
            is_probe,
        }
    }
}

impl PacketContent {
    /// An acknowledgement as an end understands it that shifts windows by `scale`; `None` for
    /// anything else.
    pub(crate) fn into_ack(self, scale: u8) -> Option<AckSegment> {
        let Self::Acknowledgement {
            next,
            blocks,
            stamp,
            echo,
            window,
        } = self
        else {
            return None;
        };
        Some(AckSegment {
            next,
            window: ByteCount::new(u64::from(window) << scale),
            blocks,
            stamp,
            echo,
        })
    }
}

impl SimulatedPacket {
    /// Segments of `bytes` each.
    pub(crate) fn data_packet(flow: u32, bytes: ByteCount, burst: &SegmentBurst) -> Self {
        let &SegmentBurst {
            first,
            segments,
            stamp,
            echo,
            pushes,
            is_probe,
        } = burst;
        let data = SegmentFields {
            first,
            stamp,
            echo,
            pushes,
            is_probe,
        };
        Self {
            segments: segments.get() as u32,
            ..Self::single_packet(flow, bytes, PacketContent::Data(data))
        }
    }

    /// An acknowledgement of `bytes`, whose window counts in units of 2^`scale`.
    pub(crate) fn ack_packet(flow: u32, bytes: ByteCount, ack: AckSegment, scale: u8) -> Self {
        let content = PacketContent::Acknowledgement {
            next: ack.next,
            blocks: ack.blocks,
            stamp: ack.stamp,
            echo: ack.echo,
            window: (ack.window.get() >> scale).min(u64::from(u16::MAX)) as u16,
        };
        Self::single_packet(flow, bytes, content)
    }

    /// Datagrams of `bytes` each.
    pub(crate) fn datagram_packet(
        flow: u32,
        bytes: ByteCount,
        count: SegCount,
        numbered: DatagramFields,
    ) -> Self {
        Self {
            segments: count.get() as u32,
            ..Self::single_packet(flow, bytes, PacketContent::Datagrams(numbered))
        }
    }

    /// The echo request with this number.
    pub(crate) fn echo_packet(number: u32, bytes: ByteCount) -> Self {
        Self::single_packet(u32::MAX - 1, bytes, PacketContent::Echo(number))
    }

    /// The message that ends a transfer.
    pub(crate) fn end_packet(bytes: ByteCount) -> Self {
        Self::single_packet(u32::MAX, bytes, PacketContent::End)
    }

    /// A single packet.
    fn single_packet(flow: u32, bytes: ByteCount, content: PacketContent) -> Self {
        Self {
            flow,
            segments: 1,
            bytes: packet_size(bytes),
            content,
            is_spoiled: false,
        }
    }
}

fn packet_size(bytes: ByteCount) -> u16 {
    u16::try_from(bytes.get()).unwrap_or(u16::MAX)
}

impl Train for SimulatedPacket {
    fn segment_count(&self) -> SegCount {
        SegCount::new(u64::from(self.segments))
    }

    fn segment_bytes(&self) -> ByteCount {
        ByteCount::new(u64::from(self.bytes))
    }

    fn ip_bytes(&self) -> ByteCount {
        self.segment_count().of_size(self.segment_bytes())
    }

    /// In one multiplication, which cannot overflow.
    fn wire_bytes(&self, framing: Framing) -> ByteCount {
        ByteCount::new(
            u64::from(self.segments) * (u64::from(self.bytes) + framing.packet_overhead().get()),
        )
    }

    #[inline]
    fn split_off(&mut self, at: SegCount) -> Self {
        let content = match &mut self.content {
            PacketContent::Data(data) => {
                let rest = SegmentFields {
                    first: data.first + at.get(),
                    ..*data
                };
                data.pushes = false;
                PacketContent::Data(rest)
            }
            PacketContent::Datagrams(numbered) => PacketContent::Datagrams(DatagramFields {
                first: numbered.first + at.get(),
                ..*numbered
            }),
            other => other.clone(),
        };
        let segments = self.segments - at.get() as u32;
        self.segments = at.get() as u32;
        Self {
            segments,
            content,
            ..*self
        }
    }

    fn flow_hash(&self) -> u64 {
        u64::from(self.flow)
    }

    fn mark_ce(&mut self) -> bool {
        false
    }

    fn corrupt_bit(&mut self, _: u64) {
        self.is_spoiled = true;
    }

    fn apply_edit(&mut self, edit: &Edit) -> EditEffect {
        match (edit, &mut self.content) {
            (Edit::ClampWindow(most), PacketContent::Acknowledgement { window, .. })
                if u64::from(*window) > most.get() =>
            {
                *window = most.get() as u16;
                EditEffect::Changed
            }
            _ => EditEffect::Unchanged,
        }
    }

    fn time_exceeded(&self, _: IpAddr) -> Option<Self> {
        None
    }

    fn too_big(&self, _: ByteCount) -> Option<Self> {
        /// Most of a packet that is sent back with an answer about it (RFC 1812, 4.3.2.3).
        const ANSWER: ByteCount = ByteCount::new(576);
        let answers = matches!(self.content, PacketContent::Data(_));
        answers.then(|| Self::single_packet(self.flow, ANSWER, PacketContent::TooBig))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_small() {
        assert!(
            size_of::<SimulatedPacket>() <= 48,
            "{}",
            size_of::<SimulatedPacket>()
        );
    }
}
