//! Losses that are drops of the receiving host.

use crate::limits::loss::{cause_of_losses, lost_text, pace_below};
use crate::limits::prelude::*;
use crate::signals::machine::{self, DropCounter, HostDrops};
use crate::signals::{SeenEnd, path, policer_rate};
use crate::text;
use crate::thresholds::MIN_OWN_DROPS;

pub(crate) const CAUSE: Cause = Cause {
    setting_remedies: remedies,
    ..cause_of_losses(&["loss/receiver-host"], sentence, received_sentence)
};

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

fn sentence(figures: &SenderView, _finding: &Finding) -> String {
    format!(
        "The receiving host drops packets that have reached it: {}; {} were lost, which leaves {} over {}{}.",
        machine::drops_text(HostDrops::of_receiver(&figures.evidence.receiver_machine)),
        lost_text(figures),
        figures.rate,
        time_text(figures.rtt),
        text::could_carry(figures),
    )
}

fn received_sentence(arrivals: &ReceiverView, _finding: &Finding) -> String {
    format!(
        "This host, which receives, drops packets that have reached it: {}; {} arrives.",
        machine::drops_text(HostDrops::of_receiver(&arrivals.evidence.receiver_machine)),
        arrivals.rate
    )
}

/// Returns what helps; several connections only come in larger bursts.
fn remedies(advice: &RemedyAdvice) -> Vec<Option<Remedy>> {
    let manual = manual_remedies(&advice.evidence.receiver_machine).iter();
    let manual = manual.map(|manual| Some(advice.by_a_person(manual)));
    let settings = [advice.bbr_remedy(), pace_below_the_receiver(advice)];
    settings.into_iter().chain(manual).collect()
}

/// `None` where no rate is known to pass.
fn pace_below_the_receiver(advice: &RemedyAdvice) -> Option<Remedy> {
    let known = policer_rate::lower_bound(advice.figures)?;
    let why = format!(
        "The receiving host drops packets of bursts, and is known to take {known} of data: with a maximum pace a little \
         below that no burst is longer than the packets of a millisecond."
    );
    pace_below(advice, known, "pace-below-the-receiver", why)
}

/// Returns what helps against drops of the counter that has most of them.
fn manual_remedies(machine: &Machine) -> &'static [ManualRemedy] {
    match HostDrops::of_receiver(machine).map(|dropped| dropped.counter) {
        Some(DropCounter::Filter) => &[LIFT_FILTER],
        Some(DropCounter::Backlog) => &[LONGER_BACKLOG, SPREAD_WORK],
        Some(DropCounter::Socket) => &[ROOM_IN_SOCKETS],
        Some(DropCounter::Ring) | None => &[LARGER_RING, SPREAD_WORK],
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
