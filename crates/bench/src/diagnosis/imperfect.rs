//! Captures as hosts often leave them: segments joined by the host, packets missing, no handshake,
//! no timestamps.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fullpipe_lab::Host;
use fullpipe_trace::PacketFile;
use fullpipe_units::{Span, Time};
use fullpipe_wire::{
    CapturedContent, CapturedSegment, LinkType, flags, pcap_header, pcap_record, read_captured,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Bytes of each packet that are kept: all that the captures of the bench have.
const SNAP_LENGTH: u32 = 128;

/// Time for which a receiving host may collect segments before it hands them on (GRO), one tick of
/// the timestamps, and the largest packet that it makes of them.
const COLLECTED_FOR: Span = Span::from_millis(1);
const MAX_JOINED: u32 = 65_535;

/// Packets of which one is missing.
const ONE_IN: u64 = 1000;

/// Places of lengths in the headers of IPv4 and TCP, and numbers of options (RFC 9293, 3.1 and
/// 3.2).
const TOTAL_LENGTH: usize = 2;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const FIXED_HEADER: usize = 20;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const TIMESTAMPS: u8 = 8;

/// Bytes that timestamps take of each segment, with their padding.
const OF_TIMESTAMPS: u16 = 12;

/// The way in which a capture is less than it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Imperfection {
    /// The receiving host joined segments before they were captured.
    Joined,
    /// A thousandth of the packets is missing.
    Missing,
    NoHandshake,
    NoTimestamps,
}

impl Imperfection {
    pub(crate) const ALL: [Self; 4] = [
        Self::Joined,
        Self::Missing,
        Self::NoHandshake,
        Self::NoTimestamps,
    ];
}

impl fmt::Display for Imperfection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joined => "segments joined by the receiving host",
            Self::Missing => "0.1 % of the packets missing",
            Self::NoHandshake => "no handshake",
            Self::NoTimestamps => "no timestamps",
        })
    }
}

/// A captured packet of raw IP.
#[derive(Debug, Clone)]
struct Packet {
    at: Time,
    bytes: Vec<u8>,
    original: u32,
}

/// Writes the capture `from`, taken at `host`, to the file `to` with an imperfection, which `seed`
/// decides where chance does.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub(crate) fn write(
    how: Imperfection,
    host: Host,
    from: &Path,
    to: &Path,
    seed: u64,
) -> io::Result<()> {
    let mut source = PacketFile::open(from).map_err(io::Error::other)?;
    let mut out = BufWriter::new(File::create(to)?);
    out.write_all(&pcap_header(LinkType::RAW, SNAP_LENGTH))?;
    let mut change = Imperfect {
        how,
        host,
        random: Pcg64Mcg::seed_from_u64(seed),
        held: Vec::new(),
        began: Time::ZERO,
    };
    while let Some(packet) = source.next_packet().map_err(io::Error::other)? {
        let packet = Packet {
            at: packet.at,
            bytes: packet.bytes.to_vec(),
            original: packet.original,
        };
        for packet in change.passes(packet) {
            packet.write(&mut out)?;
        }
    }
    for packet in change.release() {
        packet.write(&mut out)?;
    }
    out.flush()
}

/// Packets on their way from a capture to an imperfect one.
struct Imperfect {
    how: Imperfection,
    host: Host,
    random: Pcg64Mcg,
    /// Segments that the host has joined so far, and what it sent meanwhile; and when the first of
    /// them came.
    held: Vec<Packet>,
    began: Time,
}

impl Imperfect {
    /// Returns the packets that are captured once `packet` has passed.
    fn passes(&mut self, packet: Packet) -> Vec<Packet> {
        match self.how {
            Imperfection::Missing if self.random.next_u64().is_multiple_of(ONE_IN) => Vec::new(),
            Imperfection::NoHandshake
                if packet
                    .segment()
                    .is_some_and(|segment| segment.has_flags(flags::SYN)) =>
            {
                Vec::new()
            }
            Imperfection::NoTimestamps => vec![packet.without_timestamps()],
            Imperfection::Joined => self.collect(packet),
            Imperfection::Missing | Imperfection::NoHandshake => vec![packet],
        }
    }

