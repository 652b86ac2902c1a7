use std::cmp::Reverse;

use fullpipe_link::{Train, take_first};
use fullpipe_units::{ByteCount, Time};

use super::{DATAGRAMS, Simulation, TransferStage};
use crate::TrainGranularity;
use crate::captures::PathEnd;
use crate::datagrams::DatagramStream;
use crate::division::DividedTransfer;
use crate::flow::SimulatedFlow;
use crate::packet::{PacketContent, SimulatedPacket};
use crate::tcp::{AckSegment, SegmentBurst};

impl Simulation {
    pub(super) fn deliver_packet(&mut self, packet: SimulatedPacket) {
        let (now, index, segments) = (self.now, packet.flow as usize, packet.segment_count());
        if let (PacketContent::End, TransferStage::Ending { stopped, .. }) =
            (&packet.content, self.stage)
        {
            self.stage = TransferStage::Over { stopped };
        }
        if packet.is_spoiled {
            return;
        }
        let arrives_at = if matches!(packet.content, PacketContent::Data(_)) {
            PathEnd::Receiver
        } else {
            PathEnd::Sender
        };
        self.capture_packet(arrives_at, &packet);
        match packet.content {
            PacketContent::Data(data) => self.deliver_data(index, &data.segment_burst(segments)),
            content @ PacketContent::Acknowledgement { .. } => {
                self.deliver_acknowledgement(index, content);
            }
            PacketContent::Datagrams(numbered) => {
                if let Some(stream) = self.datagrams.get_mut((packet.flow & !DATAGRAMS) as usize) {
                    stream.record_arrivals(now, segments.get(), numbered);
                }
            }
            PacketContent::TooBig => {
                if let Some(flow) = self.flows.get_mut(index) {
                    flow.learn_of_narrow_link(now);
                }
                self.serve_connection(index);
            }
            PacketContent::Echo(number) => {
                if let Some(echoes) = &mut self.echoes {
                    echoes.record_answer(now, number);
                }
            }
            PacketContent::End => {}
        }
    }

