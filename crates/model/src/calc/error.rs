use thiserror::Error;

/// Error in the inputs of a calculation: in one value, in the combination of several, or in a file
/// of them. The message is one sentence that states the fault and, where possible, a valid
/// alternative.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InputError(String);

impl InputError {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}
