//! A bottleneck that is full, on the path or in the sending host.

pub(crate) mod allowance;
pub(crate) mod flow_limit;
pub(crate) mod half_duplex;
pub(crate) mod host_queue;
pub(crate) mod link;
pub(crate) mod shared;

use fullpipe_record::{CapacityVerdict, Evidence, Limit, Remedy, Scope};

use crate::advice::{ManualRemedy, RemedyAdvice};
use crate::finding::Finding;
use crate::limits::LimitText;
use crate::limits::capacity::allowance::FallenRate;
use crate::signals::{CaptureView, ReceiverView, Row, SenderView};
use crate::text::{self, time_text};

impl LimitText for CapacityVerdict {
    fn sentence(&self, figures: &SenderView, _finding: &Finding) -> String {
        let rate = figures.rate;
        match self {
            CapacityVerdict::Link => link::full_link(figures),
            CapacityVerdict::HalfDuplexOfSender | CapacityVerdict::HalfDuplexOfReceiver => {
                half_duplex::sentence(*self, figures.evidence, figures.rate)
            }
            CapacityVerdict::HostQueue => format!(
                "The sender's own queue or network device drops packets at {rate}: they are lost before they leave the \
                 host."
            ),
            CapacityVerdict::Shared => format!(
                "The pipe is full, but not with this transfer alone: its part is {rate}{} (round trip {} idle, {} \
                 now).",
                text::could_carry(figures),
                time_text(figures.idle_rtt),
                time_text(figures.rtt),
            ),
            CapacityVerdict::PerFlowLimit => format!(
                "The path bounds each connection: each of {} carries {}, and all of them {rate}{}.",
                figures.stream_count(),
                rate.scale_by(1.0 / f64::from(figures.stream_count())),
                text::could_carry(figures),
            ),
            CapacityVerdict::Allowance => match FallenRate::from_figures(figures, true) {
                Some(fallen) => fallen.sentence(),
                None => format!("The path let more pass at first than {rate}, and then no more."),
            },
        }
    }

    fn captured_sentence(&self, view: &CaptureView, _finding: &Finding) -> Option<String> {
        let is_unseen = *self == Self::HostQueue && view.capture.lost_before == 0;
        is_unseen.then(|| {
            format!(
                "The sender holds itself back and sends at times of its own, though it never pauses and the receiver \
                 allows {}: its own queue may drop packets before they are captured, or its program writes little at a \
                 time; {} is sent.",
                view.window_text(),
                view.figures.rate
            )
        })
    }

    fn received_sentence(&self, arrivals: &ReceiverView, finding: &Finding) -> String {
        let rate = arrivals.rate;
        match self {
            Self::HalfDuplexOfReceiver => half_duplex::sentence(*self, arrivals.evidence, rate),
            Self::Allowance => FallenRate::from_arrivals(arrivals)
                .map_or_else(String::new, |fallen| fallen.sentence()),
            _ if finding.may_be(Limit::Pacing) => format!(
                "{rate} arrives evenly, and a queue stands before it: the pipe is full, or a queue of the sending host \
                 that is held to a rate."
            ),
            _ if finding.candidates.is_some() => format!(
                "{rate} arrives, and round trips seem to take {}, longer than those of the idle path: the pipe is \
                 full, or the sender pauses.",
                arrivals.rtt.unwrap_or_default()
            ),
            Self::Shared => format!(
                "The pipe is full, but not with this transfer alone: {rate} arrives here, and others have the rest."
            ),
            _ => format!(
                "The pipe is full: {rate} of data arrives, and more would only lengthen the queue."
            ),
        }
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        text::of_path(figures)
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self {
            CapacityVerdict::HostQueue => [
                advice.default_discipline(),
                host_queue::longer_queue(advice),
            ]
            .into_iter()
            .flatten()
            .collect(),
            CapacityVerdict::PerFlowLimit | CapacityVerdict::Link => {
                flow_limit::several_connections(advice)
                    .into_iter()
                    .collect()
            }
            CapacityVerdict::Shared
            | CapacityVerdict::Allowance
            | CapacityVerdict::HalfDuplexOfSender
            | CapacityVerdict::HalfDuplexOfReceiver => Vec::new(),
        }
    }

    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        match self {
            CapacityVerdict::HostQueue => vec![ManualRemedy::new(
                "longer-queue",
                Scope::Host,
                "A longer queue at the device (txqueuelen, the limit of its discipline, larger \
                 rings), or fq, which lets each connection wait instead of dropping.",
            )],
            CapacityVerdict::Shared => vec![ManualRemedy::new(
                "share",
                Scope::Path,
                "Others load the path: more bandwidth, another hour, or an agreed share of it; \
                 more connections only take from the others.",
            )],
            CapacityVerdict::HalfDuplexOfSender | CapacityVerdict::HalfDuplexOfReceiver => {
                half_duplex::REMEDIES.to_vec()
            }
            CapacityVerdict::PerFlowLimit => vec![ManualRemedy::new(
                "raise-the-limit-of-a-flow",
                Scope::Path,
                "Who runs the path bounds each connection: its documentation says by how much, \
                 and where not (one placement group, another class of the service).",
            )],
            CapacityVerdict::Allowance => allowance::REMEDIES.to_vec(),
            CapacityVerdict::Link => vec![ManualRemedy::new(
                "none",
                Scope::Path,
                "The pipe is full: no setting of the hosts makes it wider.",
            )],
        }
    }
}
