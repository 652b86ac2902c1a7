//! Loss that holds the congestion window down.

use fullpipe_model::loss::CongestionControl;
use fullpipe_model::window;
use fullpipe_record::{At, Change, LossVerdict, Remedy, Scope};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::advice::RemedyAdvice;
use crate::figures::{RetransmittedSegments, SenderSampleFigures};
use crate::finding::LimitFinding;
use crate::limits::capacity::too_much_for_bbr;
use crate::limits::{LimitFacts, receiver_host};
use crate::losses;
use crate::machine::{self, HostDrops};
use crate::manual_remedy::ManualRemedy;
use crate::outlook::ChangeOutlook;
use crate::path::{stated_capacity, time_on_the_line};
use crate::policer_rate;
use crate::text::{self, BasicFacts, Row, time_text};
use crate::thresholds::{
    CLOCK_TICK, EXPLAINED_BY_LOSS_FACTOR, FULL_PIPE_SHARE, FULL_PIPE_SHARE_UNDER_BBR,
    MAX_LATER_LOSS_SHARE, MAX_LOSS_OF_PROBES, MAX_RTT_BEFORE_BURST, MAX_RTT_WITHOUT_QUEUE,
    MAX_RTT_WITHOUT_QUEUE_UNDER_BBR, MIN_BURST_SHARE, MIN_CUTS_WITHOUT_QUEUE,
    MIN_DISPERSION_OF_POLICER, MIN_LOSS_OF_PROBES, MIN_LOSSY_ROUND_TRIPS, MIN_RECOVERIES,
    MIN_RECOVERIES_BEFORE, PACE_SHARE, RTT_BEFORE_SHORT_QUEUE, SAME_PACE_FACTOR,
};

/// Finds loss that comes again and again, where the rate is not far below what the congestion
/// control makes of so much loss.
///
/// The rate may be far above: slow start leaves a window that takes a dozen losses to come down,
/// and each of them is the limit's doing. A single loss is none, as the window grows back from it.
pub(crate) fn find_loss(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
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
    let found = LimitFinding::new(cause, held);
    let is_seen = losses::follow_a_queue(&figures.flows) || fills_link_before(figures);
    explained.then(|| match cause {
        LossVerdict::ShallowQueue if !is_seen && losses::were_faster_before(&figures.flows) => {
            LimitFinding::new(LossVerdict::Policer, held).add_alternative(LossVerdict::ShallowQueue)
        }
        // No queue is seen to fill before the losses.
        LossVerdict::ShallowQueue if !is_seen => found.add_alternative(LossVerdict::Policer),
        _ => found,
    })
}

/// Finds loss that comes without a queue. It is asked before the bottleneck: under such loss the
/// rate may stand still as it does where the bottleneck is full.
pub(crate) fn without_queue(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
    find_policer(figures, held).or_else(|| policed_under_bbr(figures, held))
}

/// Finds a device that discards what exceeds a rate: it takes a large part of a burst, and the
/// packets before it met no queue. A sender that has learnt the rate loses little more; one that
/// meets a short queue loses at one and the same window.
fn find_policer(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
    let rtt = figures.rtt?;
    let burst = burst_without_queue(figures, rtt)?;
    let goes_on = losses::lost_later(&figures.flows).get();
    let fill_link = later_losses_fill_link(figures);
    let found = burst.share.get() >= MIN_BURST_SHARE
        && goes_on <= burst.share.get() * MAX_LATER_LOSS_SHARE
        && losses::lossy_round_trips(&figures.flows, rtt) >= MIN_LOSSY_ROUND_TRIPS
        && !lost_at_one_window(figures)
        && !losses::come_at_any_window(&figures.flows)
        && !losses::follow_a_queue(&figures.flows)
        && fill_link != Some(true);
    let policer = LimitFinding::new(LossVerdict::Policer, held);
    // Slow start alone may overflow a short queue in the same way.
    found.then(|| match fill_link {
        Some(_) => policer,
        // A queue would lose its probes again and again.
        None if bbr_keeps_to_a_pace(figures) => policer,
        None => policer.add_alternative(LossVerdict::ShallowQueue),
    })
}

/// Returns the worst burst that met no queue. Where a queue stood before the worst one, the link
/// may have been full until a large bucket was empty: then a later burst shows the policer, or that
/// the sender must take its window back again and again although the queue is gone.
fn burst_without_queue(figures: &SenderSampleFigures, rtt: Span) -> Option<losses::LossBurst> {
    let flows = &figures.flows;
    let worst = losses::worst_burst(flows, rtt, |_| true)?;
    if is_without_queue(figures, worst.rtt)
        || losses::cuts_without_queue(flows, rtt, |rtt| is_without_queue(figures, rtt))
            >= MIN_CUTS_WITHOUT_QUEUE
    {
        return Some(worst);
    }
    losses::worst_burst(flows, rtt, |burst| {
        burst.is_first && is_without_queue(figures, burst.rtt)
    })
}

