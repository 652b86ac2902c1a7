//! One test of an iperf3 client, from its cookie to its end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_control::{Control, unix_seconds};
use fullpipe_host::{SysctlTree, inspect};
use fullpipe_iperf::{
    Cookie, ErrorNumber, KeyCheck, Parameters, Refusal, Results, ServerAction, ServerOutput, ServerSession, State,
    data_connections, direction_of,
};
use fullpipe_load::{Channel, Lane, StreamCount, Transfer, TransferPlan, apply_options, read_back};
use fullpipe_record::{
    Direction, EndReport, HostSettings, Interval, Measurement, Peer, Request, ResolvedRequest, RttReport,
    SocketReadback, TcpInfo, Transport, Validity,
};
use fullpipe_route::caller_handshake;
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};
use socket2::SockRef;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::admission::{Permit, client_prefix};
use super::listen::canonical;
use super::printed::Printed;
use super::registry::Arrival;
use super::watch::Watch;
use super::{Failed, POLL_INTERVAL, Server, ServerEvent, random_nonce};
use crate::client::Connected;
use crate::machine::{self, Before};
use crate::progress::{Finished, Progress, role};
use crate::results::{as_stated, results_of, stream_summaries, total};
use crate::summary::{new_id, run_totals, started, this_host};

/// Samples that are kept of all tests together, about 25 MB: there may be a thousand tests, and they may last a day.
const ALL_SAMPLES: usize = 32_000;

/// Samples that are kept of one test, at most.
const MAX_KEPT_SAMPLES: usize = 2_000;

/// Maximum number of samples in a report, about 400 KB; those of a longer test are thinned.
const MAX_SAMPLES: usize = 240;

/// How often a fullpipe client is told what this end has seen so far, and of how many streams at that pace: what it is told
/// takes the path of the data, about two kilobytes a stream.
const REPORT_EVERY: Span = Span::from_secs(1);
const STREAMS_A_REPORT: u64 = 8;

/// How long nothing may come before what is still missing is given up.
const SILENCE: Duration = Duration::from_secs(1);

/// The same for datagrams, which nobody sends again, and for the rest of a block, which not every client sends.
const SHORT_SILENCE: Duration = Duration::from_millis(200);

/// How often is looked whether it has come.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How long it takes to refuse a user: longer than it takes to decrypt with the largest of keys.
const REFUSAL: Duration = Duration::from_millis(250);

/// What a test carried, as this end saw it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Carried {
    pub(super) bytes: ByteCount,
    pub(super) rate: BitRate,
    /// The whole, of a test that both ends told of.
    pub(super) seen: Option<Box<Measurement>>,
}

/// One test under way. While its client says nothing it holds no buffer: there may be a thousand of them.
pub(super) struct Test {
    server: Rc<Server>,
    client: SocketAddr,
    cookie: Cookie,
    control: Control,
    session: ServerSession,
    origin: Instant,
    closing: watch::Receiver<bool>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    request: Request,
    load: Option<Permit>,
    /// In the order in which they came, by their numbers.
    streams: Vec<(u64, Channel)>,
    sockets: Vec<SocketReadback>,
    progress: Option<Progress>,
    /// What the client is told of the output of this end, if it asked for it.
    printed: Option<Printed>,
    watch: Watch,
    finished: Option<Finished>,
    /// This host's, where the client wants to know.
    settings: Option<HostSettings>,
    /// When the client is told next what has been seen, since the data began to flow.
    report_due: Span,
    /// What the client is still to be sent of what it is told.
    waiting: Vec<u8>,
}

impl Test {
    pub(super) fn new(
        server: Rc<Server>,
        client: SocketAddr,
        cookie: Cookie,
        control: Control,
        arrivals: mpsc::UnboundedReceiver<Arrival>,
    ) -> Self {
        Self {
            client,
            cookie,
            control,
            session: session(&server, cookie),
            origin: Instant::now(),
            closing: server.closing.subscribe(),
            arrivals,
            request: Request::default(),
            load: None,
            streams: Vec::new(),
            sockets: Vec::new(),
            progress: None,
            printed: None,
            watch: Watch::new(server.bounds(ByteCount::ZERO, 0)),
            finished: None,
            settings: None,
            report_due: REPORT_EVERY,
            waiting: Vec::new(),
            server,
        }
    }

