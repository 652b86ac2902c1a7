//! What a router sends back about a packet that the next link cannot carry.

use fullpipe_units::{ByteCount, SegCount};

use super::Packet;
use crate::checksum::Sum;
use crate::headers::IpVersion;

const DONT_FRAGMENT: u8 = 0x40;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// Most of an offending packet that is sent back: all in 576 bytes (RFC 1812, 4.3.2.3), or in 1280 (RFC 4443, 2.4).
const QUOTED_V4: usize = 576 - 28;
const QUOTED_V6: usize = 1280 - 48;

impl Packet {
    /// "Fragmentation needed" (RFC 1191) or "packet too big" (RFC 4443, 3.2) about the first segment, with `mtu` as that of
    /// the next link. It comes from the address that the packet was going to. `None` where the sender allows fragments, or
    /// the packet is neither TCP nor UDP.
    pub fn too_big(&self, mtu: ByteCount) -> Option<Self> {
        let headers = self.headers?;
        let mut first = self.clone();
        if first.segments() > SegCount::new(1) {
            // What is cut off is not the router's concern.
            let _ = first.split_off(SegCount::new(1));
        }
        first.complete();
        let packet = [first.head.as_slice(), first.payload()].concat();
        let reply = match headers.version {
            IpVersion::V4 if packet[6] & DONT_FRAGMENT == 0 => return None,
            IpVersion::V4 => fragmentation_needed(&packet, mtu),
            IpVersion::V6 => packet_too_big(&packet, mtu),
        };
        Some(Self::whole(&reply))
    }
}

fn fragmentation_needed(packet: &[u8], mtu: ByteCount) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(QUOTED_V4)];
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend((mtu.get().min(u64::from(u16::MAX)) as u16).to_be_bytes());
    icmp.extend(quoted);
    let checksum = Sum::default().add(&icmp).checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());

    let mut ip = vec![0x45, 0xC0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0];
    ip.extend(&packet[16..20]);
    ip.extend(&packet[12..16]);
    ip[2..4].copy_from_slice(&((20 + icmp.len()) as u16).to_be_bytes());
    let checksum = Sum::default().add(&ip).checksum();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip.extend(icmp);
    ip
}

fn packet_too_big(packet: &[u8], mtu: ByteCount) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(QUOTED_V6)];
    let mut icmp = vec![2, 0, 0, 0];
    icmp.extend((mtu.get().min(u64::from(u32::MAX)) as u32).to_be_bytes());
    icmp.extend(quoted);

    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((icmp.len() as u16).to_be_bytes());
    ip.extend([ICMP_V6, 64]);
    ip.extend(&packet[24..40]);
    ip.extend(&packet[8..24]);
    let length = (icmp.len() as u32).to_be_bytes();
    let checksum = Sum::default().add(&ip[8..40]).add(&length).add_word(u16::from(ICMP_V6)).add(&icmp).checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    ip.extend(icmp);
    ip
}
