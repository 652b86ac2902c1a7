//! Counters of a host without a connection: what they leave as candidates.

use fullpipe_record::{
    Basis, Candidate, CapacityVerdict, Evidence, LegalVerdict, LossVerdict, Machine, NetworkStack,
    ReceiveWindowVerdict, ReceiverApplicationVerdict, UnknownVerdict, Verdict,
};
use fullpipe_units::{Ratio, count_noun};

use crate::machine::{self, HostDrops, dropped_out, drops_text};

/// Number of candidates, with the unknown limit itself.
const MAX_CANDIDATES: usize = 3;

/// Returns `verdict` with what the counters of the hosts show, where the evidence has nothing else.
pub(crate) fn with_host_counters(verdict: Verdict, evidence: &Evidence) -> Verdict {
    let machines = [&evidence.sender_machine, &evidence.receiver_machine];
    let is_of_receiver = evidence.sender_machine == Machine::default();
    let has_samples = !evidence.sender_samples.is_empty() || !evidence.receiver_samples.is_empty();
    let has_counters = machines
        .iter()
        .any(|machine| machine.network.is_some() || machine.device.is_some());
    if has_samples || !has_counters {
        return verdict;
    }
    let mut findings = receiving_findings(&evidence.receiver_machine);
    findings.extend(sending_findings(&evidence.sender_machine));
    let texts: Vec<&str> = findings.iter().map(|(text, _)| text.as_str()).collect();
    let sentence = if texts.is_empty() {
        "The counters of the host show no drop and no lack: the limit of a transfer lies elsewhere."
            .to_owned()
    } else {
        format!(
            "The host {}; whether that limits a transfer, its connection shows.",
            texts.join(", ")
        )
    };
    let unknown = LegalVerdict::from(UnknownVerdict::EvidenceMissing);
    let candidates =
        std::iter::once(unknown).chain(findings.iter().map(|(_, candidate)| *candidate));
    Verdict {
        sentence,
        candidates: candidates
            .take(MAX_CANDIDATES)
            .map(Candidate::from)
            .collect(),
        would_distinguish: Some(
            "a listing of the connection while it is slow (ss -tinmoe)".to_owned(),
        ),
        other_end_would_show: None,
        evidence: machine::host_rows(evidence).collect(),
        basis: if is_of_receiver {
            Basis::Receiver
        } else {
            Basis::Sender
        },
        ..verdict
    }
}

/// A count in words, and the verdict that it may be behind.
type CounterFinding = (String, LegalVerdict);

fn receiving_findings(machine: &Machine) -> Vec<CounterFinding> {
    let stack = machine.network.unwrap_or_default();
    let dropped = HostDrops::of_receiver(machine);
    let pressed = stack.memory_pressures;
    let crowded = stack.pruned.saturating_add(stack.collapsed);
    findings_above_zero([
        (
            dropped.map_or(0, |dropped| dropped.count),
            format!("dropped {}", drops_text(dropped)),
            LossVerdict::ReceiverHost.into(),
        ),
        (
            pressed,
            format!("ran low on memory of TCP {}", count_noun(pressed, "time")),
            ReceiveWindowVerdict::MemoryPressure.into(),
        ),
        (
            crowded,
            format!(
                "had too little room in receive buffers {} (PruneCalled, TCPRcvCollapsed)",
                count_noun(crowded, "time")
            ),
            ReceiverApplicationVerdict::SlowReader.into(),
        ),
    ])
}

fn sending_findings(machine: &Machine) -> Vec<CounterFinding> {
    let stack = machine.network.unwrap_or_default();
    let device = machine.device.clone().unwrap_or_default();
    let dropped = dropped_out(&device);
    let beyond = count_noun(device.beyond_allowance, "packet");
    findings_above_zero([
        (
            dropped,
            format!("dropped {} on their way out", count_noun(dropped, "packet")),
            CapacityVerdict::HostQueue.into(),
        ),
        (
            device.beyond_allowance,
            format!("had {beyond} beyond the allowance of its type"),
            CapacityVerdict::Allowance.into(),
        ),
        (
            stack.retransmitted_segments,
            retransmissions_text(&stack),
            LossVerdict::ShallowQueue.into(),
        ),
    ])
}

fn findings_above_zero(all: [(u64, String, LegalVerdict); 3]) -> Vec<CounterFinding> {
    let above = all.into_iter().filter(|(count, ..)| *count > 0);
    above.map(|(_, text, verdict)| (text, verdict)).collect()
}

fn retransmissions_text(stack: &NetworkStack) -> String {
    let again = stack.retransmitted_segments;
    let share = Ratio::from_quotient(again as f64, stack.sent_segments as f64);
    let share = match stack.sent_segments {
        0 => String::new(),
        _ => format!(" ({share})"),
    };
    let timeouts = match stack.timeouts {
        0 => String::new(),
        count => format!(" and had {}", count_noun(count, "timeout")),
    };
    format!(
        "sent {} again{share}{timeouts}",
        count_noun(again, "segment")
    )
}
