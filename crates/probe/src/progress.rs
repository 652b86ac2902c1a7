//! A transfer under way, seen from one end: what the omitted time left out, intervals, and its end.

use std::time::Instant;

use fullpipe_load::{Role, StreamCount, StreamTotals, Totals, Transfer};
use fullpipe_record::{
    Datagrams, Direction, EndReport, Interval, Machine, Request, Sample, StreamInterval, TcpInfo, Transport,
};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

use crate::machine::Watch;

/// What was counted up to a moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mark {
    pub(crate) totals: Totals,
    /// By stream; empty where the kernel does not count them.
    pub(crate) retransmits: Vec<SegCount>,
}

/// A transfer and the marks taken of it.
pub(crate) struct Progress {
    transfer: Transfer,
    /// This end's processors and device, where somebody wants to know.
    machine: Option<Watch>,
    request: Request,
    /// Which way each stream goes, seen from this end.
    ways: Vec<Direction>,
    started: Mark,
    omitted: Option<Mark>,
    interval: Mark,
    boundaries: Boundaries,
    /// What had come in by the latest look, and when that had last changed.
    arrivals: (ByteCount, Span),
    ended: Option<Mark>,
}

/// When intervals end: at whole multiples of their length, so that looks that come late do not add up.
struct Boundaries {
    length: Span,
    next: Span,
}

/// A transfer that is over, between its marks.
pub(crate) struct Finished {
    /// When its data began to flow.
    pub(crate) origin: Instant,
    /// Which way each stream went, seen from this end.
    pub(crate) ways: Vec<Direction>,
    /// Where counting began.
    pub(crate) from: Mark,
    /// Where it ended.
    pub(crate) to: Mark,
    /// What the streams did in all.
    pub(crate) rest: StreamTotals,
    /// What the processors and the device of this end did.
    pub(crate) machine: Machine,
}

/// How long nothing may arrive before a download of a given number of bytes, of which some were lost, is taken for whole.
const SILENCE: Span = Span::from_secs(2);

impl Progress {
    /// `ways` says of each stream of `transfer` which way it goes, seen from this end: [`Direction::Upload`] sends.
    pub(crate) fn new(transfer: Transfer, machine: Option<Watch>, request: Request, ways: Vec<Direction>) -> Self {
        let started = Mark {
            totals: Totals { at: Span::ZERO, streams: vec![StreamCount::default(); ways.len()] },
            retransmits: vec![SegCount::ZERO; ways.len()],
        };
        let boundaries = Boundaries { length: request.interval, next: request.interval };
        Self {
            transfer,
            machine,
            request,
            ways,
            omitted: None,
            interval: started.clone(),
            boundaries,
            arrivals: (ByteCount::ZERO, Span::ZERO),
            ended: None,
            started,
        }
    }

    pub(crate) fn origin(&self) -> Instant {
        self.transfer.origin()
    }

    /// What it has moved so far.
    pub(crate) fn totals(&self) -> Totals {
        self.transfer.totals()
    }

    /// What this end has seen up to now, with one look at each stream of TCP and one at the processors; of datagrams what has come since the omitted time
    /// was over, once it is.
    pub(crate) fn so_far(&self) -> EndReport {
        let samples = self.transfer.snapshot();
        let totals = self.totals();
        let from = self.omitted.as_ref().unwrap_or(&self.started);
        let counts = counts(&from.totals, &totals);
        let machine = self.machine.as_ref().map(Watch::latest).unwrap_or_default();
        EndReport {
            processors: machine.processors,
            device: machine.device,
            cpu: self.transfer.cpu(),
            samples,
            datagrams: datagrams(&counts, &self.ways, self.request.transport),
            until: Some(totals.at),
            ..EndReport::default()
        }
    }

    /// Its rate so far, all streams together.
    pub(crate) fn rate(&self) -> BitRate {
        let totals = self.transfer.totals();
        BitRate::of(totals.streams.iter().map(|count| count.bytes).sum(), totals.at)
    }

