//! Results that clients may ask for, kept for a time. Time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullpipe_record::{Measurement, Remedy, Verdict};
use serde_json::json;

/// Time for which a result is kept.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// Results that are kept at most, the latest ones.
const MAX_KEPT: usize = 1000;

/// Bytes of a result as JSON at most; of a longer one nothing is kept.
const MAX_RESULT: usize = 64 << 10;

/// Bytes of all results at most.
const MAX_BYTES: usize = 64 << 20;

/// A result that is kept.
pub(super) struct KeptResult {
    kept: Instant,
    id: String,
    /// As JSON.
    pub json: Bytes,
    /// As a page with charts.
    pub page: Bytes,
}

impl KeptResult {
    /// Returns the result of a transfer that ended at `now`, which gets the name `id`.
    pub(super) fn new(
        id: &str,
        measurement: &Measurement,
        (verdict, remedies): (&Verdict, &[Remedy]),
        page: String,
        now: Instant,
    ) -> Self {
        let json = json!({
            "id": id,
            "title": measurement.request.title,
            "started": measurement.started,
            "duration": measurement.summary.duration,
            "bytes": measurement.summary.received,
            "rate": measurement.summary.rate,
            "rtt": { "idle": measurement.rtt.idle, "loaded": measurement.rtt.loaded },
            "sentence": verdict.sentence,
            "limit": verdict,
            "broken_off": measurement.broken_off,
            "remedies": remedies,
            "kept_for": KEPT_FOR.as_secs(),
        });
        Self {
            kept: now,
            id: id.to_owned(),
            json: json.to_string().into(),
            page: page.into(),
        }
    }

    fn size(&self) -> usize {
        self.json.len() + self.page.len()
    }
}

/// The latest results.
#[derive(Default)]
pub(super) struct KeptResults(VecDeque<KeptResult>);

impl KeptResults {
    /// Keeps a result, unless it is too long.
    pub(super) fn keep(&mut self, result: KeptResult) {
        self.forget_old(result.kept);
        if result.json.len() > MAX_RESULT {
            return;
        }
        self.0.push_back(result);
        while self.0.len() > MAX_KEPT
            || self.0.iter().map(KeptResult::size).sum::<usize>() > MAX_BYTES
        {
            self.0.pop_front();
        }
    }

    /// Returns a result; `None` if there is none of that name, or it is too old.
    pub(super) fn result(&mut self, id: &str, now: Instant) -> Option<&KeptResult> {
        self.forget_old(now);
        self.0.iter().find(|result| result.id == id)
    }

    fn forget_old(&mut self, now: Instant) {
        while self
            .0
            .front()
            .is_some_and(|result| now.duration_since(result.kept) >= KEPT_FOR)
        {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: usize, kept: Instant, length: usize) -> KeptResult {
        KeptResult {
            kept,
            id: id.to_string(),
            json: Bytes::new(),
            page: " ".repeat(length).into(),
        }
    }

    #[test]
    fn the_latest_results_are_kept_for_a_time_and_within_the_memory_there_is() {
        let (mut results, now) = (KeptResults::default(), Instant::now());
        for id in 0..10 {
            results.keep(result(id, now, MAX_BYTES / 4));
        }
        assert!(results.result("5", now).is_none());
        assert!(results.result("6", now).is_some());
        for id in 10..MAX_KEPT + 20 {
            results.keep(result(id, now, 1));
        }
        assert!(results.result("19", now).is_none());
        assert!(results.result("20", now).is_some());
        assert!(results.result("20", now + KEPT_FOR).is_none());
        let long = KeptResult {
            json: " ".repeat(MAX_RESULT + 1).into(),
            ..result(7, now, 0)
        };
        results.keep(long);
        assert!(results.result("7", now).is_none());
    }
}
