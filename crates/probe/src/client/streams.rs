//! Opens the data connections of a test, many at a time.
//!
//! A server numbers the connections as they arrive, and nothing but that order joins the two ends
//! of a stream. This end numbers them as they are established, which is the same order unless a
//! packet is lost or overtaken. Where data goes both ways the number decides who sends, so the
//! second direction is opened only when the server has the whole first one.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream as StdTcpStream, UdpSocket as StdUdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::call_back::{CallBack, GETTING_CALLS};
use crate::engine::{LocalEndpoint, StreamChannel, apply_options, prepare_socket, prepare_udp};
use crate::route::{SynAckSniffer, caller_handshake, first_window};
use fullpipe_iperf::{TestCookie, direction_of, udp};
use fullpipe_record::{Direction, Handshake, Request, Transport};
use fullpipe_units::{ByteCount, Span};
use rustix::io::Errno;
use socket2::{SockRef, Socket};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use crate::error::ProbeError;

/// Maximum number of connections that are opened at the same time: fewer than a fullpipe server
/// accepts from one address before they send their cookies.
const MAX_TOGETHER: u16 = 96;

/// Longest time between the first packets of two connections. Sent in one burst they would overflow
/// a short queue.
const MAX_SPACING: Span = Span::from_millis(1);

/// Time that a server may take to answer the hello of a UDP stream.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a closed UDP port may be one that the server is about to open again for the next
/// stream.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two hellos to a port that was closed.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);

/// Time after which a hello is sent again to a server that takes it twice.
const REPEAT_HELLO: Duration = Duration::from_secs(1);

/// Time between two checks if the server has acknowledged what was sent.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A data connection that is open.
pub(crate) struct OpenStream {
    pub channel: StreamChannel,
    /// Window and options of the server's SYN-ACK; `None` with UDP.
    pub handshake: Option<Handshake>,
}

impl OpenStream {
    /// Returns true if the server's kernel has all that was sent. A UDP stream has been answered
    /// already.
    fn is_taken(&self) -> bool {
        match &self.channel {
            StreamChannel::Tcp(socket) => {
                fullpipe_sys::tcp_info(socket).map_or(true, |info| info.is_acknowledged())
            }
            StreamChannel::Udp(_) | StreamChannel::Framed(_) => true,
        }
    }
}

/// Everything that is needed to open the data connections of one test.
pub(crate) struct StreamOpener<'t> {
    pub address: SocketAddr,
    pub request: &'t Request,
    pub local: &'t LocalEndpoint,
    pub cookie: TestCookie,
    /// Time for one connection to be established, and for its cookie to be acknowledged.
    pub timeout: Duration,
    /// Round-trip time of the control connection, if known.
    pub rtt: Option<Span>,
    /// Set if the server answers hellos of UDP streams that arrive together.
    pub together: bool,
    /// Set if the server opens the connections.
    pub call_back: Option<&'t CallBack>,
}

