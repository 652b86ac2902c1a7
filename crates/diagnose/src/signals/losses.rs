use std::collections::BTreeMap;

use fullpipe_record::CongestionState;

use crate::prelude::*;
use crate::signals::spread::relative_deviation;
use crate::signals::{JudgedSample, SenderStream, time_ratio};
use crate::thresholds::{MIN_BURST_SHARE, MIN_RECOVERIES, SOON_AFTER_FIRST_LOSS};

/// Returns the number of recoveries of a stream in its judged part, as far as the samples show
/// them.
pub(crate) fn recovery_count(flow: &SenderStream) -> u64 {
    windows_before_loss(flow).len() as u64
}

/// Returns the number of recoveries of a stream in its whole life, the ramp included.
pub(crate) fn episodes_in_all(flow: &SenderStream) -> u64 {
    recoveries_of(&flow.whole)
}

/// Round trips after the first loss of a stream in which a policer may still take what its bucket
/// let through, where they are longer than that time.
const ROUND_TRIPS_AFTER_FIRST_LOSS: u64 = 10;

/// Returns the last sample before each recovery of the streams' whole life, but for the first one of
/// a stream and those soon after it.
pub(crate) fn before_later_losses<'s>(flows: &[SenderStream<'s>], rtt: Span) -> Vec<&'s Sample> {
    let soon = SOON_AFTER_FIRST_LOSS.max(rtt * ROUND_TRIPS_AFTER_FIRST_LOSS);
    let later = flows.iter().flat_map(|flow| {
        let starts = recovery_starts(&flow.whole).into_iter();
        let mut first = None;
        starts
            .map(|before| flow.whole[before])
            .filter(move |sample| sample.at > *first.get_or_insert(sample.at) + soon)
    });
    later.collect()
}

/// Returns the number of recoveries that begin in these samples of a stream.
pub(crate) fn recoveries_of(samples: &[&Sample]) -> u64 {
    recovery_starts(samples).len() as u64
}

/// Losses of a stream that are enough where they come at exactly one window.
const MIN_EPISODES_OF_SAME_WINDOW: usize = 5;

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
    episodes >= MIN_EPISODES_OF_SAME_WINDOW * windows.len().max(1)
        && windows.iter().all(|windows| {
            spread_of(windows) <= max_spread_of_one_window(windows.len(), is_reno, is_delayed)
                || mostly_at_the_top(windows)
        })
}

/// Losses of a stream that are enough to see if they come at one window.
const MIN_EPISODES_OF_ONE_WINDOW: usize = 8;
/// Largest deviation ÷ mean of windows before loss that are one window.
///
/// By chance, at most 1.5 % of series of eight independent losses are as narrow (simulated round by
/// round, CUBIC over 100 ms at p of 10⁻³ to 10⁻⁵, 1000 series each). With four losses it would be
/// 17 %, and with a spread of 0.1 it would be 10 %.
const ONE_WINDOW_SPREAD: f64 = 0.05;
/// Largest deviation ÷ mean of a few windows before loss that are the same but for a segment.
///
/// Windows before independent losses spread by a quarter and more: five of them are as narrow by
/// chance about once in ten thousand times.
const SAME_WINDOW_SPREAD: f64 = 0.025;
/// Losses of a stream from which a wider spread counts as one window.
///
/// Small windows can only be the same by whole segments, and packets in a burst fill a short queue
/// a little sooner or later.
const MANY_EPISODES: usize = 20;
/// Largest deviation ÷ mean of many windows before loss that are one window.
///
/// At most one percent of series of 20 independent losses are as narrow (simulated round by round,
/// CUBIC over 100 ms at p of 0.026 to 10⁻⁴).
const MANY_EPISODES_SPREAD: f64 = 0.145;
/// Largest deviation ÷ mean of windows before loss that are one window under Reno, which does not
/// dwell below its last peak: a hundredth of the series of eight independent losses is as narrow
/// (simulated round by round at p of 0.03 to 0.001, 1000 series each).
const ONE_WINDOW_SPREAD_UNDER_RENO: f64 = 0.145;
/// Largest deviation ÷ mean of twenty windows before loss that are one window under Reno: a
/// hundredth of the series of independent losses is as narrow.
const MANY_EPISODES_SPREAD_UNDER_RENO: f64 = 0.2;
/// Largest deviation ÷ mean of twenty windows before loss that are one window under Reno, where
/// packets waited before the losses, as they do before few independent ones: a twentieth of the
/// series is as narrow.
const MANY_EPISODES_SPREAD_AFTER_DELAY_UNDER_RENO: f64 = 0.23;

