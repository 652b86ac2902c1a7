//! A congestion window that is small, though no loss holds it down now.

use fullpipe_record::{At, CongestionWindowVerdict, LossVerdict, Remedy, Scope, TcpInfo};
use fullpipe_units::{ByteCount, Ratio, SegCount, Span};

use crate::advice::RemedyAdvice;
use crate::figures::SenderSampleFigures;
use crate::finding::LimitFinding;
use crate::limits::{LimitFacts, loss, receive_window};
use crate::losses;
use crate::manual_remedy::ManualRemedy;
use crate::path::mean_trend;
use crate::ramp::is_slow_start;
use crate::text::{self, BasicFacts, Row, size_text, time_text};
use crate::thresholds::{
    MANY_RETRANSMISSIONS, MIN_NEEDLESS_OF_REORDERED, MIN_NEEDLESS_SHARE, MIN_REORDERED,
    MIN_REORDERED_SHARE, REGROWN_WINDOW_FACTOR,
};

/// Finds a congestion window that the sender holds down though little was lost.
pub(crate) fn held_without_loss(
    figures: &SenderSampleFigures,
    held: Ratio,
) -> Option<LimitFinding> {
    is_reordered(figures).then(|| LimitFinding::new(CongestionWindowVerdict::Reordering, held))
}

/// Returns true if packets are late and not lost: many of the retransmitted ones had arrived
/// already (RFC 2883), or the kernel saw some overtake others. Where nothing was retransmitted,
/// nothing late was taken for lost; and where hardly any of many had arrived already, those that
/// were retransmitted had been lost.
fn is_reordered(figures: &SenderSampleFigures) -> bool {
    let again = total_of_flows(figures, |tcp| tcp.total_retrans);
    let needless = total_of_flows(figures, |tcp| tcp.dsack_dups);
    let seen = total_of_flows(figures, |tcp| tcp.reorder_events);
    let is_share_of = |count: u64, share: f64| count as f64 >= again as f64 * share;
    let knows_needless = last_samples(figures).any(|tcp| tcp.dsack_dups.is_some());
    let were_lost = knows_needless
        && again >= MANY_RETRANSMISSIONS
        && !is_share_of(needless, MIN_NEEDLESS_OF_REORDERED);
    let is_late = |count: u64, share: f64| count >= MIN_REORDERED && is_share_of(count, share);
    again > 0
        && (is_late(needless, MIN_NEEDLESS_SHARE)
            || !were_lost && is_late(seen, MIN_REORDERED_SHARE))
}

/// Returns the last value of a counter, in the sum of all streams.
fn total_of_flows(figures: &SenderSampleFigures, count: fn(&TcpInfo) -> Option<SegCount>) -> u64 {
    let counts = last_samples(figures).filter_map(count);
    counts.fold(0, |sum, more| sum.saturating_add(more.get()))
}

/// Returns the last figures of each stream.
fn last_samples<'f>(figures: &'f SenderSampleFigures<'_>) -> impl Iterator<Item = &'f TcpInfo> {
    let flows = figures.flows.iter();
    flows.filter_map(|flow| Some(&flow.whole.last()?.tcp))
}

/// Finds a transfer that ended, or ran out of data, before its congestion window had grown.
pub(crate) fn ended_early(figures: &SenderSampleFigures) -> Option<LimitFinding> {
    let (rtt, mss) = (figures.rtt?, figures.mss?);
    let only_slow_start = figures
        .flows
        .iter()
        .all(|flow| is_slow_start(&flow.whole, |sample| sample.tcp.bytes_acked, mss, rtt));
    let found = figures.part.is_none()
        && !figures.ever_lost()
        && only_slow_start
        && receive_window::find_receive_window(figures).is_none();
    found.then(|| LimitFinding::new(CongestionWindowVerdict::RampUp, Ratio::ONE))
}

/// Finds a congestion window that neither loss nor a queue holds down now.
pub(crate) fn find_growth(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
    let grows = mean_trend(figures, |snapshot| snapshot.cwnd)
        .is_some_and(|trend| trend >= REGROWN_WINDOW_FACTOR);
    let cause = if in_slow_start(figures) || (figures.part.is_none() && !figures.ever_lost()) {
        grows.then_some(CongestionWindowVerdict::RampUp)
    } else if figures.ever_lost() {
        // A window that losses set and that stands still does so near its last peak, where CUBIC
        // waits before it probes for more. BBR's is not set by them.
        (grows || !figures.is_bbr()).then_some(CongestionWindowVerdict::Recovering)
    } else {
        grows.then_some(CongestionWindowVerdict::EarlyExit)
    };
    Some(LimitFinding::new(cause?, held))
}

