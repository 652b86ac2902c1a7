//! Figures of records as iperf3 counts them.

use fullpipe_record::{Datagrams, Direction, Interval, Measurement, Request, StreamInterval, StreamSummary, Transport};
use fullpipe_units::{ByteCount, Span};

use super::Role;
use super::line::{Arrived, Count};

/// Returns begin and end of an interval in seconds, since the start or, after the omitted time, since the end of that.
pub(crate) fn times(interval: &Interval, request: &Request) -> (f64, f64) {
    let zero = if interval.omitted { Span::ZERO } else { request.omit };
    (interval.from.saturating_sub(zero).as_secs_f64(), interval.to.saturating_sub(zero).as_secs_f64())
}

/// Returns true if an interval is a short rest without data at the end of a test, which iperf3 leaves out.
pub(crate) fn is_empty_rest(interval: &Interval, request: &Request) -> bool {
    interval.bytes == ByteCount::ZERO && interval.to.saturating_sub(interval.from) < request.interval.scaled(0.1)
}

/// Returns the datagrams that iperf3 counts as lost and as sent.
pub(crate) fn arrived(datagrams: Option<Datagrams>) -> Arrived {
    let seen = datagrams.unwrap_or_default();
    Arrived {
        jitter: seen.jitter.as_millis_f64(),
        lost: seen.lost_like_iperf3,
        datagrams: seen.received.saturating_add(seen.lost),
    }
}

/// Returns the figures of all streams together: counts add up, jitter is the mean.
pub(crate) fn together(streams: &[Arrived]) -> Arrived {
    let jitter: f64 = streams.iter().map(|stream| stream.jitter).sum();
    Arrived {
        jitter: if streams.is_empty() { 0.0 } else { jitter / streams.len() as f64 },
        lost: streams.iter().fold(0, |sum, stream| sum.saturating_add(stream.lost)),
        datagrams: streams.iter().fold(0, |sum, stream| sum.saturating_add(stream.datagrams)),
    }
}

/// Returns the congestion window of a stream in bytes; zero if the kernel does not report it.
pub(crate) fn window(stream: &StreamInterval) -> ByteCount {
    let tcp = stream.tcp.as_ref();
    let window = tcp.and_then(|tcp| Some(tcp.cwnd?.of_size(tcp.snd_mss?)));
    window.unwrap_or_default()
}

/// Returns the counts of a stream in an interval.
pub(crate) fn count(stream: &StreamInterval, transport: Transport, sends: bool) -> Count {
    match (transport, sends) {
        (Transport::Tcp, true) => Count::Window(stream.retransmits.unwrap_or_default().get(), window(stream)),
        (Transport::Tcp, false) => Count::Nothing,
        (Transport::Udp, true) => Count::Sent(stream.datagrams_sent.unwrap_or_default()),
        (Transport::Udp, false) => Count::Arrived(arrived(stream.datagrams)),
    }
}

/// Returns the counts of all streams of a direction in an interval.
pub(crate) fn count_together(interval: &Interval, transport: Transport, sends: bool) -> Count {
    let streams = &interval.streams;
    match (transport, sends) {
        (Transport::Tcp, true) => Count::Retransmits(interval.retransmits.unwrap_or_default().get()),
        (Transport::Tcp, false) => Count::Nothing,
        (Transport::Udp, true) => {
            let sent = streams.iter().filter_map(|stream| stream.datagrams_sent);
            Count::Sent(sent.fold(0, u64::saturating_add))
        }
        (Transport::Udp, false) => {
            let each: Vec<Arrived> = streams.iter().map(|stream| arrived(stream.datagrams)).collect();
            Count::Arrived(together(&each))
        }
    }
}

/// Sums of the intervals so far, for the totals.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// End of the last interval that this end has counted, in seconds.
    until: Option<f64>,
    /// Extremes of each stream.
    extremes: Vec<Extremes>,
}

impl Course {
    pub(crate) fn note(&mut self, interval: &Interval, request: &Request, role: Role) {
        if !interval.omitted {
            self.until = Some(times(interval, request).1);
        }
        if !role.sends(interval.direction) {
            return;
        }
        for stream in &interval.streams {
            let index = usize::from(stream.stream);
            if index >= self.extremes.len() {
                self.extremes.resize_with(index + 1, Extremes::default);
            }
            self.extremes[index].note(stream);
        }
    }

