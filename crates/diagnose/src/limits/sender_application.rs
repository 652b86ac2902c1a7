//! A sending program that is slow, by itself, by request or for the file that it reads.

use fullpipe_record::{At, Change, Limit, Remedy, Scope, SenderApplicationVerdict, Steady};
use fullpipe_units::{BitRate, Ratio};

use crate::advice::RemedyAdvice;
use crate::figures::{SenderSampleFigures, share_of_votes};
use crate::finding::LimitFinding;
use crate::limits::LimitFacts;
use crate::limits::send_buffer::buffer_is_full;
use crate::machine;
use crate::manual_remedy::ManualRemedy;
use crate::text::{self, Row, rate_text};
use crate::thresholds::{MIN_IDLE_SHARE_OF_QUARTER, MIN_LIMIT_SHARE, WHOLE_RATE_SHARE};

/// Returns the sending program, if it was asked for a rate and reached all of it: whatever a buffer
/// looks like then, it holds nothing back.
pub(crate) fn as_asked(figures: &SenderSampleFigures) -> Option<LimitFinding> {
    let rate = figures.part?.rate;
    let reached = figures
        .offered_rate()
        .is_some_and(|asked| rate >= asked.scale_by(WHOLE_RATE_SHARE));
    reached.then(|| LimitFinding::new(SenderApplicationVerdict::RateLimited, Ratio::ONE))
}

/// Returns the sending program, if it left its socket largely empty for most of the time.
pub(crate) fn find_program(figures: &SenderSampleFigures) -> Option<LimitFinding> {
    let votes = figures.flows.iter().flat_map(|flow| {
        let full = buffer_is_full(figures, flow).unwrap_or(false);
        flow.snapshots
            .iter()
            .map(move |snapshot| snapshot.writer_behind(full))
    });
    let held = share_of_votes(votes).filter(|share| share.get() >= MIN_LIMIT_SHARE)?;
    Some(idle_program(figures, held))
}

/// Returns true if nothing is left to send or on the way again and again, in each quarter of the
/// judged part: all that the program wrote had arrived then, so that its writing sets the mean rate,
/// whatever slows or loses the data in between.
pub(crate) fn runs_dry_throughout(figures: &SenderSampleFigures) -> bool {
    let Some(part) = figures.part else {
        return false;
    };
    let duration = part.duration / 4;
    (0..4).all(|quarter| {
        let ramp = part.ramp + duration * quarter;
        let quarter = Steady {
            ramp,
            duration,
            ..part
        };
        SenderSampleFigures::from_part(figures.evidence, Some(quarter))
            .idle_share()
            .is_some_and(|idle| idle.get() >= MIN_IDLE_SHARE_OF_QUARTER)
    })
}

/// Returns the sending program as the limit: it had nothing to send, or was asked for a rate and
/// keeps to it.
pub(crate) fn idle_program(figures: &SenderSampleFigures, share: Ratio) -> LimitFinding {
    let limited = keeps_to_a_rate(figures);
    LimitFinding::new(
        if limited {
            SenderApplicationVerdict::RateLimited
        } else {
            SenderApplicationVerdict::Idle
        },
        share,
    )
}

fn keeps_to_a_rate(figures: &SenderSampleFigures) -> bool {
    const NEARLY: f64 = 0.9;
    figures.offered_rate().is_some_and(|asked| {
        figures
            .part
            .is_none_or(|part| part.rate >= asked.scale_by(NEARLY))
    })
}

/// Returns the file that the sending program reads for most of the time, if `found` is that
/// program.
pub(crate) fn find_cause(
    figures: &SenderSampleFigures,
    found: &LimitFinding,
) -> Option<LimitFinding> {
    if found.limit_kind() != Limit::SenderApplication {
        return None;
    }
    let busy = machine::busy_with_file(figures, &figures.evidence.sender_machine)?;
    Some(LimitFinding::new(SenderApplicationVerdict::Storage, busy))
}

/// The figures of a slow sending program.
pub(crate) struct SenderProgramFacts {
    verdict: SenderApplicationVerdict,
    share: Ratio,
    /// Rate that it was asked for, all streams together.
    offered: Option<BitRate>,
    shown: Vec<Row>,
}

impl SenderProgramFacts {
    pub(crate) fn from_figures(
        verdict: SenderApplicationVerdict,
        share: Ratio,
        figures: &SenderSampleFigures,
    ) -> Self {
        let shown = vec![
            text::queued_row(figures),
            text::unsent_row(figures),
            text::idle_row(figures),
        ];
        Self {
            verdict,
            share,
            offered: figures.offered_rate(),
            shown,
        }
    }
}

impl LimitFacts for SenderProgramFacts {
    fn sentence(&self) -> String {
        let share = self.share;
        match self.verdict {
            SenderApplicationVerdict::RateLimited => format!(
                "The sending program was asked for {} and offered no more; neither network nor buffers held it back.",
                rate_text(self.offered)
            ),
            SenderApplicationVerdict::Storage => {
                format!(
                    "Reading the file holds the transfer back: it took {share} of the sender's time."
                )
            }
            SenderApplicationVerdict::Idle => format!(
                "The sending program is slow: for {share} of the time it left the connection without enough to send; \
                 neither network nor buffers held it back."
            ),
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn setting_remedies(&self, advice: &RemedyAdvice) -> Vec<Remedy> {
        match self.verdict {
            SenderApplicationVerdict::RateLimited => higher_rate(advice).into_iter().collect(),
            SenderApplicationVerdict::Idle | SenderApplicationVerdict::Storage => Vec::new(),
        }
    }

    fn manual_remedies(&self) -> &'static [ManualRemedy] {
        match self.verdict {
            SenderApplicationVerdict::Storage => FASTER_STORAGE,
            SenderApplicationVerdict::RateLimited => &[ManualRemedy {
                id: "higher-rate",
                scope: Scope::Application,
                at: None,
                why: "The sender keeps to the rate that it was asked for: ask for a higher one, or for none.",
            }],
            SenderApplicationVerdict::Idle => &[ManualRemedy {
                id: "faster-writer",
                scope: Scope::Application,
                at: None,
                why: "The sending program must supply the data faster; no setting of TCP helps.",
            }],
        }
    }
}

/// The remedy of a slow file at either end.
pub(crate) const FASTER_STORAGE: &[ManualRemedy] = &[ManualRemedy {
    id: "faster-storage",
    scope: Scope::Application,
    at: None,
    why: "The file is slower than the network: a faster disk, larger or parallel reads and writes, or none at all \
          (test without the file) would show what the network gives.",
}];

/// `None` where the load is another program's, which was asked for its rate by somebody else.
fn higher_rate(advice: &RemedyAdvice) -> Option<Remedy> {
    let rate = advice.evidence.request.rate?;
    let why = format!(
        "The load was asked to offer {rate} on each connection and keeps to it; without that it offers all that the \
         connection takes."
    );
    Some(advice.build_remedy(
        "higher-rate",
        Scope::Application,
        At::Sender,
        vec![Change::Rate(None)],
        why,
    ))
}
