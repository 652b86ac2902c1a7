//! Failures of what needs Linux.

use std::io::ErrorKind;
use std::path::Path;

use fullpipe_control::{FarEndError, ListenError};
use fullpipe_experiment::{FarEndFailure, KeptError};
use fullpipe_host::{ApplyError, JournalError, SysctlError};
use fullpipe_lab::LabError;
use fullpipe_observe::WatchError;
use fullpipe_probe::ProbeError;

use super::{FAILED, Failure, INTERRUPTED, LACKING, USAGE};

impl Failure {
    /// Returns the failure of a server that cannot listen; `flag` chooses another port.
    pub(crate) fn cannot_listen(error: &ListenError, flag: &str) -> Self {
        match error.cause.kind() {
            ErrorKind::PermissionDenied => Self::new(
                LACKING,
                format!("{error}; ports below 1024 are root's: choose another with {flag}"),
            ),
            ErrorKind::AddrInUse => Self::new(
                FAILED,
                format!("{error}; another server has it: stop that, or choose another with {flag}"),
            ),
            _ => Self::from_error(FAILED, error),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        let code = match error {
            LabError::Lacking(_) => LACKING,
            LabError::Unsupported { .. } => USAGE,
            LabError::Refused { .. }
            | LabError::Gone { .. }
            | LabError::Silent { .. }
            | LabError::Io { .. } => FAILED,
        };
        Self::from_error(code, &error)
    }
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Self {
        const LACKED: [ErrorKind; 2] = [ErrorKind::NotFound, ErrorKind::PermissionDenied];
        if let ProbeError::Prepare(refused) = &error
            && LACKED.contains(&refused.kind())
        {
            let hint = "`sysctl net.ipv4.tcp_allowed_congestion_control` lists what this user may choose, and \
                        `sudo modprobe tcp_NAME` loads another";
            return Self::new(LACKING, format!("{error}; {hint}"));
        }
        if let ProbeError::Settings(refused) = error {
            return refused.into();
        }
        let code = match error {
            ProbeError::Interrupted => INTERRUPTED,
            ProbeError::Request(_) | ProbeError::File { .. } => USAGE,
            _ => FAILED,
        };
        Self::from_error(code, &error)
    }
}

impl From<FarEndError> for Failure {
    fn from(error: FarEndError) -> Self {
        let code = match error {
            FarEndError::Lacking(_) => LACKING,
            FarEndError::Failed(_) => FAILED,
        };
        Self::from_error(code, &error)
    }
}

impl From<FarEndFailure> for Failure {
    fn from(failure: FarEndFailure) -> Self {
        match failure {
            FarEndFailure::Program(error) => error.into(),
            other => Self::from_error(FAILED, &other),
        }
    }
}

impl From<SysctlError> for Failure {
    fn from(error: SysctlError) -> Self {
        if error.is_refused() {
            let hint = "only root may change it, and in a container or namespace not every setting is there to be changed";
            return Self::new(LACKING, format!("{error}; {hint}; nothing was changed"));
        }
        if error.is_missing() && !Path::new("/proc/sys").exists() {
            let hint = "mount /proc, where the kernel shows this host's settings";
            return Self::new(LACKING, format!("{error}; {hint}"));
        }
        let code = if error.is_missing() { LACKING } else { FAILED };
        Self::from_error(code, &error)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        const REFUSED: [ErrorKind; 2] =
            [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
        let code = match error {
            JournalError::Apply(ApplyError::Sysctl(error)) => return error.into(),
            JournalError::Io { ref cause, .. } if REFUSED.contains(&cause.kind()) => LACKING,
            JournalError::Malformed { .. } => USAGE,
            _ => FAILED,
        };
        Self::from_error(code, &error)
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        let code = match error {
            WatchError::Forbidden { .. } | WatchError::Table(_) => LACKING,
            WatchError::NoProcess(_)
            | WatchError::OtherNetwork(_)
            | WatchError::NoConnection { .. }
            | WatchError::Settings(_) => FAILED,
        };
        Self::from_error(code, &error)
    }
}

impl From<KeptError> for Failure {
    fn from(error: KeptError) -> Self {
        match error {
            KeptError::Store(error) => error.into(),
            KeptError::Nothing | KeptError::Other { .. } => Self::from_error(USAGE, &error),
        }
    }
}
