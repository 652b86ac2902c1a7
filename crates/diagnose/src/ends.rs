//! The limits that the two hosts set: windows, buffers, programs.

use fullpipe_model::kernel::{self, ReceiveBuffer};
use fullpipe_record::{At, Buffer, Cause, Limit};
use fullpipe_units::{BitRate, ByteCount, Ratio};

use crate::figures::{Figures, median, share};
use crate::finding::Finding;
use crate::flow::Flow;
use crate::thresholds::{
    AUTOTUNED_TO_THE_END, BLOCKED, BUFFER_MEAN, BUFFER_PEAK, CLOCK, CLOCK_UNDER_BBR, MAJORITY, SNAPSHOTS_OF_A_SLEEPER,
    UNREAD, WINDOW_FALLS, WINDOW_FALLS_BY, WINDOW_FELL, WINDOW_IN_USE, WINDOW_SWINGS_BELOW, WOKEN,
};

/// Whether the kernel's clock for the advertised window ran for most of the busy time. Under BBR it stands still
/// whenever the pace holds a segment back first, and shows about half of a limit that is always there.
pub(crate) fn clocks_say_window(figures: &Figures) -> bool {
    let needed = if figures.is_bbr() { CLOCK_UNDER_BBR } else { CLOCK };
    figures.share_of_busy(|tcp| tcp.rwnd_limited).is_some_and(|share| share.get() >= needed)
}

/// The receiver's window or program, if one of them held for most of the time.
pub(crate) fn receiver(figures: &Figures) -> Option<Finding> {
    let clocks = clocks_say_window(figures);
    let busy_votes =
        figures.snapshots().filter(|snapshot| snapshot.busy()).map(|snapshot| snapshot.fills_window(clocks));
    let by_samples = share(busy_votes).is_some_and(|share| share.get() >= MAJORITY);
    if !(by_samples || clocks && clock_is_borne_out(figures)) {
        return None;
    }
    let held =
        share(figures.snapshots().map(|snapshot| snapshot.fills_window(clocks).map(|full| full && snapshot.busy())));
    let clock = figures.share_of_busy(|tcp| tcp.rwnd_limited).filter(|_| clocks);
    let held = held.unwrap_or_default().get().max(clock.unwrap_or_default().get());
    Some(name_receiver(figures, Ratio::new(held)))
}

/// The clock alone decides nothing: data must have waited, and where the window is known, much of it been in use. A window of
/// less than a segment is not: nothing is sent into it until a timer fires (RFC 1122, 4.2.3.4).
fn clock_is_borne_out(figures: &Figures) -> bool {
    let waited = figures.mean(|snapshot| snapshot.not_sent).is_some_and(|not_sent| not_sent > ByteCount::ZERO);
    let in_use = match (figures.mean(|snapshot| snapshot.outstanding), figures.mean(|snapshot| snapshot.window)) {
        (Some(outstanding), Some(window)) => {
            outstanding >= window.scaled(WINDOW_IN_USE) || figures.mss.is_some_and(|mss| window < mss)
        }
        _ => true,
    };
    waited && in_use
}

fn name_receiver(figures: &Figures, held: Ratio) -> Finding {
    if figures.part.is_none() && figures.flows.iter().all(window_still_grows) {
        return Finding::new(Limit::CongestionWindow, Cause::RampUp, At::Path, held);
    }
    if figures.flows.iter().any(|flow| window_fell(flow) || window_swings(flow)) || unread_data_waits(figures) {
        return Finding::new(Limit::ReceiverApplication, Cause::SlowReader, At::Receiver, held);
    }
    let cause = if scaling_is_off(figures) {
        Cause::NoWindowScaling
    } else if receive_buffer_is_fixed(figures) {
        Cause::SoRcvbuf
    } else {
        Cause::TcpRmemMax
    };
    Finding::new(Limit::ReceiveWindow, cause, At::Receiver, held)
}

