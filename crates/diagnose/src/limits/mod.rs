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
pub(crate) mod unknown;

use fullpipe_record::{LegalVerdict, Remedy};

use crate::advice::Advice;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::manual_remedy::ManualRemedy;
use crate::text::Row;

/// The figures of a verdict, taken once from the evidence.
pub(crate) trait Facts {
    /// Returns one plain sentence with the figures that matter, for readers who are new to TCP.
    fn sentence(&self) -> String;

    /// Returns the figures that decided.
    fn shown(&self) -> Vec<Row>;

    /// Returns the evidence that samples of the receiving end would add to a verdict from the
    /// sending end alone.
    fn other_end_would_show(&self) -> Option<&'static str>;

    /// Returns the remedies that changes of the hosts or of the load carry out.
    fn settings(&self, advice: &Advice) -> Vec<Remedy>;

    /// Returns the remedies that only a person can carry out, the best first.
    fn manual(&self) -> &'static [ManualRemedy];
}

/// Returns the figures of what was found.
pub(crate) fn facts(finding: &Finding, figures: &Figures) -> Box<dyn Facts> {
    let share = finding.share;
    match finding.verdict {
        LegalVerdict::ReceiveWindow(verdict) => Box::new(receive_window::Window::of(verdict, figures)),
        LegalVerdict::ReceiverApplication(verdict) => {
            Box::new(receiver_application::Reader::of(verdict, share, figures))
        }
        LegalVerdict::SendBuffer(verdict) => Box::new(send_buffer::SendBuffer::of(verdict, figures)),
        LegalVerdict::SenderApplication(verdict) => Box::new(sender_application::Writer::of(verdict, share, figures)),
        LegalVerdict::ApplicationWindow(verdict) => Box::new(application_window::Channel::of(verdict, figures)),
        LegalVerdict::CongestionWindow(verdict) => Box::new(congestion_window::Growth::of(verdict, figures)),
        LegalVerdict::Capacity(verdict) => Box::new(capacity::FullPipe::of(verdict, figures)),
        LegalVerdict::Loss(verdict) => Box::new(loss::Losses::of(verdict, figures)),
        LegalVerdict::Pacing(verdict) => Box::new(pacing::Pace::of(verdict, figures)),
        LegalVerdict::Cpu(verdict) => Box::new(cpu::Processor::of(verdict, share, figures)),
        LegalVerdict::Mtu(verdict) => Box::new(mtu::PacketSize::of(verdict, figures)),
        LegalVerdict::Unknown(verdict) => Box::new(unknown::Missing::of(verdict, finding, figures)),
    }
}
