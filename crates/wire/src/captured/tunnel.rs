//! Headers of tunnels, up to the type of what they carry.

use super::around::{NetworkLayers, OuterLayer};
use super::ip::IpPacket;
use super::view::PacketView;
use super::{Carried, ParseStop, UnreadHeader, ether_type};
use crate::headers::{UDP, read_u16, read_u32};

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

/// Returns the Ethernet type of what a tunnel carries, and what it carries. Fails if the packet is
/// no tunnel's.
pub(super) fn open_tunnel<'p>(packet: &IpPacket<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    match packet.protocol {
        IPV4 | IPV6 => {
            around.add_layer(OuterLayer::Ip, 0);
            // The packet states its version itself.
            Ok((ether_type::IPV4, packet.payload))
        }
        GRE => gre_header(packet.payload, around),
        UDP => in_datagram(packet.payload, around),
        protocol @ (55 | 94 | 97 | 98 | 108 | 115 | 137) => {
            Err(ParseStop::Unread(UnreadHeader::Protocol(protocol)))
        }
        _ => Err(ParseStop::Other),
    }
}

/// Reads GRE's header (RFC 2784, 2; RFC 2890, 2).
fn gre_header<'p>(tunnel: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const VERSION: u16 = 0x0007;
    let header = tunnel.first_bytes::<4>()?;
    let flags = read_u16(header, 0);
    let kind = read_u16(header, 2);
    if flags & (ROUTING | VERSION) != 0 {
        return Err(ParseStop::Unread(UnreadHeader::EtherType(kind)));
    }
    let mut rest = tunnel.skip_bytes(if flags & CHECKSUM == 0 { 4 } else { 8 })?;
    let mut key = 0;
    if flags & KEY != 0 {
        key = read_u32(rest.first_bytes::<4>()?, 0);
        rest = rest.skip_bytes(4)?;
    }
    if flags & SEQUENCE != 0 {
        rest = rest.skip_bytes(4)?;
    }
    // Of frames, the last byte is no network but a number for each flow and direction (NVGRE, RFC
    // 7637, 3.2).
    around.add_layer(
        OuterLayer::Gre,
        if kind == ether_type::ETHERNET {
            key >> 8
        } else {
            key
        },
    );
    match kind {
        MIRRORED_3 => {
            let has_platform = rest.first_bytes::<12>()?[11] & 1 != 0;
            Ok((
                ether_type::ETHERNET,
                rest.skip_bytes(if has_platform { 20 } else { 12 })?,
            ))
        }
        MIRRORED if flags & SEQUENCE != 0 => Ok((ether_type::ETHERNET, rest.skip_bytes(8)?)),
        MIRRORED => Ok((ether_type::ETHERNET, rest)),
        _ => Ok((kind, rest)),
    }
}

/// Reads the tunnels that use UDP. Any program may use their ports: a header that is not theirs is
/// a plain datagram's.
fn in_datagram<'p>(datagram: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    let header = datagram.first_bytes::<8>()?;
    let tunnel = datagram.skip_bytes(8)?;
    match tunnel_port(header) {
        VXLAN | OLD_VXLAN => vxlan_header(tunnel, around),
        GENEVE => geneve_header(tunnel, around),
        GTP => gtp_header(tunnel, around),
        GRE_IN_UDP => gre_header(tunnel, around),
        CAPWAP => read_capwap(tunnel),
        AYIYA => read_ayiya(tunnel, around),
        port @ (1701 | 3544 | 4341 | 4790 | 6635) => {
            Err(ParseStop::Unread(UnreadHeader::Port(port)))
        }
        _ => Err(ParseStop::Udp),
    }
}

/// Returns the port of UDP that a tunnel is known by: that of the receiver, or of a server that
/// answers.
pub(super) fn tunnel_port(header: &[u8]) -> u16 {
    let [source, destination] = [0, 2].map(|at| read_u16(header, at));
    if matches!(source, CAPWAP | AYIYA) {
        source
    } else {
        destination
    }
}

