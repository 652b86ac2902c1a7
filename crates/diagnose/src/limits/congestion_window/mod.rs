//! A congestion window that is small, though no loss holds it down now.

pub(crate) mod growth;
pub(crate) mod ramp_up;
pub(crate) mod reordering;

use fullpipe_record::{At, CongestionWindowVerdict, Evidence, Remedy, Scope};

use crate::advice::{ManualRemedy, RemedyAdvice};
use crate::finding::Finding;
use crate::limits::{LimitText, loss};
use crate::signals::{ReceiverView, Row, SenderView};
use crate::text::{self, size_text, time_text};

impl LimitText for CongestionWindowVerdict {
    fn sentence(&self, figures: &SenderView, _finding: &Finding) -> String {
        let (window, rtt) = (
            size_text(figures.mean_size(|snapshot| snapshot.cwnd)),
            time_text(figures.rtt),
        );
        match self {
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

    fn received_sentence(&self, arrivals: &ReceiverView, _finding: &Finding) -> String {
        let (rate, rtt) = (arrivals.rate, arrivals.rtt.unwrap_or_default());
        match self {
            Self::Recovering => format!(
                "The sender still recovers from an earlier loss: a round trip of {rtt} brings less than before it, and \
                 {rate} arrives."
            ),
            Self::EarlyExit => format!(
                "Each round trip of {rtt} brings a little more than the one before, and nothing is lost: the sender \
                 left slow start early, and adds slowly; {rate} arrives."
            ),
            _ => format!(
                "The transfer was over before it had speeded up: a sender starts slowly and doubles each round trip \
                 ({rtt})."
            ),
        }
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        text::of_path(figures)
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let bbr = match self {
            CongestionWindowVerdict::RampUp => None,
            CongestionWindowVerdict::EarlyExit
            | CongestionWindowVerdict::Recovering
            | CongestionWindowVerdict::Reordering => advice.bbr_remedy(),
        };
        // A short queue may have taken the packets: a pace overflows none.
        let pace = (*self == CongestionWindowVerdict::Recovering)
            .then(|| loss::pace_below_the_bottleneck(advice))
            .flatten();
        [Some(longer_transfer(advice)), bbr, pace]
            .into_iter()
            .flatten()
            .collect()
    }

    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        match self {
            CongestionWindowVerdict::Reordering => vec![ManualRemedy::new(
                "keep-the-order",
                Scope::Path,
                "Packets of one connection should take one way: check for links that are \
                 balanced packet by packet.",
            )],
            CongestionWindowVerdict::RampUp
            | CongestionWindowVerdict::EarlyExit
            | CongestionWindowVerdict::Recovering => Vec::new(),
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
