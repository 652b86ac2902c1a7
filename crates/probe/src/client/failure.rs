//! Errors that end a test, in words for its user.

use fullpipe_iperf::{ErrorNumber, SessionStep, TestError};

use crate::destination::Destination;
use crate::error::ProbeError;

/// An error that ends a session early; the name of the host is added where it is known.
pub(super) enum SessionFailure {
    Protocol(TestError),
    Here(ProbeError),
}

impl SessionFailure {
    pub(super) fn into_probe_error(self, destination: &Destination) -> ProbeError {
        let host = destination.host.clone();
        match self {
            Self::Protocol(TestError::ClientTerminated { .. }) => ProbeError::Interrupted,
            Self::Protocol(cause) => match login_hint(&cause, destination) {
                Some(hint) => ProbeError::Unauthorized { host, cause, hint },
                None => ProbeError::Protocol { host, cause },
            },
            Self::Here(error) => error,
        }
    }
}

/// Returns a hint for a user who was not admitted; none where that is not why the test ended.
fn login_hint(cause: &TestError, destination: &Destination) -> Option<&'static str> {
    let is_named = destination.login.is_some();
    match cause {
        TestError::KeyMissing => return Some("--key-file gives it"),
        TestError::Server { reason, .. } if reason.number == Some(ErrorNumber::TICKET_MISSING) => {
            return Some("--ticket gives one");
        }
        TestError::Server {
            step: SessionStep::Key,
            reason,
        } if reason.number == Some(ErrorNumber::AUTHENTICATION) && !is_named => {
            return Some(if destination.ticket.is_some() {
                "is the ticket whole, and for this server?"
            } else {
                "is the key the server's own?"
            });
        }
        TestError::Server { reason, .. } if reason.number == Some(ErrorNumber::AUTHENTICATION) => {}
        // Since 3.21 a refusal is silent; without a user name there may be another reason.
        TestError::Closed {
            step: SessionStep::Parameters,
        } if is_named => {}
        _ => return None,
    }
    Some(match (is_named, destination.key.is_some()) {
        (true, false) => {
            "are name, password and clock right? iperf3 before 3.17 needs --use-pkcs1-padding"
        }
        (true, true) => {
            "are name, password and clock right, and the key the server's own? iperf3 before 3.17 needs \
             --use-pkcs1-padding"
        }
        (false, true) => {
            "does this version of fullpipe run there? Older ones check keys in another way"
        }
        (false, false) => {
            "it asks for a user: --username and --rsa-public-key-path give a name and a password to it, --key-file a \
             key to an older fullpipe"
        }
    })
}

impl From<ProbeError> for SessionFailure {
    fn from(error: ProbeError) -> Self {
        Self::Here(error)
    }
}
