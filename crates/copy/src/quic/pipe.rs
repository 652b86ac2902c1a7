//! A connection, and the ends of its streams that the threads of a copy read and write.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use fullpipe_units::Span;
use quinn::{Connection, RecvStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::congestion::PathSignals;
use super::portions::{HEAD, PORTION, PortionHead};
use super::udp::UdpBuffer;
use fullpipe_sys::lock;

/// Parts of a stream that are taken from the connection at once.
const PARTS: usize = 64;

/// A connection whose other end has proved that it knows the secret.
#[derive(Debug)]
pub(crate) struct QuicConnection {
    pub(super) connection: Connection,
    /// Of the thread that drives the connection.
    pub(super) runtime: Handle,
    pub(super) signals: Arc<PathSignals>,
    /// Round-trip time of the handshake.
    pub(super) rtt: Duration,
    pub(super) buffer: UdpBuffer,
    pub(super) outgoing: Arc<OutgoingState>,
}

/// Figures of a connection up to now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QuicFigures {
    /// Packets that were sent, those of them that were lost, and round trips in which some were.
    pub packets: u64,
    pub lost: u64,
    pub loss_events: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    pub min_rtt: Duration,
    /// Time with data that waited to be sent.
    pub busy: Duration,
}

/// What the streams that send share.
#[derive(Debug)]
pub(super) struct OutgoingState {
    /// Priority of the next portion: those that were begun earlier go first.
    priority: AtomicI32,
    /// Portions that wait to be sent, since when some do, and how long some did before.
    busy: Mutex<(u16, Instant, Duration)>,
}

impl OutgoingState {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            priority: AtomicI32::new(i32::MAX),
            busy: Mutex::new((0, Instant::now(), Duration::ZERO)),
        })
    }

    /// Sends `portion` on a stream of its own; waits until the connection has taken all of it.
    async fn send_portion(&self, connection: &Connection, portion: Bytes) -> io::Result<()> {
        let mut stream = connection.open_uni().await?;
        // It fails only on a stream that is closed.
        let _ = stream.set_priority(self.priority.fetch_sub(1, Ordering::Relaxed));
        stream.write_chunk(portion).await?;
        stream.finish().map_err(io::Error::other)
    }

    fn begin_waiting(&self) {
        let (waiting, since, _) = &mut *lock(&self.busy);
        if *waiting == 0 {
            *since = Instant::now();
        }
        *waiting += 1;
    }

    fn end_waiting(&self) {
        let (waiting, since, before) = &mut *lock(&self.busy);
        *waiting -= 1;
        if *waiting == 0 {
            *before += since.elapsed();
        }
    }

    fn busy_time(&self) -> Duration {
        match *lock(&self.busy) {
            (0, _, before) => before,
            (_, since, before) => before + since.elapsed(),
        }
    }
}

impl QuicConnection {
    /// Returns the ends of so many streams that send.
    pub(crate) fn stream_writers(&self, count: u16) -> Vec<QuicWriter> {
        (0..count)
            .map(|stream| QuicWriter {
                connection: self.connection.clone(),
                runtime: self.runtime.clone(),
                outgoing: Arc::clone(&self.outgoing),
                stream,
                number: 0,
                portion: Vec::new(),
            })
            .collect()
    }

    /// Returns the ends of so many streams that receive.
    pub(crate) fn stream_readers(&self, count: u16) -> Vec<QuicReader> {
        let (arrived, readers) = (0..count)
            .map(|_| {
                let (arrived, portions) = unbounded_channel();
                (arrived, QuicReader::new(self.runtime.clone(), portions))
            })
            .unzip();
        let connection = self.connection.clone();
        self.runtime
            .spawn(accept_portions(connection, Arc::new(arrived)));
        readers
    }

    /// Returns the round-trip time of the handshake.
    pub(crate) fn handshake_rtt(&self) -> Span {
        self.rtt.into()
    }

    pub(crate) fn quic_figures(&self) -> QuicFigures {
        let path = self.connection.stats().path;
        QuicFigures {
            packets: path.sent_packets,
            lost: path.lost_packets,
            loss_events: path.congestion_events,
            rtt: path.rtt,
            min_rtt: self.signals.min_rtt(),
            busy: self.outgoing.busy_time(),
        }
    }

    /// Returns a sentence if the kernel has not permitted the receive buffer that was asked for.
    pub(crate) fn lacks_buffer(&self) -> Option<String> {
        let UdpBuffer { asked, permitted } = self.buffer;
        let maximum = asked.get();
        (permitted < asked).then(|| {
            format!(
                "the receiver's UDP buffer holds {permitted} of {asked} (net.core.rmem_max): datagrams that come while \
                 no processor is free are lost; sysctl -w net.core.rmem_max={maximum} there"
            )
        })
    }

    /// Returns the reason for which it has ended, if it has.
    pub(crate) fn closed_reason(&self) -> Option<String> {
        self.connection.close_reason().map(|why| why.to_string())
    }

