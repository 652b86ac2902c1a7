//! A transfer under way as one end sees it: its omitted time, its intervals and its end.

use std::time::{Duration, Instant, SystemTime};

use crate::engine::{
    PlannedStream, RunningTransfer, SenderSockets, StorageFailure, StreamChannel, StreamCount,
    StreamRole, StreamTotals, TransferTotals,
};
use fullpipe_record::{
    Datagrams, Direction, EndReport, Interval, Machine, Request, Sample, StreamInterval, TcpInfo,
    Transport,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::machine::MachineWatch;

/// The counts of a test under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestSnapshot {
    /// Time of the counts, since data began to flow.
    pub at: Span,
    /// Last round-trip time of an echo request, or the kernel's estimate for the first connection
    /// if none was answered.
    pub rtt: Option<Span>,
    /// The streams, in their order.
    pub streams: Vec<StreamSnapshot>,
}

/// The counts of a stream under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSnapshot {
    /// Direction, seen from this end.
    pub direction: Direction,
    /// Payload so far: acknowledged bytes of a TCP stream that this end sends, or else what the
    /// program wrote or read.
    pub bytes: ByteCount,
}

/// Counts up to a moment.
#[derive(Clone)]
pub(crate) struct CountMark {
    pub totals: TransferTotals,
    /// Retransmissions by stream; empty if the kernel does not count them.
    pub retransmits: Vec<SegCount>,
    /// Bytes that the other end has acknowledged, by stream; empty if the kernel does not count
    /// them.
    pub acknowledged: Vec<ByteCount>,
}

/// A transfer and the marks taken of it.
pub(crate) struct CountedTransfer {
    transfer: RunningTransfer,
    /// The wall clock when it began: it may be set meanwhile.
    wall_start: SystemTime,
    /// Samples of this end's processors and device, if they are wanted.
    machine: Option<MachineWatch>,
    request: Request,
    /// Direction of each stream, seen from this end.
    ways: Vec<Direction>,
    started: CountMark,
    omitted: Option<CountMark>,
    interval: CountMark,
    boundaries: IntervalBoundaries,
    /// Set if this end lets its senders end by themselves once they have sent the bytes of the
    /// request.
    limits_bytes: bool,
    /// Bytes received at the latest update, and the time at which they last grew.
    arrivals: (ByteCount, Span),
    /// Bytes that the other end has acknowledged, and the time at which they last grew, in a test
    /// of a number of bytes over TCP.
    acknowledged: (ByteCount, Span),
    ended: Option<CountMark>,
}

/// Ends of the intervals, at whole multiples of their length, so that late updates do not add up.
struct IntervalBoundaries {
    length: Span,
    /// The time from which they are counted: the end of the omitted time, once it is over.
    from: Span,
    next: Span,
}

/// A transfer that is over, with the marks between which it was counted.
pub(crate) struct FinishedTransfer {
    /// Time at which its data began to flow.
    pub origin: Instant,
    /// Time at which its data began to flow, by the wall clock.
    pub wall_start: SystemTime,
    /// Direction of each stream, seen from this end.
    pub ways: Vec<Direction>,
    /// Mark at which counting began.
    pub from: CountMark,
    /// Mark at which counting ended.
    pub to: CountMark,
    /// Totals of the streams, including the omitted time.
    pub rest: StreamTotals,
    /// Samples of the processors and the device of this end.
    pub machine: Machine,
}

/// Time without data after which a download of a given number of bytes over UDP, of which some were
/// lost, counts as complete.
const SILENCE: Span = Span::from_secs(2);

