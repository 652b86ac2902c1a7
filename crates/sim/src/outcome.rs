//! The record of a transfer that is over.

mod intervals;

use fullpipe_link::DirectionCounters;
use fullpipe_model::host;
use fullpipe_record::{
    Buffer, Direction, EndReport, Handshake, HostIdentity, HostSettings, LoadTime, Measurement,
    Peer, Request, ResolvedRequest, RttMethod, RttReport, RunTotals, Sample, SocketReadback,
    StreamSummary, Summary, TcpInfo, Transport, Validity, find_steady,
};
use fullpipe_units::{BitRate, ByteCount, Span, Time};

use self::intervals::{count_intervals, datagram_intervals};
use crate::connection::overwrites_options;
use crate::cross_traffic::payload_totals;
use crate::datagrams::StreamCounts;
use crate::engine::TransferStage;
use crate::sampling::{AllStreamTotals, StreamTotal};
use crate::{CrossTrafficResult, Simulation, SimulationPlan};

/// The name of a host of which there is none.
const NAME: &str = "virtual";

/// The moments between which each end counted.
#[derive(Clone, Copy)]
struct CountTimes {
    omit: Span,
    /// When the sending programs stopped.
    stopped: Span,
    /// When the receiving end stopped to count, and the time over which it did.
    received: [Span; 2],
}

impl CountTimes {
    /// As a probe has them: the end that asked for the transfer counts by its own clock, and the
    /// other one from when it permits the transfer, half a round trip before the first end knows,
    /// until the message arrives that it is over.
    fn from_simulation(simulation: &Simulation) -> Self {
        let Simulation {
            plan,
            now,
            stage,
            origin,
            ..
        } = simulation;
        let over = now.duration_since(*origin);
        let stopped = match stage {
            TransferStage::Over { stopped } | TransferStage::Ending { stopped, .. } => {
                stopped.duration_since(*origin)
            }
            TransferStage::Flowing { .. } => over,
        };
        let omit = plan.request.omit;
        let time = if plan.request.direction == Direction::Download || plan.request.bytes.is_some()
        {
            stopped.saturating_sub(omit)
        } else {
            (over + plan.path.reverse.delay).saturating_sub(omit)
        };
        Self {
            omit,
            stopped,
            received: [over, time],
        }
    }
}

impl Simulation {
    /// Runs the transfer to its end and returns what a probe would have measured.
    pub fn run_to_measurement(self) -> Measurement {
        self.measure_with_cross_traffic().0
    }

    /// Runs the transfer to its end and returns what a probe would have measured, and the results
    /// of the other loads.
    pub fn measure_with_cross_traffic(mut self) -> (Measurement, Vec<CrossTrafficResult>) {
        self.run_until(Time::from_nanos(u64::MAX));
        let Self {
            now,
            loads,
            flows,
            datagrams,
            ..
        } = &mut self;
        let results = loads
            .iter_mut()
            .map(|load| load.count_arrivals(*now, flows, datagrams))
            .collect();
        (finish_measurement(self), results)
    }
}

fn finish_measurement(mut simulation: Simulation) -> Measurement {
    simulation.take_samples(simulation.now);
    let times = CountTimes::from_simulation(&simulation);
    let [forward, _] = simulation.path_counters();
    let mut validity = path_validity(&forward, &simulation.before.unwrap_or_default());
    validity.broken.extend(incomplete_reason(&simulation));
    let broken_off = simulation
        .is_broken()
        .then(|| "no connection was answered any more: timed out".to_owned());
    let run = run_totals(&simulation, times.received[0]);
    // Of many connections, their state and the record are large.
    drop(std::mem::take(&mut simulation.flows));
    let mut samples = std::mem::take(&mut simulation.sampler.samples);
    samples[0].retain(|sample| sample.at <= times.stopped);
    let (plan, connection) = (&simulation.plan, &simulation.connection);
    let request = resolved_request(&plan.request, connection.requests);
    let is_udp = request.transport == Transport::Udp;
    let (streams, intervals) = if is_udp {
        (
            datagram_summaries(&simulation, times),
            datagram_intervals(&simulation, times.stopped),
        )
    } else {
        (
            stream_summaries(&simulation, times),
            count_intervals(&simulation, &samples, times.stopped),
        )
    };
    let rtt = round_trips(&simulation, &samples[0], times);
    let summary = transfer_summary(&samples[0], &streams, connection.handshake, times);
    let rate = summary.steady_or_mean_rate();
    let warnings = simulation_warnings(plan, &samples[0], rate);
    let [local, remote] = end_reports(&simulation, samples, &streams);
    let measurement = Measurement {
        id: String::new(),
        started: String::new(),
        setup: Some(connection.handshake),
        peer: Peer {
            host: NAME.to_owned(),
            address: NAME.to_owned(),
            speaks_fullpipe: true,
        },
        request: plan.request.clone(),
        resolved: Some(ResolvedRequest::new(request)),
        run: Some(run),
        local,
        remote,
        streams,
        web100: None,
        intervals,
        rtt,
        route: None,
        summary,
        reverse: None,
        limit: None,
        capture: None,
        interrupted: false,
        until_sure: None,
        broken_off,
        warnings,
        validity,
    };
    measurement.to_bounded()
}

