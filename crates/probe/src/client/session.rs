//! One test with an iperf3 server, from its connection to its measurement.

mod summary;

pub(super) use summary::{round_trips, unmet_rate};

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_control::{ControlConnection, canonical_address, unix_seconds};
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_iperf::{
    ClientAction, ClientSession, ErrorNumber, SealedTicket, TestCookie, TestParameters,
    TestRefusal, TestResults, Timeouts, direction_of,
};
use fullpipe_record::{
    ConnectedTest, Direction, EndReport, HostSettings, Interval, Measurement, Placement, Request,
    SocketReadback, Transport,
};
use fullpipe_sys::random_bytes;
use fullpipe_units::{ByteCount, Span, Time};
use socket2::SockRef;
use tokio::time::timeout;
use tracing::{debug, info};

use super::TestEvent;
use super::connect::{connect_control, encrypt_control, unless_interrupted};
use super::failure::SessionFailure;
use super::kept_intervals::KeptIntervals;
use super::peer_report::merge_report;
use super::placement::go_near;
use super::request::{fill_block, fill_buffer, open_storage};
use super::so_far::{ReportSchedule, SO_FAR_SAMPLES};
use super::streams::{OpenStream, StreamOpener};
use crate::destination::Destination;
use crate::echo::EchoProber;
use crate::engine::{FileStorage, RunningTransfer, StreamChannel, TransferPlan, read_back};
use crate::error::ProbeError;
use crate::machine::MachineSampler;
use crate::progress::{CountedTransfer, FinishedTransfer, all_broke, planned_streams};
use crate::results::results_of;
use crate::route::{syn_quotes, was_changed};
use summary::FinishedTest;

/// Timeout for a message to the server to be handed to the kernel.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time to wait for the last bytes of a download.
const MAX_DRAIN: Duration = Duration::from_secs(1);

/// Maximum time without data from a server that sends, as in iperf3; for a test of a number of
/// bytes, without an acknowledgement of one that receives.
const MAX_SILENCE: Span = Span::from_secs(120);

/// Time between two checks of a transfer, and for an interrupt.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a test to its end; reports how it goes between its events if that has a schedule.
pub(super) async fn run_test(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
    schedule: Option<ReportSchedule<'_>>,
) -> Result<Measurement, ProbeError> {
    let mut session = TestSession::connect(destination, request, interrupt, schedule).await?;
    let ended = session
        .drive_session(interrupt, report)
        .await
        .map_err(|broken| broken.into_probe_error(destination));
    if ended.is_ok() && !session.interrupted {
        session.measure_after_load(interrupt);
    }
    let (results, broken_off) = kept_results(ended, session.finished.as_ref())?;
    let test = FinishedTest {
        control: fullpipe_sys::tcp_info(session.control.tcp_stream()).ok(),
        finished: session.finished.take().ok_or(ProbeError::Interrupted)?,
        results,
        echoes: session.prober.take().and_then(EchoProber::finish),
        handshake: session.handshake,
        intervals: std::mem::take(&mut session.intervals.all),
        broken_off,
        test: &session,
    };
    Ok(test.into_measurement())
}

/// Starts the session of a test with this `cookie`, with the key of `destination` or that of its
/// ticket, if there is one.
fn start_session(
    request: &Request,
    destination: &Destination,
    settings: &HostSettings,
    cookie: TestCookie,
) -> Result<ClientSession, TestRefusal> {
    let parameters = test_parameters(request, destination, settings)?;
    let client =
        ClientSession::with_parameters(parameters, cookie, Time::ZERO, Timeouts::default())?;
    let of_ticket = destination.ticket.as_ref().map(SealedTicket::key);
    let key = of_ticket.or(destination.key.as_ref());
    Ok(key
        .cloned()
        .into_iter()
        .fold(client, ClientSession::with_key))
}

/// Fails if the server is to open connections that only this end can open.
fn check_callable(destination: &Destination, request: &Request) -> Result<(), ProbeError> {
    let is_own_port = destination.local.port.is_some();
    let is_other = request.transport == Transport::Udp || request.multipath || is_own_port;
    if destination.call_back.is_none() || !is_other {
        return Ok(());
    }
    let why = "the server's port does not answer, so that it opens the connections itself, which \
               --udp, --mptcp and --cport exclude";
    let refusal = TestRefusal::new(ErrorNumber::STREAMS, why);
    Err(ProbeError::Request(refusal))
}

