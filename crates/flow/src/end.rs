//! The packets that one end of a connection sends.

use fullpipe_record::{BurstRate, FlowEnd, StallTimes};
use fullpipe_units::{BitRate, ByteCount, Span, Time};
use fullpipe_wire::flags;

use crate::counts::EndCounts;
use crate::course::{FlowParameters, WindowScale};
use crate::echoes::{EchoedState, Echoes};
use crate::intervals::SequenceIntervals;
use crate::loops::{ResponseTimer, is_newer};
use crate::packet::FlowPacket;
use crate::passages::{PassageGrids, SequenceOrigin};
use crate::repetitions::RecentPackets;
use crate::sending::{SentData, SentSegment};
use crate::sequence::SequenceSpace;
use crate::spans::SpanHistogram;
use crate::unacknowledged::UnacknowledgedSegments;
use crate::windows::WindowFigures;

/// Payload of a segment that every link with IPv6 lets pass (RFC 8200, 5).
const MIN_USUAL_SEGMENT: u64 = 1220;

/// The packets of one end so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndState {
    sequence: SequenceSpace,
    /// End of the highest byte that it sent.
    next: Option<u64>,
    /// Position at which it would have sent next, by the last packet that occupies nothing.
    ahead: u64,
    /// Its packets without data from below what was acknowledged, or with the next byte in a closed
    /// window.
    pub(crate) probes: u64,
    /// True if the next byte was sent into a closed window.
    next_is_probed: bool,
    /// Everything below this position was acknowledged.
    acknowledged: Option<u64>,
    /// Last acknowledgement that it sent, as a position of the other end, and its window field.
    acknowledges: Option<(u64, u16)>,
    /// The first position that was acknowledged before a packet of this end was seen.
    first_acknowledged: Option<u64>,
    seen: SequenceIntervals,
    unacknowledged: UnacknowledgedSegments,
    rtts: SpanHistogram,
    /// The way to this end and back.
    pub(crate) answers: ResponseTimer,
    windows: WindowFigures,
    /// Acknowledgements of this end by their timestamps.
    pub(crate) echoes: Echoes,
    /// The window that the other end allows, as it stands in the header.
    allowed: Option<u16>,
    /// Position at which its first full segment ends.
    full_segment_until: Option<u64>,
    /// The course of its data, once there is any.
    sending: Option<Box<SentData>>,
    /// Position of its first byte of data.
    first_byte: Option<u64>,
    recent: RecentPackets,
    /// The begin of its sequence space, by the first packet with one of its positions.
    origin: Option<SequenceOrigin>,
    /// Data of this end, and the acknowledgements of it, which pass the other way; `None` if no
    /// other capture is compared.
    passages: Option<Box<[PassageGrids; 2]>>,
    /// Identification and timestamp of the segment with the highest bytes.
    newest: (Option<u16>, Option<u32>),
    /// Bytes of its data.
    newest_bytes: u32,
    /// Above zero where its identifications count up, below where they are random.
    counting: i8,
    counts: EndCounts,
}

/// Size of segments and scale of windows that the data of an end goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentParameters {
    /// Size of a full segment in bytes.
    mss: u64,
    /// True if the SYNs show the shift of the receiver's windows.
    is_scale_known: bool,
}

impl EndState {
    /// Returns an end without a packet. With `keeps_times`, the times of its packets are kept.
    pub(crate) fn new(keeps_times: bool) -> Self {
        Self {
            passages: keeps_times.then(Box::default),
            ..Self::default()
        }
    }

    /// Returns true for a segment that asks whether the other end is still there with the last byte
    /// of what was acknowledged (RFC 9293, 3.8.4): it says nothing of a loss. A segment that has no
    /// other byte is retransmitted, unless that byte is the first of a capture from the middle on.
    #[inline]
    pub(crate) fn keeps_alive(&self, packet: &FlowPacket) -> bool {
        packet.payload == 1
            && packet.flags & (flags::SYN | flags::FIN | flags::RST) == 0
            && (self.newest_bytes > 1 || self.syn_count() == 0 && self.counts.unique_bytes() == 1)
            && self.next_sequence() == Some(packet.next_sequence())
            && self.acknowledged >= self.next
    }

    /// Returns true for a segment that asks with the next byte whether a closed window is open (RFC
    /// 9293, 3.8.6.1): as long as that is not acknowledged, it is as if it was not sent.
    #[inline]
    pub(crate) fn probes_window(&mut self, packet: &FlowPacket) -> bool {
        let probes = packet.payload == 1
            && self.allowed == Some(0)
            && packet.flags & (flags::SYN | flags::FIN | flags::RST) == 0
            && self.next_sequence() == Some(packet.sequence)
            && self.acknowledged >= self.next;
        self.probes += u64::from(probes);
        self.next_is_probed |= probes;
        probes
    }

