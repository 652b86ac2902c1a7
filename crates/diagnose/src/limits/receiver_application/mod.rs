//! A receiving program that is slow, by itself or for the file that it writes.

pub(crate) mod slow_reader;

use fullpipe_record::{At, Evidence, Limit, ReceiverApplicationVerdict, Scope};
use fullpipe_units::ByteCount;

use crate::advice::ManualRemedy;
use crate::finding::Finding;
use crate::limits::{LimitText, receive_window, sender_application};
use crate::signals::{CaptureView, ReceiverView, Row, SenderView, machine};
use crate::text::{size_text, time_text};

/// Returns the file that the receiving program writes for most of the time, if `found` is that
/// program or its window.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    if !matches!(
        found.limit_kind(),
        Limit::ReceiverApplication | Limit::ReceiveWindow
    ) {
        return None;
    }
    let busy = machine::busy_with_file(figures, &figures.evidence.receiver_machine)?;
    Some(Finding::new(ReceiverApplicationVerdict::Storage, busy))
}

impl LimitText for ReceiverApplicationVerdict {
    fn sentence(&self, figures: &SenderView, finding: &Finding) -> String {
        let most_room = slow_reader::largest_window(figures);
        match self {
            ReceiverApplicationVerdict::Storage => {
                format!(
                    "Writing the file holds the transfer back: it took {} of the receiver's time.",
                    finding.share
                )
            }
            ReceiverApplicationVerdict::SlowReader if figures.evidence.http2_wait.is_some() => {
                format!(
                    "The receiving program reads too slowly: for {} of the time its HTTP/2 window lets nothing more \
                     be sent.",
                    finding.share
                )
            }
            ReceiverApplicationVerdict::SlowReader if most_room == Some(ByteCount::ZERO) => {
                "The receiving program reads too slowly: its window stays closed.".to_owned()
            }
            ReceiverApplicationVerdict::SlowReader => format!(
                "The receiving program reads too slowly: it leaves room for {} at a time, where there was once room \
                 for {}.",
                size_text(figures.mean_size(|snapshot| snapshot.window)),
                size_text(most_room),
            ),
        }
    }

    fn captured_sentence(&self, view: &CaptureView, finding: &Finding) -> Option<String> {
        let of_receiver = view.figures.evidence.loaded_rtt?;
        (slow_reader::late_receiver(view).as_ref() == Some(finding)).then(|| {
            format!(
                "The receiver answers late: a round trip takes {} for the sender and {of_receiver} for the receiver, \
                 which has a queue of the path in its own; its program or its processor keeps the data waiting.",
                time_text(view.figures.rtt),
            )
        })
    }

    fn received_sentence(&self, arrivals: &ReceiverView, finding: &Finding) -> String {
        format!(
            "The program here reads too slowly: data waits in its receive buffer for {} of the time, and only {} \
             arrives.",
            finding.share, arrivals.rate
        )
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        receive_window::window_rows(figures)
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("whether its program, its disk or its processor is slow")
    }

    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        match self {
            ReceiverApplicationVerdict::Storage => vec![sender_application::FASTER_STORAGE],
            ReceiverApplicationVerdict::SlowReader => vec![
                ManualRemedy::new(
                    "faster-reader",
                    Scope::Application,
                    "The receiving program must take the data faster; no setting of TCP helps.",
                )
                .at_end(At::Receiver),
            ],
        }
    }
}
