use fullpipe_record::{Basis, Evidence, Limit, Verdict};
use fullpipe_units::Ratio;

use crate::application;
use crate::ceilings::ceilings;
use crate::explain;
use crate::figures::Figures;
use crate::receiving;
use crate::rules::find;
use crate::runner_up::{once_lifted, runner_up};
use crate::seconds;

/// What limits a transfer.
///
/// Judges the samples of the sending end in the steady part, or all of them where there is none, and reads nothing but
/// `evidence`: the capacity of the path only where the user told a bandwidth; otherwise a full pipe is known by its
/// queue, by a window that grows for nothing, or by BBR's probes. The rules go by what was in flight against each
/// window and by the memory of the socket; the kernel's own clocks only support them.
///
/// Never fails: evidence that shows nothing gives [`Limit::Unknown`], whose `missing` figure names what is lacking.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    if evidence.sender_samples.is_empty() && !evidence.receiver_samples.is_empty() {
        return receiving::judge(evidence);
    }
    let figures = Figures::of(evidence);
    let finding = application::above_tcp(evidence, figures.rate, figures.rtt, find(&figures));
    let mut ceilings = ceilings(&figures, &finding);
    ceilings.extend(application::ceiling(evidence, figures.rtt).map(|rate| (Limit::ApplicationWindow, rate)));
    let (others, of_the_time) = seconds::others(evidence, &finding);
    let once_lifted = once_lifted(finding.kind, [figures.rtt, figures.idle_rtt], &ceilings);
    Verdict {
        kind: finding.kind,
        cause: finding.cause,
        at: finding.at,
        share: Ratio::new(finding.share.get().min(1.0)),
        sentence: explain::sentence(&figures, &finding, &ceilings),
        runner_up: runner_up((finding.kind, figures.rate), &once_lifted, &others, of_the_time),
        evidence: explain::shown(&figures, &finding),
        ceilings,
        others,
        basis: basis(evidence),
        other_end_would_show: explain::other_end_would_show(evidence, &finding),
    }
}

fn basis(evidence: &Evidence) -> Basis {
    if evidence.receiver_samples.is_empty() { Basis::Sender } else { Basis::BothEnds }
}
