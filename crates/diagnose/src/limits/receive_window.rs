//! A receiver that allows too little in flight.

use fullpipe_model::improvement::WindowConstraint;
use fullpipe_model::kernel::{self, ReceiveBuffer};
use fullpipe_model::window;
use fullpipe_record::{
    Buffer, CongestionWindowVerdict, Evidence, Handshake, Limit, ReceiveWindowVerdict, Remedy,
    Sample, Scope,
};
use fullpipe_units::{ByteCount, Ratio};

use crate::advice::RemedyAdvice;
use crate::figures::{SenderSampleFigures, share_of_votes};
use crate::finding::LimitFinding;
use crate::flow::SenderStream;
use crate::limits::LimitFacts;
use crate::limits::receiver_application::{self, usual_and_most};
use crate::machine;
use crate::manual_remedy::ManualRemedy;
use crate::snapshot::own_window;
use crate::syn_quotes;
use crate::text::{self, BasicFacts, Row, rate_clause, size_text};
use crate::thresholds::{
    CLAMPED_WINDOW_SHARE, FALLEN_WINDOW_SHARE, FULLY_TUNED_SHARE, GROWN_WINDOW_FACTOR,
    MAX_NEVER_SCALED_WINDOW, MAX_SHRUNK_SHARE, MIN_LIMIT_SHARE, MIN_WINDOW_CLOCK_SHARE,
    MIN_WINDOW_CLOCK_SHARE_UNDER_BBR, MIN_WINDOW_USE,
};

