use std::net::SocketAddr;

use fullpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Sample;

/// Account of the time of a command, or of a process while it was watched. Each moment is booked once, so that the
/// parts add up to `whole`; where several connections show different uses of a moment, the first in this order counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TimeAccount {
    /// Time that is accounted for.
    pub whole: Span,
    /// Data was under way: more than an initial window (10 segments, RFC 6928) in a round trip, or in one message.
    pub data: Span,
    /// Round trips of small messages, each of which waited for the answer to the one before.
    pub requests: Span,
    /// Number of those round trips.
    pub round_trips: u64,
    /// A connection was being opened, and no other had a request or data under way.
    pub connecting: Span,
    /// An answer of the other program was due: more than a round trip had passed since the request, or since the part
    /// before.
    pub other_program: Span,
    /// Processor time of the command while none of this was under way.
    pub own_work: Span,
    /// The rest: the command waited for something that is not TCP, such as a disk, a name or a timer.
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
