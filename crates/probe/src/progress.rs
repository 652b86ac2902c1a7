//! A transfer under way, seen from one end: what the omitted time left out, intervals, and its end.

use std::time::Instant;

use fullpipe_load::{StreamTotals, Totals, Transfer};
use fullpipe_record::{Direction, Interval, Request, Sample};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

/// Bytes and retransmissions up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) totals: Totals,
    /// By stream; empty where the kernel does not count them.
    pub(crate) retransmits: Vec<SegCount>,
}

/// A transfer and the marks taken of it.
pub(crate) struct Progress {
    transfer: Transfer,
    request: Request,
    started: Mark,
    omitted: Option<Mark>,
    interval: Mark,
    boundaries: Boundaries,
    ended: Option<Mark>,
}

/// When intervals end: at whole multiples of their length, so that looks that come late do not add up.
struct Boundaries {
    length: Span,
    next: Span,
}

/// A transfer that is over, between its marks.
pub(crate) struct Finished {
    /// When its data began to flow.
    pub(crate) origin: Instant,
    /// Where counting began.
    pub(crate) from: Mark,
    /// Where it ended.
    pub(crate) to: Mark,
    /// What the streams did in all.
    pub(crate) rest: StreamTotals,
}

impl Progress {
    pub(crate) fn new(transfer: Transfer, request: Request) -> Self {
        let started = Mark {
            totals: Totals { at: Span::ZERO, streams: vec![ByteCount::ZERO; request.streams.into()] },
            retransmits: vec![SegCount::ZERO; request.streams.into()],
        };
        let boundaries = Boundaries { length: request.interval, next: request.interval };
        Self { transfer, request, omitted: None, interval: started.clone(), boundaries, ended: None, started }
    }

    pub(crate) fn origin(&self) -> Instant {
        self.transfer.origin()
    }

    /// Looks at the transfer: marks the end of the omitted time, and gives the interval that has passed, if one has.
    pub(crate) fn look(&mut self) -> Option<Interval> {
        let elapsed: Span = self.origin().elapsed().into();
        if self.omitted.is_none() && elapsed >= self.request.omit {
            let at_once = self.request.omit == Span::ZERO;
            self.omitted = Some(if at_once { self.started.clone() } else { self.mark() });
        }
        if self.ended.is_some() {
            return None;
        }
        let boundary = self.boundaries.passed(elapsed)?;
        Some(self.close_interval(boundary))
    }

    /// Whether this end, the client, should end the transfer: the time has passed, the bytes have arrived, or all
    /// connections are gone.
    pub(crate) fn is_due(&self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let elapsed: Span = self.origin().elapsed().into();
        match (self.request.bytes, self.request.direction) {
            (None, _) => elapsed >= self.request.omit + self.request.duration || self.transfer.is_over(),
            (Some(_), Direction::Upload) => self.transfer.is_over() && self.transfer.is_drained(),
            (Some(wanted), Direction::Download) => {
                self.transfer.totals().streams.into_iter().sum::<ByteCount>() >= wanted || self.transfer.is_over()
            }
        }
    }

    /// Whether the end is marked already.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Marks the end and sends no more; the last interval, if it is not empty. The first end counts.
    pub(crate) fn end(&mut self) -> Option<Interval> {
        const SHORTEST: Span = Span::from_millis(1);
        if self.has_ended() {
            return None;
        }
        let mark = self.mark();
        let rest = mark.totals.at.saturating_sub(self.interval.totals.at);
        let last = (rest >= SHORTEST).then(|| self.close_interval(mark.totals.at));
        self.transfer.stop_sending();
        self.ended = Some(mark);
        last
    }

    /// After the end, lets the other end see that no more will come. A server does so: an iperf3 client that drains its
    /// download reads whole blocks, and would wait for the rest of the last.
    pub(crate) fn close_sending(&self) {
        self.transfer.close_sending();
    }

