//! The server: any number of tests at once, distinguished by their cookies.
//!
//! A new connection needs a permit of [`admission`]. It is then classified by its [`first_bytes`]:
//! as a data connection of a test in the [`registry`], the control connection of a new [`session`], or
//! the upload of an [`iperf2`] client. It holds a permit as long as it is open, and every wait has
//! a timeout.

mod admission;
mod backoff;
mod events;
mod first_bytes;
mod iperf2;
mod listen;
mod monitor;
mod output;
mod registry;
mod session;
mod stall;
mod stream_listener;
mod web;

mod udp;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{StorageConfig, StreamChannel};
use fullpipe_control::{
    ConnectionHandover, ControlConnection, HANDSHAKE, HandedConnections, LoginAuthenticator,
    PendingPlace, RefusalCounts, RefusedConnections, TlsIdentity, begins_pinned_tls,
    canonical_address,
};
use fullpipe_iperf::{
    CallerKind, DEFAULT_PORT, ErrorNumber, ServerKey, StateByte, TestCookie, TestError,
    TestRefusal, Timeouts, UsedSlots, data_connections,
};
use fullpipe_record::{Measurement, Request};
use fullpipe_units::{ByteCount, Span};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::{sleep, timeout};

use crate::error::ServeError;
use admission::{Admission, AdmissionPermit, ClientRejection, PendingConnection};
use backoff::LoginBackoff;
use first_bytes::{FirstBytes, read_first_bytes};
use listen::{listen_tcp, listen_udp};
use monitor::TransferBounds;
use registry::{AcceptedStream, CookieState, StreamSender, TestRegistry};
use session::{ServedTest, TestTotals};
use stall::StallBounds;
use stream_listener::StreamListener;

pub use admission::{AdmissionQuota, ServerLimits};
pub use events::ServerEvent;
pub use output::{Printer, TestText};
pub use web::{ResultPage, WebJudge, WebOptions, WebQuotas};

/// Time between two checks of a transfer, and for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time that tests may take to end when the server shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time that a new test waits for evicted loads to end.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// An event on its way to the caller of [`serve_clients`].
struct QueuedEvent {
    event: ServerEvent,
    /// True at the end of a test, after which a server for one test ends. Flows of iperf2 datagrams
    /// are no tests here, because their source addresses can be forged.
    ends_test: bool,
}

/// Options of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Address to listen on; every address of both families if not set.
    pub bind: Option<IpAddr>,
    /// Network device through which clients must come; any if not set. A link-local address needs
    /// it.
    pub device: Option<String>,
    /// Port to listen on, over TCP and UDP.
    pub port: u16,
    /// Second port, for iperf2 clients. If it is in use, the server runs without it. Both ports
    /// serve all clients.
    pub iperf2_port: Option<u16>,
    /// True if iperf2 clients are served.
    pub iperf2: bool,
    /// Length of the intervals that are reported; zero for none.
    pub interval: Span,
    /// True if the server ends after one test. During the test, other clients are refused because
    /// the server is busy.
    pub one_off: bool,
    /// True if tests that are refused for the same reason within a minute are counted, not reported
    /// one by one.
    pub counts_refusals: bool,
    /// Time without a test after which the server ends; `None` if it does not.
    pub idle_timeout: Option<Span>,
    /// Maximum time that a client may take for its first bytes and for each reply. Its results, and
    /// messages that it receives, may take three times as long; data may stall for twelve times as
    /// long, and for three times where most of many streams do.
    pub timeout: Span,
    /// Key that clients must have, or the secret of their tickets: only fullpipe clients are then
    /// served. It encrypts nothing, and says nothing to clients of the web.
    pub key: Option<ServerKey>,
    /// iperf3's authentication: if set, only its users are served.
    pub authenticator: Option<LoginAuthenticator>,
    /// Certificate for clients that ask for TLS on their control connections; others are served
    /// without.
    pub tls: Option<TlsIdentity>,
    /// Source and destination of the data, if it is not generated and discarded.
    pub storage_config: StorageConfig,
    /// The server of a folder that is shared at the same ports; `None` if there is none.
    pub share: Option<ConnectionHandover>,
    /// The server of speed tests over the web, at a port of its own; `None` if there is none.
    pub web: Option<WebOptions>,
    /// Limits of clients and tests.
    pub limits: ServerLimits,
}

