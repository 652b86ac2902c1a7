use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use fullpipe_record::{Effects, Fate, Framing, PathDirection};
use fullpipe_units::{Ratio, SegCount, Span, Time};

use crate::chance::HitChance;
use crate::jitter::JitterSampler;
use crate::log::DirectionLog;
use crate::train::split_train_at;
use crate::{ArrivedTrain, PacketTally, Train};

/// The part behind the link: wrong bits, copies, the delay, and changes of the order.
#[derive(Debug)]
pub(crate) struct DelayLine<T> {
    framing: Framing,
    /// True if the path does nothing here but delay.
    calm: bool,
    corruption: HitChance,
    duplication: HitChance,
    delay: Span,
    jitter: Option<JitterSampler>,
    held_back: HitChance,
    held_back_by: Span,
    /// Packets that keep their order among each other.
    ordered: VecDeque<PropagatingTrain<T>>,
    /// Packets that others may pass.
    free: BinaryHeap<PropagatingTrain<T>>,
    /// When the last packet that keeps the order arrives.
    last_due: Time,
    /// Packets that have taken off.
    launched: u64,
    /// Packets up to the last in order that has landed.
    landed: u64,
}

#[derive(Debug)]
struct PropagatingTrain<T> {
    due: Time,
    /// Of its first packet, counted as they took off.
    number: u64,
    train: T,
}

/// Seeds of the stages, so that each draws numbers of its own.
const CORRUPTION: u64 = 1 << 56;
const DUPLICATION: u64 = 2 << 56;
const HELD_BACK: u64 = 3 << 56;
const JITTER: u64 = 4 << 56;

impl<T: Train> DelayLine<T> {
    pub(crate) fn new(path: &PathDirection, seed: u64) -> Self {
        let effects = &path.effects;
        let reordering = effects.reordering.unwrap_or_default();
        Self {
            framing: path.framing,
            calm: only_delays(effects),
            corruption: HitChance::new(effects.corrupted, seed ^ CORRUPTION),
            duplication: HitChance::new(effects.duplicated, seed ^ DUPLICATION),
            delay: path.delay,
            jitter: effects
                .jitter
                .as_ref()
                .map(|jitter| JitterSampler::new(jitter, seed ^ JITTER)),
            held_back: HitChance::new(reordering.share, seed ^ HELD_BACK),
            held_back_by: reordering.by,
            ordered: VecDeque::new(),
            free: BinaryHeap::new(),
            last_due: Time::ZERO,
            launched: 0,
            landed: 0,
        }
    }

    pub(crate) fn fixed_delay(&self) -> Span {
        self.delay
    }

    /// For what takes off from now on.
    pub(crate) fn set_delay(&mut self, delay: Span) {
        self.delay = delay;
    }

    /// Returns the number of next packets that are treated alike, and may propagate as one train.
    pub(crate) fn uniform_segments(&self) -> SegCount {
        if self.calm {
            return SegCount::new(u64::MAX);
        }
        if self.jitter.is_some() {
            return SegCount::new(1);
        }
        // A copy is a packet of its own to what is behind it, but it is of a packet that is alone.
        let gap = self
            .corruption
            .packets_before_hit()
            .min(self.duplication.packets_before_hit())
            .min(self.held_back.packets_before_hit());
        SegCount::new(gap.max(1))
    }

    /// Takes over what left the link at `departed`.
    pub(crate) fn enqueue_train(&mut self, departed: Time, train: T, log: &mut DirectionLog<T>) {
        if self.calm {
            return self.keep_in_order(departed + self.delay, train);
        }
        let mut rest = Some(train);
        while let Some(train) = rest {
            let (train, behind) = split_train_at(train, self.uniform_segments());
            if let Some(mut train) = train {
                if hits_train(&mut self.corruption, &train) {
                    train.corrupt_bit(self.corruption.next_random());
                    log.record_fate(departed, Fate::Corrupted, None, &train);
                }
                let copy = hits_train(&mut self.duplication, &train).then(|| train.clone());
                self.delay_one(departed, train);
                if let Some(copy) = copy {
                    log.record_fate(departed, Fate::Duplicated, None, &copy);
                    self.delay_one(departed, copy);
                }
            }
            rest = behind;
        }
    }

