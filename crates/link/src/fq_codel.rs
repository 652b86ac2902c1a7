use std::collections::VecDeque;

use fullpipe_record::{Codel as Parameters, Framing};
use fullpipe_units::{ByteCount, SegCount, Time};

use crate::codel::CodelState;
use crate::fifo::{NextPacket, TrainFifo};
use crate::load::TrainLoad;
use crate::log::DirectionLog;
use crate::{PacketTally, Train};

/// Queues of connections, served in turn by deficit round robin, each under CoDel: RFC 8290,
/// section 4.
#[derive(Debug)]
pub(crate) struct FqCodel<T> {
    flows: Vec<FlowQueue<T>>,
    /// Connections that just began to send, and those that go on; each by the place of its queue.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    /// Bytes that a queue sends in its turn: one packet.
    quantum: i64,
    /// The queue whose packet is being sent.
    serving: usize,
    held: PacketTally,
}

#[derive(Debug)]
struct FlowQueue<T> {
    fifo: TrainFifo<T>,
    codel: CodelState,
    /// Bytes that it may still send in this turn.
    deficit: i64,
    /// True if it is in `new` or `old`.
    listed: bool,
}

/// Queues (5.1).
const FLOWS: usize = 1024;

impl<T: Train> FqCodel<T> {
    /// `packet` is the largest packet.
    pub(crate) fn new(parameters: Parameters, packet: ByteCount, framing: Framing) -> Self {
        let flows = std::iter::repeat_with(|| FlowQueue {
            fifo: TrainFifo::new(framing),
            codel: CodelState::new(parameters, packet),
            deficit: 0,
            listed: false,
        });
        Self {
            flows: flows.take(FLOWS).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum: i64::try_from(packet.get()).unwrap_or(i64::MAX),
            serving: 0,
            held: PacketTally::default(),
        }
    }

    /// Packets that have not begun to be sent.
    pub(crate) fn waiting_tally(&self) -> PacketTally {
        self.held
    }

    /// The queue whose packet is being sent.
    pub(crate) fn serving_index(&self) -> usize {
        self.serving
    }

    pub(crate) fn fifo_mut(&mut self, index: usize) -> &mut TrainFifo<T> {
        &mut self.flows[index].fifo
    }

    pub(crate) fn push(&mut self, came: Time, train: T) {
        let index = queue_index(train.flow_hash());
        let flow = &mut self.flows[index];
        self.held.add(flow.fifo.tally_of_train(&train));
        flow.fifo.push(came, train);
        if !flow.listed {
            (flow.listed, flow.deficit) = (true, self.quantum);
            self.new.push_back(index);
        }
    }

    /// The next packet of the queue in which most bytes wait (4.1.2); `None` where none waits.
    pub(crate) fn drop_from_fattest(&mut self) -> Option<T> {
        // Of equals the first, so that the result is the same everywhere.
        let fattest = self
            .flows
            .iter_mut()
            .rev()
            .max_by_key(|flow| flow.fifo.waiting_tally().bytes)?;
        let train = fattest.fifo.take_next()?;
        self.held
            .subtract_packets(fattest.fifo.tally_of_train(&train));
        Some(train)
    }

    /// The packet whose turn it is (4.2).
    pub(crate) fn choose_next(
        &mut self,
        now: Time,
        log: &mut DirectionLog<T>,
    ) -> Option<NextPacket> {
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = flow.fifo.waiting_tally();
            let next = flow.codel.choose_next(now, &mut flow.fifo, log);
            self.held
                .subtract_packets(before.difference_from(flow.fifo.waiting_tally()));
            if let Some(next) = next {
                flow.deficit -= i64::try_from(next.bytes.get()).unwrap_or(i64::MAX);
                self.serving = index;
                return Some(next);
            }
            list.pop_front();
            // A queue that was new waits once behind the old ones, lest a connection be new again
            // with every packet.
            if from_new && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                flow.listed = false;
            }
        }
    }

    /// Begins to send the packet that was chosen.
    pub(crate) fn begin_service(&mut self) -> Option<TrainLoad> {
        let load = self.flows[self.serving]
            .fifo
            .begin_service(SegCount::new(1))?;
        self.held.subtract_packets(load.to_tally());
        Some(load)
    }
}

/// Fibonacci hashing: the top ten bits of the product.
fn queue_index(flow: u64) -> usize {
    (flow.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
}
