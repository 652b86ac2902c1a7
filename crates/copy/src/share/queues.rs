//! What waits for the client of a copy in the queues of its connections.

use std::net::{Shutdown, TcpStream as Socket};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use fullpipe_control::{
    QUEUE_INTERVAL, QueueExcess, QueueSample, QueueShare, QueueWatch, StalledBytes,
};
use fullpipe_units::Span;

use crate::session::forget_unsent;

/// The connections of a copy, and what waits for its client in their queues.
pub(super) struct CopyQueues {
    pub call: Socket,
    /// Those that carry data, once they are known.
    carrying: Arc<OnceLock<Arc<[Socket]>>>,
    watches: Vec<QueueWatch>,
    share: QueueShare,
    began: Instant,
    due: Instant,
}

impl CopyQueues {
    pub(super) fn new(
        call: Socket,
        carrying: Arc<OnceLock<Arc<[Socket]>>>,
        share: QueueShare,
        began: Instant,
    ) -> Self {
        Self {
            call,
            carrying,
            watches: Vec::new(),
            share,
            began,
            due: began,
        }
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        std::iter::once(&self.call).chain(
            self.carrying
                .get()
                .into_iter()
                .flat_map(|sockets| sockets.iter()),
        )
    }

    /// Looks at the queues if it is time.
    ///
    /// # Errors
    /// Fails if the copy must end because its client leaves too much there.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), QueueExcess> {
        if now < self.due {
            return Ok(());
        }
        self.due = now + QUEUE_INTERVAL;
        let at = Span::from(now.saturating_duration_since(self.began));
        // One that has ended has no queue.
        let samples: Vec<_> = self
            .sockets()
            .map(|socket| QueueSample::from_socket(socket).unwrap_or_default())
            .collect();
        self.watches.resize(samples.len(), QueueWatch::default());
        let watched = self
            .watches
            .iter_mut()
            .zip(&samples)
            .map(|(watch, sample)| watch.follow(at, sample));
        self.share
            .record_bytes(watched.fold(StalledBytes::default(), StalledBytes::plus))
    }

    /// Ends the copy by its connections, and drops what waits in their queues.
    pub(super) fn end(&self) {
        forget_unsent(self.sockets());
        // It may have ended by itself.
        let _ = self.call.shutdown(Shutdown::Both);
    }
}
