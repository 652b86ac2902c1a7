//! A sending program that is slow, by itself, by request or for the file that it reads.

pub(crate) mod idle;
pub(crate) mod rate_limited;

use fullpipe_record::{Limit, Remedy, Scope, SenderApplicationVerdict};
use fullpipe_units::{BitRate, Ratio};

use crate::finding::Finding;
use crate::limits::LimitFacts;
use crate::remedies::advice::RemedyAdvice;
use crate::remedies::manual_remedy::ManualRemedy;
use crate::signals::machine;
use crate::signals::sender::SenderView;
use crate::text::{self, Row, rate_text};

/// Returns the file that the sending program reads for most of the time, if `found` is that
/// program.
pub(crate) fn find_cause(figures: &SenderView, found: &Finding) -> Option<Finding> {
    if found.limit_kind() != Limit::SenderApplication {
        return None;
    }
    let busy = machine::busy_with_file(figures, &figures.evidence.sender_machine)?;
    Some(Finding::new(SenderApplicationVerdict::Storage, busy))
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
        figures: &SenderView,
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
            SenderApplicationVerdict::RateLimited => {
                rate_limited::higher_rate(advice).into_iter().collect()
            }
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
