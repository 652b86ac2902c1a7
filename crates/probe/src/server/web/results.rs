//! Results that clients may ask for, kept for a time. Time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fullpipe_record::{Measurement, Remedy, Verdict};
use serde_json::json;

/// Time for which a result is kept.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// Results that are kept at most, the latest ones: about 10 MB.
const MAX_KEPT: usize = 1000;

/// Bytes of a result at most; of a longer one nothing is kept.
const MAX_RESULT: usize = 64 << 10;

/// The latest results, by their names.
#[derive(Debug, Default)]
pub(super) struct KeptResults(VecDeque<(Instant, String, String)>);

impl KeptResults {
    /// Keeps the result of a transfer under the name `id`.
    pub(super) fn keep(
        &mut self,
        id: String,
        measurement: &Measurement,
        (verdict, remedies): (&Verdict, &[Remedy]),
        now: Instant,
    ) {
        let text = json!({
            "id": id,
            "title": measurement.request.title,
            "started": measurement.started,
            "duration": measurement.summary.duration,
            "bytes": measurement.summary.received,
            "rate": measurement.summary.rate,
            "rtt": { "idle": measurement.rtt.idle, "loaded": measurement.rtt.loaded },
            "sentence": verdict.sentence,
            "limit": verdict,
            "remedies": remedies,
        })
        .to_string();
        self.forget_old(now);
        if text.len() > MAX_RESULT {
            return;
        }
        if self.0.len() >= MAX_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((now, id, text));
    }

    /// Returns a result as JSON; `None` if there is none of that name, or it is too old.
    pub(super) fn result(&mut self, id: &str, now: Instant) -> Option<String> {
        self.forget_old(now);
        let found = self.0.iter().find(|(_, its, _)| its == id)?;
        Some(found.2.clone())
    }

    fn forget_old(&mut self, now: Instant) {
        while self
            .0
            .front()
            .is_some_and(|(kept, ..)| now.duration_since(*kept) >= KEPT_FOR)
        {
            self.0.pop_front();
        }
    }
}
