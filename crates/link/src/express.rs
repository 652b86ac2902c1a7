use std::collections::VecDeque;

use fullpipe_record::{Fate, Framing, PathDirection, Queueing};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

use crate::bottleneck::BottleneckLink;
use crate::delay_line::{DelayLine, only_delays};
use crate::limit::QueueLimit;
use crate::load::TrainLoad;
use crate::log::DirectionLog;
use crate::server::{WORK_PER_BYTE, bytes_for};
use crate::train::sieve_train;
use crate::{ArrivedTrain, DirectionCounters, PacketTally, Train};

/// A drop-tail queue, its link and its delay, where nothing else can happen to a packet: when it
/// arrives is known as it comes, and nothing needs to be done in between.
///
/// The outcome is that of [`BottleneckLink`] and [`DelayLine`], to which [`ExpressLink::hand_over`]
/// leaves what is on its way when the path changes.
#[derive(Debug)]
pub(crate) struct ExpressLink<T> {
    framing: Framing,
    limit: QueueLimit,
    /// `None` where packets are sent at once.
    sender: Option<ConstantRateSender>,
    delay: Span,
    /// In order; those that have been sent are propagating.
    trains: VecDeque<TravellingTrain<T>>,
    /// Trains that have been sent to their last bit.
    sent: usize,
    /// When the first of the others has been sent.
    next_sent: Option<Time>,
    /// When the first of all arrives.
    pub(crate) next_due: Option<Time>,
    /// Packets that have not been sent, each train as a whole.
    unsent: PacketTally,
    /// When the busy period began.
    began: Time,
    /// Busy time of the periods before it.
    busy_before: Span,
}

#[derive(Debug)]
struct TravellingTrain<T> {
    sent: PreciseMoment,
    train: T,
}

/// A moment between two nanoseconds.
#[derive(Debug, Clone, Copy)]
struct PreciseMoment {
    /// The nanosecond at which it is over.
    by: Time,
    /// Work that the link could still do until then, less than it does in a nanosecond.
    spare: u64,
}

/// A link of a constant rate. Work is counted in billionths of a bit, of which it does as many in a
/// nanosecond as its rate has bits per second; so no rounding error adds up from packet to packet.
#[derive(Debug)]
struct ConstantRateSender {
    /// Bits per second; not zero.
    rate: u64,
    /// When it will have sent all that has come.
    free: PreciseMoment,
    last: SendingTime,
}

/// The time that bytes take: most trains are as long as the one before.
#[derive(Debug, Clone, Copy)]
struct SendingTime {
    bytes: ByteCount,
    /// Whole nanoseconds, and the work that is left then, less than the link does in one.
    whole: Span,
    rest: u64,
}

impl<T: Train> ExpressLink<T> {
    /// `None` where `path` does more to a packet than drop-tail queue, rate and delay do.
    pub(crate) fn new(path: &PathDirection) -> Option<Self> {
        let effects = &path.effects;
        let is_plain = effects.queueing == Queueing::DropTail
            && effects.opportunities.is_none()
            && effects.steps.is_empty()
            && path.rate != Some(BitRate::ZERO)
            && only_delays(effects);
        is_plain.then(|| Self {
            framing: path.framing,
            limit: QueueLimit::new(path),
            sender: path.rate.map(ConstantRateSender::new),
            delay: path.delay,
            trains: VecDeque::new(),
            sent: 0,
            next_sent: None,
            next_due: None,
            unsent: PacketTally::default(),
            began: Time::ZERO,
            busy_before: Span::ZERO,
        })
    }

    /// Takes in as much of `train`, which comes at `at` and is this `load`, as there is room for.
    /// Returns the number of packets accepted.
    #[inline]
    pub(crate) fn accept_train(
        &mut self,
        at: Time,
        train: T,
        load: TrainLoad,
        log: &mut DirectionLog<T>,
    ) -> SegCount {
        if self.sender.is_none() {
            self.next_due.get_or_insert(at + self.delay);
            let sent = PreciseMoment::at_time(at);
            self.trains.push_back(TravellingTrain { sent, train });
            self.sent += 1;
            log.counters.sent += load.total;
            return load.segments;
        }
        // No more than this waits, so that most trains need no closer reckoning.
        let most = self.unsent.bytes + load.total;
        if most <= log.counters.max_backlog
            && self.limit.accepted_packets(self.unsent, load) >= load.segments
        {
            self.push(at, load, train);
            return load.segments;
        }
        self.accept_some(at, load, train, log)
    }

