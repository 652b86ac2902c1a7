use fullpipe_record::{Direction, Interval, MAX_STREAM_INTERVALS, Request, Sample, StreamInterval};
use fullpipe_units::{ByteCount, Span};

use super::{count_growth, counts_between, datagrams_between, latest_tcp_info};
use crate::Simulation;

pub(super) fn datagram_intervals(simulation: &Simulation, over: Span) -> Vec<Interval> {
    let times = interval_times(&simulation.plan.request, over);
    times
        .map(|[from, to]| datagram_interval(simulation, from, to))
        .collect()
}

fn datagram_interval(simulation: &Simulation, from: Span, to: Span) -> Interval {
    let request = &simulation.plan.request;
    let sends = request.direction != Direction::Download;
    let streams: Vec<StreamInterval> = simulation
        .own_datagrams()
        .iter()
        .zip(0..)
        .map(|(own, stream)| {
            let counts = datagrams_between(simulation, stream, from, to);
            StreamInterval {
                stream,
                bytes: own.payload_bytes(if sends { counts.sent } else { counts.arrived }),
                datagrams_sent: sends.then_some(counts.sent),
                datagrams: (!sends).then_some(counts.datagrams),
                retransmits: None,
                tcp: None,
            }
        })
        .collect();
    let bytes = streams.iter().map(|stream| stream.bytes).sum();
    Interval {
        datagrams_sent: streams.iter().map(|stream| stream.datagrams_sent).sum(),
        datagrams: streams.iter().map(|stream| stream.datagrams).sum(),
        streams,
        ..interval_of_bytes(request, [from, to], bytes)
    }
}

/// An interval without the figures of its transport.
fn interval_of_bytes(request: &Request, [from, to]: [Span; 2], bytes: ByteCount) -> Interval {
    Interval {
        omitted: to <= request.omit,
        ..Interval::from_bytes(request.direction, [from, to], bytes)
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
pub(super) fn count_intervals(
    simulation: &Simulation,
    samples: &[Vec<Sample>; 2],
    over: Span,
) -> Vec<Interval> {
    let request = &simulation.plan.request;
    let times = interval_times(request, over);
    let ours = &samples[usize::from(request.direction == Direction::Download)];
    let count = times
        .size_hint()
        .0
        .saturating_mul(usize::from(request.streams));
    let keeps_tcp = count <= MAX_STREAM_INTERVALS;
    times
        .map(|times| {
            let streams = stream_intervals(simulation, ours, keeps_tcp, times);
            count_interval(simulation, ours, streams, times)
        })
        .collect()
}

/// The counts of each stream in an interval, if they are there.
fn stream_intervals(
    simulation: &Simulation,
    samples: &[Sample],
    keeps_tcp: bool,
    [from, to]: [Span; 2],
) -> Vec<StreamInterval> {
    if !simulation.sampler.keeps_streams {
        return Vec::new();
    }
    let request = &simulation.plan.request;
    let sends = request.direction != Direction::Download;
    (0..request.streams)
        .map(|stream| {
            let counts = counts_between(simulation, stream, from, to);
            let tcp = latest_tcp_info(samples, stream, to).filter(|_| keeps_tcp);
            StreamInterval {
                stream,
                bytes: if sends { counts.written } else { counts.read },
                datagrams_sent: None,
                datagrams: None,
                retransmits: sends.then_some(counts.again),
                tcp: tcp.map(|tcp| Box::new(tcp.clone())),
            }
        })
        .collect()
}

fn count_interval(
    simulation: &Simulation,
    samples: &[Sample],
    streams: Vec<StreamInterval>,
    [from, to]: [Span; 2],
) -> Interval {
    let request = &simulation.plan.request;
    let sends = request.direction != Direction::Download;
    let counts = count_growth(simulation, |totals| totals.all, [from, to]);
    let bytes = if sends { counts.written } else { counts.read };
    Interval {
        retransmits: sends.then_some(counts.again),
        rtt: latest_tcp_info(samples, 0, to).and_then(|tcp| tcp.rtt),
        cwnd: sends.then(|| {
            (0..request.streams)
                .filter_map(|stream| latest_tcp_info(samples, stream, to)?.congestion_window())
                .sum()
        }),
        streams,
        ..interval_of_bytes(request, [from, to], bytes)
    }
}
