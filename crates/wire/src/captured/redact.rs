//! Captured segments without what identifies hosts.

use super::around::NetworkLayers;
use super::ether_type::{self, ETHERNET, IPV4, IPV6, LLC, is_wireless};
use super::ip::{self, IpPacket};
use super::segment::SegmentHeader;
use super::tunnel::{self, AYIYA, CAPWAP, GENEVE, GRE, GRE_IN_UDP, GTP};
use super::view::PacketView;
use super::{LinkType, MAX_LAYERS, ParseStop, link_layer};
use crate::checksum::ChecksumSum;
use crate::headers::read_u16;
use crate::headers::{TCP, UDP};
use crate::options::{
    MSS, NO_OPERATION, SACK, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE, iter_options,
};

/// Length of Ethernet's header.
const ETHERNET_HEADER: usize = 14;

/// Replaces what identifies hosts.
pub trait Pseudonyms {
    /// Replaces an address of IPv4 (4 bytes), Ethernet (6) or IPv6 (16): equal ones by equal ones,
    /// different ones by different ones.
    fn replace_address(&mut self, address: &mut [u8]);

    /// Returns a digest that is equal for equal bytes, and from which nothing of them follows.
    fn digest_bytes(&mut self, bytes: &[u8]) -> u16;
}

/// Writes the headers of a captured TCP segment into `frame`, as a frame of Ethernet without what
/// identifies hosts. Returns the length in bytes that the frame had on its link, by which
/// [`crate::read_captured`] reads of it what it reads of the segment, but for the addresses.
/// Returns `None` if there is no segment or it is cut; `frame` is then not to be used.
///
/// * Addresses of Ethernet and IP are replaced by `pseudonyms`, also those within tunnels. Frames
///   of links without addresses of Ethernet get zeros.
/// * The segment's data is left out.
/// * Zero are: options of IPv4, extension headers of IPv6 but for their lengths and fragments, flow
///   labels, options of Geneve and CAPWAP, identities and signatures of AYIYA, identifiers, numbers
///   and extensions of GTP but for their lengths, options of TCP other than those of RFC 9293, 7323
///   and 2018, and checksums of tunnels.
/// * Checksums of IPv4 are right. That of TCP holds the sum over the pseudo header where it did,
///   and else a digest: the right one would show the sum of the addresses.
pub fn redact_segment(
    link: LinkType,
    bytes: &[u8],
    original: usize,
    pseudonyms: &mut impl Pseudonyms,
    frame: &mut Vec<u8>,
) -> Option<usize> {
    rewrite_headers(link, PacketView::new(bytes, original), pseudonyms, frame).ok()
}

fn rewrite_headers(
    link: LinkType,
    packet: PacketView,
    pseudonyms: &mut impl Pseudonyms,
    frame: &mut Vec<u8>,
) -> Result<usize, ParseStop> {
    let (mut kind, mut view) = link_layer::open_frame(link, packet)?;
    if kind == LLC {
        (kind, view) = ether_type::next_header(kind, view, &mut NetworkLayers::default())?;
    }
    let original = view.length + ETHERNET_HEADER;
    begin_frame(frame, link, kind, packet, view);
    let mut editor = PacketEditor {
        frame,
        pseudonyms,
        removed: view.offset,
    };
    if link == LinkType::ETHERNET {
        editor.replace_addresses(0, 2, 6);
    }
    let mut around = NetworkLayers::default();
    for _ in 0..MAX_LAYERS {
        let packet = editor.find_ip(kind, view, &mut around)?;
        let mut ip = ip::read_header(packet)?;
        if ip.protocol != TCP {
            ip.follow_extensions()?;
        }
        let unfinished = ip.pseudo_header().folded_sum();
        let addresses = editor.edit_ip(packet, &ip);
        if ip.protocol == TCP {
            editor.edit_segment(&ip, addresses, unfinished)?;
            return Ok(original);
        }
        (kind, view) = tunnel::open_tunnel(&ip, &mut around)?;
        editor.edit_tunnel(&ip, view);
    }
    Err(ParseStop::Other)
}

