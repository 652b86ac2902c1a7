//! The path as the limit of a captured transfer, and congestion windows that it has made small.

use fullpipe_record::{
    CapacityVerdict, CongestionWindowVerdict, LegalVerdict, Limit, LossVerdict,
    ReceiverApplicationVerdict, SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, Ratio};

use crate::figures::share_of_votes;
use crate::finding::LimitFinding;
use crate::limits::{capacity, congestion_window, loss, receiver_application};
use crate::losses;
use crate::path::{mean_trend, stated_capacity};
use crate::signals::CaptureView;
use crate::thresholds::{
    FEW_SEGMENTS, FULL_PIPE_SHARE_UNDER_BBR, FULL_USE_OF_PATH, GROWING_SHARE, INFLATED_RTT_FACTOR,
    LONG_SETTLED_SHARE, MANY_LOSSY_ROUND_TRIPS, MAX_WAIT_FOR_SHAPER, MIN_FREE_OF_SETTLED,
    MIN_LEVEL_OF_SETTLED, MIN_LIMIT_SHARE, MIN_LOSS_OF_PROBES, MIN_RECOVERIES, MIN_SHARE_OF_BURSTS,
    MIN_SHARE_OF_FULL_BUFFER, MIN_WINDOW_USE, REGROWN_WINDOW_FACTOR, SHARED_PIPE_SHARE,
};

