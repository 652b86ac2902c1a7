//! The confidence of a verdict: a function of how much evidence there is and how well it fits, the
//! same for every view.
//!
//! A logistic regression on the nine views of 1100 cases of `fullpipe-bench independent --virtual`
//! (seeds 75111, 76222 and 77333), with the condition that half of the time, 50 segments and 5 round
//! trips never make a verdict surer than 0.7. A verdict is right if it names the planted limit or
//! has it among its candidates. Of captures and of one look the odds are lower than fitted:
//! simulated captures are right more often (0.97) than those of the kernel were (0.78 to 0.95), and
//! one look of a program's pauses may be any.

use fullpipe_record::{Basis, Limit};
use fullpipe_units::Ratio;

use crate::finding::LimitFinding;
use crate::signals::Signals;
use crate::thresholds::{MAX_CONFIDENCE_OF_FEW, MIN_SURE_SEGMENTS};

/// Logarithm of the odds of a verdict on next to nothing, and what is added if a limit explains all
/// of the time, by many segments with data, and by many round trips.
type OddsWeights = [f64; 4];

/// Returns the weights of a view; of one look at each connection, or a few of them, as listings
/// have. The receiving end sees of few limits for how long they held.
const fn odds_weights(view: Basis, few_looks: Option<u64>) -> OddsWeights {
    match (view, few_looks) {
        (_, Some(0 | 1)) => [-1.15, 0.0, 0.8, 2.0],
        (_, Some(_)) => [-0.15, 0.9, 1.4, 0.6],
        (Basis::BothEnds | Basis::Sender, None) => [-1.7, 3.8, 0.8, 0.5],
        (Basis::Receiver, None) => [-0.85, 1.2, 2.2, 0.9],
        (Basis::Capture, None) => [-1.2, 1.4, 1.9, 0.9],
    }
}

/// Numbers of segments and of round trips by which half of their weight is added.
const HALF_OF_SEGMENTS: f64 = 100.0;
const HALF_OF_ROUND_TRIPS: f64 = 20.0;

/// Returns the confidence in `finding` by the `signals` of its transfer, to a hundredth; zero of
/// one that names no limit.
pub(crate) fn confidence(view: Basis, finding: &LimitFinding, signals: &Signals) -> Ratio {
    if finding.limit_kind() == Limit::Unknown {
        return Ratio::ZERO;
    }
    let segments = signals.data_segments.map(|count| count as f64);
    let [nothing, time, many, long] = odds_weights(view, signals.few_looks);
    let odds = nothing
        + time * finding.share.get().min(1.0)
        + many * saturated(segments, HALF_OF_SEGMENTS)
        + long * saturated(signals.round_trips, HALF_OF_ROUND_TRIPS);
    let is_few = signals
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

    const VIEWS: [Basis; 4] = [
        Basis::BothEnds,
        Basis::Sender,
        Basis::Receiver,
        Basis::Capture,
    ];

    fn signals(segments: u64, round_trips: f64) -> Signals {
        Signals {
            rate: BitRate::from_mbps(10),
            data_segments: Some(segments),
            round_trips: Some(round_trips),
            full_segment_passed: true,
            few_looks: None,
        }
    }

    #[test]
    fn more_evidence_and_more_of_the_time_make_a_verdict_surer_in_every_view() {
        let found = |share| LimitFinding::new(LossVerdict::Policer, Ratio::new(share));
        for view in VIEWS {
            let sure = |share, segments, rounds| {
                confidence(view, &found(share), &signals(segments, rounds)).get()
            };
            let course = [
                sure(0.5, 50, 5.0),
                sure(1.0, 50, 5.0),
                sure(1.0, 5_000, 5.0),
                sure(1.0, 5_000, 100.0),
            ];
            assert!(
                course.windows(2).all(|pair| pair[0] < pair[1]),
                "{view:?}: {course:?}"
            );
            assert!(
                (0.85..0.97).contains(&course[3]) && course[0] < 0.7,
                "{view:?}: {course:?}"
            );
        }
    }

    #[test]
    fn fewer_than_ten_segments_are_never_more_than_half_sure_and_nothing_found_is_not_sure() {
        let found = LimitFinding::new(LossVerdict::Policer, Ratio::ONE);
        let unknown = LimitFinding::new(UnknownVerdict::EvidenceMissing, Ratio::ONE);
        for view in VIEWS {
            assert!(confidence(view, &found, &signals(9, 100.0)).get() <= 0.5);
            assert!(confidence(view, &found, &signals(10, 100.0)).get() > 0.5);
            assert_eq!(
                confidence(view, &unknown, &signals(5_000, 100.0)),
                Ratio::ZERO
            );
        }
    }
}
