//! Fewer samples by a stated rule, so that no record is unboundedly large.

use crate::Sample;
use crate::prelude::*;

/// Samples of one end that a record keeps: about 3.5 MB of compact JSON.
pub const MAX_SAMPLES: usize = 2_000;

/// Snapshots that are kept at least, whatever the number of streams.
const MIN_SNAPSHOTS: usize = 10;

/// The rule by which the samples of an end were thinned.
///
/// A snapshot is one sample of each stream at the same time. The first and the last snapshot are
/// kept. Of the others, each `ramp_kept_every`th is kept until `ramp_until`, and each
/// `kept_every`th after it. Both are 1 where nothing was left out, and chosen so that about
/// [`MAX_SAMPLES`] samples remain, up to half of them from the ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thinning {
    /// Number of snapshots before thinning.
    pub snapshots: usize,
    /// End of the ramp, since the data began to flow: that of the steady part's beginning, or a
    /// tenth of the test.
    pub ramp_until: Span,
    /// Distance between the snapshots that were kept of the ramp.
    pub ramp_kept_every: usize,
    /// Distance between the snapshots that were kept after the ramp.
    pub kept_every: usize,
}

impl Thinning {
    /// Returns the rule for `samples`, ordered by time, of which about `max` shall remain. The ramp
    /// ends at `ramp`, or after a tenth of the samples' time if that is not known.
    pub fn from_samples(samples: &[Sample], ramp: Option<Span>, max: usize) -> Self {
        let last = samples.last().map_or(Span::ZERO, |sample| sample.at);
        let ramp_until = ramp.unwrap_or(last / 10);
        let sizes: Vec<(Span, usize)> = samples
            .chunk_by(|one, next| one.at == next.at)
            .map(|snapshot| (snapshot[0].at, snapshot.len()))
            .collect();
        let streams = sizes.iter().map(|(_, streams)| *streams).max().unwrap_or(1);
        let (snapshots, allowed) = (sizes.len(), (max / streams).max(MIN_SNAPSHOTS));
        if snapshots <= allowed {
            return Self {
                snapshots,
                ramp_until,
                ramp_kept_every: 1,
                kept_every: 1,
            };
        }
        let in_ramp = sizes.iter().filter(|(at, _)| *at <= ramp_until).count();
        let ramp_kept_every = in_ramp.div_ceil(allowed / 2).max(1);
        let left = allowed - in_ramp.div_ceil(ramp_kept_every);
        let kept_every = (snapshots - in_ramp).div_ceil(left).max(1);
        Self {
            snapshots,
            ramp_until,
            ramp_kept_every,
            kept_every,
        }
    }

    /// Returns the samples that the rule keeps.
    pub fn apply_rule(&self, samples: Vec<Sample>) -> Vec<Sample> {
        if self.ramp_kept_every == 1 && self.kept_every == 1 {
            return samples;
        }
        let last = samples.last().map_or(Span::ZERO, |sample| sample.at);
        let (mut current, mut index, mut of_rest, mut keeps) = (None, 0_usize, 0_usize, true);
        let mut kept = samples;
        kept.retain(|sample| {
            if current != Some(sample.at) {
                keeps = if sample.at <= self.ramp_until {
                    index.is_multiple_of(self.ramp_kept_every)
                } else {
                    of_rest += 1;
                    of_rest.is_multiple_of(self.kept_every)
                };
                keeps |= index == 0 || sample.at == last;
                index += 1;
                current = Some(sample.at);
            }
            keeps
        });
        kept
    }
}

/// Drops every second snapshot; the samples of one snapshot have the same time.
pub fn thin_out_snapshots(samples: &mut Vec<Sample>) {
    let (mut latest, mut keeps) = (None, false);
    samples.retain(|sample| {
        if latest != Some(sample.at) {
            latest = Some(sample.at);
            keeps = !keeps;
        }
        keeps
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TcpInfo;
    use fullpipe_units::ByteCount;

    fn samples(streams: u16, snapshots: u64) -> Vec<Sample> {
        let sample = |at, stream| Sample {
            at,
            stream,
            bytes: ByteCount::ZERO,
            tcp: TcpInfo::default(),
            memory: None,
        };
        (0..snapshots)
            .flat_map(|snapshot| {
                (0..streams).map(move |stream| sample(Span::from_millis(snapshot * 50), stream))
            })
            .collect()
    }

    #[test]
    fn few_samples_stay_as_they_are() {
        let all = samples(2, 1_000);
        let rule = Thinning::from_samples(&all, None, MAX_SAMPLES);
        assert_eq!((rule.ramp_kept_every, rule.kept_every), (1, 1));
        assert_eq!(rule.apply_rule(all.clone()), all);
    }

    #[test]
    fn first_and_last_stay_and_the_ramp_at_better_resolution() {
        let all = samples(90, 1_200);
        let rule = Thinning::from_samples(&all, Some(Span::from_secs(3)), MAX_SAMPLES);
        assert!(rule.ramp_kept_every < rule.kept_every, "{rule:?}");
        let kept = rule.apply_rule(all.clone());
        assert!(kept.len() <= MAX_SAMPLES + 180, "{}", kept.len());
        assert_eq!((kept.first(), kept.last()), (all.first(), all.last()));
        assert!(
            kept.chunks(90)
                .all(|snapshot| snapshot.iter().all(|sample| sample.at == snapshot[0].at))
        );
        let in_ramp = kept
            .iter()
            .filter(|sample| sample.at <= rule.ramp_until)
            .count();
        assert!(in_ramp * 3 > kept.len(), "{in_ramp} of {}", kept.len());
    }

    #[test]
    fn whole_snapshots_go_and_whole_snapshots_stay() {
        let mut all = samples(3, 5);
        thin_out_snapshots(&mut all);
        let left: Vec<Span> = all.iter().map(|sample| sample.at).collect();
        assert_eq!(
            left,
            [0, 0, 0, 100, 100, 100, 200, 200, 200].map(Span::from_millis)
        );
    }
}
