//! Transfers as a capture shows them.

use crate::prelude::*;
use crate::{At, Diagnosis, Verdict};

/// The connections in a capture.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReport {
    /// Name of the file.
    pub name: String,
    /// Format and compression of the file, in words.
    pub format: String,
    /// Packets read.
    pub packets: u64,
    /// TCP segments among them.
    pub segments: u64,
    /// From the first packet to the last.
    pub duration: Span,
    /// Sentences about packets that the file lacks, and those that were left out.
    pub notes: Vec<String>,
    /// Connection attempts without an answer, which are no flows.
    pub unanswered: u64,
    /// Packets that the capturing host had no room for, where the capture states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Connections that are left out of the flows: there were too many, and they had least data.
    #[serde(default)]
    pub left_out: u64,
    /// Every TCP connection, by its first packet.
    pub flows: Vec<FlowReport>,
    /// The largest transfers, each with its limit.
    pub transfers: Vec<CapturedTransfer>,
    /// The other capture of the same connections, where there are two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Box<CaptureReport>>,
    /// The connections that both captures have, those with most data first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<FlowPair>,
    /// The file that the capture was written to without what identifies hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redacted: Option<RedactedFile>,
}

/// A capture that was kept of a transfer while it was measured or watched: another view of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnCapture {
    /// Name of the file; of two, of the sender's.
    pub name: String,
    /// Name of the receiver's file, where both ends were captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// Packets in it, or in both; without any there is no file.
    pub packets: u64,
    /// Packets that the kernel had no room for.
    pub dropped: u64,
    /// Packets that a file had no room for: all after it was full.
    pub left_out: u64,
    /// The limit that the packets show; `None` where too little was captured.
    pub limit: Option<Verdict>,
    /// True if it is the limit that the kernel's figures show too, or among the candidates of one
    /// of both; `None` where either is not known.
    pub agrees: Option<bool>,
}

impl OwnCapture {
    /// Returns the capture with what it shows, next to the `other` verdict on the same transfer.
    #[must_use]
    pub fn with_verdict(self, limit: Option<Verdict>, other: Option<&Verdict>) -> Self {
        let agrees = limit
            .as_ref()
            .zip(other)
            .and_then(|(limit, other)| limit.agrees_with(other));
        Self {
            limit,
            agrees,
            ..self
        }
    }
}

/// A capture that was written anew without what identifies hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RedactedFile {
    /// Name of the file.
    pub name: String,
    /// TCP segments in it.
    pub segments: u64,
    /// Packets that were left out: no segments of TCP, or cut before their TCP header ended.
    pub left_out: u64,
}

impl CaptureReport {
    /// Returns the limit of the first transfer that was explained; `None` without any.
    pub fn explained_limit(&self) -> Option<&Verdict> {
        self.transfers
            .first()
            .map(|transfer| &transfer.diagnosis.verdict)
    }

    /// Leaves connection `number` alone, in the other capture as well.
    pub fn retain_connection(&mut self, number: u64) {
        self.flows.retain(|flow| flow.number == number);
        self.pairs.retain(|pair| pair.numbers[0] == number);
        let others = self.pairs.first().map(|pair| pair.numbers[1]);
        if let Some(other) = &mut self.other {
            other.flows.retain(|flow| Some(flow.number) == others);
        }
    }
}

/// Connections of a capture that carried one transfer, and what limited it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapturedTransfer {
    /// Numbers of the connections, the one with most data first.
    pub flows: Vec<u64>,
    /// The verdict, with its evidence.
    pub diagnosis: Diagnosis,
}

/// The work of a device on the windows of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WindowEdit {
    /// Nothing.
    Nothing,
    /// The device took the offer to scale windows out of a SYN.
    ScaleStripped,
    /// The device changed the scale in a SYN.
    ScaleRewritten,
    /// The device lowered the windows.
    Lowered,
}

/// A rate that is more frequent than others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstRate {
    /// Data by time.
    pub rate: BitRate,
    /// Share of the data that passed within 3 % of it.
    pub share: Ratio,
}

impl BurstRate {
    /// Returns the rate at which the largest share passed; `None` without any.
    pub fn most_frequent(rates: impl IntoIterator<Item = Self>) -> Option<Self> {
        rates
            .into_iter()
            .max_by(|one, other| one.share.get().total_cmp(&other.share.get()))
    }
}

