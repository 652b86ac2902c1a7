//! The rule by which a copy changes its connections while they run, from the kernel's figures.

use fullpipe_record::TcpInfo;
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

/// A share of lost segments above which CUBIC suffers: at 100 ms it carries less than 100 Mbit/s.
const LOSSY: f64 = 5e-5;

/// Lost segments from which a share can be taken.
const MIN_LOST: u64 = 5;

/// Intervals without a queue from which a share can be taken.
const QUIET_INTERVALS: u32 = 2;

/// Intervals with a queue until connections rest.
const QUEUED_INTERVALS: u32 = 3;

/// Conclusions from successive figures of the connections of a copy.
#[derive(Debug, Default)]
pub struct Course {
    last: Sample,
    /// Intervals without a queue, and the segments that were sent and sent again in them.
    quiet: u32,
    segments: u64,
    retransmitted: u64,
    queued: u32,
    has_changed: bool,
}

/// A change that the figures ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Loss without a queue, of this share.
    Lossy(Ratio),
    /// A queue stands, at this rate.
    Queued(BitRate),
}

/// The figures of all connections together.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    segments: u64,
    retransmitted: u64,
    acknowledged: u64,
    /// The shortest of the connections: a queue delays all of them, and a busy host only some.
    rtt: Span,
    min_rtt: Span,
}

impl Course {
    /// Time from the start of the data to the first figures, and between two.
    pub const INTERVAL: Span = Span::from_secs(1);

    /// Takes the figures of the sending end of each connection in. Returns the change that is due.
    pub fn follow(&mut self, connections: &[TcpInfo]) -> Option<Change> {
        self.take(Sample::of(connections))
    }

    fn take(&mut self, sample: Sample) -> Option<Change> {
        let last = std::mem::replace(&mut self.last, sample);
        // What overflows a queue is lost while packets wait in it, before or after.
        if last.segments > 0 && last.has_no_queue() && sample.has_no_queue() {
            self.quiet += 1;
            self.segments += sample.segments.saturating_sub(last.segments);
            self.retransmitted += sample.retransmitted.saturating_sub(last.retransmitted);
        }
        let loss = Ratio::of(self.retransmitted as f64, self.segments.max(1) as f64);
        let is_lossy = self.retransmitted >= MIN_LOST && loss.get() >= LOSSY;
        self.queued = if sample.has_queue() { self.queued + 1 } else { 0 };
        if is_lossy && self.quiet >= QUIET_INTERVALS && !self.has_changed {
            self.has_changed = true;
            return Some(Change::Lossy(loss));
        }
        if self.queued >= QUEUED_INTERVALS && !self.has_changed {
            self.queued = 0;
            let bytes = ByteCount::new(sample.acknowledged.saturating_sub(last.acknowledged));
            return Some(Change::Queued(BitRate::of(bytes, Self::INTERVAL)));
        }
        None
    }
}

impl Sample {
    fn of(infos: &[TcpInfo]) -> Self {
        let count = |of: fn(&TcpInfo) -> Option<SegCount>| infos.iter().filter_map(of).map(SegCount::get).sum();
        Self {
            segments: count(|info| info.data_segs_out),
            retransmitted: count(|info| info.total_retrans),
            acknowledged: infos.iter().filter_map(|info| info.bytes_acked).map(ByteCount::get).sum(),
            rtt: infos.iter().filter_map(|info| info.rtt).min().unwrap_or_default(),
            min_rtt: infos.iter().filter_map(|info| info.min_rtt).min().unwrap_or_default(),
        }
    }

    /// Packets wait for less than a tenth of the propagation time.
    fn has_no_queue(self) -> bool {
        self.rtt <= self.min_rtt.scaled(1.1) + Span::from_millis(2)
    }

    /// Packets wait for more than half of it.
    fn has_queue(self) -> bool {
        self.rtt > self.min_rtt.scaled(1.5) + Span::from_millis(5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, retransmitted: u64, rtt: u64) -> Sample {
        Sample {
            segments: second * 1000,
            retransmitted,
            acknowledged: second * 1_250_000,
            rtt: Span::from_millis(rtt),
            min_rtt: Span::from_millis(100),
        }
    }

    #[test]
    fn loss_without_a_queue_is_found_and_loss_by_a_full_queue_is_not() {
        let follow = |samples: &[(u64, u64)]| {
            let mut course = Course::default();
            let samples = samples.iter().enumerate();
            let changes = samples.map(|(at, (lost, rtt))| course.take(sample(at as u64 + 1, *lost, *rtt)));
            changes.flatten().collect::<Vec<_>>()
        };
        let lossy = follow(&[(10, 101), (20, 101), (30, 102), (40, 101)]);
        assert_eq!(lossy, [Change::Lossy(Ratio::new(0.01))]);
        assert_eq!(follow(&[(0, 100), (0, 101), (0, 100), (0, 100)]), []);
        let full = follow(&[(500, 199), (510, 190), (520, 180), (520, 101), (520, 101)]);
        assert_eq!(full, [Change::Queued(BitRate::from_mbps(10))]);
    }
}
