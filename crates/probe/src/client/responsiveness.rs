//! A client of responsiveness (draft-ietf-ippm-responsiveness-09): round trips of requests while
//! connections carry as much as the path does.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullpipe_control::WebClientTls;
use fullpipe_http::{
    MAX_CONNECTIONS, MAX_PROBES, PROBE_SHARE, ProbeTimes, RPM_INTERVAL, ResponsivenessTargets,
    RpmCourse,
};
use fullpipe_record::{Direction, Interval, Measurement, Request, RttReport};
use fullpipe_units::{BitRate, ByteCount, Span};
use http::Uri;
use tokio::task::{JoinSet, LocalSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::web_peer::{
    CLOSE_TIMEOUT, POLL_INTERVAL, WebPeer, connect_to, run_witnessed, web_request,
};
use crate::destination::Destination;
use crate::engine::{FramedStream, Framing, incompressible_bytes};
use crate::error::ProbeError;
use crate::http2::{Http2Client, Http2Load, MAX_QUEUED, SharedProbes, SmallObject};
use crate::progress::{CountedTransfer, FinishedTransfer};
use crate::web::{WebConnection, WebTransfer};

/// Samples that are kept of each connection.
const MAX_SAMPLES: usize = 2_000;

/// Bytes that a probe on a new connection and one on a connection under load take together: most are
/// those of a certificate.
const PROBE_BYTES: f64 = 6_000.0;

/// Probes of each kind a second, before the capacity is known.
const FIRST_PROBES: f64 = 10.0;

/// Probes on new connections that may be under way at once: a server that answers none of them does
/// not get ever more.
const MAX_PROBES_UNDER_WAY: usize = 64;

/// Measures the responsiveness in one direction at a server whose test is described at `path`. Ends
/// once goodput and round trips are stable, or when the time of the request is over. Without trusted
/// certificates any is taken, with a warning. An interrupt ends the test; the measurement then holds
/// what was counted so far.
///
/// # Errors
/// Fails if the request is for more than TCP in one direction, if the server cannot be reached,
/// speaks no HTTP/2 or has no such test, or if this host lacks what was asked for.
pub fn measure_responsiveness(
    destination: &Destination,
    path: &str,
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    let why = "a test of responsiveness begins with one connection of TCP, in one direction, as fast as it goes";
    let request = web_request(request, why).map_err(ProbeError::Request)?;
    let peer = WebPeer {
        destination,
        request: &request,
    };
    let server = Rc::new(ProbedServer {
        tls: peer.client_tls()?.preferring_http2(),
        destination: destination.clone(),
        request,
    });
    let test = ResponsivenessTest {
        server,
        path,
        interrupt,
    };
    run_witnessed(LocalSet::new().run_until(test.run_test(progress)))
}

/// One direction against one server.
struct ResponsivenessTest<'t> {
    server: Rc<ProbedServer>,
    path: &'t str,
    interrupt: &'t AtomicBool,
}

/// A server, as its probes and loads reach it.
struct ProbedServer {
    destination: Destination,
    request: Request,
    tls: WebClientTls,
}

/// A connection that was not used yet.
struct NewConnection {
    connection: WebConnection,
    client: Box<Http2Client>,
    address: SocketAddr,
    tcp: Span,
    tls: Span,
}

/// A connection under load.
struct LoadedConnection {
    framed: Arc<FramedStream>,
    transfer: WebTransfer,
    counted: CountedTransfer,
}

/// The URLs of the test.
#[derive(Clone)]
struct TargetUrls {
    small: Uri,
    load: Http2Load,
}

