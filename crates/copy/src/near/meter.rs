//! Progress of a copy while it runs.

use std::time::{Duration, Instant};

use fullpipe_record::CopyProgress;
use fullpipe_stats::ProgressHistory;
use fullpipe_units::{BitRate, ByteCount};

use crate::common::CopyCounts;

/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Makes progress of counts.
pub(super) struct ProgressMeter<'t> {
    tally: &'t CopyCounts,
    began: Instant,
    history: ProgressHistory,
    at: Instant,
    verified: u64,
}

impl<'t> ProgressMeter<'t> {
    pub(super) fn new(tally: &'t CopyCounts) -> Self {
        Self {
            tally,
            began: Instant::now(),
            history: ProgressHistory::default(),
            at: Instant::now(),
            verified: 0,
        }
    }

    /// Returns the progress, if it is time for that and something is wanted.
    pub(super) fn take_progress(&mut self) -> Option<CopyProgress> {
        let elapsed = self.at.elapsed();
        let wanted = self.tally.wanted.current_value();
        if elapsed < PROGRESS_INTERVAL || wanted == 0 {
            return None;
        }
        let began = self.began.elapsed().into();
        let verified = self.tally.verified.current_value();
        if verified < self.verified {
            // A file of a web server has changed, and begins anew.
            (self.history, self.verified) = (ProgressHistory::default(), 0);
        }
        let rate = BitRate::from_bytes_in(ByteCount::new(verified - self.verified), elapsed.into());
        (self.at, self.verified) = (Instant::now(), verified);
        let [verified, wanted] = [verified, wanted].map(ByteCount::new);
        self.history.push_progress(began, verified);
        let left = wanted.saturating_sub(verified);
        Some(CopyProgress {
            verified,
            wanted,
            rate,
            completion: self.history.forecast_completion(left),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_begins_anew_has_a_progress_of_its_own() {
        let tally = CopyCounts::default();
        tally.wanted.set_value(10_000);
        let mut meter = ProgressMeter::new(&tally);
        for verified in [5000, 1000] {
            tally.verified.set_value(verified);
            std::thread::sleep(PROGRESS_INTERVAL);
            let progress = meter.take_progress().unwrap();
            assert_eq!(progress.verified, ByteCount::new(verified));
            assert!(progress.rate <= BitRate::from_bps(2 * 8 * verified));
        }
        assert_eq!(meter.take_progress(), None, "it is too early");
    }
}
