//! A link that is full.

use crate::limits::capacity::{cause_of_capacity, flow_limit, shared};
use crate::limits::loss::loss_window;
use crate::limits::prelude::*;
use crate::limits::sender_application::idle::{NO_TIME_TO_WRITE, PAUSES_OR_FULL_PATH};
use crate::signals::losses;
use crate::signals::path::{
    self, exceeds_the_pipe, judged_part, mean_trend, queue_before_the_load, rate_trend,
    rtt_is_inflated_over, rtt_trend, time_on_the_line,
};
use crate::thresholds::{
    CLEARLY_LOWER_SHARE, CLOCK_TICK, FASTER_THAN_A_BUFFER, FASTER_THAN_A_PACE, FULL_PIPE_SHARE,
    FULL_PIPE_SHARE_UNDER_BBR, GROWN_WINDOW_FACTOR, INFLATED_RTT_FACTOR, MIN_ECHOES,
    MIN_LOSS_OF_PROBES, MIN_RECOVERIES, MIN_SHARE_OF_BURSTS, SHARED_PIPE_SHARE, WHOLE_RATE_SHARE,
};

candidate_sets! {
    /// A queue behind which data comes evenly.
    FULL_OR_HELD_IN_HOST: [Capacity Link, Pacing Qdisc, Capacity Shared],
        "the rate of the path, and the queueing discipline of the sender's device (tc -s qdisc)";
    /// A path that is full, or a shaper of the sending host.
    pub(crate) FULL_OR_PACED: [Pacing Qdisc, SenderApplication RateLimited],
        "a capture at the sender";
    /// Losses in a capture that shows no queue.
    pub(crate) LOSS_OR_QUEUE: [Loss Random, Capacity Shared, Capacity Link],
        "round-trip times under load: a capture at the sender, or one with timestamps";
    /// Pauses that seem a part of round trips.
    pub(crate) PAUSES_OR_CAPTURED_QUEUE: [SenderApplication Idle, Capacity Shared, Capacity Link],
        "a capture at the sender, or round-trip times next to the transfer (ping)";
    /// A transfer of which the rest may be lost before this place.
    ENDED_OR_LOST: [Loss Random],
        "a capture at the sender, which shows what it repeats";
    /// A sender that seems to hold itself back, of which the rest may be lost before this place.
    HELD_BACK_OR_LOST: [
        SenderApplication Idle, SendBuffer TcpWmemMax, Pacing MaxPacingRate, Loss Random
    ],
        "a capture at the sender, which shows what it repeats";
    /// A limit of the sender whose alternatives a lost rest hides.
    REPEATED_UNSEEN: [],
        "a capture at the sender, which shows what it repeats";
}

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| vec![flow_limit::several_connections(advice)],
    manual_remedies: &[ManualRemedy::new(
        "none",
        Scope::Path,
        "The pipe is full: no setting of the hosts makes it wider.",
    )],
    ..cause_of_capacity(&["capacity/link"], full_link)
};

/// Finds a queue on the path that this transfer keeps filled: the round trip is longer under load;
/// or a little longer, and the data arrives at one rate throughout.
pub(crate) fn queue_on_the_path(arrivals: &ReceiverView) -> Option<Finding> {
    // A full link passes nothing so much faster, and others who take their part of it make it lose.
    let caught_up = arrivals.was_faster(FASTER_THAN_A_BUFFER) && arrivals.loss_rounds() == 0;
    let is_full = arrivals.is_inflated()
        || arrivals.bbr_has_what_it_ever_had()
        || arrivals.has_what_a_queue_passed()
        || (arrivals.is_flat() && arrivals.is_a_little_inflated() && !caught_up);
    if !is_full {
        return None;
    }
    let capacity = arrivals.whose_capacity();
    let found = arrivals.full_path(capacity);
    // A queue of the sending host, which a discipline holds to a rate, is one of the path from
    // here. Its sender has few packets in it, and loses none.
    let may_be_host = found.candidates.is_none()
        && arrivals.is_flat()
        && arrivals.may_wait_in_the_host()
        && arrivals.loss_rounds() == 0
        && (capacity == CapacityVerdict::Shared || arrivals.stated_capacity().is_none());
    Some(if may_be_host {
        found.one_of(&FULL_OR_HELD_IN_HOST)
    } else {
        found
    })
}

/// Finds a pipe that is as full as its stated bandwidth allows.
pub(crate) fn full_as_stated(view: &TransferView) -> Option<Finding> {
    let enough = view.stated_capacity()?.scale_by(FULL_PIPE_SHARE);
    let figures = view.sender();
    let held = || figures.map_or(Ratio::ONE, |figures| time_at(figures, enough));
    (view.rate() >= enough).then(|| Finding::new(CapacityVerdict::Link, held()))
}

