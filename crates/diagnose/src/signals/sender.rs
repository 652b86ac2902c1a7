use fullpipe_model::loss::CongestionControl;
use fullpipe_record::least_rtt;

use crate::prelude::*;
use crate::signals::{JudgedSample, SenderStream, losses};
use crate::thresholds::{CLOCK_TICK, MIN_LOSS_OF_PROBES};

/// The figures of the sending end's samples, over the part of the transfer that is judged.
pub(crate) struct SenderView<'a> {
    pub(crate) evidence: &'a Evidence,
    /// The part that is judged; everything where there is none.
    pub(crate) part: Option<Steady>,
    pub(crate) flows: Vec<SenderStream<'a>>,
    /// Mean rate of all streams.
    pub(crate) rate: BitRate,
    /// Payload of a full segment.
    pub(crate) mss: Option<ByteCount>,
    /// Round-trip time of the idle path.
    pub(crate) idle_rtt: Option<Span>,
    /// Median round-trip time of the judged part.
    pub(crate) rtt: Option<Span>,
}

/// Data segments of the judged part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetransmittedSegments {
    /// Retransmitted segments.
    pub(crate) again: u64,
    /// Sent in all.
    pub(crate) sent: u64,
    /// Number of times that a stream went into recovery, as far as the samples show it.
    pub(crate) episodes: u64,
}

/// Segments from which the lost ones are printed as a share.
const MIN_SEGMENTS_OF_SHARE: u64 = 100;

impl RetransmittedSegments {
    /// Share of the segments that were retransmitted, at most all.
    pub(crate) fn segment_share(self) -> Ratio {
        Ratio::from_quotient(self.again.min(self.sent) as f64, self.sent as f64)
    }

    /// Returns the share of the packets, or their count where there are too few for a share.
    pub(crate) fn text(self) -> String {
        let Self { again, sent, .. } = self;
        if sent < MIN_SEGMENTS_OF_SHARE {
            format!("{again} of {sent} packets")
        } else {
            format!("{} of the packets", self.segment_share())
        }
    }

    /// The same, with everything sent again in one recovery counted once; what was seen of
    /// recoveries may be less than there were.
    pub(crate) fn episode_ratio(self) -> Ratio {
        Ratio::from_quotient(self.episodes.min(self.again) as f64, self.sent as f64)
    }
}

/// Multiple of the window that CUBIC has under so much loss, from which a sender does not slow down
/// for it.
const IGNORES_LOSS_FACTOR: f64 = 3.0;

impl<'a> SenderView<'a> {
    /// Judges the steady part, or everything where there is none.
    pub(crate) fn from_evidence(evidence: &'a Evidence) -> Self {
        Self::from_part(evidence, evidence.steady)
    }

    /// Judges `part` of the transfer.
    pub(crate) fn from_part(evidence: &'a Evidence, part: Option<Steady>) -> Self {
        let flows = SenderStream::from_sender_samples(evidence, part);
        let judged: Vec<_> = flows
            .iter()
            .flat_map(SenderStream::judged_samples)
            .collect();
        let mss = judged.iter().filter_map(|sample| sample.tcp.snd_mss).max();
        let smoothed = median(judged.iter().filter_map(|sample| sample.tcp.rtt).collect());
        Self {
            evidence,
            part,
            rate: judged_rate(evidence, part),
            mss: mss.filter(|mss| *mss > ByteCount::ZERO),
            idle_rtt: idle_rtt(evidence),
            rtt: smoothed
                .or(evidence.loaded_rtt)
                .or(evidence.idle_rtt)
                .filter(|rtt| *rtt > Span::ZERO),
            flows,
        }
    }