impl CountedTransfer {
    /// Returns the progress of `transfer`. `ways` has the direction of each stream, seen from this
    /// end: [`Direction::Upload`] sends.
    pub(crate) fn new(
        transfer: RunningTransfer,
        machine: Option<MachineWatch>,
        request: Request,
        ways: Vec<Direction>,
    ) -> Self {
        let started = CountMark {
            totals: TransferTotals {
                at: Span::ZERO,
                streams: vec![StreamCount::default(); ways.len()],
            },
            retransmits: vec![SegCount::ZERO; ways.len()],
            acknowledged: vec![ByteCount::ZERO; ways.len()],
        };
        let boundaries = IntervalBoundaries::new(request.interval, Span::ZERO);
        Self {
            wall_start: SystemTime::now() - transfer.origin.elapsed(),
            transfer,
            machine,
            request,
            ways,
            omitted: None,
            interval: started.clone(),
            boundaries,
            limits_bytes: false,
            arrivals: (ByteCount::ZERO, Span::ZERO),
            acknowledged: (ByteCount::ZERO, Span::ZERO),
            ended: None,
            started,
        }
    }

    /// Returns the progress at the end that ends the transfer, the client: the other end sends
    /// until then, if the omitted time does not count, which is over a little earlier or later
    /// there.
    pub(crate) fn limiting_bytes(self) -> Self {
        Self {
            limits_bytes: true,
            ..self
        }
    }

    /// Returns the progress of a transfer on a connection that carried others before: what `earlier`
    /// counts of it does not count.
    pub(crate) fn counting_from(mut self, earlier: &TcpInfo) -> Self {
        self.started = CountMark {
            totals: self.started.totals,
            retransmits: earlier.total_retrans.into_iter().collect(),
            acknowledged: earlier.bytes_acked.into_iter().collect(),
        };
        self.interval = self.started.clone();
        self
    }

    /// Returns true if every stream has ended by itself.
    pub(crate) fn is_over(&self) -> bool {
        self.transfer.is_over()
    }

    /// Returns true if the other end has acknowledged all that was written.
    pub(crate) fn is_delivered(&self) -> bool {
        self.transfer.is_drained()
    }

    pub(crate) fn origin(&self) -> Instant {
        self.transfer.origin
    }

    /// Returns the time to sleep, at most `longest` and the rest of the omitted time, at whose end
    /// counting begins.
    pub(crate) fn sleep_time(&self, longest: Duration) -> Duration {
        let omitted = Duration::from(self.request.omit).saturating_sub(self.origin().elapsed());
        if omitted.is_zero() {
            longest
        } else {
            longest.min(omitted)
        }
    }

    /// Returns the totals so far.
    pub(crate) fn transfer_totals(&self) -> TransferTotals {
        self.transfer.totals()
    }

    /// Returns a sample of each TCP stream as it is now.
    pub(crate) fn current_samples(&self) -> Vec<Sample> {
        self.transfer.sample_now()
    }

    /// Returns why the file of this end could not be read or written, if that is so.
    pub(crate) fn storage_failure(&self) -> Option<&StorageFailure> {
        self.transfer.storage_failure()
    }

    /// Returns the report of this end up to now, with one snapshot of each TCP stream and one
    /// sample of the processors. Datagrams are counted from the end of the omitted time, once it is
    /// over.
    pub(crate) fn so_far(&self) -> EndReport {
        let samples = self.transfer.sample_now();
        let totals = self.transfer_totals();
        let from = self.omitted.as_ref().unwrap_or(&self.started);
        let counts = counts_between(&from.totals, &totals);
        let machine = self
            .machine
            .as_ref()
            .map(MachineWatch::latest_sample)
            .unwrap_or_default();
        EndReport {
            processors: machine.processors,
            device: machine.device,
            network: machine.network,
            cpu: self.transfer.cpu_time(),
            samples,
            datagrams: received_datagrams(&counts, &self.ways, self.request.transport),
            until: Some(totals.at),
            ..EndReport::default()
        }
    }

