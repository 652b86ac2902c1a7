//! Loss without a queue, as the kernel's figures show it while a sender sends.

use fullpipe_record::{TcpInfo, packets_wait};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};

/// Time between two samples.
pub const INTERVAL: Span = Span::from_secs(1);

/// A share of lost segments above which CUBIC suffers: at 100 ms it carries less than 100 Mbit/s.
pub const LOSSY: f64 = 5e-5;

/// Lost segments from which a share can be taken.
const MIN_LOST: u64 = 5;

/// Intervals without a queue from which a share can be taken.
const QUIET_INTERVALS: u32 = 2;

/// Figures of a connection, or of several together, up to now.
#[derive(Debug, Clone, Copy, Default)]
pub struct SenderSample {
    /// Segments with data.
    pub segments: u64,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Bytes that were acknowledged.
    pub acknowledged: u64,
    /// The shortest of the connections: a queue delays all of them, and a busy host only some.
    pub rtt: Span,
    /// The shortest of all so far.
    pub min_rtt: Span,
}

impl SenderSample {
    /// Returns the sum of the figures of connections over the same path.
    pub fn of(infos: &[TcpInfo]) -> Self {
        let count = |of: fn(&TcpInfo) -> Option<SegCount>| infos.iter().filter_map(of).map(SegCount::get).sum();
        Self {
            segments: count(|info| info.data_segs_out),
            retransmitted: count(|info| info.total_retrans),
            acknowledged: infos.iter().filter_map(|info| info.bytes_acked).map(ByteCount::get).sum(),
            rtt: infos.iter().filter_map(|info| info.rtt).min().unwrap_or_default(),
            min_rtt: infos.iter().filter_map(|info| info.min_rtt).min().unwrap_or_default(),
        }
    }

    /// Returns whether packets wait for less than a tenth of the propagation time ([`packets_wait`]).
    pub fn has_no_queue(self) -> bool {
        !packets_wait(self.rtt, self.min_rtt)
    }

    /// Returns whether packets wait for more than half of it.
    pub fn has_queue(self) -> bool {
        self.rtt > self.min_rtt.scaled(1.5) + Span::from_millis(5)
    }
}

/// Conclusions from successive samples, one each [`INTERVAL`].
#[derive(Debug, Default)]
pub struct UnqueuedLoss {
    last: SenderSample,
    /// Intervals without a queue, and the segments that were sent and sent again in them.
    quiet: u32,
    segments: u64,
    retransmitted: u64,
}

impl UnqueuedLoss {
    /// Returns the sample before.
    pub const fn last(&self) -> SenderSample {
        self.last
    }

    /// Returns the share of segments that are lost while no packet waits, once it is known and so large that CUBIC and
    /// Reno suffer from it.
    pub fn follow(&mut self, sample: SenderSample) -> Option<Ratio> {
        let last = std::mem::replace(&mut self.last, sample);
        // What overflows a queue is lost while packets wait in it, before or after.
        if last.segments > 0 && last.has_no_queue() && sample.has_no_queue() {
            self.quiet += 1;
            self.segments += sample.segments.saturating_sub(last.segments);
            self.retransmitted += sample.retransmitted.saturating_sub(last.retransmitted);
        }
        let share = Ratio::of(self.retransmitted as f64, self.segments.max(1) as f64);
        let is_known = self.retransmitted >= MIN_LOST && self.quiet >= QUIET_INTERVALS;
        Some(share).filter(|share| is_known && share.get() >= LOSSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is known after each second of a thousand segments, with so many sent again up to then and this RTT.
    fn followed(seconds: &[(u64, u64)]) -> Vec<Option<Ratio>> {
        let mut loss = UnqueuedLoss::default();
        let samples = seconds.iter().zip(1..).map(|((retransmitted, rtt), second)| SenderSample {
            segments: second * 1000,
            retransmitted: *retransmitted,
            rtt: Span::from_millis(*rtt),
            min_rtt: Span::from_millis(100),
            ..SenderSample::default()
        });
        samples.map(|sample| loss.follow(sample)).collect()
    }

    #[test]
    fn loss_without_a_queue_is_found_and_loss_by_a_full_queue_is_not() {
        let percent = Some(Ratio::new(0.01));
        assert_eq!(followed(&[(10, 101), (20, 101), (30, 102)]), [None, None, percent]);
        assert_eq!(followed(&[(0, 100), (0, 101), (0, 100), (0, 100)]), [None; 4]);
        assert_eq!(followed(&[(500, 199), (510, 190), (520, 180), (520, 101), (520, 101)]), [None; 5]);
        // Three lost segments may be chance.
        assert_eq!(followed(&[(1, 100), (2, 100), (3, 100), (3, 100)]), [None; 4]);
    }
}
