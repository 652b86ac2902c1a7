//! A client for servers of ndt7: M-Lab's, ours, or anybody's. One connection carries one direction.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fullpipe_control::{ControlConnection, WebClientTls, connect_to_first};
use fullpipe_http::{Ndt7Endpoint, SUBPROTOCOL, TEST_DURATION, read_upgrade};
use fullpipe_iperf::{ErrorNumber, TestRefusal};
use fullpipe_lab::PathWitness;
use fullpipe_record::{Direction, Interval, Measurement, Request, Transport};
use fullpipe_sys::random_bytes;
use fullpipe_units::{ByteCount, Span};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::connect::not_connected;
use crate::destination::Destination;
use crate::engine::{Framing, prepare_socket};
use crate::error::ProbeError;
use crate::progress::CountedTransfer;
use crate::web::{HeadFailure, WebConnection, WebTransfer};

/// Time between two checks of a transfer, and for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time after which the next address of a name is tried, too.
const NEXT_ADDRESS: Duration = Duration::from_secs(1);

/// Time for both ends to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Samples that are kept of a transfer.
const MAX_SAMPLES: usize = 20_000;

/// Bytes of messages that this end hands over at once, at most.
const BLOCK: ByteCount = ByteCount::from_kib(64);

/// Measures one direction against a server of ndt7, inside TLS if `is_encrypted`. Without trusted
/// certificates any is taken, with a warning. An interrupt ends the test; the measurement then holds
/// what was counted so far.
///
/// # Errors
/// Fails if the request is for more than one stream of TCP of up to ten seconds in one direction,
/// if the server cannot be reached or refuses, or if this host lacks what was asked for.
pub fn measure_ndt7(
    destination: &Destination,
    is_encrypted: bool,
    request: &Request,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(&Interval),
) -> Result<Measurement, ProbeError> {
    let request = sendable_request(request).map_err(ProbeError::Request)?;
    let witness = PathWitness::begin_witness();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ProbeError::from_io("start the client"))?;
    let test = Ndt7Test {
        destination,
        is_encrypted,
        request,
        interrupt,
    };
    let measurement = runtime.block_on(test.run_test(progress))?;
    Ok(Measurement {
        validity: witness.map(PathWitness::finish_witness).unwrap_or_default(),
        ..measurement
    })
}

/// Returns the request with its block filled in.
///
/// # Errors
/// Fails if ndt7 has no such test.
fn sendable_request(request: &Request) -> Result<Request, TestRefusal> {
    let is_plain = request.transport == Transport::Tcp
        && request.streams == 1
        && request.direction != Direction::Both
        && request.bytes.is_none()
        && request.rate.is_none()
        && request.omit == Span::ZERO;
    if !is_plain {
        let why = "ndt7 has one stream of TCP in one direction, as fast as it goes";
        return Err(TestRefusal::new(ErrorNumber::UNIMPLEMENTED, why));
    }
    if request.duration > TEST_DURATION {
        let why = format!("a test of ndt7 lasts {TEST_DURATION} at most");
        return Err(TestRefusal::new(ErrorNumber::MAX_DURATION, why));
    }
    Ok(Request {
        block: BLOCK,
        // Frames are looked at.
        rx_copy: true,
        discard: false,
        ..request.clone()
    })
}

/// One direction against one server.
struct Ndt7Test<'t> {
    destination: &'t Destination,
    is_encrypted: bool,
    request: Request,
    interrupt: &'t AtomicBool,
}

