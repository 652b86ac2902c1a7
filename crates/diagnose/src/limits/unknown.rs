//! Evidence that shows no limit.

use fullpipe_record::{At, UnknownVerdict};

use crate::finding::Finding;
use crate::limits::LimitText;
use crate::signals::{CaptureView, ReceiverView, Row, SenderView};
use crate::text;

impl LimitText for UnknownVerdict {
    fn sentence(&self, _figures: &SenderView, finding: &Finding) -> String {
        match self {
            UnknownVerdict::EvidenceMissing => {
                format!(
                    "The evidence does not show what limits this transfer; missing: {}.",
                    finding.missing.join(", ")
                )
            }
        }
    }

    fn captured_sentence(&self, view: &CaptureView, _finding: &Finding) -> Option<String> {
        let seen = if view.capture.only? == At::Sender {
            let rate = view.figures.rate;
            format!("the sender's packets were captured, {rate}, and none of those that go back")
        } else {
            "the receiver's packets were captured, and none of the data that they acknowledge"
                .to_owned()
        };
        Some(format!(
            "Only {seen}: nothing shows what limits this transfer. A capture of the other direction would, or one at \
             either end."
        ))
    }

    fn received_sentence(&self, arrivals: &ReceiverView, _finding: &Finding) -> String {
        format!(
            "{} arrives, this end could take more, and nothing is lost: only the sender knows what holds it back.",
            arrivals.rate
        )
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        text::trend_rows(figures)
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("its windows, buffers and processor")
    }
}