/// Whether a stream's window was, for most of the time, well below what it once was: the reader lets data pile up.
fn window_fell(flow: &Flow) -> bool {
    let mss = flow.snapshots.iter().filter_map(|snapshot| snapshot.sample.tcp.snd_mss).max().unwrap_or_default();
    usual_and_most(flow).is_some_and(|(usual, most)| usual < most.scaled(WINDOW_FELL) && usual + mss * 2 < most)
}

/// Whether a stream's window was well below what it came to be in the end: the receiver tunes it while the sender speeds up,
/// and may lag behind.
fn window_still_grows(flow: &Flow) -> bool {
    let last = flow.snapshots.iter().rev().find_map(|snapshot| snapshot.window);
    usual_and_most(flow).zip(last).is_some_and(|((usual, most), last)| usual < most.scaled(WINDOW_FELL) && last == most)
}

/// Whether a stream's window falls again and again, and seldom comes up to what it once was: its reader takes data in its own
/// time, and never all of it. A window that its buffer limits stands still, or grows.
fn window_swings(flow: &Flow) -> bool {
    let windows: Vec<ByteCount> = flow.snapshots.iter().filter_map(|snapshot| snapshot.window).collect();
    let falls = share(windows.windows(2).map(|pair| Some(pair[1] < pair[0].scaled(1.0 - WINDOW_FALLS_BY))));
    let below = usual_and_most(flow).is_some_and(|(usual, most)| usual < most.scaled(WINDOW_SWINGS_BELOW));
    below && falls.is_some_and(|falls| falls.get() >= WINDOW_FALLS)
}

/// The window of a stream in the median of its judged part, and the largest of its life.
fn usual_and_most(flow: &Flow) -> Option<(ByteCount, ByteCount)> {
    let ever = flow.whole.iter().filter_map(|sample| sample.tcp.snd_wnd).max();
    let most = ever.into_iter().chain(flow.snapshots.iter().filter_map(|snapshot| snapshot.window)).max();
    median(flow.snapshots.iter().filter_map(|snapshot| snapshot.window).collect()).zip(most)
}

/// Whether the receiver's buffer holds much that its program has not read.
fn unread_data_waits(figures: &Figures) -> bool {
    let (from, to) = figures.judged();
    let judged = figures.evidence.receiver_samples.iter().filter(|sample| (from..=to).contains(&sample.at));
    let (mut unread, mut room) = (0.0, 0.0);
    for memory in judged.filter_map(|sample| sample.memory) {
        unread += memory.rmem_alloc.as_f64();
        room += memory.rcvbuf.as_f64();
    }
    room > 0.0 && unread >= room * UNREAD
}

fn scaling_is_off(figures: &Figures) -> bool {
    let evidence = figures.evidence;
    let ends = [&evidence.sender, &evidence.receiver];
    let refused = ends.into_iter().flatten().any(|settings| !settings.window_scaling);
    let agreed = figures.snapshots().find_map(|snapshot| snapshot.sample.tcp.window_scaling);
    let small =
        figures.snapshots().filter_map(|snapshot| snapshot.window).all(|window| window <= kernel::largest_window(None));
    small && agreed.map_or(refused, |agreed| !agreed)
}

/// The program fixed it by request; or the window stands well below what the kernel would tune it to.
fn receive_buffer_is_fixed(figures: &Figures) -> bool {
    let evidence = figures.evidence;
    if evidence.request.buffer != Buffer::Automatic {
        return true;
    }
    let Some(settings) = &evidence.receiver else { return false };
    let tuned = ReceiveBuffer::automatic(settings).advertised();
    let seen = figures.snapshots().filter_map(|snapshot| snapshot.window).max();
    seen.is_some_and(|seen| seen < tuned.scaled(AUTOTUNED_TO_THE_END))
}

