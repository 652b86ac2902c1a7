//! Types of links, as captures number them.

use std::fmt;

/// Link-layer header type of a captured packet: a number of the list `LINKTYPE_` of tcpdump.org.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD's loopback, with the address family in the order of the host that captured.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// PPP.
    pub const PPP: Self = Self(9);
    /// IP without a link's header.
    pub const RAW: Self = Self(101);
    /// OpenBSD's loopback, with the address family in network order.
    pub const LOOP: Self = Self(108);
    /// Linux's cooked capture, as `tcpdump -i any` wrote it until 2020.
    pub const LINUX_SLL: Self = Self(113);
    /// Linux's cooked capture with the index of the interface.
    pub const LINUX_SLL2: Self = Self(276);
}

impl LinkType {
    /// Returns the name of the type in the list of tcpdump.org, without `LINKTYPE_`; `None` for a
    /// number that is not there.
    pub fn name(self) -> Option<&'static str> {
        let mut known = NAMES.lines().filter_map(|line| line.split_once(' '));
        known
            .find(|(number, _)| number.parse() == Ok(self.0))
            .map(|(_, name)| name)
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Numbers and names, a line each.
const NAMES: &str = include_str!("link_types.txt");