impl Default for ServeOptions {
    /// Returns iperf3's port, its timeouts (10 s, 30 s and 120 s), and the default limits.
    fn default() -> Self {
        Self {
            bind: None,
            device: None,
            port: DEFAULT_PORT,
            iperf2_port: None,
            iperf2: true,
            interval: Span::ZERO,
            one_off: false,
            counts_refusals: true,
            idle_timeout: None,
            timeout: Timeouts::default().reply,
            key: None,
            authenticator: None,
            tls: None,
            storage_config: StorageConfig::default(),
            share: None,
            web: None,
            limits: ServerLimits::default(),
        }
    }
}

/// Serves fullpipe and iperf3 clients, and iperf2 clients that send. Returns when it is
/// interrupted, when its idle timeout has passed, or, with `one_off`, after one test.
///
/// # Errors
/// Fails if it cannot listen on the address, if there are too few descriptors, or if its storage
/// cannot be used.
pub fn serve_clients(
    options: &ServeOptions,
    printer: Printer,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(ServerEvent),
) -> Result<(), ServeError> {
    block_on_server(run_server(options, None, printer, interrupt, report))
}

/// Serves clients as [`serve_clients`] does, and those that hold the other ends of `opened`
/// connections, which this end opened.
///
/// # Errors
/// As [`serve_clients`].
pub fn serve_opened(
    options: &ServeOptions,
    opened: HandedConnections,
    printer: Printer,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(ServerEvent),
) -> Result<(), ServeError> {
    block_on_server(run_server(
        options,
        Some(opened),
        printer,
        interrupt,
        report,
    ))
}

fn block_on_server(server: impl Future<Output = Result<(), ServeError>>) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::Start)?;
    LocalSet::new().block_on(&runtime, server)
}

async fn run_server(
    options: &ServeOptions,
    opened: Option<HandedConnections>,
    printer: Printer,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(ServerEvent),
) -> Result<(), ServeError> {
    let (events, mut queue) = mpsc::unbounded_channel();
    let server = TestServer::start_listening(options, printer, events)?;
    if let Some(opened) = opened {
        spawn_local(Rc::clone(&server).take_opened(opened));
    }
    let mut last_busy = Instant::now();
    loop {
        tokio::select! {
            queued = queue.recv() => if let Some(QueuedEvent { event, ends_test }) = queued {
                report(event);
                if ends_test && options.one_off {
                    return Ok(());
                }
            },
            () = sleep(POLL_INTERVAL) => {}
        }
        server
            .refusals
            .borrow_mut()
            .take_due(Instant::now())
            .into_iter()
            .map(ServerEvent::Rejected)
            .for_each(&mut *report);
        if interrupt.load(Ordering::Relaxed) {
            server.shut_down().await;
            while let Ok(QueuedEvent { event, .. }) = queue.try_recv() {
                report(event);
            }
            let refused = server.refusals.borrow_mut().take_all(Instant::now());
            refused
                .into_iter()
                .map(ServerEvent::Rejected)
                .for_each(report);
            return Ok(());
        }
        if !server.admission.is_idle() {
            last_busy = Instant::now();
        }
        if options
            .idle_timeout
            .is_some_and(|timeout| last_busy.elapsed() >= timeout.into())
        {
            report(ServerEvent::Idle);
            return Ok(());
        }
    }
}

/// The maximum time that a client may take for a reply, and the other timeouts that follow from it.
#[derive(Debug, Clone, Copy)]
struct ClientTimeout(Span);

impl ClientTimeout {
    fn reply_timeout(self) -> Duration {
        self.0.into()
    }

    fn session_timeouts(self) -> Timeouts {
        Timeouts {
            reply: self.0,
            results: self.0 * 3,
        }
    }

    /// Returns the timeout to send a message, which may be a long report over a slow path.
    fn send_timeout(self) -> Duration {
        (self.0 * 3).into()
    }

    /// Returns the maximum time without data.
    fn stall_limit(self) -> Span {
        self.0 * 12
    }
}

