use fullpipe_record::{Fate, Framing};
use fullpipe_units::{ByteCount, Time};

use crate::{DirectionCounters, PacketTally, Train};

/// Packets that did not arrive once, in order and as they were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketIncident<T> {
    /// Time at which it happened.
    pub at: Time,
    /// The fate of each of the packets.
    pub fate: Fate,
    /// Bytes that waited or were being sent, at a packet that was dropped or marked.
    pub queue: Option<ByteCount>,
    /// The packets.
    pub train: T,
}

/// The counts of one direction and, while they are asked for, its incidents.
#[derive(Debug)]
pub(crate) struct DirectionLog<T> {
    framing: Framing,
    pub(crate) counters: DirectionCounters,
    incidents: Option<Vec<PacketIncident<T>>>,
}

impl<T: Train> DirectionLog<T> {
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            framing,
            counters: DirectionCounters::default(),
            incidents: None,
        }
    }

    /// Begins to keep incidents, or ends it.
    pub(crate) fn keep_incidents(&mut self, keep: bool) {
        self.incidents = keep.then(Vec::new);
    }

    /// Returns the incidents since the last call.
    pub(crate) fn take_incidents(&mut self) -> Vec<PacketIncident<T>> {
        self.incidents
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Counts packets by their fate, and keeps them where that is asked for.
    pub(crate) fn record_fate(
        &mut self,
        at: Time,
        fate: Fate,
        queue: Option<ByteCount>,
        train: &T,
    ) {
        let (counters, tally) = (
            &mut self.counters,
            PacketTally::from_train(train, self.framing),
        );
        match fate {
            Fate::Lost => counters.lost.add(tally),
            Fate::Expired => counters.expired.add(tally),
            Fate::TooBig => counters.too_big.add(tally),
            Fate::Policed => counters.policed.add(tally),
            Fate::Overflowed => counters.overflowed.add(tally),
            Fate::AqmDropped => counters.aqm_dropped.add(tally),
            Fate::Marked => counters.marked += tally.segments,
            Fate::Corrupted => counters.corrupted += tally.segments,
            Fate::Duplicated => counters.duplicated.add(tally),
            Fate::Reordered => counters.reordered += tally.segments,
        }
        if let Some(incidents) = &mut self.incidents {
            incidents.push(PacketIncident {
                at,
                fate,
                queue,
                train: train.clone(),
            });
        }
    }
}
