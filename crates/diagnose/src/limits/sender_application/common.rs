//! A sending program that is slow, by itself, by request or for the file that it reads.

use crate::limits::prelude::*;
use crate::text;

/// Returns a cause of a slow sending program, with its sentence.
pub(crate) const fn cause_of_writer(names: CauseNames, sentence: SenderSentence) -> Cause {
    Cause {
        shown_rows: |figures| {
            vec![
                text::queued_row(figures),
                text::unsent_row(figures),
                text::idle_row(figures),
            ]
        },
        shows_in_few_packets: true,
        ..Cause::new(names, sentence)
    }
}
