//! Senders that keep to a pace below what their windows allow.

pub(crate) mod congestion_control;
pub(crate) mod max_pacing_rate;
pub(crate) mod qdisc;

use fullpipe_record::{Evidence, PacingVerdict, Remedy, Scope};

use crate::advice::{ManualRemedy, RemedyAdvice};
use crate::finding::Finding;
use crate::limits::LimitText;
use crate::signals::{CaptureView, ReceiverView, Row, SenderView};
use crate::text::{self, rate_text, size_text};

impl LimitText for PacingVerdict {
    fn sentence(&self, figures: &SenderView, _finding: &Finding) -> String {
        let could_carry = text::could_carry(figures);
        match self {
            PacingVerdict::MaxPacingRate => format!(
                "The sending program set a maximum pace of {} on its sockets, and the transfer reaches \
                 it{could_carry}.",
                rate_text(max_pacing_rate::max_pace(figures)),
            ),
            PacingVerdict::Qdisc => format!(
                "A queueing discipline of the sender's network device holds packets to a rate: {} of data is \
                 sent{could_carry}.",
                figures.rate,
            ),
            PacingVerdict::CongestionControl => format!(
                "The sender's congestion control paces at {}, below what its window of {} would allow{could_carry}.",
                rate_text(congestion_control::mean_pace(figures)),
                size_text(figures.mean_size(|snapshot| snapshot.cwnd)),
            ),
        }
    }

    fn captured_sentence(&self, view: &CaptureView, _finding: &Finding) -> Option<String> {
        Some(format!(
            "The sender paces its data: trains of {} come evenly, at {}, though the receiver allows {} and nothing is \
             lost.",
            view.capture.train,
            view.figures.rate,
            view.window_text()
        ))
    }

    fn received_sentence(&self, arrivals: &ReceiverView, _finding: &Finding) -> String {
        let rate = arrivals.rate;
        format!("The sender was asked for a maximum pace, and {rate} arrives: it reaches that.")
    }

    fn shown_rows(&self, figures: &SenderView) -> Vec<Row> {
        text::trend_rows(figures)
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        let remedies = match self {
            PacingVerdict::MaxPacingRate => [max_pacing_rate::higher_pace(advice), None],
            PacingVerdict::CongestionControl => [
                advice.bbr_remedy(),
                congestion_control::default_pacing_ratios(advice),
            ],
            PacingVerdict::Qdisc => [advice.default_discipline(), None],
        };
        remedies.into_iter().flatten().collect()
    }

    fn manual_remedies(&self, _evidence: &Evidence) -> Vec<ManualRemedy> {
        match self {
            PacingVerdict::MaxPacingRate => vec![ManualRemedy::new(
                "higher-pace",
                Scope::Application,
                "The program set a maximum pace on its sockets: set a higher one, or none.",
            )],
            PacingVerdict::Qdisc => vec![ManualRemedy::new(
                "higher-rate-of-the-discipline",
                Scope::Host,
                "The queueing discipline of the device has a rate (see tc qdisc): raise it, or \
                 replace the discipline.",
            )],
            PacingVerdict::CongestionControl => vec![ManualRemedy::new(
                "default-pacing-ratios",
                Scope::Namespace,
                "The kernel paces at tcp_pacing_ca_ratio percent of window ÷ round trip: below \
                 100 the window is never used up. Its default is 120.",
            )],
        }
    }
}
