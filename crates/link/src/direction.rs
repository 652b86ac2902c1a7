use std::collections::VecDeque;

use fullpipe_record::{
    Edit, Fate, Framing, NarrowLink, Path, PathChange, PathDirection, PathStep, TooBig,
};
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::bottleneck::BottleneckLink;
use crate::counters::DirectionCounters;
use crate::cutting::{LongestTrain, cut_first, cut_train};
use crate::delay_line::DelayLine;
use crate::express::ExpressLink;
use crate::load::TrainLoad;
use crate::log::{DirectionLog, PacketIncident};
use crate::loss::LossProcess;
use crate::policer::PolicerState;
use crate::train::{EditEffect, SievedTrain, Train, sieve_train, split_train_at};

/// One direction of the path; [the crate](crate) describes its stages and their order.
///
/// Calls must not go back in time: each takes a time equal to or later than the call before it. In
/// debug builds a call that does go back panics.
#[derive(Debug)]
pub struct LinkDirection<T> {
    framing: Framing,
    longest: LongestTrain,
    loss: LossProcess,
    /// Each with the packets that it changed.
    edits: Vec<(Edit, SegCount)>,
    narrow: Option<NarrowLink>,
    policer: Option<PolicerState>,
    /// True if nothing of these three is in front of the queue.
    reaches_queue: bool,
    /// In the place of the two below, for as long as the path is plain enough.
    express: Option<ExpressLink<T>>,
    bottleneck: BottleneckLink<T>,
    delay_line: DelayLine<T>,
    /// Changes that are still to come, in order.
    steps: VecDeque<PathStep>,
    clock: Time,
    log: DirectionLog<T>,
}

/// A train at the far end of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivedTrain<T> {
    /// When its last bit arrives; a driver in real time is late by what has passed since.
    pub due: Time,
    /// The packets that arrive.
    pub train: T,
}

/// The fate of the packets of one train on their way into the queue; together they are all that was
/// offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOutcome<T> {
    /// Will be sent, if the queue's management does not drop them yet.
    pub accepted: SegCount,
    /// Fell to chance, or to the list of packets to lose.
    pub lost: SegCount,
    /// Had no hops left at a router.
    pub expired: SegCount,
    /// Were larger than the narrow link's MTU.
    pub too_big: SegCount,
    /// Found too few tokens at the policer.
    pub policed: SegCount,
    /// Found the queue full. FQ-CoDel accepts all, and drops others in their place.
    pub overflowed: SegCount,
    /// A router's answer, to be offered to the other direction: one for a train, as routers limit
    /// their answers (RFC 1812, 4.3.2.8).
    pub reply: Option<T>,
}

impl<T> Default for QueueOutcome<T> {
    fn default() -> Self {
        Self {
            accepted: SegCount::ZERO,
            lost: SegCount::ZERO,
            expired: SegCount::ZERO,
            too_big: SegCount::ZERO,
            policed: SegCount::ZERO,
            overflowed: SegCount::ZERO,
            reply: None,
        }
    }
}

impl<T> QueueOutcome<T> {
    /// Adds that of packets behind these, of which a router answers the first alone.
    fn add_outcome(&mut self, behind: Self) {
        self.accepted += behind.accepted;
        self.lost += behind.lost;
        self.expired += behind.expired;
        self.too_big += behind.too_big;
        self.policed += behind.policed;
        self.overflowed += behind.overflowed;
        self.reply = self.reply.take().or(behind.reply);
    }
}

impl<T: Train> LinkDirection<T> {
    /// Both directions of `path`, empty, forward first: the same `seed` means the same losses for
    /// every driver.
    pub fn new_pair(path: &Path, seed: u64) -> [Self; 2] {
        let seed = seed.wrapping_mul(2);
        [
            Self::new(&path.forward, seed),
            Self::new(&path.reverse, seed.wrapping_add(1)),
        ]
    }

