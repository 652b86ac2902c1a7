//! A receiving program that is slow, by itself or for the file that it writes.

use crate::finding::Finding;
use crate::limits::{Cause, receive_window};
use crate::signals::SenderView;

/// Returns a cause of a slow receiving program, with its sentence.
pub(crate) const fn cause_of_reader(
    names: &'static [&'static str],
    sentence: fn(&SenderView, &Finding) -> String,
) -> Cause {
    Cause {
        shown_rows: receive_window::window_rows,
        other_end_would_show: Some("whether its program, its disk or its processor is slow"),
        shows_in_few_packets: true,
        ..Cause::new(names, sentence)
    }
}
