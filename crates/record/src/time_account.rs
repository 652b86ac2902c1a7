use std::net::SocketAddr;

use crate::Sample;
use crate::prelude::*;

/// Account of the time of a command, or of a process while it was watched. Each moment is booked
/// once, so that the parts add up to `whole`; where several connections show different uses of a
/// moment, the first in this order counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TimeAccount {
    /// Time that is accounted for.
    pub whole: Span,
    /// Data was under way: more than an initial window (10 segments, RFC 6928) in a round trip, or
    /// in one message.
    pub data: Span,
    /// Round trips of small messages, each of which waited for the answer to the one before.
    pub requests: Span,
    /// Number of those round trips.
    pub round_trips: u64,
    /// A connection was being opened, and no other had a request or data under way.
    pub connecting: Span,
    /// An answer of the other program was due: more than a round trip had passed since the request,
    /// or since the part before.
    pub other_program: Span,
    /// Processor time of the command while none of this was under way.
    pub own_work: Span,
    /// The rest: the command waited for something that is not TCP, such as a disk, a name or a
    /// timer.
    pub elsewhere: Span,
}

/// The samples of one watched connection.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionSamples<'s> {
    /// This end and the other.
    pub ends: [SocketAddr; 2],
    /// Time at which it was found, since the watching began.
    pub found: Span,
    /// True if it was open before the watching began.
    pub is_old: bool,
    /// In the order of time, since the watching began.
    pub samples: Vec<&'s Sample>,
}

/// Use of a moment of a transfer: the accounts on which its time is booked, whatever view there is
/// of it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TransferTimeUse {
    /// Nothing moved between a loss and the timer that repaired it (RFC 6298).
    RetransmissionTimeout,
    /// The receiver allowed less than a segment.
    WindowClosed,
    /// All that the receiver allowed was in flight.
    WindowFull,
    /// The congestion window was in use, and grew.
    WindowGrowth,
    /// The congestion window was in use, and losses had made it small.
    LossRecovery,
    /// Data waited in a queue of the path.
    PathQueue,
    /// The send buffer was full, and all of it sent.
    SendBuffer,
    /// Data waited at the sender for its pace, though the windows had room.
    Pacing,
    /// The sender had nothing to send.
    NothingToSend,
    /// Silence after the last data, which is no part of the transfer.
    AfterTransfer,
    /// None of these shows.
    Unknown,
}

impl TransferTimeUse {
    /// Returns what it says in a sentence about time.
    pub const fn text(self) -> &'static str {
        match self {
            Self::RetransmissionTimeout => "waiting for a retransmission timeout",
            Self::WindowClosed => "window of the receiver closed",
            Self::WindowFull => "window of the receiver full",
            Self::WindowGrowth => "congestion window growing",
            Self::LossRecovery => "congestion window small after losses",
            Self::PathQueue => "queue on the path",
            Self::SendBuffer => "send buffer full",
            Self::Pacing => "paced",
            Self::NothingToSend => "nothing to send",
            Self::AfterTransfer => "silent after the data",
            Self::Unknown => "not known",
        }
    }
}

/// The time of a transfer that one use took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TransferTimeShare {
    /// The use.
    pub used_for: TransferTimeUse,
    /// Its time, the mean of all streams.
    pub time: Span,
    /// Its share of the time of the transfer, silence after the data left out; of that silence, by
    /// the same time.
    pub share: Ratio,
}
