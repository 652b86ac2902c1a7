use crate::prelude::*;
use crate::{Edit, Effects, TooBig};

/// At which layer a path's rate counts bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// The IP packet and 38 bytes of Ethernet: header, checksum, preamble and gap; and 4 for each
    /// VLAN tag.
    #[default]
    Ethernet,
    /// The IP packet alone.
    Ip,
}

impl Framing {
    /// Bytes that each untagged packet costs on top of its own length.
    pub const fn packet_overhead(self) -> ByteCount {
        match self {
            Self::Ethernet => ByteCount::new(38),
            Self::Ip => ByteCount::ZERO,
        }
    }
}

/// The version of IP that the hosts speak. The outer packets of a [`Tunnel`] are of the same
/// version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IpVersion {
    /// RFC 791, without options.
    #[default]
    V4,
    /// RFC 8200, without extension headers.
    V6,
}

impl IpVersion {
    /// Bytes of the header.
    pub const fn header_bytes(self) -> ByteCount {
        match self {
            Self::V4 => ByteCount::new(20),
            Self::V6 => ByteCount::new(40),
        }
    }
}

/// Headers that a link adds to the packets of the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Encapsulation {
    /// Tags of IEEE 802.1Q, 4 bytes each: one on a VLAN, two with VLANs inside VLANs. They come on
    /// top of the MTU.
    pub vlan_tags: u8,
    /// The tunnel that carries the packets inside others. Its headers are taken from the MTU.
    pub tunnel: Option<Tunnel>,
}

/// A protocol that carries whole packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tunnel {
    /// RFC 2784: IP and 4 bytes, without checksum, key and sequence number.
    Gre,
    /// RFC 7348: IP, UDP, 8 bytes, and the untagged Ethernet header of the packet inside.
    Vxlan,
    /// IP, UDP, a data message's header of 16 bytes and its authentication tag of 16. Padding to a
    /// multiple of 16 is not counted: the largest packet has none.
    WireGuard,
    /// ESP in tunnel mode (RFC 4303) with AES-GCM (RFC 4106): IP, 8 bytes of header, 8 of
    /// initialisation vector, 2 of trailer and 16 of check value. Up to 3 bytes of padding are not
    /// counted, of which the largest packet has none where the MTU is a multiple of 4. Neither are
    /// the 8 of UDP where an address is translated on the way.
    Ipsec,
    /// RFC 2516: 6 bytes, and 2 of PPP. There is no outer IP header.
    Pppoe,
}

impl Tunnel {
    /// Bytes that it adds to each packet, where the outer packets are of version `ip`.
    pub const fn header_bytes(self, ip: IpVersion) -> ByteCount {
        const UDP: u64 = 8;
        let outer = ip.header_bytes().get();
        ByteCount::new(match self {
            Self::Gre => outer + 4,
            Self::Vxlan => outer + UDP + 8 + 14,
            Self::WireGuard => outer + UDP + 16 + 16,
            Self::Ipsec => outer + 8 + 8 + 2 + 16,
            Self::Pppoe => 6 + 2,
        })
    }
}

/// Form in which the hosts' TCP builds its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Segmentation {
    /// In trains of segments that are cut below TCP, as every Linux host does since 4.17.
    #[default]
    Trains,
    /// Segment by segment, as hosts did without offload.
    Exact,
}

/// One direction of a path. `None` means unknown, not unlimited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathDirection {
    /// Rate of the bottleneck, counted as `framing` says.
    pub rate: Option<BitRate>,
    /// Propagation delay, one way.
    pub delay: Span,
    /// Drop-tail queue before the bottleneck, counted as the rate is.
    pub queue: Option<ByteCount>,
    /// Probability that a packet is lost, independently of every other.
    pub loss: Option<Ratio>,
    /// Largest IP packet on the link, the headers of a tunnel included.
    pub mtu: ByteCount,
    /// Layer at which the rate counts bytes.
    pub framing: Framing,
    /// Version of IP.
    #[serde(default)]
    pub ip: IpVersion,
    /// Headers that the link adds to the packets of the hosts.
    #[serde(default)]
    pub encapsulation: Encapsulation,
    /// Other effects of an emulated path on packets.
    #[serde(default, skip_serializing_if = "Effects::are_none")]
    pub effects: Effects,
}

impl PathDirection {
    /// Returns a direction of which at most the rate is known: IPv4 over Ethernet, without a delay.
    pub fn of_rate(rate: Option<BitRate>) -> Self {
        Self {
            rate,
            delay: Span::ZERO,
            queue: None,
            loss: None,
            mtu: ByteCount::new(1500),
            framing: Framing::Ethernet,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
            effects: Effects::default(),
        }
    }

    /// Largest IP packet of the hosts: the MTU less the headers of a tunnel.
    pub fn inner_mtu(&self) -> ByteCount {
        self.mtu.saturating_sub(self.tunnel_headers())
    }

    /// Largest IP packet of a host that knows the path: a narrow link that answers is known after
    /// one packet.
    pub fn known_mtu(&self) -> ByteCount {
        let narrow = self.effects.narrow;
        let answered = narrow.filter(|narrow| narrow.too_big == TooBig::Answered);
        let inner = self.inner_mtu();
        answered.map_or(inner, |narrow| narrow.mtu.min(inner))
    }

    /// Bytes of the rate that each packet of the hosts costs on top of its own length: tunnel,
    /// tags, framing.
    pub fn packet_overhead(&self) -> ByteCount {
        const TAG: u64 = 4;
        let tags = match self.framing {
            Framing::Ethernet => ByteCount::new(TAG * u64::from(self.encapsulation.vlan_tags)),
            Framing::Ip => ByteCount::ZERO,
        };
        self.tunnel_headers() + tags + self.framing.packet_overhead()
    }

