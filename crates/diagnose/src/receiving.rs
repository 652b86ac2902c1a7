//! The verdict from the receiving end alone: its own window and buffer, its reader, and the course
//! of the arrivals.

use std::collections::BTreeMap;

use fullpipe_model::kernel;
use fullpipe_model::window;
use fullpipe_record::{
    Buffer, CapacityVerdict, CongestionWindowVerdict, CpuVerdict, LegalVerdict, Limit, LossVerdict,
    MtuVerdict, PacingVerdict, ReceiveWindowVerdict, ReceiverApplicationVerdict, Sample,
    SendBufferVerdict, SenderApplicationVerdict,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, SegCount, Span, median};

use crate::arrivals::{ReceiverSampleFigures, counter_growth};
use crate::credit::ProgramCredit;
use crate::figures::share_of_votes;
use crate::finding::LimitFinding;
use crate::limits::{
    LimitFacts, application_window, cpu, half_duplex, memory_pressure, mtu, receive_window,
    receiver_host,
};
use crate::path::{exceeds_the_pipe, queue_before_the_load};
use crate::ramp::is_slow_start;
use crate::signals::Signals;
use crate::syn_quotes;
use crate::text;
use crate::thresholds::{
    FEW_SEGMENTS, FULL_PIPE_SHARE, FULLY_TUNED_SHARE, LOWERED_BY_LOSS_FACTOR, MAX_FIRST_WINDOW,
    MIN_IDLE_SHARE, MIN_LIMIT_SHARE, MIN_LOSS_OF_PROBES, MIN_RECOVERIES, MIN_TIME_WITHOUT_PROGRESS,
    MIN_WINDOW_FILL, MUCH_OUT_OF_ORDER, REACHED_RATE_SHARE, SHARED_PIPE_SHARE, SILENCE_ROUND_TRIPS,
    STOPPED_SHARE, TICK_TOLERANCE, UNREAD_BUFFER_SHARE, WHOLE_RATE_SHARE,
};

/// Returns the limit of a transfer of which the receiving end alone was seen.
pub(crate) fn find_limit(arrivals: &ReceiverSampleFigures, signals: &Signals) -> LimitFinding {
    let sought = [
        nothing_arrives,
        full_as_stated,
        ended_early,
        as_asked,
        too_small_a_window_for_the_sender,
        slow_reader,
        own_window_in_use,
        own_processor,
        queue_on_the_path,
        out_of_order,
        nearly_as_asked,
        growing_window,
        silent_sender,
        sender_itself,
    ];
    let found = sought.into_iter().filter_map(|rule| rule(arrivals));
    let found = signals.first_possible(found, |_| arrivals.find_ceilings());
    let found = found
        .unwrap_or_else(|lacking| LimitFinding::unknown_limit(vec![lacking.unwrap_or(OTHER_END)]));
    half_duplex::behind_arrivals(arrivals.evidence, &found)
        .or_else(|| receiver_host::behind_arrivals(arrivals, &found))
        .or_else(|| mtu::behind_arrivals(arrivals, &found))
        .unwrap_or(found)
}

/// Finds a pipe that is as full as its stated bandwidth allows.
fn full_as_stated(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    (arrivals.rate >= arrivals.stated_capacity()?.scale_by(FULL_PIPE_SHARE))
        .then(|| LimitFinding::new(CapacityVerdict::Link, Ratio::ONE))
}

/// Finds full segments that vanish: the connection is open and the far end always has data, but no
/// segment of it ever arrives.
fn nothing_arrives(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let never = |flow: &Vec<&Sample>| {
        let silent = flow
            .last()
            .filter(|last| last.at >= MIN_TIME_WITHOUT_PROGRESS);
        silent.is_some_and(|last| last.tcp.data_segs_in == Some(SegCount::ZERO))
    };
    let found =
        arrivals.is_own_load() && !arrivals.whole.is_empty() && arrivals.whole.iter().all(never);
    found.then(|| LimitFinding::new(MtuVerdict::BlackHole, Ratio::ONE))
}

/// Finds a transfer that ended before the sender's congestion window had grown.
fn ended_early(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let (rtt, mss) = (arrivals.rtt?, arrivals.mss()?);
    let of_flow =
        |flow: &Vec<&Sample>| is_slow_start(flow, |sample| sample.tcp.bytes_received, mss, rtt);
    let found = arrivals.evidence.steady.is_none()
        && arrivals.loss_rounds() == 0
        && arrivals.whole.iter().all(of_flow);
    found.then(|| LimitFinding::new(CongestionWindowVerdict::RampUp, Ratio::ONE))
}