/// Finds the same, with what may have taken the packets before: a few losses do not show it. Chance
/// takes no large part of a burst.
pub(crate) fn find_growth_after_loss(
    figures: &SenderSampleFigures,
    held: Ratio,
) -> Option<LimitFinding> {
    let found = find_growth(figures, held)?;
    if found.verdict != CongestionWindowVerdict::Recovering.into() {
        return Some(found);
    }
    let in_a_burst = losses::began_with_a_burst(&figures.flows, Span::MAX);
    Some(found.add_alternative(if in_a_burst {
        LossVerdict::Policer
    } else {
        LossVerdict::Random
    }))
}

fn in_slow_start(figures: &SenderSampleFigures) -> bool {
    let last = figures
        .flows
        .iter()
        .filter_map(|flow| flow.snapshots.last());
    let mut cwnds =
        last.filter_map(|snapshot| Some((snapshot.sample.tcp.cwnd?, snapshot.sample.tcp.ssthresh)));
    cwnds.any(|(cwnd, ssthresh)| ssthresh.is_none_or(|ssthresh| cwnd < ssthresh))
}

/// The figures of a congestion window.
pub(crate) struct CongestionWindowFacts {
    verdict: CongestionWindowVerdict,
    basics: BasicFacts,
    window: Option<ByteCount>,
    shown: Vec<Row>,
}

impl CongestionWindowFacts {
    pub(crate) fn from_figures(
        verdict: CongestionWindowVerdict,
        figures: &SenderSampleFigures,
    ) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            window: figures.mean_size(|snapshot| snapshot.cwnd),
            shown: text::of_path(figures),
        }
    }
}

impl LimitFacts for CongestionWindowFacts {
    fn sentence(&self) -> String {
        let (window, rtt) = (size_text(self.window), time_text(self.basics.rtt));
        match self.verdict {
            CongestionWindowVerdict::RampUp => format!(
                "The transfer was still speeding up when it ended: a sender starts slowly and doubles each round trip \
                 ({rtt})."
            ),
            CongestionWindowVerdict::Reordering => format!(
                "Packets overtake each other, and the sender takes the late ones for lost: it keeps {window} in flight."
            ),
            CongestionWindowVerdict::Recovering => format!(
                "The sender still recovers from an earlier loss: it allows {window} in flight and adds to it each \
                 {rtt}."
            ),
            CongestionWindowVerdict::EarlyExit => format!(
                "The sender left slow start early, though nothing was lost: it allows {window} in flight and adds \
                 slowly."
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let bbr = match self.verdict {
            CongestionWindowVerdict::RampUp => None,
            CongestionWindowVerdict::EarlyExit
            | CongestionWindowVerdict::Recovering
            | CongestionWindowVerdict::Reordering => advice.bbr_remedy(),
        };
        // A short queue may have taken the packets: a pace overflows none.
        let pace = (self.verdict == CongestionWindowVerdict::Recovering)
            .then(|| loss::pace_below_the_bottleneck(advice))
            .flatten();
        [Some(longer_transfer(advice)), bbr, pace]
            .into_iter()
            .flatten()
            .collect()
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            CongestionWindowVerdict::Reordering => &[ManualRemedy {
                id: "keep-the-order",
                scope: Scope::Path,
                at: None,
                why: "Packets of one connection should take one way: check for links that are balanced packet by \
                      packet.",
            }],
            CongestionWindowVerdict::RampUp
            | CongestionWindowVerdict::EarlyExit
            | CongestionWindowVerdict::Recovering => &[],
        }
    }
}

fn longer_transfer(advice: &RemedyAdvice) -> Remedy {
    let ramp = advice
        .outlook
        .as_ref()
        .map(|outlook| outlook.predict_changes(&[]).ramp);
    let why = match ramp.filter(|ramp| ramp.rounds > 0) {
        Some(ramp) => format!(
            "At best {} round trips, {}, pass before this path is full; a longer transfer spends less of its time on \
             that.",
            ramp.rounds, ramp.duration
        ),
        None => "The longer a transfer, the less of its time is spent on speeding up.".to_owned(),
    };
    advice.build_remedy(
        "longer-transfer",
        Scope::Application,
        At::Sender,
        Vec::new(),
        why,
    )
}
