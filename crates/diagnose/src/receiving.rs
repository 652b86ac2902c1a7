//! The verdict from the receiving end alone: its own window and buffer, its reader, and the course of the arrivals.

use std::collections::BTreeMap;

use fullpipe_model::kernel;
use fullpipe_model::window;
use fullpipe_record::{
    Basis, Buffer, CapacityVerdict, Evidence, LegalVerdict, Limit, LossVerdict, ReceiveWindowVerdict,
    ReceiverApplicationVerdict, Sample, SenderApplicationVerdict, Verdict,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, median};

use crate::figures::share;
use crate::finding::Finding;
use crate::limits::{Facts, application_window, receive_window};
use crate::path;
use crate::runner_up::{once_lifted, runner_up};
use crate::snapshot::own_window;
use crate::syn_quotes;
use crate::text;
use crate::thresholds::{
    FULL_PIPE_SHARE, FULLY_TUNED_SHARE, INFLATED_RTT_FACTOR, MIN_IDLE_SHARE, MIN_LIMIT_SHARE, MIN_RECOVERIES,
    MIN_WINDOW_FILL, SEGMENT_TRAIN, SILENCE_ROUND_TRIPS, TICK_TOLERANCE, UNREAD_BUFFER_SHARE,
};

/// Returns the limit of a transfer of which the receiving end alone was seen.
pub(crate) fn judge(evidence: &Evidence) -> Verdict {
    let arrivals = Arrivals::of(evidence);
    let finding = application_window::above_tcp(evidence, arrivals.rate, arrivals.rtt, find(&arrivals));
    let mut shown = arrivals.shown();
    shown.extend((!finding.missing.is_empty()).then(|| ("missing".to_owned(), finding.missing.join(", "))));
    let ceilings = arrivals.ceilings();
    let once_lifted = once_lifted(finding.kind(), [arrivals.rtt, evidence.idle_rtt], &ceilings);
    Verdict {
        runner_up: runner_up((finding.kind(), arrivals.rate), &once_lifted, &[], Ratio::ZERO),
        kind: finding.kind(),
        cause: finding.verdict.cause(),
        at: finding.verdict.at(),
        share: Ratio::new(finding.share.get().min(1.0)),
        sentence: arrivals.sentence(&finding),
        ceilings,
        evidence: shown,
        others: Vec::new(),
        basis: Basis::Receiver,
        other_end_would_show: Some(OTHER_END.to_owned()),
    }
}

fn find(arrivals: &Arrivals) -> Finding {
    let sought = [full_as_stated, slow_reader, own_window_in_use, out_of_order, silent_sender];
    sought.into_iter().find_map(|rule| rule(arrivals)).unwrap_or_else(|| Finding::unknown(vec![OTHER_END]))
}

/// Finds a pipe that is as full as its stated bandwidth allows.
fn full_as_stated(arrivals: &Arrivals) -> Option<Finding> {
    (arrivals.rate >= arrivals.stated_capacity()?.scaled(FULL_PIPE_SHARE))
        .then(|| Finding::new(CapacityVerdict::Link, Ratio::ONE))
}

/// Finds a receive buffer that stays full of data in order: the program does not read it. Behind a hole data must wait,
/// which is not the program's doing.
fn slow_reader(arrivals: &Arrivals) -> Option<Finding> {
    let full = |before: &Sample, now: &Sample| {
        let memory = now.memory?;
        let waits_for_a_hole = now.tcp.out_of_order_in > before.tcp.out_of_order_in;
        Some(memory.rmem_alloc >= memory.rcvbuf.scaled(UNREAD_BUFFER_SHARE) && !waits_for_a_hole)
    };
    let held = share(arrivals.pairs().map(|(before, now)| full(before, now)))?;
    (held.get() >= MIN_LIMIT_SHARE).then(|| Finding::new(ReceiverApplicationVerdict::SlowReader, held))
}

/// Finds this end's window as the limit, where each round trip brings as much as it allows. A window that is larger
/// than the pipe fills a queue with the rest.
fn own_window_in_use(arrivals: &Arrivals) -> Option<Finding> {
    let (window, rtt) = (arrivals.window()?, arrivals.rtt?);
    let brought = arrivals.rate.bytes_in(rtt);
    if brought < window.scaled(MIN_WINDOW_FILL) {
        return None;
    }
    let in_the_pipe = arrivals.rate.bytes_in(arrivals.evidence.idle_rtt.unwrap_or(rtt));
    if arrivals.is_inflated() && window.saturating_sub(in_the_pipe) > SEGMENT_TRAIN {
        return Some(Finding::new(CapacityVerdict::Link, Ratio::ONE));
    }
    let held = Ratio::new(Ratio::of(brought.as_f64(), window.as_f64()).get().min(1.0));
    Some(Finding::new(arrivals.cause_of_window(window), held))
}

