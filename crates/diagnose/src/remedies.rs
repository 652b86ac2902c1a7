use std::cmp::Reverse;

use fullpipe_record::{Evidence, Remedy, Verdict};

use crate::advice::Advice;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::limits;

/// Returns the remedies for the limit that `verdict` names, best first: by the predicted rate, then by the smallest
/// scope.
///
/// Each prediction is [`fullpipe_model::predict()`] over the settings and the load as changed. It is an interval from
/// the present rate upwards where the bandwidth was not stated or an end's settings are not known, and `None` where
/// nothing can be predicted. Remedies without a gain are left out. A change of `tcp_wmem` is for the sending host
/// and one of `tcp_rmem` for the receiving one, whichever end the remedy is listed at.
///
/// `commands` are left empty. Nothing follows from a verdict of [`fullpipe_record::Limit::Unknown`].
pub fn remedies(evidence: &Evidence, verdict: &Verdict) -> Vec<Remedy> {
    let Some(legal) = verdict.legal() else { return Vec::new() };
    let figures = Figures::of(evidence);
    let facts = limits::facts(&Finding::new(legal, verdict.share), &figures);
    let advice = Advice::new(&figures, legal, verdict);
    let mut remedies = facts.settings(&advice);
    remedies.retain(|remedy| advice.gains(remedy));
    // A remedy that a setting carries out needs no person.
    let is_new = |remedy: &Remedy| remedies.iter().all(|other| other.id != remedy.id);
    let manual = facts.manual().iter().map(|manual| advice.by_a_person(manual));
    let manual: Vec<Remedy> = manual.filter(is_new).collect();
    remedies.extend(manual);
    remedies.sort_by_key(|remedy| (Reverse(remedy.predicted.map(|forecast| forecast.bits_per_second)), remedy.scope));
    remedies
}
