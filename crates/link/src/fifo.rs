use std::collections::VecDeque;

use fullpipe_record::Framing;
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::load::Load;
use crate::{Tally, Train};

/// Trains in the order in which they came. Packets of the first are sent while it stays here whole, so that only a
/// train of which a packet fares differently is cut.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    framing: Framing,
    trains: VecDeque<Waiting<T>>,
    /// Packets of the first train that the link has begun to send.
    begun: SegCount,
    /// All others.
    held: Tally,
}

#[derive(Debug)]
struct Waiting<T> {
    came: Time,
    train: T,
}

/// The next packet to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next {
    pub(crate) came: Time,
    pub(crate) bytes: ByteCount,
}

impl<T: Train> Fifo<T> {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, trains: VecDeque::new(), begun: SegCount::ZERO, held: Tally::default() }
    }

    pub(crate) fn push(&mut self, came: Time, train: T) {
        self.held.add(self.tally(&train));
        self.trains.push_back(Waiting { came, train });
    }

    pub(crate) fn tally(&self, train: &T) -> Tally {
        Tally::of(train, self.framing)
    }

    /// Packets that have not begun to be sent.
    pub(crate) fn held(&self) -> Tally {
        self.held
    }

    /// The first packet that has not begun to be sent.
    pub(crate) fn next(&self) -> Option<Next> {
        let first = self.trains.front()?;
        if self.begun < first.train.segments() {
            let bytes = Load::of(&first.train, self.framing).behind(self.begun).packet();
            return Some(Next { came: first.came, bytes });
        }
        let second = self.trains.get(1)?;
        Some(Next { came: second.came, bytes: Load::of(&second.train, self.framing).packet() })
    }

    /// Returns true if the next packet belongs to the train of which others have begun.
    pub(crate) fn goes_on(&self) -> bool {
        self.trains.front().is_some_and(|first| self.begun < first.train.segments())
    }

    /// Packets of the first train that have begun.
    pub(crate) fn begun(&self) -> SegCount {
        self.begun
    }

    /// Begins to send the next packets, at most so many and all of one train; `None` where none is left.
    pub(crate) fn begin(&mut self, most: SegCount) -> Option<Load> {
        let first = self.trains.front()?;
        let load = Load::of(&first.train, self.framing).behind(self.begun).first(most);
        self.begun += load.segments;
        self.held.remove(load.tally());
        Some(load)
    }

    /// Takes out the packets that have begun.
    pub(crate) fn take_begun(&mut self) -> Option<T> {
        self.split_begun();
        self.begun = SegCount::ZERO;
        self.trains.pop_front().map(|waiting| waiting.train)
    }

    /// Takes out the next packet.
    pub(crate) fn take_next(&mut self) -> Option<T> {
        let index = self.isolate_next()?;
        let train = self.trains.remove(index)?.train;
        self.held.remove(self.tally(&train));
        Some(train)
    }

    /// Marks the next packet and returns it; `None` if it could not.
    pub(crate) fn mark_next(&mut self) -> Option<&T> {
        let index = self.isolate_next()?;
        let train = &mut self.trains[index].train;
        train.mark_ce().then_some(&*train)
    }

    /// Makes the next packet a train of its own, and returns its place.
    fn isolate_next(&mut self) -> Option<usize> {
        self.split_begun();
        let index = usize::from(self.begun > SegCount::ZERO);
        self.split(index, SegCount::new(1));
        (index < self.trains.len()).then_some(index)
    }

    fn split_begun(&mut self) {
        self.split(0, self.begun);
    }

    /// Cuts the train at `index` behind its first `at` packets, where both sides have some.
    fn split(&mut self, index: usize, at: SegCount) {
        let Some(waiting) = self.trains.get_mut(index) else { return };
        if at > SegCount::ZERO && at < waiting.train.segments() {
            let rest = Waiting { came: waiting.came, train: waiting.train.split_off(at) };
            self.trains.insert(index + 1, rest);
        }
    }
}
