//! Sixteen variables of Web100 (RFC 4898), from Linux's `TCP_INFO`.

use crate::prelude::*;
use crate::{CongestionState, Sample, TcpInfo};

/// Variables of Web100 by their names, of a connection at the end that sends. Times are in seconds.
/// A variable is `None` where the kernel does not return what it follows from; the release since
/// which it does is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Web100 {
    /// Segments sent, retransmissions and acknowledgements included (4.2). Sum: all streams.
    pub pkts_out: Option<SegCount>,
    /// Payload bytes sent, retransmissions included (4.19). Sum: all streams.
    pub data_bytes_out: Option<ByteCount>,
    /// Segments retransmitted, needless ones included (2.6.11). Sum: all streams.
    pub pkts_retrans: Option<SegCount>,
    /// Reductions of the congestion window, as far as samples show them: an entry into recovery,
    /// loss or CWR, or a lower slow-start threshold; two within one sampling period count once.
    /// Sum: all streams.
    pub congestion_signals: Option<u64>,
    /// Smoothed round-trip time at the end. Sum: the mean of the streams.
    #[serde(rename = "SmoothedRTT")]
    pub smoothed_rtt: Option<Span>,
    /// Minimum round-trip time of the last 300 s (4.6). Sum: the minimum.
    #[serde(rename = "MinRTT")]
    pub min_rtt: Option<Span>,
    /// Maximum of the sampled smoothed round-trip time, which is below the maximum of single round
    /// trips. Sum: the maximum.
    #[serde(rename = "MaxRTT")]
    pub max_rtt: Option<Span>,
    /// Retransmission timeout at the end. Sum: the maximum.
    #[serde(rename = "CurrentRTO")]
    pub current_rto: Option<Span>,
    /// True if selective acknowledgements were agreed. Sum: true if on all streams.
    #[serde(rename = "SACKEnabled")]
    pub sack_enabled: Option<bool>,
    /// True if small segments wait for acknowledgements; from the request, as `TCP_INFO` has no
    /// such field. Sum: true if on all streams.
    pub nagle_enabled: Option<bool>,
    /// Window that the sending end advertised at the end (6.2), clamped to what the header carries.
    /// Sum: all streams.
    pub current_rwin_sent: Option<ByteCount>,
    /// Maximum of the sampled advertised window (6.2). Sum: all streams.
    pub max_rwin_sent: Option<ByteCount>,
    /// Minimum of the sampled advertised window (6.2). Sum: all streams.
    pub min_rwin_sent: Option<ByteCount>,
    /// Time in which the peer's advertised window limited sending (4.10). Sum: all streams.
    pub snd_lim_time_rwin: Option<Span>,
    /// Time in which nothing else limited sending: the congestion window, pacing, or the host's
    /// queues (4.10). Sum: all streams.
    pub snd_lim_time_cwnd: Option<Span>,
    /// Time in which the send buffer was full, or the program had nothing to send (4.10). Sum: all
    /// streams.
    pub snd_lim_time_sender: Option<Span>,
}

/// The variables of each stream, and of all together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Web100Report {
    /// Each stream, in order.
    pub streams: Vec<Web100>,
    /// All streams; each variable says how it is summed.
    pub sum: Web100,
}

