use std::fmt;

use crate::prelude::*;
use crate::ramp::is_longer;
use crate::{DailyHours, Direction, Measurement};

/// A setting of a sweep: an advertised window of each stream, and a number of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SweepCell {
    /// Window that the receiver advertises on each stream.
    pub window: ByteCount,
    /// Parallel streams.
    pub streams: u16,
}

impl SweepCell {
    /// Returns the bytes that all streams together can have in flight.
    pub fn flight_capacity(self) -> ByteCount {
        ByteCount::new(self.window.get().saturating_mul(self.streams.into()))
    }
}

impl fmt::Display for SweepCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.streams, self.window)
    }
}

/// The reason for a run of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepReason {
    /// One of the first settings, which span the grid.
    Anchor,
    /// The setting may be the fastest of all.
    Best,
    /// The setting is cheap, and may be as good as the fastest.
    Edge,
    /// The answer depends on it, and it has few runs.
    Repeat,
    /// The setting was measured before, and shows if the path is still the same.
    Reference,
    /// The run before did not count.
    Again,
    /// The setting shows if the rate stays at a lower level for a while.
    Level,
    /// The whole grid is measured.
    Grid,
}

/// The load of a run of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepLoad {
    /// Rate at which payload arrived in each half second of the load, of all streams together.
    pub rates: Vec<BitRate>,
    /// Length of the ramp, where there is a steady part after it.
    pub ramp: Option<Span>,
    /// Median over the streams and the time after the ramp of the smoothed round-trip time of the
    /// sender's kernel.
    pub smoothed_rtt: Option<Span>,
    /// Processor time of the sender, as a share of one core.
    pub cpu_sender: Option<Ratio>,
    /// Processor time of the receiver, likewise.
    pub cpu_receiver: Option<Ratio>,
}

impl SweepLoad {
    /// Time of which each rate is.
    pub const STEP: Span = Span::from_millis(500);
}

/// The traffic of a network device over a part of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepTraffic {
    /// Length of that part.
    pub span: Span,
    /// Bytes that the device sent, with headers.
    pub sent: ByteCount,
    /// Bytes that it received, with headers.
    pub received: ByteCount,
}

impl SweepTraffic {
    /// Returns the rate of all bytes that went in the direction of the data.
    pub fn rate_in_direction(&self, direction: Direction) -> BitRate {
        BitRate::from_bytes_in(self.bytes_in_direction(direction), self.span)
    }

    const fn bytes_in_direction(&self, direction: Direction) -> ByteCount {
        match direction {
            Direction::Upload | Direction::Both => self.sent,
            Direction::Download => self.received,
        }
    }
}

/// The network device of this end that carries the data of a sweep, and what else it carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepDevice {
    /// Name of the device, such as `eth0`.
    pub name: String,
    /// Speed of its link, or the rate of an emulated path; `None` if it is not known.
    pub speed: Option<BitRate>,
    /// Traffic of the device since the end of the run before; `None` before the first run, and
    /// where the sweep was resumed.
    pub before: Option<SweepTraffic>,
    /// Traffic of the device during the run, set-up and drain included.
    pub during: SweepTraffic,
    /// Bytes of the run itself among these, in the direction of the data: its payload,
    /// retransmissions, and headers, as far as they follow from sizes of packets. The rest is other
    /// traffic.
    pub own: ByteCount,
}

impl SweepDevice {
    /// Returns the rate of other traffic during the run, in the direction of the data.
    pub fn other_rate(&self, direction: Direction) -> BitRate {
        BitRate::from_bytes_in(
            self.during
                .bytes_in_direction(direction)
                .saturating_sub(self.own),
            self.during.span,
        )
    }
}

/// A run of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepRun {
    /// The setting.
    pub cell: SweepCell,
    /// The reason for the run.
    pub reason: SweepReason,
    /// Goodput after the ramp; `None` if the run does not count.
    pub rate: Option<BitRate>,
    /// Payload that was sent, the ramp included.
    pub sent: ByteCount,
    /// Time of the run: set-up, ramp, drain, and the rest after it.
    pub took: Span,
    /// Least round-trip time before the run, without load.
    pub idle_rtt: Option<Span>,
    /// Median round-trip time under load.
    pub loaded_rtt: Option<Span>,
    /// Retransmitted segments.
    pub retransmits: Option<SegCount>,
    /// Variance of the rate of all streams together over time, relative to the sum of the variances
    /// of each: below 1 where others take up what one leaves, above 1 where they rise and fall
    /// together. `None` with a single stream.
    pub together: Option<Ratio>,
    /// Load over time, the kernel's round-trip time and the processors; `None` where they were not
    /// recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<SweepLoad>,
    /// The device that carried its data, with other traffic before and during the run; `None` where
    /// it is not counted, as in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<SweepDevice>,
    /// The reasons why the run does not count, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
}

