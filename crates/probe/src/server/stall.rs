//! Checks that a transfer makes progress: what counts is what the other end has acknowledged, or
//! what arrived from it. Time and counts are arguments.

use std::collections::VecDeque;

use fullpipe_control::{QueueSample, QueueWatch, StalledBytes};
use fullpipe_iperf::{ErrorNumber, TestRefusal};
use fullpipe_record::Request;
use fullpipe_units::{BitRate, ByteCount, Span};

/// Rate below which a stream counts as idle.
const IDLE_RATE: BitRate = BitRate::from_bps(64_000);

/// Time over which that rate is averaged.
const IDLE_WINDOW: Span = Span::from_secs(5);

/// Rate of a stream below which a test ends in the long run.
const MIN_RATE: BitRate = BitRate::from_bps(8_000);

/// The highest rate that a test may be required to keep in the long run, however many streams it
/// has.
const MAX_MIN_RATE: BitRate = BitRate::from_bps(256_000);

/// Part of a rate that was asked for, below which a test ends in the long run: most may be lost on
/// the way.
const MIN_RATE_PART: f64 = 16.0;

/// Number of streams that may all stall for as long as one: more of them hold more, and get a
/// quarter of the time.
const FEW_STREAMS: u16 = 8;

/// The least progress of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StallBounds {
    /// Time over which progress is averaged, and after which a transfer without any ends.
    timeout: Span,
    /// Time after which a transfer ends of whose streams most make no progress.
    most_streams: Span,
    /// Rate below which the transfer ends.
    min_rate: BitRate,
    /// Rate below which the transfer counts as idle.
    idle_rate: BitRate,
}

impl StallBounds {
    /// Returns the bounds for what `request` asks for on so many `streams`, of which one may stall
    /// for `timeout`.
    pub(super) fn from_request(request: &Request, streams: u16, timeout: Span) -> Self {
        let asked = request.rate.filter(|rate| *rate > BitRate::ZERO);
        let usual = MIN_RATE.scale_by(streams.into()).min(MAX_MIN_RATE);
        let least = asked.map(|rate| rate.scale_by(f64::from(streams) / MIN_RATE_PART));
        // At a low rate, blocks are far apart.
        let gap = asked.map_or(Span::ZERO, |rate| rate.time_for(request.block));
        Self {
            timeout,
            most_streams: if streams > FEW_STREAMS {
                timeout.min(timeout / 4 + gap * 2)
            } else {
                timeout
            },
            min_rate: least.map_or(usual, |least| usual.min(least)),
            idle_rate: IDLE_RATE.scale_by(streams.into()),
        }
    }
}

/// The progress of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StallProgress {
    /// Time since the transfer was last not idle.
    pub idle: Span,
    /// Bytes in the queues of streams that make no progress.
    pub stalled: StalledBytes,
}

/// The recent progress of a transfer and of its streams.
pub(super) struct StallWatch {
    bounds: StallBounds,
    streams: Vec<QueueWatch>,
    /// Bytes of all streams at times of the last [`StallBounds::timeout`], oldest first.
    counts: VecDeque<(Span, ByteCount)>,
    /// The time at which the rate was last at least the idle rate.
    last_busy: Span,
}

impl StallWatch {
    pub(super) fn new(bounds: StallBounds, streams: usize) -> Self {
        Self {
            bounds,
            streams: vec![QueueWatch::default(); streams],
            counts: VecDeque::from([(Span::ZERO, ByteCount::ZERO)]),
            last_busy: Span::ZERO,
        }
    }

