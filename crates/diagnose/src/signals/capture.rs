//! The properties of a captured transfer on which the rules rest.

use fullpipe_record::BurstRate;

use crate::prelude::*;
use crate::signals::{SenderView, share_of_votes, size_ratio};
use crate::thresholds::{FALLEN_WINDOW_SHARE, MIN_SHARE_OF_FULL_BUFFER};

/// A transfer as a capture shows it.
pub(crate) struct CaptureView<'v> {
    pub(crate) figures: &'v SenderView<'v>,
    pub(crate) capture: &'v CaptureEvidence,
}

/// Share of the rate at which bursts come that a transfer must have where the path is full.
const MIN_USE_OF_FULL_PATH: f64 = 0.8;
/// Share of the data that follows acknowledgements at once where a buffer sends in bursts.
const CLOCKED_BURSTS: f64 = 0.8;
/// Share of the round trips since the last loss from which they show what limits.
const MIN_QUIET_SHARE: f64 = 0.35;
/// Most in flight of the round trips with little, by that of those with much, where a buffer or a
/// pace holds as much in flight (measured: 0.91 and more, at most 0.86 of links with a queue that
/// empties).
const MIN_LEVEL: f64 = 0.88;
/// Share of the round trips in which a packet met no queue, from which the path is not full
/// (measured: 0.76 and more of buffers and paces).
const MIN_FREE_SHARE: f64 = 0.75;
/// Share of the round trips in which a packet met no queue, below which the queue of the path is no
/// short one (measured: at most 0.35 of full links, 0.71 and more of short queues).
const MAX_FREE_SHARE: f64 = 0.5;
/// Round-trip time by the idle one, from which packets wait on the path.
const MIN_WAIT: f64 = 1.1;
/// Most in flight of late, by the most ever, from which it is the same (simulated: 0.95 and more of
/// paces).
const SAME_IN_FLIGHT: f64 = 0.93;
/// Most in flight of late, by the most ever, from which a send buffer may hold as much after a
/// loss: a congestion window keeps 0.7 (CUBIC) or half (Reno), and grows back slowly.
const MIN_SHARE_BEFORE_LOSS: f64 = 0.9;
/// Times that a window falls to half of its largest size, from which its reader makes it swing.
const MIN_WINDOW_SWINGS: usize = 3;
/// Share of the samples with such a window (measured: 0.1 and more of slow readers, 0.02 of a small
/// buffer that is read at once).
const MIN_SHARE_OF_LOW_WINDOW: f64 = 0.1;
/// Share of the largest window that is usually in flight at most where a reader makes it swing
/// (measured: 0.44 and more).
const MIN_USE_OF_SWINGING_WINDOW: f64 = 0.4;
/// Segments by which what is in flight differs where it is the same: trains end in between.
const SAME_SEGMENTS: f64 = 1.5;

