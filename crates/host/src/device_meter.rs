//! Counts of a network device and its queueing disciplines.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fullpipe_record::{DeviceCounts, DeviceReport, QdiscReport};
use fullpipe_sys::{
    DeviceState, QueueState, device_counter_names, device_counters, device_link, device_state,
    filtered_packets, output_device, queue_states,
};

use crate::counters::counts_missing_buffers;

/// Maximum number of queueing disciplines that are reported: a device may have one for each of its
/// queues.
const MAX_QDISCS: usize = 64;

/// Counts what a network device and its queueing disciplines do, from when it was made on.
#[derive(Debug)]
pub struct DeviceMeter {
    before: DeviceState,
    queues: Vec<QueueState>,
    filtered: u32,
    /// Every queueing discipline so far, also those that were removed since.
    seen: Vec<(Identity, QdiscReport)>,
    driver: Option<DriverCounters>,
    report: DeviceReport,
}

/// Handle, parent and kind of a queueing discipline.
type Identity = (u32, u32, String);

impl DeviceMeter {
    /// Starts to count what the device does by which packets to `peer` leave.
    ///
    /// # Errors
    /// Fails if there is no way to `peer`, or the kernel does not report the device.
    pub fn toward_peer(peer: IpAddr) -> io::Result<Self> {
        Self::for_device(output_device(peer.to_canonical())?)
    }

    /// Starts to count what the device `name` does.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn for_device(name: String) -> io::Result<Self> {
        let before = device_state(&name)?;
        let queues = queue_states(before.index)?;
        let filtered = filtered_packets(before.index)?;
        let link = device_link(&name).unwrap_or_default();
        let report = DeviceReport {
            speed: link.speed,
            is_half_duplex: link.is_half_duplex,
            mtu: before.mtu,
            queue_length: Some(before.queue_length),
            name,
            ..DeviceReport::default()
        };
        Ok(Self {
            driver: DriverCounters::of_device(&report.name),
            before,
            queues,
            filtered,
            seen: Vec::new(),
            report,
        })
    }

    /// Returns the counts since the meter was made; `None` if the device has gone.
    pub fn take_sample(&mut self) -> Option<DeviceReport> {
        let now = device_state(&self.report.name)
            .ok()
            .filter(|now| now.index == self.before.index)?;
        let queues = queue_states(now.index).ok()?;
        update_queues(&mut self.seen, &queues, &self.queues);
        let qdiscs = self.seen.iter().map(|(_, report)| report.clone()).collect();
        self.report = DeviceReport {
            qdiscs,
            filtered_in: counter_growth(filtered_packets(now.index).ok()?, self.filtered),
            ..with_counts(std::mem::take(&mut self.report), &now, &self.before)
        };
        if let Some(driver) = &mut self.driver {
            self.report.without_buffer = driver.growth(&self.report.name);
        }
        Some(self.report.clone())
    }
}

/// Returns `report` with what the device counted between `before` and `now`.
fn with_counts(report: DeviceReport, now: &DeviceState, before: &DeviceState) -> DeviceReport {
    let more = |count: fn(&DeviceState) -> u64| count(now).saturating_sub(count(before));
    DeviceReport {
        dropped_out: more(|state| state.dropped_out),
        dropped_in: more(|state| state.dropped_in),
        sent_packets: more(|state| state.sent_packets),
        collisions: more(|state| state.link_errors.collisions),
        late_collisions: more(|state| state.link_errors.late_collisions),
        carrier_errors: more(|state| state.link_errors.carrier),
        checksum_errors: more(|state| state.link_errors.checksum),
        ..report
    }
}

/// Counters of a driver's own of packets for which it found no buffer.
#[derive(Debug)]
struct DriverCounters {
    /// Number of all counters of the driver, and the places of those.
    count: usize,
    places: Vec<usize>,
    before: u64,
    growth: u64,
    read_at: Instant,
    /// Time that the driver took for the last answer.
    cost: Duration,
}

impl DriverCounters {
    /// Returns those of a device whose driver has any.
    fn of_device(name: &str) -> Option<Self> {
        let names = device_counter_names(name).ok()?;
        let places: Vec<usize> = (0..names.len())
            .filter(|place| counts_missing_buffers(&names[*place]))
            .collect();
        let mut counters = Self {
            count: names.len(),
            before: 0,
            growth: 0,
            read_at: Instant::now(),
            cost: Duration::ZERO,
            places,
        };
        counters.before = counters
            .read(name)
            .filter(|_| !counters.places.is_empty())?;
        Some(counters)
    }

