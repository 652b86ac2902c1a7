//! The views of one transfer: what each of them holds of the evidence, and how many of them are
//! right.

use fullpipe_diagnose::diagnose;
use fullpipe_record::{Buffer, Direction, Evidence, Machine, Request, Sample, Verdict, Writer};
use fullpipe_record::{find_steady, steady_of_receiver};
use fullpipe_units::{BitRate, ByteCount, Span};

use super::listing::listed_evidence;

/// A view from which a transfer is judged.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    clap::ValueEnum,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JudgedView {
    /// `fullpipe` is at both ends.
    BothEnds,
    /// The sending end alone.
    Sender,
    /// The receiving end alone.
    Receiver,
    /// Other programs send and receive, and one end is watched.
    Watched,
    CapturedAtSender,
    CapturedAtReceiver,
    CapturedAtBoth,
    /// The sender's figures as `ss` lists them once.
    OneListing,
    /// The same five times, a second apart.
    FiveListings,
}

impl JudgedView {
    /// The views of listings, and the number of listings of each.
    pub(crate) const OF_LISTINGS: [(Self, u64); 2] =
        [(Self::OneListing, 1), (Self::FiveListings, 5)];

    /// The views of a transfer by the kernels' figures.
    pub(crate) const OF_KERNEL: [Self; 4] =
        [Self::BothEnds, Self::Sender, Self::Receiver, Self::Watched];

    /// Returns the part of the evidence of both ends that this view has, with the bandwidth that the
    /// user states, if any.
    pub(crate) fn evidence(self, both_ends: &Evidence, bandwidth: Option<BitRate>) -> Evidence {
        let whole = Evidence {
            bandwidth,
            ..both_ends.clone()
        };
        match self {
            Self::Sender => without_receiver(whole),
            Self::Receiver => without_sender(whole),
            Self::Watched if !whole.is_watched => watched_sender(without_receiver(whole)),
            _ => whole,
        }
    }

    /// Returns true if the view is of packets.
    pub(crate) fn is_of_captures(self) -> bool {
        !Self::OF_KERNEL.contains(&self) && !self.is_of_listing()
    }

    /// Returns true if the view is text of `ss`.
    pub(crate) fn is_of_listing(self) -> bool {
        Self::OF_LISTINGS.iter().any(|(view, _)| *view == self)
    }

    /// Returns true if a verdict names `expected`, as far as the view distinguishes causes. An
    /// `expected` kind without a cause is named by each of its causes.
    pub(crate) fn is_named(self, expected: &str, named: &str) -> bool {
        let is_kind = !expected.contains('/') && named.split('/').next() == Some(expected);
        let mut alike = self.groups_alike().iter();
        let is_alike = alike.any(|group| group.contains(&expected) && group.contains(&named));
        expected == named || is_kind || is_alike
    }

    /// Returns the causes that are the same in this view: no packet shows who asked for a buffer,
    /// and none which part of the other host holds its sender back.
    fn groups_alike(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::BothEnds | Self::Sender => &[],
            Self::Watched => &[OF_PROGRAM, OF_RECEIVE_BUFFER],
            // No setting of a host is listed, nor what the SYNs offered.
            Self::OneListing | Self::FiveListings => {
                &[OF_PROGRAM, OF_SEND_BUFFER, OF_RECEIVE_BUFFER, OF_SCALE]
            }
            Self::Receiver => &[OF_PROGRAM, OF_SEND_BUFFER, OF_PACE],
            Self::CapturedAtSender | Self::CapturedAtReceiver | Self::CapturedAtBoth => {
                &[OF_PROGRAM, OF_SEND_BUFFER, OF_PACE, OF_RECEIVE_BUFFER]
            }
        }
    }
}

const OF_PROGRAM: &[&str] = &[
    "sender-application/idle",
    "sender-application/rate-limited",
    "sender-application/storage",
];
const OF_SEND_BUFFER: &[&str] = &["send-buffer/so-sndbuf", "send-buffer/tcp-wmem-max"];
const OF_PACE: &[&str] = &[
    "pacing/max-pacing-rate",
    "pacing/qdisc",
    "pacing/congestion-control",
];
const OF_SCALE: &[&str] = &[
    "receive-window/no-window-scaling",
    "receive-window/window-scale-stripped",
];
const OF_RECEIVE_BUFFER: &[&str] = &["receive-window/so-rcvbuf", "receive-window/tcp-rmem-max"];

/// Returns the evidence of the sending end alone.
fn without_receiver(evidence: Evidence) -> Evidence {
    Evidence {
        receiver: None,
        receiver_sockets: Vec::new(),
        receiver_samples: Vec::new(),
        receiver_machine: Machine::default(),
        ..evidence
    }
}

/// Returns the evidence of the receiving end alone, which knows nothing of the program that sends.
fn without_sender(evidence: Evidence) -> Evidence {
    let ended_at = last_sample(&evidence.receiver_samples);
    Evidence {
        request: Request {
            rate: None,
            pacing: None,
            bytes: None,
            ..evidence.request
        },
        sender: None,
        sender_sockets: Vec::new(),
        sender_samples: Vec::new(),
        sender_machine: Machine::default(),
        loaded_rtt: None,
        steady: steady_of_receiver(&evidence.receiver_samples, None, ended_at),
        ..evidence
    }
}

