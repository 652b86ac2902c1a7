//! A bottleneck that is full, on the path or in the sending host.

use crate::limits::prelude::*;
use crate::text;

/// Returns a cause of a full bottleneck, with its sentence.
pub(crate) const fn cause_of_capacity(names: CauseNames, sentence: SenderSentence) -> Cause {
    Cause {
        received_sentence,
        shown_rows: text::of_path,
        ..Cause::new(names, sentence)
    }
}

pub(crate) fn received_sentence(arrivals: &ReceiverView, finding: &Finding) -> String {
    let rate = arrivals.rate;
    if finding.may_be(Limit::Pacing) {
        format!(
            "{rate} arrives evenly, and a queue stands before it: the pipe is full, or a queue of the sending host \
             that is held to a rate."
        )
    } else if finding.candidates.is_some() {
        format!(
            "{rate} arrives, and round trips seem to take {}, longer than those of the idle path: the pipe is full, or \
             the sender pauses.",
            arrivals.rtt.unwrap_or_default()
        )
    } else {
        format!("The pipe is full: {rate} of data arrives, and more would only lengthen the queue.")
    }
}
