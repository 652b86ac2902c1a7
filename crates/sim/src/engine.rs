use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use fullpipe_link::{DirectionCounters, LinkDirection, Train, packets_within, take_first};
use fullpipe_model::datagrams;
use fullpipe_record::{Request, Sample, Transport};
use fullpipe_tcp::{AckSegment, HostClock, Receiver, SegmentBurst, Sender};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::captures::{PathCaptures, PathEnd};
use crate::connection::ConnectionSetup;
use crate::cross_traffic::CrossLoad;
use crate::datagrams::{DatagramStream, EchoRequests, check_number};
use crate::division::{ArrivedPart, DividedTransfer};
use crate::flow::{SimulatedFlow, WAKES_WITHIN};
use crate::packet::{PacketContent, SimulatedPacket};
use crate::program::{ReceivingProgram, SendingProgram};
use crate::sampling::{TransferSampler, sending_ends};
use crate::{NotModelled, SimulationPlan, TrainGranularity, TransferDivision, load_duration};

/// The first connection begins within so much of when it may: a program takes part of a
/// millisecond, by which the stamps of both hosts count, to do so.
const FIRST_START: Span = Span::from_millis(1);
/// Connections begin within so much of each other, as those of a program do that opens one after
/// the other.
const START_SPREAD: Span = Span::from_millis(10);

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

    fn new_prepared(plan: SimulationPlan) -> Result<Self, NotModelled> {
        let plan = resolve_write_size(plan);
        let connection = ConnectionSetup::new(&plan)?;
        check_number(&plan)?;
        let origin = Time::ZERO + plan.lead;
        let [forward, reverse] = LinkDirection::new_pair(&plan.path, plan.seed);
        let mut streams = PreparedStreams::new(&plan, &forward);
        let mut divided = DividedTransfer::new(plan.division, plan.request.bytes);
        streams.add_streams(&plan, origin, &mut divided)?;
        let pending = streams.flows.len();
        let loads = streams.add_loads(&plan)?;
        let PreparedStreams {
            mut flows,
            datagrams,
            maker,
            ..
        } = streams;
        // What ends by its bytes, and what counts at a moment of its own, needs each read at its
        // time.
        let defers_reads = plan.request.bytes.is_none() && loads.is_empty();
        let wakes_early = wakes_early(&plan);
        for flow in &mut flows {
            flow.defer_reads(defers_reads);
            flow.wake_early(wakes_early);
        }
        Ok(Self {
            longest_train: longest_train(&plan),
            forward,
            reverse,
            sampler: TransferSampler::new(&plan),
            stage: TransferStage::Flowing {
                until: origin + load_duration(&plan.request),
            },
            pending,
            divided,
            maker,
            echoes: (plan.request.transport == Transport::Udp)
                .then(|| EchoRequests::new(&plan.path, origin)),
            connection,
            flows,
            datagrams,
            loads,
            origin,
            before: (origin == Time::ZERO).then(DirectionCounters::default),
            agenda: None,
            plan,
            timers: BinaryHeap::new(),
            now: Time::ZERO,
            events: 0,
            captures: None,
        })
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
        let queue = way
            .rate
            .zip(way.queue)
            .map_or(Span::ZERO, |(rate, queue)| rate.time_for(queue));
        let bytes = self.connection.acknowledgement;
        let accepted = self
            .forward
            .offer_train(now, SimulatedPacket::end_packet(bytes))
            .accepted
            > SegCount::ZERO;
        // Where the queue's management drops it, it never arrives.
        let waits = (queue * 2).clamp(Span::from_millis(1), Span::from_secs(2));
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

    fn deliver_packet(&mut self, packet: SimulatedPacket) {
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

    fn expire_deadline(&mut self, index: usize) {
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
    fn serve_connection(&mut self, index: usize) {
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
    fn send_datagrams(&mut self, number: u32) {
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

    fn arm_deadline(&mut self, index: usize) {
        self.queue_deadline(index, SimulatedFlow::arm_deadline);
    }

    /// Queues the next deadline of a connection, which `arm` takes for queued.
    fn queue_deadline(
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

    /// Notes whether a connection of a transfer that ends by its bytes is over.
    #[inline]
    fn settle_connection(&mut self, index: usize) {
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

/// Returns the longest train that the path carries whole, where it does not cut as the
/// laboratory's. Its first packet waits for the last, and where the window holds few trains, each
/// round trip is longer by that.
fn longest_train(plan: &SimulationPlan) -> SegCount {
    const PART_OF_ROUND_TRIP: u64 = 100;
    match plan.granularity {
        TrainGranularity::Segment | TrainGranularity::Cut => SegCount::new(1),
        TrainGranularity::Train => {
            packets_within(&plan.path.forward, plan.path.rtt() / PART_OF_ROUND_TRIP)
        }
    }
}

/// Returns true if the exact moments at which programs wake have no visible effect, where trains
/// are carried whole: they do so within a fivehundredth of the round trip, where a train may take a
/// hundredth of it, and before a second train arrives.
fn wakes_early(plan: &SimulationPlan) -> bool {
    const PART_OF_ROUND_TRIP: u64 = 500;
    // Of 64 KiB (`sk_gso_max_size`).
    const PACKETS_OF_TRAIN: SegCount = SegCount::new(43);
    plan.granularity == TrainGranularity::Train
        && WAKES_WITHIN <= plan.path.rtt() / PART_OF_ROUND_TRIP
        && packets_within(&plan.path.forward, WAKES_WITHIN) <= PACKETS_OF_TRAIN
}

/// Fills in the size of a write that the request leaves to the program.
fn resolve_write_size(plan: SimulationPlan) -> SimulationPlan {
    let mut plan = plan;
    let request = &mut plan.request;
    if request.transport == Transport::Udp {
        request.block = datagrams::datagram_payload(&plan.path.forward, request);
    } else if request.block == ByteCount::ZERO {
        let at_rate = request
            .rate
            .map(|rate| rate.bytes_in(Span::from_millis(1)).max(ByteCount::new(1)));
        request.block = at_rate.unwrap_or(ByteCount::from_mib(1));
    }
    request.streams = request.streams.max(1);
    plan
}

/// A host that has been up for some time, so that its clocks have a phase.
fn host_clock(plan: &SimulationPlan, random: &mut Pcg64Mcg) -> HostClock {
    const UP: Span = Span::from_secs(1_000);
    HostClock::new(
        plan.ticks_per_second,
        UP + Span::from_nanos(random.next_u64() % 1_000_000_000),
    )
}

/// The streams of all loads while they are prepared.
struct PreparedStreams<'d> {
    /// The direction of the data.
    forward: &'d LinkDirection<SimulatedPacket>,
    maker: FlowMaker,
    flows: Vec<SimulatedFlow>,
    datagrams: Vec<DatagramStream>,
}

impl<'d> PreparedStreams<'d> {
    fn new(plan: &SimulationPlan, forward: &'d LinkDirection<SimulatedPacket>) -> Self {
        Self {
            forward,
            maker: FlowMaker::new(plan),
            flows: Vec::new(),
            datagrams: Vec::new(),
        }
    }

    /// Adds the streams of the load of `plan`, which begins at `start`, with what each has of
    /// `divided`.
    fn add_streams(
        &mut self,
        plan: &SimulationPlan,
        start: Time,
        divided: &mut DividedTransfer,
    ) -> Result<Range<usize>, NotModelled> {
        let request = &plan.request;
        if request.transport == Transport::Udp {
            return self.add_datagram_streams(plan, start);
        }
        let (connection, first) = (ConnectionSetup::new(plan)?, self.flows.len());
        let of_divided = divided.at_first(usize::from(request.streams));
        for stream in 0..request.streams {
            let spread = if stream == 0 {
                FIRST_START
            } else {
                START_SPREAD
            };
            // The other end opens further connections when the first one has been answered, and
            // asks then.
            let waits = stream > 0 && matches!(divided, DividedTransfer::Ranges(_));
            let starts = if waits {
                start + connection.handshake * 2
            } else {
                start
            };
            let part = of_divided.as_ref().map(|parts| parts[usize::from(stream)]);
            let total = match part {
                Some(_) => Some(ByteCount::ZERO),
                None => stream_share(request, stream),
            };
            let mut flow = self.maker.make_flow(
                (plan, &connection, self.forward),
                [start, starts],
                spread,
                total,
            );
            if let Some(bytes) = part {
                flow.grant_bytes(bytes);
            }
            self.flows.push(flow);
        }
        Ok(first..self.flows.len())
    }

    fn add_datagram_streams(
        &mut self,
        plan: &SimulationPlan,
        start: Time,
    ) -> Result<Range<usize>, NotModelled> {
        let (request, first) = (&plan.request, self.datagrams.len());
        for stream in 0..request.streams {
            let begin = (start, self.maker.random.next_u64());
            let share = stream_share(request, stream);
            self.datagrams
                .push(DatagramStream::new(&plan.path, request, share, begin)?);
        }
        Ok(first..self.datagrams.len())
    }

    /// Adds those of other loads.
    fn add_loads(&mut self, plan: &SimulationPlan) -> Result<Vec<CrossLoad>, NotModelled> {
        plan.cross_traffic
            .iter()
            .map(|other| {
                let alone = SimulationPlan {
                    request: other.request.clone(),
                    division: TransferDivision::Equal,
                    ..plan.clone()
                };
                let streams = self.add_streams(
                    &resolve_write_size(alone),
                    Time::ZERO + other.starts,
                    &mut DividedTransfer::Equal,
                )?;
                Ok(CrossLoad::new(plan, other, streams))
            })
            .collect()
    }
}

/// Returns the bytes of one stream of a load that ends by its bytes.
fn stream_share(request: &Request, stream: u16) -> Option<ByteCount> {
    let streams = u64::from(request.streams);
    let bytes = request.bytes?.get();
    Some(ByteCount::new(
        (bytes + streams - 1 - u64::from(stream)) / streams,
    ))
}

/// The source of connections.
#[derive(Debug)]
struct FlowMaker {
    random: Pcg64Mcg,
    clocks: [HostClock; 2],
}

impl FlowMaker {
    fn new(plan: &SimulationPlan) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
        let clocks = [host_clock(plan, &mut random), host_clock(plan, &mut random)];
        Self { random, clocks }
    }

    /// Makes a connection that is there at the first time, and whose data begins to flow within
    /// `spread` of the second.
    fn make_flow(
        &mut self,
        (plan, connection, forward): (
            &SimulationPlan,
            &ConnectionSetup,
            &LinkDirection<SimulatedPacket>,
        ),
        [there, starts]: [Time; 2],
        spread: Span,
        total: Option<ByteCount>,
    ) -> SimulatedFlow {
        let sender = Sender::new(
            &connection.sender_setup(plan, self.clocks, self.random.next_u64()),
            there,
        );
        let train = SimulatedPacket::data_packet(
            0,
            connection.packet_sizes().segment,
            &sender.first_train(there),
        );
        let first = forward
            .cut_train(train)
            .next()
            .map_or(SegCount::ZERO, |first| first.segment_count());
        let receiver = Receiver::new(
            &connection.receiver_setup(self.clocks, first),
            connection.handshake,
            there,
        );
        let starts = starts + Span::from_nanos(self.random.next_u64() % spread.as_nanos());
        let source = SendingProgram::new(&plan.request, total, connection.handshake, starts);
        let programs = (source, ReceivingProgram::new(plan.reads, starts));
        SimulatedFlow::new(
            (sender, receiver),
            connection.packet_sizes(),
            programs,
            starts,
            self.random.next_u64(),
        )
    }
}

#[cfg(test)]
mod tests;
