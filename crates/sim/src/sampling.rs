//! Snapshots of both ends, at equal times.

use fullpipe_record::{Sample, TcpInfo};
use fullpipe_units::{ByteCount, SegCount, Span, Time};

use crate::SimulationPlan;
use crate::connection::ConnectionSetup;
use crate::datagrams::{DatagramMark, DatagramStream};
use crate::flow::SimulatedFlow;

/// Time between two snapshots at first.
const PERIOD: Span = Span::from_millis(50);
/// Samples of each end above which every second snapshot is left out. A record keeps fewer.
const MAX_SAMPLES: usize = 8_000;
/// Snapshots that are kept in any case, of however many streams.
const MIN_SNAPSHOTS: usize = 3;

/// Counts of streams at the ends of intervals above which only their sums are kept.
const MAX_ROWS: usize = 100_000;

/// The samples so far.
#[derive(Debug)]
pub(crate) struct TransferSampler {
    period: Span,
    origin: Time,
    next: Time,
    /// Of the sending end, and of the receiving one.
    pub(crate) samples: [Vec<Sample>; 2],
    /// Counts of streams, at the ends of the intervals and of the omitted time, and when the
    /// programs stop.
    pub(crate) totals: Vec<AllStreamTotals>,
    /// True if the counts of each stream are there at the end of each interval.
    pub(crate) keeps_streams: bool,
    /// The counts that are there.
    rows: usize,
    /// When they are due next.
    counts_next: Time,
    /// Counts of datagrams, likewise.
    pub(crate) marks: Vec<DatagramMark>,
    interval: Span,
    omit: Span,
}

/// The counts of all streams at a moment.
#[derive(Debug)]
pub(crate) struct AllStreamTotals {
    pub(crate) at: Span,
    /// Counts of all streams together.
    pub(crate) all: StreamTotal,
    /// Counts of each stream; none where an interval of so many streams ends.
    pub(crate) streams: Vec<StreamTotal>,
    /// True if the counts of each stream are needed.
    is_kept: bool,
}

/// The counts of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamTotal {
    pub(crate) written: ByteCount,
    pub(crate) read: ByteCount,
    /// Retransmitted segments.
    pub(crate) again: SegCount,
}

impl StreamTotal {
    fn of_flow(flow: &SimulatedFlow) -> Self {
        Self {
            written: flow.sender.written_bytes(),
            read: flow.receiver.bytes_read(),
            again: flow.sender.retransmitted_segments(),
        }
    }

    fn plus_total(self, other: &Self) -> Self {
        Self {
            written: self.written + other.written,
            read: self.read + other.read,
            again: self.again + other.again,
        }
    }
}

impl TransferSampler {
    pub(crate) fn new(plan: &SimulationPlan) -> Self {
        let origin = Time::ZERO + plan.lead;
        Self {
            period: PERIOD,
            origin,
            next: origin,
            samples: [Vec::new(), Vec::new()],
            totals: Vec::new(),
            keeps_streams: true,
            rows: 0,
            counts_next: origin,
            marks: Vec::new(),
            interval: plan.request.interval,
            omit: plan.request.omit,
        }
    }

    /// Returns when the next snapshot or count is due.
    pub(crate) fn due_time(&self) -> Time {
        self.next.min(self.counts_next)
    }

    /// Takes what is due at `at`; everything where the transfer `is_over`.
    pub(crate) fn take_due(
        &mut self,
        at: Time,
        is_over: bool,
        flows: &[SimulatedFlow],
        (connection, plan): (&ConnectionSetup, &SimulationPlan),
    ) {
        if is_over || at >= self.counts_next {
            self.count_flows(at, is_over, flows);
        }
        if is_over || at >= self.next {
            self.take_snapshot(at, flows, connection, plan);
        }
    }

