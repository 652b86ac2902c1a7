//! A bottleneck that is full, on the path or in the sending host.

pub(crate) mod allowance;
pub(crate) mod flow_limit;
pub(crate) mod half_duplex;
pub(crate) mod host_queue;
pub(crate) mod link;
pub(crate) mod shared;

use fullpipe_record::{CapacityVerdict, Remedy, Scope};
use fullpipe_units::BitRate;

use crate::limits::LimitFacts;
use crate::limits::capacity::allowance::FallenRate;
use crate::remedies::advice::RemedyAdvice;
use crate::remedies::manual_remedy::ManualRemedy;
use crate::signals::path::stated_capacity;
use crate::signals::sender::SenderView;
use crate::text::{self, BasicFacts, Row, time_text};

/// The figures of a full pipe.
pub(crate) struct FullPipe {
    verdict: CapacityVerdict,
    basics: BasicFacts,
    bandwidth: Option<BitRate>,
    /// The sentence on a link at half duplex, where that is the cause.
    half_duplex: String,
    /// Payload that the stated bandwidth can carry.
    capacity: Option<BitRate>,
    streams: u16,
    /// The rates of an allowance.
    fallen: Option<FallenRate>,
    shown: Vec<Row>,
}

impl FullPipe {
    pub(crate) fn from_figures(verdict: CapacityVerdict, figures: &SenderView) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            bandwidth: figures.evidence.bandwidth,
            half_duplex: half_duplex::sentence(verdict, figures.evidence, figures.rate),
            capacity: stated_capacity(figures),
            streams: figures.stream_count(),
            fallen: (verdict == CapacityVerdict::Allowance)
                .then(|| FallenRate::from_figures(figures, true))
                .flatten(),
            shown: text::of_path(figures),
        }
    }

    fn full_link(&self) -> String {
        let rate = self.basics.rate;
        match self.capacity.zip(self.bandwidth) {
            Some((capacity, bandwidth)) => format!(
                "The pipe is full: {rate} of data arrives, {:.0} % of the {capacity} that a path of {bandwidth} can \
                 carry.",
                rate.relative_to(capacity) * 100.0,
            ),
            None => format!(
                "The pipe is full at {rate}: sending more only lengthens the queue (round trip {} idle, {} now).",
                time_text(self.basics.idle_rtt),
                time_text(self.basics.rtt),
            ),
        }
    }
}

impl LimitFacts for FullPipe {
    fn sentence(&self) -> String {
        let rate = self.basics.rate;
        match self.verdict {
            CapacityVerdict::Link => self.full_link(),
            CapacityVerdict::HalfDuplexOfSender | CapacityVerdict::HalfDuplexOfReceiver => {
                self.half_duplex.clone()
            }
            CapacityVerdict::HostQueue => format!(
                "The sender's own queue or network device drops packets at {rate}: they are lost before they leave the \
                 host."
            ),
            CapacityVerdict::Shared => format!(
                "The pipe is full, but not with this transfer alone: its part is {rate}{} (round trip {} idle, {} \
                 now).",
                self.basics.could_carry(),
                time_text(self.basics.idle_rtt),
                time_text(self.basics.rtt),
            ),
            CapacityVerdict::PerFlowLimit => format!(
                "The path bounds each connection: each of {} carries {}, and all of them {rate}{}.",
                self.streams,
                rate.scale_by(1.0 / f64::from(self.streams)),
                self.basics.could_carry(),
            ),
            CapacityVerdict::Allowance => match &self.fallen {
                Some(fallen) => fallen.sentence(),
                None => format!("The path let more pass at first than {rate}, and then no more."),
            },
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self.verdict {
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

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            CapacityVerdict::HostQueue => &[ManualRemedy {
                id: "longer-queue",
                scope: Scope::Host,
                at: None,
                why: "A longer queue at the device (txqueuelen, the limit of its discipline, larger rings), or fq, \
                      which lets each connection wait instead of dropping.",
            }],
            CapacityVerdict::Shared => &[ManualRemedy {
                id: "share",
                scope: Scope::Path,
                at: None,
                why: "Others load the path: more bandwidth, another hour, or an agreed share of it; more connections \
                      only take from the others.",
            }],
            CapacityVerdict::HalfDuplexOfSender | CapacityVerdict::HalfDuplexOfReceiver => {
                half_duplex::REMEDIES
            }
            CapacityVerdict::PerFlowLimit => &[ManualRemedy {
                id: "raise-the-limit-of-a-flow",
                scope: Scope::Path,
                at: None,
                why: "Who runs the path bounds each connection: its documentation says by how much, and where not \
                      (one placement group, another class of the service).",
            }],
            CapacityVerdict::Allowance => allowance::REMEDIES,
            CapacityVerdict::Link => &[ManualRemedy {
                id: "none",
                scope: Scope::Path,
                at: None,
                why: "The pipe is full: no setting of the hosts makes it wider.",
            }],
        }
    }
}
