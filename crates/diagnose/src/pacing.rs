//! Senders that keep to a pace below what their windows allow.

use fullpipe_record::{At, Cause, Limit};
use fullpipe_units::{BitRate, Ratio};

use crate::figures::{Figures, share};
use crate::finding::Finding;
use crate::thresholds::{CLEARLY_BELOW, MOST, NEAR_A_RATE};

/// A pace that the program set on its sockets (`SO_MAX_PACING_RATE`), if they reach it.
pub(crate) fn by_program(figures: &Figures) -> Option<Finding> {
    let set = greatest_pace(figures)?;
    (figures.rate >= set.scaled(NEAR_A_RATE))
        .then(|| Finding::new(Limit::Pacing, Cause::MaxPacingRate, At::Sender, Ratio::ONE))
}

/// The pace that the program set, all streams together; `None` where a stream has none.
pub(crate) fn greatest_pace(figures: &Figures) -> Option<BitRate> {
    figures.flows.iter().map(|flow| flow.looks.last()?.sample.tcp.max_pacing_rate).sum()
}

/// The pace that the congestion control itself chose, if it left the congestion window clearly unused while data waited.
///
/// Not BBR's: it paces at the rate that it measured, so that its pace is the path's.
pub(crate) fn by_congestion_control(figures: &Figures, held: Ratio) -> Option<Finding> {
    let unused = figures.looks().map(|look| Some(look.sample.pipe()? < look.cwnd?.scaled(CLEARLY_BELOW)));
    let unused = share(unused).filter(|share| share.get() >= MOST)?;
    let pace = pace(figures)?;
    (!figures.is_bbr() && figures.rate >= pace.scaled(NEAR_A_RATE)).then(|| {
        let share = if unused < held { unused } else { held };
        Finding::new(Limit::Pacing, Cause::CongestionControl, At::Sender, share)
    })
}

/// The mean pace of all streams together, as the kernel last computed it.
pub(crate) fn pace(figures: &Figures) -> Option<BitRate> {
    figures
        .flows
        .iter()
        .map(|flow| {
            let rates: Vec<f64> =
                flow.looks.iter().filter_map(|look| Some(look.sample.tcp.pacing_rate?.as_f64())).collect();
            (!rates.is_empty()).then(|| BitRate::from_bps_f64(rates.iter().sum::<f64>() / rates.len() as f64))
        })
        .sum()
}