impl CaptureView<'_> {
    /// Finds a transfer of so few round trips that what is in flight still grew in most of them: a
    /// slow start that overflows the queue in the end is one. Where nothing was in flight for most
    /// of the time, its program waited.
    pub(crate) fn ramp_up(&self) -> Option<LimitFinding> {
        let quiet = self.capture.quiet?;
        let found = quiet.growing.get() >= GROWING_SHARE && !self.program_waits();
        found.then(|| self.with_stall(quiet.growing))
    }

    /// Finds a transfer that ended before its congestion window had grown, and whose program did
    /// not wait.
    pub(crate) fn ended_early(&self) -> Option<LimitFinding> {
        let found =
            congestion_window::ended_early(self.figures).filter(|_| !self.program_waits())?;
        Some(self.with_stall(found.share))
    }

    /// Returns the verdict on a transfer that ended while it sped up; as one of several where it may
    /// have lost all that its sender repeats, of which nothing comes here.
    fn with_stall(&self, share: Ratio) -> LimitFinding {
        let found = LimitFinding::new(CongestionWindowVerdict::RampUp, share);
        if self.capture.closed || self.is_at_sender() {
            found
        } else {
            found.one_of_several()
        }
    }

    /// Finds a device that discards what exceeds a rate, and a sender that has learnt it: much was
    /// lost in many round trips, more than a slow start that overshoots takes to repair, and
    /// nothing since.
    pub(crate) fn policed_at_first(&self) -> Option<LimitFinding> {
        let lost = self.figures.lost_segments()?.segment_share();
        let lossy = losses::lossy_round_trips(
            &self.figures.flows,
            self.figures.idle_rtt.or(self.figures.rtt)?,
        );
        let found = self.figures.part.is_some()
            && lost.get() >= MIN_LOSS_OF_PROBES
            && lossy >= MANY_LOSSY_ROUND_TRIPS
            && !self.lost_on_path()
            && !self.waits_on_path()
            && !self.queue_stands();
        found.then(|| LimitFinding::new(LossVerdict::Policer, Ratio::ONE))
    }

    /// Finds a sender that has long had as much in flight as ever since, without a queue, and far
    /// less than before: its windows would let it have more, and its program keeps to a rate. What
    /// it had before met a queue, or nothing was lost; else a policer has taught it the rate.
    pub(crate) fn settled_below(&self) -> Option<LimitFinding> {
        let quiet = self.capture.quiet?;
        let found = quiet.share.get() >= LONG_SETTLED_SHARE
            && quiet.level.get() >= MIN_LEVEL_OF_SETTLED
            && quiet.free.get() >= MIN_FREE_OF_SETTLED
            && quiet.of_most?.get() < MIN_SHARE_OF_FULL_BUFFER;
        if !found {
            return None;
        }
        let queue = self.figures.idle_rtt?.scale_by(INFLATED_RTT_FACTOR);
        let samples = self.figures.flows.iter().flat_map(|flow| &flow.whole);
        let met_a_queue = samples.filter_map(|one| one.tcp.rtt).any(|rtt| rtt > queue);
        let cause: LegalVerdict = if self.ever_lost_on_path() && !met_a_queue {
            LossVerdict::Policer.into()
        } else {
            SenderApplicationVerdict::RateLimited.into()
        };
        Some(LimitFinding::new(cause, Ratio::ONE))
    }

    /// Finds a full link whose queue overflowed at first, and a sender that lost nothing since it
    /// drained and keeps about the rate that it had then: BBR paces itself so when it takes the
    /// link for a policer (`bbr_lt_bw_sampling`). A pace that was there from the begin would never
    /// have filled the queue. Others that use the link too leave a queue.
    pub(crate) fn full_at_first(&self) -> Option<LimitFinding> {
        let queue = self.figures.idle_rtt?.scale_by(INFLATED_RTT_FACTOR);
        let rates = self.figures.flows.iter().map(|flow| {
            let [first, last] = losses::time_of_queue(flow, |rtt| rtt >= queue)?;
            Some(BitRate::from_bytes_in(
                last.bytes.saturating_sub(first.bytes),
                last.at.saturating_sub(first.at),
            ))
        });
        let rate_of_queue: BitRate = rates.sum::<Option<_>>()?;
        let stands = share_of_votes(
            self.figures
                .snapshots()
                .map(|snapshot| Some(snapshot.sample.tcp.rtt? >= queue)),
        )?;
        let enough =
            stated_capacity(self.figures).map(|stated| stated.scale_by(FULL_PIPE_SHARE_UNDER_BBR));
        let lost = self.figures.retransmitted_segments()?;
        let few_losses =
            lost.episodes <= MIN_RECOVERIES && lost.segment_share().get() < MIN_LOSS_OF_PROBES;
        let found = few_losses
            && (enough.is_none_or(|enough| self.figures.rate >= enough) || !self.drains_queue())
            && stands.get() < MIN_LIMIT_SHARE
            && self.figures.rate >= rate_of_queue.scale_by(FULL_USE_OF_PATH);
        let found = found.then(|| LimitFinding::new(CapacityVerdict::Link, Ratio::ONE))?;
        Some(self.with_shaper(capacity::behind_on_path(self.figures, &found).unwrap_or(found)))
    }

    /// Finds a receiver that answers late: with two captures, round trips take clearly longer for
    /// the sender than for the receiver, which has a queue of the path in its own, too; else, its
    /// window shows that data waits for it.
    pub(crate) fn late_receiver(&self) -> Option<LimitFinding> {
        if !self.is_at_sender() || self.ever_lost_on_path() || !self.waits_on_path() {
            return None;
        }
        let is_late = match self.figures.evidence.loaded_rtt {
            Some(rtt) => {
                !capacity::echoes_wait(self.figures)
                    && self.figures.rtt? > rtt.scale_by(INFLATED_RTT_FACTOR)
            }
            None => self.uses_window() && receiver_application::reads_slowly(self.figures),
        };
        is_late.then(|| LimitFinding::new(ReceiverApplicationVerdict::SlowReader, Ratio::ONE))
    }

    /// Returns true if much of the window is in use.
    fn uses_window(&self) -> bool {
        let sizes = self
            .figures
            .mean_size(|one| one.outstanding)
            .zip(self.figures.mean_size(|one| one.window));
        sizes.is_some_and(|(in_flight, window)| in_flight >= window.scale_by(MIN_WINDOW_USE))
    }

    /// Finds the limit of the path, if it held data back for most of the time.
    pub(crate) fn find_path_limit(&self) -> Option<LimitFinding> {
        let held = share_of_votes(
            self.figures
                .snapshots()
                .map(|snapshot| snapshot.held_by_path(false)),
        )
        .filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
        let found = if self.fills_path() {
            LimitFinding::new(CapacityVerdict::Link, held)
        } else {
            self.limit_by_rules(held)?
        };
        let found = self.with_standing_queue(found);
        let found = capacity::behind_on_path(self.figures, &found).unwrap_or(found);
        if matches!(found.limit_kind(), Limit::Capacity | Limit::Loss) {
            // A link that the sender leaves idle so often is not full.
            let carries_more = found.verdict == CapacityVerdict::Shared.into();
            let idle = if carries_more {
                self.leaves_path_idle()
            } else {
                self.idle_at_times()
            };
            if idle.is_some() {
                return idle;
            }
        }
        let may_be_queue = found.verdict == LossVerdict::Random.into() && self.sees_no_queue();
        Some(if may_be_queue {
            found.one_of_several()
        } else {
            self.with_pauses(self.with_shaper(found))
        })
    }

    /// Returns the limit of the path as its samples show it.
    fn limit_by_rules(&self, held: Ratio) -> Option<LimitFinding> {
        let order = [
            loss::without_queue,
            capacity::full_bottleneck,
            congestion_window::held_without_loss,
            loss::find_loss,
        ];
        // A queue that is empty so often is none of a full link.
        order
            .into_iter()
            .filter_map(|rule| rule(self.figures, held))
            .find(|found| found.limit_kind() != Limit::Capacity || !self.drains_queue())
    }

    /// Returns the finding; a full link instead, where it denies a queue that stands.
    fn with_standing_queue(&self, found: LimitFinding) -> LimitFinding {
        // A queue that is seldom empty is not short, and a policer has none.
        let denies_queue =
            [LossVerdict::ShallowQueue, LossVerdict::Policer].map(LegalVerdict::from);
        let is_long = denies_queue.contains(&found.verdict) && self.queue_stands();
        // Random losses do not keep a queue full; those of others, or the sender itself, do.
        let is_busy =
            found.verdict == LossVerdict::Random.into() && self.queue_stands() && self.some_waits();
        if is_busy && self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true) {
            found.as_verdict(CapacityVerdict::Shared)
        } else if is_long || is_busy {
            found.as_verdict(CapacityVerdict::Link)
        } else {
            found
        }
    }

    /// Returns `found` as one of several if it is a full link whose queue stays short and loses
    /// next to nothing, as in the sending host, which lets hardly any of a connection wait for a shaper of its
    /// own (`tcp_small_queue_check`).
    fn with_shaper(&self, found: LimitFinding) -> LimitFinding {
        let rtts = self.figures.rtt.zip(self.figures.idle_rtt);
        let is_long = rtts.is_some_and(|(rtt, idle)| rtt > idle.scale_by(MAX_WAIT_FOR_SHAPER));
        let may_be = found.limit_kind() == Limit::Capacity
            && !self.is_at_sender()
            && self.figures.sent_again_in_all().unwrap_or(0) < FEW_SEGMENTS
            && !is_long;
        if may_be {
            found.one_of_several()
        } else {
            found
        }
    }

    /// Returns `found` as one of several where the capture ends before anything was steady, and its
    /// connection goes on: the sender may repeat what no more comes here.
    pub(crate) fn with_open_end(&self, found: LimitFinding) -> LimitFinding {
        let is_open = self.figures.part.is_none() && !self.capture.closed && !self.is_at_sender();
        let is_of_sender = matches!(
            found.limit_kind(),
            Limit::SenderApplication | Limit::SendBuffer | Limit::Pacing | Limit::CongestionWindow
        );
        if is_open
            && found.other.is_none()
            && (is_of_sender || found.verdict == CapacityVerdict::Link.into())
        {
            found.add_alternative(LossVerdict::Random)
        } else {
            found
        }
    }

    /// Returns the program as the limit instead of a full path, where nothing was ever lost and the
    /// data passes the path clearly faster at times, or was far more: a sender that fills its path
    /// never lets it have less. Here its pauses seem a part of round trips.
    fn with_pauses(&self, found: LimitFinding) -> LimitFinding {
        let leaves_room =
            self.was_fuller() || self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true);
        let may_pause = self.figures.part.is_some()
            && !self.is_at_sender()
            && !self.ever_lost_on_path()
            && found.limit_kind() == Limit::Capacity
            && leaves_room;
        if may_pause {
            found
                .as_verdict(SenderApplicationVerdict::Idle)
                .add_alternative(CapacityVerdict::Shared)
        } else {
            found
        }
    }

    /// Finds a congestion window that grows, or stays below what was in flight before a loss.
    pub(crate) fn find_window_growth(&self) -> Option<LimitFinding> {
        let grows =
            mean_trend(self.figures, |snapshot| snapshot.outstanding)? >= REGROWN_WINDOW_FACTOR;
        let is_lowered = self.was_fuller() && self.ever_lost_on_path();
        let found = (grows || is_lowered)
            .then(|| congestion_window::find_growth(self.figures, Ratio::ONE))
            .flatten()?;
        // What the sending host's own queue drops leaves no trace in packets, or elsewhere that of
        // a loss.
        Some(match found.verdict {
            // The queue is that of others, which leave it little.
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering)
                if self.queue_stands() && self.some_waits() =>
            {
                found.as_verdict(CapacityVerdict::Shared)
            }
            LegalVerdict::CongestionWindow(
                CongestionWindowVerdict::Recovering | CongestionWindowVerdict::EarlyExit,
            ) => found.one_of_several(),
            _ => found,
        })
    }

    /// Returns true if the path could carry clearly more, as far as its capacity is stated.
    pub(super) fn leaves_room_on_path(&self) -> bool {
        let enough = stated_capacity(self.figures).map(|stated| stated.scale_by(SHARED_PIPE_SHARE));
        enough.is_some_and(|enough| self.figures.rate < enough)
    }

    /// Returns true if bursts pass the path no faster than the transfer, and wait in a queue that
    /// loses few.
    fn fills_path(&self) -> bool {
        let bursts = self.rate_of_bursts(MIN_SHARE_OF_BURSTS);
        let is_as_fast =
            bursts.is_some_and(|rate| self.figures.rate >= rate.scale_by(FULL_USE_OF_PATH));
        let loses_few = self
            .figures
            .lost_segments()
            .is_some_and(|lost| lost.segment_share().get() < MIN_LOSS_OF_PROBES);
        is_as_fast && loses_few && self.some_waits() && !self.drains_queue()
    }
}
