//! TCP's header.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ParseStop;
use super::around::NetworkLayers;
use super::ip::{AddressPair, IpPacket};
use super::view::PacketView;
use crate::headers::{read_u16, read_u32};
use crate::options::{
    MSS, MULTIPATH, NO_OPERATION, SACK, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE, are_blanked,
    iter_options,
};

/// A TCP segment as a capture shows it, or a train of segments that an offload joined or did not
/// cut yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedSegment {
    /// Address and port of the sender, by the innermost IP header.
    pub source: SocketAddr,
    /// Address and port of the receiver.
    pub destination: SocketAddr,
    /// VLANs and tunnels around it: zero without any, else a hash of their kinds and identifiers,
    /// which is the same for both directions of a connection. MPLS labels and GTP's endpoint
    /// identifiers differ by direction and are left out.
    pub network: u32,
    /// Bytes from the outermost IP header to the innermost: headers of tunnels; zero without any.
    pub overhead: u16,
    /// Sequence number of the first byte of data, or of the SYN.
    pub sequence: u32,
    /// Sequence number that the sender expects next, if [`flags::ACK`] is set.
    pub acknowledgement: u32,
    /// Nine bits, see [`flags`].
    pub flags: u16,
    /// The window field in bytes as it stands there, not shifted by any scale.
    pub window: u16,
    /// Bytes of data, by the lengths in the headers and not by what was captured.
    pub payload: u32,
    /// Options of the header.
    pub options: SegmentOptions,
    /// Identification of the innermost IPv4 header; IPv6 has none.
    pub identification: Option<u16>,
    /// TTL or hop limit of the innermost IP header.
    pub hops_left: u8,
    /// DSCP (upper six bits) and ECN of the innermost IP header.
    pub traffic_class: u8,
    /// The checksum field.
    pub checksum: u16,
    /// True if the checksum field holds the sum over the pseudo header alone, which a device was to
    /// finish: the segment was sent by the capturing host, or reached it through virtual devices
    /// only. A finished checksum is the same by chance once in 65536 segments.
    pub checksum_is_unfinished: bool,
}

/// Options of a TCP header, as far as they were captured and can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option, or what became of the options"
)]
pub struct SegmentOptions {
    /// Largest segment in bytes that the sender takes (RFC 9293, 3.7.1).
    pub mss: Option<u16>,
    /// By how many bits the sender shifts windows (RFC 7323, 2.2), as it stands there: more than 14
    /// count as 14.
    pub window_scale: Option<u8>,
    /// The sender understands SACK (RFC 2018, 2).
    pub sack_permitted: bool,
    /// `TSval` and `TSecr` (RFC 7323, 3.2).
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks (RFC 2018, 3): first sequence number of each, and the one that follows its last.
    pub sack: [(u32, u32); 4],
    /// So many of `sack` are there.
    pub sack_blocks: u8,
    /// There is an option of Multipath TCP (RFC 8684, 3).
    pub multipath: bool,
    /// An option of a SYN was overwritten with padding on the way, see
    /// [`crate::SynSegment::options_overwritten`].
    pub blanked: bool,
    /// The snap length cut options off.
    pub cut: bool,
}

/// Bits of [`CapturedSegment::flags`] (RFC 9293, 3.1; RFC 3168, 6.1; RFC 3540, 9).
pub mod flags {
    /// The sender has no more data.
    pub const FIN: u16 = 0x001;
    /// Opens a connection.
    pub const SYN: u16 = 0x002;
    /// Ends a connection at once.
    pub const RST: u16 = 0x004;
    /// Data that shall be passed to the program at once.
    pub const PSH: u16 = 0x008;
    /// The acknowledgement is valid.
    pub const ACK: u16 = 0x010;
    /// The urgent pointer is valid.
    pub const URG: u16 = 0x020;
    /// A congestion mark arrived; in a SYN, part of the offer of ECN.
    pub const ECE: u16 = 0x040;
    /// The congestion window was reduced; in a SYN, part of the offer of ECN.
    pub const CWR: u16 = 0x080;
    /// Nonce sum, and the third counter bit of accurate ECN.
    pub const NS: u16 = 0x100;
}

