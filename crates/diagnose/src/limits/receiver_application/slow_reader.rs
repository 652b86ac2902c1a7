//! A receiving program that takes data slowly.

use fullpipe_model::window;
use fullpipe_record::samples_by_stream;

use crate::limits::capacity::link;
use crate::limits::prelude::*;
use crate::limits::receiver_application::cause_of_reader;
use crate::limits::{cpu, receive_window};
use crate::signals::JudgedSample;
use crate::signals::path::{self, time_on_the_line};
use crate::thresholds::{
    FALLEN_WINDOW_SHARE, INFLATED_RTT_FACTOR, MIN_WINDOW_USE, UNREAD_BUFFER_SHARE,
};

candidate_sets! {
    /// A program that reads slowly, and what keeps one from reading.
    pub(crate) NO_TIME_TO_READ: [
        ReceiverApplication SlowReader, ReceiverApplication Storage, Cpu StolenOfReceiver
    ] in [Sender, Capture],
        "what the receiving program waits for, and the processor time that it gets";
    /// A window of one size at each look.
    WINDOW_OF_FEW_LOOKS: [
        ReceiveWindow TcpRmemMax, ReceiveWindow SoRcvbuf, ReceiveWindow WindowScaleRewritten,
        ReceiverApplication SlowReader
    ],
        "what the receiver has unread (ss -tnm), and whether its program sets SO_RCVBUF";
}

pub(crate) const CAUSE: Cause = Cause {
    captured_sentence: |view, finding| {
        let of_receiver = view.figures.evidence.loaded_rtt?;
        (late_receiver(view).as_ref() == Some(finding)).then(|| {
            format!(
                "The receiver answers late: a round trip takes {} for the sender and {of_receiver} for the receiver, \
                 which has a queue of the path in its own; its program or its processor keeps the data waiting.",
                time_text(view.figures.rtt),
            )
        })
    },
    received_sentence: |arrivals, finding| {
        format!(
            "The program here reads too slowly: data waits in its receive buffer for {} of the time, and only {} \
             arrives.",
            finding.share, arrivals.rate
        )
    },
    manual_remedies: &[ManualRemedy::new(
        "faster-reader",
        Scope::Application,
        "The receiving program must take the data faster; no setting of TCP helps.",
    )
    .at_end(At::Receiver)],
    ..cause_of_reader(&["receiver-application/slow-reader"], sentence)
};

fn sentence(figures: &SenderView, finding: &Finding) -> String {
    let most_room = largest_window(figures);
    let how = if figures.evidence.http2_wait.is_some() {
        format!(
            "for {} of the time its HTTP/2 window lets nothing more be sent",
            finding.share
        )
    } else if most_room == Some(ByteCount::ZERO) {
        "its window stays closed".to_owned()
    } else {
        format!(
            "it leaves room for {} at a time, where there was once room for {}",
            size_text(figures.mean_size(|snapshot| snapshot.window)),
            size_text(most_room),
        )
    };
    format!("The receiving program reads too slowly: {how}.")
}

/// Finds a receive buffer that stays full of data in order: the program does not read it.
pub(crate) fn unread_data_stays(arrivals: &ReceiverView) -> Option<Finding> {
    let pairs = arrivals.snapshot_pairs();
    let held = unread_share(pairs.map(|(before, now)| [before, now]))?;
    if held.get() < MIN_LIMIT_SHARE {
        return None;
    }
    // A program that gets no time does not read either.
    cpu::own_processor(arrivals)
        .or_else(|| Some(Finding::new(ReceiverApplicationVerdict::SlowReader, held)))
}

/// Returns the receiving program, if a window that held the sender back for the share `held` is its
/// work.
pub(crate) fn behind_window(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let found = reads_slowly(figures)
        .then(|| Finding::new(ReceiverApplicationVerdict::SlowReader, held))?;
    // Its processor and its file show at the receiver only, or by the pieces in which they give it
    // time.
    let is_seen = figures.evidence.receiver.is_some();
    let is_even = figures.flows.iter().all(window_fell) && path::carries_one_rate(figures)
        || reads_in_small_portions(figures);
    Some(if is_seen || is_even {
        found
    } else {
        found.one_of(&NO_TIME_TO_READ)
    })
}