    /// Returns the extremes of a stream that this end sends; zeros for any other.
    pub(crate) fn extremes(&self, stream: u16) -> Extremes {
        self.extremes.get(usize::from(stream)).copied().unwrap_or_default()
    }
}

/// Extremes of the figures that the kernel reports at the ends of intervals; zero for those that it does not report.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extremes {
    /// Largest congestion window, in bytes.
    pub(crate) window: u64,
    /// Largest window that the peer advertised, in bytes.
    pub(crate) peer_window: u64,
    /// Largest round-trip time, in microseconds.
    pub(crate) rtt_max: u64,
    /// Smallest round-trip time, in microseconds.
    pub(crate) rtt_min: u64,
    rtt_sum: u64,
    rtt_count: u64,
}

impl Extremes {
    fn note(&mut self, stream: &StreamInterval) {
        let Some(tcp) = &stream.tcp else { return };
        self.window = self.window.max(window(stream).get());
        self.peer_window = self.peer_window.max(tcp.snd_wnd.unwrap_or_default().get());
        let Some(rtt) = tcp.rtt.map(Span::as_micros) else { return };
        self.rtt_min = if self.rtt_count == 0 { rtt } else { self.rtt_min.min(rtt) };
        self.rtt_max = self.rtt_max.max(rtt);
        self.rtt_sum = self.rtt_sum.saturating_add(rtt);
        self.rtt_count += 1;
    }

    pub(crate) fn rtt_mean(&self) -> u64 {
        self.rtt_sum.checked_div(self.rtt_count).unwrap_or(0)
    }
}

/// The totals of one direction.
pub(crate) struct Totals<'m> {
    pub(crate) direction: Direction,
    /// True if this end sends.
    pub(crate) sends: bool,
    pub(crate) streams: Vec<&'m StreamSummary>,
    /// Time that the sender counted, in seconds.
    pub(crate) sending: f64,
    /// Time that the receiver counted, in seconds.
    pub(crate) receiving: f64,
}

impl<'m> Totals<'m> {
    /// Returns the totals of each direction, upload first.
    pub(crate) fn of(seen: &'m Measurement, course: &Course, role: Role) -> Vec<Self> {
        let directions = seen.request.directions().iter();
        directions.map(|&direction| Self::one(seen, course, role, direction)).collect()
    }

    fn one(seen: &'m Measurement, course: &Course, role: Role, direction: Direction) -> Self {
        let streams = seen.streams.iter().filter(|stream| stream.direction == direction).collect();
        let summary = match (&seen.reverse, direction) {
            (Some(reverse), Direction::Download) => reverse,
            _ => &seen.summary,
        };
        let sends = role.sends(direction);
        let stated = summary.duration.as_secs_f64();
        // A client's totals are timed by the receiver's clock, and its own is in its intervals. Those of a server, and
        // of a test that broke off, are timed by this end's.
        let is_own = role == Role::Server || seen.broken_off.is_some();
        let here = course.until.filter(|_| !is_own).unwrap_or(stated);
        Self { direction, sends, streams, sending: if sends { here } else { stated }, receiving: stated }
    }

    pub(crate) fn sent(&self) -> ByteCount {
        self.streams.iter().map(|stream| stream.sent).sum()
    }

    pub(crate) fn received(&self) -> ByteCount {
        self.streams.iter().map(|stream| stream.received).sum()
    }

    pub(crate) fn retransmits(&self) -> u64 {
        let counts = self.streams.iter().filter_map(|stream| stream.retransmits);
        counts.fold(0, |sum, count| sum.saturating_add(count.get()))
    }

    pub(crate) fn datagrams_sent(&self) -> u64 {
        let counts = self.streams.iter().filter_map(|stream| stream.datagrams_sent);
        counts.fold(0, u64::saturating_add)
    }

    pub(crate) fn arrived(&self) -> Arrived {
        let each: Vec<Arrived> = self.streams.iter().map(|stream| arrived(stream.datagrams)).collect();
        together(&each)
    }
}