/// Figures of a transfer that a capture has and the sender's kernel has not. Samples made of a
/// capture lack what no packet shows: congestion window, unsent data, buffers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own"
)]
pub struct CaptureEvidence {
    /// Place of the capture: an end, or the path between them; `None` where the packets do not show
    /// it.
    pub point: Option<At>,
    /// The end whose packets alone were captured, as where the others take another path: what was
    /// acknowledged, in flight or allowed is not known then, and of the sender alone the bytes of
    /// the samples are those that passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<At>,
    /// True if the samples show what the sender had seen, by the timestamps that it echoed or the
    /// time that its answers take, and not what had passed the place of the capture.
    pub by_echo: bool,
    /// Share of the data that was sent as soon as an acknowledgement had arrived, beyond what
    /// chance would give; `None` where acknowledgements are so frequent that it cannot be known.
    pub clocked: Option<Ratio>,
    /// Share of the time in which the sender had little in flight, though nothing held it back.
    pub idle: Ratio,
    /// Mean size of the trains of segments.
    pub train: ByteCount,
    /// Most frequent rate of a packet with data: its size by the time since the one before.
    pub arrivals: Option<BurstRate>,
    /// Most frequent rate of a packet with data: the size of the packet before by the time since
    /// it, as a sender that paces itself spaces packets.
    pub departures: Option<BurstRate>,
    /// The highest rate of its data over any 200 ms. Bursts may be faster, as offloads make them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sustained: Option<BitRate>,
    /// Share of the data that departs more than a tenth faster than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faster: Option<Ratio>,
    /// Most frequent rate at which data is acknowledged.
    pub acknowledgements: Option<BurstRate>,
    /// Most frequent rate at which data arrived at a second capture, which was taken at the
    /// receiver; `None` of one capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond: Option<BurstRate>,
    /// Share of the packets with data that hold no whole number of full segments and end what the
    /// program wrote (PSH).
    pub partial: Ratio,
    /// Round trips since the last loss; `None` where no round trip is known.
    pub quiet: Option<QuietRounds>,
    /// Segments that were lost before they came to the place of the capture.
    pub lost_before: u64,
    /// True if the sender closed the connection that moved most.
    pub closed: bool,
    /// Data that it had sent by the sequence numbers of its later packets, and of which nothing
    /// came here.
    pub unseen: ByteCount,
    /// Packets of the sender without data, from below what was acknowledged: they ask whether the
    /// window is open, or whether the other end is there.
    #[serde(default)]
    pub probes: u64,
    /// Packets with data that the receiver sent.
    #[serde(default)]
    pub answers: u64,
    /// Ports of the sender and of the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<[u16; 2]>,
    /// True if the receiver acknowledged a full segment.
    #[serde(default)]
    pub full_segment_acknowledged: bool,
    /// Time after the last data was acknowledged, in which the sender had nothing on the way.
    #[serde(default)]
    pub silent_after: Span,
    /// The larger of the segment sizes that both SYNs offer (MSS), without options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_mss: Option<ByteCount>,
    /// True if the sender sent the first packet, and so the first SYN if that was captured.
    pub sender_opened: bool,
    /// True if the sender's SYN offers to scale windows, `None` where it was not captured.
    pub sender_offers_scale: Option<bool>,
    /// True if the receiver's SYN offers to scale windows, `None` where it was not captured.
    pub receiver_offers_scale: Option<bool>,
    /// The work of a device on the receiver's windows: between two captures, or as a SYN in which it
    /// overwrote the scale with padding shows it in one; `None` where neither does.
    pub window_edit: Option<WindowEdit>,
    /// Segment size (MSS) that a SYN announced before and behind a device that lowered it, as two
    /// captures show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamped_mss: Option<[ByteCount; 2]>,
}

/// The round trips of a transfer since its last loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuietRounds {
    /// Share of these round trips in all round trips.
    pub share: Ratio,
    /// Most bytes in flight of a round trip: of the tenth with least by that of the twentieth with
    /// most, in their later half. A buffer or a window holds always as much.
    pub level: Ratio,
    /// Most bytes in flight of a round trip with much, in their later half, by the most ever: what
    /// was in flight before a loss, or while a program caught up, fitted the sender's buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_most: Option<Ratio>,
    /// Share of the round trips in which the most in flight was a quarter more than ever before.
    pub growing: Ratio,
    /// Share of the later half of all round trips in which a packet met no queue.
    pub free: Ratio,
}

