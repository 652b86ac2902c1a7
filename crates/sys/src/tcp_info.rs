//! `struct tcp_info` as bytes → [`TcpInfo`]. The kernel returns the shorter of its own length and
//! ours, so each field is present exactly if the returned length covers it; the kernel's version is
//! never asked.

use fullpipe_record::{CongestionState, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span};

/// Length of `struct tcp_info` in Linux 6.18, the longest so far. Later kernels cut their answer to
/// this.
pub(crate) const MAX_TCP_INFO: usize = 280;

/// `tcpi_options` bits.
const OPTION_TIMESTAMPS: u8 = 1;
const OPTION_SACK: u8 = 2;
const OPTION_WSCALE: u8 = 4;
const OPTION_ECN: u8 = 8;
const OPTION_ECN_SEEN: u8 = 16;
const OPTION_SYN_DATA: u8 = 32;
const OPTION_USEC_TS: u8 = 64;
const OPTION_TFO_CHILD: u8 = 128;

/// `tcpi_snd_ssthresh` before the first loss (`TCP_INFINITE_SSTHRESH`).
const SSTHRESH_NEVER_SET: u32 = 0x7fff_ffff;

/// Decodes what `getsockopt(TCP_INFO)` returned, of whatever length.
///
/// Offsets are those of `include/uapi/linux/tcp.h`, naturally aligned and native-endian.
pub fn decode_tcp_info(bytes: &[u8]) -> TcpInfo {
    let field = TcpInfoReader(bytes);
    TcpInfo {
        state: field.u8(0),
        congestion_state: field.u8(1).and_then(congestion_state),
        timeouts_in_a_row: field.u8(2).map(|n| SegCount::new(n.into())),
        window_probes: field.u8(3).map(|n| SegCount::new(n.into())),
        backoff: field.u8(4),
        timestamps: field.option(OPTION_TIMESTAMPS),
        sack: field.option(OPTION_SACK),
        window_scaling: field.option(OPTION_WSCALE),
        ecn: field.option(OPTION_ECN),
        ecn_seen: field.option(OPTION_ECN_SEEN),
        syn_data: field.option(OPTION_SYN_DATA),
        // Kernels before 6.7 leave these two bits zero, which is no answer; the second came in
        // 6.16, at the same length.
        usec_timestamps: field.u16(240).and(field.option(OPTION_USEC_TS)),
        fast_open_child: field.u16(240).and(field.option(OPTION_TFO_CHILD)),
        snd_wscale: field.u8(6).map(|scales| scales & 0x0f),
        rcv_wscale: field.u8(6).map(|scales| scales >> 4),
        // The bit joined byte 7 in 4.9 together with the delivery rate, whose presence dates it.
        app_limited: field.u64(160).and(field.u8(7)).map(|bits| bits & 1 != 0),
        // Two bits more in 5.5, whose length is that of 5.4.
        fast_open_failure: field.u32(228).and(field.u8(7)).map(|bits| bits >> 1 & 0b11),
        rto: field.micros(8),
        delayed_ack_timeout: field.micros(12),
        snd_mss: field.bytes(16),
        rcv_mss: field.bytes(20),
        unacked: field.segments(24),
        sacked: field.segments(28),
        lost: field.segments(32),
        retrans: field.segments(36),
        since_data_sent: field.millis(44),
        since_data_received: field.millis(52),
        since_ack_received: field.millis(56),
        path_mtu: field.bytes(60),
        rcv_ssthresh: field.bytes(64),
        rtt: field.micros(68),
        rtt_variation: field.micros(72),
        ssthresh: field
            .u32(76)
            .filter(|&n| n < SSTHRESH_NEVER_SET)
            .map(|n| SegCount::new(n.into())),
        cwnd: field.segments(80),
        advmss: field.bytes(84),
        reordering: field.segments(88),
        rcv_rtt: field
            .u32(92)
            .filter(|&us| us != 0)
            .map(|us| Span::from_micros(us.into())),
        rcv_space: field.bytes(96),
        total_retrans: field.segments(100),
        pacing_rate: field.rate(104),
        max_pacing_rate: field.rate(112),
        bytes_acked: field.long_bytes(120),
        bytes_received: field.long_bytes(128),
        segs_out: field.segments(136),
        segs_in: field.segments(140),
        not_sent: field.bytes(144),
        min_rtt: field
            .u32(148)
            .filter(|&us| us != u32::MAX)
            .map(|us| Span::from_micros(us.into())),
        data_segs_in: field.segments(152),
        data_segs_out: field.segments(156),
        delivery_rate: field.rate(160),
        busy: field.long_micros(168),
        rwnd_limited: field.long_micros(176),
        sndbuf_limited: field.long_micros(184),
        delivered: field.segments(192),
        delivered_ce: field.segments(196),
        bytes_sent: field.long_bytes(200),
        bytes_retrans: field.long_bytes(208),
        dsack_dups: field.segments(216),
        reorder_events: field.segments(220),
        out_of_order_in: field.segments(224),
        snd_wnd: field.bytes(228),
        rcv_wnd: field.bytes(232),
        rehash: field.segments(236),
        total_rto: field.u16(240).map(|n| SegCount::new(n.into())),
        total_rto_recoveries: field.u16(242).map(|n| SegCount::new(n.into())),
        total_rto_time: field.millis(244),
        received_ce: field.segments(248),
        delivered_e1_bytes: field.bytes(252),
        delivered_e0_bytes: field.bytes(256),
        delivered_ce_bytes: field.bytes(260),
        received_e1_bytes: field.bytes(264),
        received_e0_bytes: field.bytes(268),
        received_ce_bytes: field.bytes(272),
    }
}

