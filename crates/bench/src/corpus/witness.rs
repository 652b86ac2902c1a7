//! The packets of a capture, counted by connection: by rules so plain that they can be held against
//! every verdict.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;

use fullpipe_trace::{CaptureError, PacketFile};
use fullpipe_units::{Span, Time};
use fullpipe_wire::{CapturedContent, CapturedSegment, flags, read_captured};

/// Least timeout of a retransmission (Linux: `TCP_RTO_MIN`); a shorter silence may be a recovery by
/// acknowledgements.
const MIN_TIMEOUT: Span = Span::from_millis(200);

/// The round trip that is taken off each silence, where the handshake was not captured: more than
/// that of most paths.
const UNKNOWN_RTT: Span = Span::from_secs(1);

/// The uses of a transfer's time that packets show beyond doubt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WitnessedTime {
    /// Silences that a retransmission ended.
    pub(crate) timeouts: Span,
    /// The receiver's window was zero.
    pub(crate) closed_window: Span,
    /// All was acknowledged, and nothing was sent for more than a round trip.
    pub(crate) idle: Span,
}

impl WitnessedTime {
    fn add(&mut self, other: Self) {
        self.timeouts += other.timeouts;
        self.closed_window += other.closed_window;
        self.idle += other.idle;
    }
}

/// A SYN of an end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WitnessedSyn {
    /// True if all of its options were captured.
    pub(crate) is_whole: bool,
    /// True if it offers to scale windows.
    pub(crate) offers_scale: bool,
}

/// The packets of one end of a connection.
#[derive(Debug, Default)]
pub(crate) struct WitnessedEnd {
    /// Packets with data, probes included.
    pub(crate) data_packets: u64,
    /// Packets of one byte just below the end of what had been sent: keepalives, and probes of a
    /// window.
    pub(crate) probes: u64,
    /// Data in the largest packet.
    pub(crate) largest: u32,
    /// Data in the largest packet of which the other end acknowledged all.
    pub(crate) largest_acknowledged: u32,
    /// Set if something shows that a packet is missing: a gap, a repetition, a duplicate
    /// acknowledgement of it, or SACK.
    pub(crate) shows_loss: bool,
    /// Its SYN, if that was captured.
    pub(crate) syn: Option<WitnessedSyn>,
    /// Time of the first packet with data.
    pub(crate) first_data: Option<Time>,
    /// Time of the last packet with data that is no probe.
    pub(crate) last_data: Option<Time>,
    /// Uses of the time between both.
    pub(crate) time: WitnessedTime,
    /// Those since the last packet with data.
    since_last_data: WitnessedTime,
    /// End of what was sent, counted from the first sequence number; `None` before the first
    /// packet.
    next: Option<i64>,
    first_sequence: u32,
    first_position: Option<i64>,
    acknowledged: i64,
    unacknowledged: VecDeque<(i64, u32)>,
    last_acknowledgement: Option<(u32, u16)>,
    has_closed_window: bool,
}

impl WitnessedEnd {
    /// Returns the bytes from the first to the last that it sent, each counted once.
    pub(crate) fn sequence_bytes(&self) -> u64 {
        let bytes = self.next.unwrap_or(0) - self.first_position.unwrap_or(0);
        u64::try_from(bytes).unwrap_or(0)
    }

    /// Returns the time from the first packet with data to the last.
    pub(crate) fn data_time(&self) -> Span {
        self.first_data
            .zip(self.last_data)
            .map_or(Span::ZERO, |(first, last)| last.duration_since(first))
    }

    /// Returns the place of a sequence number, as the one nearest to what comes next.
    fn position(&self, sequence: u32) -> i64 {
        let next = self.next.unwrap_or(0);
        let expected = self.first_sequence.wrapping_add(next as u32);
        next + i64::from(sequence.wrapping_sub(expected).cast_signed())
    }

    fn is_outstanding(&self) -> bool {
        self.next.is_some_and(|next| next > self.acknowledged)
    }

    /// Books the time since the packet before, before a packet that may repeat what this end sent.
    fn book_silence(
        &mut self,
        silence: Span,
        is_other_closed: bool,
        is_repetition: bool,
        rtt: Span,
    ) {
        let is_outstanding = self.is_outstanding();
        let time = &mut self.since_last_data;
        if is_other_closed {
            time.closed_window += silence;
        } else if !is_outstanding {
            time.idle += silence.saturating_sub(rtt);
        } else if is_repetition && silence >= MIN_TIMEOUT {
            time.timeouts += silence;
        }
    }

    /// Returns true if a packet with data repeats what was sent, and is no probe.
    fn is_repetition(&self, segment: &CapturedSegment) -> bool {
        let (Some(next), true) = (self.next, segment.payload > 0) else {
            return false;
        };
        self.position(segment.sequence) < next && !self.is_probe(segment)
    }

    fn is_probe(&self, segment: &CapturedSegment) -> bool {
        segment.payload == 1 && self.next == Some(self.position(segment.sequence) + 1)
    }