/// A TCP connection in a capture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowReport {
    /// Number by its first packet, from 1.
    pub number: u64,
    /// Time of its first packet, counted from that of the capture.
    pub begin: Span,
    /// From its first packet to its last.
    pub duration: Span,
    /// Place of the capture, as far as the packets show it.
    pub point: Option<CapturePoint>,
    /// True if its first SYN is in the capture.
    pub has_handshake: bool,
    /// Bytes of the headers of tunnels around each of its packets.
    pub overhead: ByteCount,
    /// The packets of each end; the first is the end that opened the connection, as its SYN or the
    /// answer to it shows, or else the one that sent the first packet.
    pub ends: [FlowEnd; 2],
}

impl FlowReport {
    /// Returns the index of the end that sent more data, whether it was captured or not.
    pub fn sender_index(&self) -> usize {
        let [first, second] = self
            .ends
            .each_ref()
            .map(|end| end.moved_bytes() + end.unseen);
        usize::from(second > first)
    }

    /// Returns the data of both ends, each byte counted once.
    pub fn total_bytes(&self) -> ByteCount {
        self.ends.iter().map(FlowEnd::moved_bytes).sum()
    }
}

/// The place of a capture on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CapturePoint {
    /// At the first of the two ends.
    First,
    /// At the second.
    Second,
    /// On the way.
    Between,
}

/// The packets that one end of a connection sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlowEnd {
    /// Address and port.
    pub address: String,
    /// Packets that it sent.
    pub packets: u64,
    /// Packets that carry data.
    pub data_packets: u64,
    /// Bytes of data in them.
    pub bytes: ByteCount,
    /// Bytes of data, each counted once.
    pub unique_bytes: ByteCount,
    /// Packets with bytes that had been captured before.
    pub retransmitted_packets: u64,
    /// Bytes that had been captured before, in those packets.
    pub retransmitted_bytes: ByteCount,
    /// Packets with new bytes that end below bytes that had been captured before.
    pub late_packets: u64,
    /// Late packets that their sender had sent in order, so that the network reordered them.
    pub reordered_packets: u64,
    /// Segments that filled a gap and were sent later than what followed it: their first copies
    /// were lost before they came to the place of the capture.
    #[serde(default)]
    pub lost_before: u64,
    /// Bytes that the other end acknowledged and the capture lacks; all of them, if it has no
    /// packet of this end.
    pub missing_bytes: ByteCount,
    /// Data that it had sent by the sequence numbers of its later packets, and of which nothing
    /// came to the place of the capture.
    #[serde(default)]
    pub unseen: ByteCount,
    /// Packets that were captured twice, which are left out of all other counts.
    pub duplicates: u64,
    /// Segments with a SYN.
    pub syns: u64,
    /// Segments with a FIN.
    pub fins: u64,
    /// Segments with a RST.
    pub resets: u64,
    /// Acknowledgements without data that acknowledge what the one before did, while data was on
    /// the way.
    pub duplicate_acks: u64,
    /// Acknowledgements with SACK blocks.
    pub sack_packets: u64,
    /// The SYN of this end as it passed, where it was captured.
    pub syn: Option<SynReport>,
    /// The first segment's largest size, as it was announced.
    pub mss: Option<ByteCount>,
    /// The shift of its windows, where it offered one.
    pub window_scale: Option<u8>,
    /// True if it offered SACK.
    pub sack_permitted: bool,
    /// True if its segments carry timestamps.
    pub timestamps: bool,
    /// Size of its full segments, by the SYNs, or else as the lengths of its packets show it.
    #[serde(default)]
    pub segment_size: ByteCount,
    /// Bytes of data in the largest packet.
    pub largest: ByteCount,
    /// Bytes of data in the smallest packet with data.
    pub smallest: ByteCount,
    /// Data before the first acknowledgement of data.
    pub initial_window: ByteCount,
    /// Its advertised window; `None` without a packet that has one.
    pub window: Option<AdvertisedWindow>,
    /// Times in which it sent none of its data.
    #[serde(default, skip_serializing_if = "StallTimes::is_empty")]
    pub stalls: StallTimes,
    /// Round-trip times of its data from the place of the capture to the other end and back.
    pub rtt: Option<RoundTrips>,
    /// The most that it had sent and not seen acknowledged, as seen from the place of the capture;
    /// zero if that has no packet of the other end.
    pub flight: ByteCount,
    /// Longest silence of this end.
    pub longest_pause: Span,
    /// Unique bytes by the duration of the connection; of an end without a packet, what the other
    /// one acknowledged.
    pub rate: BitRate,
    /// The rate at which bursts of its data arrive here or, in a capture taken at this end, at
    /// which they are acknowledged, with headers and the 38 B that Ethernet adds: that of the
    /// bottleneck, unless a policer drops what is above a lower rate. `None` where fewer than 200
    /// packets or less than 30 % of the data pass within 3 % of one rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts: Option<BurstRate>,
}

