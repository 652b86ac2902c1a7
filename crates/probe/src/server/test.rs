//! One test of an iperf3 client, from its cookie to its end.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_control::{
    ControlConnection, LoginAttempt, LoginAuthenticator, StalledBytes, canonical_address,
    client_prefix, unix_seconds,
};
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_iperf::{
    ErrorNumber, KeyCheck, ServerAction, ServerOutput, ServerSession, StateByte, TestCookie,
    TestParameters, TestRefusal, TestResults, data_connections, direction_of,
};
use fullpipe_load::{
    PlannedStream, RunningTransfer, StorageFailure, StreamChannel, StreamCount, TransferPlan,
    apply_options, read_back,
};
use fullpipe_record::{
    ConnectedTest, Direction, EndReport, HostIdentity, HostSettings, Interval, Measurement, Peer,
    Request, ResolvedRequest, RttReport, SocketReadback, TcpInfo, Transport, Validity,
};
use fullpipe_route::caller_handshake;
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};
use socket2::SockRef;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::admission::{AdmissionPermit, LoadActivity};
use super::monitor::TransferMonitor;
use super::output::OutputBuffer;
use super::registry::AcceptedStream;
use super::stream_listener::ExpectedStreams;
use super::udp::answer_hello;
use super::{POLL_INTERVAL, ServerEvent, TestFailure, TestServer, random_nonce};
use crate::client::segment_size;
use crate::machine::{self, MachineSampler};
use crate::progress::{CountedTransfer, FinishedTransfer, stream_role};
use crate::results::{as_stated, direction_summary, results_of, stream_summaries};
use crate::summary::{new_id, run_totals, start_date, this_host};

/// Number of samples that all tests share, about 25 MB; each test keeps at least
/// [`MAX_REPORT_SAMPLES`].
const SHARED_SAMPLES: usize = 32_000;

/// Maximum number of samples that are kept of one test.
const MAX_KEPT_SAMPLES: usize = 2_000;

/// Maximum number of samples in a report, about 400 KB; those of a longer test are thinned out.
const MAX_REPORT_SAMPLES: usize = 240;

/// Time between two reports to a fullpipe client that has at most [`STREAMS_PER_REPORT_INTERVAL`]
/// streams.
const PEER_REPORT_INTERVAL: Span = Span::from_secs(1);

/// Number of streams for each [`PEER_REPORT_INTERVAL`]: reports take 2 KB for each stream, on the
/// path of the data.
const STREAMS_PER_REPORT_INTERVAL: u64 = 8;

/// Maximum time without data while the end of an upload is still missing.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum time without data while the missing bytes may never come: lost datagrams, or the rest of
/// the last block.
const SHORT_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum time after the end of a download for which the kernel keeps what the client has not
/// acknowledged.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two checks for the end of an upload.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Time between two checks of what waits in the kernel while no data flows.
const QUEUE_INTERVAL: Duration = Duration::from_millis(500);

/// Time that each refusal of a user takes: longer than decryption with the largest key.
const REFUSAL_TIME: Duration = Duration::from_millis(250);

/// Totals of a test, as this end counted them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct TestTotals {
    pub(super) bytes: ByteCount,
    pub(super) rate: BitRate,
    /// The whole test; `None` for an iperf2 client, or if no data had flowed.
    pub(super) measurement: Option<Box<Measurement>>,
}

/// One test under way. It holds no buffer while its client sends nothing, because there may be a
/// thousand tests.
pub(super) struct Test {
    server: Rc<TestServer>,
    client: SocketAddr,
    cookie: TestCookie,
    control: ControlConnection,
    session: ServerSession,
    origin: Instant,
    shutdown: watch::Receiver<bool>,
    accepted: mpsc::UnboundedReceiver<AcceptedStream>,
    request: Request,
    /// Permit of the load, once it is admitted.
    load: Option<AdmissionPermit>,
    /// Set once the load was admitted: the client is one that the server serves.
    was_admitted: bool,
    /// Held while the streams are opened.
    expected_streams: Option<ExpectedStreams>,
    /// The streams, each with the number of its permit, which orders them.
    streams: Vec<(u64, StreamChannel)>,
    sockets: Vec<SocketReadback>,
    progress: Option<CountedTransfer>,
    /// The text output of the server, if the client asked for it.
    output: Option<OutputBuffer>,
    monitor: TransferMonitor,
    finished: Option<FinishedTransfer>,
    /// The time at which the transfer was over.
    finished_at: Option<Instant>,
    /// Settings of this host, if the client is fullpipe.
    settings: Option<HostSettings>,
    /// Time of the next report to the client, counted from the start of the data.
    report_due: Span,
    /// Bytes of reports that are not sent yet.
    unsent: Vec<u8>,
}

