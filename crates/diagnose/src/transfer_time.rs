//! The account of a transfer's time: a limit is a use of time, so every moment is booked on the use
//! that shows.

use fullpipe_record::{CongestionState, TransferTimeShare, TransferTimeUse};

use crate::finding::Finding;
use crate::limits::receive_window::clocks_say_window;
use crate::limits::receiver_application::slow_reader::NO_TIME_TO_READ;
use crate::limits::send_buffer::buffer_is_full;
use crate::limits::sender_application::idle::NO_TIME_TO_WRITE;
use crate::prelude::*;
use crate::signals::snapshot::{own_window, received_bytes};
use crate::signals::{
    JudgedSample, ReceiverView, SeenEnd, SenderStream, SenderView, TransferView, time_ratio,
};
use crate::thresholds::{
    INFLATED_RTT_FACTOR, MIN_LIMIT_SHARE, MIN_RETRANSMISSION_TIMEOUT, MIN_WINDOW_FILL,
    REGROWN_WINDOW_FACTOR, SILENCE_ROUND_TRIPS, TICK_TOLERANCE, UNREAD_BUFFER_SHARE,
};

/// The times of all streams by their use.
#[derive(Debug, Default)]
pub(crate) struct TransferTime {
    booked: Vec<(TransferTimeUse, Span)>,
    streams: u64,
}

impl TransferTime {
    /// Returns the account of all of the transfer.
    pub(crate) fn from_view(view: &TransferView) -> Self {
        match &view.end {
            SeenEnd::Sender(_) => Self::from_sender(&SenderView::from_part(view.evidence, None)),
            SeenEnd::Receiver(arrivals) => Self::from_receiver(arrivals),
        }
    }

    /// Returns the account of the sending end, or of a capture.
    pub(crate) fn from_sender(figures: &SenderView) -> Self {
        let mut account = Self {
            booked: Vec::new(),
            streams: figures.flows.len() as u64,
        };
        if figures.evidence.few_looks() == Some(1) {
            figures
                .flows
                .iter()
                .for_each(|flow| account.book_clocks(flow));
            return account;
        }
        for flow in &figures.flows {
            let after = figures.evidence.capture.map(|capture| capture.silent_after);
            account.book(TransferTimeUse::AfterTransfer, after.unwrap_or_default());
            let walk = SenderWalk::new(figures, flow);
            for (index, pair) in flow.snapshots.windows(2).enumerate() {
                account.book(
                    walk.time_use(index),
                    elapsed(pair[0].sample, pair[1].sample),
                );
            }
        }
        account
    }

    /// Returns the account of the receiving end.
    pub(crate) fn from_receiver(arrivals: &ReceiverView) -> Self {
        let mut account = Self {
            booked: Vec::new(),
            streams: arrivals.whole.len() as u64,
        };
        if arrivals.evidence.few_looks() == Some(1) {
            return account;
        }
        let walk = ReceiverWalk::new(arrivals);
        for flow in &arrivals.whole {
            let end = last_progress(flow, |sample| sample.tcp.bytes_received);
            for (index, pair) in flow.windows(2).enumerate() {
                let used_for = if index >= end {
                    TransferTimeUse::AfterTransfer
                } else {
                    walk.time_use(pair[0], pair[1])
                };
                account.book(used_for, elapsed(pair[0], pair[1]));
            }
        }
        account
    }

    fn book(&mut self, used_for: TransferTimeUse, time: Span) {
        match self.booked.iter_mut().find(|(other, _)| *other == used_for) {
            Some((_, sum)) => *sum += time,
            None => self.booked.push((used_for, time)),
        }
    }

