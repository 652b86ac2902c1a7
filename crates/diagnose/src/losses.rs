use std::collections::BTreeMap;

use fullpipe_record::{CongestionState, Sample, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, median};

use crate::flow::SenderStream;
use crate::snapshot::JudgedSample;
use crate::spread::relative_deviation;
use crate::thresholds::{
    LARGER_WINDOW_FACTOR, LOST_IN_QUEUE_SHARE, LOWER_RTT_BEFORE_SHORT_QUEUE_DROPS, MANY_EPISODES,
    MANY_EPISODES_SPREAD, MANY_EPISODES_SPREAD_AFTER_DELAY_UNDER_RENO,
    MANY_EPISODES_SPREAD_UNDER_RENO, MANY_LOST_AT_ONCE, MANY_ROUND_TRIPS_BETWEEN_SAMPLES,
    MAX_WINDOW_SPREAD_OF_POLICER, MIN_BURST_SEGMENTS, MIN_BURST_SHARE, MIN_CALM_SAMPLES,
    MIN_DISPERSION_OF_BURSTS, MIN_EPISODES_OF_ONE_WINDOW, MIN_EPISODES_OF_SAME_WINDOW,
    MIN_EPISODES_WITH_OUTLIER, MIN_LOSSES_OF_ROUND_TRIP, MIN_LOST_AT_ONCE, MIN_RECOVERIES,
    MIN_SHARE_AT_THE_TOP, ONE_WINDOW_SPREAD, ONE_WINDOW_SPREAD_UNDER_RENO,
    ROUND_TRIPS_AFTER_FIRST_LOSS, ROUND_TRIPS_BETWEEN_CUTS, ROUND_TRIPS_TO_GROW,
    RTT_BEFORE_SHORT_QUEUE_DROPS, SAME_WINDOW_SPREAD, SOON_AFTER_FIRST_LOSS,
};

/// Returns the number of recoveries of a stream in its judged part, as far as the samples show
/// them.
pub(crate) fn recovery_count(flow: &SenderStream) -> u64 {
    windows_before_loss(flow).len() as u64
}

/// Returns the number of recoveries of a stream in its whole life, the ramp included.
pub(crate) fn episodes_in_all(flow: &SenderStream) -> u64 {
    recoveries_of(&flow.whole)
}

/// Returns the last sample before each recovery of the streams' whole life, but for the first one of
/// a stream and those soon after it.
pub(crate) fn before_later_losses<'s>(flows: &[SenderStream<'s>], rtt: Span) -> Vec<&'s Sample> {
    let soon = SOON_AFTER_FIRST_LOSS.max(rtt * ROUND_TRIPS_AFTER_FIRST_LOSS);
    let of_flow = |flow: &SenderStream<'s>| -> Vec<&'s Sample> {
        let all = recovery_starts(&flow.whole);
        let samples = all.into_iter().map(|before| flow.whole[before]);
        let mut first = None;
        samples
            .filter(|sample| sample.at > *first.get_or_insert(sample.at) + soon)
            .collect()
    };
    flows.iter().flat_map(of_flow).collect()
}

/// Returns the number of recoveries that begin in these samples of a stream.
pub(crate) fn recoveries_of(samples: &[&Sample]) -> u64 {
    recovery_starts(samples).len() as u64
}

