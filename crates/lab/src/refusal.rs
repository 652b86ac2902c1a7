use std::io;

use fullpipe_host::{ApplyError, SysctlError};

use crate::lack::Lack;
use crate::protocol::Reply;

/// The error of a keeper that could not build the hosts.
pub(crate) struct KeeperRefusal {
    /// The step that failed, as "making a network namespace".
    step: &'static str,
    cause: io::Error,
    /// The feature that this machine lacks, if that is why.
    lack: Option<Lack>,
}

impl KeeperRefusal {
    pub(crate) fn step_failed(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self {
            step,
            cause,
            lack: None,
        }
    }

    pub(crate) fn step_lacking(lack: Lack, step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self {
            step,
            cause,
            lack: Some(lack),
        }
    }

    /// Returns the refusal of a setting: lacking if it is not there or not ours, a failure if the
    /// kernel changed it.
    pub(crate) fn setting_refused(error: ApplyError) -> Self {
        let step = "setting up the hosts as asked";
        let lack =
            matches!(error, ApplyError::Sysctl(SysctlError::Io { .. })).then_some(Lack::Setting);
        Self {
            step,
            cause: io::Error::other(error),
            lack,
        }
    }

    pub(crate) fn into_reply(self) -> Reply {
        let message = format!("{}: {}", self.step, self.cause);
        match self.lack {
            Some(what) => Reply::Lacking {
                what,
                message,
                errno: self.cause.raw_os_error(),
            },
            None => Reply::Failed { message },
        }
    }
}
