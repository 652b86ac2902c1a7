//! Limits of the path, and of a congestion window that follows it, as the receiving end sees them.

use fullpipe_record::{
    CapacityVerdict, CongestionWindowVerdict, LossVerdict, PacingVerdict, SenderApplicationVerdict,
    TransferProgress,
};
use fullpipe_units::{BitRate, Ratio, Span};

use crate::arrivals::ReceiverSampleFigures;
use crate::figures::share_of_votes;
use crate::finding::LimitFinding;
use crate::limits::fallen_rate::FallenRate;
use crate::path::queue_before_the_load;
use crate::thresholds::{
    CLOCK_TICK, FASTER_THAN_A_BUFFER, FASTER_THAN_A_PACE, FULL_PIPE_SHARE, LOWERED_BY_LOSS_FACTOR,
    MIN_LIMIT_SHARE, MIN_LOSS_OF_PROBES, MIN_RECOVERIES, MIN_RETRANSMISSION_TIMEOUT,
    MUCH_OUT_OF_ORDER, REGROWING_WINDOW_FACTOR, REGROWN_WINDOW_FACTOR, ROUNDS_OF_STARTUP,
    SHARED_PIPE_SHARE, SMALL_QUEUE_SEGMENTS, SMALL_QUEUE_TIME,
};

/// Finds a pipe that is as full as its stated bandwidth allows.
pub(crate) fn full_as_stated(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    (arrivals.rate >= arrivals.stated_capacity()?.scale_by(FULL_PIPE_SHARE))
        .then(|| LimitFinding::new(CapacityVerdict::Link, Ratio::ONE))
}

/// Finds a queue on the path that this transfer keeps filled: the round trip is longer under load;
/// or a little longer, and the data arrives at one rate throughout.
pub(crate) fn queue_on_the_path(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    // A full link passes nothing so much faster, and others who take their part of it make it lose.
    let caught_up = arrivals.was_faster(FASTER_THAN_A_BUFFER) && arrivals.loss_rounds() == 0;
    let is_full = arrivals.is_inflated()
        || arrivals.bbr_has_what_it_ever_had()
        || (arrivals.is_flat() && arrivals.is_a_little_inflated() && !caught_up);
    if !is_full {
        return None;
    }
    let capacity = arrivals.whose_capacity();
    let found = arrivals.full_path(capacity);
    // A queue of the sending host, which a discipline holds to a rate, is one of the path from
    // here. Its sender has few packets in it, and loses none.
    let may_be_host = !found.is_one_of_several
        && arrivals.is_flat()
        && arrivals.may_wait_in_the_host()
        && arrivals.loss_rounds() == 0
        && (capacity == CapacityVerdict::Shared || arrivals.stated_capacity().is_none());
    Some(if may_be_host {
        found.add_alternative(PacingVerdict::Qdisc)
    } else {
        found
    })
}

/// Finds a path that others fill: the round trip of a load that always has data is clearly longer
/// than that of the idle path, and its congestion window grows or has lost packets.
pub(crate) fn lengthened_path(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let is_longer = arrivals.is_own_load() && arrivals.pauses.is_some();
    let is_of_window =
        is_longer && (arrivals.loss_rounds() > 0 || arrivals.grows_by(REGROWN_WINDOW_FACTOR));
    is_of_window.then(|| {
        let found = LimitFinding::new(arrivals.whose_capacity(), Ratio::ONE);
        // A sender that pauses sends the faster in between, and loses what that overflows at first.
        let is_away = |course| arrivals.is_away_beyond_windows(&course);
        if arrivals.was_faster(FASTER_THAN_A_BUFFER)
            && arrivals.loss_rounds() <= ROUNDS_OF_STARTUP
            && arrivals.busiest_course().is_some_and(is_away)
        {
            found.add_alternative(SenderApplicationVerdict::Idle)
        } else {
            found
        }
    })
}

/// Finds a congestion window that grows, or that losses have made smaller than it was, of a sender
/// that always has data: what comes in a round trip becomes more, or was more before them. Buffers
/// and windows stand still.
pub(crate) fn growing_window(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
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
    let found = found.then(|| LimitFinding::new(cause, Ratio::ONE))?;
    // The kernel makes a send buffer larger while the window grows.
    Some(if cause == CongestionWindowVerdict::EarlyExit {
        found.one_of_several()
    } else {
        found
    })
}

/// Finds a sender that waits for its retransmission timer most of the time: a load that always has
/// data is silent for longer than such a timer takes.
pub(crate) fn waits_for_timeouts(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let longest = MIN_RETRANSMISSION_TIMEOUT + arrivals.known_rtt().or(arrivals.rtt)? * 2;
    let samples = arrivals.whole.iter().flatten();
    let silences = samples.map(|sample| sample.tcp.since_data_received);
    let silent = share_of_votes(silences.map(|silence| Some(silence? > longest)))?;
    let found = arrivals.is_own_load() && silent.get() >= MIN_LIMIT_SHARE;
    found.then(|| LimitFinding::new(LossVerdict::Random, silent))
}

