//! The limits that lie between the hosts: a full bottleneck, loss, a congestion window that is still growing.

use fullpipe_model::framing;
use fullpipe_model::loss::CongestionControl;
use fullpipe_model::window;
use fullpipe_record::{At, Cause, Evidence, IpVersion, Limit, Progress, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span};

use crate::ends::clocks_say_window;
use crate::figures::{Figures, Retransmitted, mean, share};
use crate::finding::Finding;
use crate::losses;
use crate::pacing;
use crate::snapshot::Snapshot;
use crate::thresholds::{
    BURST_TAKES, FLAT, FULL, FULL_UNDER_BBR, GOES_ON, GROWS, INFLATED, LOSSY_ROUND_TRIPS, LOST_TO_PROBES, MAJORITY,
    MIN_ECHOES, MIN_OVERTAKEN, NEEDLESS, NO_QUEUE, NO_QUEUE_FOR_PROBES, ONE_TRAIN, OVERTAKEN, RECURRED, RECURS,
    REGROWS, SHARED, WANDERS, WANDERS_BY, WITHIN,
};

/// Payload that the told bandwidth can carry; `None` where none was told.
pub(crate) fn stated_capacity(figures: &Figures) -> Option<BitRate> {
    stated_payload(figures.evidence, figures.mss?, figures.timestamps())
}

/// The same for segments of `mss`.
pub(crate) fn stated_payload(evidence: &Evidence, mss: ByteCount, timestamps: bool) -> Option<BitRate> {
    let payload = evidence.bandwidth?.scaled(efficiency(evidence, mss, timestamps).get());
    Some(payload).filter(|capacity| *capacity > BitRate::ZERO)
}

/// Payload of segments of `mss` as a share of what the path counts of them.
pub(crate) fn efficiency(evidence: &Evidence, mss: ByteCount, timestamps: bool) -> Ratio {
    framing::efficiency(mss, framing::tcp_headers(IpVersion::V4, timestamps), evidence.framing.overhead())
}

/// A pipe that is as full as the user said it could be.
pub(crate) fn full_as_stated(figures: &Figures) -> Option<Finding> {
    let enough = stated_capacity(figures)?.scaled(FULL);
    (figures.rate >= enough).then(|| Finding::capacity(time_at(figures, enough)))
}

/// A window or buffer that holds more than fits the pipe: what is beyond stands in a queue, and the bottleneck is full.
/// A single train of segments waits for itself on a slow link; that is no queue. Nor is what waits for a slow reader, who
/// takes it in large pieces: echo requests beside the load do not wait with it.
pub(crate) fn queue_behind_window(figures: &Figures) -> Option<Finding> {
    let in_the_pipe = figures.rate.bytes_in(figures.idle_rtt?);
    let waiting = figures.mean(|snapshot| snapshot.outstanding)?.saturating_sub(in_the_pipe);
    let others_wait_too = figures.evidence.loaded_rtt.zip(inflated_rtt(figures)).is_none_or(|(rtt, most)| rtt > most);
    (waiting > ONE_TRAIN && rtt_is_inflated(figures) && others_wait_too)
        .then(|| Finding::capacity(time_inflated(figures)))
}

/// A bottleneck that is full, and not with this transfer alone: it carries clearly less than was told; or its queue was
/// there before the transfer began, and the transfer fills it or loses packets to it.
pub(crate) fn shared(figures: &Figures, found: &Finding) -> Option<Finding> {
    let shared = match (found.kind, found.cause, stated_capacity(figures)) {
        (Limit::Capacity, _, Some(stated)) => figures.rate < stated.scaled(SHARED),
        (Limit::Capacity | Limit::Loss, ..) | (_, Cause::Recovering, _) => queue_before_the_load(figures),
        _ => false,
    };
    shared.then(|| Finding { cause: Cause::Shared, ..Finding::capacity(found.share) })
}

/// Whether the round-trip time of the idle path wandered as it does where a queue fills and empties; or was longer than the
/// least under load, as it is while others keep that queue full.
fn queue_before_the_load(figures: &Figures) -> bool {
    figures.evidence.idle_spread.is_some_and(|idle| {
        let least = figures.idle_rtt.map_or(idle.min, |seen| seen.min(idle.min));
        idle.count >= MIN_ECHOES && idle.p90 > least.scaled(WANDERS) && idle.median > least + WANDERS_BY
    })
}

