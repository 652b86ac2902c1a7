//! Loss without a queue, as the kernel's figures show it while a sender sends.

use fullpipe_record::{TcpInfo, packets_wait};
use fullpipe_units::Time;

use crate::prelude::*;

/// Time between two samples that are compared, at least. Over longer paths it is a round-trip time.
pub const INTERVAL: Span = Span::from_millis(50);

/// A share of lost segments above which CUBIC suffers: at 100 ms it carries less than 100 Mbit/s.
pub const LOSSY: f64 = 5e-5;

/// Intervals, or round trips, with lost segments, and without a queue, from which a share can be
/// taken. A sender under CUBIC has slowed down by two thirds by then.
pub const MIN_EVENTS: u32 = 3;

/// Round trips for which a sender may retransmit what a queue has dropped.
const RECOVERY: f64 = 5.0;

/// Figures of a connection, or of several together, up to now.
#[derive(Debug, Clone, Copy, Default)]
pub struct SenderSample {
    /// Segments with data.
    pub segments: u64,
    /// Segments that were retransmitted because they were lost.
    pub retransmitted: u64,
    /// Bytes that were acknowledged.
    pub acknowledged: u64,
    /// The shortest of the connections: a queue delays all of them, and a busy host only some.
    pub rtt: Span,
    /// The shortest of all so far.
    pub min_rtt: Span,
}

impl SenderSample {
    /// Returns the sum of the figures of connections over the same path. The round-trip time of one
    /// with nothing on its way is of the past.
    pub fn from_infos(infos: &[TcpInfo]) -> Self {
        let with_data = infos
            .iter()
            .filter(|info| info.unacked > Some(SegCount::ZERO));
        let rtt = with_data.filter_map(|info| info.rtt).min();
        let min_rtt = infos.iter().filter_map(|info| info.min_rtt).min();
        Self {
            segments: sum_of_counts(infos, |info| info.data_segs_out),
            // Probes of the tail may retransmit what has arrived, and the receiver says so (RFC
            // 2883).
            retransmitted: sum_of_counts(infos, |info| info.total_retrans)
                .saturating_sub(sum_of_counts(infos, |info| info.dsack_dups)),
            acknowledged: infos
                .iter()
                .filter_map(|info| info.bytes_acked)
                .map(ByteCount::get)
                .sum(),
            rtt: rtt
                .or_else(|| infos.iter().filter_map(|info| info.rtt).min())
                .unwrap_or_default(),
            min_rtt: min_rtt.unwrap_or_default(),
        }
    }

    /// Returns true if packets wait for less than a tenth of the propagation time
    /// ([`packets_wait`]).
    pub fn has_no_queue(self) -> bool {
        !packets_wait(self.rtt, self.min_rtt)
    }

    /// Returns true if packets wait for more than half of it.
    pub fn has_queue(self) -> bool {
        self.rtt > self.min_rtt.scale_by(1.5) + Span::from_millis(5)
    }
}

fn sum_of_counts(infos: &[TcpInfo], count: fn(&TcpInfo) -> Option<SegCount>) -> u64 {
    infos.iter().filter_map(count).map(SegCount::get).sum()
}

/// Conclusions from successive samples.
#[derive(Debug, Default)]
pub struct UnqueuedLoss {
    last: Option<(Time, SenderSample)>,
    /// Until then segments may be retransmitted because a queue had no room for them.
    recovers_until: Time,
    /// Intervals with loss that no queue explains, and the segments that were sent and lost in
    /// those without a queue.
    events: u32,
    segments: u64,
    lost: u64,
}

impl UnqueuedLoss {
    /// Takes a sample. Returns the share of segments that are lost while no packet waits, once it
    /// is known and so large that CUBIC and Reno suffer from it.
    pub fn add_sample(&mut self, at: Time, sample: SenderSample) -> Option<Ratio> {
        if !sample.has_no_queue() {
            self.end_recovery(at, sample);
        }
        let (from, last) = *self.last.get_or_insert((at, sample));
        if at.duration_since(from) >= INTERVAL.max(sample.rtt) {
            self.last = Some((at, sample));
            self.count_interval(from, at, last, sample);
        }
        let share = Ratio::from_quotient(self.lost as f64, self.segments.max(1) as f64);
        Some(share).filter(|share| self.events >= MIN_EVENTS && share.get() >= LOSSY)
    }

