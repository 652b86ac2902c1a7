//! The order in which the limits are asked. A limit has one function for each place in this order, in its own module,
//! which knows its causes.

use fullpipe_record::Limit;
use fullpipe_units::{BitRate, Ratio};

use crate::ceilings::ceilings;
use crate::figures::{Figures, share};
use crate::finding::Finding;
use crate::limits::{
    capacity, congestion_window, cpu, loss, mtu, pacing, receive_window, receiver_application, send_buffer,
    sender_application,
};
use crate::path::UNSEEN;
use crate::thresholds::{MAX_CEILING_FACTOR, MIN_IDLE_SHARE, MIN_LIMIT_SHARE};

/// Returns the limit of the part of a transfer that `figures` are of.
pub(crate) fn find(figures: &Figures) -> Finding {
    if figures.flows.is_empty() {
        return Finding::unknown(vec!["samples of the sending end"]);
    }
    let found = mtu::without_progress(figures).unwrap_or_else(|| limit(figures));
    traced(figures, found)
}

/// Returns the limit that TCP alone shows.
fn limit(figures: &Figures) -> Finding {
    if figures.snapshots().next().is_none() {
        return Finding::unknown(vec!["samples of the sending end"]);
    }
    let as_a_whole = [capacity::full_as_stated, congestion_window::ended_early];
    if let Some(found) = as_a_whole.into_iter().find_map(|rule| rule(figures)) {
        return found;
    }
    let idle = figures.idle().filter(|idle| idle.get() > MIN_IDLE_SHARE);
    match (limit_while_busy(figures), idle) {
        (Some(found), Some(idle)) if found.share < idle || found.kind() == Limit::Unknown => {
            sender_application::idle(figures, idle)
        }
        (Some(found), _) => found,
        (None, Some(idle)) => sender_application::idle(figures, idle),
        (None, None) => Finding::unknown(lacking(figures)),
    }
}

fn limit_while_busy(figures: &Figures) -> Option<Finding> {
    of_hosts(figures).or_else(|| of_path(figures))
}

/// Returns a limit that one of the hosts or its program sets; or the full pipe, where a window holds more than fits it.
fn of_hosts(figures: &Figures) -> Option<Finding> {
    let order = [
        sender_application::as_asked,
        receive_window::find,
        pacing::by_program,
        send_buffer::find,
        sender_application::find,
    ];
    let found = order.into_iter().find_map(|rule| rule(figures))?;
    if !matches!(found.kind(), Limit::ReceiveWindow | Limit::SendBuffer) {
        return Some(found);
    }
    match capacity::queue_behind_window(figures) {
        Some(queue) => Some(queue),
        None => (!allows_far_more(figures, &found)).then_some(found),
    }
}

/// Returns true if a window that seems full would allow so much more than was carried that something else held the
/// transfer: data that comes in bursts fills a window for a moment. One below a segment allows hardly anything.
fn allows_far_more(figures: &Figures, found: &Finding) -> bool {
    if found.kind() == Limit::ReceiveWindow && receive_window::is_below_a_segment(figures) {
        return false;
    }
    let ceiling = ceilings(figures, found).get(&found.kind()).copied();
    ceiling.is_some_and(|ceiling| ceiling > figures.rate.scaled(MAX_CEILING_FACTOR))
}

/// Returns the limit that held the congestion window or the pace, if one of them held data back for most of the time.
fn of_path(figures: &Figures) -> Option<Finding> {
    let clocks = receive_window::clocks_say_window(figures);
    let held = share(figures.snapshots().map(|snapshot| snapshot.held_by_path(clocks)))
        .filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    let order = [
        loss::without_queue,
        receiver_application::behind_late_acknowledgements,
        capacity::full_bottleneck,
        congestion_window::held_without_loss,
        loss::find,
        pacing::below_window,
        pacing::held_in_host,
        congestion_window::growth,
    ];
    let found = order.into_iter().find_map(|rule| rule(figures, held));
    Some(found.unwrap_or_else(|| unexplained(figures, held)))
}

fn unexplained(figures: &Figures, held: Ratio) -> Finding {
    let missing = if figures.evidence.bandwidth.is_none() { "the bandwidth of the path" } else { UNSEEN };
    Finding { share: held, ..Finding::unknown(vec![missing]) }
}

/// Returns the limit of the hosts, with the cause behind it: a part may be too short to show the limit of the path.
pub(crate) fn of_hosts_traced(figures: &Figures) -> Option<Finding> {
    of_hosts(figures).map(|found| traced(figures, found))
}

/// Returns the cause behind a limit that TCP shows, where the rest of the evidence shows it: a device that changes
/// packets, a processor, a file, the host's own queue. None lies behind a rate that was asked for and is reached; and
/// nothing but small segments behind a link that carries all it can.
fn traced(figures: &Figures, found: Finding) -> Finding {
    if found.kind() == Limit::SenderApplication && sender_application::as_asked(figures).is_some() {
        return found;
    }
    if found.kind() == Limit::Capacity && capacity::carries_all_as_stated(figures) {
        return mtu::behind(figures, &found).unwrap_or(found);
    }
    let order = [
        sender_application::behind,
        receiver_application::behind,
        cpu::behind,
        mtu::behind,
        receive_window::behind,
        capacity::behind_at_sender,
        pacing::behind,
        capacity::behind_on_path,
    ];
    order.into_iter().find_map(|rule| rule(figures, &found)).unwrap_or(found)
}

/// Returns the names of the figures that more would take.
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
