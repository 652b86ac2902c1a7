//! QUIC connections, made in either direction.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fullpipe_control::{PinnedTls, single_threaded_runtime};
use fullpipe_sys::{enable_recverr, icmp_error, start_thread};
use fullpipe_units::{BitRate, Span};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, Connection, Endpoint, EndpointConfig, IdleTimeout, Incoming,
    MtuDiscoveryConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use tokio::runtime::Runtime;
use tokio::select;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::address::at_port;

use super::congestion::{CongestionFactory, PathSignals};
use super::pipe::{OutgoingState, QuicConnection};
use super::portions::{HEAD, MAX_PORTIONS, PORTION};
use super::udp::{
    MAX_DATAGRAM, UdpBuffer, bind_port, connect_socket, enlarge_buffers, largest_datagram,
};

/// Time for a handshake in which packets may be lost.
pub(crate) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(3);

/// Callers at once that have not yet proved who they are.
const MAX_PENDING: usize = 64;

/// Round-trip time before one is known, from which the time until a lost packet of the handshake is
/// retransmitted follows.
const FIRST_RTT: Duration = Duration::from_millis(150);

/// Windows until the round-trip time is known.
const FIRST_WINDOW: u32 = 4 << 20;

/// Rate that the windows of a connection permit, whatever its round-trip time; the congestion
/// control may hold two and a half BDPs. A connection of any distance has the first of [`WINDOWS`],
/// none has more than the second.
const TARGET: BitRate = BitRate::from_mbps(1000);
const WINDOW_OF_BDP: f64 = 2.5;
const WINDOWS: (u64, u64) = (8 << 20, 128 << 20);

/// Time without a word of the other end after which a connection is given up; its data then takes
/// another way.
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// Time after which an end with nothing to say says that it is there.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Time in which the other end learns that a connection was closed.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// Time between two looks for ICMP errors during a handshake.
const ERROR_INTERVAL: Duration = Duration::from_millis(20);

/// Packets that one acknowledgement confirms at most, beyond the first.
const ACK_THRESHOLD: u32 = 9;

/// A port that takes one connection of who knows the secret.
pub(crate) struct QuicListener {
    pub port: u16,
    made: Receiver<QuicConnection>,
    stop: Arc<Notify>,
}

impl QuicListener {
    /// Listens on the first free UDP port of a range; on any if both are zero. Without an address
    /// it listens on all.
    ///
    /// # Errors
    /// Fails if none is free.
    pub(crate) fn start_listening(
        address: Option<IpAddr>,
        ports: (u16, u16),
        secret: &[u8; 32],
    ) -> io::Result<Self> {
        let tls = PinnedTls::of_secret(secret).map_err(io::Error::other)?;
        let server =
            Arc::new(QuicServerConfig::try_from(tls.server_config()).map_err(io::Error::other)?);
        let config = ServerConfig::with_crypto(Arc::<QuicServerConfig>::clone(&server));
        let end = QuicEnd::new(bind_port(address, ports)?, Some(config))?;
        let port = end.endpoint.local_addr()?.port();
        let (sender, made) = channel();
        let stop = Arc::<Notify>::default();
        let stopped = Arc::clone(&stop);
        start_thread("copy-quic", move || {
            let accepted = end.runtime.block_on(async {
                select! {
                    accepted = accept_first(&end.endpoint, &server) => accepted,
                    () = stopped.notified() => None,
                }
            });
            end.endpoint.set_server_config(None);
            if let Some((connection, signals)) = accepted
                && sender.send(end.to_connection(&connection, signals)).is_ok()
            {
                end.drive_connection(&connection);
            }
        })?;
        Ok(Self { port, made, stop })
    }

    /// Waits for the connection until `deadline`.
    pub(crate) fn take_connection(&self, deadline: Duration) -> Option<QuicConnection> {
        self.made.recv_timeout(deadline).ok()
    }
}

impl Drop for QuicListener {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}

