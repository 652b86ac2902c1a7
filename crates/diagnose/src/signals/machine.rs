//! Files, network devices and network stacks of the ends.

use fullpipe_record::DeviceReport;

use crate::finding::Finding;
use crate::prelude::*;
use crate::signals::{Row, SenderView, time_ratio};
use crate::thresholds::{MIN_OWN_DROPS, MIN_OWN_DROPS_SHARE};

/// Share of the time spent on reading or writing a file from which the file is the limit.
const MIN_FILE_SHARE: f64 = 0.5;

/// Returns the share of the transfer's time that an end spent on its file, if that was most of it.
pub(crate) fn busy_with_file(figures: &SenderView, machine: &Machine) -> Option<Ratio> {
    let file = machine.storage?;
    let last = figures
        .evidence
        .sender_samples
        .iter()
        .map(|sample| sample.at)
        .max()?;
    let busy = Ratio::from_quotient(
        file.busy.as_secs_f64(),
        last.as_secs_f64() * f64::from(figures.stream_count()),
    );
    (busy.get() >= MIN_FILE_SHARE).then_some(busy)
}

/// Returns the sender's device, if `found` may be its doing.
pub(crate) fn suspected_device<'a>(
    figures: &SenderView<'a>,
    found: &Finding,
) -> Option<&'a DeviceReport> {
    let may_be = matches!(
        found.limit_kind(),
        Limit::Capacity | Limit::Loss | Limit::CongestionWindow | Limit::Unknown
    );
    figures
        .evidence
        .sender_machine
        .device
        .as_ref()
        .filter(|_| may_be)
}

/// A counter of packets that a host dropped after they had reached it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropCounter {
    /// Of the device or its driver: no room in the ring.
    Ring,
    /// Of filters of the device.
    Filter,
    /// Of the queue of a processor.
    Backlog,
    /// Of TCP, for want of room in a socket.
    Socket,
}

impl DropCounter {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Ring => "the network device (rx_dropped, rx_missed_errors)",
            Self::Filter => "filters of the network device (ingress, clsact)",
            Self::Backlog => "the queue of a processor (netdev_max_backlog)",
            Self::Socket => "full sockets (TCPBacklogDrop, TCPRcvQDrop, TCPOFODrop)",
        }
    }
}

/// Packets that a receiving host dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostDrops {
    pub(crate) count: u64,
    /// The counter that has most of them.
    pub(crate) counter: DropCounter,
}

/// Packets that a host drops itself from which they count where they are about all that was lost,
/// and the share of it that is.
const MIN_MATCHING_DROPS: u64 = 5;
const MATCHING_DROPS_SHARE: f64 = 0.8;

impl HostDrops {
    /// Returns those of `machine`; `None` if none are known. The device, its driver and the queue
    /// of a processor may each count the same packet.
    pub(crate) fn of_receiver(machine: &Machine) -> Option<Self> {
        let (ring, filter) = machine.device.as_ref().map_or((0, 0), |device| {
            let ring = device.dropped_in.max(device.without_buffer);
            (ring, device.filtered_in)
        });
        let stack = machine.network.unwrap_or_default();
        let (backlog, sockets) = (stack.backlog_dropped, stack.dropped_by_sockets());
        let (_, counter) = [
            // The kernel counts what a processor's queue has no room for at the device too.
            (backlog, DropCounter::Backlog),
            (filter, DropCounter::Filter),
            (ring.saturating_sub(backlog), DropCounter::Ring),
            (sockets, DropCounter::Socket),
        ]
        .into_iter()
        .max_by_key(|(count, _)| *count)?;
        let count = ring
            .max(backlog)
            .saturating_add(filter)
            .saturating_add(sockets);
        (count > 0).then_some(Self { count, counter })
    }

    /// Returns true if they are a real share of `lost`, which may be retransmitted segments or
    /// times of loss.
    pub(crate) fn explain_losses(self, lost: u64) -> bool {
        let many =
            self.count >= MIN_OWN_DROPS && self.count as f64 >= lost as f64 * MIN_OWN_DROPS_SHARE;
        lost > 0 && (many || self.match_losses(lost))
    }

