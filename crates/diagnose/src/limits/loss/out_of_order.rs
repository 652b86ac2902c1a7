//! Losses as the receiving end sees them: data that arrives out of order.

use fullpipe_model::loss::CongestionControl;
use fullpipe_model::window;

use crate::limits::capacity::allowance::{ALLOWANCE_OR_POLICER, FallenRate};
use crate::limits::prelude::*;
use crate::signals::LossEpisodes;
use crate::signals::arrivals::{counter_growth, growth_in_flow};
use crate::signals::path::queue_before_the_load;
use crate::thresholds::{
    EXPLAINED_BY_LOSS_FACTOR, MIN_EPISODES, MIN_LOSS_OF_PROBES, MIN_NEEDLESS_SHARE, MIN_RECOVERIES,
    MIN_RETRANSMISSION_TIMEOUT, NO_BURST_BEFORE_QUEUE, REGROWING_WINDOW_FACTOR, ROUNDS_OF_STARTUP,
};

candidate_sets! {
    /// Losses at one rate of arrival.
    WHOSE_QUEUE: [Loss ShallowQueue, Capacity HostQueue, Loss Policer],
        "the drops of the queue of the sender's device (tc -s qdisc), and its congestion window \
         before each loss";
    /// Much data out of order, and segments that came twice.
    LOST_OR_LATE: [Loss Random, CongestionWindow Reordering, Loss Policer],
        "what the sender sent again, and what of it had arrived already (DSACK)";
    /// Losses whose course shows no cause.
    UNKNOWN_CAUSE: [Loss Random, Loss Policer, Loss ShallowQueue],
        "the sender's congestion window before each loss, and how much was lost at once";
}

/// Finds a sender that waits for its retransmission timer most of the time: a load that always has
/// data is silent for longer than such a timer takes.
pub(crate) fn waits_for_timeouts(arrivals: &ReceiverView) -> Option<Finding> {
    let longest = MIN_RETRANSMISSION_TIMEOUT + arrivals.known_rtt().or(arrivals.rtt)? * 2;
    let samples = arrivals.whole.iter().flatten();
    let silences = samples.map(|sample| sample.tcp.since_data_received);
    let silent = share_of_votes(silences.map(|silence| Some(silence? > longest)))?;
    let found = arrivals.is_own_load() && silent.get() >= MIN_LIMIT_SHARE;
    found.then(|| Finding::new(LossVerdict::Random, silent))
}

/// Share of the segments out of order from which many are lost at once.
const MUCH_OUT_OF_ORDER: f64 = 0.1;

/// Finds data that arrives out of order again and again: packets before it were lost, or overtaken.
///
/// BBR does not slow down for losses of a few percent: behind it only a policer keeps the rate
/// down. Where a queue was there before the transfer, others fill it and it overflows.
pub(crate) fn out_of_order(arrivals: &ReceiverView) -> Option<Finding> {
    if arrivals.loss_rounds() < MIN_RECOVERIES {
        return None;
    }
    let is_by_chance = arrivals.cause_of_losses() == Some(LossVerdict::Random);
    if let Some(fallen) = FallenRate::from_arrivals(arrivals).filter(|_| !is_by_chance) {
        let found = Finding::new(CapacityVerdict::Allowance, fallen.share);
        return Some(found.one_of(&ALLOWANCE_OR_POLICER));
    }
    if arrivals.keeps_to_what_was_left() {
        return Some(Finding::always(LossVerdict::Policer));
    }
    if arrivals.is_bbr() {
        let discarded = ReceiverView::share_out_of_order(&arrivals.flows)? >= MIN_LOSS_OF_PROBES;
        return discarded.then(|| Finding::always(LossVerdict::Policer));
    }
    if arrivals.recovered_long_ago() {
        return None;
    }
    if !arrivals.loss_explains_the_rate()? || arrivals.keeps_its_rate() {
        return None;
    }
    if queue_before_the_load(arrivals.evidence, arrivals.evidence.idle_rtt) {
        return Some(Finding::always(CapacityVerdict::Shared));
    }
    Some(match arrivals.cause_of_losses() {
        Some(LossVerdict::ShallowQueue) if arrivals.never_had_the_link() => {
            // Others who use the link too would leave a queue.
            if arrivals.waits_for_no_other() {
                Finding::always(LossVerdict::Policer)
            } else {
                Finding::always(CapacityVerdict::Shared)
            }
        }
        // A queue of a few packets of the sending host loses them as one of the path does.
        Some(LossVerdict::ShallowQueue) => {
            Finding::always(LossVerdict::ShallowQueue).one_of(&WHOSE_QUEUE)
        }
        // As much is out of order where packets overtake each other and none is lost.
        Some(LossVerdict::Random)
            if arrivals.share_of_losses() >= Some(MUCH_OUT_OF_ORDER)
                && arrivals.segments_came_twice() != Some(false) =>
        {
            Finding::always(LossVerdict::Random).one_of(&LOST_OR_LATE)
        }
        Some(cause) => Finding::always(cause),
        None => Finding::always(LossVerdict::Random).one_of(&UNKNOWN_CAUSE),
    })
}

