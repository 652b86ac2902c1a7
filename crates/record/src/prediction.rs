use crate::prelude::*;

/// The limits of a transfer: the closed list of verdict kinds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The receiver advertises too little.
    ReceiveWindow,
    /// The receiver reads too slowly.
    ReceiverApplication,
    /// The sender's socket holds too little.
    SendBuffer,
    /// The sender writes too slowly.
    SenderApplication,
    /// A window above TCP, as SSH has one.
    ApplicationWindow,
    /// The congestion window, without loss to blame now.
    CongestionWindow,
    /// The bottleneck is full.
    Capacity,
    /// Loss holds the congestion window down.
    Loss,
    /// The sender paces below what it could send.
    Pacing,
    /// A processor.
    Cpu,
    /// Packets of the wrong size.
    Mtu,
    /// Nothing of the above was shown.
    Unknown,
}

impl Limit {
    /// The name in JSON and on the screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive-window",
            Self::ReceiverApplication => "receiver-application",
            Self::SendBuffer => "send-buffer",
            Self::SenderApplication => "sender-application",
            Self::ApplicationWindow => "application-window",
            Self::CongestionWindow => "congestion-window",
            Self::Capacity => "capacity",
            Self::Loss => "loss",
            Self::Pacing => "pacing",
            Self::Cpu => "cpu",
            Self::Mtu => "mtu",
            Self::Unknown => "unknown",
        }
    }
}

/// One ceiling on the rate of all streams together, as payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// The limit that sets it.
    pub kind: Limit,
    /// By the textbook's formula.
    pub textbook: BitRate,
    /// By the running kernel's rules.
    pub kernel_model: BitRate,
    /// The least that is likely, where chance has a part.
    pub low: BitRate,
    /// The most that is likely.
    pub high: BitRate,
    /// The window behind it, where there is one, of each stream.
    pub window: Option<ByteCount>,
    /// Formula of the ceiling, for a reader: `tcp_wmem 4 MiB × 95.75 % ÷ 100.2 ms`.
    pub formula: String,
}

/// The growth of the rate before it is steady.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ramp {
    /// Round trips of slow start.
    pub rounds: u32,
    /// Time that they take.
    pub duration: Span,
    /// Bytes that pass in them.
    pub bytes: ByteCount,
}

/// The prediction for a path, two hosts and a load; fixed before the first data packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// Bandwidth × round-trip time, where the bandwidth is known.
    pub bdp: Option<ByteCount>,
    /// Window that each stream needs in flight to fill the path.
    pub window_needed: Option<ByteCount>,
    /// Payload ÷ bytes on the wire.
    pub efficiency: Ratio,
    /// Payload of a full segment.
    pub mss: ByteCount,
    /// Every ceiling, lowest `kernel_model` rate first.
    pub ceilings: Vec<Ceiling>,
    /// The lowest.
    pub limit: Limit,
    /// Steady rate by the textbook's formulas.
    pub textbook: BitRate,
    /// Steady rate by the running kernel's rules: the figure that measurements are held against.
    pub kernel_model: BitRate,
    /// The least that is likely.
    pub low: BitRate,
    /// The most that is likely.
    pub high: BitRate,
    /// Before the rate is steady.
    pub ramp: Ramp,
    /// Formulas that were left for another, and inputs that were assumed, with the reason.
    pub notes: Vec<String>,
}

impl Prediction {
    /// The ceiling of this kind, where the prediction knows one.
    pub fn find_ceiling(&self, kind: Limit) -> Option<&Ceiling> {
        self.ceilings.iter().find(|ceiling| ceiling.kind == kind)
    }

    /// Returns the part of the bandwidth-delay product that each of so many streams keeps on the
    /// way; `None` where the bandwidth is not known.
    pub fn bdp_of_each(&self, streams: u16) -> Option<ByteCount> {
        self.bdp
            .map(|bdp| ByteCount::new(bdp.get().div_ceil(streams.max(1).into())))
    }
}
