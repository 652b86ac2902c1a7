use fullpipe_record::{Basis, Evidence, Limit, Verdict};
use fullpipe_units::{BitRate, Ratio};

use crate::application;
use crate::ceilings::ceilings;
use crate::ends;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::machine;
use crate::middlebox;
use crate::pacing;
use crate::path;
use crate::receiving;
use crate::seconds;
use crate::thresholds::IDLE;
use crate::words;

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
    let others = seconds::others(evidence, &finding);
    Verdict {
        kind: finding.kind,
        cause: finding.cause,
        at: finding.at,
        share: Ratio::new(finding.share.get().min(1.0)),
        sentence: words::sentence(&figures, &finding, &ceilings),
        evidence: words::shown(&figures, &finding),
        ceilings,
        others,
        basis: basis(evidence),
        would_tell: words::would_tell(evidence, &finding),
    }
}

fn basis(evidence: &Evidence) -> Basis {
    match (evidence.sender_samples.is_empty(), evidence.receiver_samples.is_empty()) {
        (true, false) => Basis::Receiver,
        (false, false) => Basis::BothEnds,
        (_, true) => Basis::Sender,
    }
}

fn find(figures: &Figures) -> Finding {
    if figures.flows.is_empty() {
        return Finding::unknown(vec!["samples of the sending end"]);
    }
    let found = middlebox::black_hole(figures).unwrap_or_else(|| limit(figures));
    traced(figures, found)
}

/// The limit by what TCP shows alone.
fn limit(figures: &Figures) -> Finding {
    if figures.looks().next().is_none() {
        return Finding::unknown(vec!["samples of the sending end"]);
    }
    if let Some(full) = path::full_as_told(figures) {
        return full;
    }
    let idle = figures.idle().filter(|idle| idle.get() > IDLE);
    match (limit_while_busy(figures), idle) {
        (Some(found), Some(idle)) if found.share < idle || found.kind == Limit::Unknown => ends::idle(figures, idle),
        (Some(found), _) => found,
        (None, Some(idle)) => ends::idle(figures, idle),
        (None, None) => Finding::unknown(lacking(figures)),
    }
}

fn limit_while_busy(figures: &Figures) -> Option<Finding> {
    match of_hosts(figures) {
        Some(found) if matches!(found.kind, Limit::ReceiveWindow | Limit::SendBuffer) => {
            Some(path::queue_behind_window(figures).unwrap_or(found))
        }
        Some(found) => Some(found),
        None => path::path(figures),
    }
}

/// A limit that one of the hosts or its program sets.
pub(crate) fn of_hosts(figures: &Figures) -> Option<Finding> {
    ends::receiver(figures)
        .or_else(|| pacing::by_program(figures))
        .or_else(|| ends::send_buffer(figures))
        .or_else(|| ends::sender_application(figures))
}

/// What lies behind a limit that TCP shows, where the rest of the evidence tells: a device that changes packets, a
/// processor, a file, the host's own queue.
fn traced(figures: &Figures, found: Finding) -> Finding {
    let behind = machine::behind(figures, &found)
        .or_else(|| middlebox::mss_clamped(figures, &found))
        .or_else(|| (found.kind == Limit::ReceiveWindow).then(|| middlebox::window(figures, &found))?)
        .or_else(|| machine::own_queue(figures, &found))
        .or_else(|| path::shared(figures, &found));
    behind.unwrap_or(found)
}

/// What would have been needed to say more.
fn lacking(figures: &Figures) -> Vec<&'static str> {
    let untold = |told: bool, name| (!told).then_some(name);
    let told = |one: fn(&crate::look::Look) -> bool| figures.looks().any(one);
    let mut names: Vec<&str> = [
        untold(told(|look| look.outstanding.is_some()), "bytes in flight (tcpi_unacked)"),
        untold(told(|look| look.cwnd.is_some()), "the congestion window (tcpi_snd_cwnd)"),
        untold(told(|look| look.window.is_some()), "the advertised window (tcpi_snd_wnd, Linux 5.4)"),
        untold(told(|look| look.not_sent.is_some()), "bytes not yet sent (tcpi_notsent_bytes, Linux 4.6)"),
        untold(told(|look| look.sndbuf.is_some() && look.queued.is_some()), "the send buffer (SO_MEMINFO)"),
        untold(figures.rtt.is_some(), "the round-trip time"),
        untold(figures.rate > BitRate::ZERO, "progress of the data"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if names.is_empty() {
        names.push("a limit that holds for most of the time");
    }
    names
}