/// Returns `found` with the receiving program beside a window that a few looks show: they may not
/// show that it was larger once, or how long data waits for its reader.
pub(crate) fn beside_window_of_few_looks(figures: &SenderView, found: Finding) -> Finding {
    let is_of_a_size = matches!(
        found.verdict,
        LegalVerdict::ReceiveWindow(
            ReceiveWindowVerdict::SoRcvbuf
                | ReceiveWindowVerdict::TcpRmemMax
                | ReceiveWindowVerdict::WindowScaleRewritten
        )
    );
    if is_of_a_size && figures.evidence.few_looks().is_some() {
        found.one_of(&WINDOW_OF_FEW_LOOKS)
    } else {
        found
    }
}

/// Returns true if no window of the judged part is half as large as the largest was: a program that
/// waits for its processor or for a file empties its buffer whenever it runs.
fn reads_in_small_portions(figures: &SenderView) -> bool {
    figures.flows.iter().all(|flow| {
        let largest_now = flow.snapshots.iter().filter_map(|one| one.window).max();
        largest_now
            .zip(usual_and_most(flow))
            .is_some_and(|(now, (_, most))| now * 2 <= most)
    })
}

/// Share of the busy time in which closed windows and late acknowledgements together show a slow
/// reader (measured: 0.20 under BBR, 0.27 of eight connections that one program reads).
const MIN_CLOSED_SHARE: f64 = 0.15;

/// Finds the receiving program where acknowledgements come late and echo requests do not, and the
/// window was closed for some of the time: it holds back the data of some connections, and then of
/// others; or as much data waits for it.
pub(crate) fn behind_late_acknowledgements(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let closed = figures.share_of_busy(|tcp| tcp.rwnd_limited)?.get() >= MIN_CLOSED_SHARE;
    let found = acknowledgements_come_late(figures)
        && !path::echoes_wait(figures)
        && (closed || unread_data_explains_delay(figures) == Some(true));
    found.then(|| behind_window(figures, held)).flatten()
}

/// Returns true if data waits for the receiving program.
fn reads_slowly(figures: &SenderView) -> bool {
    let by_window = figures
        .flows
        .iter()
        .any(|flow| window_fell(flow) || window_swings(flow));
    by_window
        || unread_data_waits(figures)
        || acknowledgements_come_late(figures)
        || data_waits_somewhere(figures) == Some(true)
        || is_closed_at_times(figures) == Some(true)
}

/// Multiple of the idle round-trip time from which a full window of another program's transfer
/// shows that its data is kept waiting (measured: 2.8 for a slow reader).
const KEPT_DATA_RTT_FACTOR: f64 = 1.5;

/// Returns true if the round trips of another program's transfer, without echo requests next to it,
/// are far longer than those of the idle path, though no queue stands on it: a full window alone
/// makes them no longer. `None` where one of these times is not known.
fn data_waits_somewhere(figures: &SenderView) -> Option<bool> {
    let evidence = figures.evidence;
    let is_watched = evidence.is_of_another_program()
        && evidence.receiver.is_none()
        && evidence.loaded_rtt.is_none();
    let usual = figures.idle_rtt?.scale_by(KEPT_DATA_RTT_FACTOR) + time_on_the_line(figures)? * 2;
    Some(is_watched && figures.rtt? > usual && link::queue_behind_window(figures).is_none())
}

/// Multiple of the round-trip time of echo requests above which acknowledgements come late: the
/// receiving host, and not the path, holds them back.
const LATE_ACK_FACTOR: f64 = 1.15;