    /// Returns the counts now: those of the latest sample of each stream, or else what was written
    /// and read.
    pub(crate) fn test_snapshot(&self, echo_rtt: Option<Span>) -> TestSnapshot {
        let (latest, totals) = (self.transfer.latest_samples(), self.transfer.totals());
        let is_sampled = latest.len() == self.ways.len();
        let streams = self.ways.iter().enumerate();
        TestSnapshot {
            at: latest
                .first()
                .filter(|_| is_sampled)
                .map_or(totals.at, |sample| sample.at),
            rtt: echo_rtt.or_else(|| latest.first()?.tcp.rtt),
            streams: streams
                .map(|(index, &way)| StreamSnapshot {
                    direction: way,
                    bytes: match latest.get(index).filter(|_| is_sampled) {
                        Some(sample) if way == Direction::Upload => {
                            sample.tcp.bytes_acked.unwrap_or(sample.bytes)
                        }
                        Some(sample) => sample.bytes,
                        None => totals.streams[index].bytes,
                    },
                })
                .collect(),
        }
    }

    /// Returns the transfer as if it ended now, with at most `most` samples.
    pub(crate) fn so_far_finished(&self, most: usize) -> FinishedTransfer {
        let to = self.take_mark();
        let rest = StreamTotals {
            totals: to.totals.clone(),
            samples: self.transfer.samples_within(most),
            sent_on: SenderSockets::default(),
            cpu: self.transfer.cpu_time(),
            storage: None,
            failures: Vec::new(),
            notes: Vec::new(),
        };
        FinishedTransfer {
            origin: self.transfer.origin,
            wall_start: self.wall_start,
            ways: self.ways.clone(),
            from: self.omitted.clone().unwrap_or_else(|| to.clone()),
            to,
            rest,
            machine: self
                .machine
                .as_ref()
                .map(MachineWatch::so_far)
                .unwrap_or_default(),
        }
    }

    /// Returns the mean rate so far, of all streams together.
    pub(crate) fn mean_rate(&self) -> BitRate {
        let totals = self.transfer.totals();
        BitRate::from_bytes_in(
            totals.streams.iter().map(|count| count.bytes).sum(),
            totals.at,
        )
    }

    /// Marks the end of the omitted time, and returns the intervals that have passed, one for each
    /// direction.
    pub(crate) fn take_passed_intervals(&mut self) -> Vec<Interval> {
        let elapsed: Span = self.origin().elapsed().into();
        self.note_arrivals();
        self.note_acknowledgements(elapsed);
        if self.omitted.is_none() && elapsed >= self.request.omit {
            return self.begin_counting(elapsed);
        }
        if self.ended.is_some() {
            return Vec::new();
        }
        match self.boundaries.passed_boundary(elapsed) {
            Some(boundary) => self.close_intervals(boundary),
            None => Vec::new(),
        }
    }

    /// Marks the end of the omitted time, from which bytes and intervals count. Returns the
    /// intervals before it.
    fn begin_counting(&mut self, elapsed: Span) -> Vec<Interval> {
        if self.request.omit == Span::ZERO {
            self.omitted = Some(self.started.clone());
            return Vec::new();
        }
        self.omitted = Some(self.take_mark());
        if let Some(bytes) = self.request.bytes.filter(|_| self.limits_bytes) {
            self.transfer.limit_bytes(bytes);
        }
        self.boundaries = IntervalBoundaries::new(self.request.interval, self.request.omit);
        let rest = elapsed.saturating_sub(self.interval.totals.at);
        let closes =
            self.ended.is_none() && self.request.interval > Span::ZERO && self.is_long_enough(rest);
        if closes {
            self.close_intervals(self.request.omit)
        } else {
            Vec::new()
        }
    }

    /// Notes what has arrived by now.
    pub(crate) fn note_arrivals(&mut self) {
        if !self.ways.contains(&Direction::Download) {
            return;
        }
        let arrived = self.arrived_bytes();
        if arrived > self.arrivals.0 {
            self.arrivals = (arrived, self.origin().elapsed().into());
        }
    }

