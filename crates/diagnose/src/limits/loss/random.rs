//! Losses at random, which no queue explains.

use crate::limits::loss::{cause_of_losses, loss_sentence};
use crate::limits::prelude::*;

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| vec![advice.bbr_remedy(), advice.parallel_streams()],
    manual_remedies: &[ManualRemedy::new(
        "mend-the-path",
        Scope::Path,
        "Loss without a full queue has a cause: dirty optics, a bad cable, a duplex mismatch, \
         radio.",
    )],
    ..cause_of_losses(
        &["loss/random"],
        |figures, _| loss_sentence(figures, "without a queue that fills"),
        |arrivals, finding| {
            let seen = if finding.candidates.is_some() {
                "Data arrives out of order again and again: packets are lost or overtake each other on the path"
            } else {
                "Packets are lost again and again, at high rates and at low ones, as by chance"
            };
            let rate = arrivals.rate;
            format!("{seen}, and {rate} arrives. Only the sender knows how many were lost.")
        },
    )
};