const fn max_spread_of_one_window(episodes: usize, is_reno: bool, is_delayed: bool) -> f64 {
    match episodes {
        0..MIN_EPISODES_OF_ONE_WINDOW => SAME_WINDOW_SPREAD,
        MIN_EPISODES_OF_ONE_WINDOW..MANY_EPISODES if is_reno => ONE_WINDOW_SPREAD_UNDER_RENO,
        MIN_EPISODES_OF_ONE_WINDOW..MANY_EPISODES => ONE_WINDOW_SPREAD,
        _ if is_reno && is_delayed => MANY_EPISODES_SPREAD_AFTER_DELAY_UNDER_RENO,
        _ if is_reno => MANY_EPISODES_SPREAD_UNDER_RENO,
        _ => MANY_EPISODES_SPREAD,
    }
}

/// Samples with so much in flight and without a loss, of which a burst has few.
const MIN_CALM_SAMPLES: usize = 8;

/// Returns true if a stream had far more in flight for many samples of its whole life, and lost
/// nothing then, than where it usually lost in its judged part: no queue is too short for what it
/// has held.
pub(crate) fn larger_windows_pass(flows: &[SenderStream]) -> bool {
    flows
        .iter()
        .filter_map(calm_samples_above_loss)
        .any(|samples| samples >= MIN_CALM_SAMPLES)
}

/// Multiple of the usual window at which losses came that no queue holds which was too short for
/// that one.
const LARGER_WINDOW_FACTOR: f64 = 1.5;

/// Returns the number of samples in which a stream had that much in flight and lost nothing; `None`
/// where it never lost in its judged part.
fn calm_samples_above_loss(flow: &SenderStream) -> Option<usize> {
    let usual = median(grown_windows_before_loss(flow))?;
    let mss = flow
        .snapshots
        .iter()
        .find_map(|snapshot| snapshot.sample.tcp.snd_mss)?;
    let enough = usual.scale_by(LARGER_WINDOW_FACTOR);
    let calm = flow.whole.windows(2).filter(|pair| {
        !is_recovering(pair[1])
            && pair[1].tcp.total_retrans == pair[0].tcp.total_retrans
            && pair[1].tcp.unacked.unwrap_or_default().of_size(mss) >= enough
    });
    Some(calm.count())
}

/// Share of the losses, at least [`MIN_EPISODES_OF_SAME_WINDOW`], that come at the largest window
/// where a short queue sets it.
const MIN_SHARE_AT_THE_TOP: f64 = 0.6;

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

/// Losses of a stream from which one that does not fit is left out.
const MIN_EPISODES_WITH_OUTLIER: usize = 12;

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

/// Median round-trip time before losses ÷ the usual one from which a queue that is too short drops
/// packets (measured: 1.045 to 1.22 in 22 of 25 runs with one; at most 1.02 in 40 of 42 runs with
/// random loss or a policer).
const RTT_BEFORE_SHORT_QUEUE_DROPS: f64 = 1.04;
/// Lower quartile of the round-trip time before losses ÷ the usual one, from which a queue that is
/// too short drops packets (measured: 1.013 and more in 21 of those 22; 0.992 and 1.007 in the two
/// others).
const LOWER_RTT_BEFORE_SHORT_QUEUE_DROPS: f64 = 1.01;

/// Returns true if round trips are longer before losses than usual: a queue fills then, and is too
/// short for more. Independent losses and a policer come at any time.
pub(crate) fn follow_a_queue(flows: &[SenderStream]) -> bool {
    let mut rises: Vec<f64> = flows.iter().flat_map(rises_before_loss).collect();
    rises.sort_by(f64::total_cmp);
    let [lower, middle] = [1, 2].map(|quarters| rises.get(rises.len() * quarters / 4).copied());
    rises.len() as u64 >= MIN_RECOVERIES
        && middle >= Some(RTT_BEFORE_SHORT_QUEUE_DROPS)
        && lower >= Some(LOWER_RTT_BEFORE_SHORT_QUEUE_DROPS)
}

