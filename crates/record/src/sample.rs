use std::collections::BTreeMap;

use crate::prelude::*;

/// Retransmission timeouts in a row, at least, of a connection that is silent. Its last
/// acknowledgement may be long ago although data has only just been sent.
const MIN_TIMEOUTS: SegCount = SegCount::new(5);

/// Probes of a closed window without an answer, at least: one may be on its way.
const MIN_PROBES: SegCount = SegCount::new(2);

/// Time without an answer to such probes: the kernel sends one every two minutes (`TCP_RTO_MAX`).
const PROBED_SILENCE: Span = Span::from_secs(250);

/// State of the congestion machinery of a connection (`tcpi_ca_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CongestionState {
    /// Nothing wrong.
    Open,
    /// Duplicate acknowledgements seen.
    Disorder,
    /// Reducing the window after an explicit notification.
    Cwr,
    /// Retransmitting after loss.
    Recovery,
    /// Retransmitting after a timeout.
    Loss,
}

/// The kernel's `struct tcp_info` in our units. A field that the running kernel does not return is
/// `None`; each names the kernel's field in its comment and the release since which it exists.
/// Layout: `include/uapi/linux/tcp.h`. Left out are the two that are always zero (`tcpi_fackets`
/// since 4.15, `tcpi_last_ack_sent`) and the last word, which 6.18 and 7.0 cut differently at the
/// same length.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpInfo {
    /// `tcpi_state`: 1 is established (`include/net/tcp_states.h`).
    pub state: Option<u8>,
    /// `tcpi_ca_state`.
    pub congestion_state: Option<CongestionState>,
    /// `tcpi_retransmits`: consecutive timeouts at this sequence number.
    pub timeouts_in_a_row: Option<SegCount>,
    /// `tcpi_probes`: probes of a closed window that were not answered.
    pub window_probes: Option<SegCount>,
    /// `tcpi_backoff`: how often the timeout was doubled.
    pub backoff: Option<u8>,
    /// `tcpi_options & 1`: timestamps agreed.
    pub timestamps: Option<bool>,
    /// `tcpi_options & 2`: selective acknowledgements agreed.
    pub sack: Option<bool>,
    /// `tcpi_options & 4`: window scaling agreed.
    pub window_scaling: Option<bool>,
    /// `tcpi_options & 8`: explicit congestion notification agreed.
    pub ecn: Option<bool>,
    /// `tcpi_options & 16`: a packet with an ECN mark was seen.
    pub ecn_seen: Option<bool>,
    /// `tcpi_options & 32`: data went with the SYN and was accepted.
    pub syn_data: Option<bool>,
    /// `tcpi_options & 64`: timestamps in microseconds (6.7).
    pub usec_timestamps: Option<bool>,
    /// `tcpi_options & 128`: accepted by TCP Fast Open (6.16).
    pub fast_open_child: Option<bool>,
    /// `tcpi_snd_wscale`: the peer's shift; meaningful only with window scaling.
    pub snd_wscale: Option<u8>,
    /// `tcpi_rcv_wscale`: our shift; meaningful only with window scaling.
    pub rcv_wscale: Option<u8>,
    /// `tcpi_delivery_rate_app_limited` (4.9).
    pub app_limited: Option<bool>,
    /// `tcpi_fastopen_client_fail` (5.5): why TCP Fast Open failed; 0 where it did not.
    pub fast_open_failure: Option<u8>,
    /// `tcpi_rto`.
    pub rto: Option<Span>,
    /// `tcpi_ato`: how long an acknowledgement may be delayed.
    pub delayed_ack_timeout: Option<Span>,
    /// `tcpi_snd_mss`: payload of a full segment.
    pub snd_mss: Option<ByteCount>,
    /// `tcpi_rcv_mss`.
    pub rcv_mss: Option<ByteCount>,
    /// `tcpi_unacked`: segments sent and not yet acknowledged.
    pub unacked: Option<SegCount>,
    /// `tcpi_sacked`.
    pub sacked: Option<SegCount>,
    /// `tcpi_lost`.
    pub lost: Option<SegCount>,
    /// `tcpi_retrans`: retransmitted and still out.
    pub retrans: Option<SegCount>,
    /// `tcpi_last_data_sent`: so long ago.
    pub since_data_sent: Option<Span>,
    /// `tcpi_last_data_recv`: so long ago.
    pub since_data_received: Option<Span>,
    /// `tcpi_last_ack_recv`: so long ago.
    pub since_ack_received: Option<Span>,
    /// `tcpi_pmtu`.
    pub path_mtu: Option<ByteCount>,
    /// `tcpi_rcv_ssthresh`: clamp of our own advertised window.
    pub rcv_ssthresh: Option<ByteCount>,
    /// `tcpi_rtt`: smoothed round-trip time.
    pub rtt: Option<Span>,
    /// `tcpi_rttvar`.
    pub rtt_variation: Option<Span>,
    /// `tcpi_snd_ssthresh`; `None` too where it was never set.
    pub ssthresh: Option<SegCount>,
    /// `tcpi_snd_cwnd`.
    pub cwnd: Option<SegCount>,
    /// `tcpi_advmss`.
    pub advmss: Option<ByteCount>,
    /// `tcpi_reordering`.
    pub reordering: Option<SegCount>,
    /// `tcpi_rcv_rtt`: the receiver's estimate; `None` too where it never made one.
    pub rcv_rtt: Option<Span>,
    /// `tcpi_rcv_space`: bytes copied to the application in a round trip.
    pub rcv_space: Option<ByteCount>,
    /// `tcpi_total_retrans` (2.6.11).
    pub total_retrans: Option<SegCount>,
    /// `tcpi_pacing_rate` (3.15); `None` too where unlimited.
    pub pacing_rate: Option<BitRate>,
    /// `tcpi_max_pacing_rate` (3.15); `None` too where unlimited.
    pub max_pacing_rate: Option<BitRate>,
    /// `tcpi_bytes_acked` (4.1), which counts the SYN as one.
    pub bytes_acked: Option<ByteCount>,
    /// `tcpi_bytes_received` (4.1).
    pub bytes_received: Option<ByteCount>,
    /// `tcpi_segs_out` (4.2), pure acknowledgements and retransmissions included.
    pub segs_out: Option<SegCount>,
    /// `tcpi_segs_in` (4.2).
    pub segs_in: Option<SegCount>,
    /// `tcpi_notsent_bytes` (4.6).
    pub not_sent: Option<ByteCount>,
    /// `tcpi_min_rtt` (4.6): the least in the last 300 s; `None` too where there is none yet.
    pub min_rtt: Option<Span>,
    /// `tcpi_data_segs_in` (4.6).
    pub data_segs_in: Option<SegCount>,
    /// `tcpi_data_segs_out` (4.6), retransmissions included.
    pub data_segs_out: Option<SegCount>,
    /// `tcpi_delivery_rate` (4.9).
    pub delivery_rate: Option<BitRate>,
    /// `tcpi_busy_time` (4.10): with data outstanding or queued; the two below are part of it.
    pub busy: Option<Span>,
    /// `tcpi_rwnd_limited` (4.10).
    pub rwnd_limited: Option<Span>,
    /// `tcpi_sndbuf_limited` (4.10).
    pub sndbuf_limited: Option<Span>,
    /// `tcpi_delivered` (4.18).
    pub delivered: Option<SegCount>,
    /// `tcpi_delivered_ce` (4.18).
    pub delivered_ce: Option<SegCount>,
    /// `tcpi_bytes_sent` (4.19), retransmissions included.
    pub bytes_sent: Option<ByteCount>,
    /// `tcpi_bytes_retrans` (4.19).
    pub bytes_retrans: Option<ByteCount>,
    /// `tcpi_dsack_dups` (4.19).
    pub dsack_dups: Option<SegCount>,
    /// `tcpi_reord_seen` (4.19).
    pub reorder_events: Option<SegCount>,
    /// `tcpi_rcv_ooopack` (5.4).
    pub out_of_order_in: Option<SegCount>,
    /// `tcpi_snd_wnd` (5.4): the window that the peer advertises, scaled.
    pub snd_wnd: Option<ByteCount>,
    /// `tcpi_rcv_wnd` (6.2): our own window, **not** clamped to what the header can carry.
    pub rcv_wnd: Option<ByteCount>,
    /// `tcpi_rehash` (6.2).
    pub rehash: Option<SegCount>,
    /// `tcpi_total_rto` (6.7): timeouts in the connection's life.
    pub total_rto: Option<SegCount>,
    /// `tcpi_total_rto_recoveries` (6.7).
    pub total_rto_recoveries: Option<SegCount>,
    /// `tcpi_total_rto_time` (6.7).
    pub total_rto_time: Option<Span>,
    /// `tcpi_received_ce` (6.18): segments that came with a congestion mark.
    pub received_ce: Option<SegCount>,
    /// `tcpi_delivered_e1_bytes` (6.18): payload that arrived marked ECT(1), as the peer says by
    /// accurate ECN.
    pub delivered_e1_bytes: Option<ByteCount>,
    /// `tcpi_delivered_e0_bytes` (6.18): the same for ECT(0).
    pub delivered_e0_bytes: Option<ByteCount>,
    /// `tcpi_delivered_ce_bytes` (6.18): the same for congestion marks.
    pub delivered_ce_bytes: Option<ByteCount>,
    /// `tcpi_received_e1_bytes` (6.18): payload that came marked ECT(1).
    pub received_e1_bytes: Option<ByteCount>,
    /// `tcpi_received_e0_bytes` (6.18): the same for ECT(0).
    pub received_e0_bytes: Option<ByteCount>,
    /// `tcpi_received_ce_bytes` (6.18): the same for congestion marks.
    pub received_ce_bytes: Option<ByteCount>,
}