/// Finds data that arrives out of order again and again: packets before it were lost, or overtaken. With a queue that
/// fills as well, it is the pipe that is full.
fn out_of_order(arrivals: &Arrivals) -> Option<Finding> {
    let grew = |before: &Sample, now: &Sample| Some(now.tcp.out_of_order_in? > before.tcp.out_of_order_in?);
    let times = arrivals.pairs().filter_map(|(before, now)| grew(before, now)).filter(|grew| *grew).count();
    if (times as u64) < MIN_RECOVERIES {
        return None;
    }
    if arrivals.is_inflated() {
        return Some(Finding::new(CapacityVerdict::Link, Ratio::ONE));
    }
    let held = share(arrivals.pairs().map(|(before, now)| grew(before, now))).unwrap_or_default();
    Some(Finding::new(LossVerdict::Random, held))
}

/// Finds a sender that is silent for longer than any window would explain.
fn silent_sender(arrivals: &Arrivals) -> Option<Finding> {
    let timeout = arrivals.rtt?.scaled(SILENCE_ROUND_TRIPS) + TICK_TOLERANCE;
    let silent = share(arrivals.snapshots().map(|now| Some(now.tcp.since_data_received? > timeout)))?;
    (silent.get() > MIN_IDLE_SHARE).then(|| Finding::new(SenderApplicationVerdict::Idle, silent))
}

/// The figures of the receiving end's samples, over the part that is judged.
struct Arrivals<'a> {
    evidence: &'a Evidence,
    /// The judged samples of each connection, by time.
    flows: Vec<Vec<&'a Sample>>,
    /// Mean rate of all connections.
    rate: BitRate,
    /// Round-trip time as the receiver estimates it.
    rtt: Option<Span>,
}

impl<'a> Arrivals<'a> {
    fn of(evidence: &'a Evidence) -> Self {
        let (first, last) = evidence.steady.map_or((Span::ZERO, Span::MAX), |steady| {
            (steady.ramp.saturating_sub(Span::from_nanos(1)), steady.ramp + steady.duration)
        });
        let mut by_stream: BTreeMap<u16, Vec<&Sample>> = BTreeMap::new();
        for sample in evidence.receiver_samples.iter().filter(|sample| (first..=last).contains(&sample.at)) {
            by_stream.entry(sample.stream).or_default().push(sample);
        }
        let mut flows: Vec<Vec<&Sample>> = by_stream.into_values().collect();
        for flow in &mut flows {
            flow.sort_by_key(|sample| sample.at);
        }
        let estimates = flows.iter().flatten().filter_map(|sample| sample.tcp.rcv_rtt).filter(|rtt| *rtt > Span::ZERO);
        let rtt = median(estimates.collect()).or(evidence.loaded_rtt).or(evidence.idle_rtt);
        Self { rate: rate(evidence, &flows), rtt: rtt.filter(|rtt| *rtt > Span::ZERO), evidence, flows }
    }

    fn snapshots(&self) -> impl Iterator<Item = &Sample> {
        self.flows.iter().flatten().copied()
    }

    /// Each snapshot with the one before it.
    fn pairs(&self) -> impl Iterator<Item = (&Sample, &Sample)> {
        self.flows.iter().flat_map(|flow| flow.windows(2).map(|pair| (pair[0], pair[1])))
    }

    /// The window that is usually advertised, all connections together.
    fn window(&self) -> Option<ByteCount> {
        let of_flow = |flow: &Vec<&Sample>| median(flow.iter().filter_map(|sample| own_window(&sample.tcp)).collect());
        let windows: Vec<ByteCount> = self.flows.iter().filter_map(of_flow).collect();
        (!windows.is_empty()).then(|| windows.into_iter().sum())
    }

    fn is_inflated(&self) -> bool {
        self.rtt
            .zip(self.evidence.idle_rtt)
            .is_some_and(|(rtt, idle)| rtt > idle.scaled(INFLATED_RTT_FACTOR) + TICK_TOLERANCE)
    }

    /// Returns the payload that the stated bandwidth can carry.
    fn stated_capacity(&self) -> Option<BitRate> {
        let mss =
            self.snapshots().filter_map(|snapshot| snapshot.tcp.rcv_mss).max().filter(|mss| *mss > ByteCount::ZERO)?;
        let timestamps = self.snapshots().find_map(|snapshot| snapshot.tcp.timestamps).unwrap_or(true);
        path::stated_payload(self.evidence, mss, timestamps)
    }

    fn cause_of_window(&self, window: ByteCount) -> ReceiveWindowVerdict {
        let unscaled = self.snapshots().any(|snapshot| snapshot.tcp.window_scaling == Some(false));
        if unscaled && window <= kernel::largest_window(None) * self.flows.len() as u64 {
            let stripped = syn_quotes::lose_their_scale(self.evidence);
            return if stripped {
                ReceiveWindowVerdict::WindowScaleStripped
            } else {
                ReceiveWindowVerdict::NoWindowScaling
            };
        }
        if self.evidence.request.buffer != Buffer::Automatic {
            return ReceiveWindowVerdict::SoRcvbuf;
        }
        let Some(settings) = &self.evidence.receiver else { return ReceiveWindowVerdict::TcpRmemMax };
        let largest = self.snapshots().filter_map(|snapshot| snapshot.memory).map(|memory| memory.rcvbuf).max();
        let to_the_end = largest.is_none_or(|size| size >= settings.tcp_rmem.max.scaled(FULLY_TUNED_SHARE));
        if to_the_end || !settings.moderate_rcvbuf {
            ReceiveWindowVerdict::TcpRmemMax
        } else {
            ReceiveWindowVerdict::SoRcvbuf
        }
    }

