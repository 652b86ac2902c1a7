//! The sending end of a connection, from the moment at which its handshake is over.

mod acknowledgement;
mod buffer;
mod chrono;
mod info;
mod output;
mod recovery;
mod timers;

use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

pub use buffer::BufferRoom;
use buffer::SendBuffer;
use chrono::LimitChronograph;
use timers::SenderTimer;

use crate::tcp::clock::{HostClock, TimestampValue};
use crate::tcp::control::{
    Bbr, BbrSituation, CongestionControl, ControlState, Cubic, RecoveryPhase,
};
use crate::tcp::filter::MinMaxFilter;
use crate::tcp::packet::AckSegment;
use crate::tcp::rack::{AckTally, RackState};
use crate::tcp::rate::{DeliveryRate, RateSample, RoundTrip};
use crate::tcp::scoreboard::Scoreboard;
use crate::tcp::window::{CongestionWindow, ConnectionMoment};

/// Least round-trip times count for 300 s (`tcp_min_rtt_wlen`).
const MIN_RTT_SECONDS: u64 = 300;

/// The properties of a sending end.
#[derive(Debug, Clone)]
pub struct SenderSetup {
    /// Clocks of its host.
    pub clock: HostClock,
    /// Payload of a segment.
    pub mss: ByteCount,
    /// Segments that are handed to the network as one, at most: 1 where nothing below TCP cuts
    /// trains.
    pub longest_train: SegCount,
    /// Congestion control.
    pub control: CongestionControl,
    /// Greatest pace of the socket (`SO_MAX_PACING_RATE`); the kernel paces only where this is set,
    /// or under BBR.
    pub max_pacing_rate: Option<BitRate>,
    /// Send buffer at first, and the most that it grows to; the same where a program fixed it.
    pub buffer: (ByteCount, ByteCount),
    /// Round-trip time of the handshake.
    pub handshake: Span,
    /// The window that the other end advertised in its handshake segment.
    pub first_window: ByteCount,
    /// The shift that the other end's windows are counted by; 0 without the option.
    pub window_scale: Option<u8>,
    /// True if packets carry timestamps.
    pub timestamps: bool,
    /// The stamp of the last packet that came from the other end.
    pub echo: TimestampValue,
    /// Seed for what falls to chance.
    pub seed: u64,
}

/// State of loss recovery (`icsk_ca_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RecoveryState {
    Open,
    Disorder,
    Reduced,
    Recovery,
    Loss,
}

