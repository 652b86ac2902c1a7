//! Loss that holds the congestion window down.

use fullpipe_model::loss::CongestionControl;
use fullpipe_model::window;

use crate::limits::ReceiverSentence;
use crate::limits::congestion_window::growth::AFTER_A_BURST;
use crate::limits::loss::policer::{self, POLICER_OR_QUEUE};
use crate::limits::prelude::*;
use crate::signals::path::time_on_the_line;
use crate::signals::{RetransmittedSegments, losses};
use crate::text;
use crate::thresholds::{EXPLAINED_BY_LOSS_FACTOR, MIN_RECOVERIES};

/// Recoveries that are recurring loss where none is in the judged part.
///
/// Slow start that overshoots may need a second recovery, but not a third.
const MIN_RECOVERIES_BEFORE: u64 = 3;

/// Finds loss that comes again and again, where the rate is not far below what the congestion
/// control makes of so much loss.
///
/// The rate may be far above: slow start leaves a window that takes a dozen losses to come down,
/// and each of them is the limit's doing. A single loss is none, as the window grows back from it.
pub(crate) fn find_loss(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let lost = figures.lost_segments().filter(|lost| lost.again > 0)?;
    let (low, _) = rates_under_loss(figures, lost)?;
    let lately = figures
        .retransmitted_segments()
        .is_some_and(|lost| lost.again > 0);
    let enough = if lately {
        MIN_RECOVERIES
    } else {
        MIN_RECOVERIES_BEFORE
    };
    let recurs = figures.flows.iter().map(losses::episodes_in_all).max()? >= enough;
    let explained = figures.is_bbr()
        || (recurs && low.scale_by(1.0 / EXPLAINED_BY_LOSS_FACTOR) <= figures.rate);
    let cause = cause_of_loss(figures);
    let found = Finding::new(cause, held);
    let is_seen = losses::follow_a_queue(&figures.flows) || policer::fills_link_before(figures);
    explained.then(|| match cause {
        LossVerdict::ShallowQueue if !is_seen && losses::were_faster_before(&figures.flows) => {
            Finding::new(LossVerdict::Policer, held).one_of(&POLICER_OR_QUEUE)
        }
        // No queue is seen to fill before the losses.
        LossVerdict::ShallowQueue if !is_seen => found.one_of(&AFTER_A_BURST),
        _ => found,
    })
}

/// Returns the cause of loss: a policer takes many segments at once and lets no queue grow, a queue
/// that is too short loses at one and the same window and delays what it holds, loss at random does
/// neither.
fn cause_of_loss(figures: &SenderView) -> LossVerdict {
    let met_no_queue = matches!(figures.rtt, Some(rtt) if policer::is_without_queue(figures, rtt));
    if figures.is_bbr() {
        return if met_no_queue && policer::bbr_knows_the_rate(figures) {
            LossVerdict::Policer
        } else {
            LossVerdict::Random
        };
    }
    // What holds far more at other times is no short queue.
    let may_be_short = !losses::larger_windows_pass(&figures.flows);
    if may_be_short && losses::follow_a_queue(&figures.flows) {
        return LossVerdict::ShallowQueue;
    }
    let is_rate =
        losses::take_a_part_of_windows(&figures.flows) && !policer::fills_link_before(figures);
    if is_rate {
        return LossVerdict::Policer;
    }
    let in_bursts = began_with_a_burst(figures);
    let is_one_size = may_be_short && (in_bursts || policer::lost_at_one_window(figures));
    let at_once = met_no_queue && losses::come_many_at_once(&figures.flows);
    if !is_one_size && !at_once {
        LossVerdict::Random
    } else if may_be_short
        && (!met_no_queue || !(in_bursts || at_once) || queue_before_losses(figures))
    {
        LossVerdict::ShallowQueue
    } else {
        LossVerdict::Policer
    }
}

/// Multiple of the idle round-trip time up to which the burst that ends slow start met no queue
/// (measured: 1.03 to 1.05; 1.3 and more at a full link).
const MAX_RTT_BEFORE_BURST: f64 = 1.1;

