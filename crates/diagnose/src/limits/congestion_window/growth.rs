//! A congestion window that grows, after a loss or without one.

use crate::limits::congestion_window::{cause_of_window, longer_transfer, window_text};
use crate::limits::loss::shallow_queue::pace_below_the_bottleneck;
use crate::limits::prelude::*;
use crate::signals::losses;
use crate::signals::path::mean_trend;
use crate::thresholds::{REGROWING_WINDOW_FACTOR, REGROWN_WINDOW_FACTOR};

candidate_sets! {
    /// What may have taken the packets of a burst.
    pub(crate) AFTER_A_BURST: [
        CongestionWindow Recovering, Loss ShallowQueue, Loss Policer, Capacity Link
    ] in [BothEnds, Sender],
        "a longer transfer (-t 60): whether losses come again, at which window, and behind a \
         queue";
    /// What may have taken single packets.
    AFTER_A_LOSS: [CongestionWindow Recovering, Loss Random, Loss ShallowQueue],
        "a longer transfer (-t 60): whether losses come again, and at which window";
    /// A window that grows, or the send buffer that the kernel makes larger with it.
    WINDOW_OR_BUFFER: [CongestionWindow EarlyExit, SendBuffer TcpWmemMax],
        "the sender's congestion window, and what waits in its buffer (ss -tnmi)";
    /// A window that grows back in a capture, or less to send than before a loss: neither the drops
    /// of the sender's queue show there, nor what its program writes.
    LOST_IN_HOST: [
        CongestionWindow Recovering, Loss Policer, Capacity HostQueue, SenderApplication Idle
    ],
        "a longer transfer: whether losses come again, the drops of the queue of the sender's \
         device, and what its program waits for";
    /// A window that grows in a capture in which nothing is lost.
    SLOW_GROWTH: [
        CongestionWindow EarlyExit, Capacity HostQueue, Cpu StolenOfSender, SenderApplication Idle
    ],
        "the drops of the queue of the sender's device, ssthresh (ss -ti), and its processor \
         time";
}

pub(crate) const RECOVERING: Cause = Cause {
    received_sentence: |arrivals, _| {
        format!(
            "The sender still recovers from an earlier loss: a round trip of {} brings less than before it, and {} \
             arrives.",
            arrivals.rtt.unwrap_or_default(),
            arrivals.rate
        )
    },
    setting_remedies: |advice| {
        // A short queue may have taken the packets: a pace overflows none.
        let pace = pace_below_the_bottleneck(advice);
        vec![Some(longer_transfer(advice)), advice.bbr_remedy(), pace]
    },
    ..cause_of_window(&["congestion-window/recovering"], |figures, _| {
        format!(
            "The sender still recovers from an earlier loss: it allows {} in flight and adds to it each {}.",
            window_text(figures),
            time_text(figures.rtt)
        )
    })
};

pub(crate) const EARLY_EXIT: Cause = Cause {
    received_sentence: |arrivals, _| {
        format!(
            "Each round trip of {} brings a little more than the one before, and nothing is lost: the sender left slow \
             start early, and adds slowly; {} arrives.",
            arrivals.rtt.unwrap_or_default(),
            arrivals.rate
        )
    },
    ..cause_of_window(&["congestion-window/early-exit"], |figures, _| {
        format!(
            "The sender left slow start early, though nothing was lost: it allows {} in flight and adds slowly.",
            window_text(figures)
        )
    })
};

/// Highest rate before a loss ÷ the rate now, from which the loss has made the congestion window
/// small (CUBIC keeps 0.7).
const LOWERED_BY_LOSS_FACTOR: f64 = 1.2;