/// Share of the lost segments from which a queue that overflowed took them.
const LOST_IN_QUEUE_SHARE: f64 = 0.9;

/// Returns the part of each stream's whole life in which its round trips met a queue, if nearly all
/// that it lost was lost then; `None` if not, or if nothing was lost.
pub(crate) fn time_of_queue<'s>(
    flow: &SenderStream<'s>,
    is_queue: impl Fn(Span) -> bool,
) -> Option<[&'s Sample; 2]> {
    let rtts = flow.whole.iter().map(|sample| sample.tcp.rtt);
    let met: Vec<bool> = rtts.map(|rtt| rtt.is_some_and(&is_queue)).collect();
    let ends = [
        met.iter().position(|met| *met)?,
        met.iter().rposition(|met| *met)?,
    ];
    let pairs = flow.whole.windows(2).zip(met.windows(2));
    let in_queue: u64 = pairs
        .filter(|(_, met)| met.contains(&true))
        .map(|(pair, _)| retransmitted_between(pair[0], pair[1]))
        .sum();
    let in_all = retransmitted_segments(flow.whole.last()?);
    (in_all > 0 && in_queue as f64 >= in_all as f64 * LOST_IN_QUEUE_SHARE)
        .then(|| ends.map(|end| flow.whole[end]))
}

/// Returns the round-trip time before each loss of a stream ÷ the one that a quarter of the samples
/// are below.
fn rises_before_loss(flow: &SenderStream) -> Vec<f64> {
    let samples = flow.judged_samples().into_iter();
    let mut all: Vec<Span> = samples.filter_map(|sample| sample.tcp.rtt).collect();
    all.sort_unstable();
    let Some(low) = all.get(all.len() / 4) else {
        return Vec::new();
    };
    grown_before_loss(flow)
        .into_iter()
        .filter_map(|before| before.sample.tcp.rtt)
        .map(|rtt| time_ratio(rtt, *low).get())
        .collect()
}

/// Share of a window that is lost at once where a device, and not chance, cuts it (measured: 0.02
/// and more of large windows; several at once by chance are a share of some windows of few
/// segments).
const MANY_LOST_AT_ONCE: f64 = 0.02;
/// Segments that are more than the few which chance takes at once (measured: usually one; 3 to 28
/// of policers).
const MIN_LOST_AT_ONCE: u64 = 3;

/// Returns true if a recovery usually begins with many lost segments: more than a few, and a share
/// of the window before it. Of two recoveries the lesser counts: two losses by chance may fall into
/// what seems one, and many where several round trips pass between two samples.
pub(crate) fn come_many_at_once(flows: &[SenderStream]) -> bool {
    if flows.iter().all(come_as_by_chance) {
        return false;
    }
    let losses = flows.iter().flat_map(lost_in_recoveries);
    let (counts, shares): (Vec<f64>, Vec<f64>) = losses
        .map(|(lost, window)| (lost as f64, window as f64))
        .map(|(lost, window)| (lost, Ratio::from_quotient(lost, window).get()))
        .unzip();
    usual_of_recoveries(counts) >= Some(MIN_LOST_AT_ONCE as f64)
        && usual_of_recoveries(shares) >= Some(MANY_LOST_AT_ONCE)
}

/// Segments of a window from which a part of it is more than a train (measured: queues of 3 to 9
/// packets drop up to 10 segments of windows of 15, and at most 3 of windows of 20 and more).
const MIN_WINDOW_OF_PARTS: u64 = 20;
/// Segments that are lost at once, and their share of the window, from which a policer takes them
/// (measured of windows of 20 segments and more: at most 3 and 0.1 by chance and before short
/// queues; 5 to 150 and 0.05 to 0.5 of half of all policers).
const MIN_LOST_OF_PART: u64 = 5;
const MIN_PART_OF_WINDOW: f64 = 0.05;

