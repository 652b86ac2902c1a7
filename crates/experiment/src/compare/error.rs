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
    /// A folder for the file or its copy could not be made or used.
    #[error("cannot create a folder on {place}: {}", why.trim_end_matches('.'))]
    Folder {
        /// The host that should have it, or its name.
        place: String,
        /// The last line that was written about it.
        why: String,
    },
    /// A program that must take part cannot.
    #[error("{program} cannot take part: {why}")]
    LeftOut {
        /// The program.
        program: &'static str,
        /// The executable or the flag that it lacks.
        why: String,
    },
    /// Nothing is left to compare.
    #[error("none of these programs can take part: {why}")]
    NoProgram {
        /// Why the first of them cannot.
        why: String,
    },
    /// A program could not be started or watched.
    #[error("cannot run `{program}`: {why}")]
    Start {
        /// The program.
        program: String,
        /// Message of the system.
        why: String,
    },
    /// The user stopped it before there was anything to show.
    #[error("interrupted before any program had moved the file")]
    Interrupted,
}

impl CompareError {
    pub(crate) fn from_start(program: &str, error: &(impl ToString + ?Sized)) -> Self {
        Self::Start {
            program: program.to_owned(),
            why: error.to_string(),
        }
    }

    pub(crate) fn from_folder(place: &str, error: &(impl ToString + ?Sized)) -> Self {
        Self::Folder {
            place: place.to_owned(),
            why: error.to_string(),
        }
    }
}
