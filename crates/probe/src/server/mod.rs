//! The server: any number of tests at once, told apart by their cookies.
//!
//! A connection is accepted if the [`gate`] has a place for it, says who it is in the [`greeting`], and is a data
//! connection of a test that the [`registry`] knows, or begins a [`test`] or a load of [`iperf2`]. Whoever comes in holds a
//! pass of the gate as long as it stays, and nobody stays without a deadline.

mod events;
mod gate;
mod greeting;
mod iperf2;
mod listen;
mod lock;
mod printed;
mod registry;
mod test;
mod udp;
mod watch;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_iperf::{Caller, Cookie, DEFAULT_PORT, Error, ErrorNumber, Key, State, Timeouts};
use fullpipe_load::Channel;
use fullpipe_units::{ByteCount, Span};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch as signal};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::control::{Control, HANDSHAKE, TlsIdentity};
use crate::error::ServeError;
use crate::files::Shelf;
use crate::login::Doorkeeper;
use gate::{Closed, Gate, Pass};
use greeting::{Greeting, greet};
use listen::{canonical, listen, listen_for_datagrams};
use lock::Lock;
use registry::{Arrival, Inlet, Known, Registry};
use test::{Carried, Test};
use watch::Bounds;

pub use events::ServerEvent;
pub use gate::{Limits, Network, NetworkError, Quota};

/// How often a transfer is looked at, and an interrupt looked for.
const LOOK: Duration = Duration::from_millis(20);

/// How often is told who was turned away: a crowd must not fill a log.
const TELL: Duration = Duration::from_secs(1);

/// How long tests may take to say goodbye when the server is stopped.
const FAREWELL: Duration = Duration::from_secs(2);

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
    pub patience: Span,
    /// If set, only fullpipe clients that know it are served; nothing is encrypted by it.
    pub key: Option<Key>,
    /// If set, only users whom it knows are served: iperf3's authentication.
    pub doorkeeper: Option<Doorkeeper>,
    /// If set, clients may ask for TLS on their control connections; others are served too.
    pub tls: Option<TlsIdentity>,
    /// Where data comes from and goes to, if it is not made up and thrown away.
    pub shelf: Shelf,
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
            patience: Timeouts::default().reply,
            key: None,
            doorkeeper: None,
            tls: None,
            shelf: Shelf::default(),
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
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(ServerEvent),
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Start)?;
    LocalSet::new().block_on(&runtime, run(options, interrupt, report))
}

async fn run(
    options: &ServeOptions,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(ServerEvent),
) -> Result<(), ServeError> {
    let (events, mut happened) = mpsc::unbounded_channel();
    let house = House::open(options, events)?;
    let mut told = Instant::now();
    let mut busy = Instant::now();
    loop {
        tokio::select! {
            event = happened.recv() => if let Some(event) = event {
                let over = matches!(event, ServerEvent::Ended { .. } | ServerEvent::Failed { .. });
                report(event);
                if over && options.one_off {
                    return Ok(());
                }
            },
            () = sleep(LOOK) => {}
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            if let Some(crowd) = house.turned_away.take() {
                report(crowd);
            }
        }
        if interrupt.load(Ordering::Relaxed) {
            house.close().await;
            return Ok(());
        }
        if !house.gate.is_idle() {
            busy = Instant::now();
        }
        if options.idle_timeout.is_some_and(|patience| busy.elapsed() >= patience.into()) {
            report(ServerEvent::Idle);
            return Ok(());
        }
    }
}

/// How long is waited for others.
#[derive(Debug, Clone, Copy)]
struct Patience(Span);

