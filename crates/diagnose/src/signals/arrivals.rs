//! Figures of the receiving end's samples.

use std::collections::BTreeMap;

use fullpipe_record::samples_by_stream;

use crate::prelude::*;
use crate::signals::snapshot::{own_window, received_bytes};
use crate::signals::{ArrivalCourse, path, share_of_votes};
use crate::thresholds::{CLOCK_TICK, INFLATED_RTT_FACTOR, MIN_RECOVERIES};

/// The figures of the receiving end's samples, over the part that is judged.
pub(crate) struct ReceiverView<'a> {
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

/// Multiple of the idle round-trip time above which a queue comes and goes on the path, where the
/// rate is flat as well (measured: 1.08 and more at full links, 1.00 to 1.02 where loss or a window
/// limits).
const SLIGHTLY_INFLATED_RTT_FACTOR: f64 = 1.04;
/// Share of a round trip without data that is a pause between bursts.
const BURST_PAUSE: f64 = 0.15;
/// Share of the snapshots in such a pause from which data comes in bursts.
const MIN_BURST_PAUSES_SHARE: f64 = 0.1;
/// Largest frame of a device that takes time for it; a larger segment is of a virtual one.
const MAX_FRAME: ByteCount = ByteCount::new(9000);
/// Share of the usual data between two samples below which BBR looks at the round trip of the idle
/// path (`BBR_PROBE_RTT`: four segments in flight).
const SHARE_WHILE_PROBING: f64 = 0.25;

