//! Headers of IP, with the extension headers of IPv6.

use super::Stop;
use super::view::{View, word};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
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
    /// Follows extension headers. Fails if they are cut or wrong, for fragments, and where the rest is encrypted.
    pub(super) fn follow_extensions(&mut self) -> Result<(), Stop> {
        for _ in 0..=MAX_EXTENSIONS {
            let length = match self.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => (usize::from(self.payload.head::<2>()?[1]) + 1) * 8,
                AUTHENTICATION => (usize::from(self.payload.head::<2>()?[1]) + 2) * 4,
                FRAGMENT => {
                    let field = word(self.payload.head::<8>()?, 2);
                    whole(field >> 3, field & 1 != 0)?;
                    8
                }
                ENCRYPTED => return Err(Stop::Encrypted),
                _ => return Ok(()),
            };
            if self.protocol == HOP_BY_HOP {
                self.payload = as_jumbogram(self.payload, length);
            }
            self.protocol = self.payload.head::<1>()?[0];
            self.payload = self.payload.after(length)?;
        }
        Err(Stop::Malformed)
    }
}

/// Reads IPv4's header. Fails if it is cut or wrong, and for fragments.
#[inline]
pub(super) fn read_v4(packet: View) -> Result<IpPacket, Stop> {
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
pub(super) fn read_v6(packet: View) -> Result<IpPacket, Stop> {
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
    let mut options = payload.bytes.get(2..length).unwrap_or_default();
    loop {
        options = match *options {
            [JUMBO, 4, a, b, c, d, ..] => {
                let stated = u32::from_be_bytes([a, b, c, d]) as usize;
                return if stated < length { payload } else { payload.with_length(stated) };
            }
            [PADDING, ref rest @ ..] => rest,
            [_, length, ref rest @ ..] => rest.get(usize::from(length)..).unwrap_or_default(),
            _ => return payload,
        }
    }
}