impl CapturedSegment {
    /// Returns true if the segment has all of these flags.
    pub fn has_flags(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// Returns the segment in the innermost IP packet, which has so many bytes of tunnels' headers
    /// before it and this header of TCP.
    #[inline]
    pub(super) fn new(
        packet: &IpPacket,
        header: &SegmentHeader,
        around: NetworkLayers,
        overhead: usize,
    ) -> Self {
        let (fixed, checksum) = (header.fixed, read_u16(header.fixed, 16));
        Self {
            source: socket_address(packet.addresses, 0, read_u16(fixed, 0)),
            destination: socket_address(packet.addresses, 1, read_u16(fixed, 2)),
            network: around.network,
            overhead: u16::try_from(overhead).unwrap_or(u16::MAX),
            sequence: read_u32(fixed, 4),
            acknowledgement: read_u32(fixed, 8),
            flags: read_u16(fixed, 12) & 0x1FF,
            window: read_u16(fixed, 14),
            payload: header.payload,
            options: SegmentOptions::new(header),
            identification: packet.identification,
            hops_left: packet.hops_left,
            traffic_class: packet.traffic_class,
            checksum,
            checksum_is_unfinished: checksum == packet.pseudo_header().folded_sum(),
        }
    }
}

/// The header of a segment, whose length was checked.
pub(super) struct SegmentHeader<'p> {
    fixed: &'p [u8; 20],
    /// The captured part of the options.
    options: &'p [u8],
    options_are_cut: bool,
    /// Bytes of data.
    payload: u32,
}

impl<'p> SegmentHeader<'p> {
    /// Reads the header at the front of a segment. Fails if its first 20 bytes are cut, or its
    /// length is wrong.
    #[inline]
    pub(super) fn read(segment: PacketView<'p>) -> Result<Self, ParseStop> {
        let fixed = segment.first_bytes::<20>()?;
        let length = usize::from(fixed[12] >> 4) * 4;
        if length < fixed.len() || length > segment.length {
            return Err(ParseStop::Malformed);
        }
        Ok(Self {
            fixed,
            options: &segment.bytes[fixed.len()..length.min(segment.bytes.len())],
            options_are_cut: length > segment.bytes.len(),
            payload: (segment.length - length) as u32,
        })
    }
}

impl SegmentHeader<'_> {
    /// Returns the length of the header in bytes, without what the snap length cut off.
    pub(super) fn captured_length(&self) -> usize {
        self.fixed.len() + self.options.len()
    }
}

impl SegmentOptions {
    #[inline]
    fn new(header: &SegmentHeader) -> Self {
        let cut = header.options_are_cut;
        match header.options {
            // Nearly all segments have nothing else.
            [NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10, times @ ..] if times.len() == 8 => Self {
                timestamps: Some((read_u32(times, 0), read_u32(times, 4))),
                cut,
                ..Self::default()
            },
            [] => Self {
                cut,
                ..Self::default()
            },
            _ => Self::read(header),
        }
    }

    fn read(header: &SegmentHeader) -> Self {
        let opens = u16::from(header.fixed[13]) & flags::SYN != 0;
        let mut read = Self {
            blanked: opens && are_blanked(header.options),
            cut: header.options_are_cut,
            ..Self::default()
        };
        for option in iter_options(header.options) {
            match *option {
                [MSS, _, a, b] => read.mss = Some(u16::from_be_bytes([a, b])),
                [WINDOW_SCALE, _, shift] => read.window_scale = Some(shift),
                [SACK_PERMITTED, _] => read.sack_permitted = true,
                [TIMESTAMPS, _, ref times @ ..] if times.len() == 8 => {
                    read.timestamps = Some((read_u32(times, 0), read_u32(times, 4)));
                }
                // One with part of a block is none, as for the kernel (`tcp_parse_options`).
                [SACK, _, ref blocks @ ..] if blocks.len().is_multiple_of(8) => {
                    (read.sack, read.sack_blocks) = blocks_of(blocks);
                }
                [MULTIPATH, ..] => read.multipath = true,
                _ => {}
            }
        }
        read
    }
}

/// Returns SACK blocks and their number.
fn blocks_of(bytes: &[u8]) -> ([(u32, u32); 4], u8) {
    let mut blocks = [(0, 0); 4];
    for (block, place) in bytes.as_chunks::<8>().0.iter().zip(&mut blocks) {
        *place = (read_u32(block, 0), read_u32(block, 4));
    }
    (blocks, (bytes.len() / 8).min(blocks.len()) as u8)
}

/// Returns the first or second of the addresses with its port.
#[inline]
fn socket_address(addresses: AddressPair, number: usize, port: u16) -> SocketAddr {
    match addresses {
        AddressPair::V4(bytes) => SocketAddr::from((Ipv4Addr::from(bytes[number]), port)),
        AddressPair::V6(bytes) => SocketAddr::from((Ipv6Addr::from(bytes[number]), port)),
    }
}