/// Begins `frame` with a header of Ethernet in place of the link's, and all that follows it.
fn begin_frame(
    frame: &mut Vec<u8>,
    link: LinkType,
    kind: u16,
    packet: PacketView,
    payload: PacketView,
) {
    let kind = match (kind, payload.ip_version()) {
        (IPV4 | IPV6, Ok(6)) => IPV6,
        (IPV4 | IPV6, _) => IPV4,
        _ => kind,
    };
    frame.clear();
    match packet.bytes.first_chunk::<12>() {
        Some(addresses) if link == LinkType::ETHERNET => frame.extend(addresses),
        _ => frame.extend([0; 12]),
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(payload.bytes);
}

/// Edits the copy of a packet.
struct PacketEditor<'f, P> {
    frame: &'f mut Vec<u8>,
    pseudonyms: &'f mut P,
    /// Length of the link's header, in place of which the copy has that of Ethernet.
    removed: usize,
}

impl<P: Pseudonyms> PacketEditor<'_, P> {
    /// Returns the place of a part of the packet in the copy.
    fn part_offset(&self, part: &PacketView) -> usize {
        part.offset - self.removed + ETHERNET_HEADER
    }

    /// Replaces so many addresses of `length` bytes behind each other.
    fn replace_addresses(&mut self, at: usize, count: usize, length: usize) {
        for address in self.frame[at..at + count * length].chunks_exact_mut(length) {
            self.pseudonyms.replace_address(address);
        }
    }

    /// Finds the IP packet behind other headers.
    fn find_ip<'p>(
        &mut self,
        mut kind: u16,
        mut view: PacketView<'p>,
        around: &mut NetworkLayers,
    ) -> Result<PacketView<'p>, ParseStop> {
        for _ in 0..ether_type::MAX_HEADERS {
            if matches!(kind, IPV4 | IPV6) {
                return Ok(view);
            }
            let behind = ether_type::next_header(kind, view, around)?;
            if kind == ETHERNET {
                self.replace_addresses(self.part_offset(&view), 2, 6);
            } else if is_wireless(kind) {
                self.edit_wireless(self.part_offset(&view), self.part_offset(&behind.1));
            }
            (kind, view) = behind;
        }
        Err(ParseStop::Other)
    }

    /// Edits the header of a frame of IEEE 802.11: three addresses, and a fourth in those between
    /// two access points.
    fn edit_wireless(&mut self, at: usize, end: usize) {
        self.replace_addresses(at + 4, 3, 6);
        if end >= at + 30 && self.frame[at + 1] & 3 == 3 {
            self.replace_addresses(at + 24, 1, 6);
        }
    }

    /// Edits the headers of IP from the begin of `packet` to the payload of `ip`. Returns the place
    /// of the addresses.
    fn edit_ip(&mut self, packet: PacketView, ip: &IpPacket) -> std::ops::Range<usize> {
        let (at, end) = (self.part_offset(&packet), self.part_offset(&ip.payload));
        let is_v4 = ip.identification.is_some();
        let (first, length, protocol) = if is_v4 {
            (at + 12, 4, at + 9)
        } else {
            (at + 8, 16, at + 6)
        };
        self.replace_addresses(first, 2, length);
        let extensions = if is_v4 {
            at + usize::from(self.frame[at] & 0x0F) * 4
        } else {
            at + 40
        };
        if is_v4 {
            self.frame[at + 20..extensions].fill(0);
            self.frame[at + 10..at + 12].fill(0);
            let checksum = ChecksumSum::default()
                .add_bytes(&self.frame[at..extensions])
                .to_checksum();
            self.frame[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            self.frame[at + 1] &= 0xF0;
            self.frame[at + 2..at + 4].fill(0);
        }
        self.edit_extensions(self.frame[protocol], extensions, end);
        first..first + 2 * length
    }

    /// Blanks extension headers, of which the first is of this `protocol`.
    fn edit_extensions(&mut self, mut protocol: u8, mut at: usize, end: usize) {
        while at < end {
            let Some(length) = ip::extension_length(protocol, self.frame[at + 1]) else {
                return;
            };
            let header = &mut self.frame[at..at + length];
            let jumbo = (protocol == ip::HOP_BY_HOP)
                .then(|| ip::jumbo_option(header))
                .flatten();
            if protocol != ip::FRAGMENT {
                let kept = jumbo.clone().map(|place| header[place].to_vec());
                header[2..].fill(0);
                if let Some((place, kept)) = jumbo.zip(kept) {
                    header[place].copy_from_slice(&kept);
                }
            }
            (protocol, at) = (header[0], at + length);
        }
    }

    /// Edits the header of a tunnel between `ip` and what it carries.
    fn edit_tunnel(&mut self, ip: &IpPacket, carried: PacketView) {
        const UDP_HEADER: usize = 8;
        /// Bytes of the fixed part of the header of Geneve, CAPWAP and AYIYA.
        const FIXED: usize = 8;
        let (at, end) = (self.part_offset(&ip.payload), self.part_offset(&carried));
        match ip.protocol {
            GRE if self.frame[at] & 0x80 != 0 => self.frame[at + 4..at + 8].fill(0),
            UDP => {
                self.frame[at + 6..at + 8].fill(0);
                match tunnel::tunnel_port(&self.frame[at..]) {
                    // Options, identities and signatures.
                    GENEVE | CAPWAP | AYIYA => self.frame[at + UDP_HEADER + FIXED..end].fill(0),
                    // A checksum.
                    GRE_IN_UDP if self.frame[at + UDP_HEADER] & 0x80 != 0 => {
                        self.frame[at + 12..at + 16].fill(0);
                    }
                    GTP => blank_gtp(&mut self.frame[at + UDP_HEADER..end]),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Edits the header of TCP, and cuts off all behind it. `unfinished` is the sum that its
    /// checksum held if a device was to finish it.
    fn edit_segment(
        &mut self,
        ip: &IpPacket,
        addresses: std::ops::Range<usize>,
        unfinished: u16,
    ) -> Result<(), ParseStop> {
        const CHECKSUM: std::ops::Range<usize> = 16..18;
        let header = SegmentHeader::read(ip.payload)?;
        let at = self.part_offset(&ip.payload);
        self.frame.truncate(at + header.captured_length());
        blank_options(&mut self.frame[at + 20..]);
        let pseudo_header = ChecksumSum::default()
            .add_word(u16::from(TCP))
            .add_bytes(&(ip.payload.length as u32).to_be_bytes())
            .add_bytes(&self.frame[addresses.clone()])
            .folded_sum();
        let checksum = if read_u16(self.frame, at + CHECKSUM.start) == unfinished {
            pseudo_header
        } else {
            // Both captures of one packet keep equal checksums.
            let identity = [&self.frame[addresses], &self.frame[at..]].concat();
            let digest = self.pseudonyms.digest_bytes(&identity);
            if digest == pseudo_header {
                digest ^ 1
            } else {
                digest
            }
        };
        self.frame[at + CHECKSUM.start..at + CHECKSUM.end].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// Blanks the header of GTP-U (3GPP TS 29.281, 5.1 and 5.2), but for the fields of its length.
fn blank_gtp(header: &mut [u8]) {
    /// Behind it are a sequence number and a number of N-PDU, and the type of the first extension.
    const SHORT: usize = 8;
    header[4..SHORT].fill(0);
    let Some(rest) = header.get_mut(SHORT..).filter(|rest| !rest.is_empty()) else {
        return;
    };
    let (numbers, mut extensions) = rest.split_at_mut(4);
    numbers[..3].fill(0);
    while let Some(words) = extensions.first() {
        let (extension, behind) = extensions.split_at_mut(usize::from(*words) * 4);
        let length = extension.len();
        extension[1..length - 1].fill(0);
        extensions = behind;
    }
}

/// Blanks the content of options that may identify a host: cookies, keys, signatures, addresses of
/// Multipath TCP.
fn blank_options(options: &mut [u8]) {
    let mut at = 0;
    let lengths: Vec<usize> = iter_options(options).map(<[u8]>::len).collect();
    for length in lengths {
        let option = &mut options[at..at + length];
        let is_known = match (option[0], length) {
            (NO_OPERATION, _)
            | (MSS, 4)
            | (WINDOW_SCALE, 3)
            | (SACK_PERMITTED, 2)
            | (TIMESTAMPS, 10) => true,
            (SACK, length) => length % 8 == 2,
            _ => false,
        };
        if !is_known {
            option[2..].fill(0);
        }
        at += length;
    }
    options[at..].fill(0);
}
