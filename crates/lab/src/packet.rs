use std::net::IpAddr;

use fullpipe_link::{EditEffect, Train};
use fullpipe_record::{Edit, SegmentTruth};
use fullpipe_units::{ByteCount, SegCount};
use fullpipe_wire::{CapturedContent, LinkType, MalformedPacket, VIRTIO_HEADER, read_captured};

use crate::protocol::Layout;

/// A packet or a train of a host, as the link carries it.
#[derive(Clone)]
pub(crate) struct LinkPacket(fullpipe_wire::IpPacketTrain);

impl LinkPacket {
    /// Reads what a device of that layout gave.
    pub(crate) fn parse(frame: &[u8], layout: Layout) -> Result<Self, MalformedPacket> {
        fullpipe_wire::IpPacketTrain::parse(frame, layout.ethernet_header().len()).map(Self)
    }

    /// Returns the bytes for the device: headers, which replace what is in `front`, and payload.
    pub(crate) fn emit_frame<'p>(&'p self, layout: Layout, front: &mut Vec<u8>) -> &'p [u8] {
        self.0.emit(layout.ethernet_header(), front)
    }

    /// The first bytes of it as an IP packet, as many as `most`, and the length of all of it. Its
    /// checksum is finished, as if the packet were on a wire; a train is one long packet.
    pub(crate) fn captured_bytes(&self, most: usize) -> (Vec<u8>, u32) {
        let mut front = Vec::with_capacity(VIRTIO_HEADER + most);
        let mut whole = self.0.clone();
        whole.join_segments();
        let payload = whole.emit(&[], &mut front);
        let headers = front.get(VIRTIO_HEADER..).unwrap_or_default();
        let kept: Vec<u8> = headers.iter().chain(payload).take(most).copied().collect();
        (kept, (headers.len() + payload.len()) as u32)
    }

    /// Returns the TCP header of the packet; `None` of other protocols.
    pub(crate) fn segment_truth(&self) -> Option<SegmentTruth> {
        const SNAP: usize = 128;
        let (kept, length) = self.captured_bytes(SNAP);
        let CapturedContent::Tcp(segment) = read_captured(LinkType::RAW, &kept, length as usize)
        else {
            return None;
        };
        Some(SegmentTruth {
            ports: [segment.source.port(), segment.destination.port()],
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            payload: segment.payload,
            identification: segment.identification,
        })
    }
}

impl Train for LinkPacket {
    fn segment_count(&self) -> SegCount {
        self.0.segment_count()
    }

    fn segment_bytes(&self) -> ByteCount {
        self.0.segment_bytes()
    }

    fn ip_bytes(&self) -> ByteCount {
        self.0.ip_bytes()
    }

    fn split_off(&mut self, at: SegCount) -> Self {
        Self(self.0.split_off(at))
    }

    fn flow_hash(&self) -> u64 {
        self.0.flow_hash()
    }

    fn mark_ce(&mut self) -> bool {
        self.0.mark_ce()
    }

    fn corrupt_bit(&mut self, random: u64) {
        self.0.corrupt_bit(random);
    }

    fn apply_edit(&mut self, edit: &Edit) -> EditEffect {
        let changed = match *edit {
            Edit::StripWindowScale => self.0.strip_window_scale(),
            Edit::RewriteWindowScale(shift) => self.0.rewrite_window_scale(shift),
            Edit::StripSack => self.0.strip_sack(),
            Edit::StripTimestamps => self.0.strip_timestamps(),
            Edit::ClampMss(most) => self.0.clamp_mss(most),
            Edit::ClampWindow(most) => self.0.clamp_window(most),
            Edit::Router(_) if !self.0.count_hop() => return EditEffect::Stopped,
            Edit::Router(_) => true,
        };
        if changed {
            EditEffect::Changed
        } else {
            EditEffect::Unchanged
        }
    }

    fn time_exceeded(&self, by: IpAddr) -> Option<Self> {
        self.0.time_exceeded(by).map(Self)
    }

    fn too_big(&self, mtu: ByteCount) -> Option<Self> {
        self.0.too_big(mtu).map(Self)
    }
}