/// Returns the results of a test that has ended, and why it broke off, if it did.
fn kept_results(
    ended: Result<TestResults, ProbeError>,
    finished: Option<&FinishedTransfer>,
) -> Result<(TestResults, Option<String>), ProbeError> {
    match (ended, finished) {
        (Ok(results), finished) => Ok((
            results,
            finished.and_then(|finished| all_broke(&finished.rest)),
        )),
        // Data has flowed: what was counted is kept.
        (Err(error), Some(_)) => Ok((TestResults::default(), Some(error.to_string()))),
        (Err(error), None) => Err(error),
    }
}

/// Returns the parameters that are sent to the server.
fn test_parameters(
    request: &Request,
    destination: &Destination,
    settings: &HostSettings,
) -> Result<TestParameters, TestRefusal> {
    let mut parameters = TestParameters::from_request(request)?;
    if destination.server_output {
        parameters = parameters.with_server_output();
    }
    if let Some(login) = &destination.login {
        parameters = parameters.with_auth_token(login.create_token(unix_seconds())?)?;
    }
    if let Some(ticket) = &destination.ticket {
        parameters = parameters.with_ticket(ticket)?;
    }
    Ok(parameters
        .with_request(request)
        .with_settings(settings.clone()))
}

fn random_cookie() -> Result<TestCookie, ProbeError> {
    let random = random_bytes().map_err(ProbeError::from_io("draw a random cookie"))?;
    Ok(TestCookie::from_random(random))
}

/// Returns the name of an action, without what it sends: that may be a login.
const fn action_name(action: &ClientAction) -> &'static str {
    match action {
        ClientAction::Send(_) => "send a message",
        ClientAction::OpenStreams { .. } => "open data connections",
        ClientAction::StartTransfer => "start the transfer",
        ClientAction::Reported(_) => "take a report of the server",
        ClientAction::CollectResults => "collect results",
        ClientAction::Finished(_) => "finish",
        ClientAction::Failed(_) => "give up",
    }
}

/// One test under way.
struct TestSession<'d> {
    destination: &'d Destination,
    control: ControlConnection,
    client: ClientSession,
    cookie: TestCookie,
    origin: Instant,
    address: SocketAddr,
    /// The load that was asked for.
    asked: Request,
    /// The load that is carried out.
    request: Request,
    /// Time of the first connection attempt.
    begun: Instant,
    /// Settings of this host.
    settings: HostSettings,
    storage: Option<FileStorage>,
    /// Round-trip time of the control connection's handshake.
    handshake: Option<Span>,
    /// Time that it took to open the data connections.
    setup: Option<Span>,
    prober: Option<EchoProber>,
    /// Processors of this end's data threads, if they were to be near the device.
    placement: Option<Placement>,
    /// Maximum segment size of the path.
    mss: Option<ByteCount>,
    sockets: Vec<SocketReadback>,
    /// Set if the first connection shows that a device on the way changed its SYN or SYN-ACK.
    syn_was_changed: bool,
    channels: Vec<StreamChannel>,
    progress: Option<CountedTransfer>,
    finished: Option<FinishedTransfer>,
    intervals: KeptIntervals,
    /// Report of the server while data flows.
    stated: Option<EndReport>,
    /// Schedule of the reports on the test under way, if they are wanted.
    schedule: Option<ReportSchedule<'d>>,
    interrupted: bool,
}

impl<'d> TestSession<'d> {
    /// Connects to the server, and begins the session of a test.
    async fn connect(
        destination: &'d Destination,
        asked: &Request,
        interrupt: &AtomicBool,
        schedule: Option<ReportSchedule<'d>>,
    ) -> Result<Self, ProbeError> {
        let begun = Instant::now();
        check_callable(destination, asked)?;
        let settings = inspect_host(&SysctlTree::of_this_host())?;
        let mut request = asked.clone();
        let storage = open_storage(&mut request, destination.file.as_deref())?;
        fill_buffer(&mut request, &settings);
        let (control, prober) =
            unless_interrupted(interrupt, connect_control(destination, request.transport)).await?;
        let control = unless_interrupted(interrupt, encrypt_control(destination, control)).await?;
        let info = fullpipe_sys::tcp_info(control.tcp_stream()).unwrap_or_default();
        fill_block(&mut request, info.snd_mss);
        let address = control
            .tcp_stream()
            .peer_addr()
            .map(canonical_address)
            .map_err(ProbeError::from_io("read the server's address"))?;
        if interrupt.load(Ordering::Relaxed) {
            return Err(ProbeError::Interrupted);
        }
        let cookie = random_cookie()?;
        Ok(Self {
            destination,
            control,
            client: start_session(&request, destination, &settings, cookie)
                .map_err(ProbeError::Request)?,
            cookie,
            origin: Instant::now(),
            address,
            asked: asked.clone(),
            request,
            begun,
            settings,
            storage,
            handshake: info.rtt,
            setup: None,
            prober,
            placement: None,
            mss: info.snd_mss,
            sockets: Vec::new(),
            syn_was_changed: false,
            channels: Vec::new(),
            progress: None,
            finished: None,
            intervals: KeptIntervals::default(),
            stated: None,
            schedule,
            interrupted: false,
        })
    }
}

