//! QUIC connections, made in either direction.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use fullpipe_control::PinnedTls;
use fullpipe_sys::{ReceivedDatagram, receive_with_destination, report_destinations, send_from};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointConfig, Event, IdleTimeout, Incoming, MtuDiscoveryConfig, ServerConfig, Transmit,
    TransportConfig,
};

use crate::address::at_port;

use super::congestion::{CongestionFactory, PathSignals};
use super::driver::{QuicDriver, next_event, poll_socket};
use super::pipe::QuicConnection;
use super::portions::{HEAD, MAX_PORTIONS, PORTION};
use super::udp::{MAX_DATAGRAM, bind_port, connect_accepted, connect_socket, largest_datagram};
use crate::threads::start_thread;

/// Time for a handshake in which packets may be lost.
pub(crate) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(3);

/// Callers at once that have not yet proved who they are.
const MAX_PENDING: usize = 64;

/// Datagrams that are read before anything else is done.
const BATCH: usize = 64;

/// Time between two checks whether listening goes on.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Round-trip time before one is known, from which the time until a lost packet of the handshake is
/// retransmitted follows.
const FIRST_RTT: Duration = Duration::from_millis(150);

/// Windows until the round-trip time is known.
const FIRST_WINDOW: u32 = 4 << 20;

/// Time without a word of the other end after which a connection is given up; its data then takes
/// another way.
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// Time after which an end with nothing to say says that it is there.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Packets that one acknowledgement confirms at most, beyond the first.
const ACK_THRESHOLD: u32 = 9;