    /// The judged samples of all streams.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &JudgedSample<'a>> {
        self.flows.iter().flat_map(|flow| &flow.snapshots)
    }

    /// The kernel's figures in the judged samples of all streams.
    pub(crate) fn tcp(&self) -> impl Iterator<Item = &TcpInfo> {
        self.snapshots().map(|snapshot| &snapshot.sample.tcp)
    }

    /// The rate that the sending program was asked for, all streams together.
    pub(crate) fn offered_rate(&self) -> Option<BitRate> {
        Some(
            self.evidence
                .request
                .rate?
                .scale_by(f64::from(self.stream_count().max(1))),
        )
    }

    /// The streams that sent.
    pub(crate) fn stream_count(&self) -> u16 {
        u16::try_from(self.flows.len()).unwrap_or(u16::MAX).max(1)
    }

    /// Congestion control of the sender, as far as it is known.
    pub(crate) fn congestion_control(&self) -> Option<&'a str> {
        let evidence = self.evidence;
        let read_back = evidence
            .sender_sockets
            .first()
            .map(|socket| socket.congestion.as_str());
        read_back
            .or(evidence.request.congestion.as_deref())
            .or_else(|| Some(evidence.sender.as_ref()?.congestion_control.as_str()))
    }

    /// Returns true if the sender paces by its own estimate of the path, and so leaves its window
    /// half empty.
    pub(crate) fn is_bbr(&self) -> bool {
        match self.congestion_control() {
            Some(name) => name.starts_with("bbr"),
            None => self.ignores_loss() == Some(true),
        }
    }

    /// Returns true if a capture shows a sender that has far more in flight than one that slows
    /// down for losses could have with so many of them.
    fn ignores_loss(&self) -> Option<bool> {
        let lost = self
            .evidence
            .capture
            .and(self.retransmitted_segments())?
            .segment_share();
        let window = CongestionControl::Cubic.mean_window(lost, self.rtt?, self.mss?)?;
        let in_flight = self
            .rate
            .bytes_in(self.rtt?)
            .scale_by(1.0 / f64::from(self.stream_count()));
        let is_above = in_flight > window.scale_by(IGNORES_LOSS_FACTOR);
        Some(is_above && lost.get() >= MIN_LOSS_OF_PROBES)
    }

    /// Share of the time in which a stream had nothing outstanding and nothing queued.
    pub(crate) fn idle_share(&self) -> Option<Ratio> {
        let busy = self.total_growth(|tcp| tcp.busy.map(Span::as_nanos));
        match busy {
            Some(busy) => {
                let elapsed: Span = self.flows.iter().map(SenderStream::judged_duration).sum();
                let idle = elapsed.saturating_sub(Span::from_nanos(busy));
                Some(time_ratio(idle, elapsed))
            }
            None => share_of_votes(
                self.snapshots()
                    .map(|snapshot| snapshot.outstanding.map(|_| !snapshot.is_busy())),
            ),
        }
    }

    /// A clock of the kernel as a share of the time in which there was something to send, at most
    /// all of it.
    pub(crate) fn share_of_busy(&self, clock: impl Fn(&TcpInfo) -> Option<Span>) -> Option<Ratio> {
        let busy = self.total_growth(|tcp| tcp.busy.map(Span::as_nanos))?;
        let limited = self.total_growth(|tcp| clock(tcp).map(Span::as_nanos))?;
        Some(Ratio::from_quotient(limited.min(busy) as f64, busy as f64))
    }

    /// Returns the retransmitted segments. Before Linux 4.6 the kernel does not count data
    /// segments; acknowledged bytes stand in.
    pub(crate) fn retransmitted_segments(&self) -> Option<RetransmittedSegments> {
        let again = self.total_growth(|tcp| tcp.total_retrans.map(SegCount::get))?;
        let needless = self
            .total_growth(|tcp| tcp.dsack_dups.map(SegCount::get))
            .unwrap_or(0);
        let counted = self.total_growth(|tcp| tcp.data_segs_out.map(SegCount::get));
        let sent = counted.or_else(|| {
            let acked = self.total_growth(|tcp| tcp.bytes_acked.map(ByteCount::get))?;
            Some((acked / self.mss?.get()).saturating_add(again))
        });
        let episodes = self
            .flows
            .iter()
            .map(|flow| losses::recovery_count(flow))
            .sum();
        Some(RetransmittedSegments {
            again: again.saturating_sub(needless),
            sent: sent?,
            episodes,
        })
    }

    /// Returns the retransmitted segments of the judged part, or of the whole transfer where the
    /// judged part has none: a few seconds may pass between losses that hold a window down all the
    /// same.
    pub(crate) fn lost_segments(&self) -> Option<RetransmittedSegments> {
        let judged = self.retransmitted_segments()?;
        if judged.again > 0 {
            return Some(judged);
        }
        let episodes = self.flows.iter().map(losses::episodes_in_all).sum();
        Some(RetransmittedSegments {
            again: self.whole_total(|tcp| tcp.total_retrans)?,
            sent: self.whole_total(|tcp| tcp.data_segs_out)?,
            episodes,
        })
    }

    /// Returns a count over the whole life of all streams; `None` where one does not report it.
    fn whole_total(&self, counter: impl Fn(&TcpInfo) -> Option<SegCount>) -> Option<u64> {
        self.flows
            .iter()
            .map(|flow| counter(&flow.whole.last()?.tcp))
            .sum::<Option<SegCount>>()
            .map(SegCount::get)
    }

    /// Segments retransmitted in the whole life of all streams.
    pub(crate) fn sent_again_in_all(&self) -> Option<u64> {
        self.flows
            .iter()
            .filter_map(|flow| flow.whole.last()?.tcp.total_retrans)
            .map(SegCount::get)
            .reduce(u64::saturating_add)
    }

    /// Returns the MTU of the path, as the kernel knows it.
    pub(crate) fn path_mtu(&self) -> Option<ByteCount> {
        let known = self.tcp().filter_map(|tcp| tcp.path_mtu);
        known.max()
    }

    /// Returns true if segments carry timestamps, as they do where nothing says otherwise.
    pub(crate) fn has_timestamps(&self) -> bool {
        self.tcp().find_map(|tcp| tcp.timestamps).unwrap_or(true)
    }

    /// Returns true if anything was ever retransmitted, the ramp included.
    pub(crate) fn ever_lost(&self) -> bool {
        self.sent_again_in_all().is_some_and(|again| again > 0)
    }

    /// Returns the begin and the end of the judged part.
    pub(crate) fn judged_period(&self) -> (Span, Span) {
        if let Some(steady) = self.part {
            return (steady.ramp, steady.ramp + steady.duration);
        }
        let last = self.snapshots().map(|snapshot| snapshot.sample.at).max();
        (Span::ZERO, last.unwrap_or_default())
    }

    /// Returns the mean over the judged part, summed over the streams; `None` where no sample
    /// reports it.
    pub(crate) fn mean_size(
        &self,
        size: impl Fn(&JudgedSample) -> Option<ByteCount>,
    ) -> Option<ByteCount> {
        sum_of_sizes(
            self.flows
                .iter()
                .map(|flow| mean_of_sizes(flow.snapshots.iter().filter_map(&size))),
        )
    }

    /// Returns the maximum of the judged part, summed over the streams; `None` where no sample
    /// reports it.
    pub(crate) fn max_size(
        &self,
        size: impl Fn(&JudgedSample) -> Option<ByteCount>,
    ) -> Option<ByteCount> {
        sum_of_sizes(
            self.flows
                .iter()
                .map(|flow| flow.snapshots.iter().filter_map(&size).max()),
        )
    }

    /// Returns the growth of a counter in the judged part, summed over the streams that report it.
    fn total_growth(&self, counter: impl Fn(&TcpInfo) -> Option<u64> + Copy) -> Option<u64> {
        self.flows
            .iter()
            .filter_map(|flow| flow.counter_growth(counter))
            .reduce(u64::saturating_add)
    }
}

