//! The course of a transfer, as samples of its sender.

use std::num::NonZeroU64;

use fullpipe_record::{CongestionState, Sample, TcpInfo};
use fullpipe_units::{ByteCount, SegCount, Span, Time};

use crate::sizes::segment_count;

/// Points that are kept. Beyond it the time between them doubles.
const MAX_POINTS: usize = 1024;

/// Time between two points at first.
const FIRST_WIDTH: Span = Span::from_millis(10);

/// State of a sender as it is seen from some place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SenderState {
    /// Bytes in flight after the last segment.
    pub(crate) flight: u64,
    /// The window that it went by, as it stands in the header: not shifted.
    pub(crate) window: Option<u16>,
    /// Smoothed as the kernel does it (RFC 6298, 2.3).
    rtt: CompactSpan,
    least_rtt: CompactSpan,
}

/// A span that may be unknown, in eight bytes.
#[derive(Debug, Clone, Copy, Default)]
struct CompactSpan(Option<NonZeroU64>);

impl From<Span> for CompactSpan {
    fn from(span: Span) -> Self {
        // One more than it is, so that none is zero.
        Self(NonZeroU64::new(span.as_nanos().saturating_add(1)))
    }
}

impl CompactSpan {
    fn span(self) -> Option<Span> {
        self.0.map(|nanos| Span::from_nanos(nanos.get() - 1))
    }
}

impl SenderState {
    /// Returns the least round-trip time.
    pub(crate) fn least_rtt(&self) -> Option<Span> {
        self.least_rtt.span()
    }

    /// Takes note of the least round-trip time where no other is known.
    pub(crate) fn takes_at_least(&mut self, least: Span) {
        self.least_rtt = least.into();
    }

    /// Takes note of a round-trip time.
    pub(crate) fn record_rtt(&mut self, rtt: Span) {
        const SMOOTHING: u64 = 8;
        let smoothed = self.rtt.span().map_or(rtt, |old| {
            old.saturating_sub(old / SMOOTHING) + rtt / SMOOTHING
        });
        self.rtt = smoothed.into();
        self.least_rtt = self
            .least_rtt
            .span()
            .map_or(rtt, |least| least.min(rtt))
            .into();
    }
}

/// Counts since the begin, and the last state.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TimelinePoint {
    at: Time,
    /// Segments with data, all and those that were retransmitted.
    pub(crate) segments: u64,
    pub(crate) again: u64,
    /// Retransmitted bytes.
    pub(crate) again_bytes: u64,
    /// Acknowledgements of data that had arrived already (DSACK).
    pub(crate) needless: u64,
    /// Acknowledged bytes.
    pub(crate) acknowledged: u64,
    /// Timeouts since the last progress.
    pub(crate) timeouts: u64,
    /// True while a loss is repaired.
    pub(crate) recovers: bool,
    /// As seen from the place of the capture.
    pub(crate) here: SenderState,
    /// As the sender saw it, by the timestamps that it echoed.
    pub(crate) echoed: SenderState,
}

/// The points of a transfer at about equal distances of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderTimeline {
    begin: Option<Time>,
    width: Span,
    /// End of the interval of the present point.
    interval_end: Time,
    points: Vec<TimelinePoint>,
    pub(crate) now: TimelinePoint,
}

/// Properties that all segments of a connection share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowParameters {
    pub(crate) stream: u16,
    pub(crate) mss: ByteCount,
    /// `None` where the packets do not show it.
    pub(crate) timestamps: Option<bool>,
    pub(crate) sack: Option<bool>,
    /// Shift of the receiver's windows.
    pub(crate) scale: WindowScale,
    /// True if no acknowledgement was captured: what was sent stands for it, and nothing shows what
    /// is in flight.
    pub(crate) is_one_way: bool,
}

/// Shift of the windows of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowScale {
    /// Both SYNs agree on it.
    Agreed(u8),
    /// A SYN shows that there is none.
    Absent,
    /// No SYN was captured, or not whole; what was in flight shows it.
    Inferred(u8),
    /// Neither shows it.
    Unknown,
}

impl WindowScale {
    /// Returns the bytes of a window as it stands in the header. Zero is zero under any scale.
    fn apply_to(self, window: u16) -> Option<ByteCount> {
        if window == 0 {
            return Some(ByteCount::ZERO);
        }
        self.shift()
            .map(|shift| ByteCount::new(u64::from(window) << shift))
    }

    /// Returns the shift; `None` where it is not known.
    pub(crate) fn shift(self) -> Option<u8> {
        match self {
            Self::Agreed(shift) | Self::Inferred(shift) => Some(shift),
            Self::Absent => Some(0),
            Self::Unknown => None,
        }
    }
}

