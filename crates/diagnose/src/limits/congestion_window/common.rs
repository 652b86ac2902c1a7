//! A congestion window that is small, though no loss holds it down now.

use crate::limits::prelude::*;
use crate::text;

/// Returns a cause of a small congestion window, with its sentence.
pub(crate) const fn cause_of_window(names: CauseNames, sentence: SenderSentence) -> Cause {
    Cause {
        shown_rows: text::of_path,
        setting_remedies: |advice| vec![Some(longer_transfer(advice)), advice.bbr_remedy()],
        ..Cause::new(names, sentence)
    }
}

/// Returns what the congestion window allows in flight.
pub(crate) fn window_text(figures: &SenderView) -> String {
    text::size_text(figures.mean_size(|snapshot| snapshot.cwnd))
}

pub(crate) fn longer_transfer(advice: &RemedyAdvice) -> Remedy {
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
    let (scope, at) = (Scope::Application, At::Sender);
    advice.build_remedy("longer-transfer", scope, at, Vec::new(), why)
}