    /// Takes over what left the link at `departed`, before this part took over.
    pub(crate) fn resume_train(&mut self, departed: Time, train: T) {
        self.keep_in_order(departed + self.delay, train);
    }

    /// Returns true if no packet passes another.
    pub(crate) fn keeps_order(&self) -> bool {
        self.calm
            || self.held_back.packets_before_hit() == u64::MAX
                && self.jitter.as_ref().is_none_or(|jitter| !jitter.reorders)
    }

    /// When the next of what has taken off arrives.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.next_is_free().map(|free| {
            let next = if free {
                self.free.peek()
            } else {
                self.ordered.front()
            };
            next.map_or(Time::ZERO, |next| next.due)
        })
    }

    /// The next train that has arrived at `now`.
    pub(crate) fn take_arrived(
        &mut self,
        now: Time,
        log: &mut DirectionLog<T>,
    ) -> Option<ArrivedTrain<T>> {
        let next = match self.next_is_free()? {
            false => self.ordered.pop_front_if(|next| next.due <= now)?,
            true if self.free.peek()?.due <= now => self.free.pop()?,
            true => return None,
        };
        let tally = PacketTally::from_train(&next.train, self.framing);
        log.counters.delivered.add(tally);
        if next.number < self.landed {
            log.record_fate(next.due, Fate::Reordered, None, &next.train);
        } else {
            self.landed = next.number + tally.segments.get();
        }
        Some(ArrivedTrain {
            due: next.due,
            train: next.train,
        })
    }

    /// Returns true if the next packet to arrive is one that others may pass; `None` if nothing is
    /// propagating.
    fn next_is_free(&self) -> Option<bool> {
        match (self.ordered.front(), self.free.peek()) {
            (None, None) => None,
            (Some(ordered), Some(free)) => {
                Some((free.due, free.number) < (ordered.due, ordered.number))
            }
            (_, free) => Some(free.is_some()),
        }
    }

    fn delay_one(&mut self, departed: Time, train: T) {
        let held_back = hits_train(&mut self.held_back, &train);
        let jitter = self
            .jitter
            .as_mut()
            .map_or(Span::ZERO, JitterSampler::draw_delay);
        let free = held_back || self.jitter.as_ref().is_some_and(|jitter| jitter.reorders);
        let due = departed + self.delay + jitter;
        if free {
            let held_back = if held_back {
                self.held_back_by
            } else {
                Span::ZERO
            };
            let number = self.first_number(&train);
            self.free.push(PropagatingTrain {
                due: due + held_back,
                number,
                train,
            });
        } else {
            self.keep_in_order(due, train);
        }
    }

    fn keep_in_order(&mut self, due: Time, train: T) {
        self.last_due = self.last_due.max(due);
        let number = self.first_number(&train);
        self.ordered.push_back(PropagatingTrain {
            due: self.last_due,
            number,
            train,
        });
    }

    /// The number of the first packet of `train`, which takes off.
    fn first_number(&mut self, train: &T) -> u64 {
        let number = self.launched;
        self.launched += train.segment_count().get();
        number
    }
}

/// Returns true if packets behind the link are delayed, and nothing else happens to them.
pub(crate) fn only_delays(effects: &Effects) -> bool {
    let held_back = effects
        .reordering
        .map_or(Ratio::ZERO, |reordering| reordering.share);
    effects.jitter.is_none()
        && [effects.corrupted, effects.duplicated, held_back]
            .iter()
            .all(|share| *share == Ratio::ZERO)
}

/// Returns true if `chance` hits `train`, which is one packet or no more than it spares.
fn hits_train<T: Train>(chance: &mut HitChance, train: &T) -> bool {
    chance.passing_segments(train.segment_count()) < train.segment_count()
}

/// The first to arrive is the greatest, as a heap gives out the greatest first.
impl<T> Ord for PropagatingTrain<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl<T> PartialOrd for PropagatingTrain<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for PropagatingTrain<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for PropagatingTrain<T> {}
