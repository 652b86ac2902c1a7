//! Senders that keep to a pace below what their windows allow.

use fullpipe_model::framing;
use fullpipe_model::window;
use fullpipe_record::{At, Change, IpVersion, PacingVerdict, QdiscReport, Remedy, Scope, TcpInfo};
use fullpipe_units::{BitRate, ByteCount, Ratio, median};

use crate::advice::RemedyAdvice;
use crate::figures::{SenderSampleFigures, share_of_votes};
use crate::finding::LimitFinding;
use crate::limits::{LimitFacts, capacity};
use crate::machine;
use crate::manual_remedy::ManualRemedy;
use crate::text::{self, BasicFacts, Row, rate_text, size_text};
use crate::thresholds::{
    CLEARLY_LOWER_SHARE, MAX_RATE_OF_DISCIPLINE, MAX_USE_BEHIND_OWN_QUEUE, MIN_LIMIT_SHARE,
    PACE_PERCENT, REACHED_RATE_SHARE, SEGMENT_TRAIN, SLOW_START_PACE_PERCENT, WHOLE_RATE_SHARE,
};

/// Returns the maximum pace of the sockets (`SO_MAX_PACING_RATE`) as the limit, if they reach all
/// of it; or nearly all, and no queue stands on the path: headers and waiting may take the rest,
/// and so may a full link that carries no more.
pub(crate) fn by_program(figures: &SenderSampleFigures) -> Option<LimitFinding> {
    let set = max_pace(figures)?;
    let share = if capacity::rtt_is_inflated(figures) {
        WHOLE_RATE_SHARE
    } else {
        REACHED_RATE_SHARE
    };
    (figures.rate >= set.scale_by(share))
        .then(|| LimitFinding::new(PacingVerdict::MaxPacingRate, Ratio::ONE))
}

/// Returns the maximum pace that the program set, all streams together; `None` where a stream has
/// none.
fn max_pace(figures: &SenderSampleFigures) -> Option<BitRate> {
    figures
        .flows
        .iter()
        .map(|flow| flow.snapshots.last()?.sample.tcp.max_pacing_rate)
        .sum()
}

/// Returns the pace of the congestion control as the limit, if it left the congestion window
/// clearly unused while data waited.
///
/// Not BBR's: it paces at the rate that it measured, so that its pace is the path's.
pub(crate) fn below_window(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
    let unused = figures.snapshots().map(|snapshot| {
        Some(snapshot.sample.pipe_bytes()? < snapshot.cwnd?.scale_by(CLEARLY_LOWER_SHARE))
    });
    let unused = share_of_votes(unused).filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    let pace = mean_pace(figures)?;
    (!figures.is_bbr() && figures.rate >= pace.scale_by(REACHED_RATE_SHARE)).then(|| {
        let share = if unused < held { unused } else { held };
        LimitFinding::new(PacingVerdict::CongestionControl, share)
    })
}

/// Returns a queueing discipline of the host as the limit, if the congestion window was far from
/// used while data waited: a stream leaves no more than a millisecond of packets in its host's
/// queue (`tcp_small_queue_check`), and waits for a discipline that holds them. Its report may not
/// show it, as where it was removed before the end.
pub(crate) fn held_in_host(figures: &SenderSampleFigures, held: Ratio) -> Option<LimitFinding> {
    let votes = figures.snapshots().map(|snapshot| {
        let is_far =
            snapshot.sample.pipe_bytes()? < snapshot.cwnd?.scale_by(MAX_USE_BEHIND_OWN_QUEUE);
        Some(
            is_far
                && snapshot.not_sent? > SEGMENT_TRAIN
                && snapshot.fills_window(false) == Some(false),
        )
    });
    let waits = share_of_votes(votes).filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    let may_be = !figures.is_bbr() && figures.part.is_some();
    may_be.then(|| {
        LimitFinding::new(
            PacingVerdict::Qdisc,
            if waits < held { waits } else { held },
        )
    })
}

