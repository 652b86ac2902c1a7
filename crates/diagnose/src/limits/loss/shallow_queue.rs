//! Losses in a queue that is shorter than the bursts.

use crate::advice::ChangeOutlook;
use crate::limits::loss::{cause_of_losses, loss_sentence, pace_below};
use crate::limits::prelude::*;
use crate::signals::policer_rate;

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| {
        vec![
            advice.bbr_remedy(),
            advice.parallel_streams(),
            pace_below_the_bottleneck(advice),
        ]
    },
    manual_remedies: &[ManualRemedy::new(
        "longer-queue-on-the-path",
        Scope::Path,
        "The queue of the bottleneck is shorter than the bursts: a longer queue there, or a sender \
         that paces (fq, or a maximum pace), loses less.",
    )],
    ..cause_of_losses(
        &["loss/shallow-queue"],
        |figures, _| {
            let pattern = "always at the same amount in flight: a queue on the path is too short";
            loss_sentence(figures, pattern)
        },
        |arrivals, _| {
            format!(
                "Packets are lost again and again, always at the same rate of arrival: a queue on the path or of the \
                 sending host is too short, and {} arrives.",
                arrivals.rate
            )
        },
    )
};

/// `None` where the bottleneck's rate was not stated and does not show.
pub(crate) fn pace_below_the_bottleneck(advice: &RemedyAdvice) -> Option<Remedy> {
    let stated = advice
        .outlook
        .as_ref()
        .and_then(ChangeOutlook::stated_capacity);
    let known = stated.or_else(|| policer_rate::lower_bound(advice.figures))?;
    let why = format!(
        "The queue of the bottleneck is shorter than the bursts, and {known} of data passes it: with a maximum pace a \
         little below that no burst is longer than the packets of a millisecond, which may still be more than the \
         queue holds."
    );
    pace_below(advice, known, "pace-below-the-bottleneck", why)
}
