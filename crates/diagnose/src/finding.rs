use fullpipe_record::{At, Cause, Limit};
use fullpipe_units::Ratio;

/// A limit that was found, before it is put into words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub(crate) kind: Limit,
    pub(crate) cause: Cause,
    pub(crate) at: At,
    /// Share of the judged time in which it held.
    pub(crate) share: Ratio,
    /// What would have to be known, where nothing was found.
    pub(crate) missing: Vec<&'static str>,
}

impl Finding {
    pub(crate) fn new(kind: Limit, cause: Cause, at: At, share: Ratio) -> Self {
        Self { kind, cause, at, share, missing: Vec::new() }
    }

    pub(crate) fn capacity(share: Ratio) -> Self {
        Self::new(Limit::Capacity, Cause::Link, At::Path, share)
    }

    pub(crate) fn unknown(missing: Vec<&'static str>) -> Self {
        Self { missing, ..Self::new(Limit::Unknown, Cause::EvidenceMissing, At::None, Ratio::ZERO) }
    }
}
