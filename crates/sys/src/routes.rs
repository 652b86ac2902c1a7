//! The routes of a namespace with their metrics, and how a metric is changed.

use std::collections::BTreeMap;
use std::io;

use rustix::net::netdevice::index_to_name;

use crate::dump::{
    address_of, attribute, attribute_u32, dump_list, netlink_message, parse_attributes, parse_text,
    parse_u32, u32_at,
};
use crate::route::{push_attribute, send_request};
use crate::socket::control_socket;

/// Metrics of a route that are numbers, by the names of `ip route` and their numbers in
/// `linux/rtnetlink.h`.
pub const NUMERIC_METRICS: [(&str, u16); 14] = [
    ("mtu", 2),
    ("window", 3),
    ("rtt", 4),
    ("rttvar", 5),
    ("ssthresh", 6),
    ("cwnd", 7),
    ("advmss", 8),
    ("reordering", 9),
    ("hoplimit", 10),
    ("initcwnd", 11),
    ("rto_min", 13),
    ("initrwnd", 14),
    ("quickack", 15),
    ("fastopen_no_cookie", 17),
];

/// The metric that names a congestion control (`RTAX_CC_ALGO`).
const CONGESTION_METRIC: u16 = 16;

/// A unicast route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnicastRoute {
    /// `default`, `default6` for IPv6, or a network: `10.0.0.0/8`.
    pub destination: String,
    /// The device that it leads to, where it is one alone.
    pub device: Option<String>,
    /// Metrics of the route by name; those that the kernel knows by other names are left out.
    pub metrics: BTreeMap<String, String>,
    /// True if the kernel keeps it by router advertisements, with marks that no user can give a
    /// route.
    pub is_advertised: bool,
    raw: Vec<u8>,
}

impl UnicastRoute {
    /// Returns true if the route is one of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.raw.first().copied().map(i32::from) == Some(libc::AF_INET6)
    }
}

/// The unicast routes of the main table, IPv4 first.
///
/// # Errors
/// Fails with the kernel's error.
pub fn list_routes() -> io::Result<Vec<UnicastRoute>> {
    let names = control_socket()?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut header = [0; HEADER];
        header[0] = family as u8;
        let listed = dump_list(None, libc::RTM_GETROUTE, &header, &mut |kind, message| {
            if kind == libc::RTM_NEWROUTE {
                found.extend(parse_route(message, |index| {
                    index_to_name(&names, index).ok()
                }));
            }
        });
        // A kernel without IPv6 has no such routes.
        if family == libc::AF_INET {
            listed?;
        }
    }
    Ok(found)
}

/// Gives the metric `name` of `route` this value, or takes it away; the rest of the route stays as
/// it is.
///
/// # Errors
/// `InvalidInput` for a name that is none of [`NUMERIC_METRICS`], `Unsupported` for a route that is
/// kept by router advertisements; else what the kernel says, as `ENOENT` where the route is gone.
pub fn set_route_metric(route: &UnicastRoute, name: &str, value: Option<u32>) -> io::Result<()> {
    let metric = NUMERIC_METRICS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number);
    let metric = metric
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there is no such metric"))?;
    if route.is_advertised {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel keeps it by router advertisements",
        ));
    }
    let payload = with_metric(&route.raw, metric, value);
    send_request(&netlink_message(
        libc::RTM_NEWROUTE,
        libc::NLM_F_ACK | libc::NLM_F_REPLACE,
        &payload,
    ))
}

/// `linux/rtnetlink.h`: seconds after which a route goes by itself.
const RTA_EXPIRES: u16 = 23;

/// `struct rtmsg`.
const HEADER: usize = 12;

fn parse_route(message: &[u8], name: impl FnOnce(u32) -> Option<String>) -> Option<UnicastRoute> {
    let (header, rest) = message.split_at_checked(HEADER)?;
    let table = attribute_u32(rest, libc::RTA_TABLE).unwrap_or(header[4].into());
    if table != u32::from(libc::RT_TABLE_MAIN) || header[7] != libc::RTN_UNICAST {
        return None;
    }
    let expiry = attribute(rest, libc::RTA_CACHEINFO);
    Some(UnicastRoute {
        destination: destination_text(header[0], header[1], attribute(rest, libc::RTA_DST))?,
        device: attribute_u32(rest, libc::RTA_OIF).and_then(name),
        metrics: attribute(rest, libc::RTA_METRICS)
            .map(parse_metrics)
            .unwrap_or_default(),
        is_advertised: is_advertised(header, expiry.and_then(seconds_left)),
        raw: message.to_vec(),
    })
}

/// Advertised routers, and the networks that they say are on the link, whose time they prolong.
fn is_advertised(header: &[u8], seconds_left: Option<u32>) -> bool {
    let (is_ipv6, protocol) = (i32::from(header[0]) == libc::AF_INET6, header[5]);
    is_ipv6 && (protocol == ADVERTISED || protocol == libc::RTPROT_KERNEL && seconds_left.is_some())
}

/// `RTPROT_RA`.
const ADVERTISED: u8 = 9;

/// Returns the time after which a route goes by itself, from `struct rta_cacheinfo`, rounded up;
/// none if it stays.
fn seconds_left(cache: &[u8]) -> Option<u32> {
    /// `USER_HZ`.
    const TICKS: u32 = 100;
    let ticks = u32_at(cache, 8)?;
    // Below zero it is over.
    (1..=i32::MAX.cast_unsigned())
        .contains(&ticks)
        .then(|| ticks.div_ceil(TICKS))
}

fn destination_text(family: u8, length: u8, address: Option<&[u8]>) -> Option<String> {
    let Some(address) = address.filter(|_| length > 0) else {
        return Some(
            if i32::from(family) == libc::AF_INET {
                "default"
            } else {
                "default6"
            }
            .to_owned(),
        );
    };
    Some(format!("{}/{length}", address_of(family.into(), address)?))
}

