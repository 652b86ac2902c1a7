//! The receiving end of a connection, from the moment at which its handshake is over.

mod answer;
mod reassembly;
mod tuning;

use fullpipe_record::{SocketMemory, TcpInfo};
use fullpipe_units::{ByteCount, Span, Time};

use answer::MAX_DELAY;
use reassembly::Reassembly;
pub use tuning::AutotuningRules;
use tuning::BufferTuning;

use crate::tcp::clock::{HostClock, TimestampValue};
use crate::tcp::figures::{bytes, segments};
use crate::tcp::packet::{AckSegment, SegmentBurst};
use crate::tcp::rate::RoundTrip;

/// `TCP_MAX_QUICKACKS`.
const MAX_QUICK: u64 = 16;
/// `TCP_ATO_MIN` and `TCP_DELACK_MIN`, in microseconds: 40 ms.
const MIN_DELAY: u64 = 40_000;
/// The properties of a receiving end.
#[derive(Debug, Clone)]
pub struct ReceiverSetup {
    /// Clocks of its host.
    pub clock: HostClock,
    /// Payload of a segment.
    pub mss: ByteCount,
    /// Receive buffer at first.
    pub buffer: ByteCount,
    /// The most that it grows to; the same where it does not.
    pub max_buffer: ByteCount,
    /// The rules of its growth.
    pub autotuning: AutotuningRules,
    /// Share of the buffer that is window, in 256ths: before the first data, and from then on.
    pub share: [u16; 2],
    /// The shift of the windows; none without the option.
    pub window_scale: Option<u8>,
    /// The window of its handshake segment.
    pub first_window: ByteCount,
    /// Blocks in an acknowledgement, at most: 3 with timestamps, 4 without.
    pub max_blocks: u8,
    /// True if segments carry timestamps, from which it learns the round-trip time.
    pub timestamps: bool,
    /// Stamp of the other end's last packet of the handshake, which acknowledgements echo until
    /// data arrives.
    pub echo: TimestampValue,
}

/// A receiver.
///
/// Segments [arrive](Self::receive_burst), the program [reads](Self::read), time [passes](Self::wake_timer);
/// each may give an acknowledgement. Calls must not go back in time, and extra calls of
/// [`Self::wake_timer`] change nothing.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags of the kernel's structure of a connection"
)]
pub struct Receiver {
    clock: HostClock,
    mss: u64,
    /// `rcv_nxt`, in segments.
    next: u64,
    /// Bytes that the program has read.
    read: u64,
    /// The end of the first arrival that it has not read, in bytes.
    head_end: u64,
    queue: Reassembly,
    /// `sk_rmem_alloc`: what waits takes memory as the share says.
    allocated: u64,
    tuning: BufferTuning,
    buffer: u64,
    max_buffer: u64,
    /// 256ths of the buffer that are window (`scaling_ratio`), and what they become with the first
    /// data.
    share: u64,
    learnt_share: u64,
    window_scale: u8,
    max_window: u64,
    /// `window_clamp`, `rcv_ssthresh`, `rcv_wnd`: bytes.
    clamp: u64,
    threshold: u64,
    window: u64,
    /// `rcv_wup`: the segment that was acknowledged last.
    acknowledged: u64,
    max_blocks: usize,
    timestamps: bool,
    /// `ts_recent`, and the stamp by which the round trip was last measured.
    recent: TimestampValue,
    measured: TimestampValue,
    handshake_rtt8: u64,
    /// `icsk_rto`, in ticks: that of the handshake, as it sends no data.
    timeout: u64,
    /// True if something arrived that was not acknowledged (`ICSK_ACK_SCHED`), or must be at once
    /// (`ICSK_ACK_NOW`).
    pending: bool,
    at_once: bool,
    /// True if a segment with the PSH flag arrived that was not acknowledged (`ICSK_ACK_PUSHED`).
    pushed: bool,
    quick: u64,
    /// `ato`, in ticks.
    delay: u64,
    delayed_until: Option<Time>,
    last_received: u64,
    held: u64,
    held_until: Option<Time>,
    repeated: (u64, u64),
    counts: ReceiverCounts,
}

