//! Types of the payload of Ethernet, and the headers that stand between a link's and an IP header.

use super::around::{Around, Layer};
use super::view::{View, long, word};
use super::{Stop, link_layer};

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

/// Headers before IP that are followed: four VLANs in a pseudowire in a VLAN, and one to spare.
pub(super) const MAX_HEADERS: usize = 10;

/// Labels in a row that are followed.
const MAX_LABELS: usize = 16;

/// Follows VLAN tags, MPLS, sessions of PPP and frames in frames up to an IP packet.
#[inline]
pub(super) fn to_ip<'p>(kind: u16, view: View<'p>, around: &mut Around) -> Result<View<'p>, Stop> {
    // Most packets have none of them.
    if matches!(kind, IPV4 | IPV6) { Ok(view) } else { behind_headers(kind, view, around) }
}

fn behind_headers<'p>(mut kind: u16, mut view: View<'p>, around: &mut Around) -> Result<View<'p>, Stop> {
    for _ in 0..MAX_HEADERS {
        if matches!(kind, IPV4 | IPV6) {
            return Ok(view);
        }
        (kind, view) = step(kind, view, around)?;
    }
    Err(Stop::Other)
}

/// Returns the type of what a header before IP carries, and what it carries.
pub(super) fn step<'p>(kind: u16, view: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    match kind {
        ETHERNET => frame(view),
        VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN => vlan(view, around),
        MPLS | MPLS_MULTICAST => labels(view, around),
        PPPOE_SESSION => session(view, around),
        _ => Err(Stop::Other),
    }
}

/// Reads the header of Ethernet.
#[inline]
pub(super) fn frame(view: View) -> Result<(u16, View), Stop> {
    Ok((word(view.head::<14>()?, 12), view.after(14)?))
}

/// Reads a VLAN's tag (IEEE 802.1Q), whose identifier zero is no VLAN but a priority.
fn vlan<'p>(view: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    let tag = view.head::<4>()?;
    match word(tag, 0) & 0x0FFF {
        0 => {}
        identifier => around.add(Layer::Vlan, identifier.into()),
    }
    Ok((word(tag, 2), view.after(4)?))
}

/// Reads labels to the bottom of the stack (RFC 3032, 2.1), and guesses what follows by its first bits (RFC 4385, 1).
fn labels<'p>(mut view: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    // Each direction has labels of its own.
    around.add(Layer::Mpls, 0);
    for _ in 0..MAX_LABELS {
        let is_bottom = long(view.head::<4>()?, 0) & 0x100 != 0;
        view = view.after(4)?;
        if is_bottom {
            return match view.version()? {
                4 => Ok((IPV4, view)),
                6 => Ok((IPV6, view)),
                // The control word of a pseudowire.
                0 => Ok((ETHERNET, view.after(4)?)),
                _ => Err(Stop::Other),
            };
        }
    }
    Err(Stop::Other)
}

/// Reads the header of a session of PPP over Ethernet (RFC 2516, 4).
fn session<'p>(view: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    let header = view.head::<6>()?;
    around.add(Layer::Pppoe, word(header, 2).into());
    link_layer::point_to_point(view.after(6)?)
}