/// The state that all connections of a server share.
struct TestServer {
    admission: Admission,
    registry: RefCell<TestRegistry>,
    refusals: RefCell<RefusalCounts>,
    events: mpsc::UnboundedSender<QueuedEvent>,
    shutdown: watch::Sender<bool>,
    listener: Rc<StreamListener>,
    /// True if UDP streams can be opened.
    has_udp: Cell<bool>,
    key: Option<ServerKey>,
    /// The slots of tickets that have been used.
    used_slots: RefCell<UsedSlots>,
    backoff: RefCell<LoginBackoff>,
    authenticator: Option<LoginAuthenticator>,
    tls: Option<TlsIdentity>,
    storage_config: StorageConfig,
    client_timeout: ClientTimeout,
    iperf2: bool,
    share: Option<ConnectionHandover>,
    interval: Span,
    one_off: bool,
    counts_refusals: bool,
    printer: Printer,
}

impl TestServer {
    /// Listens, and starts to accept connections.
    fn start_listening(
        options: &ServeOptions,
        printer: Printer,
        events: mpsc::UnboundedSender<QueuedEvent>,
    ) -> Result<Rc<Self>, ServeError> {
        options
            .storage_config
            .check_access()
            .map_err(ServeError::File)?;
        let listener = Rc::new(listen_tcp(
            options.bind,
            options.device.as_deref(),
            options.port,
        )?);
        let mut limits = options.limits.clone();
        if options.one_off {
            limits.total.tests = 1;
        }
        // iperf2 clients can prove neither a key nor a user.
        let iperf2 = options.iperf2 && options.key.is_none() && options.authenticator.is_none();
        let server = Rc::new(Self {
            admission: Admission::new(limits, listen::max_connections()?),
            registry: RefCell::default(),
            refusals: RefCell::default(),
            events,
            shutdown: watch::Sender::new(false),
            listener: StreamListener::new(Rc::clone(&listener), !iperf2),
            has_udp: Cell::new(false),
            client_timeout: ClientTimeout(options.timeout),
            interval: options.interval,
            iperf2,
            key: options.key.clone(),
            used_slots: RefCell::default(),
            backoff: RefCell::default(),
            authenticator: options.authenticator.clone(),
            tls: options.tls.clone(),
            storage_config: options.storage_config.clone(),
            share: options.share.clone(),
            one_off: options.one_off,
            counts_refusals: options.counts_refusals,
            printer,
        });
        server.report_event(ServerEvent::Listening(
            listener.local_addr().map_err(ServeError::Start)?,
        ));
        server.has_udp.set(server.open_udp(&listener));
        spawn_local(Rc::clone(&server).accept_connections(listener));
        if let Some(port) = options
            .iperf2_port
            .filter(|port| server.iperf2 && *port != options.port)
        {
            server.listen_on_second_port(options, port);
        }
        if let Some(web) = &options.web {
            web::start_listening(&server, web, options.device.as_deref())?;
        }
        Ok(server)
    }

    /// Listens on a second port, without which the server can run.
    fn listen_on_second_port(self: &Rc<Self>, options: &ServeOptions, port: u16) {
        let listening = listen_tcp(options.bind, options.device.as_deref(), port)
            .map_err(ServeError::from)
            .and_then(|listener| Ok((listener.local_addr().map_err(ServeError::Start)?, listener)));
        self.report_event(match listening {
            Ok((address, listener)) => {
                self.open_udp(&listener);
                spawn_local(Rc::clone(self).accept_connections(Rc::new(listener)));
                ServerEvent::Listening(address)
            }
            Err(error) => ServerEvent::NotListening {
                why: error.to_string(),
            },
        });
    }

    /// Starts to receive datagrams at the address of `listener`. Returns true if that is possible;
    /// if not, TCP tests are still served.
    fn open_udp(self: &Rc<Self>, listener: &TcpListener) -> bool {
        match listen_udp(listener) {
            Ok(socket) => {
                spawn_local(udp::serve_udp(Rc::clone(self), socket));
                true
            }
            Err(error) => {
                self.report_event(ServerEvent::NotListening {
                    why: format!("cannot receive datagrams: {error}"),
                });
                false
            }
        }
    }

