//! The client of an iperf3 server: runs the protocol's state machine over real connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_control::{ControlConnection, connect_to_first, unix_seconds};
use fullpipe_host::{SysctlTree, inspect_host};
use fullpipe_iperf::{
    ClientAction, ClientSession, ErrorNumber, SessionStep, TestCookie, TestError, TestParameters,
    TestRefusal, TestResults, Timeouts, direction_of,
};
use fullpipe_lab::PathWitness;
use fullpipe_load::{
    FileStorage, LocalEndpoint, PlannedStream, RunningTransfer, StreamChannel, TransferPlan,
    open_file, read_back,
};
use fullpipe_model::framing;
use fullpipe_model::kernel::request_for_window;
use fullpipe_record::{
    Buffer, ConnectedTest, Direction, EndReport, HostSettings, Interval, IpVersion, Measurement,
    Placement, Request, SocketReadback, Transport,
};
use fullpipe_route::{EchoProber, syn_quotes, was_changed};
use fullpipe_units::{ByteCount, Span, Time};
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tracing::{debug, info};

use crate::destination::Destination;
use crate::error::ProbeError;
use crate::kept_intervals::KeptIntervals;
use crate::machine::MachineSampler;
use crate::peer_report;
use crate::placement::go_near;
use crate::progress::{CountedTransfer, FinishedTransfer, all_broke, stream_role};
use crate::results::results_of;
use crate::so_far::{ReportSchedule, SO_FAR_SAMPLES, TestSnapshot};
use crate::streams::{OpenStream, StreamOpener};
use crate::summary::FinishedTest;

/// Timeout for a message to the server to be handed to the kernel.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which the next address of a name is tried, too: that of the first retransmission of a
/// SYN.
const NEXT_ADDRESS: Duration = Duration::from_secs(1);

/// Maximum time to wait for the last bytes of a download.
const MAX_DRAIN: Duration = Duration::from_secs(1);

/// Maximum time without data from a server that sends, as in iperf3; for a test of a number of
/// bytes, without an acknowledgement of one that receives.
const MAX_SILENCE: Span = Span::from_secs(120);

/// Time between two checks of a transfer, and for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Payload bytes of a segment of the control connection of a test over TCP: with headers they fit
/// into the smallest MTU of IPv6 (RFC 8200, section 5). Reports and results are longer than a
/// packet, and over a path that swallows large packets the byte that ends the test would wait
/// behind them for ever.
const CONTROL_SEGMENT: u32 = 1220;

/// MTU that is assumed when a window is turned into a buffer before there is a connection.
const COMMON_MTU: ByteCount = ByteCount::new(1500);

/// Payload bytes of a datagram if the path MTU is not known (iperf3's `DEFAULT_UDP_BLKSIZE`).
const COMMON_DATAGRAM: ByteCount = ByteCount::new(1460);

/// Bytes of one write without a rate: the most that iperf3 servers accept.
const MAX_BLOCK: ByteCount = ByteCount::from_mib(1);

/// Minimum bytes of one write at a rate.
const MIN_BLOCK: ByteCount = ByteCount::from_kib(1);

/// Time for which one write at a rate lasts.
const BURST: Span = Span::from_millis(1);

/// Payload bytes of the largest datagram over IPv4.
const MAX_DATAGRAM: ByteCount = ByteCount::new(65_507);

