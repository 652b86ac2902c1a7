use fullpipe_record::Opportunities as Trace;
use fullpipe_units::{BitRate, ByteCount, Span, Time};

/// Billionths of a bit in a byte: what a rate in bits per second does in a nanosecond is a whole
/// number of them.
pub(crate) const WORK_PER_BYTE: u128 = 8_000_000_000;

/// Returns the bytes that so much work sends, the last of them perhaps in part.
pub(crate) fn bytes_for(work: u128) -> ByteCount {
    // Nearly always 64 bits suffice, and divide faster.
    ByteCount::new(match u64::try_from(work) {
        Ok(work) => work.div_ceil(WORK_PER_BYTE as u64),
        Err(_) => u64::try_from(work.div_ceil(WORK_PER_BYTE)).unwrap_or(u64::MAX),
    })
}

/// The rate or the moments at which a link can send.
#[derive(Debug, Clone)]
pub(crate) enum LinkCapacity {
    /// Steadily.
    Rate(BitRate),
    /// At certain moments.
    Opportunities(SendOpportunities),
}

/// The sending end of a link: turns bytes into moments.
///
/// The work of a server falls into busy periods. Within one, bytes are numbered from its first, and
/// at a constant rate byte n has been sent n × 8 ÷ rate after the period began: no rounding error
/// adds up from packet to packet, however long the period, and none at a change of the rate, up to
/// which the work done is known exactly.
#[derive(Debug)]
pub(crate) struct LinkServer {
    capacity: LinkCapacity,
    /// When `done` was the work done.
    since: Time,
    done: u128,
    /// Work of everything that has begun in this period.
    needed: u128,
}

impl LinkServer {
    pub(crate) fn new(capacity: LinkCapacity) -> Self {
        Self {
            capacity,
            since: Time::ZERO,
            done: 0,
            needed: 0,
        }
    }

    pub(crate) fn begin_period(&mut self, at: Time) {
        (self.since, self.done, self.needed) = (at, 0, 0);
    }

    /// Begins to send `bytes` behind what has begun before.
    pub(crate) fn begin_service(&mut self, bytes: ByteCount) {
        self.needed += u128::from(bytes.get()) * WORK_PER_BYTE;
    }

    /// When all that has begun will have been sent, if nothing changes; `None` where that is never.
    pub(crate) fn finish_time(&self) -> Option<Time> {
        let left = self.needed.saturating_sub(self.done);
        match &self.capacity {
            _ if left == 0 => Some(self.since),
            LinkCapacity::Rate(rate) if *rate == BitRate::ZERO => None,
            LinkCapacity::Rate(rate) => {
                // Nearly always 64 bits suffice, and divide faster.
                let nanos = match u64::try_from(left) {
                    Ok(left) => left.div_ceil(rate.bps()),
                    Err(_) => {
                        u64::try_from(left.div_ceil(u128::from(rate.bps()))).unwrap_or(u64::MAX)
                    }
                };
                Some(self.since + Span::from_nanos(nanos))
            }
            LinkCapacity::Opportunities(trace) => Some(trace.time_after_work(self.since, left)),
        }
    }

    /// Bytes of what has begun that have not been sent at `now`, the last of them perhaps in part.
    pub(crate) fn remaining_bytes(&self, now: Time) -> ByteCount {
        bytes_for(self.needed.saturating_sub(self.done_at(now)))
    }

    /// A period goes on at `at`, with so much work left of what has begun.
    pub(crate) fn resume_period(&mut self, at: Time, work: u128) {
        (self.since, self.done, self.needed) = (at, 0, work);
    }

    /// From `at` on it sends at `rate`.
    pub(crate) fn set_rate(&mut self, at: Time, rate: BitRate) {
        self.done = self.done_at(at);
        self.since = at;
        self.capacity = LinkCapacity::Rate(rate);
    }

    fn done_at(&self, now: Time) -> u128 {
        self.done.saturating_add(match &self.capacity {
            LinkCapacity::Rate(rate) => {
                u128::from(rate.bps()) * u128::from(now.duration_since(self.since).as_nanos())
            }
            LinkCapacity::Opportunities(trace) => trace.work_between(self.since, now),
        })
    }
}

