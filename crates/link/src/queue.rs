use fullpipe_record::{Fate, Framing, PathDirection, Queueing};
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::codel::CodelState;
use crate::fifo::TrainFifo;
use crate::fq_codel::FqCodel;
use crate::limit::QueueLimit;
use crate::load::TrainLoad;
use crate::log::DirectionLog;
use crate::train::{sieve_train, split_train_at};
use crate::{PacketTally, Train};

/// The queue before the link: what it accepts, and what is sent next.
#[derive(Debug)]
pub(crate) struct LinkQueue<T> {
    framing: Framing,
    limit: QueueLimit,
    discipline: QueueDiscipline<T>,
}

#[derive(Debug)]
enum QueueDiscipline<T> {
    DropTail {
        fifo: TrainFifo<T>,
        marks_above: Option<ByteCount>,
    },
    Codel {
        fifo: TrainFifo<T>,
        codel: CodelState,
    },
    FqCodel(Box<FqCodel<T>>),
}

impl<T: Train> LinkQueue<T> {
    /// A queue without limits never overflows.
    pub(crate) fn new(path: &PathDirection) -> Self {
        let packet = path.mtu + path.framing.packet_overhead();
        let fifo = TrainFifo::new(path.framing);
        let discipline = match path.effects.queueing {
            Queueing::DropTail => QueueDiscipline::DropTail {
                fifo,
                marks_above: None,
            },
            Queueing::Threshold(bytes) => QueueDiscipline::DropTail {
                fifo,
                marks_above: Some(bytes),
            },
            Queueing::Codel(codel) => QueueDiscipline::Codel {
                fifo,
                codel: CodelState::new(codel, packet),
            },
            Queueing::FqCodel(codel) => {
                QueueDiscipline::FqCodel(Box::new(FqCodel::new(codel, packet, path.framing)))
            }
        };
        Self {
            framing: path.framing,
            limit: QueueLimit::new(path),
            discipline,
        }
    }

    /// Packets that have not begun to be sent.
    pub(crate) fn waiting_tally(&self) -> PacketTally {
        match &self.discipline {
            QueueDiscipline::DropTail { fifo, .. } | QueueDiscipline::Codel { fifo, .. } => {
                fifo.waiting_tally()
            }
            QueueDiscipline::FqCodel(flows) => flows.waiting_tally(),
        }
    }

    /// Takes in what finds room of `train` while `sending` is on the link; what does not.
    pub(crate) fn accept_train(
        &mut self,
        at: Time,
        train: T,
        sending: PacketTally,
        log: &mut DirectionLog<T>,
    ) -> Option<T> {
        let mut backlog = self.waiting_tally().sum_with(sending);
        let room = self
            .limit
            .accepted_packets(backlog, TrainLoad::from_train(&train, self.framing));
        if room >= train.segment_count() {
            self.push(at, train, sending, log);
            return None;
        }
        if self.drops_from_fattest() {
            let (accepted, rest) = split_train_at(train, room);
            if let Some(train) = accepted {
                self.push(at, train, sending, log);
            }
            return rest;
        }
        let sieved = sieve_train(train, self.framing, |load| {
            let room = self.limit.accepted_packets(backlog, load);
            backlog.add(load.first_packets(room).to_tally());
            room
        });
        for train in sieved.passed.into_iter().flatten() {
            self.push(at, train, sending, log);
        }
        sieved.stopped
    }

    /// Takes in `train`, which was accepted before this queue took over.
    pub(crate) fn resume_train(&mut self, at: Time, train: T) {
        self.fifo_mut(0).push(at, train);
    }

    /// Returns true if a full queue accepts a packet all the same, and drops others.
    pub(crate) fn drops_from_fattest(&self) -> bool {
        matches!(self.discipline, QueueDiscipline::FqCodel(_))
    }

