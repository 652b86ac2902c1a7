use fullpipe_units::ByteCount;
use serde::{Deserialize, Serialize};

use super::slot::{Slot, SlotOutcome};

/// What an agent says each time when it asks for its slots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollRequest {
    /// What the agent knows of the difference between its clock and the controller's, in
    /// milliseconds.
    pub offset_ms: i64,
    /// Version of the program.
    pub program: String,
    /// Version of the slots that the agent has from the controller.
    pub known: String,
    /// How slots ended, as long as the controller has not confirmed it.
    pub reports: Vec<SlotReport>,
    /// Tickets for slots in which others connect to this host.
    pub tickets: Vec<SlotTicket>,
    /// Round trips of whole minutes that the controller has not confirmed.
    pub echoes: Vec<EchoMinute>,
}

/// What a controller answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollAnswer {
    /// The controller's clock, in milliseconds since 1970.
    pub clock_ms: u64,
    /// Version of the slots: another one if they have changed.
    pub version: String,
    /// The slots of the agent in the next hour.
    pub orders: Vec<SlotOrder>,
    /// Slots whose end the controller has kept.
    pub confirmed: Vec<String>,
}

/// A slot as a host gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotOrder {
    /// The slot.
    pub slot: Slot,
    /// Where the client finds the server.
    pub reach: String,
    /// What the client shows to the server; `None` until the server has agreed.
    pub ticket: Option<String>,
}

/// How a slot ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotReport {
    /// The slot.
    pub slot: String,
    /// Its end.
    pub outcome: SlotOutcome,
    /// The reason; empty if it was done.
    pub why: String,
    /// Identifier of its document, which the controller has before this report.
    pub document: Option<String>,
    /// Bytes that it carried.
    pub bytes: ByteCount,
}

/// The agreement of a server to a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotTicket {
    /// The slot.
    pub slot: String,
    /// What the client shows.
    pub ticket: String,
}

/// A host whose round trips are measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoTarget {
    /// Its name.
    pub host: String,
    /// Its address.
    pub address: String,
}

/// Echo requests to a host within a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoMinute {
    /// The host.
    pub host: String,
    /// The minute, counted since 1970.
    pub minute: u64,
    /// Requests.
    pub sent: u32,
    /// Requests without an answer.
    pub lost: u32,
    /// Median round-trip time, in nanoseconds; `None` without answers.
    pub rtt_ns: Option<u64>,
}
