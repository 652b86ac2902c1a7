//! Campaigns over whole grids that were recorded: each run has the rate that its setting has in the
//! grid.

use std::collections::BTreeMap;

use fullpipe_record::{SweepCell, SweepPlan, SweepReason, SweepRun};
use fullpipe_stats::campaign::{CampaignPlan, CampaignStep, SweepGrid, run_cost, spent_cost};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

/// A recorded grid.
struct Recorded {
    rates: BTreeMap<(u16, ByteCount), BitRate>,
    sent: ByteCount,
}

impl Recorded {
    fn of(csv: &str) -> Self {
        let mut recorded = Self {
            rates: BTreeMap::new(),
            sent: ByteCount::ZERO,
        };
        for line in csv.lines().skip(1) {
            let fields: Vec<u64> = line
                .split(',')
                .map(|field| field.parse().unwrap())
                .collect();
            let cell = (u16::try_from(fields[0]).unwrap(), ByteCount::new(fields[1]));
            recorded.rates.insert(cell, BitRate::from_bps(fields[2]));
            recorded.sent += ByteCount::new(fields[3]);
        }
        assert_eq!(recorded.rates.len(), 130);
        recorded
    }

    fn rate(&self, cell: SweepCell) -> BitRate {
        self.rates[&(cell.streams, cell.window)]
    }

    /// Returns the median of the fastest tenth, which hardly depends on the luck of a single run.
    fn best(&self) -> BitRate {
        let mut rates: Vec<BitRate> = self.rates.values().copied().collect();
        rates.sort_unstable();
        rates[rates.len() - rates.len() / 20]
    }

    /// Returns the least streams × window that has 95 % of the best.
    fn knee(&self) -> ByteCount {
        let does = self
            .rates
            .iter()
            .filter(|(_, rate)| **rate >= self.best().scale_by(0.95));
        does.map(|((streams, window), _)| {
            SweepCell {
                window: *window,
                streams: *streams,
            }
            .flight_capacity()
        })
        .min()
        .unwrap()
    }

    fn run(&self, plan: &CampaignPlan, cell: SweepCell, reason: SweepReason) -> SweepRun {
        let rate = self.rate(cell);
        SweepRun::from_cost(
            cell,
            reason,
            rate,
            run_cost(plan.fixed_plan(), plan.run_length().total_time(), rate),
        )
    }
}

fn plan(rtt: Span) -> CampaignPlan {
    let grid =
        SweepGrid::from_ranges(ByteCount::from_kib(8)..=ByteCount::from_mib(4), 1..=90).unwrap();
    CampaignPlan::new(SweepPlan {
        id: "recorded".to_owned(),
        target: "recorded".to_owned(),
        is_virtual: true,
        windows: grid.windows().to_vec(),
        streams: grid.streams().to_vec(),
        seed: 1,
        rtt,
        overhead: rtt * 4,
        duty: Ratio::new(0.5),
        budget: Ratio::new(0.2),
        ..SweepPlan::default()
    })
    .unwrap()
}

/// The result of a campaign over a recorded grid.
struct Outcome {
    knee: SweepCell,
    /// Doublings of streams × window from the knee of the whole grid.
    steps: f64,
    /// Rate of the knee, relative to the best.
    rate: f64,
    /// Bytes, relative to the whole grid.
    share: f64,
}

fn campaign(csv: &str, rtt: Span) -> Outcome {
    let recorded = Recorded::of(csv);
    let plan = plan(rtt);
    let mut runs = Vec::new();
    while let CampaignStep::Run { cell, reason } = plan.next_step(&runs) {
        runs.push(recorded.run(&plan, cell, reason));
    }
    let knee = plan.current_answer(&runs).unwrap().knee.cell;
    Outcome {
        knee,
        steps: libm::log2(knee.flight_capacity().as_f64() / recorded.knee().as_f64()),
        rate: recorded.rate(knee).relative_to(recorded.best()),
        share: spent_cost(&runs).bytes.as_f64() / recorded.sent.as_f64(),
    }
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "figures of a run, shown by --nocapture"
)]
fn the_knee_is_within_one_step_of_that_of_the_whole_grid_for_a_fifth_of_its_bytes() {
    for (name, csv, rtt) in [
        ("far", include_str!("grids/far.csv"), 154),
        (
            "far, the kernel's",
            include_str!("grids/far-kernel.csv"),
            154,
        ),
        ("shared", include_str!("grids/shared.csv"), 154),
        ("near", include_str!("grids/near.csv"), 20),
        (
            "near, the kernel's",
            include_str!("grids/near-kernel.csv"),
            20,
        ),
        ("lossy", include_str!("grids/lossy.csv"), 40),
        ("clamped", include_str!("grids/clamped.csv"), 154),
    ] {
        let Outcome {
            knee,
            steps,
            rate,
            share,
        } = campaign(csv, Span::from_millis(rtt));
        println!(
            "{name}: {knee}, {steps:.2} steps away, {rate:.3} of the best rate for {share:.3} of the bytes"
        );
        assert!(
            (-1.01..=1.01).contains(&steps),
            "{name}: {knee}, {steps:.2} steps away"
        );
        assert!(
            rate >= 0.93 && share <= 0.2,
            "{name}: {knee} has {rate:.3} for {share:.3}"
        );
    }
}
