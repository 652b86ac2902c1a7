//! A sending program that keeps to a rate.

use crate::limits::loss::policer;
use crate::limits::mtu::mss_clamped;
use crate::limits::prelude::*;
use crate::limits::sender_application::cause_of_writer;
use crate::text::rate_text;
use crate::thresholds::{
    FASTER_THAN_A_PACE, INFLATED_RTT_FACTOR, MAX_PACE_FACTOR, MIN_LOSS_OF_PROBES,
    MIN_SHARE_OF_FULL_BUFFER, REACHED_RATE_SHARE, WHOLE_RATE_SHARE,
};

pub(crate) const CAUSE: Cause = Cause {
    captured_sentence: |view, finding| {
        let (rate, partial) = (view.figures.rate, view.capture.partial);
        Some(if finding.candidates.is_some() {
            format!(
                "The sender offers no more: its data comes evenly, at {rate}, and neither the receiver nor the path \
                 holds it back. More was in flight at times, as of a program that catches up with its rate, or where \
                 a round trip took longer under a pace of its own."
            )
        } else {
            format!(
                "The sending program offers no more: it writes evenly, at {rate}, and {partial} of its packets hold no \
                 full segments; neither the receiver nor the path holds it back."
            )
        })
    },
    received_sentence: |arrivals, _| {
        let rate = arrivals.rate;
        format!(
            "The sender was asked for a rate and offered no more: {rate} arrives, and nothing holds it back."
        )
    },
    setting_remedies: |advice| vec![higher_rate(advice)],
    manual_remedies: &[ManualRemedy::new(
        "higher-rate",
        Scope::Application,
        "The sender keeps to the rate that it was asked for: ask for a higher one, or for none.",
    )],
    ..cause_of_writer(&["sender-application/rate-limited"], |figures, _| {
        format!(
            "The sending program was asked for {} and offered no more; neither network nor buffers held it back.",
            rate_text(figures.offered_rate())
        )
    })
};

/// Finds a sender that was asked for a rate and keeps to it, where its data arrives.
pub(crate) fn arrives_as_asked(arrivals: &ReceiverView) -> Option<Finding> {
    reaches_rate(arrivals, arrivals.evidence.request.rate, WHOLE_RATE_SHARE)
        .then(|| Finding::always(SenderApplicationVerdict::RateLimited))
}

/// Finds a sender that was asked for a rate and comes near to it, where nothing else shows that
/// would hold it back.
pub(crate) fn arrives_nearly_as_asked(arrivals: &ReceiverView) -> Option<Finding> {
    reaches_rate(arrivals, arrivals.evidence.request.rate, REACHED_RATE_SHARE)
        .then(|| Finding::always(SenderApplicationVerdict::RateLimited))
}

/// Returns true if the data arrives at `share` of the rate that each stream was asked for.
pub(crate) fn reaches_rate(arrivals: &ReceiverView, asked: Option<BitRate>, share: f64) -> bool {
    let streams = f64::from(arrivals.evidence.request.streams.max(1));
    asked.is_some_and(|rate| arrivals.rate >= rate.scale_by(share * streams))
}

/// Returns the sending program, if it was asked for a rate and reached all of it: whatever a buffer
/// looks like then, it holds nothing back.
pub(crate) fn as_asked(figures: &SenderView) -> Option<Finding> {
    let rate = figures.part?.rate;
    let reached = figures
        .offered_rate()
        .is_some_and(|asked| rate >= asked.scale_by(WHOLE_RATE_SHARE));
    reached.then(|| Finding::always(SenderApplicationVerdict::RateLimited))
}

pub(crate) fn keeps_to_a_rate(figures: &SenderView) -> bool {
    const NEARLY: f64 = 0.9;
    figures.offered_rate().is_some_and(|asked| {
        figures
            .part
            .is_none_or(|part| part.rate >= asked.scale_by(NEARLY))
    })
}

/// `None` where the load is another program's, which was asked for its rate by somebody else.
fn higher_rate(advice: &RemedyAdvice) -> Option<Remedy> {
    let rate = advice.evidence.request.rate?;
    let why = format!(
        "The load was asked to offer {rate} on each connection and keeps to it; without that it offers all that the \
         connection takes."
    );
    Some(advice.build_remedy(
        "higher-rate",
        Scope::Application,
        At::Sender,
        vec![Change::Rate(None)],
        why,
    ))
}

/// Shares of the data of a program that caught up with its rate which came a tenth faster than that
/// (simulated: 0.02 to 0.09; none behind a full link, whoever else uses it).
const CAUGHT_UP_SHARES: std::ops::RangeInclusive<f64> = 0.01..=0.15;
/// Share of the round trips since the last loss, most in flight of those with little by that of
/// those with much, and share of them without a queue, from which a sender has settled: a congestion
/// window would have grown, or filled a queue (simulated: 119 programs and 35 policers, and none of
/// 850 transfers with other limits).
const LONG_SETTLED_SHARE: f64 = 0.6;
const MIN_LEVEL_OF_SETTLED: f64 = 0.98;
const MIN_FREE_OF_SETTLED: f64 = 0.95;

/// Finds a sender whose data comes evenly at its rate and came clearly faster for a while: it
/// caught up with its rate, and no link spaces the data that far apart.
pub(crate) fn caught_up(view: &CaptureView) -> Option<Finding> {
    let rate = view.figures.rate;
    let even = view.capture.departures.filter(|even| {
        even.share.get() >= MIN_LIMIT_SHARE && even.rate <= rate.scale_by(MAX_PACE_FACTOR)
    })?;
    let was_faster = view.capture.sustained? >= rate.scale_by(FASTER_THAN_A_PACE)
        && CAUGHT_UP_SHARES.contains(&view.capture.faster?.get());
    // A policer lets a burst pass, too, and then discards. The headers of small segments fill a
    // link at a rate that others pass.
    let lost = view.figures.retransmitted_segments()?.segment_share();
    let found = was_faster
        && !view.is_at_sender()
        && lost.get() < MIN_LOSS_OF_PROBES
        && !policer::loses_in_many_round_trips(view)
        && mss_clamped::small_segments_of_sender(view.figures).is_none();
    found.then(|| Finding::new(SenderApplicationVerdict::RateLimited, even.share))
}

/// Finds a sender that has long had as much in flight as ever since, without a queue, and far
/// less than before: its windows would let it have more, and its program keeps to a rate. What
/// it had before met a queue, or nothing was lost; else a policer has taught it the rate.
pub(crate) fn settled_below(view: &CaptureView) -> Option<Finding> {
    let quiet = view.capture.quiet?;
    let found = quiet.share.get() >= LONG_SETTLED_SHARE
        && quiet.level.get() >= MIN_LEVEL_OF_SETTLED
        && quiet.free.get() >= MIN_FREE_OF_SETTLED
        && quiet.of_most?.get() < MIN_SHARE_OF_FULL_BUFFER;
    if !found {
        return None;
    }
    let queue = view.figures.idle_rtt?.scale_by(INFLATED_RTT_FACTOR);
    let samples = view.figures.flows.iter().flat_map(|flow| &flow.whole);
    let met_a_queue = samples.filter_map(|one| one.tcp.rtt).any(|rtt| rtt > queue);
    let cause: LegalVerdict = if view.ever_lost_on_path() && !met_a_queue {
        LossVerdict::Policer.into()
    } else {
        SenderApplicationVerdict::RateLimited.into()
    };
    Some(Finding::always(cause))
}
