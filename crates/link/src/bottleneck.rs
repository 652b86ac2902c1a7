use fullpipe_record::{Fate, PathDirection};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

use crate::load::TrainLoad;
use crate::log::DirectionLog;
use crate::queue::LinkQueue;
use crate::server::{LinkCapacity, LinkServer, SendOpportunities};
use crate::train::split_train_at;
use crate::{DirectionCounters, PacketTally, Train};

/// A queue and the link behind it, which sends one packet after the other.
#[derive(Debug)]
pub(crate) struct BottleneckLink<T> {
    queue: LinkQueue<T>,
    /// `None` where packets are sent at once.
    server: Option<LinkServer>,
    /// The packets that are being sent.
    sending: Option<TrainLoad>,
    /// When it will have been sent; `None` where nothing is, or never will be.
    finish: Option<Time>,
    /// Most packets of the train in service that may leave as one.
    most: SegCount,
    /// When the busy period began.
    began: Time,
    /// Busy time of the periods before it.
    busy_before: Span,
}

impl<T: Train> BottleneckLink<T> {
    pub(crate) fn new(path: &PathDirection) -> Self {
        let trace = path
            .effects
            .opportunities
            .as_ref()
            .and_then(SendOpportunities::new)
            .map(LinkCapacity::Opportunities);
        Self {
            queue: LinkQueue::new(path),
            server: trace
                .or(path.rate.map(LinkCapacity::Rate))
                .map(LinkServer::new),
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

    /// Queues as much of `train`, which comes at `at`, as there is room for, and sends it if the
    /// link is idle. Returns the number of packets accepted. At most `most` packets leave as one.
    pub(crate) fn accept_train(
        &mut self,
        at: Time,
        train: T,
        most: SegCount,
        log: &mut DirectionLog<T>,
    ) -> SegCount {
        let segments = train.segment_count();
        let rest = self.queue.accept_train(at, train, self.being_sent(at), log);
        self.start_service(at, most, log);
        self.note_backlog(at, log);
        segments - rest.map_or(SegCount::ZERO, |rest| self.drop_overflow(at, rest, log))
    }

    /// When what is being sent will have been, as far as is known.
    pub(crate) fn finish_time(&self) -> Option<Time> {
        self.finish
    }

    /// Removes what has been sent at `at`, which is [`BottleneckLink::finish_time`];
    /// [`BottleneckLink::go_on`] begins the next. Returns a train once the next packet is not part
    /// of it, or may not leave with it.
    pub(crate) fn make_way(&mut self, at: Time, log: &mut DirectionLog<T>) -> Option<T> {
        log.counters.sent += self.sending.take()?.total;
        self.finish = None;
        let served = self.queue.serving_index();
        let goes_on = self.queue.choose_next(at, log) && self.queue.serving_index() == served;
        let fifo = self.queue.fifo_mut(served);
        if goes_on && fifo.goes_on() && fifo.begun_segments() < self.most {
            None
        } else {
            fifo.take_begun()
        }
    }

    /// Begins to send what was chosen when the last packet made way at `at`.
    pub(crate) fn go_on(&mut self, at: Time, most: SegCount) {
        if self.queue.waiting_tally().segments > SegCount::ZERO {
            self.begin_service(most);
        } else {
            self.busy_before += at.duration_since(self.began);
        }
    }

    /// From `at` on the link sends at `rate`.
    pub(crate) fn set_rate(&mut self, at: Time, rate: BitRate) {
        let server = self
            .server
            .get_or_insert_with(|| LinkServer::new(LinkCapacity::Rate(rate)));
        server.set_rate(at, rate);
        self.finish = self.sending.and_then(|_| server.finish_time());
    }

    /// Goes on at `at` with `trains`, of the first of which so much work is left, in a busy period
    /// that began at a moment, after others of a length in all.
    pub(crate) fn resume_period(
        &mut self,
        at: Time,
        trains: impl Iterator<Item = T>,
        work: u128,
        (began, busy_before): (Time, Span),
    ) {
        (self.began, self.busy_before) = (began, busy_before);
        for train in trains {
            self.queue.resume_train(at, train);
        }
        self.most = SegCount::new(u64::MAX);
        self.sending = self.queue.begin_service(self.most);
        if let (Some(_), Some(server)) = (self.sending, &mut self.server) {
            server.resume_period(at, work);
            self.finish = server.finish_time();
        }
    }

    /// Packets that are being sent at `now`, or will be before the link chooses again.
    pub(crate) fn being_sent(&self, now: Time) -> PacketTally {
        let (Some(load), Some(server)) = (self.sending, &self.server) else {
            return PacketTally::default();
        };
        if load.segments == SegCount::new(1) {
            return load.to_tally();
        }
        load.packets_after(load.packets_in(load.total.saturating_sub(server.remaining_bytes(now))))
            .to_tally()
    }

    /// Returns `counters` with the bytes sent and the busy time up to `now`.
    pub(crate) fn add_progress(&self, now: Time, counters: DirectionCounters) -> DirectionCounters {
        let complete = self.sending.map_or(PacketTally::default(), |load| {
            load.to_tally().difference_from(self.being_sent(now))
        });
        let busy = self
            .sending
            .map_or(Span::ZERO, |_| now.duration_since(self.began));
        DirectionCounters {
            sent: counters.sent + complete.bytes,
            busy: self.busy_before + busy,
            ..counters
        }
    }

    /// Begins to send at `at` where nothing is being sent.
    fn start_service(&mut self, at: Time, most: SegCount, log: &mut DirectionLog<T>) {
        if let Some(server) = &mut self.server
            && self.sending.is_none()
            && self.queue.choose_next(at, log)
        {
            server.begin_period(at);
            self.began = at;
            self.begin_service(most);
        }
    }

    /// Deals with packets that found the queue full; how many of them did not come in.
    fn drop_overflow(&mut self, at: Time, train: T, log: &mut DirectionLog<T>) -> SegCount {
        if !self.queue.drops_from_fattest() {
            log.record_fate(at, Fate::Overflowed, Some(self.backlog_bytes(at)), &train);
            return train.segment_count();
        }
        let mut rest = Some(train);
        while let Some(train) = rest {
            let (packet, behind) = split_train_at(train, SegCount::new(1));
            let sending = self.being_sent(at);
            if let Some(packet) = packet {
                self.queue.force_packet(at, packet, sending, log);
            }
            self.note_backlog(at, log);
            rest = behind;
        }
        SegCount::ZERO
    }

    /// Returns the bytes that wait or are being sent.
    pub(crate) fn backlog_bytes(&self, at: Time) -> ByteCount {
        self.queue
            .waiting_tally()
            .sum_with(self.being_sent(at))
            .bytes
    }

    fn note_backlog(&self, at: Time, log: &mut DirectionLog<T>) {
        log.counters.max_backlog = log.counters.max_backlog.max(self.backlog_bytes(at));
    }

    fn begin_service(&mut self, most: SegCount) {
        let begun = self.queue.begun_segments();
        if begun == SegCount::ZERO {
            self.most = most;
        }
        self.sending = self.queue.begin_service(self.most - begun);
        if let (Some(load), Some(server)) = (self.sending, &mut self.server) {
            server.begin_service(load.total);
            self.finish = server.finish_time();
        }
    }
}
