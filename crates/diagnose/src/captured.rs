//! The verdict from a capture: what was in flight against the window, losses, the queue, and how the sender sends.

use fullpipe_record::{
    ApplicationWindowVerdict, At, BurstRate, CapacityVerdict, CaptureEvidence, CongestionWindowVerdict, LegalVerdict,
    Limit, LossVerdict, MtuVerdict, PacingVerdict, QuietRounds, ReceiveWindowVerdict, ReceiverApplicationVerdict,
    Sample, SendBufferVerdict, SenderApplicationVerdict, WindowEdit,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span, counted};

use crate::figures::{Figures, share};
use crate::finding::Finding;
use crate::flow::Flow;
use crate::limits::{capacity, congestion_window, loss, mtu, receive_window, receiver_application};
use crate::losses;
use crate::path::{stated_capacity, trend};
use crate::text::{self, Row};
use crate::thresholds::{
    CLOCKED_BURSTS, CLOCKED_BY_WINDOW, CLOCKED_SHARE, FEW_ENDS_OF_WRITES, FEW_SEGMENTS, FLAT_PLATEAU,
    FULL_PACKETS_SHARE, FULL_PIPE_SHARE_UNDER_BBR, FULL_USE_OF_PATH, GROWING_SHARE, IDLE_CAPTURE_SHARE,
    IDLE_OF_WAITING_PROGRAM, IDLE_SHARE_OF_PATH, INFLATED_RTT_FACTOR, LONG_QUIET_SHARE, MANY_LOSSY_ROUND_TRIPS,
    MAX_FIRST_WINDOW, MAX_FREE_SHARE, MAX_PACE_FACTOR, MIN_CUT_PACKETS, MIN_FASTER_THAN_PACE, MIN_FREE_SHARE,
    MIN_LEVEL, MIN_LEVEL_OF_SLEEPING_WRITER, MIN_LIMIT_SHARE, MIN_LOSS_OF_PROBES, MIN_PACED_SHARE,
    MIN_PARTIAL_AT_SENDER, MIN_PARTIAL_OF_PROGRAM, MIN_PARTIAL_SHARE, MIN_PLATEAU, MIN_PROBES, MIN_QUIET_SHARE,
    MIN_SHARE_BEFORE_LOSS, MIN_SHARE_BELOW_PACE, MIN_SHARE_OF_BURSTS, MIN_SHARE_OF_FULL_BUFFER, MIN_SHARE_OF_REFILLS,
    MIN_TUNED_GROWTH, MIN_USE_OF_FULL_PATH, MIN_WAIT, MIN_WINDOW_USE, PACED_BURSTS_SHARE, REGROWN_WINDOW_FACTOR,
    SHARED_PIPE_SHARE,
};

/// Returns the limit that a capture shows.
pub(crate) fn find(figures: &Figures, capture: &CaptureEvidence) -> Finding {
    let view = View { figures, capture };
    if let Some(end) = capture.only {
        let missing = if end == At::Sender { ACKNOWLEDGEMENTS } else { DATA };
        return capacity::full_as_stated(figures)
            .or_else(|| view.repeats_in_vain())
            .unwrap_or_else(|| Finding::unknown(vec![missing]));
    }
    let whole = [mtu::without_progress, capacity::full_as_stated];
    let order = [
        View::below_a_segment,
        View::closed_on_the_way,
        View::ramp_up,
        View::window,
        View::little_and_no_answer,
        View::idle,
        View::policed_at_first,
        View::lowered_window,
        View::full_at_first,
        View::own_pace,
        View::own_queue,
        View::buffer_of_sender,
        View::late_receiver,
        View::path,
        View::idle_at_times,
        View::growth,
        View::of_sender,
    ];
    let found = view
        .unscaled_at_sender()
        .or_else(|| view.hardly_anything())
        .or_else(|| whole.into_iter().find_map(|rule| rule(figures)))
        .or_else(|| congestion_window::ended_early(figures).filter(|_| !view.program_waits()))
        .or_else(|| order.into_iter().find_map(|rule| rule(&view)))
        .unwrap_or_else(|| Finding::unknown(vec![SENDER]));
    // The host itself may have asked for small segments.
    mtu::behind(figures, &found).map_or(found, Finding::one_of_several)
}

/// A transfer as a capture shows it.
struct View<'v> {
    figures: &'v Figures<'v>,
    capture: &'v CaptureEvidence,
}