/// Memory of a socket (`SO_MEMINFO`, `enum sk_meminfo_vars`): what it holds and what it may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SocketMemory {
    /// Receive buffer in use.
    pub rmem_alloc: ByteCount,
    /// Largest receive buffer.
    pub rcvbuf: ByteCount,
    /// Send buffer in use by segments in flight.
    pub wmem_alloc: ByteCount,
    /// Largest send buffer.
    pub sndbuf: ByteCount,
    /// Send buffer in use, sent and unsent.
    pub wmem_queued: ByteCount,
    /// Packets dropped at the socket.
    pub drops: u64,
}

/// A snapshot of one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Since the data began to flow.
    pub at: Span,
    /// Number of the stream, from 0.
    pub stream: u16,
    /// Bytes that the program has written to or read from the socket so far.
    pub bytes: ByteCount,
    /// The kernel's view.
    pub tcp: TcpInfo,
    /// The socket's memory, where the kernel returns it.
    pub memory: Option<SocketMemory>,
}

/// Returns true if packets wait in a queue: a round trip takes a tenth more than the `base` without
/// one, and 2 ms on top of that for the variation of any path.
pub fn packets_wait(rtt: Span, base: Span) -> bool {
    rtt > base.scale_by(1.1) + Span::from_millis(2)
}

