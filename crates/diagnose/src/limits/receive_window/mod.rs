//! A receiver that allows too little in flight.

pub(crate) mod device;
pub(crate) mod host;
pub(crate) mod memory_pressure;

use fullpipe_model::improvement::WindowConstraint;
use fullpipe_model::window;
use fullpipe_record::{
    Buffer, CapacityVerdict, CongestionWindowVerdict, Evidence, Limit, ReceiveWindowVerdict,
    ReceiverApplicationVerdict, Remedy, Scope,
};
use fullpipe_units::{ByteCount, Ratio, Span};

use crate::advice::{ManualRemedy, RemedyAdvice};
use crate::finding::{Finding, candidate_sets};
use crate::limits::LimitText;
use crate::limits::capacity::link;
use crate::limits::receiver_application::slow_reader::{self, usual_and_most};
use crate::limits::sender_application::idle::PAUSES_OR_WINDOW;
use crate::signals::path::exceeds_the_pipe;
use crate::signals::{
    CaptureView, ReceiverView, Row, SenderStream, SenderView, machine, share_of_votes, size_ratio,
    syn_quotes,
};
use crate::text::{self, rate_clause, size_text};
use crate::thresholds::{FALLEN_WINDOW_SHARE, MIN_LIMIT_SHARE, MIN_WINDOW_FILL, MIN_WINDOW_USE};

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

fn reason_at_sender(verdict: ReceiveWindowVerdict, figures: &SenderView) -> String {
    let is_clamped = verdict == ReceiveWindowVerdict::WindowClamped;
    let misread = device::misread_factor(figures).filter(|_| !is_clamped);
    let misread = misread.map_or_else(String::new, |factor| {
        format!(", so that the sender takes it for 1/{factor} of itself")
    });
    if verdict == ReceiveWindowVerdict::MemoryPressure {
        let memory = machine::tcp_memory_text(&figures.evidence.receiver_machine);
        let memory = memory.map_or_else(String::new, |memory| format!(": {memory}"));
        return format!("its host saves the memory of TCP{memory}");
    }
    // An offer may also have been lost on the way to a host that is not seen.
    if verdict == ReceiveWindowVerdict::NoWindowScaling && figures.evidence.receiver.is_none() {
        return format!("the other end agreed to no window scaling{misread}");
    }
    format!(
        "{}{misread}",
        window_reason(verdict, &syn_quotes::device_place(figures.evidence))
    )
}

/// Returns the reason why a window is as small as it is; a device that makes it so is at `place`.
fn window_reason(verdict: ReceiveWindowVerdict, place: &str) -> String {
    match verdict {
        ReceiveWindowVerdict::NoWindowScaling => "window scaling is off".to_owned(),
        ReceiveWindowVerdict::SoRcvbuf => "its program fixed the buffer, SO_RCVBUF".to_owned(),
        ReceiveWindowVerdict::TcpRmemMax => "tcp_rmem".to_owned(),
        ReceiveWindowVerdict::AutotuningStalled => {
            "its kernel has not let the buffer grow to tcp_rmem, and no program fixed it".to_owned()
        }
        ReceiveWindowVerdict::WindowScaleStripped => {
            format!("a device {place} removes the option that scales windows")
        }
        ReceiveWindowVerdict::MemoryPressure => {
            "its host saves the memory of TCP, tcp_mem".to_owned()
        }
        ReceiveWindowVerdict::WindowScaleRewritten => {
            format!("a device {place} changes the scale of the window")
        }
        ReceiveWindowVerdict::WindowClamped => format!("a device {place} lowers the window"),
    }
}

impl LimitText for ReceiveWindowVerdict {
    fn sentence(&self, figures: &SenderView, _finding: &Finding) -> String {
        let largest = figures.max_size(|snapshot| snapshot.window);
        format!(
            "The receiver allows at most {} in flight{} ({}){}{}.",
            size_text(largest),
            text::in_streams(figures),
            reason_at_sender(*self, figures),
            rate_clause(
                largest
                    .zip(figures.rtt)
                    .map(|(size, rtt)| window::rate_of_window(size, rtt)),
                figures.rtt,
            ),
            text::could_carry(figures),
        )
    }

