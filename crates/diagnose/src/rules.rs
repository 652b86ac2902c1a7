//! The order in which the limits are asked, in each view. A limit has one function for each place in
//! this order, in its own module, which knows its causes.

use fullpipe_record::{
    At, Basis, CaptureEvidence, CongestionWindowVerdict, LegalVerdict, Limit, LossVerdict,
    PacingVerdict,
};
use fullpipe_units::{BitRate, Ratio};

use crate::ceilings::held_against;
use crate::finding::{CandidateSet, Finding};
use crate::limits::capacity::{allowance, half_duplex, host_queue, link, shared};
use crate::limits::congestion_window::{growth, ramp_up, reordering};
use crate::limits::loss::{self, out_of_order, policer, receiver_host};
use crate::limits::mtu::{black_hole, mss_clamped};
use crate::limits::pacing::{congestion_control, max_pacing_rate, qdisc};
use crate::limits::receive_window::{self, device, memory_pressure};
use crate::limits::receiver_application::{self, slow_reader};
use crate::limits::sender_application::{self, idle, rate_limited};
use crate::limits::{cpu, send_buffer, sender_itself};
use crate::signals::path::UNSEEN;
use crate::signals::{
    CaptureView, JudgedSample, ReceiverView, SenderView, Signals, share_of_votes,
};
use crate::thresholds::{MIN_IDLE_SHARE, MIN_LIMIT_SHARE};

/// Returns the limit of the part of a transfer that `figures` of its sending end are of.
pub(crate) fn find_limit_of_sender(figures: &SenderView, signals: &Signals) -> Finding {
    if figures.flows.is_empty() {
        return Finding::unknown_limit(vec!["samples of the sending end"]);
    }
    let found = black_hole::without_progress(figures).unwrap_or_else(|| find_tcp_limit(figures));
    let found = trace_cause(figures, found);
    let found = allowance::behind_rates(figures, &found).unwrap_or(found);
    let found = slow_reader::beside_window_of_few_looks(figures, found);
    let found = open_at_few_looks(figures, found);
    match signals.first_possible(std::iter::once(found), |found| held_against(figures, found)) {
        Ok(found) => found,
        Err(lacking) => Finding::unknown_limit(lacking.into_iter().collect()),
    }
}

/// Returns `found` as one of several where a few looks show it that say neither how many packets
/// were lost at once, nor whether losses come again, nor who sets a pace.
fn open_at_few_looks(figures: &SenderView, found: Finding) -> Finding {
    let set = match found.verdict {
        LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering) => &AFTER_UNSEEN_LOSSES,
        LegalVerdict::Loss(LossVerdict::Random) => &UNSEEN_LOSSES,
        LegalVerdict::Pacing(PacingVerdict::Qdisc) => &WHOSE_PACE,
        _ => return found,
    };
    if figures.evidence.few_looks().is_some() {
        found.one_of(set)
    } else {
        found
    }
}

/// A window that grows at a few looks.
const AFTER_UNSEEN_LOSSES: CandidateSet = CandidateSet::new(
    &[LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering),
LegalVerdict::Loss(LossVerdict::Random),
LegalVerdict::Loss(LossVerdict::Policer),
LegalVerdict::Loss(LossVerdict::ShallowQueue)],
    "listings each second for a minute (ss -tin), or a capture: whether losses come again, and how many at once",
).in_views(&[Basis::Sender]);
/// Losses between a few looks.
const UNSEEN_LOSSES: CandidateSet = CandidateSet::new(
    &[LegalVerdict::Loss(LossVerdict::Random),
LegalVerdict::Loss(LossVerdict::Policer),
LegalVerdict::Loss(LossVerdict::ShallowQueue)],
    "listings each second for a minute (ss -tin), or a capture: how many are lost at once, and at which window",
).in_views(&[Basis::Sender]);
/// A pace at a few looks.
const WHOSE_PACE: CandidateSet = CandidateSet::new(
    &[LegalVerdict::Pacing(PacingVerdict::Qdisc),
LegalVerdict::Pacing(PacingVerdict::MaxPacingRate)],
    "the queueing discipline of the sender's device (tc -s qdisc), and whether its program sets a pace",
).in_views(&[Basis::Sender]);

/// Returns the limit that TCP alone shows.
fn find_tcp_limit(figures: &SenderView) -> Finding {
    if figures.snapshots().next().is_none() {
        return Finding::unknown_limit(vec!["samples of the sending end"]);
    }
    let as_a_whole = [link::full_as_stated, ramp_up::ended_early];
    if let Some(found) = as_a_whole.into_iter().find_map(|rule| rule(figures)) {
        return found;
    }
    let idle = figures
        .idle_share()
        .filter(|idle| idle.get() > MIN_IDLE_SHARE);
    match (limit_while_busy(figures), idle) {
        (Some(found), Some(idle))
            if found.share < idle
                || found.limit_kind() == Limit::Unknown
                || is_of_path(&found) && idle::runs_dry_throughout(figures) =>
        {
            idle::idle_program(figures, idle)
        }
        (Some(found), _) => found,
        (None, Some(idle)) => idle::idle_program(figures, idle),
        (None, None) => Finding::unknown_limit(missing_figures(figures)),
    }
}

