use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use fullpipe_link::{Counters, Direction, Train, packets_within, take_first};
use fullpipe_model::datagrams;
use fullpipe_record::{Sample, Transport};
use fullpipe_tcp::{Ack, Burst, Clock, Receiver, Sender};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::captures::{Captures, End};
use crate::connection::Connection;
use crate::cross_traffic::Load;
use crate::datagrams::{DatagramStream, Echoes, check_number};
use crate::division::{Arrived, Divided};
use crate::flow::{Flow, WAKES_WITHIN};
use crate::packet::{Content, Packet};
use crate::program::{Sink, Source};
use crate::sampling::{Sampler, sending_ends};
use crate::{CrossTraffic, Division, Granularity, NotModelled, Plan, lasts};

/// The first connection begins within so much of when it may: a program takes part of a millisecond, by which the
/// stamps of both hosts count, to do so.
const FIRST_START: Span = Span::from_millis(1);
/// Connections begin within so much of each other, as those of a program do that opens one after the other.
const START_SPREAD: Span = Span::from_millis(10);

/// The bit of a number by which a stream of datagrams differs from a connection.
const DATAGRAMS: u32 = 1 << 31;

/// A transfer in virtual time.
///
/// At the same moment, what arrives over the forward direction comes first, then what arrives over the reverse one,
/// then timers in the order of the connections, then what begins and ends of other loads, then the end of the transfer,
/// then the sample. So nothing depends on when, and how often, it is [run](Self::run_until).
#[derive(Debug)]
pub struct Simulation {
    pub(crate) plan: Plan,
    pub(crate) connection: Connection,
    forward: Direction<Packet>,
    reverse: Direction<Packet>,
    /// Of the transfer, and then of other loads.
    pub(crate) flows: Vec<Flow>,
    /// Streams of datagrams of the transfer, and then of other loads.
    pub(crate) datagrams: Vec<DatagramStream>,
    pub(crate) loads: Vec<Load>,
    /// Echo requests, where the load itself has no round-trip time.
    pub(crate) echoes: Option<Echoes>,
    /// When the transfer begins.
    pub(crate) origin: Time,
    /// The counts of the path by then.
    pub(crate) before: Option<Counters>,
    /// When a load begins or ends, or an echo request is due.
    agenda: Option<Time>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    pub(crate) now: Time,
    pub(crate) sampler: Sampler,
    pub(crate) stage: Stage,
    events: u64,
    /// Packets of the longest train that the path carries whole, unless it carries them as the laboratory does.
    longest_train: SegCount,
    /// Connections that have not sent everything, of a transfer that ends by its bytes in equal parts.
    pending: usize,
    /// The bytes that are left for the connections.
    divided: Divided,
    maker: Maker,
    /// Of both ends, if it is captured.
    captures: Option<Captures>,
}

