//! Senders that keep to a pace below what their windows allow.

pub(crate) mod congestion_control;
pub(crate) mod max_pacing_rate;
pub(crate) mod qdisc;

use fullpipe_record::{PacingVerdict, Remedy, Scope};
use fullpipe_units::{BitRate, ByteCount};

use crate::limits::LimitFacts;
use crate::remedies::advice::RemedyAdvice;
use crate::remedies::manual_remedy::ManualRemedy;
use crate::signals::sender::SenderView;
use crate::text::{self, BasicFacts, Row, rate_text, size_text};

/// The figures of a pace.
pub(crate) struct PacingFacts {
    verdict: PacingVerdict,
    basics: BasicFacts,
    /// Maximum that the program set, all streams together.
    set: Option<BitRate>,
    /// Mean that the kernel computed, all streams together.
    computed: Option<BitRate>,
    window: Option<ByteCount>,
    shown: Vec<Row>,
}

impl PacingFacts {
    pub(crate) fn from_figures(verdict: PacingVerdict, figures: &SenderView) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            set: max_pacing_rate::max_pace(figures),
            computed: congestion_control::mean_pace(figures),
            window: figures.mean_size(|snapshot| snapshot.cwnd),
            shown: text::trend_rows(figures),
        }
    }
}

impl LimitFacts for PacingFacts {
    fn sentence(&self) -> String {
        let could_carry = self.basics.could_carry();
        match self.verdict {
            PacingVerdict::MaxPacingRate => format!(
                "The sending program set a maximum pace of {} on its sockets, and the transfer reaches \
                 it{could_carry}.",
                rate_text(self.set),
            ),
            PacingVerdict::Qdisc => format!(
                "A queueing discipline of the sender's network device holds packets to a rate: {} of data is \
                 sent{could_carry}.",
                self.basics.rate,
            ),
            PacingVerdict::CongestionControl => format!(
                "The sender's congestion control paces at {}, below what its window of {} would allow{could_carry}.",
                rate_text(self.computed),
                size_text(self.window),
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let remedies = match self.verdict {
            PacingVerdict::MaxPacingRate => [max_pacing_rate::higher_pace(advice), None],
            PacingVerdict::CongestionControl => [
                advice.bbr_remedy(),
                congestion_control::default_pacing_ratios(advice),
            ],
            PacingVerdict::Qdisc => [advice.default_discipline(), None],
        };
        remedies.into_iter().flatten().collect()
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            PacingVerdict::MaxPacingRate => &[ManualRemedy {
                id: "higher-pace",
                scope: Scope::Application,
                at: None,
                why: "The program set a maximum pace on its sockets: set a higher one, or none.",
            }],
            PacingVerdict::Qdisc => &[ManualRemedy {
                id: "higher-rate-of-the-discipline",
                scope: Scope::Host,
                at: None,
                why: "The queueing discipline of the device has a rate (see tc qdisc): raise it, or replace the \
                      discipline.",
            }],
            PacingVerdict::CongestionControl => &[ManualRemedy {
                id: "default-pacing-ratios",
                scope: Scope::Namespace,
                at: None,
                why: "The kernel paces at tcp_pacing_ca_ratio percent of window ÷ round trip: below 100 the window is \
                      never used up. Its default is 120.",
            }],
        }
    }
}