/// Finds a sender that was asked for a rate, or for a maximum pace, and keeps to it. Of a pace
/// headers and waiting may take a part, and so may a full link that carries no more: a queue shows
/// it.
fn as_asked(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    if reaches_rate(arrivals, arrivals.evidence.request.rate, WHOLE_RATE_SHARE) {
        return Some(LimitFinding::new(
            SenderApplicationVerdict::RateLimited,
            Ratio::ONE,
        ));
    }
    let paced = |share: f64| reaches_rate(arrivals, arrivals.evidence.request.pacing, share);
    let is_paced =
        paced(WHOLE_RATE_SHARE) || (paced(REACHED_RATE_SHARE) && !arrivals.is_inflated());
    is_paced.then(|| LimitFinding::new(PacingVerdict::MaxPacingRate, Ratio::ONE))
}

/// Finds a sender that was asked for a rate and comes near to it, where nothing else shows that
/// would hold it back.
fn nearly_as_asked(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    reaches_rate(arrivals, arrivals.evidence.request.rate, REACHED_RATE_SHARE)
        .then(|| LimitFinding::new(SenderApplicationVerdict::RateLimited, Ratio::ONE))
}

/// Returns true if the data arrives at `share` of the rate that each stream was asked for.
fn reaches_rate(arrivals: &ReceiverSampleFigures, asked: Option<BitRate>, share: f64) -> bool {
    let streams = f64::from(arrivals.evidence.request.streams.max(1));
    asked.is_some_and(|rate| arrivals.rate >= rate.scale_by(share * streams))
}

/// Finds a receive buffer that stays full of data in order: the program does not read it. Behind a
/// hole data must wait, which is not the program's doing.
fn slow_reader(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let full = |before: &Sample, now: &Sample| {
        let memory = now.memory?;
        let waits_for_a_hole = now.tcp.out_of_order_in > before.tcp.out_of_order_in;
        Some(memory.rmem_alloc >= memory.rcvbuf.scale_by(UNREAD_BUFFER_SHARE) && !waits_for_a_hole)
    };
    let held = share_of_votes(
        arrivals
            .snapshot_pairs()
            .map(|(before, now)| full(before, now)),
    )?;
    let program = || LimitFinding::new(ReceiverApplicationVerdict::SlowReader, held);
    // A program that gets no time does not read either.
    (held.get() >= MIN_LIMIT_SHARE).then(|| own_processor(arrivals).unwrap_or_else(program))
}

/// Finds this end's window as the limit, where each round trip brings as much as it allows. A
/// window that is larger than the pipe fills a queue with the rest. Senders do not fill windows
/// below one MSS (silly-window avoidance).
fn own_window_in_use(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let (window, rtt) = (arrivals.usual_window()?, arrivals.rtt?);
    if !arrivals.fills_window(window, rtt) {
        return None;
    }
    let in_the_pipe = arrivals
        .rate
        .bytes_in(arrivals.evidence.idle_rtt.unwrap_or(rtt));
    if arrivals.is_inflated() && exceeds_the_pipe(window, in_the_pipe, || arrivals.is_flat()) {
        return Some(arrivals.full_path(CapacityVerdict::Link));
    }
    let held = Ratio::new(
        Ratio::from_quotient(arrivals.rate.bytes_in(rtt).as_f64(), window.as_f64())
            .get()
            .min(1.0),
    );
    let cause = arrivals.cause_of_window(window);
    let found = LimitFinding::new(cause, held);
    let is_of_a_size = matches!(
        cause,
        ReceiveWindowVerdict::SoRcvbuf | ReceiveWindowVerdict::TcpRmemMax
    );
    if is_of_a_size && arrivals.may_only_pause() {
        return Some(found.add_alternative(SenderApplicationVerdict::Idle));
    }
    // Where scaling is on here, only the SYN could show who took it away.
    let offered = arrivals
        .evidence
        .receiver
        .as_ref()
        .is_some_and(|host| host.window_scaling);
    let unsure = cause == ReceiveWindowVerdict::NoWindowScaling && offered;
    Some(if unsure {
        found.one_of_several()
    } else {
        found
    })
}

