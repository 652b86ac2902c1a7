use std::fmt::Display;

use fullpipe_lab::LabError;
use thiserror::Error;

/// Why programs could not be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Something that the programs need could not be prepared, or a program not be started.
    #[error("{0}")]
    Failed(String),
    /// A folder for the file or its copy could not be made or used.
    #[error("{0}")]
    Folder(String),
    /// A program that must take part cannot, or none can.
    #[error("{0}")]
    Lacking(String),
    /// The user stopped it before there was anything to show.
    #[error("interrupted before any program had moved the file")]
    Interrupted,
}

impl CompareError {
    /// Returns the error of a program that could not be started or watched.
    pub(crate) fn from_start(program: &str, error: impl Display) -> Self {
        Self::Failed(format!("cannot run `{program}`: {error}"))
    }

    /// Returns the error of a folder on `place`: the host that should have it, or its name.
    pub(crate) fn from_folder(place: &str, error: impl Display) -> Self {
        let text = format!("cannot create a folder on {place}: {error}");
        Self::Folder(text.trim_end_matches('.').to_owned())
    }

    /// Returns the error of a comparison that nothing is left of.
    pub(crate) fn no_program(why: impl Display) -> Self {
        Self::Lacking(format!("none of these programs can take part: {why}"))
    }
}