/// Returns true if acknowledgements take clearly longer than echo requests, which the receiving
/// program has no part in. A window of few segments waits for a timer of its own.
fn acknowledgements_come_late(figures: &SenderView) -> bool {
    let (Some(rtt), Some(echo), Some(line)) = (
        figures.rtt,
        figures.evidence.loaded_rtt,
        time_on_the_line(figures),
    ) else {
        return false;
    };
    has_many_segments(figures) && rtt > echo.scale_by(LATE_ACK_FACTOR) + line * 2
}

fn has_many_segments(figures: &SenderView) -> bool {
    const FEW: u64 = 8;
    let window = figures
        .mean_size(|snapshot| snapshot.outstanding)
        .zip(figures.mss);
    window.is_some_and(|(window, mss)| window > mss * (FEW * u64::from(figures.stream_count())))
}

/// Multiple of the rate of which a window that is always full would carry more, above which it is
/// closed for some of the time (measured: 3.3 of a reader that pauses).
const CLOSED_WINDOW_FACTOR: f64 = 2.0;

/// Returns true if the window that holds the sender back nearly always would carry far more if it
/// were never smaller than it seems: between the samples it is closed. At a receiver that is seen,
/// unread data shows it. `None` where the window or the round trip is not known.
fn is_closed_at_times(figures: &SenderView) -> Option<bool> {
    let window = figures.mean_size(|snapshot| snapshot.window)?;
    let carries = window::rate_of_window(window, figures.rtt?);
    Some(
        figures.evidence.receiver.is_none()
            && receive_window::clocks_say_window(figures)
            && has_many_segments(figures)
            && carries > figures.rate.scale_by(CLOSED_WINDOW_FACTOR),
    )
}

/// Share of the samples in which a window that has fallen is full, from which it shows a slow
/// reader.
const MIN_SHARE_OF_FULL_WINDOW: f64 = 0.2;
/// Times that a window closes from which its program reads slowly, as far as the samples show it.
const MIN_TIMES_CLOSED: usize = 3;

/// Finds a receiving program behind what seems a limit of the path: its buffer stays full of data
/// that came in order; or, where that is not seen, its window closes again and again and is small
/// for most of the time. What such a receiver has no room for it drops, as a path loses packets.
pub(crate) fn behind_limit_of_path(figures: &SenderView, found: &Finding) -> Option<Finding> {
    let may_be = matches!(
        found.limit_kind(),
        Limit::Capacity | Limit::CongestionWindow | Limit::Loss
    );
    if !may_be {
        return None;
    }
    let (from, to) = figures.judged_period();
    let received = samples_by_stream(&figures.evidence.receiver_samples).into_values();
    let pairs: Vec<[&Sample; 2]> = received
        .flat_map(|flow| {
            flow.windows(2)
                .map(|pair| [pair[0], pair[1]])
                .collect::<Vec<_>>()
        })
        .filter(|[before, now]| before.at >= from && now.at <= to)
        .collect();
    if !pairs.is_empty() {
        let held = unread_share(pairs.into_iter())?;
        return (held.get() >= MIN_LIMIT_SHARE)
            .then(|| found.as_verdict(ReceiverApplicationVerdict::SlowReader));
    }
    if figures.evidence.few_looks() == Some(1) {
        return leaves_pipe_empty_at_look(figures).then(|| {
            found
                .as_verdict(ReceiverApplicationVerdict::SlowReader)
                .one_of(&NO_TIME_TO_READ)
        });
    }
    let full = share_of_votes(figures.snapshots().map(|one| one.fills_window(true)));
    let is_full = figures.part.is_some()
        && figures.evidence.capture.is_none()
        && full.is_some_and(|full| full.get() >= MIN_SHARE_OF_FULL_WINDOW);
    let is_no_queue = found.limit_kind() == Limit::Capacity
        && figures.evidence.capture.is_none()
        && figures.evidence.few_looks().is_none()
        && fallen_windows_explain_delay(figures) == Some(true);
    let closes = figures.flows.iter().all(|flow| {
        window_fell(flow) && (is_full || is_no_queue || times_closed(flow) >= MIN_TIMES_CLOSED)
    });
    closes.then(|| {
        found
            .as_verdict(ReceiverApplicationVerdict::SlowReader)
            .one_of(&NO_TIME_TO_READ)
    })
}