/// Finds the processors of this end, if they had no more time to give for most of the judged part.
fn own_processor(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let times = || arrivals.snapshots().map(|snapshot| snapshot.at);
    let streams = u16::try_from(arrivals.flows.len()).unwrap_or(u16::MAX);
    cpu::of_this_receiver(
        &arrivals.evidence.receiver_machine,
        streams,
        times().min()?,
        times().max()?,
    )
}

/// Finds a sender that takes this end's window for less than a segment, as where a device removes
/// or changes its scale: it sends what the handshake allows, whose window has none, and then next
/// to nothing, though it always has data.
fn too_small_a_window_for_the_sender(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let stopped = |flow: &Vec<&Sample>| {
        let last = flow.last()?;
        let all = last.tcp.bytes_received?;
        let moving = flow
            .iter()
            .filter(|sample| sample.tcp.bytes_received < Some(all.scale_by(STOPPED_SHARE)));
        let silent = last
            .at
            .saturating_sub(moving.map(|sample| sample.at).max().unwrap_or_default());
        let is_long = silent >= MIN_TIME_WITHOUT_PROGRESS && silent * 2 >= last.at;
        Some(is_long && all > ByteCount::ZERO && all <= MAX_FIRST_WINDOW)
    };
    let is_open = arrivals.usual_window()? >= arrivals.mss()? * FEW_SEGMENTS;
    let found = is_open
        && arrivals.is_own_load()
        && arrivals
            .whole
            .iter()
            .all(|flow| stopped(flow) == Some(true));
    found.then(|| {
        LimitFinding::new(ReceiveWindowVerdict::WindowScaleStripped, Ratio::ONE).one_of_several()
    })
}

/// Finds a congestion window that grows, or that losses have made smaller than it was, of a sender
/// that always has data: what comes in a round trip becomes more, or was more before them. Buffers
/// and windows stand still.
fn growing_window(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let has_lost = arrivals.loss_rounds() > 0;
    let is_lower = has_lost && !arrivals.is_bbr() && arrivals.was_faster(LOWERED_BY_LOSS_FACTOR);
    let found = arrivals.is_own_load() && (arrivals.grows() || is_lower);
    let cause = match arrivals.evidence.steady {
        _ if has_lost => CongestionWindowVerdict::Recovering,
        Some(_) => CongestionWindowVerdict::EarlyExit,
        None => CongestionWindowVerdict::RampUp,
    };
    found.then(|| LimitFinding::new(cause, Ratio::ONE))
}

/// Finds a queue on the path that this transfer keeps filled: the round trip is longer under load;
/// or a little longer, and the data arrives at one rate throughout.
fn queue_on_the_path(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let is_full = arrivals.is_inflated()
        || (arrivals.is_flat()
            && (arrivals.is_a_little_inflated() || arrivals.bbr_has_what_it_ever_had()));
    if !is_full {
        return None;
    }
    let shared = arrivals.stated_capacity().map_or_else(
        || queue_before_the_load(arrivals.evidence, arrivals.evidence.idle_rtt),
        |stated| arrivals.rate < stated.scale_by(SHARED_PIPE_SHARE),
    );
    let found = arrivals.full_path(if shared {
        CapacityVerdict::Shared
    } else {
        CapacityVerdict::Link
    });
    // A queue of the sending host, which a discipline holds to a rate, is one of the path from
    // here.
    let may_be_host = !found.is_one_of_several
        && arrivals.is_flat()
        && (shared || arrivals.stated_capacity().is_none());
    Some(if may_be_host {
        found.add_alternative(PacingVerdict::Qdisc)
    } else {
        found
    })
}