    /// Takes note of an acknowledgement below `position`, which may be of the byte that a probe
    /// carried.
    fn note_probed_byte(&mut self, position: u64) {
        let Some(next) = self
            .next
            .filter(|next| self.next_is_probed && position > *next)
        else {
            return;
        };
        self.next_is_probed = false;
        self.counts.add_probed_byte();
        self.seen.add_interval(next, next + 1);
        self.sequence.advance_to(next + 1);
        self.next = Some(next + 1);
    }

    /// Counts a segment that this end sent. Returns false if it was captured before.
    pub(crate) fn count_packet(&mut self, packet: &FlowPacket) -> bool {
        if self.recent.is_repetition(packet) {
            self.counts.duplicates += 1;
            return false;
        }
        self.counts.add_packet(packet);
        true
    }

    /// Places what a segment occupies of the sequence space: its data, and one number each for SYN
    /// and FIN. `echo` is what it had seen of the other end.
    pub(crate) fn place_packet(
        &mut self,
        packet: &FlowPacket,
        echo: Option<EchoedState>,
        agreement: SegmentParameters,
    ) {
        let start = self.sequence.position(packet.sequence);
        let flags =
            u64::from(packet.has_flags(flags::SYN)) + u64::from(packet.has_flags(flags::FIN));
        let end = start + u64::from(packet.payload) + flags;
        if end == start || packet.has_flags(flags::RST) {
            self.ahead = if packet.has_flags(flags::RST) {
                self.ahead
            } else {
                start
            };
            self.probes +=
                u64::from(!packet.has_flags(flags::RST) && self.acknowledged > Some(start));
            return;
        }
        self.sequence.advance_to(end);
        // Without a handshake the largest segment may be small.
        let full = if agreement.is_scale_known {
            agreement.mss
        } else {
            agreement.mss.max(MIN_USUAL_SEGMENT)
        };
        if self.full_segment_until.is_none() && u64::from(packet.payload) >= full {
            self.full_segment_until = Some(end);
        }
        if packet.payload > 0 || packet.has_flags(flags::SYN) {
            self.first_byte
                .get_or_insert(start + u64::from(packet.has_flags(flags::SYN)));
        }
        let is_syn = packet.has_flags(flags::SYN);
        let origin = *self.origin.get_or_insert_with(|| {
            if is_syn {
                SequenceOrigin::at_syn(start)
            } else {
                SequenceOrigin::at_zero()
            }
        });
        if let Some(passages) = &mut self.passages {
            passages[0].record_data(origin, [start, end], packet.at);
        }
        let added = self.seen.add_interval(start, end);
        let (mut again, mut is_late) = (added.known.min(packet.payload.into()), false);
        if added.known > 0 {
            self.counts.retransmitted_packets += u64::from(packet.payload > 0);
            self.counts.retransmitted_bytes += added.known.min(packet.payload.into());
        } else if added.is_below {
            let overtaken = self.was_sent_in_order(packet);
            self.counts.late_packets += 1;
            self.counts.reordered_packets += u64::from(overtaken);
            // Its first copy was lost before it came here.
            is_late = !overtaken;
            again = if overtaken { 0 } else { packet.payload.into() };
        }
        self.unacknowledged
            .record_sent_segment([start, end], packet.at, added.known > 0);
        if self.next.is_none_or(|next| end > next) {
            self.next = Some(end);
            self.note_newest(packet);
        }
        let acknowledged = self.acknowledged.or(self.first_byte).unwrap_or(start);
        let next = self.next.unwrap_or(end);
        self.counts.flight = self.counts.flight.max(next.saturating_sub(acknowledged));
        if packet.payload > 0
            && added.known >= packet.payload.into()
            && self.was_sent_in_order(packet)
        {
            // A repair came before it: nothing was lost.
            self.sending_begun()
                .came_late(packet.payload.into(), agreement.mss);
        } else if packet.payload > 0 {
            let (bytes, is_first_open) = (packet.payload.into(), start == acknowledged);
            let sent = SentSegment {
                bytes,
                again,
                is_first_open,
                next,
                acknowledged,
                mss: agreement.mss,
                is_scale_known: agreement.is_scale_known,
                is_late,
                is_pushed: packet.has_flags(flags::PSH),
            };
            self.sending_begun()
                .record_sent_segment(sent, echo, packet.at);
        }
    }

