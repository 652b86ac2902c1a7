//! Devices between the ends that change windows.

use fullpipe_record::{Handshake, WindowEdit};

use crate::limits::prelude::*;
use crate::limits::receive_window::{cause_of_window, own_window_sentence, window_sentence};
use crate::signals::snapshot::own_window;
use crate::signals::syn_quotes;
use crate::thresholds::{CLOCKED_SHARE, MAX_FIRST_WINDOW, MIN_TIME_WITHOUT_PROGRESS};

candidate_sets! {
    /// A sender that sends next to nothing into a window that is open.
    pub(crate) SCALE_OR_SILENCE: [
        ReceiveWindow WindowScaleStripped, ReceiveWindow WindowScaleRewritten,
        SenderApplication Idle
    ],
        "the SYN as it left one end and reached the other: a capture of the other end";
    /// Windows that never need their scale.
    SCALE_OR_FIXED_BUFFER: [ReceiveWindow WindowScaleRewritten, ReceiveWindow SoRcvbuf] in [Sender],
        "the window scale as it left the receiver and as it came, and whether its program sets \
         SO_RCVBUF";
    /// Requests for the window, in a capture without the handshake.
    UNSEEN_SCALE: [
        ReceiveWindow WindowScaleRewritten, ReceiveWindow WindowScaleStripped,
        SenderApplication Idle
    ],
        "a capture with the handshake, from both ends";
    /// As much in flight as the window holds under a smaller scale.
    SCALE_OR_BUFFER: [
        ReceiveWindow WindowScaleRewritten, SendBuffer TcpWmemMax, SenderApplication Idle
    ],
        "a capture at the sender, which shows the scale that reaches it";
    /// A packet in each round trip that is cut short.
    LOWERED_OR_RESCALED: [
        ReceiveWindow WindowClamped, ReceiveWindow WindowScaleRewritten, SenderApplication Idle
    ],
        "a capture at the sender, which shows the windows that reach it";
    /// A SYN without the offer to scale windows, captured on its way.
    NOT_OFFERED_OR_STRIPPED: [ReceiveWindow NoWindowScaling, ReceiveWindow WindowScaleStripped],
        "the SYN as it left one end and reached the other: a capture of the other end";
}

pub(crate) const SCALE_EDITED: Cause = Cause {
    captured_sentence: |view, finding| {
        let is_unseen = finding.is(ReceiveWindowVerdict::WindowScaleRewritten)
            && view.capture.window_edit.is_none();
        is_unseen.then(|| hidden_scale_sentence(view, finding))
    },
    setting_remedies: |advice| vec![advice.parallel_streams()],
    manual_remedies: &[ManualRemedy::new(
        "let-window-scale-pass",
        Scope::Path,
        "A firewall or router between the ends edits the window scale option of the handshake: its \
         setting for TCP options must let it pass unchanged.",
    )],
    ..cause_of_window(
        &[
            "receive-window/window-scale-stripped",
            "receive-window/window-scale-rewritten",
        ],
        |figures, finding| {
            let (reason, misread) = (
                scale_reason(figures.evidence, finding),
                misread_text(figures),
            );
            window_sentence(figures, &format!("{reason}{misread}"))
        },
        |arrivals, finding| {
            if finding.is(ReceiveWindowVerdict::WindowScaleStripped) || arrivals.moves_nothing() {
                return own_window_sentence(arrivals, &scale_reason(arrivals.evidence, finding));
            }
            let rtt = arrivals.rtt.unwrap_or_default();
            format!(
                "Each round trip of {rtt} brings {} and then nothing, though more came at first, nothing is lost and \
                 this end allows {}: the sender takes the window for less, as where a device on the way changes its \
                 scale.",
                arrivals.rate.bytes_in(rtt),
                arrivals.usual_window().unwrap_or_default()
            )
        },
    )
};