    /// Records the progress of the `streams` up to the time `at`, counted from the start of the
    /// data.
    ///
    /// # Errors
    /// Fails if the transfer makes too little progress.
    pub(super) fn check_progress(
        &mut self,
        at: Span,
        streams: &[QueueSample],
    ) -> Result<StallProgress, TestRefusal> {
        let watched = self
            .streams
            .iter_mut()
            .zip(streams)
            .map(|(watch, stream)| watch.follow(at, stream));
        let stalled = watched.fold(StalledBytes::default(), StalledBytes::plus);
        self.counts
            .push_back((at, streams.iter().map(|stream| stream.carried).sum()));
        while self
            .counts
            .get(1)
            .is_some_and(|&(second, _)| at.saturating_sub(second) >= self.bounds.timeout)
        {
            self.counts.pop_front();
        }
        self.check_streams(at)?;
        self.check_rate(at)?;
        let recent = self.carried_since(at.saturating_sub(IDLE_WINDOW));
        if recent.is_some_and(|(rate, _)| rate >= self.bounds.idle_rate) {
            self.last_busy = at;
        }
        Ok(StallProgress {
            idle: at.saturating_sub(self.last_busy),
            stalled,
        })
    }

    fn check_streams(&self, at: Span) -> Result<(), TestRefusal> {
        let limit = self.bounds.most_streams;
        let silent = self
            .streams
            .iter()
            .filter(|watch| watch.silence(at) > limit)
            .count();
        if silent * 2 <= self.streams.len() {
            return Ok(());
        }
        let streams = self.streams.len();
        Err(if silent == streams {
            stall_refusal(format!("no data flowed for {limit}"))
        } else {
            stall_refusal(format!(
                "no data flowed on {silent} of its {streams} streams for {limit}"
            ))
        })
    }

