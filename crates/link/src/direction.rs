use std::collections::VecDeque;

use fullpipe_record::{Edit, Fate, Framing, NarrowLink, Path, PathChange, PathDirection, PathStep, TooBig};
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::bottleneck::Bottleneck;
use crate::counters::Counters;
use crate::cutting::{LongestTrain, cut_first, cut_train};
use crate::delay_line::DelayLine;
use crate::express::Express;
use crate::load::Load;
use crate::log::{Incident, Log};
use crate::loss::Loss;
use crate::policer::Policer;
use crate::train::{Edited, Sieved, Train, cut, sieve};

/// One direction of the path; [the crate](crate) describes its stages and their order.
///
/// Calls must not go back in time: each takes a time equal to or later than the call before it. In debug builds a call
/// that does go back panics.
#[derive(Debug)]
pub struct Direction<T> {
    framing: Framing,
    longest: LongestTrain,
    loss: Loss,
    /// Each with the packets that it changed.
    edits: Vec<(Edit, SegCount)>,
    narrow: Option<NarrowLink>,
    policer: Option<Policer>,
    /// True if nothing of these three is in front of the queue.
    reaches_queue: bool,
    /// In the place of the two below, for as long as the path is plain enough.
    express: Option<Express<T>>,
    bottleneck: Bottleneck<T>,
    delay_line: DelayLine<T>,
    /// Changes that are still to come, in order.
    steps: VecDeque<PathStep>,
    clock: Time,
    log: Log<T>,
}

/// A train at the far end of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<T> {
    /// When its last bit arrives; a driver in real time is late by what has passed since.
    pub due: Time,
    /// The packets that arrive.
    pub train: T,
}

/// The fate of the packets of one train on their way into the queue; together they are all that was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<T> {
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
    /// A router's answer, to be offered to the other direction: one for a train, as routers limit their answers (RFC
    /// 1812, 4.3.2.8).
    pub reply: Option<T>,
}

impl<T> Default for Outcome<T> {
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

impl<T> Outcome<T> {
    /// Adds that of packets behind these, of which a router answers the first alone.
    fn add(&mut self, behind: Self) {
        self.accepted += behind.accepted;
        self.lost += behind.lost;
        self.expired += behind.expired;
        self.too_big += behind.too_big;
        self.policed += behind.policed;
        self.overflowed += behind.overflowed;
        self.reply = self.reply.take().or(behind.reply);
    }
}

impl<T: Train> Direction<T> {
    /// Both directions of `path`, empty, forward first: the same `seed` means the same losses for every driver.
    pub fn both(path: &Path, seed: u64) -> [Self; 2] {
        let seed = seed.wrapping_mul(2);
        [Self::new(&path.forward, seed), Self::new(&path.reverse, seed.wrapping_add(1))]
    }

    /// An empty path, which begins at [`Time::ZERO`]. Where `path` does not say a rate, packets are sent at once;
    /// without a queue, none overflows; without a loss, none is lost. The path's MTU is the hosts' affair: only a
    /// narrow link finds packets too big.
    ///
    /// `seed` decides what falls to chance. The two directions of a path need different seeds, or they lose packets
    /// with the same numbers.
    pub fn new(path: &PathDirection, seed: u64) -> Self {
        let mut steps = path.effects.steps.clone();
        steps.sort_by_key(|step| step.after);
        Self {
            framing: path.framing,
            longest: LongestTrain::new(path),
            loss: Loss::new(path, seed),
            edits: path.effects.edits.iter().map(|edit| (*edit, SegCount::ZERO)).collect(),
            narrow: path.effects.narrow,
            policer: path.effects.policer.map(Policer::new),
            reaches_queue: path.effects.edits.is_empty()
                && path.effects.narrow.is_none()
                && path.effects.policer.is_none(),
            express: Express::new(path),
            bottleneck: Bottleneck::new(path),
            delay_line: DelayLine::new(path, seed),
            steps: steps.into(),
            clock: Time::ZERO,
            log: Log::new(path.framing),
        }
    }

    /// Returns the packets of a host's `train` as this direction carries them, in order: in trains that it sends within
    /// 100 µs at the lowest rate that is planned, and a pair as single packets, as [`cut_train`] says.
    pub fn cut(&self, train: T) -> impl Iterator<Item = T> + use<T> {
        cut_train(train, self.longest.segments)
    }

    /// Takes the first of the parts of [`Self::cut`] out of `train`; `None` if there is one alone.
    #[inline]
    pub fn cut_first(&self, train: &mut T) -> Option<T> {
        cut_first(train, self.longest.segments)
    }

