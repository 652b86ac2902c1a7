//! Checks a transfer against its bounds, and measures its recent rate and progress. Time and counts
//! are arguments.

use std::collections::VecDeque;

use crate::engine::{StreamRole, TransferTotals};
use fullpipe_control::{QUEUE_INTERVAL, QueueSample};
use fullpipe_iperf::{ErrorNumber, TestRefusal, TestTicket};
use fullpipe_record::Sample;
use fullpipe_units::{BitRate, ByteCount, Span};

use super::admission::LoadActivity;
use super::stall::{StallBounds, StallProgress, StallWatch};

/// Maximum time over which a rate is averaged, as by iperf3's `--server-bitrate-limit`.
const MAX_WINDOW: Span = Span::from_secs(5);

/// Minimum time over which a rate is averaged.
const MIN_WINDOW: Span = Span::from_secs(1);

/// Minimum time between two counts that are kept.
const COUNT_INTERVAL: Span = Span::from_millis(250);

/// Time for which the bytes of a burst may exceed a limit of the rate.
const BURST_TIME: Span = Span::from_millis(500);

/// Burst that is permitted whatever the limit is: iperf3 writes as much at once by default.
const MIN_BURST: ByteCount = ByteCount::from_kib(128);

/// Returns the bytes of `burst` that may exceed the `limit` of a rate. The client alone decides how
/// much it writes at once: all of it would be without a limit.
pub(super) fn permitted_burst(burst: ByteCount, limit: Option<BitRate>) -> ByteCount {
    limit.map_or(burst, |limit| {
        burst.min(limit.bytes_in(BURST_TIME).max(MIN_BURST))
    })
}

/// The bounds of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransferBounds {
    /// Maximum duration; `None` if it is not bounded.
    pub(super) max_duration: Option<Span>,
    /// Maximum number of bytes; `None` if it is not bounded.
    pub(super) max_bytes: Option<ByteCount>,
    /// Maximum rate; `None` if it is not bounded, or together with that of other transfers.
    pub(super) max_rate: Option<BitRate>,
    /// The least progress.
    pub(super) stall: StallBounds,
    /// Bytes that are left out of each rate: those that all streams write at once must not count as
    /// an excess.
    pub(super) burst: ByteCount,
}

impl TransferBounds {
    /// Returns these bounds, and those of the client's `ticket`, for a transfer that starts at
    /// `now`, in seconds since 1970. The message that ends it takes up to `reply`.
    pub(super) fn within_ticket(self, ticket: &TestTicket, now: u64, reply: Span) -> Self {
        let end = ticket.closes.saturating_add(ticket.seconds);
        let longest = Span::from_secs(ticket.seconds.min(end.saturating_sub(now))) + reply;
        Self {
            max_duration: Some(self.max_duration.map_or(longest, |max| max.min(longest))),
            max_bytes: Some(
                self.max_bytes
                    .map_or(ticket.bytes, |max| max.min(ticket.bytes)),
            ),
            max_rate: ticket.rate,
            burst: permitted_burst(self.burst, ticket.rate),
            ..self
        }
    }
}

/// The counts of a transfer under way, and its bounds.
#[derive(Debug)]
pub(super) struct TransferMonitor {
    bounds: TransferBounds,
    /// Bytes at times of the last [`MAX_WINDOW`], oldest first.
    counts: VecDeque<(Span, ByteCount)>,
    /// The role of this end in each stream.
    roles: Vec<StreamRole>,
    stall: StallWatch,
    /// The time of the next check of the progress, and what the last one found.
    progress_due: Span,
    progress: StallProgress,
}

impl TransferMonitor {
    pub(super) fn new(bounds: TransferBounds, roles: Vec<StreamRole>) -> Self {
        Self {
            bounds,
            counts: VecDeque::from([(Span::ZERO, ByteCount::ZERO)]),
            stall: StallWatch::new(bounds.stall, roles.len()),
            roles,
            progress_due: QUEUE_INTERVAL.into(),
            progress: StallProgress::default(),
        }
    }