/// A sender.
///
/// The program [writes](Self::write), acknowledgements [arrive](Self::receive_ack), time
/// [passes](Self::wake_timer); after each, [`Self::next_burst`] is called until there is nothing more to send.
/// Calls must not go back in time. Extra calls of [`Self::wake_timer`] and [`Self::next_burst`] change nothing.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of the kernel's structure of a connection"
)]
pub struct Sender {
    clock: HostClock,
    mss: u64,
    longest_train: u64,
    max_pacing_rate: Option<u64>,
    window_scale: Option<u8>,
    board: Scoreboard,
    window: CongestionWindow,
    control: ControlState,
    state: RecoveryState,
    rack: RackState,
    rtt: RoundTrip,
    min_rtt: MinMaxFilter,
    delivery: DeliveryRate,
    buffer: SendBuffer,
    chrono: LimitChronograph,
    timer: Option<SenderTimer>,
    /// `icsk_backoff`: by how much the timer is longer, in powers of two.
    backoff: u32,
    /// `icsk_retransmits`: timeouts since something was last acknowledged.
    timeouts: u32,
    /// True if the connection has given up.
    is_dead: bool,
    /// `icsk_rto`, in ticks.
    timeout: u64,
    /// `high_seq`: the end of what was sent when recovery began.
    high: u64,
    prior_cwnd: u64,
    prior_ssthresh: u64,
    prr_delivered: u64,
    prr_out: u64,
    /// `undo_marker`; none where nothing may be undone.
    undo_from: Option<u64>,
    /// `undo_retrans`: retransmissions that were not shown to be needless; none where there was
    /// none yet.
    undo_left: Option<u64>,
    /// `retrans_stamp`: the stamp of the first retransmission.
    resent_at: Option<TimestampValue>,
    /// `tlp_high_seq`, and whether the probe was a retransmission.
    probe: Option<(u64, bool)>,
    /// True if the probe is to be sent.
    probe_due: bool,
    /// `frto`: the timeout may have been needless.
    frto: bool,
    /// After a timeout, new data is sent before what was lost.
    new_data_first: bool,
    /// `reordering`, in segments.
    reordering: u64,
    /// `reord_seen`.
    reorder_events: u64,
    /// The last segment of the other end's window, in bytes from the first one (`tcp_wnd_end`).
    window_end: u64,
    /// Whole segments up to there.
    window_segments: u64,
    /// `snd_wnd`.
    snd_wnd: u64,
    pacing_rate: u64,
    /// `tcp_wstamp_ns`: when the last train was sent, or the next may be.
    departs_at: u64,
    /// The latest stamp of the other end.
    echo: TimestampValue,
    timestamps: bool,
    /// The stamp that the last acknowledgement sent back, if packets carry timestamps.
    last_echo: Option<TimestampValue>,
    /// Segments left of the packet at the head of the queue, and of the one behind it.
    head: [u64; 2],
    pass: output::SendPass,
    /// `snd_cwnd_used` and `snd_cwnd_stamp`, a tick.
    used: (u64, u64),
    /// `lsndtime`, a tick.
    last_sent: u64,
    /// True if the next train waits for its pace.
    waits_for_pace: bool,
    counts: SenderCounts,
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default)]
struct SenderCounts {
    data_segments_out: u64,
    retransmitted: u64,
    lost: u64,
    acks_in: u64,
    duplicates: u64,
    timeouts: u64,
    timeout_recoveries: u64,
    timeout_time: u64,
    timed_out_at: Option<u64>,
    last_ack_at: u64,
    last_data_at: u64,
    recoveries: u64,
}

impl Sender {
    /// A connection whose handshake is over, and whose program has sent a first short message that
    /// the other end acknowledges at `now`: with such a message the data connections of programs
    /// that measure begin.
    pub fn new(setup: &SenderSetup, now: Time) -> Self {
        let clock = setup.clock;
        let handshake = setup.handshake.as_micros().max(1);
        let rtt = RoundTrip::new(handshake);
        let timeout = clock.ticks_in(rtt.retransmission_timeout());
        let window = CongestionWindow::new(CongestionWindow::INITIAL);
        let mut sender = Self {
            clock,
            mss: setup.mss.get().max(1),
            longest_train: setup.longest_train.get().max(1),
            max_pacing_rate: setup.max_pacing_rate.map(|rate| (rate.bps() / 8).max(1)),
            window_scale: setup.window_scale,
            board: Scoreboard::default(),
            window,
            control: ControlState::Reno,
            state: RecoveryState::Open,
            rack: RackState::new(),
            rtt,
            min_rtt: MinMaxFilter::new(clock.ticks_at(now), handshake),
            delivery: DeliveryRate::default(),
            buffer: SendBuffer::new(setup.buffer, setup.mss, setup.longest_train),
            chrono: LimitChronograph::new(clock.nanos_at(now)),
            timer: None,
            backoff: 0,
            timeouts: 0,
            is_dead: false,
            timeout,
            high: 0,
            prior_cwnd: 0,
            prior_ssthresh: 0,
            prr_delivered: 0,
            prr_out: 0,
            undo_from: None,
            undo_left: None,
            resent_at: None,
            probe: None,
            probe_due: false,
            frto: false,
            new_data_first: false,
            reordering: INITIAL_REORDERING,
            reorder_events: 0,
            window_end: setup.first_window.get(),
            window_segments: setup.first_window.get() / setup.mss.get().max(1),
            snd_wnd: setup.first_window.get(),
            pacing_rate: 0,
            departs_at: 0,
            echo: setup.echo,
            timestamps: setup.timestamps,
            last_echo: setup.timestamps.then(|| clock.timestamp_at(now)),
            head: [0; 2],
            pass: output::SendPass::default(),
            used: (0, clock.ticks_at(now)),
            last_sent: clock.ticks_at(now),
            waits_for_pace: false,
            counts: SenderCounts::default(),
        };
        sender.control = sender.begin_control(now, setup.control, [setup.seed, handshake]);
        sender.expand_buffer();
        sender.take_greeting(now, handshake);
        sender.update_pacing_rate();
        sender
    }