/// Returns true if the losses of every stream came at one and the same size of its congestion
/// window: a queue was full. Independent losses come at any size, under Reno more so than under
/// CUBIC, which dwells below its last peak. Needs some losses to decide, and fewer where packets
/// before them were delayed, as `is_delayed` says.
pub(crate) fn come_at_one_window(flows: &[SenderStream], is_reno: bool, is_delayed: bool) -> bool {
    let windows: Vec<Vec<ByteCount>> = flows
        .iter()
        .map(grown_windows_before_loss)
        .filter(|w| !w.is_empty())
        .map(without_outlier)
        .collect();
    let episodes: usize = windows.iter().map(Vec::len).sum();
    let most = |count: usize| match count {
        0..MIN_EPISODES_OF_ONE_WINDOW => SAME_WINDOW_SPREAD,
        MIN_EPISODES_OF_ONE_WINDOW..MANY_EPISODES if is_reno => ONE_WINDOW_SPREAD_UNDER_RENO,
        MIN_EPISODES_OF_ONE_WINDOW..MANY_EPISODES => ONE_WINDOW_SPREAD,
        _ if is_reno && is_delayed => MANY_EPISODES_SPREAD_AFTER_DELAY_UNDER_RENO,
        _ if is_reno => MANY_EPISODES_SPREAD_UNDER_RENO,
        _ => MANY_EPISODES_SPREAD,
    };
    episodes >= MIN_EPISODES_OF_SAME_WINDOW * windows.len().max(1)
        && windows
            .iter()
            .all(|windows| spread_of(windows) <= most(windows.len()) || mostly_at_the_top(windows))
}

/// Returns true if a stream had far more in flight for many samples of its whole life, and lost
/// nothing then, than where it usually lost in its judged part: no queue is too short for what it
/// has held.
pub(crate) fn larger_windows_pass(flows: &[SenderStream]) -> bool {
    let passes = |flow: &SenderStream| {
        let usual = median(grown_windows_before_loss(flow))?;
        let mss = flow
            .snapshots
            .iter()
            .find_map(|snapshot| snapshot.sample.tcp.snd_mss)?;
        let enough = usual.scale_by(LARGER_WINDOW_FACTOR);
        let calm = |pair: &&[&Sample]| {
            let [before, after] = [pair[0], pair[1]];
            let in_flight = after.tcp.unacked.unwrap_or_default().of_size(mss);
            !is_recovering(after)
                && after.tcp.total_retrans == before.tcp.total_retrans
                && in_flight >= enough
        };
        Some(flow.whole.windows(2).filter(calm).count() >= MIN_CALM_SAMPLES)
    };
    flows.iter().any(|flow| passes(flow) == Some(true))
}

/// Returns true if most losses came at the largest window of all: a burst may overflow a short
/// queue sooner, but no window grows past it.
fn mostly_at_the_top(windows: &[ByteCount]) -> bool {
    let top = windows.iter().copied().max().unwrap_or_default();
    let at_top = windows
        .iter()
        .filter(|window| window.as_f64() >= top.as_f64() * (1.0 - 2.0 * SAME_WINDOW_SPREAD));
    let at_top = at_top.count();
    at_top >= MIN_EPISODES_OF_SAME_WINDOW
        && at_top as f64 >= windows.len() as f64 * MIN_SHARE_AT_THE_TOP
}

/// Returns the windows without the one that is farthest from the middle, where they are many: a
/// loss may follow another before the window has grown back.
fn without_outlier(mut windows: Vec<ByteCount>) -> Vec<ByteCount> {
    windows.sort_unstable();
    let [low, middle, high] =
        [0, windows.len() / 2, windows.len().saturating_sub(1)].map(|index| windows[index]);
    if windows.len() >= MIN_EPISODES_WITH_OUTLIER {
        windows.remove(
            if middle.saturating_sub(low) >= high.saturating_sub(middle) {
                0
            } else {
                windows.len() - 1
            },
        );
    }
    windows
}

/// Returns true if round trips are longer before losses than usual: a queue fills then, and is too
/// short for more. Independent losses and a policer come at any time.
pub(crate) fn follow_a_queue(flows: &[SenderStream]) -> bool {
    let mut rises: Vec<f64> = flows.iter().flat_map(rises_before_loss).collect();
    rises.sort_by(f64::total_cmp);
    let at = |quarters: usize| rises.get(rises.len() * quarters / 4).copied();
    rises.len() as u64 >= MIN_RECOVERIES
        && at(2) >= Some(RTT_BEFORE_SHORT_QUEUE_DROPS)
        && at(1) >= Some(LOWER_RTT_BEFORE_SHORT_QUEUE_DROPS)
}

