use std::collections::VecDeque;

use fullpipe_record::{Framing, PathDirection};
use fullpipe_units::{Ratio, SegCount, Span, Time};

use crate::bottleneck::{Bottleneck, Load};
use crate::counters::{Counters, Tally};
use crate::loss::Loss;
use crate::train::{Train, cut};

/// One direction of the path: loss, then a drop-tail queue, then the rate, then the delay.
///
/// Calls must not go back in time: each takes a time equal to or later than the call before it. In debug builds a call
/// that does go back panics.
#[derive(Debug)]
pub struct Direction<T> {
    framing: Framing,
    loss: Loss,
    bottleneck: Bottleneck,
    delay: Span,
    flying: VecDeque<Delivery<T>>,
    clock: Time,
    offered: Tally,
    lost: Tally,
    overflowed: Tally,
    delivered: Tally,
}

/// A train at the far end of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<T> {
    /// When its last bit arrives; a driver in real time is late by what has passed since.
    pub due: Time,
    /// What arrives.
    pub train: T,
}

/// What became of the packets of one train; together they are all that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Will be delivered.
    pub accepted: SegCount,
    /// Fell to chance.
    pub lost: SegCount,
    /// Found the queue full.
    pub overflowed: SegCount,
}

impl<T: Train> Direction<T> {
    /// An empty path. Where `path` does not say a rate, packets are sent at once; without a queue, none overflows;
    /// without a loss, none is lost. The MTU is the hosts' affair: no packet is too big here.
    ///
    /// `seed` decides which packets are lost. The two directions of a path need different seeds, or they lose packets
    /// with the same numbers.
    pub fn new(path: &PathDirection, seed: u64) -> Self {
        Self {
            framing: path.framing,
            loss: Loss::new(path.loss.unwrap_or(Ratio::ZERO), seed),
            bottleneck: Bottleneck::new(path.rate, path.queue),
            delay: path.delay,
            flying: VecDeque::new(),
            clock: Time::ZERO,
            offered: Tally::default(),
            lost: Tally::default(),
            overflowed: Tally::default(),
            delivered: Tally::default(),
        }
    }

    /// Takes in `train`, which reached the path at `at`.
    ///
    /// Lost packets cut the train into pieces. Of each piece the queue accepts the packets from its first that find
    /// room; the others overflow.
    pub fn offer(&mut self, at: Time, train: T) -> Outcome {
        self.advance(at);
        self.offered.add(train.segments(), train.wire_bytes(self.framing));
        let mut outcome = Outcome::default();
        let mut rest = Some(train);
        while let Some(train) = rest {
            let passing = self.loss.passing(train.segments());
            let (piece, behind) = cut(train, passing);
            if let Some(piece) = piece {
                self.queue(at, piece, &mut outcome);
            }
            rest = behind.and_then(|behind| self.lose_first(behind, &mut outcome));
        }
        outcome
    }

    /// The next train that has arrived at `now`; `None` if there is none yet. A driver calls it until then.
    pub fn pop(&mut self, now: Time) -> Option<Delivery<T>> {
        self.advance(now);
        let delivery = self.flying.pop_front_if(|first| first.due <= now)?;
        self.delivered.add(delivery.train.segments(), delivery.train.wire_bytes(self.framing));
        Some(delivery)
    }

    /// When the next train arrives; `None` if the path is empty.
    pub fn next_deadline(&self) -> Option<Time> {
        self.flying.front().map(|first| first.due)
    }

    /// What the path has done up to `now`, which is not earlier than the last call.
    pub fn counters(&self, now: Time) -> Counters {
        let accepted = self.offered.bytes.saturating_sub(self.lost.bytes + self.overflowed.bytes);
        Counters {
            offered: self.offered,
            lost: self.lost,
            overflowed: self.overflowed,
            delivered: self.delivered,
            sent: accepted.saturating_sub(self.bottleneck.backlog(now)),
            busy: self.bottleneck.busy(now),
            max_backlog: self.bottleneck.max_backlog(),
        }
    }

    fn advance(&mut self, now: Time) {
        debug_assert!(now >= self.clock, "a call at {now:?} after one at {:?}", self.clock);
        self.clock = now;
    }

    fn queue(&mut self, at: Time, piece: T, outcome: &mut Outcome) {
        let admission = self.bottleneck.admit(at, Load::of(&piece, self.framing));
        let (accepted, overflowed) = cut(piece, admission.packets);
        if let Some(train) = accepted {
            outcome.accepted += train.segments();
            self.flying.push_back(Delivery { due: admission.sent + self.delay, train });
        }
        if let Some(train) = overflowed {
            outcome.overflowed += train.segments();
            self.overflowed.add(train.segments(), train.wire_bytes(self.framing));
        }
    }

    /// Loses the first packet of `train` and returns the others.
    fn lose_first(&mut self, train: T, outcome: &mut Outcome) -> Option<T> {
        let (first, rest) = cut(train, SegCount::new(1));
        if let Some(first) = first {
            outcome.lost += first.segments();
            self.lost.add(first.segments(), first.wire_bytes(self.framing));
        }
        rest
    }
}
