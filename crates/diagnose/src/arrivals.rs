//! Figures of the receiving end's samples.

use std::collections::BTreeMap;

use fullpipe_model::loss::CongestionControl;
use fullpipe_model::window;
use fullpipe_record::{Evidence, LossVerdict, Sample, TcpInfo, TransferProgress};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, median};

use crate::figures::share_of_votes;
use crate::flow::by_stream;
use crate::loss_episodes::LossEpisodes;
use crate::path;
use crate::snapshot::own_window;
use crate::thresholds::{
    BURST_PAUSE, CLOCK_TICK, EXPLAINED_BY_LOSS_FACTOR, INFLATED_RTT_FACTOR, KEPT_BY_CUBIC,
    KEPT_BY_RENO, MAX_FRAME, MIN_BURST_PAUSES_SHARE, MIN_RECOVERIES, MUCH_OUT_OF_ORDER,
    NO_BURST_BEFORE_QUEUE, REGROWN_WINDOW_FACTOR, SLIGHTLY_INFLATED_RTT_FACTOR, WHOLE_LINK_SHARE,
};

/// The figures of the receiving end's samples, over the part that is judged.
pub(crate) struct ReceiverSampleFigures<'a> {
    pub(crate) evidence: &'a Evidence,
    /// Every sample of each connection, by time.
    pub(crate) whole: Vec<Vec<&'a Sample>>,
    /// The judged samples of each connection, by time.
    pub(crate) flows: Vec<Vec<&'a Sample>>,
    /// Mean rate of all connections.
    pub(crate) rate: BitRate,
    /// Round-trip time as the receiver estimates it; where pauses of the sender may be in that
    /// estimate and nothing was lost, that of echo requests, or of the idle path.
    pub(crate) rtt: Option<Span>,
    /// Round-trip time as the receiver estimates it.
    pub(crate) estimate: Option<Span>,
    /// Share of the snapshots in pauses of all connections, where those may be what makes the
    /// estimate longer than the round trip: the kernel counts from an acknowledgement to the data
    /// that it lets through, which a sender with nothing to send makes late.
    pub(crate) pauses: Option<Ratio>,
}

impl<'a> ReceiverSampleFigures<'a> {
    pub(crate) fn from_evidence(evidence: &'a Evidence) -> Self {
        let (first, last) = evidence.steady.map_or((Span::ZERO, Span::MAX), |steady| {
            (
                steady.ramp.saturating_sub(Span::from_nanos(1)),
                steady.ramp + steady.duration,
            )
        });
        let mut whole: Vec<Vec<&Sample>> = by_stream(&evidence.receiver_samples)
            .into_values()
            .collect();
        for flow in &mut whole {
            flow.sort_by_key(|sample| sample.at);
        }
        let judged = |flow: &Vec<&'a Sample>| -> Vec<&'a Sample> {
            flow.iter()
                .copied()
                .filter(|sample| (first..=last).contains(&sample.at))
                .collect()
        };
        let flows: Vec<Vec<&Sample>> = whole
            .iter()
            .map(judged)
            .filter(|flow| !flow.is_empty())
            .collect();
        let estimates = flows
            .iter()
            .flatten()
            .filter_map(|sample| sample.tcp.rcv_rtt)
            .filter(|rtt| *rtt > Span::ZERO);
        let estimate = median(estimates.collect())
            .or(evidence.loaded_rtt)
            .or(evidence.idle_rtt);
        let estimate = estimate.filter(|rtt| *rtt > Span::ZERO);
        let rate = arrival_rate(evidence, &flows);
        let mut arrivals = Self {
            rate,
            rtt: estimate,
            estimate,
            pauses: None,
            evidence,
            whole,
            flows,
        };
        arrivals.pauses = arrivals.pauses_in_the_estimate();
        // Connections that share a full link have pauses too, and losses.
        if arrivals.pauses.is_some() && arrivals.loss_rounds() < MIN_RECOVERIES {
            arrivals.rtt = arrivals.known_rtt();
        }
        arrivals
    }

    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &Sample> {
        self.flows.iter().flatten().copied()
    }