/// Returns true if the kernel counted the advertised window as the limit for most of the busy time.
/// Under BBR that clock stands still whenever the pace holds a segment back first, and shows about
/// half of a limit that is always there.
pub(crate) fn clocks_say_window(figures: &SenderSampleFigures) -> bool {
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
pub(crate) fn find_receive_window(figures: &SenderSampleFigures) -> Option<LimitFinding> {
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
fn clock_is_borne_out(figures: &SenderSampleFigures) -> bool {
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
pub(crate) fn is_below_a_segment(figures: &SenderSampleFigures) -> bool {
    figures
        .mean_size(|snapshot| snapshot.window)
        .zip(figures.mss)
        .is_some_and(|(window, mss)| window < mss)
}

fn name_receiver(figures: &SenderSampleFigures, held: Ratio) -> LimitFinding {
    if figures.part.is_none() && figures.flows.iter().all(window_still_grows) {
        return LimitFinding::new(CongestionWindowVerdict::RampUp, held);
    }
    receiver_application::behind_window(figures, held).unwrap_or_else(|| at_receiver(figures, held))
}

fn at_receiver(figures: &SenderSampleFigures, held: Ratio) -> LimitFinding {
    let cause = cause_at_receiver(figures);
    match cause {
        ReceiveWindowVerdict::TcpRmemMax if buffer_may_be_fixed(figures) => {
            LimitFinding::new(ReceiveWindowVerdict::SoRcvbuf, held).one_of_several()
        }
        ReceiveWindowVerdict::NoWindowScaling if scale_may_be_stripped(figures) => {
            LimitFinding::new(cause, held).one_of_several()
        }
        _ => LimitFinding::new(cause, held),
    }
}

/// Returns the largest window of a stream ÷ its first one.
pub(crate) fn grew_by(flow: &SenderStream) -> Option<f64> {
    let windows: Vec<ByteCount> = flow
        .whole
        .iter()
        .filter_map(|sample| sample.tcp.snd_wnd)
        .collect();
    let (largest, first) = (windows.iter().max()?, windows.first()?);
    Some(Ratio::from_quotient(largest.as_f64(), first.as_f64()).get())
}

/// Returns true if the window of a receiver that is not seen, and that a program of others has, was
/// the same from the first: one that the kernel tunes grows from the default of `tcp_rmem` on,
/// unless that is its largest too.
fn buffer_may_be_fixed(figures: &SenderSampleFigures) -> bool {
    let evidence = figures.evidence;
    let never_grew = figures
        .flows
        .iter()
        .all(|flow| grew_by(flow).is_some_and(|grown| grown <= GROWN_WINDOW_FACTOR));
    evidence.receiver.is_none() && evidence.is_of_another_program() && never_grew
}

/// Returns true if a device may have taken the offer to scale windows away from a SYN of this end,
/// which offers it: the other host is not seen, and no router says what happens to the SYN behind
/// it.
fn scale_may_be_stripped(figures: &SenderSampleFigures) -> bool {
    let offers = figures
        .evidence
        .sender
        .as_ref()
        .is_some_and(|host| host.window_scaling);
    offers && figures.evidence.receiver.is_none()
}

fn cause_at_receiver(figures: &SenderSampleFigures) -> ReceiveWindowVerdict {
    if scaling_is_off(figures) {
        ReceiveWindowVerdict::NoWindowScaling
    } else if figures.evidence.request.receive_buffer() != Buffer::Automatic
        || scale_is_of_a_fixed_buffer(figures)
    {
        ReceiveWindowVerdict::SoRcvbuf
    } else if receive_buffer_is_small(figures) {
        cause_of_small_buffer(figures.evidence)
    } else {
        ReceiveWindowVerdict::TcpRmemMax
    }
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

fn scaling_is_off(figures: &SenderSampleFigures) -> bool {
    let evidence = figures.evidence;
    let ends = [&evidence.sender, &evidence.receiver];
    let refused = ends
        .into_iter()
        .flatten()
        .any(|settings| !settings.window_scaling);
    let agreed = figures
        .snapshots()
        .find_map(|snapshot| snapshot.sample.tcp.window_scaling);
    let small = figures
        .snapshots()
        .filter_map(|snapshot| snapshot.window)
        .all(|window| window <= kernel::largest_window(None));
    small && agreed.map_or(refused, |agreed| !agreed)
}

/// Returns the reason why a buffer, for which nothing was asked, is smaller than the kernel may make
/// it: our own programs do not set it, so that the kernel left it so.
pub(crate) fn cause_of_small_buffer(evidence: &Evidence) -> ReceiveWindowVerdict {
    if evidence.is_of_another_program() || evidence.capture.is_some() {
        ReceiveWindowVerdict::SoRcvbuf
    } else {
        ReceiveWindowVerdict::AutotuningStalled
    }
}

/// Returns true if the buffer stands well below the size to which the kernel would tune it. Where
/// the buffer itself is not seen, the window shows it: how much of a buffer is window depends on the
/// memory that its driver takes for a packet.
fn receive_buffer_is_small(figures: &SenderSampleFigures) -> bool {
    let evidence = figures.evidence;
    let Some(settings) = &evidence.receiver else {
        return false;
    };
    let tuned = ReceiveBuffer::autotuned_buffer(settings);
    let (seen, tuned) = if let Some(buffer) = largest_buffer(figures) {
        (Some(buffer), tuned.buffer_bytes())
    } else {
        let windows = figures.snapshots().filter_map(|snapshot| snapshot.window);
        let tuned = figures
            .mss
            .map_or(tuned.max_window(), |mss| tuned.in_flight(mss));
        (windows.max(), tuned)
    };
    seen.is_some_and(|seen| seen < tuned.scale_by(FULLY_TUNED_SHARE))
}

/// Returns true if a receiver that is not seen chose a scale for the buffer that it has: its window
/// takes up the 16 bits of its field, or needs no scale. One that the kernel may tune has a scale
/// for the larger of `tcp_rmem[2]` and `rmem_max`, of which it is at most 3 ÷ 4
/// (`tcp_select_initial_window`).
fn scale_is_of_a_fixed_buffer(figures: &SenderSampleFigures) -> bool {
    /// 3 ÷ 4 of what 16 bits say.
    const LARGEST_TUNED_FIELD: u64 = 49_152;
    let windows = figures.snapshots().filter_map(|one| one.window);
    let field = windows.max().zip(shift_read(figures));
    let is_large = field.is_some_and(|(window, shift)| {
        let needs_no_scale = shift == 0 && window <= kernel::largest_window(None);
        let field = window.get() >> shift.min(63);
        needs_no_scale || (LARGEST_TUNED_FIELD..=u64::from(u16::MAX)).contains(&field)
    });
    figures.evidence.receiver.is_none() && is_large
}

/// Returns the largest buffer that the receiver had until the end of the judged part.
fn largest_buffer(figures: &SenderSampleFigures) -> Option<ByteCount> {
    let (_, end) = figures.judged_period();
    let samples = figures
        .evidence
        .receiver_samples
        .iter()
        .filter(|sample| sample.at <= end);
    samples
        .filter_map(|sample| sample.memory)
        .map(|memory| memory.rcvbuf)
        .max()
}

/// Returns the receive window of `found` with the device between the ends that made it small, if
/// there is one.
///
/// Both ends must be seen to know it for certain. From the sending end alone it shows where the
/// other's part of the handshake was received: an option that a device overwrites leaves padding,
/// and a window that it lowers is as low there; and where a router quotes a SYN of this end that
/// has lost its option.
pub(crate) fn find_cause(
    figures: &SenderSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
    if found.limit_kind() != Limit::ReceiveWindow {
        return None;
    }
    let cause = scale_stripped(figures)
        .or_else(|| scale_rewritten(figures))
        .or_else(|| find_clamped_window(figures))?;
    let traced = found.as_verdict(cause);
    let unsure =
        cause == ReceiveWindowVerdict::WindowScaleRewritten && buffer_may_be_fixed_late(figures);
    Some(if unsure {
        traced.one_of_several()
    } else {
        traced
    })
}

fn scale_stripped(figures: &SenderSampleFigures) -> Option<ReceiveWindowVerdict> {
    let evidence = figures.evidence;
    let here = figures
        .snapshots()
        .find_map(|snapshot| snapshot.sample.tcp.window_scaling)?;
    let there = evidence
        .receiver_samples
        .iter()
        .find_map(|sample| sample.tcp.window_scaling);
    let both_offer = [&evidence.sender, &evidence.receiver]
        .into_iter()
        .flatten()
        .all(|host| host.window_scaling);
    // Where the two disagree, the option was lost on the way to one of them.
    let disagree = there.is_some_and(|there| there != here);
    let modern = figures.snapshots().any(|snapshot| {
        let tcp = &snapshot.sample.tcp;
        tcp.timestamps == Some(true) || tcp.sack == Some(true)
    });
    let offer_is_lost = !here && syn_quotes::lose_their_scale(evidence);
    // Of a host that is not seen, its part of the handshake and its windows show whether it
    // offered.
    let offered = evidence.receiver.is_some()
        || receiver_handshake(figures).and_then(|answer| answer.options_overwritten) == Some(true)
        || shrank_by_a_scale(figures);
    (disagree || offer_is_lost || (!here && both_offer && modern && offered))
        .then_some(ReceiveWindowVerdict::WindowScaleStripped)
}

/// Returns true if all windows are a small part of that of the handshake, which has no scale (RFC
/// 7323, section 2.2), and one ends before that did: the receiver scales them.
fn shrank_by_a_scale(figures: &SenderSampleFigures) -> bool {
    let most = later_samples(figures)
        .filter_map(|sample| sample.tcp.snd_wnd)
        .max();
    let first = receiver_handshake(figures).and_then(|answer| answer.window);
    let is_small = first
        .zip(most)
        .is_some_and(|(first, most)| most <= first.scale_by(MAX_SHRUNK_SHARE));
    is_small && is_taken_back(figures)
}

/// Returns the receiver's part of the handshake, where the sender has it.
fn receiver_handshake(figures: &SenderSampleFigures) -> Option<Handshake> {
    figures
        .evidence
        .sender_sockets
        .iter()
        .find_map(|socket| socket.handshake)
}

fn scale_rewritten(figures: &SenderSampleFigures) -> Option<ReceiveWindowVerdict> {
    let read_here = shift_read(figures)?;
    let differs = match shift_sent(figures) {
        Some(sent_there) => read_here != sent_there,
        None => read_here > 0 && never_needed_a_scale(figures) && !is_small_by_request(figures),
    };
    differs.then_some(ReceiveWindowVerdict::WindowScaleRewritten)
}

/// Returns true if a small buffer may be why windows are small under a scale that they do not need:
/// its program may have fixed it after the handshake, where the receiver is not seen.
fn buffer_may_be_fixed_late(figures: &SenderSampleFigures) -> bool {
    shift_sent(figures).is_none() && !is_taken_back(figures)
}

/// Returns true if the load was asked for a buffer, and no window contradicts it.
fn is_small_by_request(figures: &SenderSampleFigures) -> bool {
    figures.evidence.request.receive_buffer() != Buffer::Automatic && !is_taken_back(figures)
}

/// Returns true if a window ends before that of the handshake did. A receiver does not take back
/// what it has allowed (RFC 9293, 3.8.6), even where its program makes the buffer smaller: a device
/// makes the window seem smaller.
fn is_taken_back(figures: &SenderSampleFigures) -> bool {
    let first = receiver_handshake(figures).and_then(|answer| answer.window);
    let ends = later_samples(figures)
        .filter_map(|sample| Some(sample.tcp.bytes_acked? + sample.tcp.snd_wnd?));
    first
        .zip(ends.min())
        .is_some_and(|(first, least)| least < first)
}

/// Returns the samples whose windows are scaled ones: until data is acknowledged, the window is
/// that of the handshake.
fn later_samples<'a>(figures: &'a SenderSampleFigures) -> impl Iterator<Item = &'a Sample> {
    let samples = figures.flows.iter().flat_map(|flow| &flow.whole).copied();
    samples.filter(|sample| {
        let acked = sample.tcp.bytes_acked;
        acked.is_none_or(|acked| acked > ByteCount::new(1))
    })
}

/// Returns the factor by which the sender takes the receiver's windows for too small; `None` where
/// both shift alike, or one of them is not seen.
fn misread_factor(figures: &SenderSampleFigures) -> Option<u64> {
    let scales_here = figures
        .snapshots()
        .find_map(|snapshot| snapshot.sample.tcp.window_scaling)?;
    let read = if scales_here { shift_read(figures)? } else { 0 };
    1_u64
        .checked_shl(shift_sent(figures)?.checked_sub(read)?.into())
        .filter(|factor| *factor > 1)
}

/// Returns the shift that the sender applies to the windows that arrive, where it agreed to one.
fn shift_read(figures: &SenderSampleFigures) -> Option<u8> {
    let mut agreed = figures
        .snapshots()
        .map(|snapshot| &snapshot.sample.tcp)
        .filter(|tcp| tcp.window_scaling == Some(true));
    agreed.find_map(|tcp| tcp.snd_wscale)
}

/// Returns the shift that the receiver applies to the windows that it sends, where it agreed to
/// one.
fn shift_sent(figures: &SenderSampleFigures) -> Option<u8> {
    let samples = figures
        .evidence
        .receiver_samples
        .iter()
        .map(|sample| &sample.tcp);
    samples
        .filter(|tcp| tcp.window_scaling == Some(true))
        .find_map(|tcp| tcp.rcv_wscale)
}

/// Returns true if every window was far below the largest one without a scale: a receiver that
/// asked for a scale meant more, unless the window of the handshake, which has no scale, was as
/// small.
fn never_needed_a_scale(figures: &SenderSampleFigures) -> bool {
    let windows = later_samples(figures).filter_map(|sample| sample.tcp.snd_wnd);
    let first = receiver_handshake(figures).and_then(|answer| answer.window);
    windows.max().is_some_and(|most| {
        most <= MAX_NEVER_SCALED_WINDOW && first.is_none_or(|first| first > most)
    })
}

/// Compares the window that arrives with the one that the receiver says it sends, each at its
/// largest: they are not sampled in the same moment. The last one sent has not arrived yet, and the
/// first may be of a buffer that the program had not fixed yet.
fn find_clamped_window(figures: &SenderSampleFigures) -> Option<ReceiveWindowVerdict> {
    let arrives = figures
        .snapshots()
        .filter_map(|snapshot| snapshot.sample.tcp.snd_wnd)
        .max()?;
    let sent_in = figures.judged_period();
    let sent_in =
        [sent_in.0, sent_in.1].map(|end| end.saturating_sub(figures.rtt.unwrap_or_default()));
    let sent = figures
        .evidence
        .receiver_samples
        .iter()
        .filter(|sample| (sent_in[0]..=sent_in[1]).contains(&sample.at))
        .filter_map(|sample| own_window(&sample.tcp))
        .max();
    let lowered = sent.map_or_else(
        || is_clamped_from_the_first(figures, arrives),
        |sent| arrives < sent.scale_by(CLAMPED_WINDOW_SHARE),
    );
    lowered.then_some(ReceiveWindowVerdict::WindowClamped)
}

/// Returns true if the field of the window holds the same number in the handshake, where it counts
/// bytes, and at its largest, `arrives`, where it counts scaled ones: that is the work of a device
/// which knows no scale.
fn is_clamped_from_the_first(figures: &SenderSampleFigures, arrives: ByteCount) -> bool {
    let scale = figures
        .snapshots()
        .find_map(|snapshot| snapshot.sample.tcp.snd_wscale)
        .filter(|scale| *scale > 0);
    let first = receiver_handshake(figures).and_then(|answer| answer.window);
    let both = first.zip(scale);
    both.is_some_and(|(first, scale)| Some(arrives.get()) == first.get().checked_shl(scale.into()))
}

/// The figures of a receive window.
pub(crate) struct ReceiveWindowFacts {
    verdict: ReceiveWindowVerdict,
    basics: BasicFacts,
    /// Advertised at most, all streams together.
    largest: Option<ByteCount>,
    reason: String,
    shown: Vec<Row>,
}

impl ReceiveWindowFacts {
    pub(crate) fn from_figures(
        verdict: ReceiveWindowVerdict,
        figures: &SenderSampleFigures,
    ) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            largest: figures.max_size(|snapshot| snapshot.window),
            reason: reason_at_sender(verdict, figures),
            shown: window_rows(figures),
        }
    }
}