impl Test {
    pub(super) fn new(
        server: Rc<TestServer>,
        client: SocketAddr,
        cookie: TestCookie,
        control: ControlConnection,
        accepted: mpsc::UnboundedReceiver<AcceptedStream>,
    ) -> Self {
        Self {
            client,
            cookie,
            control,
            session: session(&server, cookie),
            origin: Instant::now(),
            shutdown: server.shutdown.subscribe(),
            accepted,
            request: Request::default(),
            load: None,
            was_admitted: false,
            expected_streams: None,
            streams: Vec::new(),
            sockets: Vec::new(),
            progress: None,
            output: None,
            monitor: TransferMonitor::new(
                server.transfer_bounds(&Request::default(), 0),
                Vec::new(),
            ),
            finished: None,
            finished_at: None,
            settings: None,
            report_due: PEER_REPORT_INTERVAL,
            unsent: Vec::new(),
            server,
        }
    }

    /// Runs the test to its end.
    pub(super) async fn run(mut self) -> Result<TestTotals, TestFailure> {
        loop {
            while let Some(action) = self.session.next_action() {
                if let Some(end) = self.carry_out(action).await {
                    self.reset_undelivered();
                    return end;
                }
            }
            self.wait().await;
            self.answer_hellos();
            if *self.shutdown.borrow() {
                self.session.announce_shutdown();
            }
            self.check_limits();
            self.report();
            self.session.check_deadline(self.now());
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    /// Waits for bytes, a stream, the shutdown, or the next deadline.
    async fn wait(&mut self) {
        let sleep_time = self.sleep_time();
        tokio::select! {
            read = self.control.receive_and_send(&mut self.unsent) => self.read(read),
            Some(stream) = self.accepted.recv() => self.accept_stream(stream),
            _ = self.shutdown.changed() => {}
            () = sleep(sleep_time) => {}
        }
    }

    /// Answers hellos on the UDP streams of a test that waits for more of them: its client may open
    /// the others only once it has all answers.
    fn answer_hellos(&self) {
        for (_, channel) in &self.streams {
            if let StreamChannel::Udp(stream) = channel {
                answer_hello(stream);
            }
        }
    }

    /// Returns the maximum time to sleep: until the deadline if no data flows and no UDP stream may
    /// get a hello again. It never exceeds the rest of the omitted time, at whose end counting
    /// begins.
    fn sleep_time(&self) -> Duration {
        let due = self
            .session
            .next_deadline()
            .map_or(POLL_INTERVAL, |deadline| {
                deadline.duration_since(self.now()).into()
            });
        let Some(progress) = &self.progress else {
            let has_udp_streams = self
                .streams
                .iter()
                .any(|(_, channel)| matches!(channel, StreamChannel::Udp(_)));
            let longest = if self.load.is_some() {
                QUEUE_INTERVAL
            } else {
                due
            };
            return due.min(if has_udp_streams {
                POLL_INTERVAL
            } else {
                longest
            });
        };
        progress.sleep_time(due.min(POLL_INTERVAL))
    }

    fn read(&mut self, read: io::Result<Vec<u8>>) {
        match read {
            Ok(bytes) if !bytes.is_empty() => self.session.receive_bytes(self.now(), &bytes),
            _ => self.session.connection_closed(),
        }
    }

    /// Reports the intervals that have passed, and refuses the test if it exceeds a limit: after
    /// its end, too, as long as the client still sends.
    fn check_limits(&mut self) {
        let passed = self
            .progress
            .as_mut()
            .map(CountedTransfer::take_passed_intervals)
            .unwrap_or_default();
        self.report_intervals(passed);
        let Some(load) = &self.load else { return };
        let failure = self
            .progress
            .as_ref()
            .and_then(CountedTransfer::storage_failure);
        if let Some(StorageFailure { why, os_error }) = failure {
            return self
                .session
                .refuse_test(TestRefusal::new(ErrorNumber::FILE, why.as_str()), *os_error);
        }
        let activity = match &self.progress {
            Some(progress) => self
                .monitor
                .check_progress(&progress.transfer_totals(), || progress.current_samples()),
            // Before the start, no client has anything to send.
            None => Ok(LoadActivity {
                stalled: StalledBytes::from_lasting(received_early(&self.streams)),
                ..LoadActivity::default()
            }),
        };
        let checked =
            activity.and_then(|activity| self.server.admission.record_activity(load, activity));
        if let Err(refusal) = checked {
            self.session.refuse_test(refusal, None);
        }
        if self
            .finished_at
            .is_some_and(|at| at.elapsed() >= DELIVERY_TIMEOUT)
        {
            self.reset_undelivered();
        }
    }

    /// Drops what the client has not acknowledged after the end of a download.
    fn reset_undelivered(&mut self) {
        if let Some(finished) = &mut self.finished {
            std::mem::take(&mut finished.rest.sent_on).reset_undelivered();
        }
    }

    /// Carries out an action of the protocol. Returns the outcome of the test once it has ended.
    async fn carry_out(&mut self, action: ServerAction) -> Option<Result<TestTotals, TestFailure>> {
        match action {
            ServerAction::Send(bytes) => self.send(&bytes).await,
            ServerAction::Report(bytes) => self.unsent.extend(bytes),
            ServerAction::ExpectStreams(request) => self.prepare(request).await,
            ServerAction::StartTransfer => self.start_transfer(),
            ServerAction::StopTransfer => self.stop_transfer(),
            ServerAction::CollectResults { report } => {
                self.drain().await;
                self.finish_transfer().await;
                let results = self.results(report);
                self.session.local_results(self.now(), results);
            }
            ServerAction::Finished(client_results) => {
                return Some(Ok(self.totals(&client_results)));
            }
            ServerAction::Failed(error) => {
                self.finish_transfer().await;
                let measurement = self.totals(&TestResults::default()).measurement;
                return Some(Err(TestFailure {
                    measurement,
                    is_refusal: !self.was_admitted,
                    ..error.into()
                }));
            }
        }
        None
    }

    /// Sends `bytes`, after the reports that are not sent yet.
    async fn send(&mut self, bytes: &[u8]) {
        // A client that did not read its reports must not hold its permit by not reading the last
        // message either.
        let is_over = self.session.next_deadline().is_none() && !self.unsent.is_empty();
        let timeout = if is_over {
            POLL_INTERVAL
        } else {
            self.server.client_timeout.send_timeout()
        };
        let mut all = std::mem::take(&mut self.unsent);
        all.extend_from_slice(bytes);
        // If only a part of a message was sent, no other message may follow it.
        if !matches!(
            tokio::time::timeout(timeout, self.control.send_bytes(&all)).await,
            Ok(Ok(()))
        ) {
            self.session.connection_closed();
        }
    }

    /// Sends a report of this end to a fullpipe client when one is due and the previous ones have
    /// been acknowledged, so that a slow client or a slow path gets fewer.
    fn report(&mut self) {
        let Some(progress) = &self.progress else {
            return;
        };
        let elapsed: Span = progress.origin().elapsed().into();
        if self.session.takes_reports() && elapsed >= self.report_due && self.is_all_acknowledged()
        {
            self.session.send_report(&progress.so_far());
            let streams = u64::from(data_connections(&self.request));
            self.report_due =
                elapsed + PEER_REPORT_INTERVAL * streams.div_ceil(STREAMS_PER_REPORT_INTERVAL);
        }
    }

    /// Returns true if the client's kernel has acknowledged everything that was sent.
    fn is_all_acknowledged(&self) -> bool {
        let is_acknowledged = |info: TcpInfo| {
            info.not_sent.unwrap_or_default() == ByteCount::ZERO
                && info.unacked.unwrap_or_default() == SegCount::ZERO
        };
        self.unsent.is_empty()
            && fullpipe_sys::tcp_info(self.control.tcp_stream()).is_ok_and(is_acknowledged)
    }

    /// Prepares for the load of a request: checks the user and the limits, and expects the streams.
    async fn prepare(&mut self, request: Request) {
        let admitted = match self.authenticate().await {
            Ok(()) => self.server.admit_load(self.client.ip(), &request).await,
            Err(refusal) => Err(refusal),
        };
        let admitted = match admitted {
            Ok(permit) => self.expect_udp_streams(&request).await.map(|()| permit),
            Err(refusal) => Err(refusal),
        };
        match admitted {
            Ok(permit) => {
                self.load = Some(permit);
                self.was_admitted = true;
                if self.server.one_off {
                    self.prepare_listener(&request);
                } else {
                    self.expected_streams = Some(self.server.listener.expect_streams(&request));
                }
                self.server.report_event(ServerEvent::Began {
                    client: self.client,
                    request: request.clone(),
                });
                self.request = request;
            }
            Err(refusal) => self.session.refuse_test(refusal, None),
        }
    }

    /// Checks the user, if only users are served.
    ///
    /// # Errors
    /// Fails if the user is refused. Every refusal takes [`REFUSAL_TIME`], so that its time does
    /// not show the reason.
    async fn authenticate(&self) -> Result<(), TestRefusal> {
        let Some(authenticator) = self.server.authenticator.clone() else {
            return Ok(());
        };
        let began = Instant::now();
        let Err(why) = self.check_login(authenticator).await else {
            return Ok(());
        };
        // Where many guesses are decrypted at once, a refusal takes a multiple of it.
        let periods = began
            .elapsed()
            .div_duration_f64(REFUSAL_TIME)
            .ceil()
            .max(1.0);
        sleep((began + REFUSAL_TIME.mul_f64(periods)).saturating_duration_since(Instant::now()))
            .await;
        Err(TestRefusal::new(ErrorNumber::AUTHENTICATION, why))
    }

    /// Decrypts the login of the client and checks it, unless its prefix or its user must wait.
    /// Fails with the reason, which is for the log alone.
    async fn check_login(&self, authenticator: LoginAuthenticator) -> Result<(), String> {
        const TOO_MANY: &str =
            "too many wrong passwords came from its address, or for its user, which must wait";
        let (prefix, backoff) = (client_prefix(self.client.ip()), &self.server.backoff);
        let may_try = |user| {
            backoff
                .borrow()
                .remaining_delay(prefix, user, Instant::now())
                .is_zero()
        };
        if !may_try(None) {
            return Err(TOO_MANY.to_owned());
        }
        let token = self
            .session
            .client_parameters()
            .and_then(TestParameters::auth_token)
            .map(str::to_owned);
        let opened = spawn_blocking(move || authenticator.decrypt_token(token.as_deref())).await;
        let opened = opened.map_err(|error| error.to_string())?;
        // Nothing waits from here on, so of guesses that come together each is counted before the
        // next is checked.
        let user = opened.as_ref().ok().and_then(LoginAttempt::user_index);
        if !may_try(user) {
            return Err(TOO_MANY.to_owned());
        }
        let checked = opened.and_then(|attempt| attempt.check_login(unix_seconds()));
        match &checked {
            Ok(()) => backoff.borrow_mut().record_success(prefix, user),
            Err(_) => backoff
                .borrow_mut()
                .record_failure(prefix, user, Instant::now()),
        }
        checked.map_err(|error| error.to_string())
    }

    /// Accepts UDP streams from now on, if the request has any. First waits until no other test of
    /// the same address is opening its own.
    ///
    /// # Errors
    /// Fails if there is no UDP socket, or the other test takes too long.
    async fn expect_udp_streams(&self, request: &Request) -> Result<(), TestRefusal> {
        if request.transport != Transport::Udp {
            return Ok(());
        }
        if !self.server.has_udp.get() {
            return Err(TestRefusal::new(
                ErrorNumber::UNIMPLEMENTED,
                "another program uses the UDP port",
            ));
        }
        let Ok(local) = self.control.tcp_stream().local_addr() else {
            let why = "the control connection is gone";
            return Err(TestRefusal::new(ErrorNumber::STREAMS, why));
        };
        let deadline = Instant::now() + self.server.client_timeout.reply_timeout() / 2;
        let (client, local) = (self.client.ip(), canonical_address(local));
        let needs_cookie = self
            .session
            .client_parameters()
            .is_some_and(TestParameters::sends_cookies);
        let expect = || {
            self.server.registry.borrow_mut().expect_udp_streams(
                self.cookie,
                client,
                local,
                needs_cookie,
            )
        };
        while !expect() {
            if Instant::now() >= deadline || *self.shutdown.borrow() {
                return Err(TestRefusal::new(
                    ErrorNumber::STREAMS,
                    "another test of its address is still opening its UDP streams",
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Sets the options of the listening socket, so that data connections have them from the SYN
    /// on, as with iperf3. A server of several tests, which share the listening socket, sets the
    /// receive buffer only, and the other options of accepted sockets. Errors are ignored here:
    /// setting the accepted sockets fails in the same way.
    fn prepare_listener(&self, request: &Request) {
        let _ = apply_options(&self.server.listener.socket_ref(), request);
    }

    /// Accepts a stream: a connection with the test's cookie, or a UDP socket.
    fn accept_stream(&mut self, stream: AcceptedStream) {
        let AcceptedStream { channel, permit } = stream;
        if let Err(error) = apply_options(&SockRef::from(&channel), &self.request) {
            let refusal = TestRefusal::new(ErrorNumber::CONGESTION, error.to_string());
            self.session.refuse_test(refusal, error.os_error());
            return;
        }
        let is_udp = matches!(channel, StreamChannel::Udp(_));
        let fits = is_udp == (self.request.transport == Transport::Udp);
        if fits && self.session.stream_connected(self.now()) {
            self.streams.push((permit.permit_number(), channel));
        } else {
            refuse_stream(&channel);
        }
    }

    fn start_transfer(&mut self) {
        self.expected_streams = None;
        self.server
            .registry
            .borrow_mut()
            .stop_expecting(&self.cookie);
        let base_rtt = fullpipe_sys::tcp_info(self.control.tcp_stream())
            .ok()
            .and_then(|info| info.min_rtt);
        let mut streams = std::mem::take(&mut self.streams);
        streams.sort_by_key(|(number, _)| *number);
        let ways: Vec<Direction> = (0..data_connections(&self.request))
            .map(|index| self.stream_direction(index))
            .collect();
        let lanes = streams.into_iter().zip(&ways);
        let lanes: Vec<PlannedStream> = lanes
            .map(|((_, channel), way)| PlannedStream {
                channel,
                role: stream_role(*way),
            })
            .collect();
        let found = lanes.iter().zip(0..).filter_map(|(lane, index)| {
            let socket = read_back(&SockRef::from(&lane.channel), index).ok()?;
            Some(SocketReadback {
                handshake: caller_handshake(&lane.channel),
                ..socket
            })
        });
        self.sockets = found.collect();
        let bounds = self
            .server
            .transfer_bounds(&self.request, data_connections(&self.request));
        self.monitor =
            TransferMonitor::new(bounds, ways.iter().map(|way| stream_role(*way)).collect());
        let mss = lanes
            .first()
            .and_then(|lane| segment_size(&lane.channel))
            .or_else(|| segment_size(self.control.tcp_stream()));
        // Only fullpipe clients get samples of the processors and the device, so others do not cost
        // a thread.
        let before = self
            .session
            .takes_reports()
            .then(|| MachineSampler::from_route(self.client.ip(), None));
        match self.begin(lanes, self.plan(base_rtt)) {
            Ok(transfer) => {
                let machine = before.and_then(|before| before.start_watch(transfer.origin()));
                self.progress = Some(CountedTransfer::new(
                    transfer,
                    machine,
                    self.local_request(),
                    ways,
                ));
                self.report_host();
                let asked = Request {
                    interval: self.interval(),
                    ..self.request.clone()
                };
                let connected = ConnectedTest::from_sockets(
                    &asked,
                    self.cookie.to_string(),
                    mss,
                    &self.sockets,
                );
                self.output = self
                    .is_output_wanted()
                    .then(|| OutputBuffer::new(self.server.printer, self.client, &connected));
                self.server.report_event(ServerEvent::Connected {
                    client: self.client,
                    connected: Box::new(connected),
                });
            }
            Err(error) => {
                let refusal = TestRefusal {
                    number: ErrorNumber::STREAMS,
                    why: format!("cannot start the test: {error}"),
                };
                self.session.refuse_test(refusal, error.raw_os_error());
            }
        }
    }

    fn begin(&self, lanes: Vec<PlannedStream>, plan: TransferPlan) -> io::Result<RunningTransfer> {
        let storage = self
            .server
            .storage_config
            .open_storage(opposite(self.request.direction))?;
        RunningTransfer::start_with(lanes, plan, storage)
    }

    /// Reports the settings and sockets of this host to a fullpipe client.
    fn report_host(&mut self) {
        if self.session.takes_reports() {
            // If the settings cannot be read, they are left out.
            self.settings = inspect_host(&SysctlTree::of_this_host()).ok();
            let (settings, sockets) = (self.settings.clone(), self.sockets.clone());
            self.session.send_report(&EndReport {
                settings,
                sockets,
                until: Some(Span::ZERO),
                ..EndReport::default()
            });
        }
    }

    fn plan(&self, base_rtt: Option<Span>) -> TransferPlan {
        // fullpipe clients count bytes, all others whole blocks, and expect a sender that does as
        // iperf3 does.
        let whole_blocks = !self
            .session
            .client_parameters()
            .is_some_and(TestParameters::speaks_fullpipe);
        let plan = TransferPlan::from_request(&self.request, base_rtt);
        let catches_up_at_once = whole_blocks || plan.catches_up_at_once;
        let samples = self.kept_samples();
        TransferPlan {
            samples,
            whole_blocks,
            catches_up_at_once,
            bounds_unsent: true,
            ..plan
        }
    }

    /// Returns the number of samples to keep: a share of [`SHARED_SAMPLES`], but enough for the
    /// report and the intervals.
    fn kept_samples(&self) -> usize {
        let tests = usize::try_from(self.server.admission.test_count())
            .unwrap_or(usize::MAX)
            .max(1);
        let snapshots = 4 * usize::from(data_connections(&self.request));
        (SHARED_SAMPLES / tests)
            .clamp(MAX_REPORT_SAMPLES, MAX_KEPT_SAMPLES)
            .max(snapshots)
    }

    /// Returns the direction of stream `index`, seen from this end.
    fn stream_direction(&self, index: u16) -> Direction {
        opposite(direction_of(&self.request, index))
    }

    /// Returns the request with the direction and the intervals of this end.
    fn local_request(&self) -> Request {
        let direction = opposite(self.request.direction);
        Request {
            direction,
            interval: self.interval(),
            ..self.request.clone()
        }
    }

    /// Returns the length of the intervals: that of the server's options, or iperf3's if only the
    /// client wants them.
    fn interval(&self) -> Span {
        let interval = self.server.interval;
        if interval == Span::ZERO && self.is_output_wanted() {
            Request::default().interval
        } else {
            interval
        }
    }

    fn is_output_wanted(&self) -> bool {
        self.session
            .client_parameters()
            .is_some_and(TestParameters::wants_server_output)
    }

    /// Reports intervals that have passed. The client's upload, which is this end's download, comes
    /// first.
    fn report_intervals(&mut self, passed: Vec<Interval>) {
        for interval in passed.into_iter().rev() {
            let direction = opposite(interval.direction);
            let interval = Box::new(Interval {
                direction,
                ..interval
            });
            if let Some(output) = &mut self.output {
                output.add_interval(&interval);
            }
            self.server.report_event(ServerEvent::Interval {
                client: self.client,
                interval,
            });
        }
    }

    /// Stops sending, and ends the counting unless bytes of an upload are still expected.
    fn stop_transfer(&mut self) {
        let expected = self.expected();
        if let Some(progress) = &mut self.progress {
            let last = if expected.is_none() {
                progress.end_transfer()
            } else {
                Vec::new()
            };
            progress.close_sending();
            self.report_intervals(last);
        }
    }

    /// Returns the number of bytes that this end must receive; `None` if time limits the test.
    fn expected(&self) -> Option<ByteCount> {
        self.request
            .bytes
            .filter(|_| self.request.direction != Direction::Download)
    }

    /// Returns `bytes` rounded up to whole blocks, which is what most clients send.
    fn round_up_to_blocks(&self, bytes: ByteCount) -> ByteCount {
        let block = self.request.block.get().max(1);
        ByteCount::new(bytes.get().div_ceil(block).saturating_mul(block))
    }

    /// Waits for the data in flight: a client ends a test of a number of bytes when it has written
    /// them.
    async fn drain(&mut self) {
        let Some(expected) = self.expected() else {
            return;
        };
        let max = self.round_up_to_blocks(expected);
        let Some(progress) = &mut self.progress else {
            return;
        };
        let is_udp = self.request.transport == Transport::Udp;
        let begun = Instant::now();
        let (mut received, mut last_growth) = (ByteCount::ZERO, begun);
        while begun.elapsed() < self.server.client_timeout.reply_timeout() / 2 {
            progress.note_arrivals();
            let bytes = progress.counted_bytes();
            let timeout = if is_udp || bytes >= expected {
                SHORT_DRAIN_TIMEOUT
            } else {
                DRAIN_TIMEOUT
            };
            if bytes >= max || last_growth.elapsed() >= timeout {
                return;
            }
            if bytes > received {
                (received, last_growth) = (bytes, Instant::now());
            }
            sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Ends the transfer. Its threads take a moment to end, which must not block the other tests.
    async fn finish_transfer(&mut self) {
        if let Some(mut progress) = self.progress.take() {
            self.report_intervals(progress.end_transfer());
            self.finished = spawn_blocking(move || progress.finish()).await.ok();
            self.finished_at = Some(Instant::now());
        }
    }

    fn results(&self, report: bool) -> TestResults {
        let Some(finished) = &self.finished else {
            return TestResults::default();
        };
        let report = report.then(|| Box::new(self.end_report(finished)));
        // The counts of the client are not known yet, and iperf3 does not print them here either.
        let measurement = || self.measurement(finished, &TestResults::default());
        let server_output = self
            .output
            .as_ref()
            .map(|output| ServerOutput::Text(output.with_results(&measurement())));
        TestResults {
            report,
            server_output,
            ..results_of(finished, &self.sockets)
        }
    }

    /// Returns the identity of this host as the client gets it: its name and boot only where the
    /// client is known.
    fn stated_host(&self) -> HostIdentity {
        let host = this_host();
        if self.server.serves_only_known_clients() {
            return host;
        }
        HostIdentity {
            name: String::new(),
            boot_id: None,
            ..host
        }
    }

    fn end_report(&self, finished: &FinishedTransfer) -> EndReport {
        let mut report = EndReport {
            host: Some(self.stated_host()),
            settings: self.settings.clone(),
            cpu: finished.rest.cpu,
            sockets: self.sockets.clone(),
            samples: finished.rest.samples.clone(),
            datagrams: finished.stream_datagrams(self.request.transport),
            storage: finished.rest.storage,
            processors: machine::reduce_for_peer(&finished.machine.processors),
            device: finished.machine.device.clone(),
            network: finished.machine.network,
            notes: finished.rest.notes.clone(),
            ..EndReport::default()
        };
        report.thin_samples(None, MAX_REPORT_SAMPLES);
        report
    }

    fn totals(&self, client_results: &TestResults) -> TestTotals {
        let Some(finished) = &self.finished else {
            return TestTotals::default();
        };
        let bytes = bytes_of(&finished.stream_counts());
        let rate = BitRate::from_bytes_in(bytes, finished.duration().max(Span::from_nanos(1)));
        TestTotals {
            bytes,
            rate,
            measurement: Some(Box::new(self.measurement(finished, client_results))),
        }
    }

    /// Returns the measurement of this end, completed by the client's results.
    fn measurement(
        &self,
        finished: &FinishedTransfer,
        client_results: &TestResults,
    ) -> Measurement {
        let control = fullpipe_sys::tcp_info(self.control.tcp_stream()).ok();
        let mut streams = stream_summaries(finished, client_results, self.request.transport);
        for stream in &mut streams {
            stream.direction = opposite(stream.direction);
        }
        let mut totals = self
            .request
            .data_directions()
            .iter()
            .map(|&way| direction_summary(way, &streams, finished.duration()));
        let summary = totals
            .next()
            .unwrap_or_else(|| direction_summary(Direction::Upload, &[], finished.duration()));
        let reverse = totals.next();
        drop(totals);
        let settings = self
            .session
            .client_parameters()
            .and_then(TestParameters::host_settings)
            .cloned();
        let resolved = Some(ResolvedRequest::new(self.request.clone()));
        Measurement {
            id: new_id(),
            resolved,
            run: Some(run_totals(finished.origin, finished, control.as_ref())),
            web100: None,
            started: start_date(finished),
            setup: None,
            peer: Peer {
                host: self.client.ip().to_string(),
                address: self.client.to_string(),
                speaks_fullpipe: self
                    .session
                    .client_parameters()
                    .is_some_and(TestParameters::speaks_fullpipe),
            },
            request: self.request.clone(),
            local: EndReport {
                cpu: finished.rest.cpu,
                sockets: self.sockets.clone(),
                ..EndReport::default()
            },
            remote: EndReport {
                settings,
                ..as_stated(client_results)
            },
            summary,
            reverse,
            streams,
            intervals: Vec::new(),
            rtt: RttReport::of_kernel(None, Vec::new()),
            route: None,
            limit: None,
            capture: None,
            interrupted: false,
            broken_off: None,
            warnings: finished.rest.notes.clone(),
            validity: Validity::default(),
        }
    }
}

/// Returns the bytes that wait at streams on which no data flows yet.
fn received_early(streams: &[(u64, StreamChannel)]) -> ByteCount {
    let received = |(_, channel): &(u64, StreamChannel)| {
        fullpipe_sys::socket_memory(channel)
            .ok()
            .map(|memory| memory.rmem_alloc)
    };
    streams.iter().filter_map(received).sum()
}

/// Returns the session of a new test. If a key is required and there are no random bytes for the
/// nonce, it refuses.
fn session(server: &TestServer, cookie: TestCookie) -> ServerSession {
    let session = ServerSession::new(Time::ZERO, server.client_timeout.session_timeouts());
    let Some(key) = server.key.clone() else {
        return session;
    };
    match random_nonce() {
        Ok(nonce) => session.with_key(KeyCheck::new(key, cookie, nonce)),
        Err(error) => {
            let why = format!("cannot get random bytes: {error}");
            let mut session = session;
            session.refuse_test(
                TestRefusal {
                    number: ErrorNumber::AUTHENTICATION,
                    why,
                },
                error.raw_os_error(),
            );
            session
        }
    }
}

/// Returns a direction as seen from the other end: an upload of one end is a download of the other.
fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Upload => Direction::Download,
        Direction::Download => Direction::Upload,
        Direction::Both => Direction::Both,
    }
}

/// Returns the bytes of all streams together.
pub(super) fn bytes_of(streams: &[StreamCount]) -> ByteCount {
    streams.iter().map(|stream| stream.bytes).sum()
}

/// Refuses a data connection with the same answer as iperf3: one byte, which fits into the empty
/// send buffer. Without it, the client still sees that the connection is closed. UDP streams get no
/// answer.
pub(super) fn refuse_stream(channel: &StreamChannel) {
    if let StreamChannel::Tcp(stream) = channel {
        let mut stream = stream;
        let _ = stream
            .set_nonblocking(true)
            .and_then(|()| stream.write(&[StateByte::AccessDenied.to_byte()]));
    }
}
