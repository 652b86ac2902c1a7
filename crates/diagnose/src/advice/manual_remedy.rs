use crate::prelude::*;

/// A remedy that no setting of the two hosts carries out.
#[derive(Clone, Copy)]
pub(crate) struct ManualRemedy {
    pub(crate) id: &'static str,
    pub(crate) scope: Scope,
    /// The end that it changes, if that is not the end that has the limit.
    pub(crate) at: Option<At>,
    pub(crate) why: &'static str,
}

impl ManualRemedy {
    /// Returns a remedy at the end that has the limit.
    pub(crate) const fn new(id: &'static str, scope: Scope, why: &'static str) -> Self {
        Self {
            id,
            scope,
            at: None,
            why,
        }
    }

    /// Returns this remedy at another end than the one that has the limit.
    pub(crate) const fn at_end(self, at: At) -> Self {
        Self {
            at: Some(at),
            ..self
        }
    }
}
