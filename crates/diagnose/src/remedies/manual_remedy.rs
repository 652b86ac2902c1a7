use fullpipe_record::{At, Scope};

/// A remedy that no setting of the two hosts carries out.
pub(crate) struct ManualRemedy {
    pub(crate) id: &'static str,
    pub(crate) scope: Scope,
    /// The end that it changes, if that is not the end that has the limit.
    pub(crate) at: Option<At>,
    pub(crate) why: &'static str,
}