impl Patience {
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
struct House {
    gate: Gate,
    registry: RefCell<Registry>,
    turned_away: Crowd,
    events: mpsc::UnboundedSender<ServerEvent>,
    closing: signal::Sender<bool>,
    listener: Rc<TcpListener>,
    /// Whether UDP streams can be opened.
    takes_datagrams: Cell<bool>,
    lock: Lock,
    doorkeeper: Option<Doorkeeper>,
    tls: Option<TlsIdentity>,
    shelf: Shelf,
    patience: Patience,
    iperf2: bool,
    interval: Span,
    one_off: bool,
}

impl House {
    /// Listens, and lets callers in from now on.
    fn open(options: &ServeOptions, events: mpsc::UnboundedSender<ServerEvent>) -> Result<Rc<Self>, ServeError> {
        options.shelf.check().map_err(ServeError::File)?;
        let listener = Rc::new(listen(options.bind, options.port)?);
        let mut limits = options.limits.clone();
        if options.one_off {
            limits.total.tests = 1;
        }
        let house = Rc::new(Self {
            gate: Gate::new(limits, listen::room()),
            registry: RefCell::default(),
            turned_away: Crowd::default(),
            events,
            closing: signal::Sender::new(false),
            listener: Rc::clone(&listener),
            takes_datagrams: Cell::new(false),
            patience: Patience(options.patience),
            interval: options.interval,
            // Such clients can neither show a key nor say who they are.
            iperf2: options.iperf2 && options.key.is_none() && options.doorkeeper.is_none(),
            lock: Lock::new(options.key.clone()),
            doorkeeper: options.doorkeeper.clone(),
            tls: options.tls.clone(),
            shelf: options.shelf.clone(),
            one_off: options.one_off,
        });
        house.tell(ServerEvent::Listening(listener.local_addr().map_err(ServeError::Start)?));
        house.takes_datagrams.set(house.attend(&listener));
        spawn_local(Rc::clone(&house).accept(listener));
        if let Some(port) = options.iperf2_port.filter(|port| house.iperf2 && *port != options.port) {
            house.listen_too(options.bind, port);
        }
        Ok(house)
    }

    /// Listens on a port that may be missing.
    fn listen_too(self: &Rc<Self>, bind: Option<IpAddr>, port: u16) {
        let listening =
            listen(bind, port).and_then(|listener| Ok((listener.local_addr().map_err(ServeError::Start)?, listener)));
        self.tell(match listening {
            Ok((address, listener)) => {
                self.attend(&listener);
                spawn_local(Rc::clone(self).accept(Rc::new(listener)));
                ServerEvent::Listening(address)
            }
            Err(error) => ServerEvent::NotListening { why: error.to_string() },
        });
    }

    /// Takes datagrams at the address of `listener`; whether that is possible. Without, there are TCP tests still.
    fn attend(self: &Rc<Self>, listener: &TcpListener) -> bool {
        match listen_for_datagrams(listener) {
            Ok(socket) => {
                spawn_local(udp::attend(Rc::clone(self), socket));
                true
            }
            Err(error) => {
                self.tell(ServerEvent::NotListening { why: format!("cannot take datagrams: {error}") });
                false
            }
        }
    }

