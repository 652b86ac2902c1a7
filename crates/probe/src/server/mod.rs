//! The server: any number of tests at once, told apart by their cookies.
//!
//! A connection is accepted if [`admission`] has a place for it, is classified by its first bytes in [`first_bytes`], and is a
//! data connection of a test that the [`registry`] knows, or begins a [`test`] or a load of [`iperf2`]. It holds a permit
//! as long as it is open, and every wait has a deadline.

mod admission;
mod backoff;
mod events;
mod first_bytes;
mod iperf2;
mod listen;
mod monitor;
mod output;
mod registry;
mod test;
mod udp;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_control::{Authenticator, Control, HANDSHAKE, TlsIdentity};
use fullpipe_iperf::{
    Caller, Cookie, DEFAULT_PORT, Error, ErrorNumber, Key, Nonce, Refusal, State, Timeouts, data_connections,
};
use fullpipe_load::{Channel, StorageConfig};
use fullpipe_record::{Measurement, Request};
use fullpipe_units::{ByteCount, Span};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::error::ServeError;
use admission::{Admission, Permit, Rejection};
use backoff::Backoff;
use first_bytes::{FirstBytes, read_first_bytes};
use listen::{canonical, listen_tcp, listen_udp};
use monitor::Bounds;
use registry::{AcceptedStream, CookieState, Registry, StreamSender};
use test::{Carried, Test};

pub use admission::{Limits, Network, NetworkError, Quota};
pub use events::ServerEvent;
pub use output::{Printer, TestText};

/// How often a transfer is looked at, and an interrupt looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The interval at which rejected clients are reported: they must not fill a log.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time that tests may take to end when the server is stopped.
const FAREWELL: Duration = Duration::from_secs(2);

/// The longest time that a new test waits for the places of those that carry nearly nothing.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Something happened.
struct Happened {
    event: ServerEvent,
    /// Set if it was a test, after which a server for one test ends. Datagrams without a control connection are none:
    /// anybody can send them in anybody's name.
    was_test: bool,
}

/// How to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Address to listen on; every address of both families if not set.
    pub bind: Option<IpAddr>,
    /// Port.
    pub port: u16,
    /// Another port, where iperf2 clients call; one that is taken does not stop the server. Either kind of client is
    /// served on either port.
    pub iperf2_port: Option<u16>,
    /// Whether iperf2 clients are served at all.
    pub iperf2: bool,
    /// Length of the intervals that are told of; zero for none.
    pub interval: Span,
    /// Whether to end after one test; others are told meanwhile that the server is busy.
    pub one_off: bool,
    /// If set, the server ends after so long without a test.
    pub idle_timeout: Option<Span>,
    /// How long a client may take to say who it is, and for each answer. For its results, and to take in what it is sent,
    /// it has three times as long; data may stand still for twelve times as long.
    pub timeout: Span,
    /// If set, only fullpipe clients that know it are served; nothing is encrypted by it.
    pub key: Option<Key>,
    /// If set, only users whom it knows are served: iperf3's authentication.
    pub authenticator: Option<Authenticator>,
    /// If set, clients may ask for TLS on their control connections; others are served too.
    pub tls: Option<TlsIdentity>,
    /// Where data comes from and goes to, if it is not made up and thrown away.
    pub storage_config: StorageConfig,
    /// Who may do what.
    pub limits: Limits,
}

impl Default for ServeOptions {
    /// iperf3's port, its times (10 s, 30 s and 120 s), and the usual limits.
    fn default() -> Self {
        Self {
            bind: None,
            port: DEFAULT_PORT,
            iperf2_port: None,
            iperf2: true,
            interval: Span::ZERO,
            one_off: false,
            idle_timeout: None,
            timeout: Timeouts::default().reply,
            key: None,
            authenticator: None,
            tls: None,
            storage_config: StorageConfig::default(),
            limits: Limits::default(),
        }
    }
}

/// Serves iperf3 clients, ours and any other, and iperf2 clients that send over TCP, until interrupted, idle for too long,
/// or, with `one_off`, until one test is over.
///
/// # Errors
/// If the address cannot be listened on.
pub fn serve(
    options: &ServeOptions,
    printer: Printer,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(ServerEvent),
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Start)?;
    LocalSet::new().block_on(&runtime, run(options, printer, interrupt, report))
}

