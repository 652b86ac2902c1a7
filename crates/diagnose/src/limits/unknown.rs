//! Evidence that shows no limit.

use fullpipe_record::UnknownVerdict;

use crate::figures::Figures;
use crate::finding::Finding;
use crate::limits::Facts;
use crate::text::{self, Row};

/// The figures that are missing, and those that there are.
pub(crate) struct Missing {
    verdict: UnknownVerdict,
    /// Names of the missing figures.
    names: String,
    shown: Vec<Row>,
}

impl Missing {
    pub(crate) fn of(verdict: UnknownVerdict, finding: &Finding, figures: &Figures) -> Self {
        Self { verdict, names: finding.missing.join(", "), shown: text::course(figures) }
    }
}

impl Facts for Missing {
    fn sentence(&self) -> String {
        match self.verdict {
            UnknownVerdict::EvidenceMissing => {
                format!("The evidence does not show what limits this transfer; missing: {}.", self.names)
            }
        }
    }

    fn shown(&self) -> Vec<Row> {
        self.shown.clone()
    }

    fn other_end_would_show(&self) -> Option<&'static str> {
        Some("its windows, buffers and processor")
    }
}