    /// Changes the congestion control of the connection, as `TCP_CONGESTION` does at any time
    /// (`tcp_reinit_congestion_control`): the window stays as it is, and what the other one had
    /// learnt is lost. `seed` is for what falls to chance.
    pub fn use_congestion(&mut self, now: Time, control: CongestionControl, seed: u64) {
        self.control = self.begin_control(now, control, [seed, self.min_rtt.best_value()]);
        self.prior_ssthresh = 0;
        if self.control.is_bbr() {
            // `bbr_init`
            self.window.ssthresh = CongestionWindow::UNSET;
        }
        self.update_pacing_rate();
        self.pass.pending = true;
    }

    /// A congestion control from now on (`init`). BBR begins with the least round-trip time so far,
    /// in microseconds.
    fn begin_control(
        &self,
        now: Time,
        control: CongestionControl,
        [seed, least_rtt]: [u64; 2],
    ) -> ControlState {
        match control {
            CongestionControl::Reno => ControlState::Reno,
            CongestionControl::Cubic => ControlState::Cubic(Cubic::new(
                self.clock.ticks_per_second(),
                &self.moment_at(now),
            )),
            CongestionControl::Bbr => ControlState::Bbr(Box::new(Bbr::new(
                self.clock.ticks_per_second(),
                self.mss,
                self.max_pacing_rate.unwrap_or(u64::MAX),
                seed,
                least_rtt,
                &self.bbr_situation(now),
            ))),
        }
    }

    /// The first message, of `rtt` microseconds. A window that is not in use does not grow by it,
    /// but BBR's does.
    fn take_greeting(&mut self, now: Time, rtt: u64) {
        let micros = self.clock.micros_at(now);
        self.delivery.mark_app_limited(0);
        let sent = self
            .delivery
            .record_sent_segment(micros.saturating_sub(rtt), true);
        self.delivery.mark_app_limited(1);
        self.delivery.delivered = 1;
        let mut sample = RateSample::new(1);
        (sample.acked, sample.rtt) = (1, Some(rtt));
        sample.record_delivery(&mut self.delivery.first_sent, sent, 0);
        self.delivery.finish_sample(&mut sample, micros, rtt);
        let situation = self.bbr_situation(now);
        if let ControlState::Bbr(bbr) = &mut self.control {
            self.window.cwnd = bbr.process_ack(&sample, &situation).cwnd;
        }
    }

    /// Takes in an acknowledgement that arrives at `now` (`tcp_ack`).
    pub fn receive_ack(&mut self, now: Time, ack: &AckSegment) {
        if self.is_dead {
            return;
        }
        self.clock.read(now);
        self.counts.acks_in += 1;
        self.counts.last_ack_at = self.clock.micros_at(now);
        if ack.next < self.board.acknowledged_segments() {
            return self.take_old(now, ack);
        }
        if ack.next > self.board.next_segment() {
            return;
        }
        self.echo = self.echo.max(ack.stamp);
        self.last_echo = self.timestamps.then_some(ack.echo);
        self.pass.pending = true;
        self.pass.new_only = false;
        self.new_data_first = false;
        let prior_acknowledged = self.board.acknowledged_segments();
        let prior_highest = self.board.highest_sacked();
        let lost = self.counts.lost;
        let mut tally = self.tally_ack(now, ack);
        self.take_window(ack, &mut tally);
        self.take_blocks(ack, prior_acknowledged, &mut tally);
        self.take_number(now, ack, prior_highest, &mut tally);
        self.rack = tally.rack;
        self.delivery.first_sent = tally.first_sent;
        self.rack
            .adjust_window(&tally.sample, self.delivery.delivered);
        self.take_probe_answer(ack, &tally);
        if self.is_dubious(&tally) {
            self.process_losses(now, prior_acknowledged, &mut tally);
        }
        if tally.set_timer {
            self.set_timer(now);
        }
        tally.sample.losses = self.counts.lost - lost;
        self.delivery.finish_sample(
            &mut tally.sample,
            self.clock.micros_at(now),
            self.min_rtt.best_value(),
        );
        self.control_congestion(now, &tally);
    }

