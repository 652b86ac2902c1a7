//! When a transfer of a known size will be complete.

use crate::prelude::*;

/// Forecast of when a transfer of a known size is complete: from now on for one that runs, since it
/// began otherwise. It is complete between `low` and `high` in nine of ten cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionForecast {
    /// Time that it most likely takes.
    pub time: Span,
    /// The least that is likely.
    pub low: Span,
    /// The most that is likely.
    pub high: Span,
    /// Completion efficiency: the time that the size would take at the full rate of the path ÷
    /// `time`; absent where that rate is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<Ratio>,
}

impl CompletionForecast {
    /// Returns the forecast with the efficiency of `size` over a path that carries `capacity` of
    /// payload.
    #[must_use]
    pub fn over_path(mut self, size: ByteCount, capacity: Option<BitRate>) -> Self {
        let ideal = capacity.filter(|rate| *rate > BitRate::ZERO && self.time > Span::ZERO);
        self.efficiency = ideal
            .map(|rate| rate.time_for(size).as_secs_f64() / self.time.as_secs_f64())
            .map(|share| Ratio::new(share.min(1.0)));
        self
    }

    /// Returns the forecast of a transfer since it began, of which `passed` is over.
    #[must_use]
    pub fn since_start(self, passed: Span) -> Self {
        Self {
            time: self.time + passed,
            low: self.low + passed,
            high: self.high + passed,
            ..self
        }
    }
}

/// A file that another program sends, and when it is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileCompletion {
    /// Name of the file; absent where the user stated the size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its size.
    pub size: ByteCount,
    /// The part of it that had passed at the last look.
    pub passed: ByteCount,
    /// Time from that look on.
    pub forecast: CompletionForecast,
}