impl TestSession<'_> {
    /// Runs the test to its end and returns the results of the server.
    async fn drive_session(
        &mut self,
        interrupt: &AtomicBool,
        report: &mut dyn FnMut(TestEvent<'_>),
    ) -> Result<TestResults, SessionFailure> {
        loop {
            while let Some(action) = self.client.next_action() {
                debug!(
                    action = action_name(&action),
                    "next step of the control connection"
                );
                if let Some(results) = self.carry_out(action, interrupt, report).await? {
                    return Ok(results);
                }
            }
            let pause = self
                .progress
                .as_ref()
                .map_or(POLL_INTERVAL, |progress| progress.sleep_time(POLL_INTERVAL));
            tokio::select! {
                read = self.control.receive_bytes() => match read {
                    Ok(bytes) if !bytes.is_empty() => self.client.receive_bytes(self.session_time(), &bytes),
                    _ => self.client.connection_closed(),
                },
                () = tokio::time::sleep(pause) => {}
            }
            if interrupt.load(Ordering::Relaxed) && !self.interrupted {
                self.interrupt_test(report);
            }
            self.check_transfer(report);
            if let Err(silent) = self.check_silence() {
                self.break_off(report);
                self.client.interrupt_test();
                self.say_goodbye().await;
                return Err(silent.into());
            }
            self.client.check_deadline(self.session_time());
        }
    }

    fn session_time(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    /// Carries out an action of the protocol; returns the results of the server when the test is
    /// complete.
    async fn carry_out(
        &mut self,
        action: ClientAction,
        interrupt: &AtomicBool,
        report: &mut dyn FnMut(TestEvent<'_>),
    ) -> Result<Option<TestResults>, SessionFailure> {
        match action {
            ClientAction::Send(bytes) => {
                // If the connection breaks here, the next read reports it.
                let _ = timeout(SEND_TIMEOUT, self.control.send_bytes(&bytes)).await;
            }
            ClientAction::OpenStreams { count, together } => {
                match self.open_streams(count, together, interrupt).await {
                    Ok(()) => self.client.streams_opened(self.session_time()),
                    Err(SessionFailure::Here(error)) => {
                        self.client.open_failed(error.to_string());
                        self.say_goodbye().await;
                        return Err(error.into());
                    }
                    Err(broken) => return Err(broken),
                }
            }
            ClientAction::StartTransfer => {
                self.start_transfer()?;
                report(TestEvent::Connected(&self.connected_test()));
            }
            ClientAction::Reported(report) => {
                merge_report(self.stated.get_or_insert_default(), *report);
            }
            ClientAction::CollectResults => {
                self.drain_transfer().await;
                self.finished = self.progress.take().map(CountedTransfer::finish);
                let results = self.local_results();
                self.client.local_results(self.session_time(), results);
            }
            ClientAction::Finished(results) => return Ok(Some(results)),
            ClientAction::Failed(error) => {
                self.break_off(report);
                return Err(SessionFailure::Protocol(error));
            }
        }
        Ok(None)
    }

    /// Reports to the server that the test has ended, so that it accepts the next at once.
    async fn say_goodbye(&mut self) {
        while let Some(action) = self.client.next_action() {
            if let ClientAction::Send(bytes) = action {
                let _ = timeout(SEND_TIMEOUT, self.control.send_bytes(&bytes)).await;
            }
        }
    }

    /// Waits until what is under way to this end has been read, for [`MAX_DRAIN`] at most: it loads
    /// the path, and is part of what the test cost.
    async fn drain_transfer(&self) {
        let (Some(progress), Transport::Tcp) = (&self.progress, self.request.transport) else {
            return;
        };
        let begun = Instant::now();
        while !progress.has_received_all() && !self.interrupted && begun.elapsed() < MAX_DRAIN {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn open_streams(
        &mut self,
        count: u16,
        together: bool,
        interrupt: &AtomicBool,
    ) -> Result<(), SessionFailure> {
        // Until its streams are open, an iperf3 server would take any datagram for one of them.
        if self.request.transport == Transport::Tcp {
            self.offer_server();
        }
        let opener = StreamOpener {
            address: self.address,
            request: &self.request,
            local: &self.destination.local,
            cookie: self.cookie,
            timeout: self.destination.connect_timeout(),
            rtt: self.handshake,
            together,
            call_back: self.destination.call_back.as_ref(),
        };
        let begun = Instant::now();
        let open = unless_interrupted(interrupt, opener.open_streams(count)).await?;
        self.setup = Some(begun.elapsed().into());
        info!(streams = count, took = ?begun.elapsed(), "opened the data connections");
        for (OpenStream { channel, handshake }, index) in open.into_iter().zip(0..) {
            let found = read_back(&SockRef::from(&channel), index)
                .map_err(ProbeError::from_io("read a socket's options"))?;
            debug!(stream = index, socket = ?found, "read back the settings of a socket");
            let found = SocketReadback { handshake, ..found };
            if index == 0 {
                let tcp = fullpipe_sys::tcp_info(&channel).ok();
                self.mss = tcp.as_ref().and_then(|tcp| tcp.snd_mss).or(self.mss);
                self.syn_was_changed = tcp.is_some_and(|tcp| was_changed(&found, &tcp));
            }
            self.sockets.push(found);
            self.channels.push(channel);
        }
        if self.request.transport == Transport::Udp {
            self.offer_server();
            self.await_echo().await;
        }
        Ok(())
    }

    /// Waits for the answer to an echo request if there is none yet, for at most about two round
    /// trips: over UDP the load follows at once, and there would be no round-trip time without
    /// load.
    async fn await_echo(&self) {
        const MIN: Span = Span::from_millis(200);
        const MAX: Span = Span::from_millis(500);
        let Some(prober) = &self.prober else { return };
        let timeout = (self.handshake.unwrap_or_default() * 2 + MIN).min(MAX);
        let begun = Instant::now();
        while prober.min_rtt().is_none() && Span::from(begun.elapsed()) < timeout {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Measures after the load: waits until the round-trip time has settled, and sends SYN probes
    /// if the SYN was changed.
    fn measure_after_load(&mut self, interrupt: &AtomicBool) {
        if let Some(prober) = &self.prober {
            prober.wait_until_settled(interrupt);
        }
        if let (true, Some(first)) = (self.syn_was_changed, self.sockets.first_mut()) {
            first.syn_quotes = syn_quotes(
                self.address,
                &self.destination.local,
                self.handshake,
                interrupt,
            );
        }
    }

    /// Names the server to the prober, for echo requests that the kernel there does not answer.
    fn offer_server(&self) {
        if let Some(prober) = &self.prober {
            prober.use_server(self.address, self.cookie);
        }
    }

    fn start_transfer(&mut self) -> Result<(), ProbeError> {
        info!(request = ?self.request, "starting the transfer");
        let channels = std::mem::take(&mut self.channels);
        let ways: Vec<Direction> = (0..channels.len())
            .map(|index| direction_of(&self.request, index as u16))
            .collect();
        let lanes = planned_streams(channels, &ways);
        let least = self.prober.as_ref().and_then(EchoProber::min_rtt);
        let plan = TransferPlan::from_request(&self.request, least.or(self.handshake));
        if self.request.near_device {
            self.placement = Some(go_near(self.address.ip(), &self.destination.local));
        }
        let before =
            MachineSampler::from_route(self.address.ip(), self.destination.local.device.as_deref());
        let transfer = RunningTransfer::start_with(lanes, plan, self.storage.take())
            .map_err(ProbeError::from_io("start the data threads"))?;
        self.prober.iter().for_each(EchoProber::load_begins);
        self.offer_server();
        let machine = before.start_watch(transfer.origin);
        self.progress = Some(
            CountedTransfer::new(transfer, machine, self.request.clone(), ways).limiting_bytes(),
        );
        Ok(())
    }

    fn connected_test(&self) -> ConnectedTest {
        ConnectedTest::from_sockets(
            &self.request,
            self.cookie.to_string(),
            self.mss,
            &self.sockets,
        )
    }

    /// Reports the intervals that have passed, and ends the transfer when it is due.
    fn check_transfer(&mut self, report: &mut dyn FnMut(TestEvent<'_>)) {
        let Some(progress) = &mut self.progress else {
            return;
        };
        let passed = progress.take_passed_intervals();
        let due = progress.is_due();
        if let Some(prober) = &self.prober {
            prober.load_carries(
                &self.request,
                progress.mean_rate(),
                progress.origin().elapsed().into(),
            );
        }
        self.report_intervals(passed, report);
        self.report_so_far(report);
        if due || self.is_enough() {
            self.end_transfer(report);
        }
    }

    /// Returns true if data flows that is not needed.
    fn is_enough(&self) -> bool {
        let counts = self
            .progress
            .as_ref()
            .is_some_and(CountedTransfer::is_counting);
        counts
            && self
                .schedule
                .as_ref()
                .is_some_and(ReportSchedule::is_enough)
    }

    /// Reports how the test goes, if that is wanted and due.
    fn report_so_far(&mut self, report: &mut dyn FnMut(TestEvent<'_>)) {
        let (Some(progress), Some(schedule)) = (&self.progress, &mut self.schedule) else {
            return;
        };
        if progress.has_ended() {
            return;
        }
        let (snapshot, so_far) = schedule.take_due(progress.origin().elapsed().into());
        if snapshot {
            let echo_rtt = self.prober.as_ref().and_then(EchoProber::last_rtt);
            report(TestEvent::Snapshot(&progress.test_snapshot(echo_rtt)));
        }
        if so_far {
            report(TestEvent::SoFar(&self.measurement_so_far(progress)));
        }
    }

    /// Returns the measurement as if the test ended now.
    fn measurement_so_far(&self, progress: &CountedTransfer) -> Measurement {
        let least = self.prober.as_ref().and_then(EchoProber::min_rtt);
        let test = FinishedTest {
            test: self,
            control: None,
            finished: progress.so_far_finished(SO_FAR_SAMPLES),
            results: TestResults::default(),
            echoes: None,
            handshake: least.or(self.handshake),
            intervals: Vec::new(),
            broken_off: None,
        };
        test.into_measurement()
    }

    /// Fails if no data has come, or none was acknowledged, for longer than is permitted.
    fn check_silence(&self) -> Result<(), ProbeError> {
        let Some(progress) = &self.progress else {
            return Ok(());
        };
        let host = &self.destination.host;
        let longest = self.destination.receive_timeout.unwrap_or(MAX_SILENCE);
        match (
            progress.receive_silence(),
            progress.time_without_acknowledgement(),
        ) {
            (after, _) if after > longest => Err(ProbeError::NoData {
                host: host.clone(),
                after,
            }),
            (_, after) if after > MAX_SILENCE => Err(ProbeError::NotAcknowledged {
                host: host.clone(),
                after,
            }),
            _ => Ok(()),
        }
    }

    /// Ends the transfer early; ends the whole test if there is no transfer, or it has ended
    /// already.
    fn interrupt_test(&mut self, report: &mut dyn FnMut(TestEvent<'_>)) {
        self.interrupted = true;
        if self
            .progress
            .as_ref()
            .is_some_and(|progress| !progress.has_ended())
        {
            self.end_transfer(report);
        } else {
            self.client.interrupt_test();
        }
    }

    fn end_transfer(&mut self, report: &mut dyn FnMut(TestEvent<'_>)) {
        let last = self
            .progress
            .as_mut()
            .map(CountedTransfer::end_transfer)
            .unwrap_or_default();
        self.report_intervals(last, report);
        self.client.transfer_finished(self.session_time());
    }

    /// Ends a transfer that cannot go on, and keeps what was counted of it, its last interval too.
    fn break_off(&mut self, report: &mut dyn FnMut(TestEvent<'_>)) {
        if let Some(mut progress) = self.progress.take() {
            self.report_intervals(progress.end_transfer(), report);
            self.finished = Some(progress.finish());
        }
    }

    fn report_intervals(&mut self, passed: Vec<Interval>, report: &mut dyn FnMut(TestEvent<'_>)) {
        if passed.is_empty() {
            return;
        }
        let echo_rtt = self.prober.as_ref().and_then(EchoProber::take_recent_rtt);
        for interval in passed {
            let interval = Interval {
                echo_rtt,
                ..interval
            };
            report(TestEvent::Interval(&interval));
            self.intervals.push(interval);
        }
    }

    fn local_results(&self) -> TestResults {
        let Some(finished) = &self.finished else {
            return TestResults::default();
        };
        results_of(finished, &self.sockets)
    }
}
