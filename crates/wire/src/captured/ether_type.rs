//! Types of the payload of Ethernet, and the headers that stand between a link's and an IP header.

use super::around::{NetworkLayers, OuterLayer};
use super::view::PacketView;
use super::{Carried, ParseStop, UnreadHeader, link_layer};
use crate::headers::{read_u16, read_u32};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86DD;
pub(super) const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
/// A whole frame ("transparent Ethernet bridging").
pub(super) const ETHERNET: u16 = 0x6558;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88A8;
const OLD_SERVICE_VLAN: u16 = 0x9100;
const PPPOE_SESSION: u16 = 0x8864;
/// Tags of IEEE 802.1ah and 802.1BR, of Cisco's VN-Link, and of HSR (IEC 62439-3).
const SERVICE_INSTANCE: u16 = 0x88E7;
const PORT_EXTENSION: u16 = 0x893F;
const VIRTUAL_NETWORK: u16 = 0x8926;
const REDUNDANCY: u16 = 0x892F;
const ENCRYPTED: u16 = 0x88E5;
/// Packets that a router redirects to a cache, in GRE (WCCP version 2).
const REDIRECTED: u16 = 0x883E;
/// Frames of IEEE 802.11, in Aruba's GRE.
pub(super) const WIRELESS: u16 = 0x8200;
const LAST_WIRELESS: u16 = 0x8370;
/// Header of IEEE 802.2, as Linux numbers it: no type of Ethernet is below 0x600, where lengths
/// are.
pub(super) const LLC: u16 = 4;
const MAX_LENGTH: u16 = 1500;

/// Headers before IP that are followed: four VLANs in a pseudowire in a VLAN, and one to spare.
pub(super) const MAX_HEADERS: usize = 10;

/// Labels in a row that are followed.
const MAX_LABELS: usize = 16;

/// Follows VLAN tags, MPLS, sessions of PPP and frames in frames up to an IP packet.
#[inline]
pub(super) fn to_ip<'p>(
    kind: u16,
    view: PacketView<'p>,
    around: &mut NetworkLayers,
) -> Result<PacketView<'p>, ParseStop> {
    // Most packets have none of them.
    if matches!(kind, IPV4 | IPV6) {
        Ok(view)
    } else {
        behind_headers(kind, view, around)
    }
}

fn behind_headers<'p>(
    mut kind: u16,
    mut view: PacketView<'p>,
    around: &mut NetworkLayers,
) -> Result<PacketView<'p>, ParseStop> {
    for _ in 0..MAX_HEADERS {
        if matches!(kind, IPV4 | IPV6) {
            return Ok(view);
        }
        (kind, view) = next_header(kind, view, around)?;
    }
    Err(ParseStop::Other)
}

/// Returns the type of what a header before IP carries, and what it carries.
pub(super) fn next_header<'p>(
    kind: u16,
    view: PacketView<'p>,
    around: &mut NetworkLayers,
) -> Carried<'p> {
    match kind {
        ETHERNET => ethernet_header(view),
        VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN => vlan_header(view, around),
        MPLS | MPLS_MULTICAST => mpls_labels(view, around),
        PPPOE_SESSION => pppoe_session(view, around),
        LLC => read_llc(view),
        SERVICE_INSTANCE => {
            around.add_layer(
                OuterLayer::ServiceInstance,
                read_u32(view.first_bytes::<4>()?, 0) & 0x00FF_FFFF,
            );
            Ok((ETHERNET, view.skip_bytes(4)?))
        }
        // Each direction has identifiers of its own.
        PORT_EXTENSION => Ok((read_u16(view.first_bytes::<8>()?, 6), view.skip_bytes(8)?)),
        VIRTUAL_NETWORK | REDUNDANCY => {
            Ok((read_u16(view.first_bytes::<6>()?, 4), view.skip_bytes(6)?))
        }
        REDIRECTED if view.ip_version()? == 4 => Ok((IPV4, view)),
        REDIRECTED => Ok((IPV4, view.skip_bytes(4)?)),
        WIRELESS..=LAST_WIRELESS => link_layer::read_wireless(view),
        ENCRYPTED => Err(ParseStop::Encrypted),
        _ if carries_no_ip(kind) => Err(ParseStop::Other),
        _ => Err(ParseStop::Unread(UnreadHeader::EtherType(kind))),
    }
}

