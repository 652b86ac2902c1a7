//! Counts of a network device and its queueing disciplines.

use std::io;
use std::net::IpAddr;

use fullpipe_record::{DeviceCounts, DeviceReport, QdiscReport};
use fullpipe_sys::{
    DeviceState, QueueState, device_speed, device_state, output_device, queue_states,
};

/// Maximum number of queueing disciplines that are reported: a device may have one for each of its
/// queues.
const MAX_QDISCS: usize = 64;

/// Counts what a network device and its queueing disciplines do, from when it was made on.
#[derive(Debug)]
pub struct DeviceMeter {
    before: DeviceState,
    queues: Vec<QueueState>,
    /// Every queueing discipline so far, also those that were removed since.
    seen: Vec<(Identity, QdiscReport)>,
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
        let report = DeviceReport {
            speed: device_speed(&name).ok().flatten(),
            name,
            mtu: before.mtu,
            queue_length: Some(before.queue_length),
            ..DeviceReport::default()
        };
        Ok(Self {
            before,
            queues,
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
        self.report.qdiscs = self.seen.iter().map(|(_, report)| report.clone()).collect();
        self.report.dropped_out = now.dropped_out.saturating_sub(self.before.dropped_out);
        self.report.dropped_in = now.dropped_in.saturating_sub(self.before.dropped_in);
        Some(self.report.clone())
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
        speed: device_speed(name).ok().flatten(),
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
