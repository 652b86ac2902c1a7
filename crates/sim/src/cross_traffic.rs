//! Other loads on the same path.

use std::ops::Range;

use fullpipe_record::{Datagrams, Request, Transport};
use fullpipe_units::{ByteCount, Span, Time};

use crate::SimulationPlan;
use crate::connection::queue_time;
use crate::datagrams::DatagramStream;
use crate::flow::SimulatedFlow;

/// A load during a transfer, from the same host to the other.
#[derive(Debug, Clone)]
pub struct CrossTraffic {
    /// The load, which sends for its duration.
    pub request: Request,
    /// When it begins, since the path exists.
    pub starts: Span,
}

/// The result of a load during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossTrafficResult {
    /// Payload that was sent.
    pub sent: ByteCount,
    /// Payload that arrived until the far end knew that the load is over.
    pub received: ByteCount,
    /// Time for which it was sent.
    pub sending: Span,
    /// Counts of the receiver of datagrams, all streams together.
    pub datagrams: Option<Datagrams>,
}

/// A load while the transfer runs.
#[derive(Debug)]
pub(crate) struct CrossLoad {
    /// Streams of the load: connections, or streams of datagrams.
    pub(crate) streams: Range<usize>,
    pub(crate) transport: Transport,
    starts: Time,
    stops: Time,
    /// When the far end knows that it is over.
    counted: Time,
    stopped: Option<Time>,
    result: Option<CrossTrafficResult>,
}

impl CrossLoad {
    pub(crate) fn new(plan: &SimulationPlan, load: &CrossTraffic, streams: Range<usize>) -> Self {
        let way = &plan.path.forward;
        let starts = Time::ZERO + load.starts;
        let stops = starts + load.request.duration;
        Self {
            streams,
            transport: load.request.transport,
            starts,
            stops,
            // The message that says so is behind the data in its queue.
            counted: stops + way.delay + queue_time(way),
            stopped: None,
            result: None,
        }
    }

    /// Returns when something is to be done about it next.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match (self.stopped, self.result) {
            (None, _) => Some(self.stops),
            (Some(_), None) => Some(self.counted),
            (Some(_), Some(_)) => None,
        }
    }

    /// Does what is due.
    pub(crate) fn attend_due(
        &mut self,
        now: Time,
        flows: &mut [SimulatedFlow],
        datagrams: &mut [DatagramStream],
    ) {
        if self.stops <= now {
            self.stop(now, flows, datagrams);
        }
        if self.counted <= now {
            self.count_arrivals(now, flows, datagrams);
        }
    }

    /// Ends it, if it sends.
    pub(crate) fn stop(
        &mut self,
        now: Time,
        flows: &mut [SimulatedFlow],
        datagrams: &mut [DatagramStream],
    ) {
        if self.stopped.is_some() {
            return;
        }
        self.stopped = Some(now);
        match self.transport {
            Transport::Tcp => flows[self.streams.clone()]
                .iter_mut()
                .for_each(SimulatedFlow::stop),
            Transport::Udp => datagrams[self.streams.clone()]
                .iter_mut()
                .for_each(DatagramStream::stop),
        }
    }

    /// Returns the counts of what has arrived, which are taken once.
    pub(crate) fn count_arrivals(
        &mut self,
        now: Time,
        flows: &[SimulatedFlow],
        datagrams: &[DatagramStream],
    ) -> CrossTrafficResult {
        let sending = self.stopped.unwrap_or(now).duration_since(self.starts);
        *self.result.get_or_insert_with(|| {
            let streams = self.streams.clone();
            let (flows, datagrams) = match self.transport {
                Transport::Tcp => (&flows[streams], &[][..]),
                Transport::Udp => (&[][..], &datagrams[streams]),
            };
            let [sent, received] = payload_totals(flows, datagrams);
            let counts = datagrams.iter().map(DatagramStream::stream_counts);
            CrossTrafficResult {
                sent,
                received,
                sending,
                datagrams: (self.transport == Transport::Udp)
                    .then(|| counts.map(|counts| counts.datagrams).sum()),
            }
        })
    }
}

/// Returns the payload that these streams have sent, and that has arrived of it.
pub(crate) fn payload_totals(
    flows: &[SimulatedFlow],
    datagrams: &[DatagramStream],
) -> [ByteCount; 2] {
    let [mut sent, mut arrived] = [ByteCount::ZERO; 2];
    for flow in flows {
        sent += flow.sender.written_bytes();
        arrived += flow.receiver.bytes_read();
    }
    for stream in datagrams {
        let counts = stream.stream_counts();
        sent += stream.payload_bytes(counts.sent);
        arrived += stream.payload_bytes(counts.arrived);
    }
    [sent, arrived]
}
