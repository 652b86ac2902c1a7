use crate::prelude::*;

/// The kind of the probes of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteMethod {
    /// Echo requests of ICMP.
    IcmpEcho,
    /// Datagrams to ports where no program listens, where echo requests are not permitted. Hosts
    /// answer only a few of them a second.
    Udp,
}

/// Why somebody on the way forwards nothing to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The router has no route to the target.
    NoRoute,
    /// The router is the last one, and the target does not answer it.
    NoHost,
    /// The router's rules forbid it.
    Prohibited,
}

/// The routers at one distance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    /// Distance in hops: 1 is the first that forwards.
    pub number: u8,
    /// Addresses that answered: more than one where packets take turns between ways, none where the
    /// hop is silent.
    pub addresses: Vec<String>,
    /// Probes that were to end here.
    pub sent: u16,
    /// Round-trip times of those that were answered; the others are lost, or not answered. Routers
    /// answer when they have time for it, and many only so often.
    pub rtts: Vec<Span>,
    /// Why it forwards nothing to the target, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

impl Hop {
    /// Probes that were not answered.
    pub fn unanswered_probes(&self) -> u16 {
        self.sent.saturating_sub(self.rtts.len() as u16)
    }
}

/// Size of the largest packet that passes the whole route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteMtu {
    /// The largest that no router reported as too large, with its IP header.
    pub size: ByteCount,
    /// True if the target answered a packet of that size; if it did answer small ones, something on
    /// the way drops large ones and does not say so.
    pub answered: bool,
    /// The router that said that no more passes; `None` where it is this host's own device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_by: Option<String>,
}

/// The way of packets to a target. The way back cannot be seen from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteReport {
    /// The target's address.
    pub target: String,
    /// The method of the probes.
    pub method: RouteMethod,
    /// In order, up to the target, or to the last that said anything.
    pub hops: Vec<Hop>,
    /// True if the target itself answered, as the last hop.
    pub reached: bool,
    /// MTU of the whole route; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<RouteMtu>,
}