fn is_of_path(found: &Finding) -> bool {
    matches!(
        found.limit_kind(),
        Limit::Capacity | Limit::Loss | Limit::CongestionWindow
    )
}

fn limit_while_busy(figures: &SenderView) -> Option<Finding> {
    of_hosts(figures).or_else(|| of_path(figures))
}

/// Returns a limit that one of the hosts or its program sets; or the full pipe, where a window
/// holds more than fits it.
fn of_hosts(figures: &SenderView) -> Option<Finding> {
    let order = [
        rate_limited::as_asked,
        receive_window::find_receive_window,
        max_pacing_rate::by_program,
        send_buffer::find_send_buffer,
        idle::find_program,
    ];
    let found = order.into_iter().find_map(|rule| rule(figures))?;
    let signals = Signals::from_sender(figures);
    if !matches!(found.limit_kind(), Limit::ReceiveWindow | Limit::SendBuffer) {
        return Some(found);
    }
    let behind = link::queue_behind_window(figures)
        .or_else(|| policer::policed_behind_window(figures, found.share));
    match behind {
        Some(behind) => Some(behind),
        None => signals
            .first_possible(std::iter::once(found), |found| held_against(figures, found))
            .ok(),
    }
}

/// Returns the limit that held the congestion window or the pace, if one of them held data back for
/// most of the time.
pub(crate) fn of_path(figures: &SenderView) -> Option<Finding> {
    let clocks = receive_window::clocks_say_window(figures);
    let held = share_of_votes(
        figures
            .snapshots()
            .map(|snapshot| snapshot.held_by_path(clocks)),
    )
    .filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    let order = [
        policer::without_queue,
        slow_reader::behind_late_acknowledgements,
        link::full_bottleneck,
        reordering::held_without_loss,
        loss::find_loss,
        congestion_control::below_window,
        qdisc::held_in_host,
        growth::find_growth_after_loss,
    ];
    let found = order.into_iter().find_map(|rule| rule(figures, held));
    Some(found.unwrap_or_else(|| unexplained_limit(figures, held)))
}

fn unexplained_limit(figures: &SenderView, held: Ratio) -> Finding {
    let missing = if figures.evidence.bandwidth.is_none() {
        "the bandwidth of the path"
    } else {
        UNSEEN
    };
    Finding {
        share: held,
        ..Finding::unknown_limit(vec![missing])
    }
}

/// Returns the limit of the hosts, with the cause behind it: a part may be too short to show the
/// limit of the path.
pub(crate) fn of_hosts_traced(figures: &SenderView) -> Option<Finding> {
    of_hosts(figures).map(|found| trace_cause(figures, found))
}

/// Returns the cause behind a limit that TCP shows, where the rest of the evidence shows it: a
/// device that changes packets, a processor, a file, the host's own queue. None lies behind a rate
/// that was asked for and is reached; and nothing but small segments behind a link that carries all
/// it can.
fn trace_cause(figures: &SenderView, found: Finding) -> Finding {
    if found.limit_kind() == Limit::SenderApplication && rate_limited::as_asked(figures).is_some() {
        return found;
    }
    if found.limit_kind() == Limit::Capacity && link::carries_all_as_stated(figures) {
        return mss_clamped::find_cause(figures, &found).unwrap_or(found);
    }
    let order = [
        memory_pressure::find_cause,
        sender_application::find_cause,
        receiver_application::find_cause,
        cpu::find_cause,
        mss_clamped::find_cause,
        device::find_cause,
        half_duplex::find_cause,
        receiver_host::find_cause,
        host_queue::behind_at_sender,
        qdisc::find_cause,
        shared::behind_on_path,
    ];
    order
        .into_iter()
        .find_map(|rule| rule(figures, &found))
        .unwrap_or(found)
}

/// Returns the limit of a transfer of which the receiving end alone was seen.
pub(crate) fn find_limit_of_receiver(arrivals: &ReceiverView, signals: &Signals) -> Finding {
    let sought = [
        black_hole::nothing_arrives,
        link::full_as_stated_by_arrivals,
        ramp_up::ended_early_by_arrivals,
        rate_limited::as_asked_by_arrivals,
        device::too_small_a_window_for_the_sender,
        slow_reader::slow_reader_by_arrivals,
        receive_window::own_window_in_use,
        cpu::own_processor,
        out_of_order::waits_for_timeouts,
        idle::silent_beyond_windows,
        shared::lengthened_path,
        link::queue_on_the_path,
        out_of_order::out_of_order,
        rate_limited::nearly_as_asked,
        growth::growing_window,
        idle::silent_sender,
        sender_itself::sender_itself,
    ];
    let found = sought.into_iter().filter_map(|rule| rule(arrivals));
    let found = signals.first_possible(found, |_| arrivals.find_ceilings());
    let found =
        found.unwrap_or_else(|lacking| Finding::unknown_limit(vec![lacking.unwrap_or(OTHER_END)]));
    half_duplex::behind_arrivals(arrivals.evidence, &found)
        .or_else(|| receiver_host::behind_arrivals(arrivals, &found))
        .or_else(|| mss_clamped::behind_arrivals(arrivals, &found))
        .unwrap_or(found)
}

