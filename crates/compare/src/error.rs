use fullpipe_lab::{Host, LabError};
use thiserror::Error;

/// Why programs could not be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Keys, configurations or the file could not be made.
    #[error("the {} cannot be prepared for the programs: {why}", host.name())]
    Preparation {
        /// The host.
        host: Host,
        /// The last line that was written about it.
        why: String,
    },
    /// A program that must take part is not installed.
    #[error("{program} cannot take part: {missing} is not installed")]
    Missing {
        /// The program.
        program: &'static str,
        /// The executable that it needs.
        missing: &'static str,
    },
    /// Nothing is left to compare.
    #[error("none of these programs is installed")]
    NoProgram,
    /// The user stopped it before there was anything to show.
    #[error("interrupted before any program had moved the file")]
    Interrupted,
}