/// The send buffer, if it held for most of the time.
///
/// It must have been full at times and much in use on the whole (a sleeping writer is woken when a third is free),
/// with next to nothing left to send. The kernel's own marks do not show it: a small buffer snapshots like an idle
/// program (`app_limited`), with hardly any `sndbuf_limited` time.
pub(crate) fn send_buffer(figures: &Figures) -> Option<Finding> {
    let of_flow = |flow: &Flow| {
        let full = buffer_is_full(figures, flow);
        flow.snapshots
            .iter()
            .map(|snapshot| Some(full? && snapshot.busy() && snapshot.starved_by_buffer()?))
            .collect::<Vec<_>>()
    };
    let held = share(figures.flows.iter().flat_map(of_flow)).filter(|share| share.get() >= MAJORITY)?;
    let cause = if send_buffer_is_fixed(figures) { Cause::SoSndbuf } else { Cause::TcpWmemMax };
    Some(Finding::new(Limit::SendBuffer, cause, At::Sender, held))
}

/// Whether a stream's buffer was full at times and much used on the whole, and its writer waited for room: the kernel says
/// so, or the buffer was at times as empty as where a sleeping writer is woken, and never emptier. What a program leaves
/// there by itself is sometimes less.
fn buffer_is_full(figures: &Figures, flow: &Flow) -> Option<bool> {
    let used = flow
        .snapshots
        .iter()
        .filter_map(|snapshot| Some(Ratio::of(snapshot.queued?.as_f64(), snapshot.sndbuf?.as_f64()).get()));
    let used: Vec<f64> = used.collect();
    let peak = used.iter().copied().fold(0.0, f64::max);
    let least = used.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    let stated = figures.share_of_busy(|tcp| tcp.sndbuf_limited).is_none_or(|waited| waited.get() >= BLOCKED);
    let waited = stated || (used.len() >= SNAPSHOTS_OF_A_SLEEPER && WOKEN.contains(&least));
    (!used.is_empty()).then_some(waited && peak >= BUFFER_PEAK && mean >= BUFFER_MEAN)
}

/// The program fixed it by request; or it never changed, and is not what the kernel tunes it to.
fn send_buffer_is_fixed(figures: &Figures) -> bool {
    let evidence = figures.evidence;
    if evidence.request.buffer != Buffer::Automatic {
        return true;
    }
    let sizes = || figures.flows.iter().flat_map(|flow| &flow.whole).filter_map(|sample| Some(sample.memory?.sndbuf));
    let (Some(least), Some(most)) = (sizes().min(), sizes().max()) else { return false };
    let tuned_to_the_end =
        evidence.sender.as_ref().is_some_and(|settings| most >= settings.tcp_wmem.max.scaled(AUTOTUNED_TO_THE_END));
    least == most && !tuned_to_the_end
}

/// The sending program, if it left its socket largely empty for most of the time.
pub(crate) fn sender_application(figures: &Figures) -> Option<Finding> {
    let of_flow = |flow: &Flow| {
        let full = buffer_is_full(figures, flow).unwrap_or(false);
        flow.snapshots.iter().map(|snapshot| snapshot.writer_behind(full)).collect::<Vec<_>>()
    };
    let held = share(figures.flows.iter().flat_map(of_flow)).filter(|share| share.get() >= MAJORITY)?;
    Some(idle(figures, held))
}

/// The sending program had nothing to send: by its own choice, where it was asked for a rate and keeps to it.
pub(crate) fn idle(figures: &Figures, share: Ratio) -> Finding {
    let cause = if keeps_to_a_rate(figures) { Cause::RateLimited } else { Cause::Idle };
    Finding::new(Limit::SenderApplication, cause, At::Sender, share)
}

fn keeps_to_a_rate(figures: &Figures) -> bool {
    const NEARLY: f64 = 0.9;
    let reached = |asked: BitRate| figures.part.is_none_or(|part| part.rate >= asked.scaled(NEARLY));
    figures.offered().is_some_and(reached)
}