/// Share of the bandwidth-delay product below which one look shows a pipe that is not full.
const EMPTY_PIPE_SHARE: f64 = 0.5;

/// Returns true if at the one look that there is both the window and what is in flight are far below
/// what the path holds at the highest known rate: a full link has at least that in flight.
fn leaves_pipe_empty_at_look(figures: &SenderView) -> bool {
    let delivered = figures.tcp().filter_map(|tcp| tcp.delivery_rate);
    let rate = path::stated_capacity(figures)
        .into_iter()
        .chain(delivered)
        .fold(figures.rate, BitRate::max);
    let in_the_pipe = figures.idle_rtt.map(|rtt| rate.bytes_in(rtt));
    let sizes = [
        figures.mean_size(|one| one.window),
        figures.mean_size(|one| one.outstanding),
    ];
    sizes.into_iter().all(|size| {
        size.zip(in_the_pipe)
            .is_some_and(|(size, pipe)| size < pipe.scale_by(EMPTY_PIPE_SHARE))
    })
}

/// Returns the share of the samples, each with the one before it, in which much of the receive
/// buffer was full of data in order: the program does not read it. Behind a hole data must wait,
/// which is not the program's doing.
fn unread_share<'s>(pairs: impl Iterator<Item = [&'s Sample; 2]>) -> Option<Ratio> {
    share_of_votes(pairs.map(|[before, now]| {
        let memory = now.memory?;
        let waits_for_a_hole = now.tcp.out_of_order_in > before.tcp.out_of_order_in;
        Some(memory.rmem_alloc >= memory.rcvbuf.scale_by(UNREAD_BUFFER_SHARE) && !waits_for_a_hole)
    }))
}

/// Returns the number of times that the window of a stream closed.
fn times_closed(flow: &SenderStream) -> usize {
    let windows: Vec<ByteCount> = flow
        .whole
        .iter()
        .filter_map(|sample| sample.tcp.snd_wnd)
        .collect();
    windows
        .windows(2)
        .filter(|pair| pair[0] > ByteCount::ZERO && pair[1] == ByteCount::ZERO)
        .count()
}

/// Returns true if a stream's window was, for most of the time, well below its largest size: the
/// reader lets data pile up. One that stands still is of a buffer that was made smaller after the
/// connection had been opened.
fn window_fell(flow: &SenderStream) -> bool {
    let mut windows: Vec<ByteCount> = flow
        .snapshots
        .iter()
        .filter_map(|snapshot| snapshot.window)
        .collect();
    windows.sort_unstable();
    let [low, high] = [1, 31].map(|parts| windows.get(windows.len() * parts / 32));
    if low == high {
        return false;
    }
    let mss = flow
        .snapshots
        .iter()
        .filter_map(|snapshot| snapshot.sample.tcp.snd_mss)
        .max()
        .unwrap_or_default();
    usual_and_most(flow).is_some_and(|(usual, most)| {
        usual < most.scale_by(FALLEN_WINDOW_SHARE) && usual + mss * 2 < most
    })
}

/// Share of itself by which a window falls from one snapshot to the next in a swing.
const WINDOW_FALL_SHARE: f64 = 0.05;
/// Share of the snapshots in which a swinging window falls (measured: 29 to 51 % where a fast path
/// meets a slow reader, none where the buffer limits).
const MIN_WINDOW_FALLS_SHARE: f64 = 0.2;
/// Share of its largest size below which the median of a swinging window stays; a full one that
/// trains dent stays above.
const SWINGING_WINDOW_SHARE: f64 = 0.9;

