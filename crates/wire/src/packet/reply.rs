//! Answers of a router about packets that it does not forward.

use std::net::IpAddr;

use fullpipe_units::{ByteCount, SegCount};

use super::IpPacketTrain;
use crate::checksum::ChecksumSum;
use crate::headers::{IpVersion, ip_header};

const DONT_FRAGMENT: u8 = 0x40;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// Type and code of what is sent back (RFC 792; RFC 4443, 3.2 and 3.3).
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
const TIME_EXCEEDED: [u8; 2] = [11, 0];
const TOO_BIG_V6: [u8; 2] = [2, 0];
const TIME_EXCEEDED_V6: [u8; 2] = [3, 0];

/// Types of echo requests and of their answers.
const ECHOES: [u8; 2] = [8, 0];
const ECHOES_V6: [u8; 2] = [128, 129];

/// Most of an offending packet that is sent back: all in 576 bytes (RFC 1812, 4.3.2.3), or in 1280
/// (RFC 4443, 2.4).
const QUOTED_V4: usize = 576 - 28;
const QUOTED_V6: usize = 1280 - 48;

impl IpPacketTrain {
    /// "Fragmentation needed" (RFC 1191) or "packet too big" (RFC 4443, 3.2) about the first
    /// segment, with `mtu` as that of the next link. It comes from the address that the packet was
    /// going to. `None` where the sender allows fragments, or the packet is none of TCP, UDP and
    /// echoes.
    pub fn too_big(&self, mtu: ByteCount) -> Option<Self> {
        let (version, packet) = self.answerable_packet()?;
        let reply = match version {
            IpVersion::V4 if packet[6] & DONT_FRAGMENT == 0 => return None,
            IpVersion::V4 => {
                let mtu = mtu.get().min(u64::from(u16::MAX)) as u32;
                icmp_packet(FRAGMENTATION_NEEDED, mtu, &packet[16..20], &packet)
            }
            IpVersion::V6 => icmp_v6(
                TOO_BIG_V6,
                mtu.get().min(u64::from(u32::MAX)) as u32,
                &packet[24..40],
                &packet,
            ),
        };
        Some(Self::from_ip_packet(&reply))
    }

    /// "Time exceeded" about the first segment, from the router `by`, where
    /// [`IpPacketTrain::count_hop`] found none left. `None` where the router speaks another version
    /// of IP, or the packet is none of TCP, UDP and echoes.
    pub fn time_exceeded(&self, by: IpAddr) -> Option<Self> {
        let (version, packet) = self.answerable_packet()?;
        let reply = match (version, by) {
            (IpVersion::V4, IpAddr::V4(by)) => icmp_packet(TIME_EXCEEDED, 0, &by.octets(), &packet),
            (IpVersion::V6, IpAddr::V6(by)) => icmp_v6(TIME_EXCEEDED_V6, 0, &by.octets(), &packet),
            _ => return None,
        };
        Some(Self::from_ip_packet(&reply))
    }

    /// The first segment as on a wire, if a router answers such packets: of errors it must not (RFC
    /// 1812, 4.3.2.7).
    fn answerable_packet(&self) -> Option<(IpVersion, Vec<u8>)> {
        let Some(headers) = self.headers else {
            return echo_version(self.payload_bytes())
                .map(|version| (version, self.payload_bytes().to_vec()));
        };
        let mut first = self.clone();
        if first.segment_count() > SegCount::new(1) {
            // What is cut off is not the router's concern.
            let _ = first.split_off(SegCount::new(1));
        }
        first.complete_checksum();
        Some((
            headers.version,
            [first.head.as_slice(), first.payload_bytes()].concat(),
        ))
    }
}

/// The version of IP of a packet that carries an echo request, or the answer to one, and is no
/// fragment.
fn echo_version(packet: &[u8]) -> Option<IpVersion> {
    let (version, protocol, header) = ip_header(packet)?;
    let (icmp, echoes) = match version {
        IpVersion::V4 => (ICMP, ECHOES),
        IpVersion::V6 => (ICMP_V6, ECHOES_V6),
    };
    (protocol == icmp && echoes.contains(packet.get(header)?)).then_some(version)
}

/// A packet of ICMP from the address `by` to the sender of `packet`, with the four bytes behind the
/// checksum as `field`.
fn icmp_packet(kind: [u8; 2], field: u32, by: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut icmp = icmp_message(kind, field, &packet[..packet.len().min(QUOTED_V4)]);
    let checksum = ChecksumSum::default().add_bytes(&icmp).to_checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());

    let mut ip = vec![0x45, 0xC0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0];
    ip.extend(by);
    ip.extend(&packet[12..16]);
    ip[2..4].copy_from_slice(&((20 + icmp.len()) as u16).to_be_bytes());
    let checksum = ChecksumSum::default().add_bytes(&ip).to_checksum();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip.extend(icmp);
    ip
}

/// As [`icmp_packet`], of its version 6.
fn icmp_v6(kind: [u8; 2], field: u32, by: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut icmp = icmp_message(kind, field, &packet[..packet.len().min(QUOTED_V6)]);
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((icmp.len() as u16).to_be_bytes());
    ip.extend([ICMP_V6, 64]);
    ip.extend(by);
    ip.extend(&packet[8..24]);
    let length = (icmp.len() as u32).to_be_bytes();
    let checksum = ChecksumSum::default()
        .add_bytes(&ip[8..40])
        .add_bytes(&length)
        .add_word(u16::from(ICMP_V6))
        .add_bytes(&icmp)
        .to_checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    ip.extend(icmp);
    ip
}

fn icmp_message(kind: [u8; 2], field: u32, quoted: &[u8]) -> Vec<u8> {
    [&kind[..], &[0, 0], &field.to_be_bytes(), quoted].concat()
}