/// Returns true if data at `rate` takes all that the `stated` bandwidth can carry: nothing at a host
/// could be lifted then.
pub(crate) fn carries_all(rate: BitRate, stated: Option<BitRate>) -> bool {
    stated.is_some_and(|stated| rate >= stated.scale_by(WHOLE_RATE_SHARE))
}

/// Finds a window or buffer that holds more than fits the pipe: the excess stands in a queue, and
/// the bottleneck is full. Data that waits for a slow reader, which takes it in large chunks, is no
/// queue: echo requests during the load do not wait with it.
pub(crate) fn queue_behind_window(figures: &SenderView) -> Option<Finding> {
    let in_the_pipe = figures.rate.bytes_in(figures.idle_rtt?);
    let outstanding = figures.mean_size(|snapshot| snapshot.outstanding)?;
    let echoes = figures.evidence.loaded_rtt.zip(path::inflated_rtt(figures));
    // Without echo requests a rate that wavers shows that it is the sender's own bursts that wait.
    let others_wait_too =
        echoes.map_or_else(|| path::carries_one_rate(figures), |(rtt, most)| rtt > most);
    (path::rtt_is_inflated(figures)
        && others_wait_too
        && exceeds_the_pipe(outstanding, in_the_pipe, || path::carries_one_rate(figures)))
    .then(|| Finding::new(CapacityVerdict::Link, time_inflated(figures)))
}

pub(crate) fn full_bottleneck(figures: &SenderView, held: Ratio) -> Option<Finding> {
    if path::rtt_is_inflated(figures) && rate_grows_with_window(figures) != Some(true) {
        return Some(Finding::new(CapacityVerdict::Link, time_inflated(figures)));
    }
    (more_window_gives_no_more(figures)
        || bbr_found_no_more(figures)
        || queue_never_empties(figures) == Some(true)
        || queue_drains_at_one_rate(figures) == Some(true))
    .then(|| Finding::new(CapacityVerdict::Link, held))
}

/// Multiple of the longest usual round-trip time of the idle path above which the shortest under
/// load show a queue that never empties.
const NEVER_EMPTY_RTT_FACTOR: f64 = 1.05;

/// Returns true if even the shortest round trips under load, TCP's and those of echo requests, are
/// clearly longer than the longest of the idle path: the bottleneck has something to send at any
/// time. `None` where one of these times is not known.
fn queue_never_empties(figures: &SenderView) -> Option<bool> {
    let idle = figures
        .evidence
        .idle_spread
        .filter(|idle| idle.count >= MIN_ECHOES)?;
    let queued = idle.p99.scale_by(NEVER_EMPTY_RTT_FACTOR) + time_on_the_line(figures)?;
    Some(shortest_rtt(figures)? > queued && figures.evidence.loaded_rtt? > queued)
}

/// Returns true if a queue that was long at times drains, and never so far that the data came at
/// another rate: what is left of it keeps the bottleneck full. `None` where round trips are not
/// known.
fn queue_drains_at_one_rate(figures: &SenderView) -> Option<bool> {
    let rtts = figures.tcp().filter_map(|tcp| tcp.rtt);
    let mut rtts: Vec<Span> = rtts.collect();
    rtts.sort_unstable();
    let [low, high] = [1, 19].map(|twentieths| rtts.get(rtts.len() * twentieths / 20).copied());
    let left = figures.idle_rtt?.scale_by(NEVER_EMPTY_RTT_FACTOR) + time_on_the_line(figures)?;
    Some(rtt_is_inflated_over(figures, high?) && low? > left && path::carries_one_rate(figures))
}

/// Returns the shortest round trip of the judged part, as TCP measured it.
fn shortest_rtt(figures: &SenderView) -> Option<Span> {
    figures.tcp().filter_map(|tcp| tcp.rtt).min()
}

/// Multiple of the rate in the first third up to which the rate of the last third is flat.
const FLAT_RATE_FACTOR: f64 = 1.03;

/// Returns true if the window grew and the rate did not: the added data waits in a queue.
fn more_window_gives_no_more(figures: &SenderView) -> bool {
    let window = mean_trend(figures, |snapshot| snapshot.cwnd);
    let in_pipe = mean_trend(figures, |snapshot| snapshot.sample.pipe_bytes());
    let both_grew = [window, in_pipe]
        .into_iter()
        .all(|trend| trend.is_some_and(|trend| trend >= GROWN_WINDOW_FACTOR));
    (both_grew && rate_trend(figures).is_some_and(|trend| trend <= FLAT_RATE_FACTOR))
        || round_trips_grow_with_window(figures) == Some(true)
}