    /// Counts a packet that this end sent.
    fn count_sent(&mut self, segment: &CapturedSegment, at: Time) {
        if self.next.is_none() {
            self.first_sequence = segment.sequence;
            self.next = Some(0);
        }
        let begin = self.position(segment.sequence);
        let (is_syn, is_reset) = (segment.has_flags(flags::SYN), segment.has_flags(flags::RST));
        if is_syn {
            let options = segment.options;
            self.syn = Some(WitnessedSyn {
                is_whole: !options.cut,
                offers_scale: options.window_scale.is_some(),
            });
        }
        if !is_syn && !is_reset && segment.has_flags(flags::ACK) {
            self.has_closed_window = segment.window == 0;
        }
        if segment.payload > 0 {
            self.count_data(segment, begin + i64::from(is_syn), at);
        } else if (is_syn || segment.has_flags(flags::FIN)) && !is_reset {
            self.next = self.next.max(Some(begin + 1));
        }
    }

    fn count_data(&mut self, segment: &CapturedSegment, begin: i64, at: Time) {
        self.data_packets += 1;
        self.largest = self.largest.max(segment.payload);
        let next = self.next.unwrap_or(begin);
        if self.is_probe(segment) {
            self.probes += 1;
            return;
        }
        self.first_position.get_or_insert(begin);
        let is_repeated = begin < next && self.first_data.is_some();
        self.shows_loss |= is_repeated || (begin > next && self.first_data.is_some());
        let end = begin + i64::from(segment.payload);
        self.unacknowledged.push_back((end, segment.payload));
        self.next = Some(next.max(end));
        let before = std::mem::take(&mut self.since_last_data);
        if self.first_data.is_some() {
            self.time.add(before);
        }
        self.first_data.get_or_insert(at);
        self.last_data = self.last_data.max(Some(at));
    }

    /// Counts an acknowledgement of this end's data that the other one sent.
    fn count_acknowledged(&mut self, segment: &CapturedSegment) {
        let position = self.position(segment.acknowledgement);
        // What was never sent shows nothing, and a packet of another time would show everything.
        if self
            .next
            .is_none_or(|next| position > next + i64::from(u16::MAX))
        {
            return;
        }
        let is_pure =
            segment.payload == 0 && segment.flags & (flags::SYN | flags::FIN | flags::RST) == 0;
        let acknowledgement = (segment.acknowledgement, segment.window);
        let is_duplicate =
            is_pure && self.last_acknowledgement == Some(acknowledgement) && self.is_outstanding();
        self.shows_loss |= segment.options.sack_blocks > 0 || is_duplicate;
        self.last_acknowledgement = Some(acknowledgement);
        self.acknowledged = self.acknowledged.max(position);
        while let Some((end, size)) = self.unacknowledged.front().copied() {
            if end > self.acknowledged {
                break;
            }
            self.largest_acknowledged = self.largest_acknowledged.max(size);
            self.unacknowledged.pop_front();
        }
    }
}

/// The packets between two addresses; the first end is that with the lesser address.
#[derive(Debug, Default)]
pub(crate) struct WitnessedConnection {
    pub(crate) ends: [WitnessedEnd; 2],
    /// From the first SYN to the first packet of the same end that is none.
    pub(crate) handshake: Option<Span>,
    opened: Option<(usize, Time)>,
    last: Option<Time>,
}

impl WitnessedConnection {
    fn count_packet(&mut self, from: usize, segment: &CapturedSegment, at: Time) {
        let to = 1 - from;
        if segment.has_flags(flags::SYN) {
            self.opened.get_or_insert((from, at));
        } else if let (Some((opener, opened)), None) = (self.opened, self.handshake)
            && opener == from
        {
            self.handshake = Some(at.duration_since(opened));
        }
        let silence = self.last.map_or(Span::ZERO, |last| at.duration_since(last));
        let rtt = self.handshake.unwrap_or(UNKNOWN_RTT);
        for end in [from, to] {
            let is_closed = self.ends[1 - end].has_closed_window;
            let is_repetition = end == from && self.ends[end].is_repetition(segment);
            self.ends[end].book_silence(silence, is_closed, is_repetition, rtt);
        }
        self.last = self.last.max(Some(at));
        self.ends[from].count_sent(segment, at);
        if segment.has_flags(flags::ACK) {
            self.ends[to].count_acknowledged(segment);
        }
    }
}

/// The connections of a capture, by both of their addresses, the lesser one first.
pub(crate) type Witnesses = BTreeMap<[SocketAddr; 2], WitnessedConnection>;

/// Returns the two addresses in order, and the index of the first of them.
pub(crate) fn ordered_pair(first: SocketAddr, second: SocketAddr) -> ([SocketAddr; 2], usize) {
    if first <= second {
        ([first, second], 0)
    } else {
        ([second, first], 1)
    }
}