    /// An empty path, which begins at [`Time::ZERO`]. Where `path` does not say a rate, packets are
    /// sent at once; without a queue, none overflows; without a loss, none is lost. The path's MTU
    /// is the hosts' affair: only a narrow link finds packets too big.
    ///
    /// `seed` decides what falls to chance. The two directions of a path need different seeds, or
    /// they lose packets with the same numbers.
    pub fn new(path: &PathDirection, seed: u64) -> Self {
        let effects = &path.effects;
        let mut steps = effects.steps.clone();
        steps.sort_by_key(|step| step.after);
        let edits = effects.edits.iter().map(|edit| (*edit, SegCount::ZERO));
        Self {
            framing: path.framing,
            longest: LongestTrain::new(path),
            loss: LossProcess::new(path, seed),
            edits: edits.collect(),
            narrow: effects.narrow,
            policer: effects.policer.map(PolicerState::new),
            reaches_queue: effects.edits.is_empty()
                && effects.narrow.is_none()
                && effects.policer.is_none(),
            express: ExpressLink::new(path),
            bottleneck: BottleneckLink::new(path),
            delay_line: DelayLine::new(path, seed),
            steps: steps.into(),
            clock: Time::ZERO,
            log: DirectionLog::new(path.framing),
        }
    }

    /// Returns the packets of a host's `train` as this direction carries them, in order: in trains
    /// that it sends within 100 µs at the lowest rate that is planned, and a pair as single
    /// packets, as [`cut_train`] says.
    pub fn cut_train(&self, train: T) -> impl Iterator<Item = T> + use<T> {
        cut_train(train, self.longest.segments)
    }

    /// Takes the first of the parts of [`Self::cut_train`] out of `train`; `None` if there is one
    /// alone.
    #[inline]
    pub fn cut_first(&self, train: &mut T) -> Option<T> {
        cut_first(train, self.longest.segments)
    }

    /// Takes in `train`, which reached the path at `at`.
    ///
    /// Lost packets cut the train into several. Of each, a stage accepts the packets that it would
    /// accept one by one.
    #[inline]
    pub fn offer_train(&mut self, at: Time, train: T) -> QueueOutcome<T> {
        self.advance_to(at);
        let load = TrainLoad::from_train(&train, self.framing);
        self.log.counters.offered.add(load.to_tally());
        let passing = self.loss.passing_segments(&train);
        if passing < load.segments {
            return self.offer_in_parts(at, train, passing);
        }
        match &mut self.express {
            Some(express) if self.reaches_queue => {
                let accepted = express.accept_train(at, train, load, &mut self.log);
                QueueOutcome {
                    accepted,
                    overflowed: load.segments - accepted,
                    ..QueueOutcome::default()
                }
            }
            _ => self.enter_stages(at, train),
        }
    }

    /// Takes in `train`, of which a packet is lost behind the first `passing`.
    // Apart from the way of a train that is whole, which is short so.
    #[inline(never)]
    fn offer_in_parts(&mut self, at: Time, train: T, passing: SegCount) -> QueueOutcome<T> {
        let mut outcome = QueueOutcome::default();
        let mut rest = Some((train, passing));
        while let Some((train, passing)) = rest {
            let (train, behind) = split_train_at(train, passing);
            if let Some(train) = train {
                outcome.add_outcome(self.enter_stages(at, train));
            }
            let behind = behind.and_then(|behind| self.lose_first(at, behind, &mut outcome));
            rest = behind.map(|behind| {
                let passing = self.loss.passing_segments(&behind);
                (behind, passing)
            });
        }
        outcome
    }

    /// The next train that has arrived at `now`; `None` if there is none yet. A driver calls it
    /// until then.
    #[inline]
    pub fn pop_arrived(&mut self, now: Time) -> Option<ArrivedTrain<T>> {
        self.check_order(now);
        match &self.express {
            // Nothing needs to be noted before something arrives.
            Some(express) if express.next_due.is_none_or(|due| due > now) => None,
            _ => self.take_arrived(now),
        }
    }

    fn take_arrived(&mut self, now: Time) -> Option<ArrivedTrain<T>> {
        self.clock = now;
        if let Some(express) = &mut self.express {
            return express.take_arrived(now, &mut self.log);
        }
        self.advance_stages(now);
        self.delay_line.take_arrived(now, &mut self.log)
    }

