//! The client: drives the protocol's state machine over real connections.

use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_host::{SysctlTree, inspect};
use fullpipe_iperf::{Client, ClientAction, Cookie, Error, Results, StreamResult, Timeouts};
use fullpipe_load::{PrepareError, Role, Transfer, TransferPlan, prepare, read_back};
use fullpipe_model::framing;
use fullpipe_model::kernel::request_for_window;
use fullpipe_record::{Buffer, Direction, HostSettings, Interval, IpVersion, Measurement, Request, SocketReadback};
use fullpipe_units::{ByteCount, Span, Time};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::error::ProbeError;
use crate::ping::Pinger;
use crate::progress::{Finished, Progress};
use crate::summary::Test;

/// How long a name may take to resolve, and a connection to be made.
const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses of a name that are tried, one after the other.
const MOST_ADDRESSES: usize = 2;

/// Echo replies that tell the idle round-trip time.
const IDLE_ECHOES: usize = 10;

/// How long they are waited for: long enough for the longest path over land and a satellite.
const IDLE_PATIENCE: Duration = Duration::from_millis(1500);

/// How often a transfer is looked at, and an interrupt looked for.
const LOOK: Duration = Duration::from_millis(10);

/// MTU assumed where a window must be turned into a buffer before there is a connection.
const COMMON_MTU: ByteCount = ByteCount::new(1500);

/// Where to measure to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// A name or an address.
    pub host: String,
    /// The server's port.
    pub port: u16,
}

/// Measures against an iperf3 server, ours or any other. An interrupt ends the test cleanly at both ends and keeps what
/// there is.
///
/// # Errors
/// If the server cannot be reached or does not play its part, or this host lacks what was asked for.
pub fn measure(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ProbeError::io("start the client"))?;
    let result = runtime.block_on(run(destination, request, interrupt, progress));
    // A name server that does not answer holds a thread for longer than anybody wants to wait.
    runtime.shutdown_background();
    result
}

async fn run(
    destination: &Destination,
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    let settings = inspect(&SysctlTree::of_this_host())?;
    let request = with_buffer(request, &settings);
    let control = connect(destination).await?;
    let address = control.peer_addr().map_err(ProbeError::io("read the server's address"))?;
    let handshake = fullpipe_sys::tcp_info(&control).ok().and_then(|info| info.rtt);
    let pinger = Pinger::start(address.ip()).ok();
    if let Some(pinger) = &pinger {
        idle(pinger, interrupt).await;
    }
    if interrupt.load(Ordering::Relaxed) {
        return Err(ProbeError::Interrupted);
    }
    let cookie = random_cookie()?;
    let client = Client::new(&request, cookie, Time::ZERO, Timeouts::default()).map_err(ProbeError::Request)?;
    let mut session = Session {
        control,
        client,
        cookie,
        origin: Instant::now(),
        address,
        request,
        base_rtt: pinger.as_ref().and_then(least_echo).or(handshake),
        sockets: Vec::new(),
        streams: Vec::new(),
        progress: None,
        finished: None,
        intervals: Vec::new(),
        interrupted: false,
    };
    let ended = session.drive(interrupt, progress).await.map_err(|broken| broken.with_host(&destination.host));
    let (results, broken_off) = match (ended, &session.finished) {
        (Ok(results), finished) => (results, finished.as_ref().and_then(all_broke)),
        // Data has flowed: what was seen of it is not thrown away.
        (Err(error), Some(_)) => (Results::default(), Some(error.to_string())),
        (Err(error), None) => return Err(error),
    };
    let test = Test {
        destination,
        address,
        request: session.request,
        settings,
        sockets: session.sockets,
        finished: session.finished.ok_or(ProbeError::Interrupted)?,
        results,
        echoes: pinger.map(|pinger| pinger.echoes()).unwrap_or_default(),
        handshake,
        intervals: session.intervals,
        interrupted: session.interrupted,
        broken_off,
    };
    Ok(test.measurement())
}

/// A window becomes the buffer request that yields it. The receiver may be another kernel than this one, so the window
/// that was really seen is in the samples.
fn with_buffer(request: &Request, settings: &HostSettings) -> Request {
    let buffer = match request.buffer {
        Buffer::Window(window) => {
            let mss = framing::mss(COMMON_MTU, IpVersion::V4, settings.timestamps, request.mss);
            Buffer::Request(request_for_window(settings, window, mss))
        }
        asked => asked,
    };
    Request { buffer, ..request.clone() }
}

/// Why a test is over although it was not its time: every data connection broke.
fn all_broke(finished: &Finished) -> Option<String> {
    let failures = &finished.rest.failures;
    let (_, error) = failures.first()?;
    (failures.len() == finished.to.totals.streams.len()).then(|| format!("every data connection broke: {error}"))
}

