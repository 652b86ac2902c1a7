//! A sending program that has nothing to send.

use crate::limits::capacity::link::PAUSES_OR_CAPTURED_QUEUE;
use crate::limits::prelude::*;
use crate::limits::send_buffer::buffer_is_full;
use crate::limits::sender_application::{cause_of_writer, rate_limited};
use crate::signals::ArrivalCourse;
use crate::thresholds::{
    CLOCK_TICK, IDLE_CAPTURE_SHARE, IDLE_SHARE_OF_PATH, MIN_IDLE_SHARE, MIN_RETRANSMISSION_TIMEOUT,
    MIN_SHARE_OF_BURSTS, SILENCE_ROUND_TRIPS, TICK_TOLERANCE,
};

candidate_sets! {
    /// A program that waits nearly all the time, and what a capture does not tell from it.
    pub(crate) NO_TIME_TO_WRITE: [
        SenderApplication Idle, Cpu StolenOfSender, Capacity HostQueue
    ] in [Capture],
        "what the sending program waits for, the processor time that it gets, and the drops of \
         the queue of its device";
    /// A sender that is silent for longer than any window explains, from the receiving end.
    SILENT_PROGRAM: [SenderApplication Idle, Cpu StolenOfSender, SenderApplication Storage],
        "what the sending program waits for, and the processor time that it gets";
    /// Bursts after pauses that are lost, or losses that make a sender pause.
    PAUSES_OR_LOSS: [
        SenderApplication Idle, Loss ShallowQueue, Loss Random, Loss Policer
    ] in [Capture],
        "what the sending program waits for, or its buffer during the transfer (ss -tnm)";
    /// Pauses of the sender, or round trips so long that they fill the window.
    pub(crate) PAUSES_OR_WINDOW: [
        SenderApplication Idle, ReceiveWindow SoRcvbuf, ReceiveWindow TcpRmemMax
    ],
        "round-trip times next to the transfer (ping), or a capture at the sender";
    /// Pauses of the sender, or round trips that a queue makes longer.
    pub(crate) PAUSES_OR_FULL_PATH: [SenderApplication Idle, Capacity Shared, Capacity Link],
        "round-trip times next to the transfer (ping), or a capture at the sender";
}

pub(crate) const CAUSE: Cause = Cause {
    captured_sentence: |view, finding| Some(captured_sentence(view, finding)),
    received_sentence,
    manual_remedies: &[ManualRemedy::new(
        "faster-writer",
        Scope::Application,
        "The sending program must supply the data faster; no setting of TCP helps.",
    )],
    ..cause_of_writer(&["sender-application/idle"], |_, finding| {
        format!(
            "The sending program is slow: for {} of the time it left the connection without enough to send; \
                 neither network nor buffers held it back.",
            finding.share
        )
    })
};

fn captured_sentence(view: &CaptureView, finding: &Finding) -> String {
    let (rate, window, idle) = (view.figures.rate, view.window_text(), view.capture.idle);
    if finding.may_be(Limit::Mtu) && view.is_at_sender() {
        "The connection is open, and hardly any data passed: the programs have none to send, or full packets of the \
         other end vanish on their way here."
            .to_owned()
    } else if finding.may_be(Limit::Mtu) {
        "The connection is open, and hardly any data came: the sender has none to send, or its full packets vanish on \
         their way here."
            .to_owned()
    } else if idle.get() >= IDLE_CAPTURE_SHARE {
        format!(
            "The sending program is slow: for {idle} of the time little is in flight, though the receiver allows \
             {window} and nothing is lost then."
        )
    } else {
        format!(
            "The sending program is slow: it sends at times of its own, and not as acknowledgements come, though the \
             receiver allows {window} and nothing is lost; {rate} is what it offers."
        )
    }
}

fn received_sentence(arrivals: &ReceiverView, finding: &Finding) -> String {
    let (rate, share) = (arrivals.rate, finding.share);
    if finding.may_be(Limit::SendBuffer) {
        format!(
            "{rate} arrives evenly, this end could take more, and nothing is lost: the sender has no more to send, or \
             its buffer holds no more."
        )
    } else if finding.may_be(Limit::Cpu) {
        format!(
            "The sender is silent for {share} of the time, longer than any window explains: its program has nothing to \
             send, or gets no processor time."
        )
    } else {
        format!(
            "The sender pauses for {share} of the time, which a round trip of {} does not explain: its program has \
             nothing to send, unless round trips take longer under load.",
            arrivals.rtt.unwrap_or_default()
        )
    }
}

