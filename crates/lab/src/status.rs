use std::time::Instant;

use fullpipe_units::{BitRate, ByteCount, Span};
use serde::Serialize;

use crate::carried::Carried;
use crate::error::LabError;
use crate::lab::Lab;

/// What a path did in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathStatus {
    /// The interval.
    pub interval: Span,
    /// From the sender to the receiver.
    pub forward: DirectionStatus,
    /// The way back.
    pub reverse: DirectionStatus,
    /// Packets that devices dropped outside of the emulated queues.
    pub device_drops: u64,
}

/// What one direction of a path did in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DirectionStatus {
    /// At which rate packets were handed over, counted as the path's framing says.
    pub rate: BitRate,
    /// What waits in the queue at its end, or is being sent.
    pub queue: ByteCount,
    /// What has left the link at its end, and has not arrived.
    pub propagating: ByteCount,
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets that were lost on purpose.
    pub injected_losses: u64,
    /// The lateness that half of the packets stayed below; none where there was no packet, and where the kernel is the
    /// path.
    pub lateness_median: Option<Span>,
    /// The lateness that nine tenths of the packets stayed below, likewise.
    pub lateness_p90: Option<Span>,
    /// The lateness that 99 % of the packets stayed below, likewise.
    pub lateness_p99: Option<Span>,
}

/// A look at what a lab's path does, interval by interval.
pub struct Meter<'l> {
    lab: &'l Lab,
    since: Instant,
    device_drops: u64,
}

impl<'l> Meter<'l> {
    pub(crate) fn start(lab: &'l Lab) -> Result<Self, LabError> {
        lab.take_carried()?;
        Ok(Self { lab, since: Instant::now(), device_drops: lab.device_drops()? })
    }

    /// What it did since the last call.
    ///
    /// # Errors
    /// If the lab is gone.
    pub fn read(&mut self) -> Result<PathStatus, LabError> {
        let drops = self.lab.device_drops()?;
        let now = Instant::now();
        let interval = Span::from(now - self.since);
        let carried = self.lab.take_carried()?;
        let refused: u64 = carried.iter().filter_map(|one_way| Some(one_way.timing.as_ref()?.refused)).sum();
        let device_drops = drops.saturating_sub(self.device_drops) + refused;
        (self.since, self.device_drops) = (now, drops);
        let [forward, reverse] = carried.each_ref().map(|carried| DirectionStatus::of(carried, interval));
        Ok(PathStatus { interval, forward, reverse, device_drops })
    }
}

impl DirectionStatus {
    fn of(carried: &Carried, interval: Span) -> Self {
        let lateness = carried.timing.as_ref().map(|timing| &timing.lateness).filter(|lateness| !lateness.is_empty());
        let late = |share| lateness.map(|lateness| Span::from_nanos(lateness.value_at_quantile(share)));
        Self {
            rate: BitRate::of(carried.delivered, interval),
            queue: carried.backlog,
            propagating: carried.propagating,
            queue_drops: carried.overflowed,
            injected_losses: carried.lost,
            lateness_median: late(0.5),
            lateness_p90: late(0.9),
            lateness_p99: late(0.99),
        }
    }
}
