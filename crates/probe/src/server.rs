//! The server: any number of tests at once, told apart by their cookies.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdTcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullpipe_host::{SysctlTree, inspect};
use fullpipe_iperf::{
    Caller, Cookie, Error, ErrorNumber, Refusal, Results, ServerAction, ServerSession, State, Timeouts,
    classify_first_bytes,
};
use fullpipe_load::{Role, Transfer, TransferPlan, apply_options, read_back};
use fullpipe_record::{Direction, EndReport, Request, Sample, SocketReadback, Writer};
use fullpipe_units::{BitRate, Span, Time};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use crate::client::stream_results;
use crate::error::ServeError;
use crate::progress::{Finished, Progress};

/// How long a caller may take to say who it is.
const GREETING: Duration = Duration::from_secs(10);

/// How long a write to a caller may take: a report over a slow path is the longest.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a transfer is looked at, and an interrupt looked for.
const LOOK: Duration = Duration::from_millis(20);

/// How long tests may take to say goodbye when the server is stopped.
const FAREWELL: Duration = Duration::from_secs(2);

/// Samples that a report carries, about 400 KB; a longer test is thinned out evenly.
const MOST_SAMPLES: usize = 240;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;

/// How to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Address to listen on; every address of both families if not set.
    pub bind: Option<IpAddr>,
    /// Port.
    pub port: u16,
    /// Whether to end after one test.
    pub one_off: bool,
}

/// What a server does, as it does it.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// It can be reached here.
    Listening(SocketAddr),
    /// A test began.
    Began {
        /// Who asked for it.
        client: SocketAddr,
        /// For what.
        request: Request,
    },
    /// A test is complete.
    Ended {
        /// Who asked for it.
        client: SocketAddr,
        /// The rate that this end saw.
        rate: BitRate,
    },
    /// A test ended early.
    Failed {
        /// Who asked for it.
        client: SocketAddr,
        /// Why.
        why: String,
    },
    /// A connection that no test of ours begins with.
    Stranger {
        /// Who opened it.
        client: SocketAddr,
        /// What it is, as far as that can be told.
        what: &'static str,
    },
}