    fn captured_sentence(&self, view: &CaptureView, finding: &Finding) -> Option<String> {
        if view.capture.window_edit.is_some() {
            return None;
        }
        match self {
            Self::WindowScaleRewritten => Some(device::hidden_scale_sentence(view, finding)),
            Self::WindowClamped => Some(format!(
                "Only about {} is in flight though the receiver allows {}: data follows the acknowledgements, and a \
                 packet in each round trip is cut short, as at the end of a smaller window. A device behind this place \
                 lowers it or changes its scale, or the program offers as little at a time; {}.",
                view.flight_text(),
                view.window_text(),
                view.rate_text(),
            )),
            _ => None,
        }
    }

    fn received_sentence(&self, arrivals: &ReceiverView, _finding: &Finding) -> String {
        let (rate, rtt) = (arrivals.rate, arrivals.rtt.unwrap_or_default());
        let window = arrivals.usual_window().unwrap_or_default();
        if arrivals.moves_nothing() {
            return format!(
                "Next to nothing arrives, though this end allows {window} and the sender has data: it takes the \
                 window for less than a segment, as where a device on the way removes or changes its scale."
            );
        }
        if *self == Self::WindowScaleRewritten {
            return format!(
                "Each round trip of {rtt} brings {} and then nothing, though more came at first, nothing is lost and \
                 this end allows {window}: the sender takes the window for less, as where a device on the way changes \
                 its scale.",
                rate.bytes_in(rtt)
            );
        }
        let reason = window_reason(*self, &syn_quotes::device_place(arrivals.evidence));
        format!(
            "This end, which receives, allows at most {window} in flight ({reason}), and each round trip of {rtt} \
             brings as much: {rate}."
        )
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        window_rows(figures)
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some(
            "whether its program, its tcp_rmem, its processor or a device between the ends makes the window what it is",
        )
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let is_untuned = advice
            .receiver_settings()
            .is_some_and(|host| !host.moderate_rcvbuf);
        let constraint = match self {
            // No setting of a host changes what a device between them does to the window.
            ReceiveWindowVerdict::WindowScaleStripped
            | ReceiveWindowVerdict::WindowScaleRewritten
            | ReceiveWindowVerdict::WindowClamped => {
                return advice.parallel_streams().into_iter().collect();
            }
            // Other connections would only share the memory that is left.
            ReceiveWindowVerdict::MemoryPressure => return Vec::new(),
            ReceiveWindowVerdict::AutotuningStalled => return advice.for_stalled_autotuning(),
            ReceiveWindowVerdict::SoRcvbuf => WindowConstraint::FixedBuffer,
            ReceiveWindowVerdict::NoWindowScaling => WindowConstraint::NoScaling,
            ReceiveWindowVerdict::TcpRmemMax if is_untuned => WindowConstraint::NoAutotuning,
            ReceiveWindowVerdict::TcpRmemMax => WindowConstraint::ReceiveMaximum,
        };
        advice.for_window(constraint)
    }

    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        match self {
            ReceiveWindowVerdict::WindowScaleStripped
            | ReceiveWindowVerdict::WindowScaleRewritten => vec![ManualRemedy::new(
                "let-window-scale-pass",
                Scope::Path,
                "A firewall or router between the ends edits the window scale option of the \
                 handshake: its setting for TCP options must let it pass unchanged.",
            )],
            ReceiveWindowVerdict::WindowClamped => vec![ManualRemedy::new(
                "let-windows-pass",
                Scope::Path,
                "A traffic shaper or proxy between the ends lowers the window of each packet: \
                 exempt this traffic from it.",
            )],
            ReceiveWindowVerdict::MemoryPressure => vec![
                ManualRemedy::new(
                    "end-what-holds-memory",
                    Scope::Host,
                    "The sockets of the receiving host hold more than the second value of \
                     tcp_mem: ss -tnm shows whose (r: unread, w: not yet acknowledged, in \
                     skmem); end those programs, or let them read.",
                ),
                ManualRemedy::new(
                    "raise-tcp-mem",
                    Scope::Host,
                    "net.ipv4.tcp_mem counts pages of memory, not bytes: a second value above \
                     what all sockets need at once, as far as the host has memory to spare.",
                ),
            ],
            ReceiveWindowVerdict::SoRcvbuf
            | ReceiveWindowVerdict::TcpRmemMax
            | ReceiveWindowVerdict::AutotuningStalled
            | ReceiveWindowVerdict::NoWindowScaling => Vec::new(),
        }
    }
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
    fn moves_nothing(&self) -> bool {
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
