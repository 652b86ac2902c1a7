//! One test of an iperf3 client, from its cookie to its end.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_host::{SysctlTree, inspect};
use fullpipe_iperf::{Error, ErrorNumber, Refusal, Results, ServerAction, ServerSession, State, direction_of};
use fullpipe_load::{Channel, Lane, PrepareError, Totals, Transfer, TransferPlan, apply_options, read_back};
use fullpipe_record::{Direction, EndReport, Request, Sample, SocketReadback, Transport};
use fullpipe_units::{BitRate, ByteCount, Span, Time};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::flows::{self, Opening};
use super::gate::Pass;
use super::listen::canonical;
use super::registry::Arrival;
use super::watch::Watch;
use super::{House, LOOK, ServerEvent};
use crate::progress::{Finished, Progress, role};
use crate::results::results_of;

/// Samples that a report carries, about 400 KB; a longer test is thinned out evenly.
const MOST_SAMPLES: usize = 240;

/// How long nothing may come before what is still missing is given up.
const SILENCE: Duration = Duration::from_secs(1);

/// How often is looked whether it has come.
const GLANCE: Duration = Duration::from_millis(2);

/// Bytes of the control connection that are read at once.
const READ: usize = 16 * 1024;

/// What a test carried, as this end saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Carried {
    pub(super) bytes: ByteCount,
    pub(super) rate: BitRate,
}

/// One test under way. While its client says nothing it holds no buffer: there may be a thousand of them.
pub(super) struct Test {
    house: Rc<House>,
    client: SocketAddr,
    control: TcpStream,
    session: ServerSession,
    origin: Instant,
    closing: watch::Receiver<bool>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    request: Request,
    load: Option<Pass>,
    /// Its turn to have UDP streams opened.
    opening: Option<Opening>,
    streams: Vec<(u64, Channel)>,
    sockets: Vec<SocketReadback>,
    progress: Option<Progress>,
    watch: Watch,
    finished: Option<Finished>,
}

impl Test {
    pub(super) fn new(
        house: Rc<House>,
        client: SocketAddr,
        control: TcpStream,
        arrivals: mpsc::UnboundedReceiver<Arrival>,
    ) -> Self {
        Self {
            client,
            control,
            session: ServerSession::new(Time::ZERO, house.patience.timeouts()),
            origin: Instant::now(),
            closing: house.closing.subscribe(),
            arrivals,
            request: Request::default(),
            load: None,
            opening: None,
            streams: Vec::new(),
            sockets: Vec::new(),
            progress: None,
            watch: Watch::new(house.bounds(ByteCount::ZERO)),
            finished: None,
            house,
        }
    }

