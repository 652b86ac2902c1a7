use std::collections::BinaryHeap;
use std::ops::Range;

use fullpipe_link::{DirectionCounters, LinkDirection, Train, packets_within};
use fullpipe_model::datagrams;
use fullpipe_record::{Request, Transport};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{Simulation, TransferStage};
use crate::connection::ConnectionSetup;
use crate::cross_traffic::CrossLoad;
use crate::datagrams::{DatagramStream, EchoRequests, check_number};
use crate::division::DividedTransfer;
use crate::flow::{SimulatedFlow, WAKES_WITHIN};
use crate::packet::SimulatedPacket;
use crate::program::{ProgramCredit, ReceivingProgram, SendingProgram};
use crate::sampling::TransferSampler;
use crate::tcp::{HostClock, Receiver, Sender};
use crate::{NotModelled, SimulationPlan, TrainGranularity, TransferDivision, load_duration};

/// The first connection begins within so much of when it may: a program takes part of a
/// millisecond, by which the stamps of both hosts count, to do so.
pub(super) const FIRST_START: Span = Span::from_millis(1);
/// Connections begin within so much of each other, as those of a program do that opens one after
/// the other.
const START_SPREAD: Span = Span::from_millis(10);

impl Simulation {
    pub(super) fn new_prepared(plan: SimulationPlan) -> Result<Self, NotModelled> {
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
pub(super) struct FlowMaker {
    pub(super) random: Pcg64Mcg,
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
    pub(super) fn make_flow(
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
        let stated = plan.request.stated_load();
        let answers_after = plan.path.reverse.delay + stated.pause.unwrap_or_default();
        let credit = stated
            .app_window
            .map(|window| ProgramCredit::new(window, answers_after, connection.mss));
        let source =
            SendingProgram::new(&plan.request, (total, credit), connection.handshake, starts);
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