    /// Takes in `train`, which reached the path at `at`.
    ///
    /// Lost packets cut the train into several. Of each, a stage accepts the packets that it would accept one by one.
    #[inline]
    pub fn offer(&mut self, at: Time, train: T) -> Outcome<T> {
        self.advance(at);
        let load = Load::of(&train, self.framing);
        self.log.counters.offered.add(load.tally());
        let passing = self.loss.passing(&train);
        if passing < load.segments {
            return self.offer_in_parts(at, train, passing);
        }
        match &mut self.express {
            Some(express) if self.reaches_queue => {
                let accepted = express.accept(at, train, load, &mut self.log);
                Outcome { accepted, overflowed: load.segments - accepted, ..Outcome::default() }
            }
            _ => self.enter(at, train),
        }
    }

    /// Takes in `train`, of which a packet is lost behind the first `passing`.
    // Apart from the way of a train that is whole, which is short so.
    #[inline(never)]
    fn offer_in_parts(&mut self, at: Time, train: T, passing: SegCount) -> Outcome<T> {
        let mut outcome = Outcome::default();
        let mut rest = Some((train, passing));
        while let Some((train, passing)) = rest {
            let (train, behind) = cut(train, passing);
            if let Some(train) = train {
                outcome.add(self.enter(at, train));
            }
            let behind = behind.and_then(|behind| self.lose_first(at, behind, &mut outcome));
            rest = behind.map(|behind| {
                let passing = self.loss.passing(&behind);
                (behind, passing)
            });
        }
        outcome
    }

    /// The next train that has arrived at `now`; `None` if there is none yet. A driver calls it until then.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<Delivery<T>> {
        self.check(now);
        match &self.express {
            // Nothing needs to be noted before something arrives.
            Some(express) if express.next_due().is_none_or(|due| due > now) => None,
            _ => self.land(now),
        }
    }

    fn land(&mut self, now: Time) -> Option<Delivery<T>> {
        self.clock = now;
        if let Some(express) = &mut self.express {
            return express.land(now, &mut self.log);
        }
        self.advance_stages(now);
        self.delay_line.land(now, &mut self.log)
    }

    /// A driver that calls [`Direction::pop`] now needs to do so at this moment again: no train arrives before. `None`
    /// if the path is empty.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        match &self.express {
            Some(express) => express.next_due(),
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

    /// Changes the path at `at`. A packet whose sending has begun is finished at the new rate. What has left the link
    /// keeps the delay that it had; a train of which packets are still being sent has the new one.
    pub fn change(&mut self, at: Time, change: &PathChange) {
        self.advance(at);
        if let Some(express) = self.express.take() {
            express.hand_over(at, &mut self.bottleneck, &mut self.delay_line);
        }
        self.apply(at, change);
        if let Some(rate) = change.rate {
            self.longest.set_rate(rate);
        }
    }

    /// Returns the counts up to `now`.
    pub fn counters(&mut self, now: Time) -> Counters {
        self.advance(now);
        match &self.express {
            Some(express) => express.counted(now, self.log.counters),
            None => self.bottleneck.counted(now, self.log.counters),
        }
    }

    /// Begins to keep incidents and to count edits anew, or ends it. A caller takes them often: there is no limit to
    /// their number.
    pub fn keep_incidents(&mut self, keep: bool) {
        self.log.keep_incidents(keep);
        self.edits.iter_mut().for_each(|(_, packets)| *packets = SegCount::ZERO);
    }

    /// Returns the incidents since the last call; none unless they are kept.
    pub fn take_incidents(&mut self) -> Vec<Incident<T>> {
        self.log.take_incidents()
    }

    /// Returns the edits of the path, each with the packets that it changed since incidents are kept.
    pub fn edits(&self) -> &[(Edit, SegCount)] {
        &self.edits
    }

    /// Lets happen what happens by `now`, each event at its own time.
    #[inline]
    fn advance(&mut self, now: Time) {
        self.check(now);
        self.clock = now;
        match &mut self.express {
            Some(express) => express.advance(now, &mut self.log),
            None => self.advance_stages(now),
        }
    }

    #[inline]
    fn check(&self, now: Time) {
        debug_assert!(now >= self.clock, "a call at {now:?} after one at {:?}", self.clock);
    }

    fn advance_stages(&mut self, now: Time) {
        loop {
            let finish = self.bottleneck.finish().filter(|finish| *finish <= now);
            // At the same moment, what has been sent leaves before the path changes.
            let step =
                self.steps.pop_front_if(|step| finish.map_or(begins(step) <= now, |finish| begins(step) < finish));
            match (step, finish) {
                (Some(step), _) => self.apply(begins(&step), &step.change),
                (None, Some(finish)) => self.depart(finish),
                (None, None) => return,
            }
        }
    }

    fn apply(&mut self, at: Time, change: &PathChange) {
        if let Some(rate) = change.rate {
            self.bottleneck.set_rate(at, rate);
        }
        if let Some(delay) = change.delay {
            self.delay_line.set_delay(delay);
        }
        if let Some(loss) = change.loss {
            self.loss.set(loss);
        }
    }

