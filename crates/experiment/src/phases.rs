//! When cross traffic is on, and at what rates.

use fullpipe_scenario::{CrossTraffic, LoadStart};
use fullpipe_sim::CrossTraffic as Phase;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::prelude::*;

/// A phase shorter than this is left out: it would be over before its queue is full.
pub(crate) const MIN_PHASE: Span = Span::from_millis(500);

/// Returns the time by which the first of `cross_traffic` begins before the load of `main`, and
/// when each is on during that. Those with a range of rates draw from `seed`.
pub fn cross_traffic_phases(
    cross_traffic: &[CrossTraffic],
    main: &Request,
    seed: u64,
) -> (Span, Vec<Vec<Phase>>) {
    let lead = cross_traffic
        .iter()
        .map(lead_time)
        .max()
        .unwrap_or_default();
    let ends = lead + main.omit + main.duration;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    (
        lead,
        cross_traffic
            .iter()
            .map(|load| load_phases(load, lead, ends, &mut random).collect())
            .collect(),
    )
}

/// Returns the time by which `load` begins before the step's load.
pub(crate) fn lead_time(load: &CrossTraffic) -> Span {
    match load.starts {
        LoadStart::Before(time) => time,
        LoadStart::After(_) => Span::ZERO,
    }
}

/// When `load` is on, and at what rates: from its start until `ends`, where the step's load begins
/// at `lead`.
pub(crate) fn load_phases(
    load: &CrossTraffic,
    lead: Span,
    ends: Span,
    random: &mut Pcg64Mcg,
) -> impl Iterator<Item = Phase> {
    let first = match load.starts {
        LoadStart::Before(time) => lead.saturating_sub(time),
        LoadStart::After(time) => lead + time,
    };
    let (on, period) = load
        .on_off
        .map_or((Span::MAX, None), |(on, off)| (on, Some(on + off)));
    let starts = std::iter::successors(Some(first), move |start| Some(*start + period?));
    starts
        .take_while(move |start| ends.saturating_sub(*start) >= MIN_PHASE)
        .map(move |starts| Phase {
            starts,
            request: Request {
                rate: draw_rate(load, random),
                duration: on.min(ends.saturating_sub(starts)),
                ..load.request.clone()
            },
        })
}

fn draw_rate(load: &CrossTraffic, random: &mut Pcg64Mcg) -> Option<BitRate> {
    let highest = load.request.rate?;
    let Some(lowest) = load.lowest else {
        return Some(highest);
    };
    // 53 bits are what an f64 holds.
    let share = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    Some(BitRate::from_bps_f64(
        lowest.as_f64() + (highest.as_f64() - lowest.as_f64()) * share,
    ))
}
