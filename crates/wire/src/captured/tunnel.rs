//! Headers of tunnels, up to the type of what they carry.

use super::around::{Around, Layer};
use super::ip::IpPacket;
use super::view::{View, long, word};
use super::{Stop, UnreadHeader, ether_type};
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
pub(super) const GRE_IN_UDP: u16 = 4754;
/// Ports of servers, which answer from them.
pub(super) const CAPWAP: u16 = 5247;
pub(super) const AYIYA: u16 = 5072;

/// Mirrored frames in GRE (ERSPAN types I and II, and III: draft-foschiano-erspan-03, 4).
const MIRRORED: u16 = 0x88BE;
const MIRRORED_3: u16 = 0x22EB;

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
        protocol @ (55 | 94 | 97 | 98 | 108 | 115 | 137) => Err(Stop::Unread(UnreadHeader::Protocol(protocol))),
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
    let kind = word(header, 2);
    if flags & (ROUTING | VERSION) != 0 {
        return Err(Stop::Unread(UnreadHeader::EtherType(kind)));
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
    // Of frames, the last byte is no network but a number for each flow and direction (NVGRE, RFC 7637, 3.2).
    around.add(Layer::Gre, if kind == ether_type::ETHERNET { key >> 8 } else { key });
    match kind {
        MIRRORED_3 => {
            let has_platform = rest.head::<12>()?[11] & 1 != 0;
            Ok((ether_type::ETHERNET, rest.after(if has_platform { 20 } else { 12 })?))
        }
        MIRRORED if flags & SEQUENCE != 0 => Ok((ether_type::ETHERNET, rest.after(8)?)),
        MIRRORED => Ok((ether_type::ETHERNET, rest)),
        _ => Ok((kind, rest)),
    }
}

/// Reads the tunnels that use UDP. Any program may use their ports: a header that is not theirs is a plain datagram's.
fn in_datagram<'p>(datagram: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    let header = datagram.head::<8>()?;
    let tunnel = datagram.after(8)?;
    match tunnel_port(header) {
        VXLAN | OLD_VXLAN => vxlan(tunnel, around),
        GENEVE => geneve(tunnel, around),
        GTP => gtp(tunnel, around),
        GRE_IN_UDP => gre(tunnel, around),
        CAPWAP => read_capwap(tunnel),
        AYIYA => read_ayiya(tunnel, around),
        port @ (1701 | 3544 | 4341 | 4790 | 6635) => Err(Stop::Unread(UnreadHeader::Port(port))),
        _ => Err(Stop::Udp),
    }
}

/// Returns the port of UDP that a tunnel is known by: that of the receiver, or of a server that answers.
pub(super) fn tunnel_port(header: &[u8]) -> u16 {
    let [source, destination] = [0, 2].map(|at| word(header, at));
    if matches!(source, CAPWAP | AYIYA) { source } else { destination }
}

/// Reads the header of CAPWAP's data (RFC 5415, 4.3), whose first byte says whether DTLS hides it.
fn read_capwap(tunnel: View<'_>) -> Result<(u16, View<'_>), Stop> {
    const PLAIN: u8 = 0;
    const DTLS: u8 = 1;
    const IS_WIRELESS: u8 = 0x01;
    const IS_FRAGMENT: u8 = 0x80;
    const KEEPS_ALIVE: u8 = 0x08;
    let header = head_of::<8>(tunnel)?;
    let length = usize::from(header[1] >> 3) * 4;
    match header[0] {
        DTLS => return Err(Stop::Encrypted),
        PLAIN if length >= header.len() && header[3] & KEEPS_ALIVE == 0 => {}
        _ => return Err(Stop::Udp),
    }
    if header[3] & IS_FRAGMENT != 0 {
        return Err(if word(header, 6) >> 3 == 0 { Stop::FirstFragment } else { Stop::LaterFragment });
    }
    let frame = tunnel.after(length)?;
    if header[2] & IS_WIRELESS != 0 { Ok((ether_type::WIRELESS, frame)) } else { Ok((ether_type::ETHERNET, frame)) }
}

/// Reads the header of "anything in anything" (draft-massar-v6ops-ayiya-02, 4), with an identity and a signature.
fn read_ayiya<'p>(tunnel: View<'p>, around: &mut Around) -> Result<(u16, View<'p>), Stop> {
    const FORWARD: u8 = 1;
    let [identity, signature, operation, next] = *head_of::<4>(tunnel)?;
    if operation & 0x0F != FORWARD || !matches!(next, IPV4 | IPV6) {
        return Err(Stop::Udp);
    }
    around.add(Layer::Ip, 0);
    let length = 8 + (1 << (identity >> 4)) + usize::from(signature >> 4) * 4;
    Ok((ether_type::IPV4, tunnel.after(length)?))
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
