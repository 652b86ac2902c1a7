//! Figures of records as iperf3 counts them.

use fullpipe_record::{Datagrams, Interval, Request, StreamInterval, StreamSummary};

use super::TestRole;
use super::line::{LineCounts, LineDatagrams};
use crate::text::prelude::*;

/// Returns begin and end of an interval in seconds, since the start or, after the omitted time,
/// since the end of that.
pub(crate) fn interval_times(interval: &Interval, request: &Request) -> (f64, f64) {
    let zero = if interval.omitted {
        Span::ZERO
    } else {
        request.omit
    };
    (
        interval.from.saturating_sub(zero).as_secs_f64(),
        interval.to.saturating_sub(zero).as_secs_f64(),
    )
}

/// Returns true if an interval is a short rest without data at the end of a test, which iperf3
/// leaves out.
pub(crate) fn is_empty_rest(interval: &Interval, request: &Request) -> bool {
    interval.bytes == ByteCount::ZERO
        && interval.to.saturating_sub(interval.from) < request.interval.scale_by(0.1)
}

/// Returns the datagrams that iperf3 counts as lost and as sent.
pub(crate) fn datagram_counts(datagrams: Option<Datagrams>) -> LineDatagrams {
    let seen = datagrams.unwrap_or_default();
    LineDatagrams {
        jitter: seen.jitter.as_millis_f64(),
        lost: seen.lost_like_iperf3,
        datagrams: seen.received.saturating_add(seen.lost),
    }
}

/// Returns the figures of all streams together: counts add up, jitter is the mean.
fn combine_datagrams(streams: impl Iterator<Item = Option<Datagrams>>) -> LineDatagrams {
    let (mut sum, mut count) = (LineDatagrams::default(), 0_u32);
    for stream in streams.map(datagram_counts) {
        sum.jitter += stream.jitter;
        sum.lost = sum.lost.saturating_add(stream.lost);
        sum.datagrams = sum.datagrams.saturating_add(stream.datagrams);
        count += 1;
    }
    LineDatagrams {
        jitter: sum.jitter / f64::from(count.max(1)),
        ..sum
    }
}

/// Returns the congestion window of a stream in bytes; zero if the kernel does not report it.
pub(crate) fn congestion_window(stream: &StreamInterval) -> ByteCount {
    let tcp = stream.tcp.as_ref();
    let window = tcp.and_then(|tcp| Some(tcp.cwnd?.of_size(tcp.snd_mss?)));
    window.unwrap_or_default()
}

/// Returns the counts of a stream in an interval.
pub(crate) fn stream_counts(
    stream: &StreamInterval,
    transport: Transport,
    sends: bool,
) -> LineCounts {
    match (transport, sends) {
        (Transport::Tcp, true) => LineCounts::Window(
            stream.retransmits.unwrap_or_default().get(),
            congestion_window(stream),
        ),
        (Transport::Tcp, false) => LineCounts::Nothing,
        (Transport::Udp, true) => LineCounts::Sent(stream.datagrams_sent.unwrap_or_default()),
        (Transport::Udp, false) => LineCounts::Arrived(datagram_counts(stream.datagrams)),
    }
}

/// Returns the counts of all streams of a direction in an interval.
pub(crate) fn count_together(interval: &Interval, transport: Transport, sends: bool) -> LineCounts {
    let streams = &interval.streams;
    match (transport, sends) {
        (Transport::Tcp, true) => {
            LineCounts::Retransmits(interval.retransmits.unwrap_or_default().get())
        }
        (Transport::Tcp, false) => LineCounts::Nothing,
        (Transport::Udp, true) => {
            let sent = streams.iter().filter_map(|stream| stream.datagrams_sent);
            LineCounts::Sent(sent.fold(0, u64::saturating_add))
        }
        (Transport::Udp, false) => LineCounts::Arrived(combine_datagrams(
            streams.iter().map(|stream| stream.datagrams),
        )),
    }
}

/// Sums of the intervals so far, for the totals.
#[derive(Debug, Default)]
pub(crate) struct IntervalSums {
    /// End of the last interval that this end has counted, in seconds.
    until: Option<f64>,
    /// Extremes of each stream.
    extremes: Vec<TcpExtremes>,
}

impl IntervalSums {
    pub(crate) fn add_interval(&mut self, interval: &Interval, request: &Request, role: TestRole) {
        if !interval.omitted {
            self.until = Some(interval_times(interval, request).1);
        }
        if !role.is_sender(interval.direction) {
            return;
        }
        for stream in &interval.streams {
            let index = usize::from(stream.stream);
            if index >= self.extremes.len() {
                self.extremes.resize_with(index + 1, TcpExtremes::default);
            }
            self.extremes[index].add_stream(stream);
        }
    }

