//! The send buffer: bytes written and not yet acknowledged, and what keeping them costs.

use fullpipe_units::{ByteCount, SegCount, Time};

use super::chrono::SenderLimit;
use super::output::MAX_TRAIN_BYTES;
use super::{RecoveryState, Sender};
use crate::tcp::window::CongestionWindow;

/// Headers, and the structures that the kernel keeps of a packet (`SKB_TRUESIZE`):
/// `skb_shared_info`, `sk_buff`.
const PACKET_COSTS: u64 = 832;
/// Bytes that a write puts into one packet.
const PACKET_BYTES: u64 = 16 * 1024;

/// Room in a send buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferRoom {
    /// A write would take nothing.
    None,
    /// A write would take something (`sk_stream_memory_free`).
    Little,
    /// A third of the buffer is free: a program that waits is woken (`sk_stream_is_writeable`).
    Third,
}

#[derive(Debug)]
pub(super) struct SendBuffer {
    /// `sk_sndbuf`, and the most that it grows to.
    pub(super) size: u64,
    max: u64,
    /// Bytes that the program has written, and that are acknowledged.
    pub(super) written: u64,
    pub(super) acknowledged: u64,
    /// True if the program found the buffer full and waits (`SOCK_NOSPACE`).
    no_space: bool,
    /// Whole segments that the program has written; at the end of the stream the last may be short.
    segments: u64,
    /// A packet as it is written: whole segments, and their payload.
    pub(super) packet_segments: u64,
    packet: u64,
    /// Memory of a segment that a buffer is reckoned by (`tcp_sndbuf_expand`).
    per_segment: u64,
}

impl SendBuffer {
    /// `longest` is the number of segments that a packet may have: one where nothing below TCP cuts
    /// trains (`tcp_xmit_size_goal`).
    pub(super) fn new(
        (size, max): (ByteCount, ByteCount),
        mss: ByteCount,
        longest: SegCount,
    ) -> Self {
        const MAX_TCP_HEADER: u64 = 256;
        const SHARED_INFO: u64 = 320;
        const SK_BUFF: u64 = 256;
        let mss = mss.get().max(1);
        let packet_segments = (PACKET_BYTES / mss).min(longest.get()).max(1);
        Self {
            size: size.get(),
            max: max.get(),
            written: 0,
            acknowledged: 0,
            no_space: false,
            segments: 0,
            packet_segments,
            packet: packet_segments * mss,
            per_segment: (mss + MAX_TCP_HEADER + SHARED_INFO).next_power_of_two() + SK_BUFF,
        }
    }
}

impl Sender {
    /// Takes in what a program writes, as far as there is room, and returns the bytes taken
    /// (`tcp_sendmsg`). A program that wrote less than it had waits for room from then on.
    pub fn write(&mut self, now: Time, bytes: ByteCount) -> ByteCount {
        self.check_program();
        let taken = bytes.get().min(self.writable_bytes());
        if taken < bytes.get() {
            self.buffer.no_space = true;
        }
        if taken > 0 {
            self.restart_after_idle(now);
            self.buffer.written += taken;
            self.buffer.segments = self.buffer.written / self.mss;
            self.chrono
                .start(SenderLimit::Busy, self.clock.nanos_at(now));
            self.pass.pending = true;
        }
        ByteCount::new(taken)
    }

    /// Ends the stream: what is less than a segment is sent, too.
    pub fn finish_stream(&mut self) {
        self.buffer.segments = self.buffer.written.div_ceil(self.mss);
        self.pass.pending = true;
    }

    /// Returns the room that a program finds for more.
    #[inline]
    pub fn free_room(&self) -> BufferRoom {
        let queued = self.queued_bytes();
        if self.buffer.size.saturating_sub(queued) >= queued >> 1 {
            BufferRoom::Third
        } else if queued < self.buffer.size {
            BufferRoom::Little
        } else {
            BufferRoom::None
        }
    }

    /// Returns the bytes that the program has written.
    pub fn written_bytes(&self) -> ByteCount {
        ByteCount::new(self.buffer.written)
    }

    /// Returns the number of the last segment of the stream, and its payload, where it is shorter
    /// than the others.
    #[inline]
    pub fn short_segment(&self) -> Option<(u64, ByteCount)> {
        let last = self.buffer.segments.checked_sub(1)?;
        let payload = self.buffer.written.saturating_sub(last * self.mss);
        (payload < self.mss).then(|| (last, ByteCount::new(payload)))
    }

    /// Returns true if two of the longest trains wait, and something is on its way whose
    /// acknowledgement lets them go.
    pub fn has_plenty(&self) -> bool {
        self.board.packets_out() > 0 && self.unsent_bytes() >= 2 * MAX_TRAIN_BYTES
    }