/// Returns the part of each stream's whole life in which its round trips met a queue, if nearly all
/// that it lost was lost then; `None` if not, or if nothing was lost.
pub(crate) fn time_of_queue<'s>(
    flow: &SenderStream<'s>,
    is_queue: impl Fn(Span) -> bool,
) -> Option<[&'s Sample; 2]> {
    let meets = |sample: &&&Sample| sample.tcp.rtt.is_some_and(&is_queue);
    let ends = [
        flow.whole.iter().find(meets)?,
        flow.whole.iter().rfind(meets)?,
    ];
    let lost = |pair: &[&Sample]| {
        retransmitted_segments(pair[1]).saturating_sub(retransmitted_segments(pair[0]))
    };
    let with_queue = |pair: &&[&Sample]| pair.iter().any(|sample| meets(&sample));
    let in_queue: u64 = flow.whole.windows(2).filter(with_queue).map(lost).sum();
    let in_all = retransmitted_segments(flow.whole.last()?);
    (in_all > 0 && in_queue as f64 >= in_all as f64 * LOST_IN_QUEUE_SHARE)
        .then_some(ends.map(|sample| *sample))
}

/// Returns the round-trip time before each loss of a stream ÷ the one that a quarter of the samples
/// are below.
fn rises_before_loss(flow: &SenderStream) -> Vec<f64> {
    let rtt = |snapshot: &JudgedSample| snapshot.sample.tcp.rtt.map(Span::as_secs_f64);
    let mut all: Vec<f64> = flow.snapshots.iter().filter_map(rtt).collect();
    all.sort_by(f64::total_cmp);
    let Some(low) = all.get(all.len() / 4) else {
        return Vec::new();
    };
    let before = grown_before_loss(flow)
        .into_iter()
        .filter_map(|before| rtt(&flow.snapshots[before]));
    before
        .map(|rtt| Ratio::from_quotient(rtt, *low).get())
        .collect()
}

/// Returns true if a recovery usually begins with many lost segments: more than a few, and a share
/// of the window before it. Of two recoveries the lesser counts: two losses by chance may fall into
/// what seems one, and many where several round trips pass between two samples.
pub(crate) fn come_many_at_once(flows: &[SenderStream]) -> bool {
    if flows.iter().all(come_as_by_chance) {
        return false;
    }
    let losses: Vec<(u64, u64)> = flows.iter().flat_map(lost_in_recoveries).collect();
    let usual = |figure: fn(&(u64, u64)) -> f64| {
        let mut all: Vec<f64> = losses.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len().saturating_sub(1) / 2)
            .copied()
            .filter(|_| all.len() as u64 >= MIN_RECOVERIES)
    };
    usual(|(lost, _)| *lost as f64) >= Some(MIN_LOST_AT_ONCE as f64)
        && usual(|(lost, window)| Ratio::from_quotient(*lost as f64, *window as f64).get())
            >= Some(MANY_LOST_AT_ONCE)
}

/// Returns true if the losses between samples vary as little as by chance, where each sample is of
/// many round trips.
fn come_as_by_chance(flow: &SenderStream) -> bool {
    let pairs = || {
        flow.snapshots
            .windows(2)
            .map(|pair| [pair[0].sample, pair[1].sample])
    };
    let apart = median(
        pairs()
            .map(|[before, after]| after.at.saturating_sub(before.at))
            .collect(),
    );
    let rtt = median(
        flow.snapshots
            .iter()
            .filter_map(|snapshot| snapshot.sample.tcp.rtt)
            .collect(),
    );
    let many = apart
        .zip(rtt)
        .is_some_and(|(apart, rtt)| apart >= rtt * MANY_ROUND_TRIPS_BETWEEN_SAMPLES);
    many && loss_dispersion(flow) < MIN_DISPERSION_OF_BURSTS
}

/// Returns variance ÷ mean of the segments lost between the judged samples of a stream.
pub(crate) fn loss_dispersion(flow: &SenderStream) -> f64 {
    let lost_between = |pair: &[JudgedSample]| {
        let [before, after] = [&pair[0], &pair[1]].map(|one| retransmitted_segments(one.sample));
        after.saturating_sub(before) as f64
    };
    let lost: Vec<f64> = flow.snapshots.windows(2).map(lost_between).collect();
    let mean = lost.iter().sum::<f64>() / lost.len().max(1) as f64;
    relative_deviation(&lost).powi(2) * mean
}

