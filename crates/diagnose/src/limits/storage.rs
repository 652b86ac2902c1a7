//! Files that a program reads or writes.

use crate::limits::prelude::*;
use crate::limits::receiver_application::cause_of_reader;
use crate::limits::sender_application::cause_of_writer;
use crate::signals::machine;

pub(crate) const OF_SENDER: Cause = Cause {
    manual_remedies: &[FASTER_STORAGE],
    ..cause_of_writer(&["sender-application/storage"], |_, finding| {
        format!(
            "Reading the file holds the transfer back: it took {} of the sender's time.",
            finding.share
        )
    })
};

pub(crate) const OF_RECEIVER: Cause = Cause {
    manual_remedies: &[FASTER_STORAGE],
    ..cause_of_reader(&["receiver-application/storage"], |_, finding| {
        format!(
            "Writing the file holds the transfer back: it took {} of the receiver's time.",
            finding.share
        )
    })
};

const FASTER_STORAGE: ManualRemedy = ManualRemedy::new(
    "faster-storage",
    Scope::Application,
    "The file is slower than the network: a faster disk, larger or parallel reads and writes, \
     or none at all (test without the file) would show what the network gives.",
);

/// Returns the file that the program of an end reads or writes for most of the time, if `found` is
/// that program or its window.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let evidence = figures.evidence;
    match found.limit_kind() {
        Limit::SenderApplication => {
            let busy = machine::busy_with_file(figures, &evidence.sender_machine)?;
            Some(Finding::new(SenderApplicationVerdict::Storage, busy))
        }
        Limit::ReceiverApplication | Limit::ReceiveWindow => {
            let busy = machine::busy_with_file(figures, &evidence.receiver_machine)?;
            Some(Finding::new(ReceiverApplicationVerdict::Storage, busy))
        }
        _ => None,
    }
}