impl CaptureView<'_> {
    /// Returns true if nearly all data is sent as acknowledgements come.
    pub(crate) fn follows_acknowledgements(&self) -> bool {
        self.capture
            .clocked
            .is_some_and(|clocked| clocked.get() >= CLOCKED_BURSTS)
    }

    /// Returns true if round trips take clearly longer under load.
    pub(crate) fn some_waits(&self) -> bool {
        self.figures
            .rtt
            .zip(self.figures.idle_rtt)
            .is_some_and(|(rtt, idle)| rtt >= idle.scale_by(MIN_WAIT))
    }

    /// Returns true if always as much is in flight, since a loss if there was one, and that is long
    /// ago.
    pub(crate) fn is_level(&self) -> bool {
        self.capture.quiet.is_some_and(|quiet| {
            quiet.share.get() >= MIN_QUIET_SHARE && quiet.level.get() >= MIN_LEVEL
        })
    }

    /// Returns true if clearly more was in flight before: before a loss, or while a program caught
    /// up with its rate. A send buffer, which keeps all data until it is acknowledged, never
    /// shrinks, so that it holds as much later.
    pub(crate) fn was_fuller(&self) -> bool {
        let least = if self.ever_lost_on_path() {
            MIN_SHARE_BEFORE_LOSS
        } else {
            MIN_SHARE_OF_FULL_BUFFER
        };
        self.has_less_than(least)
    }

    /// Returns true if less is in flight of late than this share of the most ever.
    fn has_less_than(&self, share: f64) -> bool {
        let of_most = self.capture.quiet.and_then(|quiet| quiet.of_most);
        of_most.is_some_and(|of_most| of_most.get() < share)
    }

    /// Returns true if more was in flight before, though nothing was lost, than a pace or a buffer
    /// of the same portions allows: a program may have caught up with its rate.
    pub(crate) fn was_a_little_fuller(&self) -> bool {
        let one_segment = self
            .figures
            .mss
            .zip(self.usual_most_in_flight())
            .map(|(mss, most)| Ratio::from_quotient(mss.as_f64(), (most + mss).as_f64()).get());
        let same = SAME_IN_FLIGHT.min(1.0 - one_segment.unwrap_or(0.0) * SAME_SEGMENTS);
        !self.ever_lost_on_path() && self.has_less_than(same)
    }

    /// Returns true if the queue of the path is hardly ever empty.
    pub(crate) fn queue_stands(&self) -> bool {
        self.capture
            .quiet
            .is_some_and(|quiet| quiet.free.get() < MAX_FREE_SHARE)
    }

    /// Returns true if the queue of the path is empty once in most round trips.
    pub(crate) fn drains_queue(&self) -> bool {
        self.capture
            .quiet
            .is_some_and(|quiet| quiet.free.get() >= MIN_FREE_SHARE)
    }

    /// Returns true if nothing shows here if data waits on the path: without timestamps only the
    /// sender has round-trip times of it.
    pub(crate) fn sees_no_queue(&self) -> bool {
        !self.is_at_sender()
            && self
                .figures
                .snapshots()
                .all(|snapshot| snapshot.sample.tcp.rtt.is_none())
    }

    /// Returns true if no handshake was captured, which would show the scale of the windows.
    pub(crate) fn lacks_handshake(&self) -> bool {
        let last = self
            .figures
            .flows
            .first()
            .and_then(|flow| flow.whole.last());
        last.is_some_and(|last| last.tcp.window_scaling.is_none())
    }

    pub(crate) fn is_at_sender(&self) -> bool {
        self.capture.point == Some(At::Sender)
    }

    /// Returns true if something was lost in the judged part, and not in the sending host.
    pub(crate) fn lost_on_path(&self) -> bool {
        self.is_beyond_sender(
            self.figures
                .retransmitted_segments()
                .map_or(0, |lost| lost.again),
        )
    }

    /// Returns true if something was lost in the whole transfer, and not in the sending host.
    pub(crate) fn ever_lost_on_path(&self) -> bool {
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

    /// Returns true if bursts pass the path clearly faster than the transfer; `None` where less
    /// than `share` of the data comes at one rate.
    pub(crate) fn bursts_are_faster(&self, share: f64) -> Option<bool> {
        Some(self.figures.rate < self.rate_of_bursts(share)?.scale_by(MIN_USE_OF_FULL_PATH))
    }

    /// Returns the most frequent rate at which bursts pass the path, if `share` of the data comes
    /// at it.
    pub(crate) fn rate_of_bursts(&self, share: f64) -> Option<BitRate> {
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
    pub(crate) fn flight_plateau(&self) -> Option<f64> {
        Some(size_ratio(self.in_flight(10)?, self.usual_most_in_flight()?).get())
    }

    /// Returns the most that is usually in flight.
    pub(crate) fn usual_most_in_flight(&self) -> Option<ByteCount> {
        self.in_flight(95)
    }

    /// Returns the bytes in flight at most for so many percent of the time, over the largest
    /// connection.
    pub(crate) fn in_flight(&self, percent: usize) -> Option<ByteCount> {
        let flow = self.figures.flows.first()?;
        let mut sizes: Vec<ByteCount> = flow
            .snapshots
            .iter()
            .filter_map(|snapshot| snapshot.outstanding)
            .collect();
        sizes.sort_unstable();
        sizes.get(sizes.len() * percent / 100).copied()
    }

    /// Returns the share of the time in which the window has fallen to half of its largest size,
    /// where it does so again and again and much of it is in use; `None` where it does not.
    pub(crate) fn low_window_share(&self) -> Option<Ratio> {
        let flow = self.figures.flows.first()?;
        let windows: Vec<ByteCount> = flow.snapshots.iter().filter_map(|one| one.window).collect();
        let most = windows.iter().copied().max()?;
        let are_low: Vec<bool> = windows.iter().map(|window| *window * 2 <= most).collect();
        let falls = are_low
            .windows(2)
            .filter(|pair| !pair[0] && pair[1])
            .count();
        let low = share_of_votes(are_low.into_iter().map(Some))?;
        let swings = falls >= MIN_WINDOW_SWINGS
            && low.get() >= MIN_SHARE_OF_LOW_WINDOW
            && self.usual_most_in_flight()? >= most.scale_by(MIN_USE_OF_SWINGING_WINDOW);
        swings.then_some(low)
    }

    /// Returns true if the window is clearly smaller than before: its program leaves data unread.
    pub(crate) fn has_window_fallen(&self) -> bool {
        let Some(flow) = self.figures.flows.first() else {
            return false;
        };
        let now = median(flow.snapshots.iter().filter_map(|one| one.window).collect());
        let most = flow.whole.iter().filter_map(|one| one.tcp.snd_wnd).max();
        now.zip(most)
            .is_some_and(|(now, most)| now < most.scale_by(FALLEN_WINDOW_SHARE))
    }
}