#[derive(Debug, Clone, Copy, Default)]
struct ReceiverCounts {
    segments: u64,
    out_of_order: u64,
    acks: u64,
    /// Arrivals for which there was no memory.
    drops: u64,
    last_at: u64,
}

impl Receiver {
    /// A connection that the other end opened and whose handshake took `rtt`. A first short message
    /// was acknowledged half of that before `now`.
    pub fn new(setup: &ReceiverSetup, rtt: Span, now: Time) -> Self {
        let mss = setup.mss.get().max(1);
        let [share, learnt_share] = setup.share.map(u64::from);
        let buffer = setup.buffer.get();
        let whole = buffer * share / 256;
        // One segment is reserved (`tcp_init_buffer_space`).
        let clamp = if whole > 2 * mss {
            (whole - mss).max(2 * mss)
        } else {
            whole
        };
        let first = setup.first_window.get();
        let scale = setup.window_scale.unwrap_or(0).min(14);
        let threshold = first.min(clamp);
        let space = threshold.min(first).min(10 * mss);
        let measured_from = setup
            .clock
            .micros_at(now)
            .saturating_sub(rtt.as_micros() / 2);
        Self {
            clock: setup.clock,
            mss,
            next: 0,
            read: 0,
            head_end: 0,
            queue: Reassembly::default(),
            allocated: 0,
            tuning: BufferTuning::new(setup.autotuning, mss, space, (first, measured_from)),
            buffer,
            max_buffer: setup.max_buffer.get(),
            share,
            learnt_share,
            window_scale: scale,
            max_window: 65_535 << scale,
            clamp,
            threshold,
            window: first,
            acknowledged: 0,
            max_blocks: usize::from(setup.max_blocks),
            timestamps: setup.timestamps,
            recent: setup.echo,
            measured: TimestampValue::default(),
            handshake_rtt8: rtt.as_micros() << 3,
            timeout: setup
                .clock
                .ticks_in(RoundTrip::new(rtt.as_micros().max(1)).retransmission_timeout()),
            pending: false,
            at_once: false,
            pushed: false,
            quick: (first / (2 * mss)).clamp(2, MAX_QUICK) - 1,
            delay: setup.clock.ticks_in(MIN_DELAY),
            delayed_until: None,
            last_received: setup.clock.ticks_at(now),
            held: 0,
            held_until: None,
            repeated: (0, 0),
            counts: ReceiverCounts::default(),
        }
    }

    /// Takes in segments that arrive together at `now`, as offloads join them. Returns the
    /// acknowledgement, if one goes out at once.
    pub fn receive_burst(&mut self, now: Time, burst: &SegmentBurst) -> Option<AckSegment> {
        let end = burst.first + burst.segments.get();
        self.clock.read(now);
        self.counts.last_at = self.clock.micros_at(now);
        if burst.is_probe {
            return Some(self.send_ack(now));
        }
        self.counts.segments += burst.segments.get();
        self.take_stamp(burst);
        if end <= self.next {
            self.queue.duplicate = Some((burst.first, end));
            self.enter_quick_mode();
        } else if !self.has_memory((end - burst.first) * self.mss) {
            return Some(self.refuse_segment(now));
        } else if burst.first > self.next {
            if let Some(ack) = self.take_out_of_order(now, burst.first, end) {
                return Some(ack);
            }
        } else {
            self.take_in_order(now, burst, end);
        }
        self.pending = true;
        self.acknowledge_if_due(now)
    }

    /// Lets the program read up to `most` at `now`. Returns an acknowledgement where one was held
    /// back until then or the window has opened (`tcp_cleanup_rbuf`).
    pub fn read(&mut self, now: Time, most: ByteCount) -> Option<AckSegment> {
        let bytes = self.unread_count().min(most.get());
        if bytes == 0 {
            return None;
        }
        self.clock.read(now);
        let end = self.read + bytes;
        // Arrivals are copied one by one, and the growth is decided after each; none after the
        // first of those that wait can be a round trip later.
        self.read = if self.read < self.head_end {
            end.min(self.head_end)
        } else {
            end
        };
        let times = [self.counts.last_at, self.clock.micros_at(now)];
        let wanted = self.tuning.after_read(
            self.read,
            self.next * self.mss,
            self.out_of_order_bytes(),
            times,
        );
        self.grow_buffer(wanted);
        self.read = end;
        self.account_memory();
        let unacknowledged = (self.next - self.acknowledged) * self.mss;
        // A full segment with the PSH flag is likely to be the last for now (`tcp_measure_rcv_mss`,
        // since 6.7).
        let pushed = self.pushed && self.allocated == 0;
        let answer = self.pending && (unacknowledged > self.mss || pushed);
        (answer || self.has_doubled_window()).then(|| self.send_ack(now))
    }