fn congestion_state(number: u8) -> Option<CongestionState> {
    Some(match number {
        0 => CongestionState::Open,
        1 => CongestionState::Disorder,
        2 => CongestionState::Cwr,
        3 => CongestionState::Recovery,
        4 => CongestionState::Loss,
        _ => return None,
    })
}

/// Reads at an offset, or nothing where the kernel's answer ends before it.
struct TcpInfoReader<'a>(&'a [u8]);

impl TcpInfoReader<'_> {
    fn bytes_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset + N)?.try_into().ok()
    }

    fn u8(&self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    /// Returns true if the connection uses an option (`TCPI_OPT_…`).
    fn option(&self, bit: u8) -> Option<bool> {
        self.u8(5).map(|set| set & bit != 0)
    }

    fn u16(&self, offset: usize) -> Option<u16> {
        self.bytes_at(offset).map(u16::from_ne_bytes)
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        self.bytes_at(offset).map(u32::from_ne_bytes)
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        self.bytes_at(offset).map(u64::from_ne_bytes)
    }

    fn segments(&self, offset: usize) -> Option<SegCount> {
        self.u32(offset).map(|n| SegCount::new(n.into()))
    }

    fn bytes(&self, offset: usize) -> Option<ByteCount> {
        self.u32(offset).map(|n| ByteCount::new(n.into()))
    }

    fn long_bytes(&self, offset: usize) -> Option<ByteCount> {
        self.u64(offset).map(ByteCount::new)
    }

    fn micros(&self, offset: usize) -> Option<Span> {
        self.u32(offset).map(|us| Span::from_micros(us.into()))
    }

    fn millis(&self, offset: usize) -> Option<Span> {
        self.u32(offset).map(|ms| Span::from_millis(ms.into()))
    }

    fn long_micros(&self, offset: usize) -> Option<Span> {
        self.u64(offset).map(Span::from_micros)
    }

    /// Bytes per second in the kernel; all ones mean "no limit", which is no rate.
    fn rate(&self, offset: usize) -> Option<BitRate> {
        self.u64(offset)
            .filter(|&rate| rate != u64::MAX)
            .map(|rate| BitRate::from_bps(rate.saturating_mul(8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_length(length: usize) -> TcpInfo {
        let mut bytes = vec![0_u8; length];
        for (offset, value) in [
            (68, 100_000_u32),
            (80, 2_800),
            (16, 1448),
            (228, 4_194_304),
            (240, 2),
        ] {
            if offset + 4 <= length {
                bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
            }
        }
        decode_tcp_info(&bytes)
    }

    #[test]
    fn each_kernel_length_gives_the_fields_that_it_has() {
        // Lengths by release: 2.6.11, 4.9, 4.10, 4.19, 5.4, 6.2, 6.7, 6.18.
        for (length, chronographs, bytes_sent, snd_wnd, rcv_wnd, total_rto) in [
            (104, false, false, false, false, false),
            (168, false, false, false, false, false),
            (192, true, false, false, false, false),
            (224, true, true, false, false, false),
            (232, true, true, true, false, false),
            (240, true, true, true, true, false),
            (248, true, true, true, true, true),
            (280, true, true, true, true, true),
        ] {
            let info = of_length(length);
            assert_eq!(info.cwnd, Some(SegCount::new(2_800)), "{length}");
            assert_eq!(info.rtt, Some(Span::from_millis(100)), "{length}");
            assert_eq!(info.app_limited.is_some(), length >= 168, "{length}");
            assert_eq!(info.rwnd_limited.is_some(), chronographs, "{length}");
            assert_eq!(info.bytes_sent.is_some(), bytes_sent, "{length}");
            assert_eq!(info.snd_wnd.is_some(), snd_wnd, "{length}");
            assert_eq!(info.rcv_wnd.is_some(), rcv_wnd, "{length}");
            assert_eq!(info.total_rto.is_some(), total_rto, "{length}");
            assert_eq!(info.usec_timestamps.is_some(), total_rto, "{length}");
            assert_eq!(info.fast_open_failure.is_some(), snd_wnd, "{length}");
            assert_eq!(info.received_ce_bytes.is_some(), length >= 280, "{length}");
        }
    }

    #[test]
    fn what_means_never_or_unlimited_is_no_number() {
        let mut bytes = vec![0_u8; MAX_TCP_INFO];
        bytes[76..80].copy_from_slice(&SSTHRESH_NEVER_SET.to_ne_bytes());
        bytes[104..112].copy_from_slice(&u64::MAX.to_ne_bytes());
        bytes[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        let info = decode_tcp_info(&bytes);
        assert_eq!(
            (info.ssthresh, info.pacing_rate, info.min_rtt, info.rcv_rtt),
            (None, None, None, None)
        );
    }

    #[test]
    fn both_window_scales_share_a_byte() {
        let mut bytes = vec![0_u8; MAX_TCP_INFO];
        bytes[5] = OPTION_WSCALE | OPTION_SACK;
        bytes[6] = 0xa7;
        let info = decode_tcp_info(&bytes);
        assert_eq!((info.snd_wscale, info.rcv_wscale), (Some(7), Some(10)));
        assert_eq!(
            (info.window_scaling, info.sack, info.timestamps),
            (Some(true), Some(true), Some(false))
        );
    }

    proptest! {
        #[test]
        fn any_answer_of_any_length_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode_tcp_info(&bytes);
        }
    }
}
