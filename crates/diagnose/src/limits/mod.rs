//! The causes, each in a file of its own: its rules, what is said of it, and what helps against it.
//! Here they are listed, in the order in which they are sought.

/// A receiver that allows too little in flight.
pub(crate) mod receive_window {
    mod common;
    pub(crate) mod device;
    pub(crate) mod host;
    pub(crate) mod memory_pressure;
    pub(crate) use common::*;
}

/// A receiving program that is slow, by itself or for the file that it writes.
pub(crate) mod receiver_application {
    mod common;
    pub(crate) mod slow_reader;
    pub(crate) use common::*;
}

/// A sending program that is slow, by itself, by request or for the file that it reads.
pub(crate) mod sender_application {
    mod common;
    pub(crate) mod idle;
    pub(crate) mod rate_limited;
    pub(crate) use common::*;
}

/// Windows that programs keep above TCP, of which TCP shows nothing but a program that sends no more.
pub(crate) mod application_window {
    mod common;
    pub(crate) mod credit;
    pub(crate) use common::*;
}

/// A congestion window that is small, though no loss holds it down now.
pub(crate) mod congestion_window {
    mod common;
    pub(crate) mod growth;
    pub(crate) mod ramp_up;
    pub(crate) mod reordering;
    pub(crate) use common::*;
}

/// A bottleneck that is full, on the path or in the sending host.
pub(crate) mod capacity {
    pub(crate) mod allowance;
    mod common;
    pub(crate) mod flow_limit;
    pub(crate) mod half_duplex;
    pub(crate) mod host_queue;
    pub(crate) mod link;
    pub(crate) mod shared;
    pub(crate) use common::*;
}

/// Loss that holds the congestion window down.
pub(crate) mod loss {
    mod common;
    pub(crate) mod out_of_order;
    pub(crate) mod policer;
    pub(crate) mod random;
    pub(crate) mod receiver_host;
    pub(crate) mod shallow_queue;
    pub(crate) use common::*;
}

/// Senders that keep to a pace below what their windows allow.
pub(crate) mod pacing {
    mod common;
    pub(crate) mod congestion_control;
    pub(crate) mod max_pacing_rate;
    pub(crate) mod qdisc;
    pub(crate) use common::*;
}

/// Packets of the wrong size: too large for a link on the way, or needlessly small.
pub(crate) mod mtu {
    pub(crate) mod black_hole;
    mod common;
    pub(crate) mod mss_clamped;
    pub(crate) use common::*;
}

pub(crate) mod cpu;
mod prelude;
pub(crate) mod send_buffer;
pub(crate) mod sender_itself;
pub(crate) mod storage;
pub(crate) mod unknown;

use crate::limits::prelude::*;
use crate::signals::Row;
use crate::text;
use capacity::{allowance, flow_limit, half_duplex, host_queue, link, shared};
use congestion_window::{growth, ramp_up, reordering};
use loss::{out_of_order, policer, random, receiver_host, shallow_queue};
use mtu::{black_hole, mss_clamped};
use pacing::{congestion_control, max_pacing_rate, qdisc};
use receive_window::{device, host, memory_pressure};
use receiver_application::slow_reader;
use sender_application::{idle, rate_limited};

use Rule::{
    Any, Behind, BusyOrIdle, CapturedPath, Host, KernelBehind, KernelPath, Packets, Path, Receiver,
    Sender,
};

/// Every cause.
const CAUSES: &[&Cause] = &[
    &host::CAUSES,
    &device::SCALE_EDITED,
    &device::CLAMPED,
    &memory_pressure::CAUSE,
    &slow_reader::CAUSE,
    &storage::OF_RECEIVER,
    &send_buffer::CAUSES,
    &idle::CAUSE,
    &rate_limited::CAUSE,
    &storage::OF_SENDER,
    &application_window::CAUSES,
    &ramp_up::CAUSE,
    &growth::EARLY_EXIT,
    &growth::RECOVERING,
    &reordering::CAUSE,
    &link::CAUSE,
    &shared::CAUSE,
    &host_queue::CAUSE,
    &half_duplex::CAUSE,
    &flow_limit::CAUSE,
    &allowance::CAUSE,
    &random::CAUSE,
    &policer::CAUSE,
    &shallow_queue::CAUSE,
    &receiver_host::CAUSE,
    &max_pacing_rate::CAUSE,
    &qdisc::CAUSE,
    &congestion_control::CAUSE,
    &cpu::FULL,
    &cpu::STOLEN,
    &black_hole::CAUSE,
    &mss_clamped::CAUSE,
    &unknown::CAUSE,
];

