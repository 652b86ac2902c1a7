use std::collections::VecDeque;

use fullpipe_record::Framing;
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

use crate::Train;

/// A train as the link sees it: its packets with all that the framing adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Packets.
    segments: SegCount,
    /// Each packet but perhaps the last.
    segment: ByteCount,
    /// All packets.
    total: ByteCount,
}

impl Load {
    pub(crate) fn of<T: Train>(train: &T, framing: Framing) -> Self {
        Self {
            segments: train.segments(),
            segment: train.segment_bytes() + framing.overhead(),
            total: train.wire_bytes(framing),
        }
    }

    /// How many whole packets `bytes` cover, counted from the first.
    fn packets_in(&self, bytes: ByteCount) -> SegCount {
        if bytes >= self.total {
            return self.segments;
        }
        let whole = bytes.get().checked_div(self.segment.get()).unwrap_or(0);
        SegCount::new(whole.min(self.segments.get().saturating_sub(1)))
    }

    /// The first `packets` of it.
    fn first(self, packets: SegCount) -> Self {
        if packets >= self.segments {
            return self;
        }
        Self { segments: packets, segment: self.segment, total: packets.of_size(self.segment) }
    }
}

/// Drop-tail queue and the link behind it.
///
/// The link's work falls into busy periods. Within one, bytes are numbered from its first, and byte n has been sent
/// n × 8 ÷ rate after the period began: no rounding error adds up from packet to packet, however long the period.
#[derive(Debug)]
pub(crate) struct Bottleneck {
    rate: Option<BitRate>,
    limit: Option<ByteCount>,
    began: Time,
    /// When the last byte accepted so far will have been sent.
    ends: Time,
    /// Bytes accepted in this period.
    accepted: ByteCount,
    /// Trains of which some packet had not been sent when the last train came.
    waiting: VecDeque<Waiting>,
    /// Busy time of the periods before this one.
    busy_before: Span,
    max_backlog: ByteCount,
}

/// What the link took of a train.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    /// Packets, counted from its first; the others overflow.
    pub(crate) packets: SegCount,
    /// When the last bit of these packets will have been sent.
    pub(crate) sent: Time,
}

#[derive(Debug)]
struct Waiting {
    load: Load,
    /// Number of its first byte in the busy period.
    first: ByteCount,
}

impl Bottleneck {
    /// A link without `rate` sends at once; a queue without `limit` never overflows.
    pub(crate) fn new(rate: Option<BitRate>, limit: Option<ByteCount>) -> Self {
        Self {
            rate,
            limit,
            began: Time::ZERO,
            ends: Time::ZERO,
            accepted: ByteCount::ZERO,
            waiting: VecDeque::new(),
            busy_before: Span::ZERO,
            max_backlog: ByteCount::ZERO,
        }
    }

    /// Takes in what finds room of a train that comes at `at`.
    pub(crate) fn admit(&mut self, at: Time, load: Load) -> Admission {
        let Some(rate) = self.rate else { return Admission { packets: load.segments, sent: at } };
        if at >= self.ends {
            self.begin_period(at);
        }
        let sent = rate.bytes_in(at.since(self.began));
        self.forget(sent);
        let backlog = self.backlog_behind(sent);
        let load = load.first(self.room(backlog, &load));
        if load.segments > SegCount::ZERO {
            self.waiting.push_back(Waiting { load, first: self.accepted });
            self.accepted += load.total;
            self.ends = self.began + rate.time_for(self.accepted);
            self.max_backlog = self.max_backlog.max(backlog + load.total);
        }
        Admission { packets: load.segments, sent: self.ends }
    }

    /// Bytes accepted before `now` whose packet has not been sent to its last bit.
    pub(crate) fn backlog(&self, now: Time) -> ByteCount {
        self.rate.map_or(ByteCount::ZERO, |rate| self.backlog_behind(rate.bytes_in(now.since(self.began))))
    }

    /// Time in which the link was sending, up to `now`.
    pub(crate) fn busy(&self, now: Time) -> Span {
        self.busy_before + now.min(self.ends).since(self.began)
    }

    /// Largest backlog ever, right after a train was accepted.
    pub(crate) const fn max_backlog(&self) -> ByteCount {
        self.max_backlog
    }

    fn begin_period(&mut self, at: Time) {
        self.busy_before += self.ends.since(self.began);
        self.began = at;
        self.ends = at;
        self.accepted = ByteCount::ZERO;
        self.waiting.clear();
    }

    /// How many packets of `load`, counted from its first, find room behind `backlog`.
    fn room(&self, backlog: ByteCount, load: &Load) -> SegCount {
        let room = self.limit.map_or(load.segments, |limit| load.packets_in(limit.saturating_sub(backlog)));
        let idle = backlog == ByteCount::ZERO;
        if idle { room.max(SegCount::new(1)) } else { room }
    }

    /// Bytes of packets that are not complete when the first `sent` bytes of the period have been sent.
    fn backlog_behind(&self, sent: ByteCount) -> ByteCount {
        // Packets are sent in order, so the first train that is not complete tells where the backlog begins.
        self.waiting.iter().find(|train| sent < train.end()).map_or(ByteCount::ZERO, |train| {
            let complete = train.load.packets_in(sent.saturating_sub(train.first));
            self.accepted - train.first - train.load.first(complete).total
        })
    }

    fn forget(&mut self, sent: ByteCount) {
        while self.waiting.pop_front_if(|train| train.end() <= sent).is_some() {}
    }
}

impl Waiting {
    /// Number of the byte behind its last.
    fn end(&self) -> ByteCount {
        self.first + self.load.total
    }
}