    /// Each snapshot with the one before it.
    pub(crate) fn snapshot_pairs(&self) -> impl Iterator<Item = (&Sample, &Sample)> {
        self.flows
            .iter()
            .flat_map(|flow| flow.windows(2).map(|pair| (pair[0], pair[1])))
    }

    /// The window that is usually advertised, all connections together.
    pub(crate) fn usual_window(&self) -> Option<ByteCount> {
        let of_flow = |flow: &Vec<&Sample>| {
            median(
                flow.iter()
                    .filter_map(|sample| own_window(&sample.tcp))
                    .collect(),
            )
        };
        let windows: Vec<ByteCount> = self.flows.iter().filter_map(of_flow).collect();
        (!windows.is_empty()).then(|| windows.into_iter().sum())
    }

    /// Round-trip time that no pause of the sender is in.
    fn known_rtt(&self) -> Option<Span> {
        self.evidence
            .loaded_rtt
            .or(self.evidence.idle_rtt)
            .filter(|rtt| *rtt > Span::ZERO)
    }

    fn pauses_in_the_estimate(&self) -> Option<Ratio> {
        let estimate = self.estimate?;
        if estimate <= self.known_rtt()?.scale_by(INFLATED_RTT_FACTOR) + CLOCK_TICK {
            return None;
        }
        let frame = self.mss().filter(|mss| *mss <= MAX_FRAME);
        let on_the_line = frame.map_or(Span::ZERO, |mss| self.rate.time_for(mss * 2));
        let pause = estimate.scale_by(BURST_PAUSE) + CLOCK_TICK + on_the_line;
        let mut silences: BTreeMap<Span, Span> = BTreeMap::new();
        for snapshot in self.snapshots() {
            let silence = snapshot.tcp.since_data_received?;
            silences
                .entry(snapshot.at)
                .and_modify(|least| *least = silence.min(*least))
                .or_insert(silence);
        }
        share_of_votes(silences.values().map(|silence| Some(*silence > pause)))
            .filter(|silent| silent.get() >= MIN_BURST_PAUSES_SHARE)
    }

    /// Returns true if the round trip under load shows a standing queue.
    pub(crate) fn is_inflated(&self) -> bool {
        self.is_longer_than_idle_by(INFLATED_RTT_FACTOR)
    }

    /// Returns true if the round trip under load shows a queue that comes and goes, or a short one.
    pub(crate) fn is_a_little_inflated(&self) -> bool {
        self.is_longer_than_idle_by(SLIGHTLY_INFLATED_RTT_FACTOR)
    }

    /// Returns true if the round trip under load is `factor` times the idle one, by the lower of
    /// two figures: echo requests, which also saw the ramp, and the kernel's own estimate, which
    /// counts in milliseconds.
    fn is_longer_than_idle_by(&self, factor: f64) -> bool {
        let on_the_line = self
            .mss()
            .map_or(Span::ZERO, |mss| self.rate.time_for(mss * 2));
        let (echoes, estimate) = (self.evidence.loaded_rtt.or(self.rtt), self.rtt);
        let least = echoes
            .zip(estimate)
            .map(|(echoes, estimate)| echoes.min(estimate));
        let idle = self.evidence.idle_rtt;
        least
            .zip(idle)
            .is_some_and(|(loaded, idle)| loaded > idle.scale_by(factor) + on_the_line + CLOCK_TICK)
    }

    /// Returns true if the data arrives at one rate throughout, as behind a bottleneck that never
    /// runs empty.
    pub(crate) fn is_flat(&self) -> bool {
        self.flows
            .iter()
            .all(|flow| path::is_flat(flow, |sample| sample.tcp.bytes_received, self.mss()))
    }

