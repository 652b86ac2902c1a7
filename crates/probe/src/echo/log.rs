//! The echo requests of a flow: those that wait for an answer, and those that were answered or
//! lost.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fullpipe_record::{Echo, RttMethod};
use fullpipe_units::Span;

/// Maximum number of requests that wait for an answer: those of ten seconds at the usual pace.
const MAX_WAITING: usize = 1_000;

/// Maximum number of requests that are kept, 1.5 MB; when there are as many, every second one is
/// dropped.
const MAX_KEPT: usize = 1 << 15;

/// The result of a flow of echo requests.
#[derive(Debug, Clone)]
pub(crate) struct EchoResult {
    /// The method that took the round-trip times.
    pub method: RttMethod,
    /// The moment from which the times below are counted.
    pub origin: Instant,
    /// The echo requests, in the order in which they were sent.
    pub echoes: Vec<Echo>,
    /// Time at which the queues had emptied after the load; `None` if they were not seen to.
    pub settled: Option<Span>,
}

/// A request that waits for its answer.
#[derive(Clone, Copy)]
struct PendingRequest {
    number: u64,
    sent: Instant,
    /// Time at which it left the host, by the wall clock.
    left: Option<Span>,
}

/// The requests of a flow.
pub(super) struct EchoLog {
    origin: Instant,
    waiting: VecDeque<PendingRequest>,
    kept: Vec<Echo>,
    /// Number of requests of which one is kept.
    step: u64,
    seen: u64,
    least: Option<Span>,
    most: Span,
}

impl EchoLog {
    pub(super) fn new(origin: Instant) -> Self {
        Self {
            origin,
            waiting: VecDeque::new(),
            kept: Vec::new(),
            step: 1,
            seen: 0,
            least: None,
            most: Span::ZERO,
        }
    }

    /// Returns the minimum round-trip time so far.
    pub(super) fn min_rtt(&self) -> Option<Span> {
        self.least
    }

    /// Returns the maximum round-trip time so far.
    pub(super) fn max_rtt(&self) -> Span {
        self.most
    }

    /// Records that request `number` is about to be sent.
    pub(super) fn record_sent(&mut self, number: u64, sent: Instant) {
        if self.waiting.len() == MAX_WAITING
            && let Some(PendingRequest { sent, .. }) = self.waiting.pop_front()
        {
            self.keep_echo(sent, None, None);
        }
        self.waiting.push_back(PendingRequest {
            number,
            sent,
            left: None,
        });
    }

    /// Records that request `number` left the host at `left`, by the wall clock.
    pub(super) fn record_departure(&mut self, number: u64, left: Option<Span>) {
        if let Some(waiting) = self
            .waiting
            .iter_mut()
            .find(|waiting| waiting.number == number)
        {
            waiting.left = left;
        }
    }

    /// Returns true if the time at which the request left the host is known.
    pub(super) fn has_left(&self, number: u64) -> bool {
        self.waiting
            .iter()
            .any(|waiting| waiting.number == number && waiting.left.is_some())
    }

    /// Records the answer to request `number`, which arrived at the host at `came`, by the wall
    /// clock, and at this program `now`, and which the other end had for `residence`. Returns the
    /// time at which the request was sent and its round-trip time; `None` if no such request waits,
    /// or if `residence` is longer than the round trip.
    pub(super) fn record_answer(
        &mut self,
        number: u64,
        came: Option<Span>,
        now: Instant,
        residence: Span,
    ) -> Option<(Instant, Span)> {
        let mut waiting = self.waiting.iter();
        let index = waiting.position(|waiting| waiting.number == number)?;
        let PendingRequest { sent, left, .. } = self.waiting.remove(index)?;
        let whole = Span::from(now.duration_since(sent));
        // If the wall clock was set in between, the program's own clock is used.
        let between = left
            .zip(came)
            .filter(|(left, came)| left <= came)
            .map(|(left, came)| came - left);
        let between = between.filter(|between| *between <= whole);
        let outside = between.unwrap_or(whole);
        let rtt = (residence <= outside).then(|| outside - residence);
        self.keep_echo(sent, rtt, between.map(|between| whole - between));
        let rtt = rtt?;
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.most = self.most.max(rtt);
        Some((sent, rtt))
    }

    fn keep_echo(&mut self, sent: Instant, rtt: Option<Span>, host: Option<Span>) {
        let at = sent.duration_since(self.origin).into();
        if self.seen.is_multiple_of(self.step) {
            self.kept.push(Echo { at, rtt, host });
        }
        self.seen += 1;
        if self.kept.len() == MAX_KEPT {
            let mut index = 0_u64;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.step *= 2;
        }
    }

