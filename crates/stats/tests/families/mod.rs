//! Paths for simulated campaigns: rates by window and streams, with noise as Cottrell's
//! measurements have it, and bursts and drift of other traffic.

#![allow(dead_code, missing_docs, unreachable_pub)]

use fullpipe_record::{SweepAnswer, SweepCell, SweepPlan, SweepReason, SweepRun};
use fullpipe_stats::campaign::{CampaignPlan, CampaignStep, RunLength, SweepGrid, run_cost};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Limits of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Window and capacity alone.
    Clean,
    /// Responsive cross traffic: the plateau grows with the streams.
    Cross,
    /// Random loss limits each stream.
    Loss,
    /// The rate declines when more is in flight than path and queue hold.
    Decline,
    /// A processor is slower with more streams.
    Cpu,
    /// A device on the way clamps the window.
    Clamp,
    /// Some of all.
    Mixed,
    /// Any setting fills the path.
    Flat,
    /// No setting fills the path.
    Beyond,
    /// Few streams use one half of the path, many use both.
    Plateaus,
    /// A policer drops what exceeds its rate: beyond it, few streams recover slowly.
    Policer,
    /// The receiver reads more slowly than the path carries, and not evenly.
    Reader,
    /// A second bottleneck, whose other traffic takes the more of it the more streams compete.
    TwoBottlenecks,
}

/// The families that decide.
pub const SEVEN: [Family; 7] = [
    Family::Clean,
    Family::Cross,
    Family::Loss,
    Family::Decline,
    Family::Cpu,
    Family::Clamp,
    Family::Mixed,
];

/// Families after which nothing of the plan was chosen.
pub const FURTHER: [Family; 3] = [Family::Policer, Family::Reader, Family::TwoBottlenecks];

/// A change of a path.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// When, in seconds.
    pub at: f64,
    /// Factor on the rate where capacity limits it.
    pub factor: f64,
    /// Added round-trip time.
    pub rtt: Span,
}

/// A simulated path.
pub struct SimulatedPath {
    pub grid: SweepGrid,
    pub rtt: Span,
    /// Capacity in bits per second.
    pub capacity: f64,
    pub truth: Vec<f64>,
    /// Load of each cell relative to the capacity.
    load: Vec<f64>,
    noise: Vec<f64>,
    /// Standard deviation of the drift, in logarithms, and the seconds after which it is another.
    drifts: (f64, f64),
    drift: f64,
    clock: f64,
    pub change: Option<Change>,
    random: Random,
}

/// The result of one campaign.
pub struct Outcome {
    /// True rate of the knee, relative to the best.
    pub rate: f64,
    /// Product of the knee, relative to the least that does.
    pub product: f64,
    /// Bytes and time, relative to the whole grid.
    pub bytes: f64,
    pub time: f64,
    pub runs: Vec<SweepRun>,
    /// Time before each run, in seconds.
    pub begun: Vec<f64>,
    pub segments: Vec<usize>,
    /// First run that counts.
    pub from: usize,
    pub answer: Option<SweepAnswer>,
}

/// Drift of a path, and of a receiver that reads from a busy disk.
const DRIFT: (f64, f64) = (0.03, 600.0);
const DRIFT_OF_READER: (f64, f64) = (0.05, 60.0);
const BURSTS: f64 = 0.04;

pub fn slac_grid() -> SweepGrid {
    SweepGrid::from_ranges(ByteCount::from_kib(8)..=ByteCount::from_mib(4), 1..=90).unwrap()
}

impl SimulatedPath {
    pub fn new(family: Family, seed: u64) -> Self {
        let mut random = Random(Pcg64Mcg::seed_from_u64(seed));
        let grid = slac_grid();
        let cells: Vec<(f64, f64)> = grid
            .all_cells()
            .iter()
            .map(|cell| (cell.window.as_f64(), f64::from(cell.streams)))
            .collect();
        let (rate, rtt) = random.rate_and_rtt(family);
        let shape = Shape::new(family, rate, rtt, &mut random);
        let truth: Vec<f64> = cells.iter().map(|cell| shape.rate(*cell)).collect();
        let load: Vec<f64> = cells
            .iter()
            .map(|cell| shape.offered(*cell) / shape.capacity(cell.1))
            .collect();
        let noise = cells
            .iter()
            .zip(&load)
            .map(|((_, streams), load)| random.noise(*streams, *load))
            .collect();
        let drifts = if family == Family::Reader {
            DRIFT_OF_READER
        } else {
            DRIFT
        };
        let drift = random.normal() * drifts.0;
        let rtt = Span::from_secs_f64(rtt);
        Self {
            grid,
            rtt,
            capacity: rate,
            truth,
            load,
            noise,
            drifts,
            drift,
            clock: 0.0,
            change: None,
            random,
        }
    }