impl View<'_> {
    /// Finds a sender to which the receiver's offer to scale windows did not come: each of its packets holds as much as
    /// the field of the window in the header, which both SYNs scale here. The first may hold less, as what a program
    /// writes before the rest.
    fn unscaled_at_sender(&self) -> Option<Finding> {
        let whole = &self.figures.flows.first()?.whole;
        let (first, tcp) = (&whole.first()?.tcp, &whole.last()?.tcp);
        let shift = tcp.snd_wscale.filter(|shift| *shift > 0 && tcp.window_scaling == Some(true))?;
        let field = ByteCount::new(tcp.snd_wnd?.get() >> shift);
        let bytes = tcp.bytes_sent?.saturating_sub(first.bytes_sent?);
        let packets = tcp.data_segs_out?.get().saturating_sub(first.data_segs_out?.get());
        let packet = ByteCount::new(bytes.get() / packets.max(1));
        // Each is alone in flight. A window whose field is about a segment is full by chance.
        let is_alone = self.usual_most_in_flight()? <= field;
        let is_full = packet <= field && packet >= field.scaled(FULL_PACKETS_SHARE) && is_alone;
        let found = !self.is_at_sender() && field < self.figures.mss? && packet > ByteCount::ZERO && is_full;
        found.then(|| Finding::new(ReceiveWindowVerdict::WindowScaleStripped, Ratio::ONE))
    }

    /// Finds a connection over which hardly any data comes: it is open, or its sender sent much more.
    fn hardly_anything(&self) -> Option<Finding> {
        let few = self.has_few();
        if few == Some(true) && self.figures.mss.is_some_and(|mss| self.capture.unseen >= mss * FEW_SEGMENTS) {
            return Some(Finding::new(MtuVerdict::BlackHole, Ratio::ONE));
        }
        let found = few != Some(false) && !self.capture.closed && !self.is_at_sender();
        found.then(|| Finding::new(MtuVerdict::BlackHole, Ratio::ONE).one_of_several())
    }

    /// Finds a sender that sends no more than its first window, and that again and again when its timer expires: no
    /// answer comes, whether one would pass here or not. A transfer of which the answers pass elsewhere goes on.
    fn repeats_in_vain(&self) -> Option<Finding> {
        let is_first_window = self.passed() <= MAX_FIRST_WINDOW && self.passed() > ByteCount::ZERO;
        let found = is_first_window && self.figures.flows.iter().all(|flow| mtu::repeats_without_more(&flow.whole));
        found.then(|| Finding::new(MtuVerdict::BlackHole, Ratio::ONE))
    }

    /// Finds an open connection over which its larger sender sent hardly anything: all of the other one's data may have
    /// vanished on its way here.
    fn little_and_no_answer(&self) -> Option<Finding> {
        let found = self.has_few()? && !self.capture.closed && !self.figures.ever_lost();
        found.then(|| Finding::new(MtuVerdict::BlackHole, Ratio::ONE).one_of_several())
    }

    /// Returns whether the data fits a few segments; `None` where their size is not known.
    fn has_few(&self) -> Option<bool> {
        Some(self.passed() < self.figures.mss? * FEW_SEGMENTS)
    }

    /// Returns the data that was acknowledged or, if that is more, passed here, all streams together.
    fn passed(&self) -> ByteCount {
        let of_sample = |sample: &Sample| {
            let sent = sample.tcp.bytes_sent.unwrap_or_default();
            sample.bytes.max(sent.saturating_sub(sample.tcp.bytes_retrans.unwrap_or_default()))
        };
        self.figures.flows.iter().filter_map(|flow| flow.whole.last().copied()).map(of_sample).sum()
    }

    /// Finds a transfer of so few round trips that what is in flight still grew in most of them: a slow start that
    /// overflows the queue in the end is one. Where nothing was in flight for most of the time, its program waited.
    fn ramp_up(&self) -> Option<Finding> {
        let quiet = self.capture.quiet?;
        let found = quiet.growing.get() >= GROWING_SHARE && !self.program_waits();
        found.then(|| Finding::new(CongestionWindowVerdict::RampUp, quiet.growing))
    }

    /// Returns whether hardly anything was in flight at nearly any time.
    fn program_waits(&self) -> bool {
        self.capture.idle.get() >= IDLE_OF_WAITING_PROGRAM
    }

    /// Finds the receiver's window or program; or the full pipe, where the window holds more than fits it.
    fn window(&self) -> Option<Finding> {
        let found = receive_window::find(self.figures)?;
        if found.kind() != Limit::ReceiveWindow {
            return Some(found);
        }
        capacity::queue_behind_window(self.figures).or_else(|| Some(self.cause_of_window(found)))
    }

    /// Returns the cause of the window of `found`.
    fn cause_of_window(&self, found: Finding) -> Finding {
        if let Some(cause) = self.edited_window() {
            return found.as_verdict(cause);
        }
        if let Some(end) = self.end_without_scale() {
            return self.without_scale(end, &found);
        }
        if self.figures.evidence.receiver.is_some() {
            // Its settings show which of its limits this is.
            return found;
        }
        // The kernel lets a window grow for a program that reads what comes.
        let fixed = self.window_never_grew();
        let cause = if fixed { ReceiveWindowVerdict::SoRcvbuf } else { ReceiveWindowVerdict::TcpRmemMax };
        if self.is_scale_inferred() {
            // It is full under one of fourteen scales, as about every second buffer is by chance.
            return found.as_verdict(cause).or(SendBufferVerdict::TcpWmemMax);
        }
        found.as_verdict(cause).one_of_several()
    }

    /// Returns whether no handshake shows the scale of the windows, and what is in flight does.
    fn is_scale_inferred(&self) -> bool {
        let last = self.figures.flows.first().and_then(|flow| flow.whole.last());
        last.is_some_and(|last| last.tcp.window_scaling.is_none() && last.tcp.snd_wscale.is_some())
    }

    /// Finds a window of less than a segment: the sender waits until it is larger, or a timer fires (RFC 9293,
    /// 3.8.6.2.1), and has nothing in flight meanwhile.
    fn below_a_segment(&self) -> Option<Finding> {
        let mss = self.figures.mss?;
        let small = |window| ByteCount::ZERO < window && window < mss;
        let held = share(self.figures.snapshots().map(|snapshot| snapshot.window.map(small)))?;
        let found = Finding::new(ReceiveWindowVerdict::TcpRmemMax, held);
        (held.get() >= MIN_LIMIT_SHARE).then(|| self.cause_of_window(found))
    }

    /// Returns the work of a device on the receiver's windows between two captures.
    fn edited_window(&self) -> Option<ReceiveWindowVerdict> {
        match self.capture.window_edit? {
            WindowEdit::ScaleStripped => Some(ReceiveWindowVerdict::WindowScaleStripped),
            WindowEdit::ScaleRewritten => Some(ReceiveWindowVerdict::WindowScaleRewritten),
            WindowEdit::Lowered => Some(ReceiveWindowVerdict::WindowClamped),
            WindowEdit::Nothing => None,
        }
    }

    /// Returns the end whose SYN was the first without an offer to scale windows: the answer to one is without it, too.
    fn end_without_scale(&self) -> Option<At> {
        let sender = (At::Sender, self.capture.sender_offers_scale);
        let receiver = (At::Receiver, self.capture.receiver_offers_scale);
        let order = if self.capture.sender_opened { [sender, receiver] } else { [receiver, sender] };
        order.into_iter().find(|(_, offers)| *offers == Some(false)).map(|(end, _)| end)
    }

    /// Returns the cause of windows that are not scaled, where the SYN of `end` lacks the offer: that host, if it was
    /// captured there, or if no device may have taken it away.
    fn without_scale(&self, end: At, found: &Finding) -> Finding {
        let evidence = self.figures.evidence;
        let settings = if end == At::Sender { &evidence.sender } else { &evidence.receiver };
        let is_not_offered = found.as_verdict(ReceiveWindowVerdict::NoWindowScaling);
        if self.capture.point == Some(end) || self.capture.window_edit == Some(WindowEdit::Nothing) {
            return is_not_offered;
        }
        match settings.as_ref().map(|host| host.window_scaling) {
            Some(true) => found.as_verdict(ReceiveWindowVerdict::WindowScaleStripped),
            Some(false) => is_not_offered,
            None => is_not_offered.one_of_several(),
        }
    }

    /// Finds a sender that asks for the window again and again, and sends nothing, though the receiver allows several
    /// segments: it takes the window for less than one, by another scale. A program that pauses asks as well, whether
    /// the other end is there.
    fn closed_on_the_way(&self) -> Option<Finding> {
        let flow = self.figures.flows.first()?;
        let (first, last) = (flow.whole.first()?, flow.whole.last()?);
        let ended = flow.whole.iter().find(|sample| sample.bytes == last.bytes)?.at;
        let is_silent = last.at.saturating_sub(ended) >= ended.saturating_sub(first.at);
        // Without a handshake nobody here knows the scale.
        let is_scale_unknown = last.tcp.window_scaling.is_none();
        // It is not known either where no data followed an acknowledgement.
        let few = self.figures.mss? * FEW_SEGMENTS;
        let is_open = is_scale_unknown || last.tcp.snd_wnd.is_none_or(|window| window >= few);
        let may_be = is_scale_unknown || !self.is_at_sender();
        let found = may_be && self.capture.probes >= MIN_PROBES && is_silent && is_open;
        let found = found.then(|| Finding::new(ReceiveWindowVerdict::WindowScaleRewritten, Ratio::ONE))?;
        let scale = ReceiveWindowVerdict::WindowScaleStripped;
        Some(if is_scale_unknown { found.or(scale) } else { found.one_of_several() })
    }

    /// Finds a window that a device lowers behind this place: data follows acknowledgements, and in each round trip a
    /// packet is cut short where the window ends (`tcp_mss_split_point`). A buffer holds whole segments; a program that
    /// waits after each write looks alike.
    fn lowered_window(&self) -> Option<Finding> {
        let may_be = !self.is_at_sender()
            && self.capture.clocked.is_none_or(|clocked| clocked.get() >= CLOCKED_SHARE)
            && self.drains()
            && !self.ever_lost_on_path()
            && !self.waits_on_path()
            && !self.is_answered_in_each_round_trip();
        let cause = if self.capture.clocked.is_some() && self.cuts_packets()? {
            ReceiveWindowVerdict::WindowClamped
        } else if self.fills_misread_window()
            || (self.was_fuller() && self.follows_acknowledgements() && !self.swings())
        {
            // The window of the handshake has no scale: what is sent into it no edit of the scale makes smaller.
            ReceiveWindowVerdict::WindowScaleRewritten
        } else {
            return None;
        };
        may_be.then(|| Finding::new(cause, Ratio::ONE).one_of_several())
    }

    /// Returns whether a packet in each round trip is cut short.
    fn cuts_packets(&self) -> Option<bool> {
        let segments = self.figures.mean(|one| one.outstanding)?.as_f64() / self.figures.mss?.as_f64().max(1.0);
        Some(self.capture.partial.get() * segments >= MIN_CUT_PACKETS)
    }

    /// Returns whether always as much is in flight as the field of the window allows if it is shifted by less than the
    /// receiver means: to the whole segments that fit it, which are all that a sender sends into it if it waits for
    /// room for a full one (RFC 9293, 3.8.6.2.1). A buffer is as large by chance.
    fn fills_misread_window(&self) -> bool {
        let fills = || {
            let (mss, tcp) = (self.figures.mss?.get(), &self.figures.flows.first()?.snapshots.last()?.sample.tcp);
            let shift = tcp.snd_wscale.filter(|shift| *shift < 64)?;
            let field = tcp.snd_wnd?.get() >> shift;
            let in_flight = self.usual_most_in_flight()?.get();
            let fills = |less| (field << less) / mss == in_flight.div_ceil(mss);
            Some(in_flight >= mss && (0..shift).any(fills))
        };
        let may_follow = self.capture.clocked.is_none_or(|clocked| clocked.get() >= CLOCKED_BY_WINDOW);
        self.is_level() && may_follow && fills() == Some(true)
    }

    /// Finds a sender that had nothing to send though nothing held it back.
    fn idle(&self) -> Option<Finding> {
        self.idle_from(IDLE_CAPTURE_SHARE).filter(|_| !self.is_buffer())
    }

    fn idle_from(&self, share: f64) -> Option<Finding> {
        let idle = self.capture.idle;
        (idle.get() >= share).then(|| Finding::new(SenderApplicationVerdict::Idle, idle).one_of_several())
    }

    /// Finds a sender that leaves its path idle at times, and sends at times of its own at others.
    fn leaves_path_idle(&self) -> Option<Finding> {
        self.idle_from(IDLE_SHARE_OF_PATH).filter(|_| !self.follows_acknowledgements())
    }

    /// Finds one that sends faster than its rate at others.
    fn idle_at_times(&self) -> Option<Finding> {
        self.leaves_path_idle().filter(|_| self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true))
    }

    /// Returns whether nearly all data is sent as acknowledgements come.
    fn follows_acknowledgements(&self) -> bool {
        self.capture.clocked.is_some_and(|clocked| clocked.get() >= CLOCKED_BURSTS)
    }

    /// Returns whether a buffer is refilled in long trains, each as acknowledgements come: its writer is woken seldom,
    /// when a third of it is free (`sk_stream_write_space`).
    fn is_buffer(&self) -> bool {
        let sleeps = |quiet: QuietRounds| quiet.level.get() >= MIN_LEVEL_OF_SLEEPING_WRITER;
        let is_level = self.is_level() || (!self.ever_lost_on_path() && self.capture.quiet.is_some_and(sleeps));
        is_level
            && !self.was_fuller()
            && self.follows_acknowledgements()
            && self.is_longer_than_a_pace(self.figures.rate)
    }

    /// Returns whether its trains are longer than those of a pace at `rate`: the kernel makes them as long as the pace
    /// sends in a millisecond, and of two segments at least (`tcp_tso_autosize`).
    fn is_longer_than_a_pace(&self, rate: BitRate) -> bool {
        let longest = rate.scaled(MAX_PACE_FACTOR).bytes_in(Span::from_millis(1));
        self.figures.mss.is_some_and(|mss| self.capture.train > longest.max(mss * FEW_SEGMENTS))
    }

    /// Finds a device that discards what exceeds a rate, and a sender that has learnt it: much was lost in many round
    /// trips, more than a slow start that overshoots takes to repair, and nothing since.
    fn policed_at_first(&self) -> Option<Finding> {
        let lost = self.figures.lost()?.ratio();
        let lossy = losses::lossy_round_trips(&self.figures.flows, self.figures.idle_rtt.or(self.figures.rtt)?);
        let found = self.figures.part.is_some()
            && lost.get() >= MIN_LOSS_OF_PROBES
            && lossy >= MANY_LOSSY_ROUND_TRIPS
            && !self.lost_on_path()
            && !self.waits_on_path()
            && !self.queue_stands();
        let found = found.then(|| Finding::new(LossVerdict::Policer, Ratio::ONE))?;
        Some(if self.is_at_sender() { found } else { found.one_of_several() })
    }

    /// Finds a full link whose queue overflowed at first, and a sender that lost nothing since it drained and keeps
    /// about the rate that it had then: BBR paces itself so when it takes the link for a policer
    /// (`bbr_lt_bw_sampling`). A pace that was there from the begin would never have filled the queue. Others that use
    /// the link too leave a queue.
    fn full_at_first(&self) -> Option<Finding> {
        let queue = self.figures.idle_rtt?.scaled(INFLATED_RTT_FACTOR);
        let of_flow = |flow: &Flow| {
            let [first, last] = losses::time_of_queue(flow, |rtt| rtt >= queue)?;
            Some(BitRate::of(last.bytes.saturating_sub(first.bytes), last.at.saturating_sub(first.at)))
        };
        let rate_of_queue: BitRate = self.figures.flows.iter().map(of_flow).sum::<Option<_>>()?;
        let stands = share(self.figures.snapshots().map(|snapshot| Some(snapshot.sample.tcp.rtt? >= queue)))?;
        let enough = stated_capacity(self.figures).map(|stated| stated.scaled(FULL_PIPE_SHARE_UNDER_BBR));
        let found = self.figures.retransmitted()?.again == 0
            && (enough.is_none_or(|enough| self.figures.rate >= enough) || !self.drains())
            && stands.get() < MIN_LIMIT_SHARE
            && self.figures.rate >= rate_of_queue.scaled(FULL_USE_OF_PATH);
        let found = found.then(|| Finding::new(CapacityVerdict::Link, Ratio::ONE))?;
        let found = capacity::behind_on_path(self.figures, &found).unwrap_or(found);
        Some(if self.is_at_sender() { found } else { found.one_of_several() })
    }

    /// Finds a sender that spaces its data by a rate: by its program, which then has no more than parts of segments, or
    /// below it.
    fn own_pace(&self) -> Option<Finding> {
        let held = self.paced_share().filter(|share| share.get() >= MIN_PACED_SHARE && !self.is_buffer())?;
        if self.exceeds_its_pace() {
            return None;
        }
        let program = Finding::new(SenderApplicationVerdict::RateLimited, held);
        if self.capture.partial.get() >= MIN_PARTIAL_SHARE || self.writes_show() {
            return Some(program.one_of_several());
        }
        // A pace lets no more be in flight at any time unless a round trip takes longer, and a program that catches up
        // with its rate does.
        if self.was_fuller() && !self.ever_lost_on_path() && !self.waits_on_path() {
            return Some(program.or(PacingVerdict::MaxPacingRate));
        }
        if self.sees_no_queue() {
            return Some(if self.leaves_room_on_path() {
                Finding::new(SendBufferVerdict::TcpWmemMax, held).or(SenderApplicationVerdict::Idle)
            } else {
                Finding::new(CapacityVerdict::Link, held).one_of_several()
            });
        }
        // A congestion window grows again after a loss.
        let is_long = |quiet: QuietRounds| quiet.share.get() >= LONG_QUIET_SHARE;
        let stands_still = || self.is_level() && self.capture.quiet.is_some_and(is_long);
        let is_own = (!self.lost_on_path() || stands_still()) && !self.waits_on_path();
        is_own.then(|| Finding::new(PacingVerdict::MaxPacingRate, held).one_of_several())
    }

    /// Returns whether the sender is faster at times than what seems its pace, though always as much is in flight: BBR
    /// sends a quarter faster in one of eight round trips (`bbr_pacing_gain`) if its buffer lets it, and a maximum pace
    /// never does.
    fn exceeds_its_pace(&self) -> bool {
        let is_faster = |burst: BurstRate| {
            burst.share.get() >= MIN_PACED_SHARE && burst.rate > self.figures.rate.scaled(MAX_PACE_FACTOR)
        };
        let exceeds = self.capture.faster.is_some_and(|share| share.get() >= MIN_FASTER_THAN_PACE);
        self.is_level() && !self.was_fuller() && (exceeds || self.capture.departures.is_some_and(is_faster))
    }

    /// Returns whether packets end where the program's writes do, which are joined where data waits at the sender.
    fn writes_show(&self) -> bool {
        let partial = self.capture.partial.get();
        if self.follows_acknowledgements() {
            return false;
        }
        // A window cuts packets, too: it is always full, and data follows the acknowledgements that move it.
        let is_at_own_times = self.capture.clocked.is_some_and(|clocked| clocked.get() < CLOCKED_SHARE);
        let is_no_window = is_at_own_times || (self.capture.quiet.is_some() && !self.is_level());
        (self.is_at_sender() && partial >= MIN_PARTIAL_AT_SENDER)
            || (partial >= MIN_PARTIAL_OF_PROGRAM && is_no_window && !self.ever_lost_on_path())
    }

    /// Returns whether data always waited at the sender: hardly a packet ends where a write does.
    fn data_waits_at_sender(&self) -> bool {
        let segments = || self.figures.flows.first()?.whole.last()?.tcp.data_segs_out;
        segments().is_some_and(|all| self.capture.partial.get() * all.get() as f64 <= FEW_ENDS_OF_WRITES)
    }

    /// Finds the queue of the sending host, if it dropped what a capture behind it never saw.
    fn own_queue(&self) -> Option<Finding> {
        let again = self.figures.sent_again_in_all()?;
        let found = self.is_at_sender() && self.capture.lost_before > 0 && self.capture.lost_before * 2 > again;
        found.then(|| Finding::new(CapacityVerdict::HostQueue, Ratio::ONE))
    }

    /// Finds a send buffer, whose data is always as much: losses and queues make it swing. Its own bursts may wait in a
    /// queue, and at first be lost to it, but the queue is empty before the next ones.
    fn buffer_of_sender(&self) -> Option<Finding> {
        if self.was_fuller() {
            return None;
        }
        let lost = self.ever_lost_on_path();
        let is_faster = self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true);
        let is_flat = self.plateau()? >= FLAT_PLATEAU && !lost && is_faster;
        let refills = || {
            let is_level = self.is_level() && self.drains() && (self.some_waits() || !lost);
            is_level && self.bursts_are_faster(MIN_SHARE_OF_REFILLS) == Some(true)
        };
        (is_flat || refills()).then(|| self.of_sender()).flatten()
    }

    /// Returns whether round trips take clearly longer under load.
    fn some_waits(&self) -> bool {
        self.figures.rtt.zip(self.figures.idle_rtt).is_some_and(|(rtt, idle)| rtt >= idle.scaled(MIN_WAIT))
    }

    /// Returns whether always as much is in flight, since a loss if there was one, and that is long ago.
    fn is_level(&self) -> bool {
        let level = |quiet: QuietRounds| quiet.share.get() >= MIN_QUIET_SHARE && quiet.level.get() >= MIN_LEVEL;
        self.capture.quiet.is_some_and(level)
    }

    /// Returns whether clearly more was in flight before: before a loss, or while a program caught up with its rate. A
    /// send buffer, which keeps all data until it is acknowledged, never shrinks, so that it holds as much later.
    fn was_fuller(&self) -> bool {
        let least = if self.ever_lost_on_path() { MIN_SHARE_BEFORE_LOSS } else { MIN_SHARE_OF_FULL_BUFFER };
        let of_most = self.capture.quiet.and_then(|quiet| quiet.of_most);
        of_most.is_some_and(|share| share.get() < least)
    }

    /// Returns whether the queue of the path is hardly ever empty.
    fn queue_stands(&self) -> bool {
        self.capture.quiet.is_some_and(|quiet| quiet.free.get() < MAX_FREE_SHARE)
    }

    /// Returns whether the queue of the path is empty once in most round trips.
    fn drains(&self) -> bool {
        self.capture.quiet.is_some_and(|quiet| quiet.free.get() >= MIN_FREE_SHARE)
    }

    /// Finds a receiver that answers late: with two captures, round trips take clearly longer for the sender than for
    /// the receiver, which has a queue of the path in its own, too; else, its window shows that data waits for it.
    fn late_receiver(&self) -> Option<Finding> {
        if !self.is_at_sender() || self.ever_lost_on_path() || !self.waits_on_path() {
            return None;
        }
        let is_late = match self.figures.evidence.loaded_rtt {
            Some(rtt) => !capacity::echoes_wait(self.figures) && self.figures.rtt? > rtt.scaled(INFLATED_RTT_FACTOR),
            None => self.uses_window() && receiver_application::reads_slowly(self.figures),
        };
        is_late.then(|| Finding::new(ReceiverApplicationVerdict::SlowReader, Ratio::ONE).one_of_several())
    }

    /// Returns whether much of the window is in use.
    fn uses_window(&self) -> bool {
        let sizes = self.figures.mean(|one| one.outstanding).zip(self.figures.mean(|one| one.window));
        sizes.is_some_and(|(in_flight, window)| in_flight >= window.scaled(MIN_WINDOW_USE))
    }

    /// Finds the limit of the path, if it held data back for most of the time.
    fn path(&self) -> Option<Finding> {
        let held = share(self.figures.snapshots().map(|snapshot| snapshot.held_by_path(false)))
            .filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
        let order = [loss::without_queue, capacity::full_bottleneck, congestion_window::held_without_loss, loss::find];
        // A queue that is empty so often is none of a full link.
        let may_be = |found: &Finding| found.kind() != Limit::Capacity || !self.drains();
        let by_rules = || order.into_iter().filter_map(|rule| rule(self.figures, held)).find(may_be);
        let found = if self.fills_path() { Finding::new(CapacityVerdict::Link, held) } else { by_rules()? };
        // A queue that is seldom empty is not short, and a policer has none.
        let denies_queue = [LossVerdict::ShallowQueue, LossVerdict::Policer].map(LegalVerdict::from);
        let is_long = denies_queue.contains(&found.verdict) && self.queue_stands();
        // Random losses do not keep a queue full; those of others, or the sender itself, do.
        let is_busy = found.verdict == LossVerdict::Random.into() && self.queue_stands() && self.some_waits();
        let found = if is_busy && self.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true) {
            found.as_verdict(CapacityVerdict::Shared)
        } else if is_long || is_busy {
            found.as_verdict(CapacityVerdict::Link)
        } else {
            found
        };
        let found = capacity::behind_on_path(self.figures, &found).unwrap_or(found);
        if found.kind() == Limit::Capacity {
            // A link that the sender leaves idle so often is not full.
            let carries_more = found.verdict == CapacityVerdict::Shared.into();
            let idle = if carries_more { self.leaves_path_idle() } else { self.idle_at_times() };
            if idle.is_some() {
                return idle;
            }
        }
        let may_be_another = match found.kind() {
            Limit::Capacity => true,
            Limit::Loss => found.verdict != LossVerdict::Random.into() || self.sees_no_queue(),
            _ => false,
        };
        Some(if may_be_another && !self.is_at_sender() { found.one_of_several() } else { found })
    }

    /// Finds a congestion window that grows, or stays below what was in flight before a loss.
    fn growth(&self) -> Option<Finding> {
        let grows = trend(self.figures, |snapshot| snapshot.outstanding)? >= REGROWN_WINDOW_FACTOR;
        let is_lowered = self.was_fuller() && self.ever_lost_on_path();
        let found = (grows || is_lowered).then(|| congestion_window::growth(self.figures, Ratio::ONE)).flatten()?;
        // What the sending host's own queue drops leaves no trace in packets, or elsewhere that of a loss.
        if found.verdict == CongestionWindowVerdict::Recovering.into() && self.queue_stands() && self.some_waits() {
            // The queue is that of others, which leave it little.
            return Some(found.as_verdict(CapacityVerdict::Shared));
        }
        let may_be_own_queue = match found.verdict {
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::EarlyExit) => true,
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering) => !self.is_at_sender(),
            _ => false,
        };
        Some(if may_be_own_queue { found.one_of_several() } else { found })
    }

    /// Finds a sender that holds itself back though this does not show why: its program or its own queue, by which data
    /// goes out at their times, or its buffer, whose data goes out as the acknowledgements come.
    fn of_sender(&self) -> Option<Finding> {
        if self.is_answered_in_each_round_trip() {
            return Some(Finding::new(ApplicationWindowVerdict::SshChannelOfReceiver, Ratio::ONE).one_of_several());
        }
        let at_own_times = self.capture.clocked.is_some_and(|clocked| clocked.get() < CLOCKED_SHARE);
        let is_uneven = self.plateau()? < MIN_PLATEAU && !self.is_level() && !self.follows_acknowledgements();
        // Neither a buffer nor a pace, behind which data waits at any time.
        let own_queue = |found: Finding| {
            let waits = self.data_waits_at_sender() && !self.was_fuller();
            if waits { found.or(CapacityVerdict::HostQueue) } else { found.one_of_several() }
        };
        if !self.is_at_sender() {
            if self.writes_show() || (at_own_times && is_uneven) || self.swings() {
                return Some(Finding::new(SenderApplicationVerdict::Idle, Ratio::ONE).one_of_several());
            }
            let found = Finding::new(SendBufferVerdict::TcpWmemMax, Ratio::ONE);
            // A smaller window does the same, and not every sender cuts a packet where it ends. A pace cuts none.
            let may_be_window = match self.capture.clocked {
                Some(_) => self.follows_acknowledgements(),
                None => self.cuts_packets()?,
            };
            let lowered = ReceiveWindowVerdict::WindowClamped;
            return Some(if may_be_window { found.or(lowered) } else { own_queue(found) });
        }
        let is_spaced = self.paced_share().is_some_and(|share| share.get() >= MIN_PACED_SHARE);
        if self.was_fuller() && !self.follows_acknowledgements() {
            let program = if self.writes_show() || is_spaced {
                SenderApplicationVerdict::RateLimited
            } else {
                SenderApplicationVerdict::Idle
            };
            return Some(Finding::new(program, Ratio::ONE).one_of_several());
        }
        let is_held = at_own_times && self.is_level() && !self.was_fuller();
        if is_held && !self.writes_show() && self.data_waits_at_sender() {
            return Some(own_queue(Finding::new(SendBufferVerdict::TcpWmemMax, Ratio::ONE)));
        }
        let found: LegalVerdict = if self.writes_show() {
            SenderApplicationVerdict::Idle.into()
        } else if !is_uneven && (self.bursts_are_paced() || is_spaced) {
            // The kernel's pace hides what follows acknowledgements, and a device may be what spaces the data.
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
        Some(Finding::new(found, Ratio::ONE).one_of_several())
    }

    /// Returns whether what is in flight swings by more than the third of a buffer that is free when its writer is
    /// woken.
    fn swings(&self) -> bool {
        let swings = |quiet: QuietRounds| quiet.level.get() < MIN_LEVEL_OF_SLEEPING_WRITER;
        !self.ever_lost_on_path() && self.capture.quiet.is_some_and(swings)
    }

    /// Returns whether the receiving program sends something in each round trip, as one does that grants a window of
    /// its own.
    fn is_answered_in_each_round_trip(&self) -> bool {
        let a_round_trip = self.figures.rtt.map(|rtt| self.figures.rate.bytes_in(rtt));
        a_round_trip.is_some_and(|size| self.capture.answers as f64 * size.as_f64() >= self.bytes().as_f64())
    }

    /// Returns the data that was acknowledged, all streams together.
    fn bytes(&self) -> ByteCount {
        self.figures.flows.iter().filter_map(|flow| Some(flow.whole.last()?.bytes)).sum()
    }

    /// Returns whether small trains are spaced by a rate, which is above that of the transfer.
    fn bursts_are_paced(&self) -> bool {
        let is_pace = |burst: BurstRate| burst.share.get() >= PACED_BURSTS_SHARE;
        self.capture.departures.is_some_and(|burst| is_pace(burst) && !self.is_longer_than_a_pace(burst.rate))
    }

    /// Returns whether nothing shows here if data waits on the path: without timestamps only the sender has round-trip
    /// times of it.
    fn sees_no_queue(&self) -> bool {
        !self.is_at_sender() && self.figures.snapshots().all(|snapshot| snapshot.sample.tcp.rtt.is_none())
    }

    /// Returns whether the path could carry clearly more, as far as its capacity is stated.
    fn leaves_room_on_path(&self) -> bool {
        let enough = stated_capacity(self.figures).map(|stated| stated.scaled(SHARED_PIPE_SHARE));
        enough.is_some_and(|enough| self.figures.rate < enough)
    }

    fn is_at_sender(&self) -> bool {
        self.capture.point == Some(At::Sender)
    }

    /// Returns whether something was lost in the judged part, and not in the sending host.
    fn lost_on_path(&self) -> bool {
        self.is_beyond_sender(self.figures.retransmitted().map_or(0, |lost| lost.again))
    }

    /// The same of the whole transfer.
    fn ever_lost_on_path(&self) -> bool {
        self.is_beyond_sender(self.figures.sent_again_in_all().unwrap_or(0))
    }

    fn is_beyond_sender(&self, again: u64) -> bool {
        again > if self.is_at_sender() { self.capture.lost_before } else { 0 }
    }

    fn waits_on_path(&self) -> bool {
        capacity::full_bottleneck(self.figures, Ratio::ONE).is_some()
    }

    /// Returns the share of the time in which the sender's packets are spaced by one rate, that of the transfer.
    fn paced_share(&self) -> Option<Ratio> {
        let all = self.figures.rate;
        let each = all.scaled(1.0 / f64::from(self.figures.streams()));
        let of_time = |burst: &BurstRate| {
            let pace = [each, all].into_iter().find(|rate| burst.rate <= rate.scaled(MAX_PACE_FACTOR))?;
            // At first a shaper may let more pass; at other times faster trains show that nothing spaces them.
            let is_whole = burst.rate >= pace.scaled(1.0 / MAX_PACE_FACTOR);
            let of_time = (burst.share.get() * pace.relative_to(burst.rate)).min(1.0);
            (is_whole || burst.share.get() >= MIN_SHARE_BELOW_PACE).then(|| Ratio::new(of_time))
        };
        let both = [self.capture.departures, self.capture.arrivals];
        both.iter().flatten().filter_map(of_time).max_by(|one, other| one.get().total_cmp(&other.get()))
    }

    /// Returns whether bursts pass the path clearly faster than the transfer; `None` where less than `share` of the
    /// data comes at one rate.
    fn bursts_are_faster(&self, share: f64) -> Option<bool> {
        Some(self.figures.rate < self.rate_of_bursts(share)?.scaled(MIN_USE_OF_FULL_PATH))
    }

    /// Returns whether bursts pass the path no faster than the transfer, and wait in a queue that loses few.
    fn fills_path(&self) -> bool {
        let bursts = self.rate_of_bursts(MIN_SHARE_OF_BURSTS);
        let is_as_fast = bursts.is_some_and(|rate| self.figures.rate >= rate.scaled(FULL_USE_OF_PATH));
        let loses_few = self.figures.lost().is_some_and(|lost| lost.ratio().get() < MIN_LOSS_OF_PROBES);
        is_as_fast && loses_few && self.some_waits() && !self.drains()
    }

    /// Returns the most frequent rate at which bursts pass the path, if `share` of the data comes at it.
    fn rate_of_bursts(&self, share: f64) -> Option<BitRate> {
        let seen = if self.is_at_sender() {
            [self.capture.acknowledgements, self.capture.beyond]
        } else {
            [self.capture.arrivals, self.capture.departures]
        };
        let known = seen.into_iter().flatten().filter(|burst| burst.share.get() >= share);
        Some(BurstRate::most_frequent(known)?.rate)
    }

    fn window_never_grew(&self) -> bool {
        self.figures.flows.iter().all(|flow| receive_window::grew_by(flow) <= Some(MIN_TUNED_GROWTH))
    }

    /// Returns what is in flight for nine tenths of the time, as a share of the most that is usually in flight.
    fn plateau(&self) -> Option<f64> {
        Some(Ratio::of(self.in_flight(10)?.as_f64(), self.usual_most_in_flight()?.as_f64()).get())
    }

    /// Returns the most that is usually in flight.
    fn usual_most_in_flight(&self) -> Option<ByteCount> {
        self.in_flight(95)
    }

    /// Returns what is in flight at most for so many percent of the time, over the largest connection.
    fn in_flight(&self, percent: usize) -> Option<ByteCount> {
        let flow = self.figures.flows.first()?;
        let mut sizes: Vec<ByteCount> = flow.snapshots.iter().filter_map(|snapshot| snapshot.outstanding).collect();
        sizes.sort_unstable();
        sizes.get(sizes.len() * percent / 100).copied()
    }
}