    /// Joins data that comes to the host; what it sends meanwhile leaves once that is handed on.
    fn collect(&mut self, packet: Packet) -> Vec<Packet> {
        let is_data = packet.segment().is_some_and(|segment| {
            segment.payload > 0
                && segment.source.ip() != self.host.address()
                && !segment.has_flags(flags::SYN)
        });
        let in_time = packet.at.duration_since(self.began) < COLLECTED_FOR;
        if let Some(first) = self.held.first_mut().filter(|_| in_time) {
            if is_data && first.join(&packet) {
                return Vec::new();
            }
            if !is_data {
                self.held.push(packet);
                return Vec::new();
            }
        }
        let mut before = self.release();
        if is_data {
            self.began = packet.at;
            self.held.push(packet);
        } else {
            before.push(packet);
        }
        before
    }

    /// Returns what was held back: first the data.
    fn release(&mut self) -> Vec<Packet> {
        let mut held = std::mem::take(&mut self.held);
        let from = held.first().map_or(Time::ZERO, |first| first.at);
        for packet in &mut held {
            packet.at = packet.at.max(from);
        }
        held
    }
}

impl Packet {
    fn segment(&self) -> Option<CapturedSegment> {
        match read_captured(LinkType::RAW, &self.bytes, self.original as usize) {
            CapturedContent::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    /// Returns the begin of the header of TCP.
    fn tcp(&self) -> usize {
        usize::from(self.bytes[0] & 15) * 4
    }

    /// Returns the begin of what was sent.
    fn data(&self) -> usize {
        self.tcp() + usize::from(self.bytes[self.tcp() + DATA_OFFSET] >> 4) * 4
    }

    fn options(&self) -> &[u8] {
        &self.bytes[self.tcp() + FIXED_HEADER..self.data()]
    }

    /// Appends the data of `next` if that follows at once and has the same header. Returns whether
    /// it did.
    fn join(&mut self, next: &Self) -> bool {
        let Some((own, other)) = self.segment().zip(next.segment()) else {
            return false;
        };
        let length = self.original + other.payload;
        let follows = own.sequence.wrapping_add(own.payload) == other.sequence
            && own.source == other.source
            && own.acknowledgement == other.acknowledgement
            && own.window == other.window
            && (own.flags | other.flags) & (flags::SYN | flags::FIN | flags::RST) == 0
            && self.options() == next.options()
            && !own.has_flags(flags::PSH)
            && length <= MAX_JOINED;
        if follows {
            self.original = length;
            self.at = next.at;
            let place = self.tcp() + FLAGS;
            self.bytes[place] |= next.bytes[next.tcp() + FLAGS];
            self.set_length();
        }
        follows
    }

    fn set_length(&mut self) {
        let length = u16::try_from(self.original).unwrap_or(0).to_be_bytes();
        self.bytes[TOTAL_LENGTH..TOTAL_LENGTH + 2].copy_from_slice(&length);
    }

    /// Returns it as of a connection without timestamps, whose segments hold as much data as these.
    fn without_timestamps(mut self) -> Self {
        if self.segment().is_none() {
            return self;
        }
        let mut kept = Vec::new();
        for option in each_option(self.options()) {
            match option {
                [TIMESTAMPS, ..] => {}
                [MSS, length, high, low] => {
                    let mss = u16::from_be_bytes([*high, *low])
                        .saturating_sub(OF_TIMESTAMPS)
                        .to_be_bytes();
                    kept.extend([MSS, *length, mss[0], mss[1]]);
                }
                other => kept.extend(other),
            }
        }
        kept.resize(kept.len().next_multiple_of(4), NO_OPERATION);
        let (begin, end) = (self.tcp() + FIXED_HEADER, self.data());
        self.original -= (end - begin - kept.len()) as u32;
        let words = ((FIXED_HEADER + kept.len()) / 4) as u8;
        let offset = self.tcp() + DATA_OFFSET;
        self.bytes[offset] = (self.bytes[offset] & 15) | (words << 4);
        self.bytes.splice(begin..end, kept);
        self.set_length();
        self
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&pcap_record(
            self.at,
            self.bytes.len() as u32,
            self.original,
        ))?;
        out.write_all(&self.bytes)
    }
}

/// Returns the options of a header, without those that only pad.
fn each_option(mut options: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let [kind, rest @ ..] = options {
        let length = match (kind, rest) {
            (0, _) => break,
            (&NO_OPERATION, _) => {
                options = rest;
                continue;
            }
            (_, [length, ..]) if (2..=options.len()).contains(&usize::from(*length)) => {
                usize::from(*length)
            }
            _ => break,
        };
        all.push(&options[..length]);
        options = &options[length..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a segment of `payload` bytes from `host` with timestamps, or a SYN with the offer of
    /// a segment size.
    fn packet(millis: u64, host: Host, sequence: u32, payload: u32, flag: u16) -> Packet {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        if flag == flags::SYN {
            options = [&[2, 4, 5, 180][..], &options].concat();
        }
        let words = (5 + options.len() as u16 / 4) << 12;
        let original = 40 + options.len() as u32 + payload;
        let [high, low] = (original as u16).to_be_bytes();
        let mut bytes = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0];
        bytes.extend(
            [host, host.peer_host()]
                .iter()
                .flat_map(|host| host.address().octets()),
        );
        bytes.extend([[0x9C, 0x40], [0x14, 0x51]].concat());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0, 0, 0, 7]);
        bytes.extend((words | flag | flags::ACK).to_be_bytes());
        bytes.extend([1, 0, 0, 0, 0, 0]);
        bytes.extend(options);
        Packet {
            at: Time::ZERO + Span::from_millis(millis),
            bytes,
            original,
        }
    }