/// Returns true if a recovery usually repairs a part of a window that no full queue takes while a
/// window grows by a segment a round trip (RFC 5681, 3.1), or by a few under CUBIC: a device
/// discards what exceeds a rate until the sender has become slower. Windows of a few segments leave
/// in trains that overflow a short queue as well.
pub(crate) fn take_a_part_of_windows(flows: &[SenderStream]) -> bool {
    let losses: Vec<(u64, u64)> = flows
        .iter()
        .flat_map(lost_in_recoveries)
        .filter(|(_, window)| *window >= MIN_WINDOW_OF_PARTS)
        .collect();
    let usual = usual_of_recoveries(losses.iter().map(|(lost, _)| *lost as f64).collect());
    let shares = losses
        .iter()
        .map(|(lost, window)| *lost as f64 / *window as f64);
    usual >= Some(MIN_LOST_OF_PART as f64)
        && usual_of_recoveries(shares.collect()) >= Some(MIN_PART_OF_WINDOW)
}

/// The fastest that a stream ever was ÷ its rate before losses, from which what discards packets
/// let bursts pass (measured of windows of 20 segments and more: 1.00 to 1.13 before short queues,
/// up to 2.1 of policers).
const FASTER_BEFORE_LOSSES: f64 = 1.2;

/// Returns true if a stream was once clearly faster than it usually is before its losses, where its
/// windows are no longer those of a few segments: what discards packets let more pass before.
pub(crate) fn were_faster_before(flows: &[SenderStream]) -> bool {
    let usual = usual_rate_before(flows);
    let windows: Vec<ByteCount> = flows.iter().flat_map(grown_windows_before_loss).collect();
    let mss = flows.iter().find_map(|flow| flow.whole.last()?.tcp.snd_mss);
    let is_large = median(windows)
        .zip(mss)
        .is_some_and(|(window, mss)| window >= mss * MIN_WINDOW_OF_PARTS);
    let rates = flows.iter().flat_map(|flow| {
        flow.whole
            .iter()
            .filter_map(|sample| sample.tcp.delivery_rate)
    });
    let fastest = rates.max();
    is_large
        && usual
            .zip(fastest)
            .is_some_and(|(usual, fastest)| fastest >= usual.scale_by(FASTER_BEFORE_LOSSES))
}

/// Returns the middle one of figures of recoveries, the lesser of two; `None` of too few.
fn usual_of_recoveries(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures
        .get(figures.len().saturating_sub(1) / 2)
        .copied()
        .filter(|_| figures.len() as u64 >= MIN_RECOVERIES)
}

/// Variance ÷ mean of the losses between samples from which they come many at once: 1 by chance,
/// and the number of a burst where bursts are rare.
const MIN_DISPERSION_OF_BURSTS: f64 = 2.0;
/// Round trips between two samples from which several recoveries look like one.
const MANY_ROUND_TRIPS_BETWEEN_SAMPLES: u64 = 3;

/// Returns true if the losses between samples vary as little as by chance, where each sample is of
/// many round trips.
fn come_as_by_chance(flow: &SenderStream) -> bool {
    let samples = flow.judged_samples();
    let apart = median(
        samples
            .windows(2)
            .map(|pair| pair[1].at.saturating_sub(pair[0].at))
            .collect(),
    );
    let rtt = median(samples.iter().filter_map(|sample| sample.tcp.rtt).collect());
    let many = apart
        .zip(rtt)
        .is_some_and(|(apart, rtt)| apart >= rtt * MANY_ROUND_TRIPS_BETWEEN_SAMPLES);
    many && loss_dispersion(flow) < MIN_DISPERSION_OF_BURSTS
}

/// Returns variance ÷ mean of the segments lost between the judged samples of a stream.
pub(crate) fn loss_dispersion(flow: &SenderStream) -> f64 {
    let lost: Vec<f64> = flow
        .judged_samples()
        .windows(2)
        .map(|pair| retransmitted_between(pair[0], pair[1]) as f64)
        .collect();
    let mean = lost.iter().sum::<f64>() / lost.len().max(1) as f64;
    relative_deviation(&lost).powi(2) * mean
}

/// Largest deviation ÷ mean of the windows before a policer's losses (measured: 0.03; 0.2 behind a
/// queue of three packets that bursts overflow).
const MAX_WINDOW_SPREAD_OF_POLICER: f64 = 0.15;

