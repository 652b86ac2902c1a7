//! Packets of the wrong size: too large for a link on the way, or needlessly small.

use crate::limits::{Cause, CauseNames, ReceiverSentence, SenderSentence};

/// Returns a cause of packets of the wrong size, with its sentence from either end.
pub(crate) const fn cause_of_size(
    names: CauseNames,
    sentence: SenderSentence,
    received_sentence: ReceiverSentence,
) -> Cause {
    Cause {
        received_sentence,
        other_end_would_show: Some("the size of the packets that reached it"),
        shows_in_few_packets: true,
        ..Cause::new(names, sentence)
    }
}