/// Serves iperf3 clients, ours and any other, until interrupted; with `one_off`, until one test is over.
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
    let listener = listen(options)?;
    report(ServerEvent::Listening(listener.local_addr().map_err(ServeError::Start)?));
    let (events, mut happened) = mpsc::unbounded_channel();
    let house = Rc::new(House {
        tests: RefCell::default(),
        events,
        closing: AtomicBool::new(false),
        listener,
        one_off: options.one_off,
    });
    let mut accepted = 0;
    loop {
        if interrupt.load(Ordering::Relaxed) {
            house.close().await;
            return Ok(());
        }
        tokio::select! {
            arrival = house.listener.accept() => match arrival {
                Ok((stream, client)) => {
                    accepted += 1;
                    spawn_local(Rc::clone(&house).receive(accepted, stream, canonical(client)));
                }
                // Out of descriptors, say: a moment later there may be one again.
                Err(_) => tokio::time::sleep(LOOK).await,
            },
            event = happened.recv() => if let Some(event) = event {
                let over = matches!(event, ServerEvent::Ended { .. } | ServerEvent::Failed { .. });
                report(event);
                if over && options.one_off {
                    return Ok(());
                }
            },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// A listening socket; without an address, one for both families where the host has IPv6.
fn listen(options: &ServeOptions) -> Result<TcpListener, ServeError> {
    let bind = |address: IpAddr| {
        let address = SocketAddr::new(address, options.port);
        bind(address).map_err(|cause| ServeError::Listen { address, cause })
    };
    match options.bind {
        Some(address) => bind(address),
        None => bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|error| match error {
            ServeError::Listen { ref cause, .. } if cause.kind() == std::io::ErrorKind::AddrInUse => Err(error),
            _ => bind(Ipv4Addr::UNSPECIFIED.into()),
        }),
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// An address as people write it: a socket for both families gives IPv4 callers as `::ffff:192.0.2.1`.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A data connection, with its number among all that were accepted: streams are numbered in this order, and greetings may
/// overtake each other.
type Arrival = (u64, StdTcpStream);

/// What the connections of a server share.
struct House {
    /// Tests under way, and where their data connections go.
    tests: RefCell<HashMap<Cookie, mpsc::UnboundedSender<Arrival>>>,
    events: mpsc::UnboundedSender<ServerEvent>,
    closing: AtomicBool,
    listener: TcpListener,
    one_off: bool,
}

impl House {
    /// Finds out what a new connection is, and deals with it.
    async fn receive(self: Rc<Self>, number: u64, mut stream: TcpStream, client: SocketAddr) {
        let caller = timeout(GREETING, greet(&mut stream)).await.unwrap_or(Caller::Unknown);
        let what = match caller {
            Caller::Iperf3(cookie) => {
                let test = self.tests.borrow().get(&cookie).cloned();
                match test {
                    Some(test) => hand_over(number, stream, &test),
                    None => self.host(stream, client, cookie).await,
                }
                return;
            }
            Caller::Iperf2 => "an iperf2 client, which this server does not serve yet: use iperf3 or fullpipe there",
            Caller::Unknown | Caller::Undecided => "neither iperf3 nor fullpipe",
        };
        self.tell(ServerEvent::Stranger { client, what });
    }

    /// Runs the test that begins with `cookie` on the control connection `stream`.
    async fn host(&self, stream: TcpStream, client: SocketAddr, cookie: Cookie) {
        let (arrivals, streams) = mpsc::unbounded_channel();
        self.tests.borrow_mut().insert(cookie, arrivals);
        // Small messages that the other end waits for.
        let _ = stream.set_nodelay(true);
        let test = Test {
            house: self,
            client,
            control: stream,
            session: ServerSession::new(Time::ZERO, Timeouts::default()),
            origin: Instant::now(),
            arrivals: streams,
            request: Request::default(),
            streams: Vec::new(),
            sockets: Vec::new(),
            progress: None,
            finished: None,
        };
        let ended = test.run().await;
        self.tests.borrow_mut().remove(&cookie);
        self.tell(match ended {
            Ok(rate) => ServerEvent::Ended { client, rate },
            Err(error) => ServerEvent::Failed { client, why: error.to_string() },
        });
    }

    /// Ends every test, telling its client.
    async fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + FAREWELL;
        while !self.tests.borrow().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn tell(&self, event: ServerEvent) {
        // Nobody listens any more when the server is ending.
        let _ = self.events.send(event);
    }
}

/// Reads as little as tells who calls.
async fn greet(stream: &mut TcpStream) -> Caller {
    let mut greeting = Vec::with_capacity(Cookie::LENGTH);
    let mut byte = [0; Cookie::LENGTH];
    loop {
        match classify_first_bytes(&greeting) {
            Caller::Undecided => {}
            decided => return decided,
        }
        // Never beyond the cookie: what follows belongs to the test.
        let wanted = Cookie::LENGTH - greeting.len();
        match stream.read(&mut byte[..wanted]).await {
            Ok(0) | Err(_) => return Caller::Unknown,
            Ok(length) => greeting.extend_from_slice(&byte[..length]),
        }
    }
}

fn hand_over(number: u64, stream: TcpStream, test: &mpsc::UnboundedSender<Arrival>) {
    let stream = stream.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream));
    if let Ok(stream) = stream {
        // A test that has just ended drops the connection, which is its answer.
        let _ = test.send((number, stream));
    }
}

/// One test under way.
struct Test<'h> {
    house: &'h House,
    client: SocketAddr,
    control: TcpStream,
    session: ServerSession,
    origin: Instant,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    request: Request,
    streams: Vec<Arrival>,
    sockets: Vec<SocketReadback>,
    progress: Option<Progress>,
    finished: Option<Finished>,
}

