//! A device that discards what exceeds a rate.

use crate::limits::capacity::link::too_much_for_bbr;
use crate::limits::loss;
use crate::limits::loss::{cause_of_losses, loss_sentence};
use crate::limits::prelude::*;
use crate::signals::path::time_on_the_line;
use crate::signals::{losses, policer_rate};
use crate::thresholds::{
    CLOCK_TICK, FULL_PIPE_SHARE, FULL_PIPE_SHARE_UNDER_BBR, MIN_BURST_SHARE, MIN_LOSS_OF_PROBES,
};

candidate_sets! {
    /// A burst that was lost without a queue before it.
    pub(crate) POLICER_OR_QUEUE: [Loss Policer, Loss ShallowQueue] in [BothEnds, Sender],
        "a longer transfer (-t 60): whether losses come again, at which window, and behind a \
         queue";
}

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| {
        vec![
            advice.bbr_remedy(),
            advice.parallel_streams(),
            pace_below_the_policer(advice),
        ]
    },
    manual_remedies: &[ManualRemedy::new(
        "pace-below-the-policer",
        Scope::Socket,
        "The policer discards what exceeds its rate: a maximum pace a little below that rate loses \
         nothing.",
    )
    .at_end(At::Sender)],
    ..cause_of_losses(
        &["loss/policer"],
        |figures, _| {
            let pattern = "many at once and without a queue that fills: a device discards what exceeds a rate";
            loss_sentence(figures, pattern)
        },
        |arrivals, _| {
            format!(
                "Packets are lost again and again, though the path carries faster bursts: a device discards what \
                 exceeds a rate, and {} arrives.",
                arrivals.rate
            )
        },
    )
};

/// Finds loss that comes without a queue. It is asked before the bottleneck: under such loss the
/// rate may stand still as it does where the bottleneck is full.
pub(crate) fn without_queue(figures: &SenderView, held: Ratio) -> Option<Finding> {
    find_policer(figures, held).or_else(|| policed_under_bbr(figures, held))
}

/// Round trips with losses that a policer causes: it goes on discarding while the sender repairs.
const MIN_LOSSY_ROUND_TRIPS: usize = 3;
/// Largest loss after a policer's burst, as a share of the loss in that burst; independent losses
/// come at one rate.
const MAX_LATER_LOSS_SHARE: f64 = 0.2;

/// Finds a device that discards what exceeds a rate: it takes a large part of a burst, and the
/// packets before it met no queue. A sender that has learnt the rate loses little more; one that
/// meets a short queue loses at one and the same window.
fn find_policer(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let rtt = figures.rtt?;
    let burst = burst_without_queue(figures, rtt)?;
    let goes_on = losses::lost_later(&figures.flows).get();
    let fill_link = later_losses_fill_link(figures);
    let found = burst.share.get() >= MIN_BURST_SHARE
        && goes_on <= burst.share.get() * MAX_LATER_LOSS_SHARE
        && losses::lossy_round_trips(&figures.flows, rtt) >= MIN_LOSSY_ROUND_TRIPS
        && !lost_at_one_window(figures)
        && !losses::come_at_any_window(&figures.flows)
        && !losses::follow_a_queue(&figures.flows)
        && fill_link != Some(true);
    let policer = Finding::new(LossVerdict::Policer, held);
    // Slow start alone may overflow a short queue in the same way.
    found.then(|| match fill_link {
        Some(_) => policer,
        // A queue would lose its probes again and again.
        None if bbr_keeps_to_a_pace(figures) => policer,
        None => policer.one_of(&POLICER_OR_QUEUE),
    })
}

/// Times in a row that a sender takes its window back though no queue stands, from which a policer
/// and not a queue made it do so: one that overflows makes it do so once, or twice where a packet
/// is lost again.
const MIN_CUTS_WITHOUT_QUEUE: usize = 3;

/// Returns the worst burst that met no queue. Where a queue stood before the worst one, the link
/// may have been full until a large bucket was empty: then a later burst shows the policer, or that
/// the sender must take its window back again and again although the queue is gone.
fn burst_without_queue(figures: &SenderView, rtt: Span) -> Option<losses::LossBurst> {
    let flows = &figures.flows;
    let worst = losses::worst_burst(flows, rtt, |_| true)?;
    if is_without_queue(figures, worst.rtt)
        || losses::cuts_without_queue(flows, rtt, |rtt| is_without_queue(figures, rtt))
            >= MIN_CUTS_WITHOUT_QUEUE
    {
        return Some(worst);
    }
    losses::worst_burst(flows, rtt, |burst| {
        burst.is_first && is_without_queue(figures, burst.rtt)
    })
}

