use crate::prelude::*;
use crate::{HostSettings, Limit, Path, Validity, Verdict};

/// Programs that moved the same file from one host to another, side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramsReport {
    /// Name of the scenario of a lab; `None` where programs moved the file to or from a real host.
    pub scenario: Option<String>,
    /// Title of the scenario, or name of the other host.
    pub title: String,
    /// The user's own command, which the row `command` is of; empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Size of the file.
    pub size: ByteCount,
    /// Settings of the path and of the hosts, with a row for each program.
    pub batches: Vec<ProgramBatch>,
    /// Programs that did not take part, with the reason.
    pub left_out: Vec<ProgramLeftOut>,
    /// Sentences on what the figures show.
    pub findings: Vec<String>,
    /// True if the user interrupted it: these are the transfers that were complete.
    pub interrupted: bool,
}

/// A program that did not take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramLeftOut {
    /// Name of the program.
    pub program: String,
    /// The reason.
    pub why: String,
}

/// One set of settings, under which every program moved the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramBatch {
    /// Name of the scenario's step that has these settings.
    pub name: String,
    /// The path from the sender to the receiver.
    pub path: Path,
    /// Settings of the host that sends the file.
    pub sender: HostSettings,
    /// Settings of the host that receives it; `None` where they cannot be read.
    pub receiver: Option<HostSettings>,
    /// Predictions of all programs of the closed list, whether they took part or not.
    #[serde(default)]
    pub predictions: Vec<ProgramPrediction>,
    /// The programs that took part, those first that moved the file fastest.
    pub rows: Vec<ProgramRow>,
}

/// The steady rate that a program is predicted to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramPrediction {
    /// Name of the program.
    pub program: String,
    /// The rate: of its TCP connections, or of the window that it keeps above TCP, if that is less.
    pub rate: BitRate,
    /// Rates between which four fifths of simulated transfers of this size lie; `None` where
    /// nothing falls to chance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[BitRate; 2]>,
    /// The limit that sets it.
    pub limit: Limit,
    /// Other limits that the transfer may have as well: those that allow at most a tenth more, and
    /// those that simulated transfers have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near_limits: Vec<Limit>,
}

/// One program under one set of settings. Figures are medians over the runs that are valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramRow {
    /// Name of the program.
    pub program: String,
    /// Predicted steady rate; `None` of a program of which nothing is known.
    pub predicted: Option<BitRate>,
    /// Rates between which four fifths of simulated transfers lie; `None` where nothing falls to
    /// chance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_range: Option<[BitRate; 2]>,
    /// The limit that the prediction names.
    pub predicted_limit: Option<Limit>,
    /// Other limits that the prediction cannot tell from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predicted_near_limits: Vec<Limit>,
    /// Size of the file ÷ time from the program's start to its end.
    pub goodput: Option<BitRate>,
    /// Least and most goodput of a run; `None` of fewer than two.
    pub spread: Option<[BitRate; 2]>,
    /// Rate of the steady part.
    pub steady: Option<BitRate>,
    /// Highest rate over a second.
    pub top: Option<BitRate>,
    /// Time from the program's start to the first data of the file.
    pub start_up: Option<Span>,
    /// Median round-trip time of the samples.
    pub rtt: Option<Span>,
    /// Processor time of all processes at the end that sends ÷ time of the transfer: one processor
    /// is 1.
    #[serde(default)]
    pub sender_cpu: Option<Ratio>,
    /// Processor time of all processes at the end that receives ÷ time of the transfer: one
    /// processor is 1.
    #[serde(default)]
    pub receiver_cpu: Option<Ratio>,
    /// Limit of the run whose goodput is the median.
    pub verdict: Option<Verdict>,
    /// All runs, by time.
    pub runs: Vec<ProgramRun>,
}

/// One transfer of the file by one program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProgramRun {
    /// Number of the round, from 1.
    pub round: u32,
    /// Why the program did not move the file; `None` if it did.
    pub failed: Option<String>,
    /// Time from the program's start to its end.
    pub took: Option<Span>,
    /// Size of the file ÷ that time.
    pub goodput: Option<BitRate>,
    /// Rate of the steady part; `None` if there was none.
    pub steady: Option<BitRate>,
    /// Highest rate over a second; `None` of a shorter transfer.
    pub top: Option<BitRate>,
    /// Time from the program's start to the first data of the file.
    pub start_up: Option<Span>,
    /// Median round-trip time of the samples.
    pub rtt: Option<Span>,
    /// Least round-trip time that the kernel at the end that was watched has seen.
    pub least_rtt: Option<Span>,
    /// Processor time of all processes at the end that sends, the server's with the start of it.
    pub sender_cpu: Option<Span>,
    /// Processor time of all processes at the end that receives, the server's with the start of it.
    pub receiver_cpu: Option<Span>,
    /// Connections that carried the file.
    pub connections: Option<u16>,
    /// Congestion control of the first.
    pub congestion: Option<String>,
    /// Retransmitted bytes.
    pub resent: Option<ByteCount>,
    /// True if the file that arrived is the one that was sent; `None` if the program writes none.
    pub is_intact: Option<bool>,
    /// The limit, from the figures of the kernel at the end that was watched.
    pub verdict: Option<Verdict>,
    /// Self-check of the lab: if it kept up.
    pub validity: Validity,
}

impl ProgramRun {
    /// Returns true if the figures of the run count: the program moved the file, and the lab kept
    /// up.
    pub fn is_counted(&self) -> bool {
        self.failed.is_none() && self.validity.broken.is_empty()
    }
}
