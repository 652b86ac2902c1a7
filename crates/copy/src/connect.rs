//! Connections for data, made in either direction.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fullpipe_control::{
    AddressPrefix, AuthenticatedPeer, ControlConnection, HANDSHAKE, PinnedTls, connect_to_first,
    listen_tcp, single_threaded_runtime,
};
use fullpipe_iperf::SharedKey;
use fullpipe_sys::{start_thread, tcp_info};
use fullpipe_units::{Span, to_hexadecimal};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::address::at_port;
use crate::data_stream::DataStream;
use crate::shared::SharedFlag;

/// Time for a connection, and for its handshake.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(4);

/// Time by which the call of an address precedes that of the next one.
const START: Duration = Duration::from_millis(250);

/// Connections for data of one copy at most.
pub(crate) const MAX_CONNECTIONS: u16 = 256;

/// Callers at once that have not yet proved who they are: all connections of a copy may come
/// together.
const MAX_PENDING: usize = MAX_CONNECTIONS as usize;

/// Time between two checks whether listening goes on.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The credentials that both ends of a connection have: TLS whose keys follow from the secret, and
/// the secret as a key that is proved where nothing is encrypted.
#[derive(Clone)]
pub(crate) struct CopyCredentials {
    key: SharedKey,
    tls: PinnedTls,
    /// Networks between whose addresses connections are not encrypted.
    unencrypted: Vec<AddressPrefix>,
}

impl CopyCredentials {
    /// Returns the credentials of a secret that both ends know.
    pub(crate) fn new(secret: &[u8; 32], unencrypted: &[AddressPrefix]) -> io::Result<Self> {
        let key = SharedKey::from_file_content(to_hexadecimal(secret).as_bytes())
            .map_err(io::Error::other)?;
        let tls = PinnedTls::of_secret(secret).map_err(io::Error::other)?;
        Ok(Self {
            key,
            tls,
            unencrypted: unencrypted.to_vec(),
        })
    }

    /// Returns the credentials of connections that are always inside this TLS.
    pub(crate) fn of_tls(key: &SharedKey, tls: PinnedTls) -> Self {
        Self {
            key: key.clone(),
            tls,
            unencrypted: Vec::new(),
        }
    }

    /// Returns true if the user has named both addresses of a connection.
    fn may_be_plain(&self, stream: &TcpStream) -> io::Result<bool> {
        Ok(self.is_unencrypted(stream.local_addr()?) && self.is_unencrypted(stream.peer_addr()?))
    }

    fn is_unencrypted(&self, address: SocketAddr) -> bool {
        self.unencrypted
            .iter()
            .any(|network| network.contains_address(address.ip()))
    }

    async fn call_peer(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        if self.may_be_plain(&stream)? {
            return Ok(AuthenticatedPeer::connect_peer(stream, &self.key, None)
                .await?
                .control);
        }
        self.tls.connect_pinned(stream).await
    }

    async fn answer_peer(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        // The caller may know the addresses by other names, and then encrypts.
        let is_plain = self.may_be_plain(&stream)? && {
            let mut first = [0];
            stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE
        };
        if is_plain {
            return Ok(AuthenticatedPeer::accept_peer(stream, &self.key, None)
                .await?
                .control);
        }
        self.tls.accept_pinned(stream).await
    }
}

/// A port that takes connections of who knows the secret.
pub(crate) struct DataListener {
    pub port: u16,
    /// The way in for connections that come to another port.
    pub joined: Sender<DataStream>,
    streams: Receiver<DataStream>,
    stopped: Arc<SharedFlag>,
}

impl DataListener {
    /// Listens on the first free port of a range; on any if both are zero. Without an address it
    /// listens on all.
    ///
    /// # Errors
    /// Fails if none is free.
    pub(crate) fn start_listening(
        bind: Option<IpAddr>,
        ports: (u16, u16),
        credentials: &CopyCredentials,
    ) -> io::Result<Self> {
        let (streams, received) = channel();
        let joined = streams.clone();
        let (ready, port) = channel();
        let stopped = Arc::<SharedFlag>::default();
        let (stop, credentials) = (Arc::clone(&stopped), credentials.clone());
        start_thread("copy-listen", move || {
            let runtime = match single_threaded_runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            LocalSet::new().block_on(&runtime, async {
                match bind_port(bind, ports) {
                    Ok(listener) => {
                        let _ = ready.send(listener.local_addr().map(|address| address.port()));
                        accept_streams(&listener, &credentials, &streams, &stop).await;
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
        })?;
        let port = port.recv().map_err(io::Error::other)??;
        Ok(Self {
            port,
            joined,
            streams: received,
            stopped,
        })
    }

    /// Returns a listener without a port, which takes only connections that come to another one.
    pub(crate) fn without_port() -> Self {
        let (joined, streams) = channel();
        Self {
            port: 0,
            joined,
            streams,
            stopped: Arc::default(),
        }
    }

    /// Waits for up to `count` connections until `deadline`, and returns those that came.
    pub(crate) fn take_streams(&self, count: usize, deadline: Duration) -> Vec<DataStream> {
        let until = Instant::now() + deadline;
        std::iter::from_fn(|| {
            self.streams
                .recv_timeout(until.saturating_duration_since(Instant::now()))
                .ok()
        })
        .take(count)
        .collect()
    }
}

impl Drop for DataListener {
    fn drop(&mut self) {
        self.stopped.raise_flag();
    }
}

fn bind_port(bind: Option<IpAddr>, (first, last): (u16, u16)) -> io::Result<TcpListener> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for port in first..=last.max(first) {
        match listen_tcp(bind, port, |_| Ok(())) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error.cause,
        }
    }
    Err(failed)
}

async fn accept_streams(
    listener: &TcpListener,
    credentials: &CopyCredentials,
    streams: &Sender<DataStream>,
    stop: &SharedFlag,
) {
    let pending = Arc::new(Semaphore::new(MAX_PENDING));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS.into()));
    while !stop.is_raised() {
        let stream = match timeout(POLL_INTERVAL, listener.accept()).await {
            Ok(Ok((stream, _))) => stream,
            Ok(Err(_)) => {
                // There is no descriptor left.
                sleep(POLL_INTERVAL).await;
                continue;
            }
            Err(_) => continue,
        };
        let Ok(permit) = Arc::clone(&pending).try_acquire_owned() else {
            continue;
        };
        let (credentials, streams, places) =
            (credentials.clone(), streams.clone(), Arc::clone(&places));
        spawn_local(async move {
            join_stream(stream, &credentials, &streams, &places).await;
            drop(permit);
        });
    }
}