impl FlowEnd {
    /// Returns the bytes of data of this end, each counted once; of an end without a packet, those
    /// that the other one acknowledged.
    pub fn moved_bytes(&self) -> ByteCount {
        if self.packets == 0 {
            self.missing_bytes
        } else {
            self.unique_bytes
        }
    }
}

/// Fields of a SYN that devices on the way change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct SynReport {
    /// Sequence number of the SYN.
    pub sequence: u32,
    /// The largest segment that it announces.
    pub mss: Option<ByteCount>,
    /// The shift of windows that it offers.
    pub window_scale: Option<u8>,
    /// True if it offers SACK.
    pub sack: bool,
    /// True if it offers timestamps.
    pub timestamps: bool,
    /// True if it offers explicit congestion notification (RFC 3168, 6.1.1).
    pub ecn: bool,
    /// True if it offers Multipath TCP.
    pub multipath: bool,
    /// True if the snap length cut options off: one that is absent here may have been offered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub options_cut: bool,
    /// Its window in bytes.
    pub window: ByteCount,
    /// TTL or hop limit.
    pub hops_left: u8,
    /// DSCP, the upper six bits of the traffic class.
    pub dscp: u8,
}

/// A connection in two captures: what was lost and changed between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowPair {
    /// Number of the connection in each capture.
    pub numbers: [u64; 2],
    /// The index of the capture that is nearer to the first end, where hop limits, times or places
    /// show it.
    pub nearer_to_first: Option<usize>,
    /// The skew of the clocks; `None` where packets show none: too few, in too short a time, or
    /// behind queues that do not empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_skew: Option<ClockSkew>,
    /// The offset of the clocks; `None` unless both captures have packets of both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_offset: Option<ClockOffset>,
    /// The packets that the first end sends, and those of the second.
    pub directions: [FlowDirection; 2],
}

/// The skew of the clocks of two captures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockSkew {
    /// Index of the capture whose clock is faster.
    pub faster: usize,
    /// By so much: 1e-6 is a part per million.
    pub by: Ratio,
    /// Error of that: the spread of the delays of the fastest tenth of the packets, by the time.
    pub error: Ratio,
    /// Packets that show it.
    pub packets: u64,
}

/// The offset of the clocks of two captures, if both directions take equally long without queues.
/// Where they do not, it is wrong by half of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffset {
    /// Index of the capture whose clock is ahead at the first packet that is compared.
    pub ahead: usize,
    /// By so much.
    pub by: Span,
    /// Round-trip time between both places without queues: the sum of the least delays of both
    /// directions, which no offset changes.
    pub rtt: Span,
}

/// The time that packets of one direction take between two captures, above the least of it, which
/// would need clocks that agree.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneWayDelay {
    /// Packets that were compared.
    pub packets: u64,
    /// The median.
    pub median: Span,
    /// 95 % are below it.
    pub p95: Span,
    /// The most.
    pub most: Span,
}

/// Losses over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossCourse {
    /// Time that each of `lost` stands for; the first begins with the data.
    pub width: Span,
    /// Data that was lost of what passed the nearer capture in that time.
    pub lost: Vec<ByteCount>,
}

