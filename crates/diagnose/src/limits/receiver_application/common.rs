//! A receiving program that is slow, by itself or for the file that it writes.

use crate::limits::{Cause, CauseNames, SenderSentence, receive_window};

/// Returns a cause of a slow receiving program, with its sentence.
pub(crate) const fn cause_of_reader(names: CauseNames, sentence: SenderSentence) -> Cause {
    Cause {
        shown_rows: receive_window::window_rows,
        other_end_would_show: Some("whether its program, its disk or its processor is slow"),
        shows_in_few_packets: true,
        ..Cause::new(names, sentence)
    }
}
