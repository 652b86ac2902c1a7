//! A link of a host that carries data in one direction at a time.

use fullpipe_record::DeviceReport;

use crate::limits::capacity::cause_of_capacity;
use crate::limits::prelude::*;
use crate::thresholds::MIN_OWN_DROPS;

pub(crate) const CAUSE: Cause = Cause {
    received_sentence: |arrivals, finding| {
        sentence(finding.verdict, arrivals.evidence, arrivals.rate)
    },
    manual_remedies: &[ManualRemedy::new(
        "negotiate-duplex",
        Scope::Path,
        "Autonegotiation on at both ends of the cable (ethtool -s DEVICE autoneg on, and the port \
         of the switch): one end with a fixed duplex makes the other fall back to half duplex \
         (IEEE 802.3, clause 28).",
    )],
    ..cause_of_capacity(&["capacity/half-duplex"], |figures, finding| {
        sentence(finding.verdict, figures.evidence, figures.rate)
    })
};

/// Finds a link of a host at half duplex behind what looks like a limit of the path.
pub(crate) fn find_cause(view: &TransferView, found: &Finding) -> Option<Finding> {
    let may_be = matches!(
        found.limit_kind(),
        Limit::Capacity | Limit::Loss | Limit::CongestionWindow | Limit::Unknown
    );
    let ends = [
        CapacityVerdict::HalfDuplexOfSender,
        CapacityVerdict::HalfDuplexOfReceiver,
    ];
    let mut ends = ends
        .map(LegalVerdict::Capacity)
        .into_iter()
        .filter(|_| may_be);
    let verdict = ends.find(|verdict| holds_link_back(link_of(*verdict, view.evidence)))?;
    Some(found.as_verdict(verdict))
}

fn link_of(verdict: LegalVerdict, evidence: &Evidence) -> Option<&DeviceReport> {
    let machine: &Machine = if verdict.limit_place() == At::Sender {
        &evidence.sender_machine
    } else {
        &evidence.receiver_machine
    };
    machine.device.as_ref()
}

/// Collisions of a half-duplex device ÷ packets that it sent from which they take time: data and
/// acknowledgements meet all the time there (our choice).
const MIN_COLLISION_SHARE: f64 = 0.01;

/// Returns true if a device at half duplex met collisions again and again, or if frames were lost
/// in late ones, which only a full-duplex end of the same link makes.
fn holds_link_back(device: Option<&DeviceReport>) -> bool {
    device.is_some_and(|device| {
        let many = (device.sent_packets as f64 * MIN_COLLISION_SHARE).max(MIN_OWN_DROPS as f64);
        let collides = device.is_half_duplex == Some(true) && device.collisions as f64 >= many;
        collides || device.late_collisions >= MIN_OWN_DROPS
    })
}

/// Returns the limit in one sentence.
fn sentence(verdict: LegalVerdict, evidence: &Evidence, rate: BitRate) -> String {
    let Some(device) = link_of(verdict, evidence) else {
        return format!("A link carries data in one direction at a time: {rate} passes.");
    };
    let end = if verdict.limit_place() == At::Sender {
        "sender"
    } else {
        "receiver"
    };
    let name = &device.name;
    let collisions = count_noun(device.collisions.max(device.late_collisions), "collision");
    if device.late_collisions >= MIN_OWN_DROPS {
        format!(
            "The two ends of the {end}'s link ({name}) do not agree on duplex: {collisions}, and {} frames were lost in \
             late ones; data and acknowledgements destroy each other, and {rate} passes.",
            device.late_collisions
        )
    } else {
        format!(
            "The {end}'s link ({name}) carries data in one direction at a time (half duplex): {collisions}; \
             acknowledgements that flow back take the link from the data, and {rate} passes."
        )
    }
}
