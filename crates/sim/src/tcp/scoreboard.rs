mod losses;

use std::collections::VecDeque;

pub(crate) use self::losses::LossRule;
use super::rate::SentRecord;

/// Segments of a chunk: as many as a mask has bits.
const CHUNK: u64 = 64;

/// The retransmission queue: what was sent and not yet acknowledged, with the marks of each
/// segment.
///
/// Segments that were sent together are one chunk, and their marks are bits of a few words; so no
/// chunk is ever cut. Most have no marks, and are small: there may be many connections.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    chunks: VecDeque<ScoreboardChunk>,
    /// `snd_una`.
    acknowledged: u64,
    /// `snd_nxt`.
    next: u64,
    /// Retransmissions by the time at which they were sent (with the chunks themselves
    /// `tsorted_sent_queue`).
    resent: VecDeque<RetransmittedSegment>,
    /// Segments with each mark: `sacked_out`, `lost_out`, `retrans_out`.
    pub(crate) sacked: u64,
    pub(crate) lost: u64,
    pub(crate) retransmitted: u64,
    /// Segments before this are not to be retransmitted (`retransmit_skb_hint`).
    resend_from: u64,
    /// Segments before this that were not retransmitted are marked already.
    detect_from: u64,
    /// The end of the highest segment that was selectively acknowledged (`highest_sack`).
    highest_sacked: u64,
    /// Segments that were, from and up to, of the latest blocks: blocks come again and again
    /// (`recv_sack_cache`).
    known: [(u64, u64); 3],
}

#[derive(Debug)]
struct ScoreboardChunk {
    first: u64,
    count: u64,
    sent: SentRecord,
    marks: Option<Box<SegmentMarks>>,
}

#[derive(Debug, Default)]
struct SegmentMarks {
    /// Selectively acknowledged.
    sacked: u64,
    lost: u64,
    /// Retransmitted, and as far as is known still in flight.
    retransmitted: u64,
    /// Ever retransmitted.
    ever: u64,
    /// Of retransmissions, each with the segments whose last one it was.
    resent: Vec<(u64, SentRecord)>,
}

/// The marks of a chunk that has none.
static UNMARKED: SegmentMarks = SegmentMarks {
    sacked: 0,
    lost: 0,
    retransmitted: 0,
    ever: 0,
    resent: Vec::new(),
};

#[derive(Debug, Clone, Copy)]
struct RetransmittedSegment {
    first: u64,
    count: u64,
    at: u64,
}

/// Segments that an acknowledgement newly delivers, which were sent at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeliveredSegments {
    pub(crate) first: u64,
    /// Behind the last of them.
    pub(crate) end: u64,
    pub(crate) segments: u64,
    pub(crate) sent: SentRecord,
    /// Sent more than once.
    pub(crate) again: bool,
}

impl ScoreboardChunk {
    const fn end_segment(&self) -> u64 {
        self.first + self.count
    }

    fn segment_marks(&self) -> &SegmentMarks {
        self.marks.as_deref().unwrap_or(&UNMARKED)
    }

    fn marks_mut(&mut self) -> &mut SegmentMarks {
        self.marks.get_or_insert_default()
    }

    /// The bits of the segments from `start` up to `end`.
    fn bits_of_range(&self, start: u64, end: u64) -> u64 {
        let low = start.saturating_sub(self.first).min(self.count);
        let high = end.saturating_sub(self.first).min(self.count);
        first_bits(high) & !first_bits(low)
    }

    /// Reports those of `bits` that are newly delivered, by the time at which they were sent.
    fn report_delivered(&self, bits: u64, report: &mut impl FnMut(DeliveredSegments)) {
        let once = bits & !self.segment_marks().ever;
        if once != 0 {
            report(self.delivered_part(once, self.sent, false));
        }
        for &(resent, sent) in &self.segment_marks().resent {
            if bits & resent != 0 {
                report(self.delivered_part(bits & resent, sent, true));
            }
        }
    }

    fn delivered_part(&self, bits: u64, sent: SentRecord, again: bool) -> DeliveredSegments {
        DeliveredSegments {
            first: self.first + u64::from(bits.trailing_zeros()),
            end: self.first + u64::from(u64::BITS - bits.leading_zeros()),
            segments: low_bits(bits),
            sent,
            again,
        }
    }

