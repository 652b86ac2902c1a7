//! Loss without a queue, as the figures of a QUIC connection show it.

use std::sync::Arc;

use fullpipe_model::unqueued::{LOSSY, MIN_EVENTS};
use fullpipe_record::packets_wait;
use fullpipe_units::Ratio;

use super::pipe::{QuicConnection, QuicFigures};

/// Watches the connection of a sender.
pub(crate) struct QuicWatch {
    connection: Arc<QuicConnection>,
    evidence: LossEvidence,
}

impl QuicWatch {
    pub(crate) fn new(connection: Arc<QuicConnection>) -> Self {
        Self {
            connection,
            evidence: LossEvidence::default(),
        }
    }

    /// Changes its congestion control once packets are lost without a queue, and returns the share
    /// that is.
    pub(crate) fn check_loss(&mut self) -> Option<Ratio> {
        if self.connection.tolerates_loss() {
            return None;
        }
        let loss = self.evidence.add_figures(self.connection.quic_figures());
        if loss.is_some() {
            self.connection.tolerate_loss();
        }
        loss
    }
}

/// Figures at the end of the last queue.
#[derive(Default)]
struct LossEvidence(QuicFigures);

impl LossEvidence {
    /// Returns the share of packets that were lost since the last queue, once it is known and
    /// large.
    fn add_figures(&mut self, figures: QuicFigures) -> Option<Ratio> {
        if packets_wait(figures.rtt.into(), figures.min_rtt.into()) {
            self.0 = figures;
        }
        let (packets, lost) = (figures.packets - self.0.packets, figures.lost - self.0.lost);
        let share = Ratio::from_quotient(lost as f64, packets.max(1) as f64);
        let is_known = figures.loss_events >= self.0.loss_events + u64::from(MIN_EVENTS);
        Some(share).filter(|share| is_known && share.get() >= LOSSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn loss_counts_since_the_last_queue() {
        let figures = |packets, lost, rtt| QuicFigures {
            packets,
            lost,
            loss_events: lost,
            rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(100),
            ..QuicFigures::default()
        };
        let mut evidence = LossEvidence::default();
        assert_eq!(evidence.add_figures(figures(1000, 30, 190)), None);
        assert_eq!(evidence.add_figures(figures(1100, 32, 101)), None);
        assert_eq!(
            evidence.add_figures(figures(1300, 33, 102)),
            Some(Ratio::new(0.01))
        );
        assert_eq!(evidence.add_figures(figures(200_000, 33, 102)), None);
    }
}