    fn tunnel_headers(&self) -> ByteCount {
        self.encapsulation
            .tunnel
            .map_or(ByteCount::ZERO, |tunnel| tunnel.header_bytes(self.ip))
    }
}

/// A path between two hosts, as far as it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// From the sender of the data to its receiver.
    pub forward: PathDirection,
    /// The way of the acknowledgements.
    pub reverse: PathDirection,
    /// Form in which the hosts hand their data to it.
    #[serde(default)]
    pub segmentation: Segmentation,
}

impl Path {
    /// A path that is the same in both directions, with half of `rtt` each way.
    pub fn with_symmetric_rtt(direction: &PathDirection, rtt: Span) -> Self {
        let half = rtt / 2;
        Self {
            forward: PathDirection {
                delay: half,
                ..direction.clone()
            },
            reverse: PathDirection {
                delay: rtt - half,
                ..direction.clone()
            },
            segmentation: Segmentation::default(),
        }
    }

    /// Round-trip time of the empty path: propagation alone.
    pub fn rtt(&self) -> Span {
        self.forward.delay + self.reverse.delay
    }

    /// Returns the edits of middleboxes in both directions.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        let [forward, reverse] = [&self.forward, &self.reverse].map(|way| &way.effects.edits);
        forward.iter().chain(reverse)
    }

    /// Returns the largest segment that a middlebox lets the ends agree on.
    pub fn clamped_mss(&self) -> Option<ByteCount> {
        let clamps = self.edits().filter_map(|edit| match edit {
            Edit::ClampMss(most) => Some(*most),
            _ => None,
        });
        clamps.min()
    }

    /// Returns the path that consists of this one between `near` and `far`: the rate, its framing
    /// and its queue are those of the slowest stretch, delays are added, losses combined, and the
    /// MTU is the smallest. The other effects are those of this path alone.
    #[must_use]
    pub fn join_between(&self, near: &Self, far: &Self) -> Self {
        Self {
            forward: self.forward.join_between(&near.forward, &far.forward),
            reverse: self.reverse.join_between(&near.reverse, &far.reverse),
            segmentation: self.segmentation,
        }
    }
}

impl PathDirection {
    fn join_between(&self, near: &Self, far: &Self) -> Self {
        let all = [self, near, far];
        // Of equal rates, those of the middle.
        let slowest = all
            .into_iter()
            .filter(|stretch| stretch.rate.is_some())
            .min_by_key(|stretch| stretch.rate);
        let slowest = slowest.unwrap_or(self);
        let survive = all
            .iter()
            .map(|stretch| 1.0 - stretch.loss.unwrap_or(Ratio::ZERO).get())
            .product::<f64>();
        Self {
            rate: slowest.rate,
            delay: self.delay + near.delay + far.delay,
            queue: slowest.queue,
            loss: Some(Ratio::new(1.0 - survive)),
            mtu: self.mtu.min(near.mtu).min(far.mtu),
            framing: slowest.framing,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_add_their_headers() {
        for (tunnel, over_v4, over_v6) in [
            (Tunnel::Gre, 24, 44),
            (Tunnel::Vxlan, 50, 70),
            (Tunnel::WireGuard, 60, 80),
            (Tunnel::Ipsec, 54, 74),
            (Tunnel::Pppoe, 8, 8),
        ] {
            let headers = [IpVersion::V4, IpVersion::V6].map(|ip| tunnel.header_bytes(ip).get());
            assert_eq!(headers, [over_v4, over_v6], "{tunnel:?}");
        }
    }

    #[test]
    fn stretches_in_a_row_are_as_slow_as_the_slowest_and_as_long_as_all() {
        let direction = |mbps, loss, mtu| PathDirection {
            rate: Some(BitRate::from_mbps(mbps)),
            delay: Span::ZERO,
            queue: Some(ByteCount::new(mbps)),
            loss: Some(Ratio::new(loss)),
            mtu: ByteCount::new(mtu),
            framing: Framing::Ip,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
            effects: Effects::default(),
        };
        let near = Path::with_symmetric_rtt(&direction(1000, 0.5, 9000), Span::from_millis(2));
        let far = Path::with_symmetric_rtt(&direction(100, 0.0, 1400), Span::from_millis(4));
        let whole = Path::with_symmetric_rtt(&direction(622, 0.5, 1500), Span::from_millis(100))
            .join_between(&near, &far);
        assert_eq!(
            (whole.rtt(), whole.forward.mtu.get()),
            (Span::from_millis(106), 1400)
        );
        assert_eq!(
            (whole.forward.rate, whole.forward.queue),
            (far.forward.rate, far.forward.queue)
        );
        assert!((whole.forward.loss.unwrap().get() - 0.75).abs() < 1e-12);
    }

    #[test]
    fn a_record_without_ip_version_and_encapsulation_is_plain_ipv4() {
        let text = r#"{"rate": null, "delay": 0, "queue": null, "loss": null, "mtu": 1500, "framing": "ethernet"}"#;
        let direction: PathDirection = serde_json::from_str(text).unwrap();
        assert_eq!(
            (direction.ip, direction.encapsulation),
            (IpVersion::V4, Encapsulation::default())
        );
        assert_eq!(
            (
                direction.inner_mtu().get(),
                direction.packet_overhead().get()
            ),
            (1500, 38)
        );
    }
}
