//! How the rules are asked: those of a view in their order, and then what lies behind the limit
//! that was found.

use std::collections::BTreeMap;

use crate::ceilings::{ceilings_against, held_against};
use crate::finding::{Finding, candidate_sets};
use crate::gates::EvidenceAmount;
use crate::limits::capacity::link::{self, LOSS_OR_QUEUE};
use crate::limits::capacity::{allowance, shared};
use crate::limits::loss::policer;
use crate::limits::mtu::{black_hole, mss_clamped};
use crate::limits::receive_window;
use crate::limits::receiver_application::slow_reader;
use crate::limits::sender_application::{idle, rate_limited};
use crate::limits::{ORDER, Rule, cause_of};
use crate::prelude::*;
use crate::signals::path::UNSEEN;
use crate::signals::{CaptureView, JudgedSample, SenderView, TransferView, share_of_votes};
use crate::thresholds::{MIN_IDLE_SHARE, MIN_LIMIT_SHARE};

impl Rule {
    fn find(&self, view: &TransferView) -> Option<Finding> {
        match self {
            Self::Any(rule) => rule(view),
            Self::Sender(rule) => rule(view.sender()?),
            Self::Packets(rule) => rule(&view.packets()?),
            Self::Receiver(rule) => rule(view.receiver()?),
            Self::CapturedPath => find_captured_path_limit(&view.packets()?),
            Self::BusyOrIdle => busy_or_idle(view.kernel()?),
            _ => None,
        }
    }

    fn find_host(&self, figures: &SenderView) -> Option<Finding> {
        match self {
            Self::Host(rule) => rule(figures),
            _ => None,
        }
    }

    fn find_behind(&self, view: &TransferView, found: &Finding) -> Option<Finding> {
        match self {
            Self::Behind(rule) => rule(view, found),
            Self::KernelBehind(rule) => rule(view.kernel()?, found),
            _ => None,
        }
    }
}

/// Returns the limit of a transfer.
pub(crate) fn find_limit(view: &TransferView, amount: &EvidenceAmount) -> Finding {
    if let Some(end) = view.packets().and_then(|packets| packets.capture.only) {
        return one_way(view, end);
    }
    let mut found = ORDER.iter().filter_map(|rule| rule.find(view));
    if let Some(figures) = view.kernel() {
        return limit_by_kernel(view, figures, found.next(), amount);
    }
    let found = first_possible(amount, found, |found| ceilings_against(view, found));
    let unseen = if view.receiver().is_some() {
        OTHER_END
    } else {
        SENDER
    };
    let found =
        found.unwrap_or_else(|lacking| Finding::unknown_limit(vec![lacking.unwrap_or(unseen)]));
    let found = trace_cause(view, found);
    match view.packets() {
        Some(packets) => packets.with_open_end(found),
        None => found,
    }
}

/// Segments with data from which a transfer shows how fast it could have been; fewer fit into one
/// flight.
const MIN_DATA_SEGMENTS: u64 = 5;

/// Returns the first of some findings that nothing speaks against, or else what spoke against the
/// first; each with the ceilings of its limits.
fn first_possible(
    amount: &EvidenceAmount,
    found: impl Iterator<Item = Finding>,
    ceilings: impl Fn(&Finding) -> BTreeMap<Limit, BitRate>,
) -> Result<Finding, Option<&'static str>> {
    let mut lacking = None;
    for one in found {
        let cause = cause_of(one.verdict);
        let ceiling = ceilings(&one).get(&one.limit_kind()).copied();
        let is_too_little = !cause.shows_in_few_packets
            && amount
                .data_segments
                .is_some_and(|all| all < MIN_DATA_SEGMENTS);
        let contradiction = (cause.disproof)(amount, ceiling)
            .or(is_too_little.then_some("more packets (so few show no limit)"));
        match contradiction {
            None => return Ok(one),
            Some(reason) => lacking = lacking.or(Some(reason)),
        }
    }
    Err(lacking)
}

/// Returns the limit that was `found` in the figures of the sender's kernel. They show one limit,
/// that of its busy time, whose cause is traced before anything speaks against it.
fn limit_by_kernel(
    view: &TransferView,
    figures: &SenderView,
    found: Option<Finding>,
    amount: &EvidenceAmount,
) -> Finding {
    let unseen = || Finding::unknown_limit(vec!["samples of the sending end"]);
    if figures.flows.is_empty() {
        return unseen();
    }
    let found = trace_cause(view, found.unwrap_or_else(unseen));
    let found = allowance::behind_rates(figures, &found).unwrap_or(found);
    let found = slow_reader::beside_window_of_few_looks(figures, found);
    let found = std::iter::once(open_at_few_looks(figures, found));
    first_possible(amount, found, |found| ceilings_against(view, found))
        .unwrap_or_else(|lacking| Finding::unknown_limit(lacking.into_iter().collect()))
}

/// Returns the limit that the packets of one `end` alone show.
fn one_way(view: &TransferView, end: At) -> Finding {
    let missing = if end == At::Sender {
        "the receiver's acknowledgements and windows: a capture of the other direction"
    } else {
        "the sender's data: a capture of the other direction"
    };
    link::full_as_stated(view)
        .or_else(|| black_hole::repeats_in_vain(&view.packets()?))
        .unwrap_or_else(|| Finding::unknown_limit(vec![missing]))
}

