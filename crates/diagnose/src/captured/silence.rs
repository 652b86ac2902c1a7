//! Captured transfers over which hardly anything came.

use fullpipe_record::{MtuVerdict, SenderApplicationVerdict};
use fullpipe_units::{ByteCount, Ratio};

use crate::finding::LimitFinding;
use crate::limits::mtu;
use crate::signals::CaptureView;
use crate::thresholds::{FEW_SEGMENTS, MAX_FIRST_WINDOW};

impl CaptureView<'_> {
    /// Finds a connection over which hardly any data comes: it is open, or its sender sent much
    /// more.
    pub(crate) fn hardly_anything(&self) -> Option<LimitFinding> {
        let few = self.has_few();
        if few == Some(true) && self.has_vanished(FEW_SEGMENTS) {
            return Some(LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE));
        }
        let found = few != Some(false) && self.is_open() && !self.is_at_sender();
        found.then(|| self.cause_of_silence())
    }

    /// Finds a sender that sends no more than its first window, and that again and again when its
    /// timer expires: no answer comes, whether one would pass here or not. A transfer of which the
    /// answers pass elsewhere goes on.
    pub(crate) fn repeats_in_vain(&self) -> Option<LimitFinding> {
        let is_first_window =
            self.passed_bytes() <= MAX_FIRST_WINDOW && self.passed_bytes() > ByteCount::ZERO;
        let found = is_first_window && self.figures.flows.iter().all(mtu::repeats_without_more);
        found.then(|| LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE))
    }

    /// Finds an open connection over which its larger sender sent hardly anything: all of the other
    /// one's data may have vanished on its way here.
    pub(crate) fn little_and_no_answer(&self) -> Option<LimitFinding> {
        let found = self.has_few()? && self.is_open() && !self.figures.ever_lost();
        found.then(|| self.cause_of_silence())
    }

    /// Returns true if more may come, and nothing shows that full segments pass.
    fn is_open(&self) -> bool {
        !self.capture.closed && !self.capture.full_segment_acknowledged
    }

    /// Returns the cause of a silence. Only data that is missing shows a black hole: a program that
    /// has nothing to send is as silent as one whose segments all vanish.
    fn cause_of_silence(&self) -> LimitFinding {
        if self.has_vanished(1) || self.waits_unanswered() {
            return LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE).one_of_several();
        }
        LimitFinding::new(SenderApplicationVerdict::Idle, Ratio::ONE)
            .add_alternative(MtuVerdict::BlackHole)
    }

    /// Returns true if so many segments did not come here that the sender had sent, by the sequence
    /// numbers of its later packets.
    fn has_vanished(&self, segments: u64) -> bool {
        self.figures
            .mss
            .is_some_and(|mss| self.capture.unseen >= mss * segments)
    }

    /// Returns true if a full segment or more was not acknowledged at last: there is a gap below
    /// what came here, or it vanished behind this place.
    fn waits_unanswered(&self) -> bool {
        self.figures.mss.is_some_and(|mss| {
            let mut last = self
                .figures
                .flows
                .iter()
                .filter_map(|flow| flow.whole.last());
            last.any(|last| last.outstanding_bytes() >= Some(mss))
        })
    }

    /// Returns true if the data fits a few segments; `None` where their size is not known.
    fn has_few(&self) -> Option<bool> {
        Some(self.passed_bytes() < self.figures.mss? * FEW_SEGMENTS)
    }

    /// Returns the data that was acknowledged or, if that is more, passed here, all streams
    /// together.
    pub(super) fn passed_bytes(&self) -> ByteCount {
        let last = self.figures.flows.iter().map(|flow| flow.whole.last());
        let passed = last.flatten().map(|sample| {
            let sent = sample.tcp.bytes_sent.unwrap_or_default();
            let again = sample.tcp.bytes_retrans.unwrap_or_default();
            sample.bytes.max(sent.saturating_sub(again))
        });
        passed.sum()
    }
}