/// Returns true if what the window grew by shows in the rate alone, nothing was lost, and packets
/// met no queue at times, neither before the load nor under it: where round trips are long then, it
/// is the path that became longer. `None` of a window that did not grow, or without these figures.
fn rate_grows_with_window(figures: &SenderView) -> Option<bool> {
    let window = mean_trend(figures, |snapshot| snapshot.cwnd)
        .filter(|trend| *trend >= GROWN_WINDOW_FACTOR)?;
    let empty = figures.idle_rtt?.scale_by(NEVER_EMPTY_RTT_FACTOR) + time_on_the_line(figures)?;
    let lost = figures
        .retransmitted_segments()
        .is_some_and(|lost| lost.again > 0);
    Some(
        !lost
            && rate_trend(figures)? >= window * CLEARLY_LOWER_SHARE
            && shortest_rtt(figures)? <= empty
            && !queue_before_the_load(figures.evidence, figures.idle_rtt),
    )
}

/// Multiple of its size in the first third from which a window has grown enough to see whether the
/// round trips grow with it.
const GROWN_WITH_RTT_FACTOR: f64 = 1.04;
/// Share of the growth of a window by which the round trips grow where all that it adds waits in a
/// queue; the rate gets the rest (measured: 0.9).
const RTT_SHARE_OF_GROWTH: f64 = 0.6;

/// Returns true if what the window grew by shows in the round trips, and not in the rate; `None` of
/// a window that did not grow, or without these figures.
fn round_trips_grow_with_window(figures: &SenderView) -> Option<bool> {
    let window = mean_trend(figures, |snapshot| snapshot.cwnd)
        .filter(|trend| *trend >= GROWN_WITH_RTT_FACTOR)?;
    let queue = rtt_trend(figures)? - 1.0;
    Some(
        !figures.is_bbr()
            && queue >= (window - 1.0) * RTT_SHARE_OF_GROWTH
            && rate_trend(figures)? <= FLAT_RATE_FACTOR,
    )
}

/// Returns true if BBR found no more. It probes for more a quarter above its pace every eight round
/// trips: a pace that stays the same after its start-up is the path's, unless the sender lacked
/// data to probe with or the stated bandwidth is clearly higher.
fn bbr_found_no_more(figures: &SenderView) -> bool {
    let as_stated = stated_capacity(figures)
        .is_none_or(|stated| figures.rate >= stated.scale_by(FULL_PIPE_SHARE_UNDER_BBR));
    let had_data = share_of_votes(
        figures
            .snapshots()
            .map(|snapshot| snapshot.sample.tcp.app_limited),
    )
    .is_none_or(|short| short.get() < MIN_LIMIT_SHARE);
    let flat = rate_trend(figures).is_some_and(|trend| trend <= GROWN_WINDOW_FACTOR);
    let steady = figures.part.is_some();
    figures.is_bbr() && steady && had_data && flat && as_stated && !too_much_for_bbr(figures)
}

pub(crate) fn too_much_for_bbr(figures: &SenderView) -> bool {
    figures
        .retransmitted_segments()
        .is_some_and(|lost| loss_window(figures, lost.segment_share()).is_some())
}

/// Returns the share of the judged part in which the rate reached `enough`.
fn time_at(figures: &SenderView, enough: BitRate) -> Ratio {
    let progress = TransferProgress::from_samples(&figures.evidence.sender_samples, Span::MAX);
    let rtt = figures.rtt.unwrap_or_default();
    let window = TransferProgress::rate_window(rtt);
    let part = judged_part(figures, &progress);
    let votes = progress
        .windowed_rates(rtt)
        .into_iter()
        .filter(|(at, _)| part.is_some_and(|(start, end)| (start + window..=end).contains(at)))
        .map(|(_, rate)| Some(rate >= enough));
    // Too short for a single window, the part is judged as a whole, by its mean.
    share_of_votes(votes).unwrap_or(Ratio::ONE)
}

fn time_inflated(figures: &SenderView) -> Ratio {
    let inflated = path::inflated_rtt(figures);
    let votes = figures
        .snapshots()
        .map(|snapshot| Some(snapshot.sample.tcp.rtt? > inflated?));
    // Where only echo requests show it, their median does: half of the time.
    share_of_votes(votes).unwrap_or(Ratio::new(0.5))
}