impl SenderTimeline {
    /// Moves on to `at`: what is counted from here on belongs to a later point if enough time has
    /// passed.
    pub(crate) fn advance_to(&mut self, at: Time) {
        if at >= self.interval_end {
            self.begin_interval(at);
        }
        self.skip_to(at);
    }

    /// Moves on to `at` without another point.
    pub(crate) fn skip_to(&mut self, at: Time) {
        self.now.at = self.now.at.max(at);
    }

    fn begin_interval(&mut self, at: Time) {
        let begin = *self.begin.get_or_insert(at);
        if self.width == Span::ZERO {
            self.width = FIRST_WIDTH;
        }
        if self.now.at > begin {
            self.points.push(self.now);
            if self.points.len() > MAX_POINTS {
                self.widen_interval(begin);
            }
        }
        self.interval_end = begin + self.width * (interval_index(at, begin, self.width) + 1);
    }

    fn widen_interval(&mut self, begin: Time) {
        self.width = self.width * 2;
        // Of two points in one interval the later one holds what happened in both.
        self.points.dedup_by(|later, earlier| {
            let same = interval_index(later.at, begin, self.width)
                == interval_index(earlier.at, begin, self.width);
            if same {
                *earlier = *later;
            }
            same
        });
    }

    /// Returns the bytes that its points take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.points.capacity() * size_of::<TimelinePoint>()
    }

    /// Doubles the time between its points until there are few.
    pub(crate) fn reduce_memory(&mut self) {
        const KEPT: usize = 2;
        while let Some(begin) = self
            .begin
            .filter(|_| self.points.len() > KEPT && self.width < Span::MAX)
        {
            self.widen_interval(begin);
        }
        self.points.shrink_to_fit();
    }

    /// Returns when the first data was sent.
    pub(crate) fn begin_time(&self) -> Option<Time> {
        self.begin
    }

    /// Returns the samples of a sender, whose times count from `origin`: its own view where
    /// `by_echo` is true. `rest` is the part of each round trip on the other side of the capture.
    pub(crate) fn interval_samples(
        &self,
        agreed: FlowParameters,
        origin: Time,
        by_echo: bool,
        rest: Span,
    ) -> Vec<Sample> {
        let last = self.begin.map(|_| &self.now);
        self.points
            .iter()
            .chain(last)
            .map(|point| point.interval_sample(agreed, origin, by_echo, rest))
            .collect()
    }
}

/// Returns the index of the interval of such a width that `at` lies in.
fn interval_index(at: Time, begin: Time, width: Span) -> u64 {
    at.duration_since(begin).as_nanos() / width.as_nanos()
}

impl TimelinePoint {
    fn interval_sample(
        &self,
        agreed: FlowParameters,
        origin: Time,
        by_echo: bool,
        rest: Span,
    ) -> Sample {
        let view = if by_echo { &self.echoed } else { &self.here };
        let is_two_way = !agreed.is_one_way;
        let sent = self.acknowledged + view.flight + self.again_bytes;
        let arrived = self.acknowledged + if is_two_way { 0 } else { view.flight };
        let state = if self.recovers {
            CongestionState::Recovery
        } else {
            CongestionState::Open
        };
        Sample {
            at: self.at.duration_since(origin),
            stream: agreed.stream,
            bytes: ByteCount::new(arrived),
            tcp: TcpInfo {
                congestion_state: Some(state),
                timeouts_in_a_row: Some(SegCount::new(self.timeouts)),
                timestamps: agreed.timestamps,
                sack: agreed.sack,
                window_scaling: match agreed.scale {
                    WindowScale::Agreed(_) => Some(true),
                    WindowScale::Absent => Some(false),
                    WindowScale::Inferred(_) | WindowScale::Unknown => None,
                },
                snd_wscale: agreed
                    .scale
                    .shift()
                    .filter(|_| agreed.scale != WindowScale::Absent),
                snd_mss: Some(agreed.mss),
                unacked: is_two_way
                    .then(|| SegCount::new(segment_count(view.flight, agreed.mss.get()))),
                rtt: view.rtt.span().map(|rtt| rtt + rest),
                min_rtt: view.least_rtt.span().map(|rtt| rtt + rest),
                total_retrans: Some(SegCount::new(self.again)),
                dsack_dups: Some(SegCount::new(self.needless)),
                data_segs_out: Some(SegCount::new(self.segments)),
                bytes_sent: Some(ByteCount::new(sent)),
                bytes_retrans: Some(ByteCount::new(self.again_bytes)),
                bytes_acked: is_two_way.then(|| ByteCount::new(self.acknowledged)),
                snd_wnd: view.window.and_then(|window| agreed.scale.apply_to(window)),
                ..TcpInfo::default()
            },
            memory: None,
        }
    }
}
