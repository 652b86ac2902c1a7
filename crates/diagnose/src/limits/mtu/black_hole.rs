//! Full segments that vanish on the path.

use fullpipe_record::MtuVerdict;

use crate::limits::mtu::cause_of_size;
use crate::limits::prelude::*;
use crate::thresholds::{MAX_FIRST_WINDOW, MIN_TIME_WITHOUT_PROGRESS};

candidate_sets! {
    /// Next to no data on an open connection.
    VANISHED_OR_SILENT: [Mtu BlackHole, SenderApplication Idle],
        "a capture at the other end";
}

pub(crate) const CAUSE: Cause = Cause {
    captured_sentence,
    disproof: |amount, _| {
        let reason = "packets too large to pass (full ones passed)";
        amount.full_segment_passed.then_some(reason)
    },
    setting_remedies: |advice| vec![Some(probe_the_mtu(advice))],
    manual_remedies: &[
        ManualRemedy::new(
            "let-too-big-pass",
            Scope::Path,
            "A narrow link drops full packets and its ICMP error is filtered: let ICMP \"too big\" \
             pass, and the sender learns the size at once.",
        ),
        ManualRemedy::new(
            "lower-the-mtu",
            Scope::Host,
            "An MTU of the device, or of the route, that the narrow link lets pass: with it no \
             packet is too large.",
        )
        .at_end(At::Sender),
    ],
    ..cause_of_size(
        &["mtu/black-hole"],
        |figures, _| {
            format!(
                "Packets with {} of data vanish on the path without an ICMP error: small packets pass, full ones do \
                 not.",
                size_text(figures.mss)
            )
        },
        |_, _| {
            "No packet of the data arrives, though the connection is open and small packets pass: full ones vanish on \
             the path, or the sender sends none."
                .to_owned()
        },
    )
};

fn captured_sentence(view: &CaptureView, finding: &Finding) -> Option<String> {
    if view.capture.only.is_some() {
        return Some(format!(
            "The sender repeats its first {} again and again, and no answer was captured: full packets vanish on the \
             path, or all do.",
            view.passed_bytes()
        ));
    }
    let text = if !view.is_at_sender() {
        "The connection is open, and hardly any data came: full packets vanish on their way here, or the sender has \
         none to send."
    } else if finding.candidates.is_some() {
        "The connection is open, and hardly any data passed: full packets of the other end vanish on their way here, \
         or the programs have none to send."
    } else {
        return None;
    };
    Some(text.to_owned())
}

/// Finds full segments that vanish: the connection is open and the far end always has data, but no
/// segment of it ever arrives.
pub(crate) fn nothing_arrives(arrivals: &ReceiverView) -> Option<Finding> {
    let never = arrivals.whole.iter().all(|flow| {
        flow.last().is_some_and(|last| {
            last.at >= MIN_TIME_WITHOUT_PROGRESS && last.tcp.data_segs_in == Some(SegCount::ZERO)
        })
    });
    let found = arrivals.is_own_load() && !arrivals.whole.is_empty() && never;
    found.then(|| Finding::always(MtuVerdict::BlackHole))
}

/// Timeouts in a row that a black hole causes.
const MIN_TIMEOUTS: u64 = 2;

/// Finds full segments that vanish: small packets come and go, but none of a full size ever
/// arrived, and the sender times out again and again. A path that has let full ones pass loses
/// packets of any size.
pub(crate) fn without_progress(figures: &SenderView) -> Option<Finding> {
    let last: Vec<&Sample> = figures
        .flows
        .iter()
        .filter_map(|flow| flow.whole.last().copied())
        .collect();
    let all_silent = !last.is_empty()
        && figures.flows.iter().all(|flow| {
            flow.silent_for(|sample| sample.tcp.bytes_acked) >= MIN_TIME_WITHOUT_PROGRESS
        });
    // A sender that only probes a closed window, or one of less than a segment, has nothing on the
    // way that vanishes.
    let all_time_out = last.iter().all(|sample| {
        sample.outstanding_bytes() != Some(ByteCount::ZERO) && timeout_count(sample) >= MIN_TIMEOUTS
    });
    (no_full_segment_passed(figures, &last) && all_silent && all_time_out)
        .then(|| Finding::always(MtuVerdict::BlackHole))
}

/// Returns true if none of a full size ever arrived, as the `last` sample of each stream and those
/// of the receiver show it, and small packets do.
fn no_full_segment_passed(figures: &SenderView, last: &[&Sample]) -> bool {
    // Its acknowledgement may have been lost.
    let mut received = figures.evidence.receiver_samples.iter();
    let has_arrived =
        figures.mss.is_some() && received.any(|sample| sample.tcp.bytes_received >= figures.mss);
    // Where it is not known that none passed, only the round trips of echo requests show that small
    // packets do.
    let unknown_passes = figures.evidence.loaded_rtt.is_some();
    let mut tcp = last.iter().map(|sample| &sample.tcp);
    !has_arrived
        && tcp.all(|tcp| {
            tcp.bytes_acked
                .map_or(unknown_passes, |acked| Some(acked) < tcp.snd_mss)
        })
}