/// Returns the evidence of a sender whose program is watched: nothing is known of what it was asked
/// for.
fn watched_sender(evidence: Evidence) -> Evidence {
    let acknowledged = |sample: Sample| {
        let bytes = sample.tcp.bytes_acked.unwrap_or_default();
        Sample { bytes, ..sample }
    };
    let samples: Vec<Sample> = evidence
        .sender_samples
        .into_iter()
        .map(acknowledged)
        .collect();
    let ended_at = last_sample(&samples);
    let request = Request {
        direction: Direction::Upload,
        streams: evidence.request.streams,
        duration: ended_at,
        block: ByteCount::ZERO,
        buffer: Buffer::Automatic,
        writer: Writer::Blocking,
        ..Request::default()
    };
    let least = samples
        .iter()
        .filter_map(|sample| sample.tcp.min_rtt)
        .filter(|rtt| *rtt > Span::ZERO)
        .min();
    Evidence {
        request,
        idle_rtt: least,
        idle_spread: None,
        loaded_rtt: None,
        steady: find_steady(&samples, None, ended_at),
        is_watched: true,
        sender_samples: samples,
        ..evidence
    }
}

fn last_sample(samples: &[Sample]) -> Span {
    samples
        .iter()
        .map(|sample| sample.at)
        .max()
        .unwrap_or_default()
}

/// The verdict of a view on a transfer in which a limit was planted.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    /// Name of the transfer, the same for all views of it.
    pub(crate) transfer: String,
    pub(crate) view: JudgedView,
    /// The kind and cause that were planted; the kind alone where the plant is no single cause.
    pub(crate) expected: String,
    pub(crate) verdict: Option<Verdict>,
}

impl Judgement {
    /// Returns the verdicts on listings of a sender, the last of which is taken at a share of its
    /// time; none where there are no samples of a sender.
    pub(crate) fn listed(
        &self,
        sender: &Evidence,
        share: f64,
        stated: Option<BitRate>,
    ) -> Vec<Self> {
        let moment = last_sample(&sender.sender_samples).scale_by(share);
        let judged = JudgedView::OF_LISTINGS.map(|(view, count)| {
            let listed = listed_evidence(sender, moment, count, stated)?;
            Some(Self {
                view,
                verdict: Some(diagnose(&listed)),
                ..self.clone()
            })
        });
        judged.into_iter().flatten().collect()
    }

    /// Returns kind and cause of the verdict.
    pub(crate) fn said(&self) -> &str {
        self.verdict.as_ref().map_or("none", Verdict::name)
    }

    /// Returns true if the verdict names what was planted, or has it among its candidates.
    pub(crate) fn is_right(&self) -> bool {
        self.names(|name| self.view.is_named(&self.expected, name))
    }

    /// Returns true if the verdict or one of its candidates has the kind that was planted.
    pub(crate) fn is_right_in_kind(&self) -> bool {
        let kind = |name: &str| name.split('/').next().map(str::to_owned);
        self.names(|name| kind(name) == kind(&self.expected))
    }

    /// Returns true if the verdict or one of its candidates has such a name.
    fn names(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| {
            let mut candidates = verdict.candidates.iter();
            is_meant(verdict.name()) || candidates.any(|one| is_meant(one.name()))
        })
    }

    /// Returns true if the verdict has the kind and the cause that were planted.
    pub(crate) fn is_exact(&self) -> bool {
        self.said() == self.expected
    }

    /// Returns true if the verdict is one of several candidates.
    pub(crate) fn is_set(&self) -> bool {
        self.verdict
            .as_ref()
            .is_some_and(|verdict| !verdict.candidates.is_empty())
    }

    /// Returns the confidence that the verdict claims.
    pub(crate) fn confidence(&self) -> f64 {
        self.verdict
            .as_ref()
            .map_or(0.0, |verdict| verdict.confidence.get())
    }

    /// Returns the judgement in a line, with its mark.
    pub(crate) fn marked_line(&self) -> String {
        let mark = if self.is_right() { "right" } else { "WRONG" };
        format!("{mark} {}", self.line())
    }

    /// Returns view, transfer and verdict in a line.
    pub(crate) fn line(&self) -> String {
        let (many, sentence) = self.verdict.as_ref().map_or((0, ""), |verdict| {
            (verdict.candidates.len(), verdict.sentence.as_str())
        });
        let set = if many > 0 {
            format!(" (one of {many})")
        } else {
            String::new()
        };
        let (view, transfer, said) = (self.view, &self.transfer, self.said());
        format!("{view:?} {transfer}: {said}{set}: {sentence}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_names_what_it_can_distinguish() {
        let named = |view: JudgedView, expected, said| view.is_named(expected, said);
        let [rcvbuf, maximum] = ["receive-window/so-rcvbuf", "receive-window/tcp-rmem-max"];
        assert!(
            named(JudgedView::BothEnds, rcvbuf, rcvbuf)
                && !named(JudgedView::BothEnds, rcvbuf, maximum)
        );
        assert!(
            named(JudgedView::CapturedAtSender, rcvbuf, maximum)
                && !named(JudgedView::Receiver, rcvbuf, maximum)
        );
        assert!(!named(
            JudgedView::CapturedAtBoth,
            rcvbuf,
            "receive-window/no-window-scaling"
        ));
        let [pace, bucket] = ["pacing/max-pacing-rate", "pacing/qdisc"];
        assert!(
            named(JudgedView::Receiver, bucket, pace) && !named(JudgedView::Sender, bucket, pace)
        );
        assert!(!named(
            JudgedView::Receiver,
            bucket,
            "send-buffer/so-sndbuf"
        ));
    }

    #[test]
    fn a_kind_without_a_cause_is_named_by_each_of_its_causes() {
        assert!(JudgedView::BothEnds.is_named("loss", "loss/policer"));
        assert!(!JudgedView::BothEnds.is_named("loss", "loss-less/policer"));
        assert!(!JudgedView::BothEnds.is_named("loss", "unknown/evidence-missing"));
        assert!(!JudgedView::BothEnds.is_named("loss/random", "loss/policer"));
    }
}
