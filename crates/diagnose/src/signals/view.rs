//! A transfer as it is seen: what a view does not show is `None`.

use crate::prelude::*;
use crate::signals::{CaptureView, ReceiverView, SenderView, path};

/// The end of which a transfer has samples.
pub(crate) enum SeenEnd<'v> {
    /// The sending one: its kernel, or what a capture shows of it.
    Sender(SenderView<'v>),
    /// The receiving one alone.
    Receiver(ReceiverView<'v>),
}

/// A transfer as one view shows it.
pub(crate) struct TransferView<'v> {
    pub(crate) evidence: &'v Evidence,
    pub(crate) end: SeenEnd<'v>,
    capture: Option<&'v CaptureEvidence>,
}

impl<'v> TransferView<'v> {
    pub(crate) fn from_evidence(evidence: &'v Evidence) -> Self {
        let is_of_receiver =
            evidence.sender_samples.is_empty() && !evidence.receiver_samples.is_empty();
        Self {
            evidence,
            end: if is_of_receiver {
                SeenEnd::Receiver(ReceiverView::from_evidence(evidence))
            } else {
                SeenEnd::Sender(SenderView::from_evidence(evidence))
            },
            capture: evidence.capture.as_ref(),
        }
    }

    /// Returns the view of a part of a transfer, which is too short for what only packets show.
    pub(crate) fn from_part(figures: SenderView<'v>) -> Self {
        Self {
            evidence: figures.evidence,
            end: SeenEnd::Sender(figures),
            capture: None,
        }
    }

    pub(crate) fn basis(&self) -> Basis {
        match (&self.end, self.capture) {
            (SeenEnd::Receiver(_), _) => Basis::Receiver,
            (_, Some(_)) => Basis::Capture,
            _ if self.evidence.receiver_samples.is_empty() => Basis::Sender,
            _ => Basis::BothEnds,
        }
    }

    /// Returns the samples of the sending end.
    pub(crate) fn sender(&self) -> Option<&SenderView<'v>> {
        match &self.end {
            SeenEnd::Sender(figures) => Some(figures),
            SeenEnd::Receiver(_) => None,
        }
    }

    /// Returns the samples of the receiving end, where there are no others.
    pub(crate) fn receiver(&self) -> Option<&ReceiverView<'v>> {
        match &self.end {
            SeenEnd::Sender(_) => None,
            SeenEnd::Receiver(arrivals) => Some(arrivals),
        }
    }

    /// Returns the samples of the sender's kernel; `None` of a capture and of the receiving end.
    pub(crate) fn kernel(&self) -> Option<&SenderView<'v>> {
        self.sender().filter(|_| self.capture.is_none())
    }

    /// Returns the packets of a capture.
    pub(crate) fn packets(&self) -> Option<CaptureView<'_>> {
        let (figures, capture) = (self.sender()?, self.capture?);
        Some(CaptureView { figures, capture })
    }

    /// Returns the mean rate of the judged part, all streams together.
    pub(crate) fn rate(&self) -> BitRate {
        match &self.end {
            SeenEnd::Sender(figures) => figures.rate,
            SeenEnd::Receiver(arrivals) => arrivals.rate,
        }
    }

    /// Returns the round-trip time under load.
    pub(crate) fn rtt(&self) -> Option<Span> {
        match &self.end {
            SeenEnd::Sender(figures) => figures.rtt,
            SeenEnd::Receiver(arrivals) => arrivals.rtt,
        }
    }

    /// Returns the payload of a full segment.
    pub(crate) fn mss(&self) -> Option<ByteCount> {
        match &self.end {
            SeenEnd::Sender(figures) => figures.mss,
            SeenEnd::Receiver(arrivals) => arrivals.mss(),
        }
    }

    /// Returns the payload that the stated bandwidth can carry.
    pub(crate) fn stated_capacity(&self) -> Option<BitRate> {
        match &self.end {
            SeenEnd::Sender(figures) => path::stated_capacity(figures),
            SeenEnd::Receiver(arrivals) => arrivals.stated_capacity(),
        }
    }
}