impl StreamOpener<'_> {
    /// Opens `count` data connections, in the order in which the server numbers them.
    ///
    /// # Errors
    /// Fails if one cannot be established in its time, or this host refuses an option.
    pub(crate) async fn open_streams(&self, count: u16) -> Result<Vec<OpenStream>, ProbeError> {
        let mut open = Vec::with_capacity(count.into());
        for group in self.stream_groups(count) {
            if let Some(before) = open.len().checked_sub(1) {
                self.until_taken(&open[..=before]).await?;
            }
            let streams = match self.request.transport {
                Transport::Tcp => self.open_tcp_streams(group).await?,
                Transport::Udp => self.open_udp_streams(group).await?,
            };
            open.extend(streams);
        }
        Ok(open)
    }

    /// Returns the connections that may be opened together, group by group.
    fn stream_groups(&self, count: u16) -> Vec<Range<u16>> {
        let is_alone = self.request.transport == Transport::Udp && !self.together;
        let most = if is_alone { 1 } else { MAX_TOGETHER };
        let mut groups: Vec<Range<u16>> = Vec::new();
        for index in 0..count {
            match groups.last_mut() {
                Some(group)
                    if group.end - group.start < most
                        && direction_of(self.request, group.start)
                            == direction_of(self.request, index) =>
                {
                    group.end += 1;
                }
                _ => groups.push(index..index + 1),
            }
        }
        groups
    }

    /// Waits until the server's kernel has all that was sent on `streams`.
    async fn until_taken(&self, streams: &[OpenStream]) -> Result<(), ProbeError> {
        let acknowledged = async {
            while !streams.iter().all(OpenStream::is_taken) {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(self.timeout, acknowledged)
            .await
            .map_err(|_| connection_failed(ErrorKind::TimedOut.into()))
    }

    /// Has the server open `count` connections.
    async fn await_called_streams(
        &self,
        call_back: &CallBack,
        count: u16,
    ) -> Result<Vec<OpenStream>, ProbeError> {
        // What the kernel refuses is reported of the sockets, to which it is applied again.
        let prepare = |socket: &Socket| {
            let _ = apply_options(&SockRef::from(socket), self.request);
        };
        let called = call_back
            .await_calls(count, self.local, self.timeout, prepare)
            .await
            .map_err(ProbeError::from_io(GETTING_CALLS))?;
        let mut open = Vec::with_capacity(called.len());
        for stream in called {
            apply_options(&SockRef::from(&stream), self.request)?;
            let sent = send_cookie(stream, self.cookie, self.timeout).await;
            let (stream, _) = sent.map_err(connection_failed)?;
            open.push(OpenStream {
                handshake: caller_handshake(&stream),
                channel: StreamChannel::Tcp(stream),
            });
        }
        Ok(open)
    }

    async fn open_tcp_streams(&self, group: Range<u16>) -> Result<Vec<OpenStream>, ProbeError> {
        if let Some(call_back) = self.call_back {
            let count = group.end - group.start;
            return self.await_called_streams(call_back, count).await;
        }
        let mut sniffer = SynAckSniffer::with_peer(self.address);
        let mut connecting = JoinSet::new();
        let begun = Instant::now();
        for (place, index) in (0..).zip(group.clone()) {
            self.until_due(begun, place, &group).await;
            let socket = prepare_socket(self.address, self.request, &self.local.of_stream(index))?;
            socket.set_nonblocking(true).map_err(connection_failed)?;
            match socket.connect(&self.address.into()) {
                Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                    return Err(connection_failed(error));
                }
                _ => {}
            }
            let stream = TcpStream::from_std(socket.into()).map_err(connection_failed)?;
            connecting.spawn(send_cookie(stream, self.cookie, self.timeout));
        }
        let established = join_all(&mut connecting).await.map_err(connection_failed)?;
        let streams = established.into_iter().map(|(stream, window)| {
            let options_overwritten = stream
                .local_addr()
                .ok()
                .and_then(|local| sniffer.options_overwritten(local));
            let handshake = Some(Handshake {
                window,
                options_overwritten,
            });
            OpenStream {
                channel: StreamChannel::Tcp(stream),
                handshake,
            }
        });
        Ok(streams.collect())
    }

    async fn open_udp_streams(&self, group: Range<u16>) -> Result<Vec<OpenStream>, ProbeError> {
        let mut answers = JoinSet::new();
        let begun = Instant::now();
        for (place, index) in (0..).zip(group.clone()) {
            self.until_due(begun, place, &group).await;
            let socket = prepare_udp(self.address, self.request, &self.local.of_stream(index))?;
            socket.set_nonblocking(true).map_err(flow_failed)?;
            socket.connect(&self.address.into()).map_err(flow_failed)?;
            let hellos = self.hello_payloads();
            socket.send(&hellos[0]).map_err(flow_failed)?;
            let socket = UdpSocket::from_std(socket.into()).map_err(flow_failed)?;
            let repeat = self.together.then_some(REPEAT_HELLO);
            answers.spawn(until_answered(
                socket,
                hellos,
                repeat,
                self.takes_data(index),
            ));
        }
        let answered = join_all(&mut answers).await.map_err(flow_failed)?;
        let streams = answered.into_iter().map(|socket| OpenStream {
            channel: StreamChannel::Udp(socket),
            handshake: None,
        });
        Ok(streams.collect())
    }

    /// Returns the hellos of a UDP stream: the usual one, and before it one with the cookie for a
    /// fullpipe server, which version 0.1 ignores.
    fn hello_payloads(&self) -> Vec<Vec<u8>> {
        let own = self.together.then(|| udp::hello_with(&self.cookie));
        own.into_iter().chain([udp::HELLO.to_vec()]).collect()
    }

    /// Returns true if data on UDP stream `index` shows that the server has the stream, like an
    /// answer: it sends data once it has all streams. Data on a port that the user chose may be
    /// that of the test before.
    fn takes_data(&self, index: u16) -> bool {
        direction_of(self.request, index) == Direction::Download && self.local.port.is_none()
    }

    /// Waits until the connection at `place` of `group` is due. All of a group are begun within one
    /// round trip.
    async fn until_due(&self, begun: Instant, place: u32, group: &Range<u16>) {
        let spacing = (self.rtt.unwrap_or_default() / group.len() as u64).min(MAX_SPACING);
        let due = Duration::from(spacing) * place;
        let left = due.saturating_sub(begun.elapsed());
        // Timers have no finer resolution.
        if left >= POLL_INTERVAL {
            sleep(left).await;
        }
    }
}

