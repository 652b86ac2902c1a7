//! The record of a transfer that is over.

use fullpipe_link::DirectionCounters;
use fullpipe_model::host;
use fullpipe_record::{
    Buffer, Direction, EndReport, Handshake, HostIdentity, HostSettings, Interval, LoadTime,
    MAX_STREAM_INTERVALS, Measurement, Peer, Request, ResolvedRequest, RttMethod, RttReport,
    RunTotals, Sample, SocketReadback, StreamInterval, StreamSummary, Summary, Transport, Validity,
    find_steady,
};
use fullpipe_units::{BitRate, ByteCount, Span, Time};

use crate::connection::overwrites_options;
use crate::datagrams::{DatagramStream, StreamCounts};
use crate::engine::TransferStage;
use crate::sampling::{AllStreamTotals, StreamTotal};
use crate::{CrossTrafficResult, Simulation};

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
    let request = resolved_request(&plan.request, connection.fixed);
    let is_udp = request.transport == Transport::Udp;
    let (streams, intervals) = if is_udp {
        (
            datagram_summaries(&simulation, times),
            datagram_intervals(&simulation, times.stopped),
        )
    } else {
        (
            stream_summaries(&simulation, times),
            count_intervals(&request, &simulation, &samples, times.stopped),
        )
    };
    let rtt = round_trips(&simulation, &samples[0], times);
    let summary = transfer_summary(&samples[0], &streams, connection.handshake, times);
    let rate = summary.steady.map_or(summary.rate, |steady| steady.rate);
    let [sent, received] = samples;
    let sender = end_report(
        &plan.sender,
        socket_readbacks(&simulation, &sent, [true, false]),
        sent,
    );
    let arrived = streams
        .iter()
        .filter_map(|stream| stream.datagrams)
        .collect();
    let receiver = end_report(
        &plan.receiver,
        socket_readbacks(&simulation, &received, [false, true]),
        received,
    );
    let receiver = EndReport {
        datagrams: arrived,
        ..receiver
    };
    let is_download = request.direction == Direction::Download;
    let (local, remote) = if is_download {
        (receiver, sender)
    } else {
        (sender, receiver)
    };
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
        broken_off,
        warnings: rate_warnings(rate, plan.request.streams),
        validity,
    };
    measurement.to_bounded()
}

