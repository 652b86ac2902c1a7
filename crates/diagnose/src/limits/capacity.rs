//! A bottleneck that is full, on the path or in the sending host.

use fullpipe_record::{
    At, CapacityVerdict, Change, CongestionWindowVerdict, LegalVerdict, Limit, LossVerdict, Remedy,
    Sample, Scope, TransferProgress,
};
use fullpipe_units::{BitRate, Ratio, SegCount, Span};

use crate::advice::RemedyAdvice;
use crate::figures::{SenderSampleFigures, share_of_votes};
use crate::finding::LimitFinding;
use crate::limits::fallen_rate::{self, FallenRate};
use crate::limits::loss::loss_window;
use crate::limits::{LimitFacts, flow_limit, half_duplex, pacing};
use crate::losses;
use crate::machine;
use crate::manual_remedy::ManualRemedy;
use crate::path::{
    self, exceeds_the_pipe, judged_part, mean_trend, queue_before_the_load, rate_trend, rtt_trend,
    stated_capacity, time_on_the_line,
};
use crate::text::{self, BasicFacts, Row, time_text};
use crate::thresholds::{
    CLEARLY_LOWER_SHARE, DEFAULT_QUEUE_PACKETS, FLAT_RATE_FACTOR, FULL_PIPE_SHARE,
    FULL_PIPE_SHARE_UNDER_BBR, GROWN_WINDOW_FACTOR, GROWN_WITH_RTT_FACTOR, INFLATED_RTT_FACTOR,
    MIN_ECHOES, MIN_LIMIT_SHARE, MIN_OWN_DROPS, MIN_OWN_DROPS_SHARE, MIN_WAIT_BEHIND_OTHERS,
    NEVER_EMPTY_RTT_FACTOR, NEXT_SIZE_FACTOR, PACKETS_OF_SHORT_QUEUE, RTT_SHARE_OF_GROWTH,
    SHARED_PIPE_SHARE, WHOLE_RATE_SHARE,
};

/// Finds a pipe that is as full as its stated bandwidth allows.
pub(crate) fn full_as_stated(figures: &SenderSampleFigures) -> Option<LimitFinding> {
    let enough = stated_capacity(figures)?.scale_by(FULL_PIPE_SHARE);
    (figures.rate >= enough)
        .then(|| LimitFinding::new(CapacityVerdict::Link, time_at(figures, enough)))
}

/// Returns true if the data takes all that the stated bandwidth can carry: nothing at a host could
/// be lifted then.
pub(crate) fn carries_all_as_stated(figures: &SenderSampleFigures) -> bool {
    stated_capacity(figures).is_some_and(|stated| figures.rate >= stated.scale_by(WHOLE_RATE_SHARE))
}

/// Finds a window or buffer that holds more than fits the pipe: the excess stands in a queue, and
/// the bottleneck is full. Data that waits for a slow reader, which takes it in large chunks, is no
/// queue: echo requests during the load do not wait with it.
pub(crate) fn queue_behind_window(figures: &SenderSampleFigures) -> Option<LimitFinding> {
    let in_the_pipe = figures.rate.bytes_in(figures.idle_rtt?);
    let outstanding = figures.mean_size(|snapshot| snapshot.outstanding)?;
    let echoes = figures.evidence.loaded_rtt.zip(inflated_rtt(figures));
    // Without echo requests a rate that wavers shows that it is the sender's own bursts that wait.
    let others_wait_too = echoes.map_or_else(|| is_flat(figures), |(rtt, most)| rtt > most);
    (rtt_is_inflated(figures)
        && others_wait_too
        && exceeds_the_pipe(outstanding, in_the_pipe, || is_flat(figures)))
    .then(|| LimitFinding::new(CapacityVerdict::Link, time_inflated(figures)))
}

/// Finds a bottleneck that is full, and not with this transfer alone: it carries clearly less of it
/// than its stated bandwidth; or its queue was there before the transfer began, and the transfer
/// fills it or loses packets to it; or packets wait behind those of others before they are lost.
pub(crate) fn behind_on_path(
    figures: &SenderSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
    let is_regrowth = found.verdict == CongestionWindowVerdict::Recovering.into();
    let in_a_queue = found.verdict == LossVerdict::ShallowQueue.into();
    let shared = match (found.limit_kind(), stated_capacity(figures)) {
        (Limit::Capacity, Some(stated)) => figures.rate < stated.scale_by(SHARED_PIPE_SHARE),
        (_, Some(stated)) if in_a_queue && waits_behind_others(figures, stated) == Some(true) => {
            true
        }
        (Limit::Capacity | Limit::Loss, _) => {
            queue_before_the_load(figures.evidence, figures.idle_rtt)
        }
        _ => is_regrowth && queue_before_the_load(figures.evidence, figures.idle_rtt),
    };
    shared.then(|| found.as_verdict(CapacityVerdict::Shared))
}

