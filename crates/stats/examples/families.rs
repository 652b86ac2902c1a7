//! Prints how well simulated campaigns find the knee: `families [CAMPAIGNS [SEED]]`.

#![allow(clippy::print_stdout, missing_docs)]

#[path = "../tests/families/mod.rs"]
mod families;

use fullpipe_record::{SweepReason, SweepRun, SweepShape};
use fullpipe_units::Span;

use families::{Change, FURTHER, Family, Outcome, SEVEN, SimulatedPath};

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<u64>().expect("a number"));
    let (campaigns, seed) = (
        arguments.next().unwrap_or(100),
        arguments.next().unwrap_or(1),
    );
    println!(
        "family          ok %   p5 rate  product  bytes %    p95  time %    p95   runs  sure %  segments  knee flat \
         beyond plateaus"
    );
    let outcomes = |family: Family| -> Vec<Outcome> {
        (0..campaigns)
            .map(|number| path(family, seed, number).campaign())
            .collect()
    };
    let mut all = Vec::new();
    for family in SEVEN {
        all.extend(outcomes(family));
        row(
            &format!("{family:?}"),
            &all[all.len() - campaigns as usize..],
        );
    }
    row("all", &all);
    let mut further = Vec::new();
    for family in FURTHER {
        further.extend(outcomes(family));
        row(
            &format!("{family:?}"),
            &further[further.len() - campaigns as usize..],
        );
    }
    row("further", &further);
    for family in [Family::Flat, Family::Beyond, Family::Plateaus] {
        row(&format!("{family:?}"), &outcomes(family));
    }
    let plateaus = (0..campaigns).map(|number| path(Family::Plateaus, seed, number));
    println!(
        "paths whose lower plateau is on the grid: {}",
        plateaus.filter(SimulatedPath::shows_plateau).count()
    );
    let alarms = all
        .iter()
        .filter(|outcome| outcome.segments.len() > 1)
        .count();
    println!("false alarms: {alarms} of {}", all.len());
    for (name, rtt) in [
        ("rate -30 %, RTT +40 ms", Span::from_millis(40)),
        ("rate -30 % alone", Span::ZERO),
    ] {
        changes(name, rtt, campaigns, seed);
    }
}

fn path(family: Family, seed: u64, number: u64) -> SimulatedPath {
    SimulatedPath::new(family, seed * 100_003 + number * 17 + family as u64 * 7_919)
}

/// Prints how often a change amid a campaign is noticed.
fn changes(name: &str, rtt: Span, campaigns: u64, seed: u64) {
    let numbers = SEVEN
        .iter()
        .flat_map(|family| (0..campaigns).map(move |number| (*family, number)));
    let outcomes: Vec<(f64, Outcome)> = numbers
        .map(|(family, number)| {
            let unchanged = path(family, seed, number).campaign();
            let at = unchanged.begun.last().expect("a run")
                * (0.2 + 0.6 * number as f64 / campaigns as f64);
            let mut path = path(family, seed, number);
            path.change = Some(Change {
                at,
                factor: 0.7,
                rtt,
            });
            (at, path.campaign())
        })
        .collect();
    let noticed = outcomes
        .iter()
        .filter(|(at, outcome)| is_noticed(*at, outcome))
        .count();
    let answered = outcomes
        .iter()
        .filter(|(_, outcome)| outcome.answer.is_some());
    let across = answered
        .clone()
        .filter(|(at, outcome)| outcome.begun[outcome.from] < *at);
    println!(
        "{name}: {noticed} of {} noticed within 3 references, {} knees, {} across",
        outcomes.len(),
        answered.count(),
        across.count()
    );
}

/// Returns true if the path's change is seen by the third reference after it.
fn is_noticed(at: f64, outcome: &Outcome) -> bool {
    let is_reference = |run: &SweepRun| matches!(run.reason, SweepReason::Reference);
    let changed = outcome
        .segments
        .iter()
        .find(|run| outcome.begun[**run] >= at);
    changed.is_some_and(|changed| {
        let between = outcome
            .begun
            .iter()
            .zip(&outcome.runs[..*changed])
            .filter(|(begun, _)| **begun >= at);
        between.filter(|(_, run)| is_reference(run)).count() < 3
    })
}

fn row(name: &str, outcomes: &[Outcome]) {
    let sorted = |of: &dyn Fn(&Outcome) -> f64| {
        let mut values: Vec<f64> = outcomes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let mean =
        |of: &dyn Fn(&Outcome) -> f64| sorted(of).iter().sum::<f64>() / outcomes.len() as f64;
    let quantile = |of: &dyn Fn(&Outcome) -> f64, share: f64| {
        let values = sorted(of);
        values[((values.len() - 1) as f64 * share).round() as usize]
    };
    println!(
        "{name:14}{:6.1}{:10.3}{:9.2}{:9.1}{:7.1}{:8.1}{:7.1}{:7.1}{:8.1}{:10.2}  {:?}",
        100.0 * mean(&|of| f64::from(u8::from(of.rate >= 0.95))),
        quantile(&|of| of.rate, 0.05),
        quantile(&|of| of.product, 0.5),
        100.0 * mean(&|of| of.bytes),
        100.0 * quantile(&|of| of.bytes, 0.95),
        100.0 * mean(&|of| of.time),
        100.0 * quantile(&|of| of.time, 0.95),
        mean(&|of| of.runs.len() as f64),
        100.0
            * mean(&|of| f64::from(u8::from(
                of.answer.as_ref().is_some_and(|answer| answer.sure)
            ))),
        mean(&|of| of.segments.len() as f64),
        [
            SweepShape::Knee,
            SweepShape::Flat,
            SweepShape::BeyondGrid,
            SweepShape::TwoPlateaus
        ]
        .map(|shape| {
            let is = |outcome: &&Outcome| {
                outcome
                    .answer
                    .as_ref()
                    .is_some_and(|answer| answer.shape == shape)
            };
            outcomes.iter().filter(is).count()
        }),
    );
}