/// Returns the limit in one sentence, where a capture shows it by other figures than the hosts do.
pub(crate) fn sentence(figures: &Figures, capture: &CaptureEvidence, finding: &Finding) -> Option<String> {
    let view = View { figures, capture };
    let (rate, rtt) = (figures.rate, text::time(figures.rtt));
    let (in_flight, window) =
        [text::size(figures.mean(|one| one.outstanding)), text::size(figures.mean(|one| one.window))].into();
    match finding.verdict {
        LegalVerdict::Unknown(_) => Some(one_way(capture.only?, rate)),
        LegalVerdict::Mtu(MtuVerdict::BlackHole) if capture.only.is_some() => Some(format!(
            "The sender repeats its first {} again and again, and no answer was captured: full packets vanish on the \
             path, or all do.",
            view.passed()
        )),
        LegalVerdict::Capacity(CapacityVerdict::HostQueue) if capture.lost_before == 0 => Some(format!(
            "The sender holds itself back and sends at times of its own, though it never pauses and the receiver \
             allows {window}: its own queue may drop packets before they are captured, or its program writes little at \
             a time; {rate} is sent."
        )),
        LegalVerdict::ApplicationWindow(_) => Some(format!(
            "The sender holds itself back, and the receiving program answers in each round trip: it may grant a window \
             of its own, as SSH does. Always about {in_flight} is in flight, though the receiver allows {window} and \
             nothing is lost; over {rtt} that is {rate}."
        )),
        LegalVerdict::SendBuffer(_) => Some(of_buffer(&view, finding)),
        LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowScaleRewritten) if capture.window_edit.is_none() => {
            Some(if finding.other == Some(ReceiveWindowVerdict::WindowScaleStripped.into()) {
                "The sender asks for the window again and again and sends nothing: it takes it for less than a \
                 segment, as where a device removes or changes its scale, which the handshake would show; or its \
                 program pauses."
                    .to_owned()
            } else if view.closed_on_the_way().is_some() {
                format!(
                    "The sender asks for the window again and again and sends nothing, though the receiver allows \
                     {window}: it may take it for less than a segment, as where a device changes its scale, or its \
                     program pauses."
                )
            } else {
                format!(
                    "Only about {in_flight} is in flight though the receiver allows {window}: as much as its windows \
                     hold under a smaller scale. A device behind this place changes it, or the sender's buffer is as \
                     large; over {rtt} that is {rate}."
                )
            })
        }
        LegalVerdict::ReceiveWindow(ReceiveWindowVerdict::WindowClamped) if capture.window_edit.is_none() => {
            Some(format!(
                "Only about {in_flight} is in flight though the receiver allows {window}: data follows the \
                 acknowledgements, and a packet in each round trip is cut short, as at the end of a smaller window. A \
                 device behind this place lowers it or changes its scale, or the program offers as little at a time; \
                 over {rtt} that is {rate}."
            ))
        }
        LegalVerdict::Pacing(_) => Some(format!(
            "The sender paces its data: trains of {} come evenly, at {rate}, though the receiver allows {window} and \
             nothing is lost.",
            capture.train
        )),
        LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited) if finding.other.is_some() => {
            Some(format!(
                "The sender offers no more: its data comes evenly, at {rate}, and neither the receiver nor the path \
                 holds it back. More was in flight at times, as of a program that catches up with its rate, or where \
                 a round trip took longer under a pace of its own."
            ))
        }
        LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited) => Some(format!(
            "The sending program offers no more: it writes evenly, at {rate}, and {} of its packets hold no full \
             segments; neither the receiver nor the path holds it back.",
            capture.partial
        )),
        LegalVerdict::ReceiverApplication(_)
            if figures.evidence.loaded_rtt.is_some() && view.late_receiver().as_ref() == Some(finding) =>
        {
            Some(format!(
                "The receiver answers late: a round trip takes {rtt} for the sender and {} for the receiver, which has \
                 a queue of the path in its own; its program or its processor keeps the data waiting.",
                text::time(figures.evidence.loaded_rtt)
            ))
        }
        LegalVerdict::SenderApplication(_) if capture.idle.get() >= IDLE_CAPTURE_SHARE => Some(format!(
            "The sending program is slow: for {} of the time little is in flight, though the receiver allows {window} \
             and nothing is lost then.",
            capture.idle
        )),
        LegalVerdict::SenderApplication(_) => Some(format!(
            "The sending program is slow: it sends at times of its own, and not as acknowledgements come, though the \
             receiver allows {window} and nothing is lost; {rate} is what it offers."
        )),
        LegalVerdict::Mtu(MtuVerdict::BlackHole) if finding.is_one_of_several && view.is_at_sender() => Some(
            "The connection is open, and hardly any data passed: full packets of the other end vanish on their way \
             here, or the programs have none to send."
                .to_owned(),
        ),
        LegalVerdict::Mtu(MtuVerdict::BlackHole) if !view.is_at_sender() => Some(
            "The connection is open, and hardly any data came: full packets vanish on their way here, or the sender \
             has none to send."
                .to_owned(),
        ),
        _ => None,
    }
}

