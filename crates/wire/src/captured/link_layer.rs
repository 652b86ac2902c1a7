//! Headers of links, up to the type of what they carry.

use super::around::NetworkLayers;
use super::view::PacketView;
use super::{Carried, LinkType, ParseStop, ether_type};
use crate::headers::{read_u16, read_u32};

/// Payload whose IP header states its version itself.
const BY_VERSION: u16 = ether_type::IPV4;

/// Length of the header of Linux's cooked captures, both versions.
const COOKED: usize = 16;
const COOKED_2: usize = 20;

/// Returns true if packets of this link type can be read.
///
/// ```
/// use fullpipe_wire::{LinkType, is_known};
///
/// assert!(is_known(LinkType::ETHERNET));
/// assert!(!is_known(LinkType(195)), "IEEE 802.15.4");
/// ```
pub fn is_known(link: LinkType) -> bool {
    matches!(
        link.0,
        0 | 1
            | 9
            | 10
            | 12
            | 14
            | 50
            | 51
            | 101
            | 104
            | 105
            | 108
            | 113
            | 117
            | 127
            | 228
            | 229
            | 239
            | 240
            | 242
            | 276
    )
}

/// Returns the Ethernet type of what a frame carries, and what it carries.
#[inline]
pub(super) fn open_frame(link: LinkType, frame: PacketView<'_>) -> Carried<'_> {
    match link.0 {
        1 => ether_type::ethernet_header(frame),
        0 | 108 => loopback_header(frame),
        9 | 50 => point_to_point(frame),
        // FDDI: frame control and two addresses.
        10 => Ok((ether_type::LLC, frame.skip_bytes(13)?)),
        12 | 14 | 101 | 228 | 229 => Ok((BY_VERSION, frame)),
        51 => ether_type::pppoe_session(frame, &mut NetworkLayers::default()),
        // Cisco's HDLC: address and control.
        104 => Ok((read_u16(frame.first_bytes::<4>()?, 2), frame.skip_bytes(4)?)),
        105 => read_wireless(frame),
        // pf's log, whose header is padded to a multiple of four bytes.
        117 => Ok((
            BY_VERSION,
            frame.skip_bytes(usize::from(frame.first_bytes::<1>()?[0]).next_multiple_of(4))?,
        )),
        127 => read_wireless(
            frame.skip_bytes(usize::from(little_endian(frame.first_bytes::<4>()?, 2)))?,
        ),
        113 => Ok((
            read_u16(frame.first_bytes::<COOKED>()?, 14),
            frame.skip_bytes(COOKED)?,
        )),
        239 => read_nflog(frame),
        // Hilscher's netANALYZER.
        240 => ether_type::ethernet_header(frame.skip_bytes(4)?),
        // IP over InfiniBand: a global routing header.
        242 => Ok((
            read_u16(frame.first_bytes::<44>()?, 40),
            frame.skip_bytes(44)?,
        )),
        276 => Ok((
            read_u16(frame.first_bytes::<COOKED_2>()?, 0),
            frame.skip_bytes(COOKED_2)?,
        )),
        _ => Err(ParseStop::Other),
    }
}

/// Reads the protocol of PPP (RFC 1661, 2), with or without HDLC's address and control (RFC 1662,
/// 3.1).
pub(super) fn point_to_point(frame: PacketView<'_>) -> Carried<'_> {
    let frame = if frame.first_bytes::<2>()? == &[0xFF, 0x03] {
        frame.skip_bytes(2)?
    } else {
        frame
    };
    let head = frame.first_bytes::<2>()?;
    // An odd first byte is a compressed protocol.
    let (protocol, length) = if head[0] & 1 == 1 {
        (head[0].into(), 1)
    } else {
        (read_u16(head, 0), 2)
    };
    let kind = match protocol {
        0x0021 => ether_type::IPV4,
        0x0057 => ether_type::IPV6,
        0x0281 => ether_type::MPLS,
        _ => return Err(ParseStop::Other),
    };
    Ok((kind, frame.skip_bytes(length)?))
}

/// Reads the header of a data frame of IEEE 802.11 (9.3.2.1), up to that of IEEE 802.2.
pub(super) fn read_wireless(frame: PacketView<'_>) -> Carried<'_> {
    const DATA: u8 = 2;
    const HAS_QOS: u8 = 0x80;
    const HAS_NO_DATA: u8 = 0x40;
    const BOTH_WAYS: u8 = 0x03;
    const PROTECTED: u8 = 0x40;
    const HAS_HT_CONTROL: u8 = 0x80;
    let [kind, flags] = *frame.first_bytes::<2>()?;
    if kind >> 2 & 3 != DATA || kind & HAS_NO_DATA != 0 {
        return Err(ParseStop::Other);
    }
    if flags & PROTECTED != 0 {
        return Err(ParseStop::Encrypted);
    }
    let fourth = if flags & BOTH_WAYS == BOTH_WAYS { 6 } else { 0 };
    let quality = match (kind & HAS_QOS, flags & HAS_HT_CONTROL) {
        (0, _) => 0,
        (_, 0) => 2,
        _ => 6,
    };
    Ok((ether_type::LLC, frame.skip_bytes(24 + fourth + quality)?))
}

/// Finds the packet among the attributes of Linux's netfilter (NFLOG), in the order of the host
/// that captured.
fn read_nflog(frame: PacketView<'_>) -> Carried<'_> {
    const PAYLOAD: u16 = 9;
    const MAX_ATTRIBUTES: usize = 32;
    let mut rest = frame.skip_bytes(4)?;
    for _ in 0..MAX_ATTRIBUTES {
        let head = rest.first_bytes::<4>()?;
        // No attribute but the packet is longer than 255 bytes, and no type is.
        let is_little = head[3] == 0;
        let [length, kind] = if is_little {
            [little_endian(head, 0), little_endian(head, 2)]
        } else {
            [read_u16(head, 0), read_u16(head, 2)]
        };
        if kind == PAYLOAD {
            return Ok((BY_VERSION, rest.skip_bytes(4)?));
        }
        rest = rest.skip_bytes(usize::from(length).max(4).next_multiple_of(4))?;
    }
    Err(ParseStop::Malformed)
}

/// Returns the 16 bits at this offset of a header, the lower ones first.
fn little_endian(header: &[u8], at: usize) -> u16 {
    read_u16(header, at).swap_bytes()
}

/// Reads BSD's loopback header: an address family in the order of the host that captured, or of the
/// network.
fn loopback_header(frame: PacketView<'_>) -> Carried<'_> {
    let family = read_u32(frame.first_bytes::<4>()?, 0);
    let family = if family > 0xFFFF {
        family.swap_bytes()
    } else {
        family
    };
    match family {
        // IPv4 everywhere; IPv6 of Linux, NetBSD, FreeBSD and macOS.
        2 | 10 | 24 | 28 | 30 => Ok((BY_VERSION, frame.skip_bytes(4)?)),
        _ => Err(ParseStop::Other),
    }
}
