//! The rate of a device that drops what exceeds it, whatever its burst or its queue.

use fullpipe_record::SNAPSHOT_SPREAD;

use crate::prelude::*;
use crate::signals::{SenderStream, SenderView};

/// Shortest time over which the rate of a device that drops is taken.
const MIN_POLICED_TIME: Span = Span::from_secs(1);
/// Round trips over which the rate of a device that drops is taken: the losses of one show in the
/// next.
const MIN_POLICED_ROUND_TRIPS: u64 = 10;

/// Returns the highest rate of payload that arrived, all streams together, over some time that
/// began with a loss. The device had spent its saved burst then, so that its rate is no lower.
/// `None` where nothing was lost, or Linux (before 4.18) does not count what arrives.
pub(crate) fn lower_bound(figures: &SenderView) -> Option<BitRate> {
    let end = figures
        .flows
        .iter()
        .filter_map(|flow| flow.whole.last())
        .map(|sample| sample.at)
        .min()?;
    let long = MIN_POLICED_TIME.max(figures.rtt? * MIN_POLICED_ROUND_TRIPS);
    let losses = figures
        .flows
        .iter()
        .flat_map(loss_times)
        .filter(|at| *at + long <= end);
    losses
        .flat_map(|at| {
            [
                arrival_rate(figures, at, at + long),
                arrival_rate(figures, at, end),
            ]
        })
        .flatten()
        .max()
}

/// Returns the highest rate of payload that arrived in one round trip that began with a loss: a
/// little of the saved burst may be in it, so that the device's rate is hardly higher.
pub(crate) fn upper_bound(figures: &SenderView) -> Option<BitRate> {
    let round_trip = figures.rtt?;
    let rates = figures.flows.iter().flat_map(|flow| {
        loss_times(flow).filter_map(move |at| {
            let next = flow.samples_from(at + round_trip).first()?;
            arrival_rate(figures, at, next.at)
        })
    });
    rates.max().max(lower_bound(figures))
}

/// Returns each time at which a sample shows that a stream had retransmitted.
fn loss_times<'f>(flow: &'f SenderStream) -> impl Iterator<Item = Span> + 'f {
    let pairs = flow.whole.windows(2);
    pairs
        .filter(|pair| pair[1].tcp.total_retrans > pair[0].tcp.total_retrans)
        .map(|pair| pair[1].at)
}

/// Returns the rate of arrivals between two times, of all streams; `None` where one does not report
/// it.
fn arrival_rate(figures: &SenderView, from: Span, until: Span) -> Option<BitRate> {
    // Streams are sampled one after the other.
    let arrived = figures.flows.iter().map(|flow| {
        let before = delivered_segments(flow, from + SNAPSHOT_SPREAD)?;
        Some(delivered_segments(flow, until)?.saturating_sub(before))
    });
    let segments: SegCount = arrived.sum::<Option<_>>()?;
    let bytes: ByteCount = segments.of_size(figures.mss?);
    (until > from).then(|| BitRate::from_bytes_in(bytes, until - from))
}

/// Returns the segments that had arrived at the last snapshot until then, those behind a hole too.
fn delivered_segments(flow: &SenderStream, until: Span) -> Option<SegCount> {
    let seen = flow.whole.partition_point(|sample| sample.at <= until);
    seen.checked_sub(1)
        .map_or(Some(SegCount::ZERO), |last| flow.whole[last].tcp.delivered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{Evidence, Framing, HostSettings, Machine, Request, Sample, TcpInfo};

    const MSS: ByteCount = ByteCount::new(1250);

    /// Samples streams every 100 ms; each has, by then, so many segments delivered and
    /// retransmitted.
    fn evidence(streams: u16, course: impl Fn(u64) -> (u64, u64)) -> Evidence {
        let snapshot = |tenth: u64, stream: u16| {
            let (delivered, again) = course(tenth);
            let tcp = TcpInfo {
                snd_mss: Some(MSS),
                rtt: Some(Span::from_millis(50)),
                delivered: Some(SegCount::new(delivered)),
                total_retrans: Some(SegCount::new(again)),
                ..TcpInfo::default()
            };
            let at = Span::from_millis(tenth * 100) + Span::from_micros(u64::from(stream));
            Sample {
                at,
                stream,
                bytes: ByteCount::ZERO,
                tcp,
                memory: None,
            }
        };
        Evidence {
            request: Request {
                streams,
                ..Request::default()
            },
            sender: Some(HostSettings::of_linux_6_18()),
            receiver: None,
            sender_sockets: Vec::new(),
            receiver_sockets: Vec::new(),
            sender_machine: Machine::default(),
            receiver_machine: Machine::default(),
            program: None,
            is_watched: false,
            sender_samples: (0..=50)
                .flat_map(|tenth| (0..streams).map(move |stream| (tenth, stream)))
                .map(|(tenth, stream)| snapshot(tenth, stream))
                .collect(),
            receiver_samples: Vec::new(),
            idle_rtt: Some(Span::from_millis(50)),
            idle_spread: None,
            loaded_rtt: None,
            steady: None,
            bandwidth: None,
            framing: Framing::Ip,
            http2_wait: None,
            capture: None,
        }
    }

    /// 100 segments of 10 000 bits in a tenth of a second.
    const TEN: BitRate = BitRate::from_mbps(10);

    #[test]
    fn what_was_saved_up_before_the_first_loss_does_not_count() {
        // 40 Mbit/s until the first loss, at one second; then 10.
        let course = |tenth: u64| {
            if tenth <= 10 {
                (tenth * 400, u64::from(tenth == 10))
            } else {
                (4000 + (tenth - 10) * 100, tenth)
            }
        };
        let evidence = evidence(1, course);
        let figures = SenderView::from_evidence(&evidence);
        assert_eq!(lower_bound(&figures), Some(TEN));
        assert_eq!(upper_bound(&figures), Some(TEN));
    }

    #[test]
    fn streams_add_up_and_the_best_time_counts() {
        // Each loses at each snapshot, and for a second and a half gets through twice as much.
        let course = |tenth: u64| {
            (
                tenth * 50 + tenth.clamp(20, 35).saturating_sub(20) * 50,
                tenth,
            )
        };
        let evidence = evidence(2, course);
        let figures = SenderView::from_evidence(&evidence);
        assert_eq!(lower_bound(&figures), Some(BitRate::from_mbps(20)));
    }

    #[test]
    fn without_a_loss_or_a_count_nothing_is_known() {
        let calm = evidence(1, |tenth| (tenth * 100, 0));
        assert_eq!(
            (
                lower_bound(&SenderView::from_evidence(&calm)),
                upper_bound(&SenderView::from_evidence(&calm))
            ),
            (None, None)
        );
        let mut old = evidence(1, |tenth| (tenth * 100, tenth));
        old.sender_samples
            .iter_mut()
            .for_each(|sample| sample.tcp.delivered = None);
        assert_eq!(
            (
                lower_bound(&SenderView::from_evidence(&old)),
                upper_bound(&SenderView::from_evidence(&old))
            ),
            (None, None)
        );
        assert_eq!(
            lower_bound(&SenderView::from_evidence(&evidence(0, |_| (0, 0)))),
            None
        );
    }
}
