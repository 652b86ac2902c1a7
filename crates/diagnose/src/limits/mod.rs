//! One module a limit: its rules, the figures of a verdict, its sentence and its remedies.

pub(crate) mod application_window;
pub(crate) mod capacity;
pub(crate) mod congestion_window;
pub(crate) mod cpu;
pub(crate) mod loss;
pub(crate) mod mtu;
pub(crate) mod pacing;
pub(crate) mod receive_window;
pub(crate) mod receiver_application;
pub(crate) mod send_buffer;
pub(crate) mod sender_application;
pub(crate) mod sender_itself;
pub(crate) mod unknown;

use fullpipe_record::{Evidence, LegalVerdict, Remedy};

use crate::advice::{ManualRemedy, RemedyAdvice};
use crate::finding::Finding;
use crate::signals::{CaptureView, ReceiverView, Row, SenderView};

/// What is said of a verdict, and what helps against it.
pub(crate) trait LimitText {
    /// Returns one plain sentence with the figures that matter, for readers who are new to TCP.
    fn sentence(&self, figures: &SenderView, finding: &Finding) -> String;

    /// Returns the sentence on a capture, where that shows the limit by other figures than the hosts
    /// do.
    fn captured_sentence(&self, _view: &CaptureView, _finding: &Finding) -> Option<String> {
        None
    }

    /// Returns the sentence on a transfer of which the receiving end alone was seen.
    fn received_sentence(&self, arrivals: &ReceiverView, finding: &Finding) -> String;

    /// Returns the figures that decided.
    fn shown_rows(&self, figures: &SenderView) -> Vec<Row>;

    /// Returns what samples of the receiving end would add to a verdict from the sending end alone.
    fn other_end_would_show(&self) -> Option<&'static str> {
        None
    }

    /// Returns the remedies that changes of the hosts or of the load carry out.
    fn setting_remedies(&self, _advice: &RemedyAdvice) -> Vec<Remedy> {
        Vec::new()
    }

    /// Returns the remedies that only a person can carry out, the best first.
    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        Vec::new()
    }
}

/// Returns what is said of a verdict.
pub(crate) fn limit_text(verdict: LegalVerdict) -> Box<dyn LimitText> {
    match verdict {
        LegalVerdict::ReceiveWindow(verdict) => Box::new(verdict),
        LegalVerdict::ReceiverApplication(verdict) => Box::new(verdict),
        LegalVerdict::SendBuffer(verdict) => Box::new(verdict),
        LegalVerdict::SenderApplication(verdict) => Box::new(verdict),
        LegalVerdict::ApplicationWindow(verdict) => Box::new(verdict),
        LegalVerdict::CongestionWindow(verdict) => Box::new(verdict),
        LegalVerdict::Capacity(verdict) => Box::new(verdict),
        LegalVerdict::Loss(verdict) => Box::new(verdict),
        LegalVerdict::Pacing(verdict) => Box::new(verdict),
        LegalVerdict::Cpu(verdict) => Box::new(verdict),
        LegalVerdict::Mtu(verdict) => Box::new(verdict),
        LegalVerdict::Unknown(verdict) => Box::new(verdict),
    }
}
