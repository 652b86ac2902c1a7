use std::collections::BTreeMap;

use crate::ceilings::{ceilings_against, find_ceilings};
use crate::confidence::confidence;
use crate::finding::{Finding, find_candidates};
use crate::gates::EvidenceAmount;
use crate::host_counters::with_host_counters;
use crate::limits::application_window::credit::ProgramCredit;
use crate::limits::mtu::mss_clamped;
use crate::limits::receiver_application::slow_reader;
use crate::limits::{self, application_window};
use crate::prelude::*;
use crate::rules::{OTHER_END, find_limit};
use crate::runner_up::{once_lifted, runner_up};
use crate::seconds;
use crate::signals::arrivals::counter_growth;
use crate::signals::{ReceiverView, Row, SeenEnd, SenderView, TransferView, machine, syn_quotes};
use crate::text::{self, time_text};
use crate::transfer_time::TransferTime;

/// Returns the limit of a transfer.
///
/// Judges the samples of the sending end in the steady part, or all of them where there is none,
/// and reads nothing but `evidence`: the capacity of the path only where the user stated a
/// bandwidth; otherwise a full pipe is known by its queue, by a window that grows for nothing, or
/// by BBR's probes. The rules go by what was in flight against each window and by the memory of the
/// socket; the kernel's own clocks only support them.
///
/// Never fails: evidence that shows nothing gives [`Limit::Unknown`], whose `missing` figure names
/// what is lacking. Counters of hosts without a connection give candidates alone.
pub fn diagnose(evidence: &Evidence) -> Verdict {
    let view = TransferView::from_evidence(evidence);
    let amount = EvidenceAmount::from_view(&view);
    let time = TransferTime::from_view(&view);
    let (finding, credit) = judge_view(&view, &amount, &time);
    let ceilings = view_ceilings(&view, &finding, credit);
    let (others, of_the_time) = if view.sender().is_none() || evidence.few_looks() == Some(1) {
        (Vec::new(), Ratio::ZERO)
    } else {
        seconds::other_limits(evidence, &finding)
    };
    let kind = finding.limit_kind();
    let idle_rtt = view
        .sender()
        .map_or(evidence.idle_rtt, |figures| figures.idle_rtt);
    let once_lifted = once_lifted(kind, [view.rtt(), idle_rtt], &ceilings);
    let (candidates, would_distinguish) =
        find_candidates(view.basis(), &finding, &evidence.request);
    let verdict = Verdict {
        kind,
        cause: finding.verdict.limit_cause(),
        at: finding.verdict.limit_place(),
        share: Ratio::new(finding.share.get().min(1.0)),
        confidence: confidence(&finding, &amount),
        sentence: verdict_sentence(&view, &finding),
        runner_up: runner_up((kind, amount.rate), &once_lifted, &others, of_the_time),
        evidence: shown_rows(&view, &finding),
        ceilings,
        others,
        where_time_went: time.shares(),
        basis: view.basis(),
        candidates,
        would_distinguish,
        other_end_would_show: other_end_would_show(&view, &finding).map(str::to_owned),
    };
    with_host_counters(verdict, evidence)
}

/// Returns the limit of a transfer, and the credit of its programs.
fn judge_view(
    view: &TransferView,
    amount: &EvidenceAmount,
    time: &TransferTime,
) -> (Finding, Option<ProgramCredit>) {
    let found = find_limit(view, amount);
    let (found, credit) = match &view.end {
        SeenEnd::Sender(figures) => {
            let found = slow_reader::behind_limit_of_path(figures, &found).unwrap_or(found);
            (time.decide(found), ProgramCredit::from_sender(figures))
        }
        SeenEnd::Receiver(arrivals) => (found, ProgramCredit::from_receiver(arrivals)),
    };
    (application_window::above_tcp(view, found, credit), credit)
}

/// Returns every ceiling that a view gives of the limit `finding` and of others.
fn view_ceilings(
    view: &TransferView,
    finding: &Finding,
    credit: Option<ProgramCredit>,
) -> BTreeMap<Limit, BitRate> {
    let Some(figures) = view.sender() else {
        return ceilings_against(view, finding);
    };
    let mut ceilings = find_ceilings(figures, finding);
    let of_program = application_window::ceiling_of(finding, view.evidence, figures.rtt, credit);
    ceilings.extend(of_program.map(|rate| (Limit::ApplicationWindow, rate)));
    ceilings
}