/// Returns the sentence about a send buffer, or what looks like one from the place of the capture.
fn of_buffer(view: &View, finding: &Finding) -> String {
    let figures = view.figures;
    let (rate, rtt) = (figures.rate, text::time(figures.rtt));
    let (in_flight, window) =
        [text::size(figures.mean(|one| one.outstanding)), text::size(figures.mean(|one| one.window))].into();
    let waits_in_host = finding.other == Some(CapacityVerdict::HostQueue.into());
    if view.is_at_sender() && !waits_in_host {
        return format!(
            "The sender's buffer holds no more: always about {in_flight} is in flight, and more is sent only as \
             acknowledgements come, though the receiver allows {window} and nothing is lost; over {rtt} that is {rate}."
        );
    }
    let alike = if waits_in_host {
        "Data waits there all the time: for its buffer, for a pace of its device, or for room in the queue of that."
    } else if finding.other.is_some() {
        "Its buffer, and a window that a device behind this place lowers, look alike from here."
    } else {
        "Its buffer, its program and a pace of its device look alike from here."
    };
    format!(
        "The sender holds itself back: always about {in_flight} is in flight, though the receiver allows {window} and \
         nothing is lost; over {rtt} that is {rate}. {alike}"
    )
}

/// Returns the sentence about a capture that has the packets of `end` alone.
fn one_way(end: At, rate: BitRate) -> String {
    let seen = if end == At::Sender {
        format!("the sender's packets were captured, {rate}, and none of those that go back")
    } else {
        "the receiver's packets were captured, and none of the data that they acknowledge".to_owned()
    };
    format!(
        "Only {seen}: nothing shows what limits this transfer. A capture of the other direction would, or one at \
         either end."
    )
}