/// Finds the same under BBR, which does not learn the rate but tries again and again to exceed it:
/// a link would queue its probes, a policer discards them.
fn policed_under_bbr(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
    let mut round_trips: Vec<Span> = figures
        .snapshots()
        .filter_map(|snapshot| snapshot.sample.tcp.rtt)
        .collect();
    round_trips.sort_unstable();
    let lost = figures.retransmitted_segments()?.segment_share().get();
    // What loses more than its probes exceed the rate by would find a queue at any time.
    let percentile = if lost >= MAX_LOSS_OF_PROBES { 50 } else { 90 };
    let long = *round_trips.get(round_trips.len() * percentile / 100)?;
    // Over a few milliseconds the usual idle round trip is clearly longer than the shortest.
    let idle = figures
        .idle_rtt?
        .max(figures.evidence.idle_rtt.unwrap_or_default());
    // Where the idle path was not measured, its time is that of packets which were sent again, in
    // whole milliseconds.
    let tick = if lost >= MAX_LOSS_OF_PROBES && figures.evidence.is_of_another_program() {
        CLOCK_TICK
    } else {
        Span::ZERO
    };
    let met_no_queue =
        long <= idle.scale_by(MAX_RTT_WITHOUT_QUEUE_UNDER_BBR) + time_on_the_line(figures)? + tick;
    let goes_on = lost >= MIN_LOSS_OF_PROBES || bbr_keeps_to_a_pace(figures);
    let less_than_stated = stated_capacity(figures)
        .is_none_or(|stated| figures.rate < stated.scale_by(FULL_PIPE_SHARE_UNDER_BBR));
    let found = figures.is_bbr()
        && figures.part.is_some()
        && met_no_queue
        && goes_on
        && less_than_stated
        && (!too_much_for_bbr(figures) || come_in_large_bursts(figures));
    found.then(|| LimitFinding::new(LossVerdict::Policer, held))
}

/// Finds a policer behind a window or a buffer that is full under BBR: what it discards again and
/// again stays there until it has arrived.
pub(crate) fn policed_behind_window(
    figures: &SenderSampleFigures,
    held: Ratio,
) -> Option<LimitFinding> {
    let lost = figures.retransmitted_segments()?.segment_share().get();
    policed_under_bbr(figures, held)
        .filter(|_| lost >= MIN_LOSS_OF_PROBES && come_in_large_bursts(figures))
}

/// Returns true if losses come as a policer makes them of large windows: many in some round trips,
/// and few in others. Chance takes packets evenly.
fn come_in_large_bursts(figures: &SenderSampleFigures) -> bool {
    let dispersion = figures.flows.iter().map(losses::loss_dispersion);
    dispersion.fold(0.0, f64::max) >= MIN_DISPERSION_OF_POLICER
}