impl SweepRun {
    /// Returns a run of which only the rate and the cost are known.
    pub const fn from_cost(
        cell: SweepCell,
        reason: SweepReason,
        rate: BitRate,
        cost: SweepCost,
    ) -> Self {
        Self {
            cell,
            reason,
            rate: Some(rate),
            sent: cost.bytes,
            took: cost.time,
            idle_rtt: None,
            loaded_rtt: None,
            retransmits: None,
            together: None,
            load: None,
            device: None,
            broken: Vec::new(),
        }
    }

    /// Returns true if the round trip under load was longer than without by more than a tenth and a
    /// millisecond; `None` if one of both is not known.
    pub fn is_rtt_longer(&self) -> Option<bool> {
        Some(is_longer(self.loaded_rtt?, self.idle_rtt?))
    }
}

/// The rate of a setting, by all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepEstimate {
    /// The setting.
    pub cell: SweepCell,
    /// Expected rate.
    pub rate: BitRate,
    /// Lower end of the 95 % interval of the rate.
    pub low: BitRate,
    /// Upper end.
    pub high: BitRate,
    /// Runs of this setting that count; the rate of a setting without any follows from its
    /// neighbours.
    pub runs: u32,
}

/// The form of the rates over the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepShape {
    /// The rate grows up to a knee.
    Knee,
    /// The rate still grows where the grid ends: the knee lies beyond.
    BeyondGrid,
    /// All settings have the same rate: the knee lies below the grid.
    Flat,
    /// The rate stays at a lower level for a while before it grows to the best.
    TwoPlateaus,
}

/// The answer of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepAnswer {
    /// The cheapest setting, by streams × window, that has 95 % of the best rate.
    pub knee: SweepEstimate,
    /// True if that is sure, false if it is the best within the budget.
    pub sure: bool,
    /// The form of the rates.
    pub shape: SweepShape,
    /// The fastest setting of those that were measured.
    pub best: SweepEstimate,
    /// The cheapest setting that may be the knee.
    pub cheapest: SweepCell,
    /// The dearest setting that may be the knee.
    pub dearest: SweepCell,
    /// The setting with the fewest streams that does.
    pub fewest_streams: SweepEstimate,
    /// The setting with the smallest window that does.
    pub smallest_window: SweepEstimate,
    /// For each number of streams, the smallest window that does, if any.
    pub frontier: Vec<SweepEstimate>,
}

/// The order of a sweep over the whole grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepOrder {
    /// All windows with the fewest streams, then all windows with the next number, as SLAC
    /// measured.
    Nested,
    /// Blocks of which each has every window once, in random order: a slow change of the path does
    /// not look like an effect of the settings.
    Scrambled,
    /// The nested order, and then the scrambled one: what comes again belongs to the settings, and
    /// what does not to the time.
    Both,
}

/// Payload and time of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SweepCost {
    /// Payload that is sent.
    pub bytes: ByteCount,
    /// Time, set-up, drain and rests included.
    pub time: Span,
}

impl std::ops::Add for SweepCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            time: self.time + other.time,
        }
    }
}

/// The cost that a sweep will have in the end, by sweeps that were simulated over paths that may be
/// this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweepForecast {
    /// Bytes and time that half of them stayed below.
    pub median: SweepCost,
    /// Bytes and time that a twentieth of them stayed below.
    pub low: SweepCost,
    /// Bytes and time that all but a twentieth stayed below.
    pub high: SweepCost,
}

/// Everything that is fixed before the first run of a sweep: with it, the runs so far decide which
/// run is next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepPlan {
    /// Name of the sweep.
    pub id: String,
    /// The far end, or the scenario.
    pub target: String,
    /// True if the path and both hosts are simulated.
    pub is_virtual: bool,
    /// Windows, in rising order.
    pub windows: Vec<ByteCount>,
    /// Numbers of streams, in rising order.
    pub streams: Vec<u16>,
    /// Order in which the whole grid is measured; `None` to measure only what the answer depends
    /// on.
    pub order: Option<SweepOrder>,
    /// Seed of what falls to chance.
    pub seed: u64,
    /// Round-trip time without load before the first run.
    pub rtt: Span,
    /// Time of a run besides that of its load: set-up and drain.
    pub overhead: Span,
    /// Part of the time in which the path is loaded.
    pub duty: Ratio,
    /// Bytes and time at most, as shares of those of the whole grid.
    pub budget: Ratio,
    /// Bytes at most.
    pub max_bytes: Option<ByteCount>,
    /// Congestion control; the kernel's default if not set.
    pub congestion: Option<String>,
    /// Direction of the data.
    #[serde(default)]
    pub direction: Direction,
    /// Hours of each day in which runs begin; all if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<DailyHours>,
    /// Rates that are predicted for all settings: all windows with the fewest streams first. Empty
    /// where the capacity of the path is not known.
    pub predicted: Vec<BitRate>,
    /// Cost in the end, forecast before the first run; `None` where no rates are predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<SweepForecast>,
}