async fn join_stream(
    stream: TcpStream,
    credentials: &CopyCredentials,
    streams: &Sender<DataStream>,
    places: &Semaphore,
) {
    // Clients that do not prove the secret are dropped without an answer.
    if let Ok(Ok(connection)) = timeout(CONNECT_DEADLINE, credentials.answer_peer(stream)).await
        && let Ok(stream) = DataStream::from_control(connection)
        && let Ok(place) = places.try_acquire()
    {
        place.forget();
        let _ = streams.send(stream);
    }
}

/// Makes connections to the one of `hosts`, whatever their ports, that answers first on `port`, as
/// many as `count` says for its round-trip time, and returns those that were made.
///
/// # Errors
/// Fails if none was made, with the last reason.
pub(crate) fn dial_hosts(
    hosts: &[SocketAddr],
    port: u16,
    credentials: &CopyCredentials,
    count: &mut dyn FnMut(Span) -> u16,
) -> io::Result<(SocketAddr, Vec<DataStream>)> {
    let runtime = single_threaded_runtime()?;
    let mut addresses: Vec<SocketAddr> = hosts.iter().map(|host| at_port(*host, port)).collect();
    LocalSet::new().block_on(&runtime, async {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the other end has no address");
        while !addresses.is_empty() {
            // The address that answers may be another one: that of loopback instead of the
            // unspecified one.
            let called = connect_to_first(&addresses, START, |address| async move {
                Ok((address, TcpStream::connect(address).await?))
            });
            let (address, first) = within_deadline(called).await?;
            match dial_more(first, address, credentials, count).await {
                Ok(made) => return Ok((address, made)),
                // Another host may have this address here.
                Err(error) => failed = error,
            }
            addresses.retain(|other| *other != address);
        }
        Err(failed)
    })
}

/// Makes `count` connections at once to an address at which the other end has answered before, and
/// returns those that were made.
///
/// # Errors
/// Fails if none was made, with the last reason.
pub(crate) fn dial_at_once(
    address: SocketAddr,
    credentials: &CopyCredentials,
    count: u16,
) -> io::Result<Vec<DataStream>> {
    let runtime = single_threaded_runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let calls = begin_calls(address, credentials, count);
        made_of(calls.join_all().await)
    })
}

/// The number of connections is known after one round trip, in the middle of the first, so that all
/// take no longer than one and one more round trip.
async fn dial_more(
    first: TcpStream,
    address: SocketAddr,
    credentials: &CopyCredentials,
    count: &mut dyn FnMut(Span) -> u16,
) -> io::Result<Vec<DataStream>> {
    let count = count(tcp_info(&first)?.rtt.unwrap_or_default());
    let calls = begin_calls(address, credentials, count.saturating_sub(1));
    let first = within_deadline(encrypt_stream(first, credentials)).await;
    made_of(std::iter::once(first).chain(calls.join_all().await))
}

fn begin_calls(
    address: SocketAddr,
    credentials: &CopyCredentials,
    count: u16,
) -> JoinSet<io::Result<DataStream>> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let credentials = credentials.clone();
        let call =
            async move { encrypt_stream(TcpStream::connect(address).await?, &credentials).await };
        calls.spawn_local(within_deadline(call));
    }
    calls
}

fn made_of(calls: impl IntoIterator<Item = io::Result<DataStream>>) -> io::Result<Vec<DataStream>> {
    let (mut made, mut failed) = (Vec::new(), None);
    for stream in calls {
        match stream {
            Ok(stream) => made.push(stream),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if made.is_empty() => Err(error),
        _ => Ok(made),
    }
}

async fn within_deadline<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(CONNECT_DEADLINE, step)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn encrypt_stream(
    stream: TcpStream,
    credentials: &CopyCredentials,
) -> io::Result<DataStream> {
    DataStream::from_control(credentials.call_peer(stream).await?)
}

#[cfg(test)]
mod tests;