/// The course of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Programs write, until then at the latest.
    Flowing { until: Time },
    /// The programs stopped at the first time. The other end counts what arrives until that is known there, at the
    /// second time at the latest.
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
    pub fn new(plan: Plan) -> Result<Self, NotModelled> {
        let mut simulation = Self::prepared(plan)?;
        simulation.start();
        Ok(simulation)
    }

    /// As [`Self::new`], and keeps the packets that pass both ends, see [`Self::take_captures`].
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn captured(plan: Plan) -> Result<Self, NotModelled> {
        let mut simulation = Self::prepared(plan)?;
        simulation.captures = Some(Captures::new(&simulation.plan, &simulation.connection));
        simulation.start();
        Ok(simulation)
    }

    fn prepared(plan: Plan) -> Result<Self, NotModelled> {
        let plan = resolved(plan);
        let connection = Connection::new(&plan)?;
        check_number(&plan)?;
        let origin = Time::ZERO + plan.lead;
        let [forward, reverse] = Direction::both(&plan.path, plan.seed);
        let mut streams = Streams::new(&plan, &forward);
        let mut divided = Divided::new(plan.division, plan.request.bytes);
        streams.add(&plan, origin, &mut divided)?;
        let pending = streams.flows.len();
        let loads = streams.add_loads(&plan)?;
        let Streams { mut flows, datagrams, maker, .. } = streams;
        // What ends by its bytes, and what counts at a moment of its own, needs each read at its time.
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
            sampler: Sampler::new(&plan),
            stage: Stage::Flowing { until: origin + lasts(&plan.request) },
            pending,
            divided,
            maker,
            echoes: (plan.request.transport == Transport::Udp).then(|| Echoes::new(&plan.path, origin)),
            connection,
            flows,
            datagrams,
            loads,
            origin,
            before: (origin == Time::ZERO).then(Counters::default),
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
        while !self.advance(until, u32::MAX) {}
    }

    /// As [`Self::run_until`], but lets at most so many `events` happen. Returns whether it got there.
    pub fn advance(&mut self, until: Time, events: u32) -> bool {
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
            self.step(next);
        }
        self.is_over()
    }

    /// Returns true if the time of the transfer has passed, or all its bytes have been read, and both ends know.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over { .. })
    }

    /// Returns the moment up to which it has run.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Changes the congestion control of the connections of the transfer itself, which keep their windows.
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
            self.serve(index);
        }
        Ok(())
    }

    /// Returns the counts of the path, forward and reverse.
    pub fn counters(&mut self) -> [Counters; 2] {
        [self.forward.counters(self.now), self.reverse.counters(self.now)]
    }

    /// Returns the captures of the sender and of the receiver so far, as bytes of files in pcap; `None` if none were
    /// asked for, or they were taken before. The first 128 bytes of each packet of TCP are in them, without checksums:
    /// handshakes, and trains whole.
    pub fn take_captures(&mut self) -> Option<[Vec<u8>; 2]> {
        self.captures.take().map(Captures::into_files)
    }

    /// Returns the state of the sending end of each connection of the transfer itself.
    pub fn senders(&self) -> Vec<Sample> {
        sending_ends(self.now, self.own_flows(), &self.connection, &self.plan)
    }

    /// Returns the bytes that wait for the link in the direction of the data or are being sent, as the path's framing
    /// counts them; zero on a path without a rate.
    pub fn queued(&mut self) -> ByteCount {
        if self.plan.path.forward.rate.is_none() {
            return ByteCount::ZERO;
        }
        let counted = self.forward.counters(self.now);
        let never_sent =
            [counted.lost, counted.expired, counted.too_big, counted.policed, counted.overflowed, counted.aqm_dropped];
        let gone: ByteCount = never_sent.iter().map(|tally| tally.bytes).sum();
        counted.offered.bytes.saturating_sub(gone + counted.sent)
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the segments that both ends of each connection of the transfer have counted: retransmitted, and
    /// acknowledged.
    pub fn segments(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        self.own_flows().iter().map(|flow| [flow.sender.retransmits().get(), flow.sender.acknowledged_segments()])
    }

    /// The connections of the transfer itself.
    pub(crate) fn own_flows(&self) -> &[Flow] {
        let own = if self.plan.request.transport == Transport::Tcp { self.plan.request.streams } else { 0 };
        self.flows.get(..usize::from(own)).unwrap_or_default()
    }

    /// The streams of datagrams of the transfer itself.
    pub(crate) fn own_datagrams(&self) -> &[DatagramStream] {
        let own = if self.plan.request.transport == Transport::Udp { self.plan.request.streams } else { 0 };
        self.datagrams.get(..usize::from(own)).unwrap_or_default()
    }

    /// Takes the samples of the transfer that are due at `at`; all where it is over.
    pub(crate) fn sample(&mut self, at: Time) {
        let (own, is_over) = (usize::from(self.plan.request.streams), self.is_over());
        self.catch_up(at);
        match self.plan.request.transport {
            Transport::Tcp => {
                let flows = self.flows.get(..own).unwrap_or_default();
                self.sampler.take(at, is_over, flows, (&self.connection, &self.plan));
            }
            Transport::Udp => self.sampler.mark(at, self.datagrams.get(..own).unwrap_or_default()),
        }
    }

    fn start(&mut self) {
        for flow in 0..self.flows.len() {
            self.serve(flow);
        }
        for (stream, index) in self.datagrams.iter().zip(0..) {
            self.timers.extend(stream.deadline().map(|at| Reverse((at, index | DATAGRAMS))));
        }
        self.plan_ahead();
    }

    /// Notes when something of the agenda is due.
    fn plan_ahead(&mut self) {
        let loads = self.loads.iter().filter_map(Load::deadline).min();
        let echo = self.echoes.as_ref().filter(|_| self.is_flowing()).map(Echoes::due);
        let begin = self.before.is_none().then_some(self.origin);
        self.agenda = Time::earlier(loads, Time::earlier(echo, begin));
    }

    fn is_flowing(&self) -> bool {
        matches!(self.stage, Stage::Flowing { .. })
    }

    /// Does what is due of the agenda.
    fn attend(&mut self, now: Time) {
        if self.before.is_none() && self.origin <= now {
            self.before = Some(self.forward.counters(now));
        }
        for load in &mut self.loads {
            load.attend(now, &mut self.flows, &mut self.datagrams);
        }
        let is_flowing = self.is_flowing();
        while let Some(echoes) = self.echoes.as_mut().filter(|echoes| is_flowing && echoes.due() <= now) {
            self.forward.offer(now, echoes.request());
        }
        self.plan_ahead();
    }

    fn next_event(&self) -> Option<Time> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let links = Time::earlier(self.forward.next_deadline(), self.reverse.next_deadline());
        Time::earlier(links, Time::earlier(timer, Time::earlier(self.agenda, self.stage_ends())))
    }

    fn stage_ends(&self) -> Option<Time> {
        match self.stage {
            Stage::Flowing { until } | Stage::Ending { until, .. } => Some(until),
            Stage::Over { .. } => None,
        }
    }

    /// Lets the receiving programs read what they read by `now`.
    fn catch_up(&mut self, now: Time) {
        self.flows.iter_mut().for_each(|flow| flow.catch_up(now + Span::from_nanos(1)));
    }

    /// Defers no read any more: from now on each may end the transfer.
    fn defer_no_reads(&mut self, now: Time) {
        self.catch_up(now);
        for index in 0..self.flows.len() {
            let due = self.flows.get_mut(index).and_then(|flow| {
                flow.defer_reads(false);
                flow.arm_receiver(now)
            });
            self.queue_timer(index, due);
        }
    }

    fn end_stage(&mut self, now: Time) {
        match self.stage {
            Stage::Flowing { .. } => {
                self.defer_no_reads(now);
                let own = self.own_flows().len();
                self.sampler.count(now, true, self.flows.get(..own).unwrap_or_default());
                self.flows.iter_mut().for_each(Flow::stop);
                self.datagrams.iter_mut().for_each(DatagramStream::stop);
                for load in &mut self.loads {
                    load.stop(now, &mut self.flows, &mut self.datagrams);
                }
                self.stage = Stage::Ending { stopped: now, until: self.announce_end(now) };
            }
            Stage::Ending { stopped, .. } => self.stage = Stage::Over { stopped },
            Stage::Over { .. } => {}
        }
    }

    /// Sends the message by which the end that asked for the transfer ends it. Returns when the other end knows, at the
    /// latest: that message is behind the data in its queue. A receiver that asked for the data knows by itself, but
    /// its clock began when the first of it was on its way.
    fn announce_end(&mut self, now: Time) -> Time {
        let way = &self.plan.path.forward;
        if self.plan.request.direction == fullpipe_record::Direction::Download {
            return now + way.delay;
        }
        let queue = way.rate.zip(way.queue).map_or(Span::ZERO, |(rate, queue)| rate.time_for(queue));
        let bytes = self.connection.acknowledgement;
        let accepted = self.forward.offer(now, Packet::end(bytes)).accepted > SegCount::ZERO;
        // Where the queue's management drops it, it never arrives.
        let waits = (queue * 2).clamp(Span::from_millis(1), Span::from_secs(2));
        now + way.delay + if accepted { waits } else { Span::ZERO }
    }

    /// Takes the samples that are due before `next`; one that is due then comes after what happens then.
    fn sample_until(&mut self, next: Time) {
        while self.sampler.due() < next {
            self.sample(self.sampler.due());
        }
    }

    fn step(&mut self, now: Time) {
        while let Some(delivery) = self.forward.pop(now) {
            match delivery.train.content {
                // The far end's kernel answers at once.
                Content::Echo(_) => drop(self.reverse.offer(now, delivery.train)),
                _ => self.deliver(delivery.train),
            }
        }
        while let Some(delivery) = self.reverse.pop(now) {
            self.deliver(delivery.train);
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
            if self.flows.get_mut(flow).is_some_and(|flow| flow.disarm(at)) {
                self.expire(flow);
            }
        }
        if self.agenda.is_some_and(|at| at <= now) {
            self.attend(now);
        }
        if self.stage_ends().is_some_and(|at| at <= now) {
            self.end_stage(now);
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let (now, index, segments) = (self.now, packet.flow as usize, packet.segments());
        if let (Content::End, Stage::Ending { stopped, .. }) = (&packet.content, self.stage) {
            self.stage = Stage::Over { stopped };
        }
        if packet.is_spoiled {
            return;
        }
        let arrives_at = if matches!(packet.content, Content::Data(_)) { End::Receiver } else { End::Sender };
        self.capture(arrives_at, &packet);
        match packet.content {
            Content::Data(data) => {
                let Some(flow) = self.flows.get_mut(index).filter(|flow| !flow.is_closed()) else { return };
                flow.catch_up(now);
                let answer = flow.receiver.arrived(now, &data.burst(segments));
                let after_read = flow.read(now);
                if let Some(ack) = answer {
                    self.acknowledge(index, ack);
                }
                if let Some(ack) = after_read {
                    self.acknowledge(index, ack);
                }
                let due = self.flows.get_mut(index).and_then(|flow| flow.arm_receiver(now));
                self.queue_timer(index, due);
                self.settle(index);
            }
            content @ Content::Acknowledgement { .. } => {
                let Some(flow) = self.flows.get_mut(index) else { return };
                let Some(ack) = content.into_ack(flow.wire.scales[1]) else { return };
                flow.sender.acknowledged(now, &ack);
                self.send_all(index);
                let due = self.flows.get_mut(index).and_then(|flow| flow.arm_sender(now));
                self.queue_timer(index, due);
            }
            Content::Datagrams(numbered) => {
                if let Some(stream) = self.datagrams.get_mut((packet.flow & !DATAGRAMS) as usize) {
                    stream.arrived(now, segments.get(), numbered);
                }
            }
            Content::TooBig => {
                self.flows.get_mut(index).into_iter().for_each(|flow| flow.learn_of_narrow_link(now));
                self.serve(index);
            }
            Content::Echo(number) => {
                self.echoes.iter_mut().for_each(|echoes| echoes.answered(now, number));
            }
            Content::End => {}
        }
    }

    fn expire(&mut self, index: usize) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(index) else { return };
        let sends = flow.sends_at(now);
        flow.catch_up(now);
        let delayed = flow.wake(now);
        let after_read = flow.read(now);
        if let Some(ack) = delayed {
            self.acknowledge(index, ack);
        }
        if let Some(ack) = after_read {
            self.acknowledge(index, ack);
        }
        self.settle(index);
        if sends { self.serve(index) } else { self.arm(index) }
    }

    /// Sends what a connection may send, and queues its next deadline.
    fn serve(&mut self, index: usize) {
        self.send_all(index);
        self.arm(index);
    }

    /// Sends what a connection may send.
    fn send_all(&mut self, index: usize) {
        let now = self.now;
        loop {
            while let Some(flow) = self.flows.get_mut(index)
                && let Some(burst) = flow.next(now)
            {
                let (first, short) = flow.parts(burst);
                self.send(index, first);
                if let Some(short) = short {
                    self.send(index, short);
                }
            }
            if !self.takes_chunk(index) {
                return;
            }
        }
    }

    /// Sends segments whose packets have so many bytes each.
    fn send(&mut self, index: usize, (burst, bytes): (Burst, ByteCount)) {
        let packet = Packet::data(index as u32, bytes, &burst);
        self.capture(End::Sender, &packet);
        self.offer(packet);
    }

    /// Gives a connection that has written everything the next chunk of the queue. Returns whether there was one.
    fn takes_chunk(&mut self, index: usize) -> bool {
        let Divided::Queue(queue) = &mut self.divided else { return false };
        let flow = self.flows.get_mut(index).filter(|flow| flow.has_written_all() && !flow.sender.is_dead());
        flow.is_some_and(|flow| queue.take().map(|chunk| flow.grant(chunk)).is_some())
    }

    /// Sends what is due of a stream of datagrams.
    fn send_datagrams(&mut self, number: u32) {
        let now = self.now;
        let Some(stream) = self.datagrams.get_mut((number & !DATAGRAMS) as usize) else { return };
        let due = stream.next(now, number);
        let next = stream.deadline();
        self.timers.extend(next.map(|at| Reverse((at, number))));
        if let Some(packet) = due {
            self.offer(packet);
        }
        let own = self.own_datagrams();
        if self.is_flowing() && !own.is_empty() && own.iter().all(DatagramStream::has_sent_all) {
            self.end_stage(now);
        }
    }

    fn offer(&mut self, mut packet: Packet) {
        while let Some(first) = self.cut_first(&mut packet) {
            self.offer_whole(first);
        }
        self.offer_whole(packet);
    }

    /// Takes the first of the parts in which the path carries `packet` out of it; `None` if there is one alone.
    #[inline]
    fn cut_first(&self, packet: &mut Packet) -> Option<Packet> {
        match self.plan.granularity {
            Granularity::Cut => self.forward.cut_first(packet),
            Granularity::Segment | Granularity::Train => take_first(packet, self.longest_train),
        }
    }

    fn offer_whole(&mut self, packet: Packet) {
        if let Some(reply) = self.forward.offer(self.now, packet).reply {
            self.reverse.offer(self.now, reply);
        }
    }

    fn acknowledge(&mut self, index: usize, ack: Ack) {
        let Some(flow) = self.flows.get(index) else { return };
        let bytes = flow.wire.acknowledgement + ack.blocks.option_bytes();
        let packet = Packet::ack(index as u32, bytes, ack, flow.wire.scales[0]);
        self.capture(End::Receiver, &packet);
        self.reverse.offer(self.now, packet);
    }

    #[inline]
    fn capture(&mut self, end: End, packet: &Packet) {
        if let Some(captures) = &mut self.captures {
            captures.add(end, self.now, packet);
        }
    }

    fn arm(&mut self, index: usize) {
        let now = self.now;
        let due = self.flows.get_mut(index).and_then(|flow| flow.arm(now));
        self.queue_timer(index, due);
    }

    fn queue_timer(&mut self, index: usize, due: Option<Time>) {
        if let Some(at) = due {
            self.timers.push(Reverse((at, index as u32)));
        }
    }

    /// Notes whether a connection of a transfer that ends by its bytes is over.
    #[inline]
    fn settle(&mut self, index: usize) {
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
            Divided::Equal => {
                self.pending -= usize::from(self.flows.get_mut(index).is_some_and(Flow::ends_now));
                self.pending == 0
            }
            Divided::Queue(queue) => queue.left() == ByteCount::ZERO && self.own_flows().iter().all(Flow::is_over),
            Divided::Ranges(_) => self.follow_ranges(index) || !self.receives_ranges(),
        };
        if is_complete || self.is_broken() {
            self.stage = Stage::Over { stopped: self.now };
        }
    }

    /// Returns true if all connections of the transfer that are open have given up.
    pub(crate) fn is_broken(&self) -> bool {
        let mut open = self.own_flows().iter().filter(|flow| !flow.is_closed()).peekable();
        open.peek().is_some() && open.all(|flow| flow.sender.is_dead())
    }

    /// Lets the receiving program of a connection ask for more when it has what it asked for, and close it when it
    /// comes to what another one receives. Returns whether everything is there.
    fn follow_ranges(&mut self, index: usize) -> bool {
        let (Some(flow), Divided::Ranges(ranges)) = (self.flows.get_mut(index), &mut self.divided) else {
            return false;
        };
        let (read, knows_at) = (flow.receiver.bytes_read(), self.now + self.plan.path.reverse.delay);
        match ranges.arrived(index, read) {
            Arrived::Part => return false,
            Arrived::All => {
                if let Some(bytes) = ranges.ask(index, read) {
                    flow.ask(knows_at, bytes);
                }
                self.arm(index);
            }
            Arrived::UpToAnother => {
                flow.close(knows_at);
                let next = self.own_flows().len();
                if let Divided::Ranges(ranges) = &mut self.divided
                    && let Some(bytes) = ranges.ask(next, ByteCount::ZERO)
                {
                    self.open(knows_at + self.connection.handshake, bytes);
                }
            }
        }
        matches!(&self.divided, Divided::Ranges(ranges) if ranges.is_complete())
    }

    /// Returns true if a connection that has not given up is to receive more of what it was asked for.
    fn receives_ranges(&self) -> bool {
        let Divided::Ranges(ranges) = &self.divided else { return false };
        let mut flows = self.own_flows().iter().enumerate();
        flows.any(|(index, flow)| ranges.receives(index) && !flow.sender.is_dead())
    }

    /// Returns the bytes of a transfer that ends by its bytes which have not been read.
    pub(crate) fn missing(&self) -> ByteCount {
        let of_connections = || self.own_flows().iter().map(Flow::missing).sum();
        match &self.divided {
            Divided::Equal => of_connections(),
            Divided::Queue(queue) => queue.left() + of_connections(),
            Divided::Ranges(ranges) => ranges.missing(),
        }
    }

    /// Adds a connection whose sender is asked for so many bytes at `starts`.
    fn open(&mut self, starts: Time, bytes: ByteCount) {
        let Self { plan, connection, forward, maker, flows, .. } = self;
        let mut flow = maker.flow((&*plan, &*connection, &*forward), [starts; 2], FIRST_START, Some(ByteCount::ZERO));
        flow.grant(bytes);
        let index = flows.len();
        flows.push(flow);
        plan.request.streams += 1;
        self.arm(index);
    }
}