/// The packets of one end of a connection, from the capture that is nearer to it to the other.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlowDirection {
    /// Address and port of the end, as the capture near it has them.
    pub from: String,
    /// True if both captures have packets of this direction; otherwise nothing is known of it, and
    /// all figures are zero.
    #[serde(default)]
    pub in_both: bool,
    /// Data that passed the nearer capture and not the other: lost between them, unless a capture
    /// lacks packets.
    pub lost_bytes: ByteCount,
    /// Lost data in full segments.
    pub lost_segments: u64,
    /// Share of the segments that were lost, of those that must have passed both captures.
    pub lost: Ratio,
    /// Data that passed the nearer capture so near to the begin or the end of either that it may
    /// have been under way: it does not count as lost.
    #[serde(default)]
    pub undecided_bytes: ByteCount,
    /// Losses over time; `None` without losses, and where a capture lacks packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_course: Option<LossCourse>,
    /// Segments that were lost before the nearer capture, which has the repair alone.
    #[serde(default)]
    pub lost_before: u64,
    /// Segments that passed the farther capture and were retransmitted: lost behind it, or
    /// retransmitted though they had arrived.
    #[serde(default)]
    pub repeated: u64,
    /// True if the farther capture was taken at the receiver: what was repeated had arrived.
    #[serde(default)]
    pub ends_at_receiver: bool,
    /// One-way delay above its least; `None` where too few packets were compared, or the skew of
    /// the clocks is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<OneWayDelay>,
    /// Packets that overtook others between the captures.
    pub reordered_packets: u64,
    /// Routers between the captures, by the hop limit of the SYN.
    pub routers: Option<u8>,
    /// The fields that were changed between them.
    pub changes: Vec<FlowChange>,
}

/// A field that a device between two captures changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowChange {
    /// The field.
    pub field: ChangedField,
    /// Value of the field in the capture nearer to the sender of the packet.
    pub before: String,
    /// Value of the field in the other capture.
    pub after: String,
}

/// A field of a packet that devices change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangedField {
    /// The address of the sender of the packet.
    Address,
    /// The largest segment of the SYN.
    Mss,
    /// The shift of windows of the SYN.
    WindowScale,
    /// The offer of SACK.
    Sack,
    /// The offer of timestamps.
    Timestamps,
    /// The offer of explicit congestion notification.
    Ecn,
    /// The offer of Multipath TCP.
    Multipath,
    /// The window of the SYN.
    SynWindow,
    /// The window in bytes at which the connection settled.
    Window,
    /// All sequence numbers, by the same distance.
    Sequence,
    /// DSCP.
    Dscp,
}

/// The windows that an end advertised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdvertisedWindow {
    /// The first with its scale.
    pub first: ByteCount,
    /// The least.
    pub least: ByteCount,
    /// The most.
    pub most: ByteCount,
    /// The most frequent one of the later half, which is what it settled at.
    pub settled: ByteCount,
    /// Share of the packets of that half with this window.
    pub settled_share: Ratio,
    /// Packets that allowed nothing.
    pub zero: u64,
    /// True if the scale is not known: all sizes are those of the header's field then, and the
    /// windows may have been larger. Zero is zero at any scale.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unscaled: bool,
}

/// Times in which an end of a captured connection sent none of its data, by what it waited for.
/// Each moment is booked once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StallTimes {
    /// From the handshake, or the first packet, to its first data.
    pub before_data: Span,
    /// Silence before data that was retransmitted by timeout (RFC 6298).
    pub timeouts: Span,
    /// Number of those timeouts.
    pub timeout_count: u64,
    /// The other end advertised a window of zero.
    pub closed_window: Span,
    /// Pauses beyond a round trip with nothing to repair and an open window: the program had
    /// nothing to send.
    pub no_data: Span,
    /// After its last data was acknowledged: keepalives, the end of the connection, silence.
    pub after_data: Span,
}

impl StallTimes {
    /// Returns true if it never waited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Round-trip times between data and its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundTrips {
    /// Number of acknowledgements that were measured.
    pub samples: u64,
    /// The least.
    pub least: Span,
    /// The mean.
    pub mean: Span,
    /// The median, within 1 %.
    pub median: Span,
    /// Nine of ten are below it, within 1 %.
    pub p90: Span,
    /// The most.
    pub most: Span,
}