    /// Moves what has been sent at `at` to the delay line, and begins to send the next.
    fn depart(&mut self, at: Time) {
        if let Some(train) = self.bottleneck.make_way(at, &mut self.log) {
            self.delay_line.enqueue(at, train, &mut self.log);
        }
        self.bottleneck.go_on(at, self.delay_line.alike());
    }

    /// No packet that has not taken off arrives before this.
    fn next_departure(&self) -> Option<Time> {
        let finish = self.bottleneck.finish();
        if self.steps.is_empty() && self.delay_line.keeps_order() {
            return finish.map(|finish| finish + self.delay_line.delay());
        }
        let step = self.steps.front().filter(|_| !self.bottleneck.is_idle()).map(begins);
        [finish, step].into_iter().flatten().min()
    }

    /// Sends `train`, which was not lost, through the stages up to the queue.
    // As above: a plain path has no such stages.
    #[inline(never)]
    fn enter(&mut self, at: Time, mut train: T) -> Outcome<T> {
        if let Some(edit) = self.stopping(&mut train) {
            self.note(at, Fate::Expired, &train);
            let reply = if let Edit::Router(address) = edit { train.time_exceeded(address) } else { None };
            return Outcome { expired: train.segments(), reply, ..Outcome::default() };
        }
        if self.narrow.is_none() && self.policer.is_none() {
            return self.queue(at, train);
        }
        let mut outcome = Outcome::default();
        for narrow in self.narrowed(at, train, &mut outcome).into_iter().flatten() {
            for train in self.policed(at, narrow, &mut outcome).into_iter().flatten() {
                outcome.add(self.queue(at, train));
            }
        }
        outcome
    }

    /// Edits `train`. Returns the edit at which it goes no further.
    fn stopping(&mut self, train: &mut T) -> Option<Edit> {
        for (edit, packets) in &mut self.edits {
            match train.apply(edit) {
                Edited::Unchanged => {}
                Edited::Changed => *packets += train.segments(),
                Edited::Stopped => return Some(*edit),
            }
        }
        None
    }

    /// Notes what happened to packets before the queue.
    fn note(&mut self, at: Time, fate: Fate, train: &T) {
        self.log.note(at, fate, Some(self.backlog(at)), train);
    }

    /// Returns the bytes that wait or are being sent.
    fn backlog(&self, at: Time) -> ByteCount {
        match &self.express {
            Some(express) => express.backlog(at).bytes,
            None => self.bottleneck.backlog(at),
        }
    }

    fn narrowed(&mut self, at: Time, train: T, outcome: &mut Outcome<T>) -> [Option<T>; 2] {
        let Some(narrow) = self.narrow else { return [Some(train), None] };
        let Sieved { passed, stopped } =
            sieve(train, Framing::Ip, |load| if load.packet() <= narrow.mtu { load.segments } else { SegCount::ZERO });
        if let Some(train) = stopped {
            outcome.too_big += train.segments();
            self.note(at, Fate::TooBig, &train);
            if narrow.too_big == TooBig::Answered && outcome.reply.is_none() {
                outcome.reply = train.too_big(narrow.mtu);
            }
        }
        passed
    }

    fn policed(&mut self, at: Time, train: T, outcome: &mut Outcome<T>) -> [Option<T>; 2] {
        let Some(policer) = &mut self.policer else { return [Some(train), None] };
        let Sieved { passed, stopped } = sieve(train, self.framing, |load| policer.pass(at, load));
        if let Some(train) = stopped {
            outcome.policed += train.segments();
            self.note(at, Fate::Policed, &train);
        }
        passed
    }

    fn queue(&mut self, at: Time, train: T) -> Outcome<T> {
        let segments = train.segments();
        let accepted = if let Some(express) = &mut self.express {
            let load = Load::of(&train, self.framing);
            express.accept(at, train, load, &mut self.log)
        } else if self.bottleneck.is_unlimited() {
            self.log.counters.sent += train.wire_bytes(self.framing);
            self.delay_line.enqueue(at, train, &mut self.log);
            segments
        } else {
            self.bottleneck.accept(at, train, self.delay_line.alike(), &mut self.log)
        };
        Outcome { accepted, overflowed: segments - accepted, ..Outcome::default() }
    }

    /// Loses the first packet of `train` and returns the others.
    fn lose_first(&mut self, at: Time, train: T, outcome: &mut Outcome<T>) -> Option<T> {
        let (first, rest) = cut(train, SegCount::new(1));
        if let Some(first) = first {
            outcome.lost += first.segments();
            self.note(at, Fate::Lost, &first);
        }
        rest
    }
}

/// When a step of the path comes.
fn begins(step: &PathStep) -> Time {
    Time::ZERO + step.after
}
