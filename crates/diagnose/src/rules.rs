//! The order in which the limits are looked for.

use fullpipe_record::Limit;
use fullpipe_units::BitRate;

use crate::ends;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::machine;
use crate::middlebox;
use crate::pacing;
use crate::path;
use crate::thresholds::IDLE;

/// The limit of the part of a transfer that `figures` are of.
pub(crate) fn find(figures: &Figures) -> Finding {
    if figures.flows.is_empty() {
        return Finding::unknown(vec!["samples of the sending end"]);
    }
    let found = middlebox::black_hole(figures).unwrap_or_else(|| limit(figures));
    traced(figures, found)
}

/// The limit by what TCP shows alone.
fn limit(figures: &Figures) -> Finding {
    if figures.snapshots().next().is_none() {
        return Finding::unknown(vec!["samples of the sending end"]);
    }
    if let Some(full) = path::full_as_stated(figures) {
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
    of_hosts(figures).or_else(|| path::path(figures))
}

/// A limit that one of the hosts or its program sets; or the full pipe, where a window holds more than fits it.
fn of_hosts(figures: &Figures) -> Option<Finding> {
    let found = ends::receiver(figures)
        .or_else(|| pacing::by_program(figures))
        .or_else(|| ends::send_buffer(figures))
        .or_else(|| ends::sender_application(figures))?;
    let is_window = matches!(found.kind, Limit::ReceiveWindow | Limit::SendBuffer);
    let queue = is_window.then(|| path::queue_behind_window(figures)).flatten();
    Some(queue.unwrap_or(found))
}

/// The same, and what lies behind it: all that can be told of a part too short to tell what the path does.
pub(crate) fn of_hosts_traced(figures: &Figures) -> Option<Finding> {
    of_hosts(figures).map(|found| traced(figures, found))
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
    let unstated = |stated: bool, name| (!stated).then_some(name);
    let stated = |one: fn(&crate::snapshot::Snapshot) -> bool| figures.snapshots().any(one);
    let mut names: Vec<&str> = [
        unstated(stated(|snapshot| snapshot.outstanding.is_some()), "bytes in flight (tcpi_unacked)"),
        unstated(stated(|snapshot| snapshot.cwnd.is_some()), "the congestion window (tcpi_snd_cwnd)"),
        unstated(stated(|snapshot| snapshot.window.is_some()), "the advertised window (tcpi_snd_wnd, Linux 5.4)"),
        unstated(stated(|snapshot| snapshot.not_sent.is_some()), "bytes not yet sent (tcpi_notsent_bytes, Linux 4.6)"),
        unstated(
            stated(|snapshot| snapshot.sndbuf.is_some() && snapshot.queued.is_some()),
            "the send buffer (SO_MEMINFO)",
        ),
        unstated(figures.rtt.is_some(), "the round-trip time"),
        unstated(figures.rate > BitRate::ZERO, "progress of the data"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if names.is_empty() {
        names.push("a limit that holds for most of the time");
    }
    names
}