impl ResponsivenessTest<'_> {
    async fn run_test(
        &self,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ProbeError> {
        let begun = Instant::now();
        let (stream, address) = self.server.peer().connect().await?;
        let mut first = self.server.begin_http2(stream, address, begun).await?;
        let urls = self.fetch_targets(&mut first).await?;
        let shared = Arc::<SharedProbes>::default();
        let mut loaded = vec![self.begin_load(first, &urls, &shared)?];
        let foreign = ForeignProbes::new(&self.server, &urls, address);
        let mut intervals = Vec::new();
        let mut report = |interval: Interval| {
            progress(&interval);
            intervals.push(interval);
        };
        let course = tokio::select! {
            course = self.watch(&mut loaded, &urls, &shared, &foreign, &mut report) => course?,
            () = foreign.send_probes() => RpmCourse::default(),
        };
        let connections = loaded.len() as u16;
        let (transfer, finished) = self.finish_loads(loaded).await?;
        let mut measurement = transfer.into_measurement(begun, finished, &[], intervals);
        measurement.rtt = RttReport {
            rpm: course.report(connections),
            ..measurement.rtt
        };
        measurement.interrupted = self.interrupt.load(Ordering::Relaxed);
        self.server.peer().note_unverified(&mut measurement);
        Ok(measurement)
    }

    /// Adds a connection after each interval, until goodput and round trips have become stable or the
    /// time is over. Returns what the intervals brought.
    async fn watch(
        &self,
        loaded: &mut Vec<LoadedConnection>,
        urls: &TargetUrls,
        shared: &Arc<SharedProbes>,
        foreign: &Rc<ForeignProbes>,
        report: &mut dyn FnMut(Interval),
    ) -> Result<RpmCourse, ProbeError> {
        let request = &self.server.request;
        let (begun, mut course, mut before) = (
            Instant::now(),
            RpmCourse::default(),
            (Span::ZERO, ByteCount::ZERO),
        );
        let mut due = begun + Duration::from(RPM_INTERVAL);
        let mut connecting = JoinSet::new();
        shared.set_period(Duration::from_secs_f64(1.0 / FIRST_PROBES));
        loop {
            while Instant::now() < due {
                sleep(POLL_INTERVAL).await;
                for connection in loaded.iter_mut() {
                    connection.counted.take_passed_intervals();
                }
                let has_ended = loaded.iter().any(|one| one.counted.is_over());
                if has_ended || self.interrupt.load(Ordering::Relaxed) {
                    return Ok(course);
                }
                if let Some(Ok(next)) = connecting.try_join_next() {
                    loaded.push(self.begin_load(next?, urls, shared)?);
                }
            }
            due += Duration::from(RPM_INTERVAL);
            let now = (begun.elapsed().into(), moved_bytes(loaded));
            let bytes = now.1.saturating_sub(before.1);
            let interval = Interval::from_bytes(request.direction, [before.0, now.0], bytes);
            let mut times = foreign.take_times();
            times.http_loaded = shared.take_times();
            let goodput = interval.rate;
            course.add_interval(goodput, times);
            before = now;
            report(interval);
            if course.is_complete() || now.0 + RPM_INTERVAL > request.duration {
                return Ok(course);
            }
            if loaded.len() + connecting.len() < MAX_CONNECTIONS {
                let (server, address) = (Rc::clone(&self.server), foreign.address);
                connecting.spawn_local(async move { server.new_connection(address).await });
            }
            let rate = probes_a_second(goodput);
            foreign.rate.set(rate);
            shared.set_period(Duration::from_secs_f64(loaded.len() as f64 / rate));
        }
    }

    /// Fetches the description of the test, and returns its URLs.
    async fn fetch_targets(&self, first: &mut NewConnection) -> Result<TargetUrls, ProbeError> {
        let server = &self.server;
        let object = server
            .fetch_object(first, &server.url_of(self.path)?)
            .await?;
        if object.status != 200 {
            return Err(server.failure(&format!(
                "it has no test of responsiveness at {} (status {})",
                self.path, object.status
            )));
        }
        let targets = ResponsivenessTargets::from_json(&object.body, &server.peer().authority())
            .map_err(|why| server.failure(why))?;
        let load = if server.request.direction == Direction::Download {
            Http2Load::Download(server.url_of(&targets.large)?)
        } else {
            let data = Bytes::from(incompressible_bytes(MAX_QUEUED));
            Http2Load::Upload(server.url_of(&targets.upload)?, data)
        };
        Ok(TargetUrls {
            small: server.url_of(&targets.small)?,
            load,
        })
    }

    /// Passes a connection to a thread that carries a load over it.
    fn begin_load(
        &self,
        new: NewConnection,
        urls: &TargetUrls,
        shared: &Arc<SharedProbes>,
    ) -> Result<LoadedConnection, ProbeError> {
        let mut client = new.client;
        client
            .begin_load(urls.load.clone(), urls.small.clone(), Arc::clone(shared))
            .map_err(|why| self.server.failure(why))?;
        let framed = new
            .connection
            .into_framed(Framing::Http2Load(client))
            .map_err(ProbeError::from_io("pass the connection to a thread"))?;
        let (request, host) = (self.server.request.clone(), &self.server.destination.host);
        let transfer = WebTransfer::new(&framed, request, new.address, host.clone());
        let counted = transfer
            .start(&framed, MAX_SAMPLES, false)
            .map_err(ProbeError::from_io("start the data thread"))?;
        Ok(LoadedConnection {
            framed,
            transfer,
            counted,
        })
    }

    /// Ends all loads, and returns them as one transfer.
    async fn finish_loads(
        &self,
        mut loaded: Vec<LoadedConnection>,
    ) -> Result<(WebTransfer, FinishedTransfer), ProbeError> {
        for connection in &mut loaded {
            connection.counted.end_transfer();
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while loaded.iter().any(|one| !one.counted.is_over()) && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        let joined = spawn_blocking(move || {
            let ended = loaded.into_iter().map(|one| {
                let finished = one.counted.finish();
                WebConnection::from_framed(one.framed);
                (one.transfer, finished)
            });
            ended.reduce(|(mut transfer, mut finished), (other, its)| {
                transfer.join_connection(other);
                finished.join_streams(its);
                (transfer, finished)
            })
        });
        let joined = joined
            .await
            .map_err(|error| self.server.failure(&error.to_string()))?;
        joined.ok_or_else(|| self.server.failure("no connection carried a load"))
    }
}

impl ProbedServer {
    fn peer(&self) -> WebPeer<'_> {
        WebPeer {
            destination: &self.destination,
            request: &self.request,
        }
    }

    fn failure(&self, why: &str) -> ProbeError {
        self.peer().failure(why)
    }

    /// Returns a connection by HTTP/2 to the server at `address`.
    async fn new_connection(&self, address: SocketAddr) -> Result<NewConnection, ProbeError> {
        let begun = Instant::now();
        let stream = connect_to(&self.destination, &self.request, address).await?;
        self.begin_http2(stream, address, begun).await
    }

    /// Completes the handshake of TLS, on a connection that was `begun` some time ago.
    async fn begin_http2(
        &self,
        stream: tokio::net::TcpStream,
        address: SocketAddr,
        begun: Instant,
    ) -> Result<NewConnection, ProbeError> {
        let connected = Instant::now();
        let connection = self.peer().encrypt(&self.tls, stream).await?;
        let tls = connected.elapsed().into();
        if !connection.speaks_http2() {
            return Err(
                self.failure("it does not speak HTTP/2, by which responsiveness is measured")
            );
        }
        let client = Http2Client::new().map_err(|why| self.failure(why))?;
        Ok(NewConnection {
            connection,
            client: Box::new(client),
            address,
            tcp: connected.duration_since(begun).into(),
            tls,
        })
    }

    fn url_of(&self, path: &str) -> Result<Uri, ProbeError> {
        let url = format!("https://{}{path}", self.peer().authority());
        url.parse()
            .map_err(|_| self.failure(&format!("{path} is no path of a URL")))
    }

    /// Fetches a small object over a connection without load.
    async fn fetch_object(
        &self,
        over: &mut NewConnection,
        url: &Uri,
    ) -> Result<SmallObject, ProbeError> {
        let limit = self.destination.connect_timeout();
        match timeout(limit, exchange_object(over, url)).await {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(self.failure("it closed the connection without an answer")),
            Err(_) => Err(self.failure("it does not answer a request")),
        }
    }
}

