//! Evidence that shows no limit.

use fullpipe_record::UnknownVerdict;

use crate::finding::Finding;
use crate::limits::LimitFacts;
use crate::signals::sender::SenderView;
use crate::text::{self, Row};

/// The figures that are missing, and those that there are.
pub(crate) struct UnknownLimitFacts {
    verdict: UnknownVerdict,
    /// Names of the missing figures.
    names: String,
    shown: Vec<Row>,
}

impl UnknownLimitFacts {
    pub(crate) fn from_finding(
        verdict: UnknownVerdict,
        finding: &Finding,
        figures: &SenderView,
    ) -> Self {
        Self {
            verdict,
            names: finding.missing.join(", "),
            shown: text::trend_rows(figures),
        }
    }
}

impl LimitFacts for UnknownLimitFacts {
    fn sentence(&self) -> String {
        match self.verdict {
            UnknownVerdict::EvidenceMissing => {
                format!(
                    "The evidence does not show what limits this transfer; missing: {}.",
                    self.names
                )
            }
        }
    }

    fn shown_rows(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("its windows, buffers and processor")
    }
}
