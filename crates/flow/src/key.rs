//! The connection that a segment belongs to.

use std::net::SocketAddr;

use fullpipe_wire::Segment;

/// Addresses, ports and network of a connection, the same for both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    lower: u128,
    higher: u128,
    ports: [u16; 2],
    network: u32,
    is_v6: bool,
}

impl Key {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self::between([segment.source, segment.destination], segment.network)
    }

    /// Returns that of a connection between these ends, in any order, in a network.
    pub(crate) fn between([source, destination]: [SocketAddr; 2], network: u32) -> Self {
        let [one, other] = [place(source), place(destination)];
        let [lower, higher] = if one <= other { [one, other] } else { [other, one] };
        Self { lower: lower.0, higher: higher.0, ports: [lower.1, higher.1], network, is_v6: source.is_ipv6() }
    }
}

/// Returns an address as a number, and the port.
fn place(address: SocketAddr) -> (u128, u16) {
    match address {
        SocketAddr::V4(address) => (address.ip().to_bits().into(), address.port()),
        SocketAddr::V6(address) => (address.ip().to_bits(), address.port()),
    }
}