/// Share of the segments from which more is lost under BBR than its probes exceed a rate by.
const MAX_LOSS_OF_PROBES: f64 = 0.05;
/// Multiple of the idle round-trip time that nine tenths of the round trips under BBR must keep to
/// where a policer discards (measured: 1.01 to 1.07 behind a policer, 1.16 and more at a full
/// link).
const MAX_RTT_WITHOUT_QUEUE_UNDER_BBR: f64 = 1.1;

/// Finds a policer under BBR, which does not learn the rate but tries again and again to exceed it:
/// a link would queue its probes, a policer discards them.
fn policed_under_bbr(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let mut round_trips: Vec<Span> = figures.tcp().filter_map(|tcp| tcp.rtt).collect();
    round_trips.sort_unstable();
    let lost = figures.retransmitted_segments()?.segment_share().get();
    // What loses more than its probes exceed the rate by would find a queue at any time.
    let percentile = if lost >= MAX_LOSS_OF_PROBES { 50 } else { 90 };
    let long = *round_trips.get(round_trips.len() * percentile / 100)?;
    let idle = figures.idle_rtt?;
    // Where the idle path was not measured, its time is that of packets which were sent again, in
    // whole milliseconds.
    let tick = if lost >= MAX_LOSS_OF_PROBES && figures.evidence.is_of_another_program() {
        CLOCK_TICK
    } else {
        Span::ZERO
    };
    let met_no_queue =
        long <= idle.scale_by(MAX_RTT_WITHOUT_QUEUE_UNDER_BBR) + time_on_the_line(figures)? + tick;
    let goes_on = lost >= MIN_LOSS_OF_PROBES || bbr_keeps_to_a_pace(figures);
    let less_than_stated = stated_capacity(figures)
        .is_none_or(|stated| figures.rate < stated.scale_by(FULL_PIPE_SHARE_UNDER_BBR));
    let found = figures.is_bbr()
        && figures.part.is_some()
        && met_no_queue
        && goes_on
        && less_than_stated
        && (!too_much_for_bbr(figures) || come_in_large_bursts(figures));
    found.then(|| Finding::new(LossVerdict::Policer, held))
}

/// Finds a policer behind a window or a buffer that is full under BBR: what it discards again and
/// again stays there until it has arrived.
pub(crate) fn policed_behind_window(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let lost = figures.retransmitted_segments()?.segment_share().get();
    policed_under_bbr(figures, held)
        .filter(|_| lost >= MIN_LOSS_OF_PROBES && come_in_large_bursts(figures))
}

/// Variance ÷ mean of the losses between samples from which a policer makes them behind a window
/// that is full (simulated under BBR: 130 and more of policers, at most 23 where chance loses up to 8
/// %).
const MIN_DISPERSION_OF_POLICER: f64 = 50.0;

/// Returns true if losses come as a policer makes them of large windows: many in some round trips,
/// and few in others. Chance takes packets evenly.
fn come_in_large_bursts(figures: &SenderView) -> bool {
    let dispersion = figures.flows.iter().map(losses::loss_dispersion);
    dispersion.fold(0.0, f64::max) >= MIN_DISPERSION_OF_POLICER
}

/// Returns true if all losses that do not follow the first ones come at the rate of the stated
/// bandwidth; `None` where there are none. A policer whose bucket is empty takes packets at its own
/// rate, and a short queue at the link's.
fn later_losses_fill_link(figures: &SenderView) -> Option<bool> {
    let enough = stated_capacity(figures)
        .map(|stated| stated.scale_by(FULL_PIPE_SHARE / f64::from(figures.stream_count())));
    let later = losses::before_later_losses(&figures.flows, figures.rtt.unwrap_or_default());
    let mut rates = later.iter().map(|sample| sample.tcp.delivery_rate);
    (!later.is_empty()).then(|| rates.all(|rate| enough.is_some() && rate >= enough))
}

/// Returns true if BBR lost much at first and nothing since: it looks for a policer, and then keeps
/// to the rate that it found (`bbr_lt_bw_sampling`).
pub(crate) fn bbr_knows_the_rate(figures: &SenderView) -> bool {
    let lately = figures
        .retransmitted_segments()
        .is_some_and(|lost| lost.again > 0);
    let in_all = figures
        .lost_segments()
        .is_some_and(|lost| lost.segment_share().get() >= MIN_LOSS_OF_PROBES);
    figures.part.is_some() && in_all && !lately
}