/// Returns true if a stream loses packets at windows as different as no device makes them that
/// discards what exceeds a rate.
pub(crate) fn come_at_any_window(flows: &[SenderStream]) -> bool {
    let differ = |windows: Vec<ByteCount>| {
        windows.len() >= MIN_EPISODES_OF_ONE_WINDOW
            && spread_of(&without_outlier(windows)) > MAX_WINDOW_SPREAD_OF_POLICER
    };
    flows.iter().map(grown_windows_before_loss).any(differ)
}

/// Returns the usual round-trip time before the losses of the judged part.
pub(crate) fn usual_rtt_before(flows: &[SenderStream]) -> Option<Span> {
    median(
        usual_before(flows)
            .filter_map(|snapshot| snapshot.sample.tcp.rtt)
            .collect(),
    )
}

/// Returns the usual rate of a stream before the losses of the judged part.
pub(crate) fn usual_rate_before(flows: &[SenderStream]) -> Option<BitRate> {
    median(
        usual_before(flows)
            .filter_map(|snapshot| snapshot.sample.tcp.delivery_rate)
            .collect(),
    )
}

fn usual_before<'f, 's>(
    flows: &'f [SenderStream<'s>],
) -> impl Iterator<Item = &'f JudgedSample<'s>> {
    flows.iter().flat_map(|flow| {
        grown_before_loss(flow)
            .into_iter()
            .map(|before| &flow.snapshots[before])
    })
}

/// Returns the segments that were lost in each recovery of the judged part, and the window before
/// it; of the whole life but its first recovery, which slow start brings about, where the judged
/// part has few.
fn lost_in_recoveries(flow: &SenderStream) -> Vec<(u64, u64)> {
    let samples: Vec<&Sample> = flow
        .snapshots
        .iter()
        .map(|snapshot| snapshot.sample)
        .collect();
    let lost = |samples: &[&Sample], before: usize| {
        let cwnd = samples[before].tcp.cwnd.or(samples[before].tcp.unacked)?;
        Some((lost_after(samples, before)?, cwnd.get()))
    };
    let judged: Vec<_> = recovery_starts(&samples)
        .into_iter()
        .filter_map(|before| lost(&samples, before))
        .collect();
    if judged.len() as u64 >= MIN_RECOVERIES {
        return judged;
    }
    recovery_starts(&flow.whole)
        .into_iter()
        .skip(1)
        .filter_map(|before| lost(&flow.whole, before))
        .collect()
}

/// Returns the segments that were retransmitted in the recovery that follows sample `before`.
fn lost_after(samples: &[&Sample], before: usize) -> Option<u64> {
    let rest = &samples[before + 1..];
    let calm = rest.windows(2).position(|pair| {
        !is_recovering(pair[1])
            && retransmitted_segments(pair[1]) == retransmitted_segments(pair[0])
    });
    let end = rest.get(calm.unwrap_or(rest.len().saturating_sub(1)))?;
    Some(retransmitted_segments(end).saturating_sub(retransmitted_segments(samples[before])))
}

/// Returns true if the first recovery of a stream repaired a burst, and its round trips were at
/// most `longest` until the sender had noticed.
pub(crate) fn began_with_a_burst(flows: &[SenderStream], longest: Span) -> bool {
    let of_flow = |flow: &SenderStream| {
        let before = *recovery_starts(&flow.whole).first()?;
        let noticed = flow.whole.get(before + 1)?;
        let lost = lost_after(&flow.whole, before)?;
        let in_flight = noticed.tcp.cwnd.max(noticed.tcp.unacked)?.get();
        let rtt = flow.whole[before].tcp.rtt.max(noticed.tcp.rtt)?;
        Some(
            lost >= MIN_BURST_SEGMENTS
                && lost as f64 >= in_flight as f64 * MIN_BURST_SHARE
                && rtt <= longest,
        )
    };
    flows.iter().any(|flow| of_flow(flow) == Some(true))
}