    /// Takes in `packet`, and drops others until all have room while `sending` is on the link.
    pub(crate) fn force_packet(
        &mut self,
        at: Time,
        packet: T,
        sending: PacketTally,
        log: &mut DirectionLog<T>,
    ) {
        self.push(at, packet, sending, log);
        let QueueDiscipline::FqCodel(flows) = &mut self.discipline else {
            return;
        };
        while self
            .limit
            .is_exceeded(flows.waiting_tally().sum_with(sending))
        {
            let queue = flows.waiting_tally().sum_with(sending).bytes;
            let Some(train) = flows.drop_from_fattest() else {
                return;
            };
            log.record_fate(at, Fate::Overflowed, Some(queue), &train);
        }
    }

    /// Chooses the packet that is sent next; whether there is one.
    pub(crate) fn choose_next(&mut self, now: Time, log: &mut DirectionLog<T>) -> bool {
        match &mut self.discipline {
            QueueDiscipline::DropTail { fifo, .. } => {
                fifo.waiting_tally().segments > SegCount::ZERO
            }
            QueueDiscipline::Codel { fifo, codel } => codel.choose_next(now, fifo, log).is_some(),
            QueueDiscipline::FqCodel(flows) => flows.choose_next(now, log).is_some(),
        }
    }

    /// Begins to send what was chosen, at most so many packets and all of one train.
    pub(crate) fn begin_service(&mut self, most: SegCount) -> Option<TrainLoad> {
        // Each packet is chosen on its own where the choice may fall on another next time.
        match &mut self.discipline {
            QueueDiscipline::DropTail { fifo, .. } => fifo.begin_service(most),
            QueueDiscipline::Codel { fifo, .. } => fifo.begin_service(SegCount::new(1)),
            QueueDiscipline::FqCodel(flows) => flows.begin_service(),
        }
    }

    /// Packets of the train in service that have begun.
    pub(crate) fn begun_segments(&mut self) -> SegCount {
        let serving = self.serving_index();
        self.fifo_mut(serving).begun_segments()
    }

    /// The place of the queue that is served.
    pub(crate) fn serving_index(&self) -> usize {
        match &self.discipline {
            QueueDiscipline::DropTail { .. } | QueueDiscipline::Codel { .. } => 0,
            QueueDiscipline::FqCodel(flows) => flows.serving_index(),
        }
    }

    /// The queue at this place.
    pub(crate) fn fifo_mut(&mut self, place: usize) -> &mut TrainFifo<T> {
        match &mut self.discipline {
            QueueDiscipline::DropTail { fifo, .. } | QueueDiscipline::Codel { fifo, .. } => fifo,
            QueueDiscipline::FqCodel(flows) => flows.fifo_mut(place),
        }
    }

    /// A packet is marked that finds more than the threshold before it, so the first packets of a
    /// train may not be.
    fn push(&mut self, at: Time, train: T, sending: PacketTally, log: &mut DirectionLog<T>) {
        match &mut self.discipline {
            QueueDiscipline::DropTail {
                fifo,
                marks_above: Some(threshold),
            } => {
                let load = TrainLoad::from_train(&train, self.framing);
                let backlog = fifo.waiting_tally().sum_with(sending).bytes;
                let unmarked = if backlog > *threshold {
                    SegCount::ZERO
                } else {
                    load.packets_in(*threshold - backlog) + SegCount::new(1)
                };
                let (before, behind) = split_train_at(train, unmarked);
                if let Some(train) = before {
                    fifo.push(at, train);
                }
                if let Some(mut train) = behind {
                    if train.mark_ce() {
                        log.record_fate(at, Fate::Marked, Some(backlog), &train);
                    }
                    fifo.push(at, train);
                }
            }
            QueueDiscipline::DropTail { fifo, .. } | QueueDiscipline::Codel { fifo, .. } => {
                fifo.push(at, train);
            }
            QueueDiscipline::FqCodel(flows) => flows.push(at, train),
        }
    }
}
