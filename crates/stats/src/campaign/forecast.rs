//! The cost of a campaign before its end, by campaigns that are simulated over paths that may be
//! this one.

use fullpipe_record::{SweepCost, SweepForecast, SweepRun};
use fullpipe_units::{BitRate, ByteCount, Span, median};

use super::cost::{run_cost, spent_cost};
use super::judged::{JudgedCells, counted_observations};
use super::plan::{CampaignPlan, CampaignStep};
use super::random::SeededRandom;
use super::surface::{Observation, RateSurface};

/// Simulated campaigns of a forecast.
const CAMPAIGNS: usize = 40;

/// Fewest, over a grid of many cells, where each takes long.
const MIN_CAMPAIGNS: usize = 8;

/// Campaigns × cells at most.
const MAX_WORK: usize = 10_000;

/// Part of the simulated campaigns that the interval leaves out at either end.
const TAIL: f64 = 0.05;

/// Errors of a prediction, relative to what the surface varies by before any run.
const ERROR: f64 = 0.5;

/// Standard deviation of the logarithm of the noise of runs, before any is repeated.
const NOISE_SPREAD: f64 = 0.8;

/// Part of runs that bursts of other traffic make slower, and the rates of these, relative to the
/// usual one.
const BURSTS: f64 = 0.03;
const BURST: (f64, f64) = (0.6, 0.95);

impl CampaignPlan {
    /// Returns the cost that the campaign will have in the end, runs so far included, by the median
    /// of simulated campaigns and an interval that has 90 % of them. The rates of their paths are
    /// those that `runs` show, and for the rest those that are predicted. The same plan and the
    /// same runs give the same forecast.
    ///
    /// Returns `None` if no rates are predicted and too few runs were made to know the path.
    pub fn forecast_cost(&self, runs: &[SweepRun]) -> Option<SweepForecast> {
        let path = KnownPath::from_runs(self, runs)?;
        let mut random = SeededRandom::with_seed(self.fixed.seed.wrapping_add(runs.len() as u64));
        let campaigns = (MAX_WORK / path.expected.len()).clamp(MIN_CAMPAIGNS, CAMPAIGNS);
        let costs: Vec<SweepCost> = (0..campaigns)
            .map(|_| path.simulate_campaign(&mut random))
            .collect();
        Some(SweepForecast {
            median: SweepCost {
                bytes: median(costs.iter().map(|cost| cost.bytes).collect())?,
                time: median(costs.iter().map(|cost| cost.time).collect())?,
            },
            low: cost_quantile(&costs, TAIL),
            high: cost_quantile(&costs, 1.0 - TAIL),
        })
    }
}

/// Returns the bytes and the time that this share of campaigns does not exceed.
fn cost_quantile(costs: &[SweepCost], share: f64) -> SweepCost {
    let mut bytes: Vec<ByteCount> = costs.iter().map(|cost| cost.bytes).collect();
    let mut times: Vec<Span> = costs.iter().map(|cost| cost.time).collect();
    bytes.sort_unstable();
    times.sort_unstable();
    let place = (share * (costs.len() - 1) as f64).round() as usize;
    SweepCost {
        bytes: bytes[place],
        time: times[place],
    }
}

/// A path as far as it is known.
struct KnownPath<'p> {
    plan: &'p CampaignPlan,
    runs: &'p [SweepRun],
    /// The runs over the path as it is now.
    seen: Vec<Observation>,
    /// The logarithm of each cell's rate before any run.
    expected: Vec<f64>,
    /// Standard deviation of a run, in logarithms, and that of its own logarithm.
    noise: (f64, f64),
    /// Bytes of runs, relative to those of their rates over their time.
    fill: f64,
}

impl<'p> KnownPath<'p> {
    fn from_runs(plan: &'p CampaignPlan, runs: &'p [SweepRun]) -> Option<Self> {
        let counted = &runs[plan.counts_from(runs)..];
        let judged = JudgedCells::from_runs(&plan.grid, &plan.plane, counted);
        let expected = plan.expected_logarithms(&judged)?;
        let seen = counted_observations(&plan.grid, counted);
        Some(Self {
            plan,
            runs,
            seen,
            expected,
            noise: judged.run_noise(),
            fill: fill_share(plan, counted),
        })
    }

    /// Returns the cost of a campaign over a path that may be this one.
    fn simulate_campaign(&self, random: &mut SeededRandom) -> SweepCost {
        let (usual, spread) = self.noise;
        let noise = usual * libm::exp(spread * NOISE_SPREAD * random.next_normal());
        let rates = self.draw_rates(noise, random);
        let length = self.plan.run_length().total_time();
        let mut runs = self.runs.to_vec();
        while let CampaignStep::Run { cell, reason } = self.plan.next_step(&runs) {
            let Some(index) = self.plan.grid.cell_index(cell) else {
                break;
            };
            let burst = if random.next_unit() < BURSTS {
                random.next_between(BURST.0, BURST.1)
            } else {
                1.0
            };
            let rate = BitRate::from_bps_f64(
                libm::exp(rates[index] + noise * random.next_normal()) * burst,
            );
            let cost = run_cost(&self.plan.fixed, length, rate);
            let cost = SweepCost {
                bytes: cost.bytes.scale_by(self.fill),
                ..cost
            };
            runs.push(SweepRun::from_cost(cell, reason, rate, cost));
        }
        spent_cost(&runs)
    }

    /// Returns logarithms of all cells' rates: smooth errors of the expected ones, and what the
    /// runs show of these.
    fn draw_rates(&self, noise: f64, random: &mut SeededRandom) -> Vec<f64> {
        let error = self.plan.plane.draw_logarithms(ERROR, random);
        let left = self.seen.iter().map(|(cell, rate)| {
            (
                *cell,
                rate - self.expected[*cell] - error[*cell] - noise * random.next_normal(),
            )
        });
        let seen: Vec<Observation> = left.collect();
        let shown = RateSurface::fit_runs(&self.plan.plane, &seen, 0.0, noise);
        (0..error.len())
            .map(|cell| self.expected[cell] + error[cell] + shown.cell_mean(cell))
            .collect()
    }
}

/// Returns the bytes of runs, relative to those of their rates over their whole time.
fn fill_share(plan: &CampaignPlan, runs: &[SweepRun]) -> f64 {
    let length = plan.run_length().total_time();
    let counted = runs
        .iter()
        .filter_map(|run| Some((run.sent, run.rate?.bytes_in(length))));
    let whole: f64 = counted.clone().map(|(_, whole)| whole.as_f64()).sum();
    let sent: f64 = counted.map(|(sent, _)| sent.as_f64()).sum();
    if whole > 0.0 { sent / whole } else { 1.0 }
}