/// Returns the longest train that the path carries whole, where it does not cut as the laboratory's. Its first packet
/// waits for the last, and where the window holds few trains, each round trip is longer by that.
fn longest_train(plan: &Plan) -> SegCount {
    const PART_OF_ROUND_TRIP: u64 = 100;
    match plan.granularity {
        Granularity::Segment | Granularity::Cut => SegCount::new(1),
        Granularity::Train => packets_within(&plan.path.forward, plan.path.rtt() / PART_OF_ROUND_TRIP),
    }
}

/// Returns true if the exact moments at which programs wake have no visible effect, where trains
/// are carried whole: they do so within a fivehundredth of the round trip, where a train may take a
/// hundredth of it, and before a second train arrives.
fn wakes_early(plan: &Plan) -> bool {
    const PART_OF_ROUND_TRIP: u64 = 500;
    // Of 64 KiB (`sk_gso_max_size`).
    const PACKETS_OF_TRAIN: SegCount = SegCount::new(43);
    plan.granularity == Granularity::Train
        && WAKES_WITHIN <= plan.path.rtt() / PART_OF_ROUND_TRIP
        && packets_within(&plan.path.forward, WAKES_WITHIN) <= PACKETS_OF_TRAIN
}

/// Fills in the size of a write that the request leaves to the program.
fn resolved(plan: Plan) -> Plan {
    let mut plan = plan;
    let request = &mut plan.request;
    if request.transport == Transport::Udp {
        request.block = datagrams::payload(&plan.path.forward, request);
    } else if request.block == ByteCount::ZERO {
        let at_rate = request.rate.map(|rate| rate.bytes_in(Span::from_millis(1)).max(ByteCount::new(1)));
        request.block = at_rate.unwrap_or(ByteCount::from_mib(1));
    }
    request.streams = request.streams.max(1);
    plan
}

