//! The packets of one end, counted.

use fullpipe_record::{FlowEnd, SynReport};
use fullpipe_units::{ByteCount, Span, Time};
use fullpipe_wire::flags;

use crate::packet::{FlowPacket, SackReport};
use crate::sizes::SegmentSizes;

/// Counts of what one end sent, in less room than a report of it takes.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct EndCounts {
    packets: u64,
    /// The number of packets with data.
    pub(crate) data_packets: u64,
    bytes: u64,
    pub(crate) retransmitted_packets: u64,
    pub(crate) retransmitted_bytes: u64,
    pub(crate) late_packets: u64,
    pub(crate) reordered_packets: u64,
    pub(crate) duplicates: u64,
    /// The number of SYNs of this end that were seen.
    pub(crate) syns: u64,
    fins: u64,
    resets: u64,
    pub(crate) duplicate_acks: u64,
    sack_packets: u64,
    initial_window: u64,
    pub(crate) flight: u64,
    last_at: Option<Time>,
    longest_pause: Span,
    /// Bytes of data in the largest and the smallest packet with any.
    largest: u32,
    smallest: u32,
    syn: Option<Box<SynReport>>,
    /// The size of segments that its SYN offers.
    pub(crate) mss: Option<u16>,
    /// Of its packets, if the first of them with data came before its SYN, or without one.
    sizes: Option<Box<SegmentSizes>>,
    /// The shift of its windows, where it offered one.
    pub(crate) window_scale: Option<u8>,
    sack_permitted: bool,
    timestamps: bool,
    /// True if the snap length cut options of its SYN off, and of any of its segments.
    syn_is_cut: bool,
    options_are_cut: bool,
    /// True if an option of its SYN was overwritten with padding on the way.
    syn_is_overwritten: bool,
    /// True once its data was acknowledged.
    had_acknowledgement: bool,
}

impl EndCounts {
    /// Counts a packet.
    pub(crate) fn add_packet(&mut self, packet: &FlowPacket) {
        self.packets += 1;
        let pause = packet.at.duration_since(self.last_at.unwrap_or(packet.at));
        self.longest_pause = self.longest_pause.max(pause);
        self.last_at = Some(packet.at);
        self.fins += u64::from(packet.has_flags(flags::FIN));
        self.resets += u64::from(packet.has_flags(flags::RST));
        self.sack_packets += u64::from(matches!(
            packet.sack,
            SackReport::New | SackReport::Duplicate
        ));
        self.options_are_cut |= packet.sack == SackReport::Cut;
        self.timestamps |= packet.timestamps.is_some();
        if packet.has_flags(flags::SYN) {
            self.add_syn(packet);
        }
        if packet.payload > 0 {
            self.add_data(packet.payload, packet.has_flags(flags::PSH));
        }
    }

    fn add_syn(&mut self, packet: &FlowPacket) {
        self.syns += 1;
        self.syn.get_or_insert_with(|| Box::new(syn_report(packet)));
        self.mss = packet.mss;
        self.window_scale = packet.window_scale;
        self.sack_permitted = packet.sack_permitted;
        self.syn_is_cut = packet.sack == SackReport::Cut;
        self.syn_is_overwritten = packet.sack == SackReport::Overwritten;
    }

    /// Counts a byte that a probe of a closed window carried, and that was acknowledged.
    pub(crate) fn add_probed_byte(&mut self) {
        self.bytes += 1;
    }

    fn add_data(&mut self, bytes: u32, is_pushed: bool) {
        if self.mss.is_none() {
            self.sizes
                .get_or_insert_default()
                .add_packet(bytes, is_pushed);
        }
        self.smallest = if self.data_packets > 0 {
            self.smallest.min(bytes)
        } else {
            bytes
        };
        self.largest = self.largest.max(bytes);
        self.data_packets += 1;
        self.bytes += u64::from(bytes);
        if !self.had_acknowledgement {
            self.initial_window += u64::from(bytes);
        }
    }

    /// Takes note that the other end acknowledged some of its data.
    pub(crate) fn record_acknowledgement(&mut self) {
        self.had_acknowledgement |= self.data_packets > 0;
    }

