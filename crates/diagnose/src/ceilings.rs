use std::collections::BTreeMap;

use fullpipe_model::kernel;
use fullpipe_model::window;
use fullpipe_record::{Buffer, Limit, Segmentation};
use fullpipe_units::{BitRate, ByteCount, Ratio};

use crate::figures::Figures;
use crate::finding::Finding;
use crate::path;

/// Every ceiling that the evidence gives, of all streams together, as payload.
pub(crate) fn ceilings(figures: &Figures, finding: &Finding) -> BTreeMap<Limit, BitRate> {
    let per_rtt = |size: Option<ByteCount>| Some(window::rate(size?, figures.rtt?));
    let all = [
        (Limit::ReceiveWindow, per_rtt(figures.most(|snapshot| snapshot.window))),
        (Limit::SendBuffer, per_rtt(send_buffer(figures, finding))),
        (Limit::CongestionWindow, per_rtt(figures.mean(|snapshot| snapshot.cwnd))),
        (Limit::Capacity, path::stated_capacity(figures)),
        (Limit::Loss, loss(figures)),
    ];
    all.into_iter().filter_map(|(kind, rate)| Some((kind, rate?))).collect()
}

/// What the send buffers of all streams keep on the way: as measured where they are the limit; elsewhere what the kernel
/// tunes them to if it does, less what such a writer lets run down.
fn send_buffer(figures: &Figures, finding: &Finding) -> Option<ByteCount> {
    let seen = figures.most(|snapshot| snapshot.sndbuf)?;
    if finding.kind == Limit::SendBuffer {
        return Some(seen.scaled(fill(figures)?.get()));
    }
    let evidence = figures.evidence;
    let tuned = evidence.sender.as_ref().filter(|_| evidence.request.buffer == Buffer::Automatic);
    let size = tuned.map_or(seen, |settings| seen.max(settings.tcp_wmem.max * u64::from(figures.streams())));
    let each = ByteCount::new(size.get() / u64::from(figures.streams()).max(1));
    let fill = kernel::fill(evidence.request.writer, Segmentation::Trains, figures.mss?, each, figures.rtt?);
    Some(size.scaled(fill.mid.get()))
}

/// Mean share of the send buffer that was in use, at most all of it.
fn fill(figures: &Figures) -> Option<Ratio> {
    let (queued, size) = (figures.mean(|snapshot| snapshot.queued)?, figures.mean(|snapshot| snapshot.sndbuf)?);
    Some(Ratio::new(Ratio::of(queued.as_f64(), size.as_f64()).get().min(1.0)))
}

fn loss(figures: &Figures) -> Option<BitRate> {
    let lost = figures.retransmitted().filter(|lost| lost.again > 0)?;
    path::rates_under_loss(figures, lost).map(|(low, _)| low)
}
