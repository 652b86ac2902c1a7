//! The verdict from a capture: what was in flight against the window, losses, the queue, and how the sender sends.

use fullpipe_record::{
    CaptureEvidence, CongestionWindowVerdict, Limit, PacingVerdict, ReceiveWindowVerdict, SendBufferVerdict,
    SenderApplicationVerdict,
};
use fullpipe_units::{Ratio, Span};

use crate::figures::{Figures, share};
use crate::finding::Finding;
use crate::limits::{capacity, congestion_window, loss, mtu, receive_window};
use crate::spread::spread;
use crate::thresholds::{
    CLOCKED_SHARE, EVEN_GAPS, IDLE_CAPTURE_SHARE, MAX_PACED_TRAIN, MAX_PLATEAU_SPREAD, MIN_LIMIT_SHARE, SEGMENT_TRAIN,
};

/// Returns the limit that a capture shows.
pub(crate) fn find(figures: &Figures, capture: &CaptureEvidence) -> Finding {
    if figures.snapshots().next().is_none() {
        return Finding::unknown(vec!["data"]);
    }
    let whole = [mtu::without_progress, capacity::full_as_stated, congestion_window::ended_early];
    whole
        .into_iter()
        .find_map(|rule| rule(figures))
        .or_else(|| window(figures, capture))
        .or_else(|| sender_idle(figures, capture))
        .or_else(|| path(figures))
        .or_else(|| sender_holds_back(figures, capture))
        .unwrap_or_else(|| Finding::unknown(vec![SENDER]))
}

/// Finds the receiver's window or program; or the full pipe, where the window holds more than fits it.
fn window(figures: &Figures, capture: &CaptureEvidence) -> Option<Finding> {
    let found = receive_window::find(figures)?;
    if found.kind() != Limit::ReceiveWindow {
        return Some(found);
    }
    if let Some(queue) = capacity::queue_behind_window(figures) {
        return Some(queue);
    }
    let offers = [capture.sender_offers_scale, capture.receiver_offers_scale];
    Some(match offers {
        [Some(true), Some(false)] | [Some(false), Some(true)] => {
            found.as_verdict(ReceiveWindowVerdict::NoWindowScaling).one_of_several()
        }
        [Some(false), Some(false)] => found.as_verdict(ReceiveWindowVerdict::NoWindowScaling),
        _ => Finding::new(ReceiveWindowVerdict::TcpRmemMax, found.share).one_of_several(),
    })
}

/// Finds a sender that had nothing to send though nothing held it back.
fn sender_idle(_: &Figures, capture: &CaptureEvidence) -> Option<Finding> {
    let idle = || Finding::new(SenderApplicationVerdict::Idle, capture.idle).one_of_several();
    (capture.idle.get() >= IDLE_CAPTURE_SHARE).then(idle)
}

/// Finds the limit of the path, if one of them held data back for most of the time.
fn path(figures: &Figures) -> Option<Finding> {
    let held = share(figures.snapshots().map(|snapshot| snapshot.held_by_path(false)))
        .filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    let order = [loss::without_queue, capacity::full_bottleneck, congestion_window::held_without_loss, loss::find];
    let found = order.into_iter().find_map(|rule| rule(figures, held))?;
    Some(capacity::behind_on_path(figures, &found).unwrap_or(found))
}

/// Finds a sender that holds itself back: by its program, which sends at its own times; by a pace, which spaces small
/// trains evenly; or by a buffer, whose data goes out as the acknowledgements come.
fn sender_holds_back(figures: &Figures, capture: &CaptureEvidence) -> Option<Finding> {
    let is_even = capture.spread_of_gaps.is_some_and(|spread| spread.get() <= EVEN_GAPS);
    let in_a_millisecond = figures.rate.bytes_in(MAX_PACED_TRAIN);
    let small = capture.train <= in_a_millisecond.max(figures.mss? * 4).min(SEGMENT_TRAIN);
    let is_paced = is_even && small;
    if let Some(clocked) = capture.clocked.filter(|clocked| clocked.get() < CLOCKED_SHARE) {
        let own = Ratio::new(1.0 - clocked.get());
        return Some(if is_paced {
            Finding::new(PacingVerdict::MaxPacingRate, own)
        } else {
            Finding::new(SenderApplicationVerdict::Idle, own).one_of_several()
        });
    }
    if plateau(figures).is_some_and(|spread| spread <= MAX_PLATEAU_SPREAD) {
        return Some(Finding::new(SendBufferVerdict::TcpWmemMax, Ratio::ONE).one_of_several());
    }
    let grows = congestion_window::growth(figures, Ratio::ONE);
    grows.or_else(|| figures.ever_lost().then(|| Finding::new(CongestionWindowVerdict::Recovering, Ratio::ONE)))
}

/// Returns deviation ÷ mean of the most that each round trip had in flight.
fn plateau(figures: &Figures) -> Option<f64> {
    let rtt = figures.rtt?.max(Span::from_millis(1));
    let of_flow = |flow: &crate::flow::Flow| {
        let mut peaks: Vec<(u64, f64)> = Vec::new();
        for snapshot in &flow.snapshots {
            let round = snapshot.sample.at.as_nanos() / rtt.as_nanos();
            let size = snapshot.outstanding.unwrap_or_default().as_f64();
            match peaks.last_mut() {
                Some(last) if last.0 == round => last.1 = last.1.max(size),
                _ => peaks.push((round, size)),
            }
        }
        spread(&peaks.into_iter().map(|(_, size)| size).collect::<Vec<_>>())
    };
    figures.flows.iter().map(of_flow).reduce(f64::max)
}

/// Figures that only the sender has.
const SENDER: &str = "the sender's congestion window, its buffer and its pace";
