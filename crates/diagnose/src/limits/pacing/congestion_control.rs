//! A pace of the congestion control below its window.

use fullpipe_model::window;

use crate::limits::pacing::cause_of_pace;
use crate::limits::prelude::*;
use crate::text::{self, rate_text};
use crate::thresholds::{CLEARLY_LOWER_SHARE, REACHED_RATE_SHARE};

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: |advice| vec![advice.bbr_remedy(), default_pacing_ratios(advice)],
    manual_remedies: &[ManualRemedy::new(
        "default-pacing-ratios",
        Scope::Namespace,
        "The kernel paces at tcp_pacing_ca_ratio percent of window ÷ round trip: below 100 the \
         window is never used up. Its default is 120.",
    )],
    ..cause_of_pace(&["pacing/congestion-control"], |figures, _| {
        format!(
            "The sender's congestion control paces at {}, below what its window of {} would allow{}.",
            rate_text(mean_pace(figures)),
            size_text(figures.mean_size(|snapshot| snapshot.cwnd)),
            text::could_carry(figures),
        )
    })
};

/// Returns the pace of the congestion control as the limit, if it left the congestion window
/// clearly unused while data waited.
///
/// Not BBR's: it paces at the rate that it measured, so that its pace is the path's.
pub(crate) fn below_window(figures: &SenderView, held: Ratio) -> Option<Finding> {
    let unused = figures.snapshots().map(|snapshot| {
        Some(snapshot.sample.pipe_bytes()? < snapshot.cwnd?.scale_by(CLEARLY_LOWER_SHARE))
    });
    let unused = share_of_votes(unused).filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    let pace = mean_pace(figures)?;
    (!figures.is_bbr() && figures.rate >= pace.scale_by(REACHED_RATE_SHARE)).then(|| {
        let share = if unused < held { unused } else { held };
        Finding::new(PacingVerdict::CongestionControl, share)
    })
}

/// Returns the percent of window ÷ round trip at which the kernel paced, in slow start and after
/// it, as its median; `None` of a part that no sample shows. A pace that was cut to the program's
/// maximum says nothing.
fn pacing_percents(figures: &SenderView) -> [Option<u32>; 2] {
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

/// Returns true if the kernel paced as in slow start: `tcp_update_pacing_rate` takes a stream to be
/// in it while its window is less than half of `ssthresh`.
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
fn mean_pace(figures: &SenderView) -> Option<BitRate> {
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

/// Percent of window ÷ round trip at which the kernel paces in slow start by default
/// (`tcp_pacing_ss_ratio`).
const SLOW_START_PACE_PERCENT: u32 = 200;
/// Percent of window ÷ round trip at which the kernel paces after slow start by default
/// (`tcp_pacing_ca_ratio`).
const PACE_PERCENT: u32 = 120;
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