/// Returns true if packets wait longer before losses than a short queue keeps them, though the data
/// is far slower than the link then: packets of others wait there, too. While a queue of its own
/// stands, a sender has the whole link. `None` where one of these figures is not known.
fn waits_behind_others(figures: &SenderSampleFigures, stated: BitRate) -> Option<bool> {
    let idle = figures.idle_rtt?;
    let wait = losses::usual_rtt_before(&figures.flows)?.saturating_sub(idle);
    let least = stated
        .time_for(figures.mss? * PACKETS_OF_SHORT_QUEUE)
        .max(idle.scale_by(MIN_WAIT_BEHIND_OTHERS));
    let before =
        losses::usual_rate_before(&figures.flows)?.scale_by(f64::from(figures.stream_count()));
    Some(wait > least && before.max(figures.rate) < stated.scale_by(SHARED_PIPE_SHARE))
}

/// Returns true if each stream carries data at one rate throughout.
pub(crate) fn is_flat(figures: &SenderSampleFigures) -> bool {
    figures.flows.iter().all(|flow| {
        let samples: Vec<&Sample> = flow
            .snapshots
            .iter()
            .map(|snapshot| snapshot.sample)
            .collect();
        path::is_flat(&samples, |sample| sample.tcp.bytes_acked, figures.mss)
    })
}

pub(crate) fn full_bottleneck(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
    if rtt_is_inflated(figures) && rate_grows_with_window(figures) != Some(true) {
        return Some(LimitFinding::new(
            CapacityVerdict::Link,
            time_inflated(figures),
        ));
    }
    (more_window_gives_no_more(figures)
        || bbr_found_no_more(figures)
        || queue_never_empties(figures) == Some(true)
        || queue_drains_at_one_rate(figures) == Some(true))
    .then(|| LimitFinding::new(CapacityVerdict::Link, held))
}

/// Returns true if the round-trip time under load shows a standing queue.
///
/// The idle time may stem from the handshake or from echo requests, packets that are small and so
/// are sooner on the line than data: two full segments (an acknowledgement waits for the second)
/// are allowed for.
pub(crate) fn rtt_is_inflated(figures: &SenderSampleFigures) -> bool {
    figures
        .rtt
        .is_some_and(|rtt| rtt_is_inflated_over(figures, rtt))
}

/// Returns true if a round trip of `rtt` shows a standing queue.
pub(crate) fn rtt_is_inflated_over(figures: &SenderSampleFigures, rtt: Span) -> bool {
    inflated_rtt(figures).is_some_and(|inflated| rtt > inflated)
}

/// Returns true if echo requests during the load show a standing queue.
pub(crate) fn echoes_wait(figures: &SenderSampleFigures) -> bool {
    figures
        .evidence
        .loaded_rtt
        .zip(inflated_rtt(figures))
        .is_some_and(|(rtt, inflated)| rtt > inflated)
}

fn inflated_rtt(figures: &SenderSampleFigures) -> Option<Span> {
    // A path whose time varies by itself shows no queue by doing so.
    let usual = figures
        .evidence
        .idle_spread
        .map_or(Span::ZERO, |idle| idle.p90);
    Some(figures.idle_rtt?.scale_by(INFLATED_RTT_FACTOR).max(usual) + time_on_the_line(figures)?)
}

fn time_inflated(figures: &SenderSampleFigures) -> Ratio {
    let inflated = inflated_rtt(figures);
    let votes = figures
        .snapshots()
        .map(|snapshot| Some(snapshot.sample.tcp.rtt? > inflated?));
    // Where only echo requests show it, their median does: half of the time.
    share_of_votes(votes).unwrap_or(Ratio::new(0.5))
}

