//! The runs of a sweep in time, and the traffic of the device that carries them.

use crate::chart::displayable_text;
use fullpipe_record::{SweepReport, SweepRun};

use crate::prelude::*;

/// Rests that are shorter are not worth a rate: a few packets would be a high one.
const MIN_REST: Span = Span::from_millis(500);

/// Share of the most that the device carried below which other traffic is hardly any. That of runs
/// is known to about a hundredth of their rate.
const HARDLY: f64 = 0.02;

/// A run, and when it was.
pub(crate) struct TimedRun<'r> {
    /// The run.
    pub run: &'r SweepRun,
    /// Begin of the run, since that of the first.
    pub from: Span,
    /// The end of its load, where its rest begins.
    pub to: Span,
}

/// Returns the runs in their order: as they were, where the device was read before and after each,
/// and else with their planned rests.
pub(crate) fn timed_runs(report: &SweepReport) -> Vec<TimedRun<'_>> {
    let (mut planned, mut end) = (Span::ZERO, Span::ZERO);
    let mut runs = Vec::new();
    for run in &report.runs {
        let device = run.device.as_ref();
        let from = device
            .and_then(|device| device.before)
            .map_or(planned, |before| end + before.span);
        end = from
            + device.map_or(run.took.scale_by(report.plan.duty.get()), |device| {
                device.during.span
            });
        planned = from + run.took;
        runs.push(TimedRun { run, from, to: end });
    }
    runs
}

/// A part of a sweep over which the traffic of the device was counted: a run or a rest.
pub(crate) struct TrafficInterval {
    /// Begin of the part, since that of the first run.
    pub from: Span,
    /// End of the part, since the begin of the first run.
    pub to: Span,
    /// Rate of all that the device carried in the direction of the data.
    pub all: BitRate,
    /// Rate of what was not of the sweep.
    pub other: BitRate,
    /// True if it is a run.
    pub is_run: bool,
}

/// The traffic of the device of a sweep.
pub(crate) struct DeviceTraffic {
    /// Name of the device.
    pub device: String,
    /// Speed of the device, if it is known and may be right.
    pub speed: Option<BitRate>,
    /// Runs and rests in their order.
    pub parts: Vec<TrafficInterval>,
}

/// Returns the traffic of the device of the last run; `None` where none was read.
pub(crate) fn device_traffic(report: &SweepReport, runs: &[TimedRun<'_>]) -> Option<DeviceTraffic> {
    let last = runs
        .iter()
        .rev()
        .find_map(|placed| placed.run.device.as_ref())?;
    let direction = report.plan.direction;
    let mut parts = Vec::new();
    for TimedRun { run, from, to } in runs {
        let Some(device) = run
            .device
            .as_ref()
            .filter(|device| device.name == last.name)
        else {
            continue;
        };
        if let Some(rest) = device.before.filter(|rest| rest.span >= MIN_REST) {
            let all = rest.rate_in_direction(direction);
            let begin = from.saturating_sub(rest.span);
            parts.push(TrafficInterval {
                from: begin,
                to: *from,
                all,
                other: all,
                is_run: false,
            });
        }
        let (all, other) = (
            device.during.rate_in_direction(direction),
            device.other_rate(direction),
        );
        parts.push(TrafficInterval {
            from: *from,
            to: *to,
            all,
            other,
            is_run: true,
        });
    }
    // Some virtual devices state a speed that is none.
    let most = parts.iter().map(|part| part.all).max()?;
    Some(DeviceTraffic {
        device: displayable_text(&last.name),
        speed: last.speed.filter(|speed| *speed >= most),
        parts,
    })
}

impl DeviceTraffic {
    /// Returns other traffic on average and at most, as words.
    pub(crate) fn of_others(&self) -> String {
        let most_of_all = self
            .parts
            .iter()
            .map(|part| part.all)
            .max()
            .unwrap_or_default();
        let most = self
            .parts
            .iter()
            .map(|part| part.other)
            .max()
            .unwrap_or_default();
        if most <= most_of_all.scale_by(HARDLY) {
            return "hardly any other traffic".to_owned();
        }
        let lengths = self
            .parts
            .iter()
            .map(|part| part.to.saturating_sub(part.from));
        let pairs = self.parts.iter().zip(lengths.clone());
        let bytes: ByteCount = pairs
            .map(|(part, length)| part.other.bytes_in(length))
            .sum();
        let mean = BitRate::from_bytes_in(bytes, lengths.sum());
        format!("{mean} of other traffic on average, {most} at most")
    }
}