    /// Records what a transfer has carried by now, of which `samples` takes a snapshot, and returns
    /// its recent activity.
    ///
    /// # Errors
    /// Fails if the transfer exceeds its bounds, or makes too little progress.
    pub(super) fn check_progress(
        &mut self,
        totals: &TransferTotals,
        samples: impl FnOnce() -> Vec<Sample>,
    ) -> Result<LoadActivity, TestRefusal> {
        let (at, bytes) = (
            totals.at,
            totals.streams.iter().map(|stream| stream.bytes).sum(),
        );
        self.check_bounds(at, bytes)?;
        if at >= self.progress_due {
            self.progress_due = at + Span::from(QUEUE_INTERVAL);
            self.progress = self
                .stall
                .check_progress(at, &stream_progress(totals, &self.roles, &samples()))?;
        }
        let StallProgress { idle, stalled } = self.progress;
        let rate = self.recent_rate(at, bytes);
        if let Some(max) = self.bounds.max_rate.filter(|max| rate > *max) {
            let why = format!("it carried {rate}; {max} is permitted");
            return Err(TestRefusal::new(ErrorNumber::TOTAL_RATE, why));
        }
        Ok(LoadActivity {
            rate,
            idle,
            stalled,
        })
    }

    fn check_bounds(&self, at: Span, bytes: ByteCount) -> Result<(), TestRefusal> {
        let why = match (self.bounds.max_duration, self.bounds.max_bytes) {
            (Some(max), _) if at > max => {
                format!("it lasted longer than the {max} that are permitted")
            }
            (_, Some(max)) if bytes > max => {
                format!("it carried more than the {max} that are permitted")
            }
            _ => return Ok(()),
        };
        Err(TestRefusal::new(ErrorNumber::MAX_DURATION, why))
    }

    /// Returns the rate of the last [`MAX_WINDOW`]; zero before [`MIN_WINDOW`].
    fn recent_rate(&mut self, at: Span, bytes: ByteCount) -> BitRate {
        if self
            .counts
            .back()
            .is_none_or(|&(last, _)| at.saturating_sub(last) >= COUNT_INTERVAL)
        {
            self.counts.push_back((at, bytes));
        }
        while self
            .counts
            .get(1)
            .is_some_and(|&(second, _)| at.saturating_sub(second) >= MAX_WINDOW)
        {
            self.counts.pop_front();
        }
        let (since, before) = self.counts.front().copied().unwrap_or((at, bytes));
        let window = at.saturating_sub(since);
        if window < MIN_WINDOW {
            return BitRate::ZERO;
        }
        BitRate::from_bytes_in(
            bytes
                .saturating_sub(before)
                .saturating_sub(self.bounds.burst),
            window,
        )
    }
}