    async fn accept_connections(self: Rc<Self>, listener: Rc<TcpListener>) {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    self.admit_connection(stream, canonical_address(client));
                    // Those that have sent something are classified, and who has lost its place
                    // closes its socket, before the next one comes.
                    if self.admission.is_full_of_pending() {
                        yield_now().await;
                    }
                }
                // A resource such as memory is used up; it may be free again a moment later.
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Serves connections that this end opened.
    async fn take_opened(self: Rc<Self>, mut opened: HandedConnections) {
        loop {
            if let Ok((stream, client)) = opened.next_connection().await {
                self.admit_connection(stream, canonical_address(client));
            }
        }
    }

    /// Handles a new connection if it is admitted, and closes it if not.
    fn admit_connection(self: &Rc<Self>, stream: TcpStream, client: SocketAddr) {
        match self.admission.admit_pending(client.ip(), Instant::now()) {
            Ok(pending) => drop(spawn_local(
                Rc::clone(self).handle_connection(stream, client, pending),
            )),
            Err(why) => self.report_rejection(client.ip(), why),
        }
    }

    /// Classifies a new connection, and serves it.
    async fn handle_connection(
        self: Rc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        mut pending: PendingConnection,
    ) {
        let (control, FirstBytes { caller, bytes }) =
            match self.read_greeting(stream, client, &mut pending.place).await {
                Ok(Some(greeted)) => greeted,
                Ok(None) => return,
                Err(why) => return self.report_rejection(client.ip(), why),
            };
        match (caller, control) {
            (CallerKind::Iperf3(cookie), control) => {
                self.dispatch_connection(control, client, cookie, pending)
                    .await;
            }
            (CallerKind::Iperf2, ControlConnection::Plain(stream)) if self.iperf2 => {
                self.run_iperf2(stream, client, bytes, pending).await;
            }
            (CallerKind::Iperf2, _) => self.report_rejection(client.ip(), ClientRejection::Iperf2),
            (CallerKind::Unknown | CallerKind::Undecided, _) => {
                self.report_rejection(client.ip(), ClientRejection::Unknown);
            }
        }
    }

    /// Reads the first bytes of a connection, inside TLS if the client asks for it. Returns `None`
    /// if they are for a shared folder, whose server has the connection then.
    ///
    /// # Errors
    /// Fails if the connection loses its place, or the client sends nothing in time.
    async fn read_greeting(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        place: &mut PendingPlace,
    ) -> Result<Option<(ControlConnection, FirstBytes)>, ClientRejection> {
        let reply = self.client_timeout.reply_timeout();
        match timeout(reply, place.wait_for_first_byte(&stream)).await {
            Ok(Some(Ok(()))) => {}
            Ok(None) => return Err(ClientRejection::QuotaExceeded),
            Ok(Some(Err(_))) | Err(_) => return Err(ClientRejection::Unknown),
        }
        let greeted = place.unless_lost(async {
            if let Some(share) = &self.share
                && timeout(reply, begins_pinned_tls(&stream))
                    .await
                    .is_ok_and(|begins| begins.unwrap_or(false))
            {
                if let Ok(stream) = stream.into_std() {
                    share.pass_connection(stream, client);
                }
                return Ok(None);
            }
            let mut control = self
                .accept_tls(stream)
                .await
                .ok_or(ClientRejection::Unknown)?;
            let first_bytes = read_first_bytes(&mut control, reply).await;
            Ok(Some((control, first_bytes)))
        });
        greeted.await.ok_or(ClientRejection::QuotaExceeded)?
    }

    /// Accepts TLS if the client asks for it and the server has a certificate. Returns `None` if
    /// the handshake fails or takes too long.
    async fn accept_tls(&self, stream: TcpStream) -> Option<ControlConnection> {
        let Some(identity) = &self.tls else {
            return Some(ControlConnection::Plain(stream));
        };
        let accepted = async move {
            let mut first_byte = [0];
            stream.peek(&mut first_byte).await?;
            if first_byte == [HANDSHAKE] {
                identity.accept_tls(stream).await
            } else {
                Ok(ControlConnection::Plain(stream))
            }
        };
        timeout(self.client_timeout.reply_timeout(), accepted)
            .await
            .ok()?
            .ok()
    }

