//! The kernel's own figures of a connection (`tcp_get_info`).

use fullpipe_record::{CongestionState, SocketMemory, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, Time};

use super::{RecoveryState, Sender};
use crate::tcp::figures::{bytes, segments};
use crate::tcp::window::CongestionWindow;

/// `TCP_ESTABLISHED` and `TCP_CLOSE`.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;

impl Sender {
    /// Returns the figures that `TCP_INFO` would at `now`; fields that a sender of bulk data does
    /// not change are `None`.
    pub fn tcp_info(&self, now: Time) -> TcpInfo {
        let micros = self.clock.micros_at(now);
        let [busy, rwnd_limited, sndbuf_limited] =
            self.chrono.limit_times(self.clock.nanos_at(now));
        let [since_data_sent, since_ack_received] =
            [self.counts.last_data_at, self.counts.last_ack_at]
                .map(|at| Some(Span::from_micros(micros.saturating_sub(at))));
        let sent = self.board.next_segment() * self.mss + self.counts.retransmitted * self.mss;
        TcpInfo {
            state: Some(if self.is_dead { CLOSED } else { ESTABLISHED }),
            congestion_state: Some(self.congestion_state()),
            timeouts_in_a_row: segments(u64::from(self.timeouts)),
            backoff: u8::try_from(self.backoff).ok(),
            sack: Some(true),
            window_scaling: Some(self.window_scale.is_some()),
            snd_wscale: Some(self.window_scale.unwrap_or(0)),
            app_limited: self.delivery.last.map(|(_, _, limited)| limited),
            rto: Some(Span::from_micros(self.clock.micros_in(self.timeout))),
            snd_mss: bytes(self.mss),
            unacked: segments(self.board.packets_out()),
            sacked: segments(self.board.sacked),
            lost: segments(self.board.lost),
            retrans: segments(self.board.retransmitted),
            since_data_sent,
            since_ack_received,
            rtt: Some(Span::from_micros(self.rtt.smoothed_rtt())),
            rtt_variation: Some(Span::from_micros(self.rtt.variation)),
            ssthresh: Some(SegCount::new(self.window.ssthresh))
                .filter(|_| self.window.ssthresh < CongestionWindow::UNSET),
            cwnd: segments(self.window.cwnd),
            reordering: segments(self.reordering),
            total_retrans: segments(self.counts.retransmitted),
            pacing_rate: limited_rate(self.pacing_rate),
            max_pacing_rate: self.max_pacing_rate.and_then(limited_rate),
            bytes_acked: bytes(self.buffer.acknowledged.min(self.buffer.written)),
            segs_out: segments(self.counts.data_segments_out),
            segs_in: segments(self.counts.acks_in),
            not_sent: bytes(self.unsent_bytes()),
            min_rtt: Some(Span::from_micros(self.min_rtt.best_value())),
            data_segs_out: segments(self.counts.data_segments_out),
            delivery_rate: self.delivery_rate(),
            busy: Some(busy),
            rwnd_limited: Some(rwnd_limited),
            sndbuf_limited: Some(sndbuf_limited),
            delivered: segments(self.delivery.delivered),
            bytes_sent: bytes(sent),
            bytes_retrans: bytes(self.counts.retransmitted * self.mss),
            dsack_dups: segments(self.counts.duplicates),
            reorder_events: segments(self.reorder_events),
            snd_wnd: bytes(self.snd_wnd),
            total_rto: segments(self.counts.timeouts),
            total_rto_recoveries: segments(self.counts.timeout_recoveries),
            total_rto_time: Some(Span::from_micros(self.counts.timeout_time)),
            ..TcpInfo::default()
        }
    }

    /// Returns the memory of the socket.
    pub fn socket_memory(&self) -> SocketMemory {
        SocketMemory {
            sndbuf: ByteCount::new(self.buffer.size),
            wmem_queued: ByteCount::new(self.queued_bytes()),
            ..SocketMemory::default()
        }
    }

    fn congestion_state(&self) -> CongestionState {
        match self.state {
            RecoveryState::Open => CongestionState::Open,
            RecoveryState::Disorder => CongestionState::Disorder,
            RecoveryState::Reduced => CongestionState::Cwr,
            RecoveryState::Recovery => CongestionState::Recovery,
            RecoveryState::Loss => CongestionState::Loss,
        }
    }

    /// `tcp_compute_delivery_rate`.
    fn delivery_rate(&self) -> Option<BitRate> {
        let (segments, micros, _) = self.delivery.last?;
        Some(BitRate::from_bytes_in(
            ByteCount::new(segments * self.mss),
            Span::from_micros(micros),
        ))
    }
}

/// Of so many bytes a second; none where that is no limit.
fn limited_rate(bytes: u64) -> Option<BitRate> {
    bytes
        .checked_mul(8)
        .filter(|_| bytes > 0)
        .map(BitRate::from_bps)
}
