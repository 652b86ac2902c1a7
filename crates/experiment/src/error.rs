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
    /// The far end in the lab did not start, or a setting of a far end that this one started was
    /// not changed.
    #[error("{0}")]
    FarEnd(String),
    /// A setting of this host was not changed, or not put back.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Virtual time.
    #[error(transparent)]
    NotModelled(#[from] NotModelled),
    /// A measurement that cannot be simulated, or runs of which none can be compared.
    #[error("{0}")]
    Unsuitable(String),
    /// The user stopped it before there was anything to show.
    #[error("interrupted before anything was measured")]
    Interrupted,
}
