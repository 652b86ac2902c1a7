//! The plan of a sweep, from a measurement under hardly any load.

use fullpipe_model::predict;
use fullpipe_record::{Buffer, DailyHours, SweepCell, SweepCost, SweepOrder, SweepPlan};
use fullpipe_stats::campaign::{CampaignPlan, SweepGrid, run_cost};
use uuid::Uuid;

use crate::prelude::*;

/// Duration of the measurement that precedes a plan.
const LIGHT_TIME: Span = Span::from_secs(1);

/// The sweep that the user asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepWishes {
    /// The far end, or the scenario.
    pub target: String,
    /// True if the path and both hosts are simulated.
    pub is_virtual: bool,
    /// Windows and streams.
    pub grid: SweepGrid,
    /// Order of the whole grid, if it is to be measured.
    pub order: Option<SweepOrder>,
    /// Seed.
    pub seed: u64,
    /// Part of the time in which the path is loaded.
    pub duty: Ratio,
    /// Bytes and time at most, as shares of those of the whole grid.
    pub budget: Ratio,
    /// Bytes at most.
    pub max_bytes: Option<ByteCount>,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Direction of the data.
    pub direction: Direction,
    /// Hours of each day in which runs begin.
    pub hours: Option<DailyHours>,
}

/// Returns the load of the measurement that precedes a plan: it states round-trip time and
/// settings, and hardly loads the path.
pub fn light_request(wishes: &SweepWishes) -> Request {
    Request {
        duration: LIGHT_TIME,
        rate: Some(BitRate::from_mbps(1)),
        block: ByteCount::ZERO,
        congestion: wishes.congestion.clone(),
        direction: wishes.direction,
        ..Request::default()
    }
}

/// Returns the plan after `light`, the measurement of [`light_request`]. With a `path` whose
/// capacity is known, rates are predicted for all settings.
pub fn plan_sweep(wishes: SweepWishes, light: &Measurement, path: Option<&Path>) -> SweepPlan {
    let rtt = idle_rtt(light)
        .or(path.map(Path::rtt))
        .unwrap_or(Span::from_millis(1));
    let ends = [light.sending_end(), light.receiving_end()].map(|end| {
        end.settings
            .clone()
            .unwrap_or_else(HostSettings::of_linux_6_18)
    });
    let predicted = path.map_or_else(Vec::new, |path| predict_rates(&wishes, path, &ends));
    SweepPlan {
        id: Uuid::now_v7().to_string(),
        target: wishes.target,
        is_virtual: wishes.is_virtual,
        windows: wishes.grid.windows().to_vec(),
        streams: wishes.grid.streams().to_vec(),
        order: wishes.order,
        seed: wishes.seed,
        rtt,
        overhead: wall_time(light).saturating_sub(LIGHT_TIME),
        duty: wishes.duty,
        budget: wishes.budget,
        max_bytes: wishes.max_bytes,
        congestion: wishes.congestion,
        direction: wishes.direction,
        hours: wishes.hours,
        predicted,
        forecast: None,
    }
}

/// Returns the time that a measurement took, with set-up and drain.
pub(crate) fn wall_time(measurement: &Measurement) -> Span {
    measurement
        .run
        .map_or(measurement.summary.duration, |totals| totals.wall)
}

/// Returns the round-trip time without load that a measurement shows.
pub(crate) fn idle_rtt(measurement: &Measurement) -> Option<Span> {
    measurement.rtt.idle.map(|idle| idle.min)
}

fn predict_rates(
    wishes: &SweepWishes,
    path: &Path,
    [sender, receiver]: &[HostSettings; 2],
) -> Vec<BitRate> {
    let cells = wishes.grid.all_cells().into_iter();
    let requests = cells.map(|cell| Request {
        congestion: wishes.congestion.clone(),
        ..run_request(cell, Span::from_secs(60))
    });
    requests
        .map(|request| predict(path, sender, receiver, &request).kernel_model)
        .collect()
}

/// Returns the load of a run of `cell`.
pub(crate) fn run_request(cell: SweepCell, duration: Span) -> Request {
    Request {
        streams: cell.streams,
        duration,
        buffer: Buffer::Window(cell.window),
        block: ByteCount::ZERO,
        ..Request::default()
    }
}

/// Returns the cost of the whole grid, measured as often as the order says, as far as rates are
/// predicted; `None` where they are not.
pub fn predicted_grid_cost(plan: &CampaignPlan) -> Option<SweepCost> {
    let fixed = plan.fixed_plan();
    if fixed.predicted.is_empty() {
        return None;
    }
    let times = if fixed.order == Some(SweepOrder::Both) {
        2
    } else {
        1
    };
    let runs = std::iter::repeat_n(&fixed.predicted, times).flatten();
    Some(
        runs.map(|rate| run_cost(fixed, Span::from_secs(10), *rate))
            .fold(SweepCost::default(), std::ops::Add::add),
    )
}