    /// Gives data to the receiving end of a connection, unless it is closed.
    fn deliver_data(&mut self, index: usize, burst: &SegmentBurst) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(index).filter(|flow| !flow.is_closed()) else {
            return;
        };
        flow.catch_up(now);
        let answer = flow.receiver.receive_burst(now, burst);
        let after_read = flow.read(now);
        for ack in [answer, after_read].into_iter().flatten() {
            self.process_acknowledgement(index, ack);
        }
        self.queue_deadline(index, SimulatedFlow::arm_receiver);
        self.settle_connection(index);
    }

    /// Gives an acknowledgement to the sending end of a connection.
    fn deliver_acknowledgement(&mut self, index: usize, content: PacketContent) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let Some(ack) = content.into_ack(flow.wire.scales[1]) else {
            return;
        };
        flow.sender.receive_ack(now, &ack);
        self.send_all(index);
        self.queue_deadline(index, SimulatedFlow::arm_sender);
    }

    pub(super) fn expire_deadline(&mut self, index: usize) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let sends = flow.sends_at(now);
        flow.catch_up(now);
        let delayed = flow.wake_timers(now);
        let after_read = flow.read(now);
        for ack in [delayed, after_read].into_iter().flatten() {
            self.process_acknowledgement(index, ack);
        }
        self.settle_connection(index);
        if sends {
            self.serve_connection(index);
        } else {
            self.arm_deadline(index);
        }
    }

    /// Sends what a connection may send, and queues its next deadline.
    pub(super) fn serve_connection(&mut self, index: usize) {
        self.send_all(index);
        self.arm_deadline(index);
    }

    /// Sends what a connection may send.
    fn send_all(&mut self, index: usize) {
        let now = self.now;
        loop {
            while let Some(flow) = self.flows.get_mut(index)
                && let Some(burst) = flow.next_burst(now)
            {
                let (first, short) = flow.split_burst(burst);
                self.send_burst(index, first);
                if let Some(short) = short {
                    self.send_burst(index, short);
                }
            }
            if !self.takes_chunk(index) {
                return;
            }
        }
    }

    /// Sends segments whose packets have so many bytes each.
    fn send_burst(&mut self, index: usize, (burst, bytes): (SegmentBurst, ByteCount)) {
        let packet = SimulatedPacket::data_packet(index as u32, bytes, &burst);
        self.capture_packet(PathEnd::Sender, &packet);
        self.offer_packet(packet);
    }

    /// Gives a connection that has written everything the next chunk of the queue. Returns whether
    /// there was one.
    fn takes_chunk(&mut self, index: usize) -> bool {
        let DividedTransfer::Queue(queue) = &mut self.divided else {
            return false;
        };
        let flow = self
            .flows
            .get_mut(index)
            .filter(|flow| flow.has_written_all() && !flow.sender.is_dead());
        flow.is_some_and(|flow| {
            queue
                .take_chunk()
                .map(|chunk| flow.grant_bytes(chunk))
                .is_some()
        })
    }

    /// Sends what is due of a stream of datagrams.
    pub(super) fn send_datagrams(&mut self, number: u32) {
        let now = self.now;
        let Some(stream) = self.datagrams.get_mut((number & !DATAGRAMS) as usize) else {
            return;
        };
        let due = stream.next_burst(now, number);
        let next = stream.next_deadline();
        self.timers.extend(next.map(|at| Reverse((at, number))));
        if let Some(packet) = due {
            self.offer_packet(packet);
        }
        let own = self.own_datagrams();
        if self.is_flowing() && !own.is_empty() && own.iter().all(DatagramStream::has_sent_all) {
            self.end_stage(now);
        }
    }

    fn offer_packet(&mut self, mut packet: SimulatedPacket) {
        while let Some(first) = self.cut_first(&mut packet) {
            self.offer_whole(first);
        }
        self.offer_whole(packet);
    }

    /// Takes the first of the parts in which the path carries `packet` out of it; `None` if there
    /// is one alone.
    #[inline]
    fn cut_first(&self, packet: &mut SimulatedPacket) -> Option<SimulatedPacket> {
        match self.plan.granularity {
            TrainGranularity::Cut => self.forward.cut_first(packet),
            TrainGranularity::Segment | TrainGranularity::Train => {
                take_first(packet, self.longest_train)
            }
        }
    }

    fn offer_whole(&mut self, packet: SimulatedPacket) {
        if let Some(reply) = self.forward.offer_train(self.now, packet).reply {
            self.reverse.offer_train(self.now, reply);
        }
    }

    fn process_acknowledgement(&mut self, index: usize, ack: AckSegment) {
        let Some(flow) = self.flows.get(index) else {
            return;
        };
        let bytes = flow.wire.acknowledgement + ack.blocks.option_bytes();
        let packet = SimulatedPacket::ack_packet(index as u32, bytes, ack, flow.wire.scales[0]);
        self.capture_packet(PathEnd::Receiver, &packet);
        self.reverse.offer_train(self.now, packet);
    }

    #[inline]
    fn capture_packet(&mut self, end: PathEnd, packet: &SimulatedPacket) {
        if let Some(captures) = &mut self.captures {
            captures.add_packet(end, self.now, packet);
        }
    }

    pub(super) fn arm_deadline(&mut self, index: usize) {
        self.queue_deadline(index, SimulatedFlow::arm_deadline);
    }

    /// Queues the next deadline of a connection, which `arm` takes for queued.
    pub(super) fn queue_deadline(
        &mut self,
        index: usize,
        arm: impl FnOnce(&mut SimulatedFlow, Time) -> Option<Time>,
    ) {
        if let Some(flow) = self.flows.get_mut(index)
            && let Some(at) = arm(flow, self.now)
        {
            self.timers.push(Reverse((at, index as u32)));
        }
    }
}