impl Default for SweepPlan {
    /// Returns a plan without settings, which may spend the bytes and the time of the whole grid
    /// and load the path all the time.
    fn default() -> Self {
        Self {
            id: String::new(),
            target: String::new(),
            is_virtual: false,
            windows: Vec::new(),
            streams: Vec::new(),
            order: None,
            seed: 0,
            rtt: Span::ZERO,
            overhead: Span::ZERO,
            duty: Ratio::ONE,
            budget: Ratio::ONE,
            max_bytes: None,
            congestion: None,
            direction: Direction::default(),
            hours: None,
            predicted: Vec::new(),
            forecast: None,
        }
    }
}

/// The cause of dips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepDipCause {
    /// The path changed slowly, which the order of the runs makes look like an effect of the
    /// settings.
    Order,
    /// Other traffic came and went.
    CrossTraffic,
    /// More may be in flight than the fastest runs had.
    BeyondFlight,
}

/// Dips: runs with less than 80 % of the rate that a setting with no more streams and no larger
/// window typically has. The figures decide between three causes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepDips {
    /// Runs that count.
    pub runs: u32,
    /// Runs that are dips.
    pub dips: u32,
    /// Bytes in flight of the fastest setting: its rate times the round-trip time without load.
    pub flight: ByteCount,
    /// Runs whose streams × window is more than that.
    pub runs_beyond: u32,
    /// Dips among these.
    pub dips_beyond: u32,
    /// Dips whose setting has other runs too.
    pub repeated: u32,
    /// Dips whose setting has another run that is a dip too.
    pub again: u32,
    /// Spearman's rank correlation of each run with the next one of its setting, by their depths,
    /// among the settings that fill the path; `None` if hardly any of them has several runs.
    pub of_setting: Option<f64>,
    /// Spearman's rank correlation of each run with the one after it, each relative to the typical
    /// run of its setting, among the same settings.
    pub neighbours: Option<f64>,
    /// The cause, if the figures show one of the three.
    pub cause: Option<SweepDipCause>,
}

impl SweepDips {
    /// Returns true if noise explains them: fewer than three, or than one run of twenty.
    pub fn are_few(&self) -> bool {
        self.dips < 3 || self.dips < self.runs.div_ceil(20)
    }
}

/// The rank correlations of the growth of the round-trip time under load with the rate and the
/// setting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepRtt {
    /// The rate from which on the median round trip is longer than without load, by more than a
    /// tenth and a millisecond: the one with the fewest exceptions. `None` if it hardly ever is.
    pub climbs_from: Option<BitRate>,
    /// Spearman's rank correlation with the rate, from -1 to 1.
    pub with_rate: f64,
    /// Spearman's partial rank correlation with the window, at the same rate.
    pub with_window: f64,
    /// Spearman's partial rank correlation with the number of streams, at the same rate.
    pub with_streams: f64,
    /// Spearman's partial rank correlation with streams × window, at the same rate.
    pub with_product: f64,
}

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepReport {
    /// Plan that was fixed before the first run.
    pub plan: SweepPlan,
    /// Runs, in their order.
    pub runs: Vec<SweepRun>,
    /// Numbers of the runs, from 0, from which on the path was another than before; the first is 0.
    pub segments: Vec<u32>,
    /// The answer; `None` if too few runs were made over the path as it is now.
    pub answer: Option<SweepAnswer>,
    /// Settings that are left out, since at least two of their runs, and more than half, do not
    /// count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<SweepCell>,
    /// The cheapest setting for which 95 % of the best rate is predicted, where the capacity is
    /// known.
    pub predicted_knee: Option<SweepCell>,
    /// Rates of all settings: all windows with the fewest streams first.
    pub surface: Vec<SweepEstimate>,
    /// Growth of the round-trip time under load.
    pub rtt: Option<SweepRtt>,
    /// Runs that are slower than smaller settings; `None` if no run counts.
    #[serde(default)]
    pub dips: Option<SweepDips>,
    /// Cost that was forecast before the first run, by its median.
    pub forecast: Option<SweepCost>,
    /// Cost of all runs.
    pub spent: SweepCost,
    /// Cost of the whole grid at 10 s a setting, as far as the runs show.
    pub grid: SweepCost,
    /// True if the user ended it.
    pub interrupted: bool,
}

/// A run of a sweep with its measurement, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepRunRecord {
    /// Name of the sweep.
    pub sweep: String,
    /// Number of the run, from 0.
    pub number: u32,
    /// Figures of the run.
    pub run: SweepRun,
    /// The measurement, with few of its samples; `None` if there was none.
    pub measurement: Option<Box<Measurement>>,
}
