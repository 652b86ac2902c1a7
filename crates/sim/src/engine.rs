use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fullpipe_link::{Counters, Direction, Train};
use fullpipe_tcp::{Ack, Clock, Receiver, Sender};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::connection::Connection;
use crate::flow::Flow;
use crate::packet::{Content, Packet};
use crate::program::{Sink, Source};
use crate::sampling::Sampler;
use crate::{Granularity, NotModelled, Plan};

/// The first connection begins within so much of when it may: a program takes part of a millisecond, by which the
/// stamps of both hosts count, to do so.
const FIRST_START: Span = Span::from_millis(1);
/// Connections begin within so much of each other, as those of a program do that opens one after the other.
const START_SPREAD: Span = Span::from_millis(10);

/// A transfer in virtual time.
///
/// At the same moment, what arrives over the forward direction comes first, then what arrives over the reverse one,
/// then timers in the order of the connections, then the end of the transfer, then the sample. So nothing depends on
/// when, and how often, it is [run](Self::run_until).
#[derive(Debug)]
pub struct Simulation {
    pub(crate) plan: Plan,
    pub(crate) connection: Connection,
    forward: Direction<Packet>,
    reverse: Direction<Packet>,
    pub(crate) flows: Vec<Flow>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    pub(crate) now: Time,
    pub(crate) sampler: Sampler,
    pub(crate) stage: Stage,
    events: u64,
    /// Connections that have not sent everything, of a transfer that ends by its bytes.
    pending: usize,
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
        let plan = resolved(plan);
        let connection = Connection::new(&plan)?;
        let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
        let clocks = [clock(&plan, &mut random), clock(&plan, &mut random)];
        let [forward, reverse] = Direction::both(&plan.path, plan.seed);
        let flows: Vec<Flow> = (0..plan.request.streams)
            .map(|stream| flow(&plan, &connection, &forward, clocks, stream, &mut random))
            .collect();
        let mut simulation = Self {
            forward,
            reverse,
            sampler: Sampler::new(&plan),
            stage: Stage::Flowing { until: Time::ZERO + plan.lasts() },
            pending: flows.len(),
            plan,
            connection,
            flows,
            timers: BinaryHeap::new(),
            now: Time::ZERO,
            events: 0,
        };
        for flow in 0..simulation.flows.len() {
            simulation.serve(flow);
        }
        Ok(simulation)
    }

    /// Lets everything happen up to and at `until`, or until the transfer is over.
    pub fn run_until(&mut self, until: Time) {
        while !self.is_over() {
            let next = self.next_event().filter(|next| *next <= until);
            self.sample_until(next.unwrap_or(until));
            let Some(next) = next else { break };
            self.now = next;
            self.events += 1;
            self.step(next);
        }
        if !self.is_over() {
            self.now = self.now.max(until);
        }
    }

    /// Returns whether the time of the transfer has passed, or all its bytes have been read, and both ends know.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over { .. })
    }

    /// Returns the moment up to which it has run.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the counts of the path, forward and reverse.
    pub fn counters(&mut self) -> [Counters; 2] {
        [self.forward.counters(self.now), self.reverse.counters(self.now)]
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the segments that both ends of each connection have counted: sent again, and acknowledged.
    pub fn segments(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        self.flows.iter().map(|flow| [flow.sender.retransmits().get(), flow.sender.acknowledged_segments()])
    }

    fn next_event(&self) -> Option<Time> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let links = [self.forward.next_deadline(), self.reverse.next_deadline()];
        links.into_iter().chain([timer, self.stage_ends()]).flatten().min()
    }

    fn stage_ends(&self) -> Option<Time> {
        match self.stage {
            Stage::Flowing { until } | Stage::Ending { until, .. } => Some(until),
            Stage::Over { .. } => None,
        }
    }

    fn end_stage(&mut self, now: Time) {
        match self.stage {
            Stage::Flowing { .. } => {
                self.flows.iter_mut().for_each(Flow::stop);
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
            let at = self.sampler.due();
            self.sampler.take(at, &self.flows, &self.connection, &self.plan);
        }
    }

    fn step(&mut self, now: Time) {
        while let Some(delivery) = self.forward.pop(now) {
            self.deliver(&delivery.train);
        }
        while let Some(delivery) = self.reverse.pop(now) {
            self.deliver(&delivery.train);
        }
        while let Some(&Reverse((at, flow))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let flow = flow as usize;
            if self.flows.get_mut(flow).is_some_and(|flow| flow.disarm(at)) {
                self.expire(flow);
            }
        }
        if self.stage_ends().is_some_and(|at| at <= now) {
            self.end_stage(now);
        }
    }

    fn deliver(&mut self, packet: &Packet) {
        let (now, index) = (self.now, packet.flow as usize);
        if let (Content::End, Stage::Ending { stopped, .. }) = (&packet.content, self.stage) {
            self.stage = Stage::Over { stopped };
        }
        let Some(flow) = self.flows.get_mut(index).filter(|_| !packet.is_spoiled) else { return };
        match &packet.content {
            Content::Data(data) => {
                let answers = [flow.receiver.arrived(now, &data.burst()), flow.read(now)];
                answers.into_iter().flatten().for_each(|ack| self.acknowledge(index, &ack));
                let due = self.flows.get_mut(index).and_then(|flow| flow.arm_receiver(now));
                self.queue_timer(index, due);
                self.settle(index);
            }
            Content::Acknowledgement(ack) => {
                flow.sender.acknowledged(now, &ack.ack(self.connection.scales[1].unwrap_or(0)));
                self.serve(index);
            }
            Content::End => {}
        }
    }

    fn expire(&mut self, index: usize) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(index) else { return };
        let answers = [flow.wake(now), flow.read(now)];
        answers.into_iter().flatten().for_each(|ack| self.acknowledge(index, &ack));
        self.settle(index);
        self.serve(index);
    }

    /// Sends what a connection may send.
    fn serve(&mut self, index: usize) {
        let now = self.now;
        while let Some(burst) = self.flows.get_mut(index).and_then(|flow| flow.next(now)) {
            let bytes = if burst.is_probe {
                self.connection.segment.saturating_sub(self.connection.mss)
            } else {
                self.connection.segment
            };
            self.offer(Packet::data(index as u32, bytes, &burst));
        }
        self.arm(index);
    }

    fn offer(&mut self, packet: Packet) {
        let now = self.now;
        match self.plan.granularity {
            Granularity::Train => {
                self.forward.offer(now, packet);
            }
            Granularity::Cut => {
                let parts = self.forward.cut(packet);
                for part in parts {
                    self.forward.offer(now, part);
                }
            }
            Granularity::Segment => {
                let parts = fullpipe_link::cut_train(packet, SegCount::new(1));
                for part in parts {
                    self.forward.offer(now, part);
                }
            }
        }
    }

    fn acknowledge(&mut self, index: usize, ack: &Ack) {
        let bytes = self.connection.acknowledgement + ack.blocks.option_bytes();
        let scale = self.connection.scales[0].unwrap_or(0);
        self.reverse.offer(self.now, Packet::ack(index as u32, bytes, ack, scale));
    }

    fn arm(&mut self, index: usize) {
        let now = self.now;
        let due = self.flows.get_mut(index).and_then(|flow| flow.arm(now));
        self.queue_timer(index, due);
    }

    fn queue_timer(&mut self, index: usize, due: Option<Time>) {
        self.timers.extend(due.map(|at| Reverse((at, index as u32))));
    }

    /// Notes whether a connection of a transfer that ends by its bytes is over.
    fn settle(&mut self, index: usize) {
        if self.flows.get_mut(index).is_some_and(Flow::ends_now) {
            self.pending -= 1;
        }
        if self.pending == 0 && !self.is_over() {
            self.stage = Stage::Over { stopped: self.now };
        }
    }
}