    /// Drops the first `count` segments.
    fn trim_front(&mut self, count: u64) {
        self.first += count;
        self.count -= count;
        let Some(marks) = &mut self.marks else { return };
        for marks in [
            &mut marks.sacked,
            &mut marks.lost,
            &mut marks.retransmitted,
            &mut marks.ever,
        ] {
            *marks >>= count;
        }
        marks
            .resent
            .iter_mut()
            .for_each(|(bits, _)| *bits >>= count);
    }
}

impl Scoreboard {
    pub(crate) fn acknowledged_segments(&self) -> u64 {
        self.acknowledged
    }

    pub(crate) fn next_segment(&self) -> u64 {
        self.next
    }

    /// `packets_out`.
    pub(crate) fn packets_out(&self) -> u64 {
        self.next - self.acknowledged
    }

    /// `tcp_packets_in_flight`.
    pub(crate) fn in_flight(&self) -> u64 {
        (self.packets_out() + self.retransmitted).saturating_sub(self.sacked + self.lost)
    }

    /// Returns true if segments are lost that were not retransmitted.
    #[inline]
    pub(crate) fn has_to_resend(&self) -> bool {
        self.lost > self.retransmitted
    }

    /// Trains that are kept.
    pub(crate) fn chunk_count(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// `tcp_highest_sack_seq`.
    pub(crate) fn highest_sacked(&self) -> u64 {
        if self.sacked == 0 {
            self.acknowledged
        } else {
            self.highest_sacked
        }
    }

    /// When the first outstanding segment was last sent.
    pub(crate) fn head_sent_at(&self) -> Option<u64> {
        let head = self.chunks.front()?;
        let again = head
            .segment_marks()
            .resent
            .iter()
            .find(|(bits, _)| bits & 1 != 0);
        Some(again.map_or(head.sent.at, |(_, sent)| sent.at))
    }

    /// Returns true if the first outstanding segment was ever retransmitted.
    pub(crate) fn head_was_resent(&self) -> bool {
        self.chunks
            .front()
            .is_some_and(|head| head.segment_marks().ever & 1 != 0)
    }

    /// Adds `count` new segments.
    pub(crate) fn push_segments(&mut self, count: u64, sent: SentRecord) {
        let mut left = count;
        while left > 0 {
            let count = left.min(CHUNK);
            if self.chunks.len() == self.chunks.capacity() {
                self.make_room();
            }
            self.chunks.push_back(ScoreboardChunk {
                first: self.next,
                count,
                sent,
                marks: None,
            });
            self.next += count;
            left -= count;
        }
    }

    /// Of many connections, chunks take most room: they do not take twice of what they need.
    #[cold]
    fn make_room(&mut self) {
        self.chunks.reserve_exact(self.chunks.len() / 4 + 4);
    }

    /// Takes away everything before `next`, and reports what was not known to be delivered
    /// (`tcp_clean_rtx_queue`).
    pub(crate) fn acknowledge_before(
        &mut self,
        next: u64,
        mut report: impl FnMut(DeliveredSegments),
    ) {
        while let Some(chunk) = self.chunks.front_mut() {
            if chunk.first >= next {
                break;
            }
            let count = (next - chunk.first).min(chunk.count);
            let bits = first_bits(count);
            chunk.report_delivered(bits & !chunk.segment_marks().sacked, &mut report);
            if let Some(marks) = &chunk.marks {
                self.sacked -= low_bits(marks.sacked & bits);
                self.lost -= low_bits(marks.lost & bits);
                self.retransmitted -= low_bits(marks.retransmitted & bits);
            }
            if count == chunk.count {
                self.chunks.pop_front();
            } else {
                chunk.trim_front(count);
            }
        }
        self.acknowledged = next;
    }

    /// Marks the segments from `start` up to `end` as delivered out of order, and reports those
    /// that were not known to be (`tcp_sacktag_one`).
    pub(crate) fn sack_range(
        &mut self,
        start: u64,
        end: u64,
        mut report: impl FnMut(DeliveredSegments),
    ) {
        let Some(start) = self.learn_block(start, end) else {
            return;
        };
        let from = self.chunk_index(start.max(self.acknowledged));
        for chunk in self.chunks.range_mut(from..) {
            if chunk.first >= end {
                break;
            }
            let bits = chunk.bits_of_range(start, end) & !chunk.segment_marks().sacked;
            if bits == 0 {
                continue;
            }
            chunk.report_delivered(bits, &mut report);
            let marks = chunk.marks_mut();
            marks.sacked |= bits;
            self.sacked += low_bits(bits);
            self.lost -= low_bits(marks.lost & bits);
            // A retransmission of what was not lost is still in flight.
            self.retransmitted -= low_bits(marks.lost & marks.retransmitted & bits);
            marks.retransmitted &= !(marks.lost & bits);
            marks.lost &= !bits;
            self.highest_sacked = self
                .highest_sacked
                .max(chunk.first + u64::from(u64::BITS - bits.leading_zeros()));
        }
    }

    /// Notes a block. Returns the first segment of it that is not known to be delivered by a block
    /// that began no later.
    fn learn_block(&mut self, start: u64, end: u64) -> Option<u64> {
        let Some((_, known)) = self
            .known
            .iter_mut()
            .find(|(from, to)| (*from..=*to).contains(&start))
        else {
            self.known.rotate_right(1);
            self.known[0] = (start, end);
            return Some(start);
        };
        let new = *known;
        *known = end.max(new);
        (new < end).then_some(new)
    }

    /// Sends the first lost segments again, at most `most` that were sent together; returns the
    /// first and their number (`tcp_xmit_retransmit_queue`).
    pub(crate) fn retransmit_lost(
        &mut self,
        most: u64,
        sent: impl FnOnce() -> SentRecord,
    ) -> Option<(u64, u64)> {
        if !self.has_to_resend() {
            return None;
        }
        let mut at = self.chunk_index(self.resend_from.max(self.acknowledged));
        while let Some(chunk) = self.chunks.get(at) {
            let waiting = chunk.segment_marks().lost & !chunk.segment_marks().retransmitted;
            if waiting != 0 {
                let low = u64::from(waiting.trailing_zeros());
                let run = u64::from((!(waiting >> low)).trailing_zeros()).min(chunk.count - low);
                let first = chunk.first + low;
                self.resend_from = first;
                return Some(self.resend_of(at, first, run.min(most), sent(), true));
            }
            self.resend_from = chunk.end_segment();
            at += 1;
        }
        self.resend_from = self.next;
        None
    }

    /// Sends the last segment again: a loss probe (`tcp_send_loss_probe`), which does not count as
    /// a retransmission in flight. None if nothing is outstanding.
    pub(crate) fn resend_last(&mut self, sent: SentRecord) -> Option<(u64, u64)> {
        let at = self.chunks.len().checked_sub(1)?;
        Some(self.resend_of(at, self.next - 1, 1, sent, false))
    }

    fn resend_of(
        &mut self,
        at: usize,
        first: u64,
        count: u64,
        sent: SentRecord,
        mark: bool,
    ) -> (u64, u64) {
        if let Some(chunk) = self.chunks.get_mut(at) {
            let bits = chunk.bits_of_range(first, first + count);
            let marks = chunk.marks_mut();
            if mark {
                self.retransmitted += low_bits(bits & !marks.retransmitted);
                marks.retransmitted |= bits;
            }
            marks.ever |= bits;
            marks
                .resent
                .iter_mut()
                .for_each(|(resent, _)| *resent &= !bits);
            marks.resent.retain(|(resent, _)| *resent != 0);
            marks.resent.push((bits, sent));
            self.resent.push_back(RetransmittedSegment {
                first,
                count,
                at: sent.at,
            });
        }
        (first, count)
    }

    /// Index of the chunk that holds `segment`.
    fn chunk_index(&self, segment: u64) -> usize {
        match self.chunks.front() {
            Some(head) if segment >= head.end_segment() => self
                .chunks
                .partition_point(|chunk| chunk.end_segment() <= segment),
            _ => 0,
        }
    }
}

fn first_bits(count: u64) -> u64 {
    if count >= CHUNK {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

fn low_bits(bits: u64) -> u64 {
    u64::from(bits.count_ones())
}

#[cfg(test)]
mod tests;
