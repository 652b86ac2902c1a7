use fullpipe_units::{BitRate, SegCount, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Candidate, HostSettings, Path, Request};

/// Rates of a transfer with several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateSpread {
    /// Least.
    pub low: BitRate,
    /// Median; the upper one of two in the middle.
    pub median: BitRate,
    /// Greatest.
    pub high: BitRate,
}

/// Counts of segments of a transfer with several seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SegmentSpread {
    /// Least.
    pub low: SegCount,
    /// Median; the upper one of two in the middle.
    pub median: SegCount,
    /// Greatest.
    pub high: SegCount,
}

/// A transfer in virtual time, with one seed or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulatedTransfer {
    /// Identifier that follows from all that was simulated and from the version of the program (UUID
    /// version 8): the same transfer has the same one in every process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Name of the transfer: the step of a scenario, or the change of a what-if question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path.
    pub path: Path,
    /// The load.
    pub request: Request,
    /// Number of seeds.
    pub seeds: u32,
    /// Rate of the payload that arrived.
    pub rate: RateSpread,
    /// Retransmitted segments.
    pub retransmits: SegmentSpread,
    /// Median round-trip time under load, of the seed with the median rate.
    pub loaded_rtt: Option<Span>,
    /// Limit of that seed.
    pub limit: Option<Candidate>,
    /// Warnings for the user about that seed.
    pub warnings: Vec<String>,
}

/// A fact about a path or a host that a measurement does not state, and the reason for the value
/// that is taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inferred {
    /// The key of the path, as `--path` has it; or `sender` or `receiver`.
    pub key: String,
    /// The value, as the key has it.
    pub value: String,
    /// The reason, in a sentence.
    pub why: String,
}

/// The figures of a measurement that its simulations are compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredTransfer {
    /// Rate of the payload that arrived.
    pub rate: BitRate,
    /// Retransmitted segments; `None` where the sender did not say.
    pub retransmits: Option<SegCount>,
    /// Median round-trip time under load.
    pub loaded_rtt: Option<Span>,
    /// Limit.
    pub limit: Option<Candidate>,
}

/// A measurement, its simulation, and what would have happened with changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfReport {
    /// Name of the measurement, where a document has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path: the emulated one, or what was stated and inferred.
    pub path: Path,
    /// Settings of the sender.
    pub sender: HostSettings,
    /// Settings of the receiver.
    pub receiver: HostSettings,
    /// Facts that were inferred or assumed; empty if the record states all.
    pub inferred: Vec<Inferred>,
    /// As measured.
    pub measured: MeasuredTransfer,
    /// The measured transfer in virtual time, then with each change, then with all changes if there
    /// are several, then with each remedy for the limit if they were asked for, the best first.
    pub simulations: Vec<SimulatedTransfer>,
    /// Remedies for the limit, by their names, that change nothing that is modelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_modelled: Vec<String>,
}
