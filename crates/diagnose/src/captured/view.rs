//! The properties of a captured transfer on which the rules rest.

use fullpipe_record::{At, BurstRate, CaptureEvidence, QuietRounds};
use fullpipe_units::{BitRate, ByteCount, Ratio};

use crate::figures::SenderSampleFigures;
use crate::limits::capacity;
use crate::thresholds::{
    CLOCKED_BURSTS, MAX_FREE_SHARE, MIN_FREE_SHARE, MIN_LEVEL, MIN_QUIET_SHARE,
    MIN_SHARE_BEFORE_LOSS, MIN_SHARE_OF_FULL_BUFFER, MIN_USE_OF_FULL_PATH, MIN_WAIT,
};

/// A transfer as a capture shows it.
pub(super) struct CaptureView<'v> {
    pub(super) figures: &'v SenderSampleFigures<'v>,
    pub(super) capture: &'v CaptureEvidence,
}

impl CaptureView<'_> {
    /// Returns true if nearly all data is sent as acknowledgements come.
    pub(super) fn follows_acknowledgements(&self) -> bool {
        self.capture
            .clocked
            .is_some_and(|clocked| clocked.get() >= CLOCKED_BURSTS)
    }

    /// Returns true if round trips take clearly longer under load.
    pub(super) fn some_waits(&self) -> bool {
        self.figures
            .rtt
            .zip(self.figures.idle_rtt)
            .is_some_and(|(rtt, idle)| rtt >= idle.scale_by(MIN_WAIT))
    }

    /// Returns true if always as much is in flight, since a loss if there was one, and that is long
    /// ago.
    pub(super) fn is_level(&self) -> bool {
        let level = |quiet: QuietRounds| {
            quiet.share.get() >= MIN_QUIET_SHARE && quiet.level.get() >= MIN_LEVEL
        };
        self.capture.quiet.is_some_and(level)
    }

    /// Returns true if clearly more was in flight before: before a loss, or while a program caught
    /// up with its rate. A send buffer, which keeps all data until it is acknowledged, never
    /// shrinks, so that it holds as much later.
    pub(super) fn was_fuller(&self) -> bool {
        let least = if self.ever_lost_on_path() {
            MIN_SHARE_BEFORE_LOSS
        } else {
            MIN_SHARE_OF_FULL_BUFFER
        };
        let of_most = self.capture.quiet.and_then(|quiet| quiet.of_most);
        of_most.is_some_and(|share| share.get() < least)
    }

    /// Returns true if the queue of the path is hardly ever empty.
    pub(super) fn queue_stands(&self) -> bool {
        self.capture
            .quiet
            .is_some_and(|quiet| quiet.free.get() < MAX_FREE_SHARE)
    }

    /// Returns true if the queue of the path is empty once in most round trips.
    pub(super) fn drains_queue(&self) -> bool {
        self.capture
            .quiet
            .is_some_and(|quiet| quiet.free.get() >= MIN_FREE_SHARE)
    }

    /// Returns true if nothing shows here if data waits on the path: without timestamps only the
    /// sender has round-trip times of it.
    pub(super) fn sees_no_queue(&self) -> bool {
        !self.is_at_sender()
            && self
                .figures
                .snapshots()
                .all(|snapshot| snapshot.sample.tcp.rtt.is_none())
    }

    /// Returns true if no handshake was captured, which would show the scale of the windows.
    pub(super) fn lacks_handshake(&self) -> bool {
        let last = self
            .figures
            .flows
            .first()
            .and_then(|flow| flow.whole.last());
        last.is_some_and(|last| last.tcp.window_scaling.is_none())
    }

    pub(super) fn is_at_sender(&self) -> bool {
        self.capture.point == Some(At::Sender)
    }

    /// Returns true if something was lost in the judged part, and not in the sending host.
    pub(super) fn lost_on_path(&self) -> bool {
        self.is_beyond_sender(
            self.figures
                .retransmitted_segments()
                .map_or(0, |lost| lost.again),
        )
    }

    /// Returns true if something was lost in the whole transfer, and not in the sending host.
    pub(super) fn ever_lost_on_path(&self) -> bool {
        self.is_beyond_sender(self.figures.sent_again_in_all().unwrap_or(0))
    }

    fn is_beyond_sender(&self, again: u64) -> bool {
        again
            > if self.is_at_sender() {
                self.capture.lost_before
            } else {
                0
            }
    }

    pub(super) fn waits_on_path(&self) -> bool {
        capacity::full_bottleneck(self.figures, Ratio::ONE).is_some()
    }

    /// Returns true if bursts pass the path clearly faster than the transfer; `None` where less
    /// than `share` of the data comes at one rate.
    pub(super) fn bursts_are_faster(&self, share: f64) -> Option<bool> {
        Some(self.figures.rate < self.rate_of_bursts(share)?.scale_by(MIN_USE_OF_FULL_PATH))
    }

    /// Returns the most frequent rate at which bursts pass the path, if `share` of the data comes
    /// at it.
    pub(super) fn rate_of_bursts(&self, share: f64) -> Option<BitRate> {
        let seen = if self.is_at_sender() {
            [self.capture.acknowledgements, self.capture.beyond]
        } else {
            [self.capture.arrivals, self.capture.departures]
        };
        let known = seen
            .into_iter()
            .flatten()
            .filter(|burst| burst.share.get() >= share);
        Some(BurstRate::most_frequent(known)?.rate)
    }

    /// Returns the least bytes in flight for nine tenths of the time, as a share of the most that
    /// is usually in flight.
    pub(super) fn flight_plateau(&self) -> Option<f64> {
        Some(
            Ratio::from_quotient(
                self.in_flight(10)?.as_f64(),
                self.usual_most_in_flight()?.as_f64(),
            )
            .get(),
        )
    }

    /// Returns the most that is usually in flight.
    pub(super) fn usual_most_in_flight(&self) -> Option<ByteCount> {
        self.in_flight(95)
    }

    /// Returns the bytes in flight at most for so many percent of the time, over the largest
    /// connection.
    pub(super) fn in_flight(&self, percent: usize) -> Option<ByteCount> {
        let flow = self.figures.flows.first()?;
        let mut sizes: Vec<ByteCount> = flow
            .snapshots
            .iter()
            .filter_map(|snapshot| snapshot.outstanding)
            .collect();
        sizes.sort_unstable();
        sizes.get(sizes.len() * percent / 100).copied()
    }
}