    /// Dispatches a connection by its `cookie`: to a new test, or to a test under way as a data
    /// connection.
    async fn dispatch_connection(
        self: Rc<Self>,
        control: ControlConnection,
        client: SocketAddr,
        cookie: TestCookie,
        pending: PendingConnection,
    ) {
        let state = self.registry.borrow().cookie_state(&cookie, client.ip());
        match (state, control) {
            (CookieState::New, control) => self.run_test(control, client, cookie, pending).await,
            // Data connections are never encrypted.
            (CookieState::Open(test), ControlConnection::Plain(stream)) => {
                dispatch_stream(stream, pending.permit, &test);
            }
            (CookieState::Open(_) | CookieState::Closed, control) => {
                self.refuse_connection(control).await;
            }
        }
    }

    /// Runs the test with `cookie` on its control connection.
    async fn run_test(
        self: Rc<Self>,
        control: ControlConnection,
        client: SocketAddr,
        cookie: TestCookie,
        pending: PendingConnection,
    ) {
        let _permit = match self.admit_test(client.ip()).await {
            Ok(permit) => permit,
            Err(why) => {
                self.report_rejection(client.ip(), why);
                return self.refuse_connection(control).await;
            }
        };
        drop(pending);
        prepare_control(control.tcp_stream(), self.client_timeout);
        let streams = self.registry.borrow_mut().open_test(cookie, client.ip());
        let ended = ServedTest::new(Rc::clone(&self), client, cookie, control, streams)
            .run_test()
            .await;
        self.registry.borrow_mut().close_test(cookie);
        self.report_end(client, ended);
    }

    /// Admits a test. If a quota is used up, idle loads are evicted first.
    ///
    /// # Errors
    /// Fails as [`Admission::admit_test`] does, if evictions do not help.
    async fn admit_test(&self, client: IpAddr) -> Result<AdmissionPermit, ClientRejection> {
        let deadline = Instant::now() + EVICTION_TIMEOUT;
        loop {
            match self.admission.admit_test(client) {
                Err(ClientRejection::QuotaExceeded)
                    if Instant::now() < deadline && self.admission.evict_idle(1) =>
                {
                    sleep(POLL_INTERVAL).await;
                }
                admitted => return admitted,
            }
        }
    }

    /// Admits the load of a test. If a quota is used up, idle loads are evicted first.
    ///
    /// # Errors
    /// Fails as [`Admission::admit_load`] does, if evictions do not help.
    async fn admit_load(
        &self,
        client: IpAddr,
        request: &Request,
    ) -> Result<AdmissionPermit, TestRefusal> {
        let deadline = Instant::now() + EVICTION_TIMEOUT;
        let streams = u32::from(data_connections(request));
        loop {
            match self.admission.admit_load(client, request) {
                Err(refusal)
                    if refusal.number == ErrorNumber::BUSY
                        && Instant::now() < deadline
                        && self.admission.evict_idle(streams) =>
                {
                    sleep(POLL_INTERVAL).await;
                }
                admitted => return admitted,
            }
        }
    }

    /// Receives the upload of an iperf2 client.
    async fn run_iperf2(
        self: Rc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        first_bytes: Vec<u8>,
        pending: PendingConnection,
    ) {
        drop(pending);
        let ended = iperf2::receive_upload(&self, client, stream, first_bytes).await;
        self.report_end(client, ended);
    }

    /// Refuses a connection with the same answer as iperf3.
    async fn refuse_connection(&self, mut control: ControlConnection) {
        // Without the answer, the client still sees that the connection is closed.
        let _ = timeout(
            self.client_timeout.reply_timeout(),
            control.send_bytes(&[StateByte::AccessDenied.to_byte()]),
        )
        .await;
    }

    /// Returns the bounds of a transfer for a `request` over so many `streams`.
    fn transfer_bounds(&self, request: &Request, streams: u16) -> TransferBounds {
        let writes = u64::from(streams) * u64::from(request.burst.unwrap_or(1));
        let burst = ByteCount::new(request.block.get().saturating_mul(writes));
        let limits = self.admission.limits();
        let least = [limits.address.rate, limits.total.rate]
            .into_iter()
            .flatten()
            .min();
        TransferBounds {
            // The client ends the test, and its message takes time: a test of the permitted
            // duration is not cut off.
            max_duration: limits.duration.map(|max| max + self.client_timeout.0),
            max_bytes: limits.bytes,
            max_rate: None,
            stall: StallBounds::from_request(request, streams, self.client_timeout.stall_limit()),
            burst: monitor::permitted_burst(burst, least),
        }
    }

