use std::collections::BTreeMap;

use fullpipe_record::{Basis, Evidence, Limit, OtherLimit, Verdict};
use fullpipe_units::{BitRate, Ratio, Span, median};

use crate::ceilings::find_ceilings;
use crate::confidence::confidence;
use crate::finding::{Finding, find_candidates};
use crate::host_counters::with_host_counters;
use crate::limits::application_window::credit::ProgramCredit;
use crate::limits::receiver_application::slow_reader;
use crate::limits::{self, LimitText, application_window};
use crate::rules::{
    OTHER_END, find_limit_of_capture, find_limit_of_receiver, find_limit_of_sender,
};
use crate::runner_up::{once_lifted, runner_up};
use crate::seconds;
use crate::signals::arrivals::counter_growth;
use crate::signals::{
    CaptureView, ReceiverView, SenderView, Signals, TransferTime, machine, syn_quotes,
};
use crate::text::{self, Row, time_text};

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
    let basis = evidence_basis(evidence);
    let judgement = if basis == Basis::Receiver {
        of_receiver(evidence)
    } else {
        of_sender(evidence, basis)
    };
    with_host_counters(judgement.verdict(evidence), evidence)
}

/// A limit that was found, with all that a verdict says of it, from one view.
struct Judgement {
    basis: Basis,
    finding: Finding,
    signals: Signals,
    time: TransferTime,
    /// Round-trip times under load and of the idle path.
    rtts: [Option<Span>; 2],
    ceilings: BTreeMap<Limit, BitRate>,
    others: Vec<OtherLimit>,
    /// Share of the time of the limit itself, as the seconds show it.
    of_the_time: Ratio,
    sentence: String,
    shown: BTreeMap<String, String>,
    other_end_would_show: Option<String>,
}

impl Judgement {
    pub(crate) fn verdict(self, evidence: &Evidence) -> Verdict {
        let Self {
            basis,
            finding,
            signals,
            time,
            ..
        } = self;
        let (kind, rate) = (finding.limit_kind(), signals.rate);
        let once_lifted = once_lifted(kind, self.rtts, &self.ceilings);
        let runner_up = runner_up((kind, rate), &once_lifted, &self.others, self.of_the_time);
        let (candidates, would_distinguish) = find_candidates(basis, &finding, &evidence.request);
        let mut shown = self.shown;
        shown.extend(machine::host_rows(evidence));
        shown.extend(
            syn_quotes::quoted_options(evidence)
                .map(|text| ("SYN as quoted by routers".to_owned(), text)),
        );
        shown.extend(
            (!finding.missing.is_empty())
                .then(|| ("missing".to_owned(), finding.missing.join(", "))),
        );
        Verdict {
            kind,
            cause: finding.verdict.limit_cause(),
            at: finding.verdict.limit_place(),
            share: Ratio::new(finding.share.get().min(1.0)),
            confidence: confidence(&finding, &signals),
            sentence: self.sentence,
            runner_up,
            evidence: shown,
            ceilings: self.ceilings,
            others: self.others,
            where_time_went: time.shares(),
            basis,
            candidates,
            would_distinguish,
            other_end_would_show: self.other_end_would_show,
        }
    }
}

fn of_receiver(evidence: &Evidence) -> Judgement {
    let arrivals = ReceiverView::from_evidence(evidence);
    let (signals, time) = (
        Signals::from_receiver(&arrivals),
        TransferTime::from_receiver(&arrivals),
    );
    let found = find_limit_of_receiver(&arrivals, &signals);
    let credit = ProgramCredit::from_receiver(&arrivals);
    let (rate, rtt) = (arrivals.rate, arrivals.rtt);
    let finding = application_window::above_tcp(evidence, rate, rtt, found, credit);
    Judgement {
        basis: Basis::Receiver,
        rtts: [arrivals.rtt, evidence.idle_rtt],
        ceilings: arrivals.find_ceilings(),
        others: Vec::new(),
        of_the_time: Ratio::ZERO,
        sentence: limits::limit_text(finding.verdict).received_sentence(&arrivals, &finding),
        shown: arrivals.shown_figures(),
        other_end_would_show: Some(OTHER_END.to_owned()),
        finding,
        signals,
        time,
    }
}

fn of_sender(evidence: &Evidence, basis: Basis) -> Judgement {
    let figures = SenderView::from_evidence(evidence);
    let time = TransferTime::from_sender(&SenderView::from_part(evidence, None));
    let signals = Signals::from_sender(&figures);
    let found = match &evidence.capture {
        Some(capture) => find_limit_of_capture(&figures, capture, &signals),
        None => find_limit_of_sender(&figures, &signals),
    };
    let found = slow_reader::behind_limit_of_path(&figures, &found).unwrap_or(found);
    let found = time.decide(found);
    let credit = ProgramCredit::from_sender(&figures);
    let finding = application_window::above_tcp(evidence, figures.rate, figures.rtt, found, credit);
    let text = limits::limit_text(finding.verdict);
    let mut ceilings = find_ceilings(&figures, &finding);
    ceilings.extend(
        application_window::ceiling_of(&finding, evidence, figures.rtt, credit)
            .map(|rate| (Limit::ApplicationWindow, rate)),
    );
    let (others, of_the_time) = if evidence.few_looks() == Some(1) {
        (Vec::new(), Ratio::ZERO)
    } else {
        seconds::other_limits(evidence, &finding)
    };
    let is_alone = basis == Basis::Sender;
    Judgement {
        basis,
        rtts: [figures.rtt, figures.idle_rtt],
        ceilings,
        others,
        of_the_time,
        sentence: verdict_sentence(&figures, &finding, text.as_ref()),
        shown: shown_figures(&figures, text.as_ref()),
        other_end_would_show: text
            .other_end_would_show()
            .filter(|_| is_alone)
            .map(str::to_owned),
        finding,
        signals,
        time,
    }
}

fn verdict_sentence(figures: &SenderView, finding: &Finding, text: &dyn LimitText) -> String {
    let capture = figures.evidence.capture.as_ref();
    capture
        .and_then(|capture| text.captured_sentence(&CaptureView { figures, capture }, finding))
        .unwrap_or_else(|| text.sentence(figures, finding))
}

fn evidence_basis(evidence: &Evidence) -> Basis {
    match (
        evidence.sender_samples.is_empty(),
        evidence.receiver_samples.is_empty(),
    ) {
        (true, false) => Basis::Receiver,
        _ if evidence.capture.is_some() => Basis::Capture,
        (_, true) => Basis::Sender,
        _ => Basis::BothEnds,
    }
}

/// Returns the figures that decided, by the names that they have on the screen.
fn shown_figures(figures: &SenderView, text: &dyn LimitText) -> BTreeMap<String, String> {
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
        .chain(text.shown_rows(figures))
        .chain(of_capture)
        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
        .collect()
}

impl ReceiverView<'_> {
    /// Returns the figures that decided.
    fn shown_figures(&self) -> BTreeMap<String, String> {
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
        [
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
        .into_iter()
        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
        .collect()
    }
}