impl Web100 {
    /// Returns the variables that the samples of one stream show, ordered by time; `no_delay` as it
    /// was requested.
    pub fn from_samples<'s>(
        samples: impl Iterator<Item = &'s Sample> + Clone,
        no_delay: bool,
    ) -> Self {
        let Some(last) = samples.clone().last() else {
            return Self::default();
        };
        let tcp = &last.tcp;
        let windows = samples
            .clone()
            .filter_map(|sample| max_header_window(&sample.tcp));
        let limited = tcp.rwnd_limited.zip(tcp.sndbuf_limited);
        let in_cwnd = tcp
            .busy
            .zip(limited)
            .map(|(busy, (rwnd, sndbuf))| busy.saturating_sub(rwnd + sndbuf));
        Self {
            pkts_out: tcp.segs_out,
            data_bytes_out: tcp.bytes_sent,
            pkts_retrans: tcp.total_retrans,
            congestion_signals: count_reductions(samples.clone()),
            smoothed_rtt: tcp.rtt,
            min_rtt: tcp.min_rtt,
            max_rtt: samples.filter_map(|sample| sample.tcp.rtt).max(),
            current_rto: tcp.rto,
            sack_enabled: tcp.sack,
            nagle_enabled: Some(!no_delay),
            current_rwin_sent: max_header_window(tcp),
            max_rwin_sent: windows.clone().max(),
            min_rwin_sent: windows.min(),
            snd_lim_time_rwin: tcp.rwnd_limited,
            snd_lim_time_cwnd: in_cwnd,
            snd_lim_time_sender: tcp
                .sndbuf_limited
                .zip(tcp.busy)
                .map(|(sndbuf, busy)| sndbuf + last.at.saturating_sub(busy)),
        }
    }

    /// Returns the variables of `streams` together. A variable is `None` if it is unknown of any
    /// stream.
    fn sum_streams(streams: &[Self]) -> Self {
        fn all_known<T>(streams: &[Web100], of: fn(&Web100) -> Option<T>) -> Option<Vec<T>> {
            let values: Option<Vec<T>> = streams.iter().map(of).collect();
            values.filter(|values| !values.is_empty())
        }
        let time = |of: fn(&Self) -> Option<Span>| {
            all_known(streams, of).map(|times| times.into_iter().sum::<Span>())
        };
        let bytes = |of: fn(&Self) -> Option<ByteCount>| {
            all_known(streams, of).map(|sizes| sizes.into_iter().sum::<ByteCount>())
        };
        let segments = |of: fn(&Self) -> Option<SegCount>| {
            all_known(streams, of).map(|counts| {
                counts
                    .into_iter()
                    .fold(SegCount::ZERO, |sum, count| sum + count)
            })
        };
        let longest = |of: fn(&Self) -> Option<Span>| {
            all_known(streams, of).and_then(|times| times.into_iter().max())
        };
        let everywhere = |of: fn(&Self) -> Option<bool>| {
            all_known(streams, of).map(|flags| flags.into_iter().all(|flag| flag))
        };
        Self {
            pkts_out: segments(|one| one.pkts_out),
            data_bytes_out: bytes(|one| one.data_bytes_out),
            pkts_retrans: segments(|one| one.pkts_retrans),
            congestion_signals: all_known(streams, |one| one.congestion_signals)
                .map(|counts| counts.into_iter().sum()),
            smoothed_rtt: time(|one| one.smoothed_rtt).map(|sum| sum / streams.len() as u64),
            min_rtt: all_known(streams, |one| one.min_rtt)
                .and_then(|times| times.into_iter().min()),
            max_rtt: longest(|one| one.max_rtt),
            current_rto: longest(|one| one.current_rto),
            sack_enabled: everywhere(|one| one.sack_enabled),
            nagle_enabled: everywhere(|one| one.nagle_enabled),
            current_rwin_sent: bytes(|one| one.current_rwin_sent),
            max_rwin_sent: bytes(|one| one.max_rwin_sent),
            min_rwin_sent: bytes(|one| one.min_rwin_sent),
            snd_lim_time_rwin: time(|one| one.snd_lim_time_rwin),
            snd_lim_time_cwnd: time(|one| one.snd_lim_time_cwnd),
            snd_lim_time_sender: time(|one| one.snd_lim_time_sender),
        }
    }
}

impl Web100Report {
    /// Returns the variables of each stream and their sum.
    pub fn from_streams(streams: Vec<Web100>) -> Self {
        let sum = Web100::sum_streams(&streams);
        Self { streams, sum }
    }
}

/// The window that the header can carry.
fn max_header_window(tcp: &TcpInfo) -> Option<ByteCount> {
    let shift = if tcp.window_scaling == Some(false) {
        0
    } else {
        tcp.rcv_wscale.unwrap_or(0)
    };
    Some(tcp.rcv_wnd?.min(ByteCount::new(65_535 << shift.min(14))))
}