/// Asks for a small object, and returns it; `None` if the connection ends before.
async fn exchange_object(over: &mut NewConnection, url: &Uri) -> Option<SmallObject> {
    let (client, connection) = (&mut over.client, &mut over.connection);
    client.ask_for(url).ok()?;
    let mut output = Vec::new();
    loop {
        client.take_input(&connection.take_input()).ok()?;
        client.push_output(MAX_QUEUED, &mut output);
        while !output.is_empty() {
            connection.send_bytes(&output).await.ok()?;
            client.push_output(MAX_QUEUED, &mut output);
        }
        if let Some(object) = client.take_objects().ok()?.pop() {
            return Some(object);
        }
        connection.read_more().await.ok()?;
    }
}

/// Probes on new connections, by a clock of their own.
struct ForeignProbes {
    server: Rc<ProbedServer>,
    small: Uri,
    address: SocketAddr,
    /// Probes a second.
    rate: Cell<f64>,
    times: RefCell<ProbeTimes>,
}

impl ForeignProbes {
    fn new(server: &Rc<ProbedServer>, urls: &TargetUrls, address: SocketAddr) -> Rc<Self> {
        Rc::new(Self {
            server: Rc::clone(server),
            small: urls.small.clone(),
            address,
            rate: Cell::new(FIRST_PROBES),
            times: RefCell::default(),
        })
    }

    /// Returns the round trips since the last call.
    fn take_times(&self) -> ProbeTimes {
        self.times.take()
    }

    /// Sends probes until it is dropped.
    async fn send_probes(self: &Rc<Self>) {
        let mut under_way = JoinSet::new();
        loop {
            sleep(Duration::from_secs_f64(1.0 / self.rate.get())).await;
            while under_way.try_join_next().is_some() {}
            if under_way.len() < MAX_PROBES_UNDER_WAY {
                under_way.spawn_local(Rc::clone(self).send_probe());
            }
        }
    }

    /// Notes the round trips of one probe, if it is answered.
    async fn send_probe(self: Rc<Self>) {
        let Ok(mut new) = self.server.new_connection(self.address).await else {
            return;
        };
        if let Ok(object) = self.server.fetch_object(&mut new, &self.small).await
            && object.status == 200
        {
            let mut times = self.times.borrow_mut();
            times.tcp.push(new.tcp);
            // TLS 1.3 takes one round trip.
            times.tls.push(new.tls);
            times.http.push(object.took);
        }
    }
}

/// Returns the probes of each kind a second that the draft permits beside a `goodput`.
fn probes_a_second(goodput: BitRate) -> f64 {
    let permitted = goodput.as_f64() / 8.0 * PROBE_SHARE / PROBE_BYTES;
    permitted.clamp(1.0, f64::from(MAX_PROBES) / 2.0)
}

/// Returns the payload that all connections have moved so far.
fn moved_bytes(loaded: &[LoadedConnection]) -> ByteCount {
    let snapshots = loaded.iter().map(|one| one.counted.test_snapshot(None));
    snapshots
        .flat_map(|snapshot| snapshot.streams)
        .map(|stream| stream.bytes)
        .sum()
}