fn verdict_sentence(view: &TransferView, finding: &Finding) -> String {
    let cause = limits::cause_of(finding.verdict);
    let of_packets = view
        .packets()
        .and_then(|packets| (cause.captured_sentence)(&packets, finding));
    match &view.end {
        SeenEnd::Sender(figures) => {
            of_packets.unwrap_or_else(|| (cause.sentence)(figures, finding))
        }
        SeenEnd::Receiver(arrivals) => (cause.received_sentence)(arrivals, finding),
    }
}

pub(crate) fn other_end_would_show(view: &TransferView, finding: &Finding) -> Option<&'static str> {
    match view.basis() {
        Basis::Receiver => Some(OTHER_END),
        Basis::Sender => limits::cause_of(finding.verdict).other_end_would_show,
        Basis::BothEnds | Basis::Capture => None,
    }
}

/// Returns the figures that decided, by the names that they have on the screen.
pub(crate) fn shown_rows(view: &TransferView, finding: &Finding) -> BTreeMap<String, String> {
    let rows = match &view.end {
        SeenEnd::Sender(figures) => shown_figures(figures, finding),
        SeenEnd::Receiver(arrivals) => arrivals.shown_figures(),
    };
    let missing = (!finding.missing.is_empty()).then(|| finding.missing.join(", "));
    let quotes = syn_quotes::quoted_options(view.evidence);
    let small = (finding.limit_kind() != Limit::Mtu).then(|| mss_clamped::size_row(view));
    rows.into_iter()
        .chain(machine::host_rows(view.evidence))
        .chain(small)
        .chain([("SYN as quoted by routers", quotes), ("missing", missing)])
        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
        .collect()
}

fn shown_figures(figures: &SenderView, finding: &Finding) -> Vec<Row> {
    let lost = figures.retransmitted_segments();
    let always: [Row; 5] = [
        ("rate", Some(figures.rate.to_string())),
        (
            "round trip",
            figures
                .rtt
                .map(|rtt| format!("{rtt}, idle {}", time_text(figures.idle_rtt))),
        ),
        (
            "congestion control",
            figures.congestion_control().map(str::to_owned),
        ),
        (
            "samples",
            Some(text::of_streams(
                figures.snapshots().count(),
                figures.flows.len(),
            )),
        ),
        (
            "retransmitted",
            lost.map(|lost| format!("{} of {} segments", lost.again, lost.sent)),
        ),
    ];
    let of_capture = figures.evidence.capture.iter().flat_map(text::capture_rows);
    always
        .into_iter()
        .chain((limits::cause_of(finding.verdict).shown_rows)(figures))
        .chain(of_capture)
        .collect()
}

impl ReceiverView<'_> {
    /// Returns the figures that decided.
    fn shown_figures(&self) -> Vec<Row> {
        let out_of_order = counter_growth(&self.flows, |tcp| tcp.out_of_order_in)
            .zip(counter_growth(&self.flows, |tcp| tcp.data_segs_in));
        let unread = self
            .snapshots()
            .filter_map(|snapshot| Some(snapshot.memory?.rmem_alloc));
        let unread = median(unread.collect());
        let buffers = self
            .snapshots()
            .filter_map(|snapshot| Some(snapshot.memory?.rcvbuf));
        let buffer = buffers.max();
        let idle = self
            .evidence
            .idle_rtt
            .map_or_else(String::new, |idle| format!(", idle {idle}"));
        let snapshots: usize = self.flows.iter().map(Vec::len).sum();
        vec![
            ("rate", Some(self.rate.to_string())),
            ("round trip", self.rtt.map(|rtt| format!("{rtt}{idle}"))),
            (
                "round trip with the sender's pauses",
                self.estimate
                    .filter(|_| self.pauses.is_some())
                    .map(|rtt| rtt.to_string()),
            ),
            (
                "own window",
                self.usual_window().map(|window| window.to_string()),
            ),
            (
                "a round trip brings",
                self.rtt.map(|rtt| self.rate.bytes_in(rtt).to_string()),
            ),
            (
                "receive buffer",
                unread
                    .zip(buffer)
                    .map(|(unread, buffer)| format!("{unread} of {buffer}")),
            ),
            (
                "out of order",
                out_of_order.map(|(late, all)| format!("{late} of {all} segments")),
            ),
            (
                "samples",
                Some(text::of_streams(snapshots, self.flows.len())),
            ),
        ]
    }
}
