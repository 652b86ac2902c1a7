//! The streams of a transfer, and what is counted of each.

use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fullpipe_record::Datagrams;
use fullpipe_sys::{lock, socket_memory};
use fullpipe_units::ByteCount;
use socket2::SockRef;

use super::framed::FramedStream;

/// The part that this end plays in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamRole {
    /// This end writes.
    Sender,
    /// This end reads.
    Receiver,
}

/// A connection or a socket that carries a stream.
pub(crate) enum StreamChannel {
    /// A connection.
    Tcp(TcpStream),
    /// A socket that is connected to its peer.
    Udp(UdpSocket),
    /// A connection whose data is framed.
    Framed(Arc<FramedStream>),
}

impl AsFd for StreamChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
            Self::Framed(stream) => stream.socket.as_fd(),
        }
    }
}

/// A stream that is to carry data one way.
pub(crate) struct PlannedStream {
    /// The connection or socket that carries it.
    pub channel: StreamChannel,
    /// The part of this end.
    pub role: StreamRole,
}

/// The counts of this end for one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StreamCount {
    /// Bytes written or read; with UDP, those of datagrams with a number.
    pub bytes: ByteCount,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// The datagrams that arrived. Those dropped here are counted since the socket was made, which
    /// may be earlier; how many they are is not known where the kernel joined them.
    pub datagrams: Datagrams,
}

impl StreamCount {
    /// Returns the counts since `earlier`, as [`Datagrams::counts_since`] has it.
    #[must_use]
    pub(crate) fn counts_since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            datagrams_sent: self.datagrams_sent.saturating_sub(earlier.datagrams_sent),
            datagrams: self.datagrams.counts_since(&earlier.datagrams),
        }
    }
}

/// A stream with a thread at work on it.
pub(crate) struct RunningStream {
    pub channel: StreamChannel,
    pub role: StreamRole,
    /// True if the kernel has joined datagrams that arrived: then it may have dropped joined ones,
    /// too.
    joins: AtomicBool,
    count: Mutex<StreamCount>,
}

impl RunningStream {
    pub(crate) fn new(lane: PlannedStream) -> Self {
        Self {
            channel: lane.channel,
            role: lane.role,
            joins: AtomicBool::new(false),
            count: Mutex::default(),
        }
    }

    /// The kernel has joined datagrams.
    pub(crate) fn note_joined_datagrams(&self) {
        self.joins.store(true, Ordering::Relaxed);
    }

    /// To be counted on; held only for as long as that takes.
    pub(crate) fn lock_count(&self) -> MutexGuard<'_, StreamCount> {
        lock(&self.count)
    }

    /// Returns the counts so far, with the drops that the kernel reports.
    pub(crate) fn total_count(&self) -> StreamCount {
        let mut total = *self.lock_count();
        if self.role == StreamRole::Receiver {
            // What is dropped together counts as one, which hides how many they were.
            total.datagrams.dropped_here = self
                .dropped_messages()
                .filter(|drops| *drops == 0 || !self.joins.load(Ordering::Relaxed));
        }
        total
    }

    /// Wakes whoever waits for the socket, in one direction or both.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // What came to its own end may be followed by another transfer.
        if matches!(&self.channel, StreamChannel::Framed(stream) if stream.has_ended()) {
            return;
        }
        // A connection that is gone already needs no closing.
        let _ = SockRef::from(&self.channel).shutdown(how);
    }

    /// Messages that the kernel has dropped for want of room in this socket since it was made;
    /// nothing where it does not report, and of TCP. It is the counter that `SO_RXQ_OVFL` reports,
    /// with those that were dropped behind the last that was read.
    pub(crate) fn dropped_messages(&self) -> Option<u64> {
        match &self.channel {
            StreamChannel::Tcp(_) | StreamChannel::Framed(_) => None,
            StreamChannel::Udp(socket) => socket_memory(socket).ok().map(|memory| memory.drops),
        }
    }
}
