mod completion;
mod packets;
mod preparation;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fullpipe_link::{DirectionCounters, LinkDirection};
use fullpipe_record::{Sample, Transport};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use rand_pcg::rand_core::Rng;

use self::preparation::FlowMaker;
use crate::captures::PathCaptures;
use crate::connection::{ConnectionSetup, queue_time};
use crate::cross_traffic::CrossLoad;
use crate::datagrams::{DatagramStream, EchoRequests};
use crate::division::DividedTransfer;
use crate::flow::SimulatedFlow;
use crate::packet::{PacketContent, SimulatedPacket};
use crate::sampling::{TransferSampler, sending_ends};
use crate::{NotModelled, SimulationPlan};

/// The bit of a number by which a stream of datagrams differs from a connection.
const DATAGRAMS: u32 = 1 << 31;

/// A transfer in virtual time.
///
/// At the same moment, what arrives over the forward direction comes first, then what arrives over
/// the reverse one, then timers in the order of the connections, then what begins and ends of other
/// loads, then the end of the transfer, then the sample. So nothing depends on when, and how often,
/// it is [run](Self::run_until).
#[derive(Debug)]
pub struct Simulation {
    pub(crate) plan: SimulationPlan,
    pub(crate) connection: ConnectionSetup,
    forward: LinkDirection<SimulatedPacket>,
    reverse: LinkDirection<SimulatedPacket>,
    /// Of the transfer, and then of other loads.
    pub(crate) flows: Vec<SimulatedFlow>,
    /// Streams of datagrams of the transfer, and then of other loads.
    pub(crate) datagrams: Vec<DatagramStream>,
    pub(crate) loads: Vec<CrossLoad>,
    /// Echo requests, where the load itself has no round-trip time.
    pub(crate) echoes: Option<EchoRequests>,
    /// When the transfer begins.
    pub(crate) origin: Time,
    /// The counts of the path by then.
    pub(crate) before: Option<DirectionCounters>,
    /// When a load begins or ends, or an echo request is due.
    agenda: Option<Time>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    pub(crate) now: Time,
    pub(crate) sampler: TransferSampler,
    pub(crate) stage: TransferStage,
    events: u64,
    /// Packets of the longest train that the path carries whole, unless it carries them as the
    /// laboratory does.
    longest_train: SegCount,
    /// Connections that have not sent everything, of a transfer that ends by its bytes in equal
    /// parts.
    pending: usize,
    /// The bytes that are left for the connections.
    divided: DividedTransfer,
    maker: FlowMaker,
    /// Of both ends, if it is captured.
    captures: Option<PathCaptures>,
}

/// The course of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferStage {
    /// Programs write, until then at the latest.
    Flowing { until: Time },
    /// The programs stopped at the first time. The other end counts what arrives until that is
    /// known there, at the second time at the latest.
    Ending { stopped: Time, until: Time },
    /// All is over; the programs stopped at this time.
    Over { stopped: Time },
}

impl Simulation {
    /// Prepares the transfer; its data begins to flow at [`Time::ZERO`].
    ///
    /// # Errors
    ///
    /// Fails if the plan asks for something that is not modelled.
    pub fn new(plan: SimulationPlan) -> Result<Self, NotModelled> {
        let mut simulation = Self::new_prepared(plan)?;
        simulation.start();
        Ok(simulation)
    }

    /// As [`Self::new`], and keeps the packets that pass both ends, see [`Self::take_captures`].
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_captures(plan: SimulationPlan) -> Result<Self, NotModelled> {
        let mut simulation = Self::new_prepared(plan)?;
        simulation.captures = Some(PathCaptures::new(&simulation.plan, &simulation.connection));
        simulation.start();
        Ok(simulation)
    }

    /// Lets everything happen up to and at `until`, or until the transfer is over.
    pub fn run_until(&mut self, until: Time) {
        while !self.advance_to(until, u32::MAX) {}
    }

    /// As [`Self::run_until`], but lets at most so many `events` happen. Returns whether it got
    /// there.
    pub fn advance_to(&mut self, until: Time, events: u32) -> bool {
        for _ in 0..events {
            if self.is_over() {
                return true;
            }
            let next = self.next_event().filter(|next| *next <= until);
            self.sample_until(next.unwrap_or(until));
            let Some(next) = next else {
                self.now = self.now.max(until);
                return true;
            };
            self.now = next;
            self.events += 1;
            self.advance_step(next);
        }
        self.is_over()
    }

