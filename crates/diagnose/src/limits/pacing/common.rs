//! Senders that keep to a pace below what their windows allow.

use crate::limits::prelude::*;

/// Returns a cause of a pace, with its sentence.
pub(crate) const fn cause_of_pace(names: CauseNames, sentence: SenderSentence) -> Cause {
    Cause {
        captured_sentence: |view, _| {
            Some(format!(
                "The sender paces its data: trains of {} come evenly, at {}, though the receiver allows {} and nothing \
                 is lost.",
                view.capture.train,
                view.figures.rate,
                view.window_text()
            ))
        },
        received_sentence: |arrivals, _| {
            let rate = arrivals.rate;
            format!("The sender was asked for a maximum pace, and {rate} arrives: it reaches that.")
        },
        ..Cause::new(names, sentence)
    }
}