/// Returns true if even the shortest round trips under load, TCP's and those of echo requests, are
/// clearly longer than the longest of the idle path: the bottleneck has something to send at any
/// time. `None` where one of these times is not known.
fn queue_never_empties(figures: &SenderSampleFigures) -> Option<bool> {
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
fn queue_drains_at_one_rate(figures: &SenderSampleFigures) -> Option<bool> {
    let rtts = figures.snapshots().filter_map(|one| one.sample.tcp.rtt);
    let mut rtts: Vec<Span> = rtts.collect();
    rtts.sort_unstable();
    let [low, high] = [1, 19].map(|twentieths| rtts.get(rtts.len() * twentieths / 20).copied());
    let left = figures.idle_rtt?.scale_by(NEVER_EMPTY_RTT_FACTOR) + time_on_the_line(figures)?;
    Some(rtt_is_inflated_over(figures, high?) && low? > left && is_flat(figures))
}

/// Returns the shortest round trip of the judged part, as TCP measured it.
fn shortest_rtt(figures: &SenderSampleFigures) -> Option<Span> {
    figures
        .snapshots()
        .filter_map(|snapshot| snapshot.sample.tcp.rtt)
        .min()
}

/// Returns true if the window grew and the rate did not: the added data waits in a queue.
fn more_window_gives_no_more(figures: &SenderSampleFigures) -> bool {
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
fn rate_grows_with_window(figures: &SenderSampleFigures) -> Option<bool> {
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

/// Returns true if what the window grew by shows in the round trips, and not in the rate; `None` of
/// a window that did not grow, or without these figures.
fn round_trips_grow_with_window(figures: &SenderSampleFigures) -> Option<bool> {
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
fn bbr_found_no_more(figures: &SenderSampleFigures) -> bool {
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

pub(crate) fn too_much_for_bbr(figures: &SenderSampleFigures) -> bool {
    figures
        .retransmitted_segments()
        .is_some_and(|lost| loss_window(figures, lost.segment_share()).is_some())
}

/// Returns the share of the judged part in which the rate reached `enough`.
fn time_at(figures: &SenderSampleFigures, enough: BitRate) -> Ratio {
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

/// Finds capacity, loss or a small congestion window that is no limit of the link: the path bounds
/// each connection, or let more pass at first.
pub(crate) fn behind_rates(
    figures: &SenderSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
    let is_of_path = matches!(
        found.verdict,
        LegalVerdict::Capacity(CapacityVerdict::Link | CapacityVerdict::Shared)
            | LegalVerdict::Loss(_)
            | LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering)
            | LegalVerdict::Unknown(_)
    );
    if !is_of_path || carries_all_as_stated(figures) {
        return None;
    }
    let by_device = matches!(
        found.verdict,
        LegalVerdict::Loss(LossVerdict::Policer | LossVerdict::ShallowQueue)
    );
    if let Some(fallen) = FallenRate::from_figures(figures, by_device) {
        // The bucket of a policer may last for seconds, too.
        let other = match found.verdict {
            policed @ LegalVerdict::Loss(LossVerdict::Policer) => policed,
            _ => CapacityVerdict::Shared.into(),
        };
        let found = LimitFinding::new(CapacityVerdict::Allowance, fallen.share);
        return Some(found.add_alternative(other));
    }
    flow_limit::find_flow_limit(figures, found)
}

/// Finds capacity or loss that is the sending host's own queue: it dropped the packets that TCP
/// retransmitted.
pub(crate) fn behind_at_sender(
    figures: &SenderSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
    let device = machine::suspected_device(figures, found)?;
    let dropped = machine::dropped_out(device);
    let again = figures.sent_again_in_all().unwrap_or(0);
    // What the host drops before it leaves is no retransmission in the kernel's count, but shrinks
    // the window: where nothing else was lost, a few are enough, unless they are the tops of a rate
    // that is reached.
    let few_are_enough = again == 0 && dropped > 0 && pacing::find_cause(figures, found).is_none();
    let many = dropped >= MIN_OWN_DROPS && dropped as f64 >= again as f64 * MIN_OWN_DROPS_SHARE;
    (many || few_are_enough).then(|| found.as_verdict(CapacityVerdict::HostQueue))
}

/// The figures of a full pipe.
pub(crate) struct FullPipe {
    verdict: CapacityVerdict,
    basics: BasicFacts,
    bandwidth: Option<BitRate>,
    /// The sentence on a link at half duplex, where that is the cause.
    half_duplex: String,
    /// Payload that the stated bandwidth can carry.
    capacity: Option<BitRate>,
    streams: u16,
    /// The rates of an allowance.
    fallen: Option<FallenRate>,
    shown: Vec<Row>,
}

impl FullPipe {
    pub(crate) fn from_figures(verdict: CapacityVerdict, figures: &SenderSampleFigures) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            bandwidth: figures.evidence.bandwidth,
            half_duplex: half_duplex::sentence(verdict, figures.evidence, figures.rate),
            capacity: stated_capacity(figures),
            streams: figures.stream_count(),
            fallen: (verdict == CapacityVerdict::Allowance)
                .then(|| FallenRate::from_figures(figures, true))
                .flatten(),
            shown: text::of_path(figures),
        }
    }

    fn full_link(&self) -> String {
        let rate = self.basics.rate;
        match self.capacity.zip(self.bandwidth) {
            Some((capacity, bandwidth)) => format!(
                "The pipe is full: {rate} of data arrives, {:.0} % of the {capacity} that a path of {bandwidth} can \
                 carry.",
                rate.relative_to(capacity) * 100.0,
            ),
            None => format!(
                "The pipe is full at {rate}: sending more only lengthens the queue (round trip {} idle, {} now).",
                time_text(self.basics.idle_rtt),
                time_text(self.basics.rtt),
            ),
        }
    }
}

impl LimitFacts for FullPipe {
    fn sentence(&self) -> String {
        let rate = self.basics.rate;
        match self.verdict {
            CapacityVerdict::Link => self.full_link(),
            CapacityVerdict::HalfDuplexOfSender | CapacityVerdict::HalfDuplexOfReceiver => {
                self.half_duplex.clone()
            }
            CapacityVerdict::HostQueue => format!(
                "The sender's own queue or network device drops packets at {rate}: they are lost before they leave the \
                 host."
            ),
            CapacityVerdict::Shared => format!(
                "The pipe is full, but not with this transfer alone: its part is {rate}{} (round trip {} idle, {} \
                 now).",
                self.basics.could_carry(),
                time_text(self.basics.idle_rtt),
                time_text(self.basics.rtt),
            ),
            CapacityVerdict::PerFlowLimit => format!(
                "The path bounds each connection: each of {} carries {}, and all of them {rate}{}.",
                self.streams,
                rate.scale_by(1.0 / f64::from(self.streams)),
                self.basics.could_carry(),
            ),
            CapacityVerdict::Allowance => match &self.fallen {
                Some(fallen) => fallen.sentence(),
                None => format!("The path let more pass at first than {rate}, and then no more."),
            },
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self.verdict {
            CapacityVerdict::HostQueue => [advice.default_discipline(), longer_queue(advice)]
                .into_iter()
                .flatten()
                .collect(),
            CapacityVerdict::PerFlowLimit | CapacityVerdict::Link => {
                flow_limit::several_connections(advice)
                    .into_iter()
                    .collect()
            }
            CapacityVerdict::Shared
            | CapacityVerdict::Allowance
            | CapacityVerdict::HalfDuplexOfSender
            | CapacityVerdict::HalfDuplexOfReceiver => Vec::new(),
        }
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            CapacityVerdict::HostQueue => &[ManualRemedy {
                id: "longer-queue",
                scope: Scope::Host,
                at: None,
                why: "A longer queue at the device (txqueuelen, the limit of its discipline, larger rings), or fq, \
                      which lets each connection wait instead of dropping.",
            }],
            CapacityVerdict::Shared => &[ManualRemedy {
                id: "share",
                scope: Scope::Path,
                at: None,
                why: "Others load the path: more bandwidth, another hour, or an agreed share of it; more connections \
                      only take from the others.",
            }],
            CapacityVerdict::HalfDuplexOfSender | CapacityVerdict::HalfDuplexOfReceiver => {
                half_duplex::REMEDIES
            }
            CapacityVerdict::PerFlowLimit => &[ManualRemedy {
                id: "raise-the-limit-of-a-flow",
                scope: Scope::Path,
                at: None,
                why: "Who runs the path bounds each connection: its documentation says by how much, and where not \
                      (one placement group, another class of the service).",
            }],
            CapacityVerdict::Allowance => fallen_rate::REMEDIES,
            CapacityVerdict::Link => &[ManualRemedy {
                id: "none",
                scope: Scope::Path,
                at: None,
                why: "The pipe is full: no setting of the hosts makes it wider.",
            }],
        }
    }
}

/// Makes room for more packets, where the length of the device's own queue counts.
fn longer_queue(advice: &RemedyAdvice) -> Option<Remedy> {
    /// Disciplines without a limit but the device's.
    const WITHOUT_A_LIMIT: [&str; 2] = ["mq", "pfifo_fast"];
    let device = advice.own_device()?;
    let mut qdiscs = device.qdiscs.iter();
    let counts = !device.qdiscs.is_empty()
        && qdiscs.all(|qdisc| WITHOUT_A_LIMIT.contains(&qdisc.kind.as_str()));
    let (name, length) = (&device.name, device.queue_length.filter(|_| counts)?);
    let packets = SegCount::new((length * NEXT_SIZE_FACTOR).get().max(DEFAULT_QUEUE_PACKETS));
    let why = format!(
        "{name} has room for {} packets and drops the others (txqueuelen): with room for {} more of a burst waits, \
         and longer.",
        length.get(),
        packets.get()
    );
    let change = Change::QueueLength {
        device: name.clone(),
        packets,
    };
    Some(advice.build_remedy("longer-queue", Scope::Host, At::Sender, vec![change], why))
}