/// A round trip of a stream in which many segments were lost: their share of those sent in it, and
/// the longest round-trip time from one before it, in which a queue that overflows has filled.
pub(crate) struct LossBurst {
    pub(crate) share: Ratio,
    pub(crate) rtt: Span,
    /// Set if the sender was not repairing earlier losses when it began.
    pub(crate) is_first: bool,
}

/// Returns the worst round trip of all streams of those that `counts`; `None` where none lost many
/// segments.
pub(crate) fn worst_burst(
    flows: &[SenderStream],
    round_trip: Span,
    counts: impl Fn(&LossBurst) -> bool,
) -> Option<LossBurst> {
    let bursts = flows.iter().flat_map(|flow| {
        (0..flow.whole.len()).filter_map(|first| find_burst(&flow.whole, first, round_trip))
    });
    bursts
        .filter(counts)
        .max_by(|a, b| a.share.get().total_cmp(&b.share.get()))
}

/// Returns the share of the segments that was lost in the judged part once no stream was repairing
/// what it had lost before that part; of all that was sent where one never ended that.
pub(crate) fn lost_later(flows: &[SenderStream]) -> Ratio {
    let (mut lost, mut sent) = (0_u64, 0_u64);
    for flow in flows {
        let calm = flow
            .snapshots
            .iter()
            .position(|snapshot| !is_recovering(snapshot.sample))
            .unwrap_or(0);
        let ends = flow.snapshots.get(calm).zip(flow.snapshots.last());
        let grown = |count: fn(&TcpInfo) -> Option<SegCount>| {
            let (first, last) = ends?;
            Some(
                count(&last.sample.tcp)?
                    .saturating_sub(count(&first.sample.tcp)?)
                    .get(),
            )
        };
        lost = lost.saturating_add(grown(|tcp| tcp.total_retrans).unwrap_or(0));
        sent = sent.saturating_add(grown(|tcp| tcp.data_segs_out).unwrap_or(0));
    }
    Ratio::from_quotient(lost as f64, sent.max(lost).max(1) as f64)
}

/// Returns the number of round trips with several lost segments, of the stream that had most of
/// them.
pub(crate) fn lossy_round_trips(flows: &[SenderStream], round_trip: Span) -> usize {
    let of_flow = |flow: &SenderStream| {
        let mut lost: BTreeMap<u64, u64> = BTreeMap::new();
        for pair in flow.whole.windows(2) {
            let number = pair[1].at.as_nanos() / round_trip.as_nanos().max(1);
            let sum = lost.entry(number).or_default();
            *sum = sum.saturating_add(
                retransmitted_segments(pair[1]).saturating_sub(retransmitted_segments(pair[0])),
            );
        }
        lost.into_values()
            .filter(|lost| *lost >= MIN_LOSSES_OF_ROUND_TRIP)
            .count()
    };
    flows.iter().map(of_flow).max().unwrap_or(0)
}

/// Returns the number of times in a row that a stream lost several segments and took its window
/// back though its round trips met no queue, as `is_empty` says: a policer takes packets again and
/// again until the sender is below its rate; a queue that overflows has drained by then, and chance
/// takes one at a time.
pub(crate) fn cuts_without_queue(
    flows: &[SenderStream],
    round_trip: Span,
    is_empty: impl Fn(Span) -> bool,
) -> usize {
    let of_flow = |flow: &SenderStream| {
        let (mut longest, mut row, mut last) = (0, 0, Span::ZERO);
        for (index, pair) in flow.whole.windows(2).enumerate() {
            let (before, after) = (pair[0].tcp.ssthresh, pair[1].tcp.ssthresh);
            let is_cut = after.is_some_and(|after| before.is_some_and(|before| after < before));
            let end = flow
                .whole
                .partition_point(|sample| sample.at <= pair[1].at + round_trip)
                - 1;
            let lost = retransmitted_segments(flow.whole[end])
                .saturating_sub(retransmitted_segments(flow.whole[index]));
            if !is_cut || lost < MIN_LOSSES_OF_ROUND_TRIP || !pair[1].tcp.rtt.is_some_and(&is_empty)
            {
                continue;
            }
            let goes_on = pair[1].at.saturating_sub(last) <= round_trip * ROUND_TRIPS_BETWEEN_CUTS;
            row = if goes_on { row + 1 } else { 1 };
            (longest, last) = (longest.max(row), pair[1].at);
        }
        longest
    };
    flows.iter().map(of_flow).max().unwrap_or(0)
}

