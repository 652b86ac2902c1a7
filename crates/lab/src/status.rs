use std::time::Instant;

use fullpipe_record::{DirectionStatus, PathStatus};
use fullpipe_units::{BitRate, Span};

use crate::carried::DirectionCounts;
use crate::error::LabError;
use crate::lab::{CountReader, Lab};

/// A meter of a lab's path, interval by interval.
pub struct PathMeter<'l> {
    lab: &'l Lab,
    counts: CountReader<'l>,
    since: Instant,
    device_drops: u64,
}

impl<'l> PathMeter<'l> {
    /// Begins to measure the path of `lab`.
    ///
    /// # Errors
    /// If the lab is gone.
    pub fn start(lab: &'l Lab) -> Result<Self, LabError> {
        Ok(Self {
            counts: CountReader::start(lab)?,
            lab,
            since: Instant::now(),
            device_drops: lab.device_drops()?,
        })
    }

    /// Returns the status since the last call; of stretches, that of the long one.
    ///
    /// # Errors
    /// If the lab is gone.
    pub fn read(&mut self) -> Result<PathStatus, LabError> {
        let drops = self.lab.device_drops()?;
        let now = Instant::now();
        let interval = Span::from(now - self.since);
        let carried = self.counts.read()?;
        let refused: u64 = carried
            .as_flattened()
            .iter()
            .filter_map(|one_way| Some(one_way.timing.as_ref()?.refused))
            .sum();
        let device_drops = drops.saturating_sub(self.device_drops) + refused;
        (self.since, self.device_drops) = (now, drops);
        let [forward, reverse] = carried[carried.len() / 2]
            .each_ref()
            .map(|carried| direction_status(carried, interval));
        Ok(PathStatus {
            interval,
            forward,
            reverse,
            device_drops,
        })
    }
}

fn direction_status(carried: &DirectionCounts, interval: Span) -> DirectionStatus {
    let lateness = carried
        .timing
        .as_ref()
        .map(|timing| &timing.lateness)
        .filter(|lateness| !lateness.is_empty());
    let [median, p90, p99] = [0.5, 0.9, 0.99]
        .map(|share| lateness.map(|late| Span::from_nanos(late.value_at_quantile(share))));
    DirectionStatus {
        rate: BitRate::from_bytes_in(carried.delivered, interval),
        queue: carried.backlog,
        propagating: carried.propagating,
        queue_drops: carried.overflowed,
        injected_losses: carried.lost,
        lateness_median: median,
        lateness_p90: p90,
        lateness_p99: p99,
    }
}
