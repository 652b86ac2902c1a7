//! The server of a speed test over the web, as its clients reach it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fullpipe_control::{WebClientTls, connect_to_first, single_threaded_runtime};
use fullpipe_iperf::{ErrorNumber, TestRefusal};
use fullpipe_lab::PathWitness;
use fullpipe_record::{Direction, Measurement, Request, Transport};
use fullpipe_units::{ByteCount, Span};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::connect::not_connected;
use crate::destination::Destination;
use crate::engine::prepare_socket;
use crate::error::ProbeError;
use crate::web::WebConnection;

/// Time after which the next address of a name is tried, too.
const NEXT_ADDRESS: Duration = Duration::from_secs(1);

/// Time between two checks of a transfer, and for an interrupt.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time for both ends to close.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of data that this end hands over at once, at most.
const BLOCK: ByteCount = ByteCount::from_kib(64);

/// A server, and what is asked of it.
#[derive(Clone, Copy)]
pub(super) struct WebPeer<'d> {
    pub destination: &'d Destination,
    pub request: &'d Request,
}

/// Returns the request with its block filled in.
///
/// # Errors
/// Fails with the sentence `why` if it is for more than one stream of TCP in one direction, as fast
/// as it goes.
pub(super) fn web_request(request: &Request, why: &str) -> Result<Request, TestRefusal> {
    let is_plain = request.transport == Transport::Tcp
        && request.streams == 1
        && request.direction != Direction::Both
        && request.bytes.is_none()
        && request.rate.is_none()
        && request.omit == Span::ZERO;
    if !is_plain {
        return Err(TestRefusal::new(ErrorNumber::UNIMPLEMENTED, why));
    }
    Ok(Request {
        block: BLOCK,
        // Frames are looked at.
        rx_copy: true,
        discard: false,
        ..request.clone()
    })
}

/// Runs a test, and watches the host meanwhile.
///
/// # Errors
/// Fails if the test does.
pub(super) fn run_witnessed(
    test: impl Future<Output = Result<Measurement, ProbeError>>,
) -> Result<Measurement, ProbeError> {
    let witness = PathWitness::begin_witness();
    let runtime = single_threaded_runtime().map_err(ProbeError::from_io("start the client"))?;
    let measurement = runtime.block_on(test)?;
    Ok(Measurement {
        validity: witness.map(PathWitness::finish_witness).unwrap_or_default(),
        ..measurement
    })
}

impl WebPeer<'_> {
    /// Returns a connection to the first address of the server that answers.
    pub(super) async fn connect(&self) -> Result<(TcpStream, SocketAddr), ProbeError> {
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

    /// Returns the side of TLS that trusts what the user does, or any certificate.
    pub(super) fn client_tls(&self) -> Result<WebClientTls, ProbeError> {
        let tls = match &self.destination.tls {
            Some(trust) => WebClientTls::trusting(trust),
            None => WebClientTls::unverified(),
        };
        tls.map_err(|error| self.failure(&error.to_string()))
    }

    /// Completes the handshake of TLS.
    pub(super) async fn encrypt(
        &self,
        tls: &WebClientTls,
        stream: TcpStream,
    ) -> Result<WebConnection, ProbeError> {
        let accepted = timeout(
            self.destination.connect_timeout(),
            tls.connect_tls(&self.destination.host, stream),
        );
        let no_answer = |_| self.failure("it does not answer the handshake of TLS");
        let control = accepted.await.map_err(no_answer)?.map_err(|error| {
            self.failure(&format!(
                "no TLS: {error}; a server of ndt7 without TLS is written as ndt7+ws://HOST:PORT"
            ))
        })?;
        WebConnection::from_control(control).map_err(|error| self.failure(&error.to_string()))
    }

    /// Warns of a certificate that nobody verified.
    pub(super) fn note_unverified(&self, measurement: &mut Measurement) {
        if self.destination.tls.is_none() {
            let why = "the certificate of the server was not verified; --tls names a trusted one";
            measurement.warnings.push(why.to_owned());
        }
    }

    /// Returns the name and the port of the server as a request states them.
    pub(super) fn authority(&self) -> String {
        let Destination { host, port, .. } = self.destination;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    pub(super) fn failure(&self, why: &str) -> ProbeError {
        let host = &self.destination.host;
        ProbeError::Failed(format!("the test with {host} failed: {why}"))
    }
}

/// Returns a connection to one address of the server, with the options of the request.
pub(super) async fn connect_to(
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