/// Reads the header of CAPWAP's data (RFC 5415, 4.3), whose first byte says whether DTLS hides it.
fn read_capwap(tunnel: PacketView<'_>) -> Carried<'_> {
    const PLAIN: u8 = 0;
    const DTLS: u8 = 1;
    const IS_WIRELESS: u8 = 0x01;
    const IS_FRAGMENT: u8 = 0x80;
    const KEEPS_ALIVE: u8 = 0x08;
    let header = head_of::<8>(tunnel)?;
    let length = usize::from(header[1] >> 3) * 4;
    match header[0] {
        DTLS => return Err(ParseStop::Encrypted),
        PLAIN if length >= header.len() && header[3] & KEEPS_ALIVE == 0 => {}
        _ => return Err(ParseStop::Udp),
    }
    if header[3] & IS_FRAGMENT != 0 {
        return Err(if read_u16(header, 6) >> 3 == 0 {
            ParseStop::FirstFragment
        } else {
            ParseStop::LaterFragment
        });
    }
    let frame = tunnel.skip_bytes(length)?;
    let is_wireless = header[2] & IS_WIRELESS != 0;
    let kind = [ether_type::ETHERNET, ether_type::WIRELESS][usize::from(is_wireless)];
    Ok((kind, frame))
}

/// Reads the header of "anything in anything" (draft-massar-v6ops-ayiya-02, 4), with an identity
/// and a signature.
fn read_ayiya<'p>(tunnel: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    const FORWARD: u8 = 1;
    let [identity, signature, operation, next] = *head_of::<4>(tunnel)?;
    if operation & 0x0F != FORWARD || !matches!(next, IPV4 | IPV6) {
        return Err(ParseStop::Udp);
    }
    around.add_layer(OuterLayer::Ip, 0);
    let length = 8 + (1 << (identity >> 4)) + usize::from(signature >> 4) * 4;
    Ok((ether_type::IPV4, tunnel.skip_bytes(length)?))
}

/// Reads VXLAN's header (RFC 7348, 5).
fn vxlan_header<'p>(tunnel: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    const HAS_NETWORK: u8 = 0x08;
    let header = head_of::<8>(tunnel)?;
    if header[0] & HAS_NETWORK == 0 {
        return Err(ParseStop::Udp);
    }
    around.add_layer(OuterLayer::Vxlan, read_u32(header, 4) >> 8);
    Ok((ether_type::ETHERNET, tunnel.skip_bytes(8)?))
}

/// Reads Geneve's header (RFC 8926, 3.4).
fn geneve_header<'p>(tunnel: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    let header = head_of::<8>(tunnel)?;
    let (version, options) = (header[0] >> 6, usize::from(header[0] & 0x3F) * 4);
    let kind = read_u16(header, 2);
    let carries_packets = matches!(
        kind,
        ether_type::ETHERNET | ether_type::IPV4 | ether_type::IPV6
    );
    if version != 0 || !carries_packets {
        return Err(ParseStop::Udp);
    }
    around.add_layer(OuterLayer::Geneve, read_u32(header, 4) >> 8);
    Ok((kind, tunnel.skip_bytes(8 + options)?))
}

/// Reads the header of GTP-U with its extensions (3GPP TS 29.281, 5.1 and 5.2).
fn gtp_header<'p>(tunnel: PacketView<'p>, around: &mut NetworkLayers) -> Carried<'p> {
    /// Version 1 of GTP, and not of GTP'.
    const VERSION: u8 = 0x30;
    const HAS_EXTENSION: u8 = 0x04;
    /// Any of an extension, a sequence number and a number of N-PDU.
    const IS_LONG: u8 = 0x07;
    const USER_DATA: u8 = 255;
    let header = head_of::<8>(tunnel)?;
    if header[0] & 0xF0 != VERSION || header[1] != USER_DATA {
        return Err(ParseStop::Udp);
    }
    let mut rest = tunnel.skip_bytes(8)?;
    let mut extension = 0;
    if header[0] & IS_LONG != 0 {
        extension = if header[0] & HAS_EXTENSION == 0 {
            0
        } else {
            rest.first_bytes::<4>()?[3]
        };
        rest = rest.skip_bytes(4)?;
    }
    for _ in 0..MAX_EXTENSIONS {
        if extension == 0 {
            break;
        }
        let length = usize::from(rest.first_bytes::<1>()?[0]) * 4;
        let next = length.checked_sub(1).ok_or(ParseStop::Malformed)?;
        extension = rest.skip_bytes(next)?.first_bytes::<1>()?[0];
        rest = rest.skip_bytes(length)?;
    }
    // Each direction has an endpoint identifier of its own.
    around.add_layer(OuterLayer::Gtp, 0);
    if extension == 0 && matches!(rest.ip_version()?, 4 | 6) {
        Ok((ether_type::IPV4, rest))
    } else {
        Err(ParseStop::Udp)
    }
}

/// Returns the first bytes of a tunnel's header. Fails if they are cut, or for a datagram that is
/// too short for one.
fn head_of<const N: usize>(tunnel: PacketView<'_>) -> Result<&[u8; N], ParseStop> {
    if tunnel.length < N {
        Err(ParseStop::Udp)
    } else {
        tunnel.first_bytes()
    }
}