/// What held the congestion window or the pace, if one of them held data back for most of the time.
pub(crate) fn path(figures: &Figures) -> Option<Finding> {
    let clocks = clocks_say_window(figures);
    let held = share(figures.snapshots().map(|snapshot| snapshot.held_by_path(clocks)))
        .filter(|share| share.get() >= MAJORITY)?;
    let found = policed(figures, held)
        .or_else(|| policed_under_bbr(figures, held))
        .or_else(|| full_bottleneck(figures, held))
        .or_else(|| reordered(figures, held))
        .or_else(|| loss(figures, held))
        .or_else(|| pacing::by_congestion_control(figures, held))
        .or_else(|| growth(figures, held));
    Some(found.unwrap_or_else(|| {
        let missing = if figures.evidence.bandwidth.is_none() { "the bandwidth of the path" } else { UNSEEN };
        Finding { share: held, ..Finding::unknown(vec![missing]) }
    }))
}

/// What no sample of TCP shows.
pub(crate) const UNSEEN: &str = "the processor time and the pacing of both hosts";

fn full_bottleneck(figures: &Figures, held: Ratio) -> Option<Finding> {
    if rtt_is_inflated(figures) {
        return Some(Finding::capacity(time_inflated(figures)));
    }
    (more_window_gives_no_more(figures) || bbr_found_no_more(figures)).then(|| Finding::capacity(held))
}

/// Whether the round-trip time under load shows a standing queue.
///
/// The idle time may stem from the handshake or from echo requests, packets that are small and so are sooner on the
/// line than data: two full segments (an acknowledgement waits for the second) are allowed for.
fn rtt_is_inflated(figures: &Figures) -> bool {
    figures.rtt.zip(inflated_rtt(figures)).is_some_and(|(rtt, inflated)| rtt > inflated)
}

fn inflated_rtt(figures: &Figures) -> Option<Span> {
    // A path whose time varies by itself shows no queue by doing so.
    let usual = figures.evidence.idle_spread.map_or(Span::ZERO, |idle| idle.p90);
    Some(figures.idle_rtt?.scaled(INFLATED).max(usual) + on_the_line(figures)?)
}

/// How long two full segments are sent for, at the rate of the data; nothing where none passed.
fn on_the_line(figures: &Figures) -> Option<Span> {
    let two = figures.mss? * 2;
    Some(if figures.rate > BitRate::ZERO { figures.rate.time_for(two) } else { Span::ZERO })
}

fn time_inflated(figures: &Figures) -> Ratio {
    let inflated = inflated_rtt(figures);
    let votes = figures.snapshots().map(|snapshot| Some(snapshot.sample.tcp.rtt? > inflated?));
    // Where only echo requests tell it, their median does: half of the time.
    share(votes).unwrap_or(Ratio::new(0.5))
}

/// Whether the window grew and the rate did not: what was added waits in a queue.
fn more_window_gives_no_more(figures: &Figures) -> bool {
    let grew = |size: fn(&Snapshot) -> Option<ByteCount>| trend(figures, size).is_some_and(|trend| trend >= GROWS);
    let pipe = |snapshot: &Snapshot| snapshot.sample.pipe();
    grew(|snapshot| snapshot.cwnd) && grew(pipe) && rate_trend(figures).is_some_and(|trend| trend <= FLAT)
}

/// BBR probes for more a quarter above its pace every eight round trips. A pace that stays the same after its start-up
/// is what the path gives, unless the sender lacked data to probe with or the user told of clearly more.
fn bbr_found_no_more(figures: &Figures) -> bool {
    let as_stated = stated_capacity(figures).is_none_or(|stated| figures.rate >= stated.scaled(FULL_UNDER_BBR));
    let had_data = share(figures.snapshots().map(|snapshot| snapshot.sample.tcp.app_limited))
        .is_none_or(|short| short.get() < MAJORITY);
    let flat = rate_trend(figures).is_some_and(|trend| trend <= GROWS);
    let steady = figures.part.is_some();
    figures.is_bbr() && steady && had_data && flat && as_stated && !too_much_for_bbr(figures)
}

fn too_much_for_bbr(figures: &Figures) -> bool {
    figures.retransmitted().is_some_and(|lost| loss_window(figures, lost.ratio()).is_some())
}

