//! Cases drawn from a seed: a path, and one limit planted on it, for each view of a transfer.

use clap::ValueEnum;
use fullpipe_units::{BitRate, ByteCount, Span};

use super::case::{Case, Family, Way};
use super::network::{Host, PathPlan};
use super::plant::Plan;
use crate::judged::{JudgedView, Random};

/// Draws `count` cases of `view`.
pub(crate) fn cases(view: JudgedView, seed: u64, count: usize) -> Vec<Case> {
    let families = families(view);
    let number_of_view = view as u64 + 1;
    (0..count)
        .map(|index| {
            let family = families[index % families.len()];
            let mut draw =
                Random::new(seed.wrapping_mul(1_000_003) ^ (number_of_view << 32) ^ index as u64);
            let case = case(&mut draw, view, family);
            Case {
                name: format!("{seed}-{index:03} {}", case.name),
                seed,
                ..case
            }
        })
        .collect()
}

/// Returns the families that can be planted for `view`.
fn families(view: JudgedView) -> Vec<Family> {
    let left_out: &[Family] = match view {
        // Our own program neither fixes its send buffer alone nor pauses.
        JudgedView::BothEnds => &[Family::SendBuffer, Family::PausingSender],
        JudgedView::Sender => &[
            Family::ReceiveBuffer,
            Family::SendBuffer,
            Family::PausingSender,
            Family::ReceiverQuota,
        ],
        JudgedView::Receiver => &[
            Family::SendBuffer,
            Family::PausingSender,
            Family::SlowReader,
            Family::ClosedWindow,
            Family::BlackHole,
            Family::BothWays,
            // The sender alone shows them.
            Family::PerFlowLimit,
            Family::Allowance,
        ],
        JudgedView::Watched => &[
            Family::PerFlowLimit,
            Family::Allowance,
            Family::OfferedRate,
            Family::MaxPace,
            Family::ReceiverQuota,
            Family::BothWays,
            Family::Loopback,
        ],
        _ => Family::value_variants(),
    };
    Family::value_variants()
        .iter()
        .copied()
        .filter(|family| !left_out.contains(family))
        .collect()
}

/// Draws rate and round-trip time until they suit `family`.
pub(crate) fn draw_way(draw: &mut Random, family: Family) -> Way {
    let (rates, packets) = match family {
        // Enough losses in a run need a small window.
        Family::RandomLoss => ((5e6, 100e6), 30.0..150.0),
        // A window that a queue cuts must grow back several times in a run.
        Family::ShallowQueue => ((3e6, 50e6), 15.0..45.0),
        // A window without a scale must be far less than the pipe.
        Family::NoScaling | Family::StrippedScale => ((10e6, 500e6), 100.0..1500.0),
        // What a small share of a processor cannot fill.
        Family::SenderQuota | Family::ReceiverQuota => ((150e6, 500e6), 60.0..2000.0),
        // Lasts less than ten round trips.
        Family::ShortTransfer => ((20e6, 500e6), 400.0..4000.0),
        Family::BlackHole | Family::Stalls | Family::ClosedWindow => ((5e6, 100e6), 40.0..1000.0),
        // A buffer full of small segments must be far less than the pipe, and small packets not too
        // many.
        Family::ClampedMss => ((4e6, 40e6), 20.0..40.0),
        // Two loads at once are too many packets for two processors.
        Family::SharedWithDatagrams | Family::SharedWithTcp | Family::BothWays => {
            ((5e6, 150e6), 40.0..1500.0)
        }
        // The limit must be reached soon after it has changed.
        Family::Changing | Family::PerFlowLimit | Family::Allowance => ((5e6, 200e6), 40.0..600.0),
        _ => ((5e6, 900e6), 40.0..2500.0),
    };
    loop {
        let way = Way {
            rate: draw.log_uniform(rates.0, rates.1),
            rtt: draw.log_uniform(0.003, 0.3),
        };
        if packets.contains(&way.packets()) {
            return way;
        }
    }
}

