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

use fullpipe_record::{LegalVerdict, Remedy};

use crate::finding::Finding;
use crate::remedies::advice::RemedyAdvice;
use crate::remedies::manual_remedy::ManualRemedy;
use crate::signals::sender::SenderView;
use crate::text::Row;

/// The figures of a verdict, taken once from the evidence.
pub(crate) trait LimitFacts {
    /// Returns one plain sentence with the figures that matter, for readers who are new to TCP.
    fn sentence(&self) -> String;

    /// Returns the figures that decided.
    fn shown_rows(&self) -> Vec<Row>;

    /// Returns what samples of the receiving end would add to a verdict from the sending end alone.
    fn other_end_would_show(&self) -> Option<&'static str> {
        None
    }

    /// Returns the remedies that changes of the hosts or of the load carry out.
    fn setting_remedies(&self, _advice: &RemedyAdvice) -> Vec<Remedy> {
        Vec::new()
    }

    /// Returns the remedies that only a person can carry out, the best first.
    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        &[]
    }
}

/// Returns the figures of what was found.
pub(crate) fn limit_facts(finding: &Finding, figures: &SenderView) -> Box<dyn LimitFacts> {
    let share = finding.share;
    match finding.verdict {
        LegalVerdict::ReceiveWindow(verdict) => Box::new(
            receive_window::ReceiveWindowFacts::from_figures(verdict, figures),
        ),
        LegalVerdict::ReceiverApplication(verdict) => Box::new(
            receiver_application::ReceiverProgramFacts::from_figures(verdict, share, figures),
        ),
        LegalVerdict::SendBuffer(verdict) => {
            Box::new(send_buffer::SendBuffer::from_figures(verdict, figures))
        }
        LegalVerdict::SenderApplication(verdict) => Box::new(
            sender_application::SenderProgramFacts::from_figures(verdict, share, figures),
        ),
        LegalVerdict::ApplicationWindow(verdict) => Box::new(
            application_window::ApplicationWindowFacts::from_figures(verdict, figures),
        ),
        LegalVerdict::CongestionWindow(verdict) => Box::new(
            congestion_window::CongestionWindowFacts::from_figures(verdict, figures),
        ),
        LegalVerdict::Capacity(verdict) => {
            Box::new(capacity::FullPipe::from_figures(verdict, figures))
        }
        LegalVerdict::Loss(verdict) => Box::new(loss::LossFacts::from_figures(verdict, figures)),
        LegalVerdict::Pacing(verdict) => {
            Box::new(pacing::PacingFacts::from_figures(verdict, figures))
        }
        LegalVerdict::Cpu(verdict) => {
            Box::new(cpu::CpuFacts::from_figures(verdict, share, figures))
        }
        LegalVerdict::Mtu(verdict) => Box::new(mtu::PacketSize::from_figures(verdict, figures)),
        LegalVerdict::Unknown(verdict) => Box::new(unknown::UnknownLimitFacts::from_finding(
            verdict, finding, figures,
        )),
    }
}