/// A host that has been up for some time, so that its clocks have a phase.
fn clock(plan: &Plan, random: &mut Pcg64Mcg) -> Clock {
    const UP: Span = Span::from_secs(1_000);
    Clock::new(plan.ticks_per_second, UP + Span::from_nanos(random.next_u64() % 1_000_000_000))
}

/// The streams of all loads while they are prepared.
struct Streams<'d> {
    /// The direction of the data.
    forward: &'d Direction<Packet>,
    maker: Maker,
    flows: Vec<Flow>,
    datagrams: Vec<DatagramStream>,
}

impl<'d> Streams<'d> {
    fn new(plan: &Plan, forward: &'d Direction<Packet>) -> Self {
        Self { forward, maker: Maker::new(plan), flows: Vec::new(), datagrams: Vec::new() }
    }

    /// Adds the streams of the load of `plan`, which begins at `start`, with what each has of `divided`.
    fn add(&mut self, plan: &Plan, start: Time, divided: &mut Divided) -> Result<Range<usize>, NotModelled> {
        let request = &plan.request;
        let streams = u64::from(request.streams);
        let share = |stream: u16| {
            request.bytes.map(|bytes| ByteCount::new((bytes.get() + streams - 1 - u64::from(stream)) / streams))
        };
        if request.transport == Transport::Udp {
            let first = self.datagrams.len();
            for stream in 0..request.streams {
                let begin = (start, self.maker.random.next_u64());
                self.datagrams.push(DatagramStream::new(&plan.path, request, share(stream), begin)?);
            }
            return Ok(first..self.datagrams.len());
        }
        let (connection, first) = (Connection::new(plan)?, self.flows.len());
        let of_divided = divided.at_first(usize::from(request.streams));
        for stream in 0..request.streams {
            let spread = if stream == 0 { FIRST_START } else { START_SPREAD };
            // The other end opens further connections when the first one has been answered, and asks then.
            let waits = stream > 0 && matches!(divided, Divided::Ranges(_));
            let starts = if waits { start + connection.handshake * 2 } else { start };
            let part = of_divided.as_ref().map(|parts| parts[usize::from(stream)]);
            let total = if part.is_some() { Some(ByteCount::ZERO) } else { share(stream) };
            let mut flow = self.maker.flow((plan, &connection, self.forward), [start, starts], spread, total);
            if let Some(bytes) = part {
                flow.grant(bytes);
            }
            self.flows.push(flow);
        }
        Ok(first..self.flows.len())
    }

