use crate::prelude::*;
use crate::{Sample, Steady, samples_by_stream};

/// Samples of different streams that lie closer together than this are one snapshot.
pub const SNAPSHOT_SPREAD: Span = Span::from_millis(20);

/// A rate is taken over at least this long, so that a few samples lie in it.
const RATE_WINDOW: Span = Span::from_millis(200);

/// The bytes that had passed at any time, all streams together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferProgress {
    streams: Vec<Vec<(Span, ByteCount)>>,
}

impl TransferProgress {
    /// Returns the progress that the samples of the sending end show, without those after `until`.
    /// A stream counts what was acknowledged, or what was written where the kernel did not state
    /// that in every sample.
    pub fn from_samples<'a>(samples: impl IntoIterator<Item = &'a Sample>, until: Span) -> Self {
        Self::with_counter(arrived_bytes, samples, until)
    }

    /// Returns the progress that the samples of the receiving end show, without those after
    /// `until`. A stream counts what its connection received, or what the program read where the
    /// kernel did not state that in every sample.
    pub fn of_receiver<'a>(samples: impl IntoIterator<Item = &'a Sample>, until: Span) -> Self {
        Self::with_counter(|sample| sample.tcp.bytes_received, samples, until)
    }

    fn with_counter<'a>(
        count: Counter,
        samples: impl IntoIterator<Item = &'a Sample>,
        until: Span,
    ) -> Self {
        let samples = samples.into_iter().filter(|sample| sample.at <= until);
        Self {
            streams: samples_by_stream(samples)
                .into_values()
                .map(|samples| stream_curve(samples, count))
                .collect(),
        }
    }

    /// Returns the times at which all streams were sampled, in order.
    pub fn snapshot_times(&self) -> Vec<Span> {
        let mut times: Vec<Span> = self.streams.iter().flatten().map(|(at, _)| *at).collect();
        times.sort_unstable();
        let Some(last) = times.last().copied() else {
            return times;
        };
        let mut snapshots: Vec<Span> = Vec::new();
        for at in times {
            if snapshots
                .last()
                .is_none_or(|previous| at.saturating_sub(*previous) >= SNAPSHOT_SPREAD)
            {
                snapshots.push(at);
            }
        }
        // The end of the data is the end of the last snapshot, so that no byte is left out.
        if let Some(end) = snapshots.last_mut() {
            *end = last;
        }
        snapshots
    }

    /// Returns the mean rate between two times; zero where they are not in this order.
    pub fn mean_rate(&self, from: Span, to: Span) -> BitRate {
        BitRate::from_bytes_in(
            self.bytes_at(to).saturating_sub(self.bytes_at(from)),
            to.saturating_sub(from),
        )
    }

    /// Returns the mean rate before each snapshot, over the longer of 200 ms and `rtt`; snapshots
    /// that come earlier after the start have none.
    pub fn windowed_rates(&self, rtt: Span) -> Vec<(Span, BitRate)> {
        let window = Self::rate_window(rtt);
        let late_enough = self.snapshot_times().into_iter().filter(|at| *at >= window);
        late_enough
            .map(|at| (at, self.mean_rate(at - window, at)))
            .collect()
    }

    /// Returns the length of the window over which [`TransferProgress::windowed_rates`] takes each
    /// rate.
    pub fn rate_window(rtt: Span) -> Span {
        RATE_WINDOW.max(rtt)
    }

    /// Returns the part of the transfer between two times, of which the first ends its ramp.
    pub fn steady_between(&self, ramp: Span, end: Span) -> Steady {
        Steady {
            ramp,
            ramp_rate: self.mean_rate(Span::ZERO, ramp),
            rate: self.mean_rate(ramp, end),
            duration: end.saturating_sub(ramp),
        }
    }

    /// Returns the bytes that had passed.
    pub fn bytes_at(&self, at: Span) -> ByteCount {
        self.streams
            .iter()
            .map(|curve| interpolate_bytes(curve, at))
            .sum()
    }
}

/// Returns the bytes that have arrived as the sending end knows: those acknowledged, selectively
/// too. Once a gap is filled, all that lies above it is acknowledged at once, though the path
/// carried it before.
fn arrived_bytes(sample: &Sample) -> Option<ByteCount> {
    let above_gaps = sample
        .tcp
        .sacked
        .unwrap_or_default()
        .of_size(sample.tcp.snd_mss.unwrap_or_default());
    Some(sample.tcp.bytes_acked? + above_gaps)
}