/// Draws a case of `view` with a limit of `family`.
fn case(draw: &mut Random, view: JudgedView, family: Family) -> Case {
    let way = draw_way(draw, family);
    let left = draw.uniform(0.25, 0.6);
    let control = match family {
        // BBR takes no notice of a few losses, and paces so that it does not overflow a queue of
        // its own.
        Family::RandomLoss | Family::ShallowQueue | Family::OwnShortQueue => {
            draw.pick(&["reno", "cubic"])
        }
        Family::PolicedBbr => "bbr",
        _ => draw.pick(&["reno", "cubic", "bbr"]),
    };
    let may_have_many = !matches!(
        family,
        Family::RandomLoss
            | Family::ShallowQueue
            | Family::Policer
            | Family::PolicedBbr
            | Family::ClosedWindow
            | Family::ClampedMss
            | Family::Stalls
            | Family::SenderQuota
            | Family::ReceiverQuota
            | Family::BlackHole
            | Family::ShortTransfer
            | Family::NoScaling
            | Family::StrippedScale
            | Family::Changing
            | Family::Loopback
    );
    let streams = if family == Family::PerFlowLimit {
        draw.pick(&[3, 5, 8])
    } else if view != JudgedView::Watched && may_have_many && draw.chance(0.25) {
        draw.pick(&[2, 3, 5, 8])
    } else {
        1
    };
    let downloads = match view {
        JudgedView::Sender => false,
        JudgedView::Receiver => true,
        JudgedView::BothEnds => draw.chance(0.3),
        JudgedView::Watched => {
            matches!(family, Family::ReceiveMaximum | Family::ReceiveBuffer)
                || (draw.chance(0.4) && can_be_watched_receiving(family))
        }
        _ => false,
    };
    let queue = draw.uniform(0.8, 2.0) * way.bytes();
    let mut case = Case {
        name: String::new(),
        seed: 0,
        view,
        expected: "",
        path: PathPlan {
            rate: BitRate::from_bps_f64(way.rate),
            rtt: Span::from_secs_f64(way.rtt),
            queue: ByteCount::from_f64(queue.max(40_000.0)),
            loss: [0.0; 2],
            joins_segments: draw.chance(0.5),
        },
        at_most: at_most(family, left),
        states_rate: draw.chance(0.5),
        scripts: Vec::new(),
        quota: None,
        change: None,
        server_host: Host::Far,
        slow_call: None,
        server: Vec::new(),
        client: Vec::new(),
        cross_traffic: None,
    };
    if view == JudgedView::Watched {
        // The kernel takes as default only what it allows everybody; of a route it takes any. A
        // route wins over what a program asks for, so a load of our own, whose remedy may be
        // another congestion control, goes without.
        case.scripts.push((
            Host::Near,
            format!("ip route replace default via 198.18.10.2 congctl {control}"),
        ));
        case.scripts.push((
            Host::Far,
            format!("ip route replace default via 198.18.12.2 congctl {control}"),
        ));
    }
    let mut plan = Plan::new(case, way, left, control, streams, downloads);
    plan.plant(family, draw);
    plan.programs(family, draw);
    let (mut case, downloads) = plan.finish();
    case.name = format!(
        "{} {:.0}M×{:.0}ms {control} {}{streams} {}",
        case.expected,
        way.rate / 1e6,
        way.rtt * 1e3,
        if downloads { "down " } else { "" },
        if case.states_rate {
            "stated"
        } else {
            "unstated"
        },
    );
    case
}

/// Returns the share of the path's rate above which the planted limit was none.
fn at_most(family: Family, left: f64) -> f64 {
    match family {
        Family::FullLink | Family::BothWays | Family::Changing => 1.0,
        // No part of the path carries it, or a capacity that segments make small is one.
        Family::Loopback | Family::ClampedMss => f64::INFINITY,
        // Next to others it may have most of the link, but not nearly all.
        Family::SharedWithDatagrams | Family::SharedWithTcp => 0.7,
        // A queue that is cut off takes the tops only.
        Family::ShallowQueue => 0.87,
        // Where the rate of the discipline is reached, that is the limit.
        Family::OwnShortQueue => left * 0.85,
        _ => 0.85,
    }
}

/// Returns whether the near end's view of a download shows this limit at all.
fn can_be_watched_receiving(family: Family) -> bool {
    matches!(
        family,
        Family::FullLink
            | Family::SharedWithTcp
            | Family::RandomLoss
            | Family::Policer
            | Family::PolicedBbr
            | Family::ClampedMss
            | Family::Stalls
            | Family::NoScaling
            | Family::StrippedScale
            | Family::SendMaximum
            | Family::SendBuffer
            | Family::OwnShaper
            | Family::OwnShortQueue
            | Family::SenderQuota
            | Family::ShallowQueue
            | Family::PausingSender
            | Family::ShortTransfer
    )
}
