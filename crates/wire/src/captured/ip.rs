//! Headers of IP, with the extension headers of IPv6.

use std::ops::Range;

use super::ParseStop;
use super::view::PacketView;
use crate::checksum::ChecksumSum;
use crate::headers::{TCP, read_u16, read_u32};

pub(super) const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
const ENCRYPTED: u8 = 50;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// Extension headers in a row that are followed.
const MAX_EXTENSIONS: usize = 16;

/// Options of hop-by-hop: one byte of padding, and the length of a jumbogram (RFC 2675, 2).
const PADDING: u8 = 0;
const JUMBO: u8 = 0xC2;

/// An IP packet.
#[derive(Clone, Copy)]
pub(super) struct IpPacket<'p> {
    pub addresses: AddressPair<'p>,
    pub protocol: u8,
    pub identification: Option<u16>,
    pub hops_left: u8,
    pub traffic_class: u8,
    /// All behind the headers that were read, of the length that the header states.
    pub payload: PacketView<'p>,
}

/// Source and destination behind each other.
#[derive(Clone, Copy)]
pub(super) enum AddressPair<'p> {
    V4(&'p [[u8; 4]; 2]),
    V6(&'p [[u8; 16]; 2]),
}

impl IpPacket<'_> {
    /// Returns the sum over the pseudo header of a TCP segment that it carries.
    #[inline]
    pub(super) fn pseudo_header(&self) -> ChecksumSum {
        let sum = ChecksumSum::default()
            .add_word(u16::from(TCP))
            .add_bytes(&(self.payload.length as u32).to_be_bytes());
        match self.addresses {
            AddressPair::V4(bytes) => sum.add_bytes(bytes.as_flattened()),
            AddressPair::V6(bytes) => sum.add_bytes(bytes.as_flattened()),
        }
    }

    /// Follows extension headers. Fails if they are cut or wrong, for fragments, and where the rest
    /// is encrypted.
    pub(super) fn follow_extensions(&mut self) -> Result<(), ParseStop> {
        for _ in 0..=MAX_EXTENSIONS {
            match self.protocol {
                ENCRYPTED => return Err(ParseStop::Encrypted),
                HOP_BY_HOP | ROUTING | DESTINATION | AUTHENTICATION | FRAGMENT => {}
                _ => return Ok(()),
            }
            if self.protocol == FRAGMENT {
                let field = read_u16(self.payload.first_bytes::<8>()?, 2);
                refuse_fragment(field >> 3, field & 1 != 0)?;
            }
            let Some(length) = extension_length(self.protocol, self.payload.first_bytes::<2>()?[1])
            else {
                return Ok(());
            };
            if self.protocol == HOP_BY_HOP {
                self.payload = as_jumbogram(self.payload, length);
            }
            self.protocol = self.payload.first_bytes::<1>()?[0];
            self.payload = self.payload.skip_bytes(length)?;
        }
        Err(ParseStop::Malformed)
    }
}

/// Returns the length in bytes of an extension header with this length field; `None` for other
/// protocols.
pub(super) fn extension_length(protocol: u8, field: u8) -> Option<usize> {
    match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION => Some((usize::from(field) + 1) * 8),
        AUTHENTICATION => Some((usize::from(field) + 2) * 4),
        FRAGMENT => Some(8),
        _ => None,
    }
}

/// Reads the header of an IP packet of either version. Fails if it is cut or wrong, and for
/// fragments of IPv4.
#[inline]
pub(super) fn read_header(packet: PacketView) -> Result<IpPacket, ParseStop> {
    match packet.ip_version()? {
        4 => read_v4(packet),
        6 => read_v6(packet),
        _ => Err(ParseStop::Malformed),
    }
}

/// Reads IPv4's header. Fails if it is cut or wrong, and for fragments.
#[inline]
fn read_v4(packet: PacketView) -> Result<IpPacket, ParseStop> {
    let header = packet.first_bytes::<20>()?;
    let (halves, _) = header[12..].as_chunks();
    let addresses = halves.first_chunk().ok_or(ParseStop::Malformed)?;
    let header_length = usize::from(header[0] & 0x0F) * 4;
    let packet = match usize::from(read_u16(header, 2)) {
        // A train of more than 64 KiB (BIG TCP): the capture alone has its length.
        0 => packet,
        total if total < header_length => return Err(ParseStop::Malformed),
        total => packet.with_length(total),
    };
    if header_length < header.len() {
        return Err(ParseStop::Malformed);
    }
    let fragment = read_u16(header, 6);
    refuse_fragment(fragment & 0x1FFF, fragment & 0x2000 != 0)?;
    Ok(IpPacket {
        addresses: AddressPair::V4(addresses),
        protocol: header[9],
        identification: Some(read_u16(header, 4)),
        hops_left: header[8],
        traffic_class: header[1],
        payload: packet.skip_bytes(header_length)?,
    })
}

/// Reads IPv6's header without extensions. Fails if it is cut.
#[inline]
fn read_v6(packet: PacketView) -> Result<IpPacket, ParseStop> {
    let header = packet.first_bytes::<40>()?;
    let addresses = header[8..]
        .as_chunks()
        .0
        .first_chunk()
        .ok_or(ParseStop::Malformed)?;
    let payload = packet.skip_bytes(40)?;
    Ok(IpPacket {
        addresses: AddressPair::V6(addresses),
        protocol: header[6],
        identification: None,
        hops_left: header[7],
        traffic_class: header[0] << 4 | header[1] >> 4,
        payload: match usize::from(read_u16(header, 4)) {
            // A jumbogram: an option has its length, or the capture alone.
            0 => payload,
            length => payload.with_length(length),
        },
    })
}

/// Fails for a fragment with this offset.
#[inline]
fn refuse_fragment(offset: u16, has_more: bool) -> Result<(), ParseStop> {
    match (offset, has_more) {
        (0, false) => Ok(()),
        (0, true) => Err(ParseStop::FirstFragment),
        _ => Err(ParseStop::LaterFragment),
    }
}

/// Returns the packet with the length of a jumbogram, if its hop-by-hop options of `length` bytes
/// have one.
fn as_jumbogram(payload: PacketView, length: usize) -> PacketView {
    let Some(stated) = payload
        .bytes
        .get(..length)
        .and_then(|header| Some(read_u32(header, jumbo_option(header)?.start + 2)))
    else {
        return payload;
    };
    let stated = stated as usize;
    if stated < length {
        payload
    } else {
        payload.with_length(stated)
    }
}

/// Returns the place of the length of a jumbogram among the options of a hop-by-hop header: its
/// kind, its length, and four bytes.
pub(super) fn jumbo_option(header: &[u8]) -> Option<Range<usize>> {
    let mut at = 2;
    loop {
        at += match *header.get(at..)? {
            [JUMBO, 4, _, _, _, _, ..] => return Some(at..at + 6),
            [PADDING, ..] => 1,
            [_, length, ..] => 2 + usize::from(length),
            _ => return None,
        };
    }
}