    /// Returns the extremes of a stream that this end sends; zeros for any other.
    pub(crate) fn stream_extremes(&self, stream: u16) -> TcpExtremes {
        self.extremes
            .get(usize::from(stream))
            .copied()
            .unwrap_or_default()
    }
}

/// Extremes of the figures that the kernel reports at the ends of intervals; zero for those that it
/// does not report.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TcpExtremes {
    /// Largest congestion window, in bytes.
    pub window: u64,
    /// Largest window that the peer advertised, in bytes.
    pub peer_window: u64,
    /// Largest round-trip time, in microseconds.
    pub rtt_max: u64,
    /// Smallest round-trip time, in microseconds.
    pub rtt_min: u64,
    rtt_sum: u64,
    rtt_count: u64,
}

impl TcpExtremes {
    fn add_stream(&mut self, stream: &StreamInterval) {
        let Some(tcp) = &stream.tcp else { return };
        self.window = self.window.max(congestion_window(stream).get());
        self.peer_window = self.peer_window.max(tcp.snd_wnd.unwrap_or_default().get());
        let Some(rtt) = tcp.rtt.map(Span::as_micros) else {
            return;
        };
        self.rtt_min = if self.rtt_count == 0 {
            rtt
        } else {
            self.rtt_min.min(rtt)
        };
        self.rtt_max = self.rtt_max.max(rtt);
        self.rtt_sum = self.rtt_sum.saturating_add(rtt);
        self.rtt_count += 1;
    }

    pub(crate) fn rtt_mean(&self) -> u64 {
        self.rtt_sum.checked_div(self.rtt_count).unwrap_or(0)
    }
}

/// The totals of one direction.
pub(crate) struct DirectionTotals<'m> {
    pub direction: Direction,
    /// True if this end sends.
    pub sends: bool,
    pub streams: Vec<&'m StreamSummary>,
    /// Time that the sender counted, in seconds.
    pub sending: f64,
    /// Time that the receiver counted, in seconds.
    pub receiving: f64,
}

impl<'m> DirectionTotals<'m> {
    /// Returns the totals of each direction, upload first.
    pub(crate) fn from_measurement(
        seen: &'m Measurement,
        course: &IntervalSums,
        role: TestRole,
    ) -> Vec<Self> {
        let directions = seen.request.data_directions().iter();
        directions
            .map(|&direction| Self::from_direction(seen, course, role, direction))
            .collect()
    }

    fn from_direction(
        seen: &'m Measurement,
        course: &IntervalSums,
        role: TestRole,
        direction: Direction,
    ) -> Self {
        let streams = seen
            .streams
            .iter()
            .filter(|stream| stream.direction == direction)
            .collect();
        let summary = match (&seen.reverse, direction) {
            (Some(reverse), Direction::Download) => reverse,
            _ => &seen.summary,
        };
        let sends = role.is_sender(direction);
        let stated = summary.duration.as_secs_f64();
        // A client's totals are timed by the receiver's clock, and its own is in its intervals.
        // Those of a server, and of a test that broke off, are timed by this end's.
        let is_own = role == TestRole::Server || seen.broken_off.is_some();
        let here = course.until.filter(|_| !is_own).unwrap_or(stated);
        Self {
            direction,
            sends,
            streams,
            sending: if sends { here } else { stated },
            receiving: stated,
        }
    }

    pub(crate) fn sent_bytes(&self) -> ByteCount {
        self.streams.iter().map(|stream| stream.sent).sum()
    }

    pub(crate) fn received_bytes(&self) -> ByteCount {
        self.streams.iter().map(|stream| stream.received).sum()
    }

    pub(crate) fn retransmit_count(&self) -> u64 {
        let counts = self.streams.iter().filter_map(|stream| stream.retransmits);
        counts.fold(0, |sum, count| sum.saturating_add(count.get()))
    }

    pub(crate) fn datagrams_sent(&self) -> u64 {
        let counts = self
            .streams
            .iter()
            .filter_map(|stream| stream.datagrams_sent);
        counts.fold(0, u64::saturating_add)
    }

    pub(crate) fn datagram_counts(&self) -> LineDatagrams {
        combine_datagrams(self.streams.iter().map(|stream| stream.datagrams))
    }
}
