use fullpipe_units::Distance;

use crate::prelude::*;
use crate::{
    Change, CompletionForecast, Effects, Encapsulation, Framing, IpVersion, Limit, Prediction,
    StatedLoad, Writer,
};

/// The quantity that followed from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Solved {
    /// The window that fills the bandwidth over the round trip.
    Window,
    /// The round trip over which the window still fills the bandwidth.
    Rtt,
    /// The rate that the window gives over the round trip.
    Rate,
}

/// The Linux settings that give a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BufferAdvice {
    /// Third value of `net.ipv4.tcp_rmem` at the receiver.
    pub tcp_rmem_max: ByteCount,
    /// Reason for that size, as a clause.
    #[serde(default)]
    pub tcp_rmem_reason: String,
    /// Third value of `net.ipv4.tcp_wmem` at the sender.
    pub tcp_wmem_max: ByteCount,
    /// Reason for that size, as a clause.
    #[serde(default)]
    pub tcp_wmem_reason: String,
    /// `SO_RCVBUF` request, where a program fixes its buffer.
    pub so_rcvbuf: ByteCount,
    /// The largest such request that this host grants now: `net.core.rmem_max`.
    pub rmem_max: ByteCount,
}

/// Quantities of a transfer from which a calculation starts. `None` means that the quantity is
/// unknown, or that the default of the host applies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Inputs {
    /// Rate of the path, counted as `framing` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<BitRate>,
    /// Round-trip time of the empty path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Span>,
    /// Distance between the hosts: a guess at the round-trip time where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
    /// Window of each stream, as the receiver advertises it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<ByteCount>,
    /// Request for the socket buffers of both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<ByteCount>,
    /// What is stated of programs and devices.
    #[serde(flatten)]
    pub stated: StatedLoad,
    /// Rate at which the sender's kernel paces each stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing: Option<BitRate>,
    /// The way in which the sending program fills its socket.
    #[serde(skip_serializing_if = "is_default")]
    pub writer: Writer,
    /// Queue before the bottleneck; one BDP if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<ByteCount>,
    /// What the path does besides.
    #[serde(skip_serializing_if = "Effects::are_none")]
    pub effects: Effects,
    /// Share of packets lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Ratio>,
    /// Largest IP packet; 1500 bytes if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<ByteCount>,
    /// At which layer the bandwidth counts bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub framing: Framing,
    /// Version of IP.
    #[serde(skip_serializing_if = "is_default")]
    pub ip: IpVersion,
    /// VLAN tags and a tunnel.
    #[serde(skip_serializing_if = "is_default")]
    pub encapsulation: Encapsulation,
    /// Parallel connections; one if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u16>,
    /// Congestion control; the sender's own if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Bytes to carry in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteCount>,
    /// Steady rate of payload that is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Time that the size may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Estimate for a path, two hosts and a load: a prediction without its reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Steady rate of payload by the textbook's formulas.
    pub textbook: BitRate,
    /// Steady rate of payload by the running kernel's rules.
    pub kernel_model: BitRate,
    /// The least that is likely.
    pub low: BitRate,
    /// The most that is likely.
    pub high: BitRate,
    /// The lowest ceiling.
    pub limit: Limit,
    /// Time for the given size, slow start included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
}

/// A quantity that a calculation may be given.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Rate of the path.
    Bandwidth,
    /// Round-trip time of the empty path.
    Rtt,
    /// Distance between the hosts.
    Distance,
    /// Window of each stream, as the receiver advertises it.
    Window,
    /// Request for the socket buffers of both ends.
    Buffer,
    /// Request for the send buffer of the sender alone.
    Sndbuf,
    /// Request for the receive buffer of the receiver alone.
    Rcvbuf,
    /// Window of the programs' own protocol in each stream.
    AppWindow,
    /// Time between an answer and the next request.
    Pause,
    /// Third value of `net.ipv4.tcp_wmem` at the sender.
    TcpWmem,
    /// Third value of `net.ipv4.tcp_rmem` at the receiver.
    TcpRmem,
    /// Share of packets lost.
    Loss,
    /// Largest IP packet.
    Mtu,
    /// Parallel connections.
    Streams,
    /// Congestion control.
    Congestion,
    /// Bytes to carry in all.
    Size,
}