/// Returns the percent of window ÷ round trip at which the kernel paced, in slow start and after
/// it, as its median; `None` of a part that no sample shows. A pace that was cut to the program's
/// maximum says nothing.
fn pacing_percents(figures: &SenderSampleFigures) -> [Option<u32>; 2] {
    [true, false].map(|part| {
        let flows = figures.flows.iter();
        median(
            flows
                .flat_map(|flow| &flow.whole)
                .map(|sample| &sample.tcp)
                .filter(|tcp| paces_as_in_slow_start(tcp) == part)
                .filter_map(pacing_percent)
                .collect(),
        )
    })
}

/// Returns true if the kernel paced as in slow start: by `tcp_update_pacing_rate`, which takes a stream to be in slow start while its window is less
/// than half of `ssthresh`.
fn paces_as_in_slow_start(tcp: &TcpInfo) -> bool {
    tcp.ssthresh
        .is_none_or(|ssthresh| tcp.cwnd.is_some_and(|cwnd| cwnd * 2 < ssthresh))
}

fn pacing_percent(tcp: &TcpInfo) -> Option<u32> {
    let pace = tcp
        .pacing_rate
        .filter(|pace| tcp.max_pacing_rate.is_none_or(|most| *pace < most))?;
    let unpaced = window::rate_of_window(tcp.congestion_window()?, tcp.rtt?);
    (unpaced > BitRate::ZERO).then(|| (pace.relative_to(unpaced) * 100.0).round() as u32)
}

/// Returns the mean pace of all streams together, as the kernel last computed it.
fn mean_pace(figures: &SenderSampleFigures) -> Option<BitRate> {
    figures
        .flows
        .iter()
        .map(|flow| {
            let rates: Vec<f64> = flow
                .snapshots
                .iter()
                .filter_map(|snapshot| Some(snapshot.sample.tcp.pacing_rate?.as_f64()))
                .collect();
            (!rates.is_empty())
                .then(|| BitRate::from_bps_f64(rates.iter().sum::<f64>() / rates.len() as f64))
        })
        .sum()
}

/// Returns the sending host's own queueing discipline, if it holds packets to a rate, so that a
/// path only seems full.
pub(crate) fn find_cause(
    figures: &SenderSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
    let device = machine::suspected_device(figures, found)?;
    let holds = device
        .qdiscs
        .iter()
        .any(|qdisc| qdisc_holds(figures, qdisc));
    holds.then(|| found.as_verdict(PacingVerdict::Qdisc))
}

/// Returns true if a queueing discipline that made packets wait sends as much as its rate allows:
/// not much more, as behind one that was removed early.
fn qdisc_holds(figures: &SenderSampleFigures, qdisc: &QdiscReport) -> bool {
    let waited = qdisc.overlimits > 0 || qdisc.kind == "fq";
    let headers = framing::tcp_headers(IpVersion::V4, figures.has_timestamps());
    // A discipline counts packets as IP has them.
    let efficiency = figures.mss.map_or(Ratio::ONE, |mss| {
        framing::payload_share(mss, headers, ByteCount::ZERO)
    });
    let sent = figures.rate.scale_by(1.0 / efficiency.get());
    let sends_its_rate = rate_of_discipline(figures, qdisc).is_some_and(|rate| {
        (rate.scale_by(REACHED_RATE_SHARE)..=rate.scale_by(MAX_RATE_OF_DISCIPLINE)).contains(&sent)
    });
    waited && sends_its_rate
}

/// Returns the rate to which a queueing discipline holds all streams together: that of `fq` is for
/// each.
fn rate_of_discipline(figures: &SenderSampleFigures, qdisc: &QdiscReport) -> Option<BitRate> {
    let times = if qdisc.kind == "fq" {
        figures.stream_count()
    } else {
        1
    };
    Some(qdisc.rate?.scale_by(f64::from(times)))
}

/// The figures of a pace.
pub(crate) struct PacingFacts {
    verdict: PacingVerdict,
    basics: BasicFacts,
    /// Maximum that the program set, all streams together.
    set: Option<BitRate>,
    /// Mean that the kernel computed, all streams together.
    computed: Option<BitRate>,
    window: Option<ByteCount>,
    shown: Vec<Row>,
}

impl PacingFacts {
    pub(crate) fn from_figures(verdict: PacingVerdict, figures: &SenderSampleFigures) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            set: max_pace(figures),
            computed: mean_pace(figures),
            window: figures.mean_size(|snapshot| snapshot.cwnd),
            shown: text::trend_rows(figures),
        }
    }
}