async fn run(
    options: &ServeOptions,
    printer: Printer,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(ServerEvent),
) -> Result<(), ServeError> {
    let (events, mut happened) = mpsc::unbounded_channel();
    let server = Server::open(options, printer, events)?;
    let mut stated = Instant::now();
    let mut busy = Instant::now();
    loop {
        tokio::select! {
            happened = happened.recv() => if let Some(Happened { event, was_test }) = happened {
                report(event);
                if was_test && options.one_off {
                    return Ok(());
                }
            },
            () = sleep(POLL_INTERVAL) => {}
        }
        if stated.elapsed() >= REPORT_INTERVAL {
            stated = Instant::now();
            if let Some(rejected) = server.turned_away.take() {
                report(rejected);
            }
        }
        if interrupt.load(Ordering::Relaxed) {
            server.close().await;
            while let Ok(Happened { event, .. }) = happened.try_recv() {
                report(event);
            }
            return Ok(());
        }
        if !server.admission.is_idle() {
            busy = Instant::now();
        }
        if options.idle_timeout.is_some_and(|timeout| busy.elapsed() >= timeout.into()) {
            report(ServerEvent::Idle);
            return Ok(());
        }
    }
}

/// How long is waited for others.
#[derive(Debug, Clone, Copy)]
struct ClientTimeout(Span);

impl ClientTimeout {
    fn greeting(self) -> Duration {
        self.0.into()
    }

    fn timeouts(self) -> Timeouts {
        Timeouts { reply: self.0, results: self.0 * 3 }
    }

    /// For a report over a slow path.
    fn write(self) -> Duration {
        (self.0 * 3).into()
    }

    fn standstill(self) -> Span {
        self.0 * 12
    }
}

/// What the connections of a server share.
struct Server {
    admission: Admission,
    registry: RefCell<Registry>,
    turned_away: Rejected,
    events: mpsc::UnboundedSender<Happened>,
    closing: watch::Sender<bool>,
    listener: Rc<TcpListener>,
    /// Whether UDP streams can be opened.
    takes_datagrams: Cell<bool>,
    key: Option<Key>,
    backoff: RefCell<Backoff>,
    authenticator: Option<Authenticator>,
    tls: Option<TlsIdentity>,
    storage_config: StorageConfig,
    client_timeout: ClientTimeout,
    iperf2: bool,
    interval: Span,
    one_off: bool,
    printer: Printer,
}

impl Server {
    /// Listens, and lets callers in from now on.
    fn open(
        options: &ServeOptions,
        printer: Printer,
        events: mpsc::UnboundedSender<Happened>,
    ) -> Result<Rc<Self>, ServeError> {
        options.storage_config.check().map_err(ServeError::File)?;
        let listener = Rc::new(listen_tcp(options.bind, options.port)?);
        let mut limits = options.limits.clone();
        if options.one_off {
            limits.total.tests = 1;
        }
        let server = Rc::new(Self {
            admission: Admission::new(limits, listen::max_connections()?),
            registry: RefCell::default(),
            turned_away: Rejected::default(),
            events,
            closing: watch::Sender::new(false),
            listener: Rc::clone(&listener),
            takes_datagrams: Cell::new(false),
            client_timeout: ClientTimeout(options.timeout),
            interval: options.interval,
            // Such clients can neither show a key nor say who they are.
            iperf2: options.iperf2 && options.key.is_none() && options.authenticator.is_none(),
            key: options.key.clone(),
            backoff: RefCell::default(),
            authenticator: options.authenticator.clone(),
            tls: options.tls.clone(),
            storage_config: options.storage_config.clone(),
            one_off: options.one_off,
            printer,
        });
        server.report(ServerEvent::Listening(listener.local_addr().map_err(ServeError::Start)?));
        server.takes_datagrams.set(server.open_udp(&listener));
        spawn_local(Rc::clone(&server).accept(listener));
        if let Some(port) = options.iperf2_port.filter(|port| server.iperf2 && *port != options.port) {
            server.listen_too(options.bind, port);
        }
        Ok(server)
    }

    /// Listens on a port that may be missing.
    fn listen_too(self: &Rc<Self>, bind: Option<IpAddr>, port: u16) {
        let listening = listen_tcp(bind, port)
            .and_then(|listener| Ok((listener.local_addr().map_err(ServeError::Start)?, listener)));
        self.report(match listening {
            Ok((address, listener)) => {
                self.open_udp(&listener);
                spawn_local(Rc::clone(self).accept(Rc::new(listener)));
                ServerEvent::Listening(address)
            }
            Err(error) => ServerEvent::NotListening { why: error.to_string() },
        });
    }