impl Ndt7Test<'_> {
    async fn run_test(
        &self,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ProbeError> {
        let begun = Instant::now();
        let (stream, address) = self.connect().await?;
        let mut connection = self.encrypt(stream).await?;
        self.ask_for_test(&mut connection).await?;
        let is_download = self.request.direction == Direction::Download;
        let mask = random_bytes().map_err(ProbeError::from_io("get random bytes"))?;
        let endpoint = Ndt7Endpoint::of_client(is_download, mask);
        let framed = connection
            .into_framed(Framing::Ndt7(Box::new(endpoint)))
            .map_err(ProbeError::from_io("pass the connection to a thread"))?;
        let host = self.destination.host.clone();
        let mut transfer = WebTransfer::new(&framed, self.request.clone(), address, host);
        transfer.setup = Some(begun.elapsed().into());
        let mut counted = transfer
            .start(&framed, MAX_SAMPLES, true)
            .map_err(ProbeError::from_io("start the data thread"))?;
        let mut intervals = Vec::new();
        let mut report = |interval| {
            progress(&interval);
            intervals.push(interval);
        };
        let is_interrupted = self.watch(&mut counted, &mut report).await;
        let finished = spawn_blocking(move || counted.finish())
            .await
            .map_err(|error| self.failure(&error.to_string()))?;
        let (messages, _) = WebConnection::from_framed(framed);
        let mut measurement = transfer.into_measurement(begun, finished, &messages, intervals);
        measurement.interrupted = is_interrupted;
        if self.is_encrypted && self.destination.tls.is_none() {
            let why = "the certificate of the server was not verified; --tls names a trusted one";
            measurement.warnings.push(why.to_owned());
        }
        Ok(measurement)
    }

    /// Reports intervals until the time has passed, either end is done, or the user interrupts it,
    /// and lets both ends close. Returns true if it was interrupted.
    async fn watch(&self, counted: &mut CountedTransfer, report: &mut dyn FnMut(Interval)) -> bool {
        let mut is_interrupted = false;
        while !is_interrupted && !counted.is_due() {
            sleep(POLL_INTERVAL).await;
            counted
                .take_passed_intervals()
                .into_iter()
                .for_each(&mut *report);
            is_interrupted = self.interrupt.load(Ordering::Relaxed);
        }
        counted.end_transfer().into_iter().for_each(report);
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while !counted.is_over() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        is_interrupted
    }

    /// Returns a connection to the first address of the server that answers.
    async fn connect(&self) -> Result<(TcpStream, SocketAddr), ProbeError> {
        let addresses = self.destination.resolve_host()?;
        let connected = connect_to_first(&addresses, NEXT_ADDRESS, |address| {
            let (destination, request) = (self.destination.clone(), self.request.clone());
            async move {
                let stream = connect_to(&destination, &request, address).await;
                Ok((stream.map_err(io::Error::other)?, address))
            }
        });
        connected.await.map_err(|error| {
            error
                .downcast()
                .unwrap_or_else(ProbeError::from_io("connect to the server"))
        })
    }

    /// Completes the handshake of TLS, if the connection is to be encrypted.
    async fn encrypt(&self, stream: TcpStream) -> Result<WebConnection, ProbeError> {
        let control = if self.is_encrypted {
            let tls = match &self.destination.tls {
                Some(trust) => WebClientTls::trusting(trust),
                None => WebClientTls::unverified(),
            };
            let tls = tls.map_err(|error| self.failure(&error.to_string()))?;
            let accepted = timeout(
                self.destination.connect_timeout(),
                tls.connect_tls(&self.destination.host, stream),
            );
            let no_answer = |_| self.failure("it does not answer the handshake of TLS");
            accepted.await.map_err(no_answer)?.map_err(|error| {
                self.failure(&format!(
                    "no TLS: {error}; a server without TLS is written as ndt7+ws://HOST:PORT"
                ))
            })?
        } else {
            ControlConnection::Plain(stream)
        };
        WebConnection::from_control(control).map_err(|error| self.failure(&error.to_string()))
    }

    /// Asks for the WebSocket of the test.
    async fn ask_for_test(&self, connection: &mut WebConnection) -> Result<(), ProbeError> {
        let path = match self.request.direction {
            Direction::Download => "download",
            _ => "upload",
        };
        let key: [u8; 16] = random_bytes().map_err(ProbeError::from_io("get random bytes"))?;
        let key = STANDARD.encode(key);
        let head = format!(
            "GET /ndt/v7/{path}?client_name=fullpipe&client_version={} HTTP/1.1\r\nHost: {}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n",
            env!("CARGO_PKG_VERSION"),
            self.authority(),
        );
        let asked = timeout(self.destination.connect_timeout(), async {
            connection.send_bytes(head.as_bytes()).await?;
            connection
                .read_head(|bytes| read_upgrade(bytes, &key))
                .await
        });
        let asked = asked
            .await
            .map_err(|_| self.failure("it does not answer the request for a test"))?;
        asked.map_err(|failure| match failure {
            HeadFailure::Ended => self.failure("it closed the connection"),
            HeadFailure::Refused(refusal) => {
                self.failure(&format!("{} (status {})", refusal.why, refusal.status))
            }
        })
    }

    /// Returns the name and the port of the server as a request states them.
    fn authority(&self) -> String {
        let Destination { host, port, .. } = self.destination;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    fn failure(&self, why: &str) -> ProbeError {
        ProbeError::Web {
            host: self.destination.host.clone(),
            why: why.to_owned(),
        }
    }
}

/// Returns a connection to one address of the server, with the options of the request.
async fn connect_to(
    destination: &Destination,
    request: &Request,
    address: SocketAddr,
) -> Result<TcpStream, ProbeError> {
    let not_connected = |cause| not_connected(destination.host.clone(), address, cause);
    let socket = prepare_socket(address, request, &destination.local)?;
    socket.set_nonblocking(true).map_err(not_connected)?;
    let limit = destination.connect_timeout();
    let connected = TcpSocket::from_std_stream(socket.into()).connect(address);
    match timeout(limit, connected).await {
        Ok(connected) => connected.map_err(not_connected),
        Err(_) => Err(ProbeError::Silent {
            host: destination.host.clone(),
            address,
            after: limit.into(),
        }),
    }
}