fn scale_reason(evidence: &Evidence, finding: &Finding) -> String {
    let edit = if finding.is(ReceiveWindowVerdict::WindowScaleStripped) {
        "removes the option that scales windows"
    } else {
        "changes the scale of the window"
    };
    format!("a device {} {edit}", syn_quotes::device_place(evidence))
}

pub(crate) const CLAMPED: Cause = Cause {
    captured_sentence: |view, _| {
        view.capture.window_edit.is_none().then(|| {
            format!(
                "Only about {} is in flight though the receiver allows {}: data follows the acknowledgements, and a \
                 packet in each round trip is cut short, as at the end of a smaller window. A device behind this place \
                 lowers it or changes its scale, or the program offers as little at a time; {}.",
                view.flight_text(),
                view.window_text(),
                view.rate_text(),
            )
        })
    },
    setting_remedies: |advice| vec![advice.parallel_streams()],
    manual_remedies: &[ManualRemedy::new(
        "let-windows-pass",
        Scope::Path,
        "A traffic shaper or proxy between the ends lowers the window of each packet: exempt this \
         traffic from it.",
    )],
    ..cause_of_window(
        &["receive-window/window-clamped"],
        |figures, _| window_sentence(figures, &clamp_reason(figures.evidence)),
        |arrivals, _| own_window_sentence(arrivals, &clamp_reason(arrivals.evidence)),
    )
};

fn clamp_reason(evidence: &Evidence) -> String {
    let place = syn_quotes::device_place(evidence);
    format!("a device {place} lowers the window")
}

/// Finds a sender that takes this end's window for less than a segment, as where a device removes
/// or changes its scale: it sends what the handshake allows, whose window has none, and then next
/// to nothing, though it always has data.
pub(crate) fn too_small_a_window_for_the_sender(arrivals: &ReceiverView) -> Option<Finding> {
    let is_open = arrivals.usual_window()? >= arrivals.mss()? * FEW_SEGMENTS;
    let found = is_open
        && arrivals.is_own_load()
        && arrivals
            .whole
            .iter()
            .all(|flow| stops_early(flow) == Some(true));
    found.then(|| {
        Finding::always(ReceiveWindowVerdict::WindowScaleStripped).one_of(&SCALE_OR_SILENCE)
    })
}

/// Share of all data from which what came later is next to nothing: probes, and segments of a few
/// bytes.
const STOPPED_SHARE: f64 = 0.9;

/// Returns true if a connection brought no more than a first window, and then about nothing for
/// long.
fn stops_early(flow: &[&Sample]) -> Option<bool> {
    let last = flow.last()?;
    let all = last.tcp.bytes_received?;
    let moving = flow
        .iter()
        .filter(|sample| sample.tcp.bytes_received < Some(all.scale_by(STOPPED_SHARE)));
    let moved_last = moving.map(|sample| sample.at).max().unwrap_or_default();
    let silent = last.at.saturating_sub(moved_last);
    let is_long = silent >= MIN_TIME_WITHOUT_PROGRESS && silent * 2 >= last.at;
    Some(is_long && all > ByteCount::ZERO && all <= MAX_FIRST_WINDOW)
}

/// Returns the receive window of `found` with the device between the ends that made it small, if
/// there is one.
///
/// Both ends must be seen to know it for certain. From the sending end alone it shows where the
/// other's part of the handshake was received: an option that a device overwrites leaves padding,
/// and a window that it lowers is as low there; and where a router quotes a SYN of this end that
/// has lost its option.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
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
        traced.one_of(&SCALE_OR_FIXED_BUFFER)
    } else {
        traced
    })
}

