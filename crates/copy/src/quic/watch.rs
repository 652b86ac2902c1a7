//! Loss without a queue, as the figures of a QUIC connection show it.

use std::sync::Arc;
use std::time::Instant;

use fullpipe_model::unqueued::{INTERVAL, SenderSample, UnqueuedLoss};
use fullpipe_units::{Ratio, Span};

use super::pipe::QuicConnection;

/// Watches the connection of a sender.
pub(crate) struct QuicWatch {
    connection: Arc<QuicConnection>,
    loss: UnqueuedLoss,
    sampled: Instant,
}

impl QuicWatch {
    pub(crate) fn new(connection: Arc<QuicConnection>) -> Self {
        Self { connection, loss: UnqueuedLoss::default(), sampled: Instant::now() }
    }

    /// Changes its congestion control once packets are lost without a queue, and returns the share that is.
    pub(crate) fn follow(&mut self) -> Option<Ratio> {
        if Span::from(self.sampled.elapsed()) < INTERVAL || self.connection.congestion_control() == "bbr" {
            return None;
        }
        self.sampled = Instant::now();
        let figures = self.connection.figures();
        let loss = self.loss.follow(SenderSample {
            segments: figures.packets,
            retransmitted: figures.lost,
            acknowledged: figures.sent,
            rtt: figures.rtt.into(),
            min_rtt: figures.min_rtt.into(),
        });
        if loss.is_some() {
            self.connection.tolerate_loss();
        }
        loss
    }
}