    /// Takes in as much of `train` as there is room for, where that may not be all of it, or the
    /// backlog is large.
    #[inline(never)]
    fn accept_some(
        &mut self,
        at: Time,
        load: TrainLoad,
        train: T,
        log: &mut DirectionLog<T>,
    ) -> SegCount {
        let mut backlog = self.backlog_at(at);
        let mut stopped = None;
        if self.limit.accepted_packets(backlog, load) >= load.segments {
            backlog.add(load.to_tally());
            self.push(at, load, train);
        } else {
            let sieved = sieve_train(train, self.framing, |load| {
                let room = self.limit.accepted_packets(backlog, load);
                backlog.add(load.first_packets(room).to_tally());
                room
            });
            for train in sieved.passed.into_iter().flatten() {
                self.push(at, TrainLoad::from_train(&train, self.framing), train);
            }
            stopped = sieved.stopped;
        }
        log.counters.max_backlog = log.counters.max_backlog.max(backlog.bytes);
        let Some(train) = stopped else {
            return load.segments;
        };
        log.record_fate(at, Fate::Overflowed, Some(backlog.bytes), &train);
        load.segments - train.segment_count()
    }

    /// Takes note of what has been sent by `now`.
    #[inline]
    pub(crate) fn advance_to(&mut self, now: Time, log: &mut DirectionLog<T>) {
        while let Some(by) = self.next_sent.filter(|by| *by <= now) {
            let Some(first) = self.trains.get(self.sent) else {
                return;
            };
            let tally = PacketTally::from_train(&first.train, self.framing);
            self.unsent.subtract_packets(tally);
            log.counters.sent += tally.bytes;
            self.sent += 1;
            if self.unsent.segments == SegCount::ZERO {
                self.busy_before += by.duration_since(self.began);
            }
            self.next_sent = self.trains.get(self.sent).map(|next| next.sent.by);
        }
    }

    /// The next train that has arrived at `now`.
    #[inline]
    pub(crate) fn take_arrived(
        &mut self,
        now: Time,
        log: &mut DirectionLog<T>,
    ) -> Option<ArrivedTrain<T>> {
        let due = self.next_due.filter(|due| *due <= now)?;
        if self.sent == 0 {
            self.advance_to(now, log);
        }
        let train = self.trains.pop_front()?.train;
        self.sent -= 1;
        self.next_due = self.trains.front().map(|first| first.sent.by + self.delay);
        log.counters
            .delivered
            .add(PacketTally::from_train(&train, self.framing));
        Some(ArrivedTrain { due, train })
    }

    /// Returns the packets that wait or are being sent at `now`, up to which it has been advanced.
    pub(crate) fn backlog_at(&self, now: Time) -> PacketTally {
        self.unsent.difference_from(self.completed_part(now))
    }

    /// Returns `counters` with the bytes sent and the busy time up to `now`.
    pub(crate) fn add_progress(&self, now: Time, counters: DirectionCounters) -> DirectionCounters {
        let is_busy = self.unsent.segments > SegCount::ZERO;
        let busy = if is_busy {
            now.duration_since(self.began)
        } else {
            Span::ZERO
        };
        DirectionCounters {
            sent: counters.sent + self.completed_part(now).bytes,
            busy: self.busy_before + busy,
            ..counters
        }
    }

