//! Addresses of hosts, with the devices of link-local ones.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Returns the address with this port. The scope of a link-local one, which is its device, stays.
pub(crate) fn at_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

/// Addresses of a host that are called.
pub(crate) const MAX_CALLED: usize = 4;

/// Returns the addresses of a host as this one knows them, all with port 0. A link-local one
/// without a scope leads nowhere, and is left out.
pub(crate) fn host_addresses(host: &str) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for address in (host, 0).to_socket_addrs().into_iter().flatten() {
        let address = at_port(address, 0);
        if leads_somewhere(address) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// Returns the addresses of the far end that are called for data: those of the host that the user
/// has named. That which the far end `says` is the first if it is one of them, or of the host that
/// ssh is `configured` to reach by that name: a far end may name no other host.
pub(crate) fn far_addresses(
    host: &str,
    says: Option<IpAddr>,
    configured: impl FnOnce() -> Option<String>,
) -> Vec<SocketAddr> {
    let mut found = host_addresses(host);
    if found.is_empty() || says.is_some() && found.iter().all(|address| Some(address.ip()) != says)
    {
        let others = configured().map_or_else(Vec::new, |host| host_addresses(&host));
        found.extend(
            others
                .into_iter()
                .filter(|other| says.is_none() || Some(other.ip()) == says),
        );
    }
    found.sort_by_key(|address| Some(address.ip()) != says);
    found.truncate(MAX_CALLED);
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

    /// A far end had this host call any address, be it of this host's own network.
    #[test]
    fn a_far_end_has_no_other_host_called() {
        let at = |last: u8| SocketAddr::from(([192, 0, 2, last], 0));
        let says = |last: u8| Some(at(last).ip());
        let configured = || Some("192.0.2.9".to_owned());
        assert_eq!(
            far_addresses("192.0.2.1", says(1), || panic!("it is known")),
            [at(1)]
        );
        assert_eq!(far_addresses("192.0.2.1", says(2), || None), [at(1)]);
        assert_eq!(
            far_addresses("192.0.2.1", says(9), configured),
            [at(9), at(1)]
        );
        assert_eq!(far_addresses("192.0.2.1", says(2), configured), [at(1)]);
        // A name of ssh's own configuration.
        assert_eq!(
            far_addresses("no.such.invalid", says(9), configured),
            [at(9)]
        );
        assert_eq!(far_addresses("no.such.invalid", None, configured), [at(9)]);
        assert!(far_addresses("no.such.invalid", says(2), configured).is_empty());
    }

    #[test]
    fn a_link_local_address_keeps_its_device() {
        // Device 1 of every network is the loopback.
        let scoped = read_address("fe80::1%lo").unwrap();
        assert!(
            matches!(scoped, SocketAddr::V6(scoped) if scoped.scope_id() == 1),
            "{scoped}"
        );
        assert_eq!(at_port(scoped, 7).to_string(), "[fe80::1%1]:7");
        assert_eq!(host_addresses("fe80::1%lo"), [scoped]);
        assert!(host_addresses("fe80::1").is_empty());
        // The far end knows it without the scope of this host.
        assert_eq!(
            far_addresses("fe80::1%lo", "fe80::1".parse().ok(), || panic!(
                "it is known"
            )),
            [scoped]
        );
        assert_eq!(read_address("192.0.2.1"), Some(([192, 0, 2, 1], 0).into()));
        assert!(
            ["localhost", "localhost%lo", "fe80::1%nosuch", ""]
                .iter()
                .all(|text| read_address(text).is_none())
        );
    }
}