/// Share of the rate of bursts from which a transfer has the whole path.
const FULL_USE_OF_PATH: f64 = 0.9;
/// Multiple of the idle round-trip time above which data waits on the path, and not for a shaper of
/// the sending host.
const MAX_WAIT_FOR_SHAPER: f64 = 1.5;

/// Finds a full link whose queue overflowed at first, and a sender that lost nothing since it
/// drained and keeps about the rate that it had then: BBR paces itself so when it takes the
/// link for a policer (`bbr_lt_bw_sampling`). A pace that was there from the begin would never
/// have filled the queue. Others that use the link too leave a queue.
pub(crate) fn full_at_first(view: &CaptureView) -> Option<Finding> {
    let queue = view.figures.idle_rtt?.scale_by(INFLATED_RTT_FACTOR);
    let rates = view.figures.flows.iter().map(|flow| {
        let [first, last] = losses::time_of_queue(flow, |rtt| rtt >= queue)?;
        Some(BitRate::from_bytes_in(
            last.bytes.saturating_sub(first.bytes),
            last.at.saturating_sub(first.at),
        ))
    });
    let rate_of_queue: BitRate = rates.sum::<Option<_>>()?;
    let stands = share_of_votes(
        view.figures
            .snapshots()
            .map(|snapshot| Some(snapshot.sample.tcp.rtt? >= queue)),
    )?;
    let enough =
        stated_capacity(view.figures).map(|stated| stated.scale_by(FULL_PIPE_SHARE_UNDER_BBR));
    let lost = view.figures.retransmitted_segments()?;
    let few_losses =
        lost.episodes <= MIN_RECOVERIES && lost.segment_share().get() < MIN_LOSS_OF_PROBES;
    let found = few_losses
        && (enough.is_none_or(|enough| view.figures.rate >= enough) || !view.drains_queue())
        && stands.get() < MIN_LIMIT_SHARE
        && view.figures.rate >= rate_of_queue.scale_by(FULL_USE_OF_PATH);
    let found = found.then(|| Finding::always(CapacityVerdict::Link))?;
    Some(view.with_shaper(shared::behind_on_path(view.figures, &found).unwrap_or(found)))
}