/// Returns the figures of a capture that decide.
pub(crate) fn shown(capture: &CaptureEvidence) -> Vec<Row> {
    let burst = |burst: Option<BurstRate>| burst.map(|burst| format!("{}, {} of the data", burst.rate, burst.share));
    let place = match capture.point {
        Some(At::Sender) => "at the sender",
        Some(At::Receiver) => "at the receiver",
        Some(_) => "between the ends",
        None => "at a place that the packets do not show",
    };
    let only = capture.only.map(|end| match end {
        At::Sender => "of the sender alone",
        _ => "of the receiver alone",
    });
    let two_way = only.is_none();
    let lost = (capture.lost_before > 0).then(|| counted(capture.lost_before, "segment"));
    vec![
        ("captured", Some(place.to_owned())),
        ("captured packets", only.map(str::to_owned)),
        ("sent on acknowledgements", capture.clocked.map(|share| share.to_string())),
        ("little in flight", two_way.then(|| format!("{} of the time", capture.idle))),
        ("most frequent rate", burst(capture.departures)),
        ("acknowledged most often at", burst(capture.acknowledgements)),
        ("no full segments", Some(format!("{} of the packets", capture.partial))),
        ("lost before this point", lost),
    ]
}

/// Figures that only the sender has.
const SENDER: &str = "the sender's congestion window, its buffer and its pace";

/// Figures that only the receiver's packets have, and those that only the sender's have.
const ACKNOWLEDGEMENTS: &str = "the receiver's acknowledgements and windows: a capture of the other direction";
const DATA: &str = "the sender's data: a capture of the other direction";
