use crate::Basis;
use crate::prelude::*;

/// How sure a test must be of its result to end before its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SureBound {
    /// Least confidence of the verdict.
    pub confidence: Ratio,
    /// Largest half of the 95 % interval of the steady rate, as a share of that rate.
    pub rate: Ratio,
}

impl Default for SureBound {
    fn default() -> Self {
        Self {
            confidence: Ratio::new(0.9),
            rate: Ratio::new(0.05),
        }
    }
}

/// What ended a test that was to end once its result is sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TestEnd {
    /// Its result was sure.
    Sure,
    /// Its time was over, the user ended it, or it broke off.
    Other,
}

/// A test that was to end once its result is sure: what ended it, what that saved, and what it was
/// too short to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UntilSure {
    /// The sureness that was asked for.
    pub bound: SureBound,
    /// What ended the test.
    pub ended_by: TestEnd,
    /// The end whose samples were judged while data flowed: this one.
    pub judged_by: Basis,
    /// Ends of the 95 % interval of the steady rate; `None` where the test has no steady part.
    pub rate: Option<[BitRate; 2]>,
    /// Time for which data was sent or received.
    pub elapsed: Span,
    /// Time by which the test was shorter than the most.
    pub saved_time: Span,
    /// Bytes that were not sent, at the steady rate.
    pub saved_bytes: ByteCount,
    /// Bytes that passed: a token bucket that holds more would not have emptied.
    pub passed: ByteCount,
    /// Share of the segments below which a loss would not have shown, at 95 % certainty; `None`
    /// where segments were lost, or it is not known.
    pub loss_below: Option<Ratio>,
}
