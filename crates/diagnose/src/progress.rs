use std::collections::BTreeMap;

use fullpipe_record::Sample;
use fullpipe_units::{BitRate, ByteCount, Span};

/// Streams are looked at one after the other; times closer together than this are one snapshot.
pub(crate) const ONE_LOOK: Span = Span::from_millis(20);

/// How many bytes had passed at any time, all streams together.
pub(crate) struct Progress {
    streams: Vec<Vec<(Span, ByteCount)>>,
}

impl Progress {
    /// From the samples of the sending end, those after `until` left out. A stream counts what was acknowledged, or
    /// what was written where the kernel did not tell that in every sample.
    pub(crate) fn of<'a>(samples: impl IntoIterator<Item = &'a Sample>, until: Span) -> Self {
        let mut by_stream: BTreeMap<u16, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.into_iter().filter(|sample| sample.at <= until) {
            by_stream.entry(sample.stream).or_default().push(sample);
        }
        Self { streams: by_stream.into_values().map(curve).collect() }
    }

    /// The times at which the streams were looked at.
    pub(crate) fn snapshots(&self) -> Vec<Span> {
        let mut times: Vec<Span> = self.streams.iter().flatten().map(|(at, _)| *at).collect();
        times.sort_unstable();
        let Some(last) = times.last().copied() else { return times };
        let mut snapshots: Vec<Span> = Vec::new();
        for at in times {
            if snapshots.last().is_none_or(|previous| at.saturating_sub(*previous) >= ONE_LOOK) {
                snapshots.push(at);
            }
        }
        // The end of the data is the end of the last snapshot, so that no byte is left out.
        if let Some(end) = snapshots.last_mut() {
            *end = last;
        }
        snapshots
    }

    /// Mean rate between two times; zero where they are not in this order.
    pub(crate) fn rate(&self, from: Span, to: Span) -> BitRate {
        BitRate::of(self.passed(to).saturating_sub(self.passed(from)), to.saturating_sub(from))
    }

    fn passed(&self, at: Span) -> ByteCount {
        self.streams.iter().map(|curve| interpolated(curve, at)).sum()
    }
}

fn curve(mut samples: Vec<&Sample>) -> Vec<(Span, ByteCount)> {
    samples.sort_by_key(|sample| sample.at);
    let acknowledged = samples.iter().all(|sample| sample.tcp.bytes_acked.is_some());
    let bytes = |sample: &Sample| sample.tcp.bytes_acked.filter(|_| acknowledged).unwrap_or(sample.bytes);
    samples.into_iter().map(|sample| (sample.at, bytes(sample))).collect()
}

/// Linear between two samples, from nothing at the start, and level after the last.
fn interpolated(curve: &[(Span, ByteCount)], at: Span) -> ByteCount {
    let after = curve.partition_point(|(time, _)| *time <= at);
    let (start, low) = if after == 0 { (Span::ZERO, ByteCount::ZERO) } else { curve[after - 1] };
    let Some((end, high)) = curve.get(after).copied() else { return low };
    let elapsed = at.saturating_sub(start).as_secs_f64() / end.saturating_sub(start).as_secs_f64();
    low + high.saturating_sub(low).scaled(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::TcpInfo;

    fn sample(millis: u64, stream: u16, written: u64, acked: Option<u64>) -> Sample {
        Sample {
            at: Span::from_millis(millis),
            stream,
            bytes: ByteCount::new(written),
            tcp: TcpInfo { bytes_acked: acked.map(ByteCount::new), ..TcpInfo::default() },
            memory: None,
        }
    }

    #[test]
    fn streams_add_up_and_are_linear_between_samples() {
        let samples = [sample(100, 0, 0, Some(1000)), sample(101, 1, 0, Some(2020)), sample(200, 0, 0, Some(3000))];
        let progress = Progress::of(&samples, Span::MAX);
        assert_eq!(progress.passed(Span::from_millis(150)), ByteCount::new(2000 + 2020));
        assert_eq!(progress.passed(Span::from_millis(50)), ByteCount::new(500 + 1000));
        assert_eq!(progress.snapshots(), [Span::from_millis(100), Span::from_millis(200)]);
    }

    #[test]
    fn a_stream_without_acknowledged_bytes_counts_what_was_written() {
        let samples = [sample(100, 0, 5000, Some(1000)), sample(200, 0, 9000, None)];
        assert_eq!(Progress::of(&samples, Span::MAX).passed(Span::from_millis(200)), ByteCount::new(9000));
    }

    #[test]
    fn samples_after_the_end_do_not_count() {
        let samples = [sample(100, 0, 1000, None), sample(200, 0, 9000, None)];
        assert_eq!(Progress::of(&samples, Span::from_millis(150)).snapshots(), [Span::from_millis(100)]);
    }
}