fn simulation_warnings(plan: &SimulationPlan, samples: &[Sample], rate: BitRate) -> Vec<String> {
    let simulated =
        "simulated: no processor, no network card and no queue of a host took part".to_owned();
    std::iter::once(simulated)
        .chain(host::beyond_hosts(rate, plan.request.streams))
        .chain(plan.path.reverse.effects.ineffective_clamp(samples))
        .collect()
}

/// The round-trip times of echo requests, or as the kernel has them of the connections.
fn round_trips(simulation: &Simulation, samples: &[Sample], times: CountTimes) -> RttReport {
    let handshake = Some(simulation.connection.handshake);
    let Some(echoes) = &simulation.echoes else {
        let within = samples.iter().filter(|sample| sample.at >= times.omit);
        return RttReport::of_kernel(
            handshake,
            within.filter_map(|sample| sample.tcp.rtt).collect(),
        );
    };
    let load = LoadTime {
        began: Span::ZERO,
        from: times.omit,
        to: times.stopped,
        settled: None,
    };
    RttReport::of_echoes(
        RttMethod::Icmp,
        echoes.settled_echoes(),
        load,
        handshake,
        Vec::new(),
    )
}

/// The path's own counts since the transfer began. There is no clock that could be late.
fn path_validity(forward: &DirectionCounters, before: &DirectionCounters) -> Validity {
    let drops =
        |counters: &DirectionCounters| counters.overflowed.segments + counters.aqm_dropped.segments;
    Validity {
        queue_drops: Some((drops(forward) - drops(before)).get()),
        injected_losses: Some((forward.lost.segments - before.lost.segments).get()),
        link_busy: Some(forward.busy.saturating_sub(before.busy)),
        reordered: Some((forward.reordered - before.reordered).get()),
        ..Validity::default()
    }
}

/// Returns the reason for which a transfer that was to end by its bytes is none of them.
fn incomplete_reason(simulation: &Simulation) -> Option<String> {
    let wanted = simulation
        .plan
        .request
        .bytes
        .filter(|_| simulation.plan.request.transport == Transport::Tcp)?;
    let took = simulation.now.duration_since(simulation.origin);
    let arrived = wanted.saturating_sub(simulation.missing_bytes());
    (arrived < wanted).then(|| format!("only {arrived} of {wanted} arrived in {took}"))
}

/// Returns the load with the requests for the buffers that were made.
fn resolved_request(request: &Request, [sndbuf, rcvbuf]: [Option<ByteCount>; 2]) -> Request {
    let buffer = rcvbuf
        .filter(|_| request.buffer != Buffer::Automatic && request.stated_load().rcvbuf.is_none())
        .or(sndbuf.filter(|_| request.buffer != Buffer::Automatic))
        .map_or(request.buffer, Buffer::Request);
    Request {
        buffer,
        ..request.clone()
    }
}

/// The reports of the end that ran the test, and of the other.
fn end_reports(
    simulation: &Simulation,
    [sent, received]: [Vec<Sample>; 2],
    streams: &[StreamSummary],
) -> [EndReport; 2] {
    let plan = &simulation.plan;
    let [sending, receiving] = [(&sent, [true, false]), (&received, [false, true])]
        .map(|(samples, uses)| socket_readbacks(simulation, samples, uses));
    let sender = end_report(&plan.sender, sending, sent);
    let receiver = EndReport {
        datagrams: streams
            .iter()
            .filter_map(|stream| stream.datagrams)
            .collect(),
        ..end_report(&plan.receiver, receiving, received)
    };
    if plan.request.direction == Direction::Download {
        [receiver, sender]
    } else {
        [sender, receiver]
    }
}

fn end_report(
    settings: &HostSettings,
    sockets: Vec<SocketReadback>,
    samples: Vec<Sample>,
) -> EndReport {
    EndReport {
        host: Some(HostIdentity {
            name: NAME.to_owned(),
            kernel: settings.kernel.to_string(),
            ..HostIdentity::default()
        }),
        settings: Some(settings.clone()),
        sockets,
        samples,
        ..EndReport::default()
    }
}

/// The sockets of one end when the data began to flow, from its first samples.
fn socket_readbacks(
    simulation: &Simulation,
    samples: &[Sample],
    [sends, receives]: [bool; 2],
) -> Vec<SocketReadback> {
    let connection = &simulation.connection;
    let first = samples
        .iter()
        .take(usize::from(simulation.plan.request.streams));
    first
        .map(|sample| {
            let memory = sample.memory.unwrap_or_default();
            SocketReadback {
                stream: sample.stream,
                sndbuf: if sends {
                    memory.sndbuf
                } else {
                    simulation.plan.receiver.tcp_wmem.default
                },
                rcvbuf: if receives {
                    memory.rcvbuf
                } else {
                    simulation.plan.sender.tcp_rmem.default
                },
                congestion: connection.control.kernel_name().to_owned(),
                local: String::new(),
                remote: String::new(),
                handshake: sends.then(|| Handshake {
                    window: Some(connection.first_window_that_arrives(&simulation.plan.path)),
                    options_overwritten: Some(overwrites_options(&simulation.plan)),
                }),
                syn_quotes: Vec::new(),
            }
        })
        .collect()
}