/// Counts the reductions that successive samples show; `None` if the kernel does not return the
/// state.
fn count_reductions<'s>(samples: impl Iterator<Item = &'s Sample> + Clone) -> Option<u64> {
    let next = samples.clone().skip(1);
    let mut count = is_reducing(samples.clone().next()?.tcp.congestion_state?).into();
    for (before, after) in samples.zip(next) {
        let (was, is) = (before.tcp.congestion_state?, after.tcp.congestion_state?);
        let entered = is_reducing(is) && was != is;
        let lowered = before
            .tcp
            .ssthresh
            .zip(after.tcp.ssthresh)
            .is_some_and(|(before, after)| after < before);
        let first_threshold = before.tcp.ssthresh.is_none() && after.tcp.ssthresh.is_some();
        count += u64::from(entered || (!is_reducing(was) && (lowered || first_threshold)));
    }
    Some(count)
}

const fn is_reducing(state: CongestionState) -> bool {
    matches!(
        state,
        CongestionState::Cwr | CongestionState::Recovery | CongestionState::Loss
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, tcp: TcpInfo) -> Sample {
        Sample {
            at: Span::from_millis(at),
            stream: 0,
            bytes: ByteCount::ZERO,
            tcp,
            memory: None,
        }
    }

    fn tcp(state: CongestionState, rtt: u64) -> TcpInfo {
        TcpInfo {
            congestion_state: Some(state),
            rtt: Some(Span::from_millis(rtt)),
            segs_out: Some(SegCount::new(7)),
            rcv_wnd: Some(ByteCount::from_mib(1)),
            rcv_wscale: Some(2),
            busy: Some(Span::from_millis(150)),
            rwnd_limited: Some(Span::from_millis(40)),
            sndbuf_limited: Some(Span::from_millis(10)),
            ..TcpInfo::default()
        }
    }

    #[test]
    fn the_variables_have_their_own_names() {
        const NAMES: [&str; 16] = [
            "PktsOut",
            "DataBytesOut",
            "PktsRetrans",
            "CongestionSignals",
            "SmoothedRTT",
            "MinRTT",
            "MaxRTT",
            "CurrentRTO",
            "SACKEnabled",
            "NagleEnabled",
            "CurrentRwinSent",
            "MaxRwinSent",
            "MinRwinSent",
            "SndLimTimeRwin",
            "SndLimTimeCwnd",
            "SndLimTimeSender",
        ];
        let json = serde_json::to_value(Web100::default()).unwrap();
        let keys = json.as_object().unwrap();
        assert_eq!(keys.len(), NAMES.len());
        assert!(NAMES.iter().all(|name| keys.contains_key(*name)), "{json}");
    }

    #[test]
    fn times_add_up_and_a_recovery_counts_once() {
        use CongestionState::{Open, Recovery};
        let samples = [
            (0, Open, 10),
            (50, Recovery, 30),
            (100, Recovery, 20),
            (150, Open, 20),
            (200, Recovery, 12),
        ];
        let samples = samples.map(|(at, state, rtt)| sample(at, tcp(state, rtt)));
        let seen = Web100::from_samples(samples.iter(), false);
        assert_eq!(seen.congestion_signals, Some(2));
        assert_eq!(
            (seen.max_rtt, seen.smoothed_rtt),
            (Some(Span::from_millis(30)), Some(Span::from_millis(12)))
        );
        assert_eq!(
            seen.max_rwin_sent,
            Some(ByteCount::new(65_535 * 4)),
            "what the header can carry"
        );
        let times = [
            seen.snd_lim_time_rwin,
            seen.snd_lim_time_cwnd,
            seen.snd_lim_time_sender,
        ];
        assert_eq!(
            times,
            [40, 100, 60].map(|time| Some(Span::from_millis(time))),
            "together the whole time"
        );
    }

    #[test]
    fn a_sum_is_unknown_where_a_stream_is() {
        let one = Web100::from_samples([sample(0, tcp(CongestionState::Open, 10))].iter(), true);
        let report = Web100Report::from_streams(vec![one, one]);
        assert_eq!(report.sum.pkts_out, Some(SegCount::new(14)));
        assert_eq!(
            (report.sum.smoothed_rtt, report.sum.nagle_enabled),
            (one.smoothed_rtt, Some(false))
        );
        assert_eq!(
            Web100Report::from_streams(vec![one, Web100::default()])
                .sum
                .pkts_out,
            None
        );
        assert_eq!(
            Web100Report::from_streams(Vec::new()).sum,
            Web100::default()
        );
    }
}