/// Returns what each stream has carried, and what waits for it in the kernel. Of a TCP stream on
/// which this end sends, only what the other end has acknowledged counts.
fn stream_progress(
    totals: &TransferTotals,
    roles: &[StreamRole],
    samples: &[Sample],
) -> Vec<QueueSample> {
    let mut streams: Vec<QueueSample> = totals
        .streams
        .iter()
        .map(|count| QueueSample {
            carried: count.bytes,
            ..Default::default()
        })
        .collect();
    for sample in samples {
        let index = usize::from(sample.stream);
        let (Some(stream), Some(role)) = (streams.get_mut(index), roles.get(index)) else {
            continue;
        };
        let memory = sample.memory.unwrap_or_default();
        let acknowledged = sample
            .tcp
            .bytes_acked
            .filter(|_| *role == StreamRole::Sender);
        *stream = QueueSample {
            carried: acknowledged.unwrap_or(stream.carried),
            queued: memory.wmem_queued + memory.rmem_alloc,
            ..QueueSample::from_sender(&sample.tcp, &memory)
        };
    }
    streams
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::StreamCount;
    use fullpipe_record::{Request, TcpInfo};

    const BOUNDS: fn() -> TransferBounds = || TransferBounds {
        max_duration: Some(Span::from_secs(60)),
        max_bytes: Some(ByteCount::from_mib(100)),
        max_rate: None,
        stall: StallBounds::from_request(&Request::default(), 1, Span::from_secs(20)),
        burst: ByteCount::from_kib(128),
    };

    fn monitor(bounds: TransferBounds) -> TransferMonitor {
        TransferMonitor::new(bounds, vec![StreamRole::Receiver])
    }

    /// Returns the rate after one stream has received `bytes`.
    fn check(
        monitor: &mut TransferMonitor,
        at: Span,
        bytes: ByteCount,
    ) -> Result<BitRate, TestRefusal> {
        let totals = TransferTotals {
            at,
            streams: vec![StreamCount {
                bytes,
                ..StreamCount::default()
            }],
        };
        monitor
            .check_progress(&totals, Vec::new)
            .map(|activity| activity.rate)
    }

    /// Returns the rate at each update of a steady flow of `mbps`.
    fn rates(
        monitor: &mut TransferMonitor,
        mbps: u64,
        millis: std::ops::Range<u64>,
    ) -> Vec<BitRate> {
        let bytes = |at: u64| ByteCount::new(at * mbps * 125);
        millis
            .step_by(20)
            .map(|at| check(monitor, Span::from_millis(at), bytes(at)).unwrap())
            .collect()
    }

    #[test]
    fn a_steady_flow_has_its_rate() {
        let mut monitor = monitor(TransferBounds {
            max_bytes: None,
            ..BOUNDS()
        });
        let seen = rates(&mut monitor, 800, 0..20_000);
        assert!(
            seen[..50].iter().all(|rate| *rate == BitRate::ZERO),
            "not before a second has passed"
        );
        let last = *seen.last().unwrap();
        assert!(
            (0.99..=1.0).contains(&last.relative_to(BitRate::from_mbps(800))),
            "{last}"
        );
        assert!(monitor.counts.len() <= 23, "{}", monitor.counts.len());
    }

    #[test]
    fn a_flow_at_its_limit_does_not_exceed_it_although_it_comes_in_blocks() {
        let mut monitor = monitor(BOUNDS());
        let block = ByteCount::from_kib(128);
        for update in 0..1000 {
            let at = Span::from_millis(update * 20);
            let due = BitRate::from_mbps(10).bytes_in(at).get() / block.get() + 1;
            let rate = check(&mut monitor, at, ByteCount::new(due * block.get())).unwrap();
            assert!(rate <= BitRate::from_mbps(10), "{rate} at {at}");
        }
    }

    #[test]
    fn a_client_that_writes_gigabytes_at_once_is_held_to_the_limit() {
        let limit = BitRate::from_mbps(10);
        let burst = permitted_burst(ByteCount::from_mib(1000), Some(limit));
        let mut monitor = monitor(TransferBounds {
            burst,
            max_bytes: None,
            ..BOUNDS()
        });
        assert!(
            rates(&mut monitor, 12, 0..20_000)
                .last()
                .is_some_and(|rate| *rate > limit)
        );
        assert_eq!(
            permitted_burst(ByteCount::from_mib(1000), None),
            ByteCount::from_mib(1000)
        );
        assert_eq!(
            permitted_burst(ByteCount::from_mib(1), Some(BitRate::from_mbps(1))),
            ByteCount::from_kib(128)
        );
    }

    fn ticket() -> TestTicket {
        TestTicket {
            slot: "1".to_owned(),
            client: "a.example".to_owned(),
            opens: 1000,
            closes: 1010,
            seconds: 30,
            streams: 1,
            bytes: ByteCount::from_mib(20),
            rate: Some(BitRate::from_mbps(10)),
            udp: false,
            direction: None,
        }
    }

    #[test]
    fn a_ticket_bounds_a_transfer_and_widens_nothing() {
        let wide = BOUNDS();
        let seconds = |now| {
            wide.within_ticket(&ticket(), now, Span::from_secs(4))
                .max_duration
        };
        let [early, late, over] = [1000, 1030, 2000].map(seconds);
        assert_eq!(early, Some(Span::from_secs(34)));
        assert_eq!(
            late,
            Some(Span::from_secs(14)),
            "it ends 30 s after its slot"
        );
        assert_eq!(over, Some(Span::from_secs(4)));
        let unlimited = TransferBounds {
            max_duration: None,
            max_bytes: None,
            ..wide
        };
        let bounds = unlimited.within_ticket(&ticket(), 1000, Span::from_secs(4));
        assert_eq!(bounds.max_duration, early);
        assert_eq!(bounds.max_bytes, Some(ByteCount::from_mib(20)));
        let generous = TestTicket {
            closes: u64::MAX,
            seconds: u64::MAX,
            bytes: ByteCount::new(u64::MAX),
            rate: None,
            ..ticket()
        };
        assert_eq!(
            wide.within_ticket(&generous, 1000, Span::from_secs(4)),
            wide
        );
    }

    #[test]
    fn a_transfer_faster_than_its_ticket_is_ended() {
        let held = || monitor(BOUNDS().within_ticket(&ticket(), 1000, Span::from_secs(4)));
        rates(&mut held(), 10, 0..15_000);
        let mut faster = held();
        let mut ended = (0..250).map(|update| {
            let at = Span::from_millis(update * 20);
            check(&mut faster, at, BitRate::from_mbps(14).bytes_in(at)).map(drop)
        });
        let why = ended.find_map(Result::err).unwrap();
        assert_eq!(why.number, ErrorNumber::TOTAL_RATE, "{why}");
        assert!(why.to_string().contains("10 Mbit/s is permitted"), "{why}");
    }

    #[test]
    fn bytes_before_the_window_do_not_count() {
        let mut monitor = monitor(TransferBounds {
            max_bytes: None,
            ..BOUNDS()
        });
        check(&mut monitor, Span::from_secs(1), ByteCount::from_mib(1000)).unwrap();
        for update in 0..600 {
            check(
                &mut monitor,
                Span::from_millis(1000 + update * 20),
                ByteCount::from_mib(1000),
            )
            .unwrap();
        }
        let rate = check(&mut monitor, Span::from_secs(14), ByteCount::from_mib(1000)).unwrap();
        assert_eq!(rate, BitRate::ZERO);
    }

    #[test]
    fn a_transfer_ends_at_its_bounds() {
        let late = check(
            &mut monitor(BOUNDS()),
            Span::from_millis(60_001),
            ByteCount::new(1),
        )
        .unwrap_err();
        assert_eq!(late.number.get(), 37);
        let large = check(
            &mut monitor(BOUNDS()),
            Span::from_secs(1),
            ByteCount::from_mib(101),
        )
        .unwrap_err();
        assert_eq!(large.number.get(), 37);
        assert!(large.why.contains("100 MiB"), "{}", large.why);
    }

    /// The bytes that this end wrote once counted, so that a download that no client acknowledged
    /// was activity.
    #[test]
    fn only_what_is_acknowledged_is_progress_of_a_download() {
        let sample = |acknowledged| Sample {
            at: Span::ZERO,
            stream: 0,
            bytes: ByteCount::ZERO,
            tcp: TcpInfo {
                bytes_acked: Some(ByteCount::new(acknowledged)),
                ..TcpInfo::default()
            },
            memory: None,
        };
        let ends_at = |role, acknowledged: fn(u64) -> u64| {
            let mut monitor = TransferMonitor::new(
                TransferBounds {
                    max_duration: None,
                    max_bytes: None,
                    ..BOUNDS()
                },
                vec![role],
            );
            (1..100).find(|&second| {
                let streams = vec![StreamCount {
                    bytes: ByteCount::from_mib(second),
                    ..StreamCount::default()
                }];
                let totals = TransferTotals {
                    at: Span::from_secs(second),
                    streams,
                };
                monitor
                    .check_progress(&totals, || vec![sample(acknowledged(second))])
                    .is_err()
            })
        };
        assert!(ends_at(StreamRole::Sender, |_| 65_536).is_some_and(|second| second <= 22));
        assert_eq!(ends_at(StreamRole::Sender, |second| second << 20), None);
        assert_eq!(ends_at(StreamRole::Receiver, |_| 0), None);
    }
}
