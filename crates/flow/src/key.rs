//! The connection that a segment belongs to.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use fullpipe_wire::CapturedSegment;

/// Addresses, ports and network of a connection, the same for both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    lower: u128,
    higher: u128,
    ports: [u16; 2],
    /// The network that it is in.
    pub(crate) network: u32,
    /// True if the addresses are of IPv6.
    pub(crate) is_v6: bool,
}

impl FlowKey {
    /// Returns the key of the connection of `segment`, and true if its lower end sent the segment.
    #[inline]
    pub(crate) fn from_segment(segment: &CapturedSegment) -> (Self, bool) {
        let [one, other] = [
            address_number(segment.source),
            address_number(segment.destination),
        ];
        let is_from_lower = one <= other;
        let [lower, higher] = if is_from_lower {
            [one, other]
        } else {
            [other, one]
        };
        let (ports, is_v6) = ([lower.1, higher.1], segment.source.is_ipv6());
        (
            Self {
                lower: lower.0,
                higher: higher.0,
                ports,
                network: segment.network,
                is_v6,
            },
            is_from_lower,
        )
    }

    /// Returns both ends of the connection, the lower first.
    pub(crate) fn end_addresses(&self) -> [SocketAddr; 2] {
        let [lower, higher] = self.ports;
        [(self.lower, lower), (self.higher, higher)].map(|(number, port)| {
            if self.is_v6 {
                SocketAddr::from((Ipv6Addr::from_bits(number), port))
            } else {
                SocketAddr::from((Ipv4Addr::from_bits(number as u32), port))
            }
        })
    }

    /// Returns the key of the same addresses and ports in another network.
    pub(crate) fn in_network(self, network: u32) -> Self {
        Self { network, ..self }
    }

    /// Returns true for a connection of a socket to itself.
    pub(crate) fn is_to_itself(&self) -> bool {
        let [lower, higher] = self.ports;
        self.lower == self.higher && lower == higher
    }

    /// Returns the index of the part that follows this connection, of so many `parts` of a capture.
    #[inline]
    pub(crate) fn part_index(&self, parts: usize) -> usize {
        /// 2^64 by the golden ratio: neighbours are spread evenly (Knuth, volume 3, 6.4).
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let [lower, higher] = self.ports;
        let hash = end_hash(self.lower, lower)
            .wrapping_add(end_hash(self.higher, higher))
            .wrapping_mul(SPREAD);
        (((hash >> 32) * parts as u64) >> 32) as usize
    }
}

#[inline]
fn end_hash(address: u128, port: u16) -> u64 {
    (address as u64 ^ (address >> 64) as u64).rotate_left(16) ^ u64::from(port)
}

/// Returns an address as a number, and the port.
#[inline]
fn address_number(address: SocketAddr) -> (u128, u16) {
    match address {
        SocketAddr::V4(address) => (address.ip().to_bits().into(), address.port()),
        SocketAddr::V6(address) => (address.ip().to_bits(), address.port()),
    }
}