    /// Returns true if they are about all of `lost`: a queue on the way hardly lost any then.
    pub(crate) fn match_losses(self, lost: u64) -> bool {
        lost > 0
            && self.count >= MIN_MATCHING_DROPS
            && self.count as f64 >= lost as f64 * MATCHING_DROPS_SHARE
    }
}

/// Returns the packets that a device, or a discipline of it, dropped on their way out. A discipline
/// counts the drops of those within it too.
pub(crate) fn dropped_out(device: &DeviceReport) -> u64 {
    let by_qdiscs = device.qdiscs.iter().map(|qdisc| qdisc.dropped).max();
    by_qdiscs.unwrap_or(0).max(device.dropped_out)
}

/// Returns the share of the time in which the host of `machine` saved TCP memory; `None` if it does
/// not say.
pub(crate) fn pressure_share(machine: &Machine) -> Option<Ratio> {
    let stack = machine.network.filter(|stack| stack.sampled > Span::ZERO)?;
    Some(time_ratio(stack.under_memory_pressure, stack.sampled))
}

/// Returns what all TCP sockets of a host held, and from where on it saves memory, as
/// `1.4 GiB in all sockets, tcp_mem 1.3 GiB`; `None` if it does not say.
pub(crate) fn tcp_memory_text(machine: &Machine) -> Option<String> {
    let stack = machine
        .network
        .filter(|stack| stack.tcp_memory > ByteCount::ZERO)?;
    let limit = stack
        .tcp_memory_limit
        .map_or_else(String::new, |limit| format!(", tcp_mem {limit}"));
    Some(format!("{} in all sockets{limit}", stack.tcp_memory))
}

/// Returns rows on what the hosts dropped and lacked, where they did.
pub(crate) fn host_rows(evidence: &Evidence) -> [Row; 6] {
    let receiver = &evidence.receiver_machine;
    let dropped = HostDrops::of_receiver(receiver);
    let dropped = dropped.map(|dropped| drops_text(Some(dropped)));
    let pressed = pressure_share(receiver).filter(|share| share.get() > 0.0);
    let pressed = pressed
        .zip(tcp_memory_text(receiver))
        .map(|(share, memory)| format!("{memory}; saved for {share} of the time"));
    [
        ("dropped by the receiving host", dropped),
        ("TCP memory of the receiving host", pressed),
        (
            "link of the sender",
            link_errors_text(&evidence.sender_machine),
        ),
        ("link of the receiver", link_errors_text(receiver)),
        ("receive ring of the receiver", ring_text(receiver)),
        (
            "packets beyond the allowance",
            allowance_text(&evidence.sender_machine).or_else(|| allowance_text(receiver)),
        ),
    ]
}

/// Returns the size of a receive ring; `None` if it is not known.
fn ring_text(machine: &Machine) -> Option<String> {
    let [now, most] = machine.device.as_ref()?.receive_ring?;
    Some(format!("{now} descriptors of at most {most} (ethtool -g)"))
}

/// Returns the packets that the provider of a virtual machine held back, if any.
fn allowance_text(machine: &Machine) -> Option<String> {
    let beyond = machine.device.as_ref()?.beyond_allowance;
    (beyond > 0).then(|| format!("{beyond} (ethtool -S: allowance_exceeded)"))
}

fn link_errors_text(machine: &Machine) -> Option<String> {
    let device = machine.device.as_ref()?;
    let errors: Vec<String> = [
        (device.collisions, "collision"),
        (device.late_collisions, "late collision"),
        (device.carrier_errors, "carrier error"),
        (device.checksum_errors, "wrong checksum"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| count_noun(count, what))
    .collect();
    let duplex = match device.is_half_duplex {
        Some(true) => "half duplex",
        Some(false) => "full duplex",
        None => "duplex not known",
    };
    let is_shown = !errors.is_empty() || device.is_half_duplex == Some(true);
    is_shown.then(|| {
        [&[duplex.to_owned()], errors.as_slice()]
            .concat()
            .join(", ")
    })
}

/// Returns how many packets a host dropped, and where most of them.
pub(crate) fn drops_text(dropped: Option<HostDrops>) -> String {
    let Some(HostDrops { count, counter }) = dropped else {
        return "packets".to_owned();
    };
    format!(
        "{}, most by {}",
        count_noun(count, "packet"),
        counter.text()
    )
}