    /// Books what the kernel's own clocks say of a connection at which there was one look.
    fn book_clocks(&mut self, flow: &SenderStream) {
        let Some(last) = flow.snapshots.last().map(|last| last.sample) else {
            return;
        };
        let clocks = [last.tcp.rwnd_limited, last.tcp.sndbuf_limited];
        let [window, buffer] = clocks.map(Option::unwrap_or_default);
        let busy = last.tcp.busy.unwrap_or_default();
        self.book(TransferTimeUse::WindowFull, window);
        self.book(TransferTimeUse::SendBuffer, buffer);
        self.book(TransferTimeUse::NothingToSend, last.at.saturating_sub(busy));
        let rest = busy.saturating_sub(window + buffer);
        self.book(TransferTimeUse::Unknown, rest);
    }

    /// Returns the time of one use, all streams together.
    fn time_of(&self, used_for: TransferTimeUse) -> Span {
        self.booked
            .iter()
            .filter(|(other, _)| *other == used_for)
            .map(|(_, time)| *time)
            .sum()
    }

    /// Returns the time of the transfer, all streams together, without the silence after it.
    fn in_transfer(&self) -> Span {
        let all: Span = self.booked.iter().map(|(_, time)| *time).sum();
        all.saturating_sub(self.time_of(TransferTimeUse::AfterTransfer))
    }

    /// Returns the share of the transfer's time that one use took.
    fn share_of(&self, used_for: TransferTimeUse) -> Ratio {
        time_ratio(self.time_of(used_for), self.in_transfer())
    }

    /// Returns each use with its time, the longest first; without those that are too short to be
    /// printed.
    pub(crate) fn shares(&self) -> Vec<TransferTimeShare> {
        /// Share of the time below which a use is left out.
        const MIN_SHARE: f64 = 0.005;
        let shares = self
            .booked
            .iter()
            .map(|(used_for, time)| TransferTimeShare {
                used_for: *used_for,
                time: *time / self.streams.max(1),
                share: self.share_of(*used_for),
            });
        let mut shares: Vec<TransferTimeShare> = shares.collect();
        shares.retain(|one| one.share.get() >= MIN_SHARE);
        shares.sort_by_key(|one| std::cmp::Reverse(one.time));
        shares
    }
}

fn elapsed(before: &Sample, now: &Sample) -> Span {
    now.at.saturating_sub(before.at)
}

/// Returns the index of the first sample by which everything had moved.
fn last_progress<T: PartialEq>(samples: &[&Sample], moved: impl Fn(&Sample) -> T) -> usize {
    let last = samples.last().map(|last| moved(last));
    samples
        .iter()
        .position(|sample| Some(moved(sample)) == last)
        .unwrap_or(samples.len())
}

/// The samples of one stream at the sending end, with what its steps are booked by.
struct SenderWalk<'w, 'a> {
    figures: &'w SenderView<'a>,
    flow: &'w SenderStream<'a>,
    /// True of each step in which nothing moved until a timer expired.
    stalls: Vec<bool>,
    /// Index of the first sample after which nothing moved and nothing waited.
    end: usize,
    is_buffer_full: bool,
    clocks_say_window: bool,
}

impl<'w, 'a> SenderWalk<'w, 'a> {
    pub(crate) fn new(figures: &'w SenderView<'a>, flow: &'w SenderStream<'a>) -> Self {
        let samples: Vec<&Sample> = flow.snapshots.iter().map(|one| one.sample).collect();
        let is_over = flow
            .snapshots
            .last()
            .is_some_and(|last| last.sample.tcp.bytes_acked.is_some() && !last.is_busy());
        Self {
            figures,
            flow,
            stalls: timeout_steps(
                &samples,
                figures.rtt.or(figures.idle_rtt).unwrap_or_default(),
                figures.evidence.capture.is_some(),
            ),
            end: if is_over {
                last_progress(&samples, |one| {
                    let tcp = &one.tcp;
                    (tcp.bytes_acked, tcp.bytes_sent, tcp.total_retrans)
                })
            } else {
                samples.len()
            },
            is_buffer_full: buffer_is_full(figures, flow) == Some(true),
            clocks_say_window: clocks_say_window(figures),
        }
    }