    fn after(how: Imperfection, packets: &[Packet]) -> Vec<Packet> {
        let (host, random) = (Host::Receiver, Pcg64Mcg::seed_from_u64(1));
        let mut change = Imperfect {
            how,
            host,
            random,
            held: Vec::new(),
            began: Time::ZERO,
        };
        let mut all: Vec<Packet> = packets
            .iter()
            .cloned()
            .flat_map(|packet| change.passes(packet))
            .collect();
        all.extend(change.release());
        all
    }

    fn lengths(packets: &[Packet]) -> Vec<u32> {
        packets
            .iter()
            .map(|packet| packet.segment().unwrap().payload)
            .collect()
    }

    #[test]
    fn data_that_arrives_at_once_is_joined_and_answered_after_it() {
        let (data, answer) = (Host::Sender, Host::Receiver);
        let segment = |nanos: u64, from, sequence, payload, flag| {
            let packet = packet(0, from, sequence, payload, flag);
            Packet {
                at: Time::from_nanos(nanos),
                ..packet
            }
        };
        let packets = [
            segment(0, data, 1, 1448, 0),
            segment(100_000, answer, 1, 0, 0),
            segment(200_000, data, 1449, 1448, flags::PSH),
            segment(300_000, data, 2897, 1448, 0),
            segment(400_000, data, 9_000, 1448, 0),
            segment(2_000_000, data, 10_448, 1448, 0),
        ];
        let joined = after(Imperfection::Joined, &packets);
        assert_eq!(lengths(&joined), [2896, 0, 1448, 1448, 1448]);
        let times: Vec<u64> = joined.iter().map(|packet| packet.at.as_nanos()).collect();
        assert_eq!(times, [200_000, 200_000, 300_000, 400_000, 2_000_000]);
        assert!(joined[0].segment().unwrap().has_flags(flags::PSH));
        let sent = packets.clone().map(|mut packet| {
            packet.bytes.swap(15, 19);
            packet
        });
        assert_eq!(
            after(Imperfection::Joined, &sent).len(),
            6,
            "a host joins nothing that it sends itself"
        );
    }

    #[test]
    fn a_connection_without_timestamps_has_segments_of_the_same_size() {
        let all = [
            packet(0, Host::Sender, 0, 0, flags::SYN),
            packet(1, Host::Sender, 1, 1448, 0),
        ];
        let bare = after(Imperfection::NoTimestamps, &all);
        let segments: Vec<CapturedSegment> = bare
            .iter()
            .map(|packet| packet.segment().unwrap())
            .collect();
        assert!(
            segments
                .iter()
                .all(|segment| segment.options.timestamps.is_none() && !segment.options.cut)
        );
        assert_eq!(
            (
                segments[0].options.mss,
                segments[1].payload,
                segments[1].window
            ),
            (Some(1448), 1448, 256)
        );
    }

    #[test]
    fn only_syns_and_a_thousandth_of_the_packets_are_missing() {
        let all: Vec<Packet> = (0..10_000)
            .map(|at| {
                packet(
                    at,
                    Host::Sender,
                    at as u32,
                    100,
                    if at < 2 { flags::SYN } else { 0 },
                )
            })
            .collect();
        assert_eq!(after(Imperfection::NoHandshake, &all).len(), 9_998);
        let left = after(Imperfection::Missing, &all).len();
        assert!((9_970..=9_998).contains(&left), "{left}");
    }
}