/// Makes a connection to the first of `hosts`, whatever their ports, that answers on `port`, each
/// within `deadline`.
///
/// # Errors
/// Fails if none does, with the last reason.
pub(crate) fn dial_quic(
    hosts: &[SocketAddr],
    port: u16,
    secret: &[u8; 32],
    deadline: Duration,
) -> io::Result<QuicConnection> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the other end has no address");
    for host in hosts {
        match dial_host(at_port(*host, port), secret, deadline) {
            Ok(connection) => return Ok(connection),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn dial_host(
    remote: SocketAddr,
    secret: &[u8; 32],
    deadline: Duration,
) -> io::Result<QuicConnection> {
    let tls = PinnedTls::of_secret(secret).map_err(io::Error::other)?;
    let client = QuicClientConfig::try_from(tls.client_config()).map_err(io::Error::other)?;
    let signals = Arc::<PathSignals>::default();
    let mut config = ClientConfig::new(Arc::new(client));
    config.transport_config(Arc::new(transport_config(remote, &signals)));
    let socket = connect_socket(remote)?;
    let errors = socket.try_clone()?;
    enable_recverr(&errors, remote.is_ipv6())?;
    let end = QuicEnd::new(socket, None)?;
    let connection = end.runtime.block_on(async {
        // The name is not read.
        let connecting = end.endpoint.connect_with(config, remote, "fullpipe");
        let connecting = connecting.map_err(io::Error::other)?;
        select! {
            connected = timeout(deadline, connecting) => connected?
                .map_err(|why| io::Error::new(io::ErrorKind::ConnectionRefused, why)),
            () = port_unreachable(&errors) => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    })?;
    let made = end.to_connection(&connection, signals);
    start_thread("copy-quic", move || end.drive_connection(&connection))?;
    Ok(made)
}

/// Waits until the other host, or a router, says that a datagram does not arrive: the library does
/// not ask.
async fn port_unreachable(socket: &UdpSocket) {
    while !icmp_error(socket, &mut [0; 64]).is_ok_and(|error| error.is_some()) {
        sleep(ERROR_INTERVAL).await;
    }
}

/// A UDP socket, and the thread's runtime that drives its connection.
struct QuicEnd {
    endpoint: Endpoint,
    runtime: Runtime,
    buffer: UdpBuffer,
}

impl QuicEnd {
    fn new(socket: UdpSocket, server: Option<ServerConfig>) -> io::Result<Self> {
        let runtime = single_threaded_runtime()?;
        let buffer = enlarge_buffers(&socket);
        let mut config = EndpointConfig::default();
        // It is within what the library permits.
        let _ = config.max_udp_payload_size(MAX_DATAGRAM);
        let context = runtime.enter();
        let endpoint = Endpoint::new(config, server, socket, Arc::new(TokioRuntime))?;
        drop(context);
        Ok(Self {
            endpoint,
            runtime,
            buffer,
        })
    }

    /// Returns what the threads of a copy have of a connection, whose windows it opens.
    fn to_connection(&self, connection: &Connection, signals: Arc<PathSignals>) -> QuicConnection {
        let rtt = connection.rtt();
        let window = TARGET.bytes_in(Span::from(rtt)).get() as f64 * WINDOW_OF_BDP;
        let window = (window as u64).clamp(WINDOWS.0, WINDOWS.1);
        connection.set_send_window(window);
        connection.set_receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX));
        QuicConnection {
            connection: connection.clone(),
            runtime: self.runtime.handle().clone(),
            signals,
            rtt,
            buffer: self.buffer,
            outgoing: OutgoingState::new(),
        }
    }

    /// Carries datagrams until the connection is closed, and the other end knows.
    fn drive_connection(&self, connection: &Connection) {
        self.runtime.block_on(async {
            connection.closed().await;
            let _ = timeout(CLOSING_TIME, self.endpoint.wait_idle()).await;
        });
    }
}

/// Waits for the first caller that knows the secret. One who does not gets no further, and is
/// forgotten.
async fn accept_first(
    endpoint: &Endpoint,
    server: &Arc<QuicServerConfig>,
) -> Option<(Connection, Arc<PathSignals>)> {
    let mut pending = JoinSet::new();
    loop {
        select! {
            incoming = endpoint.accept() => {
                let incoming = incoming?;
                if pending.len() < MAX_PENDING {
                    pending.spawn(answer_caller(incoming, Arc::clone(server)));
                } else {
                    incoming.ignore();
                }
            }
            Some(answered) = pending.join_next() => {
                if let Ok(Some(made)) = answered {
                    return Some(made);
                }
            }
        }
    }
}

async fn answer_caller(
    incoming: Incoming,
    server: Arc<QuicServerConfig>,
) -> Option<(Connection, Arc<PathSignals>)> {
    let signals = Arc::<PathSignals>::default();
    let transport = transport_config(incoming.remote_address(), &signals);
    let mut config = ServerConfig::with_crypto(server);
    config
        .migration(false)
        .transport_config(Arc::new(transport));
    let connecting = incoming.accept_with(Arc::new(config)).ok()?;
    let connection = timeout(HANDSHAKE_DEADLINE, connecting).await.ok()?.ok()?;
    Some((connection, signals))
}

fn transport_config(remote: SocketAddr, signals: &Arc<PathSignals>) -> TransportConfig {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(largest_datagram(remote));
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(ACK_THRESHOLD.into());
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(0_u32.into())
        .max_concurrent_uni_streams(MAX_PORTIONS.into())
        .stream_receive_window(((HEAD + PORTION) as u32).into())
        .receive_window(FIRST_WINDOW.into())
        .send_window(FIRST_WINDOW.into())
        .send_fairness(false)
        .initial_rtt(FIRST_RTT)
        .max_idle_timeout(IdleTimeout::try_from(DEAD_AFTER).ok())
        .keep_alive_interval(Some(ALIVE_INTERVAL))
        .datagram_receive_buffer_size(None)
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(acknowledgements))
        .congestion_controller_factory(Arc::new(CongestionFactory(Arc::clone(signals))));
    config
}

#[cfg(test)]
mod tests;