    /// Looks at the transfer: marks the end of the omitted time, and gives the intervals that have passed, one for each
    /// way.
    pub(crate) fn look(&mut self) -> Vec<Interval> {
        let elapsed: Span = self.origin().elapsed().into();
        if self.omitted.is_none() && elapsed >= self.request.omit {
            let at_once = self.request.omit == Span::ZERO;
            self.omitted = Some(if at_once { self.started.clone() } else { self.mark() });
        }
        if self.ended.is_some() {
            return Vec::new();
        }
        let arrived = self.arrived();
        if arrived > self.arrivals.0 {
            self.arrivals = (arrived, elapsed);
        }
        match self.boundaries.passed(elapsed) {
            Some(boundary) => self.close_intervals(boundary),
            None => Vec::new(),
        }
    }

    /// Whether this end, the client, should end the transfer: the time has passed, the bytes have arrived, or all
    /// connections are gone.
    pub(crate) fn is_due(&self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let elapsed: Span = self.origin().elapsed().into();
        match self.request.bytes {
            None => elapsed >= self.request.omit + self.request.duration || self.transfer.is_over(),
            Some(wanted) => self.request.directions().iter().all(|way| match way {
                Direction::Upload | Direction::Both => self.transfer.has_sent_all() && self.transfer.is_drained(),
                Direction::Download => self.has_received(wanted, elapsed),
            }),
        }
    }

    /// For how long nothing has come in, where something should.
    pub(crate) fn silence(&self) -> Span {
        let elapsed: Span = self.origin().elapsed().into();
        let awaits = self.ended.is_none() && self.ways.contains(&Direction::Download);
        if awaits { elapsed.saturating_sub(self.arrivals.1) } else { Span::ZERO }
    }

    /// Whether everything of `wanted` bytes has come in. What UDP lost never will, so that silence ends a download too.
    fn has_received(&self, wanted: ByteCount, elapsed: Span) -> bool {
        let (arrived, at) = self.arrivals;
        let is_udp = self.request.transport == Transport::Udp;
        let silent = is_udp && arrived > ByteCount::ZERO && elapsed.saturating_sub(at) >= SILENCE;
        self.arrived() >= wanted || silent || self.transfer.is_over()
    }

    /// What has come in.
    pub(crate) fn arrived(&self) -> ByteCount {
        let streams = self.transfer.totals().streams;
        streams
            .iter()
            .zip(&self.ways)
            .filter(|(_, way)| **way == Direction::Download)
            .map(|(count, _)| count.bytes)
            .sum()
    }

    /// Whether the end is marked already.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Marks the end and sends no more; the last intervals, unless they are a mere rest. The first end counts.
    pub(crate) fn end(&mut self) -> Vec<Interval> {
        if self.has_ended() {
            return Vec::new();
        }
        let mark = self.mark();
        let rest = mark.totals.at.saturating_sub(self.interval.totals.at);
        let last = if self.is_worth_telling(rest) { self.close_intervals(mark.totals.at) } else { Vec::new() };
        self.transfer.stop_sending();
        if let Some(machine) = &mut self.machine {
            machine.stop();
        }
        self.ended = Some(mark);
        last
    }

    /// A whole test always is; what is left between the last boundary and a late look is not.
    fn is_worth_telling(&self, rest: Span) -> bool {
        const MIN_INTERVAL: Span = Span::from_millis(1);
        let is_whole = self.interval.totals.at == Span::ZERO;
        rest >= MIN_INTERVAL && (is_whole || rest >= self.request.interval / 20)
    }

    /// After the end, lets the other end see that no more will come. A server does so: an iperf3 client that drains its
    /// download reads whole blocks, and would wait for the rest of the last.
    pub(crate) fn close_sending(&self) {
        self.transfer.close_sending();
    }

