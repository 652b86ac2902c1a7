//! The confidence of a verdict: a function of how much evidence there is and how well it fits, the
//! same for every view.
//!
//! A logistic regression on `fullpipe-bench diagnosis --virtual`: on every view of 700 cases with
//! seed 6101, whole and cut off after 0.1 to 4 s, and on captures of 150 cases with seed 6102. A
//! verdict is right if it names the planted limit or has it among its candidates. The odds of the
//! receiving end are those of `fullpipe-bench independent --virtual` on seeds 1 to 5. What a ceiling
//! within the gates differs from the rate by, and whether another limit is close, had no weight
//! that differs from zero.

use fullpipe_record::{Basis, Limit};
use fullpipe_units::Ratio;

use crate::finding::LimitFinding;
use crate::signals::Signals;
use crate::thresholds::{MAX_CONFIDENCE_OF_FEW, MIN_SURE_SEGMENTS};

/// Logarithm of the odds of a verdict on next to nothing, by view. Of captures it is lower than
/// fitted: simulated ones are right more often (0.97) than those of the kernel (0.78 to 0.95).
const fn odds_of_view(view: Basis) -> f64 {
    match view {
        Basis::BothEnds | Basis::Sender => -1.4,
        Basis::Receiver => -1.0,
        Basis::Capture => -1.6,
    }
}

/// Odds that the share of the time which a limit explains adds, if it is all. The receiving end
/// sees of few limits for how long they held.
const fn odds_of_time(view: Basis) -> f64 {
    if matches!(view, Basis::Receiver) {
        1.5
    } else {
        2.9
    }
}

/// Odds that many segments with data add, and the number of which half of that is added.
const fn odds_of_segments(view: Basis) -> [f64; 2] {
    [
        if matches!(view, Basis::Receiver) {
            2.0
        } else {
            1.0
        },
        100.0,
    ]
}

/// The same of round trips.
const OF_ROUND_TRIPS: [f64; 2] = [0.4, 20.0];

/// Returns the odds that a few looks take, as those of listings.
fn odds_of_looks(few: Option<u64>) -> f64 {
    const OF_ONE_LOOK: f64 = 1.5;
    few.map_or(0.0, |looks| OF_ONE_LOOK / looks.max(1) as f64)
}

/// Returns the confidence in `finding` by the `signals` of its transfer, to a hundredth; zero of
/// one that names no limit.
pub(crate) fn confidence(view: Basis, finding: &LimitFinding, signals: &Signals) -> Ratio {
    if finding.limit_kind() == Limit::Unknown {
        return Ratio::ZERO;
    }
    let segments = signals.data_segments.map(|count| count as f64);
    let odds = odds_of_view(view)
        + odds_of_time(view) * finding.share.get().min(1.0)
        + saturated(segments, odds_of_segments(view))
        + saturated(signals.round_trips, OF_ROUND_TRIPS)
        - odds_of_looks(signals.few_looks);
    let is_few = signals
        .data_segments
        .is_some_and(|all| all < MIN_SURE_SEGMENTS);
    let most = if is_few { MAX_CONFIDENCE_OF_FEW } else { 1.0 };
    let confidence = (1.0 / (1.0 + (-odds).exp())).min(most);
    Ratio::new((confidence * 100.0).round() / 100.0)
}

/// Returns what `count` adds, of which `half` adds half of `most`; that also where it is not known.
fn saturated(count: Option<f64>, [most, half]: [f64; 2]) -> f64 {
    most * count.map_or(0.5, |count| count / (count + half))
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