/// Share of the time with little in flight from which losses may be those of bursts after pauses
/// (simulated: at most 0.03 of 1300 of 1315 views of senders that losses limit, 0.06 and more of 25
/// of 39 of programs that pause).
const IDLE_SHARE_BESIDE_LOSS: f64 = 0.06;

/// Share of the snapshots in silences that no window explains, from which they are the sender's.
const MIN_LONG_SILENCES: f64 = 0.05;

/// Finds a sender that is often silent for longer than a round trip, though not for as long as a
/// retransmission timer takes: no window makes it so.
pub(crate) fn silent_beyond_windows(arrivals: &ReceiverView) -> Option<Finding> {
    let rtt = arrivals.estimate?;
    let away = arrivals.share_of_silences(rtt, &arrivals.busiest_course()?)?;
    (away.get() >= MIN_LONG_SILENCES).then(|| Finding::always(SenderApplicationVerdict::Idle))
}

/// Finds a sender that is silent for longer than any window would explain. Where only a round trip
/// that is longer than that of the idle path would explain it, a path that others fill, or this
/// end's window over it, may be the reason.
pub(crate) fn silent_sender(arrivals: &ReceiverView) -> Option<Finding> {
    let longest = arrivals
        .evidence
        .loaded_rtt
        .and(arrivals.rtt)
        .or(arrivals.estimate)?;
    let silent = arrivals.silent_for(longest)?;
    if silent.get() > MIN_IDLE_SHARE {
        // A program that gets no time sends nothing either.
        return Some(Finding::new(SenderApplicationVerdict::Idle, silent).one_of(&SILENT_PROGRAM));
    }
    let paused = arrivals.pauses?;
    // A program that makes load on request has data whenever a buffer has room for it.
    if arrivals.is_own_load() && arrivals.silent_for(arrivals.rtt?)?.get() <= MIN_IDLE_SHARE {
        return None;
    }
    let idle = Finding::new(SenderApplicationVerdict::Idle, paused);
    Some(match arrivals.window_over_a_longer_round_trip() {
        Some(_) => idle.one_of(&PAUSES_OR_WINDOW),
        None => idle.one_of(&PAUSES_OR_FULL_PATH),
    })
}

/// Returns the sending program, if it left its socket largely empty for most of the time.
pub(crate) fn find_program(figures: &SenderView) -> Option<Finding> {
    let votes = figures.flows.iter().flat_map(|flow| {
        let full = buffer_is_full(figures, flow).unwrap_or(false);
        flow.snapshots
            .iter()
            .map(move |snapshot| snapshot.writer_behind(full))
    });
    let held = share_of_votes(votes).filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    Some(idle_program(figures, held))
}

/// Share of the time without data in each quarter of the judged part, from which an idle sender is
/// the verdict whatever else held.
const MIN_IDLE_SHARE_OF_QUARTER: f64 = 0.05;

/// Returns true if nothing is left to send or on the way again and again, in each quarter of the
/// judged part: all that the program wrote had arrived then, so that its writing sets the mean rate,
/// whatever slows or loses the data in between.
pub(crate) fn runs_dry_throughout(figures: &SenderView) -> bool {
    let Some(part) = figures.part else {
        return false;
    };
    let duration = part.duration / 4;
    (0..4).all(|quarter| {
        let ramp = part.ramp + duration * quarter;
        let quarter = Steady {
            ramp,
            duration,
            ..part
        };
        SenderView::from_part(figures.evidence, Some(quarter))
            .idle_share()
            .is_some_and(|idle| idle.get() >= MIN_IDLE_SHARE_OF_QUARTER)
    })
}

/// Returns the sending program as the limit: it had nothing to send, or was asked for a rate and
/// keeps to it.
pub(crate) fn idle_program(figures: &SenderView, share: Ratio) -> Finding {
    let limited = rate_limited::keeps_to_a_rate(figures);
    Finding::new(
        if limited {
            SenderApplicationVerdict::RateLimited
        } else {
            SenderApplicationVerdict::Idle
        },
        share,
    )
}

