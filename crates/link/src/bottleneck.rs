use fullpipe_record::{Fate, PathDirection};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

use crate::load::Load;
use crate::log::Log;
use crate::queue::Queue;
use crate::server::{Capacity, Opportunities, Server};
use crate::train::cut;
use crate::{Counters, Tally, Train};

/// A queue and the link behind it, which sends one packet after the other.
#[derive(Debug)]
pub(crate) struct Bottleneck<T> {
    queue: Queue<T>,
    /// `None` where packets are sent at once.
    server: Option<Server>,
    /// The packets that are being sent.
    sending: Option<Load>,
    /// When it will have been sent; `None` where nothing is, or never will be.
    finish: Option<Time>,
    /// Most packets of the train in service that may leave as one.
    most: SegCount,
    /// When the busy period began.
    began: Time,
    /// Busy time of the periods before it.
    busy_before: Span,
}

impl<T: Train> Bottleneck<T> {
    pub(crate) fn new(path: &PathDirection) -> Self {
        let trace = path.effects.opportunities.as_ref().and_then(Opportunities::new).map(Capacity::Opportunities);
        Self {
            queue: Queue::new(path),
            server: trace.or(path.rate.map(Capacity::Rate)).map(Server::new),
            sending: None,
            finish: None,
            most: SegCount::ZERO,
            began: Time::ZERO,
            busy_before: Span::ZERO,
        }
    }

    /// Returns true if packets are sent at once, so that none ever waits.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.server.is_none()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    /// Queues as much of `train`, which comes at `at`, as there is room for, and sends it if the link is idle.
    /// Returns the number of packets accepted.
    /// At most `most` packets leave as one.
    pub(crate) fn accept(&mut self, at: Time, train: T, most: SegCount, log: &mut Log<T>) -> SegCount {
        let segments = train.segments();
        let rest = self.queue.accept(at, train, self.being_sent(at), log);
        self.start(at, most, log);
        self.note_backlog(at, log);
        segments - rest.map_or(SegCount::ZERO, |rest| self.overflow(at, rest, log))
    }

    /// When what is being sent will have been, as far as is known.
    pub(crate) fn finish(&self) -> Option<Time> {
        self.finish
    }

    /// Removes what has been sent at `at`, which is [`Bottleneck::finish`]; [`Bottleneck::go_on`] begins the next.
    /// Returns a train once the next packet is not part of it, or may not leave with it.
    pub(crate) fn make_way(&mut self, at: Time, log: &mut Log<T>) -> Option<T> {
        log.counters.sent += self.sending.take()?.total;
        self.finish = None;
        let served = self.queue.serving();
        let goes_on = self.queue.choose(at, log) && self.queue.serving() == served;
        let fifo = self.queue.fifo(served);
        if goes_on && fifo.goes_on() && fifo.begun() < self.most { None } else { fifo.take_begun() }
    }

    /// Begins to send what was chosen when the last packet made way at `at`.
    pub(crate) fn go_on(&mut self, at: Time, most: SegCount) {
        if self.queue.held().segments > SegCount::ZERO {
            self.begin(most);
        } else {
            self.busy_before += at.since(self.began);
        }
    }

    /// From `at` on the link sends at `rate`.
    pub(crate) fn set_rate(&mut self, at: Time, rate: BitRate) {
        let server = self.server.get_or_insert_with(|| Server::new(Capacity::Rate(rate)));
        server.set_rate(at, rate);
        self.finish = self.sending.and_then(|_| server.finish());
    }

    /// Goes on at `at` with `trains`, of the first of which so much work is left, in a busy period that began at a
    /// moment, after others of a length in all.
    pub(crate) fn resume(
        &mut self,
        at: Time,
        trains: impl Iterator<Item = T>,
        work: u128,
        (began, busy_before): (Time, Span),
    ) {
        (self.began, self.busy_before) = (began, busy_before);
        for train in trains {
            self.queue.resume(at, train);
        }
        self.most = SegCount::new(u64::MAX);
        self.sending = self.queue.begin(self.most);
        if let (Some(_), Some(server)) = (self.sending, &mut self.server) {
            server.resume(at, work);
            self.finish = server.finish();
        }
    }

    /// Packets that are being sent at `now`, or will be before the link chooses again.
    pub(crate) fn being_sent(&self, now: Time) -> Tally {
        let (Some(load), Some(server)) = (self.sending, &self.server) else { return Tally::default() };
        if load.segments == SegCount::new(1) {
            return load.tally();
        }
        load.behind(load.packets_in(load.total.saturating_sub(server.left(now)))).tally()
    }

    /// Returns `counters` with the bytes sent and the busy time up to `now`.
    pub(crate) fn counted(&self, now: Time, counters: Counters) -> Counters {
        let complete = self.sending.map_or(Tally::default(), |load| load.tally().less(self.being_sent(now)));
        let busy = self.sending.map_or(Span::ZERO, |_| now.since(self.began));
        Counters { sent: counters.sent + complete.bytes, busy: self.busy_before + busy, ..counters }
    }

    /// Begins to send at `at` where nothing is being sent.
    fn start(&mut self, at: Time, most: SegCount, log: &mut Log<T>) {
        if let Some(server) = &mut self.server
            && self.sending.is_none()
            && self.queue.choose(at, log)
        {
            server.begin_period(at);
            self.began = at;
            self.begin(most);
        }
    }

    /// Deals with packets that found the queue full; how many of them did not come in.
    fn overflow(&mut self, at: Time, train: T, log: &mut Log<T>) -> SegCount {
        if !self.queue.drops_from_fattest() {
            log.note(at, Fate::Overflowed, Some(self.backlog(at)), &train);
            return train.segments();
        }
        let mut rest = Some(train);
        while let Some(train) = rest {
            let (packet, behind) = cut(train, SegCount::new(1));
            let sending = self.being_sent(at);
            if let Some(packet) = packet {
                self.queue.force(at, packet, sending, log);
            }
            self.note_backlog(at, log);
            rest = behind;
        }
        SegCount::ZERO
    }

    /// Returns the bytes that wait or are being sent.
    pub(crate) fn backlog(&self, at: Time) -> ByteCount {
        self.queue.held().plus(self.being_sent(at)).bytes
    }

    fn note_backlog(&self, at: Time, log: &mut Log<T>) {
        log.counters.max_backlog = log.counters.max_backlog.max(self.backlog(at));
    }

    fn begin(&mut self, most: SegCount) {
        let begun = self.queue.begun();
        if begun == SegCount::ZERO {
            self.most = most;
        }
        self.sending = self.queue.begin(self.most - begun);
        if let (Some(load), Some(server)) = (self.sending, &mut self.server) {
            server.begin(load.total);
            self.finish = server.finish();
        }
    }
}