/// Share of `votes` that say yes, of those that can say; `None` where none can.
pub(crate) fn share_of_votes(votes: impl Iterator<Item = Option<bool>>) -> Option<Ratio> {
    let (mut yes, mut said) = (0_u32, 0_u32);
    for vote in votes.flatten() {
        said += 1;
        yes += u32::from(vote);
    }
    (said > 0).then(|| Ratio::from_quotient(f64::from(yes), f64::from(said)))
}

/// Returns `part` ÷ `whole`.
pub(crate) fn time_ratio(part: Span, whole: Span) -> Ratio {
    Ratio::from_quotient(part.as_secs_f64(), whole.as_secs_f64())
}

/// Returns `part` ÷ `whole`.
pub(crate) fn size_ratio(part: ByteCount, whole: ByteCount) -> Ratio {
    Ratio::from_quotient(part.as_f64(), whole.as_f64())
}

/// Mean of some sizes; `None` where there are none.
fn mean_of_sizes(sizes: impl Iterator<Item = ByteCount>) -> Option<ByteCount> {
    let (mut total, mut count) = (0.0, 0_u32);
    for size in sizes {
        total += size.as_f64();
        count += 1;
    }
    (count > 0).then(|| ByteCount::from_f64(total / f64::from(count)))
}

fn sum_of_sizes(sizes: impl Iterator<Item = Option<ByteCount>>) -> Option<ByteCount> {
    sizes.flatten().reduce(|sum, size| sum + size)
}

fn judged_rate(evidence: &Evidence, part: Option<Steady>) -> BitRate {
    if let Some(part) = part {
        return part.rate;
    }
    let progress = TransferProgress::from_samples(&evidence.sender_samples, Span::MAX);
    progress
        .snapshot_times()
        .last()
        .map_or(BitRate::ZERO, |end| progress.mean_rate(Span::ZERO, *end))
}

/// The least that echo requests or the kernel saw. The kernel's may stem from the handshake, whose
/// packets are small and so a little faster than data (`rtt_is_inflated` allows for it). That of a
/// packet which was sent again is of its timestamp, cut off to a tick (`tcp_ack_update_rtt`).
pub(crate) fn idle_rtt(evidence: &Evidence) -> Option<Span> {
    let seen = least_rtt(&evidence.sender_samples);
    let echoes = evidence.idle_rtt.filter(|rtt| *rtt > Span::ZERO);
    let is_cut_off = |(seen, echoes): &(Span, Span)| {
        let ticks = seen.as_nanos() / CLOCK_TICK.as_nanos();
        *seen == CLOCK_TICK * ticks && (*seen..*seen + CLOCK_TICK).contains(echoes)
    };
    match seen.zip(echoes).filter(is_cut_off) {
        Some((_, echoes)) => Some(echoes),
        None => [echoes, seen].into_iter().flatten().min(),
    }
}
