//! A congestion window that is small, though no loss holds it down now.

pub(crate) mod growth;
pub(crate) mod ramp_up;
pub(crate) mod reordering;

use fullpipe_record::{At, CongestionWindowVerdict, Remedy, Scope};
use fullpipe_units::ByteCount;

use crate::limits::{LimitFacts, loss};
use crate::remedies::advice::RemedyAdvice;
use crate::remedies::manual_remedy::ManualRemedy;
use crate::signals::sender::SenderView;
use crate::text::{self, BasicFacts, Row, size_text, time_text};

/// The figures of a congestion window.
pub(crate) struct CongestionWindowFacts {
    verdict: CongestionWindowVerdict,
    basics: BasicFacts,
    window: Option<ByteCount>,
    shown: Vec<Row>,
}

impl CongestionWindowFacts {
    pub(crate) fn from_figures(verdict: CongestionWindowVerdict, figures: &SenderView) -> Self {
        Self {
            verdict,
            basics: BasicFacts::from_figures(figures),
            window: figures.mean_size(|snapshot| snapshot.cwnd),
            shown: text::of_path(figures),
        }
    }
}

impl LimitFacts for CongestionWindowFacts {
    fn sentence(&self) -> String {
        let (window, rtt) = (size_text(self.window), time_text(self.basics.rtt));
        match self.verdict {
            CongestionWindowVerdict::RampUp => format!(
                "The transfer was still speeding up when it ended: a sender starts slowly and doubles each round trip \
                 ({rtt})."
            ),
            CongestionWindowVerdict::Reordering => format!(
                "Packets overtake each other, and the sender takes the late ones for lost: it keeps {window} in flight."
            ),
            CongestionWindowVerdict::Recovering => format!(
                "The sender still recovers from an earlier loss: it allows {window} in flight and adds to it each \
                 {rtt}."
            ),
            CongestionWindowVerdict::EarlyExit => format!(
                "The sender left slow start early, though nothing was lost: it allows {window} in flight and adds \
                 slowly."
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let bbr = match self.verdict {
            CongestionWindowVerdict::RampUp => None,
            CongestionWindowVerdict::EarlyExit
            | CongestionWindowVerdict::Recovering
            | CongestionWindowVerdict::Reordering => advice.bbr_remedy(),
        };
        // A short queue may have taken the packets: a pace overflows none.
        let pace = (self.verdict == CongestionWindowVerdict::Recovering)
            .then(|| loss::pace_below_the_bottleneck(advice))
            .flatten();
        [Some(longer_transfer(advice)), bbr, pace]
            .into_iter()
            .flatten()
            .collect()
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            CongestionWindowVerdict::Reordering => &[ManualRemedy {
                id: "keep-the-order",
                scope: Scope::Path,
                at: None,
                why: "Packets of one connection should take one way: check for links that are balanced packet by \
                      packet.",
            }],
            CongestionWindowVerdict::RampUp
            | CongestionWindowVerdict::EarlyExit
            | CongestionWindowVerdict::Recovering => &[],
        }
    }
}

fn longer_transfer(advice: &RemedyAdvice) -> Remedy {
    let ramp = advice
        .outlook
        .as_ref()
        .map(|outlook| outlook.predict_changes(&[]).ramp);
    let why = match ramp.filter(|ramp| ramp.rounds > 0) {
        Some(ramp) => format!(
            "At best {} round trips, {}, pass before this path is full; a longer transfer spends less of its time on \
             that.",
            ramp.rounds, ramp.duration
        ),
        None => "The longer a transfer, the less of its time is spent on speeding up.".to_owned(),
    };
    advice.build_remedy(
        "longer-transfer",
        Scope::Application,
        At::Sender,
        Vec::new(),
        why,
    )
}
