//! Prints how near forecasts are to the cost of simulated campaigns:
//! `forecasts [CAMPAIGNS [SEED]]`.
//!
//! Each row has the bytes that were spent over those that were forecast, before the first run and
//! after a third of the runs: the median, the campaigns within 15 %, and those within the interval;
//! the same of the time. `luck` has the campaigns within 15 % of the median of 20 over the very
//! same path, with other noise.

#![allow(clippy::print_stdout, missing_docs)]

#[path = "../tests/families/mod.rs"]
mod families;

use fullpipe_record::{SweepCost, SweepForecast, SweepPlan};
use fullpipe_stats::campaign::{CampaignPlan, spent_cost};
use fullpipe_units::BitRate;

use families::{Family, SEVEN, SimulatedPath};

/// Campaigns over the very same path.
const REPEATS: u64 = 20;

/// Paths of each family that are measured so often.
const REPEATED: u64 = 5;

/// A forecast that is within so much of what is spent is near.
const NEAR: f64 = 0.15;

/// The rates that a plan is given.
type Predict = fn(&SimulatedPath) -> Vec<BitRate>;

/// A campaign: its forecasts, and what it spent.
struct Campaign {
    first: SweepForecast,
    later: SweepForecast,
    spent: SweepCost,
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<u64>().expect("a number"));
    let (campaigns, seed) = (
        arguments.next().unwrap_or(100),
        arguments.next().unwrap_or(1),
    );
    let predictions: [(&str, Predict); 2] = [
        ("capacity and windows are known", SimulatedPath::permitted),
        ("all limits are known", SimulatedPath::known),
    ];
    for (name, predict) in predictions {
        println!("{name}:");
        println!(
            "family      bytes: first        after a third        time: first         after a third        luck"
        );
        let mut all = Vec::new();
        for family in SEVEN {
            let of_family: Vec<Campaign> = (0..campaigns)
                .map(|number| campaign(path(family, seed, number), predict))
                .collect();
            row(
                &format!("{family:?}"),
                &of_family,
                Some(luck(family, seed, predict)),
            );
            all.extend(of_family);
        }
        row("all", &all, None);
    }
}

fn path(family: Family, seed: u64, number: u64) -> SimulatedPath {
    SimulatedPath::new(family, seed * 100_003 + number * 17 + family as u64 * 7_919)
}

fn plan(path: &SimulatedPath, predict: Predict) -> CampaignPlan {
    CampaignPlan::new(SweepPlan {
        predicted: predict(path),
        ..path.plan()
    })
    .expect("a plan")
}

fn campaign(mut path: SimulatedPath, predict: Predict) -> Campaign {
    let plan = plan(&path, predict);
    let runs = path.runs(&plan);
    let forecast = |runs| plan.forecast_cost(runs).expect("a forecast");
    Campaign {
        first: forecast(&[]),
        later: forecast(&runs[..runs.len() / 3]),
        spent: spent_cost(&runs),
    }
}

/// Returns the campaigns that spend within 15 % of the median over the same path.
fn luck(family: Family, seed: u64, predict: Predict) -> f64 {
    let near = (0..REPEATED).map(|number| {
        let bytes = |noise: u64| {
            let mut path = path(family, seed, number).with_noise(noise);
            spent_cost(&path.runs(&plan(&path, predict))).bytes.as_f64()
        };
        let mut all: Vec<f64> = (0..REPEATS)
            .map(|repeat| bytes(seed * 1_009 + repeat))
            .collect();
        all.sort_by(f64::total_cmp);
        let median = all[all.len() / 2];
        all.iter().filter(|bytes| is_near(**bytes / median)).count() as f64 / all.len() as f64
    });
    100.0 * near.sum::<f64>() / REPEATED as f64
}

fn is_near(quotient: f64) -> bool {
    (1.0 - NEAR..=1.0 + NEAR).contains(&quotient)
}

fn row(name: &str, campaigns: &[Campaign], luck: Option<f64>) {
    let bytes = |cost: SweepCost| cost.bytes.as_f64();
    let time = |cost: SweepCost| cost.time.as_secs_f64();
    let columns = [
        column(campaigns, bytes, |campaign| campaign.first),
        column(campaigns, bytes, |campaign| campaign.later),
        column(campaigns, time, |campaign| campaign.first),
        column(campaigns, time, |campaign| campaign.later),
    ];
    println!(
        "{name:10}{}{:6.0}",
        columns.concat(),
        luck.unwrap_or(f64::NAN)
    );
}

/// Returns the median of spent over forecast, the campaigns that are near in percent, and those
/// within the interval.
fn column(
    campaigns: &[Campaign],
    figure: impl Fn(SweepCost) -> f64,
    forecast: impl Fn(&Campaign) -> SweepForecast,
) -> String {
    let quotient = |campaign: &Campaign| figure(campaign.spent) / figure(forecast(campaign).median);
    let mut quotients: Vec<f64> = campaigns.iter().map(quotient).collect();
    quotients.sort_by(f64::total_cmp);
    let within = campaigns.iter().filter(|campaign| {
        let SweepForecast { low, high, .. } = forecast(campaign);
        (figure(low)..=figure(high)).contains(&figure(campaign.spent))
    });
    let percent = |count: usize| 100.0 * count as f64 / campaigns.len() as f64;
    let near = quotients
        .iter()
        .filter(|quotient| is_near(**quotient))
        .count();
    format!(
        "{:8.2}{:6.0}{:6.0} ",
        quotients[quotients.len() / 2],
        percent(near),
        percent(within.count())
    )
}
