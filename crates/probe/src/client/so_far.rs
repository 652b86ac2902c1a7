//! A test under way, as it is so far.

use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_units::Span;

/// Time between two snapshots that are reported.
const SNAPSHOT_PERIOD: Span = Span::from_millis(100);

/// Time between two measurements of the test so far.
const SO_FAR_PERIOD: Span = Span::from_secs(1);

/// The same, where they decide when the test ends.
const DECIDING_PERIOD: Span = Span::from_millis(200);

/// Samples of this end in the measurement of a test so far: of a longer test, they are thinned.
pub(crate) const SO_FAR_SAMPLES: usize = 2_000;

/// Schedule of the reports on a test under way.
pub(super) struct ReportSchedule<'e> {
    next_snapshot: Span,
    next_so_far: Span,
    /// Set by who receives the reports if no more data is needed.
    enough: Option<&'e AtomicBool>,
}

impl<'e> ReportSchedule<'e> {
    /// Returns the schedule of a test that ends once `enough` is set, if there is such a flag.
    pub(crate) fn new(enough: Option<&'e AtomicBool>) -> Self {
        Self {
            next_snapshot: SNAPSHOT_PERIOD,
            next_so_far: so_far_period(enough),
            enough,
        }
    }

    /// Returns true if no more data is needed.
    pub(crate) fn is_enough(&self) -> bool {
        self.enough
            .is_some_and(|enough| enough.load(Ordering::Relaxed))
    }

    /// Returns two marks, true if a snapshot and if a measurement is due, `elapsed` after data
    /// began to flow.
    pub(crate) fn take_due(&mut self, elapsed: Span) -> (bool, bool) {
        let snapshot = is_due(&mut self.next_snapshot, SNAPSHOT_PERIOD, elapsed);
        (
            snapshot,
            is_due(&mut self.next_so_far, so_far_period(self.enough), elapsed),
        )
    }
}

fn so_far_period(enough: Option<&AtomicBool>) -> Span {
    enough.map_or(SO_FAR_PERIOD, |_| DECIDING_PERIOD)
}

fn is_due(next: &mut Span, period: Span, elapsed: Span) -> bool {
    let due = elapsed >= *next;
    if due {
        // Late reports do not follow each other at once.
        *next = elapsed + period;
    }
    due
}