    /// Returns true if the time of the transfer has passed, or all its bytes have been read, and
    /// both ends know.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, TransferStage::Over { .. })
    }

    /// Returns the moment up to which it has run.
    pub fn current_time(&self) -> Time {
        self.now
    }

    /// Changes the congestion control of the connections of the transfer itself, which keep their
    /// windows.
    ///
    /// # Errors
    ///
    /// Fails if it is not modelled.
    pub fn use_congestion(&mut self, name: &str) -> Result<(), NotModelled> {
        let control = name.parse().map_err(NotModelled::Congestion)?;
        self.connection.control = control;
        for index in 0..self.own_flows().len() {
            let seed = self.maker.random.next_u64();
            if let Some(flow) = self.flows.get_mut(index) {
                flow.sender.use_congestion(self.now, control, seed);
            }
            self.serve_connection(index);
        }
        Ok(())
    }

    /// Returns the counts of the path, forward and reverse.
    pub fn path_counters(&mut self) -> [DirectionCounters; 2] {
        [
            self.forward.counters_at(self.now),
            self.reverse.counters_at(self.now),
        ]
    }

    /// Returns the captures of the sender and of the receiver so far, as bytes of files in pcap;
    /// `None` if none were asked for, or they were taken before. The first 128 bytes of each packet
    /// of TCP are in them, without checksums: handshakes, and trains whole.
    pub fn take_captures(&mut self) -> Option<[Vec<u8>; 2]> {
        self.captures.take().map(PathCaptures::into_files)
    }

    /// Returns the state of the sending end of each connection of the transfer itself.
    pub fn sender_samples(&self) -> Vec<Sample> {
        sending_ends(self.now, self.own_flows(), &self.connection, &self.plan)
    }

    /// Returns the bytes that wait for the link in the direction of the data or are being sent, as
    /// the path's framing counts them; zero on a path without a rate.
    pub fn queued_bytes(&mut self) -> ByteCount {
        if self.plan.path.forward.rate.is_none() {
            return ByteCount::ZERO;
        }
        let counted = self.forward.counters_at(self.now);
        let never_sent = [
            counted.lost,
            counted.expired,
            counted.too_big,
            counted.policed,
            counted.overflowed,
            counted.aqm_dropped,
        ];
        let gone: ByteCount = never_sent.iter().map(|tally| tally.bytes).sum();
        counted.offered.bytes.saturating_sub(gone + counted.sent)
    }

    /// Returns the number of events so far.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Returns the segments that both ends of each connection of the transfer have counted:
    /// retransmitted, and acknowledged.
    pub fn segment_counts(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        self.own_flows().iter().map(|flow| {
            [
                flow.sender.retransmitted_segments().get(),
                flow.sender.acknowledged_segments(),
            ]
        })
    }

    /// The connections of the transfer itself.
    pub(crate) fn own_flows(&self) -> &[SimulatedFlow] {
        let own = self.own_streams(Transport::Tcp);
        self.flows.get(..own).unwrap_or_default()
    }

    /// The streams of datagrams of the transfer itself.
    pub(crate) fn own_datagrams(&self) -> &[DatagramStream] {
        let own = self.own_streams(Transport::Udp);
        self.datagrams.get(..own).unwrap_or_default()
    }

    /// The number of streams of the transfer itself over `transport`.
    fn own_streams(&self, transport: Transport) -> usize {
        let request = &self.plan.request;
        if request.transport == transport {
            usize::from(request.streams)
        } else {
            0
        }
    }

    /// Takes the samples of the transfer that are due at `at`; all where it is over.
    pub(crate) fn take_samples(&mut self, at: Time) {
        let (own, is_over) = (usize::from(self.plan.request.streams), self.is_over());
        self.catch_up(at);
        match self.plan.request.transport {
            Transport::Tcp => {
                let flows = self.flows.get(..own).unwrap_or_default();
                self.sampler
                    .take_due(at, is_over, flows, (&self.connection, &self.plan));
            }
            Transport::Udp => self
                .sampler
                .count_datagrams(at, self.datagrams.get(..own).unwrap_or_default()),
        }
    }

    fn start(&mut self) {
        for flow in 0..self.flows.len() {
            self.serve_connection(flow);
        }
        for (stream, index) in self.datagrams.iter().zip(0..) {
            self.timers.extend(
                stream
                    .next_deadline()
                    .map(|at| Reverse((at, index | DATAGRAMS))),
            );
        }
        self.plan_ahead();
    }

    /// Notes when something of the agenda is due.
    fn plan_ahead(&mut self) {
        let loads = self.loads.iter().filter_map(CrossLoad::next_deadline).min();
        let echo = self
            .echoes
            .as_ref()
            .filter(|_| self.is_flowing())
            .map(EchoRequests::due_time);
        let begin = self.before.is_none().then_some(self.origin);
        self.agenda = Time::earlier_deadline(loads, Time::earlier_deadline(echo, begin));
    }

    fn is_flowing(&self) -> bool {
        matches!(self.stage, TransferStage::Flowing { .. })
    }

    /// Does what is due of the agenda.
    fn attend_agenda(&mut self, now: Time) {
        if self.before.is_none() && self.origin <= now {
            self.before = Some(self.forward.counters_at(now));
        }
        for load in &mut self.loads {
            load.attend_due(now, &mut self.flows, &mut self.datagrams);
        }
        let is_flowing = self.is_flowing();
        while let Some(echoes) = self
            .echoes
            .as_mut()
            .filter(|echoes| is_flowing && echoes.due_time() <= now)
        {
            self.forward.offer_train(now, echoes.next_request());
        }
        self.plan_ahead();
    }

    fn next_event(&self) -> Option<Time> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let links =
            Time::earlier_deadline(self.forward.next_deadline(), self.reverse.next_deadline());
        Time::earlier_deadline(
            links,
            Time::earlier_deadline(
                timer,
                Time::earlier_deadline(self.agenda, self.stage_ends()),
            ),
        )
    }

    fn stage_ends(&self) -> Option<Time> {
        match self.stage {
            TransferStage::Flowing { until } | TransferStage::Ending { until, .. } => Some(until),
            TransferStage::Over { .. } => None,
        }
    }

    /// Lets the receiving programs read what they read by `now`.
    fn catch_up(&mut self, now: Time) {
        self.flows
            .iter_mut()
            .for_each(|flow| flow.catch_up(now + Span::from_nanos(1)));
    }

    /// Defers no read any more: from now on each may end the transfer.
    fn defer_no_reads(&mut self, now: Time) {
        self.catch_up(now);
        for index in 0..self.flows.len() {
            self.queue_deadline(index, |flow, now| {
                flow.defer_reads(false);
                flow.arm_receiver(now)
            });
        }
    }

    fn end_stage(&mut self, now: Time) {
        match self.stage {
            TransferStage::Flowing { .. } => {
                self.defer_no_reads(now);
                let own = self.own_flows().len();
                self.sampler.count_flows(now, true, &self.flows[..own]);
                self.flows.iter_mut().for_each(SimulatedFlow::stop);
                self.datagrams.iter_mut().for_each(DatagramStream::stop);
                for load in &mut self.loads {
                    load.stop(now, &mut self.flows, &mut self.datagrams);
                }
                self.stage = TransferStage::Ending {
                    stopped: now,
                    until: self.announce_end(now),
                };
            }
            TransferStage::Ending { stopped, .. } => self.stage = TransferStage::Over { stopped },
            TransferStage::Over { .. } => {}
        }
    }

    /// Sends the message by which the end that asked for the transfer ends it. Returns when the
    /// other end knows, at the latest: that message is behind the data in its queue. A receiver
    /// that asked for the data knows by itself, but its clock began when the first of it was on its
    /// way.
    fn announce_end(&mut self, now: Time) -> Time {
        let way = &self.plan.path.forward;
        if self.plan.request.direction == fullpipe_record::Direction::Download {
            return now + way.delay;
        }
        let bytes = self.connection.acknowledgement;
        let accepted = self
            .forward
            .offer_train(now, SimulatedPacket::end_packet(bytes))
            .accepted
            > SegCount::ZERO;
        // Where the queue's management drops it, it never arrives.
        let waits = (queue_time(way) * 2).clamp(Span::from_millis(1), Span::from_secs(2));
        now + way.delay + if accepted { waits } else { Span::ZERO }
    }

    /// Takes the samples that are due before `next`; one that is due then comes after what happens
    /// then.
    fn sample_until(&mut self, next: Time) {
        while self.sampler.due_time() < next {
            self.take_samples(self.sampler.due_time());
        }
    }

    fn advance_step(&mut self, now: Time) {
        while let Some(delivery) = self.forward.pop_arrived(now) {
            match delivery.train.content {
                // The far end's kernel answers at once.
                PacketContent::Echo(_) => drop(self.reverse.offer_train(now, delivery.train)),
                _ => self.deliver_packet(delivery.train),
            }
        }
        while let Some(delivery) = self.reverse.pop_arrived(now) {
            self.deliver_packet(delivery.train);
        }
        while let Some(&Reverse((at, flow))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            if flow & DATAGRAMS != 0 {
                self.send_datagrams(flow);
                continue;
            }
            let flow = flow as usize;
            if self
                .flows
                .get_mut(flow)
                .is_some_and(|flow| flow.disarm_deadline(at))
            {
                self.expire_deadline(flow);
            }
        }
        if self.agenda.is_some_and(|at| at <= now) {
            self.attend_agenda(now);
        }
        if self.stage_ends().is_some_and(|at| at <= now) {
            self.end_stage(now);
        }
    }
}

#[cfg(test)]
mod tests;