    /// Returns the payload of a segment.
    pub fn mss(&self) -> ByteCount {
        ByteCount::new(self.mss)
    }

    /// Returns the congestion window.
    pub fn cwnd(&self) -> SegCount {
        SegCount::new(self.window.cwnd)
    }

    /// Returns the segments that the other end has acknowledged.
    pub fn acknowledged_segments(&self) -> u64 {
        self.board.acknowledged_segments()
    }

    /// Returns the number of retransmitted segments.
    pub fn retransmitted_segments(&self) -> SegCount {
        SegCount::new(self.counts.retransmitted)
    }

    /// `tcp_cong_control`.
    fn control_congestion(&mut self, now: Time, tally: &AckTally) {
        if self.control.is_bbr() {
            return self.follow_bbr(now, tally);
        }
        if self.is_reducing() {
            self.reduce_window(tally.sample.acked, tally.sample.losses, tally.advanced);
        } else if self.may_grow(tally) {
            self.control.grow_window(
                &mut self.window,
                tally.sample.acked,
                self.clock.ticks_at(now),
            );
            self.used.1 = self.clock.ticks_at(now);
        }
        self.update_pacing_rate();
    }

    fn follow_bbr(&mut self, now: Time, tally: &AckTally) {
        let situation = self.bbr_situation(now);
        if let ControlState::Bbr(bbr) = &mut self.control {
            let steering = bbr.process_ack(&tally.sample, &situation);
            self.window.cwnd = steering.cwnd;
            self.window.ssthresh = steering.ssthresh.unwrap_or(self.window.ssthresh);
            self.pacing_rate = bbr.pacing_rate;
            if steering.ignore_rates {
                self.delivery.mark_app_limited(situation.in_flight);
            }
        }
    }

    /// `tcp_may_raise_cwnd`.
    fn may_grow(&self, tally: &AckTally) -> bool {
        tally.advanced || (self.reordering > INITIAL_REORDERING && tally.data_sacked)
    }

    /// `tcp_update_pacing_rate`: twice the window a round trip in slow start, 1.2 times behind it.
    fn update_pacing_rate(&mut self) {
        if let Some(bbr) = self.control.as_bbr() {
            self.pacing_rate = bbr.pacing_rate;
            return;
        }
        let percent = if self.window.cwnd < self.window.ssthresh / 2 {
            200
        } else {
            120
        };
        let bytes = self.mss * self.window.cwnd.max(self.board.packets_out());
        // Segments of 1448 bytes fit this up to a window of 800 million.
        let rate = bytes.saturating_mul(80_000 * percent) / self.rtt.smoothed8;
        self.pacing_rate = rate.min(self.max_pacing_rate.unwrap_or(u64::MAX));
    }

    fn is_paced(&self) -> bool {
        self.max_pacing_rate.is_some() || self.control.is_bbr()
    }

    fn moment_at(&self, now: Time) -> ConnectionMoment {
        ConnectionMoment {
            micros: self.clock.micros_at(now),
            ticks: self.clock.ticks_at(now),
            acknowledged: self.board.acknowledged_segments(),
            next: self.board.next_segment(),
            pacing_rate: self.pacing_rate,
            is_paced: self.is_paced(),
        }
    }

    fn bbr_situation(&self, now: Time) -> BbrSituation {
        BbrSituation {
            micros: self.clock.micros_at(now),
            ticks: self.clock.ticks_at(now),
            departs_in: self.departs_at.saturating_sub(self.clock.nanos_at(now)),
            delivered: self.delivery.delivered,
            delivered_at: self.delivery.delivered_at,
            lost: self.counts.lost,
            in_flight: self.board.in_flight(),
            cwnd: self.window.cwnd,
            outcome: match self.state {
                RecoveryState::Open | RecoveryState::Disorder | RecoveryState::Reduced => {
                    RecoveryPhase::Fine
                }
                RecoveryState::Recovery => RecoveryPhase::Recovering,
                RecoveryState::Loss => RecoveryPhase::TimedOut,
            },
            smoothed_rtt: self.rtt.smoothed_rtt(),
        }
    }
}

/// `tcp_reordering`.
const INITIAL_REORDERING: u64 = 3;
/// `tcp_max_reordering`.
const MAX_REORDERING: u64 = 300;