impl Quantity {
    /// The name in JSON, on the command line and in a batch.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Rtt => "rtt",
            Self::Distance => "distance",
            Self::Window => "window",
            Self::Buffer => "buffer",
            Self::Sndbuf => "sndbuf",
            Self::Rcvbuf => "rcvbuf",
            Self::AppWindow => "app-window",
            Self::Pause => "pause",
            Self::TcpWmem => "tcp-wmem",
            Self::TcpRmem => "tcp-rmem",
            Self::Loss => "loss",
            Self::Mtu => "mtu",
            Self::Streams => "streams",
            Self::Congestion => "congestion",
            Self::Size => "size",
        }
    }
}

/// The kind of a quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// A rate.
    Rate(BitRate),
    /// A time.
    Time(Span),
    /// A distance.
    Distance(Distance),
    /// A size.
    Bytes(ByteCount),
    /// A share.
    Share(Ratio),
    /// A number of streams.
    Count(u16),
    /// Congestion controls by name.
    Names(Vec<String>),
}

/// On which side of the critical value a quantity must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// No less than the value.
    AtLeast,
    /// No more than the value.
    AtMost,
    /// One of the names.
    OneOf,
}

/// Need of the target for one quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Need {
    /// Of which.
    pub quantity: Quantity,
    /// On which side of `value`.
    pub side: Side,
    /// The critical value: there the target is met, and just beyond it is not. None where no value
    /// will do.
    pub value: Option<Value>,
    /// Present value, where it was given or the host states it.
    pub now: Option<Value>,
    /// True if the present value is enough.
    pub met: bool,
}

/// Changes that raise the predicted rate, and the estimate with them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Improvement {
    /// Changes to make together, in the order in which they were found.
    pub changes: Vec<Change>,
    /// Estimate with all of these changes.
    pub after: Estimate,
}

/// One of the three connections in series that a pair of relays makes of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Leg {
    /// Between a host and the relay next to it, at either end.
    Outer,
    /// From relay to relay.
    Middle,
}

/// Answer after a change of the question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// The change, as it was asked for: `rtt=4ms`.
    pub what: String,
    /// The result after the change.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The kernel model's rate, as a multiple of what it is without the change.
    pub gain: Ratio,
    /// The slowest connection, where there are relays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<Leg>,
}

/// One combination of a table, and what it comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Combination {
    /// Quantities of this row that the user gave.
    #[serde(rename = "given")]
    pub inputs: Inputs,
    /// Bandwidth × round-trip time, where the bandwidth is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bdp: Option<ByteCount>,
    /// The result.
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// Bandwidth, round trip and window, one of them from the others, and what the hosts make of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calculation {
    /// The quantity that followed from the others.
    pub solved: Solved,
    /// Rate of the path, if it was given.
    pub bandwidth: Option<BitRate>,
    /// Round-trip time.
    pub rtt: Span,
    /// Window of each stream: given, or what follows from the buffer, or what loss leaves.
    pub window: ByteCount,
    /// The bandwidth, where it is given or wanted; where it is sought, what the prediction makes of
    /// the window: the mean of a transfer that ends within its ramp.
    pub rate: BitRate,
    /// Payload of a full segment.
    pub mss: ByteCount,
    /// Payload ÷ bytes on the wire.
    pub efficiency: Ratio,
    /// Buffer that yields the window on the running kernel.
    pub buffers: BufferAdvice,
    /// Prediction with this host's settings at both ends.
    pub prediction: Prediction,
    /// Quantities that the user gave; the round-trip time is the one of the calculation if the user
    /// gave none.
    #[serde(default, rename = "given")]
    pub inputs: Inputs,
    /// Time for the given size, slow start included.
    #[serde(default)]
    pub time: Option<Span>,
    /// The same with the time that is likely, from the spread of the prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<CompletionForecast>,
    /// The steady rate of payload that is wanted: as given, or what carries the size within its
    /// time, or what fills the bandwidth. None where nothing says what is wanted, or no rate is
    /// high enough.
    #[serde(default)]
    pub target: Option<BitRate>,
    /// Needs of the target, which must all hold. Each value is for the rest being ample: where
    /// losses are at random and a window is only just large enough, the two together may miss what
    /// each would meet.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Single changes that would meet the target, with the rest as it is. The distance is what
    /// fibre spans in that round trip at best.
    #[serde(default)]
    pub alone: Vec<Need>,
    /// Changes that raise the rate until the target is met, or as far as known changes do. `None`
    /// if there is no target, if the target is met without a change, or if no known change raises
    /// the rate.
    #[serde(default, rename = "lift")]
    pub improvement: Option<Improvement>,
    /// The answers to what-ifs, in their order.
    #[serde(default)]
    pub what_ifs: Vec<WhatIf>,
}