    fn check_rate(&self, at: Span) -> Result<(), TestRefusal> {
        let StallBounds {
            timeout, min_rate, ..
        } = self.bounds;
        let recent = if at < timeout {
            None
        } else {
            self.carried_since(at.saturating_sub(timeout))
        };
        match recent {
            Some((rate, carried)) if rate < min_rate => Err(stall_refusal(format!(
                "only {carried} flowed in {timeout}; it must carry at least {min_rate}"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the mean rate, and the bytes, from the time `since` on, or a little before; `None`
    /// if nothing was counted then.
    fn carried_since(&self, since: Span) -> Option<(BitRate, ByteCount)> {
        let (at, bytes) = *self.counts.back()?;
        let (from, before) = *self.counts.iter().rev().find(|(time, _)| *time <= since)?;
        let carried = bytes.saturating_sub(before);
        Some((
            BitRate::from_bytes_in(carried, at.saturating_sub(from).max(Span::from_nanos(1))),
            carried,
        ))
    }
}

fn stall_refusal(why: String) -> TestRefusal {
    TestRefusal {
        number: ErrorNumber::NO_MESSAGE,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Span = Span::from_secs(120);

    fn watch(streams: u16, request: &Request) -> StallWatch {
        StallWatch::new(
            StallBounds::from_request(request, streams, TIMEOUT),
            streams.into(),
        )
    }

    /// Checks a transfer each second, of which stream `index` has carried `carried(index, second)`
    /// bytes. Returns the last result, or the second and the reason of the refusal.
    fn run(
        watch: &mut StallWatch,
        seconds: u64,
        carried: impl Fn(usize, u64) -> u64,
    ) -> Result<StallProgress, (u64, String)> {
        let mut last = StallProgress::default();
        for second in 1..=seconds {
            let stream = |index| QueueSample {
                carried: ByteCount::new(carried(index, second)),
                queued: ByteCount::from_mib(1),
                rtt: Span::from_millis(100),
                is_closed: false,
            };
            let streams: Vec<QueueSample> = (0..watch.streams.len()).map(stream).collect();
            last = watch
                .check_progress(Span::from_secs(second), &streams)
                .map_err(|refusal| (second, refusal.why))?;
        }
        Ok(last)
    }

    #[test]
    fn a_transfer_that_moves_is_neither_idle_nor_stalled_however_much_is_under_way() {
        let mut watch = watch(4, &Request::default());
        let last = run(&mut watch, 1_000, |_, second| second * 20_000_000).unwrap();
        assert_eq!(last, StallProgress::default());
        assert!(watch.counts.len() <= 122, "{}", watch.counts.len());
    }

    #[test]
    fn a_transfer_may_stall_up_to_the_timeout() {
        let (second, why) = run(&mut watch(1, &Request::default()), 200, |_, _| 0).unwrap_err();
        assert!(
            (120..=121).contains(&second) && why.contains("flowed in 120 s"),
            "{second}: {why}"
        );
        let stops = |_, second: u64| second.min(50) * 1_000_000;
        let (second, why) = run(&mut watch(1, &Request::default()), 300, stops).unwrap_err();
        assert!((170..=172).contains(&second), "{second}: {why}");
        // An outage of a minute and a half is none of that.
        let outage = |_, second: u64| if second < 90 { 0 } else { second * 1_000_000 };
        assert!(run(&mut watch(1, &Request::default()), 300, outage).is_ok());
    }

    /// Such a download was kept for a day.
    #[test]
    fn a_few_reads_now_and_then_do_not_keep_a_test_alive() {
        let few = |index: usize, second: u64| {
            if index == 0 {
                second / 50 * 3 * 65_536
            } else {
                0
            }
        };
        let (second, why) = run(&mut watch(128, &Request::default()), 1_000, few).unwrap_err();
        assert_eq!((second, why.as_str()), (31, "no data flowed for 30 s"));
        let one = |index: usize, second: u64| if index == 0 { second * 65_536 } else { 0 };
        let (_, why) = run(&mut watch(128, &Request::default()), 1_000, one).unwrap_err();
        assert_eq!(why, "no data flowed on 127 of its 128 streams for 30 s");
        let spread = |index: usize, second: u64| {
            if (second / 20) % 128 >= index as u64 {
                1 + second / 20
            } else {
                0
            }
        };
        let (second, why) = run(&mut watch(8, &Request::default()), 1_000, spread).unwrap_err();
        assert_eq!(second, 120, "{why}");
    }

    #[test]
    fn slow_paths_and_low_rates_are_served() {
        let slow = |_, second: u64| second * 1_200;
        assert!(
            run(&mut watch(1, &Request::default()), 1_000, slow).is_ok(),
            "9.6 kbit/s"
        );
        let many = |_, second: u64| second * 500;
        assert!(
            run(&mut watch(128, &Request::default()), 1_000, many).is_ok(),
            "512 kbit/s for 128 streams"
        );
        let rate = Some(BitRate::from_bps(10_000));
        let request = Request {
            rate,
            block: ByteCount::new(100_000),
            ..Request::default()
        };
        let blocks = |_, second: u64| second / 80 * 100_000;
        assert!(
            run(&mut watch(16, &request), 1_000, blocks).is_ok(),
            "a block each 80 s was asked for"
        );
    }

    #[test]
    fn only_the_queues_of_streams_without_progress_count_as_stalled() {
        let half = |index: usize, second: u64| {
            if index.is_multiple_of(2) {
                second * 100_000
            } else {
                second.min(5) * 100_000
            }
        };
        let last = run(&mut watch(8, &Request::default()), 20, half).unwrap();
        assert_eq!(
            (last.stalled.lasting, last.idle),
            (ByteCount::from_mib(4), Span::ZERO)
        );
        let early = run(&mut watch(8, &Request::default()), 6, half).unwrap();
        assert_eq!(
            early.stalled,
            StalledBytes::default(),
            "a second is no stall"
        );
    }

    #[test]
    fn a_byte_now_and_then_counts_as_idle() {
        let last = run(&mut watch(1, &Request::default()), 100, |_, second| {
            100_000 + second / 10
        })
        .unwrap();
        assert!(last.idle > Span::from_secs(90), "{last:?}");
        let again = |_, second: u64| if second < 100 { 100_000 } else { 200_000 };
        assert_eq!(
            run(&mut watch(1, &Request::default()), 100, again)
                .unwrap()
                .idle,
            Span::ZERO
        );
    }
}