/// A port that takes one connection of who knows the secret.
#[derive(Debug)]
pub(crate) struct QuicListener {
    pub(crate) port: u16,
    made: Receiver<QuicConnection>,
    stop: Arc<AtomicBool>,
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
        let attempts = HandshakeAttempts::with_listener(bind_port(address, ports)?, secret)?;
        let port = attempts.socket.local_addr()?.port();
        let (sender, made) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        start_thread("copy-quic", move || {
            let established = attempts
                .establish_connection(None, &stopped)
                .and_then(QuicDriver::new);
            if let Ok((connection, driver)) = established
                && sender.send(connection).is_ok()
            {
                driver.run_driver();
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
        self.stop.store(true, Ordering::Relaxed);
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
        let remote = at_port(*host, port);
        let attempt = HandshakeAttempts::with_remote(remote, secret);
        let made = attempt.and_then(|attempt| {
            attempt
                .establish_connection(Some(Instant::now() + deadline), &AtomicBool::new(false))
                .and_then(QuicDriver::new)
        });
        match made {
            Ok((connection, driver)) => {
                start_thread("copy-quic", move || driver.run_driver())?;
                return Ok(connection);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A connection whose handshake is over.
pub(super) struct EstablishedConnection {
    pub(super) socket: UdpSocket,
    pub(super) endpoint: Endpoint,
    pub(super) handle: ConnectionHandle,
    pub(super) connection: Connection,
    pub(super) signals: Arc<PathSignals>,
}

/// Handshakes that are under way: one that this end began, or those of callers.
struct HandshakeAttempts {
    socket: UdpSocket,
    endpoint: Endpoint,
    pending: HashMap<ConnectionHandle, PendingHandshake>,
    /// TLS of an end that listens.
    server: Option<Arc<QuicServerConfig>>,
    /// The reason for which the last of them failed.
    failed: io::Error,
    out: Vec<u8>,
}

struct PendingHandshake {
    connection: Connection,
    signals: Arc<PathSignals>,
    began: Instant,
    /// The address of this host that the other end has called: it takes answers from no other.
    /// `None` if this end calls.
    called: Option<IpAddr>,
}

impl HandshakeAttempts {
    fn with_listener(socket: UdpSocket, secret: &[u8; 32]) -> io::Result<Self> {
        report_destinations(&socket)?;
        let tls = PinnedTls::of_secret(secret).map_err(io::Error::other)?;
        let server =
            Arc::new(QuicServerConfig::try_from(tls.server_config()).map_err(io::Error::other)?);
        let mut config = ServerConfig::with_crypto(Arc::<QuicServerConfig>::clone(&server));
        config.migration(false).max_incoming(MAX_PENDING);
        let endpoint = Endpoint::new(endpoint_config(), Some(Arc::new(config)), true, None);
        Ok(Self::new(socket, endpoint, Some(server)))
    }

    fn with_remote(remote: SocketAddr, secret: &[u8; 32]) -> io::Result<Self> {
        let tls = PinnedTls::of_secret(secret).map_err(io::Error::other)?;
        let client = QuicClientConfig::try_from(tls.client_config()).map_err(io::Error::other)?;
        let signals = Arc::<PathSignals>::default();
        let mut config = ClientConfig::new(Arc::new(client));
        config.transport_config(Arc::new(transport_config(remote, &signals)));
        let endpoint = Endpoint::new(endpoint_config(), None, true, None);
        let mut attempts = Self::new(connect_socket(remote)?, endpoint, None);
        let began = Instant::now();
        // The name is not read.
        let made = attempts
            .endpoint
            .connect(began, config, remote, "fullpipe")
            .map_err(io::Error::other)?;
        let (handle, connection) = made;
        attempts.pending.insert(
            handle,
            PendingHandshake {
                connection,
                signals,
                began,
                called: None,
            },
        );
        Ok(attempts)
    }

    fn new(socket: UdpSocket, endpoint: Endpoint, server: Option<Arc<QuicServerConfig>>) -> Self {
        let failed = io::ErrorKind::TimedOut.into();
        Self {
            socket,
            endpoint,
            pending: HashMap::new(),
            server,
            failed,
            out: Vec::new(),
        }
    }

    /// Goes on until one has succeeded. One who does not know the secret gets no further, and is
    /// forgotten.
    fn establish_connection(
        mut self,
        deadline: Option<Instant>,
        stop: &AtomicBool,
    ) -> io::Result<EstablishedConnection> {
        loop {
            let now = Instant::now();
            self.receive_datagrams(now)?;
            if let Some(handle) = self.drive_handshakes(now) {
                return self.into_established(handle);
            }
            if self.server.is_none() && self.pending.is_empty() {
                return Err(self.failed);
            }
            if stop.load(Ordering::Relaxed) || deadline.is_some_and(|deadline| now >= deadline) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.sleep_until_event();
        }
    }

    fn sleep_until_event(&mut self) {
        let timeouts = self
            .pending
            .values_mut()
            .filter_map(|pending| pending.connection.poll_timeout());
        let latest = Instant::now() + POLL_INTERVAL;
        // What fails fails again where it is received.
        let _ = poll_socket(
            &self.socket,
            false,
            None,
            Some(timeouts.min().map_or(latest, |next| next.min(latest))),
        );
    }

    fn receive_datagrams(&mut self, now: Instant) -> io::Result<()> {
        let mut datagram = [0; MAX_DATAGRAM as usize];
        for _ in 0..BATCH {
            match receive_with_destination(&self.socket, &mut datagram) {
                Ok(received) => self.handle_datagram(
                    now,
                    received,
                    BytesMut::from(&datagram[..received.length]),
                ),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Somebody whom this end answered is not there.
                Err(_) if self.server.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn handle_datagram(&mut self, now: Instant, received: ReceivedDatagram, datagram: BytesMut) {
        self.out.clear();
        match self
            .endpoint
            .handle(now, received.from, None, None, datagram, &mut self.out)
        {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(pending) = self.pending.get_mut(&handle) {
                    pending.connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.admit_caller(now, incoming, received.to);
            }
            Some(DatagramEvent::Response(transmit)) => self.send_answer(&transmit, received.to),
            None => {}
        }
    }

    fn admit_caller(&mut self, now: Instant, incoming: Incoming, called: Option<IpAddr>) {
        let Some(server) = self
            .server
            .as_ref()
            .filter(|_| self.pending.len() < MAX_PENDING)
        else {
            return self.endpoint.ignore(incoming);
        };
        let signals = Arc::<PathSignals>::default();
        let mut config = ServerConfig::with_crypto(Arc::<QuicServerConfig>::clone(server));
        config
            .migration(false)
            .transport_config(Arc::new(transport_config(
                incoming.remote_address(),
                &signals,
            )));
        self.out.clear();
        let config = Some(Arc::new(config));
        match self.endpoint.accept(incoming, now, &mut self.out, config) {
            Ok((handle, connection)) => {
                let pending = PendingHandshake {
                    connection,
                    signals,
                    began: now,
                    called,
                };
                self.pending.insert(handle, pending);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.send_answer(&transmit, called);
                }
            }
        }
    }

    /// Carries all of them on; returns the first whose handshake is over.
    fn drive_handshakes(&mut self, now: Instant) -> Option<ConnectionHandle> {
        let handles: Vec<ConnectionHandle> = self.pending.keys().copied().collect();
        handles
            .into_iter()
            .find(|handle| self.drive_handshake(now, *handle))
    }

    /// Carries one on; returns true if it is over.
    fn drive_handshake(&mut self, now: Instant, handle: ConnectionHandle) -> bool {
        let Some(PendingHandshake {
            connection,
            began,
            called,
            ..
        }) = self.pending.get_mut(&handle)
        else {
            return false;
        };
        if connection
            .poll_timeout()
            .is_some_and(|timeout| timeout <= now)
        {
            connection.handle_timeout(now);
        }
        if self.server.is_some() && now.duration_since(*began) > HANDSHAKE_DEADLINE {
            connection.close(now, 0_u32.into(), Bytes::new());
        }
        let event = next_event(handle, connection, &mut self.endpoint);
        loop {
            self.out.clear();
            let Some(transmit) = connection.poll_transmit(now, 1, &mut self.out) else {
                break;
            };
            // What is lost is retransmitted.
            let _ = send_from(&self.socket, &self.out, transmit.destination, *called);
        }
        let is_drained = connection.is_drained();
        match event {
            Some(Event::Connected) => return true,
            Some(Event::ConnectionLost { reason }) => {
                self.failed = io::Error::new(io::ErrorKind::ConnectionRefused, reason.to_string());
                if self.server.is_none() {
                    self.pending.clear();
                }
            }
            _ => {}
        }
        if is_drained {
            self.pending.remove(&handle);
        }
        false
    }

    fn send_answer(&self, transmit: &Transmit, called: Option<IpAddr>) {
        // What is lost is retransmitted.
        let _ = send_from(
            &self.socket,
            &self.out[..transmit.size],
            transmit.destination,
            called,
        );
    }

    fn into_established(mut self, handle: ConnectionHandle) -> io::Result<EstablishedConnection> {
        const GONE: io::ErrorKind = io::ErrorKind::ConnectionAborted;
        let made = self.pending.get(&handle).ok_or(GONE)?;
        let socket = connect_accepted(&self.socket, made.called, made.connection.remote_address())?;
        // Datagrams that came before wait at the other socket. A failure comes again with the next
        // datagram.
        let _ = self.receive_datagrams(Instant::now());
        let PendingHandshake {
            connection,
            signals,
            ..
        } = self.pending.remove(&handle).ok_or(GONE)?;
        self.endpoint.set_server_config(None);
        Ok(EstablishedConnection {
            socket,
            endpoint: self.endpoint,
            handle,
            connection,
            signals,
        })
    }
}

fn endpoint_config() -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::default();
    // It is within what the library permits.
    let _ = config.max_udp_payload_size(MAX_DATAGRAM);
    Arc::new(config)
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