    /// Returns the bytes that it takes beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.sizes.is_some() {
            size_of::<SegmentSizes>()
        } else {
            0
        }
    }

    /// Returns true if none of its packets was seen.
    pub(crate) fn is_silent(&self) -> bool {
        self.packets == 0
    }

    /// Returns true if this end sent a FIN.
    pub(crate) fn has_closed(&self) -> bool {
        self.fins > 0
    }

    /// Returns true if its SYN has an option that it `offers`; `None` where none of it was
    /// captured, or the snap length may have cut the option off.
    pub(crate) fn syn_offers(&self, offers: bool) -> Option<bool> {
        (offers || self.syns > 0 && !self.syn_is_cut).then_some(offers)
    }

    /// Returns true if a device took the offer to scale windows out of its SYN and left padding
    /// there.
    pub(crate) fn is_scale_overwritten(&self) -> bool {
        self.syn_is_overwritten && self.window_scale.is_none()
    }

    /// Returns true if it may use SACK, as its SYN or blocks show.
    pub(crate) fn permits_sack(&self) -> Option<bool> {
        self.syn_offers(self.sack_permitted || self.sack_packets > 0)
    }

    /// Returns true if its segments carry timestamps; `None` where the snap length cut them off.
    pub(crate) fn has_timestamps(&self) -> Option<bool> {
        (self.timestamps || !self.options_are_cut).then_some(self.timestamps)
    }

    /// Returns the bytes of data of this end, each counted once.
    pub(crate) fn unique_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.retransmitted_bytes)
    }

    /// Returns the bytes of options in each of its segments.
    pub(crate) fn option_bytes(&self) -> u64 {
        const TIMESTAMPS: u64 = 12;
        if self.timestamps { TIMESTAMPS } else { 0 }
    }

    /// Returns the size of its full segments, for a connection whose other end has the counts
    /// `other`.
    pub(crate) fn segment_size(&self, other: &Self) -> u64 {
        let announced = match (self.mss, other.mss) {
            (Some(one), Some(other)) => one.min(other),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => {
                return self.sizes.as_deref().map_or(
                    SegmentSizes::default_segment_size(),
                    SegmentSizes::segment_size,
                );
            }
        };
        u64::from(announced)
            .saturating_sub(self.option_bytes())
            .max(1)
    }

    /// Converts the counters to the [`FlowEnd`] of a report.
    pub(crate) fn to_flow_end(&self) -> FlowEnd {
        let bytes = ByteCount::new;
        FlowEnd {
            packets: self.packets,
            data_packets: self.data_packets,
            bytes: bytes(self.bytes),
            unique_bytes: bytes(self.unique_bytes()),
            retransmitted_packets: self.retransmitted_packets,
            retransmitted_bytes: bytes(self.retransmitted_bytes),
            late_packets: self.late_packets,
            reordered_packets: self.reordered_packets,
            duplicates: self.duplicates,
            syns: self.syns,
            fins: self.fins,
            resets: self.resets,
            duplicate_acks: self.duplicate_acks,
            sack_packets: self.sack_packets,
            syn: self.syn.as_deref().copied(),
            mss: self.mss.map(|mss| bytes(mss.into())),
            window_scale: self.window_scale,
            sack_permitted: self.sack_permitted,
            timestamps: self.timestamps,
            largest: bytes(self.largest.into()),
            smallest: bytes(self.smallest.into()),
            initial_window: bytes(self.initial_window),
            flight: bytes(self.flight),
            longest_pause: self.longest_pause,
            ..FlowEnd::default()
        }
    }
}

fn syn_report(packet: &FlowPacket) -> SynReport {
    // A SYN offers with both bits, its answer accepts with one (RFC 3168, 6.1.1).
    let asks = if packet.has_flags(flags::ACK) {
        flags::ECE
    } else {
        flags::ECE | flags::CWR
    };
    SynReport {
        sequence: packet.sequence,
        mss: packet.mss.map(|mss| ByteCount::new(mss.into())),
        window_scale: packet.window_scale,
        sack: packet.sack_permitted,
        timestamps: packet.timestamps.is_some(),
        ecn: packet.flags & (flags::ECE | flags::CWR) == asks,
        multipath: packet.multipath,
        options_cut: packet.sack == SackReport::Cut,
        window: ByteCount::new(packet.window.into()),
        hops_left: packet.hops_left,
        dscp: packet.traffic_class >> 2,
    }
}
