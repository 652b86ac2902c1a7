use std::collections::BTreeMap;

use fullpipe_model::{kernel, window};
use fullpipe_record::Segmentation;

use crate::finding::Finding;
use crate::limits::{application_window, loss, send_buffer};
use crate::prelude::*;
use crate::signals::{ReceiverView, SeenEnd, SenderView, TransferView, path};
use crate::thresholds::INITIAL_WINDOW;

/// Returns every ceiling that the evidence gives, of all streams together, as payload.
pub(crate) fn find_ceilings(figures: &SenderView, finding: &Finding) -> BTreeMap<Limit, BitRate> {
    let [of_window, of_cwnd] = [
        figures.max_size(|snapshot| snapshot.window),
        figures.mean_size(|snapshot| snapshot.cwnd),
    ]
    .map(|size| Some(window::rate_of_window(size?, figures.rtt?)));
    let all = [
        (Limit::ReceiveWindow, of_window),
        (Limit::SendBuffer, send_buffer_ceiling(figures, finding)),
        (Limit::CongestionWindow, of_cwnd),
        (Limit::Capacity, path::stated_capacity(figures)),
        (Limit::Loss, loss_ceiling(figures)),
    ];
    all.into_iter()
        .filter_map(|(kind, rate)| Some((kind, rate?)))
        .collect()
}

/// Returns those that speak for or against `finding` in any view.
pub(crate) fn ceilings_against(view: &TransferView, finding: &Finding) -> BTreeMap<Limit, BitRate> {
    match &view.end {
        SeenEnd::Sender(figures) => held_against(figures, finding),
        SeenEnd::Receiver(arrivals) => arrivals.find_ceilings(),
    }
}

/// Returns those that speak for or against `finding`: a sender with a window of a few segments
/// waits for timers, so that it has less than a window in each round trip.
pub(crate) fn held_against(figures: &SenderView, finding: &Finding) -> BTreeMap<Limit, BitRate> {
    let mut ceilings = find_ceilings(figures, finding);
    let window = figures
        .mean_size(|snapshot| snapshot.window)
        .zip(figures.mss);
    if window.is_some_and(|(window, mss)| window < mss * INITIAL_WINDOW) {
        ceilings.remove(&Limit::ReceiveWindow);
    }
    ceilings
}

/// Returns the rate that the send buffers of all streams leave: as measured where they are the
/// limit; elsewhere what the kernel tunes them to if it does, less what such a writer lets run
/// down.
fn send_buffer_ceiling(figures: &SenderView, finding: &Finding) -> Option<BitRate> {
    if finding.limit_kind() == Limit::SendBuffer {
        return send_buffer::buffer_ceiling(figures);
    }
    let seen = figures.max_size(|snapshot| snapshot.sndbuf)?;
    let evidence = figures.evidence;
    let tuned = evidence
        .sender
        .as_ref()
        .filter(|_| evidence.request.buffer == Buffer::Automatic);
    let size = tuned.map_or(seen, |settings| {
        seen.max(settings.tcp_wmem.max * u64::from(figures.stream_count()))
    });
    let each = ByteCount::new(size.get() / u64::from(figures.stream_count()).max(1));
    let fill = kernel::mean_fill(
        evidence.request.writer,
        Segmentation::Trains,
        figures.mss?,
        each,
        figures.rtt?,
    );
    Some(window::rate_of_window(
        size.scale_by(fill.mid.get()),
        figures.rtt?,
    ))
}

fn loss_ceiling(figures: &SenderView) -> Option<BitRate> {
    let lost = figures
        .retransmitted_segments()
        .filter(|lost| lost.again > 0)?;
    loss::rates_under_loss(figures, lost).map(|(low, _)| low)
}

impl ReceiverView<'_> {
    pub(crate) fn find_ceilings(&self) -> BTreeMap<Limit, BitRate> {
        let of_window = self
            .usual_window()
            .zip(self.rtt)
            .map(|(size, rtt)| window::rate_of_window(size, rtt));
        let all = [
            (Limit::ReceiveWindow, of_window),
            (
                Limit::ApplicationWindow,
                application_window::window_ceiling(self.evidence, self.rtt),
            ),
            (Limit::Capacity, self.stated_capacity()),
        ];
        all.into_iter()
            .filter_map(|(kind, rate)| Some((kind, rate?)))
            .collect()
    }
}