    fn count_interval(&mut self, from: Time, at: Time, last: SenderSample, sample: SenderSample) {
        let lost = sample.retransmitted.saturating_sub(last.retransmitted);
        if lost > 0 && last.retransmitted == 0 {
            // It may be the end of slow start, in a queue too short to be seen.
            self.end_recovery(at, sample);
        } else if from >= self.recovers_until {
            self.events += u32::from(lost > 0);
            self.segments += sample.segments.saturating_sub(last.segments);
            self.lost += lost;
        } else if lost == 0 && sample.acknowledged > last.acknowledged && sample.has_no_queue() {
            self.recovers_until = at;
        }
    }

    fn end_recovery(&mut self, at: Time, sample: SenderSample) {
        self.recovers_until = at + sample.rtt.scale_by(RECOVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the loss without a queue, as far as it is known, after each tenth of a second with a
    /// thousand segments, with so many lost ones up to then and this RTT, over a path of 50 ms.
    fn followed(tenths: &[(u64, u64)]) -> Vec<Option<Ratio>> {
        let mut loss = UnqueuedLoss::default();
        let samples = tenths.iter().zip(1..).map(|((lost, rtt), tenth)| {
            let sample = SenderSample {
                segments: tenth * 1000,
                retransmitted: *lost,
                acknowledged: tenth * 1_448_000,
                rtt: Span::from_millis(*rtt),
                min_rtt: Span::from_millis(50),
            };
            (Time::from_nanos(tenth * 100_000_000), sample)
        });
        samples
            .map(|(at, sample)| loss.add_sample(at, sample))
            .collect()
    }

    #[test]
    fn loss_without_a_queue_is_found_from_its_fourth_interval_on() {
        let share = Some(Ratio::new(0.01));
        let always = [
            (0, 50),
            (10, 51),
            (20, 51),
            (30, 52),
            (40, 51),
            (50, 50),
            (60, 50),
            (70, 50),
            (80, 50),
            (90, 50),
        ];
        // The first loss may be the end of slow start, for five round trips.
        let (known, unknown) = (followed(&always), [None; 7]);
        assert_eq!((&known[..7], known[9]), (&unknown[..], share));
        let at_times = [
            (0, 50),
            (10, 50),
            (10, 50),
            (20, 50),
            (20, 50),
            (40, 50),
            (40, 50),
            (50, 50),
        ];
        assert_eq!(
            followed(&at_times).iter().position(Option::is_some),
            Some(7)
        );
        assert_eq!(followed(&[(0, 50); 30]), [None; 30]);
        // Twice may be chance.
        assert_eq!(
            followed(&[
                (0, 50),
                (1, 50),
                (1, 50),
                (2, 50),
                (3, 50),
                (3, 50),
                (3, 50)
            ]),
            [None; 7]
        );
    }

    #[test]
    fn loss_by_a_full_queue_is_not_found() {
        let overflow = [
            (0, 55),
            (0, 95),
            (500, 99),
            (510, 52),
            (520, 51),
            (530, 51),
            (530, 50),
            (530, 51),
        ];
        assert_eq!(followed(&overflow), [None; 8]);
        // The sender retransmits what the receiver misses as long as that acknowledges nothing
        // else.
        let mut loss = UnqueuedLoss::default();
        let share = (0..9).map(|tenth| {
            let sample = SenderSample {
                segments: 1000 * (tenth + 1),
                retransmitted: 100 * (tenth / 2),
                acknowledged: 0,
                rtt: Span::from_millis(50),
                min_rtt: Span::from_millis(50),
            };
            loss.add_sample(Time::from_nanos(tenth * 100_000_000), sample)
        });
        assert!(share.take(6).all(|share| share.is_none()));
    }

    /// A connection that stood by had the round-trip time of its handshake: where another filled
    /// the queue, that was taken for a path without one, and its losses for the path's.
    #[test]
    fn the_round_trip_time_is_that_of_connections_with_data_on_its_way() {
        let info = |rtt, unacked| TcpInfo {
            rtt: Some(Span::from_millis(rtt)),
            unacked: Some(SegCount::new(unacked)),
            ..TcpInfo::default()
        };
        let rtt = |infos: &[TcpInfo]| SenderSample::from_infos(infos).rtt;
        assert_eq!(
            rtt(&[info(24, 16), info(4, 0), info(20, 1)]),
            Span::from_millis(20)
        );
        assert_eq!(rtt(&[info(24, 0), info(4, 0)]), Span::from_millis(4));
    }
}