/// Finds a congestion window that grows, or that losses have made smaller than it was, of a sender
/// that always has data: what comes in a round trip becomes more, or was more before them. Buffers
/// and windows stand still.
pub(crate) fn growing_window(arrivals: &ReceiverView) -> Option<Finding> {
    let has_lost = arrivals.loss_rounds() > 0;
    let is_lower = has_lost
        && !arrivals.is_bbr()
        && arrivals.was_faster(LOWERED_BY_LOSS_FACTOR)
        && arrivals.grows_by(REGROWING_WINDOW_FACTOR);
    let found = arrivals.is_own_load() && (arrivals.grows_by(REGROWN_WINDOW_FACTOR) || is_lower);
    let cause = match arrivals.evidence.steady {
        _ if has_lost => CongestionWindowVerdict::Recovering,
        Some(_) => CongestionWindowVerdict::EarlyExit,
        None => CongestionWindowVerdict::RampUp,
    };
    let found = found.then(|| Finding::always(cause))?;
    // The kernel makes a send buffer larger while the window grows.
    Some(if cause == CongestionWindowVerdict::EarlyExit {
        found.one_of(&WINDOW_OR_BUFFER)
    } else {
        found
    })
}

/// Finds a congestion window that neither loss nor a queue holds down now.
fn find_growth(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let grows = mean_trend(figures, |snapshot| snapshot.cwnd)
        .is_some_and(|trend| trend >= REGROWN_WINDOW_FACTOR);
    let cause = if in_slow_start(figures) || (figures.part.is_none() && !figures.ever_lost()) {
        grows.then_some(CongestionWindowVerdict::RampUp)
    } else if figures.ever_lost() {
        // A window that losses set and that stands still does so near its last peak, where CUBIC
        // waits before it probes for more. BBR's is not set by them.
        (grows || !figures.is_bbr()).then_some(CongestionWindowVerdict::Recovering)
    } else {
        grows.then_some(CongestionWindowVerdict::EarlyExit)
    };
    Some(Finding::new(cause?, held))
}

/// Finds a congestion window that neither loss nor a queue holds down now, with what may have taken
/// packets before: a few losses do not show it. Chance takes no large part of a burst.
pub(crate) fn find_growth_after_loss(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let found = find_growth(figures, held)?;
    if found.verdict != CongestionWindowVerdict::Recovering.into() {
        return Some(found);
    }
    let in_a_burst = losses::began_with_a_burst(&figures.flows, Span::MAX);
    Some(found.one_of(if in_a_burst {
        &AFTER_A_BURST
    } else {
        &AFTER_A_LOSS
    }))
}

fn in_slow_start(figures: &SenderView) -> bool {
    let last = figures
        .flows
        .iter()
        .filter_map(|flow| flow.snapshots.last());
    let mut cwnds =
        last.filter_map(|snapshot| Some((snapshot.sample.tcp.cwnd?, snapshot.sample.tcp.ssthresh)));
    cwnds.any(|(cwnd, ssthresh)| ssthresh.is_none_or(|ssthresh| cwnd < ssthresh))
}

/// Finds a congestion window that grows, or stays below what was in flight before a loss.
pub(crate) fn find_window_growth(view: &CaptureView) -> Option<Finding> {
    let grows = mean_trend(view.figures, |snapshot| snapshot.outstanding)? >= REGROWN_WINDOW_FACTOR;
    let is_lowered = view.was_fuller() && view.ever_lost_on_path();
    let found = (grows || is_lowered)
        .then(|| find_growth(view.figures, Ratio::ONE))
        .flatten()?;
    // What the sending host's own queue drops leaves no trace in packets, or elsewhere that of
    // a loss.
    Some(match found.verdict {
        // The queue is that of others, which leave it little.
        LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering)
            if view.queue_stands() && view.some_waits() =>
        {
            found.as_verdict(CapacityVerdict::Shared)
        }
        LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering) => {
            found.one_of(&LOST_IN_HOST)
        }
        LegalVerdict::CongestionWindow(CongestionWindowVerdict::EarlyExit) => {
            found.one_of(&SLOW_GROWTH)
        }
        _ => found,
    })
}