async fn connect(destination: &Destination) -> Result<TcpStream, ProbeError> {
    let host = &destination.host;
    let unknown = |cause: String| ProbeError::UnknownHost { host: host.clone(), cause };
    let lookup = timeout(PATIENCE, tokio::net::lookup_host((host.as_str(), destination.port))).await;
    let found = lookup.map_err(|_| unknown("no name server answers".to_owned()))?;
    let mut error = unknown("it has no address".to_owned());
    for address in found.map_err(|cause| unknown(cause.to_string()))?.take(MOST_ADDRESSES) {
        match timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(control)) => {
                control.set_nodelay(true).map_err(ProbeError::io("set up the control connection"))?;
                return Ok(control);
            }
            Ok(Err(cause)) => {
                let refused = cause.kind() == std::io::ErrorKind::ConnectionRefused;
                let hint = if refused { "; start `fullpipe serve` or `iperf3 -s` there" } else { "" };
                error = ProbeError::Connect { host: host.clone(), address, cause, hint };
            }
            Err(_) => error = ProbeError::Silent { host: host.clone(), address, after: PATIENCE.into() },
        }
    }
    Err(error)
}

/// Waits for the first echoes, on a path that carries nothing else of ours.
async fn idle(pinger: &Pinger, interrupt: &AtomicBool) {
    let deadline = Instant::now() + IDLE_PATIENCE;
    while pinger.echoes().len() < IDLE_ECHOES && Instant::now() < deadline && !interrupt.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}

fn least_echo(pinger: &Pinger) -> Option<Span> {
    pinger.echoes().into_iter().map(|echo| echo.rtt).min()
}

fn random_cookie() -> Result<Cookie, ProbeError> {
    let mut random = [0; 36];
    let length = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| ProbeError::io("draw a random cookie")(errno.into()))?;
    // The kernel gives up to 256 bytes in one piece.
    debug_assert_eq!(length, random.len());
    Ok(Cookie::from_random(random))
}

/// What ends a session early; the host's name is added where it is known.
enum Broken {
    Protocol(Error),
    Here(ProbeError),
}

impl Broken {
    fn with_host(self, host: &str) -> ProbeError {
        match self {
            Self::Protocol(Error::ClientTerminated { .. }) => ProbeError::Interrupted,
            Self::Protocol(cause) => ProbeError::Protocol { host: host.to_owned(), cause },
            Self::Here(error) => error,
        }
    }
}

impl From<ProbeError> for Broken {
    fn from(error: ProbeError) -> Self {
        Self::Here(error)
    }
}

/// One test under way.
struct Session {
    control: TcpStream,
    client: Client,
    cookie: Cookie,
    origin: Instant,
    address: SocketAddr,
    request: Request,
    base_rtt: Option<Span>,
    sockets: Vec<SocketReadback>,
    streams: Vec<StdTcpStream>,
    progress: Option<Progress>,
    finished: Option<Finished>,
    intervals: Vec<Interval>,
    interrupted: bool,
}