    /// Takes the counts of `flows` at `at`. Those of each stream are needed if the programs stop
    /// then, or all is over.
    pub(crate) fn count_flows(&mut self, at: Time, is_end: bool, flows: &[SimulatedFlow]) {
        let passed = at.duration_since(self.origin);
        let is_kept = is_end || passed == self.omit;
        let mut streams: Vec<StreamTotal> = flows.iter().map(StreamTotal::of_flow).collect();
        let all = streams
            .iter()
            .fold(StreamTotal::default(), StreamTotal::plus_total);
        if !is_kept && !self.keeps_streams {
            streams = Vec::new();
        }
        self.rows += streams.len();
        self.totals.push(AllStreamTotals {
            at: passed,
            all,
            streams,
            is_kept,
        });
        if self.keeps_streams && self.rows > MAX_ROWS {
            self.keeps_streams = false;
            self.totals
                .iter_mut()
                .filter(|totals| !totals.is_kept)
                .for_each(|totals| totals.streams = Vec::new());
        }
        self.counts_next = self.next_count(passed);
    }

    fn take_snapshot(
        &mut self,
        at: Time,
        flows: &[SimulatedFlow],
        connection: &ConnectionSetup,
        plan: &SimulationPlan,
    ) {
        let samples = self.samples[0].len() + flows.len();
        let has_room = samples <= MAX_SAMPLES.max(MIN_SNAPSHOTS * flows.len());
        let is_kept = has_room || is_even(at.duration_since(self.origin), self.period);
        if !has_room {
            self.thin_out();
        }
        for (flow, stream) in flows
            .iter()
            .zip(0..)
            .filter(|(flow, _)| is_kept && !flow.is_gone(at))
        {
            let [sender, receiver] = sample_ends((at, self.origin), stream, flow, connection, plan);
            self.samples[0].push(sender);
            self.samples[1].push(receiver);
        }
        self.next = at + self.period;
    }

    /// Takes the counts of `streams` at `at`.
    pub(crate) fn count_datagrams(&mut self, at: Time, streams: &[DatagramStream]) {
        let passed = at.duration_since(self.origin);
        self.marks.push(DatagramMark {
            at: passed,
            streams: streams.iter().map(DatagramStream::stream_counts).collect(),
        });
        self.counts_next = self.next_count(passed);
        self.next = self.counts_next;
    }

    /// Returns the end of an interval, or of the omitted time, that comes first after so much has
    /// `passed`.
    fn next_count(&self, passed: Span) -> Time {
        let boundary = passed
            .as_nanos()
            .checked_div(self.interval.as_nanos())
            .map(|count| self.interval * (count + 1));
        let next = boundary
            .into_iter()
            .chain(Some(self.omit).filter(|omit| *omit > passed))
            .min();
        next.map_or(Time::from_nanos(u64::MAX), |next| self.origin + next)
    }

    /// Leaves every second snapshot.
    fn thin_out(&mut self) {
        for samples in &mut self.samples {
            samples.retain(|sample| is_even(sample.at, self.period));
        }
        self.period = self.period * 2;
    }
}

/// Returns true if an even number of whole periods have passed.
fn is_even(passed: Span, period: Span) -> bool {
    (passed.as_nanos() / period.as_nanos()).is_multiple_of(2)
}

/// Returns a sample of the sending end of each connection.
pub(crate) fn sending_ends(
    at: Time,
    flows: &[SimulatedFlow],
    connection: &ConnectionSetup,
    plan: &SimulationPlan,
) -> Vec<Sample> {
    let times = (at, Time::ZERO + plan.lead);
    flows
        .iter()
        .zip(0..)
        .map(|(flow, stream)| {
            let [sender, _] = sample_ends(times, stream, flow, connection, plan);
            sender
        })
        .collect()
}

fn sample_ends(
    (at, origin): (Time, Time),
    stream: u16,
    flow: &SimulatedFlow,
    connection: &ConnectionSetup,
    plan: &SimulationPlan,
) -> [Sample; 2] {
    let SimulatedFlow {
        sender, receiver, ..
    } = flow;
    let sent = sender.written_bytes();
    let read = receiver.bytes_read();
    [
        (sent, sender.tcp_info(at), sender.socket_memory()),
        (read, receiver.tcp_info(at), receiver.socket_memory()),
    ]
    .map(|(bytes, info, memory)| Sample {
        at: at.duration_since(origin),
        stream,
        bytes,
        tcp: TcpInfo {
            timestamps: Some(connection.timestamps),
            sack: Some(true),
            window_scaling: Some(connection.scales[1].is_some()),
            path_mtu: Some(plan.path.forward.known_mtu()),
            advmss: Some(connection.advmss),
            ..info
        },
        memory: Some(memory),
    })
}