impl Test<'_> {
    /// Runs the test to its end; the rate that this end saw.
    async fn run(mut self) -> Result<BitRate, Error> {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            while let Some(action) = self.session.next_action() {
                if let Some(end) = self.carry_out(action).await {
                    return end;
                }
            }
            tokio::select! {
                read = self.control.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => self.session.closed(),
                    Ok(length) => self.session.receive(self.now(), &buffer[..length]),
                },
                Some(arrival) = self.arrivals.recv() => self.welcome(arrival),
                () = tokio::time::sleep(LOOK) => {}
            }
            if self.house.closing.load(Ordering::Relaxed) {
                self.session.shutdown();
            }
            if let Some(progress) = &mut self.progress {
                progress.look();
            }
            self.session.tick(self.now());
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed().into()
    }

    /// Does what the protocol wants done; how the test ended, once it has.
    async fn carry_out(&mut self, action: ServerAction) -> Option<Result<BitRate, Error>> {
        match action {
            ServerAction::Send(bytes) => {
                // Half a message must not be followed by another.
                if !matches!(timeout(PATIENCE, self.control.write_all(&bytes)).await, Ok(Ok(()))) {
                    self.session.closed();
                }
            }
            ServerAction::ExpectStreams(request) => {
                if self.house.one_off {
                    self.prepare_listener(&request);
                }
                self.house.tell(ServerEvent::Began { client: self.client, request: request.clone() });
                self.request = request;
            }
            ServerAction::StartTransfer => self.start_transfer(),
            ServerAction::StopTransfer => {
                if let Some(progress) = &mut self.progress {
                    progress.end();
                    progress.close_sending();
                }
            }
            ServerAction::CollectResults { report } => {
                self.finished = self.progress.take().map(Progress::finish);
                let results = self.results(report);
                self.session.local_results(self.now(), results);
            }
            ServerAction::Finished(_) => return Some(Ok(self.rate())),
            ServerAction::Failed(error) => {
                drop(self.progress.take().map(Progress::finish));
                return Some(Err(error));
            }
        }
        None
    }

    /// Gives the connections that are still to come their buffers from their first packet on, as iperf3 does by listening
    /// anew: the window scale is agreed then, and the finest that fits wastes least of a small window. A server for many
    /// cannot, as it listens for all of them; it sets what it has accepted. What is refused here is refused there too.
    fn prepare_listener(&self, request: &Request) {
        let _ = apply_options(&SockRef::from(&self.house.listener), request);
    }

    /// Takes in a data connection that came with the test's cookie.
    fn welcome(&mut self, (number, stream): Arrival) {
        if let Err(error) = apply_options(&SockRef::from(&stream), &self.request) {
            let refusal = Refusal { number: ErrorNumber::CONGESTION, why: error.to_string() };
            self.session.refuse(refusal, error.os_error());
            return;
        }
        if self.session.stream_connected(self.now()) {
            self.streams.push((number, stream));
        } else {
            // One byte into an empty buffer; if it does not fit, the closing says the same.
            let _ = std::io::Write::write(&mut &stream, &[State::AccessDenied.byte()]);
        }
    }

    fn start_transfer(&mut self) {
        let role = match self.request.direction {
            Direction::Upload => Role::Receiver,
            Direction::Download => Role::Sender,
        };
        let base_rtt = fullpipe_sys::tcp_info(&self.control).ok().and_then(|info| info.min_rtt);
        let plan = TransferPlan {
            role,
            block: self.request.block,
            budget: self.request.bytes,
            writer: Writer::Retrying,
            base_rtt,
        };
        let mut arrivals = std::mem::take(&mut self.streams);
        arrivals.sort_by_key(|(number, _)| *number);
        let streams: Vec<StdTcpStream> = arrivals.into_iter().map(|(_, stream)| stream).collect();
        let found = streams.iter().zip(0..).map(|(stream, index)| read_back(&SockRef::from(stream), index));
        self.sockets = found.filter_map(Result::ok).collect();
        match Transfer::start(streams, plan) {
            Ok(transfer) => self.progress = Some(Progress::new(transfer, self.as_seen_here())),
            Err(error) => {
                let refusal =
                    Refusal { number: ErrorNumber::STREAMS, why: format!("cannot start the data threads: {error}") };
                self.session.refuse(refusal, error.raw_os_error());
            }
        }
    }

    /// The request with the direction as this end sees it.
    fn as_seen_here(&self) -> Request {
        let direction = match self.request.direction {
            Direction::Upload => Direction::Download,
            Direction::Download => Direction::Upload,
        };
        Request { direction, ..self.request.clone() }
    }

    fn results(&self, report: bool) -> Results {
        let Some(finished) = &self.finished else { return Results::default() };
        let is_sender = self.request.direction == Direction::Download;
        let results = stream_results(finished, is_sender, &self.sockets);
        Results { report: report.then(|| Box::new(self.end_report(finished))), ..results }
    }

    fn end_report(&self, finished: &Finished) -> EndReport {
        EndReport {
            // A setting that cannot be read is one that is not told.
            settings: inspect(&SysctlTree::of_this_host()).ok(),
            cpu: finished.rest.cpu,
            sockets: self.sockets.clone(),
            samples: thinned(&finished.rest.samples, self.request.streams),
        }
    }

    fn rate(&self) -> BitRate {
        let finished = self.finished.as_ref();
        finished.map_or(BitRate::ZERO, |finished| {
            let bytes = finished.bytes().into_iter().sum();
            BitRate::of(bytes, finished.duration().max(Span::from_nanos(1)))
        })
    }
}

/// Every n-th look at all streams, so that a long test's report stays small.
fn thinned(samples: &[Sample], streams: u16) -> Vec<Sample> {
    let step = samples.len().div_ceil(MOST_SAMPLES).max(1);
    let looks = samples.chunks(usize::from(streams).max(1));
    looks.step_by(step).flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::ByteCount;

    #[test]
    fn ipv4_callers_keep_their_ipv4_address() {
        let seen = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(seen("[::ffff:192.0.2.1]:5201"), "192.0.2.1:5201");
        assert_eq!(seen("[2001:db8::1]:5201"), "[2001:db8::1]:5201");
    }

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