    /// Ends everything.
    pub(crate) fn finish(mut self) -> Finished {
        if self.ended.is_none() {
            self.end();
        }
        let to = self.ended.unwrap_or_else(|| self.started.clone());
        // A transfer that ended within its omitted time has nothing that counts.
        let from = self.omitted.unwrap_or_else(|| to.clone());
        Finished { origin: self.transfer.origin(), from, to, rest: self.transfer.finish() }
    }

    fn mark(&self) -> Mark {
        let latest = self.transfer.latest();
        let retransmits: Option<Vec<SegCount>> = latest.iter().map(|sample| sample.tcp.total_retrans).collect();
        Mark { totals: self.transfer.totals(), retransmits: retransmits.unwrap_or_default() }
    }

    /// The interval that was to end at `boundary`; it ends now, which is a little later.
    fn close_interval(&mut self, boundary: Span) -> Interval {
        let now = self.mark();
        let latest = self.transfer.latest();
        let before = std::mem::replace(&mut self.interval, now.clone());
        let bytes = sum(&now.totals.streams).saturating_sub(sum(&before.totals.streams));
        let span = now.totals.at.saturating_sub(before.totals.at);
        let sends = self.request.direction == Direction::Upload;
        Interval {
            from: before.totals.at,
            to: now.totals.at,
            bytes,
            rate: BitRate::of(bytes, span),
            retransmits: sends.then(|| sum(&now.retransmits).saturating_sub(sum(&before.retransmits))),
            rtt: latest.first().and_then(|sample| sample.tcp.rtt),
            cwnd: if sends { latest.iter().map(Sample::congestion_window).sum() } else { None },
            omitted: boundary <= self.request.omit,
        }
    }
}

impl Boundaries {
    /// The latest boundary up to `elapsed`, once. An interval of no length has none: only the whole is reported then.
    fn passed(&mut self, elapsed: Span) -> Option<Span> {
        if self.length == Span::ZERO || elapsed < self.next {
            return None;
        }
        let passed = self.length * (elapsed.as_nanos() / self.length.as_nanos());
        self.next = passed + self.length;
        Some(passed)
    }
}

impl Finished {
    /// How long was counted.
    pub(crate) fn duration(&self) -> Span {
        self.to.totals.at.saturating_sub(self.from.totals.at)
    }

    /// Bytes of each stream.
    pub(crate) fn bytes(&self) -> Vec<ByteCount> {
        differences(&self.from.totals.streams, &self.to.totals.streams, ByteCount::saturating_sub)
    }

    /// Retransmissions of each stream; empty where unknown.
    pub(crate) fn retransmits(&self) -> Vec<SegCount> {
        differences(&self.from.retransmits, &self.to.retransmits, SegCount::saturating_sub)
    }
}

fn differences<T: Copy>(from: &[T], to: &[T], less: impl Fn(T, T) -> T) -> Vec<T> {
    to.iter().zip(from).map(|(&to, &from)| less(to, from)).collect()
}

fn sum<T: Copy + std::iter::Sum>(counts: &[T]) -> T {
    counts.iter().copied().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_looks_do_not_move_the_boundaries() {
        let mut boundaries = Boundaries { length: Span::from_secs(1), next: Span::from_secs(1) };
        let passed: Vec<Span> = (0..1_000).filter_map(|look| boundaries.passed(Span::from_millis(look * 13))).collect();
        assert_eq!(passed, (1..=12).map(Span::from_secs).collect::<Vec<_>>());
    }

    #[test]
    fn boundaries_that_were_slept_through_count_once() {
        let mut boundaries = Boundaries { length: Span::from_secs(1), next: Span::from_secs(1) };
        assert_eq!(boundaries.passed(Span::from_millis(3_400)), Some(Span::from_secs(3)));
        assert_eq!(boundaries.passed(Span::from_millis(3_900)), None);
        assert_eq!(boundaries.passed(Span::from_secs(4)), Some(Span::from_secs(4)));
    }

    #[test]
    fn intervals_of_no_length_never_end() {
        let mut boundaries = Boundaries { length: Span::ZERO, next: Span::ZERO };
        assert_eq!(boundaries.passed(Span::from_secs(9)), None);
    }
}
