//! A sending program that is slow, by itself, by request or for the file that it reads.

pub(crate) mod idle;
pub(crate) mod rate_limited;

use fullpipe_record::{Evidence, Limit, Remedy, Scope, SenderApplicationVerdict};

use crate::advice::{ManualRemedy, RemedyAdvice};
use crate::finding::Finding;
use crate::limits::LimitText;
use crate::signals::{CaptureView, ReceiverView, Row, SenderView, machine};
use crate::text::{self, rate_text};
use crate::thresholds::IDLE_CAPTURE_SHARE;

/// Returns the file that the sending program reads for most of the time, if `found` is that
/// program.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    if found.limit_kind() != Limit::SenderApplication {
        return None;
    }
    let busy = machine::busy_with_file(figures, &figures.evidence.sender_machine)?;
    Some(Finding::new(SenderApplicationVerdict::Storage, busy))
}

impl LimitText for SenderApplicationVerdict {
    fn sentence(&self, figures: &SenderView, finding: &Finding) -> String {
        let share = finding.share;
        match self {
            SenderApplicationVerdict::RateLimited => format!(
                "The sending program was asked for {} and offered no more; neither network nor buffers held it back.",
                rate_text(figures.offered_rate())
            ),
            SenderApplicationVerdict::Storage => {
                format!(
                    "Reading the file holds the transfer back: it took {share} of the sender's time."
                )
            }
            SenderApplicationVerdict::Idle => format!(
                "The sending program is slow: for {share} of the time it left the connection without enough to send; \
                 neither network nor buffers held it back."
            ),
        }
    }

    fn captured_sentence(&self, view: &CaptureView, finding: &Finding) -> Option<String> {
        let (rate, window, capture) = (view.figures.rate, view.window_text(), view.capture);
        Some(match self {
            Self::RateLimited if finding.candidates.is_some() => format!(
                "The sender offers no more: its data comes evenly, at {rate}, and neither the receiver nor the path \
                 holds it back. More was in flight at times, as of a program that catches up with its rate, or where \
                 a round trip took longer under a pace of its own."
            ),
            Self::RateLimited => format!(
                "The sending program offers no more: it writes evenly, at {rate}, and {} of its packets hold no full \
                 segments; neither the receiver nor the path holds it back.",
                capture.partial
            ),
            _ if finding.may_be(Limit::Mtu) && view.is_at_sender() => {
                "The connection is open, and hardly any data passed: the programs have none to send, or full packets \
                 of the other end vanish on their way here."
                    .to_owned()
            }
            _ if finding.may_be(Limit::Mtu) => {
                "The connection is open, and hardly any data came: the sender has none to send, or its full packets \
                 vanish on their way here."
                    .to_owned()
            }
            _ if capture.idle.get() >= IDLE_CAPTURE_SHARE => format!(
                "The sending program is slow: for {} of the time little is in flight, though the receiver allows \
                 {window} and nothing is lost then.",
                capture.idle
            ),
            _ => format!(
                "The sending program is slow: it sends at times of its own, and not as acknowledgements come, though \
                 the receiver allows {window} and nothing is lost; {rate} is what it offers."
            ),
        })
    }

    fn received_sentence(&self, arrivals: &ReceiverView, finding: &Finding) -> String {
        let (rate, share) = (arrivals.rate, finding.share);
        match self {
            Self::RateLimited => format!(
                "The sender was asked for a rate and offered no more: {rate} arrives, and nothing holds it back."
            ),
            _ if finding.may_be(Limit::SendBuffer) => format!(
                "{rate} arrives evenly, this end could take more, and nothing is lost: the sender has no more to send, \
                 or its buffer holds no more."
            ),
            _ if finding.may_be(Limit::Cpu) => format!(
                "The sender is silent for {share} of the time, longer than any window explains: its program has \
                 nothing to send, or gets no processor time."
            ),
            _ => format!(
                "The sender pauses for {share} of the time, which a round trip of {} does not explain: its program has \
                 nothing to send, unless round trips take longer under load.",
                arrivals.rtt.unwrap_or_default()
            ),
        }
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        vec![
            text::queued_row(figures),
            text::unsent_row(figures),
            text::idle_row(figures),
        ]
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self {
            SenderApplicationVerdict::RateLimited => {
                rate_limited::higher_rate(advice).into_iter().collect()
            }
            SenderApplicationVerdict::Idle | SenderApplicationVerdict::Storage => Vec::new(),
        }
    }

    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        match self {
            SenderApplicationVerdict::Storage => vec![FASTER_STORAGE],
            SenderApplicationVerdict::RateLimited => vec![ManualRemedy::new(
                "higher-rate",
                Scope::Application,
                "The sender keeps to the rate that it was asked for: ask for a higher one, or \
                 for none.",
            )],
            SenderApplicationVerdict::Idle => vec![ManualRemedy::new(
                "faster-writer",
                Scope::Application,
                "The sending program must supply the data faster; no setting of TCP helps.",
            )],
        }
    }
}

/// The remedy of a slow file at either end.
pub(crate) const FASTER_STORAGE: ManualRemedy = ManualRemedy::new(
    "faster-storage",
    Scope::Application,
    "The file is slower than the network: a faster disk, larger or parallel reads and writes, \
     or none at all (test without the file) would show what the network gives.",
);