    /// Returns the same path with other noise.
    pub fn with_noise(mut self, seed: u64) -> Self {
        self.random = Random(Pcg64Mcg::seed_from_u64(seed));
        self.drift = self.random.normal() * self.drifts.0;
        self
    }

    /// Returns the rates that windows, round-trip time and capacity permit: a prediction that knows
    /// no other limit.
    pub fn permitted(&self) -> Vec<BitRate> {
        let rate = |cell: SweepCell| {
            (cell.flight_capacity().as_f64() * 8.0 / self.rtt.as_secs_f64()).min(self.capacity)
        };
        self.grid
            .all_cells()
            .into_iter()
            .map(|cell| BitRate::from_bps_f64(rate(cell)))
            .collect()
    }

    /// Returns the true rates, as a prediction that knows all limits.
    pub fn known(&self) -> Vec<BitRate> {
        self.truth
            .iter()
            .map(|rate| BitRate::from_bps_f64(*rate))
            .collect()
    }

    pub fn best(&self) -> f64 {
        self.truth.iter().copied().fold(0.0, f64::max)
    }

    /// Returns true if three times as many streams with the largest window are as slow, and half
    /// the window is as fast.
    pub fn shows_plateau(&self) -> bool {
        let (windows, streams) = (self.grid.windows(), self.grid.streams());
        let [half, window] = [2, 1].map(|from_end| windows[windows.len() - from_end]);
        let rate = |window, streams| self.rate(SweepCell { window, streams });
        let is_level = |few: &u16| {
            let many = streams.iter().copied().find(|streams| *streams >= 3 * few);
            many.is_some_and(|many| {
                let of_few = rate(window, *few);
                of_few < 0.85 * self.best()
                    && rate(half, *few) > 0.95 * of_few
                    && rate(window, many) < 1.06 * of_few
            })
        };
        streams.iter().any(is_level)
    }

    fn index(&self, cell: SweepCell) -> usize {
        self.grid
            .all_cells()
            .iter()
            .position(|of| *of == cell)
            .unwrap()
    }

    pub fn rate(&self, cell: SweepCell) -> f64 {
        self.truth[self.index(cell)]
    }

    fn run(&mut self, cell: SweepCell, reason: SweepReason, plan: &CampaignPlan) -> SweepRun {
        let index = self.index(cell);
        let length: RunLength = plan.run_length();
        let steady = length.steady.as_secs_f64();
        let correlated = (5.0 * self.rtt.as_secs_f64()).max(0.3);
        let deviation = libm::hypot(
            self.noise[index],
            2.0 * self.noise[index] * (correlated / steady).min(1.0).sqrt(),
        );
        let changed = self.change.filter(|change| self.clock > change.at);
        let share = self.load[index].min(1.0);
        let fall = changed.map_or(1.0, |change| 1.0 - (1.0 - change.factor) * share);
        let noise = libm::exp(deviation * self.random.normal() + self.drift * share);
        let burst = if self.random.unit() < BURSTS {
            self.random.between(0.55, 0.9)
        } else {
            1.0
        };
        let rate = BitRate::from_bps_f64(self.truth[index] * fall * noise * burst);
        let cost = run_cost(plan.fixed_plan(), length.total_time(), rate);
        let idle_rtt = self.rtt + changed.map_or(Span::ZERO, |change| change.rtt);
        self.pass(cost.time.as_secs_f64());
        SweepRun {
            cell,
            reason,
            rate: Some(rate),
            sent: cost.bytes,
            took: cost.time,
            idle_rtt: Some(idle_rtt),
            loaded_rtt: None,
            retransmits: None,
            together: None,
            load: None,
            device: None,
            broken: Vec::new(),
        }
    }

    fn pass(&mut self, seconds: f64) {
        let (deviation, lasting) = self.drifts;
        let keeps = libm::exp(-seconds / lasting);
        self.drift =
            keeps * self.drift + (1.0 - keeps * keeps).sqrt() * deviation * self.random.normal();
        self.clock += seconds;
    }

    /// Returns the plan of a campaign.
    pub fn plan(&self) -> SweepPlan {
        SweepPlan {
            id: "simulated".to_owned(),
            target: "simulated".to_owned(),
            is_virtual: true,
            windows: self.grid.windows().to_vec(),
            streams: self.grid.streams().to_vec(),
            seed: 1,
            rtt: self.rtt,
            duty: Ratio::new(0.5),
            budget: Ratio::new(0.2),
            ..SweepPlan::default()
        }
    }