/// Returns true if slow start ended with a burst of losses in front of which no queue stood, and
/// later losses came at windows that are much alike: a device lets no more than that pass. Chance
/// takes no large part of a burst.
pub(crate) fn began_with_a_burst(figures: &SenderView) -> bool {
    let longest = figures.idle_rtt.zip(time_on_the_line(figures));
    let longest =
        longest.map(|(idle, on_the_line)| idle.scale_by(MAX_RTT_BEFORE_BURST) + on_the_line);
    let burst = longest.is_some_and(|longest| losses::began_with_a_burst(&figures.flows, longest));
    burst && !losses::come_at_any_window(&figures.flows)
}

/// Returns true if a queue delays the packets before losses, or the data is then as fast as the
/// stated bandwidth: a policer delays nothing, and discards what is slower than the link.
fn queue_before_losses(figures: &SenderView) -> bool {
    policer::fills_link_before(figures) || policer::are_delayed(figures)
}

/// Returns the rates of all streams that the congestion control reaches if each lost packet counts,
/// and if all that are lost in one recovery count once; `None` where loss does not bound it.
pub(crate) fn rates_under_loss(
    figures: &SenderView,
    lost: RetransmittedSegments,
) -> Option<(BitRate, BitRate)> {
    let [by_packet, by_episode] = [lost.segment_share(), lost.episode_ratio()].map(|loss| {
        Some(
            window::rate_of_window(loss_window(figures, loss)?, figures.rtt?)
                .scale_by(figures.stream_count().into()),
        )
    });
    Some((by_packet?, by_episode.max(by_packet)?))
}

pub(crate) fn loss_window(figures: &SenderView, loss: Ratio) -> Option<ByteCount> {
    let unnamed = if figures.is_bbr() {
        CongestionControl::Bbr
    } else {
        CongestionControl::Cubic
    };
    let control = figures
        .congestion_control()
        .and_then(CongestionControl::from_name)
        .unwrap_or(unnamed);
    control.mean_window(loss, figures.rtt?, figures.mss?)
}

/// Returns a cause of loss, with what is said of it from the sending end and from the receiving one.
pub(crate) const fn cause_of_losses(
    names: CauseNames,
    sentence: SenderSentence,
    received_sentence: ReceiverSentence,
) -> Cause {
    Cause {
        received_sentence,
        shown_rows: text::of_path,
        other_end_would_show: Some(
            "whether that host drops packets that reached it (ip -s link, softnet_stat, nstat)",
        ),
        ..Cause::new(names, sentence)
    }
}

/// Returns the sentence on losses that come in such a pattern.
pub(crate) fn loss_sentence(figures: &SenderView, pattern: &str) -> String {
    format!(
        "Packet loss holds the sender back: {} were lost, {pattern}; that leaves {} over {}{}.",
        lost_text(figures),
        figures.rate,
        time_text(figures.rtt),
        text::could_carry(figures),
    )
}

/// Returns how much was lost.
pub(crate) fn lost_text(figures: &SenderView) -> String {
    figures.lost_segments().map_or_else(
        || "some of the packets".to_owned(),
        RetransmittedSegments::text,
    )
}

/// Share of the rate above which packets are dropped that a pace keeps to; the rest is room for
/// uneven pacing (a choice, not measured).
const PACE_SHARE: f64 = 0.95;

/// `None` where the load is another program's.
pub(crate) fn pace_below(
    advice: &RemedyAdvice,
    known: BitRate,
    id: &str,
    why: String,
) -> Option<Remedy> {
    let streams = advice.evidence.request.streams.max(1);
    let pace = known.scale_by(PACE_SHARE / f64::from(streams));
    let changes = vec![Change::MaxPacingRate(Some(pace))];
    let ours = !advice.evidence.is_of_another_program() && pace > BitRate::ZERO;
    ours.then(|| advice.build_remedy(id, Scope::Socket, At::Sender, changes, why))
}