    /// Ends everything.
    pub(crate) fn finish(mut self) -> Finished {
        if self.ended.is_none() {
            self.end();
        }
        let mut to = self.ended.unwrap_or_else(|| self.started.clone());
        // A transfer that ended within its omitted time has nothing that counts.
        let from = self.omitted.unwrap_or_else(|| to.clone());
        let (origin, rest) = (self.transfer.origin(), self.transfer.finish());
        let machine = self.machine.map(Watch::finish).unwrap_or_default();
        if self.request.bytes.is_some() {
            // Bytes end such a test, and not the clock: the other end may have the last before they are counted here.
            let ends = to.totals.streams.iter_mut().zip(&rest.totals.streams).zip(&self.ways);
            ends.filter(|(_, way)| role(**way) == Role::Sender).for_each(|((end, written), _)| *end = *written);
        }
        Finished { origin, ways: self.ways, from, to, rest, machine }
    }

    fn mark(&self) -> Mark {
        let latest = self.transfer.latest();
        let retransmits: Option<Vec<SegCount>> = latest.iter().map(|sample| sample.tcp.total_retrans).collect();
        Mark { totals: self.transfer.totals(), retransmits: retransmits.unwrap_or_default() }
    }

    /// The intervals that were to end at `boundary`; they end now, which is a little later.
    fn close_intervals(&mut self, boundary: Span) -> Vec<Interval> {
        let now = self.mark();
        let before = std::mem::replace(&mut self.interval, now.clone());
        let latest = self.transfer.latest();
        let streams: Vec<StreamInterval> =
            (0..self.ways.len()).map(|index| self.stream_interval(index, &before, &now, &latest)).collect();
        let ways = [Direction::Upload, Direction::Download].into_iter().filter(|way| self.ways.contains(way));
        let interval = |way| {
            let streams = streams.iter().zip(&self.ways).filter(|(_, its)| **its == way);
            let streams: Vec<StreamInterval> = streams.map(|(stream, _)| stream.clone()).collect();
            combined(way, &before, &now, streams, boundary <= self.request.omit)
        };
        ways.map(interval).collect()
    }

    fn stream_interval(&self, index: usize, before: &Mark, now: &Mark, latest: &[Sample]) -> StreamInterval {
        let count = now.totals.streams[index].since(&before.totals.streams[index]);
        let sends = self.ways[index] == Direction::Upload;
        let is_udp = self.request.transport == Transport::Udp;
        let retransmits = now.retransmits.get(index).zip(before.retransmits.get(index));
        StreamInterval {
            stream: index as u16,
            bytes: count.bytes,
            datagrams_sent: (is_udp && sends).then_some(count.datagrams_sent),
            datagrams: (is_udp && !sends).then_some(count.datagrams),
            retransmits: retransmits.filter(|_| sends).map(|(&now, &before)| now.saturating_sub(before)),
            tcp: latest.iter().find(|sample| usize::from(sample.stream) == index).map(|sample| sample.tcp.clone()),
        }
    }
}

/// The part of this end in a stream that goes `way`, seen from here.
pub(crate) fn role(way: Direction) -> Role {
    match way {
        Direction::Upload | Direction::Both => Role::Sender,
        Direction::Download => Role::Receiver,
    }
}

/// Why a test is over although it was not its time: every data connection broke.
pub(crate) fn all_broke(rest: &StreamTotals) -> Option<String> {
    let (_, error) = rest.failures.first()?;
    (rest.failures.len() == rest.totals.streams.len()).then(|| format!("every data connection broke: {error}"))
}