/// Returns true for the types of frames of IEEE 802.11.
pub(super) fn is_wireless(kind: u16) -> bool {
    (WIRELESS..=LAST_WIRELESS).contains(&kind)
}

/// Returns true for types of protocols that carry no packets of IP: ARP, LLDP, PTP and the like.
fn carries_no_ip(kind: u16) -> bool {
    matches!(
        kind,
        0..=0x05FF | 0x0806 | 0x0842 | 0x2000..=0x2004 | 0x22EA..=0x22F0 | 0x6000..=0x6009 | 0x8035 | 0x809B | 0x80F3
            | 0x8137 | 0x8808 | 0x8809 | 0x8863 | 0x886D | 0x888E | 0x8892 | 0x8899 | 0x88A2 | 0x88A4 | 0x88AB
            | 0x88B5..=0x88BA | 0x88C7 | 0x88CC | 0x88CD | 0x88DC | 0x88E1 | 0x88E3 | 0x88F5..=0x88FB | 0x8902 | 0x8906
            | 0x8912..=0x8915 | 0x8917 | 0x9000
    )
}

/// Reads the header of IEEE 802.2, with the number of a protocol (RFC 1042) or that of IP.
fn read_llc(view: PacketView<'_>) -> Carried<'_> {
    match *view.first_bytes::<3>()? {
        [0xAA, 0xAA, 0x03] => {
            let head = view.first_bytes::<8>()?;
            let has_type = matches!(head[3..6], [0, 0, 0 | 0xF8]);
            if has_type {
                Ok((read_u16(head, 6), view.skip_bytes(8)?))
            } else {
                Err(ParseStop::Other)
            }
        }
        [0x06, 0x06, 0x03] => Ok((IPV4, view.skip_bytes(3)?)),
        _ => Err(ParseStop::Other),
    }
}

/// Reads the header of Ethernet, or of IEEE 802.3 with a length in place of a type.
#[inline]
pub(super) fn ethernet_header(view: PacketView<'_>) -> Carried<'_> {
    let kind = read_u16(view.first_bytes::<14>()?, 12);
    Ok((
        if kind <= MAX_LENGTH { LLC } else { kind },
        view.skip_bytes(14)?,
    ))
}

/// Reads a VLAN's tag (IEEE 802.1Q), whose identifier zero is no VLAN but a priority.
fn vlan_header<'p>(view: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    let tag = view.first_bytes::<4>()?;
    match read_u16(tag, 0) & 0x0FFF {
        0 => {}
        identifier => around.add_layer(OuterLayer::Vlan, identifier.into()),
    }
    let kind = read_u16(tag, 2);
    Ok((
        if kind <= MAX_LENGTH { LLC } else { kind },
        view.skip_bytes(4)?,
    ))
}

/// Reads labels to the bottom of the stack (RFC 3032, 2.1), and guesses what follows by its first
/// bits (RFC 4385, 1).
fn mpls_labels<'p>(mut view: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    // Each direction has labels of its own.
    around.add_layer(OuterLayer::Mpls, 0);
    for _ in 0..MAX_LABELS {
        let is_bottom = read_u32(view.first_bytes::<4>()?, 0) & 0x100 != 0;
        view = view.skip_bytes(4)?;
        if is_bottom {
            return match view.ip_version()? {
                4 => Ok((IPV4, view)),
                6 => Ok((IPV6, view)),
                // The control word of a pseudowire.
                0 => Ok((ETHERNET, view.skip_bytes(4)?)),
                _ => Err(ParseStop::Other),
            };
        }
    }
    Err(ParseStop::Other)
}

/// Reads the header of a session of PPP over Ethernet (RFC 2516, 4).
pub(super) fn pppoe_session<'p>(view: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    let header = view.first_bytes::<6>()?;
    around.add_layer(OuterLayer::Pppoe, read_u16(header, 2).into());
    link_layer::point_to_point(view.skip_bytes(6)?)
}
