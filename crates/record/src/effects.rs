use std::net::IpAddr;

use crate::Sample;
use crate::prelude::*;

/// Effects of an emulated path besides its loss, queue, rate and delay. The default is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Effects {
    /// Pattern of lost packets. If there is one, the path's `loss` is only its mean.
    pub losses: Option<LossPattern>,
    /// Edits of a middlebox, in this order.
    pub edits: Vec<Edit>,
    /// A link behind the hosts whose packets must be smaller than they know.
    pub narrow: Option<NarrowLink>,
    /// The policer, which drops packets above a rate before they reach the queue.
    pub policer: Option<Policer>,
    /// Most packets in the queue, besides its limit in bytes.
    pub queue_packets: Option<SegCount>,
    /// The management of the queue.
    pub queueing: Queueing,
    /// When the bottleneck may send; instead of its rate.
    pub opportunities: Option<Opportunities>,
    /// Probability that a packet arrives with a wrong bit, independently of every other.
    pub corrupted: Ratio,
    /// Probability that a packet arrives twice, independently of every other.
    pub duplicated: Ratio,
    /// Delay of each packet on top of the path's.
    pub jitter: Option<Jitter>,
    /// Packets that are held back while others pass them.
    pub reordering: Option<Reordering>,
    /// Changes while the path is in use, in order of time.
    pub steps: Vec<PathStep>,
}

impl Effects {
    /// True if the path does nothing of this.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the value above which the path lowers the window field of acknowledgements.
    pub fn window_clamp(&self) -> Option<ByteCount> {
        let clamps = self.edits.iter().filter_map(|edit| match edit {
            Edit::ClampWindow(most) => Some(*most),
            _ => None,
        });
        clamps.min()
    }

    /// Returns a sentence if the path lowers windows of acknowledgements, and none of these samples
    /// of the sender saw one that was lowered: the field that it edits is smaller than the window,
    /// by the window scale.
    pub fn ineffective_clamp(&self, sender_samples: &[Sample]) -> Option<String> {
        let shift = sender_samples
            .iter()
            .find_map(|sample| sample.tcp.snd_wscale)?;
        let largest = sender_samples
            .iter()
            .filter_map(|sample| sample.tcp.snd_wnd)
            .max()?;
        self.clamp_beyond(largest, shift)
    }

    /// Returns a sentence if the path lowers the window field of acknowledgements, but no window of
    /// at most `largest` at a scale of `shift`.
    pub fn clamp_beyond(&self, largest: ByteCount, shift: u8) -> Option<String> {
        let most = self.window_clamp()?;
        let passes = ByteCount::new(most.get() << shift);
        (shift > 0 && largest < passes).then(|| {
            format!(
                "clamp-window={} lowered no window: it edits TCP's field of 16 bits, and the window scale makes {passes} of \
                 it; clamp-window={} lowers windows to about {most}",
                most.get(),
                (most.get() >> shift).max(1),
            )
        })
    }
}

/// Losses that are not independent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossPattern {
    /// Two states, between which each packet may lead (Gilbert 1960, Elliott 1963). The first
    /// packet finds the good one.
    GilbertElliott {
        /// Probability that the good state ends with a packet: p.
        to_bad: Ratio,
        /// Probability that the bad state ends with a packet: r.
        to_good: Ratio,
        /// Probability that a packet is lost in the good state.
        in_good: Ratio,
        /// Probability that a packet is lost in the bad state.
        in_bad: Ratio,
    },
    /// The packets with these numbers, counted from one as they come in.
    Listed(Vec<u64>),
    /// The data packets with these numbers, counted from one in each connection and direction as
    /// they come in, retransmissions included; each number once, in the connection that first
    /// reaches it. A data packet is an IP packet of at least nine tenths of the path's MTU.
    ListedData(Vec<u64>),
}

impl LossPattern {
    /// Share of the packets that are lost in the long run.
    pub fn mean_loss(&self) -> Ratio {
        match *self {
            // Without a way out of the good state it never ends.
            Self::GilbertElliott {
                to_bad, in_good, ..
            } if to_bad == Ratio::ZERO => in_good,
            Self::GilbertElliott {
                to_bad,
                to_good,
                in_good,
                in_bad,
            } => {
                let bad = to_bad.get() / (to_bad.get() + to_good.get());
                Ratio::new((1.0 - bad) * in_good.get() + bad * in_bad.get())
            }
            Self::Listed(_) | Self::ListedData(_) => Ratio::ZERO,
        }
    }