    /// Notes what the other end has acknowledged at `elapsed`, if that decides when the transfer
    /// ends.
    fn note_acknowledgements(&mut self, elapsed: Span) {
        if self.request.bytes.is_some() && self.ways.contains(&Direction::Upload) {
            let acknowledged = self
                .transfer
                .latest_samples()
                .iter()
                .filter_map(|sample| sample.tcp.bytes_acked)
                .sum();
            let is_quiet = elapsed.saturating_sub(self.acknowledged.1) >= Span::from_secs(1);
            // At a low rate there may be nothing to acknowledge for long.
            if acknowledged > self.acknowledged.0 || (is_quiet && self.transfer.is_drained()) {
                self.acknowledged = (acknowledged, elapsed);
            }
        }
    }

    /// Returns true if this end, the client, should end the transfer: the time has passed, the
    /// bytes have arrived, or all connections have ended.
    pub(crate) fn is_due(&self) -> bool {
        if self.ended.is_some() || (self.omitted.is_none() && !self.transfer.is_over()) {
            return false;
        }
        let elapsed: Span = self.origin().elapsed().into();
        match self.request.bytes {
            None => elapsed >= self.request.omit + self.request.duration || self.transfer.is_over(),
            Some(wanted) => self.request.data_directions().iter().all(|way| match way {
                Direction::Upload | Direction::Both => {
                    self.transfer.has_sent_all() && self.transfer.is_drained()
                }
                Direction::Download => self.has_received(wanted, elapsed),
            }),
        }
    }

    /// Returns the time for which nothing has arrived; zero if this end does not receive.
    pub(crate) fn receive_silence(&self) -> Span {
        self.time_since(self.arrivals.1, self.ways.contains(&Direction::Download))
    }

    /// Returns the time for which the other end has acknowledged nothing; zero if the test does not
    /// wait for that.
    pub(crate) fn time_without_acknowledgement(&self) -> Span {
        let is_tcp = self.request.transport == Transport::Tcp;
        let sends = self.ways.contains(&Direction::Upload);
        self.time_since(
            self.acknowledged.1,
            is_tcp && sends && self.request.bytes.is_some(),
        )
    }

    fn time_since(&self, last: Span, counts: bool) -> Span {
        let elapsed: Span = self.origin().elapsed().into();
        if counts && self.ended.is_none() {
            elapsed.saturating_sub(last)
        } else {
            Span::ZERO
        }
    }

    /// Returns true if `wanted` bytes have arrived. Bytes that UDP lost never arrive, so a download
    /// also ends after [`SILENCE`].
    fn has_received(&self, wanted: ByteCount, elapsed: Span) -> bool {
        let (arrived, at) = self.arrivals;
        let is_udp = self.request.transport == Transport::Udp;
        let silent = is_udp && arrived > ByteCount::ZERO && elapsed.saturating_sub(at) >= SILENCE;
        self.counted_bytes() >= wanted || silent || self.transfer.is_over()
    }

    /// Returns the bytes that have arrived since the omitted time; none before its end.
    pub(crate) fn counted_bytes(&self) -> ByteCount {
        let omitted = self
            .omitted
            .as_ref()
            .map(|mark| self.received_of(&mark.totals));
        omitted.map_or(ByteCount::ZERO, |omitted| {
            self.arrived_bytes().saturating_sub(omitted)
        })
    }

    /// Returns the bytes that have arrived.
    fn arrived_bytes(&self) -> ByteCount {
        self.received_of(&self.transfer.totals())
    }

    /// Returns the bytes of `totals` that arrived at this end.
    fn received_of(&self, totals: &TransferTotals) -> ByteCount {
        let received = totals
            .streams
            .iter()
            .zip(&self.ways)
            .filter(|(_, way)| **way == Direction::Download);
        received.map(|(count, _)| count.bytes).sum()
    }

    /// Returns true if the omitted time is over, and the end has not been marked.
    pub(crate) fn is_counting(&self) -> bool {
        self.omitted.is_some() && self.ended.is_none()
    }

