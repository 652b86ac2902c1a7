//! Senders that hold a captured transfer back themselves: programs, buffers, paces and queues.

use fullpipe_record::{
    ApplicationWindowVerdict, BurstRate, CapacityVerdict, LegalVerdict, PacingVerdict,
    ReceiveWindowVerdict, SendBufferVerdict, SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::finding::LimitFinding;
use crate::limits::mtu;
use crate::signals::CaptureView;
use crate::thresholds::{
    CAUGHT_UP_SHARES, CLOCKED_SHARE, FASTER_THAN_A_PACE, FEW_ENDS_OF_WRITES, FEW_SEGMENTS,
    FLAT_PLATEAU, IDLE_CAPTURE_SHARE, IDLE_OF_WAITING_PROGRAM, IDLE_SHARE_OF_PATH,
    LONG_QUIET_SHARE, MAX_PACE_FACTOR, MIN_FASTER_THAN_PACE, MIN_LEVEL_OF_SLEEPING_WRITER,
    MIN_LIMIT_SHARE, MIN_LOSS_OF_PROBES, MIN_PACED_SHARE, MIN_PARTIAL_AT_SENDER,
    MIN_PARTIAL_OF_PROGRAM, MIN_PARTIAL_SHARE, MIN_PLATEAU, MIN_SHARE_BELOW_PACE,
    MIN_SHARE_OF_BURSTS, MIN_SHARE_OF_REFILLS, PACED_BURSTS_SHARE, SAME_SHARE_OF_TRAINS,
    TIME_OF_PACED_TRAIN,
};

impl CaptureView<'_> {
    /// Returns true if hardly anything was in flight at nearly any time.
    pub(super) fn program_waits(&self) -> bool {
        self.capture.idle.get() >= IDLE_OF_WAITING_PROGRAM
    }

    /// Finds a sender that had nothing to send though nothing held it back.
    pub(crate) fn find_idle_sender(&self) -> Option<LimitFinding> {
        self.idle_from(IDLE_CAPTURE_SHARE)
            .filter(|_| !self.is_buffer())
    }

    fn idle_from(&self, share: f64) -> Option<LimitFinding> {
        let idle = self.capture.idle;
        let found = LimitFinding::new(SenderApplicationVerdict::Idle, idle);
        (idle.get() >= share).then(|| {
            if self.program_waits() {
                // A processor that is hardly ever free makes it wait as long.
                found.one_of_several()
            } else {
                found
            }
        })
    }

    /// Finds a sender that leaves its path idle at times, and sends at times of its own at others.
    pub(super) fn leaves_path_idle(&self) -> Option<LimitFinding> {
        self.idle_from(IDLE_SHARE_OF_PATH)
            .filter(|_| !self.follows_acknowledgements())
    }

    /// Finds one that sends faster than its rate at others.
    pub(crate) fn idle_at_times(&self) -> Option<LimitFinding> {
        self.leaves_path_idle()
            .filter(|_| self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true))
    }

    /// Returns true if a buffer is refilled in long trains, each as acknowledgements come: its
    /// writer is woken seldom, when a third of it is free (`sk_stream_write_space`).
    fn is_buffer(&self) -> bool {
        let sleeps = self
            .capture
            .quiet
            .is_some_and(|quiet| quiet.level.get() >= MIN_LEVEL_OF_SLEEPING_WRITER);
        (self.is_level() || (!self.ever_lost_on_path() && sleeps))
            && !self.was_fuller()
            && self.follows_acknowledgements()
            && self.is_longer_than_a_pace(self.figures.rate)
    }

    /// Returns true if the sender's trains are longer than those of a pace at `rate`: the kernel
    /// makes them as long as the pace sends in a millisecond, and of two segments at least
    /// (`tcp_tso_autosize`).
    fn is_longer_than_a_pace(&self, rate: BitRate) -> bool {
        let longest = rate
            .scale_by(MAX_PACE_FACTOR)
            .bytes_in(Span::from_millis(1));
        self.figures
            .mss
            .is_some_and(|mss| self.capture.train > longest.max(mss * FEW_SEGMENTS))
    }

    /// Finds a sender that spaces its data by a rate: by its program, which then has no more than
    /// parts of segments, or below it.
    pub(crate) fn own_pace(&self) -> Option<LimitFinding> {
        let held = self
            .paced_share()
            .filter(|share| share.get() >= MIN_PACED_SHARE && !self.is_buffer())?;
        if self.exceeds_its_pace() {
            return None;
        }
        let program = LimitFinding::new(SenderApplicationVerdict::RateLimited, held);
        if self.capture.partial.get() >= MIN_PARTIAL_SHARE || self.writes_show() {
            return Some(program);
        }
        // A pace lets no more be in flight at any time unless a round trip takes longer, and a
        // program that catches up with its rate does.
        if self.was_a_little_fuller() && !self.waits_on_path() {
            return Some(self.with_pace(program));
        }
        if self.sees_no_queue() {
            return Some(self.even_without_queue(held));
        }
        // A congestion window grows again after a loss.
        let is_own = (!self.lost_on_path() || self.is_long_level()) && !self.waits_on_path();
        let is_in_writes = self.is_at_sender() && self.is_longer_than_a_pace(self.figures.rate);
        is_own.then(|| {
            if is_in_writes {
                self.with_pace(program)
            } else {
                LimitFinding::new(PacingVerdict::MaxPacingRate, held)
            }
        })
    }

    /// Finds a sender whose data comes evenly at its rate and came clearly faster for a while: it
    /// caught up with its rate, and no link spaces the data that far apart.
    pub(crate) fn caught_up(&self) -> Option<LimitFinding> {
        let rate = self.figures.rate;
        let even = self.capture.departures.filter(|even| {
            even.share.get() >= MIN_LIMIT_SHARE && even.rate <= rate.scale_by(MAX_PACE_FACTOR)
        })?;
        let was_faster = self.capture.sustained? >= rate.scale_by(FASTER_THAN_A_PACE)
            && CAUGHT_UP_SHARES.contains(&self.capture.faster?.get());
        // A policer lets a burst pass, too, and then discards. The headers of small segments fill a
        // link at a rate that others pass.
        let lost = self.figures.retransmitted_segments()?.segment_share();
        let full = LimitFinding::new(CapacityVerdict::Link, Ratio::ONE);
        let found = was_faster
            && !self.is_at_sender()
            && lost.get() < MIN_LOSS_OF_PROBES
            && mtu::find_cause(self.figures, &full).is_none();
        found.then(|| LimitFinding::new(SenderApplicationVerdict::RateLimited, even.share))
    }

    /// Returns true if a link spreads trains of as many segments as the kernel's pace at this rate
    /// sends at once: those of 1/1024 s, and two at least (`tcp_tso_autosize`). All but the first of
    /// each come at the rate of the link.
    pub(super) fn trains_are_of_a_pace(&self) -> bool {
        let rate = self.figures.rate;
        let seen = self.capture.arrivals.zip(self.figures.mss);
        seen.is_some_and(|(burst, mss)| {
            let of_a_train = rate.bytes_in(TIME_OF_PACED_TRAIN);
            let segments = (of_a_train.get() / mss.get()).max(2) as f64;
            burst.rate > rate.scale_by(MAX_PACE_FACTOR)
                && (burst.share.get() - (1.0 - 1.0 / segments)).abs() <= SAME_SHARE_OF_TRAINS
        })
    }

    /// Returns what spaces the segments evenly where no queue is seen.
    fn even_without_queue(&self, held: Ratio) -> LimitFinding {
        if self.leaves_room_on_path() {
            LimitFinding::new(SendBufferVerdict::TcpWmemMax, held)
                .add_alternative(SenderApplicationVerdict::Idle)
        } else {
            LimitFinding::new(CapacityVerdict::Link, held).one_of_several()
        }
    }

    /// Returns true if as much was in flight for long.
    fn is_long_level(&self) -> bool {
        let quiet = self.capture.quiet;
        self.is_level() && quiet.is_some_and(|quiet| quiet.share.get() >= LONG_QUIET_SHARE)
    }

    /// Returns a `program` that sends evenly, which may be a device with a bucket unless it was
    /// clearly faster for some time.
    fn with_pace(&self, program: LimitFinding) -> LimitFinding {
        let most = self.figures.rate.scale_by(MAX_PACE_FACTOR);
        if self.capture.sustained.is_some_and(|rate| rate > most) {
            program
        } else {
            program.add_alternative(PacingVerdict::MaxPacingRate)
        }
    }

    /// Returns true if the sender is faster at times than what seems its pace, though always as
    /// much is in flight: BBR sends a quarter faster in one of eight round trips
    /// (`bbr_pacing_gain`) if its buffer lets it, and a maximum pace never does.
    fn exceeds_its_pace(&self) -> bool {
        let departs_faster = self.capture.departures.is_some_and(|burst| {
            burst.share.get() >= MIN_PACED_SHARE
                && burst.rate > self.figures.rate.scale_by(MAX_PACE_FACTOR)
        });
        let exceeds = self
            .capture
            .faster
            .is_some_and(|share| share.get() >= MIN_FASTER_THAN_PACE);
        // Elsewhere the bottleneck spaces the segments of a train.
        let is_seen = self.is_at_sender() || self.trains_answered().is_none();
        self.is_level() && !self.was_fuller() && (exceeds || is_seen && departs_faster)
    }

    /// Returns true if packets end where the program's writes do, which are joined where data waits
    /// at the sender.
    fn writes_show(&self) -> bool {
        let partial = self.capture.partial.get();
        if self.follows_acknowledgements() {
            return false;
        }
        // A window cuts packets, too: it is always full, and data follows the acknowledgements that
        // move it.
        let is_at_own_times = self
            .capture
            .clocked
            .is_some_and(|clocked| clocked.get() < CLOCKED_SHARE);
        let is_no_window = is_at_own_times || (self.capture.quiet.is_some() && !self.is_level());
        (self.is_at_sender() && partial >= MIN_PARTIAL_AT_SENDER)
            || (partial >= MIN_PARTIAL_OF_PROGRAM && is_no_window && !self.ever_lost_on_path())
    }

    /// Returns true if data always waited at the sender: hardly a packet ends where a write does.
    fn data_waits_at_sender(&self) -> bool {
        let flow = self.figures.flows.first();
        flow.and_then(|flow| flow.whole.last()?.tcp.data_segs_out)
            .is_some_and(|all| self.capture.partial.get() * all.get() as f64 <= FEW_ENDS_OF_WRITES)
    }

    /// Finds the queue of the sending host, if it dropped what a capture behind it never saw.
    pub(crate) fn own_queue(&self) -> Option<LimitFinding> {
        let again = self.figures.sent_again_in_all()?;
        let found = self.is_at_sender()
            && self.capture.lost_before > 0
            && self.capture.lost_before * 2 > again;
        found.then(|| LimitFinding::new(CapacityVerdict::HostQueue, Ratio::ONE))
    }

    /// Finds a send buffer, whose data is always as much: losses and queues make it swing. Its own
    /// bursts may wait in a queue, and at first be lost to it, but the queue is empty before the
    /// next ones.
    pub(crate) fn buffer_of_sender(&self) -> Option<LimitFinding> {
        if self.was_fuller() {
            return None;
        }
        let lost = self.ever_lost_on_path();
        let is_faster = self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true);
        let is_flat = self.flight_plateau()? >= FLAT_PLATEAU && !lost && is_faster;
        let refills = self.is_level()
            && self.drains_queue()
            && (self.some_waits() || !lost)
            && self.bursts_are_faster(MIN_SHARE_OF_REFILLS) == Some(true);
        (is_flat || refills).then(|| self.of_sender()).flatten()
    }

    /// Finds a sender that holds itself back though this does not show why: its program or its own
    /// queue, by which data goes out at their times, or its buffer, whose data goes out as the
    /// acknowledgements come.
    pub(crate) fn of_sender(&self) -> Option<LimitFinding> {
        if self.is_answered_in_each_round_trip() {
            return Some(
                LimitFinding::new(ApplicationWindowVerdict::SshChannelOfReceiver, Ratio::ONE)
                    .one_of_several(),
            );
        }
        let at_own_times = self
            .capture
            .clocked
            .is_some_and(|clocked| clocked.get() < CLOCKED_SHARE);
        let is_uneven = self.flight_plateau()? < MIN_PLATEAU
            && !self.is_level()
            && !self.follows_acknowledgements();
        if !self.is_at_sender() {
            let program_caught_up = self.was_fuller() && !self.ever_lost_on_path();
            if self.writes_show()
                || (at_own_times && is_uneven)
                || self.has_flight_swings()
                || program_caught_up
            {
                return Some(LimitFinding::new(
                    SenderApplicationVerdict::Idle,
                    Ratio::ONE,
                ));
            }
            if self.trains_are_of_a_pace() {
                return Some(LimitFinding::new(PacingVerdict::MaxPacingRate, Ratio::ONE));
            }
            let found = LimitFinding::new(SendBufferVerdict::TcpWmemMax, Ratio::ONE);
            // A smaller window does the same, and not every sender cuts a packet where it ends. A
            // pace cuts none.
            let may_be_window = match self.capture.clocked {
                Some(_) => self.follows_acknowledgements(),
                None => self.cuts_packets()?,
            };
            let lowered = ReceiveWindowVerdict::WindowClamped;
            return Some(if may_be_window {
                found.add_alternative(lowered)
            } else {
                self.with_program(found)
            });
        }
        let is_spaced = self
            .paced_share()
            .is_some_and(|share| share.get() >= MIN_PACED_SHARE);
        if self.was_fuller() && !self.follows_acknowledgements() {
            let program = if self.writes_show() || is_spaced {
                SenderApplicationVerdict::RateLimited
            } else {
                SenderApplicationVerdict::Idle
            };
            return Some(LimitFinding::new(program, Ratio::ONE));
        }
        let is_held = at_own_times && self.is_level() && !self.was_fuller();
        if is_held && !self.writes_show() && self.data_waits_at_sender() {
            // Neither a buffer nor a pace, behind which data waits at any time.
            let found = LimitFinding::new(SendBufferVerdict::TcpWmemMax, Ratio::ONE);
            return Some(found.add_alternative(CapacityVerdict::HostQueue));
        }
        let found: LegalVerdict = if self.writes_show() {
            SenderApplicationVerdict::Idle.into()
        } else if !is_uneven && (self.bursts_are_paced() || is_spaced) {
            // The kernel's pace hides what follows acknowledgements, and a device may be what
            // spaces the data.
            SendBufferVerdict::TcpWmemMax.into()
        } else if !is_uneven && (!at_own_times || self.is_level()) {
            // What a host drops itself makes its congestion window swing.
            SendBufferVerdict::SoSndbuf.into()
        } else if self.capture.idle.get() >= IDLE_SHARE_OF_PATH {
            SenderApplicationVerdict::Idle.into()
        } else {
            // A program would leave pauses.
            CapacityVerdict::HostQueue.into()
        };
        let finding = LimitFinding::new(found, Ratio::ONE);
        Some(if found == CapacityVerdict::HostQueue.into() {
            finding.one_of_several()
        } else {
            self.with_program(finding)
        })
    }

    /// Returns a send buffer as one of several where its program may be the limit.
    fn with_program(&self, found: LimitFinding) -> LimitFinding {
        let may_be = found.verdict == SendBufferVerdict::TcpWmemMax.into();
        if may_be && self.was_a_little_fuller() {
            found.add_alternative(SenderApplicationVerdict::Idle)
        } else {
            found
        }
    }

    /// Returns true if what is in flight swings by more than the third of a buffer that is free
    /// when its writer is woken.
    pub(super) fn has_flight_swings(&self) -> bool {
        let swings = self
            .capture
            .quiet
            .is_some_and(|quiet| quiet.level.get() < MIN_LEVEL_OF_SLEEPING_WRITER);
        !self.ever_lost_on_path() && swings
    }

    /// Returns true if the receiving program sends something in each round trip, as one does that
    /// grants a window of its own.
    pub(super) fn is_answered_in_each_round_trip(&self) -> bool {
        let a_round_trip = self.figures.rtt.map(|rtt| self.figures.rate.bytes_in(rtt));
        a_round_trip.is_some_and(|size| {
            self.capture.answers as f64 * size.as_f64() >= self.acknowledged_bytes().as_f64()
        })
    }

    /// Returns the data that was acknowledged, all streams together.
    pub(super) fn acknowledged_bytes(&self) -> ByteCount {
        self.figures
            .flows
            .iter()
            .filter_map(|flow| Some(flow.whole.last()?.bytes))
            .sum()
    }

    /// Returns true if small trains are spaced by a rate, which is above that of the transfer.
    fn bursts_are_paced(&self) -> bool {
        self.capture.departures.is_some_and(|burst| {
            burst.share.get() >= PACED_BURSTS_SHARE && !self.is_longer_than_a_pace(burst.rate)
        })
    }

    /// Returns the most frequent rate of the sender's trains where a link on the way spaces their
    /// segments: each train is acknowledged. Losses delay acknowledgements.
    fn trains_answered(&self) -> Option<BurstRate> {
        let is_link = self.is_at_sender() || self.ever_lost_on_path();
        self.capture
            .acknowledgements
            .filter(|burst| !is_link && burst.share.get() >= PACED_BURSTS_SHARE)
    }

    /// Returns the share of the time in which the sender's packets are spaced by one rate, that of
    /// the transfer.
    fn paced_share(&self) -> Option<Ratio> {
        let all = self.figures.rate;
        let each = all.scale_by(1.0 / f64::from(self.figures.stream_count()));
        let trains = self.trains_answered();
        let seen = [self.capture.departures, self.capture.arrivals, trains];
        let shares = seen.into_iter().flatten().filter_map(|burst| {
            let pace = [each, all]
                .into_iter()
                .find(|rate| burst.rate <= rate.scale_by(MAX_PACE_FACTOR))?;
            // At first a shaper may let more pass; at other times faster trains show that nothing
            // spaces them.
            let is_whole = burst.rate >= pace.scale_by(1.0 / MAX_PACE_FACTOR);
            let of_time = (burst.share.get() * pace.relative_to(burst.rate)).min(1.0);
            (is_whole || burst.share.get() >= MIN_SHARE_BELOW_PACE).then(|| Ratio::new(of_time))
        });
        shares.max_by(|one, other| one.get().total_cmp(&other.get()))
    }
}
