//! Losses that are drops of the receiving host.

use fullpipe_record::{Limit, LossVerdict, Machine, Scope};
use fullpipe_units::BitRate;

use crate::advice::ManualRemedy;
use crate::finding::Finding;
use crate::signals::machine::{self, DropCounter, HostDrops};
use crate::signals::{SeenEnd, SenderView, TransferView, path};
use crate::text::{self, time_text};
use crate::thresholds::MIN_OWN_DROPS;

/// Finds losses that the receiving host made: it dropped a real share of what the sender sent again;
/// or of the times at which data was out of order, from the receiving end alone. A queue that stands
/// on the path loses packets itself.
pub(crate) fn find_cause(view: &TransferView, found: &Finding) -> Option<Finding> {
    let dropped = HostDrops::of_receiver(&view.evidence.receiver_machine)?;
    let (lost, least, stands) = match &view.end {
        SeenEnd::Receiver(arrivals) => {
            let times = arrivals.loss_rounds() * arrivals.flows.len() as u64;
            (times, times, arrivals.is_inflated())
        }
        SeenEnd::Sender(figures) => {
            // One of a pair of virtual devices counts what the other's host drops: then the sender has
            // a queue of its own, which stands and loses none of it.
            let own = view.evidence.sender_machine.device.as_ref();
            let own = own.map_or(0, machine::dropped_out);
            let lost = figures.sent_again_in_all()?;
            let is_own = own >= MIN_OWN_DROPS && dropped.match_losses(lost);
            (lost, own, path::rtt_is_inflated(figures) && !is_own)
        }
    };
    let may_be = match found.limit_kind() {
        Limit::Capacity => !stands,
        Limit::Loss | Limit::CongestionWindow | Limit::Unknown => true,
        _ => false,
    };
    (may_be && dropped.count >= least && dropped.explain_losses(lost))
        .then(|| found.as_verdict(LossVerdict::ReceiverHost))
}

/// Returns the sentence on drops of the receiving host, of which the sender `lost` so much.
pub(crate) fn sentence(figures: &SenderView, lost: &str) -> String {
    format!(
        "The receiving host drops packets that have reached it: {}; {lost} were lost, which leaves {} over {}{}.",
        machine::drops_text(HostDrops::of_receiver(&figures.evidence.receiver_machine)),
        figures.rate,
        time_text(figures.rtt),
        text::could_carry(figures),
    )
}

/// Returns the sentence on drops of this host, which receives.
pub(crate) fn sentence_here(machine: &Machine, rate: BitRate) -> String {
    format!(
        "This host, which receives, drops packets that have reached it: {}; {rate} arrives.",
        machine::drops_text(HostDrops::of_receiver(machine))
    )
}

/// Returns what helps against drops of the counter that has most of them.
pub(crate) fn remedies(machine: &Machine) -> Vec<ManualRemedy> {
    match HostDrops::of_receiver(machine).map(|dropped| dropped.counter) {
        Some(DropCounter::Filter) => vec![LIFT_FILTER],
        Some(DropCounter::Backlog) => vec![LONGER_BACKLOG, SPREAD_WORK],
        Some(DropCounter::Socket) => vec![ROOM_IN_SOCKETS],
        Some(DropCounter::Ring) | None => vec![LARGER_RING, SPREAD_WORK],
    }
}

const LARGER_RING: ManualRemedy = of_host(
    "larger-receive-ring",
    "The device has no room for a burst: a larger ring (ethtool -G DEVICE rx NUMBER; ethtool \
     -g shows the most), and net.core.netdev_budget for more packets at a time.",
);
const SPREAD_WORK: ManualRemedy = of_host(
    "spread-receive-work",
    "One processor takes all packets in: interrupts on others (/proc/irq/*/smp_affinity), RPS \
     (/sys/class/net/DEVICE/queues/rx-*/rps_cpus) and RFS (net.core.rps_sock_flow_entries) \
     spread that.",
);
const LONGER_BACKLOG: ManualRemedy = of_host(
    "longer-backlog",
    "The queue of a processor is full: net.core.netdev_max_backlog for longer bursts, \
     net.core.netdev_budget for more packets at a time.",
);
const LIFT_FILTER: ManualRemedy = of_host(
    "lift-ingress-filter",
    "A filter or policer of the receiving host drops what comes in (tc filter show dev DEVICE \
     ingress): a higher rate, or none.",
);
const ROOM_IN_SOCKETS: ManualRemedy = of_host(
    "room-in-sockets",
    "Sockets have no room for what they allowed: a program that reads sooner, a buffer that no \
     program makes smaller during the transfer (SO_RCVBUF), memory for TCP (tcp_mem).",
);

const fn of_host(id: &'static str, why: &'static str) -> ManualRemedy {
    ManualRemedy::new(id, Scope::Host, why)
}
