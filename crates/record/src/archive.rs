use std::collections::BTreeMap;

use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Direction;

/// Figures of one direction of one run, derived from a document of the archive.
///
/// The figures can be derived again from the document at any time. A figure that the document does
/// not have is `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StoredFacts {
    /// Step of the scenario, `trial` of a remedy that was tried, `run` and `knee` of a sweep; empty
    /// for the run itself.
    pub step: String,
    /// Direction of the data, seen from the end that asked for it.
    pub direction: Direction,
    /// Mean rate at which the data arrived.
    pub rate: Option<BitRate>,
    /// Mean rate after the ramp.
    pub steady: Option<BitRate>,
    /// Median round-trip time without load.
    pub rtt_idle: Option<Span>,
    /// Median round-trip time under load.
    pub rtt_loaded: Option<Span>,
    /// 99th percentile of the round-trip time under load.
    pub rtt_loaded_p99: Option<Span>,
    /// Retransmitted segments.
    pub retransmits: Option<SegCount>,
    /// Datagrams that were lost, as a share of those sent.
    pub loss: Option<Ratio>,
    /// Kind of the limit.
    pub limit: Option<String>,
    /// Cause of the limit.
    pub cause: Option<String>,
    /// Share of the time in which the limit held.
    pub share: Option<Ratio>,
    /// Processor time of the sender, as a share of one core.
    pub cpu_sender: Option<Ratio>,
    /// Processor time of the receiver, as a share of one core.
    pub cpu_receiver: Option<Ratio>,
    /// True if the run may be judged: it was whole, and its own checks passed.
    pub valid: bool,
    /// Parallel streams.
    pub streams: Option<u16>,
    /// Socket buffer that was requested.
    pub buffer: Option<ByteCount>,
    /// Largest window that the sender saw advertised on one connection.
    pub window: Option<ByteCount>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Payload that the sender wrote.
    pub sent: Option<ByteCount>,
    /// Time over which the rate was taken.
    pub duration: Option<Span>,
}

impl StoredFacts {
    /// Returns the name of the limit, as `loss/policer`, or its kind where the cause is not known.
    pub fn limit_name(&self) -> Option<String> {
        let kind = self.limit.as_deref()?;
        let cause = self.cause.as_ref();
        let cause = cause.map_or_else(String::new, |cause| format!("/{cause}"));
        Some(format!("{kind}{cause}"))
    }
}

/// A document of the archive, without its body.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StoredDocument {
    /// Unique identifier (UUID, RFC 9562): version 7 of what was measured, version 8, which follows
    /// from the content, of what states none.
    pub id: String,
    /// Kind of the document: that of its JSON, or `foreign/` and the program whose format it has.
    pub kind: String,
    /// Version of the JSON schema of a document of fullpipe; 0 for others.
    pub schema: u32,
    /// When the data began to flow, RFC 3339 in UTC.
    pub started: String,
    /// Name of the host that measured; empty if it is not known.
    pub host: String,
    /// Other end, as it was named; empty if there is none, as in a lab.
    pub peer: String,
    /// IP address of the other end; empty if it is not known.
    pub address: String,
    /// Both ends: runs with the same value went over the same path, as far as the ends show.
    pub path_key: String,
    /// Sweep, by the identifier of its plan, or scenario or grid of a lab to which it belongs; empty
    /// if there is none.
    pub campaign: String,
    /// Number and setting of the run in its sweep, or the limit that a cell of a grid is made for;
    /// empty if there is none.
    pub cell: String,
    /// The load that was asked for: runs with the same value can be compared.
    pub request_key: String,
    /// Program that wrote it, with its version.
    pub program: String,
    /// Size of the body as it was written.
    pub bytes: ByteCount,
    /// BLAKE3 of the body as it is kept, in hexadecimal; empty if the body was removed.
    pub blake3: String,
    /// True if samples, or the whole body, were removed by `store thin`.
    pub thinned: bool,
    /// Figures of each direction of each run.
    pub facts: Vec<StoredFacts>,
}

