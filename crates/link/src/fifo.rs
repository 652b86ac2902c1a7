use std::collections::VecDeque;

use fullpipe_record::Framing;
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::load::TrainLoad;
use crate::{PacketTally, Train};

/// Trains in the order in which they came. Packets of the first are sent while it stays here whole,
/// so that only a train of which a packet fares differently is cut.
#[derive(Debug)]
pub(crate) struct TrainFifo<T> {
    framing: Framing,
    trains: VecDeque<WaitingTrain<T>>,
    /// Packets of the first train that the link has begun to send.
    begun: SegCount,
    /// All others.
    held: PacketTally,
}

#[derive(Debug)]
struct WaitingTrain<T> {
    came: Time,
    train: T,
}

/// The next packet to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextPacket {
    pub(crate) came: Time,
    pub(crate) bytes: ByteCount,
}

impl<T: Train> TrainFifo<T> {
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            framing,
            trains: VecDeque::new(),
            begun: SegCount::ZERO,
            held: PacketTally::default(),
        }
    }

    pub(crate) fn push(&mut self, came: Time, train: T) {
        self.held.add(self.tally_of_train(&train));
        self.trains.push_back(WaitingTrain { came, train });
    }

    pub(crate) fn tally_of_train(&self, train: &T) -> PacketTally {
        PacketTally::from_train(train, self.framing)
    }

    /// Packets that have not begun to be sent.
    pub(crate) fn waiting_tally(&self) -> PacketTally {
        self.held
    }

    /// The first packet that has not begun to be sent.
    pub(crate) fn next_packet(&self) -> Option<NextPacket> {
        let first = self.trains.front()?;
        if self.begun < first.train.segment_count() {
            let bytes = TrainLoad::from_train(&first.train, self.framing)
                .packets_after(self.begun)
                .packet_bytes();
            return Some(NextPacket {
                came: first.came,
                bytes,
            });
        }
        let second = self.trains.get(1)?;
        Some(NextPacket {
            came: second.came,
            bytes: TrainLoad::from_train(&second.train, self.framing).packet_bytes(),
        })
    }

    /// Returns true if the next packet belongs to the train of which others have begun.
    pub(crate) fn goes_on(&self) -> bool {
        self.trains
            .front()
            .is_some_and(|first| self.begun < first.train.segment_count())
    }

    /// Packets of the first train that have begun.
    pub(crate) fn begun_segments(&self) -> SegCount {
        self.begun
    }

    /// Begins to send the next packets, at most so many and all of one train; `None` where none is
    /// left.
    pub(crate) fn begin_service(&mut self, most: SegCount) -> Option<TrainLoad> {
        let first = self.trains.front()?;
        let load = TrainLoad::from_train(&first.train, self.framing)
            .packets_after(self.begun)
            .first_packets(most);
        self.begun += load.segments;
        self.held.subtract_packets(load.to_tally());
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
        self.held.subtract_packets(self.tally_of_train(&train));
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
        self.split_train(index, SegCount::new(1));
        (index < self.trains.len()).then_some(index)
    }

    fn split_begun(&mut self) {
        self.split_train(0, self.begun);
    }

    /// Cuts the train at `index` behind its first `at` packets, where both sides have some.
    fn split_train(&mut self, index: usize, at: SegCount) {
        let Some(waiting) = self.trains.get_mut(index) else {
            return;
        };
        if at > SegCount::ZERO && at < waiting.train.segment_count() {
            let rest = WaitingTrain {
                came: waiting.came,
                train: waiting.train.split_off(at),
            };
            self.trains.insert(index + 1, rest);
        }
    }
}