/// Finds data that arrives out of order again and again: packets before it were lost, or overtaken.
///
/// BBR does not slow down for losses of a few percent: behind it only a policer keeps the rate
/// down. Where a queue was there before the transfer, others fill it and it overflows.
pub(crate) fn out_of_order(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    if arrivals.loss_rounds() < MIN_RECOVERIES {
        return None;
    }
    let is_by_chance = arrivals.cause_of_losses() == Some(LossVerdict::Random);
    if let Some(fallen) = FallenRate::from_arrivals(arrivals).filter(|_| !is_by_chance) {
        let found = LimitFinding::new(CapacityVerdict::Allowance, fallen.share);
        return Some(found.add_alternative(LossVerdict::Policer));
    }
    if arrivals.is_bbr() {
        let discarded =
            ReceiverSampleFigures::share_out_of_order(&arrivals.flows)? >= MIN_LOSS_OF_PROBES;
        return discarded.then(|| LimitFinding::new(LossVerdict::Policer, Ratio::ONE));
    }
    if arrivals.recovered_long_ago() {
        return None;
    }
    if arrivals.shows_a_policer_in_a_long_repair() {
        return Some(LimitFinding::new(LossVerdict::Policer, Ratio::ONE));
    }
    if !arrivals.loss_explains_the_rate()? || arrivals.keeps_its_rate() {
        return None;
    }
    if queue_before_the_load(arrivals.evidence, arrivals.evidence.idle_rtt) {
        return Some(LimitFinding::new(CapacityVerdict::Shared, Ratio::ONE));
    }
    Some(match arrivals.cause_of_losses() {
        Some(LossVerdict::ShallowQueue) if arrivals.never_had_the_link() => {
            // Others who use the link too would leave a queue.
            if arrivals.waits_for_no_other() {
                LimitFinding::new(LossVerdict::Policer, Ratio::ONE)
            } else {
                LimitFinding::new(CapacityVerdict::Shared, Ratio::ONE)
            }
        }
        // A queue of a few packets of the sending host loses them as one of the path does.
        Some(LossVerdict::ShallowQueue) => {
            LimitFinding::new(LossVerdict::ShallowQueue, Ratio::ONE).one_of_several()
        }
        // As much is out of order where packets overtake each other and none is lost.
        Some(LossVerdict::Random)
            if arrivals.share_of_losses() >= Some(MUCH_OUT_OF_ORDER)
                && arrivals.segments_came_twice() != Some(false) =>
        {
            LimitFinding::new(LossVerdict::Random, Ratio::ONE)
                .add_alternative(CongestionWindowVerdict::Reordering)
        }
        Some(cause) => LimitFinding::new(cause, Ratio::ONE),
        None => LimitFinding::new(LossVerdict::Random, Ratio::ONE).one_of_several(),
    })
}

impl ReceiverSampleFigures<'_> {
    pub(super) fn full_path(&self, verdict: CapacityVerdict) -> LimitFinding {
        let found = LimitFinding::new(verdict, Ratio::ONE);
        // A link passes data at one rate, and its queue is never empty between bursts.
        let is_faster = self.was_faster(FASTER_THAN_A_PACE);
        let pauses = verdict == CapacityVerdict::Link && self.loss_rounds() < MIN_RECOVERIES;
        let may_pause = is_faster && (pauses || self.may_only_pause());
        if may_pause || (self.whole.len() > 1 && self.may_only_pause()) {
            found.add_alternative(SenderApplicationVerdict::Idle)
        } else {
            found
        }
    }

    /// Returns whether others have a part of the path that is full.
    pub(super) fn whose_capacity(&self) -> CapacityVerdict {
        let is_shared = self.stated_capacity().map_or_else(
            || queue_before_the_load(self.evidence, self.evidence.idle_rtt),
            |stated| self.rate < stated.scale_by(SHARED_PIPE_SHARE),
        );
        if is_shared {
            CapacityVerdict::Shared
        } else {
            CapacityVerdict::Link
        }
    }

    /// Returns true if the round trip seems longer than that of the idle path, and pauses of the
    /// sender may be all that makes it so.
    pub(super) fn may_only_pause(&self) -> bool {
        self.pauses.is_some() && self.evidence.loaded_rtt.is_none()
    }

    /// Returns true if data waits no longer than the queues of its host allow: about a millisecond
    /// of each stream, or a few segments (`tcp_small_queue_check`).
    fn may_wait_in_the_host(&self) -> bool {
        let streams = self.flows.len() as u64;
        let on_the_line = self
            .rate
            .time_for(self.mss().unwrap_or_default() * SMALL_QUEUE_SEGMENTS);
        let waits = self
            .rtt
            .zip(self.evidence.idle_rtt)
            .map(|(rtt, idle)| rtt.saturating_sub(idle));
        waits.is_none_or(|waits| waits <= (SMALL_QUEUE_TIME + on_the_line) * streams + CLOCK_TICK)
    }

    /// Returns true if more and more data arrives: `factor` times as much in the last third of the
    /// judged part as in the first, and as much as in between in the second.
    pub(crate) fn grows_by(&self, factor: f64) -> bool {
        let progress = TransferProgress::of_receiver(&self.evidence.receiver_samples, Span::MAX);
        let Some((begin, end)) = self.judged_period() else {
            return false;
        };
        let third = end.saturating_sub(begin) / 3;
        let [first, second, last] = [0, 1, 2].map(|index| {
            let from = begin + third * index;
            progress.mean_rate(from, from + third)
        });
        first > BitRate::ZERO && last >= first.scale_by(factor) && second >= first && second <= last
    }
}
