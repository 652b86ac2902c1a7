#[cfg(target_os = "linux")]
use fullpipe_host::JournalError;
#[cfg(target_os = "linux")]
use fullpipe_lab::LabError;
use fullpipe_sim::NotModelled;
use thiserror::Error;

/// Why the loop could not be run.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// The lab.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The program that measures, in a host of the lab.
    #[error("the measurement in the lab failed: {0}")]
    Measurement(String),
    /// The far end did not come up.
    #[error("the far end in the lab did not start: {0}")]
    FarEnd(String),
    /// A setting of this host was not changed, or not put back.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A setting of a far end that this one started was not changed.
    #[error("{0}")]
    FarChange(String),
    /// Virtual time.
    #[error(transparent)]
    NotModelled(#[from] NotModelled),
    /// One of several transfers in virtual time.
    #[error("{name}: {cause}")]
    Named {
        /// The name of the transfer.
        name: String,
        /// The reason.
        cause: NotModelled,
    },
    /// A measurement that cannot be simulated.
    #[error("{0}")]
    Past(String),
    /// Runs of which none can be compared.
    #[error("{0}")]
    NothingToCompare(String),
    /// The user stopped it before there was anything to show.
    #[error("interrupted before anything was measured")]
    Interrupted,
}