/// Returns the limit that a capture shows.
pub(crate) fn find_limit_of_capture(
    figures: &SenderView,
    capture: &CaptureEvidence,
    signals: &Signals,
) -> Finding {
    let view = CaptureView { figures, capture };
    if let Some(end) = capture.only {
        let missing = if end == At::Sender {
            ACKNOWLEDGEMENTS
        } else {
            DATA
        };
        return link::full_as_stated(figures)
            .or_else(|| view.repeats_in_vain())
            .unwrap_or_else(|| Finding::unknown_limit(vec![missing]));
    }
    let whole = [black_hole::without_progress, link::full_as_stated];
    let order = [
        CaptureView::ended_early,
        CaptureView::swinging_window,
        CaptureView::below_a_segment,
        CaptureView::closed_on_the_way,
        CaptureView::slow_reader,
        CaptureView::ramp_up,
        CaptureView::find_receive_window,
        CaptureView::fallen_window,
        CaptureView::little_and_no_answer,
        CaptureView::find_idle_sender,
        CaptureView::settled_below,
        CaptureView::policed_at_first,
        CaptureView::caught_up,
        CaptureView::lowered_window,
        CaptureView::full_at_first,
        CaptureView::own_pace,
        CaptureView::own_queue,
        CaptureView::buffer_of_sender,
        CaptureView::late_receiver,
        CaptureView::find_path_limit,
        CaptureView::idle_at_times,
        CaptureView::find_window_growth,
        CaptureView::of_sender,
    ];
    let found = [
        CaptureView::unscaled_at_sender,
        CaptureView::hardly_anything,
    ]
    .into_iter()
    .filter_map(|rule| rule(&view));
    let found = found
        .chain(whole.into_iter().filter_map(|rule| rule(figures)))
        .chain(order.into_iter().filter_map(|rule| rule(&view)));
    let found = signals
        .first_possible(found, |found| held_against(figures, found))
        .unwrap_or_else(|lacking| Finding::unknown_limit(vec![lacking.unwrap_or(SENDER)]));
    let causes = [receiver_host::find_cause, mss_clamped::find_cause];
    let cause = causes.into_iter().find_map(|rule| rule(figures, &found));
    view.with_open_end(cause.unwrap_or(found))
}

/// Returns the names of the figures that more would take.
fn missing_figures(figures: &SenderView) -> Vec<&'static str> {
    let mut names: Vec<&str> = FIGURES_OF_SNAPSHOTS
        .into_iter()
        .filter(|(_, is_stated)| !figures.snapshots().any(is_stated))
        .map(|(name, _)| name)
        .collect();
    if figures.rtt.is_none() {
        names.push("the round-trip time");
    }
    if figures.rate == BitRate::ZERO {
        names.push("progress of the data");
    }
    if names.is_empty() {
        names.push("a limit that holds for most of the time");
    }
    names
}

/// The name of a figure, and the test of a snapshot that has it.
type SnapshotFigure = (&'static str, fn(&JudgedSample) -> bool);

/// The figures of a snapshot that a judgement needs.
const FIGURES_OF_SNAPSHOTS: [SnapshotFigure; 5] = [
    ("bytes in flight (tcpi_unacked)", |snapshot| {
        snapshot.outstanding.is_some()
    }),
    ("the congestion window (tcpi_snd_cwnd)", |snapshot| {
        snapshot.cwnd.is_some()
    }),
    (
        "the advertised window (tcpi_snd_wnd, Linux 5.4)",
        |snapshot| snapshot.window.is_some(),
    ),
    (
        "bytes not yet sent (tcpi_notsent_bytes, Linux 4.6)",
        |snapshot| snapshot.not_sent.is_some(),
    ),
    ("the send buffer (SO_MEMINFO)", |snapshot| {
        snapshot.sndbuf.is_some() && snapshot.queued.is_some()
    }),
];
/// Figures that only the sender has.
const SENDER: &str = "the sender's congestion window, its buffer and its pace";
/// Figures that only the receiver's packets have, and those that only the sender's have.
const ACKNOWLEDGEMENTS: &str =
    "the receiver's acknowledgements and windows: a capture of the other direction";
const DATA: &str = "the sender's data: a capture of the other direction";
/// Figures that only the other end has.
pub(crate) const OTHER_END: &str =
    "the sender's congestion window, its send buffer and what it sent again";
