//! Addresses of hosts, with the devices of link-local ones.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Returns the address with this port. The scope of a link-local one, which is its device, stays.
pub(crate) fn at_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// Returns the addresses of a host as this one knows them, after `first`, all with port 0. A link-local one without a
/// scope leads nowhere, and is left out.
pub(crate) fn addresses(first: Option<SocketAddr>, host: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for address in first.into_iter().chain((host, 0).to_socket_addrs().into_iter().flatten()) {
        let address = at_port(address, 0);
        if leads_somewhere(address) && !found.contains(&address) {
            found.push(address);
        }
    }
    found.truncate(4);
    found
}

fn leads_somewhere(address: SocketAddr) -> bool {
    match address {
        SocketAddr::V6(address) => !address.ip().is_unicast_link_local() || address.scope_id() != 0,
        SocketAddr::V4(_) => true,
    }
}

/// Reads an address, with its scope if it is a link-local one: `fe80::1%eth0`.
pub(crate) fn read_address(text: &str) -> Option<SocketAddr> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    // A name would be resolved.
    address.parse::<IpAddr>().ok()?;
    (text, 0).to_socket_addrs().ok()?.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_keeps_its_device() {
        // Device 1 of every network is the loopback.
        let scoped = read_address("fe80::1%lo").unwrap();
        assert!(matches!(scoped, SocketAddr::V6(scoped) if scoped.scope_id() == 1), "{scoped}");
        assert_eq!(at_port(scoped, 7).to_string(), "[fe80::1%1]:7");
        assert_eq!(addresses(read_address("fe80::1"), "fe80::1%lo"), [scoped]);
        assert_eq!(read_address("192.0.2.1"), Some(([192, 0, 2, 1], 0).into()));
        assert!(["localhost", "localhost%lo", "fe80::1%nosuch", ""].iter().all(|text| read_address(text).is_none()));
    }
}