/// All streams of one way together.
fn combined(way: Direction, before: &Mark, now: &Mark, streams: Vec<StreamInterval>, omitted: bool) -> Interval {
    let bytes = streams.iter().map(|stream| stream.bytes).sum();
    let span = now.totals.at.saturating_sub(before.totals.at);
    let window = |stream: &StreamInterval| stream.tcp.as_ref().and_then(TcpInfo::congestion_window);
    Interval {
        direction: way,
        from: before.totals.at,
        to: now.totals.at,
        bytes,
        rate: BitRate::of(bytes, span),
        retransmits: streams.iter().map(|stream| stream.retransmits).sum(),
        rtt: streams.first().and_then(|stream| stream.tcp.as_ref()?.rtt),
        echo_rtt: None,
        cwnd: if way == Direction::Upload { streams.iter().map(window).sum() } else { None },
        omitted,
        datagrams_sent: streams.iter().map(|stream| stream.datagrams_sent).sum(),
        datagrams: streams.iter().map(|stream| stream.datagrams).sum(),
        streams,
    }
}

impl Boundaries {
    /// The latest boundary up to `elapsed`, once. An interval of no length has none: only the whole is reported then.
    fn passed(&mut self, elapsed: Span) -> Option<Span> {
        if self.length == Span::ZERO || elapsed < self.next {
            return None;
        }
        let passed = self.length * (elapsed.as_nanos() / self.length.as_nanos());
        self.next = passed + self.length;
        Some(passed)
    }
}

impl Finished {
    /// How long was counted.
    pub(crate) fn duration(&self) -> Span {
        self.to.totals.at.saturating_sub(self.from.totals.at)
    }

    /// What each stream moved.
    pub(crate) fn counts(&self) -> Vec<StreamCount> {
        counts(&self.from.totals, &self.to.totals)
    }

    /// Retransmissions of each stream; empty where unknown.
    pub(crate) fn retransmits(&self) -> Vec<SegCount> {
        differences(&self.from.retransmits, &self.to.retransmits, SegCount::saturating_sub)
    }

    /// What was received of each stream that came in as datagrams.
    pub(crate) fn datagrams(&self, transport: Transport) -> Vec<Datagrams> {
        datagrams(&self.counts(), &self.ways, transport)
    }
}

/// What each stream moved between two moments.
fn counts(from: &Totals, to: &Totals) -> Vec<StreamCount> {
    differences(&from.streams, &to.streams, |to, from| to.since(&from))
}

/// What was received of each stream that comes in as datagrams.
fn datagrams(counts: &[StreamCount], ways: &[Direction], transport: Transport) -> Vec<Datagrams> {
    let received = counts.iter().zip(ways).filter(|(_, way)| **way == Direction::Download);
    match transport {
        Transport::Tcp => Vec::new(),
        Transport::Udp => received.map(|(count, _)| count.datagrams).collect(),
    }
}

fn differences<T: Copy>(from: &[T], to: &[T], less: impl Fn(T, T) -> T) -> Vec<T> {
    to.iter().zip(from).map(|(&to, &from)| less(to, from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_looks_do_not_move_the_boundaries() {
        let mut boundaries = Boundaries { length: Span::from_secs(1), next: Span::from_secs(1) };
        let passed: Vec<Span> = (0..1_000).filter_map(|look| boundaries.passed(Span::from_millis(look * 13))).collect();
        assert_eq!(passed, (1..=12).map(Span::from_secs).collect::<Vec<_>>());
    }

    #[test]
    fn boundaries_that_were_slept_through_count_once() {
        let mut boundaries = Boundaries { length: Span::from_secs(1), next: Span::from_secs(1) };
        assert_eq!(boundaries.passed(Span::from_millis(3_400)), Some(Span::from_secs(3)));
        assert_eq!(boundaries.passed(Span::from_millis(3_900)), None);
        assert_eq!(boundaries.passed(Span::from_secs(4)), Some(Span::from_secs(4)));
    }

    #[test]
    fn intervals_of_no_length_never_end() {
        let mut boundaries = Boundaries { length: Span::ZERO, next: Span::ZERO };
        assert_eq!(boundaries.passed(Span::from_secs(9)), None);
    }
}