/// Share of its rate that Reno keeps after a loss, from which something else than its window holds
/// it (measured: up to 0.76 where losses limit, 0.82 and more behind a full send buffer).
const KEPT_BY_RENO: f64 = 0.8;
/// Share of its rate that CUBIC keeps after a loss, from which something else than its window holds
/// it (measured: up to 0.88 where losses limit, 0.91 and more elsewhere).
const KEPT_BY_CUBIC: f64 = 0.9;
/// Packets a second ÷ those that came while a device took many, from which the sender keeps to what
/// the device leaves (measured, without a loss since: 0.89 to 0.98 of six policers; up to 0.8 of
/// senders that keep to a rate of their own).
const KEPT_OF_FIRST_LOSSES: f64 = 0.85;
/// Packets a second ÷ those of the first queue from which that queue shows the rate of the path
/// (measured: 0.97 and more of 32 full links; up to 0.65 of other limits).
const KEPT_OF_FIRST_QUEUE: f64 = 0.95;
/// Highest rate ÷ the usual one up to which BBR has all that the path carries (simulated: 1.00 to
/// 1.06 at full links; most policers let a faster burst pass).
const FASTER_FACTOR_AFTER_STARTUP: f64 = 1.07;
/// Unevenness of a course × losses ÷ its time, up to which a device takes them that holds a rate
/// (simulated, four losses and more: 0.05 to 0.16 of 32 of 38).
const MAX_DRIFT_OF_DEVICE: f64 = 0.165;
/// Unevenness of a course × losses ÷ its time of a device that holds a rate whatever the number of
/// losses (simulated: 0.02 to 0.04 of 11 policers, 0.058 and more of chance).
const DRIFT_OF_STEADY_DEVICE: f64 = 0.045;
/// Unevenness of a course × losses ÷ its time from which chance takes the packets (simulated: 0.24
/// and more of 39 of 40).
const MIN_DRIFT_OF_CHANCE: f64 = 0.23;
/// Share of the stated bandwidth that data reaches for a round trip where no others use the link
/// (measured: 0.97 and more; 0.64 to 0.89 next to others).
const WHOLE_LINK_SHARE: f64 = 0.92;
/// Times for which a full segment is on the line, up to which it waits behind no other (simulated:
/// 1.0 of policers).
const ALONE_ON_THE_LINE: f64 = 1.25;

impl<'a> ReceiverView<'a> {
    /// Round trips in which data arrived out of order, of the connection that had most of them.
    pub(crate) fn loss_rounds(&self) -> u64 {
        self.most_rounds(self.with_losses())
    }

    /// The judged part of each connection, or the whole of it where too few losses are in the
    /// judged part: what they did to the sender's window lasts.
    fn with_losses(&self) -> &[Vec<&'a Sample>] {
        if self.most_rounds(&self.flows) >= MIN_RECOVERIES {
            &self.flows
        } else {
            &self.whole
        }
    }

    fn most_rounds(&self, flows: &[Vec<&Sample>]) -> u64 {
        flows
            .iter()
            .map(|flow| self.loss_episodes(flow).loss_rounds())
            .max()
            .unwrap_or(0)
    }

    fn loss_episodes(&self, flow: &[&Sample]) -> LossEpisodes {
        LossEpisodes::from_samples(flow, self.rtt.unwrap_or_default())
    }

    pub(crate) fn most_lost(&self) -> Option<LossEpisodes> {
        self.whole
            .iter()
            .map(|flow| self.loss_episodes(flow))
            .max_by_key(LossEpisodes::loss_rounds)
    }

