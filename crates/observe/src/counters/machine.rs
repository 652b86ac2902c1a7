//! Counts by name → the figures of a machine.

use std::collections::BTreeMap;

use fullpipe_host::counts_missing_buffers;
use fullpipe_record::{At, DeviceReport, Machine, NetworkStack, QdiscReport};

use super::{CounterReader, CounterSource, ListedQdisc, Reading, count_of};

/// Loopback, which no data of a transfer between hosts passes.
const LOOPBACK: &str = "lo";

/// Counters of drivers of packets that came and were dropped, without the numbers of queues
/// (kernel, `Documentation/networking/statistics.rst`; `rx_discards_phy` of mlx5, `rx_discards` of
/// tg3 and bnxt, `rx_queue_0_drops` of virtio-net).
const DROPPED_IN: [&str; 8] = [
    "rx_dropped",
    "rx_drops",
    "rx_queue_drops",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_over_errors",
    "rx_discards",
    "rx_discards_phy",
];

/// End of the names of the counters of the Elastic Network Adapter for packets beyond what the type
/// of a virtual machine is allowed (kernel, `ethernet/amazon/ena.rst`).
const ALLOWANCE: &str = "_allowance_exceeded";

/// Ratio of the bytes of both directions from which on one of them is that of the data: the
/// acknowledgements of a transfer are a few percent of it.
const CLEARLY_MORE: u64 = 3;

/// Returns the end of a transfer that most bytes came to, or left.
pub(super) fn end_of_data(counts: &BTreeMap<CounterSource, Reading>) -> Option<At> {
    let names = [
        (CounterSource::Nstat, ["InOctets", "OutOctets"]),
        (CounterSource::Netstat, ["InOctets", "OutOctets"]),
        (CounterSource::Driver, ["rx_bytes", "tx_bytes"]),
    ];
    let bytes = names.into_iter().find_map(|(source, names)| {
        let counts = kernel_counts(counts.get(&source)?);
        let bytes = names.map(|name| counts.get(name).copied());
        (bytes != [None; 2]).then_some(bytes)
    });
    match bytes?.map(Option::unwrap_or_default) {
        [came, left] if came > left.saturating_mul(CLEARLY_MORE) => Some(At::Receiver),
        [came, left] if left > came.saturating_mul(CLEARLY_MORE) => Some(At::Sender),
        _ => None,
    }
}

/// Returns counts by the kernel's names, without the protocol that `nstat` puts before them; those
/// of IPv4 and IPv6 together.
fn kernel_counts(reading: &Reading) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for (name, count) in reading {
        let protocol = super::lines::PROTOCOLS
            .iter()
            .find_map(|protocol| name.strip_prefix(protocol));
        let total: &mut u64 = counts.entry(protocol.unwrap_or(name)).or_default();
        *total = total.saturating_add(*count);
    }
    counts
}

impl CounterReader {
    /// Returns the figures of the machine that counted so.
    pub(super) fn counted_machine(&self, counts: &BTreeMap<CounterSource, Reading>) -> Machine {
        Machine {
            network: counted_stack(counts),
            device: self.counted_device(counts),
            ..Machine::default()
        }
    }

    fn counted_device(&self, counts: &BTreeMap<CounterSource, Reading>) -> Option<DeviceReport> {
        let empty = Reading::new();
        let of_source = |source| counts.get(&source).unwrap_or(&empty);
        let of_qdiscs = of_source(CounterSource::Qdiscs);
        let busiest = self
            .qdiscs
            .iter()
            .max_by_key(|qdisc| (qdisc.device != LOOPBACK, qdisc.count(of_qdiscs, "Sent")));
        let [now, most] = self.ring;
        if busiest.is_none() && now.is_none() && !counts.contains_key(&CounterSource::Driver) {
            return None;
        }
        let name = busiest.map(|qdisc| &qdisc.device).or(self.device.as_ref());
        let qdiscs = self.qdiscs.iter();
        let own = qdiscs.filter(|qdisc| Some(&qdisc.device) == name);
        let mut device = DeviceReport {
            name: name.cloned().unwrap_or_default(),
            receive_ring: now.zip(most).map(|(now, most)| [now, most]),
            qdiscs: own.map(|qdisc| qdisc.report(of_qdiscs)).collect(),
            ..DeviceReport::default()
        };
        add_driver_counts(&mut device, of_source(CounterSource::Driver));
        Some(device)
    }
}

fn counted_stack(counts: &BTreeMap<CounterSource, Reading>) -> Option<NetworkStack> {
    let mut stack = NetworkStack::default();
    let mut is_known = false;
    for source in [CounterSource::Nstat, CounterSource::Netstat] {
        let counts = counts.get(&source).map(kernel_counts).unwrap_or_default();
        for (name, count) in counts {
            if let Some(place) = stack.counter_mut(name) {
                *place = count.max(*place);
                is_known = true;
            }
        }
    }
    let dropped = counts.get(&CounterSource::Softnet);
    stack.backlog_dropped = dropped.map_or(0, |all| {
        all.values().fold(0, |sum, one| sum.saturating_add(*one))
    });
    (is_known || dropped.is_some()).then_some(stack)
}

/// Adds the counts of a driver. Several of them may count the same packet, so that the largest
/// stands; those of queues are added up.
fn add_driver_counts(device: &mut DeviceReport, reading: &Reading) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in reading {
        let of_queue = name.strip_prefix("rx_queue_").map(|rest| {
            let counter = rest.trim_start_matches(|one: char| one.is_ascii_digit());
            format!("rx_queue{counter}")
        });
        let total = counts
            .entry(of_queue.unwrap_or_else(|| name.clone()))
            .or_default();
        *total = total.saturating_add(*count);
    }
    for (name, count) in counts {
        let place = match name.as_str() {
            "tx_dropped" => &mut device.dropped_out,
            "tx_packets" => &mut device.sent_packets,
            "collisions" => &mut device.collisions,
            "tx_window_errors" => &mut device.late_collisions,
            "tx_carrier_errors" => &mut device.carrier_errors,
            "rx_crc_errors" | "rx_crc_errors_phy" => &mut device.checksum_errors,
            name if DROPPED_IN.contains(&name) => &mut device.dropped_in,
            name if name.ends_with(ALLOWANCE) => &mut device.beyond_allowance,
            name if counts_missing_buffers(name) => &mut device.without_buffer,
            _ => continue,
        };
        *place = count.max(*place);
    }
}

impl ListedQdisc {
    fn count(&self, counts: &Reading, field: &str) -> u64 {
        count_of(counts, &format!("{} {field}", self.name))
    }

    fn report(&self, counts: &Reading) -> QdiscReport {
        QdiscReport {
            kind: self.kind.clone(),
            rate: self.rate,
            dropped: self.count(counts, "dropped"),
            overlimits: self.count(counts, "overlimits"),
            requeues: self.count(counts, "requeues"),
            ..QdiscReport::default()
        }
    }
}