/// Returns true if a stream loses packets at windows as different as no device makes them that
/// discards what exceeds a rate.
pub(crate) fn come_at_any_window(flows: &[SenderStream]) -> bool {
    flows.iter().map(grown_windows_before_loss).any(|windows| {
        windows.len() >= MIN_EPISODES_OF_ONE_WINDOW
            && spread_of(&without_outlier(windows)) > MAX_WINDOW_SPREAD_OF_POLICER
    })
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
    flows.iter().flat_map(grown_before_loss)
}

/// Returns the segments that were lost in each recovery of the judged part, and the window before
/// it; of the whole life but its first recovery, which slow start brings about, where the judged
/// part has few.
fn lost_in_recoveries(flow: &SenderStream) -> Vec<(u64, u64)> {
    let samples = flow.judged_samples();
    let judged: Vec<_> = recovery_starts(&samples)
        .into_iter()
        .filter_map(|before| lost_and_window(&samples, before))
        .collect();
    if judged.len() as u64 >= MIN_RECOVERIES {
        return judged;
    }
    recovery_starts(&flow.whole)
        .into_iter()
        .skip(1)
        .filter_map(|before| lost_and_window(&flow.whole, before))
        .collect()
}

/// Returns the segments that were lost in the recovery that follows sample `before`, and the
/// window there.
fn lost_and_window(samples: &[&Sample], before: usize) -> Option<(u64, u64)> {
    let cwnd = samples[before].tcp.cwnd.or(samples[before].tcp.unacked)?;
    Some((lost_after(samples, before)?, cwnd.get()))
}

/// Returns the segments that were retransmitted in the recovery that follows sample `before`.
fn lost_after(samples: &[&Sample], before: usize) -> Option<u64> {
    let rest = &samples[before + 1..];
    let calm = rest.windows(2).position(|pair| {
        !is_recovering(pair[1])
            && retransmitted_segments(pair[1]) == retransmitted_segments(pair[0])
    });
    let end = rest.get(calm.unwrap_or(rest.len().saturating_sub(1)))?;
    Some(retransmitted_between(samples[before], end))
}

/// Returns true if the first recovery of a stream repaired a burst, and its round trips were at
/// most `longest` until the sender had noticed.
pub(crate) fn began_with_a_burst(flows: &[SenderStream], longest: Span) -> bool {
    flows
        .iter()
        .filter_map(rtt_of_first_burst)
        .any(|rtt| rtt <= longest)
}

/// Segments lost in one round trip that are a burst.
const MIN_BURST_SEGMENTS: u64 = 15;

/// Returns the round-trip time of a stream at its first recovery, if that repaired a burst.
fn rtt_of_first_burst(flow: &SenderStream) -> Option<Span> {
    let before = *recovery_starts(&flow.whole).first()?;
    let noticed = flow.whole.get(before + 1)?;
    let lost = lost_after(&flow.whole, before)?;
    let in_flight = noticed.tcp.cwnd.max(noticed.tcp.unacked)?.as_f64();
    let is_burst = lost >= MIN_BURST_SEGMENTS && lost as f64 >= in_flight * MIN_BURST_SHARE;
    let rtt = flow.whole[before].tcp.rtt.max(noticed.tcp.rtt);
    rtt.filter(|_| is_burst)
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
        if let Some((first, last)) = flow.snapshots.get(calm).zip(flow.snapshots.last()) {
            let [again, all] = retransmitted_and_sent(first.sample, last.sample);
            lost = lost.saturating_add(again.unwrap_or(0));
            sent = sent.saturating_add(all.unwrap_or(0));
        }
    }
    Ratio::from_quotient(lost as f64, sent.max(lost).max(1) as f64)
}

/// Returns the segments that were retransmitted, and those sent in all, from one sample to a later
/// one.
fn retransmitted_and_sent(first: &Sample, last: &Sample) -> [Option<u64>; 2] {
    let (first, last) = (&first.tcp, &last.tcp);
    [
        (first.total_retrans, last.total_retrans),
        (first.data_segs_out, last.data_segs_out),
    ]
    .map(|(first, last)| Some(last?.saturating_sub(first?).get()))
}

/// Segments lost in a round trip that count it as one with losses.
const MIN_LOSSES_OF_ROUND_TRIP: u64 = 3;

