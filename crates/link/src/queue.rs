use fullpipe_record::{Fate, Framing, PathDirection, Queueing};
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::codel::Codel;
use crate::fifo::Fifo;
use crate::fq_codel::FqCodel;
use crate::limit::Limit;
use crate::load::Load;
use crate::log::Log;
use crate::train::{cut, sieve};
use crate::{Tally, Train};

/// The queue before the link: what it accepts, and what is sent next.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    framing: Framing,
    limit: Limit,
    discipline: Discipline<T>,
}

#[derive(Debug)]
enum Discipline<T> {
    DropTail { fifo: Fifo<T>, marks_above: Option<ByteCount> },
    Codel { fifo: Fifo<T>, codel: Codel },
    FqCodel(Box<FqCodel<T>>),
}

impl<T: Train> Queue<T> {
    /// A queue without limits never overflows.
    pub(crate) fn new(path: &PathDirection) -> Self {
        let packet = path.mtu + path.framing.overhead();
        let fifo = || Fifo::new(path.framing);
        let discipline = match path.effects.queueing {
            Queueing::DropTail => Discipline::DropTail { fifo: fifo(), marks_above: None },
            Queueing::Threshold(bytes) => Discipline::DropTail { fifo: fifo(), marks_above: Some(bytes) },
            Queueing::Codel(codel) => Discipline::Codel { fifo: fifo(), codel: Codel::new(codel, packet) },
            Queueing::FqCodel(codel) => Discipline::FqCodel(Box::new(FqCodel::new(codel, packet, path.framing))),
        };
        Self { framing: path.framing, limit: Limit::new(path), discipline }
    }

    /// Packets that have not begun to be sent.
    pub(crate) fn held(&self) -> Tally {
        match &self.discipline {
            Discipline::DropTail { fifo, .. } | Discipline::Codel { fifo, .. } => fifo.held(),
            Discipline::FqCodel(flows) => flows.held(),
        }
    }

    /// Takes in what finds room of `train` while `sending` is on the link; what does not.
    pub(crate) fn accept(&mut self, at: Time, train: T, sending: Tally, log: &mut Log<T>) -> Option<T> {
        let mut backlog = self.held().plus(sending);
        let room = self.limit.room(backlog, Load::of(&train, self.framing));
        if room >= train.segments() {
            self.push(at, train, sending, log);
            return None;
        }
        if self.drops_from_fattest() {
            let (accepted, rest) = cut(train, room);
            if let Some(train) = accepted {
                self.push(at, train, sending, log);
            }
            return rest;
        }
        let sieved = sieve(train, self.framing, |load| {
            let room = self.limit.room(backlog, load);
            backlog.add(load.first(room).tally());
            room
        });
        for train in sieved.passed.into_iter().flatten() {
            self.push(at, train, sending, log);
        }
        sieved.stopped
    }

    /// Takes in `train`, which was accepted before this queue took over.
    pub(crate) fn resume(&mut self, at: Time, train: T) {
        self.fifo(0).push(at, train);
    }

    /// Returns true if a full queue accepts a packet all the same, and drops others.
    pub(crate) fn drops_from_fattest(&self) -> bool {
        matches!(self.discipline, Discipline::FqCodel(_))
    }

    /// Takes in `packet`, and drops others until all have room while `sending` is on the link.
    pub(crate) fn force(&mut self, at: Time, packet: T, sending: Tally, log: &mut Log<T>) {
        self.push(at, packet, sending, log);
        let Discipline::FqCodel(flows) = &mut self.discipline else { return };
        while self.limit.is_exceeded(flows.held().plus(sending)) {
            let queue = flows.held().plus(sending).bytes;
            let Some(train) = flows.drop_from_fattest() else { return };
            log.note(at, Fate::Overflowed, Some(queue), &train);
        }
    }

    /// Chooses the packet that is sent next; whether there is one.
    pub(crate) fn choose(&mut self, now: Time, log: &mut Log<T>) -> bool {
        match &mut self.discipline {
            Discipline::DropTail { fifo, .. } => fifo.held().segments > SegCount::ZERO,
            Discipline::Codel { fifo, codel } => codel.choose(now, fifo, log).is_some(),
            Discipline::FqCodel(flows) => flows.choose(now, log).is_some(),
        }
    }

    /// Begins to send what was chosen, at most so many packets and all of one train.
    pub(crate) fn begin(&mut self, most: SegCount) -> Option<Load> {
        // Each packet is chosen on its own where the choice may fall on another next time.
        match &mut self.discipline {
            Discipline::DropTail { fifo, .. } => fifo.begin(most),
            Discipline::Codel { fifo, .. } => fifo.begin(SegCount::new(1)),
            Discipline::FqCodel(flows) => flows.begin(),
        }
    }

    /// Packets of the train in service that have begun.
    pub(crate) fn begun(&mut self) -> SegCount {
        let serving = self.serving();
        self.fifo(serving).begun()
    }

    /// The place of the queue that is served.
    pub(crate) fn serving(&self) -> usize {
        match &self.discipline {
            Discipline::DropTail { .. } | Discipline::Codel { .. } => 0,
            Discipline::FqCodel(flows) => flows.serving(),
        }
    }

    /// The queue at this place.
    pub(crate) fn fifo(&mut self, place: usize) -> &mut Fifo<T> {
        match &mut self.discipline {
            Discipline::DropTail { fifo, .. } | Discipline::Codel { fifo, .. } => fifo,
            Discipline::FqCodel(flows) => flows.fifo(place),
        }
    }

    /// A packet is marked that finds more than the threshold before it, so the first packets of a train may not be.
    fn push(&mut self, at: Time, train: T, sending: Tally, log: &mut Log<T>) {
        match &mut self.discipline {
            Discipline::DropTail { fifo, marks_above: Some(threshold) } => {
                let load = Load::of(&train, self.framing);
                let backlog = fifo.held().plus(sending).bytes;
                let unmarked = if backlog > *threshold {
                    SegCount::ZERO
                } else {
                    load.packets_in(*threshold - backlog) + SegCount::new(1)
                };
                let (before, behind) = cut(train, unmarked);
                if let Some(train) = before {
                    fifo.push(at, train);
                }
                if let Some(mut train) = behind {
                    if train.mark_ce() {
                        log.note(at, Fate::Marked, Some(backlog), &train);
                    }
                    fifo.push(at, train);
                }
            }
            Discipline::DropTail { fifo, .. } | Discipline::Codel { fifo, .. } => fifo.push(at, train),
            Discipline::FqCodel(flows) => flows.push(at, train),
        }
    }
}
