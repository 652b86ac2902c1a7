//! A test under way, as it is so far.

use fullpipe_units::Span;

/// Time between two snapshots that are reported.
const SNAPSHOT_PERIOD: Span = Span::from_millis(100);

/// Time between two measurements of the test so far.
const SO_FAR_PERIOD: Span = Span::from_secs(1);

/// Samples of this end in the measurement of a test so far: of a longer test, they are thinned.
pub(crate) const SO_FAR_SAMPLES: usize = 2_000;

/// Schedule of the reports on a test under way.
pub(super) struct ReportSchedule {
    next_snapshot: Span,
    next_so_far: Span,
}

impl Default for ReportSchedule {
    fn default() -> Self {
        Self {
            next_snapshot: SNAPSHOT_PERIOD,
            next_so_far: SO_FAR_PERIOD,
        }
    }
}

impl ReportSchedule {
    /// Returns two marks, true if a snapshot and if a measurement is due, `elapsed` after data
    /// began to flow.
    pub(crate) fn take_due(&mut self, elapsed: Span) -> (bool, bool) {
        let snapshot = is_due(&mut self.next_snapshot, SNAPSHOT_PERIOD, elapsed);
        (
            snapshot,
            is_due(&mut self.next_so_far, SO_FAR_PERIOD, elapsed),
        )
    }
}

fn is_due(next: &mut Span, period: Span, elapsed: Span) -> bool {
    let due = elapsed >= *next;
    if due {
        // Late reports do not follow each other at once.
        *next = elapsed + period;
    }
    due
}