/// Returns the number of round trips with several lost segments, of the stream that had most of
/// them.
pub(crate) fn lossy_round_trips(flows: &[SenderStream], round_trip: Span) -> usize {
    let of_streams = flows.iter().map(|flow| {
        let mut lost: BTreeMap<u64, u64> = BTreeMap::new();
        for pair in flow.whole.windows(2) {
            let number = pair[1].at.as_nanos() / round_trip.as_nanos().max(1);
            let sum = lost.entry(number).or_default();
            *sum = sum.saturating_add(retransmitted_between(pair[0], pair[1]));
        }
        lost.into_values()
            .filter(|lost| *lost >= MIN_LOSSES_OF_ROUND_TRIP)
            .count()
    });
    of_streams.max().unwrap_or(0)
}

/// Round trips between two cuts of a window without a queue that are in a row: a recovery takes
/// two.
const ROUND_TRIPS_BETWEEN_CUTS: u64 = 4;

/// Returns the number of times in a row that a stream lost several segments and took its window
/// back though its round trips met no queue, as `is_empty` says: a policer takes packets again and
/// again until the sender is below its rate; a queue that overflows has drained by then, and chance
/// takes one at a time.
pub(crate) fn cuts_without_queue(
    flows: &[SenderStream],
    round_trip: Span,
    is_empty: impl Fn(Span) -> bool,
) -> usize {
    let of_streams = flows.iter().map(|flow| {
        let (mut longest, mut row, mut last) = (0, 0, Span::ZERO);
        for at in cut_times(&flow.whole, round_trip, &is_empty) {
            let goes_on = at.saturating_sub(last) <= round_trip * ROUND_TRIPS_BETWEEN_CUTS;
            row = if goes_on { row + 1 } else { 1 };
            (longest, last) = (longest.max(row), at);
        }
        longest
    });
    of_streams.max().unwrap_or(0)
}

/// Returns each time at which a stream lost several segments and took its window back, with no
/// queue.
fn cut_times(
    samples: &[&Sample],
    round_trip: Span,
    is_empty: impl Fn(Span) -> bool,
) -> impl Iterator<Item = Span> {
    let cuts = samples.windows(2).filter(move |pair| {
        let (before, after) = (pair[0].tcp.ssthresh, pair[1].tcp.ssthresh);
        let until = pair[1].at + round_trip;
        let end = samples.partition_point(|sample| sample.at <= until) - 1;
        after.is_some_and(|after| before.is_some_and(|before| after < before))
            && retransmitted_between(pair[0], samples[end]) >= MIN_LOSSES_OF_ROUND_TRIP
            && pair[1].tcp.rtt.is_some_and(&is_empty)
    });
    cuts.map(|pair| pair[1].at)
}

/// Returns the loss of the round trip that begins with sample `first`, if it was a burst.
fn find_burst(samples: &[&Sample], first: usize, round_trip: Span) -> Option<LossBurst> {
    let from = samples[first].at;
    let [before, end] = [from.saturating_sub(round_trip), from + round_trip]
        .map(|at| samples.partition_point(|sample| sample.at < at));
    let last = end.min(samples.len() - 1);
    let [lost, sent] = retransmitted_and_sent(samples[first], samples[last]);
    let (lost, sent) = (lost?, sent?);
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
    recovery_starts(&flow.judged_samples())
        .into_iter()
        .filter_map(|before| flow.snapshots[before].cwnd)
        .collect()
}

/// Round trips after a loss in which the window has not yet grown to where a queue overflows.
const ROUND_TRIPS_TO_GROW: u64 = 3;

/// Returns the last snapshot before each recovery where the window had time to grow: right after a
/// loss the kernel may lose again.
fn grown_before_loss<'f, 's>(flow: &'f SenderStream<'s>) -> Vec<&'f JudgedSample<'s>> {
    let mut grown_at = Span::ZERO;
    let starts = recovery_starts(&flow.judged_samples()).into_iter();
    let mut found: Vec<_> = starts.map(|before| &flow.snapshots[before]).collect();
    found.retain(|before| {
        let sample = before.sample;
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
        .filter_map(|before| before.cwnd)
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

fn retransmitted_between(first: &Sample, last: &Sample) -> u64 {
    retransmitted_segments(last).saturating_sub(retransmitted_segments(first))
}

pub(crate) fn retransmitted_segments(sample: &Sample) -> u64 {
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