/// Returns true if a sender of which no answer was captured sends the same again when its timer
/// expires, and nothing else any more.
fn repeats_without_more(flow: &SenderStream) -> bool {
    let is_silent = flow.silent_for(|sample| sample.bytes) >= MIN_TIME_WITHOUT_PROGRESS;
    is_silent
        && flow
            .whole
            .last()
            .is_some_and(|last| timeout_count(last) >= MIN_TIMEOUTS)
}

/// Returns the timeouts since the last progress.
fn timeout_count(sample: &Sample) -> u64 {
    sample.tcp.timeouts_in_a_row.map_or(0, SegCount::get)
}

/// Lets the sender find a size of packets that arrives.
fn probe_the_mtu(advice: &RemedyAdvice) -> Remedy {
    let changes = vec![Change::Sysctl {
        name: "net.ipv4.tcp_mtu_probing".to_owned(),
        value: "1".to_owned(),
    }];
    let why = "A narrow link drops full packets and its ICMP error does not arrive: with probing the sender tries \
               smaller ones after some timeouts, and keeps to a size that arrives.";
    let predicted = advice
        .outlook
        .as_ref()
        .and_then(|outlook| outlook.forecast_of_probing(&changes));
    let remedy = advice.build_remedy(
        "probe-the-mtu",
        Scope::Namespace,
        At::Sender,
        changes,
        why.to_owned(),
    );
    Remedy {
        predicted,
        ..remedy
    }
}

/// Finds a connection over which hardly any data comes: it is open, or its sender sent much
/// more.
pub(crate) fn hardly_anything(view: &CaptureView) -> Option<Finding> {
    let few = view.has_few();
    if few == Some(true) && view.has_vanished(FEW_SEGMENTS) {
        return Some(Finding::always(MtuVerdict::BlackHole));
    }
    let found = few != Some(false) && view.is_open() && !view.is_at_sender();
    found.then(|| view.cause_of_silence())
}

/// Finds a sender that sends no more than its first window, and that again and again when its
/// timer expires: no answer comes, whether one would pass here or not. A transfer of which the
/// answers pass elsewhere goes on.
pub(crate) fn repeats_in_vain(view: &CaptureView) -> Option<Finding> {
    let is_first_window =
        view.passed_bytes() <= MAX_FIRST_WINDOW && view.passed_bytes() > ByteCount::ZERO;
    let found = is_first_window && view.figures.flows.iter().all(repeats_without_more);
    found.then(|| Finding::always(MtuVerdict::BlackHole))
}

/// Finds an open connection over which its larger sender sent hardly anything: all of the other
/// one's data may have vanished on its way here.
pub(crate) fn little_and_no_answer(view: &CaptureView) -> Option<Finding> {
    let found = view.has_few()? && view.is_open() && !view.figures.ever_lost();
    found.then(|| view.cause_of_silence())
}

impl CaptureView<'_> {
    /// Returns true if more may come, and nothing shows that full segments pass.
    fn is_open(&self) -> bool {
        !self.capture.closed && !self.capture.full_segment_acknowledged
    }

    /// Returns the cause of a silence. Only data that is missing shows a black hole: a program that
    /// has nothing to send is as silent as one whose segments all vanish.
    fn cause_of_silence(&self) -> Finding {
        if self.has_vanished(1) || self.waits_unanswered() {
            return Finding::always(MtuVerdict::BlackHole).one_of(&VANISHED_OR_SILENT);
        }
        Finding::always(SenderApplicationVerdict::Idle).one_of(&VANISHED_OR_SILENT)
    }

    /// Returns true if so many segments did not come here that the sender had sent, by the sequence
    /// numbers of its later packets.
    fn has_vanished(&self, segments: u64) -> bool {
        self.figures
            .mss
            .is_some_and(|mss| self.capture.unseen >= mss * segments)
    }

    /// Returns true if a full segment or more was not acknowledged at last: there is a gap below
    /// what came here, or it vanished behind this place.
    fn waits_unanswered(&self) -> bool {
        self.figures.mss.is_some_and(|mss| {
            let mut last = self
                .figures
                .flows
                .iter()
                .filter_map(|flow| flow.whole.last());
            last.any(|last| last.outstanding_bytes() >= Some(mss))
        })
    }

    /// Returns true if the data fits a few segments; `None` where their size is not known.
    fn has_few(&self) -> Option<bool> {
        Some(self.passed_bytes() < self.figures.mss? * FEW_SEGMENTS)
    }

    /// Returns the data that was acknowledged or, if that is more, passed here, all streams
    /// together.
    pub(crate) fn passed_bytes(&self) -> ByteCount {
        let last = self.figures.flows.iter().map(|flow| flow.whole.last());
        let passed = last.flatten().map(|sample| {
            let sent = sample.tcp.bytes_sent.unwrap_or_default();
            let again = sample.tcp.bytes_retrans.unwrap_or_default();
            sample.bytes.max(sent.saturating_sub(again))
        });
        passed.sum()
    }
}
