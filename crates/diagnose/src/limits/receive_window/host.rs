//! What of the receiving host makes its window small.

use fullpipe_model::improvement::WindowConstraint;
use fullpipe_model::kernel::{self, ReceiveBuffer};
use fullpipe_record::Cause as CauseName;

use crate::limits::prelude::*;
use crate::limits::receive_window::{
    cause_of_window, device, memory_pressure, own_window_sentence, window_sentence,
};
use crate::signals::{size_ratio, syn_quotes};
use crate::thresholds::{FULLY_TUNED_SHARE, GROWN_WINDOW_FACTOR};

candidate_sets! {
    /// A buffer that never grew.
    FIXED_OR_TUNED: [ReceiveWindow SoRcvbuf, ReceiveWindow TcpRmemMax] in [Sender],
        "tcp_rmem at the receiver, and whether its program sets SO_RCVBUF";
    /// Windows without a scale, of a receiver that is not seen.
    NOT_OFFERED_OR_STRIPPED: [
        ReceiveWindow NoWindowScaling, ReceiveWindow WindowScaleStripped
    ] in [Sender],
        "tcp_window_scaling at the receiver, or the SYN as it left one end and reached the other";
}

pub(crate) const CAUSES: Cause = Cause {
    disproof: EvidenceAmount::contradicted_by_ceiling,
    setting_remedies: remedies,
    ..cause_of_window(
        &[
            "receive-window/so-rcvbuf",
            "receive-window/tcp-rmem-max",
            "receive-window/autotuning-stalled",
            "receive-window/no-window-scaling",
        ],
        |figures, finding| {
            let reason = window_reason(finding.verdict);
            // An offer may also have been lost on the way to a host that is not seen.
            let is_unseen = figures.evidence.receiver.is_none();
            let reason = if finding.is(ReceiveWindowVerdict::NoWindowScaling) && is_unseen {
                "the other end agreed to no window scaling"
            } else {
                reason
            };
            let misread = device::misread_text(figures);
            window_sentence(figures, &format!("{reason}{misread}"))
        },
        |arrivals, finding| own_window_sentence(arrivals, window_reason(finding.verdict)),
    )
};

/// Returns the reason why a window is as small as it is.
fn window_reason(verdict: LegalVerdict) -> &'static str {
    match verdict.limit_cause() {
        CauseName::SoRcvbuf => "its program fixed the buffer, SO_RCVBUF",
        CauseName::TcpRmemMax => "tcp_rmem",
        CauseName::AutotuningStalled => {
            "its kernel has not let the buffer grow to tcp_rmem, and no program fixed it"
        }
        _ => "window scaling is off",
    }
}

fn remedies(advice: &RemedyAdvice) -> Vec<Option<Remedy>> {
    let is_untuned = advice
        .receiver_settings()
        .is_some_and(|host| !host.moderate_rcvbuf);
    advice.for_window(match advice.verdict.limit_cause() {
        CauseName::AutotuningStalled => return advice.for_stalled_autotuning(),
        CauseName::SoRcvbuf => WindowConstraint::FixedBuffer,
        CauseName::NoWindowScaling => WindowConstraint::NoScaling,
        _ if is_untuned => WindowConstraint::NoAutotuning,
        _ => WindowConstraint::ReceiveMaximum,
    })
}

pub(crate) fn at_receiver(figures: &SenderView, held: Ratio) -> Finding {
    let cause = cause_at_receiver(figures);
    match cause {
        ReceiveWindowVerdict::TcpRmemMax if buffer_may_be_fixed(figures) => {
            Finding::new(ReceiveWindowVerdict::SoRcvbuf, held).one_of(&FIXED_OR_TUNED)
        }
        ReceiveWindowVerdict::NoWindowScaling if scale_may_be_stripped(figures) => {
            Finding::new(cause, held).one_of(&NOT_OFFERED_OR_STRIPPED)
        }
        _ => Finding::new(cause, held),
    }
}