    /// Takes note of the segment with the highest bytes.
    fn note_newest(&mut self, packet: &FlowPacket) {
        /// Larger than the step of a host that counts for all its connections, and one in sixteen
        /// of random ones.
        const MAX_STEP: u16 = 4096;
        let time = packet.timestamps.map(|(value, _)| value);
        if let Some((new, before)) = packet
            .identification
            .zip(self.newest.0)
            .filter(|(new, before)| new != before)
        {
            let counts = new.wrapping_sub(before) <= MAX_STEP;
            self.counting = if counts {
                self.counting.saturating_add(1)
            } else {
                self.counting.saturating_sub(1)
            };
        }
        self.newest = (packet.identification, time);
        self.newest_bytes = packet.payload;
    }

    /// Returns true if a segment that arrives below others was sent before them: its timestamp is
    /// older than that of the highest one, or where both are the same or missing, its
    /// identification, if those count up.
    fn was_sent_in_order(&self, packet: &FlowPacket) -> bool {
        let (newest_id, newest_time) = self.newest;
        let times = packet.timestamps.map(|(value, _)| value).zip(newest_time);
        if let Some((late, newest)) = times.filter(|(late, newest)| late != newest) {
            return is_newer(newest, late);
        }
        let ids = packet
            .identification
            .zip(newest_id)
            .filter(|_| self.counting >= 0);
        ids.is_some_and(|(late, newest)| late.wrapping_sub(newest).cast_signed() < 0)
    }

    /// Takes note that the other end acknowledged all below the number in `packet`, which is the
    /// first answer to data of the time `answered` ago.
    pub(crate) fn is_acknowledged(&mut self, packet: &FlowPacket, answered: Option<Span>) -> u64 {
        let position = self.sequence.position(packet.acknowledgement);
        if self.next.is_none() {
            self.sequence.advance_to(position);
            self.first_acknowledged.get_or_insert(position);
        }
        let answers_syn = packet.has_flags(flags::SYN);
        let new_origin = || {
            if answers_syn {
                SequenceOrigin::at_syn(position.saturating_sub(1))
            } else {
                SequenceOrigin::at_zero()
            }
        };
        let origin = *self.origin.get_or_insert_with(new_origin);
        if let Some(passages) = &mut self.passages {
            passages[1].record_acknowledgement(origin, self.acknowledged, position, packet.at);
        }
        self.note_probed_byte(position);
        let rtt = self
            .unacknowledged
            .record_acknowledgement(position, packet.at);
        if let Some(rtt) = rtt {
            self.rtts.add_duration(rtt);
        }
        let is_newest = Some(position) >= self.acknowledged;
        if let (Some(first), Some(sending)) =
            (self.first_byte.filter(|_| is_newest), &mut self.sending)
        {
            let below = position.min(self.next.unwrap_or(position));
            // With timestamps a repair has its own, and is measured as well.
            let rtt = if packet.timestamps.is_some() {
                answered
            } else {
                rtt
            };
            sending.record_acknowledgement(position, below.saturating_sub(first), rtt, packet.at);
        }
        if self.first_byte.is_some_and(|first| position > first) {
            self.counts.record_acknowledgement();
        }
        self.acknowledged = self.acknowledged.max(Some(position));
        position
    }

    /// Takes note of an acknowledgement that this end sent, as a `position` of the other end, of
    /// which `on_way` is true if data was not acknowledged.
    pub(crate) fn record_sent_acknowledgement(
        &mut self,
        packet: &FlowPacket,
        position: u64,
        on_way: bool,
    ) {
        let said = (position, packet.window);
        let is_bare =
            packet.payload == 0 && packet.flags & (flags::SYN | flags::FIN | flags::RST) == 0;
        self.counts.duplicate_acks +=
            u64::from(is_bare && on_way && self.acknowledges == Some(said));
        self.acknowledges = Some(said);
    }

    /// Takes note of a window of `bytes`.
    pub(crate) fn record_window(&mut self, bytes: u32, at: Time) {
        self.windows.add_window(bytes, at);
    }

    /// Takes note of the window that the other end allows, as it stands in the header.
    pub(crate) fn is_allowed(&mut self, window: u16, at: Time) {
        self.allowed = Some(window);
        if let Some(sending) = &mut self.sending {
            sending.is_allowed(window, at);
        }
    }

    /// Returns the sequence number behind the highest one that it sent.
    pub(crate) fn next_sequence(&self) -> Option<u32> {
        self.next.map(|next| next as u32)
    }