/// Loss that comes again and again, where the rate is not far below what the congestion control makes of so much loss.
///
/// It may be far above: slow start leaves a window that takes a dozen losses to come down, and each of them is the limit's
/// doing. A single loss is none, as the window grows back from it.
fn loss(figures: &Figures, held: Ratio) -> Option<Finding> {
    let lost = figures.lost().filter(|lost| lost.again > 0)?;
    let (low, _) = rates_under_loss(figures, lost)?;
    let lately = figures.retransmitted().is_some_and(|lost| lost.again > 0);
    let enough = if lately { RECURS } else { RECURRED };
    let recurs = figures.flows.iter().map(losses::episodes_in_all).max()? >= enough;
    let explained = figures.is_bbr() || (recurs && low.scaled(1.0 / WITHIN) <= figures.rate);
    explained.then(|| Finding::new(Limit::Loss, cause_of_loss(figures), At::Path, held))
}

/// A device that discards what exceeds a rate: it takes a large part of a burst, and the packets before it met no queue. A
/// sender that has learnt the rate loses little more; one that meets a short queue loses at one and the same window.
fn policed(figures: &Figures, held: Ratio) -> Option<Finding> {
    let (idle, rtt) = (figures.idle_rtt?, figures.rtt?);
    let burst = losses::worst_burst(&figures.flows, rtt)?;
    let met_no_queue = burst.rtt <= idle.scaled(NO_QUEUE) + on_the_line(figures)?;
    let goes_on = figures.retransmitted()?.ratio().get();
    let found = met_no_queue
        && burst.share.get() >= BURST_TAKES
        && goes_on <= burst.share.get() * GOES_ON
        && losses::lossy_round_trips(&figures.flows, rtt) >= LOSSY_ROUND_TRIPS
        && !lost_at_one_window(figures);
    found.then(|| Finding::new(Limit::Loss, Cause::Policer, At::Path, held))
}

/// The same under BBR, which does not learn the rate but tries again and again to exceed it: a link would queue what it
/// sends to probe, a policer discards it.
fn policed_under_bbr(figures: &Figures, held: Ratio) -> Option<Finding> {
    let mut round_trips: Vec<Span> = figures.snapshots().filter_map(|snapshot| snapshot.sample.tcp.rtt).collect();
    round_trips.sort_unstable();
    let long = *round_trips.get(round_trips.len() * 9 / 10)?;
    let met_no_queue = long <= figures.idle_rtt?.scaled(NO_QUEUE_FOR_PROBES) + on_the_line(figures)?;
    let goes_on = figures.retransmitted()?.ratio().get() >= LOST_TO_PROBES;
    let less_than_stated = stated_capacity(figures).is_none_or(|stated| figures.rate < stated.scaled(FULL_UNDER_BBR));
    let found = figures.is_bbr()
        && figures.part.is_some()
        && met_no_queue
        && goes_on
        && less_than_stated
        && !too_much_for_bbr(figures);
    found.then(|| Finding::new(Limit::Loss, Cause::Policer, At::Path, held))
}

/// Packets that are late and not lost: much of what was sent again had arrived already (RFC 2883), or the kernel saw some
/// overtake others.
fn reordered(figures: &Figures, held: Ratio) -> Option<Finding> {
    let total = |count: fn(&TcpInfo) -> Option<SegCount>| -> u64 {
        let of_flows = figures.flows.iter().filter_map(|flow| count(&flow.whole.last()?.tcp));
        of_flows.fold(0, |sum, more| sum.saturating_add(more.get()))
    };
    let again = total(|tcp| tcp.total_retrans) as f64;
    let (needless, seen) = (total(|tcp| tcp.dsack_dups), total(|tcp| tcp.reorder_events));
    let is_share = |count: u64, share: f64| count >= MIN_OVERTAKEN && count as f64 >= again * share;
    (is_share(needless, NEEDLESS) || is_share(seen, OVERTAKEN))
        .then(|| Finding::new(Limit::CongestionWindow, Cause::Reordering, At::Path, held))
}

/// A queue that is too short loses at one and the same window; loss at random does not.
fn cause_of_loss(figures: &Figures) -> Cause {
    if lost_at_one_window(figures) { Cause::ShallowQueue } else { Cause::Random }
}