    /// Returns the use of the time from snapshot `index` to the next.
    fn time_use(&self, index: usize) -> TransferTimeUse {
        let (before, now) = (&self.flow.snapshots[index], &self.flow.snapshots[index + 1]);
        let mss = self.figures.mss.unwrap_or(ByteCount::new(1));
        let is_silent = before.sample.bytes == now.sample.bytes;
        match () {
            () if is_silent && before.window.is_some_and(|window| window < mss) => {
                TransferTimeUse::WindowClosed
            }
            () if index >= self.end => TransferTimeUse::AfterTransfer,
            () if self.stalls[index] => TransferTimeUse::RetransmissionTimeout,
            () if !before.is_busy() && !now.is_busy() => TransferTimeUse::NothingToSend,
            () if now.fills_window(self.clocks_say_window) == Some(true) => {
                TransferTimeUse::WindowFull
            }
            () if self.is_buffer_full && now.starved_by_buffer() == Some(true) => {
                TransferTimeUse::SendBuffer
            }
            () if now.writer_behind(self.is_buffer_full) == Some(true) => {
                TransferTimeUse::NothingToSend
            }
            () if now.held_by_path(self.clocks_say_window) == Some(true) => {
                self.use_of_path(before, now)
            }
            () => TransferTimeUse::Unknown,
        }
    }

    /// Returns the use of a time in which the congestion window or the pace held data back.
    fn use_of_path(&self, before: &JudgedSample, now: &JudgedSample) -> TransferTimeUse {
        let rtts = now.sample.tcp.rtt.zip(self.figures.idle_rtt);
        let is_queued = rtts.is_some_and(|(rtt, idle)| rtt > idle.scale_by(INFLATED_RTT_FACTOR));
        let is_full = now
            .sample
            .pipe_bytes()
            .zip(now.cwnd)
            .is_some_and(|(pipe, cwnd)| pipe * 10 >= cwnd * 9);
        let has_lost = now.sample.tcp.total_retrans > Some(SegCount::ZERO);
        let grows = now
            .cwnd
            .zip(before.cwnd)
            .is_some_and(|(now, then)| now >= then.scale_by(REGROWN_WINDOW_FACTOR));
        let shows_window = self.figures.evidence.capture.is_none();
        match () {
            () if is_queued => TransferTimeUse::PathQueue,
            () if has_lost && is_full => TransferTimeUse::LossRecovery,
            () if is_full && (shows_window || grows) => TransferTimeUse::WindowGrowth,
            () if !is_full && shows_window => TransferTimeUse::Pacing,
            () => TransferTimeUse::Unknown,
        }
    }
}

/// Returns of each step between two samples whether it is a part of a silence that a retransmission
/// timer ended: data was on the way, none was acknowledged for longer than such a timer takes, and
/// then something was sent again.
///
/// With `packets_show_silence`, samples are those of a capture, which has none in a silence.
fn timeout_steps(samples: &[&Sample], rtt: Span, packets_show_silence: bool) -> Vec<bool> {
    let mut steps = vec![false; samples.len()];
    let least = MIN_RETRANSMISSION_TIMEOUT.max(rtt.scale_by(SILENCE_ROUND_TRIPS));
    let mut begin = 0;
    for now in 1..samples.len() {
        let (before, sample) = (samples[begin], samples[now]);
        let moves = sample.tcp.bytes_acked != before.tcp.bytes_acked;
        let is_repaired =
            sample.tcp.total_retrans > before.tcp.total_retrans && elapsed(before, sample) >= least;
        let is_timed = packets_show_silence
            || samples[begin..=now]
                .iter()
                .any(|sample| shows_timeout(sample));
        let is_on_way = before.outstanding_bytes() > Some(ByteCount::ZERO);
        if is_repaired && is_timed && is_on_way && before.tcp.bytes_acked.is_some() {
            steps[begin..now].fill(true);
        }
        if moves {
            begin = now;
        }
    }
    steps
}

