//! Figures of the path that the rules of several limits share.

use fullpipe_model::framing;
use fullpipe_record::{Evidence, IpVersion, Progress};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::figures::{Figures, mean};
use crate::snapshot::Snapshot;

/// Returns the payload that the stated bandwidth can carry; `None` where none was stated.
pub(crate) fn stated_capacity(figures: &Figures) -> Option<BitRate> {
    stated_payload(figures.evidence, figures.mss?, figures.timestamps())
}

/// Returns the same for segments of `mss`.
pub(crate) fn stated_payload(evidence: &Evidence, mss: ByteCount, timestamps: bool) -> Option<BitRate> {
    let payload = evidence.bandwidth?.scaled(efficiency(evidence, mss, timestamps).get());
    Some(payload).filter(|capacity| *capacity > BitRate::ZERO)
}

/// Returns the payload of segments of `mss` as a share of the bytes that the path counts.
pub(crate) fn efficiency(evidence: &Evidence, mss: ByteCount, timestamps: bool) -> Ratio {
    framing::efficiency(mss, framing::tcp_headers(IpVersion::V4, timestamps), evidence.framing.overhead())
}

/// Returns the time that the path takes for two full segments at the rate of the data; zero where there was none.
pub(crate) fn time_on_the_line(figures: &Figures) -> Option<Span> {
    let two = figures.mss? * 2;
    Some(if figures.rate > BitRate::ZERO { figures.rate.time_for(two) } else { Span::ZERO })
}

/// Figures that no sample of TCP shows.
pub(crate) const UNSEEN: &str = "the processor time and the pacing of both hosts";

/// Mean in the last third of the judged part ÷ mean in the first.
pub(crate) fn trend(figures: &Figures, size: impl Fn(&Snapshot) -> Option<ByteCount>) -> Option<f64> {
    let third = |last: bool| {
        let means = figures.flows.iter().filter_map(|flow| {
            let count = flow.snapshots.len() / 3;
            let part = if last { &flow.snapshots[flow.snapshots.len() - count..] } else { &flow.snapshots[..count] };
            mean(part.iter().filter_map(&size))
        });
        means.sum::<ByteCount>().as_f64()
    };
    let first = third(false);
    (first > 0.0).then(|| third(true) / first)
}

/// Rate in the last third of the judged part ÷ rate in the first.
pub(crate) fn rate_trend(figures: &Figures) -> Option<f64> {
    let progress = Progress::of(&figures.evidence.sender_samples, Span::MAX);
    let (start, end) = judged_part(figures, &progress)?;
    let third = end.saturating_sub(start) / 3;
    let first = progress.rate(start, start + third);
    (first > BitRate::ZERO).then(|| progress.rate(end - third, end).relative_to(first))
}

pub(crate) fn judged_part(figures: &Figures, progress: &Progress) -> Option<(Span, Span)> {
    let last = *progress.snapshots().last()?;
    let (start, end) = figures.judged();
    Some((start, end.min(last)))
}