    /// Ends all tests and informs their clients, within [`SHUTDOWN_TIMEOUT`].
    async fn shut_down(&self) {
        self.shutdown.send_replace(true);
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while !self.admission.is_idle() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns true if clients must prove that they have a key or a password.
    fn serves_only_known_clients(&self) -> bool {
        self.key.is_some() || self.authenticator.is_some()
    }

    /// Reports a connection that is closed at once, or counts it.
    fn report_rejection(&self, client: IpAddr, why: ClientRejection) {
        let why = why.reason_text();
        if self
            .refusals
            .borrow_mut()
            .is_first(client, why, Instant::now())
        {
            self.report_event(ServerEvent::Rejected(RefusedConnections {
                client,
                why: why.to_owned(),
                connections: 1,
            }));
        }
    }

    /// Reports the end of a test. Of those that were refused, most are only counted.
    fn report_end(&self, client: SocketAddr, ended: Result<TestTotals, TestFailure>) {
        let failure = ended.as_ref().err();
        let refused =
            failure.filter(|failure| failure.is_refusal && self.counts_refusals && !self.one_off);
        if refused.is_some_and(|refused| {
            let mut refusals = self.refusals.borrow_mut();
            !refusals.is_first(client.ip(), &refused.why, Instant::now())
        }) {
            return;
        }
        let ends_test = failure.is_none_or(|failure| {
            let is_by_unknown = failure.is_refusal && self.serves_only_known_clients();
            !failure.is_no_test && !is_by_unknown
        });
        // There is no receiver any more if the server is ending.
        let _ = self.events.send(QueuedEvent {
            event: end_event(client, ended),
            ends_test,
        });
    }

    /// Reports an event that does not end a test.
    fn report_event(&self, event: ServerEvent) {
        let _ = self.events.send(QueuedEvent {
            event,
            ends_test: false,
        });
    }
}

fn end_event(client: SocketAddr, ended: Result<TestTotals, TestFailure>) -> ServerEvent {
    match ended {
        Ok(TestTotals {
            bytes,
            rate,
            measurement,
        }) => ServerEvent::Ended {
            client,
            bytes,
            rate,
            measurement,
        },
        Err(TestFailure {
            why,
            cause,
            measurement,
            ..
        }) => ServerEvent::Failed {
            client,
            why,
            cause,
            measurement,
        },
    }
}

/// A test that ended early.
struct TestFailure {
    why: String,
    /// The reason as an error of the protocol; `None` for an iperf2 client.
    cause: Option<TestError>,
    /// The test up to its end, if data had flowed.
    measurement: Option<Box<Measurement>>,
    /// True if the load of the test was not admitted: the client may be anybody.
    is_refusal: bool,
    /// True if the client carried no data, so that it does not end a server for one test.
    is_no_test: bool,
}

impl TestFailure {
    /// Returns the failure of a test whose data had flowed, which is no refusal.
    fn after_data(why: String) -> Self {
        Self {
            is_refusal: false,
            ..why.into()
        }
    }
}

impl From<String> for TestFailure {
    fn from(why: String) -> Self {
        Self {
            why,
            cause: None,
            measurement: None,
            is_refusal: true,
            is_no_test: false,
        }
    }
}

impl From<TestError> for TestFailure {
    fn from(error: TestError) -> Self {
        Self {
            why: error.to_string(),
            cause: Some(error),
            measurement: None,
            is_refusal: false,
            is_no_test: false,
        }
    }
}

/// Sets the options of a control connection: no delay for small messages, which the client waits
/// for, and keepalives.
fn prepare_control(stream: &TcpStream, timeout: ClientTimeout) {
    // The kernel takes whole seconds, at least one.
    let interval = timeout.reply_timeout().max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new()
        .with_time(3 * interval)
        .with_interval(interval)
        .with_retries(3);
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Passes a data connection to its test.
fn dispatch_stream(stream: TcpStream, permit: AdmissionPermit, test: &StreamSender) {
    if let Some(stream) = into_blocking(stream) {
        // If the test has just ended, the connection is closed.
        let _ = test.send(AcceptedStream {
            channel: StreamChannel::Tcp(stream),
            permit,
        });
    }
}

fn into_blocking(stream: TcpStream) -> Option<std::net::TcpStream> {
    let stream = stream.into_std().ok()?;
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}
