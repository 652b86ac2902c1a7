//! Headers of tunnels, up to the type of what they carry.

use super::around::{Around, Layer};
use super::ip::IpPacket;
use super::view::{View, long, word};
use super::{Stop, ether_type};
use crate::headers::UDP;

const IPV4: u8 = 4;
const IPV6: u8 = 41;
pub(super) const GRE: u8 = 47;

/// Ports of UDP.
const VXLAN: u16 = 4789;
/// The port of Linux's first VXLAN, which Flannel and Cilium still use.
const OLD_VXLAN: u16 = 8472;
pub(super) const GENEVE: u16 = 6081;
pub(super) const GTP: u16 = 2152;

/// Extension headers of GTP in a row that are followed.
const MAX_EXTENSIONS: usize = 16;

/// Returns the Ethernet type of what a tunnel carries, and what it carries. Fails if the packet is no tunnel's.
pub(super) fn open<'p>(packet: &IpPacket<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    match packet.protocol {
        IPV4 | IPV6 => {
            around.add(Layer::Ip, 0);
            // The packet states its version itself.
            Ok((ether_type::IPV4, packet.payload))
        }
        GRE => gre(packet.payload, around),
        UDP => in_datagram(packet.payload, around),
        _ => Err(Stop::Other),
    }
}

/// Reads GRE's header (RFC 2784, 2; RFC 2890, 2).
fn gre<'p>(tunnel: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const VERSION: u16 = 0x0007;
    let header = tunnel.head::<4>()?;
    let flags = word(header, 0);
    if flags & (ROUTING | VERSION) != 0 {
        return Err(Stop::Other);
    }
    let mut rest = tunnel.after(if flags & CHECKSUM == 0 { 4 } else { 8 })?;
    let mut key = 0;
    if flags & KEY != 0 {
        key = long(rest.head::<4>()?, 0);
        rest = rest.after(4)?;
    }
    if flags & SEQUENCE != 0 {
        rest = rest.after(4)?;
    }
    around.add(Layer::Gre, key);
    Ok((word(header, 2), rest))
}

/// Reads the tunnels that use UDP. Any program may use their ports: a header that is not theirs is a plain datagram's.
fn in_datagram<'p>(datagram: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    let port = word(datagram.head::<8>()?, 2);
    let tunnel = datagram.after(8)?;
    match port {
        VXLAN | OLD_VXLAN => vxlan(tunnel, around),
        GENEVE => geneve(tunnel, around),
        GTP => gtp(tunnel, around),
        _ => Err(Stop::Udp),
    }
}

/// Reads VXLAN's header (RFC 7348, 5).
fn vxlan<'p>(tunnel: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    const HAS_NETWORK: u8 = 0x08;
    let header = head_of::<8>(tunnel)?;
    if header[0] & HAS_NETWORK == 0 {
        return Err(Stop::Udp);
    }
    around.add(Layer::Vxlan, long(header, 4) >> 8);
    Ok((ether_type::ETHERNET, tunnel.after(8)?))
}

/// Reads Geneve's header (RFC 8926, 3.4).
fn geneve<'p>(tunnel: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    let header = head_of::<8>(tunnel)?;
    let (version, options) = (header[0] >> 6, usize::from(header[0] & 0x3F) * 4);
    let kind = word(header, 2);
    let carries_packets = matches!(kind, ether_type::ETHERNET | ether_type::IPV4 | ether_type::IPV6);
    if version != 0 || !carries_packets {
        return Err(Stop::Udp);
    }
    around.add(Layer::Geneve, long(header, 4) >> 8);
    Ok((kind, tunnel.after(8 + options)?))
}

/// Reads the header of GTP-U with its extensions (3GPP TS 29.281, 5.1 and 5.2).
fn gtp<'p>(tunnel: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    /// Version 1 of GTP, and not of GTP'.
    const VERSION: u8 = 0x30;
    const HAS_EXTENSION: u8 = 0x04;
    /// Any of an extension, a sequence number and a number of N-PDU.
    const IS_LONG: u8 = 0x07;
    const USER_DATA: u8 = 255;
    let header = head_of::<8>(tunnel)?;
    if header[0] & 0xF0 != VERSION || header[1] != USER_DATA {
        return Err(Stop::Udp);
    }
    let mut rest = tunnel.after(8)?;
    let mut extension = 0;
    if header[0] & IS_LONG != 0 {
        extension = if header[0] & HAS_EXTENSION == 0 { 0 } else { rest.head::<4>()?[3] };
        rest = rest.after(4)?;
    }
    for _ in 0..MAX_EXTENSIONS {
        if extension == 0 {
            break;
        }
        let length = usize::from(rest.head::<1>()?[0]) * 4;
        let next = length.checked_sub(1).ok_or(Stop::Malformed)?;
        extension = rest.after(next)?.head::<1>()?[0];
        rest = rest.after(length)?;
    }
    // Each direction has an endpoint identifier of its own.
    around.add(Layer::Gtp, 0);
    if extension == 0 && matches!(rest.version()?, 4 | 6) { Ok((ether_type::IPV4, rest)) } else { Err(Stop::Udp) }
}

/// Returns the first bytes of a tunnel's header. Fails if they are cut, or for a datagram that is too short for one.
fn head_of<const N: usize>(tunnel: View<'_>) -> Result<&[u8; N], Stop> {
    if tunnel.length < N { Err(Stop::Udp) } else { tunnel.head() }
}