/// Finds data that arrives out of order again and again: packets before it were lost, or overtaken.
///
/// BBR does not slow down for losses of a few percent: behind it only a policer keeps the rate
/// down. Where a queue was there before the transfer, others fill it and it overflows.
fn out_of_order(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    if arrivals.loss_rounds() < MIN_RECOVERIES {
        return None;
    }
    if arrivals.is_bbr() {
        let discarded = arrivals.share_out_of_order()? >= MIN_LOSS_OF_PROBES
            && !arrivals.bbr_has_what_it_ever_had();
        return discarded.then(|| LimitFinding::new(LossVerdict::Policer, Ratio::ONE));
    }
    if arrivals.shows_a_policer_in_a_long_repair() {
        return Some(LimitFinding::new(LossVerdict::Policer, Ratio::ONE));
    }
    if !arrivals.loss_explains_the_rate()? || arrivals.keeps_its_rate() {
        return None;
    }
    if queue_before_the_load(arrivals.evidence, arrivals.evidence.idle_rtt) {
        return Some(LimitFinding::new(CapacityVerdict::Shared, Ratio::ONE));
    }
    Some(match arrivals.cause_of_losses() {
        Some(LossVerdict::ShallowQueue) if arrivals.never_had_the_link() => {
            LimitFinding::new(CapacityVerdict::Shared, Ratio::ONE)
        }
        // A queue of a few packets of the sending host loses them as one of the path does.
        Some(LossVerdict::ShallowQueue) => {
            LimitFinding::new(LossVerdict::ShallowQueue, Ratio::ONE).one_of_several()
        }
        // As much is out of order where packets overtake each other and none is lost.
        Some(LossVerdict::Random) if arrivals.share_out_of_order() >= Some(MUCH_OUT_OF_ORDER) => {
            LimitFinding::new(LossVerdict::Random, Ratio::ONE)
                .add_alternative(CongestionWindowVerdict::Reordering)
        }
        Some(cause) => LimitFinding::new(cause, Ratio::ONE),
        None => LimitFinding::new(LossVerdict::Random, Ratio::ONE).one_of_several(),
    })
}

/// Finds a sender that is silent for longer than any window would explain. Where only a round trip
/// that is longer than that of the idle path would explain it, a path that others fill, or this
/// end's window over it, may be the reason.
fn silent_sender(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let longest = arrivals
        .evidence
        .loaded_rtt
        .and(arrivals.rtt)
        .or(arrivals.estimate)?;
    let silent = arrivals.silent_for(longest)?;
    if silent.get() > MIN_IDLE_SHARE {
        // A program that gets no time sends nothing either.
        return Some(
            LimitFinding::new(SenderApplicationVerdict::Idle, silent)
                .add_alternative(CpuVerdict::StolenOfSender),
        );
    }
    let paused = arrivals.pauses?;
    // A program that makes load on request has data whenever a buffer has room for it.
    if arrivals.is_own_load() && arrivals.silent_for(arrivals.rtt?)?.get() <= MIN_IDLE_SHARE {
        return None;
    }
    let idle = LimitFinding::new(SenderApplicationVerdict::Idle, paused);
    Some(match arrivals.window_over_a_longer_round_trip() {
        Some(window) => idle.add_alternative(window),
        None => idle.add_alternative(CapacityVerdict::Shared),
    })
}

/// Finds a sender that holds itself back: this end would take more, nothing is lost, and no queue
/// stands on the path. Bursts with a pause in each round trip are those of a full send buffer; an
/// even rate is that of an idle program. A program that makes load on request, without a rate, is
/// never idle.
fn sender_itself(arrivals: &ReceiverSampleFigures) -> Option<LimitFinding> {
    let is_held_by_losses = arrivals.loss_rounds() >= MIN_RECOVERIES && !arrivals.keeps_its_rate();
    if arrivals.rate == BitRate::ZERO || is_held_by_losses {
        return None;
    }
    let in_bursts = arrivals.comes_in_bursts()?;
    if arrivals.is_own_load() {
        let fixed = arrivals.evidence.request.buffer != Buffer::Automatic;
        let buffer = if fixed {
            SendBufferVerdict::SoSndbuf
        } else {
            SendBufferVerdict::TcpWmemMax
        };
        let found = LimitFinding::new(buffer, Ratio::ONE);
        return Some(match (fixed, in_bursts) {
            (true, true) => found,
            (true, false) => found.one_of_several(),
            (false, true) => found.add_alternative(ReceiveWindowVerdict::WindowClamped),
            (false, false) => found.add_alternative(PacingVerdict::Qdisc),
        });
    }
    let idle = || {
        LimitFinding::new(SenderApplicationVerdict::Idle, Ratio::ONE)
            .add_alternative(SendBufferVerdict::TcpWmemMax)
    };
    let buffer = || {
        LimitFinding::new(SendBufferVerdict::TcpWmemMax, Ratio::ONE)
            .add_alternative(SendBufferVerdict::SoSndbuf)
    };
    Some(if in_bursts { buffer() } else { idle() })
}