/// The rules of all causes in all views, in the order in which they are asked: each in the views
/// that have what it needs. The limit is the first that nothing speaks against.
pub(crate) const ORDER: &[Rule] = &[
    Packets(device::unscaled_at_sender),
    Packets(black_hole::hardly_anything),
    Sender(black_hole::without_progress),
    Receiver(black_hole::nothing_arrives),
    Any(link::full_as_stated),
    Any(ramp_up::ended_early),
    Receiver(rate_limited::arrives_as_asked),
    Receiver(max_pacing_rate::arrives_as_paced),
    Packets(slow_reader::swinging_window),
    Packets(receive_window::below_a_segment),
    Packets(device::closed_on_the_way),
    Receiver(device::too_small_a_window_for_the_sender),
    Packets(slow_reader::full_window_of_reader),
    Receiver(slow_reader::unread_data_stays),
    Packets(ramp_up::still_growing),
    Packets(receive_window::find_captured_window),
    Receiver(receive_window::own_window_in_use),
    Receiver(cpu::own_processor),
    Receiver(out_of_order::waits_for_timeouts),
    Packets(slow_reader::fallen_window),
    Packets(black_hole::little_and_no_answer),
    Packets(idle::find_idle_sender),
    Receiver(idle::silent_beyond_windows),
    Packets(rate_limited::settled_below),
    Packets(policer::policed_at_first),
    Packets(rate_limited::caught_up),
    Packets(device::lowered_window),
    Packets(link::full_at_first),
    Packets(max_pacing_rate::paces_itself),
    Packets(host_queue::drops_before_capture),
    Packets(sender_itself::keeps_buffer_full),
    Packets(slow_reader::late_receiver),
    CapturedPath,
    Receiver(shared::lengthened_path),
    Receiver(link::queue_on_the_path),
    Receiver(out_of_order::out_of_order),
    Receiver(rate_limited::arrives_nearly_as_asked),
    Packets(idle::idle_at_times),
    Packets(growth::find_window_growth),
    Receiver(growth::growing_window),
    Receiver(idle::silent_sender),
    BusyOrIdle,
    Packets(sender_itself::sends_by_itself),
    Receiver(sender_itself::sender_itself),
    // Limits that a host sets, or its program.
    Host(rate_limited::as_asked),
    Host(receive_window::find_receive_window),
    Host(max_pacing_rate::by_program),
    Host(send_buffer::find_send_buffer),
    Host(idle::find_program),
    // What held the congestion window or the pace.
    Path(policer::without_queue),
    KernelPath(slow_reader::behind_late_acknowledgements),
    Path(link::full_bottleneck),
    Path(reordering::held_without_loss),
    Path(loss::find_loss),
    KernelPath(congestion_control::below_window),
    KernelPath(qdisc::held_in_host),
    KernelPath(growth::find_growth_after_loss),
    // What lies behind a limit that TCP shows.
    KernelBehind(memory_pressure::find_cause),
    KernelBehind(storage::find_cause),
    KernelBehind(cpu::find_cause),
    Behind(half_duplex::find_cause),
    Behind(receiver_host::find_cause),
    Behind(mss_clamped::find_cause),
    KernelBehind(device::find_cause),
    KernelBehind(host_queue::behind_at_sender),
    KernelBehind(qdisc::find_cause),
    KernelBehind(shared::behind_on_path),
    Behind(mss_clamped::behind_window),
];

