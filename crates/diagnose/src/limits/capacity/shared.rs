//! A full link that others load too.

use crate::limits::capacity::{self, cause_of_capacity};
use crate::limits::prelude::*;
use crate::limits::sender_application::idle::PAUSES_OR_FULL_PATH;
use crate::signals::losses;
use crate::signals::path::queue_before_the_load;
use crate::text;
use crate::thresholds::{
    FASTER_THAN_A_BUFFER, REGROWN_WINDOW_FACTOR, ROUNDS_OF_STARTUP, SHARED_PIPE_SHARE,
};

pub(crate) const CAUSE: Cause = Cause {
    received_sentence: |arrivals, finding| {
        if finding.candidates.is_some() {
            return capacity::received_sentence(arrivals, finding);
        }
        format!(
            "The pipe is full, but not with this transfer alone: {} arrives here, and others have the rest.",
            arrivals.rate
        )
    },
    manual_remedies: &[ManualRemedy::new(
        "share",
        Scope::Path,
        "Others load the path: more bandwidth, another hour, or an agreed share of it; more \
         connections only take from the others.",
    )],
    ..cause_of_capacity(&["capacity/shared"], |figures, _| {
        format!(
            "The pipe is full, but not with this transfer alone: its part is {}{} (round trip {} idle, {} now).",
            figures.rate,
            text::could_carry(figures),
            time_text(figures.idle_rtt),
            time_text(figures.rtt),
        )
    })
};

/// Finds a path that others fill: the round trip of a load that always has data is clearly longer
/// than that of the idle path, and its congestion window grows or has lost packets.
pub(crate) fn lengthened_path(arrivals: &ReceiverView) -> Option<Finding> {
    let is_longer = arrivals.is_own_load() && arrivals.pauses.is_some();
    let is_of_window =
        is_longer && (arrivals.loss_rounds() > 0 || arrivals.grows_by(REGROWN_WINDOW_FACTOR));
    is_of_window.then(|| {
        let found = Finding::always(arrivals.whose_capacity());
        // A sender that pauses sends the faster in between, and loses what that overflows at first.
        // Others who fill the link may have left it more before.
        let is_away = |course| arrivals.is_away_beyond_windows(&course);
        if arrivals.was_faster(FASTER_THAN_A_BUFFER)
            && arrivals.loss_rounds() <= ROUNDS_OF_STARTUP
            && (found.is(CapacityVerdict::Link) || arrivals.busiest_course().is_some_and(is_away))
        {
            found.one_of(&PAUSES_OR_FULL_PATH)
        } else {
            found
        }
    })
}

/// Finds a bottleneck that is full, and not with this transfer alone: it carries clearly less of it
/// than its stated bandwidth; or its queue was there before the transfer began, and the transfer
/// fills it or loses packets to it; or packets wait behind those of others before they are lost.
pub(crate) fn behind_on_path(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let is_regrowth = found.is(CongestionWindowVerdict::Recovering);
    let in_a_queue = found.is(LossVerdict::ShallowQueue);
    let shared = match (found.limit_kind(), stated_capacity(figures)) {
        (Limit::Capacity, Some(stated)) => figures.rate < stated.scale_by(SHARED_PIPE_SHARE),
        (_, Some(stated)) if in_a_queue && waits_behind_others(figures, stated) == Some(true) => {
            true
        }
        (Limit::Capacity | Limit::Loss, _) => {
            queue_before_the_load(figures.evidence, figures.idle_rtt)
        }
        _ => is_regrowth && queue_before_the_load(figures.evidence, figures.idle_rtt),
    };
    shared.then(|| found.as_verdict(CapacityVerdict::Shared))
}

/// Packets that a queue holds at most which is too short for bursts (a choice: 3 to 9 are planted).
const PACKETS_OF_SHORT_QUEUE: u64 = 12;
/// Share of the idle round-trip time that packets wait at least in a queue that others fill (a
/// choice; measured: 0.3 and 0.8).
const MIN_WAIT_BEHIND_OTHERS: f64 = 0.2;

/// Returns true if packets wait longer before losses than a short queue keeps them, though the data
/// is far slower than the link then: packets of others wait there, too. While a queue of its own
/// stands, a sender has the whole link. `None` where one of these figures is not known.
fn waits_behind_others(figures: &SenderView, stated: BitRate) -> Option<bool> {
    let idle = figures.idle_rtt?;
    let wait = losses::usual_rtt_before(&figures.flows)?.saturating_sub(idle);
    let least = stated
        .time_for(figures.mss? * PACKETS_OF_SHORT_QUEUE)
        .max(idle.scale_by(MIN_WAIT_BEHIND_OTHERS));
    let before =
        losses::usual_rate_before(&figures.flows)?.scale_by(f64::from(figures.stream_count()));
    Some(wait > least && before.max(figures.rate) < stated.scale_by(SHARED_PIPE_SHARE))
}

impl ReceiverView<'_> {
    /// Returns whether others have a part of the path that is full.
    pub(crate) fn whose_capacity(&self) -> CapacityVerdict {
        let is_shared = self.stated_capacity().map_or_else(
            || queue_before_the_load(self.evidence, self.evidence.idle_rtt),
            |stated| self.rate < stated.scale_by(SHARED_PIPE_SHARE),
        );
        if is_shared {
            CapacityVerdict::Shared
        } else {
            CapacityVerdict::Link
        }
    }
}