/// Fills in the size of a write that the request leaves to the program.
fn resolved(plan: Plan) -> Plan {
    let mut plan = plan;
    let request = &mut plan.request;
    if request.block == ByteCount::ZERO {
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

fn flow(
    plan: &Plan,
    connection: &Connection,
    forward: &Direction<Packet>,
    clocks: [Clock; 2],
    stream: u16,
    random: &mut Pcg64Mcg,
) -> Flow {
    let sender = Sender::new(&connection.sender(plan, clocks, random.next_u64()), Time::ZERO);
    let train = Packet::data(0, connection.segment, &sender.first_train(Time::ZERO));
    let first = forward.cut(train).next().map_or(SegCount::ZERO, |first| first.segments());
    let receiver = Receiver::new(&connection.receiver(clocks, first), connection.handshake, Time::ZERO);
    let mut late = |most: Span| Span::from_nanos(random.next_u64() % most.as_nanos());
    let starts = Time::ZERO + late(if stream == 0 { FIRST_START } else { START_SPREAD });
    let streams = u64::from(plan.request.streams);
    let share = |bytes: ByteCount| ByteCount::new((bytes.get() + streams - 1 - u64::from(stream)) / streams);
    let total = plan.request.bytes.map(share);
    let source = Source::new(&plan.request, total, connection.handshake, starts);
    Flow::new((sender, receiver), (source, Sink::new(plan.reads, starts)), starts, random.next_u64())
}