/// Returns true if a stream's window falls again and again, and seldom reaches its largest size:
/// its reader takes data in its own time, and never all of it. A window that its buffer limits
/// stands still, or grows.
fn window_swings(flow: &SenderStream) -> bool {
    let windows: Vec<ByteCount> = flow
        .snapshots
        .iter()
        .filter_map(|snapshot| snapshot.window)
        .collect();
    let falls = share_of_votes(
        windows
            .windows(2)
            .map(|pair| Some(pair[1] < pair[0].scale_by(1.0 - WINDOW_FALL_SHARE))),
    );
    let below = usual_and_most(flow)
        .is_some_and(|(usual, most)| usual < most.scale_by(SWINGING_WINDOW_SHARE));
    below && falls.is_some_and(|falls| falls.get() >= MIN_WINDOW_FALLS_SHARE)
}

/// Returns the window of a stream in the median of its judged part, and the largest of its life.
pub(crate) fn usual_and_most(flow: &SenderStream) -> Option<(ByteCount, ByteCount)> {
    let ever = flow
        .whole
        .iter()
        .filter_map(|sample| sample.tcp.snd_wnd)
        .max();
    let most = ever
        .into_iter()
        .chain(flow.snapshots.iter().filter_map(|snapshot| snapshot.window))
        .max();
    median(
        flow.snapshots
            .iter()
            .filter_map(|snapshot| snapshot.window)
            .collect(),
    )
    .zip(most)
}

/// Mean share of the receive buffer that unread data fills where the reader is slow (measured: at
/// most 3 % where it keeps up, 43 % where it does not).
const MIN_UNREAD_SHARE: f64 = 0.25;

/// Returns true if the receiver's buffer holds much data that its program has not read.
fn unread_data_waits(figures: &SenderView) -> bool {
    unread_and_room(figures).is_some_and(|[unread, room]| unread >= room * MIN_UNREAD_SHARE)
}

/// Share of the data that waits between echo and acknowledgement from which unread data explains it
/// (measured: 0.6 to 0.8).
const MIN_UNREAD_SHARE_OF_DELAY: f64 = 0.5;

/// Returns true if about as much data waits for the receiving program as arrives while
/// acknowledgements take longer than echo requests; `None` where one of these is not known.
fn unread_data_explains_delay(figures: &SenderView) -> Option<bool> {
    let late = figures.rtt?.saturating_sub(figures.evidence.loaded_rtt?);
    let waits = figures.rate.bytes_in(late).as_f64();
    let [unread, _] = unread_and_room(figures)?;
    Some(unread * f64::from(figures.stream_count()) >= waits * MIN_UNREAD_SHARE_OF_DELAY)
}

/// Returns true if the windows fell by about as much as arrives while acknowledgements take longer
/// than on the idle path: it waits for the receiving program, and in no queue (measured: 1.8 and
/// more of it for 9 slow readers, at most 0.07 behind 12 full links). That is nothing where the
/// delay is short and windows hardly fall. `None` where one of these is not known.
fn fallen_windows_explain_delay(figures: &SenderView) -> Option<bool> {
    let late = figures.rtt?.saturating_sub(figures.idle_rtt?);
    let waits = figures.rate.bytes_in(late).as_f64();
    let unread: f64 = figures.flows.iter().filter_map(mean_fall).sum();
    Some(waits > 0.0 && unread >= waits * MIN_UNREAD_SHARE_OF_DELAY)
}

/// Returns the bytes by which a stream's window was smaller than it had been, in the mean. Behind a
/// hole data must wait, which is not the program's doing: `None` where there mostly is one.
fn mean_fall(flow: &SenderStream) -> Option<f64> {
    let without_hole =
        |one: &&JudgedSample| one.sample.tcp.sacked.unwrap_or_default() == SegCount::ZERO;
    let whole = flow.snapshots.iter().filter(without_hole);
    let windows = whole.filter_map(|one| one.window);
    let falls = windows.scan(ByteCount::ZERO, |largest, window| {
        *largest = window.max(*largest);
        Some(largest.saturating_sub(window).as_f64())
    });
    let falls: Vec<f64> = falls.collect();
    (falls.len() * 2 > flow.snapshots.len()).then(|| falls.iter().sum::<f64>() / falls.len() as f64)
}

