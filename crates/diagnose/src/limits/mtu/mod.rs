//! Packets of the wrong size: too large for a link on the way, or needlessly small.

pub(crate) mod black_hole;
pub(crate) mod mss_clamped;

use fullpipe_record::{At, Evidence, MtuVerdict, Remedy, Scope};

use crate::advice::{ManualRemedy, RemedyAdvice};
use crate::finding::Finding;
use crate::limits::LimitText;
use crate::signals::{CaptureView, ReceiverView, Row, SenderView, syn_quotes};
use crate::text::{self, size_text};

impl LimitText for MtuVerdict {
    fn sentence(&self, figures: &SenderView, _finding: &Finding) -> String {
        let mss = size_text(figures.mss);
        match self {
            MtuVerdict::BlackHole => format!(
                "Packets with {mss} of data vanish on the path without an ICMP error: small packets pass, full ones do \
                 not."
            ),
            MtuVerdict::MssClamped => format!(
                "A device {} lowers the size of segments: they carry only {mss} of data where {} would fit; headers \
                 take the rest of the path, and {} of data arrives.",
                syn_quotes::device_place(figures.evidence),
                size_text(mss_clamped::possible_mss_of_sender(figures)),
                figures.rate,
            ),
        }
    }

    fn captured_sentence(&self, view: &CaptureView, finding: &Finding) -> Option<String> {
        (*self == Self::BlackHole).then_some(())?;
        if view.capture.only.is_some() {
            return Some(format!(
                "The sender repeats its first {} again and again, and no answer was captured: full packets vanish on \
                 the path, or all do.",
                view.passed_bytes()
            ));
        }
        let text = if !view.is_at_sender() {
            "The connection is open, and hardly any data came: full packets vanish on their way here, or the sender \
             has none to send."
        } else if finding.candidates.is_some() {
            "The connection is open, and hardly any data passed: full packets of the other end vanish on their way \
             here, or the programs have none to send."
        } else {
            return None;
        };
        Some(text.to_owned())
    }

    fn received_sentence(&self, arrivals: &ReceiverView, _finding: &Finding) -> String {
        match self {
            Self::MssClamped => format!(
                "Segments hold only {}, though this end would take larger ones: their headers take a part of what the \
                 path carries, of which {} is data.",
                size_text(arrivals.mss()),
                arrivals.rate
            ),
            Self::BlackHole => "No packet of the data arrives, though the connection is open and small packets pass: \
                                full ones vanish on the path, or the sender sends none."
                .to_owned(),
        }
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        text::trend_rows(figures)
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("the size of the packets that reached it")
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self {
            MtuVerdict::BlackHole => vec![black_hole::probe_the_mtu(advice)],
            MtuVerdict::MssClamped => Vec::new(),
        }
    }

    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        match self {
            MtuVerdict::BlackHole => vec![
                ManualRemedy::new(
                    "let-too-big-pass",
                    Scope::Path,
                    "A narrow link drops full packets and its ICMP error is filtered: let ICMP \
                     \"too big\" pass, and the sender learns the size at once.",
                ),
                ManualRemedy::new(
                    "lower-the-mtu",
                    Scope::Host,
                    "An MTU of the device, or of the route, that the narrow link lets pass: \
                     with it no packet is too large.",
                )
                .at_end(At::Sender),
            ],
            MtuVerdict::MssClamped => vec![ManualRemedy::new(
                "larger-segments",
                Scope::Path,
                "A device between the ends lowers the largest segment in the handshake: its \
                 clamp should be the MTU of its tunnel less the headers, no lower.",
            )],
        }
    }
}
