use std::cmp::Reverse;

use crate::advice::{RemedyAdvice, fills_a_queue};
use crate::limits;
use crate::prelude::*;
use crate::signals::SenderView;

/// Returns the remedies for the limit that `verdict` names, best first: of those that reach about
/// the highest predicted rate, the ones that fill no queue, and then those of the smallest scope;
/// the others by their rate; relays last.
///
/// Each prediction is [`fullpipe_model::predict()`] over the settings and the load as changed. It
/// is an interval from a little below the present rate upwards where the bandwidth was not stated
/// or an end's settings are not known, and `None` where nothing can be predicted. Remedies without
/// a gain are left out. A change of `tcp_wmem` is for the sending host and one of `tcp_rmem` for
/// the receiving one, whichever end the remedy is listed at.
///
/// `commands` are left empty. Nothing follows from a verdict of
/// [`fullpipe_record::Limit::Unknown`].
pub fn find_remedies(evidence: &Evidence, verdict: &Verdict) -> Vec<Remedy> {
    let Some(legal) = verdict.legal_verdict() else {
        return Vec::new();
    };
    let figures = SenderView::from_evidence(evidence);
    let cause = limits::cause_of(legal);
    let advice = RemedyAdvice::new(&figures, legal, verdict);
    let settings = (cause.setting_remedies)(&advice).into_iter().flatten();
    let mut remedies: Vec<Remedy> = settings
        .filter(|remedy| advice.is_worthwhile(remedy))
        .collect();
    // A remedy that a setting carries out needs no person.
    let manual: Vec<Remedy> = cause
        .manual_remedies
        .iter()
        .map(|manual| advice.by_a_person(manual))
        .filter(|manual| remedies.iter().all(|other| other.id != manual.id))
        .collect();
    remedies.extend(manual);
    sort_remedies(&mut remedies);
    remedies
}

/// Largest difference between two predicted rates, as a share, at which their round trips decide
/// which remedy is better.
const SAME_RATE: f64 = 0.05;

fn sort_remedies(remedies: &mut [Remedy]) {
    let highest = remedies
        .iter()
        .filter(|remedy| !needs_machines(remedy))
        .filter_map(predicted_rate)
        .max();
    let about_the_highest = highest.map(|rate| rate.scale_by(1.0 - SAME_RATE));
    remedies.sort_by_key(|remedy| {
        let rate = predicted_rate(remedy);
        let is_slower = rate.is_none() || rate < about_the_highest;
        let slower = is_slower.then_some(Reverse(rate));
        (
            needs_machines(remedy),
            slower,
            !is_slower && fills_a_queue(remedy),
            remedy.scope,
            Reverse(rate),
        )
    });
}

fn predicted_rate(remedy: &Remedy) -> Option<BitRate> {
    Some(remedy.predicted?.bits_per_second)
}

/// Returns true of relays: they carry out what no setting does, on machines that are still to be
/// found.
fn needs_machines(remedy: &Remedy) -> bool {
    remedy.scope == Scope::Path && remedy.predicted.is_some()
}