impl Session {
    /// Runs the test to its end; what the server counted.
    async fn drive(&mut self, interrupt: &AtomicBool, report: &mut dyn FnMut(&Interval)) -> Result<Results, Broken> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            while let Some(action) = self.client.next_action() {
                if let Some(results) = self.carry_out(action).await? {
                    return Ok(results);
                }
            }
            tokio::select! {
                read = self.control.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => self.client.closed(),
                    Ok(length) => self.client.receive(self.now(), &buffer[..length]),
                },
                () = tokio::time::sleep(LOOK) => {}
            }
            if interrupt.load(Ordering::Relaxed) && !self.interrupted {
                self.interrupt(report);
            }
            self.look(report);
            self.client.tick(self.now());
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    /// Does what the protocol wants done; the server's results when the test is complete.
    async fn carry_out(&mut self, action: ClientAction) -> Result<Option<Results>, Broken> {
        match action {
            ClientAction::Send(bytes) => {
                // A connection that breaks here is noticed by the next read.
                let _ = timeout(PATIENCE, self.control.write_all(&bytes)).await;
            }
            ClientAction::OpenStreams(count) => match self.open_streams(count).await {
                Ok(()) => self.client.streams_opened(self.now()),
                Err(Broken::Here(error)) => {
                    self.client.open_failed(error.to_string());
                    self.say_goodbye().await;
                    return Err(error.into());
                }
                Err(broken) => return Err(broken),
            },
            ClientAction::StartTransfer => self.start_transfer()?,
            ClientAction::CollectResults => {
                self.finished = self.progress.take().map(Progress::finish);
                let results = self.local_results();
                self.client.local_results(self.now(), results);
            }
            ClientAction::Finished(results) => return Ok(Some(results)),
            ClientAction::Failed(error) => {
                if let Some(progress) = self.progress.take() {
                    self.finished = Some(progress.finish());
                }
                return Err(Broken::Protocol(error));
            }
        }
        Ok(None)
    }

    /// Tells the server that the test is off, so that it is free at once.
    async fn say_goodbye(&mut self) {
        while let Some(action) = self.client.next_action() {
            if let ClientAction::Send(bytes) = action {
                let _ = timeout(PATIENCE, self.control.write_all(&bytes)).await;
            }
        }
    }

    async fn open_streams(&mut self, count: u16) -> Result<(), Broken> {
        for index in 0..count {
            let stream = self.open_stream().await?;
            let found = read_back(&SockRef::from(&stream), index).map_err(ProbeError::io("read a socket's options"))?;
            self.sockets.push(found);
            self.streams.push(stream);
        }
        Ok(())
    }

    async fn open_stream(&self) -> Result<StdTcpStream, Broken> {
        let failed = || ProbeError::io("open a data connection");
        let socket = prepare(self.address, &self.request).map_err(|error: PrepareError| Broken::Here(error.into()))?;
        socket.set_nonblocking(true).map_err(failed())?;
        let connecting = TcpSocket::from_std_stream(socket.into()).connect(self.address);
        let silent = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let mut stream = timeout(PATIENCE, connecting).await.unwrap_or_else(|_| Err(silent())).map_err(failed())?;
        let greeting = stream.write_all(self.cookie.as_bytes());
        timeout(PATIENCE, greeting).await.unwrap_or_else(|_| Err(silent())).map_err(failed())?;
        let stream = stream.into_std().map_err(failed())?;
        stream.set_nonblocking(false).map_err(failed())?;
        Ok(stream)
    }

    fn start_transfer(&mut self) -> Result<(), ProbeError> {
        let role = match self.request.direction {
            Direction::Upload => Role::Sender,
            Direction::Download => Role::Receiver,
        };
        let plan = TransferPlan {
            role,
            block: self.request.block,
            budget: self.request.bytes,
            writer: self.request.writer,
            base_rtt: self.base_rtt,
        };
        let transfer = Transfer::start(std::mem::take(&mut self.streams), plan);
        let transfer = transfer.map_err(ProbeError::io("start the data threads"))?;
        self.progress = Some(Progress::new(transfer, self.request.clone()));
        Ok(())
    }

    /// Reports the interval that has passed, and ends the transfer when its time has come.
    fn look(&mut self, report: &mut dyn FnMut(&Interval)) {
        let Some(progress) = &mut self.progress else { return };
        let passed = progress.look();
        let due = progress.is_due();
        self.note(passed, report);
        if due {
            self.end_transfer(report);
        }
    }

    /// Ends the transfer early; where there is none, or it has ended and the other end keeps us waiting, gives up.
    fn interrupt(&mut self, report: &mut dyn FnMut(&Interval)) {
        self.interrupted = true;
        if self.progress.as_ref().is_some_and(|progress| !progress.has_ended()) {
            self.end_transfer(report);
        } else {
            self.client.interrupt();
        }
    }

    fn end_transfer(&mut self, report: &mut dyn FnMut(&Interval)) {
        let last = self.progress.as_mut().and_then(Progress::end);
        self.note(last, report);
        self.client.transfer_finished(self.now());
    }

    fn note(&mut self, passed: Option<Interval>, report: &mut dyn FnMut(&Interval)) {
        if let Some(interval) = passed {
            report(&interval);
            self.intervals.push(interval);
        }
    }

    fn local_results(&self) -> Results {
        let Some(finished) = &self.finished else { return Results::default() };
        stream_results(finished, self.request.direction == Direction::Upload, &self.sockets)
    }
}

/// What this end counted, as the other end is told.
pub(crate) fn stream_results(finished: &Finished, is_sender: bool, sockets: &[SocketReadback]) -> Results {
    let retransmits = finished.retransmits();
    let streams = finished.bytes().into_iter().zip(0..).map(|(bytes, stream)| StreamResult {
        stream,
        bytes,
        retransmits: retransmits.get(usize::from(stream)).copied().filter(|_| is_sender),
        from: Span::ZERO,
        to: finished.duration(),
    });
    Results {
        cpu: finished.rest.cpu.unwrap_or_default(),
        congestion: sockets.first().map(|socket| socket.congestion.clone()),
        streams: streams.collect(),
        report: None,
    }
}