    /// Returns true if a read is certain to give no acknowledgement before something else happens
    /// at this end, so that no other end notices when it comes.
    #[inline]
    pub fn reads_silently(&self) -> bool {
        let unacknowledged = (self.next - self.acknowledged) * self.mss;
        let answers = self.pending && (unacknowledged > self.mss || self.pushed);
        // No window is larger than its threshold in units of a scale.
        !answers
            && self.window_scale > 0
            && self.in_units(self.threshold) < 2 * self.offered_window()
    }

    /// Returns when [`Self::wake_timer`] is to be called at the latest; none if nothing waits.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        Time::earlier_deadline(self.delayed_until, self.held_until)
    }

    /// Returns the acknowledgement that was delayed up to `now`, if one was.
    #[inline]
    pub fn wake_timer(&mut self, now: Time) -> Option<AckSegment> {
        self.next_deadline()
            .filter(|due| *due <= now)
            .and_then(|_| self.wake_late(now))
    }

    #[inline(never)]
    fn wake_late(&mut self, now: Time) -> Option<AckSegment> {
        if self.held_until.is_some_and(|until| until <= now) {
            self.held_until = None;
            return (self.held > 0).then(|| self.send_ack(now));
        }
        if self.delayed_until.is_some_and(|until| until <= now) {
            self.delayed_until = None;
            let longest = self.clock.ticks_in(MAX_DELAY);
            self.delay = (self.delay << 1).min(longest);
            return self.pending.then(|| self.send_ack(now));
        }
        None
    }

    /// Returns the bytes that the program has read.
    pub fn bytes_read(&self) -> ByteCount {
        ByteCount::new(self.read)
    }

    /// Returns the bytes that wait for the program.
    pub fn unread_bytes(&self) -> ByteCount {
        ByteCount::new(self.unread_count())
    }

    /// Returns the figures that `TCP_INFO` would at `now`; fields that a receiver of bulk data does
    /// not change are `None`.
    pub fn tcp_info(&self, now: Time) -> TcpInfo {
        let micros = self.clock.micros_at(now);
        TcpInfo {
            state: Some(1),
            rcv_wscale: Some(self.window_scale),
            rcv_mss: bytes(self.mss),
            advmss: bytes(self.mss),
            since_data_received: Some(Span::from_micros(
                micros.saturating_sub(self.counts.last_at),
            )),
            rcv_ssthresh: bytes(self.threshold),
            rtt: Some(Span::from_micros(self.handshake_rtt8 >> 3)),
            rcv_rtt: Some(Span::from_micros(self.tuning.rtt8 >> 3)).filter(|rtt| *rtt > Span::ZERO),
            rcv_space: bytes(self.tuning.space),
            bytes_received: bytes((self.next + self.queue.segment_count()) * self.mss),
            segs_in: segments(self.counts.segments),
            segs_out: segments(self.counts.acks),
            data_segs_in: segments(self.counts.segments),
            out_of_order_in: segments(self.counts.out_of_order),
            rcv_wnd: bytes(self.window),
            ..TcpInfo::default()
        }
    }

    /// Returns the memory of the socket.
    pub fn socket_memory(&self) -> SocketMemory {
        SocketMemory {
            rmem_alloc: ByteCount::new(self.allocated),
            rcvbuf: ByteCount::new(self.buffer),
            drops: self.counts.drops,
            ..SocketMemory::default()
        }
    }

    fn unread_count(&self) -> u64 {
        (self.next * self.mss).saturating_sub(self.read)
    }

    /// Bytes of sequence space from the hole up to the highest segment.
    fn out_of_order_bytes(&self) -> u64 {
        self.queue
            .highest_end()
            .map_or(0, |end| (end - self.next) * self.mss)
    }

    /// Reckons the memory of what waits anew.
    fn account_memory(&mut self) {
        self.allocated = (self.unread_count() + self.queue.segment_count() * self.mss) * 256
            / self.learnt_share.max(1);
    }

    /// `tcp_win_from_space`.
    fn window_of(&self, space: u64) -> u64 {
        space * self.share / 256
    }

    fn take_stamp(&mut self, burst: &SegmentBurst) {
        // Only of segments that hold the next byte to acknowledge (RFC 7323, 4.3).
        if burst.first <= self.acknowledged {
            self.recent = self.recent.max(burst.stamp);
        }
    }

    /// Returns true if there is memory for `bytes` more (`tcp_try_rmem_schedule`,
    /// `tcp_can_ingest`). Joining what is in the queue, which may make room, is not modelled.
    fn has_memory(&mut self, bytes: u64) -> bool {
        let allocated = self.allocated;
        if allocated >= self.buffer {
            // `tcp_clamp_window`.
            self.quick = 0;
            self.grow_buffer_to(allocated);
            if allocated > self.buffer {
                self.threshold = self.clamp.min(2 * self.mss);
            }
        }
        allocated + bytes <= self.buffer
    }

    /// Drops what there is no memory for, and closes the window (`ICSK_ACK_NOMEM`).
    fn refuse_segment(&mut self, now: Time) -> AckSegment {
        self.counts.drops += 1;
        let ack = self.send_ack(now);
        self.window = 0;
        AckSegment {
            window: ByteCount::ZERO,
            ..ack
        }
    }

    fn take_in_order(&mut self, now: Time, burst: &SegmentBurst, end: u64) {
        let had_hole = !self.queue.is_empty();
        if burst.first < self.next {
            self.queue.duplicate = Some((burst.first, self.next));
        }
        let unread = self.unread_count() > 0;
        self.next = self.queue.take_in_order(end);
        self.account_memory();
        if !unread {
            self.head_end = end * self.mss;
        }
        self.record_received(now, (end - burst.first) * self.mss);
        self.pushed |= burst.pushes;
        if self.timestamps && burst.echo != self.measured {
            self.measured = burst.echo;
            let sample = self.clock.timestamp_at(now).millis_since(burst.echo) * 1_000;
            self.tuning.measure_rtt(sample, unread);
        }
        if had_hole && self.queue.is_empty() {
            self.at_once = true;
        }
    }

    /// `tcp_data_queue_ofo`.
    fn take_out_of_order(&mut self, now: Time, first: u64, end: u64) -> Option<AckSegment> {
        self.counts.out_of_order += end - first;
        let (added, flush) = self.queue.add_range(first, end);
        self.account_memory();
        if added == 0 {
            self.at_once |= self.queue.duplicate.is_some();
        }
        let wanted = self.tuning.out_of_order(self.out_of_order_bytes());
        self.grow_buffer(wanted);
        self.learn_share();
        self.grow_window((end - first) * self.mss);
        if flush && self.held > 0 {
            return Some(self.send_ack(now));
        }
        None
    }

    /// `tcp_event_data_recv`.
    fn record_received(&mut self, now: Time, bytes: u64) {
        self.learn_share();
        self.tuning
            .window_arrived(self.next * self.mss, self.window, self.clock.micros_at(now));
        let tick = self.clock.ticks_at(now);
        let least = self.clock.ticks_in(MIN_DELAY);
        let gap = tick.saturating_sub(self.last_received);
        if gap <= least / 2 {
            self.delay = (self.delay >> 1) + least / 2;
        } else if gap < self.delay {
            self.delay = ((self.delay >> 1) + gap).min(self.timeout);
        } else if gap > self.timeout {
            self.allow_quick();
        }
        self.last_received = tick;
        self.grow_window(bytes);
    }

    /// `tcp_incr_quickack`.
    fn allow_quick(&mut self) {
        let enough = (self.window / (2 * self.mss)).max(2);
        self.quick = self.quick.max(enough.min(MAX_QUICK));
    }

    fn enter_quick_mode(&mut self) {
        self.allow_quick();
        self.delay = self.clock.ticks_in(MIN_DELAY);
    }
}