/// The state of `stream` in its last sample up to `at`. A snapshot is one sample of each stream that is open, in
/// order; none is found where others were closed.
fn latest_tcp_info(samples: &[Sample], stream: u16, at: Span) -> Option<&TcpInfo> {
    let up_to = &samples[..samples.partition_point(|sample| sample.at <= at)];
    let snapshot = up_to
        .len()
        .saturating_sub(usize::from(up_to.last()?.stream) + 1);
    up_to
        .get(snapshot + usize::from(stream))
        .filter(|sample| sample.stream == stream)
        .map(|sample| &sample.tcp)
}

/// The counts of a stream between two times.
fn counts_between(simulation: &Simulation, stream: u16, from: Span, to: Span) -> StreamTotal {
    count_growth(
        simulation,
        |totals| {
            let of_stream = totals.streams.get(usize::from(stream));
            of_stream.copied().unwrap_or_default()
        },
        [from, to],
    )
}

/// The last of the marks up to `at`, by their times; none where that is the begin.
fn latest_mark<T>(marks: &[T], time: impl Fn(&T) -> Span, at: Span) -> Option<&T> {
    let count = marks.partition_point(|mark| time(mark) <= at);
    marks[..count].last().filter(|_| at > Span::ZERO)
}

/// The growth of counts between two times.
fn count_growth(
    simulation: &Simulation,
    of: impl Fn(&AllStreamTotals) -> StreamTotal,
    [from, to]: [Span; 2],
) -> StreamTotal {
    let [before, now] = [from, to].map(|at| {
        let last = latest_mark(&simulation.sampler.totals, |totals| totals.at, at);
        last.map_or_else(StreamTotal::default, &of)
    });
    StreamTotal {
        written: now.written.saturating_sub(before.written),
        read: now.read.saturating_sub(before.read),
        again: now.again.saturating_sub(before.again),
    }
}

fn stream_summaries(simulation: &Simulation, times: CountTimes) -> Vec<StreamSummary> {
    let CountTimes {
        omit,
        stopped,
        received: [over, _],
    } = times;
    (0..simulation.plan.request.streams)
        .map(|stream| {
            let sent = counts_between(simulation, stream, omit, stopped);
            StreamSummary {
                stream,
                direction: simulation.plan.request.direction,
                sent: sent.written,
                received: counts_between(simulation, stream, omit, over).read,
                retransmits: Some(sent.again),
                datagrams_sent: None,
                datagrams: None,
            }
        })
        .collect()
}

fn transfer_summary(
    samples: &[Sample],
    streams: &[StreamSummary],
    handshake: Span,
    times: CountTimes,
) -> Summary {
    let duration = times.received[1];
    let received: ByteCount = streams.iter().map(|stream| stream.received).sum();
    Summary {
        duration,
        sent: streams.iter().map(|stream| stream.sent).sum(),
        received,
        rate: BitRate::from_bytes_in(received, duration),
        retransmits: streams.iter().map(|stream| stream.retransmits).sum(),
        steady: find_steady(samples, Some(handshake), times.stopped),
        datagrams_sent: streams.iter().map(|stream| stream.datagrams_sent).sum(),
        datagrams: streams.iter().map(|stream| stream.datagrams).sum(),
    }
}

fn run_totals(simulation: &Simulation, over: Span) -> RunTotals {
    let [mut written, mut read] =
        payload_totals(simulation.own_flows(), simulation.own_datagrams());
    if simulation.plan.request.direction == Direction::Download {
        written = ByteCount::ZERO;
    } else {
        read = ByteCount::ZERO;
    }
    RunTotals {
        wall: simulation.connection.handshake + over,
        written,
        read,
        carried: None,
    }
}

/// The counts of a stream of datagrams between two times.
fn datagrams_between(simulation: &Simulation, stream: u16, from: Span, to: Span) -> StreamCounts {
    let [before, now] = [from, to].map(|at| {
        latest_mark(&simulation.sampler.marks, |mark| mark.at, at)
            .and_then(|mark| mark.streams.get(usize::from(stream)))
            .copied()
            .unwrap_or_default()
    });
    StreamCounts {
        sent: now.sent.saturating_sub(before.sent),
        arrived: now.arrived.saturating_sub(before.arrived),
        datagrams: now.datagrams.counts_since(&before.datagrams),
    }
}

fn datagram_summaries(simulation: &Simulation, times: CountTimes) -> Vec<StreamSummary> {
    simulation
        .own_datagrams()
        .iter()
        .zip(0..)
        .map(|(own, stream)| {
            let counts = datagrams_between(simulation, stream, times.omit, times.received[0]);
            StreamSummary {
                stream,
                direction: simulation.plan.request.direction,
                sent: own.payload_bytes(counts.sent),
                received: own.payload_bytes(counts.arrived),
                retransmits: None,
                datagrams_sent: Some(counts.sent),
                datagrams: Some(counts.datagrams),
            }
        })
        .collect()
}
