//! Targets, and the list of those that a far relay connects to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use fullpipe_control::AddressPrefix;
use thiserror::Error;

/// A target as the user writes it: `HOST:PORT`, where HOST is a name, an IPv4 address, or an IPv6
/// address in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Targets that are permitted: `NETWORK:PORT,PORT…`, as `10.0.0.0/8:22,443` or
/// `[2001:db8::/32]:443`; `*` is every port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTargets {
    network: AddressPrefix,
    /// All if empty.
    ports: Vec<u16>,
}

/// The error of a text that is no target, or no list of permitted targets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The text is not `HOST:PORT`.
    #[error("`{0}` is no target: write HOST:PORT, as 192.0.2.1:22 or [2001:db8::1]:22")]
    Target(String),
    /// The text is not `NETWORK:PORTS`.
    #[error(
        "`{0}` permits no targets: write NETWORK:PORTS, as 10.0.0.0/8:22,443 or [2001:db8::/32]:*"
    )]
    Allowed(String),
}

/// Longest name of a host (RFC 1035, section 2.3.4).
const MAX_HOST: usize = 253;

/// Networks that are permitted only where the user lists them or a part of them: this host, and its
/// link. Packets to the unspecified addresses stay on this host, too. Most clouds have their
/// metadata at link-local addresses; the last are those of Azure, Alibaba, Oracle, Amazon, Google
/// and Scaleway that are not.
const OWN: [&str; 13] = [
    "127.0.0.0/8",
    "0.0.0.0/8",
    "169.254.0.0/16",
    "::1",
    "::",
    "fe80::/10",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::/32",
    "fd20:ce::254",
    "fd00:c1::a9fe:a9fe",
    "fd00:42::42",
];

impl FromStr for TargetAddress {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse_target(text).ok_or_else(|| RuleError::Target(text.to_owned()))
    }
}

fn parse_target(text: &str) -> Option<TargetAddress> {
    let (host, number) = split_host_port(text)?;
    let port = parse_port(number)?;
    let is_host = (1..=MAX_HOST).contains(&host.len())
        && host
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'[' | b']'));
    is_host.then(|| TargetAddress {
        host: host.to_owned(),
        port,
    })
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

impl FromStr for AllowedTargets {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        parse_allowed(text).ok_or_else(|| RuleError::Allowed(text.to_owned()))
    }
}

fn parse_allowed(text: &str) -> Option<AllowedTargets> {
    let (network, ports) = split_host_port(text)?;
    let ports = match ports {
        "*" => Vec::new(),
        ports => ports.split(',').map(parse_port).collect::<Option<_>>()?,
    };
    Some(AllowedTargets {
        network: network.parse().ok()?,
        ports,
    })
}

impl AllowedTargets {
    fn permits_address(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        // A network of IPv6 lists no IPv4 addresses, although it may hold them as mapped ones.
        let is_listed =
            self.network.contains_address(ip) && (ip.is_ipv6() || self.network.is_ipv4());
        let has_port = self.ports.is_empty() || self.ports.contains(&address.port());
        let mut own_networks = [Some(ip), translated_ipv4(ip)]
            .into_iter()
            .flatten()
            .filter_map(own_network);
        is_listed && has_port && own_networks.all(|own| own.covers_network(&self.network))
    }
}

/// Returns true if any of `rules` permits `address`. This host's loopback and link-local addresses
/// are permitted only by a rule that lists nothing else.
pub(crate) fn is_target_permitted(rules: &[AllowedTargets], address: SocketAddr) -> bool {
    rules.iter().any(|rule| rule.permits_address(address))
}

/// Returns the IPv4 address to which gateways translate or tunnel an IPv6 address: NAT64 (RFC 6052,
/// section 2.1), 6to4 (RFC 3056, section 2), and IPv4-compatible ones (RFC 4291, section 2.5.5.1).
fn translated_ipv4(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let bits = match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0, 1..=u16::MAX, _] => {
            address.to_bits() as u32
        }
        [0x2002, ..] => (address.to_bits() >> 80) as u32,
        _ => return None,
    };
    Some(Ipv4Addr::from_bits(bits).into())
}

fn own_network(address: IpAddr) -> Option<AddressPrefix> {
    OWN.iter()
        .filter_map(|text| text.parse::<AddressPrefix>().ok())
        .find(|own| own.contains_address(address))
}

fn parse_port(number: &str) -> Option<u16> {
    number.parse().ok().filter(|port| *port != 0)
}