fn rate_warnings(rate: BitRate, streams: u16) -> Vec<String> {
    let simulated =
        "simulated: no processor, no network card and no queue of a host took part".to_owned();
    std::iter::once(simulated)
        .chain(host::beyond_hosts(rate, streams))
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

fn resolved_request(request: &Request, fixed: Option<ByteCount>) -> Request {
    let buffer = fixed.map_or(request.buffer, Buffer::Request);
    Request {
        buffer,
        ..request.clone()
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

/// The last sample of `stream` up to `at`. A snapshot is one sample of each stream that is open, in
/// order; none is found where others were closed.
fn latest_sample(samples: &[Sample], stream: u16, at: Span) -> Option<&Sample> {
    let up_to = &samples[..samples.partition_point(|sample| sample.at <= at)];
    let snapshot = up_to
        .len()
        .saturating_sub(usize::from(up_to.last()?.stream) + 1);
    up_to
        .get(snapshot + usize::from(stream))
        .filter(|sample| sample.stream == stream)
}

/// The counts of a stream between two times.
fn counts_between(simulation: &Simulation, stream: u16, from: Span, to: Span) -> StreamTotal {
    let of_stream = |totals: &AllStreamTotals| {
        totals
            .streams
            .get(usize::from(stream))
            .copied()
            .unwrap_or_default()
    };
    count_growth(simulation, of_stream, [from, to])
}

/// The growth of counts between two times.
fn count_growth(
    simulation: &Simulation,
    of: impl Fn(&AllStreamTotals) -> StreamTotal,
    [from, to]: [Span; 2],
) -> StreamTotal {
    let totals = &simulation.sampler.totals;
    let up_to = |at: Span| {
        let last = totals
            .partition_point(|totals| totals.at <= at)
            .checked_sub(1)
            .filter(|_| at > Span::ZERO);
        last.map_or_else(StreamTotal::default, |last| of(&totals[last]))
    };
    let (before, now) = (up_to(from), up_to(to));
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
    let of_stream = |stream| {
        let StreamTotal { written, again, .. } = counts_between(simulation, stream, omit, stopped);
        StreamSummary {
            stream,
            direction: simulation.plan.request.direction,
            sent: written,
            received: counts_between(simulation, stream, omit, over).read,
            retransmits: Some(again),
            datagrams_sent: None,
            datagrams: None,
        }
    };
    (0..simulation.plan.request.streams)
        .map(of_stream)
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
    let (flows, datagrams) = (
        simulation.own_flows().iter(),
        simulation.own_datagrams().iter(),
    );
    let [mut written, mut read] = [ByteCount::ZERO; 2];
    for flow in flows {
        written += flow.sender.written_bytes();
        read += flow.receiver.bytes_read();
    }
    for stream in datagrams {
        written += stream.payload_bytes(stream.stream_counts().sent);
        read += stream.payload_bytes(stream.stream_counts().arrived);
    }
    let is_download = simulation.plan.request.direction == Direction::Download;
    let wall = simulation.connection.handshake + over;
    if is_download {
        RunTotals {
            wall,
            written: ByteCount::ZERO,
            read,
            carried: None,
        }
    } else {
        RunTotals {
            wall,
            written,
            read: ByteCount::ZERO,
            carried: None,
        }
    }
}

/// The counts of a stream of datagrams between two times.
fn datagrams_between(simulation: &Simulation, stream: u16, from: Span, to: Span) -> StreamCounts {
    let marks = &simulation.sampler.marks;
    let up_to = |at: Span| {
        let mark = marks
            .partition_point(|mark| mark.at <= at)
            .checked_sub(1)
            .filter(|_| at > Span::ZERO);
        mark.and_then(|mark| marks.get(mark)?.streams.get(usize::from(stream)))
            .copied()
            .unwrap_or_default()
    };
    let (before, now) = (up_to(from), up_to(to));
    StreamCounts {
        sent: now.sent.saturating_sub(before.sent),
        arrived: now.arrived.saturating_sub(before.arrived),
        datagrams: now.datagrams.counts_since(&before.datagrams),
    }
}

fn datagram_summaries(simulation: &Simulation, times: CountTimes) -> Vec<StreamSummary> {
    let of_stream = |(own, stream): (&DatagramStream, u16)| {
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
    };
    simulation
        .own_datagrams()
        .iter()
        .zip(0..)
        .map(of_stream)
        .collect()
}

fn datagram_intervals(simulation: &Simulation, over: Span) -> Vec<Interval> {
    let times = interval_times(&simulation.plan.request, over);
    times
        .map(|[from, to]| datagram_interval(simulation, from, to))
        .collect()
}

fn datagram_interval(simulation: &Simulation, from: Span, to: Span) -> Interval {
    let request = &simulation.plan.request;
    let sends = request.direction != Direction::Download;
    let of_stream = |(own, stream): (&DatagramStream, u16)| {
        let counts = datagrams_between(simulation, stream, from, to);
        StreamInterval {
            stream,
            bytes: own.payload_bytes(if sends { counts.sent } else { counts.arrived }),
            datagrams_sent: sends.then_some(counts.sent),
            datagrams: (!sends).then_some(counts.datagrams),
            retransmits: None,
            tcp: None,
        }
    };
    let streams: Vec<StreamInterval> = simulation
        .own_datagrams()
        .iter()
        .zip(0..)
        .map(of_stream)
        .collect();
    let bytes = streams.iter().map(|stream| stream.bytes).sum();
    Interval {
        direction: request.direction,
        from,
        to,
        bytes,
        rate: BitRate::from_bytes_in(bytes, to.saturating_sub(from)),
        retransmits: None,
        rtt: None,
        echo_rtt: None,
        cwnd: None,
        omitted: to <= request.omit,
        datagrams_sent: streams.iter().map(|stream| stream.datagrams_sent).sum(),
        datagrams: streams.iter().map(|stream| stream.datagrams).sum(),
        streams,
    }
}

/// The begin and the end of each interval.
fn interval_times(request: &Request, over: Span) -> impl Iterator<Item = [Span; 2]> + use<> {
    let length = if request.interval == Span::ZERO {
        over
    } else {
        request.interval
    };
    let count = over.as_nanos().checked_div(length.as_nanos()).unwrap_or(0);
    (0..count).map(move |index| [length * index, length * (index + 1)])
}

/// The intervals as the end that ran the test counts them: bytes written if it sends, read if it
/// receives.
fn count_intervals(
    request: &Request,
    simulation: &Simulation,
    samples: &[Vec<Sample>; 2],
    over: Span,
) -> Vec<Interval> {
    let times = interval_times(request, over);
    let ours = if request.direction == Direction::Download {
        &samples[1]
    } else {
        &samples[0]
    };
    let count = times
        .size_hint()
        .0
        .saturating_mul(usize::from(request.streams));
    times
        .map(|times| {
            count_interval(
                request,
                simulation,
                (ours, count <= MAX_STREAM_INTERVALS),
                times,
            )
        })
        .collect()
}

fn count_interval(
    request: &Request,
    simulation: &Simulation,
    (samples, keeps_tcp): (&[Sample], bool),
    [from, to]: [Span; 2],
) -> Interval {
    let sends = request.direction != Direction::Download;
    let tcp_of = |stream| latest_sample(samples, stream, to).map(|sample| &sample.tcp);
    let kept = if simulation.sampler.keeps_streams {
        0..request.streams
    } else {
        0..0
    };
    let streams: Vec<StreamInterval> = kept
        .map(|stream| {
            let StreamTotal {
                written,
                read,
                again,
            } = counts_between(simulation, stream, from, to);
            let bytes = if sends { written } else { read };
            let tcp = tcp_of(stream)
                .filter(|_| keeps_tcp)
                .map(|tcp| Box::new(tcp.clone()));
            let retransmits = sends.then_some(again);
            StreamInterval {
                stream,
                bytes,
                datagrams_sent: None,
                datagrams: None,
                retransmits,
                tcp,
            }
        })
        .collect();
    let StreamTotal {
        written,
        read,
        again,
    } = count_growth(simulation, |totals| totals.all, [from, to]);
    let bytes = if sends { written } else { read };
    Interval {
        direction: request.direction,
        from,
        to,
        bytes,
        rate: BitRate::from_bytes_in(bytes, to.saturating_sub(from)),
        retransmits: sends.then_some(again),
        rtt: tcp_of(0).and_then(|tcp| tcp.rtt),
        echo_rtt: None,
        cwnd: sends.then(|| {
            (0..request.streams)
                .filter_map(|stream| tcp_of(stream)?.congestion_window())
                .sum()
        }),
        omitted: to <= request.omit,
        datagrams_sent: None,
        datagrams: None,
        streams,
    }
}
