use fullpipe_record::samples_by_stream;

use crate::prelude::*;
use crate::signals::JudgedSample;
use crate::signals::snapshot::FallbackFigures;

/// Time within which the streams of one load begin. A stream of which there are samples only later
/// was added then, as a test of responsiveness adds its connections.
const TOGETHER: Span = Span::from_millis(500);

/// One stream at the sending end.
pub(crate) struct SenderStream<'a> {
    /// Every sample, by time.
    pub(crate) whole: Vec<&'a Sample>,
    /// The last sample before the judged part; `None` where that begins with the data.
    before: Option<&'a Sample>,
    /// The samples that are judged, with the figures of each.
    pub(crate) snapshots: Vec<JudgedSample<'a>>,
}

impl<'a> SenderStream<'a> {
    /// The streams of the sending end. Judged is `part`, or everything where there is none.
    pub(crate) fn from_sender_samples(evidence: &'a Evidence, part: Option<Steady>) -> Vec<Self> {
        let received = samples_by_stream(&evidence.receiver_samples);
        let sent = samples_by_stream(&evidence.sender_samples);
        let begun = evidence.sender_samples.iter().map(|sample| sample.at).min();
        let latest = begun.unwrap_or_default() + TOGETHER;
        let flows = sent.into_iter().map(|(stream, samples)| {
            let received = received.get(&stream).map_or(&[][..], Vec::as_slice);
            let fallback = FallbackFigures::from_receiver_samples(stream, received, evidence);
            let mut flow = Self::new(samples, &fallback, part);
            if flow.whole.first().is_some_and(|first| first.at > latest) {
                flow.begin_at_first_sample();
            }
            flow
        });
        flows.collect()
    }

    /// Leaves out what was before the first sample: the stream was not there yet.
    fn begin_at_first_sample(&mut self) {
        if self.before.is_none() && !self.snapshots.is_empty() {
            self.before = Some(self.snapshots.remove(0).sample);
        }
    }

    pub(crate) fn new(
        mut whole: Vec<&'a Sample>,
        fallback: &FallbackFigures,
        part: Option<Steady>,
    ) -> Self {
        whole.sort_by_key(|sample| sample.at);
        let (first, last) = match part {
            Some(part) => (part.ramp, part.ramp + part.duration),
            None => (Span::ZERO, Span::MAX),
        };
        let start = if first == Span::ZERO {
            0
        } else {
            whole.partition_point(|sample| sample.at <= first)
        };
        let end = whole.partition_point(|sample| sample.at <= last).max(start);
        Self {
            before: start.checked_sub(1).map(|index| whole[index]),
            snapshots: whole[start..end]
                .iter()
                .map(|sample| JudgedSample::new(sample, fallback))
                .collect(),
            whole,
        }
    }

    pub(crate) fn judged_samples(&self) -> Vec<&'a Sample> {
        self.snapshots.iter().map(|one| one.sample).collect()
    }

    /// Returns the samples from `at` on.
    pub(crate) fn samples_from(&self, at: Span) -> &[&'a Sample] {
        &self.whole[self.whole.partition_point(|sample| sample.at < at)..]
    }

    /// Returns the length of the judged part of this stream.
    pub(crate) fn judged_duration(&self) -> Span {
        let start = self.before.map_or(Span::ZERO, |sample| sample.at);
        self.snapshots.last().map_or(Span::ZERO, |snapshot| {
            snapshot.sample.at.saturating_sub(start)
        })
    }

    /// Returns the time from the last byte that was `moved` to the last sample.
    pub(crate) fn silent_for<T: PartialEq>(&self, moved: impl Fn(&Sample) -> T) -> Span {
        let Some(last) = self.whole.last() else {
            return Span::ZERO;
        };
        let progress = self
            .whole
            .iter()
            .find(|sample| moved(sample) == moved(last));
        progress.map_or(Span::ZERO, |first| last.at.saturating_sub(first.at))
    }

    /// Returns the growth of a counter of the kernel in the judged part.
    pub(crate) fn counter_growth(&self, counter: impl Fn(&TcpInfo) -> Option<u64>) -> Option<u64> {
        let last = counter(&self.snapshots.last()?.sample.tcp)?;
        let first = self.before.map_or(Some(0), |sample| counter(&sample.tcp))?;
        Some(last.saturating_sub(first))
    }
}
