//! A test under way, as it is so far.

use std::time::Instant;

use fullpipe_record::{HostSettings, Request};
use fullpipe_units::Span;

/// Time between two snapshots that are reported.
const SNAPSHOT_PERIOD: Span = Span::from_millis(100);

/// Time between two measurements of the test so far.
const SO_FAR_PERIOD: Span = Span::from_secs(1);

/// Samples of this end in the measurement of a test so far: of a longer test, they are thinned.
pub(crate) const SO_FAR_SAMPLES: usize = 2_000;

/// Schedule of the reports on a test under way, and what a measurement of it needs from before the
/// test.
pub(crate) struct ReportSchedule {
    /// The load that was asked for.
    pub(crate) asked: Request,
    /// Time of the first connection attempt.
    pub(crate) begun: Instant,
    /// Settings of this host.
    pub(crate) settings: HostSettings,
    next_snapshot: Span,
    next_so_far: Span,
}

impl ReportSchedule {
    pub(crate) fn new(asked: &Request, begun: Instant, settings: &HostSettings) -> Self {
        let (next_snapshot, next_so_far) = (SNAPSHOT_PERIOD, SO_FAR_PERIOD);
        Self {
            asked: asked.clone(),
            begun,
            settings: settings.clone(),
            next_snapshot,
            next_so_far,
        }
    }

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
