//! Headers of links, up to the type of what they carry.

use super::around::Around;
use super::view::{View, long, word};
use super::{LinkType, Stop, ether_type};

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
pub(super) fn open(link: LinkType, frame: View) -> Result<(u16, View), Stop> {
    match link.0 {
        1 => ether_type::frame(frame),
        0 | 108 => null(frame),
        9 | 50 => point_to_point(frame),
        // FDDI: frame control and two addresses.
        10 => Ok((ether_type::LLC, frame.after(13)?)),
        12 | 14 | 101 | 228 | 229 => Ok((BY_VERSION, frame)),
        51 => ether_type::session(frame, &mut Around::default()),
        // Cisco's HDLC: address and control.
        104 => Ok((word(frame.head::<4>()?, 2), frame.after(4)?)),
        105 => read_wireless(frame),
        // pf's log, whose header is padded to a multiple of four bytes.
        117 => Ok((BY_VERSION, frame.after(usize::from(frame.head::<1>()?[0]).next_multiple_of(4))?)),
        127 => read_wireless(frame.after(usize::from(little_endian(frame.head::<4>()?, 2)))?),
        113 => Ok((word(frame.head::<COOKED>()?, 14), frame.after(COOKED)?)),
        239 => read_nflog(frame),
        // Hilscher's netANALYZER.
        240 => ether_type::frame(frame.after(4)?),
        // IP over InfiniBand: a global routing header.
        242 => Ok((word(frame.head::<44>()?, 40), frame.after(44)?)),
        276 => Ok((word(frame.head::<COOKED_2>()?, 0), frame.after(COOKED_2)?)),
        _ => Err(Stop::Other),
    }
}

/// Reads the protocol of PPP (RFC 1661, 2), with or without HDLC's address and control (RFC 1662, 3.1).
pub(super) fn point_to_point(frame: View) -> Result<(u16, View), Stop> {
    let frame = if frame.head::<2>()? == &[0xFF, 0x03] { frame.after(2)? } else { frame };
    let head = frame.head::<2>()?;
    // An odd first byte is a compressed protocol.
    let (protocol, length) = if head[0] & 1 == 1 { (head[0].into(), 1) } else { (word(head, 0), 2) };
    let kind = match protocol {
        0x0021 => ether_type::IPV4,
        0x0057 => ether_type::IPV6,
        0x0281 => ether_type::MPLS,
        _ => return Err(Stop::Other),
    };
    Ok((kind, frame.after(length)?))
}

/// Reads the header of a data frame of IEEE 802.11 (9.3.2.1), up to that of IEEE 802.2.
pub(super) fn read_wireless(frame: View) -> Result<(u16, View), Stop> {
    const DATA: u8 = 2;
    const HAS_QOS: u8 = 0x80;
    const HAS_NO_DATA: u8 = 0x40;
    const BOTH_WAYS: u8 = 0x03;
    const PROTECTED: u8 = 0x40;
    const HAS_HT_CONTROL: u8 = 0x80;
    let [kind, flags] = *frame.head::<2>()?;
    if kind >> 2 & 3 != DATA || kind & HAS_NO_DATA != 0 {
        return Err(Stop::Other);
    }
    if flags & PROTECTED != 0 {
        return Err(Stop::Encrypted);
    }
    let fourth = if flags & BOTH_WAYS == BOTH_WAYS { 6 } else { 0 };
    let quality = match (kind & HAS_QOS, flags & HAS_HT_CONTROL) {
        (0, _) => 0,
        (_, 0) => 2,
        _ => 6,
    };
    Ok((ether_type::LLC, frame.after(24 + fourth + quality)?))
}

/// Finds the packet among the attributes of Linux's netfilter (NFLOG), in the order of the host that captured.
fn read_nflog(frame: View) -> Result<(u16, View), Stop> {
    const PAYLOAD: u16 = 9;
    const MAX_ATTRIBUTES: usize = 32;
    let mut rest = frame.after(4)?;
    for _ in 0..MAX_ATTRIBUTES {
        let head = rest.head::<4>()?;
        // No attribute but the packet is longer than 255 bytes, and no type is.
        let is_little = head[3] == 0;
        let [length, kind] =
            if is_little { [little_endian(head, 0), little_endian(head, 2)] } else { [word(head, 0), word(head, 2)] };
        if kind == PAYLOAD {
            return Ok((BY_VERSION, rest.after(4)?));
        }
        rest = rest.after(usize::from(length).max(4).next_multiple_of(4))?;
    }
    Err(Stop::Malformed)
}

/// Returns the 16 bits at this offset of a header, the lower ones first.
fn little_endian(header: &[u8], at: usize) -> u16 {
    word(header, at).swap_bytes()
}

/// Reads BSD's loopback header: an address family in the order of the host that captured, or of the network.
fn null(frame: View) -> Result<(u16, View), Stop> {
    let family = long(frame.head::<4>()?, 0);
    let family = if family > 0xFFFF { family.swap_bytes() } else { family };
    match family {
        // IPv4 everywhere; IPv6 of Linux, NetBSD, FreeBSD and macOS.
        2 | 10 | 24 | 28 | 30 => Ok((BY_VERSION, frame.after(4)?)),
        _ => Err(Stop::Other),
    }
}