    fn read(&mut self, name: &str) -> Option<u64> {
        self.read_at = Instant::now();
        let values = device_counters(name, self.count);
        self.cost = self.read_at.elapsed();
        let values = values.ok()?;
        let of_place = |place: &usize| values.get(*place).copied().unwrap_or_default();
        Some(
            self.places
                .iter()
                .map(of_place)
                .fold(0, u64::saturating_add),
        )
    }

    /// Returns the packets since the begin. Some drivers take milliseconds for an answer: they are
    /// asked for no more than 1 % of the time.
    fn growth(&mut self, name: &str) -> u64 {
        if self.read_at.elapsed() >= self.cost * 100
            && let Some(now) = self.read(name)
        {
            self.growth = now.saturating_sub(self.before);
        }
        self.growth
    }
}

/// Returns the counts of the device `name`.
///
/// # Errors
/// Fails if there is no such device.
pub fn device_counts(name: &str) -> io::Result<DeviceCounts> {
    let state = device_state(name)?;
    Ok(DeviceCounts {
        name: name.to_owned(),
        speed: device_link(name).ok().and_then(|link| link.speed),
        mtu: state.mtu,
        link_header: state.link_header,
        sent_packets: state.sent_packets,
        sent: state.sent,
        received_packets: state.received_packets,
        received: state.received,
    })
}

/// Takes the counts of the `queues` that are there over into what was `seen`. One that was removed
/// stays as it was.
fn update_queues(
    seen: &mut Vec<(Identity, QdiscReport)>,
    queues: &[QueueState],
    before: &[QueueState],
) {
    for queue in queues {
        let (identity, report) = (queue_identity(queue), qdisc_growth(queue, before));
        if let Some((_, last)) = seen.iter_mut().find(|(known, _)| *known == identity) {
            *last = QdiscReport {
                backlog: report.backlog.max(last.backlog),
                ..report
            };
        } else if seen.len() < MAX_QDISCS {
            seen.push((identity, report));
        }
    }
}

fn queue_identity(queue: &QueueState) -> Identity {
    (queue.handle, queue.parent, queue.kind.clone())
}

/// Returns the counts of `queue` since `before`, or since it was added.
fn qdisc_growth(queue: &QueueState, before: &[QueueState]) -> QdiscReport {
    let before = before
        .iter()
        .find(|before| queue_identity(before) == queue_identity(queue));
    let more =
        |count: fn(&QueueState) -> u32| counter_growth(count(queue), before.map_or(0, count));
    QdiscReport {
        kind: queue.kind.clone(),
        rate: queue.rate,
        dropped: more(|queue| queue.dropped),
        overlimits: more(|queue| queue.overlimits),
        requeues: more(|queue| queue.requeues),
        backlog: queue.backlog,
    }
}

/// Returns the growth of a count of 32 bits that may have wrapped around; one that went back is
/// that of a new queue and taken whole.
fn counter_growth(now: u32, before: u32) -> u64 {
    let more = now.wrapping_sub(before);
    u64::from(if more > u32::MAX / 2 { now } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_wraps_goes_on_and_one_of_a_new_queue_is_taken_whole() {
        assert_eq!(
            [
                counter_growth(7, 5),
                counter_growth(3, u32::MAX),
                counter_growth(5, 7)
            ],
            [2, 4, 5]
        );
        let queue = |handle, dropped| QueueState {
            handle,
            dropped,
            kind: "fq".to_owned(),
            ..QueueState::default()
        };
        let before = [queue(1, 100), queue(2, 50)];
        assert_eq!(qdisc_growth(&queue(2, 53), &before).dropped, 3);
        assert_eq!(
            qdisc_growth(&queue(3, 53), &before).dropped,
            53,
            "one that was not there"
        );
    }

    #[test]
    fn a_discipline_that_was_removed_during_the_test_is_reported_as_it_was_last() {
        let queue = |kind: &str, overlimits| QueueState {
            kind: kind.to_owned(),
            overlimits,
            ..QueueState::default()
        };
        let mut seen = Vec::new();
        for queues in [[queue("tbf", 5)], [queue("tbf", 9)], [queue("noqueue", 0)]] {
            update_queues(&mut seen, &queues, &[queue("tbf", 1)]);
        }
        let counts: Vec<(&str, u64)> = seen
            .iter()
            .map(|(_, report)| (report.kind.as_str(), report.overlimits))
            .collect();
        assert_eq!(counts, [("tbf", 8), ("noqueue", 0)]);
    }
}