/// An archive as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ArchiveReport {
    /// File, or URL without its password.
    pub location: String,
    /// True if the archive exists.
    pub exists: bool,
    /// True if it can be read only, because a newer version of the program has changed it.
    pub read_only: bool,
    /// Version of the layout of its tables; 0 if it does not exist.
    pub version: u32,
    /// Number of documents by kind.
    pub documents: BTreeMap<String, u64>,
    /// Size of all bodies, compressed.
    pub bytes: ByteCount,
}

/// Result of the import of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ImportedFile {
    /// Name of the file.
    pub file: String,
    /// Identifiers of its documents.
    pub ids: Vec<String>,
    /// Documents of it that the archive had already.
    pub known: u64,
    /// Documents of it that the archive had thinned or damaged, and has whole again.
    #[serde(default)]
    pub restored: u64,
    /// Kind of its documents; `None` if it was refused.
    pub kind: Option<String>,
    /// Error for which it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A document that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DamagedDocument {
    /// Identifier.
    pub id: String,
    /// Description of the damage.
    pub why: String,
}

/// Result of `fullpipe store check`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ArchiveCheck {
    /// Documents that were read.
    pub documents: u64,
    /// Documents that are damaged.
    pub damaged: Vec<DamagedDocument>,
    /// Documents whose facts differ from those that this program derives.
    pub stale: u64,
    /// True if the facts of these were derived again.
    pub repaired: bool,
    /// Errors that the database found in itself.
    pub database: Vec<String>,
}

/// Result of `fullpipe store thin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ArchiveThinned {
    /// Documents whose samples were removed.
    pub samples: u64,
    /// Documents whose body was removed; their facts remain.
    pub bodies: u64,
    /// Size of what was removed, compressed.
    pub freed: ByteCount,
}

/// One run in a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// Document of the run.
    pub id: String,
    /// When the data began to flow, RFC 3339 in UTC.
    pub started: String,
    /// Rate: the steady one, or the mean where there is none.
    pub rate: BitRate,
    /// Median round-trip time without load.
    pub rtt_idle: Option<Span>,
    /// Median round-trip time under load.
    pub rtt_loaded: Option<Span>,
    /// Kind and cause of the limit, as `loss/policer`.
    pub limit: Option<String>,
    /// True if the run may be judged; runs that may not take no part in medians and changes.
    pub valid: bool,
}

/// Valid runs of one day (UTC).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryDay {
    /// Date, as 2026-03-12.
    pub date: String,
    /// Number of valid runs.
    pub runs: u64,
    /// Median rate.
    pub rate: BitRate,
    /// Least rate.
    pub min: BitRate,
    /// Greatest rate.
    pub max: BitRate,
    /// Median of the round-trip times without load.
    pub rtt_idle: Option<Span>,
    /// Limit that most runs had.
    pub limit: Option<String>,
}

/// A change of the rate between two runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryChange {
    /// Start of the first run after the change, RFC 3339 in UTC.
    pub at: String,
    /// Median rate of the segment before.
    pub before: BitRate,
    /// Median rate of the segment after.
    pub after: BitRate,
    /// Rate after ÷ rate before, lower end of the 95 % interval.
    pub low: Ratio,
    /// Upper end of the same.
    pub high: Ratio,
    /// Sentence for the user.
    pub sentence: String,
}

/// Runs over one path with one request, in the order of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistorySeries {
    /// Both ends.
    pub path_key: String,
    /// The load that was asked for, in words.
    pub request_key: String,
    /// Direction of the data.
    pub direction: Direction,
    /// Runs.
    pub points: Vec<HistoryPoint>,
    /// Medians by day.
    pub days: Vec<HistoryDay>,
    /// Changes that the runs show.
    pub changes: Vec<HistoryChange>,
    /// Change of the rate, as a share, that these runs would have shown with 8 valid ones or more
    /// on either side; null where they show one, and of fewer than 16 valid ones.
    #[serde(default)]
    pub detectable: Option<Ratio>,
}

/// Result of `fullpipe history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryReport {
    /// The other end, as it was asked for.
    pub host: String,
    /// Series, the one with the most runs first.
    pub series: Vec<HistorySeries>,
}
