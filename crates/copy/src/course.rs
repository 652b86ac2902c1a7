//! The rule by which a copy changes its connections while they run, from the kernel's figures.

use fullpipe_model::unqueued::{self, SenderSample, UnqueuedLoss};
use fullpipe_record::TcpInfo;
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, Time};

/// Time after which the queue and the buffers are judged.
const SECOND: Span = Span::from_secs(1);

/// Seconds with a queue until connections rest.
const QUEUED_SECONDS: u32 = 3;

/// Seconds in which full buffers hold the connections back, without a queue, until another carries
/// data.
const HELD_SECONDS: u32 = 2;

/// Seconds without a queue, on a path that loses packets without one, until the rate is judged: by
/// then losses have made the windows as small as they stay, also those of connections that have
/// begun after the others.
const UNFILLED_SECONDS: u32 = 4;

/// Rate from which one connection may keep a processor busy. One of some 3 GHz reads, hashes and
/// encrypts 4 Gbit/s.
const FAST: BitRate = BitRate::from_mbps(2000);

/// Conclusions from successive figures of the connections of a copy.
#[derive(Debug, Default)]
pub struct CopyAdaptation {
    loss: UnqueuedLoss,
    /// The figures at the end of the last [`SECOND`], and when that was.
    last: Option<(Time, SenderSample, BufferTimes)>,
    queued: u32,
    held: u32,
    unfilled: u32,
    /// The time of the last figures, and the bytes that were acknowledged by then.
    before: Option<(Time, u64)>,
    is_fast: bool,
    has_changed: bool,
    has_queued: bool,
}

/// A change that the figures ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AdaptationChange {
    /// Loss without a queue, of this share.
    Lossy(Ratio),
    /// A queue stands, at this rate.
    Queued(BitRate),
    /// Full buffers hold the connections back, and there is no queue.
    Held,
    /// The rate is such that one connection may keep a processor busy.
    Fast,
    /// Packets are lost without a queue, and none stands at this rate.
    Unfilled(BitRate),
}

/// Times of all connections, in which they had data, and in which a full buffer of either end held
/// it back.
#[derive(Debug, Clone, Copy, Default)]
struct BufferTimes {
    busy: Span,
    held: Span,
}

impl CopyAdaptation {
    /// Time from the start of the data to the first figures, and between two.
    pub const INTERVAL: Span = unqueued::INTERVAL;

    /// Takes the figures of the sending end of each connection in. Returns the change that is due.
    pub fn add_infos(&mut self, at: Time, connections: &[TcpInfo]) -> Option<AdaptationChange> {
        self.add_sample(
            at,
            SenderSample::from_infos(connections),
            BufferTimes::from_infos(connections),
        )
    }

    fn add_sample(
        &mut self,
        at: Time,
        sample: SenderSample,
        buffers: BufferTimes,
    ) -> Option<AdaptationChange> {
        let loss = self.loss.add_sample(at, sample);
        if let Some(loss) = loss.filter(|_| !self.has_changed) {
            self.has_changed = true;
            return Some(AdaptationChange::Lossy(loss));
        }
        if self.becomes_fast(at, sample.acknowledged) {
            return Some(AdaptationChange::Fast);
        }
        let (from, last, before) = *self.last.get_or_insert((at, sample, buffers));
        let passed = at.duration_since(from);
        if passed < SECOND {
            return None;
        }
        self.last = Some((at, sample, buffers));
        let bytes = ByteCount::new(sample.acknowledged.saturating_sub(last.acknowledged));
        let rate = BitRate::from_bytes_in(bytes, passed);
        self.after_second(sample, rate, before.hold_back(buffers))
    }

    fn becomes_fast(&mut self, at: Time, acknowledged: u64) -> bool {
        let before = self.before.replace((at, acknowledged));
        let is_fast = before.is_some_and(|(from, before)| {
            let bytes = ByteCount::new(acknowledged.saturating_sub(before));
            BitRate::from_bytes_in(bytes, at.duration_since(from)) > FAST
        });
        is_fast && !std::mem::replace(&mut self.is_fast, is_fast)
    }

    fn after_second(
        &mut self,
        sample: SenderSample,
        rate: BitRate,
        hold_back: bool,
    ) -> Option<AdaptationChange> {
        self.queued = if sample.has_queue() {
            self.queued + 1
        } else {
            0
        };
        self.held = if sample.has_no_queue() && hold_back {
            self.held + 1
        } else {
            0
        };
        if self.queued >= QUEUED_SECONDS && !self.has_changed {
            self.queued = 0;
            self.has_queued = true;
            return Some(AdaptationChange::Queued(rate));
        }
        // Where a queue stood, the path carries no more.
        if self.held >= HELD_SECONDS && !self.has_queued {
            self.held = 0;
            return Some(AdaptationChange::Held);
        }
        self.unfilled = if self.has_changed && sample.has_no_queue() {
            self.unfilled + 1
        } else {
            0
        };
        if self.unfilled >= UNFILLED_SECONDS {
            self.unfilled = 0;
            return Some(AdaptationChange::Unfilled(rate));
        }
        None
    }
}