/// A trace of moments, repeated for ever.
#[derive(Debug, Clone)]
pub(crate) struct SendOpportunities {
    /// In order; at least one.
    millis: Vec<u32>,
}

/// Work done at one moment: Mahimahi's packet of 1500 bytes and what its tunnel adds.
const OPPORTUNITY: u128 = 1504 * WORK_PER_BYTE;

const NANOS_PER_MILLI: u64 = 1_000_000;

impl SendOpportunities {
    /// `None` where the trace has no length, so that it cannot be repeated.
    pub(crate) fn new(trace: &Trace) -> Option<Self> {
        let mut millis = trace.millis.clone();
        millis.sort_unstable();
        millis
            .last()
            .is_some_and(|last| *last > 0)
            .then_some(Self { millis })
    }

    /// The moment after `from` by which so much work can have been done.
    fn time_after_work(&self, from: Time, work: u128) -> Time {
        let moments = u64::try_from(work.div_ceil(OPPORTUNITY)).unwrap_or(u64::MAX);
        self.moment_at(self.moments_until(from).saturating_add(moments) - 1)
    }

    /// Work that can be done after `from` and up to `to`.
    fn work_between(&self, from: Time, to: Time) -> u128 {
        u128::from(
            self.moments_until(to)
                .saturating_sub(self.moments_until(from)),
        ) * OPPORTUNITY
    }

    /// Returns the number of moments up to `to`.
    fn moments_until(&self, to: Time) -> u64 {
        let millis = to.as_nanos() / NANOS_PER_MILLI;
        let (rounds, rest) = (millis / self.period_millis(), millis % self.period_millis());
        rounds * self.millis.len() as u64
            + self
                .millis
                .partition_point(|stamp| u64::from(*stamp) <= rest) as u64
    }

    /// The moment with this number, counted from zero.
    fn moment_at(&self, number: u64) -> Time {
        let (rounds, index) = (
            number / self.millis.len() as u64,
            number % self.millis.len() as u64,
        );
        let stamp = u64::from(self.millis[index as usize]);
        let millis = rounds
            .saturating_mul(self.period_millis())
            .saturating_add(stamp);
        Time::ZERO + Span::from_millis(millis)
    }

    fn period_millis(&self) -> u64 {
        self.millis.last().copied().map_or(1, u64::from).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_trace_begins_again_behind_its_last_moment() {
        let trace = SendOpportunities::new(&Trace {
            millis: vec![0, 3, 3, 10],
        })
        .unwrap();
        let moments: Vec<_> = (0..9).map(|number| trace.moment_at(number)).collect();
        assert_eq!(moments, [0, 3, 3, 10, 10, 13, 13, 20, 20].map(millis));
        assert_eq!(
            [0, 2, 3, 9, 10, 12, 13, 20].map(|at| trace.moments_until(millis(at))),
            [1, 1, 3, 3, 5, 5, 7, 9]
        );
        for empty in [vec![], vec![0], vec![0, 0]] {
            assert!(SendOpportunities::new(&Trace { millis: empty }).is_none());
        }
    }

    proptest! {
        /// Counting moments and naming them are inverse to each other, and what can be done by then
        /// suffices.
        #[test]
        fn moments_are_counted_as_they_come(
            stamps in proptest::collection::vec(0_u32..50, 1..20), from in 0_u64..500_000_000, bytes in 1_u64..100_000,
        ) {
            let Some(trace) = SendOpportunities::new(&Trace { millis: stamps }) else { return Ok(()) };
            let work = u128::from(bytes) * WORK_PER_BYTE;
            let from = Time::from_nanos(from);
            let by = trace.time_after_work(from, work);
            prop_assert!(by > from);
            prop_assert!(trace.work_between(from, by) >= work);
            prop_assert!(trace.work_between(from, Time::from_nanos(by.as_nanos() - 1)) < work);
        }
    }
}