    /// Returns true if the end has been marked.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Marks the end and stops sending. Returns the last intervals, unless they are too short;
    /// nothing if the end was marked before.
    pub(crate) fn end_transfer(&mut self) -> Vec<Interval> {
        if self.has_ended() {
            return Vec::new();
        }
        self.note_arrivals();
        let mut mark = self.take_mark();
        let only_receives = self.ways.iter().all(|way| *way == Direction::Download);
        if self.request.bytes.is_some() && only_receives && self.arrivals.1 > Span::ZERO {
            // Then followed what was waited for in vain.
            mark.totals.at = self.arrivals.1;
        }
        let rest = mark.totals.at.saturating_sub(self.interval.totals.at);
        let last = if self.is_long_enough(rest) {
            self.close_intervals(mark.totals.at)
        } else {
            Vec::new()
        };
        self.transfer.stop_sending();
        if let Some(machine) = &mut self.machine {
            machine.stop_sampling();
        }
        self.ended = Some(mark);
        last
    }

    /// Returns true if an interval of length `rest` is reported: always if it is the whole test,
    /// but not if it is only the time between the last boundary and a late update.
    fn is_long_enough(&self, rest: Span) -> bool {
        const MIN_INTERVAL: Span = Span::from_millis(1);
        let is_whole = self.interval.totals.at == Span::ZERO;
        rest >= MIN_INTERVAL && (is_whole || rest >= self.request.interval / 20)
    }

    /// Shuts down sending after the end. A server does so because an iperf3 client that drains its
    /// download reads whole blocks, and would wait for the rest of the last one.
    pub(crate) fn close_sending(&self) {
        self.transfer.close_sending();
    }

    /// Returns true if the other end has sent its last byte on every connection on which this end
    /// receives.
    pub(crate) fn has_received_all(&self) -> bool {
        self.transfer.has_received_all()
    }

    /// Ends the transfer and returns its counts.
    pub(crate) fn finish(mut self) -> FinishedTransfer {
        if self.ended.is_none() {
            self.end_transfer();
        }
        let mut to = self.ended.unwrap_or_else(|| self.started.clone());
        // In a transfer that ended within its omitted time, nothing counts.
        let from = self.omitted.unwrap_or_else(|| to.clone());
        let (origin, rest) = (self.transfer.origin, self.transfer.finish_transfer());
        let machine = self
            .machine
            .map(MachineWatch::finish_sampling)
            .unwrap_or_default();
        if self.request.bytes.is_some() {
            // Such a test ends by bytes and not by the clock: the other end may receive the last
            // ones before they are counted here.
            let ends = to
                .totals
                .streams
                .iter_mut()
                .zip(&rest.totals.streams)
                .zip(&self.ways);
            ends.filter(|(_, way)| stream_role(**way) == StreamRole::Sender)
                .for_each(|((end, written), _)| *end = *written);
        }
        FinishedTransfer {
            origin,
            wall_start: self.wall_start,
            ways: self.ways,
            from,
            to,
            rest,
            machine,
        }
    }

    fn take_mark(&self) -> CountMark {
        self.mark_with(&self.transfer.sample_now())
    }

    /// Returns a mark of this moment, in which `samples` were taken: kept ones come less and less
    /// often.
    fn mark_with(&self, samples: &[Sample]) -> CountMark {
        let retransmits: Option<_> = samples
            .iter()
            .map(|sample| sample.tcp.total_retrans)
            .collect();
        let acknowledged: Option<_> = samples
            .iter()
            .map(|sample| sample.tcp.bytes_acked)
            .collect();
        CountMark {
            totals: self.transfer.totals(),
            retransmits: retransmits.unwrap_or_default(),
            acknowledged: acknowledged.unwrap_or_default(),
        }
    }

