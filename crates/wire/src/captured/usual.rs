//! The usual packet: Ethernet, IPv4 and TCP with nothing but timestamps.

use std::net::{Ipv4Addr, SocketAddr};

use super::{CapturedSegment, LinkType, SegmentOptions, ether_type};
use crate::headers::{TCP, read_u16, read_u32};
use crate::options::{NO_OPERATION, TIMESTAMPS};

/// Lengths of the headers, which are those of nearly all packets with data and of most
/// acknowledgements.
const ETHERNET: usize = 14;
const IP: usize = 20;
const TCP_WITH_TIMESTAMPS: usize = 32;

/// The headers of a usual packet behind that of Ethernet.
#[derive(Clone, Copy)]
pub(super) struct UsualHeaders<'p> {
    ip: &'p [u8; IP],
    tcp: &'p [u8; TCP_WITH_TIMESTAMPS],
    /// Length in bytes of the segment with its header.
    length: u16,
}

impl<'p> UsualHeaders<'p> {
    /// Returns `None` for any other packet.
    #[inline]
    pub(super) fn from_frame(link: LinkType, bytes: &'p [u8]) -> Option<Self> {
        const FIXED: u8 = 0x45;
        const OFFSET_AND_MORE: u16 = 0x3FFF;
        const WORDS: u8 = (TCP_WITH_TIMESTAMPS / 4) as u8;
        let packet = bytes.first_chunk::<{ ETHERNET + IP + TCP_WITH_TIMESTAMPS }>()?;
        let (ip, tcp) = (
            packet[ETHERNET..].first_chunk::<IP>()?,
            packet[ETHERNET + IP..].first_chunk()?,
        );
        let is_ip = link == LinkType::ETHERNET
            && read_u16(packet, 12) == ether_type::IPV4
            && ip[0] == FIXED;
        let is_tcp =
            ip[9] == TCP && read_u16(ip, 6) & OFFSET_AND_MORE == 0 && tcp[12] >> 4 == WORDS;
        let length = read_u16(ip, 2).checked_sub(IP as u16)?;
        let has_times = tcp[20..24] == [NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10];
        let is_usual = is_ip && is_tcp && has_times && length >= TCP_WITH_TIMESTAMPS as u16;
        is_usual.then_some(Self { ip, tcp, length })
    }

    /// Returns the segment of the packet: the one that [`super::find_segment`] finds, but in a
    /// third of the time.
    #[inline]
    pub(super) fn captured_segment(&self) -> CapturedSegment {
        let Self { ip, tcp, length } = *self;
        let checksum = read_u16(tcp, 16);
        CapturedSegment {
            source: socket_address(read_u32(ip, 12), read_u16(tcp, 0)),
            destination: socket_address(read_u32(ip, 16), read_u16(tcp, 2)),
            network: 0,
            overhead: 0,
            sequence: read_u32(tcp, 4),
            acknowledgement: read_u32(tcp, 8),
            flags: read_u16(tcp, 12) & 0x1FF,
            window: read_u16(tcp, 14),
            payload: u32::from(length) - TCP_WITH_TIMESTAMPS as u32,
            options: SegmentOptions {
                timestamps: Some((read_u32(tcp, 24), read_u32(tcp, 28))),
                ..SegmentOptions::default()
            },
            identification: Some(read_u16(ip, 4)),
            hops_left: ip[8],
            traffic_class: ip[1],
            checksum,
            checksum_is_unfinished: checksum == pseudo_header(ip, length),
        }
    }
}

#[inline]
fn socket_address(address: u32, port: u16) -> SocketAddr {
    (Ipv4Addr::from_bits(address), port).into()
}

/// Returns the sum over the pseudo header of a segment of this length.
#[inline]
fn pseudo_header(ip: &[u8; IP], length: u16) -> u16 {
    let words = [
        read_u16(ip, 12),
        read_u16(ip, 14),
        read_u16(ip, 16),
        read_u16(ip, 18),
        length,
        TCP.into(),
    ];
    let sum: u32 = words.into_iter().map(u32::from).sum();
    // Six words carry over twice at most.
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::super::{CapturedContent, PacketView, find_segment};
    use super::*;
    use proptest::prelude::*;

    /// Returns a usual packet of which this many bytes were captured.
    fn packet(numbers: [u8; 52], captured: usize) -> Vec<u8> {
        let mut bytes = [[2; 12].as_slice(), &[8, 0], &numbers, &[7; 60]].concat();
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&(52 + u16::from(numbers[2]) * 8).to_be_bytes());
        bytes[20..22].copy_from_slice(&[numbers[6] & 0x40, 0]);
        bytes[23] = TCP;
        bytes[46] = 0x80 | numbers[32] & 0x0F;
        bytes[54..58].copy_from_slice(&[1, 1, 8, 10]);
        bytes.truncate(captured);
        bytes
    }

    proptest! {
        #[test]
        fn a_usual_packet_is_read_as_all_packets_are(
            numbers in any::<[u8; 52]>(),
            captured in 60_usize..126,
            changed in prop::option::of((12_usize..60, any::<u8>())),
            is_unfinished in any::<bool>(),
        ) {
            let mut bytes = packet(numbers, captured);
            if is_unfinished && bytes.len() >= 66 {
                let ip: [u8; IP] = *bytes[14..].first_chunk().unwrap();
                let sum = pseudo_header(&ip, read_u16(&ip, 2) - IP as u16);
                bytes[50..52].copy_from_slice(&sum.to_be_bytes());
            }
            if let Some((at, byte)) = changed {
                bytes[at] = byte;
            }
            let mut found = CapturedContent::Other;
            let general = find_segment(LinkType::ETHERNET, PacketView::new(&bytes, 1514), &mut found);
            match UsualHeaders::from_frame(LinkType::ETHERNET, &bytes) {
                Some(usual) => prop_assert_eq!((general, found), (Ok(()), CapturedContent::Tcp(usual.captured_segment()))),
                None => prop_assert!(captured < 66 || changed.is_some(), "every usual one is read"),
            }
            prop_assert!(UsualHeaders::from_frame(LinkType::RAW, &bytes).is_none());
        }
    }
}