    /// Returns true if everything that was written is acknowledged.
    pub fn is_done(&self) -> bool {
        self.buffer.acknowledged >= self.buffer.written
    }

    /// `sk_wmem_queued`.
    #[inline]
    pub(super) fn queued_bytes(&self) -> u64 {
        let unsent = self.unsent_bytes();
        let packets = self.board.chunk_count() + unsent.div_ceil(self.buffer.packet);
        self.buffer.written.saturating_sub(self.buffer.acknowledged) + packets * PACKET_COSTS
    }

    pub(super) fn unsent_bytes(&self) -> u64 {
        self.buffer
            .written
            .saturating_sub(self.board.next_segment() * self.mss)
    }

    /// Segments that wait.
    pub(super) fn unsent_segments(&self) -> u64 {
        self.buffer
            .segments
            .saturating_sub(self.board.next_segment())
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_segments() > 0
    }

    /// Bytes that a write takes: packets while the buffer is not exceeded, so the last may exceed
    /// it.
    fn writable_bytes(&self) -> u64 {
        let free = self.buffer.size.saturating_sub(self.queued_bytes());
        free.div_ceil(self.buffer.packet + PACKET_COSTS) * self.buffer.packet
    }

    /// `tcp_sndbuf_expand`: two windows, three under BBR.
    pub(super) fn expand_buffer(&mut self) {
        let windows = if self.control.is_bbr() { 3 } else { 2 };
        let segments = self
            .window
            .cwnd
            .max(CongestionWindow::INITIAL)
            .max(self.reordering + 1);
        let wanted = windows * segments * self.buffer.per_segment;
        if self.buffer.size < wanted {
            self.buffer.size = wanted.min(self.buffer.max).max(self.buffer.size);
        }
    }

    /// Wakes a program that waits for room (`tcp_check_space`).
    pub(super) fn check_space(&mut self, now: Time) {
        if !self.buffer.no_space {
            return;
        }
        if self.board.in_flight() < self.window.cwnd {
            self.expand_buffer();
        }
        if self.free_room() == BufferRoom::Third {
            self.buffer.no_space = false;
            self.chrono
                .stop(SenderLimit::Buffer, false, self.clock.nanos_at(now));
        }
    }

    /// `tcp_rate_check_app_limited`.
    fn check_program(&mut self) {
        let in_flight = self.board.in_flight();
        if self.unsent_bytes() < self.mss
            && in_flight < self.window.cwnd
            && !self.board.has_to_resend()
        {
            self.delivery.mark_app_limited(in_flight);
        }
    }

    /// A window that was not used for a timeout is used no more (`tcp_slow_start_after_idle_check`,
    /// RFC 2861).
    fn restart_after_idle(&mut self, now: Time) {
        if self.board.packets_out() > 0 || self.control.is_bbr() {
            return;
        }
        let ticks = self.clock.ticks_at(now);
        let mut idle = ticks.saturating_sub(self.last_sent);
        if idle <= self.timeout {
            return;
        }
        self.window.ssthresh = self.current_ssthresh();
        let least = CongestionWindow::INITIAL.min(self.window.cwnd);
        while idle > self.timeout && self.window.cwnd > least {
            idle -= self.timeout;
            self.window.cwnd >>= 1;
        }
        self.window.cwnd = self.window.cwnd.max(least);
        self.used = (0, ticks);
    }

    /// The second half of `tcp_cwnd_validate`.
    pub(super) fn validate_window(&mut self, now: Time, limited: bool) {
        let (acknowledged, next, out) = (
            self.board.acknowledged_segments(),
            self.board.next_segment(),
            self.board.packets_out(),
        );
        self.window.note_use(limited, acknowledged, next, out);
        let ticks = self.clock.ticks_at(now);
        if self.window.is_limiting() {
            self.used = (0, ticks);
            return;
        }
        self.used.0 = self.used.0.max(out);
        if ticks.saturating_sub(self.used.1) >= self.timeout && !self.control.is_bbr() {
            self.shrink_unused(ticks);
        }
        if !self.has_unsent() && self.buffer.no_space {
            self.chrono
                .start(SenderLimit::Buffer, self.clock.nanos_at(now));
        }
    }

    /// `tcp_cwnd_application_limited`.
    fn shrink_unused(&mut self, ticks: u64) {
        if self.state == RecoveryState::Open && !self.buffer.no_space {
            let used = self.used.0.max(CongestionWindow::INITIAL);
            if used < self.window.cwnd {
                self.window.ssthresh = self.current_ssthresh();
                self.window.cwnd = u64::midpoint(self.window.cwnd, used);
            }
            self.used.0 = 0;
        }
        self.used.1 = ticks;
    }
}
