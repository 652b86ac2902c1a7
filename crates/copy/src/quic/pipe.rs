//! The state that the threads of a copy and the one that drives a connection share.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullpipe_units::{ByteCount, Span};
use rustix::event::{EventfdFlags, eventfd};

use super::congestion::PathSignals;
use super::portions::{HEAD, PORTION, PortionHead};
use crate::locks::lock;

/// Bytes that wait to be sent until the threads that send wait, too.
const MAX_OUTGOING: usize = 4 << 20;

/// Bytes of a stream that wait to be read until no more is taken from the connection.
pub(super) const MAX_INCOMING: usize = 1 << 20;

/// A connection whose other end has proved that it knows the secret.
#[derive(Debug)]
pub(crate) struct QuicConnection {
    shared: Arc<QuicShared>,
}

/// Figures of a connection up to now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QuicFigures {
    /// Packets that were sent, those of them that were lost, and round trips in which some were.
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    pub(crate) loss_events: u64,
    /// Smoothed round-trip time.
    pub(crate) rtt: Duration,
    pub(crate) min_rtt: Duration,
    /// Time with data that waited to be sent.
    pub(crate) busy: Duration,
}

/// The receive buffer of a UDP socket: what was asked for, and what the kernel permitted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UdpBuffer {
    pub(super) asked: ByteCount,
    pub(super) permitted: ByteCount,
}

/// Shared with the thread that drives the connection.
#[derive(Debug)]
pub(super) struct QuicShared {
    state: Mutex<QuicState>,
    changed: Condvar,
    pub(super) signals: Arc<PathSignals>,
    pub(super) wake: OwnedFd,
    pub(super) rtt: Duration,
    pub(super) buffer: UdpBuffer,
}

#[derive(Debug, Default)]
pub(super) struct QuicState {
    /// Whole portions, in the order of each stream, and their bytes.
    pub(super) outgoing: VecDeque<Bytes>,
    outgoing_bytes: usize,
    /// By stream.
    pub(super) incoming: Vec<IncomingBytes>,
    /// The reason for which nothing crosses any more.
    closed: Option<String>,
    /// The copy does not need it any more.
    pub(super) is_unwanted: bool,
    pub(super) figures: QuicFigures,
}

/// Bytes of a stream that have come and were not read yet.
#[derive(Debug, Default)]
pub(super) struct IncomingBytes {
    pub(super) parts: VecDeque<Bytes>,
    pub(super) bytes: usize,
    /// The thread that drives waits until it is read.
    pub(super) is_full: bool,
}

impl QuicShared {
    /// Returns the state of a connection with this round-trip time.
    pub(super) fn new(
        signals: Arc<PathSignals>,
        rtt: Duration,
        buffer: UdpBuffer,
    ) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            signals,
            wake,
            rtt,
            buffer,
        })
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, QuicState> {
        lock(&self.state)
    }

    /// Wakes the threads that send or receive.
    pub(super) fn notify_streams(&self) {
        self.changed.notify_all();
    }

    /// Ends all streams, for the first of all reasons.
    pub(super) fn close_streams(&self, why: &str) {
        self.lock_state()
            .closed
            .get_or_insert_with(|| why.to_owned());
        self.notify_streams();
    }

    /// Wakes the thread that drives.
    fn wake_driver(&self) {
        // A counter that is full wakes it as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn wait_for_change<'s>(&self, state: MutexGuard<'s, QuicState>) -> MutexGuard<'s, QuicState> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuicState {
    /// Returns the next portion to send.
    pub(super) fn take_outgoing(&mut self) -> Option<Bytes> {
        let portion = self.outgoing.pop_front()?;
        self.outgoing_bytes -= portion.len();
        Some(portion)
    }

    fn check_open(&self) -> io::Result<()> {
        match &self.closed {
            Some(why) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                why.clone(),
            )),
            None => Ok(()),
        }
    }
}

impl QuicConnection {
    pub(super) const fn new(shared: Arc<QuicShared>) -> Self {
        Self { shared }
    }