    /// Adds those of other loads.
    fn add_loads(&mut self, plan: &Plan) -> Result<Vec<Load>, NotModelled> {
        let mut load = |other: &CrossTraffic| {
            let alone = Plan { request: other.request.clone(), division: Division::Equal, ..plan.clone() };
            let streams = self.add(&resolved(alone), Time::ZERO + other.starts, &mut Divided::Equal)?;
            Ok(Load::new(plan, other, streams))
        };
        plan.cross_traffic.iter().map(&mut load).collect()
    }
}

/// The source of connections.
#[derive(Debug)]
struct Maker {
    random: Pcg64Mcg,
    clocks: [Clock; 2],
}

impl Maker {
    fn new(plan: &Plan) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
        let clocks = [clock(plan, &mut random), clock(plan, &mut random)];
        Self { random, clocks }
    }

    /// Makes a connection that is there at the first time, and whose data begins to flow within `spread` of the second.
    fn flow(
        &mut self,
        (plan, connection, forward): (&Plan, &Connection, &Direction<Packet>),
        [there, starts]: [Time; 2],
        spread: Span,
        total: Option<ByteCount>,
    ) -> Flow {
        let sender = Sender::new(&connection.sender(plan, self.clocks, self.random.next_u64()), there);
        let train = Packet::data(0, connection.wire().segment, &sender.first_train(there));
        let first = forward.cut(train).next().map_or(SegCount::ZERO, |first| first.segments());
        let receiver = Receiver::new(&connection.receiver(self.clocks, first), connection.handshake, there);
        let starts = starts + Span::from_nanos(self.random.next_u64() % spread.as_nanos());
        let source = Source::new(&plan.request, total, connection.handshake, starts);
        let programs = (source, Sink::new(plan.reads, starts));
        Flow::new((sender, receiver), connection.wire(), programs, starts, self.random.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{HostSettings, Path, PathDirection, Request};
    use fullpipe_units::{BitRate, Ratio};

    #[test]
    fn a_deferred_read_changes_nothing_but_the_number_of_events() {
        for (loss, streams, timestamps) in [(None, 1, true), (Some(Ratio::new(1e-3)), 3, true), (None, 2, false)] {
            let direction = PathDirection { loss, ..PathDirection::of_rate(Some(BitRate::from_mbps(50))) };
            let sender = HostSettings { timestamps, ..HostSettings::of_linux_6_18() };
            let request = Request { duration: Span::from_secs(3), streams, ..Request::default() };
            let hosts = [sender, HostSettings::of_linux_6_18()];
            let plan = Plan::new(Path::symmetric(&direction, Span::from_millis(60)), hosts, request, 3);
            let mut simulations = [plan.clone(), plan].map(|plan| Simulation::new(plan).unwrap());
            for flow in &mut simulations[1].flows {
                flow.defer_reads(false);
            }
            for simulation in &mut simulations {
                simulation.run_until(Time::from_nanos(u64::MAX));
            }
            assert!(simulations[0].events() < simulations[1].events(), "{loss:?}");
            let [deferred, at_once] = simulations.map(Simulation::measure);
            assert_eq!(deferred, at_once, "{loss:?}, {streams} streams, timestamps {timestamps}");
        }
    }
}
