//! The verdict from a capture: what was in flight against the window, losses, the queue, and how
//! the sender sends.

use fullpipe_record::{At, CaptureEvidence};

use crate::ceilings::held_against;
use crate::figures::SenderSampleFigures;
use crate::finding::LimitFinding;
use crate::limits::{capacity, mtu, receiver_host};
use crate::signals::{CaptureView, Signals};

pub(crate) use sentence::{capture_rows, captured_sentence};

mod path;
mod sender;
mod sentence;
mod silence;
mod window;

/// Returns the limit that a capture shows.
pub(crate) fn find_limit(
    figures: &SenderSampleFigures,
    capture: &CaptureEvidence,
    signals: &Signals,
) -> LimitFinding {
    let view = CaptureView { figures, capture };
    if let Some(end) = capture.only {
        let missing = if end == At::Sender {
            ACKNOWLEDGEMENTS
        } else {
            DATA
        };
        return capacity::full_as_stated(figures)
            .or_else(|| view.repeats_in_vain())
            .unwrap_or_else(|| LimitFinding::unknown_limit(vec![missing]));
    }
    let whole = [mtu::without_progress, capacity::full_as_stated];
    let order = [
        CaptureView::ended_early,
        CaptureView::swinging_window,
        CaptureView::below_a_segment,
        CaptureView::closed_on_the_way,
        CaptureView::slow_reader,
        CaptureView::ramp_up,
        CaptureView::find_receive_window,
        CaptureView::fallen_window,
        CaptureView::little_and_no_answer,
        CaptureView::find_idle_sender,
        CaptureView::settled_below,
        CaptureView::policed_at_first,
        CaptureView::caught_up,
        CaptureView::lowered_window,
        CaptureView::full_at_first,
        CaptureView::own_pace,
        CaptureView::own_queue,
        CaptureView::buffer_of_sender,
        CaptureView::late_receiver,
        CaptureView::find_path_limit,
        CaptureView::idle_at_times,
        CaptureView::find_window_growth,
        CaptureView::of_sender,
    ];
    let found = [
        CaptureView::unscaled_at_sender,
        CaptureView::hardly_anything,
    ]
    .into_iter()
    .filter_map(|rule| rule(&view));
    let found = found
        .chain(whole.into_iter().filter_map(|rule| rule(figures)))
        .chain(order.into_iter().filter_map(|rule| rule(&view)));
    let found = signals
        .first_possible(found, |found| held_against(figures, found))
        .unwrap_or_else(|lacking| LimitFinding::unknown_limit(vec![lacking.unwrap_or(SENDER)]));
    let causes = [receiver_host::find_cause, mtu::find_cause];
    let cause = causes.into_iter().find_map(|rule| rule(figures, &found));
    view.with_open_end(cause.unwrap_or(found))
}

/// Figures that only the sender has.
const SENDER: &str = "the sender's congestion window, its buffer and its pace";

/// Figures that only the receiver's packets have, and those that only the sender's have.
const ACKNOWLEDGEMENTS: &str =
    "the receiver's acknowledgements and windows: a capture of the other direction";
const DATA: &str = "the sender's data: a capture of the other direction";
