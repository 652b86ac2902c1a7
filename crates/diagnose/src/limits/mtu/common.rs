//! Packets of the wrong size: too large for a link on the way, or needlessly small.

use crate::finding::Finding;
use crate::limits::Cause;
use crate::signals::{ReceiverView, SenderView};

/// Returns a cause of packets of the wrong size, with its sentence from either end.
pub(crate) const fn cause_of_size(
    names: &'static [&'static str],
    sentence: fn(&SenderView, &Finding) -> String,
    received_sentence: fn(&ReceiverView, &Finding) -> String,
) -> Cause {
    Cause {
        received_sentence,
        other_end_would_show: Some("the size of the packets that reached it"),
        shows_in_few_packets: true,
        ..Cause::new(names, sentence)
    }
}