/// Reads a capture to its end, or to its first damage.
///
/// # Errors
/// Fails if the file cannot be opened, or is no capture.
pub(crate) fn read_witnesses(path: &Path) -> Result<Witnesses, CaptureError> {
    let mut file = PacketFile::open(path)?;
    let mut witnesses = Witnesses::new();
    while let Ok(Some(packet)) = file.next_packet() {
        let captured = read_captured(packet.link, packet.bytes, packet.original as usize);
        if let CapturedContent::Tcp(segment) = &captured {
            let (pair, from) = ordered_pair(segment.source, segment.destination);
            witnesses
                .entry(pair)
                .or_default()
                .count_packet(from, segment, packet.at);
        }
    }
    Ok(witnesses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_wire::{LinkType, pcap_header, pcap_record};

    const SENDER: [u8; 4] = [192, 0, 2, 1];
    const RECEIVER: [u8; 4] = [192, 0, 2, 2];

    /// A capture that is being written, of packets with IPv4 and no options.
    struct CaptureWriter(Vec<u8>);

    impl CaptureWriter {
        fn new() -> Self {
            Self(pcap_header(LinkType::RAW, 65_535).to_vec())
        }

        /// Adds a packet of the sender at so many milliseconds.
        fn data(&mut self, at: u64, sequence: u32, payload: u16) -> &mut Self {
            self.packet(
                at,
                [SENDER, RECEIVER],
                [4000, 80],
                [sequence, 1],
                1000,
                payload,
            )
        }

        /// Adds an acknowledgement of the receiver with a window.
        fn acknowledgement(&mut self, at: u64, acknowledged: u32, window: u16) -> &mut Self {
            self.packet(
                at,
                [RECEIVER, SENDER],
                [80, 4000],
                [1, acknowledged],
                window,
                0,
            )
        }

        fn packet(
            &mut self,
            at: u64,
            [source, destination]: [[u8; 4]; 2],
            ports: [u16; 2],
            numbers: [u32; 2],
            window: u16,
            payload: u16,
        ) -> &mut Self {
            let mut packet = vec![0x45, 0];
            packet.extend((40 + payload).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            packet.extend(source.into_iter().chain(destination));
            packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
            packet.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
            packet.extend([0x50, 0x10]);
            packet.extend(window.to_be_bytes());
            packet.extend([0; 4]);
            packet.resize(packet.len() + usize::from(payload), 0);
            let at = Time::ZERO + Span::from_secs(1) + Span::from_millis(at);
            self.0
                .extend(pcap_record(at, packet.len() as u32, packet.len() as u32));
            self.0.extend(packet);
            self
        }

        fn sender(&self) -> WitnessedEnd {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &self.0).unwrap();
            let mut witnesses = read_witnesses(file.path()).unwrap();
            let (_, connection) = witnesses.pop_first().unwrap();
            let [sender, _] = connection.ends;
            sender
        }
    }

    #[test]
    fn each_use_of_time_is_booked_until_the_last_data() {
        let mut capture = CaptureWriter::new();
        capture.data(0, 100, 1000).acknowledgement(10, 1100, 1000);
        // All is acknowledged: but for a second, the time is idle.
        capture.data(3010, 1100, 1000);
        // Nothing is acknowledged until it is sent again.
        capture
            .data(3510, 1100, 1000)
            .acknowledgement(3520, 2100, 0);
        // The window is closed, and opens.
        capture
            .acknowledgement(5520, 2100, 1000)
            .data(5520, 2100, 1000);
        // What follows the data does not count.
        capture
            .acknowledgement(5530, 3100, 0)
            .acknowledgement(9530, 3100, 0);
        let sender = capture.sender();
        let expected = WitnessedTime {
            timeouts: Span::from_millis(500),
            closed_window: Span::from_millis(2000),
            idle: Span::from_millis(2000),
        };
        assert_eq!(sender.time, expected);
        assert_eq!(sender.data_time(), Span::from_millis(5520));
        assert_eq!((sender.data_packets, sender.sequence_bytes()), (4, 3000));
        assert!(sender.shows_loss);
    }

    #[test]
    fn a_keepalive_is_a_probe_and_no_repetition() {
        let mut capture = CaptureWriter::new();
        capture
            .data(0, 100, 1000)
            .acknowledgement(10, 1100, 1000)
            .data(5000, 1099, 1);
        let sender = capture.sender();
        assert_eq!((sender.probes, sender.shows_loss), (1, false));
        assert_eq!(sender.largest_acknowledged, 1000);
        assert_eq!(sender.data_time(), Span::ZERO);
    }

    #[test]
    fn a_full_segment_counts_once_all_of_it_is_acknowledged() {
        let mut capture = CaptureWriter::new();
        capture
            .data(0, 100, 500)
            .data(0, 600, 1400)
            .acknowledgement(10, 1999, 1000);
        assert_eq!(
            (
                capture.sender().largest,
                capture.sender().largest_acknowledged
            ),
            (1400, 500)
        );
        capture.acknowledgement(20, 2000, 1000);
        assert_eq!(capture.sender().largest_acknowledged, 1400);
    }

    #[test]
    fn sequence_numbers_may_wrap() {
        let mut capture = CaptureWriter::new();
        capture
            .data(0, u32::MAX - 499, 1000)
            .acknowledgement(10, 500, 1000)
            .data(20, 500, 1000);
        let sender = capture.sender();
        assert_eq!((sender.sequence_bytes(), sender.shows_loss), (2000, false));
        assert_eq!(sender.largest_acknowledged, 1000);
    }
}
