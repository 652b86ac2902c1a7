//! A transfer over one framed connection as a measurement of this end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_http::{Ndt7Message, Ndt7TcpInfo};
use fullpipe_iperf::TestResults;
use fullpipe_record::{
    Direction, EndReport, HostSettings, Http2Wait, Interval, Measurement, Peer, Request,
    ResolvedRequest, RttReport, Sample, SocketReadback, Summary, TcpInfo, Transport, find_steady,
    steady_of_receiver,
};
use fullpipe_units::{BitRate, ByteCount, Span};
use socket2::SockRef;

use crate::engine::{
    FramedStream, PlannedStream, RunningTransfer, StreamChannel, StreamRole, TransferPlan,
    read_back,
};
use crate::machine::MachineSampler;
use crate::progress::{CountedTransfer, FinishedTransfer};
use crate::results::{
    direction_summary, new_id, run_totals, start_date, stream_summaries, this_host,
};
use crate::route::caller_handshake;

/// A transfer over one framed connection, and what was known before it began. Directions are those
/// of this end: an upload is what it sends.
pub(crate) struct WebTransfer {
    /// The load as it was asked for.
    pub request: Request,
    pub peer: SocketAddr,
    /// Name of the other end.
    pub host: String,
    /// Time from the first packet until data could flow.
    pub setup: Option<Span>,
    sockets: Vec<SocketReadback>,
    settings: Option<HostSettings>,
    http2_wait: Option<Http2Wait>,
    /// What the kernel counted before it began.
    earlier: TcpInfo,
}

impl WebTransfer {
    /// Returns the transfer that `framed` is to carry with `peer`, which has the name `host`.
    pub(crate) fn new(
        framed: &FramedStream,
        request: Request,
        peer: SocketAddr,
        host: String,
    ) -> Self {
        let socket = &framed.socket;
        let readback = read_back(&SockRef::from(socket), 0).ok();
        let sockets = readback.map(|readback| SocketReadback {
            handshake: caller_handshake(socket),
            ..readback
        });
        Self {
            request,
            peer,
            host,
            setup: None,
            sockets: sockets.into_iter().collect(),
            // If the settings cannot be read, they are left out.
            settings: inspect_host(&SysctlTree::of_this_host()).ok(),
            http2_wait: None,
            earlier: fullpipe_sys::tcp_info(socket).unwrap_or_default(),
        }
    }

    /// Starts the data, of which at most so many `samples` are kept. Watches the processors and the
    /// device too if that is wanted.
    ///
    /// # Errors
    /// Fails if a thread cannot be started.
    pub(crate) fn start(
        &self,
        framed: &Arc<FramedStream>,
        samples: usize,
        watches_machine: bool,
    ) -> io::Result<CountedTransfer> {
        let machine = watches_machine.then(|| MachineSampler::from_route(self.peer.ip(), None));
        let lane = PlannedStream {
            channel: StreamChannel::Framed(Arc::clone(framed)),
            role: self.role(),
        };
        let plan = TransferPlan {
            samples,
            bounds_unsent: true,
            ..TransferPlan::from_request(&self.request, self.earlier.min_rtt)
        };
        let transfer = RunningTransfer::start_transfer(vec![lane], plan)?;
        let machine = machine.and_then(|machine| machine.start_watch(transfer.origin));
        let ways = vec![self.request.direction];
        Ok(
            CountedTransfer::new(transfer, machine, self.request.clone(), ways)
                .counting_from(&self.earlier),
        )
    }

    /// Notes the wait for windows of HTTP/2 of the other end.
    pub(crate) fn note_http2_wait(&mut self, wait: Http2Wait) {
        self.http2_wait = Some(wait).filter(|_| self.role() == StreamRole::Sender);
    }

    /// Adds the connection of `other`, which carried a part of the same load.
    pub(crate) fn join_connection(&mut self, other: Self) {
        let stream = self.request.streams;
        self.request.streams += 1;
        let sockets = other.sockets.into_iter();
        self.sockets
            .extend(sockets.map(|socket| SocketReadback { stream, ..socket }));
    }

    /// Returns the part of this end.
    pub(crate) fn role(&self) -> StreamRole {
        if self.request.direction == Direction::Upload {
            StreamRole::Sender
        } else {
            StreamRole::Receiver
        }
    }