/// Returns the loss of the round trip that begins with sample `first`, if it was a burst.
fn find_burst(samples: &[&Sample], first: usize, round_trip: Span) -> Option<LossBurst> {
    let from = samples[first].at;
    let index_at = |at: Span| samples.partition_point(|sample| sample.at < at);
    let before = index_at(from.saturating_sub(round_trip));
    let last = index_at(from + round_trip).min(samples.len() - 1);
    let grown = |count: fn(&TcpInfo) -> Option<SegCount>| {
        Some(
            count(&samples[last].tcp)?
                .saturating_sub(count(&samples[first].tcp)?)
                .get(),
        )
    };
    let (lost, sent) = (
        grown(|tcp| tcp.total_retrans)?,
        grown(|tcp| tcp.data_segs_out)?,
    );
    let rtt = samples[before..=last]
        .iter()
        .filter_map(|sample| sample.tcp.rtt)
        .max()?;
    let share = Ratio::from_quotient(lost as f64, sent.max(lost) as f64);
    (lost >= MIN_BURST_SEGMENTS).then(|| LossBurst {
        share,
        rtt,
        is_first: !is_recovering(samples[first]),
    })
}

/// Returns the congestion window at the last snapshot before each recovery.
fn windows_before_loss(flow: &SenderStream) -> Vec<ByteCount> {
    let samples: Vec<&Sample> = flow
        .snapshots
        .iter()
        .map(|snapshot| snapshot.sample)
        .collect();
    recovery_starts(&samples)
        .into_iter()
        .filter_map(|before| flow.snapshots[before].cwnd)
        .collect()
}

/// Returns the last snapshot before each recovery, by its index, where the window had time to grow:
/// right after a loss the kernel may lose again.
fn grown_before_loss(flow: &SenderStream) -> Vec<usize> {
    let samples: Vec<&Sample> = flow
        .snapshots
        .iter()
        .map(|snapshot| snapshot.sample)
        .collect();
    let mut grown_at = Span::ZERO;
    let mut found = recovery_starts(&samples);
    found.retain(|before| {
        let sample = samples[*before];
        let grown = sample.at >= grown_at;
        if grown {
            grown_at = sample.at + sample.tcp.rtt.unwrap_or_default() * ROUND_TRIPS_TO_GROW;
        }
        grown
    });
    found
}

/// Returns the windows of those snapshots.
fn grown_windows_before_loss(flow: &SenderStream) -> Vec<ByteCount> {
    grown_before_loss(flow)
        .into_iter()
        .filter_map(|before| flow.snapshots[before].cwnd)
        .collect()
}

/// Returns the last sample before each recovery, by its index. A recovery shorter than the time
/// between samples is known by the retransmissions.
fn recovery_starts(samples: &[&Sample]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut in_trouble = samples.first().is_some_and(|sample| is_recovering(sample));
    for (before, pair) in samples.windows(2).enumerate() {
        let trouble =
            is_recovering(pair[1]) || pair[1].tcp.total_retrans > pair[0].tcp.total_retrans;
        if trouble && !in_trouble {
            found.push(before);
        }
        in_trouble = trouble;
    }
    found
}

fn retransmitted_segments(sample: &Sample) -> u64 {
    sample.tcp.total_retrans.map_or(0, SegCount::get)
}

fn is_recovering(sample: &Sample) -> bool {
    matches!(
        sample.tcp.congestion_state,
        Some(CongestionState::Recovery | CongestionState::Loss)
    )
}

/// Returns standard deviation ÷ mean of windows.
fn spread_of(windows: &[ByteCount]) -> f64 {
    relative_deviation(
        &windows
            .iter()
            .map(|window| window.as_f64())
            .collect::<Vec<_>>(),
    )
}