impl TcpInfo {
    /// The congestion window in bytes.
    pub fn congestion_window(&self) -> Option<ByteCount> {
        Some(self.cwnd?.of_size(self.snd_mss?))
    }

    /// Returns true if nothing waits to be sent or acknowledged, as far as the kernel says.
    pub fn is_acknowledged(&self) -> bool {
        self.not_sent.unwrap_or_default() == ByteCount::ZERO
            && self.unacked.unwrap_or_default() == SegCount::ZERO
    }

    /// Returns true if data was retransmitted again and again, and nothing was acknowledged for
    /// longer than `silence`, or probes of a closed window were not answered for long. A receiver
    /// that does not read answers probes, so it may take its time; `TCP_USER_TIMEOUT` would end its
    /// connection.
    pub fn is_silent(&self, silence: Span) -> bool {
        let limit = match () {
            () if self.unacked > Some(SegCount::ZERO)
                && self.timeouts_in_a_row >= Some(MIN_TIMEOUTS) =>
            {
                silence
            }
            () if self.window_probes >= Some(MIN_PROBES) => PROBED_SILENCE,
            () => return false,
        };
        self.since_ack_received.is_some_and(|since| since > limit)
    }
}

/// Returns the samples of each stream, in the order in which they were taken.
pub fn samples_by_stream<'a>(
    samples: impl IntoIterator<Item = &'a Sample>,
) -> BTreeMap<u16, Vec<&'a Sample>> {
    let mut samples: Vec<&Sample> = samples.into_iter().collect();
    samples.sort_by_key(|sample| sample.stream);
    samples
        .chunk_by(|one, next| one.stream == next.stream)
        .map(|samples| (samples[0].stream, samples.to_vec()))
        .collect()
}

