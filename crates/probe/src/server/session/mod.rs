//! One test of an iperf3 client, from its cookie to its end.

mod login;
mod results;
mod streams;
mod transfer;

pub(super) use results::bytes_of;
pub(super) use transfer::opposite;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fullpipe_control::{ControlConnection, StalledBytes};
use fullpipe_iperf::{
    ErrorNumber, KeyCheck, ServerAction, ServerNonce, ServerSession, TestCookie, TestParameters,
    TestRefusal, TestResults, TestTicket, data_connections,
};
use fullpipe_record::{HostSettings, Measurement, Request, SocketReadback, TcpInfo};
use fullpipe_sys::random_bytes;
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::streams::received_early;
use super::admission::{AdmissionPermit, LoadActivity};
use super::monitor::TransferMonitor;
use super::output::OutputBuffer;
use super::registry::AcceptedStream;
use super::stream_listener::ExpectedStreams;
use super::udp::answer_hello;
use super::{POLL_INTERVAL, TestFailure, TestServer};
use crate::engine::{StorageFailure, StreamChannel};
use crate::progress::{CountedTransfer, FinishedTransfer};

/// Maximum number of samples in a report, about 400 KB; those of a longer test are thinned out.
const MAX_REPORT_SAMPLES: usize = 240;

/// Time between two reports to a fullpipe client that has at most [`STREAMS_PER_REPORT_INTERVAL`]
/// streams.
const PEER_REPORT_INTERVAL: Span = Span::from_secs(1);

/// Number of streams for each [`PEER_REPORT_INTERVAL`]: reports take 2 KB for each stream, on the
/// path of the data.
const STREAMS_PER_REPORT_INTERVAL: u64 = 8;

/// Maximum time after the end of a download for which the kernel keeps what the client has not
/// acknowledged.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two checks of what waits in the kernel while no data flows.
const QUEUE_INTERVAL: Duration = Duration::from_millis(500);

/// Totals of a test, as this end counted them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct TestTotals {
    pub(super) bytes: ByteCount,
    pub(super) rate: BitRate,
    /// The whole test; `None` for an iperf2 client, or if no data had flowed.
    pub(super) measurement: Option<Box<Measurement>>,
}

impl TestTotals {
    /// Returns the totals of a test that moved so many `bytes` in `duration`.
    pub(super) fn from_bytes(bytes: ByteCount, duration: Span) -> Self {
        Self {
            bytes,
            rate: BitRate::from_bytes_in(bytes, duration.max(Span::from_nanos(1))),
            measurement: None,
        }
    }
}

/// One test under way. It holds no buffer while its client sends nothing, because there may be a
/// thousand tests.
pub(super) struct ServedTest {
    server: Rc<TestServer>,
    client: SocketAddr,
    cookie: TestCookie,
    control: ControlConnection,
    session: ServerSession,
    origin: Instant,
    shutdown: watch::Receiver<bool>,
    accepted: mpsc::UnboundedReceiver<AcceptedStream>,
    request: Request,
    /// The client's ticket, where the server asks for one, once it is redeemed.
    ticket: Option<TestTicket>,
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

impl ServedTest {
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
            session: start_session(&server, cookie),
            origin: Instant::now(),
            shutdown: server.shutdown.subscribe(),
            accepted,
            request: Request::default(),
            ticket: None,
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
    pub(super) async fn run_test(mut self) -> Result<TestTotals, TestFailure> {
        loop {
            while let Some(action) = self.session.next_action() {
                if let Some(end) = self.carry_out(action).await {
                    self.reset_undelivered();
                    return end;
                }
            }
            self.wait_for_event().await;
            self.answer_hellos();
            if *self.shutdown.borrow() {
                self.session.announce_shutdown();
            }
            self.check_limits();
            self.send_due_report();
            self.session.check_deadline(self.now());
        }
    }

    /// Returns true if the client has sent its parameters and they state this.
    fn client_states(&self, what: fn(&TestParameters) -> bool) -> bool {
        self.session.client_parameters().is_some_and(what)
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    /// Waits for bytes, a stream, the shutdown, or the next deadline.
    async fn wait_for_event(&mut self) {
        let sleep_time = self.sleep_time();
        tokio::select! {
            read = self.control.receive_and_send(&mut self.unsent) => self.take_read(read),
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
        if let Some(progress) = &self.progress {
            return progress.sleep_time(due.min(POLL_INTERVAL));
        }
        let mut channels = self.streams.iter().map(|(_, channel)| channel);
        if channels.any(|channel| matches!(channel, StreamChannel::Udp(_))) {
            due.min(POLL_INTERVAL)
        } else if self.load.is_some() {
            due.min(QUEUE_INTERVAL)
        } else {
            due
        }
    }

    fn take_read(&mut self, read: io::Result<Vec<u8>>) {
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
        if let Err((refusal, os_error)) = self.check_load() {
            self.session.refuse_test(refusal, os_error);
        }
        if self
            .finished_at
            .is_some_and(|at| at.elapsed() >= DELIVERY_TIMEOUT)
        {
            self.reset_undelivered();
        }
    }

    /// Records what the load does.
    ///
    /// # Errors
    /// Fails with the error of the operating system if the file of this end cannot be used, or if
    /// the load exceeds a limit.
    fn check_load(&mut self) -> Result<(), (TestRefusal, Option<i32>)> {
        let Some(load) = &self.load else {
            return Ok(());
        };
        let activity = match &self.progress {
            Some(progress) => {
                if let Some(StorageFailure { why, os_error }) = progress.storage_failure() {
                    let refusal = TestRefusal::new(ErrorNumber::FILE, why.as_str());
                    return Err((refusal, *os_error));
                }
                self.monitor
                    .check_progress(&progress.transfer_totals(), || progress.current_samples())
            }
            // Before the start, no client has anything to send.
            None => Ok(LoadActivity {
                stalled: StalledBytes::from_lasting(received_early(&self.streams)),
                ..LoadActivity::default()
            }),
        };
        activity
            .and_then(|activity| self.server.admission.record_activity(load, activity))
            .map_err(|refusal| (refusal, None))
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
            ServerAction::ExpectStreams(request) => self.prepare_load(request).await,
            ServerAction::StartTransfer => self.start_transfer(),
            ServerAction::StopTransfer => self.stop_transfer(),
            ServerAction::CollectResults { report } => {
                self.drain_transfer().await;
                self.finish_transfer().await;
                let results = self.local_results(report);
                self.session.local_results(self.now(), results);
            }
            ServerAction::Finished(client_results) => {
                return Some(Ok(self.test_totals(&client_results)));
            }
            ServerAction::Failed(error) => {
                self.finish_transfer().await;
                let measurement = self.test_totals(&TestResults::default()).measurement;
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
    fn send_due_report(&mut self) {
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
}

/// Returns the session of a new test. If a key is required and there are no random bytes for the
/// nonce, it refuses.
fn start_session(server: &TestServer, cookie: TestCookie) -> ServerSession {
    let session = ServerSession::new(Time::ZERO, server.client_timeout.session_timeouts());
    let Some(key) = server.key.clone() else {
        return session;
    };
    match random_bytes().map(ServerNonce::new) {
        Ok(nonce) => session.with_key(KeyCheck::new(key, cookie, nonce)),
        Err(error) => {
            let why = format!("cannot get random bytes: {error}");
            let mut session = session;
            let refusal = TestRefusal::new(ErrorNumber::AUTHENTICATION, why);
            session.refuse_test(refusal, error.raw_os_error());
            session
        }
    }
}
