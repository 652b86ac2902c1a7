#[cfg(target_os = "linux")]
mod on_linux;

use std::error::Error;
use std::fmt::Display;
use std::io::ErrorKind;

use fullpipe_experiment::ExperimentError;
use fullpipe_model::calc::InputError;
use fullpipe_record::ErrorReport;
use fullpipe_scenario::{FlagError, ScenarioError};
use fullpipe_store::StoreError;
use fullpipe_trace::CaptureError;
use fullpipe_units::OptionText;

/// Exit code of a program that failed, or whose result is invalid.
pub(crate) const FAILED: u8 = 1;
/// Exit code for a wrong command line or file.
pub(crate) const USAGE: u8 = 2;
/// Exit code for a permission or a feature that the machine lacks.
pub(crate) const LACKING: u8 = 3;
/// Exit code of a program that its user stopped.
pub(crate) const INTERRUPTED: u8 = 130;

/// Result of the program's parts, which fail with a [`Failure`] unless another error is named.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Reason for which the program fails: one sentence for the user, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Empty if the reason has been printed already.
    pub(crate) message: String,
}

/// Returns the failure for a wrong command line or file.
pub(crate) fn usage_failure(message: impl ToString) -> Failure {
    Failure::new(USAGE, message)
}

/// Returns the failure of work that was begun.
pub(crate) fn run_failure(message: impl ToString) -> Failure {
    Failure::new(FAILED, message)
}

/// Returns the function that makes an error the failure to do something: `cannot {task}: {error}`.
pub(crate) fn cannot<E: Display>(task: &str) -> impl Fn(E) -> Failure {
    move |error| run_failure(format!("cannot {task}: {error}"))
}

impl Failure {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "`map_err` passes errors by value"
    )]
    pub(crate) fn new(code: u8, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    /// Returns a failure without a message: the result that was printed holds the reason.
    pub(crate) fn already_printed(code: u8) -> Self {
        Self::new(code, "")
    }

    /// Returns the result of a command whose report has been printed: a failure if that holds an
    /// error, if the user interrupted the command, or if the report is not a good one.
    pub(crate) fn after_report(
        error: Option<&ErrorReport>,
        interrupted: bool,
        is_good: bool,
    ) -> Result {
        let code = match error {
            Some(error) => error.exit_code,
            None if interrupted => INTERRUPTED,
            None if is_good => return Ok(()),
            None => FAILED,
        };
        Err(Self::already_printed(code))
    }
}

impl From<Failure> for ErrorReport {
    fn from(failure: Failure) -> Self {
        Self {
            message: failure.message,
            exit_code: failure.code,
        }
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        let cause = error.source().map_text(|cause| format!(": {cause}"));
        let (code, hint) = match &error {
            CaptureError::Capture { source, .. }
                if source.kind() == ErrorKind::PermissionDenied =>
            {
                (
                    LACKING,
                    "; packet sockets need CAP_NET_RAW: run it with sudo, or `sudo tcpdump -s 128 -w - tcp | \
                           fullpipe trace -`",
                )
            }
            // What was read before is printed, and is not all.
            CaptureError::Damaged { .. }
            | CaptureError::Decompression { .. }
            | CaptureError::Bomb { .. } => (FAILED, ""),
            CaptureError::Write { source, .. } if source.kind() != ErrorKind::AlreadyExists => {
                (FAILED, "")
            }
            _ => (USAGE, ""),
        };
        Self::new(code, format!("{error}{cause}{hint}"))
    }
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        match error {
            #[cfg(target_os = "linux")]
            ExperimentError::Lab(error) => error.into(),
            #[cfg(target_os = "linux")]
            ExperimentError::Journal(error) => error.into(),
            ExperimentError::Interrupted => Self::new(INTERRUPTED, error),
            ExperimentError::NotModelled(_) | ExperimentError::Unsuitable(_) => {
                Self::new(USAGE, error)
            }
            ExperimentError::Measurement(_) | ExperimentError::FarEnd(_) => {
                Self::new(FAILED, error)
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::Forbidden { .. } => LACKING,
            StoreError::Database { .. } | StoreError::Damaged { .. } | StoreError::Removed(_) => {
                FAILED
            }
            _ => USAGE,
        };
        Self::new(code, error)
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        Self::new(USAGE, error)
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::new(USAGE, error)
    }
}

impl From<FlagError> for Failure {
    fn from(error: FlagError) -> Self {
        Self::new(USAGE, error)
    }
}
