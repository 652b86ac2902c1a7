use thiserror::Error;

/// The given values have no answer: one sentence that names the argument and what would be valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct GivenError(String);

impl GivenError {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}
