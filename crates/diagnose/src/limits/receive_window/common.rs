//! A receiver that allows too little in flight.

use fullpipe_model::window;

use crate::limits::ReceiverSentence;
use crate::limits::capacity::link;
use crate::limits::prelude::*;
use crate::limits::receive_window::host;
use crate::limits::receiver_application::slow_reader::{self, usual_and_most};
use crate::limits::sender_application::idle::PAUSES_OR_WINDOW;
use crate::signals::path::exceeds_the_pipe;
use crate::signals::{Row, size_ratio};
use crate::text::{self, rate_clause};
use crate::thresholds::{FALLEN_WINDOW_SHARE, MIN_WINDOW_FILL, MIN_WINDOW_USE};

candidate_sets! {
    /// Windows of this end without a scale, which it offers.
    NOT_OFFERED_OR_STRIPPED: [ReceiveWindow NoWindowScaling, ReceiveWindow WindowScaleStripped],
        "tcp_window_scaling at the sender, or the SYN as it left one end and reached the other";
    /// A window that is full under a scale that no handshake shows.
    WINDOW_WITHOUT_SCALE: [SendBuffer TcpWmemMax, Pacing Qdisc],
        "a capture with the handshake, which shows the scale of the windows";
}

/// Share of the busy time in which the kernel must count the advertised window as the limit
/// (`rwnd_limited`).
const MIN_WINDOW_CLOCK_SHARE: f64 = 0.5;
/// Share of the busy time in which the kernel must count the advertised window as the limit under
/// BBR (measured: 54 % where it was the only limit).
const MIN_WINDOW_CLOCK_SHARE_UNDER_BBR: f64 = 0.25;

/// Returns true if the kernel counted the advertised window as the limit for most of the busy time.
/// Under BBR that clock stands still whenever the pace holds a segment back first, and shows about
/// half of a limit that is always there.
pub(crate) fn clocks_say_window(figures: &SenderView) -> bool {
    let needed = if figures.is_bbr() {
        MIN_WINDOW_CLOCK_SHARE_UNDER_BBR
    } else {
        MIN_WINDOW_CLOCK_SHARE
    };
    figures
        .share_of_busy(|tcp| tcp.rwnd_limited)
        .is_some_and(|share| share.get() >= needed)
}

/// Returns the receiver's window or program, if one of them was the limit for most of the time.
pub(crate) fn find_receive_window(figures: &SenderView) -> Option<Finding> {
    let clocks = clocks_say_window(figures);
    let busy_votes = figures
        .snapshots()
        .filter(|snapshot| snapshot.is_busy())
        .map(|snapshot| snapshot.fills_window(clocks));
    let by_samples = share_of_votes(busy_votes).is_some_and(|share| share.get() >= MIN_LIMIT_SHARE);
    if !(by_samples || clocks && clock_is_borne_out(figures)) {
        return None;
    }
    let held = share_of_votes(figures.snapshots().map(|snapshot| {
        snapshot
            .fills_window(clocks)
            .map(|full| full && snapshot.is_busy())
    }));
    let clock = figures
        .share_of_busy(|tcp| tcp.rwnd_limited)
        .filter(|_| clocks);
    let held = held
        .unwrap_or_default()
        .get()
        .max(clock.unwrap_or_default().get());
    Some(name_receiver(figures, Ratio::new(held)))
}

/// Returns true if samples support the clock: data must have waited, and much of a known window
/// must have been in use, unless it is below a segment.
fn clock_is_borne_out(figures: &SenderView) -> bool {
    let waited = figures
        .mean_size(|snapshot| snapshot.not_sent)
        .is_some_and(|not_sent| not_sent > ByteCount::ZERO);
    let in_use = match (
        figures.mean_size(|snapshot| snapshot.outstanding),
        figures.mean_size(|snapshot| snapshot.window),
    ) {
        (Some(outstanding), Some(window)) => {
            outstanding >= window.scale_by(MIN_WINDOW_USE) || is_below_a_segment(figures)
        }
        _ => true,
    };
    waited && in_use
}

