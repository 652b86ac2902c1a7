use fullpipe_units::{ByteCount, Time};

use super::preparation::FIRST_START;
use super::{Simulation, TransferStage};
use crate::division::{ArrivedPart, DividedTransfer};
use crate::flow::SimulatedFlow;

impl Simulation {
    /// Notes whether a connection of a transfer that ends by its bytes is over.
    #[inline]
    pub(super) fn settle_connection(&mut self, index: usize) {
        // Programs that write until they are stopped have no last byte before.
        if self.plan.request.bytes.is_some() || !self.is_flowing() {
            self.settle_last(index);
        }
    }

    fn settle_last(&mut self, index: usize) {
        if index >= self.own_flows().len() || self.is_over() {
            return;
        }
        let is_complete = match &self.divided {
            DividedTransfer::Equal => {
                self.pending -= usize::from(
                    self.flows
                        .get_mut(index)
                        .is_some_and(SimulatedFlow::ends_now),
                );
                self.pending == 0
            }
            DividedTransfer::Queue(queue) => {
                queue.remaining_bytes() == ByteCount::ZERO
                    && self.own_flows().iter().all(SimulatedFlow::is_over)
            }
            DividedTransfer::Ranges(_) => self.follow_ranges(index) || !self.receives_ranges(),
        };
        if is_complete || self.is_broken() {
            self.stage = TransferStage::Over { stopped: self.now };
        }
    }

    /// Returns true if all connections of the transfer that are open have given up.
    pub(crate) fn is_broken(&self) -> bool {
        let mut open = self
            .own_flows()
            .iter()
            .filter(|flow| !flow.is_closed())
            .peekable();
        open.peek().is_some() && open.all(|flow| flow.sender.is_dead())
    }

    /// Lets the receiving program of a connection ask for more when it has what it asked for, and
    /// close it when it comes to what another one receives. Returns whether everything is there.
    fn follow_ranges(&mut self, index: usize) -> bool {
        let (Some(flow), DividedTransfer::Ranges(ranges)) =
            (self.flows.get_mut(index), &mut self.divided)
        else {
            return false;
        };
        let (read, knows_at) = (
            flow.receiver.bytes_read(),
            self.now + self.plan.path.reverse.delay,
        );
        match ranges.record_arrival(index, read) {
            ArrivedPart::Part => return false,
            ArrivedPart::All => {
                if let Some(bytes) = ranges.next_range(index, read) {
                    flow.request_bytes(knows_at, bytes);
                }
                self.arm_deadline(index);
            }
            ArrivedPart::UpToAnother => {
                flow.close_connection(knows_at);
                let next = self.own_flows().len();
                if let DividedTransfer::Ranges(ranges) = &mut self.divided
                    && let Some(bytes) = ranges.next_range(next, ByteCount::ZERO)
                {
                    self.open_connection(knows_at + self.connection.handshake, bytes);
                }
            }
        }
        matches!(&self.divided, DividedTransfer::Ranges(ranges) if ranges.is_complete())
    }

    /// Returns true if a connection that has not given up is to receive more of what it was asked
    /// for.
    fn receives_ranges(&self) -> bool {
        let DividedTransfer::Ranges(ranges) = &self.divided else {
            return false;
        };
        let mut flows = self.own_flows().iter().enumerate();
        flows.any(|(index, flow)| ranges.is_receiving(index) && !flow.sender.is_dead())
    }

    /// Returns the bytes of a transfer that ends by its bytes which have not been read.
    pub(crate) fn missing_bytes(&self) -> ByteCount {
        let unassigned = match &self.divided {
            DividedTransfer::Equal => ByteCount::ZERO,
            DividedTransfer::Queue(queue) => queue.remaining_bytes(),
            DividedTransfer::Ranges(ranges) => return ranges.missing_bytes(),
        };
        let flows = self.own_flows().iter();
        unassigned + flows.map(SimulatedFlow::missing_bytes).sum::<ByteCount>()
    }

    /// Adds a connection whose sender is asked for so many bytes at `starts`.
    fn open_connection(&mut self, starts: Time, bytes: ByteCount) {
        let Self {
            plan,
            connection,
            forward,
            maker,
            flows,
            ..
        } = self;
        let mut flow = maker.make_flow(
            (&*plan, &*connection, &*forward),
            [starts; 2],
            FIRST_START,
            Some(ByteCount::ZERO),
        );
        flow.grant_bytes(bytes);
        let index = flows.len();
        flows.push(flow);
        plan.request.streams += 1;
        self.arm_deadline(index);
    }
}