    fn ceilings(&self) -> BTreeMap<Limit, BitRate> {
        let of_window = self.window().zip(self.rtt).map(|(size, rtt)| window::rate(size, rtt));
        let all = [
            (Limit::ReceiveWindow, of_window),
            (Limit::ApplicationWindow, application_window::ceiling(self.evidence, self.rtt)),
            (Limit::Capacity, self.stated_capacity()),
        ];
        all.into_iter().filter_map(|(kind, rate)| Some((kind, rate?))).collect()
    }

    fn sentence(&self, finding: &Finding) -> String {
        let (rate, rtt) = (self.rate, self.rtt.unwrap_or_default());
        let window = self.window().unwrap_or_default();
        match finding.verdict {
            LegalVerdict::ReceiverApplication(_) => format!(
                "The program here reads too slowly: data waits in its receive buffer for {} of the time, and only \
                 {rate} arrives.",
                finding.share
            ),
            LegalVerdict::ReceiveWindow(verdict) => {
                let reason = receive_window::reason(verdict, &syn_quotes::place(self.evidence));
                format!(
                    "This end, which receives, allows at most {window} in flight ({reason}), and each round trip of \
                     {rtt} brings as much: {rate}."
                )
            }
            LegalVerdict::ApplicationWindow(verdict) => {
                application_window::Channel::seen(verdict, self.evidence, rate, self.rtt).sentence()
            }
            LegalVerdict::Capacity(_) => {
                format!("The pipe is full: {rate} of data arrives, and more would only lengthen the queue.")
            }
            LegalVerdict::Loss(_) => format!(
                "Data arrives out of order again and again: packets are lost or overtake each other on the path, and \
                 {rate} arrives. Only the sender knows how many were lost."
            ),
            LegalVerdict::SenderApplication(_) => format!(
                "The sender is silent for {} of the time, longer than any window explains: its program has nothing to \
                 send.",
                finding.share
            ),
            // The receiving end alone shows no limit of these kinds.
            LegalVerdict::Unknown(_)
            | LegalVerdict::SendBuffer(_)
            | LegalVerdict::CongestionWindow(_)
            | LegalVerdict::Pacing(_)
            | LegalVerdict::Cpu(_)
            | LegalVerdict::Mtu(_) => format!(
                "{rate} arrives, this end could take more, and nothing is lost: only the sender knows what holds it \
                 back."
            ),
        }
    }

    fn shown(&self) -> BTreeMap<String, String> {
        let growth = |counter: fn(&Sample) -> Option<SegCount>| {
            let of_flow = |flow: &Vec<&Sample>| Some(counter(flow.last()?)?.saturating_sub(counter(flow.first()?)?));
            self.flows.iter().filter_map(of_flow).map(SegCount::get).reduce(u64::saturating_add)
        };
        let out_of_order = growth(|sample| sample.tcp.out_of_order_in).zip(growth(|sample| sample.tcp.data_segs_in));
        let memory = || self.snapshots().filter_map(|snapshot| snapshot.memory);
        let unread = median(memory().map(|memory| memory.rmem_alloc).collect());
        let buffer = memory().map(|memory| memory.rcvbuf).max();
        let idle = self.evidence.idle_rtt.map_or_else(String::new, |idle| format!(", idle {idle}"));
        let snapshots: usize = self.flows.iter().map(Vec::len).sum();
        [
            ("rate", Some(self.rate.to_string())),
            ("round trip", self.rtt.map(|rtt| format!("{rtt}{idle}"))),
            ("SYN as quoted by routers", syn_quotes::stated(self.evidence)),
            ("own window", self.window().map(|window| window.to_string())),
            ("a round trip brings", self.rtt.map(|rtt| self.rate.bytes_in(rtt).to_string())),
            ("receive buffer", unread.zip(buffer).map(|(unread, buffer)| format!("{unread} of {buffer}"))),
            ("out of order", out_of_order.map(|(late, all)| format!("{late} of {all} segments"))),
            ("samples", Some(text::of_streams(snapshots, self.flows.len()))),
        ]
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
        .collect()
    }
}

/// The steady rate, or what arrived from the first snapshot to the last.
fn rate(evidence: &Evidence, flows: &[Vec<&Sample>]) -> BitRate {
    if let Some(steady) = evidence.steady {
        return steady.rate;
    }
    let arrived = |sample: &Sample| sample.tcp.bytes_received.unwrap_or(sample.bytes);
    let of_flow = |flow: &Vec<&Sample>| {
        let (first, last) = (flow.first()?, flow.last()?);
        Some(BitRate::of(arrived(last).saturating_sub(arrived(first)), last.at.saturating_sub(first.at)))
    };
    flows.iter().filter_map(of_flow).sum()
}

/// Figures that only the other end has.
const OTHER_END: &str = "the sender's congestion window, its send buffer and what it sent again";