    /// A driver that calls [`LinkDirection::pop_arrived`] now needs to do so at this moment again:
    /// no train arrives before. `None` if the path is empty.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        match &self.express {
            Some(express) => express.next_due,
            None => self.next_deadline_of_stages(),
        }
    }

    #[inline(never)]
    fn next_deadline_of_stages(&self) -> Option<Time> {
        let due = self.delay_line.next_due();
        if due.is_some() && self.delay_line.keeps_order() {
            return due;
        }
        [due, self.next_departure()].into_iter().flatten().min()
    }

    /// Changes the path at `at`. A packet whose sending has begun is finished at the new rate. What
    /// has left the link keeps the delay that it had; a train of which packets are still being sent
    /// has the new one.
    pub fn change_path(&mut self, at: Time, change: &PathChange) {
        self.advance_to(at);
        if let Some(express) = self.express.take() {
            express.hand_over(at, &mut self.bottleneck, &mut self.delay_line);
        }
        self.apply_change(at, change);
        if let Some(rate) = change.rate {
            self.longest.set_rate(rate);
        }
    }

    /// Returns the counts up to `now`.
    pub fn counters_at(&mut self, now: Time) -> DirectionCounters {
        self.advance_to(now);
        match &self.express {
            Some(express) => express.add_progress(now, self.log.counters),
            None => self.bottleneck.add_progress(now, self.log.counters),
        }
    }

    /// Begins to keep incidents and to count edits anew, or ends it. A caller takes them often:
    /// there is no limit to their number.
    pub fn keep_incidents(&mut self, keep: bool) {
        self.log.keep_incidents(keep);
        self.edits
            .iter_mut()
            .for_each(|(_, packets)| *packets = SegCount::ZERO);
    }

    /// Returns the incidents since the last call; none unless they are kept.
    pub fn take_incidents(&mut self) -> Vec<PacketIncident<T>> {
        self.log.take_incidents()
    }

    /// Returns the edits of the path, each with the packets that it changed since incidents are
    /// kept.
    pub fn edit_counts(&self) -> &[(Edit, SegCount)] {
        &self.edits
    }

    /// Lets happen what happens by `now`, each event at its own time.
    #[inline]
    fn advance_to(&mut self, now: Time) {
        self.check_order(now);
        self.clock = now;
        match &mut self.express {
            Some(express) => express.advance_to(now, &mut self.log),
            None => self.advance_stages(now),
        }
    }

    #[inline]
    fn check_order(&self, now: Time) {
        debug_assert!(
            now >= self.clock,
            "a call at {now:?} after one at {:?}",
            self.clock
        );
    }

    fn advance_stages(&mut self, now: Time) {
        loop {
            let finish = self
                .bottleneck
                .finish_time()
                .filter(|finish| *finish <= now);
            // At the same moment, what has been sent leaves before the path changes.
            let step = self.steps.pop_front_if(|step| {
                finish.map_or(step_start(step) <= now, |finish| step_start(step) < finish)
            });
            match (step, finish) {
                (Some(step), _) => self.apply_change(step_start(&step), &step.change),
                (None, Some(finish)) => self.depart_sent(finish),
                (None, None) => return,
            }
        }
    }

    fn apply_change(&mut self, at: Time, change: &PathChange) {
        if let Some(rate) = change.rate {
            self.bottleneck.set_rate(at, rate);
        }
        if let Some(delay) = change.delay {
            self.delay_line.set_delay(delay);
        }
        if let Some(loss) = change.loss {
            self.loss.set_probability(loss);
        }
    }

    /// Moves what has been sent at `at` to the delay line, and begins to send the next.
    fn depart_sent(&mut self, at: Time) {
        if let Some(train) = self.bottleneck.make_way(at, &mut self.log) {
            self.delay_line.enqueue_train(at, train, &mut self.log);
        }
        self.bottleneck
            .go_on(at, self.delay_line.uniform_segments());
    }

    /// No packet that has not taken off arrives before this.
    fn next_departure(&self) -> Option<Time> {
        let finish = self.bottleneck.finish_time();
        if self.steps.is_empty() && self.delay_line.keeps_order() {
            return finish.map(|finish| finish + self.delay_line.fixed_delay());
        }
        let step = self
            .steps
            .front()
            .filter(|_| !self.bottleneck.is_idle())
            .map(step_start);
        [finish, step].into_iter().flatten().min()
    }

    /// Sends `train`, which was not lost, through the stages up to the queue.
    // As above: a plain path has no such stages.
    #[inline(never)]
    fn enter_stages(&mut self, at: Time, mut train: T) -> QueueOutcome<T> {
        if let Some(edit) = self.edit_until_stopped(&mut train) {
            self.record_incident(at, Fate::Expired, &train);
            let reply = if let Edit::Router(address) = edit {
                train.time_exceeded(address)
            } else {
                None
            };
            return QueueOutcome {
                expired: train.segment_count(),
                reply,
                ..QueueOutcome::default()
            };
        }
        if self.narrow.is_none() && self.policer.is_none() {
            return self.queue_train(at, train);
        }
        let mut outcome = QueueOutcome::default();
        for narrow in self.pass_mtu(at, train, &mut outcome).into_iter().flatten() {
            for train in self
                .pass_policer(at, narrow, &mut outcome)
                .into_iter()
                .flatten()
            {
                outcome.add_outcome(self.queue_train(at, train));
            }
        }
        outcome
    }

    /// Edits `train`. Returns the edit at which it goes no further.
    fn edit_until_stopped(&mut self, train: &mut T) -> Option<Edit> {
        for (edit, packets) in &mut self.edits {
            match train.apply_edit(edit) {
                EditEffect::Unchanged => {}
                EditEffect::Changed => *packets += train.segment_count(),
                EditEffect::Stopped => return Some(*edit),
            }
        }
        None
    }

    /// Notes what happened to packets before the queue.
    fn record_incident(&mut self, at: Time, fate: Fate, train: &T) {
        self.log
            .record_fate(at, fate, Some(self.backlog_bytes(at)), train);
    }

    /// Returns the bytes that wait or are being sent.
    fn backlog_bytes(&self, at: Time) -> ByteCount {
        match &self.express {
            Some(express) => express.backlog_at(at).bytes,
            None => self.bottleneck.backlog_bytes(at),
        }
    }

    fn pass_mtu(&mut self, at: Time, train: T, outcome: &mut QueueOutcome<T>) -> [Option<T>; 2] {
        let Some(narrow) = self.narrow else {
            return [Some(train), None];
        };
        let SievedTrain { passed, stopped } = sieve_train(train, Framing::Ip, |load| {
            if load.packet_bytes() <= narrow.mtu {
                load.segments
            } else {
                SegCount::ZERO
            }
        });
        if let Some(train) = stopped {
            outcome.too_big += train.segment_count();
            self.record_incident(at, Fate::TooBig, &train);
            if narrow.too_big == TooBig::Answered && outcome.reply.is_none() {
                outcome.reply = train.too_big(narrow.mtu);
            }
        }
        passed
    }

    fn pass_policer(
        &mut self,
        at: Time,
        train: T,
        outcome: &mut QueueOutcome<T>,
    ) -> [Option<T>; 2] {
        let Some(policer) = &mut self.policer else {
            return [Some(train), None];
        };
        let SievedTrain { passed, stopped } = sieve_train(train, self.framing, |load| {
            policer.passing_packets(at, load)
        });
        if let Some(train) = stopped {
            outcome.policed += train.segment_count();
            self.record_incident(at, Fate::Policed, &train);
        }
        passed
    }

    fn queue_train(&mut self, at: Time, train: T) -> QueueOutcome<T> {
        let segments = train.segment_count();
        let accepted = if let Some(express) = &mut self.express {
            let load = TrainLoad::from_train(&train, self.framing);
            express.accept_train(at, train, load, &mut self.log)
        } else if self.bottleneck.is_unlimited() {
            self.log.counters.sent += train.wire_bytes(self.framing);
            self.delay_line.enqueue_train(at, train, &mut self.log);
            segments
        } else {
            self.bottleneck.accept_train(
                at,
                train,
                self.delay_line.uniform_segments(),
                &mut self.log,
            )
        };
        QueueOutcome {
            accepted,
            overflowed: segments - accepted,
            ..QueueOutcome::default()
        }
    }

    /// Loses the first packet of `train` and returns the others.
    fn lose_first(&mut self, at: Time, train: T, outcome: &mut QueueOutcome<T>) -> Option<T> {
        let (first, rest) = split_train_at(train, SegCount::new(1));
        if let Some(first) = first {
            outcome.lost += first.segment_count();
            self.record_incident(at, Fate::Lost, &first);
        }
        rest
    }
}

/// When a step of the path comes.
fn step_start(step: &PathStep) -> Time {
    Time::ZERO + step.after
}