    /// Returns the measurement of the transfer that is over, with the `messages` of ndt7 of the
    /// other end.
    pub(crate) fn into_measurement(
        self,
        begun: Instant,
        finished: FinishedTransfer,
        messages: &[Ndt7Message],
        intervals: Vec<Interval>,
    ) -> Measurement {
        let streams = stream_summaries(&finished, &TestResults::default(), Transport::Tcp);
        let idle_rtt = self.earlier.min_rtt;
        let failure = finished.rest.failures.first();
        // A receiver sends so little that its own round trips may all be of the handshake.
        let receives = self.role() == StreamRole::Receiver;
        let within = finished.rest.samples.iter().filter_map(|sample| {
            let of_data = sample.tcp.rcv_rtt.filter(|_| receives);
            of_data.or(sample.tcp.rtt)
        });
        let rtt = RttReport::of_kernel(idle_rtt, within.collect());
        let steady = match self.role() {
            StreamRole::Sender => find_steady,
            StreamRole::Receiver => steady_of_receiver,
        };
        let ended_at = finished.to.totals.at;
        let summary = Summary {
            steady: steady(&finished.rest.samples, idle_rtt, ended_at),
            ..direction_summary(self.request.direction, &streams, finished.duration())
        };
        let measurement = Measurement {
            id: new_id(),
            started: start_date(&finished),
            setup: self.setup,
            peer: Peer {
                host: self.host,
                address: self.peer.to_string(),
                speaks_fullpipe: false,
            },
            resolved: Some(ResolvedRequest::new(self.request.clone())),
            request: self.request,
            run: Some(run_totals(begun, &finished, None)),
            remote: EndReport {
                samples: messages.iter().filter_map(stated_sample).collect(),
                ..EndReport::default()
            },
            streams,
            intervals,
            rtt,
            summary,
            broken_off: failure.map(|(_, error)| format!("the connection broke: {error}")),
            warnings: finished.rest.notes.clone(),
            local: EndReport {
                host: Some(this_host()),
                settings: self.settings,
                http2_wait: self.http2_wait,
                cpu: finished.rest.cpu,
                sockets: self.sockets,
                processors: finished.machine.processors,
                device: finished.machine.device,
                network: finished.machine.network,
                samples: finished.rest.samples,
                ..EndReport::default()
            },
            ..Measurement::default()
        };
        measurement.to_bounded()
    }
}

/// Returns the time of the last sample before which data arrived: at the other end if this one has
/// the role of the sender. `None` without samples.
pub(crate) fn last_progress(samples: &[Sample], role: StreamRole) -> Option<Span> {
    let arrived = |sample: &Sample| match role {
        StreamRole::Sender => sample.tcp.bytes_acked,
        StreamRole::Receiver => sample.tcp.bytes_received,
    };
    let most = samples.iter().filter_map(arrived).max();
    let last = samples.iter().find(|sample| arrived(sample) == most)?;
    Some(last.at)
}

/// Leaves of a `measurement` what was before `end`, after which nothing arrived until somebody saw
/// that it had broken off.
pub(crate) fn end_at(measurement: &mut Measurement, end: Span, role: StreamRole) {
    measurement.local.samples.retain(|sample| sample.at <= end);
    let steady = match role {
        StreamRole::Sender => find_steady,
        StreamRole::Receiver => steady_of_receiver,
    };
    let summary = &mut measurement.summary;
    let idle = measurement.rtt.idle.map(|idle| idle.median);
    summary.steady = steady(&measurement.local.samples, idle, end);
    summary.duration = end;
    summary.rate = BitRate::from_bytes_in(summary.received, end);
}

/// Returns the snapshot that a message of the other end states.
fn stated_sample(message: &Ndt7Message) -> Option<Sample> {
    let info: Ndt7TcpInfo = message.tcp_info?;
    let bytes = message.app_info.unwrap_or_default().num_bytes;
    Some(Sample {
        at: Span::from_micros(u64::try_from(info.elapsed_time).ok()?),
        stream: 0,
        bytes: ByteCount::new(u64::try_from(bytes).ok()?),
        tcp: info.to_tcp_info(),
        memory: None,
    })
}