/// The kernel's count of the bytes that passed, where it has one.
type Counter = fn(&Sample) -> Option<ByteCount>;

fn stream_curve(mut samples: Vec<&Sample>, count: Counter) -> Vec<(Span, ByteCount)> {
    samples.sort_by_key(|sample| sample.at);
    let is_counted = samples.iter().all(|sample| count(sample).is_some());
    let bytes = |sample: &Sample| count(sample).filter(|_| is_counted).unwrap_or(sample.bytes);
    samples
        .into_iter()
        .map(|sample| (sample.at, bytes(sample)))
        .collect()
}

/// Linear between two samples, from nothing at the start, and level after the last.
fn interpolate_bytes(curve: &[(Span, ByteCount)], at: Span) -> ByteCount {
    let after = curve.partition_point(|(time, _)| *time <= at);
    let (start, low) = if after == 0 {
        (Span::ZERO, ByteCount::ZERO)
    } else {
        curve[after - 1]
    };
    let Some((end, high)) = curve.get(after).copied() else {
        return low;
    };
    let elapsed = at.saturating_sub(start).as_secs_f64() / end.saturating_sub(start).as_secs_f64();
    low + high.saturating_sub(low).scale_by(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TcpInfo;
    use fullpipe_units::SegCount;

    fn sample(millis: u64, stream: u16, written: u64, acked: Option<u64>) -> Sample {
        Sample {
            at: Span::from_millis(millis),
            stream,
            bytes: ByteCount::new(written),
            tcp: TcpInfo {
                bytes_acked: acked.map(ByteCount::new),
                ..TcpInfo::default()
            },
            memory: None,
        }
    }

    #[test]
    fn streams_add_up_and_are_linear_between_samples() {
        let samples = [
            sample(100, 0, 0, Some(1000)),
            sample(101, 1, 0, Some(2020)),
            sample(200, 0, 0, Some(3000)),
        ];
        let progress = TransferProgress::from_samples(&samples, Span::MAX);
        assert_eq!(
            progress.bytes_at(Span::from_millis(150)),
            ByteCount::new(2000 + 2020)
        );
        assert_eq!(
            progress.bytes_at(Span::from_millis(50)),
            ByteCount::new(500 + 1000)
        );
        assert_eq!(
            progress.snapshot_times(),
            [Span::from_millis(100), Span::from_millis(200)]
        );
    }

    #[test]
    fn what_has_arrived_above_a_gap_counts_when_it_arrives_and_not_when_the_gap_is_filled() {
        let mut samples =
            [(100, 1000, 0), (200, 1000, 5), (300, 7000, 0)].map(|(millis, acked, sacked)| {
                let mut sample = sample(millis, 0, 0, Some(acked));
                (sample.tcp.sacked, sample.tcp.snd_mss) =
                    (Some(SegCount::new(sacked)), Some(ByteCount::new(1000)));
                sample
            });
        let passed = |samples: &[Sample]| {
            let progress = TransferProgress::from_samples(samples, Span::MAX);
            [100, 200, 300].map(|millis| progress.bytes_at(Span::from_millis(millis)).get())
        };
        assert_eq!(passed(&samples), [1000, 6000, 7000]);
        samples[1].tcp.sacked = None;
        assert_eq!(
            passed(&samples),
            [1000, 1000, 7000],
            "a kernel that does not say"
        );
    }

    #[test]
    fn a_stream_without_acknowledged_bytes_counts_what_was_written() {
        let samples = [sample(100, 0, 5000, Some(1000)), sample(200, 0, 9000, None)];
        assert_eq!(
            TransferProgress::from_samples(&samples, Span::MAX).bytes_at(Span::from_millis(200)),
            ByteCount::new(9000)
        );
    }

    #[test]
    fn samples_after_the_end_do_not_count() {
        let samples = [sample(100, 0, 1000, None), sample(200, 0, 9000, None)];
        assert_eq!(
            TransferProgress::from_samples(&samples, Span::from_millis(150)).snapshot_times(),
            [Span::from_millis(100)]
        );
    }
}