    /// Carries out `plan`.
    pub fn runs(&mut self, plan: &CampaignPlan) -> Vec<SweepRun> {
        self.runs_but(plan, |_, _| false)
    }

    /// Carries out `plan`; a run after others does not count if `fails` says so.
    pub fn runs_but(
        &mut self,
        plan: &CampaignPlan,
        fails: impl Fn(&[SweepRun], &SweepRun) -> bool,
    ) -> Vec<SweepRun> {
        let mut runs = Vec::new();
        while let CampaignStep::Run { cell, reason } = plan.next_step(&runs) {
            let run = self.run(cell, reason, plan);
            let rate = run.rate.filter(|_| !fails(&runs, &run));
            runs.push(SweepRun { rate, ..run });
        }
        runs
    }

    /// Carries out a whole campaign.
    pub fn campaign(&mut self) -> Outcome {
        let plan = CampaignPlan::new(self.plan()).unwrap();
        let runs = self.runs(&plan);
        let begun = runs.iter().scan(0.0, |clock, run| {
            Some(std::mem::replace(clock, *clock + run.took.as_secs_f64()))
        });
        let begun = begun.collect();
        let answer = plan.current_answer(&runs);
        let cells = self.grid.all_cells();
        let (bytes, time) = (
            self.truth.iter().sum::<f64>() * 10.0 / 8.0,
            20.0 * cells.len() as f64,
        );
        let enough = cells
            .iter()
            .filter(|cell| self.rate(**cell) >= 0.95 * self.best());
        let least = enough.map(|cell| cell.flight_capacity()).min().unwrap();
        let knee = answer.as_ref().map(|answer| answer.knee.cell);
        Outcome {
            rate: knee.map_or(0.0, |knee| self.rate(knee) / self.best()),
            product: knee.map_or(0.0, |knee| knee.flight_capacity().as_f64() / least.as_f64()),
            bytes: runs.iter().map(|run| run.sent.as_f64()).sum::<f64>() / bytes,
            time: runs.iter().map(|run| run.took.as_secs_f64()).sum::<f64>() / time,
            segments: plan.segment_starts(&runs),
            from: plan.counts_from(&runs),
            runs,
            begun,
            answer,
        }
    }
}

/// Returns a run that does not count.
pub fn broken(cell: SweepCell) -> SweepRun {
    SweepRun {
        cell,
        reason: SweepReason::Anchor,
        rate: None,
        sent: ByteCount::ZERO,
        took: Span::from_secs(1),
        idle_rtt: None,
        loaded_rtt: None,
        retransmits: None,
        together: None,
        load: None,
        device: None,
        broken: vec!["the connection was reset".to_owned()],
    }
}

/// Limits in figures.
struct Shape {
    rate: f64,
    rtt: f64,
    sharpness: f64,
    clamp: f64,
    stream_rate: f64,
    /// Share of other traffic, and its streams.
    cross: Option<(f64, f64)>,
    /// Rate of the processor, and its decline a doubling of the streams.
    cpu: Option<(f64, f64)>,
    /// Queue in BDP, and the decline over four doublings.
    decline: Option<(f64, f64)>,
    /// Rate that fewer streams than this can have.
    plateau: Option<(f64, f64)>,
    /// Loss of a single stream far beyond a policer's rate, and the bucket in BDP.
    policer: Option<(f64, f64)>,
    /// Rate at which the receiver reads.
    reader: Option<(f64, f64)>,
    /// Rate of a second bottleneck, and the other streams there.
    second: Option<(f64, f64)>,
}

impl Shape {
    fn new(family: Family, rate: f64, rtt: f64, random: &mut Random) -> Self {
        let sharpness = random.between(3.0, 12.0);
        let mut has =
            |own, share| family == own || (family == Family::Mixed && random.unit() < share);
        let kinds = [
            has(Family::Clamp, 0.4),
            has(Family::Loss, 0.5),
            has(Family::Cross, 0.5),
            has(Family::Cpu, 0.3),
            has(Family::Decline, 0.5),
            has(Family::Plateaus, 0.0),
        ];
        let [policer, reader, second] = FURTHER.map(|of| family == of);
        let mut draw_if = |is: bool, ranges: [(f64, f64); 2]| {
            is.then(|| {
                (
                    random.between(ranges[0].0, ranges[0].1),
                    random.between(ranges[1].0, ranges[1].1),
                )
            })
        };
        let mut draw = |kind: usize, ranges| draw_if(kinds[kind], ranges);
        let clamp = draw(0, [(6.0, 11.0), (0.0, 1.0)]);
        Self {
            rate,
            rtt,
            sharpness,
            clamp: clamp.map_or(f64::INFINITY, |(power, _)| {
                libm::exp2(power.floor()) * 1024.0
            }),
            stream_rate: draw(1, [(0.02, 0.6), (0.0, 1.0)])
                .map_or(f64::INFINITY, |(share, _)| share * rate),
            cross: draw(2, [(0.0, 0.4), (0.3, 5.0)]),
            cpu: draw(3, [(0.5, 1.2), (0.02, 0.1)]),
            decline: draw(4, [(0.2, 2.0), (0.05, 0.35)]),
            plateau: draw(5, [(0.4, 0.75), (6.0, 20.0)]),
            policer: draw_if(policer, [(0.15, 0.5), (0.05, 0.5)]),
            reader: draw_if(reader, [(0.3, 0.9), (0.0, 1.0)]),
            second: draw_if(second, [(0.7, 1.5), (0.3, 5.0)]),
        }
    }