/// Returns true while a sender repairs what a timer found lost.
fn shows_timeout(sample: &Sample) -> bool {
    let timeouts = sample
        .tcp
        .timeouts_in_a_row
        .is_some_and(|timeouts| timeouts > SegCount::ZERO);
    timeouts || sample.tcp.congestion_state == Some(CongestionState::Loss)
}

/// Properties of a transfer by which the steps of its receiver are booked.
struct ReceiverWalk {
    rtt: Span,
    is_queued: bool,
}

impl ReceiverWalk {
    pub(crate) fn new(arrivals: &ReceiverView) -> Self {
        Self {
            rtt: arrivals.rtt.unwrap_or_default(),
            is_queued: arrivals.is_inflated(),
        }
    }

    /// Returns the use of the time between two samples.
    fn time_use(&self, before: &Sample, now: &Sample) -> TransferTimeUse {
        let arrived = received_bytes(now)
            .saturating_sub(received_bytes(before))
            .as_f64();
        let round_trips =
            Ratio::from_quotient(elapsed(before, now).as_secs_f64(), self.rtt.as_secs_f64()).get();
        let window = own_window(&now.tcp).map(|window| window.as_f64() * MIN_WINDOW_FILL);
        let is_unread = now
            .memory
            .is_some_and(|one| one.rmem_alloc >= one.rcvbuf.scale_by(UNREAD_BUFFER_SHARE));
        let is_late = now.tcp.out_of_order_in > before.tcp.out_of_order_in;
        let silence = self.rtt.scale_by(SILENCE_ROUND_TRIPS) + TICK_TOLERANCE;
        match () {
            () if is_late => TransferTimeUse::LossRecovery,
            () if is_unread => TransferTimeUse::WindowClosed,
            () if now.tcp.since_data_received > Some(silence) => TransferTimeUse::NothingToSend,
            () if window.is_some_and(|window| arrived >= window * round_trips) => {
                TransferTimeUse::WindowFull
            }
            () if self.is_queued => TransferTimeUse::PathQueue,
            () => TransferTimeUse::Unknown,
        }
    }
}

/// Multiple of the time of a transfer from which the silence after it shows that its program has
/// nothing to send (a choice, not measured).
const MIN_SILENCE_FACTOR: f64 = 20.0;

impl TransferTime {
    /// Returns the limit that the largest use of time shows where `found` explains none of it:
    /// timers, or a window that was closed, that took most of the transfer.
    pub(crate) fn decide(&self, found: Finding) -> Finding {
        let of_receiver = matches!(
            found.limit_kind(),
            Limit::ReceiveWindow
                | Limit::ReceiverApplication
                | Limit::ApplicationWindow
                | Limit::Cpu
        );
        if let Some(closed) = self
            .share_if_most(TransferTimeUse::WindowClosed)
            .filter(|_| !of_receiver)
        {
            return Finding::new(ReceiverApplicationVerdict::SlowReader, closed)
                .one_of(&NO_TIME_TO_READ);
        }
        // A program that has long had nothing to send, and asks at most whether the other end is
        // there.
        if self.share_of(TransferTimeUse::AfterTransfer).get() >= MIN_SILENCE_FACTOR
            && !found.may_be(Limit::Mtu)
        {
            return Finding::always(SenderApplicationVerdict::Idle).one_of(&NO_TIME_TO_WRITE);
        }
        let explains_timers =
            of_receiver || found.limit_kind() == Limit::Loss || found.may_be(Limit::Mtu);
        self.share_if_most(TransferTimeUse::RetransmissionTimeout)
            .filter(|_| !explains_timers)
            .map_or(found, |waited| Finding::new(LossVerdict::Random, waited))
    }

    /// Returns the share of the transfer's time that one use took, if that was most of it.
    fn share_if_most(&self, used_for: TransferTimeUse) -> Option<Ratio> {
        Some(self.share_of(used_for)).filter(|share| share.get() >= MIN_LIMIT_SHARE)
    }
}
