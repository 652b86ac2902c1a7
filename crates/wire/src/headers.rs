//! Offsets of the headers of a packet.

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IpVersion {
    V4,
    V6,
}

/// The headers of an IP packet that carries a whole TCP segment, or a train of them, or the same of
/// UDP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketHeaders {
    pub version: IpVersion,
    pub protocol: u8,
    /// Offset of the transport's header.
    pub transport: usize,
    /// Offset of the payload.
    pub payload: usize,
}

impl PacketHeaders {
    /// Reads the headers at the front of `packet`. `None` for what is neither TCP nor UDP, or a
    /// fragment, or has IPv6 extension headers, or is shorter than its headers say: such packets
    /// are carried as they are.
    pub(crate) fn parse_packet(packet: &[u8]) -> Option<Self> {
        let (version, protocol, transport) = ip_header(packet)?;
        let payload = match protocol {
            TCP => {
                let length = usize::from(packet.get(transport + 12)? >> 4) * 4;
                (length >= 20).then_some(transport + length)?
            }
            UDP => transport + 8,
            _ => return None,
        };
        (payload <= packet.len()).then_some(Self {
            version,
            protocol,
            transport,
            payload,
        })
    }

    /// Returns the offset of the transport's checksum from the beginning of its header.
    pub(crate) fn checksum_offset(&self) -> usize {
        if self.protocol == TCP { 16 } else { 6 }
    }
}

/// Version, protocol and length of the IP header at the front of `packet`; `None` for fragments,
/// and where there is none.
pub(crate) fn ip_header(packet: &[u8]) -> Option<(IpVersion, u8, usize)> {
    match packet.first()? >> 4 {
        4 => {
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3FFF != 0;
            let header = usize::from(packet[0] & 0x0F) * 4;
            (header >= 20 && !fragment).then_some((IpVersion::V4, *packet.get(9)?, header))
        }
        6 => Some((IpVersion::V6, *packet.get(6)?, 40)),
        _ => None,
    }
}

/// Returns the 16 bits at this offset of a header.
#[inline]
pub(crate) fn read_u16(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Returns the 32 bits at this offset of a header.
#[inline]
pub(crate) fn read_u32(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}