    /// Takes datagrams at the address of `listener`; whether that is possible. Without, there are TCP tests still.
    fn open_udp(self: &Rc<Self>, listener: &TcpListener) -> bool {
        match listen_udp(listener) {
            Ok(socket) => {
                spawn_local(udp::serve_udp(Rc::clone(self), socket));
                true
            }
            Err(error) => {
                self.report(ServerEvent::NotListening { why: format!("cannot take datagrams: {error}") });
                false
            }
        }
    }

    async fn accept(self: Rc<Self>, listener: Rc<TcpListener>) {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => self.admit(stream, canonical(client)),
                // Out of memory, say: a moment later there may be some again.
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Lets a connection in, or closes it.
    fn admit(self: &Rc<Self>, stream: TcpStream, client: SocketAddr) {
        match self.admission.admit_pending(client.ip()) {
            Ok(permit) => drop(spawn_local(Rc::clone(self).receive(stream, client, permit))),
            Err(why) => self.turned_away.add(client.ip(), why),
        }
    }

    /// Finds out what a new connection is, and deals with it.
    async fn receive(self: Rc<Self>, stream: TcpStream, client: SocketAddr, permit: Permit) {
        let Some(mut control) = self.secured(stream).await else {
            return self.turned_away.add(client.ip(), Rejection::Unknown);
        };
        let FirstBytes { caller, bytes } = read_first_bytes(&mut control, self.client_timeout.greeting()).await;
        match (caller, control) {
            (Caller::Iperf3(cookie), control) => self.dispatch(control, client, cookie, permit).await,
            (Caller::Iperf2, Control::Plain(stream)) if self.iperf2 => self.count(stream, client, bytes, permit).await,
            (Caller::Iperf2, _) => self.turned_away.add(client.ip(), Rejection::Iperf2),
            (Caller::Unknown | Caller::Undecided, _) => self.turned_away.add(client.ip(), Rejection::Unknown),
        }
    }

    /// Encrypts a connection whose client asks for it, if there is a certificate.
    async fn secured(&self, stream: TcpStream) -> Option<Control> {
        let Some(identity) = &self.tls else { return Some(Control::Plain(stream)) };
        let agreed = async move {
            let mut first = [0];
            stream.peek(&mut first).await?;
            if first == [HANDSHAKE] { identity.accept(stream).await } else { Ok(Control::Plain(stream)) }
        };
        timeout(self.client_timeout.greeting(), agreed).await.ok()?.ok()
    }

    /// Deals with a connection that brings `cookie`.
    async fn dispatch(self: Rc<Self>, control: Control, client: SocketAddr, cookie: Cookie, permit: Permit) {
        let known = self.registry.borrow().lookup(&cookie, client.ip());
        match (known, control) {
            (CookieState::New, control) => self.run_test(control, client, cookie, permit).await,
            // Data is never encrypted.
            (CookieState::Open(test), Control::Plain(stream)) => hand_over(stream, permit, &test),
            (CookieState::Open(_) | CookieState::Closed, control) => self.refuse(control).await,
        }
    }

    /// Runs the test that begins with `cookie` on the connection `control`.
    async fn run_test(self: Rc<Self>, control: Control, client: SocketAddr, cookie: Cookie, pending: Permit) {
        let _permit = match self.admit_test(client.ip()).await {
            Ok(permit) => permit,
            Err(why) => {
                self.turned_away.add(client.ip(), why);
                return self.refuse(control).await;
            }
        };
        drop(pending);
        prepare_control(control.tcp(), self.client_timeout);
        let arrivals = self.registry.borrow_mut().open(cookie, client.ip());
        let ended = Test::new(Rc::clone(&self), client, cookie, control, arrivals).run().await;
        self.registry.borrow_mut().close(cookie);
        self.report_end(client, ended);
    }

    /// Admits a test; where all places are taken, after those that carry nearly nothing have ended.
    async fn admit_test(&self, client: IpAddr) -> Result<Permit, Rejection> {
        let deadline = Instant::now() + EVICTION_TIMEOUT;
        loop {
            match self.admission.admit_test(client) {
                Err(Rejection::QuotaExceeded) if Instant::now() < deadline && self.admission.evict_idle(1) => {
                    sleep(POLL_INTERVAL).await;
                }
                admitted => return admitted,
            }
        }
    }

    /// Admits the load of a test, as [`Server::admit_test`] does a test.
    async fn admit_load(&self, client: IpAddr, request: &Request) -> Result<Permit, Refusal> {
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

    /// Counts what an iperf2 client sends.
    async fn count(self: Rc<Self>, stream: TcpStream, client: SocketAddr, begun: Vec<u8>, pending: Permit) {
        drop(pending);
        let ended = iperf2::count(&self, client, stream, begun).await;
        self.report_end(client, ended.map_err(Failed::from));
    }

    /// Answers a connection that is not wanted as iperf3 does.
    async fn refuse(&self, mut control: Control) {
        // If it does not fit, the closing says the same.
        let _ = timeout(self.client_timeout.greeting(), control.send(&[State::AccessDenied.byte()])).await;
    }

    /// Returns the bounds of a transfer over so many `streams`.
    fn bounds(&self, burst: ByteCount, streams: u16) -> Bounds {
        let limits = self.admission.limits();
        Bounds {
            // Ends are told and take a round trip: who keeps to what is permitted is not cut off.
            max_duration: limits.duration.map(|longest| longest + self.client_timeout.0),
            max_bytes: limits.bytes,
            stall_timeout: self.client_timeout.standstill(),
            burst,
            idle_rate: monitor::IDLE_RATE.scaled(streams.into()),
        }
    }

    /// Ends every test, telling its client.
    async fn close(&self) {
        self.closing.send_replace(true);
        let deadline = Instant::now() + FAREWELL;
        while !self.admission.is_idle() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Reports the end of a test.
    fn report_end(&self, client: SocketAddr, ended: Result<Carried, Failed>) {
        // The receiver is gone when the server is ending.
        let _ = self.events.send(Happened { event: end_event(client, ended), was_test: true });
    }

    /// Reports anything but the end of a test.
    fn report(&self, event: ServerEvent) {
        let _ = self.events.send(Happened { event, was_test: false });
    }
}

fn end_event(client: SocketAddr, ended: Result<Carried, Failed>) -> ServerEvent {
    match ended {
        Ok(Carried { bytes, rate, seen }) => ServerEvent::Ended { client, bytes, rate, measurement: seen },
        Err(Failed { why, cause, seen }) => ServerEvent::Failed { client, why, cause, measurement: seen },
    }
}

/// Returns a nonce that was never used.
fn random_nonce() -> io::Result<Nonce> {
    let mut random = [0; Nonce::LENGTH];
    // The kernel gives up to 256 bytes at once.
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(Nonce::new(random))
}

/// The reason for which a test failed.
struct Failed {
    why: String,
    /// The same as the protocol has it; not of an iperf2 client.
    cause: Option<Error>,
    /// The test so far, if data had flowed.
    seen: Option<Box<Measurement>>,
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self { why, cause: None, seen: None }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { why: error.to_string(), cause: Some(error), seen: None }
    }
}

/// Connections that were closed at once, until that is told.
#[derive(Default)]
struct Rejected(RefCell<Option<(IpAddr, Rejection, u64)>>);

impl Rejected {
    fn add(&self, client: IpAddr, why: Rejection) {
        let mut rejected = self.0.borrow_mut();
        let before = rejected.map_or(0, |(_, _, connections)| connections);
        *rejected = Some((client, why, before + 1));
    }

    fn take(&self) -> Option<ServerEvent> {
        let (client, why, connections) = self.0.take()?;
        Some(ServerEvent::Rejected { client, why: why.reason(), connections })
    }
}

/// Sends small messages at once, since the other end waits for them, and asks now and then whether it is still there.
fn prepare_control(stream: &TcpStream, timeout: ClientTimeout) {
    // The kernel counts in whole seconds, from one.
    let every = timeout.greeting().max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(3 * every).with_interval(every).with_retries(3);
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

fn hand_over(stream: TcpStream, permit: Permit, test: &StreamSender) {
    if let Some(stream) = blocking(stream) {
        // A test that has just ended drops the connection, which is its answer.
        let _ = test.send(AcceptedStream { channel: Channel::Tcp(stream), permit });
    }
}

fn blocking(stream: TcpStream) -> Option<std::net::TcpStream> {
    let stream = stream.into_std().ok()?;
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}