/// Share of the time with little in flight, though nothing held it back, from which a program waits
/// nearly all the time, and what it sends meanwhile cannot show how it would grow (measured: 0.93
/// of one short of processor time; up to 0.5 of short transfers).
const IDLE_OF_WAITING_PROGRAM: f64 = 0.75;

/// Finds a sender that had nothing to send though nothing held it back.
pub(crate) fn find_idle_sender(view: &CaptureView) -> Option<Finding> {
    view.idle_from(IDLE_CAPTURE_SHARE)
        .filter(|_| !view.is_buffer())
}

/// Finds a sender that leaves its path idle at times, and sends at times of its own at others.
pub(crate) fn leaves_path_idle(view: &CaptureView) -> Option<Finding> {
    view.idle_from(IDLE_SHARE_OF_PATH)
        .filter(|_| !view.follows_acknowledgements())
}

/// Finds one that sends faster than its rate at others.
pub(crate) fn idle_at_times(view: &CaptureView) -> Option<Finding> {
    leaves_path_idle(view).filter(|_| view.bursts_are_faster(MIN_SHARE_OF_BURSTS) == Some(true))
}

/// Finds a sender that pauses for longer than one whose window losses or a queue hold down: its
/// bursts may be what fills a queue and is lost there.
pub(crate) fn pauses_beside_loss(view: &CaptureView, found: &Finding) -> Option<Finding> {
    let (least, set) = match found.verdict {
        LegalVerdict::Loss(_) => (IDLE_SHARE_BESIDE_LOSS, &PAUSES_OR_LOSS),
        LegalVerdict::Capacity(CapacityVerdict::Link) => {
            (IDLE_SHARE_OF_PATH, &PAUSES_OR_CAPTURED_QUEUE)
        }
        _ => return None,
    };
    Some(view.idle_from(least)?.one_of(set)).filter(|_| view.lost_on_path())
}

impl CaptureView<'_> {
    /// Returns true if hardly anything was in flight at nearly any time.
    pub(crate) fn program_waits(&self) -> bool {
        self.capture.idle.get() >= IDLE_OF_WAITING_PROGRAM
    }

    fn idle_from(&self, share: f64) -> Option<Finding> {
        let idle = self.capture.idle;
        let found = Finding::new(SenderApplicationVerdict::Idle, idle);
        (idle.get() >= share).then(|| {
            if self.program_waits() {
                // A processor that is hardly ever free makes it wait as long.
                found.one_of(&NO_TIME_TO_WRITE)
            } else {
                found
            }
        })
    }
}

/// Round trips without data that no window explains, beside the clock's tick.
const LONG_SILENCE: f64 = 1.2;

impl ReceiverView<'_> {
    /// Returns the share of the snapshots in which nothing has come for longer than a round trip of
    /// `rtt` explains.
    pub(crate) fn silent_for(&self, rtt: Span) -> Option<Ratio> {
        let timeout = rtt.scale_by(SILENCE_ROUND_TRIPS) + TICK_TOLERANCE;
        share_of_votes(
            self.snapshots()
                .map(|now| Some(now.tcp.since_data_received? > timeout)),
        )
    }

    /// Returns the share of the snapshots in silences that are longer than a window over `rtt`
    /// explains, but shorter than a retransmission timer.
    fn share_of_silences(&self, rtt: Span, course: &ArrivalCourse) -> Option<Ratio> {
        let on_the_line = self.rate.time_for(self.mss()? * 2);
        let longest = rtt.scale_by(LONG_SILENCE) + CLOCK_TICK + on_the_line + course.tick;
        let away = self.snapshots().map(|now| {
            let silence = now.tcp.since_data_received?;
            Some(silence > longest && silence < MIN_RETRANSMISSION_TIMEOUT.max(rtt))
        });
        share_of_votes(away)
    }

    /// Returns true if data is away for longer than a round trip of the path explains.
    pub(crate) fn is_away_beyond_windows(&self, course: &ArrivalCourse) -> bool {
        self.round_trip_of_the_path()
            .and_then(|rtt| self.share_of_silences(rtt, course))
            .is_some_and(|away| away.get() >= MIN_LONG_SILENCES)
    }
}