    /// Lets loss alone not slow it down any more.
    pub(crate) fn tolerate_loss(&self) {
        self.signals.set_lossy();
    }

    /// Returns true if loss alone does not slow it down.
    pub(crate) fn tolerates_loss(&self) -> bool {
        self.signals.is_lossy()
    }

    /// Returns the name of its congestion control.
    pub(crate) fn congestion_control(&self) -> &'static str {
        if self.tolerates_loss() {
            "bbr"
        } else {
            "cubic"
        }
    }

    /// Closes it. Its streams end.
    pub(crate) fn close_connection(&self) {
        self.connection.close(0_u32.into(), b"");
    }
}

impl Drop for QuicConnection {
    fn drop(&mut self) {
        self.close_connection();
    }
}

/// A portion with its number.
type NumberedPortion = (u32, RecvStream);

/// Passes each portion that comes to its stream, until the connection ends.
async fn accept_portions(
    connection: Connection,
    streams: Arc<Vec<UnboundedSender<NumberedPortion>>>,
) {
    while let Ok(mut portion) = connection.accept_uni().await {
        let (connection, streams) = (connection.clone(), Arc::clone(&streams));
        tokio::spawn(async move {
            let mut head = [0; HEAD];
            if portion.read_exact(&mut head).await.is_err() {
                return;
            }
            let PortionHead { stream, number } = PortionHead::from_bytes(head);
            match streams.get(usize::from(stream)) {
                // A reader that is gone wants no more.
                Some(arrived) => drop(arrived.send((number, portion))),
                None => connection.close(1_u32.into(), b"a portion of no stream"),
            }
        });
    }
}

/// The end of a stream that sends.
pub(crate) struct QuicWriter {
    connection: Connection,
    runtime: Handle,
    outgoing: Arc<OutgoingState>,
    stream: u16,
    /// Number of the next portion.
    number: u32,
    /// The portion that is being filled, behind its head.
    portion: Vec<u8>,
}

impl Write for QuicWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.portion.is_empty() {
            self.portion.reserve_exact(HEAD + PORTION);
            let (stream, number) = (self.stream, self.number);
            self.portion
                .extend(PortionHead { stream, number }.to_bytes());
        }
        let taken = bytes.len().min(HEAD + PORTION - self.portion.len());
        self.portion.extend_from_slice(&bytes[..taken]);
        if self.portion.len() == HEAD + PORTION {
            self.flush()?;
        }
        Ok(taken)
    }

    /// Passes on what there is, and waits for room.
    fn flush(&mut self) -> io::Result<()> {
        if self.portion.is_empty() {
            return Ok(());
        }
        self.number += 1;
        let portion = std::mem::take(&mut self.portion).into();
        self.outgoing.begin_waiting();
        let sending = self.outgoing.send_portion(&self.connection, portion);
        let sent = self.runtime.block_on(sending);
        self.outgoing.end_waiting();
        sent
    }
}

/// The end of a stream that receives.
pub(crate) struct QuicReader {
    runtime: Handle,
    arrived: UnboundedReceiver<NumberedPortion>,
    /// Portions that came before their turn.
    waiting: BTreeMap<u32, RecvStream>,
    /// Number of the next portion.
    next: u32,
    current: Option<RecvStream>,
    /// Bytes that were taken from the connection; those at `at` are to be read next.
    parts: [Bytes; PARTS],
    at: usize,
}

impl Read for QuicReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.parts.get(self.at).is_none_or(Bytes::is_empty) {
            self.runtime.clone().block_on(self.take_parts())?;
        }
        let part = &mut self.parts[self.at];
        let count = part.len().min(into.len());
        part.copy_to_slice(&mut into[..count]);
        if part.is_empty() {
            self.at += 1;
        }
        Ok(count)
    }
}

impl QuicReader {
    fn new(runtime: Handle, arrived: UnboundedReceiver<NumberedPortion>) -> Self {
        Self {
            runtime,
            arrived,
            waiting: BTreeMap::new(),
            next: 0,
            current: None,
            parts: [const { Bytes::new() }; PARTS],
            at: 0,
        }
    }

    /// Takes over what has come, and waits for something.
    async fn take_parts(&mut self) -> io::Result<()> {
        loop {
            if let Some(portion) = &mut self.current {
                self.parts.fill(Bytes::new());
                if portion.read_chunks(&mut self.parts).await?.is_some() {
                    self.at = 0;
                    return Ok(());
                }
                self.next = self.next.saturating_add(1);
            }
            self.current = Some(self.next_portion().await?);
        }
    }

    async fn next_portion(&mut self) -> io::Result<RecvStream> {
        loop {
            if let Some(portion) = self.waiting.remove(&self.next) {
                return Ok(portion);
            }
            let arrived = self.arrived.recv().await;
            let (number, portion) = arrived.ok_or(io::ErrorKind::ConnectionAborted)?;
            if number < self.next || self.waiting.insert(number, portion).is_some() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}
