use fullpipe_record::{Basis, Candidate, LegalVerdict, LossVerdict, Request};
use fullpipe_units::Ratio;

use crate::candidates::{self, find_candidates};
use crate::finding::Finding;

#[test]
fn no_set_has_more_than_four_and_a_finding_has_one_of_a_view() {
    let views = [
        Basis::BothEnds,
        Basis::Sender,
        Basis::Receiver,
        Basis::Capture,
    ];
    for (view, names_other) in views
        .into_iter()
        .flat_map(|view| [(view, false), (view, true)])
    {
        let sets = candidates::sets_of(view, names_other).collect::<Vec<_>>();
        for (index, set) in sets.iter().enumerate() {
            assert!((2..=4).contains(&set.verdicts.len()));
            for other in &sets[index + 1..] {
                let differs = other
                    .verdicts
                    .iter()
                    .any(|verdict| !set.verdicts.contains(verdict));
                let is_other_first = other.verdicts[0] != set.verdicts[0];
                assert!(
                    differs || is_other_first,
                    "nothing chooses one of two sets of a view"
                );
                // Elsewhere the rules choose the set by its first verdict and another one.
                assert!(
                    view != Basis::Sender || names_other || is_other_first,
                    "the first verdict alone chooses"
                );
            }
        }
    }
}

#[test]
fn a_finding_that_is_sure_has_no_candidates_and_another_is_the_first() {
    let sure = Finding::new(LossVerdict::Policer, Ratio::ONE);
    assert!(
        find_candidates(Basis::Receiver, &sure, &Request::default())
            .0
            .is_empty()
    );
    let unsure = sure.one_of_several();
    assert!(
        find_candidates(Basis::BothEnds, &unsure, &Request::default())
            .0
            .is_empty(),
        "the view decides"
    );
    let (all, would_distinguish) = find_candidates(Basis::Receiver, &unsure, &Request::default());
    assert_eq!(
        (all.len(), all[0]),
        (3, Candidate::from(LegalVerdict::from(LossVerdict::Policer)))
    );
    assert!(would_distinguish.is_some());
}