/// Returns the bytes of a receive buffer that were not read, in the mean of the judged part, and
/// the buffer's size.
fn unread_and_room(figures: &SenderView) -> Option<[f64; 2]> {
    let (from, to) = figures.judged_period();
    let judged = figures
        .evidence
        .receiver_samples
        .iter()
        .filter(|sample| (from..=to).contains(&sample.at));
    let (mut unread, mut room, mut count) = (0.0, 0.0, 0.0);
    for memory in judged.filter_map(|sample| sample.memory) {
        unread += memory.rmem_alloc.as_f64();
        room += memory.rcvbuf.as_f64();
        count += 1.0;
    }
    (room > 0.0).then(|| [unread, room].map(|sum| sum / count))
}

/// Returns the largest window that the receiver ever advertised, of all streams.
pub(crate) fn largest_window(figures: &SenderView) -> Option<ByteCount> {
    let ever = figures.flows.iter().filter_map(|flow| {
        flow.whole
            .iter()
            .filter_map(|sample| sample.tcp.snd_wnd)
            .max()
    });
    figures
        .max_size(|snapshot| snapshot.window)
        .map(|judged| judged.max(ever.sum()))
}

/// Share of a window that has fallen which is usually in flight at most where its reader is slow.
const MIN_USE_OF_FALLEN_WINDOW: f64 = 0.75;

/// Finds a receiver that answers late: with two captures, round trips take clearly longer for
/// the sender than for the receiver, which has a queue of the path in its own, too; else, its
/// window shows that data waits for it.
pub(crate) fn late_receiver(view: &CaptureView) -> Option<Finding> {
    if !view.is_at_sender() || view.ever_lost_on_path() || !view.waits_on_path() {
        return None;
    }
    let is_late = match view.figures.evidence.loaded_rtt {
        Some(rtt) => {
            !path::echoes_wait(view.figures)
                && view.figures.rtt? > rtt.scale_by(INFLATED_RTT_FACTOR)
        }
        None => view.uses_window() && reads_slowly(view.figures),
    };
    is_late.then(|| Finding::always(ReceiverApplicationVerdict::SlowReader))
}

/// Finds a program that leaves the receiver's window full, which holds data back from the begin.
pub(crate) fn full_window_of_reader(view: &CaptureView) -> Option<Finding> {
    receive_window::find_captured_window(view)
        .filter(|found| found.limit_kind() == Limit::ReceiverApplication)
}

/// Finds a window that is full, and falls and opens again and again: its program reads what fills
/// it in portions. A link that is full never fills a window, and one of a fixed size stays open.
pub(crate) fn swinging_window(view: &CaptureView) -> Option<Finding> {
    let low = view.low_window_share()?;
    Some(Finding::new(ReceiverApplicationVerdict::SlowReader, low))
}

/// Finds a window that has become small and is full at times: its program takes the data in its
/// own time.
pub(crate) fn fallen_window(view: &CaptureView) -> Option<Finding> {
    let flow = view.figures.flows.first()?;
    let windows = flow.snapshots.iter().filter_map(|one| one.window);
    let usual = median(windows.collect())?;
    let is_full = view.usual_most_in_flight()? >= usual.scale_by(MIN_USE_OF_FALLEN_WINDOW);
    // Behind a hole data must wait, whatever the program does.
    let found = is_full && view.figures.part.is_some() && !view.lost_on_path() && window_fell(flow);
    found.then(|| Finding::always(ReceiverApplicationVerdict::SlowReader))
}

impl CaptureView<'_> {
    /// Returns true if much of the window is in use.
    fn uses_window(&self) -> bool {
        let sizes = self
            .figures
            .mean_size(|one| one.outstanding)
            .zip(self.figures.mean_size(|one| one.window));
        sizes.is_some_and(|(in_flight, window)| in_flight >= window.scale_by(MIN_WINDOW_USE))
    }
}