    /// Returns the highest rate over about a round trip, in bit/s, of the connection that lost most.
    fn highest_rate(&self) -> Option<f64> {
        Some((self.mss()? * self.most_lost()?.max_arrival_rate()).as_f64() * 8.0)
    }

    /// Returns true if data arrived so many times as fast before a loss, for about a round trip.
    pub(crate) fn was_faster(&self, factor: f64) -> bool {
        self.whole.len() == 1
            && self
                .highest_rate()
                .is_some_and(|highest| highest >= self.rate.as_f64() * factor)
    }

    /// Returns true if the sender goes on at about its rate after the few losses that there are.
    fn keeps_its_rate(&self) -> bool {
        let Some(ramp) = self.evidence.steady.map(|steady| steady.ramp) else {
            return false;
        };
        let kept = self
            .most_lost()
            .and_then(|episodes| episodes.retained_rate(ramp));
        let is_reno = self.evidence.request.congestion.as_deref() == Some("reno");
        kept.is_some_and(|kept| kept >= if is_reno { KEPT_BY_RENO } else { KEPT_BY_CUBIC })
    }

    /// Returns true if nothing was lost in the judged part, and no more arrives at its end than at
    /// its begin: a congestion window that losses have lowered grows again.
    fn recovered_long_ago(&self) -> bool {
        self.evidence.steady.is_some()
            && self.most_rounds(&self.flows) == 0
            && !self.grows_by(REGROWING_WINDOW_FACTOR)
    }

    fn shows_a_long_repair(&self) -> bool {
        self.most_lost()
            .is_some_and(|lost| lost.has_a_long_repair())
    }

    /// Returns true if data arrives about as fast as it ever did, under BBR that lost packets: the
    /// bottleneck's queue overflowed then. A policer would have let a faster burst pass, or would go
    /// on discarding.
    pub(crate) fn bbr_has_what_it_ever_had(&self) -> bool {
        let rounds = self.loss_rounds();
        let lost_at_first = self.most_rounds(&self.flows) == 0;
        let factor = match rounds {
            0 => return false,
            _ if lost_at_first && self.is_flat() => NO_BURST_BEFORE_QUEUE,
            1..=ROUNDS_OF_STARTUP if !self.shows_a_long_repair() => FASTER_FACTOR_AFTER_STARTUP,
            _ => return false,
        };
        self.is_bbr()
            && self.whole.len() == 1
            && self
                .highest_rate()
                .is_some_and(|highest| highest <= self.rate.as_f64() * factor)
    }

    /// Returns true if packets come as fast as they once came through a queue that overflowed, and
    /// none is lost since: the path passes no more. BBR paces itself so. Where nothing was ever lost,
    /// pauses of the sender may seem to be a queue.
    pub(crate) fn has_what_a_queue_passed(&self) -> bool {
        self.loses_nothing_more()
            && self
                .share_of_first_queue()
                .is_some_and(|kept| kept >= KEPT_OF_FIRST_QUEUE)
    }

    /// Returns true if packets were lost, and none in the judged part.
    fn loses_nothing_more(&self) -> bool {
        self.most_rounds(&self.whole) > 0 && self.most_rounds(&self.flows) == 0
    }

    /// Returns true if a device once took much of what came and the sender keeps to the rate that was
    /// left, without losing more: a BBR that has learnt the rate of a policer.
    fn keeps_to_what_was_left(&self) -> bool {
        self.loses_nothing_more()
            && self
                .share_of_first_losses()
                .is_some_and(|kept| kept >= KEPT_OF_FIRST_LOSSES)
    }

    /// Returns true if the data never arrived as fast as a path of the stated bandwidth carries it.
    /// A queue that is short, but serves no other flow, passes it so before each loss.
    fn never_had_the_link(&self) -> bool {
        let stated = self.stated_capacity().filter(|_| self.whole.len() == 1);
        stated
            .zip(self.highest_rate())
            .is_some_and(|(stated, highest)| highest < stated.as_f64() * WHOLE_LINK_SHARE)
    }

    /// Returns true if segments wait on the path for no longer than a full one is on the line, which
    /// the small ones that took the round trip of the idle path were not.
    fn waits_for_no_other(&self) -> bool {
        let on_the_line = self
            .mss()
            .zip(self.highest_rate())
            .map(|(mss, highest)| Span::from_secs_f64(mss.as_f64() * 8.0 / highest));
        let waits = self.rtt.zip(self.evidence.idle_rtt);
        waits
            .zip(on_the_line)
            .is_some_and(|((rtt, idle), on_the_line)| {
                rtt <= idle + on_the_line.scale_by(ALONE_ON_THE_LINE)
            })
    }

