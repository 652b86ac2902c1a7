use fullpipe_record::{LegalVerdict, Limit, UnknownVerdict};
use fullpipe_units::Ratio;

/// A limit that a rule found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub(crate) verdict: LegalVerdict,
    /// Share of the judged time in which it held.
    pub(crate) share: Ratio,
    /// Names of the figures that a verdict would need, where nothing was found.
    pub(crate) missing: Vec<&'static str>,
    /// Set if the evidence shows other verdicts as much as this one.
    pub(crate) is_one_of_several: bool,
    /// One of those others, where the verdict is the first of several sets.
    pub(crate) other: Option<LegalVerdict>,
}

impl Finding {
    pub(crate) fn new(verdict: impl Into<LegalVerdict>, share: Ratio) -> Self {
        Self {
            verdict: verdict.into(),
            share,
            missing: Vec::new(),
            is_one_of_several: false,
            other: None,
        }
    }

    pub(crate) fn unknown_limit(missing: Vec<&'static str>) -> Self {
        Self {
            missing,
            ..Self::new(UnknownVerdict::EvidenceMissing, Ratio::ZERO)
        }
    }

    /// Returns this finding as one that the evidence does not distinguish from others of its set.
    pub(crate) fn one_of_several(self) -> Self {
        Self {
            is_one_of_several: true,
            ..self
        }
    }

    /// Returns this finding as one of a set that also has the verdict `other`.
    pub(crate) fn add_alternative(self, other: impl Into<LegalVerdict>) -> Self {
        Self {
            other: Some(other.into()),
            ..self.one_of_several()
        }
    }

    pub(crate) const fn limit_kind(&self) -> Limit {
        self.verdict.limit_kind()
    }

    /// Returns true if this is a limit of kind `limit`, or may be one as much.
    pub(crate) fn may_be(&self, limit: Limit) -> bool {
        self.limit_kind() == limit || self.other.is_some_and(|other| other.limit_kind() == limit)
    }

    /// Returns another verdict that held for the same share.
    pub(crate) fn as_verdict(&self, verdict: impl Into<LegalVerdict>) -> Self {
        Self::new(verdict, self.share)
    }
}