impl LimitFacts for PacingFacts {
    fn sentence(&self) -> String {
        let could_carry = self.basics.could_carry();
        match self.verdict {
            PacingVerdict::MaxPacingRate => format!(
                "The sending program set a maximum pace of {} on its sockets, and the transfer reaches \
                 it{could_carry}.",
                rate_text(self.set),
            ),
            PacingVerdict::Qdisc => format!(
                "A queueing discipline of the sender's network device holds packets to a rate: {} of data is \
                 sent{could_carry}.",
                self.basics.rate,
            ),
            PacingVerdict::CongestionControl => format!(
                "The sender's congestion control paces at {}, below what its window of {} would allow{could_carry}.",
                rate_text(self.computed),
                size_text(self.window),
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let remedies = match self.verdict {
            PacingVerdict::MaxPacingRate => [higher_pace(advice), None],
            PacingVerdict::CongestionControl => {
                [advice.bbr_remedy(), default_pacing_ratios(advice)]
            }
            PacingVerdict::Qdisc => [advice.default_discipline(), None],
        };
        remedies.into_iter().flatten().collect()
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            PacingVerdict::MaxPacingRate => &[ManualRemedy {
                id: "higher-pace",
                scope: Scope::Application,
                at: None,
                why: "The program set a maximum pace on its sockets: set a higher one, or none.",
            }],
            PacingVerdict::Qdisc => &[ManualRemedy {
                id: "higher-rate-of-the-discipline",
                scope: Scope::Host,
                at: None,
                why: "The queueing discipline of the device has a rate (see tc qdisc): raise it, or replace the \
                      discipline.",
            }],
            PacingVerdict::CongestionControl => &[ManualRemedy {
                id: "default-pacing-ratios",
                scope: Scope::Namespace,
                at: None,
                why: "The kernel paces at tcp_pacing_ca_ratio percent of window ÷ round trip: below 100 the window is \
                      never used up. Its default is 120.",
            }],
        }
    }
}

/// `None` where the load is another program's, which was asked for its pace by somebody else.
fn higher_pace(advice: &RemedyAdvice) -> Option<Remedy> {
    let pace = advice.evidence.request.pacing?;
    let why = format!(
        "The load was asked for a maximum pace of {pace} on each connection; without that the congestion control sets \
         the pace."
    );
    Some(advice.build_remedy(
        "higher-pace",
        Scope::Application,
        At::Sender,
        vec![Change::MaxPacingRate(None)],
        why,
    ))
}

/// The settings of the pace in slow start and after it, each with its default.
const PACING_RATIOS: [(&str, u32); 2] = [
    ("net.ipv4.tcp_pacing_ss_ratio", SLOW_START_PACE_PERCENT),
    ("net.ipv4.tcp_pacing_ca_ratio", PACE_PERCENT),
];

/// Returns a change back to the kernel's default share of window ÷ round trip, in the part of a
/// transfer that showed a lower one; `None` where none did.
fn default_pacing_ratios(advice: &RemedyAdvice) -> Option<Remedy> {
    let lowered = PACING_RATIOS
        .into_iter()
        .zip(pacing_percents(advice.figures))
        .filter_map(|((name, usual), seen)| Some((name, usual, seen?)))
        .filter(|(_, usual, seen)| is_clearly_below(*seen, *usual));
    let (seen, changes): (Vec<String>, Vec<Change>) = lowered
        .map(|(name, usual, seen)| {
            let change = Change::Sysctl {
                name: name.to_owned(),
                value: usual.to_string(),
            };
            (format!("{seen} % ({name})"), change)
        })
        .unzip();
    let why = format!(
        "The kernel paces at {} of window ÷ round trip: below 100 the window is never used up. By default it is 200 in \
         slow start and 120 after it.",
        seen.join(" and ")
    );
    let at = At::Sender;
    (!changes.is_empty())
        .then(|| advice.build_remedy("default-pacing-ratios", Scope::Namespace, at, changes, why))
}

fn is_clearly_below(seen: u32, usual: u32) -> bool {
    f64::from(seen) < f64::from(usual) * CLEARLY_LOWER_SHARE
}