/// Returns true if the advertised window is less than a segment: nothing is sent into it until a
/// timer fires (RFC 1122, 4.2.3.4), so that the rate is far below a window in each round trip.
fn is_below_a_segment(figures: &SenderView) -> bool {
    figures
        .mean_size(|snapshot| snapshot.window)
        .zip(figures.mss)
        .is_some_and(|(window, mss)| window < mss)
}

fn name_receiver(figures: &SenderView, held: Ratio) -> Finding {
    if figures.part.is_none() && figures.flows.iter().all(window_still_grows) {
        return Finding::new(CongestionWindowVerdict::RampUp, held);
    }
    slow_reader::behind_window(figures, held).unwrap_or_else(|| host::at_receiver(figures, held))
}

/// Returns true if a stream's window was well below its last size: the receiver tunes it while the
/// sender speeds up, and may lag behind.
fn window_still_grows(flow: &SenderStream) -> bool {
    let last = flow
        .snapshots
        .iter()
        .rev()
        .find_map(|snapshot| snapshot.window);
    usual_and_most(flow)
        .zip(last)
        .is_some_and(|((usual, most), last)| {
            usual < most.scale_by(FALLEN_WINDOW_SHARE) && last == most
        })
}

/// Returns the figures that show what a receiver allowed, and how much of it was used.
pub(crate) fn window_rows(figures: &SenderView) -> Vec<Row> {
    vec![
        text::in_flight(figures),
        text::unsent_row(figures),
        (
            "window most",
            slow_reader::largest_window(figures).map(|size| size.to_string()),
        ),
        text::clock_row(
            "rwnd_limited",
            figures.share_of_busy(|tcp| tcp.rwnd_limited),
        ),
    ]
}

/// Returns a cause of a small window, with its sentence from either end.
pub(crate) const fn cause_of_window(
    names: CauseNames,
    sentence: SenderSentence,
    received_sentence: ReceiverSentence,
) -> Cause {
    Cause {
        received_sentence,
        shown_rows: window_rows,
        other_end_would_show: Some(
            "whether its program, its tcp_rmem, its processor or a device between the ends makes the window what it is",
        ),
        shows_in_few_packets: true,
        ..Cause::new(names, sentence)
    }
}

/// Returns the sentence on a window that is small for such a `reason`.
pub(crate) fn window_sentence(figures: &SenderView, reason: &str) -> String {
    let largest = figures.max_size(|snapshot| snapshot.window);
    format!(
        "The receiver allows at most {} in flight{} ({reason}){}{}.",
        size_text(largest),
        text::in_streams(figures),
        rate_clause(
            largest
                .zip(figures.rtt)
                .map(|(size, rtt)| window::rate_of_window(size, rtt)),
            figures.rtt,
        ),
        text::could_carry(figures),
    )
}

/// Returns the sentence on a window of this end that is small for such a `reason`.
pub(crate) fn own_window_sentence(arrivals: &ReceiverView, reason: &str) -> String {
    let (rate, rtt) = (arrivals.rate, arrivals.rtt.unwrap_or_default());
    let window = arrivals.usual_window().unwrap_or_default();
    if arrivals.moves_nothing() {
        return format!(
            "Next to nothing arrives, though this end allows {window} and the sender has data: it takes the \
             window for less than a segment, as where a device on the way removes or changes its scale."
        );
    }
    format!(
        "This end, which receives, allows at most {window} in flight ({reason}), and each round trip of {rtt} brings \
         as much: {rate}."
    )
}