impl CaptureView<'_> {
    /// Returns the finding; a full link instead, where it denies a queue that stands.
    pub(crate) fn with_standing_queue(&self, found: Finding) -> Finding {
        // A queue that is seldom empty is not short, and a policer has none.
        let denies_queue =
            [LossVerdict::ShallowQueue, LossVerdict::Policer].map(LegalVerdict::from);
        let is_long = denies_queue.contains(&found.verdict) && self.queue_stands();
        // Random losses do not keep a queue full; those of others, or the sender itself, do.
        let is_busy = found.is(LossVerdict::Random) && self.queue_stands() && self.some_waits();
        if is_busy && self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true) {
            found.as_verdict(CapacityVerdict::Shared)
        } else if is_long || is_busy {
            found.as_verdict(CapacityVerdict::Link)
        } else {
            found
        }
    }

    /// Returns `found` as one of several if it is a full link whose queue stays short and loses
    /// next to nothing, as in the sending host, which lets hardly any of a connection wait for a shaper of its
    /// own (`tcp_small_queue_check`).
    pub(crate) fn with_shaper(&self, found: Finding) -> Finding {
        let rtts = self.figures.rtt.zip(self.figures.idle_rtt);
        let is_long = rtts.is_some_and(|(rtt, idle)| rtt > idle.scale_by(MAX_WAIT_FOR_SHAPER));
        let may_be = found.limit_kind() == Limit::Capacity
            && !self.is_at_sender()
            && self.figures.sent_again_in_all().unwrap_or(0) < FEW_SEGMENTS
            && !is_long;
        if may_be {
            found.one_of(&FULL_OR_PACED)
        } else {
            found
        }
    }

    /// Returns `found` as one of several where the capture ends before anything was steady, and its
    /// connection goes on: the sender may repeat what no more comes here.
    pub(crate) fn with_open_end(&self, found: Finding) -> Finding {
        let is_open = self.figures.part.is_none() && !self.capture.closed && !self.is_at_sender();
        // Another verdict that this place shows as much leaves no room for a third.
        let may_be_lost = match found.limit_kind() {
            Limit::CongestionWindow => true,
            Limit::SenderApplication | Limit::SendBuffer | Limit::Pacing => {
                (found.candidates).is_none_or(|set| *set == NO_TIME_TO_WRITE)
            }
            _ => found.is(CapacityVerdict::Link),
        };
        let set = match found.verdict {
            LegalVerdict::Capacity(CapacityVerdict::Link)
            | LegalVerdict::CongestionWindow(CongestionWindowVerdict::RampUp) => &ENDED_OR_LOST,
            LegalVerdict::SenderApplication(SenderApplicationVerdict::Idle)
            | LegalVerdict::SendBuffer(SendBufferVerdict::TcpWmemMax)
            | LegalVerdict::Pacing(PacingVerdict::MaxPacingRate) => &HELD_BACK_OR_LOST,
            _ => &REPEATED_UNSEEN,
        };
        if is_open && may_be_lost {
            found.one_of(set)
        } else {
            found
        }
    }

    /// Returns the program as the limit instead of a full path, where nothing was ever lost and the
    /// data passes the path clearly faster at times, or was far more: a sender that fills its path
    /// never lets it have less. Here its pauses seem a part of round trips.
    pub(crate) fn with_pauses(&self, found: Finding) -> Finding {
        let leaves_room =
            self.was_fuller() || self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true);
        let may_pause = self.figures.part.is_some()
            && !self.is_at_sender()
            && !self.ever_lost_on_path()
            && found.limit_kind() == Limit::Capacity
            && leaves_room;
        if may_pause {
            found
                .as_verdict(SenderApplicationVerdict::Idle)
                .one_of(&PAUSES_OR_CAPTURED_QUEUE)
        } else {
            found
        }
    }

    /// Returns true if the path could carry clearly more, as far as its capacity is stated.
    pub(crate) fn leaves_room_on_path(&self) -> bool {
        let enough = stated_capacity(self.figures).map(|stated| stated.scale_by(SHARED_PIPE_SHARE));
        enough.is_some_and(|enough| self.figures.rate < enough)
    }

    /// Returns true if bursts pass the path no faster than the transfer, and wait in a queue that
    /// loses few.
    pub(crate) fn fills_path(&self) -> bool {
        let bursts = self.rate_of_bursts(MIN_SHARE_OF_BURSTS);
        let is_as_fast =
            bursts.is_some_and(|rate| self.figures.rate >= rate.scale_by(FULL_USE_OF_PATH));
        let loses_few = self
            .figures
            .lost_segments()
            .is_some_and(|lost| lost.segment_share().get() < MIN_LOSS_OF_PROBES);
        is_as_fast && loses_few && self.some_waits() && !self.drains_queue()
    }

    pub(crate) fn waits_on_path(&self) -> bool {
        full_bottleneck(self.figures, Ratio::ONE).is_some()
    }
}

/// Time for which data of a stream waits at most in the queues of its own host: a millisecond at
/// its pace, which is up to twice its rate (`tcp_small_queue_check`, `sk_pacing_shift`).
const SMALL_QUEUE_TIME: Span = Span::from_millis(3);
/// Segments of a stream that may wait in the queues of its own host in any case: two packets of two
/// segments, by the memory that they take.
const SMALL_QUEUE_SEGMENTS: u64 = 8;

impl ReceiverView<'_> {
    pub(crate) fn full_path(&self, verdict: CapacityVerdict) -> Finding {
        let found = Finding::always(verdict);
        // A link passes data at one rate, and its queue is never empty between bursts.
        let is_faster = self.was_faster(FASTER_THAN_A_PACE);
        let pauses = verdict == CapacityVerdict::Link && self.loss_rounds() < MIN_RECOVERIES;
        let may_pause = is_faster && (pauses || self.may_only_pause());
        if may_pause || (self.whole.len() > 1 && self.may_only_pause()) {
            found.one_of(&PAUSES_OR_FULL_PATH)
        } else {
            found
        }
    }

    /// Returns true if the round trip seems longer than that of the idle path, and pauses of the
    /// sender may be all that makes it so.
    pub(crate) fn may_only_pause(&self) -> bool {
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
}

/// Returns the sentence on a link that is full.
fn full_link(figures: &SenderView, _finding: &Finding) -> String {
    let rate = figures.rate;
    match stated_capacity(figures).zip(figures.evidence.bandwidth) {
        Some((capacity, bandwidth)) => format!(
            "The pipe is full: {rate} of data arrives, {:.0} % of the {capacity} that a path of {bandwidth} can carry.",
            rate.relative_to(capacity) * 100.0,
        ),
        None => format!(
            "The pipe is full at {rate}: sending more only lengthens the queue (round trip {} idle, {} now).",
            time_text(figures.idle_rtt),
            time_text(figures.rtt),
        ),
    }
}