/// A rule, by the signals that it needs.
pub(crate) enum Rule {
    /// Samples of either end.
    Any(fn(&TransferView) -> Option<Finding>),
    /// Samples of the sending end, of its kernel or of a capture.
    Sender(fn(&SenderView) -> Option<Finding>),
    /// Packets of a capture.
    Packets(fn(&CaptureView) -> Option<Finding>),
    /// Samples of the receiving end alone.
    Receiver(fn(&ReceiverView) -> Option<Finding>),
    /// The rules of hosts and paths together, by the sender's kernel.
    BusyOrIdle,
    /// The rules of paths together, by a capture.
    CapturedPath,
    /// Figures of the sender's kernel, also those of a single second, which is too short to show
    /// the limit of the path.
    Host(fn(&SenderView) -> Option<Finding>),
    /// Samples of the sending end in which something held the congestion window or the pace for a
    /// share of the time.
    Path(fn(&SenderView, Ratio) -> Option<Finding>),
    /// Such samples of its kernel.
    KernelPath(fn(&SenderView, Ratio) -> Option<Finding>),
    /// What else is known beside a limit that TCP shows.
    Behind(fn(&TransferView, &Finding) -> Option<Finding>),
    /// That, and the figures of the sender's kernel.
    KernelBehind(fn(&SenderView, &Finding) -> Option<Finding>),
}

/// Names of causes in the table of verdicts.
pub(crate) type CauseNames = &'static [&'static str];
/// Says a limit in one plain sentence with the figures that matter, for readers who are new to TCP,
/// by what the sending end shows.
pub(crate) type SenderSentence = fn(&SenderView, &Finding) -> String;
/// Says it by what the receiving end alone shows.
pub(crate) type ReceiverSentence = fn(&ReceiverView, &Finding) -> String;

/// A cause: what is said of it in each view, what rules it out, and what helps against it.
pub(crate) struct Cause {
    /// Its name in the table of verdicts, whichever end it is at; those of causes told alike.
    names: CauseNames,
    /// The sentence on it.
    pub(crate) sentence: SenderSentence,
    /// The sentence on a capture, where that shows the cause by other figures than the hosts do.
    pub(crate) captured_sentence: fn(&CaptureView, &Finding) -> Option<String>,
    /// The sentence on a transfer of which the receiving end alone was seen.
    pub(crate) received_sentence: ReceiverSentence,
    /// The figures that decided.
    pub(crate) shown_rows: fn(&SenderView) -> Vec<Row>,
    /// What samples of the receiving end would add to a verdict from the sending end alone.
    pub(crate) other_end_would_show: Option<&'static str>,
    /// Whether fewer packets than one flight may show it.
    pub(crate) shows_in_few_packets: bool,
    /// Why it cannot be, by the evidence and the ceiling of its limit; `None` where nothing speaks
    /// against it.
    pub(crate) disproof: fn(&EvidenceAmount, Option<BitRate>) -> Option<&'static str>,
    /// The remedies that changes of the hosts or of the load carry out; `None` of those that do not
    /// fit.
    pub(crate) setting_remedies: fn(&RemedyAdvice) -> Vec<Option<Remedy>>,
    /// The remedies that only a person can carry out, the best first.
    pub(crate) manual_remedies: &'static [ManualRemedy],
}

impl Cause {
    /// Returns a cause that the receiving end alone does not show.
    pub(crate) const fn new(names: CauseNames, sentence: SenderSentence) -> Self {
        Self {
            names,
            sentence,
            captured_sentence: |_, _| None,
            received_sentence: |arrivals, _| {
                format!(
                    "{} arrives, this end could take more, and nothing is lost: only the sender knows what holds it \
                     back.",
                    arrivals.rate
                )
            },
            shown_rows: text::trend_rows,
            other_end_would_show: None,
            shows_in_few_packets: false,
            disproof: |_, _| None,
            setting_remedies: |_| Vec::new(),
            manual_remedies: &[],
        }
    }
}

/// Returns the cause of a verdict.
pub(crate) fn cause_of(verdict: LegalVerdict) -> &'static Cause {
    let mut causes = CAUSES.iter();
    causes
        .find(|cause| cause.names.contains(&verdict.name()))
        .unwrap_or(&&unknown::CAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_legal_verdict_has_one_cause_and_each_cause_a_verdict() {
        let names = CAUSES.iter().flat_map(|cause| cause.names);
        for verdict in LegalVerdict::ALL {
            let of_it = names.clone().filter(|name| **name == verdict.name());
            assert_eq!(of_it.count(), 1, "{}", verdict.name());
        }
        for name in names {
            assert!(LegalVerdict::from_name(name).is_some(), "{name}");
        }
    }
}