impl Sample {
    /// Bytes in flight in sequence space, as the advertised window limits them: sent at least once
    /// and not yet acknowledged. Before Linux 4.19 this counts whole segments.
    pub fn outstanding_bytes(&self) -> Option<ByteCount> {
        let tcp = &self.tcp;
        match (tcp.bytes_sent, tcp.bytes_retrans, tcp.bytes_acked) {
            (Some(sent), Some(again), Some(acked)) => {
                Some(sent.saturating_sub(again).saturating_sub(acked))
            }
            _ => Some(tcp.unacked?.of_size(tcp.snd_mss?)),
        }
    }

    /// Returns the bytes that are in flight, or wait to be sent.
    pub fn unacknowledged_bytes(&self) -> ByteCount {
        self.outstanding_bytes().unwrap_or_default() + self.tcp.not_sent.unwrap_or_default()
    }

    /// Bytes in the pipe, as the congestion window limits them (RFC 6675's estimate):
    /// unacknowledged, less those known to have arrived or to be lost, plus the retransmitted.
    pub fn pipe_bytes(&self) -> Option<ByteCount> {
        let tcp = &self.tcp;
        let gone = tcp.sacked.unwrap_or_default() + tcp.lost.unwrap_or_default();
        let segments = (tcp.unacked? + tcp.retrans.unwrap_or_default()).saturating_sub(gone);
        Some(segments.of_size(tcp.snd_mss?))
    }

    /// The congestion window in bytes.
    pub fn congestion_window(&self) -> Option<ByteCount> {
        self.tcp.congestion_window()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_was_asked_again_and_again_is_silent() {
        let info = |unacked, timeouts, probes, since| TcpInfo {
            unacked: Some(SegCount::new(unacked)),
            timeouts_in_a_row: Some(SegCount::new(timeouts)),
            window_probes: Some(SegCount::new(probes)),
            since_ack_received: Some(Span::from_secs(since)),
            ..TcpInfo::default()
        };
        let is_silent = |info: TcpInfo| info.is_silent(Span::from_secs(120));
        assert!(is_silent(info(10, 9, 0, 121)));
        assert!(!is_silent(info(10, 9, 0, 119)));
        // A request after a long download, of which the last packets acknowledged nothing.
        assert!(!is_silent(info(1, 0, 0, 600)));
        // A probe of a closed window that is on its way, and one that was lost.
        assert!(!is_silent(info(0, 0, 1, 122)) && !is_silent(info(0, 0, 2, 241)));
        assert!(is_silent(info(0, 0, 2, 251)));
        assert!(!TcpInfo::default().is_silent(Span::ZERO));
    }
}
