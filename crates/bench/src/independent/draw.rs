//! Cases drawn from a seed: a path, and one limit planted on it, for each view of a transfer.

use fullpipe_units::{BitRate, ByteCount, Span};

use super::case::Case;
use super::family::{FAMILIES, Family, WEB_FAMILIES, Way};
use super::network::{Host, PathPlan};
use super::plant::Plan;
use crate::judged::{JudgedView, Random};
use crate::process::RunError;

/// Draws `count` cases of `view`, of each family in turn that can be planted for it; of the server of
/// speed tests over the web, if `is_of_web`.
///
/// # Errors
/// Fails if the table of families cannot be read.
pub(crate) fn cases(
    view: JudgedView,
    seed: u64,
    count: usize,
    is_of_web: bool,
) -> Result<Vec<Case>, RunError> {
    let table = if is_of_web { WEB_FAMILIES } else { FAMILIES };
    let mut families = Family::read_all(table)?;
    families.retain(|family| !family.not_from.contains(&view));
    let number_of_view = view as u64 + 1;
    let cases = (0..count).map(|index| {
        let number = seed.wrapping_mul(1_000_003) ^ (number_of_view << 32) ^ index as u64;
        let mut random = Random::new(number);
        let case = draw_case(
            &mut random,
            view,
            &families[index % families.len()],
            is_of_web,
        );
        Case {
            name: format!("{seed}-{index:03} {}", case.name),
            seed,
            ..case
        }
    });
    Ok(cases.collect())
}

/// Draws a case of `view` with a limit of `family`.
fn draw_case(draw: &mut Random, view: JudgedView, family: &Family, is_of_web: bool) -> Case {
    let way = family.draw_way(draw);
    let left = draw.uniform(0.25, 0.6);
    let control = family.draw_control(draw);
    let streams = if family.name == "per-flow-limit" {
        draw.pick(&[3, 5, 8])
    } else if view != JudgedView::Watched && !family.one_stream && draw.chance(0.25) {
        draw.pick(&[2, 3, 5, 8])
    } else {
        1
    };
    let downloads = match view {
        JudgedView::BothEnds => draw.chance(0.3),
        JudgedView::Watched => {
            ["receive-maximum", "receive-buffer"].contains(&family.name.as_str())
                || (draw.chance(0.4) && family.near_end_receives)
        }
        // The far end judges, which sends what the near one downloads.
        _ if is_of_web => view == JudgedView::Sender,
        _ => view == JudgedView::Receiver,
    };
    let case = Case {
        is_of_web,
        ..bare_case(draw, view, family, way, left, &control)
    };
    let mut plan = Plan::new(case, way, left, &control, streams, downloads);
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

/// Returns a case over a path without a limit but its rate.
fn bare_case(
    draw: &mut Random,
    view: JudgedView,
    family: &Family,
    way: Way,
    left: f64,
    control: &str,
) -> Case {
    let queue = draw.uniform(0.8, 2.0) * way.bytes();
    let of = if family.of_left { left } else { 1.0 };
    let mut case = Case {
        name: String::new(),
        seed: 0,
        view,
        expected: family.expected.clone(),
        path: PathPlan {
            rate: BitRate::from_bps_f64(way.rate),
            rtt: Span::from_secs_f64(way.rtt),
            queue: ByteCount::from_f64(queue.max(40_000.0)),
            loss: [0.0; 2],
            joins_segments: draw.chance(0.5),
        },
        at_most: of * family.at_most,
        states_rate: draw.chance(0.5),
        scripts: Vec::new(),
        quota: None,
        change: None,
        server_host: Host::Far,
        slow_call: None,
        server: Vec::new(),
        client: Vec::new(),
        cross_traffic: None,
        is_of_web: false,
    };
    if view == JudgedView::Watched {
        case.scripts.extend(congestion_routes(control));
    }
    case
}

/// Returns the scripts that give connections a congestion control. The kernel takes as default only
/// what it allows everybody; of a route it takes any. A route wins over what a program asks for, so
/// a load of our own, whose remedy may be another congestion control, goes without.
pub(super) fn congestion_routes(control: &str) -> [(Host, String); 2] {
    [(Host::Near, "198.18.10.2"), (Host::Far, "198.18.12.2")].map(|(host, router)| {
        let route = format!("ip route replace default via {router} congctl {control}");
        (host, route)
    })
}
