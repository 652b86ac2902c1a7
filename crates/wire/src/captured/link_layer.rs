//! Headers of links, up to the type of what they carry.

use super::view::{View, long, word};
use super::{LinkType, Stop, ether_type};

/// Payload whose IP header states its version itself.
const BY_VERSION: u16 = ether_type::IPV4;

/// Length of the header of Linux's cooked captures, both versions.
const COOKED: usize = 16;
const COOKED_2: usize = 20;

/// Returns whether packets of this link type can be read.
///
/// ```
/// use fullpipe_wire::{LinkType, is_known};
///
/// assert!(is_known(LinkType::ETHERNET));
/// assert!(!is_known(LinkType(195)), "IEEE 802.15.4");
/// ```
pub fn is_known(link: LinkType) -> bool {
    matches!(link.0, 0 | 1 | 9 | 10 | 12 | 14 | 101 | 108 | 113 | 228 | 229 | 276)
}

/// Returns the Ethernet type of what a frame carries, and what it carries.
#[inline]
pub(super) fn open(link: LinkType, frame: View) -> Result<(u16, View), Stop> {
    match link.0 {
        1 => ether_type::frame(frame),
        0 | 108 => null(frame),
        9 => point_to_point(frame),
        10 => fddi(frame),
        12 | 14 | 101 | 228 | 229 => Ok((BY_VERSION, frame)),
        113 => Ok((word(frame.head::<COOKED>()?, 14), frame.after(COOKED)?)),
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

/// Reads FDDI's header: frame control and two addresses, then that of IEEE 802.2 with a protocol's number (RFC 1188).
fn fddi(frame: View) -> Result<(u16, View), Stop> {
    const ADDRESSED: usize = 13;
    let payload = frame.after(ADDRESSED)?;
    let head = payload.head::<8>()?;
    let has_number = head[..6] == [0xAA, 0xAA, 0x03, 0, 0, 0];
    if has_number { Ok((word(head, 6), payload.after(8)?)) } else { Err(Stop::Other) }
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
