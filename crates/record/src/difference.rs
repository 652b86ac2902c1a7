use crate::Limit;
use crate::prelude::*;

/// One of the two that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedSide {
    /// The first.
    A,
    /// The second.
    B,
}

/// The way in which the runs of A and B were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonDesign {
    /// In pairs, each in random order: drift falls on both alike.
    Pairs,
    /// Not in pairs: what changed in time between A and B counts as their difference.
    Samples,
}

/// The statement that the runs permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceConclusion {
    /// A and B differ.
    Different,
    /// A and B are the same within 2 %.
    Same,
    /// A difference may be there and was not shown.
    NoneShown,
    /// Too few runs to show one.
    TooFew,
}

/// The figures of one run that are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRun {
    /// The side of the comparison, A or B, that the run is of.
    pub side: ComparedSide,
    /// Number of its pair, from 1; `None` if it is in none.
    pub pair: Option<u32>,
    /// Identifier of the measurement.
    pub id: String,
    /// When its data began to flow, RFC 3339 in UTC.
    pub started: String,
    /// Rate of the data that arrived: of the steady part where all runs have one, and else of the
    /// whole.
    pub rate: BitRate,
    /// Median round-trip time under load.
    pub rtt_median: Option<Span>,
    /// 99th percentile of the round-trip time under load.
    pub rtt_p99: Option<Span>,
    /// Retransmitted segments.
    pub retransmits: Option<SegCount>,
    /// Limit of the transfer.
    pub limit: Option<Limit>,
}

/// The runs of one of the two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRuns {
    /// Name: the flags, or the files.
    pub name: String,
    /// Number of runs.
    pub runs: u32,
    /// Lower and upper end of the 95 % interval of the mean rate within the run, if there is only
    /// one. It says nothing about the next run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_run: Option<[BitRate; 2]>,
}

/// A quantity of A and of B.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantityDifference<T> {
    /// Median of A's runs.
    pub a: T,
    /// Median of B's runs.
    pub b: T,
    /// B ÷ A: the Hodges–Lehmann estimate from the logarithms; `None` of too few runs. Counts are
    /// increased by one before, as none of zero has a logarithm.
    pub ratio: Option<Ratio>,
    /// Lower end of the 95 % interval of the ratio.
    pub low: Option<Ratio>,
    /// Upper end.
    pub high: Option<Ratio>,
    /// The statement that the interval permits.
    pub conclusion: DifferenceConclusion,
}

/// Runs with one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitCount {
    /// The limit.
    pub limit: Limit,
    /// Runs of A that it limited.
    pub a: u32,
    /// Runs of B.
    pub b: u32,
}

/// The cost of pairs and the difference that they can show, as known before the first one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairForecast {
    /// Pairs.
    pub pairs: u32,
    /// Time that they take.
    pub time: Span,
    /// Bytes that they send.
    pub bytes: ByteCount,
    /// Standard deviation of single runs that is assumed, as a share.
    pub noise: Ratio,
    /// Difference that four of five such campaigns show.
    pub detectable: Ratio,
    /// Pairs that show half of that; `None` if that is more than 10 000.
    pub pairs_for_half: Option<u32>,
}

/// Result of `fullpipe diff`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DifferenceReport {
    /// The way in which the runs were measured.
    pub design: ComparisonDesign,
    /// A.
    pub a: ComparedRuns,
    /// B.
    pub b: ComparedRuns,
    /// The statement about the rate.
    pub conclusion: DifferenceConclusion,
    /// The statement about the rate as a sentence.
    pub sentence: String,
    /// Difference of the rate that four of five such comparisons would have shown, as a share;
    /// `None` of too few runs.
    pub detectable: Option<Ratio>,
    /// True if the rates are those of the steady parts of the runs.
    pub is_steady: bool,
    /// Rate of the data that arrived.
    pub rate: QuantityDifference<BitRate>,
    /// Median round-trip time under load; `None` if it is not known of all runs.
    pub rtt_median: Option<QuantityDifference<Span>>,
    /// 99th percentile of the round-trip time under load.
    pub rtt_p99: Option<QuantityDifference<Span>>,
    /// Retransmitted segments.
    pub retransmits: Option<QuantityDifference<SegCount>>,
    /// Limits of the runs.
    pub limits: Vec<LimitCount>,
    /// The runs in the order in which they are given or were made.
    pub runs: Vec<ComparedRun>,
    /// Cost and power, as forecast before the first pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<PairForecast>,
    /// Reasons for which A and B are not comparable, a sentence each; they were compared all the
    /// same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomparable: Vec<String>,
    /// Runs that were left out, and why, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// True if the user cut it short; the pairs that were complete are kept.
    pub interrupted: bool,
}