    /// Returns true if the connections are silent for much of each round trip, though never for
    /// longer; `None` if the samples do not show it.
    pub(crate) fn comes_in_bursts(&self) -> Option<bool> {
        let pause = self.rtt?.scale_by(BURST_PAUSE) + CLOCK_TICK;
        let silent = share_of_votes(
            self.snapshots()
                .map(|now| Some(now.tcp.since_data_received? > pause)),
        )?;
        Some(silent.get() >= MIN_BURST_PAUSES_SHARE)
    }

    /// Payload of a full segment.
    pub(crate) fn mss(&self) -> Option<ByteCount> {
        self.snapshots()
            .filter_map(|snapshot| snapshot.tcp.rcv_mss)
            .max()
            .filter(|mss| *mss > ByteCount::ZERO)
    }

    /// Congestion control that the sender was asked for, if it is BBR.
    pub(crate) fn is_bbr(&self) -> bool {
        self.evidence
            .request
            .congestion
            .as_deref()
            .is_some_and(|name| name.starts_with("bbr"))
    }

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

    /// Returns true if the sender goes on at about its rate after the few losses that there are.
    pub(crate) fn keeps_its_rate(&self) -> bool {
        let Some(ramp) = self.evidence.steady.map(|steady| steady.ramp) else {
            return false;
        };
        let kept = self
            .most_lost()
            .and_then(|episodes| episodes.retained_rate(ramp));
        let is_reno = self.evidence.request.congestion.as_deref() == Some("reno");
        kept.is_some_and(|kept| kept >= if is_reno { KEPT_BY_RENO } else { KEPT_BY_CUBIC })
    }

    /// Returns true if this program asked for the load: its far end always has data to send.
    pub(crate) fn is_own_load(&self) -> bool {
        !self.evidence.is_of_another_program() && self.evidence.request.rate.is_none()
    }

    fn most_lost(&self) -> Option<LossEpisodes> {
        self.whole
            .iter()
            .map(|flow| self.loss_episodes(flow))
            .max_by_key(LossEpisodes::loss_rounds)
    }

    /// Returns true if the path carried clearly faster data, until a repair that only a policer
    /// makes so long.
    pub(crate) fn shows_a_policer_in_a_long_repair(&self) -> bool {
        let Some((lost, mss)) = self.most_lost().zip(self.mss()) else {
            return false;
        };
        let highest = (mss * lost.max_arrival_rate()).as_f64() * 8.0;
        self.whole.len() == 1
            && lost.has_a_long_repair()
            && highest >= self.rate.as_f64() * NO_BURST_BEFORE_QUEUE
    }

    /// Returns true if data arrives about as fast as it did when BBR lost packets, at its start,
    /// and nothing is lost since: the bottleneck's queue overflowed then. A policer would have let
    /// a faster burst pass.
    pub(crate) fn bbr_has_what_it_ever_had(&self) -> bool {
        let lost_at_first = self.most_rounds(&self.flows) == 0 && self.loss_rounds() > 0;
        let now = || {
            Some(
                self.rate.as_f64()
                    / ((self.mss()? * self.most_lost()?.max_arrival_rate()).as_f64() * 8.0),
            )
        };
        let is_single = self.whole.len() == 1;
        self.is_bbr()
            && is_single
            && lost_at_first
            && now().is_some_and(|now| now * NO_BURST_BEFORE_QUEUE >= 1.0)
    }

    /// Returns true if the data never arrived as fast as a path of the stated bandwidth carries it.
    /// A queue that is short, but serves no other flow, passes it so before each loss.
    pub(crate) fn never_had_the_link(&self) -> bool {
        let highest = || Some((self.mss()? * self.most_lost()?.max_arrival_rate()).as_f64() * 8.0);
        let stated = self.stated_capacity().filter(|_| self.whole.len() == 1);
        stated
            .zip(highest())
            .is_some_and(|(stated, highest)| highest < stated.as_f64() * WHOLE_LINK_SHARE)
    }

