use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// At which layer a path's rate counts bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// The IP packet and 38 bytes of Ethernet: header, checksum, preamble and gap.
    #[default]
    Ethernet,
    /// The IP packet alone.
    Ip,
}

impl Framing {
    /// Bytes that each packet costs on top of its own length.
    pub const fn overhead(self) -> ByteCount {
        match self {
            Self::Ethernet => ByteCount::new(38),
            Self::Ip => ByteCount::ZERO,
        }
    }
}

/// In what pieces the hosts' TCP builds its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Segmentation {
    /// In trains of segments that are cut below TCP, as every Linux host does since 4.17.
    #[default]
    Trains,
    /// Segment by segment, as hosts did without offload.
    Exact,
}

/// What is known of one direction of a path. `None` means that nobody said, not that there is no limit.
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
    /// Largest IP packet.
    pub mtu: ByteCount,
    /// Layer at which the rate counts bytes.
    pub framing: Framing,
}

/// A path between two hosts, as far as it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// From the sender of the data to its receiver.
    pub forward: PathDirection,
    /// The way of the acknowledgements.
    pub reverse: PathDirection,
    /// In what pieces the hosts hand their data to it.
    #[serde(default)]
    pub segmentation: Segmentation,
}

impl Path {
    /// The same in both directions, with half of `rtt` each way.
    pub fn symmetric(direction: &PathDirection, rtt: Span) -> Self {
        let half = rtt / 2;
        Self {
            forward: PathDirection { delay: half, ..direction.clone() },
            reverse: PathDirection { delay: rtt - half, ..direction.clone() },
            segmentation: Segmentation::default(),
        }
    }

    /// Round-trip time of the empty path: propagation alone.
    pub fn rtt(&self) -> Span {
        self.forward.delay + self.reverse.delay
    }

    /// The same path seen by a transfer that goes the other way.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { forward: self.reverse.clone(), reverse: self.forward.clone(), segmentation: self.segmentation }
    }
}