    /// Returns the intervals that end at `boundary`; they end now, which is a little later.
    fn close_intervals(&mut self, boundary: Span) -> Vec<Interval> {
        let latest = self.transfer.sample_now();
        let now = self.mark_with(&latest);
        let before = std::mem::replace(&mut self.interval, now.clone());
        let streams: Vec<StreamInterval> = (0..self.ways.len())
            .map(|index| self.stream_interval(index, &before, &now, &latest))
            .collect();
        let ways = [Direction::Upload, Direction::Download]
            .into_iter()
            .filter(|way| self.ways.contains(way));
        let intervals = ways.map(|way| {
            let streams = streams
                .iter()
                .zip(&self.ways)
                .filter(|(_, its)| **its == way);
            let streams: Vec<StreamInterval> = streams.map(|(stream, _)| stream.clone()).collect();
            combined_interval(way, &before, &now, streams, boundary <= self.request.omit)
        });
        intervals.collect()
    }

    fn stream_interval(
        &self,
        index: usize,
        before: &CountMark,
        now: &CountMark,
        latest: &[Sample],
    ) -> StreamInterval {
        let count = now.totals.streams[index].counts_since(&before.totals.streams[index]);
        let sends = self.ways[index] == Direction::Upload;
        let is_udp = self.request.transport == Transport::Udp;
        let retransmits = now
            .retransmits
            .get(index)
            .zip(before.retransmits.get(index));
        StreamInterval {
            stream: index as u16,
            bytes: count.bytes,
            datagrams_sent: (is_udp && sends).then_some(count.datagrams_sent),
            datagrams: (is_udp && !sends).then_some(count.datagrams),
            retransmits: retransmits
                .filter(|_| sends)
                .map(|(&now, &before)| now.saturating_sub(before)),
            tcp: latest
                .iter()
                .find(|sample| usize::from(sample.stream) == index)
                .map(|sample| Box::new(sample.tcp.clone())),
        }
    }
}

/// Returns the role of this end in a stream of direction `way`, seen from here.
fn stream_role(way: Direction) -> StreamRole {
    match way {
        Direction::Upload | Direction::Both => StreamRole::Sender,
        Direction::Download => StreamRole::Receiver,
    }
}

/// Returns the streams of `channels`, each with the role of this end for its direction.
pub(crate) fn planned_streams(
    channels: impl IntoIterator<Item = StreamChannel>,
    ways: &[Direction],
) -> Vec<PlannedStream> {
    let lanes = channels.into_iter().zip(ways);
    lanes
        .map(|(channel, way)| PlannedStream {
            channel,
            role: stream_role(*way),
        })
        .collect()
}

/// Returns the reason of an early end if every data connection broke.
pub(crate) fn all_broke(rest: &StreamTotals) -> Option<String> {
    let (_, error) = rest.failures.first()?;
    (rest.failures.len() == rest.totals.streams.len())
        .then(|| format!("every data connection broke: {error}"))
}

/// Returns the interval of all streams of one direction together.
fn combined_interval(
    way: Direction,
    before: &CountMark,
    now: &CountMark,
    streams: Vec<StreamInterval>,
    omitted: bool,
) -> Interval {
    let bytes = streams.iter().map(|stream| stream.bytes).sum();
    let span = now.totals.at.saturating_sub(before.totals.at);
    let window =
        |stream: &StreamInterval| stream.tcp.as_deref().and_then(TcpInfo::congestion_window);
    Interval {
        direction: way,
        from: before.totals.at,
        to: now.totals.at,
        bytes,
        rate: BitRate::from_bytes_in(bytes, span),
        retransmits: streams.iter().map(|stream| stream.retransmits).sum(),
        rtt: streams.first().and_then(|stream| stream.tcp.as_ref()?.rtt),
        echo_rtt: None,
        cwnd: if way == Direction::Upload {
            streams.iter().map(window).sum()
        } else {
            None
        },
        omitted,
        datagrams_sent: streams.iter().map(|stream| stream.datagrams_sent).sum(),
        datagrams: streams.iter().map(|stream| stream.datagrams).sum(),
        streams,
    }
}