fn scale_stripped(figures: &SenderView) -> Option<ReceiveWindowVerdict> {
    let evidence = figures.evidence;
    let here = figures.tcp().find_map(|tcp| tcp.window_scaling)?;
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

/// Share of the handshake's window below which all later ones are scaled, as the sender does not
/// know: Linux shifts by 3 or more from a `tcp_rmem` of 512 KiB on.
const MAX_SHRUNK_SHARE: f64 = 1.0 / 8.0;

/// Returns true if all windows are a small part of that of the handshake, which has no scale (RFC
/// 7323, section 2.2), and one ends before that did: the receiver scales them.
fn shrank_by_a_scale(figures: &SenderView) -> bool {
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
fn receiver_handshake(figures: &SenderView) -> Option<Handshake> {
    figures
        .evidence
        .sender_sockets
        .iter()
        .find_map(|socket| socket.handshake)
}

fn scale_rewritten(figures: &SenderView) -> Option<ReceiveWindowVerdict> {
    let read_here = shift_read(figures)?;
    let differs = match shift_sent(figures) {
        Some(sent_there) => read_here != sent_there,
        None => read_here > 0 && never_needed_a_scale(figures) && !is_small_by_request(figures),
    };
    differs.then_some(ReceiveWindowVerdict::WindowScaleRewritten)
}

/// Returns true if a small buffer may be why windows are small under a scale that they do not need:
/// its program may have fixed it after the handshake, where the receiver is not seen.
fn buffer_may_be_fixed_late(figures: &SenderView) -> bool {
    shift_sent(figures).is_none() && !is_taken_back(figures)
}

/// Returns true if the load was asked for a buffer, and no window contradicts it.
fn is_small_by_request(figures: &SenderView) -> bool {
    figures.evidence.request.receive_buffer() != Buffer::Automatic && !is_taken_back(figures)
}

/// Returns true if a window ends before that of the handshake did. A receiver does not take back
/// what it has allowed (RFC 9293, 3.8.6), even where its program makes the buffer smaller: a device
/// makes the window seem smaller.
fn is_taken_back(figures: &SenderView) -> bool {
    let first = receiver_handshake(figures).and_then(|answer| answer.window);
    let ends = later_samples(figures)
        .filter_map(|sample| Some(sample.tcp.bytes_acked? + sample.tcp.snd_wnd?));
    first
        .zip(ends.min())
        .is_some_and(|(first, least)| least < first)
}

/// Returns the samples whose windows are scaled ones: until data is acknowledged, the window is
/// that of the handshake.
fn later_samples<'a>(figures: &'a SenderView) -> impl Iterator<Item = &'a Sample> {
    let samples = figures.flows.iter().flat_map(|flow| &flow.whole).copied();
    samples.filter(|sample| {
        let acked = sample.tcp.bytes_acked;
        acked.is_none_or(|acked| acked > ByteCount::new(1))
    })
}

/// Returns the clause on a window whose scale the sender reads otherwise than the receiver means it;
/// empty where both shift alike, or one of them is not seen.
pub(crate) fn misread_text(figures: &SenderView) -> String {
    misread_factor(figures).map_or_else(String::new, |factor| {
        format!(", so that the sender takes it for 1/{factor} of itself")
    })
}

/// Returns the factor by which the sender takes the receiver's windows for too small; `None` where
/// both shift alike, or one of them is not seen.
fn misread_factor(figures: &SenderView) -> Option<u64> {
    let scales_here = figures.tcp().find_map(|tcp| tcp.window_scaling)?;
    let read = if scales_here { shift_read(figures)? } else { 0 };
    1_u64
        .checked_shl(shift_sent(figures)?.checked_sub(read)?.into())
        .filter(|factor| *factor > 1)
}

/// Returns the shift that the sender applies to the windows that arrive, where it agreed to one.
pub(crate) fn shift_read(figures: &SenderView) -> Option<u8> {
    let mut agreed = figures
        .snapshots()
        .map(|snapshot| &snapshot.sample.tcp)
        .filter(|tcp| tcp.window_scaling == Some(true));
    agreed.find_map(|tcp| tcp.snd_wscale)
}

/// Returns the shift that the receiver applies to the windows that it sends, where it agreed to
/// one.
fn shift_sent(figures: &SenderView) -> Option<u8> {
    let samples = figures
        .evidence
        .receiver_samples
        .iter()
        .map(|sample| &sample.tcp);
    samples
        .filter(|tcp| tcp.window_scaling == Some(true))
        .find_map(|tcp| tcp.rcv_wscale)
}