impl ReceiverSampleFigures<'_> {
    /// Returns true if next to nothing arrives in the judged part.
    fn moves_nothing(&self) -> bool {
        self.mss()
            .zip(self.rtt)
            .is_none_or(|(mss, rtt)| self.rate.bytes_in(rtt) * 2 < mss)
    }

    /// Returns the share of the snapshots in which nothing has come for longer than a round trip of
    /// `rtt` explains.
    fn silent_for(&self, rtt: Span) -> Option<Ratio> {
        let timeout = rtt.scale_by(SILENCE_ROUND_TRIPS) + TICK_TOLERANCE;
        share_of_votes(
            self.snapshots()
                .map(|now| Some(now.tcp.since_data_received? > timeout)),
        )
    }

    /// Returns true if round trips of `rtt` bring as much as `window` allows, but for what is less
    /// than a segment, or than half of a window that has room for none.
    fn fills_window(&self, window: ByteCount, rtt: Span) -> bool {
        let rest = self.mss().unwrap_or_default() * self.flows.len() as u64;
        self.rate.bytes_in(rtt)
            >= window
                .saturating_sub(rest)
                .max(window.scale_by(0.5))
                .scale_by(MIN_WINDOW_FILL)
    }

    /// Returns true if the round trip seems longer than that of the idle path, and pauses of the
    /// sender may be all that makes it so.
    fn may_only_pause(&self) -> bool {
        self.pauses.is_some() && self.evidence.loaded_rtt.is_none()
    }

    fn full_path(&self, verdict: CapacityVerdict) -> LimitFinding {
        let found = LimitFinding::new(verdict, Ratio::ONE);
        if self.may_only_pause() {
            found.add_alternative(SenderApplicationVerdict::Idle)
        } else {
            found
        }
    }

    /// Returns this end's window, if it was the limit where the round trip was as long as the
    /// estimate. The kernel would have made a window larger that no program fixed.
    fn window_over_a_longer_round_trip(&self) -> Option<ReceiveWindowVerdict> {
        let (window, estimate) = (self.usual_window()?, self.estimate?);
        let cause = self.cause_of_window(window);
        let is_fixed = self.evidence.request.buffer != Buffer::Automatic;
        let may_be = cause == ReceiveWindowVerdict::TcpRmemMax
            || (cause == ReceiveWindowVerdict::SoRcvbuf && is_fixed);
        (may_be && self.fills_window(window, estimate)).then_some(cause)
    }

    fn cause_of_window(&self, window: ByteCount) -> ReceiveWindowVerdict {
        if memory_pressure::holds_this_end(self) {
            return ReceiveWindowVerdict::MemoryPressure;
        }
        let unscaled = self
            .snapshots()
            .any(|snapshot| snapshot.tcp.window_scaling == Some(false));
        if unscaled && window <= kernel::largest_window(None) * self.flows.len() as u64 {
            let stripped = syn_quotes::lose_their_scale(self.evidence);
            return if stripped {
                ReceiveWindowVerdict::WindowScaleStripped
            } else {
                ReceiveWindowVerdict::NoWindowScaling
            };
        }
        if self.evidence.request.buffer != Buffer::Automatic {
            return ReceiveWindowVerdict::SoRcvbuf;
        }
        let Some(settings) = &self.evidence.receiver else {
            return ReceiveWindowVerdict::TcpRmemMax;
        };
        let largest = self
            .snapshots()
            .filter_map(|snapshot| snapshot.memory)
            .map(|memory| memory.rcvbuf)
            .max();
        let to_the_end =
            largest.is_none_or(|size| size >= settings.tcp_rmem.max.scale_by(FULLY_TUNED_SHARE));
        if to_the_end || !settings.moderate_rcvbuf {
            ReceiveWindowVerdict::TcpRmemMax
        } else {
            ReceiveWindowVerdict::SoRcvbuf
        }
    }

    pub(crate) fn find_ceilings(&self) -> BTreeMap<Limit, BitRate> {
        let of_window = self
            .usual_window()
            .zip(self.rtt)
            .map(|(size, rtt)| window::rate_of_window(size, rtt));
        let all = [
            (Limit::ReceiveWindow, of_window),
            (
                Limit::ApplicationWindow,
                application_window::window_ceiling(self.evidence, self.rtt),
            ),
            (Limit::Capacity, self.stated_capacity()),
        ];
        all.into_iter()
            .filter_map(|(kind, rate)| Some((kind, rate?)))
            .collect()
    }

    pub(crate) fn explain_finding(&self, finding: &LimitFinding) -> String {
        let (rate, rtt) = (self.rate, self.rtt.unwrap_or_default());
        let window = self.usual_window().unwrap_or_default();
        let comes_evenly = finding.other == Some(SendBufferVerdict::TcpWmemMax.into());
        match finding.verdict {
            LegalVerdict::ReceiverApplication(_) => format!(
                "The program here reads too slowly: data waits in its receive buffer for {} of the time, and only \
                 {rate} arrives.",
                finding.share
            ),
            LegalVerdict::ReceiveWindow(_) if self.moves_nothing() => format!(
                "Next to nothing arrives, though this end allows {window} and the sender has data: it takes the \
                 window for less than a segment, as where a device on the way removes or changes its scale."
            ),
            LegalVerdict::ReceiveWindow(verdict) => {
                let reason = receive_window::window_reason(
                    verdict,
                    &syn_quotes::device_place(self.evidence),
                );
                format!(
                    "This end, which receives, allows at most {window} in flight ({reason}), and each round trip of \
                     {rtt} brings as much: {rate}."
                )
            }
            LegalVerdict::ApplicationWindow(verdict) => {
                application_window::ApplicationWindowFacts::from_evidence(
                    verdict,
                    self.evidence,
                    rate,
                    self.rtt,
                    ProgramCredit::from_receiver(self),
                )
                .sentence()
            }
            LegalVerdict::Capacity(_)
            | LegalVerdict::Loss(_)
            | LegalVerdict::CongestionWindow(_)
            | LegalVerdict::Mtu(_) => self.sentence_about_path(finding),
            LegalVerdict::SenderApplication(SenderApplicationVerdict::RateLimited) => {
                format!(
                    "The sender was asked for a rate and offered no more: {rate} arrives, and nothing holds it back."
                )
            }
            LegalVerdict::Pacing(_) => {
                format!(
                    "The sender was asked for a maximum pace, and {rate} arrives: it reaches that."
                )
            }
            LegalVerdict::Cpu(_) => format!(
                "This end, which receives, lacks processor time for {} of the time, and only {rate} arrives.",
                finding.share
            ),
            LegalVerdict::SendBuffer(_) => format!(
                "Each round trip of {rtt} brings the same, {}, and then a pause, though this end would take more: a \
                 buffer or window of the sender holds no more.",
                self.rtt.map(|rtt| rate.bytes_in(rtt)).unwrap_or_default()
            ),
            LegalVerdict::SenderApplication(_) if comes_evenly => format!(
                "{rate} arrives evenly, this end could take more, and nothing is lost: the sender has no more to send, \
                 or its buffer holds no more."
            ),
            LegalVerdict::SenderApplication(_)
                if finding.other == Some(CpuVerdict::StolenOfSender.into()) =>
            {
                format!(
                    "The sender is silent for {} of the time, longer than any window explains: its program has nothing to \
                 send, or gets no processor time.",
                    finding.share
                )
            }
            LegalVerdict::SenderApplication(_) => format!(
                "The sender pauses for {} of the time, which a round trip of {rtt} does not explain: its program has \
                 nothing to send, unless round trips take longer under load.",
                finding.share
            ),
            LegalVerdict::Unknown(_) => format!(
                "{rate} arrives, this end could take more, and nothing is lost: only the sender knows what holds it \
                 back."
            ),
        }
    }

    fn sentence_about_path(&self, finding: &LimitFinding) -> String {
        let (rate, rtt) = (self.rate, self.rtt.unwrap_or_default());
        match finding.verdict {
            LegalVerdict::Loss(LossVerdict::ReceiverHost) => {
                receiver_host::sentence_here(&self.evidence.receiver_machine, rate)
            }
            LegalVerdict::Capacity(verdict @ CapacityVerdict::HalfDuplexOfReceiver) => {
                half_duplex::sentence(verdict, self.evidence, rate)
            }
            LegalVerdict::Capacity(_) if finding.other == Some(PacingVerdict::Qdisc.into()) => {
                format!(
                    "{rate} arrives evenly, and a queue stands before it: the pipe is full, or a queue of the sending host \
                 that is held to a rate."
                )
            }
            LegalVerdict::Capacity(_) if finding.is_one_of_several => format!(
                "{rate} arrives, and round trips seem to take {rtt}, longer than those of the idle path: the pipe is \
                 full, or the sender pauses."
            ),
            LegalVerdict::Capacity(CapacityVerdict::Shared) => format!(
                "The pipe is full, but not with this transfer alone: {rate} arrives here, and others have the rest."
            ),
            LegalVerdict::Capacity(_) => {
                format!(
                    "The pipe is full: {rate} of data arrives, and more would only lengthen the queue."
                )
            }
            LegalVerdict::Loss(LossVerdict::Random) if finding.is_one_of_several => format!(
                "Data arrives out of order again and again: packets are lost or overtake each other on the path, and \
                 {rate} arrives. Only the sender knows how many were lost."
            ),
            LegalVerdict::Loss(LossVerdict::Random) => format!(
                "Packets are lost again and again, at high rates and at low ones, as by chance, and {rate} arrives. \
                 Only the sender knows how many were lost."
            ),
            LegalVerdict::Loss(LossVerdict::Policer) => format!(
                "Packets are lost again and again, though the path carries faster bursts: a device discards what \
                 exceeds a rate, and {rate} arrives."
            ),
            LegalVerdict::Loss(LossVerdict::ShallowQueue) => format!(
                "Packets are lost again and again, always at the same rate of arrival: a queue on the path or of the \
                 sending host is too short, and {rate} arrives."
            ),
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::Recovering) => format!(
                "The sender still recovers from an earlier loss: a round trip of {rtt} brings less than before it, and \
                 {rate} arrives."
            ),
            LegalVerdict::CongestionWindow(CongestionWindowVerdict::EarlyExit) => format!(
                "Each round trip of {rtt} brings a little more than the one before, and nothing is lost: the sender \
                 left slow start early, and adds slowly; {rate} arrives."
            ),
            LegalVerdict::CongestionWindow(_) => format!(
                "The transfer was over before it had speeded up: a sender starts slowly and doubles each round trip \
                 ({rtt})."
            ),
            LegalVerdict::Mtu(MtuVerdict::MssClamped) => format!(
                "Segments hold only {}, though this end would take larger ones: their headers take a part of what the \
                 path carries, of which {rate} is data.",
                text::size_text(self.mss())
            ),
            _ => "No packet of the data arrives, though the connection is open and small packets \
                                     pass: full ones vanish on the path, or the sender sends none."
                .to_owned(),
        }
    }

    pub(crate) fn shown_figures(&self) -> BTreeMap<String, String> {
        let out_of_order = counter_growth(&self.flows, |tcp| tcp.out_of_order_in)
            .zip(counter_growth(&self.flows, |tcp| tcp.data_segs_in));
        let memory = || self.snapshots().filter_map(|snapshot| snapshot.memory);
        let unread = median(memory().map(|memory| memory.rmem_alloc).collect());
        let buffer = memory().map(|memory| memory.rcvbuf).max();
        let idle = self
            .evidence
            .idle_rtt
            .map_or_else(String::new, |idle| format!(", idle {idle}"));
        let snapshots: usize = self.flows.iter().map(Vec::len).sum();
        [
            ("rate", Some(self.rate.to_string())),
            ("round trip", self.rtt.map(|rtt| format!("{rtt}{idle}"))),
            (
                "round trip with the sender's pauses",
                self.estimate
                    .filter(|_| self.pauses.is_some())
                    .map(|rtt| rtt.to_string()),
            ),
            (
                "own window",
                self.usual_window().map(|window| window.to_string()),
            ),
            (
                "a round trip brings",
                self.rtt.map(|rtt| self.rate.bytes_in(rtt).to_string()),
            ),
            (
                "receive buffer",
                unread
                    .zip(buffer)
                    .map(|(unread, buffer)| format!("{unread} of {buffer}")),
            ),
            (
                "out of order",
                out_of_order.map(|(late, all)| format!("{late} of {all} segments")),
            ),
            (
                "samples",
                Some(text::of_streams(snapshots, self.flows.len())),
            ),
        ]
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
        .collect()
    }
}

/// Figures that only the other end has.
pub(crate) const OTHER_END: &str =
    "the sender's congestion window, its send buffer and what it sent again";
