//! Addresses of clients, and networks of them, for lists of who is served and who may be reached.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// A network of addresses with a common prefix, as `192.0.2.0/24` or `2001:db8::/32`; a single
/// address is one as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressPrefix {
    prefix: u128,
    /// Length of the prefix in bits. IPv4 addresses count as IPv6 addresses, so their prefixes have
    /// at least 96.
    length: u32,
}

/// The error for a text that is not a network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a network: write an address, or a network as 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError(String);

impl AddressPrefix {
    /// Returns true if `address` belongs to the network. An IPv4 address may also be written as
    /// `::ffff:192.0.2.1`.
    pub fn contains_address(&self, address: IpAddr) -> bool {
        prefix_of(to_bits(address), self.length) == self.prefix
    }

    /// Returns true if all its addresses are of IPv4, which may be written as `::ffff:192.0.2.1`.
    pub fn is_ipv4(&self) -> bool {
        self.length >= 96 && Ipv6Addr::from_bits(self.prefix).to_ipv4_mapped().is_some()
    }

    /// Returns true if every address of `other` belongs to this network.
    pub fn covers_network(&self, other: &Self) -> bool {
        other.length >= self.length && prefix_of(other.prefix, self.length) == self.prefix
    }
}

/// Writes it so that it can be read again.
impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.prefix);
        match (address.to_ipv4_mapped(), self.length.checked_sub(96)) {
            (Some(address), Some(length)) => write!(f, "{address}/{length}"),
            _ => write!(f, "{address}/{}", self.length),
        }
    }
}

impl FromStr for AddressPrefix {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        parse_prefix(text).ok_or_else(|| NetworkError(text.to_owned()))
    }
}

fn parse_prefix(text: &str) -> Option<AddressPrefix> {
    let (address, length) = text
        .split_once('/')
        .map_or((text, None), |(address, length)| (address, Some(length)));
    let address: IpAddr = address.parse().ok()?;
    let family = if address.is_ipv4() { 32 } else { 128 };
    let length = length.map_or(Ok(family), str::parse).ok()?;
    if length > family {
        return None;
    }
    let length = length + 128 - family;
    Some(AddressPrefix {
        prefix: prefix_of(to_bits(address), length),
        length,
    })
}

/// Returns true if an address is in none of the networks that `deny` names, and in one of `allow`,
/// if that names any.
pub fn is_admitted(address: IpAddr, allow: &[AddressPrefix], deny: &[AddressPrefix]) -> bool {
    !is_in_any(address, deny) && (allow.is_empty() || is_in_any(address, allow))
}

fn is_in_any(address: IpAddr, networks: &[AddressPrefix]) -> bool {
    networks
        .iter()
        .any(|network| network.contains_address(address))
}

/// Returns an IPv4-mapped address as an IPv4 address: sockets for both families have clients as
/// `::ffff:192.0.2.1`. Any other address stays as it is: without its scope, a link-local one could
/// not be reached.
pub fn canonical_address(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(mapped) => mapped.ip().to_ipv4_mapped().map_or(address, |plain| {
            SocketAddr::new(plain.into(), mapped.port())
        }),
        SocketAddr::V4(_) => address,
    }
}

/// Returns the prefix whose quota `address` uses: an IPv4 address itself, or the /64 network of an
/// IPv6 address.
pub fn client_prefix(address: IpAddr) -> u128 {
    let address = address.to_canonical();
    prefix_of(to_bits(address), if address.is_ipv4() { 128 } else { 64 })
}

/// Returns the networks that count as one client at `address`, each with how many times the quota
/// of a client it has: an IPv4 address itself; of IPv6, its /64 network once, and twice and four
/// times its /56 and /48, as providers assign them to one site (RFC 6177).
pub fn client_networks(address: IpAddr) -> impl Iterator<Item = (AddressPrefix, u32)> {
    let address = address.to_canonical();
    let lengths: &[(u32, u32)] = if address.is_ipv4() {
        &[(128, 1)]
    } else {
        &[(64, 1), (56, 2), (48, 4)]
    };
    let bits = to_bits(address);
    lengths.iter().map(move |&(length, share)| {
        (
            AddressPrefix {
                prefix: prefix_of(bits, length),
                length,
            },
            share,
        )
    })
}

/// Returns an address as the bits of an IPv6 address, with IPv4 mapped.
fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns the first `length` bits of `address`, followed by zeros.
fn prefix_of(address: u128, length: u32) -> u128 {
    address & u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str) -> AddressPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn an_ipv4_client_has_its_ipv4_address_and_a_link_local_one_its_scope() {
        let seen = |text: &str| canonical_address(text.parse().unwrap()).to_string();
        for (address, expected) in [
            ("[::ffff:192.0.2.1]:5201", "192.0.2.1:5201"),
            ("192.0.2.1:5201", "192.0.2.1:5201"),
            ("[2001:db8::1]:5201", "[2001:db8::1]:5201"),
            ("[fe80::1%3]:5201", "[fe80::1%3]:5201"),
        ] {
            assert_eq!(seen(address), expected);
        }
    }

    #[test]
    fn the_prefix_of_a_client_is_its_ipv4_address_or_its_64_network() {
        let same = |one: &str, other: &str| client_prefix(ip(one)) == client_prefix(ip(other));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1") && !same("192.0.2.1", "192.0.2.2"));
        assert!(same("2001:db8::1", "2001:db8::ffff:1") && !same("2001:db8::1", "2001:db8:0:1::1"));
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        for (network_text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.77/24", "192.0.2.1", "192.0.1.255"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("128.0.0.0/1", "255.255.255.255", "127.255.255.255"),
        ] {
            let network = network(network_text);
            assert!(
                network.contains_address(ip(inside)) && !network.contains_address(ip(outside)),
                "{network_text}"
            );
        }
        assert!(network("192.0.2.0/24").contains_address(ip("::ffff:192.0.2.9")));
        assert!(
            network("::/0").contains_address(ip("2001:db8::1"))
                && network("::/0").contains_address(ip("192.0.2.1"))
        );
    }

    #[test]
    fn a_network_is_written_so_that_it_is_read_again() {
        for text in [
            "192.0.2.0/24",
            "192.0.2.1/32",
            "0.0.0.0/0",
            "2001:db8::/32",
            "::/0",
            "2001:db8::1/128",
        ] {
            assert_eq!(network(text).to_string(), text);
        }
    }

    #[test]
    fn the_error_names_the_text_that_is_not_a_network() {
        for text in [
            "",
            "192.0.2.0/33",
            "192.0.2.0/-1",
            "192.0.2/24",
            "2001:db8::/129",
            "host",
            "192.0.2.0/",
            "/24",
        ] {
            assert!(
                text.parse::<AddressPrefix>()
                    .unwrap_err()
                    .to_string()
                    .contains(text),
                "{text}"
            );
        }
    }

    #[test]
    fn a_network_covers_itself_and_its_parts() {
        let covers = |whole: &str, part: &str| network(whole).covers_network(&network(part));
        assert!(covers("127.0.0.0/8", "127.0.0.1") && covers("127.0.0.0/8", "127.0.0.0/8"));
        assert!(!covers("127.0.0.0/8", "0.0.0.0/0") && !covers("127.0.0.0/8", "10.0.0.1"));
    }
}
