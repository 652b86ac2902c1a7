//! The confidence of a verdict: a function of how much evidence there is and how well it fits, the
//! same for every view.
//!
//! A logistic regression on the nine views of cases of `fullpipe-bench independent --virtual`. On
//! seeds 99301, 99303, 99307, 99401, 99403 and 99407 (2243 transfers) 98 to 99 % of the verdicts of
//! each whole view name the planted limit or have it among their candidates, however much evidence
//! there is, so that one set of weights serves all of them. Of one look or five it depends on the
//! kind of limit instead: windows, buffers, paces and programs show in each, a queue or a reader
//! that was once faster do not. Held below what was fitted are the surest verdicts (0.96; captures
//! of real kernels were right less often than simulated ones), and those on a few dozen segments:
//! planted limits of so few are plain, and those of others are not.

use crate::finding::Finding;
use crate::gates::EvidenceAmount;
use crate::prelude::*;

/// Logarithm of the odds of a verdict on next to nothing, and what is added if a limit explains all
/// of the time, by many segments with data, and by many round trips.
type OddsWeights = [f64; 4];

/// The weights of a whole view.
const OF_WHOLE_VIEW: OddsWeights = [-0.3, 0.7, 2.4, 0.5];

/// Returns the weights of so many looks at each connection, as listings have.
const fn weights_of_looks(limit: Limit, looks: u64) -> OddsWeights {
    let all_of_the_time = match limit {
        Limit::Capacity => 1.8,
        Limit::Loss if looks > 1 => 3.0,
        Limit::Loss | Limit::CongestionWindow => 2.4,
        Limit::ReceiverApplication if looks <= 1 => 0.7,
        _ if looks <= 1 => 2.75,
        _ => 3.2,
    };
    // At one look nearly all planted limits explain all of the time.
    let time = if looks <= 1 { 6.5 } else { 2.0 };
    [all_of_the_time - time, time, 0.0, 0.0]
}

/// Numbers of segments and of round trips by which half of their weight is added.
const HALF_OF_SEGMENTS: f64 = 30.0;
const HALF_OF_ROUND_TRIPS: f64 = 6.0;
/// Segments with data from which a verdict may be surer than [`MAX_CONFIDENCE_OF_FEW`]: an initial
/// window (RFC 6928).
const MIN_SURE_SEGMENTS: u64 = 10;
/// Largest confidence of a verdict on fewer segments.
const MAX_CONFIDENCE_OF_FEW: f64 = 0.5;

/// Returns the confidence in `finding` by the `amount` of its evidence, to a hundredth; zero of
/// one that names no limit.
pub(crate) fn confidence(finding: &Finding, amount: &EvidenceAmount) -> Ratio {
    if finding.limit_kind() == Limit::Unknown {
        return Ratio::ZERO;
    }
    let segments = amount.data_segments.map(|count| count as f64);
    let [nothing, time, many, long] = match amount.few_looks {
        Some(looks) => weights_of_looks(finding.limit_kind(), looks),
        None => OF_WHOLE_VIEW,
    };
    let odds = nothing
        + time * finding.share.get().min(1.0)
        + many * saturated(segments, HALF_OF_SEGMENTS)
        + long * saturated(amount.round_trips, HALF_OF_ROUND_TRIPS);
    let is_few = amount
        .data_segments
        .is_some_and(|all| all < MIN_SURE_SEGMENTS);
    let most = if is_few { MAX_CONFIDENCE_OF_FEW } else { 1.0 };
    let confidence = (1.0 / (1.0 + (-odds).exp())).min(most);
    Ratio::new((confidence * 100.0).round() / 100.0)
}

/// Returns the share of its weight that `count` adds, of which `half` adds half; that also where it
/// is not known.
fn saturated(count: Option<f64>, half: f64) -> f64 {
    count.map_or(0.5, |count| count / (count + half))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{LossVerdict, UnknownVerdict};
    use fullpipe_units::BitRate;

    fn amount(segments: u64, round_trips: f64) -> EvidenceAmount {
        EvidenceAmount {
            rate: BitRate::from_mbps(10),
            data_segments: Some(segments),
            round_trips: Some(round_trips),
            full_segment_passed: true,
            few_looks: None,
        }
    }

    #[test]
    fn more_evidence_and_more_of_the_time_make_a_verdict_surer() {
        let sure = |share, segments, rounds| {
            let found = Finding::new(LossVerdict::Policer, Ratio::new(share));
            confidence(&found, &amount(segments, rounds)).get()
        };
        let course = [
            sure(0.5, 10, 2.0),
            sure(1.0, 10, 2.0),
            sure(1.0, 5_000, 2.0),
            sure(1.0, 5_000, 100.0),
        ];
        assert!(
            course.windows(2).all(|pair| pair[0] < pair[1]),
            "{course:?}"
        );
        assert!(
            (0.85..0.97).contains(&course[3]) && course[0] < 0.7,
            "{course:?}"
        );
    }

    #[test]
    fn fewer_than_ten_segments_are_never_more_than_half_sure_and_nothing_found_is_not_sure() {
        let found = Finding::new(LossVerdict::Policer, Ratio::ONE);
        let unknown = Finding::new(UnknownVerdict::EvidenceMissing, Ratio::ONE);
        assert!(confidence(&found, &amount(9, 100.0)).get() <= 0.5);
        assert!(confidence(&found, &amount(10, 100.0)).get() > 0.5);
        assert_eq!(confidence(&unknown, &amount(5_000, 100.0)), Ratio::ZERO);
    }
}
