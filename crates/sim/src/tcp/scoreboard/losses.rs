use std::cmp::Ordering;

use super::{RetransmittedSegment, Scoreboard, ScoreboardChunk, first_bits, low_bits};

/// Loss by time, as RACK has it (RFC 8985): what was sent before `(at, end)` and is not delivered
/// `after` microseconds later, is lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossRule {
    /// When the segment was sent that was sent last of all that were delivered, and its end.
    pub(crate) newest: (u64, u64),
    pub(crate) now: u64,
    /// `rack.rtt_us` and the reordering window.
    pub(crate) after: u64,
}

/// Result of marking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MarkedLosses {
    /// Segments newly marked as lost, retransmissions that were lost again included.
    pub(crate) lost: u64,
    /// Of those, retransmissions.
    pub(crate) again: u64,
    /// Microseconds until the last of those that may yet be lost is.
    pub(crate) wait: Option<u64>,
}

impl LossRule {
    /// Microseconds until a segment sent at `at` is lost; zero if it is (`tcp_rack_skb_timeout`).
    fn remaining_micros(&self, at: u64) -> u64 {
        self.after.saturating_sub(self.now.saturating_sub(at))
    }

    /// The end of those segments, sent at `at` and numbered up to `end`, that were sent before the
    /// newest that was delivered (`tcp_skb_sent_after`): of those sent at the same time, the ones
    /// with lower numbers.
    fn covered_end(&self, at: u64, end: u64) -> u64 {
        match at.cmp(&self.newest.0) {
            Ordering::Less => end,
            Ordering::Equal => end.min(self.newest.1.saturating_sub(1)),
            Ordering::Greater => 0,
        }
    }
}

impl Scoreboard {
    /// Marks as lost what `rule` says (`tcp_rack_detect_loss`).
    pub(crate) fn detect_losses(&mut self, rule: LossRule) -> MarkedLosses {
        let mut marked = MarkedLosses::default();
        self.detect_first(rule, &mut marked);
        self.detect_resent(rule, &mut marked);
        marked
    }

    fn detect_first(&mut self, rule: LossRule, marked: &mut MarkedLosses) {
        let mut from = self.detect_from.max(self.acknowledged);
        let start = self.chunk_index(from);
        for chunk in self.chunks.range_mut(start..) {
            let end = rule.covered_end(chunk.sent.at, chunk.end_segment());
            if end <= chunk.first {
                break;
            }
            let remaining = rule.remaining_micros(chunk.sent.at);
            let marks = chunk.segment_marks();
            let bits =
                chunk.bits_of_range(chunk.first, end) & !(marks.sacked | marks.lost | marks.ever);
            if remaining > 0 && bits != 0 {
                marked.wait = marked.wait.max(Some(remaining));
                continue;
            }
            if bits != 0 {
                chunk.marks_mut().lost |= bits;
                self.lost += low_bits(bits);
                marked.lost += low_bits(bits);
                self.resend_from = self.resend_from.min(chunk.first);
            }
            if marked.wait.is_none() {
                from = end;
            }
        }
        self.detect_from = from;
    }

    fn detect_resent(&mut self, rule: LossRule, marked: &mut MarkedLosses) {
        let mut waiting = 0;
        while let Some(&RetransmittedSegment { first, count, at }) = self.resent.get(waiting) {
            let in_flight = self.still_in_flight(first, count, at);
            let end = rule.covered_end(at, first + count);
            if in_flight > 0 && end <= first {
                return;
            }
            let remaining = rule.remaining_micros(at);
            if in_flight > 0 && remaining > 0 {
                marked.wait = marked.wait.max(Some(remaining));
            }
            if waiting > 0 || (in_flight > 0 && remaining > 0) {
                waiting += 1;
                continue;
            }
            let lost = if in_flight > 0 {
                self.lose_again(first, end - first, at)
            } else {
                0
            };
            marked.lost += lost;
            marked.again += lost;
            self.resent.pop_front();
            if in_flight > lost {
                self.resent.push_front(RetransmittedSegment {
                    first: end,
                    count: first + count - end,
                    at,
                });
                return;
            }
        }
    }

    /// Segments of a retransmission that are still in flight by it.
    fn still_in_flight(&self, first: u64, count: u64, at: u64) -> u64 {
        let chunks = self
            .chunks
            .range(self.chunk_index(first)..)
            .take_while(|chunk| chunk.first < first + count);
        chunks
            .map(|chunk| low_bits(resent_bits(chunk, first, count, at)))
            .sum()
    }

    /// `tcp_mark_skb_lost` of a retransmission.
    fn lose_again(&mut self, first: u64, count: u64, at: u64) -> u64 {
        let start = self.chunk_index(first);
        let mut lost = 0;
        for chunk in self.chunks.range_mut(start..) {
            if chunk.first >= first + count {
                break;
            }
            let bits = resent_bits(chunk, first, count, at);
            if bits == 0 {
                continue;
            }
            let marks = chunk.marks_mut();
            lost += low_bits(bits);
            // One that was retransmitted on a guess was not marked yet.
            self.lost += low_bits(bits & !marks.lost);
            self.retransmitted -= low_bits(bits & marks.retransmitted);
            marks.lost |= bits;
            marks.retransmitted &= !bits;
            self.resend_from = self.resend_from.min(chunk.first);
        }
        lost
    }

    /// Marks as lost everything that was not delivered, but what was sent so recently that `rule`
    /// would wait for it; the first segment in any case (`tcp_timeout_mark_lost`). Returns the
    /// number of segments newly marked.
    pub(crate) fn lose_all(&mut self, rule: LossRule) -> u64 {
        let mut marked = 0;
        let acknowledged = self.acknowledged;
        for chunk in &mut self.chunks {
            let marks = chunk.marks.get_or_insert_default();
            let mut bits = first_bits(chunk.count) & !marks.sacked;
            let mut spared = 0;
            if rule.remaining_micros(chunk.sent.at) > 0 {
                spared = bits & !marks.ever;
            }
            for (resent, sent) in &marks.resent {
                if rule.remaining_micros(sent.at) > 0 {
                    spared |= bits & resent;
                }
            }
            if chunk.first == acknowledged {
                spared &= !1;
            }
            bits &= !spared;
            marked += low_bits(bits & (!marks.lost | marks.retransmitted));
            self.lost += low_bits(bits & !marks.lost);
            self.retransmitted -= low_bits(bits & marks.retransmitted);
            marks.lost |= bits;
            marks.retransmitted &= !bits;
        }
        self.resend_from = acknowledged;
        marked
    }

    /// Takes the marks of losses away (`tcp_undo_cwnd_reduction`).
    pub(crate) fn forget_losses(&mut self) {
        self.chunks
            .iter_mut()
            .filter_map(|chunk| chunk.marks.as_mut())
            .for_each(|marks| marks.lost = 0);
        self.lost = 0;
        self.resend_from = self.acknowledged;
        self.detect_from = self.acknowledged;
    }
}

/// The segments of a retransmission that are in flight by it, and not delivered; those of a loss
/// probe have no mark.
fn resent_bits(chunk: &ScoreboardChunk, first: u64, count: u64, at: u64) -> u64 {
    let marks = chunk.segment_marks();
    let by_it = marks
        .resent
        .iter()
        .filter(|(_, sent)| sent.at == at)
        .fold(0, |all, (bits, _)| all | bits);
    chunk.bits_of_range(first, first + count)
        & by_it
        & (marks.retransmitted | !marks.lost)
        & !marks.sacked
}