/// Returns the cause of loss: a policer takes many segments at once and lets no queue grow, a queue
/// that is too short loses at one and the same window and delays what it holds, loss at random does
/// neither.
fn cause_of_loss(figures: &SenderSampleFigures) -> LossVerdict {
    let met_no_queue = matches!(figures.rtt, Some(rtt) if is_without_queue(figures, rtt));
    if figures.is_bbr() {
        return if met_no_queue && bbr_knows_the_rate(figures) {
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
    let is_rate = losses::take_a_part_of_windows(&figures.flows) && !fills_link_before(figures);
    if is_rate {
        return LossVerdict::Policer;
    }
    let in_bursts = began_with_a_burst(figures);
    let is_one_size = may_be_short && (in_bursts || lost_at_one_window(figures));
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

/// Returns true if slow start ended with a burst of losses in front of which no queue stood, and
/// later losses came at windows that are much alike: a device lets no more than that pass. Chance
/// takes no large part of a burst.
fn began_with_a_burst(figures: &SenderSampleFigures) -> bool {
    let longest = figures.idle_rtt.zip(time_on_the_line(figures));
    let longest =
        longest.map(|(idle, on_the_line)| idle.scale_by(MAX_RTT_BEFORE_BURST) + on_the_line);
    let burst = longest.is_some_and(|longest| losses::began_with_a_burst(&figures.flows, longest));
    burst && !losses::come_at_any_window(&figures.flows)
}

/// Returns true if a queue delays the packets before losses, or the data is then as fast as the
/// stated bandwidth: a policer delays nothing, and discards what is slower than the link.
fn queue_before_losses(figures: &SenderSampleFigures) -> bool {
    fills_link_before(figures) || are_delayed(figures)
}

/// Returns true if the data is usually as fast as the stated bandwidth before losses.
fn fills_link_before(figures: &SenderSampleFigures) -> bool {
    let enough = stated_capacity(figures).map(|stated| stated.scale_by(FULL_PIPE_SHARE));
    enough
        .zip(losses::usual_rate_before(&figures.flows))
        .is_some_and(|(enough, rate)| rate >= enough)
}

/// Returns true if all losses that do not follow the first ones come at the rate of the stated
/// bandwidth; `None` where there are none. A policer whose bucket is empty takes packets at its own
/// rate, and a short queue at the link's.
fn later_losses_fill_link(figures: &SenderSampleFigures) -> Option<bool> {
    let enough = stated_capacity(figures)
        .map(|stated| stated.scale_by(FULL_PIPE_SHARE / f64::from(figures.stream_count())));
    let later = losses::before_later_losses(&figures.flows, figures.rtt.unwrap_or_default());
    let mut rates = later.iter().map(|sample| sample.tcp.delivery_rate);
    (!later.is_empty()).then(|| rates.all(|rate| enough.is_some() && rate >= enough))
}

/// Returns true if the packets before losses usually wait on the path.
fn are_delayed(figures: &SenderSampleFigures) -> bool {
    let waited = figures
        .idle_rtt
        .map(|idle| idle.scale_by(RTT_BEFORE_SHORT_QUEUE));
    losses::usual_rtt_before(&figures.flows)
        .zip(waited)
        .is_some_and(|(rtt, waited)| rtt >= waited)
}

/// Returns true if BBR lost much at first and nothing since: it looks for a policer, and then keeps
/// to the rate that it found (`bbr_lt_bw_sampling`).
fn bbr_knows_the_rate(figures: &SenderSampleFigures) -> bool {
    let lately = figures
        .retransmitted_segments()
        .is_some_and(|lost| lost.again > 0);
    let in_all = figures
        .lost_segments()
        .is_some_and(|lost| lost.segment_share().get() >= MIN_LOSS_OF_PROBES);
    figures.part.is_some() && in_all && !lately
}

/// Returns true if BBR does not even probe for more than the rate that it found so.
fn bbr_keeps_to_a_pace(figures: &SenderSampleFigures) -> bool {
    let paces: Vec<BitRate> = figures
        .snapshots()
        .filter_map(|snapshot| snapshot.sample.tcp.pacing_rate)
        .collect();
    let [least, most] =
        [paces.iter().min(), paces.iter().max()].map(|pace| pace.copied().unwrap_or_default());
    bbr_knows_the_rate(figures) && most > BitRate::ZERO && most <= least.scale_by(SAME_PACE_FACTOR)
}

/// Returns true if a round trip of `rtt` shows no queue that fills before a loss, where the idle
/// path's is known.
fn is_without_queue(figures: &SenderSampleFigures, rtt: Span) -> bool {
    figures
        .idle_rtt
        .zip(time_on_the_line(figures))
        .is_some_and(|(idle, line)| rtt <= idle.scale_by(MAX_RTT_WITHOUT_QUEUE) + line)
}

/// Returns true if losses came at one window. Under BBR that says nothing: its window stays the
/// same by itself.
fn lost_at_one_window(figures: &SenderSampleFigures) -> bool {
    !figures.is_bbr()
        && losses::come_at_one_window(
            &figures.flows,
            figures.congestion_control() == Some("reno"),
            are_delayed(figures),
        )
}

/// Returns the rates of all streams that the congestion control reaches if each lost packet counts,
/// and if all that are lost in one recovery count once; `None` where loss does not bound it.
pub(crate) fn rates_under_loss(
    figures: &SenderSampleFigures,
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

pub(crate) fn loss_window(figures: &SenderSampleFigures, loss: Ratio) -> Option<ByteCount> {
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

/// The figures of losses.
pub(crate) struct LossFacts {
    verdict: LossVerdict,
    basics: BasicFacts,
    lost: Option<RetransmittedSegments>,
    dropped: Option<HostDrops>,
    shown: Vec<Row>,
}

impl LossFacts {
    pub(crate) fn from_figures(verdict: LossVerdict, figures: &SenderSampleFigures) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            lost: figures.lost_segments(),
            dropped: HostDrops::of_receiver(&figures.evidence.receiver_machine),
            shown: text::of_path(figures),
        }
    }

    fn drops_of_receiver(&self, lost: &str) -> String {
        format!(
            "The receiving host drops packets that have reached it: {}; {lost} were lost, which leaves {} over {}{}.",
            machine::drops_text(self.dropped),
            self.basics.rate,
            time_text(self.basics.rtt),
            self.basics.could_carry(),
        )
    }
}

impl LimitFacts for LossFacts {
    fn sentence(&self) -> String {
        let share = self.lost.map_or_else(
            || "some of the packets".to_owned(),
            RetransmittedSegments::text,
        );
        let pattern = match self.verdict {
            LossVerdict::ShallowQueue => {
                "always at the same amount in flight: a queue on the path is too short"
            }
            LossVerdict::Policer => {
                "many at once and without a queue that fills: a device discards what exceeds a rate"
            }
            LossVerdict::Random => "without a queue that fills",
            LossVerdict::ReceiverHost => return self.drops_of_receiver(&share),
        };
        format!(
            "Packet loss holds the sender back: {share} were lost, {pattern}; that leaves {} over {}{}.",
            self.basics.rate,
            time_text(self.basics.rtt),
            self.basics.could_carry(),
        )
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("whether that host drops packets that reached it (ip -s link, softnet_stat, nstat)")
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let pace = match self.verdict {
            LossVerdict::Policer => pace_below_the_policer(advice),
            LossVerdict::ShallowQueue => pace_below_the_bottleneck(advice),
            LossVerdict::Random => None,
            // Several connections only come in larger bursts.
            LossVerdict::ReceiverHost => {
                return [advice.bbr_remedy(), pace_below_the_receiver(advice)]
                    .into_iter()
                    .flatten()
                    .collect();
            }
        };
        [advice.bbr_remedy(), advice.parallel_streams(), pace]
            .into_iter()
            .flatten()
            .collect()
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            LossVerdict::Policer => &[ManualRemedy {
                id: "pace-below-the-policer",
                scope: Scope::Socket,
                at: Some(At::Sender),
                why: "The policer discards what exceeds its rate: a maximum pace a little below that rate loses \
                      nothing.",
            }],
            LossVerdict::ShallowQueue => &[ManualRemedy {
                id: "longer-queue-on-the-path",
                scope: Scope::Path,
                at: None,
                why: "The queue of the bottleneck is shorter than the bursts: a longer queue there, or a sender that \
                      paces (fq, or a maximum pace), loses less.",
            }],
            LossVerdict::ReceiverHost => receiver_host::remedies(self.dropped),
            LossVerdict::Random => &[ManualRemedy {
                id: "mend-the-path",
                scope: Scope::Path,
                at: None,
                why: "Loss without a full queue has a cause: dirty optics, a bad cable, a duplex mismatch, radio.",
            }],
        }
    }
}

/// `None` where no rate is known to pass.
fn pace_below_the_receiver(advice: &RemedyAdvice) -> Option<Remedy> {
    let known = policer_rate::lower_bound(advice.figures)?;
    let why = format!(
        "The receiving host drops packets of bursts, and is known to take {known} of data: with a maximum pace a little \
         below that no burst is longer than the packets of a millisecond."
    );
    pace_below(advice, known, "pace-below-the-receiver", why)
}

/// `None` where the policer's rate does not show.
fn pace_below_the_policer(advice: &RemedyAdvice) -> Option<Remedy> {
    let known = policer_rate::lower_bound(advice.figures)?;
    let why = format!(
        "The policer discards what exceeds its rate, and is known to let {known} of data pass: a maximum pace a little \
         below that loses nothing. The policer may let more pass than a sender that it holds down has shown."
    );
    pace_below(advice, known, "pace-below-the-policer", why)
}

/// `None` where the bottleneck's rate was not stated and does not show.
pub(crate) fn pace_below_the_bottleneck(advice: &RemedyAdvice) -> Option<Remedy> {
    let stated = advice
        .outlook
        .as_ref()
        .and_then(ChangeOutlook::stated_capacity);
    let known = stated.or_else(|| policer_rate::lower_bound(advice.figures))?;
    let why = format!(
        "The queue of the bottleneck is shorter than the bursts, and {known} of data passes it: with a maximum pace a \
         little below that no burst is longer than the packets of a millisecond, which may still be more than the \
         queue holds."
    );
    pace_below(advice, known, "pace-below-the-bottleneck", why)
}

/// `None` where the load is another program's.
fn pace_below(advice: &RemedyAdvice, known: BitRate, id: &str, why: String) -> Option<Remedy> {
    let streams = advice.evidence.request.streams.max(1);
    let pace = known.scale_by(PACE_SHARE / f64::from(streams));
    let changes = vec![Change::MaxPacingRate(Some(pace))];
    let ours = !advice.evidence.is_of_another_program() && pace > BitRate::ZERO;
    ours.then(|| advice.build_remedy(id, Scope::Socket, At::Sender, changes, why))
}