    /// Ends the log. A request that has waited longer than the timeout counts as lost; the newer
    /// ones are left out.
    pub(super) fn into_result(
        mut self,
        method: RttMethod,
        now: Instant,
        settled: Option<Instant>,
    ) -> EchoResult {
        let timeout = Duration::from(self.most * 2) + Duration::from_millis(100);
        let lost = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|waiting| waiting.sent + timeout <= now);
        for PendingRequest { sent, .. } in lost {
            self.keep_echo(sent, None, None);
        }
        self.kept.sort_by_key(|echo| echo.at);
        let settled = settled.map(|moment| moment.duration_since(self.origin).into());
        EchoResult {
            method,
            origin: self.origin,
            echoes: self.kept,
            settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    fn after(origin: Instant, time: u64) -> Instant {
        origin + Duration::from_millis(time)
    }

    fn wall(time: u64) -> Span {
        Span::from_secs(1_700_000_000) + millis(time)
    }

    #[test]
    fn a_round_trip_is_between_the_stamps_of_the_kernel_and_the_rest_is_time_of_the_host() {
        let origin = Instant::now();
        let mut log = EchoLog::new(origin);
        for (number, sent) in [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40)] {
            log.record_sent(number, after(origin, sent));
            log.record_departure(number, Some(wall(sent + 2)));
        }
        log.record_sent(5, after(origin, 50));
        let answers = [
            (
                log.record_answer(0, Some(wall(22)), after(origin, 25), Span::ZERO),
                Some(millis(20)),
            ),
            (
                log.record_answer(1, Some(wall(32)), after(origin, 33), millis(5)),
                Some(millis(15)),
            ),
            (
                log.record_answer(1, Some(wall(42)), after(origin, 43), Span::ZERO),
                None,
            ), // a duplicate
            (
                log.record_answer(2, Some(wall(9_000)), after(origin, 50), Span::ZERO),
                Some(millis(30)),
            ), // the clock was set
            (
                log.record_answer(3, Some(wall(0)), after(origin, 60), Span::ZERO),
                Some(millis(30)),
            ),
            (
                log.record_answer(4, Some(wall(60)), after(origin, 60), millis(19)),
                None,
            ), // more than it can have been there
            (
                log.record_answer(5, Some(wall(60)), after(origin, 70), Span::ZERO),
                Some(millis(20)),
            ), // without a stamp
            (
                log.record_answer(99, Some(wall(60)), after(origin, 60), Span::ZERO),
                None,
            ),
        ];
        for (index, (found, expected)) in answers.into_iter().enumerate() {
            assert_eq!(found.map(|(_, rtt)| rtt), expected, "{index}");
        }
        assert_eq!(
            (log.min_rtt(), log.max_rtt()),
            (Some(millis(15)), millis(30))
        );
        let taken = log.into_result(RttMethod::Icmp, after(origin, 100), None);
        let hosts: Vec<Option<Span>> = taken.echoes.iter().map(|echo| echo.host).collect();
        assert_eq!(
            hosts,
            [
                Some(millis(5)),
                Some(millis(3)),
                None,
                None,
                Some(millis(2)),
                None
            ]
        );
        assert_eq!(taken.echoes[4].rtt, None);
    }

    #[test]
    fn requests_without_an_answer_in_time_are_lost_and_the_newest_are_left_out() {
        let origin = Instant::now();
        let mut log = EchoLog::new(origin);
        for number in 0..4 {
            log.record_sent(number, after(origin, number * 100));
        }
        log.record_answer(1, None, after(origin, 150), Span::ZERO);
        // Twice 50 ms and 100 ms more: the third has had its time, the fourth has not.
        let taken = log.into_result(
            RttMethod::Icmp,
            after(origin, 400),
            Some(after(origin, 150)),
        );
        let found: Vec<_> = taken
            .echoes
            .iter()
            .map(|echo| (echo.at, echo.rtt))
            .collect();
        assert_eq!(
            found,
            [
                (millis(0), None),
                (millis(100), Some(millis(50))),
                (millis(200), None)
            ]
        );
        assert_eq!(taken.settled, Some(millis(150)));
    }

    #[test]
    fn a_flow_without_answers_is_bounded() {
        let origin = Instant::now();
        let mut log = EchoLog::new(origin);
        let many = 5 * MAX_KEPT as u64;
        for number in 0..many {
            log.record_sent(number, after(origin, number * 10));
        }
        assert_eq!(log.waiting.len(), MAX_WAITING);
        assert!(log.kept.len() < MAX_KEPT);
        let taken = log.into_result(RttMethod::UdpEcho, after(origin, many * 10 + 1_000), None);
        let gaps: Vec<Span> = taken
            .echoes
            .windows(2)
            .map(|pair| pair[1].at - pair[0].at)
            .collect();
        assert!(gaps.iter().all(|gap| *gap == millis(80)), "every eighth");
    }
}