    fn offered(&self, (window, streams): (f64, f64)) -> f64 {
        streams * (window.min(self.clamp) * 8.0 / self.rtt).min(self.stream_rate)
    }

    fn capacity(&self, streams: f64) -> f64 {
        let cross = self.cross.map_or(1.0, |(share, others)| {
            (1.0 - share) * streams / (streams + others)
        });
        let cpu = self.cpu.map_or(f64::INFINITY, |(share, decline)| {
            share * self.rate * (1.0 - decline * libm::log2(streams / 4.0).max(0.0))
        });
        let plateau = self.plateau.map_or(
            1.0,
            |(share, from)| if streams < from { share } else { 1.0 },
        );
        // The more streams probe for bandwidth, the more losses, and the more of them others take.
        let second = self.second.map_or(f64::INFINITY, |(share, others)| {
            let others = others * (1.0 + 0.2 * libm::log2(streams));
            share * self.rate * streams / (streams + others)
        });
        let reader = self
            .reader
            .map_or(f64::INFINITY, |(share, _)| share * self.rate);
        (self.rate * cross * plateau)
            .min(cpu)
            .min(reader)
            .min(second)
    }

    fn rate(&self, cell: (f64, f64)) -> f64 {
        let capacity = self.capacity(cell.1);
        let load = self.offered(cell) / capacity;
        let rate = capacity * load
            / libm::pow(1.0 + libm::pow(load, self.sharpness), 1.0 / self.sharpness);
        let flight = cell.0.min(self.clamp) * cell.1;
        let declined = self.decline.map_or(0.0, |(queue, decline)| {
            decline
                * (libm::log2(flight * 8.0 / (self.rate * self.rtt * (1.0 + queue))) / 4.0)
                    .clamp(0.0, 1.0)
        });
        rate * (1.0 - declined) * (1.0 - self.policed(cell))
    }

    /// Returns the part of the rate that is lost to a policer: more the further beyond rate and
    /// bucket, until every round trip ends with losses, and less with many streams, of which few
    /// recover at a time.
    fn policed(&self, cell: (f64, f64)) -> f64 {
        let Some((loss, bucket)) = self.policer else {
            return 0.0;
        };
        let excess = libm::log2(self.offered(cell) / (self.rate * (1.0 + bucket))).clamp(0.0, 1.0);
        loss * excess / cell.1.sqrt()
    }
}

struct Random(Pcg64Mcg);

impl Random {
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// 50 Mbit/s to 2 Gbit/s and 10 to 250 ms, with a BDP that the grid holds; or does not, if that
    /// is the family.
    fn rate_and_rtt(&mut self, family: Family) -> (f64, f64) {
        const MAX_PRODUCT: f64 = 4.0 * 1024.0 * 1024.0 * 90.0;
        let (fast, far) = match family {
            Family::Flat => return (self.between(1e6, 2e6), 0.01),
            Family::Beyond => return (self.between(80e9, 200e9), self.between(0.15, 0.25)),
            _ => ((50e6_f64, 2e9_f64), (0.01_f64, 0.25_f64)),
        };
        loop {
            let rate = libm::exp(self.between(libm::log(fast.0), libm::log(fast.1)));
            let rtt = libm::exp(self.between(libm::log(far.0), libm::log(far.1)));
            if (48.0 * 1024.0..0.5 * MAX_PRODUCT).contains(&(rate * rtt / 8.0)) {
                return (rate, rtt);
            }
        }
    }

    /// Deviation between runs: more near the knee, less with many streams.
    fn noise(&mut self, streams: f64, load: f64) -> f64 {
        let doublings = libm::log2(load);
        let near = libm::exp(-doublings * doublings / 2.0);
        self.between(0.01, 0.03) + near * self.between(0.03, 0.12) / libm::pow(streams, 0.25)
    }
}
