use std::collections::BTreeMap;

use fullpipe_record::{Basis, Evidence, Limit, Verdict};
use fullpipe_units::Ratio;

use crate::candidates::candidates;
use crate::captured;
use crate::ceilings::ceilings;
use crate::confidence::confidence;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::limits::{self, Facts, application_window};
use crate::receiving;
use crate::rules::find;
use crate::runner_up::{once_lifted, runner_up};
use crate::seconds;
use crate::syn_quotes;
use crate::text::{self, Row};

/// Returns the limit of a transfer.
///
/// Judges the samples of the sending end in the steady part, or all of them where there is none, and reads nothing but
/// `evidence`: the capacity of the path only where the user stated a bandwidth; otherwise a full pipe is known by its
/// queue, by a window that grows for nothing, or by BBR's probes. The rules go by what was in flight against each
/// window and by the memory of the socket; the kernel's own clocks only support them.
///
/// Never fails: evidence that shows nothing gives [`Limit::Unknown`], whose `missing` figure names what is lacking.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    if evidence.sender_samples.is_empty() && !evidence.receiver_samples.is_empty() {
        return receiving::judge(evidence);
    }
    let figures = Figures::of(evidence);
    let found = evidence.capture.as_ref().map_or_else(|| find(&figures), |capture| captured::find(&figures, capture));
    let finding = application_window::above_tcp(evidence, figures.rate, figures.rtt, found);
    let basis = basis(evidence);
    let (candidates, would_distinguish) = candidates(basis, &finding);
    let facts = limits::facts(&finding, &figures);
    let mut ceilings = ceilings(&figures, &finding);
    ceilings.extend(application_window::ceiling(evidence, figures.rtt).map(|rate| (Limit::ApplicationWindow, rate)));
    let (others, of_the_time) = seconds::others(evidence, &finding);
    let once_lifted = once_lifted(finding.kind(), [figures.rtt, figures.idle_rtt], &ceilings);
    Verdict {
        kind: finding.kind(),
        cause: finding.verdict.cause(),
        at: finding.verdict.at(),
        share: Ratio::new(finding.share.get().min(1.0)),
        confidence: confidence(basis, &finding),
        sentence: sentence(&figures, &finding, facts.as_ref()),
        runner_up: runner_up((finding.kind(), figures.rate), &once_lifted, &others, of_the_time),
        evidence: shown(&figures, &finding, facts.as_ref()),
        ceilings,
        others,
        basis,
        candidates,
        would_distinguish,
        other_end_would_show: other_end_would_show(evidence, facts.as_ref()),
    }
}

fn sentence(figures: &Figures, finding: &Finding, facts: &dyn Facts) -> String {
    let of_capture = || captured::sentence(figures, figures.evidence.capture.as_ref()?, finding);
    of_capture().unwrap_or_else(|| facts.sentence())
}

fn basis(evidence: &Evidence) -> Basis {
    if evidence.capture.is_some() {
        return Basis::Capture;
    }
    if evidence.receiver_samples.is_empty() { Basis::Sender } else { Basis::BothEnds }
}

/// Returns the evidence that the view of the other end would add to a verdict from the sender
/// alone.
fn other_end_would_show(evidence: &Evidence, facts: &dyn Facts) -> Option<String> {
    let sender_alone = !evidence.sender_samples.is_empty() && basis(evidence) == Basis::Sender;
    facts.other_end_would_show().filter(|_| sender_alone).map(str::to_owned)
}

/// Returns the figures that decided, by the names that they have on the screen.
fn shown(figures: &Figures, finding: &Finding, facts: &dyn Facts) -> BTreeMap<String, String> {
    let lost = figures.retransmitted();
    let always: [Row; 7] = [
        ("rate", Some(figures.rate.to_string())),
        ("round trip", figures.rtt.map(|rtt| format!("{rtt}, idle {}", text::time(figures.idle_rtt)))),
        ("congestion control", figures.congestion().map(str::to_owned)),
        ("samples", Some(text::of_streams(figures.snapshots().count(), figures.flows.len()))),
        ("retransmitted", lost.map(|lost| format!("{} of {} segments", lost.again, lost.sent))),
        ("SYN as quoted by routers", syn_quotes::stated(figures.evidence)),
        ("missing", (!finding.missing.is_empty()).then(|| finding.missing.join(", "))),
    ];
    let of_capture = figures.evidence.capture.iter().flat_map(captured::shown);
    always
        .into_iter()
        .chain(facts.shown())
        .chain(of_capture)
        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
        .collect()
}