/// Returns the limit while the sender has data, or its program where nothing held for as long as it
/// had none; `None` without samples.
fn busy_or_idle(figures: &SenderView) -> Option<Finding> {
    figures.snapshots().next()?;
    let idle = figures
        .idle_share()
        .filter(|idle| idle.get() > MIN_IDLE_SHARE);
    Some(
        match (of_hosts(figures).or_else(|| of_path(figures)), idle) {
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
        },
    )
}

fn is_of_path(found: &Finding) -> bool {
    matches!(
        found.limit_kind(),
        Limit::Capacity | Limit::Loss | Limit::CongestionWindow
    )
}

/// Returns a limit that one of the hosts or its program sets; or the full pipe, where a window
/// holds more than fits it.
fn of_hosts(figures: &SenderView) -> Option<Finding> {
    let found = ORDER.iter().find_map(|rule| rule.find_host(figures))?;
    if !matches!(found.limit_kind(), Limit::ReceiveWindow | Limit::SendBuffer) {
        return Some(found);
    }
    let behind = link::queue_behind_window(figures)
        .or_else(|| policer::policed_behind_window(figures, found.share));
    let amount = EvidenceAmount::from_sender(figures);
    behind.or_else(|| {
        let found = std::iter::once(found);
        first_possible(&amount, found, |found| held_against(figures, found)).ok()
    })
}

/// Returns the limit that held the congestion window or the pace, if one of them held data back for
/// most of the time.
pub(crate) fn of_path(figures: &SenderView) -> Option<Finding> {
    let held = share_held_by_path(figures, receive_window::clocks_say_window(figures))?;
    let found = ORDER.iter().find_map(|rule| match rule {
        Rule::Path(rule) | Rule::KernelPath(rule) => rule(figures, held),
        _ => None,
    });
    Some(found.unwrap_or_else(|| unexplained_limit(figures, held)))
}

/// Returns the limit of the path that a capture shows, if it held data back for most of the time.
/// How bursts pass the path, and whether its queue stands, decide against some rules.
fn find_captured_path_limit(view: &CaptureView) -> Option<Finding> {
    let held = share_held_by_path(view.figures, false)?;
    let found = if view.fills_path() {
        Finding::new(CapacityVerdict::Link, held)
    } else {
        // A queue that is empty so often is none of a full link.
        ORDER
            .iter()
            .filter_map(|rule| match rule {
                Rule::Path(rule) => rule(view.figures, held),
                _ => None,
            })
            .find(|found| found.limit_kind() != Limit::Capacity || !view.drains_queue())?
    };
    let found = view.with_standing_queue(found);
    let found = shared::behind_on_path(view.figures, &found).unwrap_or(found);
    if matches!(found.limit_kind(), Limit::Capacity | Limit::Loss) {
        // A link that the sender leaves idle so often is not full.
        let carries_more = found.is(CapacityVerdict::Shared);
        let idle = if carries_more {
            idle::leaves_path_idle(view)
        } else {
            idle::idle_at_times(view)
        };
        let idle = idle.or_else(|| idle::pauses_beside_loss(view, &found));
        if idle.is_some() {
            return idle;
        }
    }
    let may_be_queue = found.is(LossVerdict::Random) && view.sees_no_queue();
    Some(if may_be_queue {
        found.one_of(&LOSS_OR_QUEUE)
    } else {
        view.with_pauses(view.with_shaper(found))
    })
}

/// Returns the share of the time in which the congestion window or the pace held data back, if that
/// was most of it.
fn share_held_by_path(figures: &SenderView, clocks_say_window: bool) -> Option<Ratio> {
    let snapshots = figures.snapshots();
    let votes = snapshots.map(|snapshot| snapshot.held_by_path(clocks_say_window));
    share_of_votes(votes).filter(|share| share.get() >= MIN_LIMIT_SHARE)
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

/// Returns the limit of the hosts in a part of a transfer, with the cause behind it.
pub(crate) fn limit_of_part(view: &TransferView) -> Option<Finding> {
    Some(trace_cause(view, of_hosts(view.kernel()?)?))
}

/// Returns the cause behind a limit that TCP shows. None lies behind a rate that was asked for and
/// is reached; and nothing but small segments behind a link that carries all it can.
fn trace_cause(view: &TransferView, found: Finding) -> Finding {
    let kind = found.limit_kind();
    let is_asked = |figures| rate_limited::as_asked(figures).is_some();
    if kind == Limit::SenderApplication && view.kernel().is_some_and(is_asked) {
        return found;
    }
    if kind == Limit::Capacity && link::carries_all(view.rate(), view.stated_capacity()) {
        return mss_clamped::find_cause(view, &found).unwrap_or(found);
    }
    let cause = ORDER.iter().find_map(|rule| rule.find_behind(view, &found));
    cause.unwrap_or(found)
}

candidate_sets! {
    /// A window that grows at a few looks.
    AFTER_UNSEEN_LOSSES: [
        CongestionWindow Recovering, Loss Random, Loss Policer, Loss ShallowQueue
    ] in [Sender],
        "listings each second for a minute (ss -tin), or a capture: whether losses come again, \
         and how many at once";
    /// Losses between a few looks.
    UNSEEN_LOSSES: [Loss Random, Loss Policer, Loss ShallowQueue] in [Sender],
        "listings each second for a minute (ss -tin), or a capture: how many are lost at once, \
         and at which window";
    /// A pace at a few looks.
    WHOSE_PACE: [Pacing Qdisc, Pacing MaxPacingRate] in [Sender],
        "the queueing discipline of the sender's device (tc -s qdisc), and whether its program \
         sets a pace";
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
/// Figures that only the other end has.
pub(crate) const OTHER_END: &str =
    "the sender's congestion window, its send buffer and what it sent again";