/// An event of a test, reported as it happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TestEvent<'e> {
    /// The data connections are open, and data begins to flow.
    Connected(&'e ConnectedTest),
    /// An interval has passed; if data goes both ways, that of the upload comes before that of the
    /// download.
    Interval(&'e Interval),
    /// A tenth of a second has passed; reported by [`watch_closely`] only.
    Snapshot(&'e TestSnapshot),
    /// The measurement as if the test ended now, once a second; reported by [`watch_closely`] only.
    /// Its samples are thinned, and its round-trip time without load is the least so far.
    SoFar(&'e Measurement),
}

/// Measures against an iperf3 server, fullpipe's or any other. An interrupt ends the test cleanly
/// at both ends; the measurement then holds what was counted so far.
///
/// # Errors
/// Fails if the server cannot be reached, breaks the protocol or ends the test before data flows,
/// or if this host lacks what was asked for.
pub fn measure_transfer(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    watch_transfer(destination, request, interrupt, &mut |event| {
        if let TestEvent::Interval(interval) = event {
            progress(interval);
        }
    })
}

/// Measures as [`measure_transfer`] does, and reports all events.
///
/// # Errors
/// Fails as [`measure_transfer`] does.
pub fn watch_transfer(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
) -> Result<Measurement, ProbeError> {
    start_test(destination, request, interrupt, report, false)
}

/// Measures as [`measure_transfer`] does, and reports all events and how the test goes between
/// them. The reports come from the thread of the control connection, so what receives them should
/// hand them on.
///
/// # Errors
/// Fails as [`measure_transfer`] does.
pub fn watch_closely(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
) -> Result<Measurement, ProbeError> {
    start_test(destination, request, interrupt, report, true)
}

fn start_test(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
    is_close: bool,
) -> Result<Measurement, ProbeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(ProbeError::from_io("start the client"))?;
    let witness = PathWitness::begin_witness();
    let result = runtime.block_on(run_test(destination, request, interrupt, report, is_close));
    // A name server that does not answer blocks a thread of the runtime, which is not waited for.
    runtime.shutdown_background();
    let over_path = witness.map(PathWitness::finish_witness).unwrap_or_default();
    let mut measurement = result?;
    measurement.validity = over_path.with_reasons(measurement.validity.broken);
    Ok(measurement)
}

async fn run_test(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(TestEvent<'_>),
    is_close: bool,
) -> Result<Measurement, ProbeError> {
    let begun = Instant::now();
    let settings = inspect_host(&SysctlTree::of_this_host())?;
    let asked = request.clone();
    let (storage, request) = with_file(request, destination.file.as_deref())?;
    let request = with_buffer(&request, &settings);
    let (control, prober) =
        unless_interrupted(interrupt, connect_control(destination, request.transport)).await?;
    let control = unless_interrupted(interrupt, encrypt_control(destination, control)).await?;
    let mss = segment_size(control.tcp_stream());
    let request = with_block(request, mss);
    let address = control
        .tcp_stream()
        .peer_addr()
        .map_err(ProbeError::from_io("read the server's address"))?;
    let handshake = fullpipe_sys::tcp_info(control.tcp_stream())
        .ok()
        .and_then(|info| info.rtt);
    if interrupt.load(Ordering::Relaxed) {
        return Err(ProbeError::Interrupted);
    }
    let cookie = random_cookie()?;
    let mut session = TestSession {
        destination,
        control,
        client: start_session(&request, destination, &settings, cookie)
            .map_err(ProbeError::Request)?,
        cookie,
        origin: Instant::now(),
        address,
        request,
        storage,
        handshake,
        setup: None,
        prober,
        placement: None,
        mss,
        sockets: Vec::new(),
        syn_was_changed: false,
        channels: Vec::new(),
        progress: None,
        finished: None,
        intervals: KeptIntervals::default(),
        stated: None,
        schedule: is_close.then(|| ReportSchedule::new(&asked, begun, &settings)),
        interrupted: false,
    };
    let ended = session
        .drive_session(interrupt, report)
        .await
        .map_err(|broken| broken.into_probe_error(destination));
    if ended.is_ok() && !session.interrupted {
        session.measure_after_load(interrupt);
    }
    let (results, broken_off) = kept_results(ended, session.finished.as_ref())?;
    let test = FinishedTest {
        destination,
        address,
        asked,
        request: session.request,
        begun,
        settings,
        sockets: session.sockets,
        control: fullpipe_sys::tcp_info(session.control.tcp_stream()).ok(),
        finished: session.finished.ok_or(ProbeError::Interrupted)?,
        results,
        stated: session.stated,
        taken: session.prober.and_then(EchoProber::finish),
        handshake,
        setup: session.setup,
        placement: session.placement,
        intervals: session.intervals.all,
        interrupted: session.interrupted,
        broken_off,
    };
    Ok(test.into_measurement())
}

/// Starts the session of a test with this `cookie`, with the key of `destination` if there is one.
fn start_session(
    request: &Request,
    destination: &Destination,
    settings: &HostSettings,
    cookie: TestCookie,
) -> Result<ClientSession, TestRefusal> {
    let parameters = test_parameters(request, destination, settings)?;
    let client =
        ClientSession::with_parameters(parameters, cookie, Time::ZERO, Timeouts::default())?;
    let keys = destination.key.iter().cloned();
    Ok(keys.fold(client, ClientSession::with_key))
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

/// Opens the file that is sent or written to. If it is sent, its length sets the bytes of the test.
fn with_file(
    request: &Request,
    path: Option<&Path>,
) -> Result<(Option<FileStorage>, Request), ProbeError> {
    let Some(path) = path else {
        return Ok((None, request.clone()));
    };
    let opened = open_file(path, request.direction);
    let (storage, length) = opened.map_err(|cause| ProbeError::File {
        path: path.to_owned(),
        cause,
    })?;
    Ok((
        Some(storage),
        Request {
            bytes: length.or(request.bytes),
            ..request.clone()
        },
    ))
}

/// Replaces a window by the buffer request that yields it. The receiver may have another kernel
/// than this host, so the window that was really used is in the samples.
fn with_buffer(request: &Request, settings: &HostSettings) -> Request {
    let buffer = match request.buffer {
        Buffer::Window(window) => {
            let mss = framing::segment_payload(
                COMMON_MTU,
                IpVersion::V4,
                settings.timestamps,
                request.mss,
            );
            Buffer::Request(request_for_window(settings, window, mss))
        }
        asked => asked,
    };
    Request {
        buffer,
        ..request.clone()
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
    Ok(parameters
        .with_request(request)
        .with_settings(settings.clone()))
}

/// Fills in the length of a block if none was asked for: over TCP a long one without a rate, and a
/// short one at a rate, sent without delay, as otherwise it would wait for the acknowledgement of
/// the one before; over UDP the payload of a packet of the path, from the segment size of the
/// control connection, as iperf3 does.
fn with_block(request: Request, mss: Option<ByteCount>) -> Request {
    if request.block > ByteCount::ZERO {
        return request;
    }
    match (request.transport, request.rate) {
        (Transport::Tcp, None) => Request {
            block: request.bytes.map_or(MAX_BLOCK, even_block),
            ..request
        },
        (Transport::Tcp, Some(rate)) => {
            let block = rate.bytes_in(BURST).clamp(MIN_BLOCK, MAX_BLOCK);
            Request {
                block,
                no_delay: true,
                ..request
            }
        }
        (Transport::Udp, _) => Request {
            block: mss.map_or(COMMON_DATAGRAM, |mss| mss.min(MAX_DATAGRAM)),
            ..request
        },
    }
}

/// Returns the maximum segment size of a connection, if the kernel reports it.
pub(crate) fn segment_size(connection: impl AsFd) -> Option<ByteCount> {
    fullpipe_sys::tcp_info(connection).ok()?.snd_mss
}

/// Returns the length of a block with which whole blocks exceed `bytes` by less than a byte each.
fn even_block(bytes: ByteCount) -> ByteCount {
    let blocks = bytes.get().div_ceil(MAX_BLOCK.get()).max(1);
    ByteCount::new(bytes.get().div_ceil(blocks).max(1))
}

async fn connect_control(
    destination: &Destination,
    transport: Transport,
) -> Result<(TcpStream, Option<EchoProber>), ProbeError> {
    let found = destination.resolve_host()?;
    info!(host = %destination.host, addresses = ?found, "resolved the name of the server");
    connect_to_any(destination, &found, transport).await
}

/// Returns the control connection to the first of `addresses` that answers, and the echo requests
/// to it.
///
/// # Errors
/// Fails if none answers, with the last reason.
async fn connect_to_any(
    destination: &Destination,
    addresses: &[SocketAddr],
    transport: Transport,
) -> Result<(TcpStream, Option<EchoProber>), ProbeError> {
    let (host, limit) = (&destination.host, destination.connect_timeout());
    let connected = connect_to_first(addresses, NEXT_ADDRESS, |address| {
        info!(%address, "connecting");
        let prober = destination.start_prober(address);
        let (host, local) = (host.clone(), destination.local.clone());
        async move {
            let connected = timeout(limit, connect_to(address, &local, transport)).await;
            let control = connected.map_err(|_| ProbeError::Silent {
                host: host.clone(),
                address,
                after: limit.into(),
            });
            let control = control.and_then(|connected| {
                connected.map_err(|cause| not_connected(host, address, cause))
            });
            Ok((control.map_err(io::Error::other)?, prober))
        }
    });
    connected.await.map_err(|error| {
        error
            .downcast()
            .unwrap_or_else(ProbeError::from_io("connect to the server"))
    })
}

fn not_connected(host: String, address: SocketAddr, cause: io::Error) -> ProbeError {
    let refused = cause.kind() == io::ErrorKind::ConnectionRefused;
    let hint = if refused {
        "; start `fullpipe serve` or `iperf3 -s` there"
    } else {
        ""
    };
    ProbeError::Connect {
        host,
        address,
        cause,
        hint,
    }
}

/// Runs `work` to its result, or to [`ProbeError::Interrupted`] once the user interrupts it.
async fn unless_interrupted<T, E: From<ProbeError>>(
    interrupt: &AtomicBool,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let interrupted = async {
        while !interrupt.load(Ordering::Relaxed) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = interrupted => Err(ProbeError::Interrupted.into()),
    }
}

/// Returns the control connection, over TLS if that was asked for.
async fn encrypt_control(
    destination: &Destination,
    stream: TcpStream,
) -> Result<ControlConnection, ProbeError> {
    let Some(trust) = &destination.tls else {
        return Ok(ControlConnection::Plain(stream));
    };
    let agreed = timeout(
        destination.connect_timeout(),
        trust.connect_tls(&destination.host, stream),
    )
    .await;
    let control = agreed.unwrap_or_else(|_| {
        let why = "the server does not answer";
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    });
    control.map_err(|cause| ProbeError::Tls {
        host: destination.host.clone(),
        cause,
    })
}

/// Opens the control connection from the address and the device that were asked for; the kernel
/// chooses its port.
async fn connect_to(
    address: SocketAddr,
    local: &LocalEndpoint,
    transport: Transport,
) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // Over UDP the segments of this connection show what a packet of the path holds.
    if transport == Transport::Tcp {
        // Where the kernel refuses, segments are as long as the path's.
        let _ = SockRef::from(&socket).set_tcp_mss(CONTROL_SEGMENT);
    }
    if let Some(device) = &local.device {
        SockRef::from(&socket).bind_device(Some(device.as_bytes()))?;
    }
    if let Some(own) = local.address {
        socket.bind(SocketAddr::new(own, 0))?;
    }
    let control = socket.connect(address).await?;
    control.set_nodelay(true)?;
    Ok(control)
}

fn random_cookie() -> Result<TestCookie, ProbeError> {
    let mut random = [0; 36];
    let length = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| ProbeError::from_io("draw a random cookie")(errno.into()))?;
    // The kernel returns up to 256 bytes in one call.
    debug_assert_eq!(length, random.len());
    Ok(TestCookie::from_random(random))
}

/// An error that ends a session early; the name of the host is added where it is known.
enum SessionFailure {
    Protocol(TestError),
    Here(ProbeError),
}

impl SessionFailure {
    fn into_probe_error(self, destination: &Destination) -> ProbeError {
        let host = destination.host.clone();
        match self {
            Self::Protocol(TestError::ClientTerminated { .. }) => ProbeError::Interrupted,
            Self::Protocol(cause) => match login_hint(&cause, destination) {
                Some(hint) => ProbeError::Unauthorized { host, cause, hint },
                None => ProbeError::Protocol { host, cause },
            },
            Self::Here(error) => error,
        }
    }
}

/// Returns a hint for a user who was not admitted; none where that is not why the test ended.
fn login_hint(cause: &TestError, destination: &Destination) -> Option<&'static str> {
    let is_named = destination.login.is_some();
    match cause {
        TestError::KeyMissing => return Some("--key-file gives it"),
        TestError::Server {
            step: SessionStep::Key,
            reason,
        } if reason.number == Some(ErrorNumber::AUTHENTICATION) && !is_named => {
            return Some("is the key the server's own?");
        }
        TestError::Server { reason, .. } if reason.number == Some(ErrorNumber::AUTHENTICATION) => {}
        // Since 3.21 a refusal is silent; without a user name there may be another reason.
        TestError::Closed {
            step: SessionStep::Parameters,
        } if is_named => {}
        _ => return None,
    }
    Some(match (is_named, destination.key.is_some()) {
        (true, false) => {
            "are name, password and clock right? iperf3 before 3.17 needs --use-pkcs1-padding"
        }
        (true, true) => {
            "are name, password and clock right, and the key the server's own? iperf3 before 3.17 needs \
             --use-pkcs1-padding"
        }
        (false, true) => {
            "does this version of fullpipe run there? Older ones check keys in another way"
        }
        (false, false) => {
            "it asks for a user: --username and --rsa-public-key-path give a name and a password to it, --key-file a \
             key to an older fullpipe"
        }
    })
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

impl From<ProbeError> for SessionFailure {
    fn from(error: ProbeError) -> Self {
        Self::Here(error)
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
    request: Request,
    storage: Option<FileStorage>,
    handshake: Option<Span>,
    /// Time that it took to open the data connections.
    setup: Option<Span>,
    prober: Option<EchoProber>,
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
    schedule: Option<ReportSchedule>,
    interrupted: bool,
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
                peer_report::merge_report(self.stated.get_or_insert_default(), *report);
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
        let lanes = channels
            .into_iter()
            .zip(&ways)
            .map(|(channel, way)| PlannedStream {
                channel,
                role: stream_role(*way),
            })
            .collect();
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
        let machine = before.start_watch(transfer.origin());
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
        if due {
            self.end_transfer(report);
        }
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
        if so_far && let Some(measurement) = self.so_far() {
            report(TestEvent::SoFar(&measurement));
        }
    }

    /// Returns the measurement as if the test ended now; `None` if data does not flow, or no caller
    /// wants it.
    fn so_far(&self) -> Option<Measurement> {
        let (progress, schedule) = (self.progress.as_ref()?, self.schedule.as_ref()?);
        let test = FinishedTest {
            destination: self.destination,
            address: self.address,
            asked: schedule.asked.clone(),
            request: self.request.clone(),
            begun: schedule.begun,
            settings: schedule.settings.clone(),
            sockets: self.sockets.clone(),
            control: None,
            finished: progress.so_far_finished(SO_FAR_SAMPLES),
            results: TestResults::default(),
            stated: self.stated.clone(),
            taken: None,
            handshake: self
                .prober
                .as_ref()
                .and_then(EchoProber::min_rtt)
                .or(self.handshake),
            setup: self.setup,
            placement: self.placement.clone(),
            intervals: Vec::new(),
            interrupted: false,
            broken_off: None,
        };
        Some(test.into_measurement())
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

#[cfg(test)]
mod tests;