/// Returns the results of the tasks of `set`, in the order in which they ended; the first error
/// ends the others.
async fn join_all<T: 'static>(set: &mut JoinSet<io::Result<T>>) -> io::Result<Vec<T>> {
    let mut results = Vec::with_capacity(set.len());
    while let Some(ended) = set.join_next().await {
        results.push(ended.map_err(io::Error::other)??);
    }
    Ok(results)
}

/// Waits until `stream` is established and writes the cookie; returns the window of the server's
/// SYN-ACK with the stream.
async fn send_cookie(
    mut stream: TcpStream,
    cookie: TestCookie,
    limit: Duration,
) -> io::Result<(StdTcpStream, Option<ByteCount>)> {
    let greeting = async {
        stream.writable().await?;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let window = first_window(&stream);
        stream.write_all(cookie.as_bytes()).await?;
        Ok(window)
    };
    let window = timeout(limit, greeting)
        .await
        .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?;
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok((stream, window))
}

/// Waits for the answer to the first of `hellos`, which was sent on `socket`. Sends all of them if
/// the port was closed, as it is for a moment at a server that makes a socket for each stream, and
/// every `repeat`, if it is set. Data is an answer, too, if `takes_data`.
async fn until_answered(
    socket: UdpSocket,
    hellos: Vec<Vec<u8>>,
    repeat: Option<Duration>,
    takes_data: bool,
) -> io::Result<StdUdpSocket> {
    let (begun, limit) = (Instant::now(), repeat.unwrap_or(HELLO_TIMEOUT));
    while !is_answered(
        timeout(limit, await_reply(&socket, takes_data)).await,
        begun,
    )
    .await?
    {
        if begun.elapsed() >= HELLO_TIMEOUT {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                "the server does not answer over UDP; does a firewall let only TCP through?",
            ));
        }
        for hello in &hellos {
            send_again(&socket, hello).await?;
        }
    }
    let socket = socket.into_std()?;
    socket.set_nonblocking(false)?;
    Ok(socket)
}

async fn send_again(socket: &UdpSocket, hello: &[u8]) -> io::Result<()> {
    loop {
        match socket.send(hello).await {
            // The error answers the hello before; this hello was not sent, so it is sent again.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            sent => return sent.map(drop),
        }
    }
}

/// Returns true if an answer was `awaited` with success; if not, the caller sends the hello once
/// more.
async fn is_answered(awaited: Result<io::Result<()>, Elapsed>, begun: Instant) -> io::Result<bool> {
    match awaited {
        Ok(Err(error))
            if error.kind() == ErrorKind::ConnectionRefused
                && begun.elapsed() < REFUSED_TIMEOUT =>
        {
            sleep(REFUSED_PAUSE).await;
            Ok(false)
        }
        Ok(answered) => answered.map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Waits for the reply to a hello, or for data if that is taken for one; the data stays in the
/// socket, so that it is counted. Anything else that arrives on the port is ignored.
async fn await_reply(socket: &UdpSocket, takes_data: bool) -> io::Result<()> {
    let mut buffer = [0; 64];
    loop {
        if socket.peek(&mut buffer).await? >= udp::MIN_PAYLOAD && takes_data {
            return Ok(());
        }
        let length = socket.recv(&mut buffer).await?;
        if udp::is_reply(&buffer[..length]) {
            return Ok(());
        }
    }
}

fn connection_failed(error: io::Error) -> ProbeError {
    ProbeError::from_io("open a data connection")(error)
}

fn flow_failed(error: io::Error) -> ProbeError {
    ProbeError::from_io("open a UDP stream")(error)
}

#[cfg(test)]
mod tests;