    async fn accept(self: Rc<Self>, listener: Rc<TcpListener>) {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => self.admit(stream, canonical(client)),
                // Out of memory, say: a moment later there may be some again.
                Err(_) => sleep(LOOK).await,
            }
        }
    }

    /// Lets a connection in, or closes it.
    fn admit(self: &Rc<Self>, stream: TcpStream, client: SocketAddr) {
        match self.gate.stranger(client.ip()) {
            Ok(pass) => drop(spawn_local(Rc::clone(self).receive(stream, client, pass))),
            Err(why) => self.turned_away.add(client.ip(), why),
        }
    }

    /// Finds out what a new connection is, and deals with it.
    async fn receive(self: Rc<Self>, stream: TcpStream, client: SocketAddr, pass: Pass) {
        let Some(mut control) = self.secured(stream).await else {
            return self.turned_away.add(client.ip(), Closed::Unknown);
        };
        let Greeting { caller, bytes } = greet(&mut control, self.patience.greeting()).await;
        match (caller, control) {
            (Caller::Iperf3(cookie), control) => self.meet(control, client, cookie, pass).await,
            (Caller::Iperf2, Control::Plain(stream)) if self.iperf2 => self.count(stream, client, bytes, pass).await,
            (Caller::Iperf2, _) => self.turned_away.add(client.ip(), Closed::Iperf2),
            (Caller::Unknown | Caller::Undecided, _) => self.turned_away.add(client.ip(), Closed::Unknown),
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
        timeout(self.patience.greeting(), agreed).await.ok()?.ok()
    }

    /// Deals with a connection that brings `cookie`.
    async fn meet(self: Rc<Self>, control: Control, client: SocketAddr, cookie: Cookie, pass: Pass) {
        let known = self.registry.borrow().find(&cookie);
        match (known, control) {
            (Known::New, control) => self.host(control, client, cookie, pass).await,
            // Data is never encrypted.
            (Known::Test(test), Control::Plain(stream)) => hand_over(stream, pass, &test),
            (Known::Test(_) | Known::Past, control) => self.refuse(control).await,
        }
    }

    /// Runs the test that begins with `cookie` on the connection `control`.
    async fn host(self: Rc<Self>, control: Control, client: SocketAddr, cookie: Cookie, stranger: Pass) {
        let _pass = match self.gate.test(client.ip()) {
            Ok(pass) => pass,
            Err(why) => {
                self.turned_away.add(client.ip(), why);
                return self.refuse(control).await;
            }
        };
        drop(stranger);
        prepare_control(control.tcp(), self.patience);
        let arrivals = self.registry.borrow_mut().open(cookie, client.ip());
        let ended = Test::new(Rc::clone(&self), client, cookie, control, arrivals).run().await;
        self.registry.borrow_mut().close(cookie);
        self.tell_end(client, ended.map_err(Failed::from));
    }

    /// Counts what an iperf2 client sends.
    async fn count(self: Rc<Self>, stream: TcpStream, client: SocketAddr, begun: Vec<u8>, stranger: Pass) {
        drop(stranger);
        let ended = iperf2::count(&self, client, stream, begun).await;
        self.tell_end(client, ended.map_err(Failed::from));
    }

    /// Answers a connection that is not wanted as iperf3 does.
    async fn refuse(&self, mut control: Control) {
        // If it does not fit, the closing says the same.
        let _ = timeout(self.patience.greeting(), control.send(&[State::AccessDenied.byte()])).await;
    }

    /// What a transfer may do here.
    fn bounds(&self, allowance: ByteCount) -> Bounds {
        let limits = self.gate.limits();
        Bounds {
            // Ends are told and take a round trip: who keeps to what is permitted is not cut off.
            duration: limits.duration.map(|longest| longest + self.patience.0),
            bytes: limits.bytes,
            standstill: self.patience.standstill(),
            allowance,
        }
    }

    /// Ends every test, telling its client.
    async fn close(&self) {
        self.closing.send_replace(true);
        let deadline = Instant::now() + FAREWELL;
        while !self.gate.is_idle() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
    }

    fn tell_end(&self, client: SocketAddr, ended: Result<Carried, Failed>) {
        self.tell(match ended {
            Ok(Carried { bytes, rate, seen }) => ServerEvent::Ended { client, bytes, rate, seen },
            Err(Failed { why, refused }) => ServerEvent::Failed { client, why, refused },
        });
    }

    fn tell(&self, event: ServerEvent) {
        // Nobody listens any more when the server is ending.
        let _ = self.events.send(event);
    }
}

/// Why a test failed, and iperf3's number for it if its client was refused.
struct Failed {
    why: String,
    refused: Option<ErrorNumber>,
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self { why, refused: None }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let refused = if let Error::Refused(refusal) = &error { Some(refusal.number) } else { None };
        Self { why: error.to_string(), refused }
    }
}

/// Connections that were closed at once, until that is told.
#[derive(Default)]
struct Crowd(RefCell<Option<(IpAddr, Closed, u64)>>);

impl Crowd {
    fn add(&self, client: IpAddr, why: Closed) {
        let mut crowd = self.0.borrow_mut();
        let before = crowd.map_or(0, |(_, _, connections)| connections);
        *crowd = Some((client, why, before + 1));
    }

    fn take(&self) -> Option<ServerEvent> {
        let (client, why, connections) = self.0.take()?;
        Some(ServerEvent::TurnedAway { client, why: why.reason(), connections })
    }
}

/// Sends small messages at once, since the other end waits for them, and asks now and then whether it is still there.
fn prepare_control(stream: &TcpStream, patience: Patience) {
    // The kernel counts in whole seconds, from one.
    let every = patience.greeting().max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(3 * every).with_interval(every).with_retries(3);
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

fn hand_over(stream: TcpStream, pass: Pass, test: &Inlet) {
    if let Some(stream) = blocking(stream) {
        // A test that has just ended drops the connection, which is its answer.
        let _ = test.send(Arrival { channel: Channel::Tcp(stream), pass });
    }
}

fn blocking(stream: TcpStream) -> Option<std::net::TcpStream> {
    let stream = stream.into_std().ok()?;
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}
