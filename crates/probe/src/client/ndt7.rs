//! A client for servers of ndt7: M-Lab's, ours, or anybody's. One connection carries one direction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fullpipe_control::ControlConnection;
use fullpipe_http::{Ndt7Endpoint, SUBPROTOCOL, TEST_DURATION, read_upgrade};
use fullpipe_iperf::{ErrorNumber, TestRefusal};
use fullpipe_record::{Direction, Interval, Measurement, Request};
use fullpipe_sys::random_bytes;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::web_peer::{CLOSE_TIMEOUT, POLL_INTERVAL, WebPeer, run_witnessed, web_request};
use crate::destination::Destination;
use crate::engine::Framing;
use crate::error::ProbeError;
use crate::progress::CountedTransfer;
use crate::web::{HeadFailure, WebConnection, WebTransfer};

/// Samples that are kept of a transfer.
const MAX_SAMPLES: usize = 20_000;

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
    let test = Ndt7Test {
        peer: WebPeer {
            destination,
            request: &request,
        },
        is_encrypted,
        interrupt,
    };
    run_witnessed(test.run_test(progress))
}

/// Returns the request with its block filled in.
///
/// # Errors
/// Fails if ndt7 has no such test.
fn sendable_request(request: &Request) -> Result<Request, TestRefusal> {
    let why = "ndt7 has one stream of TCP in one direction, as fast as it goes";
    let sendable = web_request(request, why)?;
    if request.duration > TEST_DURATION {
        let why = format!("a test of ndt7 lasts {TEST_DURATION} at most");
        return Err(TestRefusal::new(ErrorNumber::MAX_DURATION, why));
    }
    Ok(sendable)
}

/// One direction against one server.
struct Ndt7Test<'t> {
    peer: WebPeer<'t>,
    is_encrypted: bool,
    interrupt: &'t AtomicBool,
}

impl Ndt7Test<'_> {
    async fn run_test(
        &self,
        progress: &mut dyn FnMut(&Interval),
    ) -> Result<Measurement, ProbeError> {
        let begun = Instant::now();
        let peer = &self.peer;
        let (stream, address) = peer.connect().await?;
        let mut connection = if self.is_encrypted {
            let tls = peer.client_tls()?;
            peer.encrypt(&tls, stream).await?
        } else {
            let plain = WebConnection::from_control(ControlConnection::Plain(stream));
            plain.map_err(|error| peer.failure(&error.to_string()))?
        };
        self.ask_for_test(&mut connection).await?;
        let is_download = peer.request.direction == Direction::Download;
        let mask = random_bytes().map_err(ProbeError::from_io("get random bytes"))?;
        let endpoint = Ndt7Endpoint::of_client(is_download, mask);
        let framed = connection
            .into_framed(Framing::Ndt7(Box::new(endpoint)))
            .map_err(ProbeError::from_io("pass the connection to a thread"))?;
        let host = peer.destination.host.clone();
        let mut transfer = WebTransfer::new(&framed, peer.request.clone(), address, host);
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
            .map_err(|error| peer.failure(&error.to_string()))?;
        let messages = match WebConnection::from_framed(framed).0 {
            Some(Framing::Ndt7(endpoint)) => endpoint.into_received(),
            _ => Vec::new(),
        };
        let mut measurement = transfer.into_measurement(begun, finished, &messages, intervals);
        measurement.interrupted = is_interrupted;
        if self.is_encrypted {
            peer.note_unverified(&mut measurement);
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

    /// Asks for the WebSocket of the test.
    async fn ask_for_test(&self, connection: &mut WebConnection) -> Result<(), ProbeError> {
        let path = match self.peer.request.direction {
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
            self.peer.authority(),
        );
        let asked = timeout(self.peer.destination.connect_timeout(), async {
            connection.send_bytes(head.as_bytes()).await?;
            connection
                .read_head(|bytes| read_upgrade(bytes, &key))
                .await
        });
        let asked = asked.await.map_err(|_| {
            self.peer
                .failure("it does not answer the request for a test")
        })?;
        asked.map_err(|failure| match failure {
            HeadFailure::Ended => self.peer.failure("it closed the connection"),
            HeadFailure::Refused(refusal) => self
                .peer
                .failure(&format!("{} (status {})", refusal.why, refusal.status)),
        })
    }
}
