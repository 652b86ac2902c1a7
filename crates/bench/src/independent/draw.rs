//! Cases drawn from a seed: a path, and one limit planted on it, for each view of a transfer.

use fullpipe_units::{BitRate, ByteCount, Span};

use super::case::Family::{
    BlackHole, FullLink, MaxPace, NoScaling, OfferedRate, OwnShaper, OwnShortQueue, PausingSender, Policer, RandomLoss,
    ReceiveBuffer, ReceiveMaximum, ReceiverQuota, SendBuffer, SendMaximum, SenderQuota, ShallowQueue,
    SharedWithDatagrams, SharedWithTcp, ShortTransfer, SlowReader, StrippedScale,
};

use super::case::{Case, Family, View, Way};
use super::network::{Host, PathPlan};
use super::plant::Plan;
use super::random::Random;

/// Draws `count` cases of `view`.
pub(crate) fn cases(view: View, seed: u64, count: usize) -> Vec<Case> {
    let families = families(view);
    let number_of_view = view as u64 + 1;
    (0..count)
        .map(|index| {
            let family = families[index % families.len()];
            let mut draw = Random::new(seed.wrapping_mul(1_000_003) ^ (number_of_view << 32) ^ index as u64);
            let case = case(&mut draw, view, family);
            Case { name: format!("{seed}-{index:03} {}", case.name), ..case }
        })
        .collect()
}

const fn families(view: View) -> &'static [Family] {
    match view {
        View::BothEnds => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            ReceiveBuffer,
            NoScaling,
            StrippedScale,
            SendMaximum,
            OfferedRate,
            SlowReader,
            OwnShaper,
            OwnShortQueue,
            MaxPace,
            SenderQuota,
            ReceiverQuota,
            BlackHole,
            ShortTransfer,
        ],
        View::Sender => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            NoScaling,
            StrippedScale,
            SendMaximum,
            OfferedRate,
            SlowReader,
            OwnShaper,
            OwnShortQueue,
            MaxPace,
            SenderQuota,
            BlackHole,
            ShortTransfer,
        ],
        View::Receiver => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            ReceiveBuffer,
            NoScaling,
            StrippedScale,
            SendMaximum,
            OfferedRate,
            ReceiverQuota,
            ShortTransfer,
        ],
        View::Watched => &[
            FullLink,
            SharedWithDatagrams,
            SharedWithTcp,
            RandomLoss,
            Policer,
            ShallowQueue,
            ReceiveMaximum,
            ReceiveBuffer,
            NoScaling,
            StrippedScale,
            SendMaximum,
            SendBuffer,
            PausingSender,
            SlowReader,
            OwnShaper,
            OwnShortQueue,
            SenderQuota,
            BlackHole,
            ShortTransfer,
        ],
    }
}

/// Draws rate and round-trip time until they suit `family`.
fn way(draw: &mut Random, family: Family) -> Way {
    let (rates, packets) = match family {
        // Enough losses in a run need a small window.
        RandomLoss => ((5e6, 100e6), 30.0..150.0),
        // A window that a queue cuts must grow back several times in a run.
        ShallowQueue => ((3e6, 50e6), 15.0..45.0),
        // A window without a scale must be far less than the pipe.
        NoScaling | StrippedScale => ((10e6, 500e6), 100.0..1500.0),
        // What a small share of a processor cannot fill.
        SenderQuota | ReceiverQuota => ((150e6, 500e6), 60.0..2000.0),
        // Lasts less than ten round trips.
        ShortTransfer => ((20e6, 500e6), 400.0..4000.0),
        BlackHole => ((5e6, 100e6), 40.0..1000.0),
        // Two loads at once are too many packets for two processors.
        SharedWithDatagrams | SharedWithTcp => ((5e6, 150e6), 40.0..1500.0),
        _ => ((5e6, 500e6), 40.0..2500.0),
    };
    loop {
        let way = Way { rate: draw.log_uniform(rates.0, rates.1), rtt: draw.log_uniform(0.003, 0.3) };
        if packets.contains(&way.packets()) {
            return way;
        }
    }
}

/// Draws a case of `view` with a limit of `family`.
fn case(draw: &mut Random, view: View, family: Family) -> Case {
    let way = way(draw, family);
    let left = draw.uniform(0.25, 0.6);
    let control = match family {
        // BBR takes no notice of a few losses, and paces so that it does not overflow a queue of its own.
        RandomLoss | ShallowQueue | OwnShortQueue => draw.pick(&["reno", "cubic"]),
        _ => draw.pick(&["reno", "cubic", "bbr"]),
    };
    let may_have_many = !matches!(
        family,
        RandomLoss
            | ShallowQueue
            | Policer
            | SenderQuota
            | ReceiverQuota
            | BlackHole
            | ShortTransfer
            | NoScaling
            | StrippedScale
    );
    let streams =
        if view != View::Watched && may_have_many && draw.chance(0.25) { draw.pick(&[2, 3, 5, 8]) } else { 1 };
    let downloads = match view {
        View::Sender => false,
        View::Receiver => true,
        View::BothEnds => draw.chance(0.3),
        View::Watched => {
            matches!(family, ReceiveMaximum | ReceiveBuffer) || (draw.chance(0.4) && can_be_watched_receiving(family))
        }
    };
    let queue = draw.uniform(0.8, 2.0) * way.bytes();
    let mut case = Case {
        name: String::new(),
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
        slow_call: None,
        server: Vec::new(),
        client: Vec::new(),
        cross_traffic: None,
    };
    // The kernel takes as default only what it allows everybody; of a route it takes any.
    case.scripts.push((Host::Near, format!("ip route replace default via 198.18.10.2 congctl {control}")));
    case.scripts.push((Host::Far, format!("ip route replace default via 198.18.12.2 congctl {control}")));
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
        if case.states_rate { "stated" } else { "unstated" },
    );
    case
}

/// Returns the share of the path's rate above which the planted limit was none.
fn at_most(family: Family, left: f64) -> f64 {
    match family {
        FullLink => 1.0,
        // Next to others it may have most of the link, but not nearly all.
        SharedWithDatagrams | SharedWithTcp => 0.7,
        // A queue that is cut off takes the tops only.
        ShallowQueue => 0.87,
        // Where the rate of the discipline is reached, that is the limit.
        OwnShortQueue => left * 0.85,
        _ => 0.85,
    }
}

/// Returns whether the near end's view of a download shows this limit at all.
fn can_be_watched_receiving(family: Family) -> bool {
    matches!(
        family,
        FullLink | SharedWithTcp | RandomLoss | Policer | NoScaling | StrippedScale | PausingSender | ShortTransfer
    )
}