/// Returns the figures that show what a receiver allowed, and how much of it was used.
pub(crate) fn window_rows(figures: &SenderSampleFigures) -> Vec<Row> {
    vec![
        text::in_flight(figures),
        text::unsent_row(figures),
        (
            "window most",
            receiver_application::largest_window(figures).map(|size| size.to_string()),
        ),
        text::clock_row(
            "rwnd_limited",
            figures.share_of_busy(|tcp| tcp.rwnd_limited),
        ),
    ]
}

fn reason_at_sender(verdict: ReceiveWindowVerdict, figures: &SenderSampleFigures) -> String {
    let is_clamped = verdict == ReceiveWindowVerdict::WindowClamped;
    let misread = misread_factor(figures).filter(|_| !is_clamped);
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
pub(crate) fn window_reason(verdict: ReceiveWindowVerdict, place: &str) -> String {
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

impl LimitFacts for ReceiveWindowFacts {
    fn sentence(&self) -> String {
        let basics = &self.basics;
        format!(
            "The receiver allows at most {} in flight{} ({}){}{}.",
            size_text(self.largest),
            basics.in_streams(),
            self.reason,
            rate_clause(
                self.largest
                    .zip(basics.rtt)
                    .map(|(size, rtt)| window::rate_of_window(size, rtt)),
                basics.rtt,
            ),
            basics.could_carry(),
        )
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
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
        let constraint = match self.verdict {
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

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            ReceiveWindowVerdict::WindowScaleStripped
            | ReceiveWindowVerdict::WindowScaleRewritten => &[ManualRemedy {
                id: "let-window-scale-pass",
                scope: Scope::Path,
                at: None,
                why: "A firewall or router between the ends edits the window scale option of the handshake: its \
                      setting for TCP options must let it pass unchanged.",
            }],
            ReceiveWindowVerdict::WindowClamped => &[ManualRemedy {
                id: "let-windows-pass",
                scope: Scope::Path,
                at: None,
                why: "A traffic shaper or proxy between the ends lowers the window of each packet: exempt this traffic \
                      from it.",
            }],
            ReceiveWindowVerdict::MemoryPressure => &[
                ManualRemedy {
                    id: "end-what-holds-memory",
                    scope: Scope::Host,
                    at: None,
                    why: "The sockets of the receiving host hold more than the second value of tcp_mem: ss -tnm shows whose \
                          (r: unread, w: not yet acknowledged, in skmem); end those programs, or let them read.",
                },
                ManualRemedy {
                    id: "raise-tcp-mem",
                    scope: Scope::Host,
                    at: None,
                    why: "net.ipv4.tcp_mem counts pages of memory, not bytes: a second value above what all sockets need at \
                          once, as far as the host has memory to spare.",
                },
            ],
            ReceiveWindowVerdict::SoRcvbuf
            | ReceiveWindowVerdict::TcpRmemMax
            | ReceiveWindowVerdict::AutotuningStalled
            | ReceiveWindowVerdict::NoWindowScaling => &[],
        }
    }
}
