//! Counters of a host without a connection: what they leave as candidates.

use fullpipe_record::{Candidate, NetworkStack, UnknownVerdict};

use crate::prelude::*;
use crate::signals::machine::{self, HostDrops, dropped_out, drops_text};

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
    let [sender, receiver] = machines;
    let mut findings = findings_at_receiver(receiver).to_vec();
    findings.extend(findings_at_sender(sender));
    findings.retain(|(count, ..)| *count > 0);
    let texts: Vec<&str> = findings.iter().map(|(_, text, _)| text.as_str()).collect();
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
        std::iter::once(unknown).chain(findings.iter().map(|(.., candidate)| *candidate));
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
        evidence: machine::host_rows(evidence)
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text?)))
            .collect(),
        basis: if is_of_receiver {
            Basis::Receiver
        } else {
            Basis::Sender
        },
        ..verdict
    }
}

/// A count, what it says in words, and the verdict that it may be behind.
type CounterFinding = (u64, String, LegalVerdict);

fn findings_at_receiver(machine: &Machine) -> [CounterFinding; 3] {
    let stack = machine.network.unwrap_or_default();
    let dropped = HostDrops::of_receiver(machine);
    let pressed = stack.memory_pressures;
    let crowded = stack.pruned.saturating_add(stack.collapsed);
    [
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
    ]
}

fn findings_at_sender(machine: &Machine) -> [CounterFinding; 3] {
    let stack = machine.network.unwrap_or_default();
    let device = machine.device.as_ref();
    let dropped = device.map_or(0, dropped_out);
    let beyond = device.map_or(0, |device| device.beyond_allowance);
    [
        (
            dropped,
            format!("dropped {} on their way out", count_noun(dropped, "packet")),
            CapacityVerdict::HostQueue.into(),
        ),
        (
            beyond,
            format!(
                "had {} beyond the allowance of its type",
                count_noun(beyond, "packet")
            ),
            CapacityVerdict::Allowance.into(),
        ),
        (
            stack.retransmitted_segments,
            retransmissions_text(&stack),
            LossVerdict::ShallowQueue.into(),
        ),
    ]
}

fn retransmissions_text(stack: &NetworkStack) -> String {
    let again = stack.retransmitted_segments;
    let share = match stack.sent_segments {
        0 => String::new(),
        sent => format!(" ({})", Ratio::from_quotient(again as f64, sent as f64)),
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