    /// Leaves all that is on its way at `now`, up to which it has been advanced, to the stages of a
    /// path that changes.
    pub(crate) fn hand_over(
        self,
        now: Time,
        bottleneck: &mut BottleneckLink<T>,
        delay_line: &mut DelayLine<T>,
    ) {
        let first = self.trains.get(self.sent).map(|first| first.sent);
        let mut trains = self.trains;
        let unsent = trains.split_off(self.sent);
        for TravellingTrain { sent, train } in trains {
            delay_line.resume_train(sent.by, train);
        }
        let work = self
            .sender
            .zip(first)
            .map_or(0, |(sender, first)| sender.remaining_work(now, first));
        let unsent = unsent.into_iter().map(|travelling| travelling.train);
        bottleneck.resume_period(now, unsent, work, (self.began, self.busy_before));
    }

    /// Packets of the train that is being sent which have been sent at `now`.
    fn completed_part(&self, now: Time) -> PacketTally {
        let (Some(first), Some(sender)) = (self.trains.get(self.sent), &self.sender) else {
            return PacketTally::default();
        };
        if first.train.segment_count() == SegCount::new(1) {
            return PacketTally::default();
        }
        let left = bytes_for(sender.remaining_work(now, first.sent));
        let load = TrainLoad::from_train(&first.train, self.framing);
        load.first_packets(load.packets_in(load.total.saturating_sub(left)))
            .to_tally()
    }

    #[inline]
    fn push(&mut self, at: Time, load: TrainLoad, train: T) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        if self.unsent.segments == SegCount::ZERO {
            sender.free = PreciseMoment::at_time(at);
            self.began = at;
        }
        let sent = sender.send(load.total);
        self.next_sent.get_or_insert(sent.by);
        self.next_due.get_or_insert(sent.by + self.delay);
        self.unsent.add(load.to_tally());
        if self.trains.len() == self.trains.capacity() {
            self.make_room();
        }
        self.trains.push_back(TravellingTrain { sent, train });
    }

    /// There may be a million trains: they do not take twice the room that they need.
    #[cold]
    fn make_room(&mut self) {
        self.trains.reserve_exact(self.trains.len() / 4 + 4);
    }
}

impl PreciseMoment {
    #[inline]
    fn at_time(time: Time) -> Self {
        Self { by: time, spare: 0 }
    }
}

impl ConstantRateSender {
    fn new(rate: BitRate) -> Self {
        let last = SendingTime {
            bytes: ByteCount::ZERO,
            whole: Span::ZERO,
            rest: 0,
        };
        Self {
            rate: rate.bps(),
            free: PreciseMoment::at_time(Time::ZERO),
            last,
        }
    }

    /// Sends `bytes` behind all that has come before; when they have been sent.
    #[inline]
    fn send(&mut self, bytes: ByteCount) -> PreciseMoment {
        if bytes != self.last.bytes {
            self.last = self.sending_time(bytes);
        }
        let SendingTime { whole, rest, .. } = self.last;
        let PreciseMoment { by, spare } = self.free;
        self.free = match spare.checked_sub(rest) {
            Some(spare) => PreciseMoment {
                by: by + whole,
                spare,
            },
            None => PreciseMoment {
                by: by + whole + Span::from_nanos(1),
                spare: self.rate - (rest - spare),
            },
        };
        self.free
    }

    fn sending_time(&self, bytes: ByteCount) -> SendingTime {
        // Nearly always 64 bits suffice, and divide faster.
        let (whole, rest) = if let Some(work) = bytes.get().checked_mul(WORK_PER_BYTE as u64) {
            (work / self.rate, work % self.rate)
        } else {
            let (work, rate) = (
                u128::from(bytes.get()) * WORK_PER_BYTE,
                u128::from(self.rate),
            );
            (
                u64::try_from(work / rate).unwrap_or(u64::MAX),
                (work % rate) as u64,
            )
        };
        SendingTime {
            bytes,
            whole: Span::from_nanos(whole),
            rest,
        }
    }

    /// Work from `now` to `sent`, which is later.
    fn remaining_work(&self, now: Time, sent: PreciseMoment) -> u128 {
        let whole = u128::from(sent.by.duration_since(now).as_nanos()) * u128::from(self.rate);
        whole.saturating_sub(u128::from(sent.spare))
    }
}
