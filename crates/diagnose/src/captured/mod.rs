//! The verdict from a capture: what was in flight against the window, losses, the queue, and how the sender sends.

use fullpipe_record::{At, CaptureEvidence};

use crate::ceilings::held_against;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::limits::{capacity, congestion_window, mtu};
use crate::signals::Signals;

pub(crate) use sentence::{sentence, shown};
use view::View;

mod path;
mod sender;
mod sentence;
mod silence;
mod view;
mod window;

/// Returns the limit that a capture shows.
pub(crate) fn find(figures: &Figures, capture: &CaptureEvidence, signals: &Signals) -> Finding {
    let view = View { figures, capture };
    if let Some(end) = capture.only {
        let missing = if end == At::Sender { ACKNOWLEDGEMENTS } else { DATA };
        return capacity::full_as_stated(figures)
            .or_else(|| view.repeats_in_vain())
            .unwrap_or_else(|| Finding::unknown(vec![missing]));
    }
    let whole = [mtu::without_progress, capacity::full_as_stated];
    let order = [
        View::below_a_segment,
        View::closed_on_the_way,
        View::ramp_up,
        View::window,
        View::little_and_no_answer,
        View::idle,
        View::policed_at_first,
        View::lowered_window,
        View::full_at_first,
        View::own_pace,
        View::own_queue,
        View::buffer_of_sender,
        View::late_receiver,
        View::path,
        View::idle_at_times,
        View::growth,
        View::of_sender,
    ];
    let ended_early = |view: &View| congestion_window::ended_early(view.figures).filter(|_| !view.program_waits());
    let found = [View::unscaled_at_sender, View::hardly_anything].into_iter().filter_map(|rule| rule(&view));
    let found = found
        .chain(whole.into_iter().filter_map(|rule| rule(figures)))
        .chain(std::iter::once_with(|| ended_early(&view)).flatten())
        .chain(order.into_iter().filter_map(|rule| rule(&view)));
    let found = signals
        .first_possible(found, |found| held_against(figures, found))
        .unwrap_or_else(|lacking| Finding::unknown(vec![lacking.unwrap_or(SENDER)]));
    // The host itself may have asked for small segments.
    mtu::behind(figures, &found).map_or(found, Finding::one_of_several)
}

/// Figures that only the sender has.
const SENDER: &str = "the sender's congestion window, its buffer and its pace";

/// Figures that only the receiver's packets have, and those that only the sender's have.
const ACKNOWLEDGEMENTS: &str = "the receiver's acknowledgements and windows: a capture of the other direction";
const DATA: &str = "the sender's data: a capture of the other direction";