    /// Share of the packets with which a run of losses begins, in the long run, and the packets that
    /// such a run loses on average; `None` for losses that are listed.
    pub fn loss_runs(&self) -> Option<(Ratio, f64)> {
        let Self::GilbertElliott {
            to_bad,
            to_good,
            in_good,
            in_bad,
        } = *self
        else {
            return None;
        };
        let [to_bad, to_good, in_good, in_bad] = [to_bad, to_good, in_good, in_bad].map(Ratio::get);
        // The bad state may end before it has lost anything.
        let loses_any = in_bad / (in_bad + to_good * (1.0 - in_bad));
        let in_good_state = to_good / (to_bad + to_good);
        let runs = in_good_state * (to_bad * loses_any + in_good);
        (runs > 0.0).then(|| (Ratio::new(runs), self.mean_loss().get() / runs))
    }
}

/// A middlebox's change to the headers of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Edit {
    /// Removes the window scale option (RFC 7323) from a SYN.
    StripWindowScale,
    /// Writes another shift into it.
    RewriteWindowScale(u8),
    /// Removes "SACK permitted" from a SYN and SACK blocks from all others (RFC 2018).
    StripSack,
    /// Removes timestamps (RFC 7323).
    StripTimestamps,
    /// Makes a larger MSS in a SYN this one (RFC 9293, 3.7.1).
    ClampMss(ByteCount),
    /// Makes a larger value of the window field this one, which a window scale multiplies.
    ClampWindow(ByteCount),
    /// Counts hops down, as a router of this address; it drops what has none left, and notifies the
    /// sender (RFC 1812, 5.3.1).
    Router(IpAddr),
}

/// A link that carries smaller packets than the hosts' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NarrowLink {
    /// Largest IP packet that it carries.
    pub mtu: ByteCount,
    /// The response to larger ones.
    pub too_big: TooBig,
}

/// A router's response to a packet larger than the next link's MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TooBig {
    /// The router drops the packet and notifies the sender (RFC 1191, RFC 8201).
    Answered,
    /// The router drops the packet and says nothing: a black hole (RFC 2923, 2.1).
    Swallowed,
}

/// A token bucket that drops what finds too few tokens; it delays nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Policer {
    /// Rate at which tokens come, counted as the path's is.
    pub rate: BitRate,
    /// Most tokens that gather; as many are there at the beginning.
    pub burst: ByteCount,
}

/// The management of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Queueing {
    /// Drops packets that find the queue full.
    #[default]
    DropTail,
    /// Drops packets that find the queue full; and a packet that finds more than so many bytes
    /// waiting gets an ECN mark, as DCTCP asks (RFC 8257, 3.1).
    Threshold(ByteCount),
    /// RFC 8289: one queue.
    Codel(Codel),
    /// RFC 8290: a queue for each connection, served in turn, each managed by CoDel.
    FqCodel(Codel),
}

/// Parameters of CoDel (RFC 8289).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Codel {
    /// Waiting time that may stand (4.4).
    pub target: Span,
    /// Time for which it may be longer (4.3).
    pub interval: Span,
    /// True if a packet that can carry an ECN mark is marked instead of dropped.
    pub ecn: bool,
}

impl Default for Codel {
    /// 5 ms and 100 ms, without ECN.
    fn default() -> Self {
        Self {
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            ecn: false,
        }
    }
}

/// When a link may send, as Mahimahi records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Opportunities {
    /// Milliseconds at each of which 1504 bytes may leave, in order; after the last they begin
    /// again, with it as zero.
    pub millis: Vec<u32>,
}

/// Delay that differs from packet to packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Jitter {
    /// Delay of each packet, independent of every other.
    pub distribution: Distribution,
    /// True if a packet may pass one that was sent before it.
    pub reorders: bool,
}

/// A distribution of delays. Below zero is zero, above ten seconds is ten seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// From zero to this.
    Uniform(Span),
    /// Of Gauss.
    Normal {
        /// Mean of the delay.
        mean: Span,
        /// Standard deviation of the delay.
        deviation: Span,
    },
    /// With this mean.
    Exponential(Span),
    /// Longer than x with probability (least ÷ x)^shape.
    Pareto {
        /// Smallest delay.
        least: Span,
        /// Exponent; the mean is least × shape ÷ (shape − 1), and is finite above one.
        shape: Ratio,
    },
    /// Each of these as often as it stands here.
    Listed(Vec<Span>),
}

/// Packets that are held back.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Reordering {
    /// Probability that a packet is, independently of every other.
    pub share: Ratio,
    /// The duration.
    pub by: Span,
}

/// New values of a path from a moment on; `None` leaves a value as it was.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PathChange {
    /// Rate of the bottleneck, also where it had none or followed a trace; zero sends nothing.
    pub rate: Option<BitRate>,
    /// Propagation delay of what has not left the bottleneck.
    pub delay: Option<Span>,
    /// Probability of independent loss, also where losses followed a pattern.
    pub loss: Option<Ratio>,
}

/// A change at a known time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathStep {
    /// Time since the path began.
    pub after: Span,
    /// The change.
    pub change: PathChange,
}