impl<'a> ReceiverView<'a> {
    pub(crate) fn from_evidence(evidence: &'a Evidence) -> Self {
        let (first, last) = evidence.steady.map_or((Span::ZERO, Span::MAX), |steady| {
            (
                steady.ramp.saturating_sub(Span::from_nanos(1)),
                steady.ramp + steady.duration,
            )
        });
        let mut whole: Vec<Vec<&Sample>> = samples_by_stream(&evidence.receiver_samples)
            .into_values()
            .collect();
        for flow in &mut whole {
            flow.sort_by_key(|sample| sample.at);
        }
        let mut flows = whole.clone();
        for flow in &mut flows {
            flow.retain(|sample| (first..=last).contains(&sample.at));
        }
        flows.retain(|flow| !flow.is_empty());
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

    /// Returns the times of the first and of the last judged sample.
    pub(crate) fn judged_period(&self) -> Option<(Span, Span)> {
        let first = self.snapshots().map(|snapshot| snapshot.at).min()?;
        let last = self.snapshots().map(|snapshot| snapshot.at).max()?;
        Some((first, last))
    }

    /// Each snapshot with the one before it.
    pub(crate) fn snapshot_pairs(&self) -> impl Iterator<Item = (&Sample, &Sample)> {
        self.flows
            .iter()
            .flat_map(|flow| flow.windows(2).map(|pair| (pair[0], pair[1])))
    }

    /// The window that is usually advertised, all connections together.
    pub(crate) fn usual_window(&self) -> Option<ByteCount> {
        let windows = self.flows.iter().filter_map(|flow| {
            let windows = flow.iter().filter_map(|sample| own_window(&sample.tcp));
            median(windows.collect())
        });
        let windows: Vec<ByteCount> = windows.collect();
        (!windows.is_empty()).then(|| windows.into_iter().sum())
    }

    /// Round-trip time that no pause of the sender is in.
    pub(crate) fn known_rtt(&self) -> Option<Span> {
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
        let of_path = self.rate.max(self.stated_capacity().unwrap_or_default());
        self.is_longer_than_idle_by(INFLATED_RTT_FACTOR, of_path)
    }

    /// Returns true if the round trip under load shows a queue that comes and goes, or a short one.
    pub(crate) fn is_a_little_inflated(&self) -> bool {
        self.is_longer_than_idle_by(SLIGHTLY_INFLATED_RTT_FACTOR, self.rate)
    }

    /// Returns true if the round trip under load is `factor` times the idle one, by the lower of
    /// two figures: echo requests, which also saw the ramp, and the kernel's own estimate, which
    /// counts in milliseconds. Two full segments take their time at a rate of `line`.
    fn is_longer_than_idle_by(&self, factor: f64, line: BitRate) -> bool {
        let on_the_line = self.mss().map_or(Span::ZERO, |mss| line.time_for(mss * 2));
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

    /// Returns true if this program asked for the load: its far end always has data to send.
    pub(crate) fn is_own_load(&self) -> bool {
        !self.evidence.is_of_another_program() && self.evidence.request.rate.is_none()
    }

    /// Returns the course of the connection that brought most; under BBR without the few times in
    /// which that lets next to nothing be in flight, to see the round trip of the idle path.
    pub(crate) fn busiest_course(&self) -> Option<ArrivalCourse> {
        let flows = self.flows.iter();
        let busiest = flows.max_by_key(|flow| flow.last()?.tcp.bytes_received)?;
        let most = self
            .is_bbr()
            .then(|| busiest.chunk_by(|before, now| self.goes_on(before, now)))
            .and_then(|parts| parts.max_by_key(|part| part.len()))
            .filter(|part| part.len() * 2 > busiest.len());
        ArrivalCourse::from_samples(most.unwrap_or(busiest))
    }

    /// Returns true if from one sample to the next a good part came of what usually does.
    fn goes_on(&self, before: &Sample, now: &Sample) -> bool {
        let came = received_bytes(now).saturating_sub(received_bytes(before));
        let usual = self.rate.bytes_in(now.at.saturating_sub(before.at));
        came >= usual.scale_by(SHARE_WHILE_PROBING / self.flows.len() as f64)
    }

    /// Returns the payload that the stated bandwidth can carry.
    pub(crate) fn stated_capacity(&self) -> Option<BitRate> {
        path::stated_payload(self.evidence, self.mss()?, self.has_timestamps())
    }

    /// Returns true if segments carry timestamps, as they do where nothing says otherwise.
    pub(crate) fn has_timestamps(&self) -> bool {
        let mut stated = self
            .snapshots()
            .filter_map(|snapshot| snapshot.tcp.timestamps);
        stated.next().unwrap_or(true)
    }

    /// Returns the MTU of the path, as the kernel knows it.
    pub(crate) fn path_mtu(&self) -> Option<ByteCount> {
        self.snapshots()
            .filter_map(|snapshot| snapshot.tcp.path_mtu)
            .max()
    }
}

/// Returns the growth of a counter, all connections together.
pub(crate) fn counter_growth(
    flows: &[Vec<&Sample>],
    counter: fn(&TcpInfo) -> Option<SegCount>,
) -> Option<u64> {
    flows
        .iter()
        .filter_map(|flow| growth_in_flow(flow, |tcp| counter(tcp).map(SegCount::get)))
        .reduce(u64::saturating_add)
}

/// Returns the growth of a counter of one connection from its first sample to the last.
pub(crate) fn growth_in_flow(
    flow: &[&Sample],
    counter: impl Fn(&TcpInfo) -> Option<u64>,
) -> Option<u64> {
    Some(counter(&flow.last()?.tcp)?.saturating_sub(counter(&flow.first()?.tcp)?))
}

/// The steady rate, or what arrived from the first snapshot to the last.
fn arrival_rate(evidence: &Evidence, flows: &[Vec<&Sample>]) -> BitRate {
    if let Some(steady) = evidence.steady {
        return steady.rate;
    }
    let rates = flows.iter().filter_map(|flow| {
        let (first, last) = (flow.first()?, flow.last()?);
        Some(BitRate::from_bytes_in(
            received_bytes(last).saturating_sub(received_bytes(first)),
            last.at.saturating_sub(first.at),
        ))
    });
    rates.sum()
}

impl ReceiverView<'_> {
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