/// Finds this end's window as the limit, where each round trip brings as much as it allows. A
/// window that is larger than the pipe fills a queue with the rest. Senders do not fill windows
/// below one MSS (silly-window avoidance).
pub(crate) fn own_window_in_use(arrivals: &ReceiverView) -> Option<Finding> {
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
        size_ratio(arrivals.rate.bytes_in(rtt), window)
            .get()
            .min(1.0),
    );
    let cause = arrivals.cause_of_window(window);
    let found = Finding::new(cause, held);
    let is_of_a_size = matches!(
        cause,
        ReceiveWindowVerdict::SoRcvbuf | ReceiveWindowVerdict::TcpRmemMax
    );
    if is_of_a_size && arrivals.may_only_pause() {
        return Some(found.one_of(&PAUSES_OR_WINDOW));
    }
    // Where scaling is on here, only the SYN could show who took it away.
    let offered = arrivals
        .evidence
        .receiver
        .as_ref()
        .is_some_and(|host| host.window_scaling);
    let unsure = cause == ReceiveWindowVerdict::NoWindowScaling && offered;
    Some(if unsure {
        found.one_of(&NOT_OFFERED_OR_STRIPPED)
    } else {
        found
    })
}

/// Finds the receiver's window or program; or the full pipe, where the window holds more than
/// fits it.
pub(crate) fn find_captured_window(view: &CaptureView) -> Option<Finding> {
    let found = find_receive_window(view.figures)?;
    if found.limit_kind() != Limit::ReceiveWindow {
        return Some(found.as_verdict(found.verdict));
    }
    link::queue_behind_window(view.figures).or_else(|| Some(view.cause_of_window(found)))
}

/// Finds a window of less than a segment: the sender waits until it is larger, or a timer fires
/// (RFC 9293, 3.8.6.2.1), and has nothing in flight meanwhile.
pub(crate) fn below_a_segment(view: &CaptureView) -> Option<Finding> {
    let mss = view.figures.mss?;
    let windows = view.figures.snapshots().map(|snapshot| snapshot.window);
    let held =
        share_of_votes(windows.map(|window| Some(window? > ByteCount::ZERO && window? < mss)))?;
    let found = Finding::new(ReceiveWindowVerdict::TcpRmemMax, held);
    (held.get() >= MIN_LIMIT_SHARE).then(|| view.cause_of_window(found))
}

impl CaptureView<'_> {
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
        if self.has_window_fallen() {
            return found.as_verdict(ReceiverApplicationVerdict::SlowReader);
        }
        // The kernel lets a window grow for a program that reads what comes.
        let cause = if self.window_never_grew() {
            ReceiveWindowVerdict::SoRcvbuf
        } else {
            ReceiveWindowVerdict::TcpRmemMax
        };
        if self.lacks_handshake() {
            // It is full under one of fourteen scales, as about every second buffer is by chance.
            return found.as_verdict(cause).one_of(&WINDOW_WITHOUT_SCALE);
        }
        found.as_verdict(cause)
    }
}

impl ReceiverView<'_> {
    /// Returns true if next to nothing arrives in the judged part.
    pub(crate) fn moves_nothing(&self) -> bool {
        self.mss()
            .zip(self.rtt)
            .is_none_or(|(mss, rtt)| self.rate.bytes_in(rtt) * 2 < mss)
    }

    /// Returns true if round trips of `rtt` bring as much as `window` allows, but for what is less
    /// than a segment, or than half of a window that has room for none.
    pub(crate) fn fills_window(&self, window: ByteCount, rtt: Span) -> bool {
        let rest = self.mss().unwrap_or_default() * self.flows.len() as u64;
        self.rate.bytes_in(rtt)
            >= window
                .saturating_sub(rest)
                .max(window.scale_by(0.5))
                .scale_by(MIN_WINDOW_FILL)
    }

    /// Returns this end's window, if it was the limit where the round trip was as long as the
    /// estimate. The kernel would have made a window larger that no program fixed.
    pub(crate) fn window_over_a_longer_round_trip(&self) -> Option<ReceiveWindowVerdict> {
        let (window, estimate) = (self.usual_window()?, self.estimate?);
        let cause = self.cause_of_window(window);
        let is_fixed = self.evidence.request.receive_buffer() != Buffer::Automatic;
        let may_be = cause == ReceiveWindowVerdict::TcpRmemMax
            || (cause == ReceiveWindowVerdict::SoRcvbuf && is_fixed);
        (may_be && self.fills_window(window, estimate)).then_some(cause)
    }
}