/// Returns the largest window of a stream ÷ its first one.
fn grew_by(flow: &SenderStream) -> Option<f64> {
    let windows: Vec<ByteCount> = flow
        .whole
        .iter()
        .filter_map(|sample| sample.tcp.snd_wnd)
        .collect();
    let (largest, first) = (windows.iter().max()?, windows.first()?);
    Some(size_ratio(*largest, *first).get())
}

/// Returns true if the window of a receiver that is not seen, and that a program of others has, was
/// the same from the first: one that the kernel tunes grows from the default of `tcp_rmem` on,
/// unless that is its largest too.
fn buffer_may_be_fixed(figures: &SenderView) -> bool {
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
fn scale_may_be_stripped(figures: &SenderView) -> bool {
    let offers = figures
        .evidence
        .sender
        .as_ref()
        .is_some_and(|host| host.window_scaling);
    offers && figures.evidence.receiver.is_none()
}

fn cause_at_receiver(figures: &SenderView) -> ReceiveWindowVerdict {
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

fn scaling_is_off(figures: &SenderView) -> bool {
    let evidence = figures.evidence;
    let ends = [&evidence.sender, &evidence.receiver];
    let refused = ends
        .into_iter()
        .flatten()
        .any(|settings| !settings.window_scaling);
    let agreed = figures.tcp().find_map(|tcp| tcp.window_scaling);
    let small = figures
        .snapshots()
        .filter_map(|snapshot| snapshot.window)
        .all(|window| window <= kernel::largest_window(None));
    small && agreed.map_or(refused, |agreed| !agreed)
}

/// Returns the reason why a buffer, for which nothing was asked, is smaller than the kernel may make
/// it: our own programs do not set it, so that the kernel left it so.
fn cause_of_small_buffer(evidence: &Evidence) -> ReceiveWindowVerdict {
    if evidence.is_of_another_program() || evidence.capture.is_some() {
        ReceiveWindowVerdict::SoRcvbuf
    } else {
        ReceiveWindowVerdict::AutotuningStalled
    }
}

/// Returns true if the buffer stands well below the size to which the kernel would tune it. Where
/// the buffer itself is not seen, the window shows it: how much of a buffer is window depends on the
/// memory that its driver takes for a packet.
fn receive_buffer_is_small(figures: &SenderView) -> bool {
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
fn scale_is_of_a_fixed_buffer(figures: &SenderView) -> bool {
    /// 3 ÷ 4 of what 16 bits say.
    const LARGEST_TUNED_FIELD: u64 = 49_152;
    let windows = figures.snapshots().filter_map(|one| one.window);
    let field = windows.max().zip(device::shift_read(figures));
    let is_large = field.is_some_and(|(window, shift)| {
        let needs_no_scale = shift == 0 && window <= kernel::largest_window(None);
        let field = window.get() >> shift.min(63);
        needs_no_scale || (LARGEST_TUNED_FIELD..=u64::from(u16::MAX)).contains(&field)
    });
    figures.evidence.receiver.is_none() && is_large
}

/// Returns the largest buffer that the receiver had until the end of the judged part.
fn largest_buffer(figures: &SenderView) -> Option<ByteCount> {
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

impl ReceiverView<'_> {
    pub(crate) fn cause_of_window(&self, window: ByteCount) -> ReceiveWindowVerdict {
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
        if self.evidence.request.receive_buffer() != Buffer::Automatic {
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
            cause_of_small_buffer(self.evidence)
        }
    }
}

/// Largest window of a receiver ÷ its first one up to which its kernel never tuned it.
const MIN_TUNED_GROWTH: f64 = 1.5;

impl CaptureView<'_> {
    /// Returns true if the window is about as large as at first.
    pub(crate) fn window_never_grew(&self) -> bool {
        self.figures
            .flows
            .iter()
            .all(|flow| grew_by(flow) <= Some(MIN_TUNED_GROWTH))
    }
}