impl IntervalBoundaries {
    fn new(length: Span, from: Span) -> Self {
        Self {
            length,
            from,
            next: from + length,
        }
    }

    /// Returns the latest boundary up to `elapsed`, once. Intervals without a length have none:
    /// only the whole test is reported.
    fn passed_boundary(&mut self, elapsed: Span) -> Option<Span> {
        if self.length == Span::ZERO || elapsed < self.next {
            return None;
        }
        let since = elapsed.saturating_sub(self.from);
        let passed = self.from + self.length * (since.as_nanos() / self.length.as_nanos());
        self.next = passed + self.length;
        Some(passed)
    }
}

impl FinishedTransfer {
    /// Adds the streams of `other`, which began later and carried a part of the same load.
    pub(crate) fn join_streams(&mut self, other: Self) {
        let later = Span::from(other.origin.saturating_duration_since(self.origin));
        let first = self.ways.len() as u16;
        self.ways.extend(other.ways);
        for (mark, its) in [(&mut self.from, other.from), (&mut self.to, other.to)] {
            mark.totals.streams.extend(its.totals.streams);
            mark.retransmits.extend(its.retransmits);
            mark.acknowledged.extend(its.acknowledged);
        }
        let rest = other.rest;
        self.rest.totals.streams.extend(rest.totals.streams);
        self.rest
            .samples
            .extend(rest.samples.into_iter().map(|sample| Sample {
                at: sample.at + later,
                stream: sample.stream + first,
                ..sample
            }));
        let failures = rest.failures.into_iter();
        let failures = failures.map(|(stream, error)| (stream + first, error));
        self.rest.failures.extend(failures);
    }

    /// Returns the time over which was counted.
    pub(crate) fn duration(&self) -> Span {
        self.to.totals.at.saturating_sub(self.from.totals.at)
    }

    /// Returns the counts of each stream.
    pub(crate) fn stream_counts(&self) -> Vec<StreamCount> {
        counts_between(&self.from.totals, &self.to.totals)
    }

    /// Returns the retransmissions of each stream; empty if unknown.
    pub(crate) fn stream_retransmits(&self) -> Vec<SegCount> {
        pairwise_differences(
            &self.from.retransmits,
            &self.to.retransmits,
            SegCount::saturating_sub,
        )
    }

    /// Returns the bytes of each stream that the other end acknowledged; empty if unknown.
    pub(crate) fn acknowledged_bytes(&self) -> Vec<ByteCount> {
        pairwise_differences(
            &self.from.acknowledged,
            &self.to.acknowledged,
            ByteCount::saturating_sub,
        )
    }

    /// Returns the counts of each stream that was received as datagrams.
    pub(crate) fn stream_datagrams(&self, transport: Transport) -> Vec<Datagrams> {
        received_datagrams(&self.stream_counts(), &self.ways, transport)
    }
}

/// Returns the counts of each stream between two moments.
fn counts_between(from: &TransferTotals, to: &TransferTotals) -> Vec<StreamCount> {
    pairwise_differences(&from.streams, &to.streams, |to, from| {
        to.counts_since(&from)
    })
}

/// Returns the counts of each stream that is received as datagrams.
fn received_datagrams(
    counts: &[StreamCount],
    ways: &[Direction],
    transport: Transport,
) -> Vec<Datagrams> {
    let received = counts
        .iter()
        .zip(ways)
        .filter(|(_, way)| **way == Direction::Download);
    match transport {
        Transport::Tcp => Vec::new(),
        Transport::Udp => received.map(|(count, _)| count.datagrams).collect(),
    }
}

fn pairwise_differences<T: Copy>(from: &[T], to: &[T], less: impl Fn(T, T) -> T) -> Vec<T> {
    to.iter()
        .zip(from)
        .map(|(&to, &from)| less(to, from))
        .collect()
}

#[cfg(test)]
mod tests;