/// Under BBR that says nothing: its window stays the same by itself.
fn lost_at_one_window(figures: &Figures) -> bool {
    !figures.is_bbr() && losses::come_at_one_window(&figures.flows, figures.congestion() == Some("reno"))
}

/// Rates of all streams that the congestion control reaches if each lost packet counts, and if all that are lost in one
/// recovery count once; `None` where loss does not bound it.
pub(crate) fn rates_under_loss(figures: &Figures, lost: Retransmitted) -> Option<(BitRate, BitRate)> {
    let rate =
        |loss: Ratio| Some(window::rate(loss_window(figures, loss)?, figures.rtt?).scaled(figures.streams().into()));
    let by_packet = rate(lost.ratio())?;
    let by_episode = rate(lost.episode_ratio()).unwrap_or(by_packet);
    Some((by_packet, by_episode.max(by_packet)))
}

fn loss_window(figures: &Figures, loss: Ratio) -> Option<ByteCount> {
    let control = figures.congestion().and_then(CongestionControl::named).unwrap_or(CongestionControl::Cubic);
    control.window(loss, figures.rtt?, figures.mss?)
}

/// A congestion window that neither loss nor a queue holds down now.
fn growth(figures: &Figures, held: Ratio) -> Option<Finding> {
    let grows = trend(figures, |snapshot| snapshot.cwnd).is_some_and(|trend| trend >= REGROWS);
    let cause = if in_slow_start(figures) || (figures.part.is_none() && !figures.ever_lost()) {
        grows.then_some(Cause::RampUp)
    } else if figures.ever_lost() {
        // A window that losses set and that stands still does so near its last peak, where CUBIC waits before it probes for
        // more. BBR's is not set by them.
        (grows || !figures.is_bbr()).then_some(Cause::Recovering)
    } else {
        grows.then_some(Cause::EarlyExit)
    };
    Some(Finding::new(Limit::CongestionWindow, cause?, At::Path, held))
}

fn in_slow_start(figures: &Figures) -> bool {
    let last = figures.flows.iter().filter_map(|flow| flow.snapshots.last());
    let mut cwnds = last.filter_map(|snapshot| Some((snapshot.sample.tcp.cwnd?, snapshot.sample.tcp.ssthresh)));
    cwnds.any(|(cwnd, ssthresh)| ssthresh.is_none_or(|ssthresh| cwnd < ssthresh))
}

/// Mean in the last third of the judged part ÷ mean in the first.
fn trend(figures: &Figures, size: impl Fn(&Snapshot) -> Option<ByteCount>) -> Option<f64> {
    let third = |last: bool| {
        let means = figures.flows.iter().filter_map(|flow| {
            let count = flow.snapshots.len() / 3;
            let part = if last { &flow.snapshots[flow.snapshots.len() - count..] } else { &flow.snapshots[..count] };
            mean(part.iter().filter_map(&size))
        });
        means.sum::<ByteCount>().as_f64()
    };
    let first = third(false);
    (first > 0.0).then(|| third(true) / first)
}

/// Rate in the last third of the judged part ÷ rate in the first.
fn rate_trend(figures: &Figures) -> Option<f64> {
    let progress = Progress::of(&figures.evidence.sender_samples, Span::MAX);
    let (start, end) = judged_part(figures, &progress)?;
    let third = end.saturating_sub(start) / 3;
    let first = progress.rate(start, start + third);
    (first > BitRate::ZERO).then(|| progress.rate(end - third, end).relative_to(first))
}

/// Share of the judged part in which the rate reached `enough`.
fn time_at(figures: &Figures, enough: BitRate) -> Ratio {
    let progress = Progress::of(&figures.evidence.sender_samples, Span::MAX);
    let rtt = figures.rtt.unwrap_or_default();
    let part = judged_part(figures, &progress);
    let within = |at: Span| part.is_some_and(|(start, end)| at >= start + Progress::rate_window(rtt) && at <= end);
    let rates = progress.windowed_rates(rtt);
    let votes = rates.into_iter().filter(|(at, _)| within(*at)).map(|(_, rate)| Some(rate >= enough));
    // Too short for a single window, the part is judged as a whole, by its mean.
    share(votes).unwrap_or(Ratio::ONE)
}

fn judged_part(figures: &Figures, progress: &Progress) -> Option<(Span, Span)> {
    let last = *progress.snapshots().last()?;
    let (start, end) = figures.judged();
    Some((start, end.min(last)))
}