/// Splits at the last colon, and takes the brackets off the first part.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (host, rest) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(host) => Some((host.strip_suffix(']')?, rest)),
        None => (!host.contains(':')).then_some((host, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn permitted(rules: &[&str], address: &str) -> bool {
        let rules: Vec<AllowedTargets> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        is_target_permitted(&rules, address.parse().unwrap())
    }

    #[test]
    fn only_listed_targets_are_permitted() {
        let rules = ["10.0.0.0/8:22,443", "[2001:db8::/32]:*"];
        for address in [
            "10.1.2.3:22",
            "10.255.0.1:443",
            "[2001:db8::1]:5432",
            "[::ffff:10.1.2.3]:22",
        ] {
            assert!(permitted(&rules, address), "{address}");
        }
        for address in [
            "10.1.2.3:23",
            "11.0.0.1:22",
            "[2001:db9::1]:22",
            "127.0.0.1:22",
            "[::1]:443",
        ] {
            assert!(!permitted(&rules, address), "{address}");
        }
        assert!(!permitted(&[], "10.1.2.3:22"));
    }

    #[test]
    fn this_host_and_its_link_are_permitted_only_where_they_are_listed() {
        for address in [
            "127.0.0.1:22",
            "[::ffff:127.0.0.1]:22",
            "0.0.0.0:22",
            "169.254.169.254:22",
            "[::1]:22",
            "[::]:22",
            "[fe80::1]:22",
            "[::ffff:169.254.1.1]:22",
            "168.63.129.16:80",
            "100.100.100.200:80",
            "192.0.0.192:80",
            "[fd00:ec2::254]:80",
            "[fd00:ec2::23]:80",
            "[fd20:ce::254]:80",
            "[fd00:c1::a9fe:a9fe]:80",
            "[fd00:42::42]:80",
            "[64:ff9b::169.254.169.254]:80",
            "[64:ff9b::127.0.0.1]:80",
            "[2002:a9fe:a9fe::1]:80",
            "[::169.254.169.254]:80",
        ] {
            assert!(
                !permitted(&["0.0.0.0/0:*", "[::/0]:*"], address),
                "{address}"
            );
        }
        for address in ["10.0.0.1:22", "[::ffff:10.0.0.1]:22", "192.0.2.1:22"] {
            assert!(
                !permitted(&["[::/0]:*", "[::ffff:0:0/95]:*"], address),
                "{address}"
            );
            assert!(
                permitted(&["0.0.0.0/0:*"], address) && permitted(&["[::ffff:0:0/96]:*"], address),
                "{address}"
            );
        }
        assert!(
            permitted(&["[::/0]:*"], "[64:ff9b::192.0.2.1]:22")
                && permitted(&["[::/0]:*"], "[fd00::1]:22")
        );
        assert!(permitted(&["[fd00:ec2::254]:80"], "[fd00:ec2::254]:80"));
        assert!(
            permitted(&["127.0.0.1:22"], "127.0.0.1:22")
                && !permitted(&["127.0.0.1:22"], "127.0.0.2:22")
        );
        assert!(permitted(&["127.0.0.0/8:*"], "127.0.0.2:80"));
        assert!(
            permitted(&["[fe80::/10]:80"], "[fe80::1]:80")
                && permitted(&["[fe80::/10]:80"], "[fe80::1%3]:80")
        );
    }

    #[test]
    fn a_target_has_a_host_and_a_port() {
        for (text, host, port) in [
            ("host:22", "host", 22),
            ("[2001:db8::1]:443", "2001:db8::1", 443),
        ] {
            let target: TargetAddress = text.parse().unwrap();
            assert_eq!(
                (
                    target.host.as_str(),
                    target.port,
                    target.to_string().as_str()
                ),
                (host, port, text)
            );
        }
        for text in [
            "",
            "host",
            "host:",
            ":22",
            "host:0",
            "host:65536",
            "2001:db8::1:22",
            "[::1:22",
            "a b:1",
            "a\n:1",
        ] {
            assert!(text.parse::<TargetAddress>().is_err(), "{text}");
        }
        for brackets in ["[[z8F8]:7", "[[::1]]:7", "a]:7", "a[:7"] {
            assert!(brackets.parse::<TargetAddress>().is_err(), "{brackets}");
        }
        for text in [
            "",
            "10.0.0.0/8",
            "10.0.0.0/8:",
            "10.0.0.0/8:x",
            "10.0.0.0/8:22,0",
            "10.0.0.0/33:22",
            "host:22",
            "2001:db8::/32:22",
        ] {
            assert!(text.parse::<AllowedTargets>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_target_that_is_read_is_written_as_it_was(text in "\\[?[a-z0-9:.\\[\\]]{0,20}\\]?:[0-9]{1,6}") {
            if let Ok(target) = text.parse::<TargetAddress>() {
                prop_assert_eq!(target.to_string().parse::<TargetAddress>(), Ok(target));
            }
        }
    }
}