    /// Returns true if data arrived so many times as fast before a loss, for about a round trip.
    pub(crate) fn was_faster(&self, factor: f64) -> bool {
        let highest = || Some((self.mss()? * self.most_lost()?.max_arrival_rate()).as_f64() * 8.0);
        self.whole.len() == 1
            && highest().is_some_and(|highest| highest >= self.rate.as_f64() * factor)
    }

    /// Returns true if more and more data arrives: clearly more in the last third of the judged
    /// part than in the first, and as much as in between in the second.
    pub(crate) fn grows(&self) -> bool {
        let progress = TransferProgress::of_receiver(&self.evidence.receiver_samples, Span::MAX);
        let times = || self.snapshots().map(|snapshot| snapshot.at);
        let (Some(begin), Some(end)) = (times().min(), times().max()) else {
            return false;
        };
        let third = end.saturating_sub(begin) / 3;
        let [first, second, last] = [0, 1, 2].map(|index| {
            let from = begin + third * index;
            progress.mean_rate(from, from + third)
        });
        first > BitRate::ZERO
            && last >= first.scale_by(REGROWN_WINDOW_FACTOR)
            && second >= first
            && second <= last
    }

    /// Cause of the losses, where they show it, from the connection that had most of them.
    pub(crate) fn cause_of_losses(&self) -> Option<LossVerdict> {
        self.most_lost()?.loss_cause(self.evidence.steady?.ramp)
    }

    pub(crate) fn share_out_of_order(&self) -> Option<f64> {
        let flows = self.with_losses();
        let (late, all) = (
            counter_growth(flows, |tcp| tcp.out_of_order_in)?,
            counter_growth(flows, |tcp| tcp.data_segs_in)?,
        );
        Some(late as f64 / (all as f64).max(1.0))
    }

    /// Returns true if a loss-based congestion control makes about this rate of so many losses, or
    /// if much arrives out of order, as many segments are then lost at once. `None` if the samples
    /// do not show it.
    pub(crate) fn loss_explains_the_rate(&self) -> Option<bool> {
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
        let much = self.share_out_of_order()? >= MUCH_OUT_OF_ORDER;
        Some(much || expected <= self.rate.scale_by(EXPLAINED_BY_LOSS_FACTOR))
    }

    /// Returns the payload that the stated bandwidth can carry.
    pub(crate) fn stated_capacity(&self) -> Option<BitRate> {
        let mss = self.mss()?;
        let timestamps = self
            .snapshots()
            .find_map(|snapshot| snapshot.tcp.timestamps)
            .unwrap_or(true);
        path::stated_payload(self.evidence, mss, timestamps)
    }
}

/// Returns the growth of a counter, all connections together.
pub(crate) fn counter_growth(
    flows: &[Vec<&Sample>],
    counter: fn(&TcpInfo) -> Option<SegCount>,
) -> Option<u64> {
    let of_flow = |flow: &Vec<&Sample>| {
        Some(
            counter(&flow.last()?.tcp)?
                .saturating_sub(counter(&flow.first()?.tcp)?)
                .get(),
        )
    };
    flows.iter().filter_map(of_flow).reduce(u64::saturating_add)
}

/// The steady rate, or what arrived from the first snapshot to the last.
fn arrival_rate(evidence: &Evidence, flows: &[Vec<&Sample>]) -> BitRate {
    if let Some(steady) = evidence.steady {
        return steady.rate;
    }
    let arrived = |sample: &Sample| sample.tcp.bytes_received.unwrap_or(sample.bytes);
    let of_flow = |flow: &Vec<&Sample>| {
        let (first, last) = (flow.first()?, flow.last()?);
        Some(BitRate::from_bytes_in(
            arrived(last).saturating_sub(arrived(first)),
            last.at.saturating_sub(first.at),
        ))
    };
    flows.iter().filter_map(of_flow).sum()
}
