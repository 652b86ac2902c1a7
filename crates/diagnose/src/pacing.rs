//! Senders that keep to a pace below what their windows allow.

use fullpipe_model::window;
use fullpipe_record::{At, Cause, Limit, TcpInfo};
use fullpipe_units::{BitRate, Ratio};

use crate::figures::{Figures, median, share};
use crate::finding::Finding;
use crate::thresholds::{CLEARLY_BELOW, MAJORITY, NEAR_A_RATE};

/// A pace that the program set on its sockets (`SO_MAX_PACING_RATE`), if they reach it.
pub(crate) fn by_program(figures: &Figures) -> Option<Finding> {
    let set = greatest_pace(figures)?;
    (figures.rate >= set.scaled(NEAR_A_RATE))
        .then(|| Finding::new(Limit::Pacing, Cause::MaxPacingRate, At::Sender, Ratio::ONE))
}

/// The pace that the program set, all streams together; `None` where a stream has none.
pub(crate) fn greatest_pace(figures: &Figures) -> Option<BitRate> {
    figures.flows.iter().map(|flow| flow.snapshots.last()?.sample.tcp.max_pacing_rate).sum()
}

/// The pace that the congestion control itself chose, if it left the congestion window clearly unused while data waited.
///
/// Not BBR's: it paces at the rate that it measured, so that its pace is the path's.
pub(crate) fn by_congestion_control(figures: &Figures, held: Ratio) -> Option<Finding> {
    let unused =
        figures.snapshots().map(|snapshot| Some(snapshot.sample.pipe()? < snapshot.cwnd?.scaled(CLEARLY_BELOW)));
    let unused = share(unused).filter(|share| share.get() >= MAJORITY)?;
    let pace = pace(figures)?;
    (!figures.is_bbr() && figures.rate >= pace.scaled(NEAR_A_RATE)).then(|| {
        let share = if unused < held { unused } else { held };
        Finding::new(Limit::Pacing, Cause::CongestionControl, At::Sender, share)
    })
}

/// Percent of window ÷ round trip at which the kernel paced, in slow start and after it, as its median; `None` of a part that
/// no sample shows. A pace that was cut to the program's greatest one says nothing.
///
/// By `tcp_update_pacing_rate`, which takes a stream to be in slow start while its window is less than half of `ssthresh`.
pub(crate) fn percents(figures: &Figures) -> [Option<u32>; 2] {
    let samples = || figures.flows.iter().flat_map(|flow| &flow.whole).map(|sample| &sample.tcp);
    let in_slow_start =
        |tcp: &TcpInfo| tcp.ssthresh.is_none_or(|ssthresh| tcp.cwnd.is_some_and(|cwnd| cwnd * 2 < ssthresh));
    [true, false].map(|part| median(samples().filter(|tcp| in_slow_start(tcp) == part).filter_map(percent).collect()))
}

fn percent(tcp: &TcpInfo) -> Option<u32> {
    let pace = tcp.pacing_rate.filter(|pace| tcp.max_pacing_rate.is_none_or(|most| *pace < most))?;
    let unpaced = window::rate(tcp.congestion_window()?, tcp.rtt?);
    (unpaced > BitRate::ZERO).then(|| (pace.relative_to(unpaced) * 100.0).round() as u32)
}

/// The mean pace of all streams together, as the kernel last computed it.
pub(crate) fn pace(figures: &Figures) -> Option<BitRate> {
    figures
        .flows
        .iter()
        .map(|flow| {
            let rates: Vec<f64> =
                flow.snapshots.iter().filter_map(|snapshot| Some(snapshot.sample.tcp.pacing_rate?.as_f64())).collect();
            (!rates.is_empty()).then(|| BitRate::from_bps_f64(rates.iter().sum::<f64>() / rates.len() as f64))
        })
        .sum()
}