impl BufferTimes {
    fn from_infos(infos: &[TcpInfo]) -> Self {
        Self {
            busy: infos.iter().filter_map(|info| info.busy).sum(),
            held: infos
                .iter()
                .flat_map(|info| [info.rwnd_limited, info.sndbuf_limited])
                .flatten()
                .sum(),
        }
    }

    /// Returns true if full buffers held data back for most of the time up to `next`.
    fn hold_back(self, next: Self) -> bool {
        next.held.saturating_sub(self.held) * 2 > next.busy.saturating_sub(self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the changes of a connection with 1 000 segments a second, so many retransmissions
    /// and such round trips at the end of each, and of which a full buffer holds back this share of
    /// the time.
    fn changes(seconds: &[(u64, u64)], held: f64) -> Vec<AdaptationChange> {
        let mut course = CopyAdaptation::default();
        let follow = |((retransmitted, rtt), second): (&(u64, u64), u64)| {
            let sample = SenderSample {
                segments: second * 1000,
                retransmitted: *retransmitted,
                acknowledged: second * 1_250_000,
                rtt: Span::from_millis(*rtt),
                min_rtt: Span::from_millis(100),
            };
            let busy = Span::from_secs(second);
            let at = Time::from_nanos(second * 1_000_000_000);
            course.add_sample(
                at,
                sample,
                BufferTimes {
                    busy,
                    held: busy.scale_by(held),
                },
            )
        };
        seconds.iter().zip(0..).filter_map(follow).collect()
    }

    #[test]
    fn loss_without_a_queue_is_found_once_and_a_queue_lets_connections_rest() {
        let lossy = changes(
            &[
                (0, 101),
                (10, 101),
                (20, 101),
                (30, 102),
                (40, 101),
                (50, 101),
            ],
            0.0,
        );
        assert_eq!(lossy, [AdaptationChange::Lossy(Ratio::new(0.01))]);
        assert_eq!(changes(&[(0, 100), (0, 101), (0, 100), (0, 100)], 0.0), []);
        let full = changes(
            &[
                (0, 199),
                (500, 199),
                (510, 190),
                (520, 180),
                (520, 101),
                (520, 101),
            ],
            0.0,
        );
        assert_eq!(full, [AdaptationChange::Queued(BitRate::from_mbps(10))]);
    }

    #[test]
    fn a_path_that_loses_packets_and_shows_no_queue_is_judged_again_and_again() {
        let lossy: Vec<_> = (0..14).map(|second| (second * 10, 101)).collect();
        let unfilled = AdaptationChange::Unfilled(BitRate::from_mbps(10));
        assert_eq!(
            changes(&lossy, 0.0),
            [
                AdaptationChange::Lossy(Ratio::new(0.01)),
                unfilled,
                unfilled
            ]
        );
        let queued: Vec<_> = (0..14)
            .map(|second| (second * 10, if second < 8 { 101 } else { 130 }))
            .collect();
        assert_eq!(
            changes(&queued, 0.0),
            [AdaptationChange::Lossy(Ratio::new(0.01))]
        );
    }

    #[test]
    fn another_connection_is_added_where_buffers_hold_back_and_no_queue_stands() {
        assert_eq!(
            changes(&[(0, 100); 6], 0.9),
            [AdaptationChange::Held, AdaptationChange::Held]
        );
        assert_eq!(changes(&[(0, 100); 5], 0.4), []);
        // The queue shows that one more does not help.
        let full = changes(
            &[
                (0, 190),
                (0, 190),
                (0, 190),
                (0, 190),
                (0, 100),
                (0, 100),
                (0, 100),
            ],
            0.9,
        );
        assert_eq!(full, [AdaptationChange::Queued(BitRate::from_mbps(10))]);
    }

    #[test]
    fn a_rate_that_may_keep_a_processor_busy_is_said_once() {
        let mut course = CopyAdaptation::default();
        // 50 ms at 2 Gbit/s are 12.5 MB.
        let acknowledged = [0, 12_000_000, 25_000_000, 25_000_000, 50_000_000];
        let follow = |(acknowledged, at): (u64, u64)| {
            let rtt = Span::from_millis(4);
            let sample = SenderSample {
                segments: 1,
                retransmitted: 0,
                acknowledged,
                rtt,
                min_rtt: rtt,
            };
            course.add_sample(Time::from_nanos(at), sample, BufferTimes::default())
        };
        let changes: Vec<_> = acknowledged
            .into_iter()
            .zip((0..).step_by(50_000_000))
            .map(follow)
            .collect();
        assert_eq!(
            changes,
            [None, None, Some(AdaptationChange::Fast), None, None]
        );
    }
}
