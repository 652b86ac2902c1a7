//! Headers of IP, with the extension headers of IPv6.

use std::ops::Range;

use super::Stop;
use super::view::{View, long, word};
use crate::checksum::Sum;
use crate::headers::TCP;

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
#[derive(Debug, Clone, Copy)]
pub(super) struct IpPacket<'p> {
    pub(super) addresses: Addresses<'p>,
    pub(super) protocol: u8,
    pub(super) identification: Option<u16>,
    pub(super) hops_left: u8,
    pub(super) traffic_class: u8,
    /// All behind the headers that were read, of the length that the header states.
    pub(super) payload: View<'p>,
}

/// Source and destination behind each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Addresses<'p> {
    V4(&'p [[u8; 4]; 2]),
    V6(&'p [[u8; 16]; 2]),
}

impl IpPacket<'_> {
    /// Returns the sum over the pseudo header of a TCP segment that it carries.
    #[inline]
    pub(super) fn pseudo_header(&self) -> Sum {
        let sum = Sum::default().add_word(u16::from(TCP)).add(&(self.payload.length as u32).to_be_bytes());
        match self.addresses {
            Addresses::V4(bytes) => sum.add(bytes.as_flattened()),
            Addresses::V6(bytes) => sum.add(bytes.as_flattened()),
        }
    }

    /// Follows extension headers. Fails if they are cut or wrong, for fragments, and where the rest is encrypted.
    pub(super) fn follow_extensions(&mut self) -> Result<(), Stop> {
        for _ in 0..=MAX_EXTENSIONS {
            match self.protocol {
                ENCRYPTED => return Err(Stop::Encrypted),
                HOP_BY_HOP | ROUTING | DESTINATION | AUTHENTICATION | FRAGMENT => {}
                _ => return Ok(()),
            }
            if self.protocol == FRAGMENT {
                let field = word(self.payload.head::<8>()?, 2);
                whole(field >> 3, field & 1 != 0)?;
            }
            let Some(length) = extension_length(self.protocol, self.payload.head::<2>()?[1]) else { return Ok(()) };
            if self.protocol == HOP_BY_HOP {
                self.payload = as_jumbogram(self.payload, length);
            }
            self.protocol = self.payload.head::<1>()?[0];
            self.payload = self.payload.after(length)?;
        }
        Err(Stop::Malformed)
    }
}

/// Returns the length in bytes of an extension header with this length field; `None` for other protocols.
pub(super) fn extension_length(protocol: u8, field: u8) -> Option<usize> {
    match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION => Some((usize::from(field) + 1) * 8),
        AUTHENTICATION => Some((usize::from(field) + 2) * 4),
        FRAGMENT => Some(8),
        _ => None,
    }
}

/// Reads the header of an IP packet of either version. Fails if it is cut or wrong, and for fragments of IPv4.
#[inline]
pub(super) fn read(packet: View) -> Result<IpPacket, Stop> {
    match packet.version()? {
        4 => read_v4(packet),
        6 => read_v6(packet),
        _ => Err(Stop::Malformed),
    }
}

/// Reads IPv4's header. Fails if it is cut or wrong, and for fragments.
#[inline]
fn read_v4(packet: View) -> Result<IpPacket, Stop> {
    let header = packet.head::<20>()?;
    let addresses = header[12..].as_chunks().0.first_chunk().ok_or(Stop::Malformed)?;
    let header_length = usize::from(header[0] & 0x0F) * 4;
    let packet = match usize::from(word(header, 2)) {
        // A train of more than 64 KiB (BIG TCP): the capture alone has its length.
        0 => packet,
        total if total < header_length => return Err(Stop::Malformed),
        total => packet.with_length(total),
    };
    if header_length < header.len() {
        return Err(Stop::Malformed);
    }
    let fragment = word(header, 6);
    whole(fragment & 0x1FFF, fragment & 0x2000 != 0)?;
    Ok(IpPacket {
        addresses: Addresses::V4(addresses),
        protocol: header[9],
        identification: Some(word(header, 4)),
        hops_left: header[8],
        traffic_class: header[1],
        payload: packet.after(header_length)?,
    })
}

/// Reads IPv6's header without extensions. Fails if it is cut.
#[inline]
fn read_v6(packet: View) -> Result<IpPacket, Stop> {
    let header = packet.head::<40>()?;
    let addresses = header[8..].as_chunks().0.first_chunk().ok_or(Stop::Malformed)?;
    let payload = packet.after(40)?;
    Ok(IpPacket {
        addresses: Addresses::V6(addresses),
        protocol: header[6],
        identification: None,
        hops_left: header[7],
        traffic_class: header[0] << 4 | header[1] >> 4,
        payload: match usize::from(word(header, 4)) {
            // A jumbogram: an option has its length, or the capture alone.
            0 => payload,
            length => payload.with_length(length),
        },
    })
}

/// Fails for a fragment with this offset.
#[inline]
fn whole(offset: u16, has_more: bool) -> Result<(), Stop> {
    match (offset, has_more) {
        (0, false) => Ok(()),
        (0, true) => Err(Stop::FirstFragment),
        _ => Err(Stop::LaterFragment),
    }
}

/// Returns the packet with the length of a jumbogram, if its hop-by-hop options of `length` bytes have one.
fn as_jumbogram(payload: View, length: usize) -> View {
    let Some(stated) =
        payload.bytes.get(..length).and_then(|header| Some(long(header, jumbo_option(header)?.start + 2)))
    else {
        return payload;
    };
    let stated = stated as usize;
    if stated < length { payload } else { payload.with_length(stated) }
}

/// Returns the place of the length of a jumbogram among the options of a hop-by-hop header: its kind, its length, and
/// four bytes.
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