    /// Runs the test to its end.
    pub(super) async fn run(mut self) -> Result<Carried, Error> {
        loop {
            while let Some(action) = self.session.next_action() {
                if let Some(end) = self.carry_out(action).await {
                    return end;
                }
            }
            self.wait().await;
            if *self.closing.borrow() {
                self.session.shutdown();
            }
            self.look();
            self.session.tick(self.now());
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    /// Until something happens, or is due.
    async fn wait(&mut self) {
        let pause = self.pause();
        tokio::select! {
            ready = self.control.readable() => self.read(ready),
            Some(arrival) = self.arrivals.recv() => self.welcome(arrival),
            Some(peer) = next_hello(&mut self.opening) => self.welcome_flow(peer),
            _ = self.closing.changed() => {}
            () = sleep(pause) => {}
        }
    }

    /// A test that carries nothing sleeps until its deadline.
    fn pause(&self) -> Duration {
        let due = self.session.deadline().map_or(LOOK, |deadline| deadline.since(self.now()).into());
        if self.progress.is_some() { due.min(LOOK) } else { due }
    }

    fn read(&mut self, ready: io::Result<()>) {
        let mut buffer = [0; READ];
        match ready.and_then(|()| self.control.try_read(&mut buffer)) {
            Ok(0) => self.session.closed(),
            Ok(length) => self.session.receive(self.now(), &buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.session.closed(),
        }
    }

    /// Holds what flows against what may flow.
    fn look(&mut self) {
        let (Some(progress), Some(load)) = (&mut self.progress, &self.load) else { return };
        progress.look();
        if progress.has_ended() {
            return;
        }
        let totals = progress.totals();
        let judged = self.watch.look(totals.at, moved(&totals)).and_then(|rate| match rate {
            Some(rate) => self.house.gate.measured(load, rate),
            None => Ok(()),
        });
        if let Err(refusal) = judged {
            self.session.refuse(refusal, None);
        }
    }

    /// Does what the protocol wants done; how the test ended, once it has.
    async fn carry_out(&mut self, action: ServerAction) -> Option<Result<Carried, Error>> {
        match action {
            ServerAction::Send(bytes) => {
                // Half a message must not be followed by another.
                let patience = self.house.patience.write();
                if !matches!(timeout(patience, self.control.write_all(&bytes)).await, Ok(Ok(()))) {
                    self.session.closed();
                }
            }
            ServerAction::ExpectStreams(request) => self.expect(request).await,
            ServerAction::StartTransfer => self.start_transfer(),
            ServerAction::StopTransfer => self.stop_transfer(),
            ServerAction::CollectResults { report } => {
                self.settle().await;
                self.finish_transfer().await;
                let results = self.results(report);
                self.session.local_results(self.now(), results);
            }
            ServerAction::Finished(_) => return Some(Ok(self.carried())),
            ServerAction::Failed(error) => {
                self.finish_transfer().await;
                return Some(Err(error));
            }
        }
        None
    }

    /// Lets the load in, if there is room for it.
    async fn expect(&mut self, request: Request) {
        let admitted = match self.house.gate.load(self.client.ip(), &request) {
            Ok(pass) => self.take_turn(&request).await.map(|()| pass),
            Err(refusal) => Err(refusal),
        };
        match admitted {
            Ok(pass) => {
                self.load = Some(pass);
                if self.house.one_off && request.transport == Transport::Tcp {
                    self.prepare_listener(&request);
                }
                self.house.tell(ServerEvent::Began { client: self.client, request: request.clone() });
                self.request = request;
            }
            Err(refusal) => self.session.refuse(refusal, None),
        }
    }

    /// Waits until this client's UDP streams cannot be taken for another's. The client is told to open them after that.
    async fn take_turn(&mut self, request: &Request) -> Result<(), Refusal> {
        if request.transport == Transport::Tcp {
            return Ok(());
        }
        let refuse = |number, why: &str| Err(Refusal { number, why: why.to_owned() });
        let Some(flows) = &self.house.flows else {
            return refuse(ErrorNumber::UNIMPLEMENTED, "UDP cannot be received here: its port is taken");
        };
        match timeout(self.house.patience.greeting() / 2, flows.turn(self.client.ip())).await {
            Ok(opening) => self.opening = Some(opening),
            Err(_) => return refuse(ErrorNumber::STREAMS, "other tests of this address are opening UDP streams"),
        }
        Ok(())
    }

    /// Gives the connections that are still to come their buffers from their first packet on, as iperf3 does by listening
    /// anew: the window scale is agreed then, and the finest that fits wastes least of a small window. A server for many
    /// cannot, as it listens for all of them; it sets what it has accepted. What is refused here is refused there too.
    fn prepare_listener(&self, request: &Request) {
        let _ = apply_options(&SockRef::from(&*self.house.listener), request);
    }

    /// Takes in a data connection that came with the test's cookie.
    fn welcome(&mut self, arrival: Arrival) {
        let Arrival { stream, pass } = arrival;
        if let Err(error) = apply_options(&SockRef::from(&stream), &self.request) {
            return self.refuse_stream(&error);
        }
        if self.request.transport == Transport::Tcp && self.session.stream_connected(self.now()) {
            self.streams.push((pass.number(), Channel::Tcp(stream)));
        } else {
            deny(&stream);
        }
    }

    /// Answers a hello that came from the client's address.
    fn welcome_flow(&mut self, peer: SocketAddr) {
        let opened = self
            .control
            .local_addr()
            .map_err(PrepareError::of("the address of a UDP stream"))
            .and_then(|here| flows::answer(peer, canonical(here), &self.request));
        match opened {
            Ok(socket) if self.session.stream_connected(self.now()) => {
                self.streams.push((self.streams.len() as u64, Channel::Udp(socket)));
            }
            Ok(_) => {}
            Err(error) => self.refuse_stream(&error),
        }
    }

    fn refuse_stream(&mut self, error: &PrepareError) {
        let refusal = Refusal { number: ErrorNumber::CONGESTION, why: error.to_string() };
        self.session.refuse(refusal, error.os_error());
    }

    fn start_transfer(&mut self) {
        self.opening = None;
        let base_rtt = fullpipe_sys::tcp_info(&self.control).ok().and_then(|info| info.min_rtt);
        let mut arrivals = std::mem::take(&mut self.streams);
        arrivals.sort_by_key(|(number, _)| *number);
        let channels: Vec<Channel> = arrivals.into_iter().map(|(_, channel)| channel).collect();
        let found = channels.iter().zip(0..).map(|(channel, index)| read_back(&SockRef::from(channel), index));
        self.sockets = found.filter_map(Result::ok).collect();
        self.watch = Watch::new(self.house.bounds(self.indivisible()));
        let ways: Vec<Direction> =
            (0..channels.len()).map(|index| seen_from_here(direction_of(&self.request, index as u16))).collect();
        let lanes = channels.into_iter().zip(&ways).map(|(channel, way)| Lane { channel, role: role(*way) }).collect();
        match Transfer::start(lanes, TransferPlan::of(&self.request, base_rtt)) {
            Ok(transfer) => self.progress = Some(Progress::new(transfer, self.request.clone(), ways)),
            Err(error) => {
                let refusal =
                    Refusal { number: ErrorNumber::STREAMS, why: format!("cannot start the data threads: {error}") };
                self.session.refuse(refusal, error.raw_os_error());
            }
        }
    }

    /// What all streams together write at once.
    fn indivisible(&self) -> ByteCount {
        let writes = u64::from(self.request.streams) * u64::from(self.request.burst.unwrap_or(1));
        ByteCount::new(self.request.block.get().saturating_mul(writes))
    }

    /// Ends what this end sends. What it counts is complete too, but for bytes that are sure to come.
    fn stop_transfer(&mut self) {
        let awaited = self.awaited();
        if let Some(progress) = &mut self.progress {
            if awaited.is_none() {
                progress.end();
            }
            progress.close_sending();
        }
    }

    /// How many bytes this end will have received if nothing is lost; unknown where time limits the test.
    fn awaited(&self) -> Option<ByteCount> {
        self.request.bytes.filter(|_| self.request.direction != Direction::Download)
    }

    /// Waits for what is under way: a client ends a test of so many bytes when it has written them.
    async fn settle(&mut self) {
        let (Some(awaited), Some(progress)) = (self.awaited(), &self.progress) else { return };
        let begun = Instant::now();
        let mut moved = (ByteCount::ZERO, begun);
        while begun.elapsed() < self.house.patience.greeting() / 2 && moved.1.elapsed() < SILENCE {
            let bytes = progress.arrived();
            if bytes >= awaited {
                return;
            }
            if bytes > moved.0 {
                moved = (bytes, Instant::now());
            }
            sleep(GLANCE).await;
        }
    }

    /// Ends the transfer. Its threads need a moment to end, in which others must not wait.
    async fn finish_transfer(&mut self) {
        if let Some(progress) = self.progress.take() {
            self.finished = spawn_blocking(move || progress.finish()).await.ok();
            self.load = None;
        }
    }

    fn results(&self, report: bool) -> Results {
        let Some(finished) = &self.finished else { return Results::default() };
        let results = results_of(finished, &self.sockets);
        Results { report: report.then(|| Box::new(self.end_report(finished))), ..results }
    }

    fn end_report(&self, finished: &Finished) -> EndReport {
        EndReport {
            // A setting that cannot be read is one that is not told.
            settings: inspect(&SysctlTree::of_this_host()).ok(),
            cpu: finished.rest.cpu,
            sockets: self.sockets.clone(),
            samples: thinned(&finished.rest.samples, finished.ways.len()),
            datagrams: finished.datagrams(self.request.transport),
        }
    }

    fn carried(&self) -> Carried {
        self.finished.as_ref().map_or(Carried::default(), |finished| {
            let bytes = finished.counts().iter().map(|count| count.bytes).sum();
            Carried { bytes, rate: BitRate::of(bytes, finished.duration().max(Span::from_nanos(1))) }
        })
    }
}

/// A way that the client sees, from this end.
fn seen_from_here(way: Direction) -> Direction {
    match way {
        Direction::Upload => Direction::Download,
        Direction::Download => Direction::Upload,
        Direction::Both => Direction::Both,
    }
}

/// What all streams have carried, both ways together.
pub(super) fn moved(totals: &Totals) -> ByteCount {
    totals.streams.iter().map(|count| count.bytes).sum()
}

/// The next hello, while streams are being opened; else never.
async fn next_hello(opening: &mut Option<Opening>) -> Option<SocketAddr> {
    match opening {
        Some(opening) => opening.hello().await,
        None => std::future::pending().await,
    }
}

/// Answers a connection that is not wanted as iperf3 does: one byte into an empty buffer. If it does not fit, the closing
/// says the same.
pub(super) fn deny(mut stream: &StdTcpStream) {
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write(&[State::AccessDenied.byte()]));
}

/// Every n-th look at all streams, so that a long test's report stays small.
fn thinned(samples: &[Sample], streams: usize) -> Vec<Sample> {
    let step = samples.len().div_ceil(MOST_SAMPLES).max(1);
    let looks = samples.chunks(streams.max(1));
    looks.step_by(step).flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_whole_looks() {
        let sample = |index: usize| Sample {
            at: Span::from_millis(index as u64 / 4 * 50),
            stream: (index % 4) as u16,
            bytes: ByteCount::ZERO,
            tcp: fullpipe_record::TcpInfo::default(),
            memory: None,
        };
        let samples: Vec<Sample> = (0..40_000).map(sample).collect();
        let kept = thinned(&samples, 4);
        assert_eq!(kept.len(), MOST_SAMPLES);
        assert!(kept.chunks(4).all(|look| look.iter().all(|sample| sample.at == look[0].at)));
        assert_eq!(thinned(&samples[..100], 4).len(), 100);
    }
}