    /// Runs the test to its end.
    pub(super) async fn run(mut self) -> Result<Carried, Failed> {
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
            self.report();
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
            read = self.control.receive_and_send(&mut self.waiting) => self.read(read),
            Some(arrival) = self.arrivals.recv() => self.accept_stream(arrival),
            _ = self.closing.changed() => {}
            () = sleep(pause) => {}
        }
    }

    /// A test that carries nothing sleeps until its deadline. The end of the omitted time is not slept through: it decides
    /// what counts.
    fn pause(&self) -> Duration {
        let due = self.session.deadline().map_or(POLL_INTERVAL, |deadline| deadline.since(self.now()).into());
        let Some(progress) = &self.progress else { return due };
        let omitted = Duration::from(self.request.omit).saturating_sub(progress.origin().elapsed());
        if omitted.is_zero() { due.min(POLL_INTERVAL) } else { due.min(POLL_INTERVAL).min(omitted) }
    }

    fn read(&mut self, read: io::Result<Vec<u8>>) {
        match read {
            Ok(bytes) if !bytes.is_empty() => self.session.receive(self.now(), &bytes),
            _ => self.session.closed(),
        }
    }

    /// Holds what flows against what may flow.
    fn look(&mut self) {
        let passed = self.progress.as_mut().map(Progress::update).unwrap_or_default();
        self.tell_of(passed);
        let (Some(progress), Some(load)) = (&mut self.progress, &self.load) else { return };
        if progress.has_ended() {
            return;
        }
        let totals = progress.totals();
        let judged = self.watch.look(totals.at, bytes_of(&totals.streams)).and_then(|rate| match rate {
            Some(rate) => self.server.admission.measured(load, rate),
            None => Ok(()),
        });
        if let Err(refusal) = judged {
            self.session.refuse(refusal, None);
        }
    }

    /// Does what the protocol wants done; how the test ended, once it has.
    async fn carry_out(&mut self, action: ServerAction) -> Option<Result<Carried, Failed>> {
        match action {
            ServerAction::Send(bytes) => self.send(&bytes).await,
            ServerAction::Report(bytes) => self.waiting.extend(bytes),
            ServerAction::ExpectStreams(request) => self.expect(request).await,
            ServerAction::StartTransfer => self.start_transfer(),
            ServerAction::StopTransfer => self.stop_transfer(),
            ServerAction::CollectResults { report } => {
                self.settle().await;
                self.finish_transfer().await;
                let results = self.results(report);
                self.session.local_results(self.now(), results);
            }
            ServerAction::Finished(theirs) => return Some(Ok(self.carried(&theirs))),
            ServerAction::Failed(error) => {
                self.finish_transfer().await;
                let seen = self.carried(&Results::default()).seen;
                return Some(Err(Failed { seen, ..error.into() }));
            }
        }
        None
    }

    /// Sends `bytes`, behind what waits.
    async fn send(&mut self, bytes: &[u8]) {
        // A client that took no reports may not keep its place by not taking the farewell.
        let is_over = self.session.deadline().is_none() && !self.waiting.is_empty();
        let timeout = if is_over { POLL_INTERVAL } else { self.server.client_timeout.write() };
        let mut all = std::mem::take(&mut self.waiting);
        all.extend_from_slice(bytes);
        // Half a message must not be followed by another.
        if !matches!(tokio::time::timeout(timeout, self.control.send(&all)).await, Ok(Ok(()))) {
            self.session.closed();
        }
    }

    /// Tells a fullpipe client now and then what has been seen so far. A client that is slow to take it, or whose path is,
    /// gets less of it.
    fn report(&mut self) {
        let Some(progress) = &self.progress else { return };
        let elapsed: Span = progress.origin().elapsed().into();
        if self.session.takes_reports() && elapsed >= self.report_due && self.is_all_taken() {
            self.session.report(&progress.so_far());
            let streams = u64::from(data_connections(&self.request));
            self.report_due = elapsed + REPORT_EVERY * streams.div_ceil(STREAMS_A_REPORT);
        }
    }

    /// Whether the client's kernel, at least, has all that was sent.
    fn is_all_taken(&self) -> bool {
        let is_acknowledged = |info: TcpInfo| {
            info.not_sent.unwrap_or_default() == ByteCount::ZERO && info.unacked.unwrap_or_default() == SegCount::ZERO
        };
        self.waiting.is_empty() && fullpipe_sys::tcp_info(self.control.tcp()).is_ok_and(is_acknowledged)
    }

    /// Lets the load in, if there is room for it.
    async fn expect(&mut self, request: Request) {
        let admitted = match self.know_user().await {
            Ok(()) => self.server.admit_load(self.client.ip(), &request).await,
            Err(refusal) => Err(refusal),
        };
        let admitted = match admitted {
            Ok(permit) => self.expect_hellos(&request).await.map(|()| permit),
            Err(refusal) => Err(refusal),
        };
        match admitted {
            Ok(permit) => {
                self.load = Some(permit);
                if self.server.one_off {
                    self.prepare_listener(&request);
                }
                self.server.report(ServerEvent::Began { client: self.client, request: request.clone() });
                self.request = request;
            }
            Err(refusal) => self.session.refuse(refusal, None),
        }
    }

    /// Checks the user, where only users are served. A refusal always takes the same time, whatever its reason: else the
    /// time would show the reason.
    async fn know_user(&self) -> Result<(), Refusal> {
        let Some(authenticator) = self.server.authenticator.clone() else { return Ok(()) };
        let (refusal, prefix) = (sleep(REFUSAL), client_prefix(self.client.ip()));
        let wait = self.server.backoff.borrow().wait(prefix, Instant::now());
        let why = if wait.is_zero() {
            let token = self.session.parameters().and_then(Parameters::auth_token).map(str::to_owned);
            let now = unix_seconds();
            let why = match spawn_blocking(move || authenticator.check(token.as_deref(), now)).await {
                Ok(Ok(())) => {
                    self.server.backoff.borrow_mut().succeeded(prefix);
                    return Ok(());
                }
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            self.server.backoff.borrow_mut().failed(prefix, Instant::now());
            why
        } else {
            let wait = Span::from_secs(wait.as_secs() + 1);
            format!("too many wrong passwords came from its address; the next is checked in {wait}")
        };
        refusal.await;
        Err(Refusal { number: ErrorNumber::AUTHENTICATION, why })
    }

    /// Before a client is told to open UDP streams, waits until no other test of its address does.
    async fn expect_hellos(&self, request: &Request) -> Result<(), Refusal> {
        if request.transport != Transport::Udp {
            return Ok(());
        }
        let refuse = |number, why: &str| Err(Refusal { number, why: why.to_owned() });
        if !self.server.takes_datagrams.get() {
            return refuse(ErrorNumber::UNIMPLEMENTED, "the UDP port is taken by another program");
        }
        let Ok(local) = self.control.tcp().local_addr() else {
            return refuse(ErrorNumber::STREAMS, "the control connection is gone");
        };
        let deadline = Instant::now() + self.server.client_timeout.greeting() / 2;
        let begin = || self.server.registry.borrow_mut().expect_hellos(self.cookie, self.client.ip(), canonical(local));
        while !begin() {
            if Instant::now() >= deadline || *self.closing.borrow() {
                return refuse(ErrorNumber::STREAMS, "another test of its address is still opening its UDP streams");
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Gives the connections that are still to come their buffers from their first packet on, as iperf3 does by listening
    /// anew: the window scale is agreed then, and the finest that fits wastes least of a small window. A server for many
    /// cannot, as it listens for all of them; it sets what it has accepted. What is refused here is refused there too.
    fn prepare_listener(&self, request: &Request) {
        let _ = apply_options(&SockRef::from(&*self.server.listener), request);
    }

    /// Takes in a stream that came with the test's cookie, or to its UDP port.
    fn accept_stream(&mut self, arrival: Arrival) {
        let Arrival { channel, permit } = arrival;
        if let Err(error) = apply_options(&SockRef::from(&channel), &self.request) {
            let refusal = Refusal { number: ErrorNumber::CONGESTION, why: error.to_string() };
            self.session.refuse(refusal, error.os_error());
            return;
        }
        let is_udp = matches!(channel, Channel::Udp(_));
        let fits = is_udp == (self.request.transport == Transport::Udp);
        if fits && self.session.stream_connected(self.now()) {
            self.streams.push((permit.number(), channel));
        } else {
            deny(&channel);
        }
    }

    fn start_transfer(&mut self) {
        self.server.registry.borrow_mut().streams_are_open(&self.cookie);
        let base_rtt = fullpipe_sys::tcp_info(self.control.tcp()).ok().and_then(|info| info.min_rtt);
        let mut streams = std::mem::take(&mut self.streams);
        streams.sort_by_key(|(number, _)| *number);
        let ways: Vec<Direction> = (0..data_connections(&self.request)).map(|index| self.way(index)).collect();
        let lanes = streams.into_iter().zip(&ways);
        let lanes: Vec<Lane> = lanes.map(|((_, channel), way)| Lane { channel, role: role(*way) }).collect();
        let found = lanes.iter().zip(0..).filter_map(|(lane, index)| {
            let socket = read_back(&SockRef::from(&lane.channel), index).ok()?;
            Some(SocketReadback { handshake: caller_handshake(&lane.channel), ..socket })
        });
        self.sockets = found.collect();
        self.watch = Watch::new(self.server.bounds(self.indivisible(), data_connections(&self.request)));
        // Only a fullpipe client can be told of it, and there may be a thousand others.
        let before = self.session.takes_reports().then(|| Before::now(self.client.ip(), None));
        match self.begin(lanes, self.plan(base_rtt)) {
            Ok(transfer) => {
                let machine = before.and_then(|before| before.watch(transfer.origin()));
                self.progress = Some(Progress::new(transfer, machine, self.as_seen_here(), ways));
                self.introduce();
                let asked = Request { interval: self.interval(), ..self.request.clone() };
                let connected = Connected::of(&asked, &self.cookie, self.control.tcp(), &self.sockets);
                self.printed =
                    self.is_output_wanted().then(|| Printed::new(self.server.printer, self.client, &connected));
                self.server.report(ServerEvent::Connected { client: self.client, connected: Box::new(connected) });
            }
            Err(error) => {
                let refusal = Refusal { number: ErrorNumber::STREAMS, why: format!("cannot start the test: {error}") };
                self.session.refuse(refusal, error.raw_os_error());
            }
        }
    }

    fn begin(&self, lanes: Vec<Lane>, plan: TransferPlan) -> io::Result<Transfer> {
        let storage = self.server.storage_config.open(seen_from_the_other_end(self.request.direction))?;
        Transfer::start_with(lanes, plan, storage)
    }

    /// Tells a fullpipe client of this host and its sockets.
    fn introduce(&mut self) {
        if self.session.takes_reports() {
            // A setting that cannot be read is one that is not told.
            self.settings = inspect(&SysctlTree::of_this_host()).ok();
            let (settings, sockets) = (self.settings.clone(), self.sockets.clone());
            self.session.report(&EndReport { settings, sockets, until: Some(Span::ZERO), ..EndReport::default() });
        }
    }

    fn plan(&self, base_rtt: Option<Span>) -> TransferPlan {
        // A client that is fullpipe counts bytes, not blocks.
        let whole_blocks = !self.session.parameters().is_some_and(Parameters::speaks_fullpipe);
        TransferPlan { samples: self.kept_samples(), whole_blocks, ..TransferPlan::of(&self.request, base_rtt) }
    }

    /// Returns how many samples are kept, the fewer the more tests there are: enough for the report, and for intervals.
    fn kept_samples(&self) -> usize {
        let tests = usize::try_from(self.server.admission.tests()).unwrap_or(usize::MAX).max(1);
        let snapshots = 4 * usize::from(data_connections(&self.request));
        (ALL_SAMPLES / tests).clamp(MAX_SAMPLES, MAX_KEPT_SAMPLES).max(snapshots)
    }

    /// Which way stream `index` goes, seen from this end.
    fn way(&self, index: u16) -> Direction {
        seen_from_the_other_end(direction_of(&self.request, index))
    }

    /// What all streams together write at once.
    fn indivisible(&self) -> ByteCount {
        let writes = u64::from(data_connections(&self.request)) * u64::from(self.request.burst.unwrap_or(1));
        ByteCount::new(self.request.block.get().saturating_mul(writes))
    }

    /// The request with the direction and the intervals of this end.
    fn as_seen_here(&self) -> Request {
        let direction = seen_from_the_other_end(self.request.direction);
        Request { direction, interval: self.interval(), ..self.request.clone() }
    }

    /// How often is told what has passed; where only the client wants to know it, as often as iperf3 tells it.
    fn interval(&self) -> Span {
        let asked = self.server.interval;
        if asked == Span::ZERO && self.is_output_wanted() { Request::default().interval } else { asked }
    }

    fn is_output_wanted(&self) -> bool {
        self.session.parameters().is_some_and(Parameters::wants_server_output)
    }

    /// Tells of intervals that have passed, of the upload's first: what this end calls a download.
    fn tell_of(&mut self, passed: Vec<Interval>) {
        for interval in passed.into_iter().rev() {
            let direction = seen_from_the_other_end(interval.direction);
            let interval = Box::new(Interval { direction, ..interval });
            if let Some(printed) = &mut self.printed {
                printed.interval(&interval);
            }
            self.server.report(ServerEvent::Interval { client: self.client, interval });
        }
    }

    /// Ends what this end sends. What it counts is complete too, but for bytes that are sure to come.
    fn stop_transfer(&mut self) {
        let awaited = self.awaited();
        if let Some(progress) = &mut self.progress {
            let last = if awaited.is_none() { progress.end() } else { Vec::new() };
            progress.close_sending();
            self.tell_of(last);
        }
    }

    /// Returns how many bytes this end must receive; none where time limits the test.
    fn awaited(&self) -> Option<ByteCount> {
        self.request.bytes.filter(|_| self.request.direction != Direction::Download)
    }

    /// Returns `bytes` with the rest of their last block, which most clients send too.
    fn in_whole_blocks(&self, bytes: ByteCount) -> ByteCount {
        let block = self.request.block.get().max(1);
        ByteCount::new(bytes.get().div_ceil(block).saturating_mul(block))
    }

    /// Waits for what is under way: a client ends a test of so many bytes when it has written them.
    async fn settle(&mut self) {
        let (Some(awaited), Some(progress)) = (self.awaited(), &self.progress) else { return };
        let whole = self.in_whole_blocks(awaited);
        let is_udp = self.request.transport == Transport::Udp;
        let begun = Instant::now();
        let mut moved = (ByteCount::ZERO, begun);
        while begun.elapsed() < self.server.client_timeout.greeting() / 2 {
            let bytes = progress.arrived();
            let silence = if is_udp || bytes >= awaited { SHORT_SILENCE } else { SILENCE };
            if bytes >= whole || moved.1.elapsed() >= silence {
                return;
            }
            if bytes > moved.0 {
                moved = (bytes, Instant::now());
            }
            sleep(MIN_POLL_INTERVAL).await;
        }
    }

    /// Ends the transfer. Its threads need a moment to end, in which others must not wait.
    async fn finish_transfer(&mut self) {
        if let Some(mut progress) = self.progress.take() {
            self.tell_of(progress.end());
            self.finished = spawn_blocking(move || progress.finish()).await.ok();
            self.load = None;
        }
    }

    fn results(&self, report: bool) -> Results {
        let Some(finished) = &self.finished else { return Results::default() };
        let report = report.then(|| Box::new(self.end_report(finished)));
        // What the client counted is not known yet, and iperf3 does not print it either.
        let seen = || self.seen(finished, &Results::default());
        let server_output = self.printed.as_ref().map(|printed| ServerOutput::Text(printed.whole(&seen())));
        Results { report, server_output, ..results_of(finished, &self.sockets) }
    }

    fn end_report(&self, finished: &Finished) -> EndReport {
        let mut report = EndReport {
            host: Some(this_host()),
            settings: self.settings.clone(),
            cpu: finished.rest.cpu,
            sockets: self.sockets.clone(),
            samples: finished.rest.samples.clone(),
            datagrams: finished.datagrams(self.request.transport),
            storage: finished.rest.storage,
            processors: machine::stated(&finished.machine.processors),
            device: finished.machine.device.clone(),
            notes: finished.rest.notes.clone(),
            ..EndReport::default()
        };
        report.thin(None, MAX_SAMPLES);
        report
    }

    fn carried(&self, theirs: &Results) -> Carried {
        let Some(finished) = &self.finished else { return Carried::default() };
        let bytes = bytes_of(&finished.counts());
        let rate = BitRate::of(bytes, finished.duration().max(Span::from_nanos(1)));
        Carried { bytes, rate, seen: Some(Box::new(self.seen(finished, theirs))) }
    }

    /// The test as it looks from here, with what the client counted.
    fn seen(&self, finished: &Finished, theirs: &Results) -> Measurement {
        let mut streams = stream_summaries(finished, theirs, self.request.transport);
        for stream in &mut streams {
            stream.direction = seen_from_the_other_end(stream.direction);
        }
        let mut totals = self.request.directions().iter().map(|&way| total(way, &streams, finished.duration()));
        let summary = totals.next().unwrap_or_else(|| total(Direction::Upload, &[], finished.duration()));
        let reverse = totals.next();
        drop(totals);
        let settings = self.session.parameters().and_then(Parameters::settings).cloned();
        let resolved = Some(ResolvedRequest::new(self.request.clone()));
        Measurement {
            id: new_id(),
            resolved,
            run: Some(run_totals(finished.origin, finished)),
            web100: None,
            started: started(finished),
            setup: None,
            peer: Peer {
                host: self.client.ip().to_string(),
                address: self.client.to_string(),
                speaks_fullpipe: self.session.parameters().is_some_and(Parameters::speaks_fullpipe),
            },
            request: self.request.clone(),
            local: EndReport { cpu: finished.rest.cpu, sockets: self.sockets.clone(), ..EndReport::default() },
            remote: EndReport { settings, ..as_stated(theirs) },
            summary,
            reverse,
            streams,
            intervals: Vec::new(),
            rtt: RttReport::of_kernel(None, Vec::new()),
            route: None,
            limit: None,
            interrupted: false,
            broken_off: None,
            warnings: finished.rest.notes.clone(),
            validity: Validity::default(),
        }
    }
}

/// Returns the session of a new test. Where a key is asked for, no random bytes mean no test.
fn session(server: &Server, cookie: Cookie) -> ServerSession {
    let session = ServerSession::new(Time::ZERO, server.client_timeout.timeouts());
    let Some(key) = server.key.clone() else { return session };
    match random_nonce() {
        Ok(nonce) => session.with_key(KeyCheck::new(key, cookie, nonce)),
        Err(error) => {
            let why = format!("cannot draw random bytes: {error}");
            let mut session = session;
            session.refuse(Refusal { number: ErrorNumber::AUTHENTICATION, why }, error.raw_os_error());
            session
        }
    }
}

/// What one end calls an upload is a download at the other.
fn seen_from_the_other_end(direction: Direction) -> Direction {
    match direction {
        Direction::Upload => Direction::Download,
        Direction::Download => Direction::Upload,
        Direction::Both => Direction::Both,
    }
}

/// All streams together.
pub(super) fn bytes_of(streams: &[StreamCount]) -> ByteCount {
    streams.iter().map(|stream| stream.bytes).sum()
}

/// Answers a connection that is not wanted as iperf3 does: one byte into an empty buffer. If it does not fit, the closing
/// says the same. A datagram gets no answer.
pub(super) fn deny(channel: &Channel) {
    if let Channel::Tcp(stream) = channel {
        let mut stream = stream;
        let _ = stream.set_nonblocking(true).and_then(|()| stream.write(&[State::AccessDenied.byte()]));
    }
}