    /// Returns the number that it acknowledged last.
    pub(crate) fn last_acknowledgement(&self) -> Option<u32> {
        self.acknowledges.map(|(position, _)| position as u32)
    }

    /// Returns true if this end sent data that was not acknowledged.
    pub(crate) fn has_data_on_way(&self) -> bool {
        self.next
            .zip(self.acknowledged)
            .is_some_and(|(next, below)| next > below)
    }

    /// Returns the bytes that it takes beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.seen.heap_bytes()
            + self.counts.heap_bytes()
            + self.unacknowledged.heap_bytes()
            + self.rtts.heap_bytes()
            + self.answers.heap_bytes()
            + self.windows.heap_bytes()
            + self.echoes.heap_bytes()
            + self
                .sending
                .as_ref()
                .map_or(0, |sending| sending.heap_bytes())
            + self.recent.heap_bytes()
            + self
                .passages
                .iter()
                .flat_map(|both| both.iter())
                .map(PassageGrids::heap_bytes)
                .sum::<usize>()
    }

    /// Leaves out the details that take most room.
    pub(crate) fn reduce_memory(&mut self) {
        self.seen.reduce_memory();
        self.unacknowledged.reduce_memory();
        self.answers.reduce_memory();
        self.echoes.reduce_memory();
        if let Some(sending) = &mut self.sending {
            sending.reduce_memory();
        }
        self.passages
            .iter_mut()
            .flat_map(|both| both.iter_mut())
            .for_each(PassageGrids::reduce_memory);
    }

    /// Returns how often its SYN was seen.
    pub(crate) fn syn_count(&self) -> u64 {
        self.counts.syns
    }

    /// Returns the size of segments that its SYN offers.
    pub(crate) fn offered_mss(&self) -> Option<ByteCount> {
        self.counts.mss.map(|mss| ByteCount::new(mss.into()))
    }

    /// Returns the number of its packets with data.
    pub(crate) fn data_packets(&self) -> u64 {
        self.counts.data_packets
    }

    /// Returns true if this end sent a FIN.
    pub(crate) fn has_closed(&self) -> bool {
        self.counts.has_closed()
    }

    /// Returns the segment size that this end's data has, and whether the scale of windows is
    /// known, for a connection whose other end is `other`.
    pub(crate) fn segment_parameters(&self, other: &Self) -> SegmentParameters {
        let is_scale_known = self.syn_scale(other) != WindowScale::Unknown;
        SegmentParameters {
            mss: self.counts.segment_size(&other.counts),
            is_scale_known,
        }
    }

    /// Returns the size of its full segments, for a connection whose other end is `other`.
    pub(crate) fn segment_size(&self, other: &Self) -> ByteCount {
        ByteCount::new(self.counts.segment_size(&other.counts))
    }

    /// Returns the bytes of options in each of its segments.
    pub(crate) fn option_bytes(&self) -> ByteCount {
        ByteCount::new(self.counts.option_bytes())
    }

    /// Returns the options and sizes that this end and `other` agreed on for this end's data, which
    /// is stream number `stream`.
    pub(crate) fn flow_parameters(
        &self,
        other: &Self,
        stream: u16,
        by_echo: bool,
    ) -> FlowParameters {
        let inferred = || {
            self.sent_data()
                .and_then(|sending| sending.window_shift(by_echo))
                .map(WindowScale::Inferred)
        };
        let scale = match other.syn_scale(self) {
            WindowScale::Unknown => inferred().unwrap_or(WindowScale::Unknown),
            known => known,
        };
        let sack = match (self.counts.permits_sack(), other.counts.permits_sack()) {
            (Some(own), Some(others)) => Some(own && others),
            (one, other) => one.or(other).filter(|permits| !permits),
        };
        FlowParameters {
            stream,
            mss: self.segment_size(other),
            timestamps: self.counts.has_timestamps(),
            sack,
            scale,
            is_one_way: other.is_silent(),
        }
    }

    /// Returns the shift of its windows, where it offered one. A larger one than the largest counts
    /// as that (RFC 7323, 2.3).
    pub(crate) fn window_scale(&self) -> Option<u8> {
        const MAX_SCALE: u8 = 14;
        self.counts.window_scale.map(|shift| shift.min(MAX_SCALE))
    }

    /// Returns true if its SYN offers to scale windows; `None` where that was not captured whole.
    pub(crate) fn offers_scale(&self) -> Option<bool> {
        self.counts.syn_offers(self.counts.window_scale.is_some())
    }

    /// Returns true if a device took the offer to scale windows out of its SYN and left padding
    /// there.
    pub(crate) fn is_scale_overwritten(&self) -> bool {
        self.counts.is_scale_overwritten()
    }

    /// Returns the shift of the windows that it advertises to `other`, as the SYNs show it: none
    /// unless both offer one (RFC 7323, 2.2).
    pub(crate) fn syn_scale(&self, other: &Self) -> WindowScale {
        match (self.offers_scale(), other.offers_scale()) {
            (Some(false), _) | (_, Some(false)) => WindowScale::Absent,
            (Some(true), Some(true)) => self
                .window_scale()
                .map_or(WindowScale::Absent, WindowScale::Agreed),
            _ => WindowScale::Unknown,
        }
    }

    /// Returns the times in which it sent none of its data, of a connection that was open from the
    /// first time to the second.
    pub(crate) fn stalls(&self, opened: [Time; 2]) -> StallTimes {
        self.sent_data()
            .map(|sending| sending.stalls(opened))
            .unwrap_or_default()
    }

    /// Returns the data that it had sent when it sent its last packet, and of which nothing came
    /// here.
    pub(crate) fn unseen_bytes(&self) -> ByteCount {
        ByteCount::new(self.next.map_or(0, |next| self.ahead.saturating_sub(next)))
    }

    /// Returns true if a full segment of its data was acknowledged.
    pub(crate) fn full_segment_acknowledged(&self) -> bool {
        self.full_segment_until
            .is_some_and(|end| self.acknowledged >= Some(end))
    }

    /// Returns the bytes of data of this end, each counted once.
    pub(crate) fn unique_bytes(&self) -> ByteCount {
        ByteCount::new(self.counts.unique_bytes())
    }

    /// Returns the bytes of data of this end, each counted once, with those that did not come here.
    pub(crate) fn sent_bytes(&self) -> ByteCount {
        self.moved_bytes() + self.unseen_bytes()
    }

    /// Returns the bytes of data of this end, each counted once; of an end without a packet here,
    /// those that the other one acknowledged.
    fn moved_bytes(&self) -> ByteCount {
        if self.is_silent() {
            self.missing_bytes()
        } else {
            self.unique_bytes()
        }
    }

    /// Returns the data that the other end acknowledged and of which nothing was seen.
    fn missing_bytes(&self) -> ByteCount {
        let below = self.acknowledged.unwrap_or_default();
        ByteCount::new(if self.is_silent() {
            below - self.first_acknowledged.unwrap_or(below)
        } else {
            self.seen.missing_below(below)
        })
    }

    /// Returns true if none of its packets was seen.
    pub(crate) fn is_silent(&self) -> bool {
        self.counts.is_silent()
    }

    /// Returns the figures of a connection that lasted `duration`, whose other end is `other`, with
    /// the rate of `bursts`.
    pub(crate) fn to_flow_end(
        &self,
        other: &Self,
        address: String,
        duration: Span,
        bursts: Option<BurstRate>,
    ) -> FlowEnd {
        let counts = self.counts.to_flow_end();
        FlowEnd {
            address,
            segment_size: self.segment_size(other),
            missing_bytes: self.missing_bytes(),
            unseen: self.unseen_bytes(),
            lost_before: self.sent_data().map_or(0, |sending| sending.lost_before),
            window: self
                .windows
                .window_figures(self.syn_scale(other) == WindowScale::Unknown),
            rtt: self.rtts.round_trip_figures(),
            // Without an acknowledgement everything seems in flight.
            flight: if other.is_silent() {
                ByteCount::ZERO
            } else {
                counts.flight
            },
            rate: BitRate::from_bytes_in(self.moved_bytes(), duration),
            bursts,
            ..counts
        }
    }

    /// Takes note that some of its data arrived twice.
    pub(crate) fn arrived_twice(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.course.now.needless += 1;
        }
    }

    /// Returns the course of its data; `None` without any.
    pub(crate) fn sent_data(&self) -> Option<&SentData> {
        self.sending.as_deref()
    }

    fn sending_begun(&mut self) -> &mut SentData {
        self.sending
            .get_or_insert_with(|| Box::new(SentData::new(self.allowed)))
    }

    /// Takes the times at which its data passed, and those of the acknowledgements of it.
    pub(crate) fn take_passages(&mut self) -> Option<Box<[PassageGrids; 2]>> {
        self.passages.as_mut().map(std::mem::take)
    }

    /// Returns the shortest round-trip time of its data, from the place of the capture.
    pub(crate) fn least_rtt(&self) -> Option<Span> {
        self.rtts.min_duration()
    }
}