/// Largest of BBR's paces ÷ the least where it keeps to the rate of a policer
/// (`bbr_lt_bw_sampling`); elsewhere it changes them by a quarter up and down in eight round trips.
const SAME_PACE_FACTOR: f64 = 1.02;

/// Returns true if BBR does not even probe for more than the rate that it found so.
fn bbr_keeps_to_a_pace(figures: &SenderView) -> bool {
    let paces: Vec<BitRate> = figures.tcp().filter_map(|tcp| tcp.pacing_rate).collect();
    let [least, most] =
        [paces.iter().min(), paces.iter().max()].map(|pace| pace.copied().unwrap_or_default());
    bbr_knows_the_rate(figures) && most > BitRate::ZERO && most <= least.scale_by(SAME_PACE_FACTOR)
}

/// Multiple of the idle round-trip time up to which a burst met no queue.
const MAX_RTT_WITHOUT_QUEUE: f64 = 1.35;

/// Returns true if a round trip of `rtt` shows no queue that fills before a loss, where the idle
/// path's is known.
pub(crate) fn is_without_queue(figures: &SenderView, rtt: Span) -> bool {
    figures
        .idle_rtt
        .zip(time_on_the_line(figures))
        .is_some_and(|(idle, line)| rtt <= idle.scale_by(MAX_RTT_WITHOUT_QUEUE) + line)
}

/// Returns true if losses came at one window. Under BBR that says nothing: its window stays the
/// same by itself.
pub(crate) fn lost_at_one_window(figures: &SenderView) -> bool {
    !figures.is_bbr()
        && losses::come_at_one_window(
            &figures.flows,
            figures.congestion_control() == Some("reno"),
            are_delayed(figures),
        )
}

/// Multiple of the idle round-trip time before losses from which a queue, and no policer, discards
/// (measured: 1.065 to 1.18 before a queue of three packets; 1.00 to 1.045 before policers).
const RTT_BEFORE_SHORT_QUEUE: f64 = 1.05;

/// Returns true if the packets before losses usually wait on the path.
pub(crate) fn are_delayed(figures: &SenderView) -> bool {
    let waited = figures
        .idle_rtt
        .map(|idle| idle.scale_by(RTT_BEFORE_SHORT_QUEUE));
    losses::usual_rtt_before(&figures.flows)
        .zip(waited)
        .is_some_and(|(rtt, waited)| rtt >= waited)
}

/// Returns true if the data is usually as fast as the stated bandwidth before losses.
pub(crate) fn fills_link_before(figures: &SenderView) -> bool {
    let enough = stated_capacity(figures).map(|stated| stated.scale_by(FULL_PIPE_SHARE));
    enough
        .zip(losses::usual_rate_before(&figures.flows))
        .is_some_and(|(enough, rate)| rate >= enough)
}

/// `None` where the policer's rate does not show.
pub(crate) fn pace_below_the_policer(advice: &RemedyAdvice) -> Option<Remedy> {
    let known = policer_rate::lower_bound(advice.figures)?;
    let why = format!(
        "The policer discards what exceeds its rate, and is known to let {known} of data pass: a maximum pace a little \
         below that loses nothing. The policer may let more pass than a sender that it holds down has shown."
    );
    loss::pace_below(advice, known, "pace-below-the-policer", why)
}

/// Round trips with several losses that a policer causes before its rate is learnt (measured: 11 to
/// 15; at most 4 of a slow start that overshoots).
const MANY_LOSSY_ROUND_TRIPS: usize = 8;

/// Finds a device that discards what exceeds a rate, and a sender that has learnt it: much was
/// lost in many round trips, more than a slow start that overshoots takes to repair, and
/// nothing since.
pub(crate) fn policed_at_first(view: &CaptureView) -> Option<Finding> {
    let lost = view.figures.lost_segments()?.segment_share();
    let found = view.figures.part.is_some()
        && lost.get() >= MIN_LOSS_OF_PROBES
        && loses_in_many_round_trips(view)
        && !view.lost_on_path()
        && !view.waits_on_path()
        && !view.queue_stands();
    found.then(|| Finding::always(LossVerdict::Policer))
}

/// Returns true if several segments were lost in many round trips, as a sender makes them that
/// learns the rate of a policer.
pub(crate) fn loses_in_many_round_trips(view: &CaptureView) -> bool {
    let figures = view.figures;
    let round_trip = figures.idle_rtt.or(figures.rtt);
    round_trip
        .is_some_and(|rtt| losses::lossy_round_trips(&figures.flows, rtt) >= MANY_LOSSY_ROUND_TRIPS)
}