    /// Returns the share of the segments that came out of order, where losses are judged.
    fn share_of_losses(&self) -> Option<f64> {
        Self::share_out_of_order(self.with_losses())
    }

    fn share_out_of_order(flows: &[Vec<&Sample>]) -> Option<f64> {
        let (late, all) = (
            counter_growth(flows, |tcp| tcp.out_of_order_in)?,
            counter_growth(flows, |tcp| tcp.data_segs_in)?,
        );
        Some(late as f64 / (all as f64).max(1.0))
    }

    /// Returns true if a loss-based congestion control makes about this rate of so many losses, or
    /// if much arrives out of order, as many segments are then lost at once. `None` if the samples
    /// do not show it.
    fn loss_explains_the_rate(&self) -> Option<bool> {
        let (rtt, mss) = (self.rtt?, self.mss()?);
        let episodes: u64 = self.loss_rounds() * self.flows.len() as u64;
        let segments = counter_growth(self.with_losses(), |tcp| tcp.data_segs_in)?;
        let loss = Ratio::from_quotient(episodes as f64, segments.max(episodes) as f64);
        let control = self
            .evidence
            .request
            .congestion
            .as_deref()
            .and_then(CongestionControl::from_name);
        let of_one = window::rate_of_window(
            control
                .unwrap_or(CongestionControl::Cubic)
                .mean_window(loss, rtt, mss)?,
            rtt,
        );
        let expected = of_one.scale_by(self.flows.len() as f64);
        let much = self.share_of_losses()? >= MUCH_OUT_OF_ORDER;
        Some(much || expected <= self.rate.scale_by(EXPLAINED_BY_LOSS_FACTOR))
    }

    /// Returns true if segments came again that had come already, as from a sender that takes late
    /// ones for lost; `None` where the counters do not show it.
    fn segments_came_twice(&self) -> Option<bool> {
        let segments = counter_growth(&self.whole, |tcp| tcp.data_segs_in)?;
        let bytes = self
            .whole
            .iter()
            .filter_map(|flow| growth_in_flow(flow, |tcp| tcp.bytes_received.map(ByteCount::get)));
        let needed = bytes.sum::<u64>().div_ceil(self.mss()?.get());
        let again = segments.saturating_sub(needed) as f64;
        Some(again >= self.loss_rounds() as f64 * MIN_NEEDLESS_SHARE)
    }

    /// Cause of the losses, where they show it, from the connection that had most of them.
    fn cause_of_losses(&self) -> Option<LossVerdict> {
        let steady = self.evidence.steady?;
        let lost = self.most_lost()?;
        let cause = lost
            .loss_cause(steady.ramp)
            .or_else(|| self.cause_by_drift(lost.count_after(steady.ramp), steady.duration))?;
        // Packets wait in a queue before it drops some, and not in a policer.
        let waits = self.rtt? > self.evidence.idle_rtt? + self.rate.time_for(self.mss()?) / 4;
        Some(if cause == LossVerdict::ShallowQueue && !waits {
            LossVerdict::Policer
        } else {
            cause
        })
    }

    /// Returns the cause of so many losses by how far they let the data drift from a constant rate:
    /// a device that holds a rate makes a tooth of each, as large as the others, and what chance
    /// takes adds up.
    fn cause_by_drift(&self, losses: usize, duration: Span) -> Option<LossVerdict> {
        let uneven = self.busiest_course()?.unevenness();
        let drift = uneven.as_secs_f64() * losses.max(1) as f64 / duration.as_secs_f64();
        match drift {
            _ if self.whole.len() > 1 => None,
            drift if drift <= DRIFT_OF_STEADY_DEVICE => Some(self.verdict_of_device()),
            _ if losses < MIN_EPISODES => None,
            drift if drift >= MIN_DRIFT_OF_CHANCE => Some(LossVerdict::Random),
            drift => (drift <= MAX_DRIFT_OF_DEVICE).then(|| self.verdict_of_device()),
        }
    }

    /// Returns the verdict on a device that drops at a rate, by the burst that it let pass.
    fn verdict_of_device(&self) -> LossVerdict {
        if self.was_faster(NO_BURST_BEFORE_QUEUE) {
            LossVerdict::Policer
        } else {
            LossVerdict::ShallowQueue
        }
    }
}