/// Largest window that never needed a scale; 65 535 bytes are the most without one.
const MAX_NEVER_SCALED_WINDOW: ByteCount = ByteCount::from_kib(32);

/// Returns true if every window was far below the largest one without a scale: a receiver that
/// asked for a scale meant more, unless the window of the handshake, which has no scale, was as
/// small.
fn never_needed_a_scale(figures: &SenderView) -> bool {
    let windows = later_samples(figures).filter_map(|sample| sample.tcp.snd_wnd);
    let first = receiver_handshake(figures).and_then(|answer| answer.window);
    windows.max().is_some_and(|most| {
        most <= MAX_NEVER_SCALED_WINDOW && first.is_none_or(|first| first > most)
    })
}

/// Share of the advertised window below which the window that arrives was lowered between the ends.
const CLAMPED_WINDOW_SHARE: f64 = 0.75;

/// Compares the window that arrives with the one that the receiver says it sends, each at its
/// largest: they are not sampled in the same moment. The last one sent has not arrived yet, and the
/// first may be of a buffer that the program had not fixed yet.
fn find_clamped_window(figures: &SenderView) -> Option<ReceiveWindowVerdict> {
    let arrives = figures.tcp().filter_map(|tcp| tcp.snd_wnd).max()?;
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
fn is_clamped_from_the_first(figures: &SenderView, arrives: ByteCount) -> bool {
    let scale = figures
        .tcp()
        .find_map(|tcp| tcp.snd_wscale)
        .filter(|scale| *scale > 0);
    let first = receiver_handshake(figures).and_then(|answer| answer.window);
    let both = first.zip(scale);
    both.is_some_and(|(first, scale)| Some(arrives.get()) == first.get().checked_shl(scale.into()))
}

/// Mean data of a packet ÷ a window, from which each packet fills it.
const FULL_PACKETS_SHARE: f64 = 0.95;
/// Packets in a round trip that are cut short, from which they may end a window: one does
/// (measured: 0.9 to 1.3 of most windows, at most 0.6 of buffers).
const MIN_CUT_PACKETS: f64 = 0.8;
/// Share of the data that follows acknowledgements at once where a window sends, behind a
/// bottleneck or BBR's pace (measured: 0.49 and more; 0.18 of a pace).
const CLOCKED_BY_WINDOW: f64 = 0.3;
/// Packets of a sender that asks for a window again and again.
const MIN_PROBES: u64 = 2;

/// Finds a sender to which the receiver's offer to scale windows did not come: each of its
/// packets holds as much as the field of the window in the header, which both SYNs scale here.
/// The first may hold less, as what a program writes before the rest.
pub(crate) fn unscaled_at_sender(view: &CaptureView) -> Option<Finding> {
    let whole = &view.figures.flows.first()?.whole;
    let (first, tcp) = (&whole.first()?.tcp, &whole.last()?.tcp);
    let shift = tcp
        .snd_wscale
        .filter(|shift| *shift > 0 && tcp.window_scaling == Some(true))?;
    let field = ByteCount::new(tcp.snd_wnd?.get() >> shift);
    let bytes = tcp.bytes_sent?.saturating_sub(first.bytes_sent?);
    let packets = tcp
        .data_segs_out?
        .get()
        .saturating_sub(first.data_segs_out?.get());
    let packet = ByteCount::new(bytes.get() / packets.max(1));
    // Each is alone in flight. A window whose field is about a segment is full by chance.
    let is_alone = view.usual_most_in_flight()? <= field;
    let is_full = packet <= field && packet >= field.scale_by(FULL_PACKETS_SHARE) && is_alone;
    let found =
        !view.is_at_sender() && field < view.figures.mss? && packet > ByteCount::ZERO && is_full;
    found.then(|| Finding::always(ReceiveWindowVerdict::WindowScaleStripped))
}

/// Finds a sender that asks for the window again and again, and sends nothing, though the
/// receiver allows several segments: it takes the window for less than one, by another scale. A
/// program that pauses asks as well, whether the other end is there.
pub(crate) fn closed_on_the_way(view: &CaptureView) -> Option<Finding> {
    let flow = view.figures.flows.first()?;
    let (first, last) = (flow.whole.first()?, flow.whole.last()?);
    let is_silent = flow.silent_for(|sample| sample.bytes) * 2 >= last.at.saturating_sub(first.at);
    // The window is not known either where no data followed an acknowledgement.
    let few = view.figures.mss? * FEW_SEGMENTS;
    let is_open = last.tcp.snd_wnd.is_none_or(|window| window >= few) && !view.is_at_sender();
    let may_be = view.lacks_handshake() || is_open;
    let found =
        may_be && view.capture.probes >= MIN_PROBES && is_silent && !view.exceeds_unscaled_window();
    let set = if view.lacks_handshake() {
        &UNSEEN_SCALE
    } else {
        &SCALE_OR_BUFFER
    };
    found.then(|| Finding::always(ReceiveWindowVerdict::WindowScaleRewritten).one_of(set))
}

/// Finds a window that a device lowers behind this place: data follows acknowledgements, and in
/// each round trip a packet is cut short where the window ends (`tcp_mss_split_point`). A
/// buffer holds whole segments; a program that waits after each write looks alike.
pub(crate) fn lowered_window(view: &CaptureView) -> Option<Finding> {
    let may_be = !view.is_at_sender()
        && !view.trains_are_of_a_pace()
        && view
            .capture
            .clocked
            .is_none_or(|clocked| clocked.get() >= CLOCKED_SHARE)
        && view.drains_queue()
        && !view.ever_lost_on_path()
        && !view.waits_on_path()
        && !view.is_answered_in_each_round_trip();
    let (cause, set) = if view.capture.clocked.is_some() && view.cuts_packets()? {
        (ReceiveWindowVerdict::WindowClamped, &LOWERED_OR_RESCALED)
    } else if view.fills_misread_window() || (view.was_fuller() && view.follows_acknowledgements())
    {
        // The window of the handshake has no scale: what is sent into it no edit of the scale
        // makes smaller.
        (ReceiveWindowVerdict::WindowScaleRewritten, &SCALE_OR_BUFFER)
    } else {
        return None;
    };
    may_be.then(|| Finding::always(cause).one_of(set))
}

impl CaptureView<'_> {
    /// Returns the work of a device on the receiver's windows between two captures.
    pub(crate) fn edited_window(&self) -> Option<ReceiveWindowVerdict> {
        match self.capture.window_edit? {
            WindowEdit::ScaleStripped => Some(ReceiveWindowVerdict::WindowScaleStripped),
            WindowEdit::ScaleRewritten => Some(ReceiveWindowVerdict::WindowScaleRewritten),
            WindowEdit::Lowered => Some(ReceiveWindowVerdict::WindowClamped),
            WindowEdit::Nothing => None,
        }
    }

    /// Returns the end whose SYN was the first without an offer to scale windows: the answer to one
    /// is without it, too.
    pub(crate) fn end_without_scale(&self) -> Option<At> {
        let sender = (At::Sender, self.capture.sender_offers_scale);
        let receiver = (At::Receiver, self.capture.receiver_offers_scale);
        let order = if self.opened_by(At::Sender) {
            [sender, receiver]
        } else {
            [receiver, sender]
        };
        order
            .into_iter()
            .find(|(_, offers)| *offers == Some(false))
            .map(|(end, _)| end)
    }

    fn opened_by(&self, end: At) -> bool {
        self.capture.sender_opened == (end == At::Sender)
    }

    /// Returns the cause of windows that are not scaled, where the SYN of `end` lacks the offer:
    /// that host, if it was captured there, or if no device may have taken it away.
    pub(crate) fn without_scale(&self, end: At, found: &Finding) -> Finding {
        let evidence = self.figures.evidence;
        let settings = if end == At::Sender {
            &evidence.sender
        } else {
            &evidence.receiver
        };
        let is_not_offered = found.as_verdict(ReceiveWindowVerdict::NoWindowScaling);
        if self.capture.point == Some(end) || self.capture.window_edit == Some(WindowEdit::Nothing)
        {
            return is_not_offered;
        }
        match settings.as_ref().map(|host| host.window_scaling) {
            Some(true) => found.as_verdict(ReceiveWindowVerdict::WindowScaleStripped),
            Some(false) => is_not_offered,
            // Its SYN came through as it was sent; what the answer lacks may have been asked for
            // in vain.
            None if self.opened_by(end) => is_not_offered,
            None => is_not_offered.one_of(&NOT_OFFERED_OR_STRIPPED),
        }
    }

    /// Returns true if more is usually in flight than the field of the window allows without its
    /// scale: the scale reached the sender.
    fn exceeds_unscaled_window(&self) -> bool {
        let most = self.usual_most_in_flight();
        most.is_some_and(|most| self.unscaled_window().is_some_and(|window| most > window))
    }

    /// Returns the last window as its field gives it, without the scale.
    fn unscaled_window(&self) -> Option<ByteCount> {
        let tcp = &self.figures.flows.first()?.whole.last()?.tcp;
        Some(ByteCount::new(tcp.snd_wnd?.get() >> tcp.snd_wscale?))
    }

    /// Returns true if a packet in each round trip is cut short; `None` if the samples do not show
    /// it.
    pub(crate) fn cuts_packets(&self) -> Option<bool> {
        let segments = self.figures.mean_size(|one| one.outstanding)?.as_f64()
            / self.figures.mss?.as_f64().max(1.0);
        Some(self.capture.partial.get() * segments >= MIN_CUT_PACKETS)
    }

    /// Returns true if always as much is in flight as the field of the window allows if it is
    /// shifted by less than the receiver means: to the whole segments that fit it, which are all
    /// that a sender sends into it if it waits for room for a full one (RFC 9293, 3.8.6.2.1). A
    /// buffer is as large by chance.
    fn fills_misread_window(&self) -> bool {
        let may_follow = self
            .capture
            .clocked
            .is_none_or(|clocked| clocked.get() >= CLOCKED_BY_WINDOW);
        self.is_level() && may_follow && self.fits_smaller_scale() == Some(true)
    }

    /// Returns true if as many segments are usually in flight as the window has by a smaller scale.
    fn fits_smaller_scale(&self) -> Option<bool> {
        let mss = self.figures.mss?.get();
        let tcp = &self.figures.flows.first()?.snapshots.last()?.sample.tcp;
        let shift = tcp.snd_wscale.filter(|shift| *shift < 64)?;
        let field = tcp.snd_wnd?.get() >> shift;
        let in_flight = self.usual_most_in_flight()?.get();
        Some(
            in_flight >= mss
                && (0..shift).any(|less| (field << less) / mss == in_flight.div_ceil(mss)),
        )
    }
}

/// Returns the sentence on a window whose scale changes where no capture shows it.
fn hidden_scale_sentence(view: &CaptureView, finding: &Finding) -> String {
    if finding.candidates == Some(&UNSEEN_SCALE) {
        return "The sender asks for the window again and again and sends nothing: it takes it for less than a segment, \
                as where a device removes or changes its scale, which the handshake would show; or its program pauses."
            .to_owned();
    }
    let window = view.window_text();
    if closed_on_the_way(view).is_some() {
        return format!(
            "The sender asks for the window again and again and sends nothing, though the receiver allows {window}: it \
             may take it for less than a segment, as where a device changes its scale, or its program pauses."
        );
    }
    format!(
        "Only about {} is in flight though the receiver allows {window}: as much as its windows hold under a smaller \
         scale. A device behind this place changes it, or the sender's buffer is as large; {}.",
        view.flight_text(),
        view.rate_text()
    )
}