    /// Returns the ends of so many streams that send.
    pub(crate) fn stream_writers(&self, count: u16) -> Vec<QuicWriter> {
        (0..count)
            .map(|stream| QuicWriter {
                shared: Arc::clone(&self.shared),
                stream,
                number: 0,
                portion: Vec::new(),
            })
            .collect()
    }

    /// Returns the ends of so many streams that receive.
    pub(crate) fn stream_readers(&self, count: u16) -> Vec<QuicReader> {
        self.shared
            .lock_state()
            .incoming
            .resize_with(count.into(), IncomingBytes::default);
        // What came before is waiting for its reader.
        self.shared.wake_driver();
        (0..count.into())
            .map(|stream| QuicReader {
                shared: Arc::clone(&self.shared),
                stream,
                parts: VecDeque::new(),
            })
            .collect()
    }

    /// Returns the round-trip time of the handshake.
    pub(crate) fn handshake_rtt(&self) -> Span {
        self.shared.rtt.into()
    }

    pub(crate) fn quic_figures(&self) -> QuicFigures {
        let mut figures = self.shared.lock_state().figures;
        figures.min_rtt = self.shared.signals.min_rtt();
        figures
    }

    /// Returns a sentence if the kernel has not permitted the receive buffer that was asked for.
    pub(crate) fn lacks_buffer(&self) -> Option<String> {
        let UdpBuffer { asked, permitted } = self.shared.buffer;
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
        self.shared.lock_state().closed.clone()
    }

    /// Lets loss alone not slow it down any more.
    pub(crate) fn tolerate_loss(&self) {
        self.shared.signals.set_lossy();
    }

    /// Returns true if loss alone does not slow it down.
    pub(crate) fn tolerates_loss(&self) -> bool {
        self.shared.signals.is_lossy()
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
        self.shared.lock_state().is_unwanted = true;
        self.shared.wake_driver();
    }
}

impl Drop for QuicConnection {
    fn drop(&mut self) {
        self.close_connection();
    }
}

/// The end of a stream that sends.
#[derive(Debug)]
pub(crate) struct QuicWriter {
    shared: Arc<QuicShared>,
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
            self.portion.extend(
                PortionHead {
                    stream: self.stream,
                    number: self.number,
                }
                .to_bytes(),
            );
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
        let mut state = self.shared.lock_state();
        state.check_open()?;
        while state.outgoing_bytes > MAX_OUTGOING {
            state = self.shared.wait_for_change(state);
            state.check_open()?;
        }
        self.number += 1;
        let portion = std::mem::take(&mut self.portion);
        state.outgoing_bytes += portion.len();
        state.outgoing.push_back(portion.into());
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }
}

/// The end of a stream that receives.
#[derive(Debug)]
pub(crate) struct QuicReader {
    shared: Arc<QuicShared>,
    stream: usize,
    /// Bytes that were taken over, to be read.
    parts: VecDeque<Bytes>,
}

impl Read for QuicReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.parts.is_empty() {
            self.take_over()?;
        }
        let Some(part) = self.parts.front_mut() else {
            return Ok(0);
        };
        let count = part.len().min(into.len());
        part.copy_to_slice(&mut into[..count]);
        if part.is_empty() {
            self.parts.pop_front();
        }
        Ok(count)
    }
}

impl QuicReader {
    /// Takes over what has come, and waits for something.
    fn take_over(&mut self) -> io::Result<()> {
        let mut state = self.shared.lock_state();
        while state.incoming[self.stream].parts.is_empty() {
            state.check_open()?;
            state = self.shared.wait_for_change(state);
        }
        let incoming = &mut state.incoming[self.stream];
        let was_full = std::mem::take(&mut incoming.is_full);
        incoming.bytes = 0;
        self.parts = std::mem::take(&mut incoming.parts);
        drop(state);
        if was_full {
            self.shared.wake_driver();
        }
        Ok(())
    }
}