fn parse_metrics(nested: &[u8]) -> BTreeMap<String, String> {
    let named = parse_attributes(nested).filter_map(|(kind, value)| {
        if kind == CONGESTION_METRIC {
            return Some(("congctl".to_owned(), parse_text(value)));
        }
        let (name, _) = NUMERIC_METRICS.iter().find(|(_, number)| *number == kind)?;
        Some(((*name).to_owned(), parse_u32(value)?.to_string()))
    });
    named.collect()
}

/// The route as the kernel reported it, fit to be passed back, with this metric.
fn with_metric(raw: &[u8], metric: u16, value: Option<u32>) -> Vec<u8> {
    // What the kernel finds out by itself, and refuses from others.
    const FLAGS_TO_KEEP: u32 = 2 | 4; // RTNH_F_PERVASIVE, RTNH_F_ONLINK
    let (header, rest) = raw.split_at_checked(HEADER).unwrap_or((raw, &[]));
    let mut payload = header.to_vec();
    if let Some((fixed, flags)) = header.split_last_chunk::<4>() {
        payload = [
            fixed,
            &(u32::from_ne_bytes(*flags) & FLAGS_TO_KEEP).to_ne_bytes(),
        ]
        .concat();
    }
    let mut metrics = Vec::new();
    for (kind, attribute) in parse_attributes(rest) {
        match kind {
            libc::RTA_METRICS => {
                for (other, value) in
                    parse_attributes(attribute).filter(|(other, _)| *other != metric)
                {
                    push_attribute(&mut metrics, other, value);
                }
            }
            libc::RTA_CACHEINFO => {
                if let Some(seconds) = seconds_left(attribute) {
                    push_attribute(&mut payload, RTA_EXPIRES, &seconds.to_ne_bytes());
                }
            }
            _ => push_attribute(&mut payload, kind, attribute),
        }
    }
    if let Some(value) = value {
        push_attribute(&mut metrics, metric, &value.to_ne_bytes());
    }
    push_attribute(&mut payload, libc::RTA_METRICS, &metrics);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 10.0.0.0/8 with a metric.
    fn example(metrics: &[(u16, u32)]) -> Vec<u8> {
        let mut raw = vec![
            libc::AF_INET as u8,
            8,
            0,
            0,
            libc::RT_TABLE_MAIN,
            4,
            0,
            libc::RTN_UNICAST,
            16,
            0,
            0,
            0,
        ];
        push_attribute(&mut raw, libc::RTA_DST, &[10, 0, 0, 0]);
        let mut nested = Vec::new();
        for (kind, value) in metrics {
            push_attribute(&mut nested, *kind, &value.to_ne_bytes());
        }
        push_attribute(&mut raw, libc::RTA_METRICS, &nested);
        raw
    }

    #[test]
    fn a_metric_comes_and_goes_and_the_others_stay() {
        let read = |raw: &[u8]| parse_route(raw, |_| None).unwrap();
        let before = example(&[(3, 65_535)]);
        let after = with_metric(&before, 11, Some(30));
        let expected = [("initcwnd", "30"), ("window", "65535")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read(&after).metrics, expected.into());
        assert_eq!(read(&after).destination, "10.0.0.0/8");
        let back = read(&with_metric(&after, 11, None));
        assert_eq!(back.metrics, read(&before).metrics);
        assert_eq!(
            back.raw[8..12],
            [0; 4],
            "whether the link is down is the kernel's to say"
        );
    }

    #[test]
    fn a_route_that_goes_by_itself_still_does_with_another_metric() {
        let mut raw = example(&[]);
        let cache = |ticks: u32| [0, 0, ticks, 0, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
        push_attribute(&mut raw, libc::RTA_CACHEINFO, &cache(49_901));
        let after = with_metric(&raw, 11, Some(30));
        let expires = parse_attributes(&after[HEADER..])
            .find(|(kind, _)| *kind == RTA_EXPIRES)
            .map(|(_, value)| value);
        assert_eq!(expires.and_then(parse_u32), Some(500));
        assert!(parse_attributes(&after[HEADER..]).all(|(kind, _)| kind != libc::RTA_CACHEINFO));
        assert_eq!(
            [cache(0), cache(u32::MAX)].map(|cache| seconds_left(&cache)),
            [None, None]
        );
    }

    #[test]
    fn what_routers_advertise_is_theirs() {
        let mut raw = example(&[]);
        raw[1] = 0;
        for (family, protocol, seconds_left, is_theirs) in [
            (libc::AF_INET6, 9, None, true),
            (libc::AF_INET6, libc::RTPROT_KERNEL, Some(100), true),
            (libc::AF_INET6, libc::RTPROT_KERNEL, None, false),
            (libc::AF_INET6, libc::RTPROT_BOOT, Some(100), false),
            (libc::AF_INET, libc::RTPROT_KERNEL, None, false),
        ] {
            (raw[0], raw[5]) = (family as u8, protocol);
            assert_eq!(
                is_advertised(&raw, seconds_left),
                is_theirs,
                "{family} {protocol} {seconds_left:?}"
            );
        }
        raw[0] = libc::AF_INET6 as u8;
        raw[5] = 9;
        let refused =
            set_route_metric(&parse_route(&raw, |_| None).unwrap(), "window", Some(1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn the_routes_of_this_host_are_read() {
        assert!(list_routes().is_ok());
    }

    proptest! {
        #[test]
        fn any_route_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = parse_route(&bytes, |_| None);
            let _ = with_metric(&bytes, 11, Some(10));
        }
    }
}
