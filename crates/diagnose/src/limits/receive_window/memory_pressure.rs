//! A receiving host that saves the memory of its TCP sockets, and so makes all windows small.

use crate::limits::prelude::*;
use crate::limits::receive_window::{cause_of_window, own_window_sentence, window_sentence};
use crate::signals::machine;
use crate::signals::snapshot::own_window;

candidate_sets! {
    /// Windows that fell to a few segments.
    FEW_SEGMENTS_ALLOWED: [
        ReceiveWindow MemoryPressure, ReceiveWindow WindowClamped, ReceiveWindow SoRcvbuf
    ],
        "the memory of TCP at the receiver (/proc/net/protocols, tcp_mem), and the window as it \
         leaves that host";
}

pub(crate) const CAUSE: Cause = Cause {
    disproof: EvidenceAmount::contradicted_by_ceiling,
    manual_remedies: &[
        ManualRemedy::new(
            "end-what-holds-memory",
            Scope::Host,
            "The sockets of the receiving host hold more than the second value of tcp_mem: ss -tnm \
             shows whose (r: unread, w: not yet acknowledged, in skmem); end those programs, or let \
             them read.",
        ),
        ManualRemedy::new(
            "raise-tcp-mem",
            Scope::Host,
            "net.ipv4.tcp_mem counts pages of memory, not bytes: a second value above what all \
             sockets need at once, as far as the host has memory to spare.",
        ),
    ],
    ..cause_of_window(
        &["receive-window/memory-pressure"],
        |figures, _| {
            let memory = machine::tcp_memory_text(&figures.evidence.receiver_machine);
            let memory = memory.map_or_else(String::new, |memory| format!(": {memory}"));
            window_sentence(
                figures,
                &format!("its host saves the memory of TCP{memory}"),
            )
        },
        |arrivals, _| own_window_sentence(arrivals, "its host saves the memory of TCP, tcp_mem"),
    )
};

/// Returns the receiving host's lack of TCP memory, if it made the window of `found` small.
///
/// From the sending end alone it is one of several: a device may lower windows to a few segments
/// too.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    if !matches!(
        found.limit_kind(),
        Limit::ReceiveWindow | Limit::ReceiverApplication
    ) {
        return None;
    }
    let evidence = figures.evidence;
    let (from, to) = figures.judged_period();
    let judged = evidence
        .receiver_samples
        .iter()
        .filter(|sample| (from..=to).contains(&sample.at));
    let traced = found.as_verdict(ReceiveWindowVerdict::MemoryPressure);
    if makes_windows_small(&evidence.receiver_machine, judged) {
        return Some(traced);
    }
    let is_seen =
        evidence.receiver_machine.network.is_some() || !evidence.receiver_samples.is_empty();
    let falls_to_a_few = !is_seen
        && !figures.flows.is_empty()
        && figures
            .flows
            .iter()
            .all(|flow| fell_to_a_few_segments(flow) == Some(true));
    falls_to_a_few.then(|| traced.one_of(&FEW_SEGMENTS_ALLOWED))
}

/// Returns true if this end's host lacks TCP memory, and that makes its window small.
pub(crate) fn holds_this_end(arrivals: &ReceiverView) -> bool {
    makes_windows_small(&arrivals.evidence.receiver_machine, arrivals.snapshots())
}

/// Returns true if the host saved TCP memory for most of the time, and windows were far below
/// buffers that held little unread data. Of a host that does not report its memory, the limit of
/// the window shows it: no other rule of the kernel makes it so small while a large buffer has room.
fn makes_windows_small<'s>(machine: &Machine, judged: impl Iterator<Item = &'s Sample>) -> bool {
    let pressed = machine::pressure_share(machine);
    if pressed.is_some_and(|share| share.get() < MIN_LIMIT_SHARE) {
        return false;
    }
    let was_pressed = machine
        .network
        .is_some_and(|stack| stack.memory_pressures > 0);
    let is_known = pressed.is_some() || was_pressed;
    let votes = judged.map(|sample| Some(has_small_window(sample, is_known) == Some(true)));
    share_of_votes(votes).is_some_and(|share| share.get() >= MIN_LIMIT_SHARE)
}

/// Segments that a host allows while it saves TCP memory (`tcp_adjust_rcv_ssthresh`).
const SEGMENTS_UNDER_PRESSURE: u64 = 4;
/// Multiple of a window below which no buffer is that is far above it: a buffer of small packets
/// gives an eighth and more of it to the window (our choice).
const FAR_BELOW_BUFFER: u64 = 8;

/// Returns true if the window is far below a buffer that has room; where it is not known that the
/// host lacks memory, if its limit is that of a host that does.
fn has_small_window(sample: &Sample, is_pressure_known: bool) -> Option<bool> {
    let memory = sample.memory?;
    let allowed = if is_pressure_known {
        own_window(&sample.tcp)?
    } else {
        let most = sample.tcp.advmss? * SEGMENTS_UNDER_PRESSURE;
        sample.tcp.rcv_ssthresh.filter(|limit| *limit <= most)?
    };
    let has_room = memory.rmem_alloc * 2 <= memory.rcvbuf;
    Some(has_room && allowed * FAR_BELOW_BUFFER <= memory.rcvbuf)
}

/// Returns true if the windows of a stream fell to the size that the kernel leaves under pressure:
/// four segments, rounded up to what the scale can state.
fn fell_to_a_few_segments(flow: &SenderStream) -> Option<bool> {
    let last = flow.whole.last()?;
    let least = last.tcp.snd_mss? * SEGMENTS_UNDER_PRESSURE;
    let step = ByteCount::new(1_u64.checked_shl(last.tcp.snd_wscale.unwrap_or(0).into())?);
    let that_size = least..least + step;
    let votes = flow
        .snapshots
        .iter()
        .map(|snapshot| Some(that_size.contains(&snapshot.window?)));
    let most = flow
        .whole
        .iter()
        .filter_map(|sample| sample.tcp.snd_wnd)
        .max()?;
    let usual = share_of_votes(votes).unwrap_or(Ratio::ZERO);
    Some(usual.get() >= MIN_LIMIT_SHARE && most >= (least + step) * FAR_BELOW_BUFFER)
}
