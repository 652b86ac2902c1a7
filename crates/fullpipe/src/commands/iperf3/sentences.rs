//! iperf3's fixed sentences for errors, which scripts search for.

use fullpipe_iperf::{ErrorNumber, JsonMessage, TestError};

/// Printed by a server that its user stopped, and of such a server.
pub(super) const TERMINATED: &str = "the server has terminated";

/// Printed of a client that its user stopped.
pub(super) const CLIENT_TERMINATED: &str = "the client has terminated";

const BUSY: &str = "the server is busy running a test. try again later";
const UNKNOWN: &str =
    "received an unknown control message (ensure other side is iperf3 and not iperf)";

/// Returns iperf3's sentence for the end of a test; none where it has none that is true.
pub(super) fn error_sentence(error: &TestError) -> Option<&'static str> {
    Some(match error {
        TestError::Busy => BUSY,
        TestError::ServerTerminated { .. } => TERMINATED,
        TestError::ClientTerminated { .. } => CLIENT_TERMINATED,
        TestError::Closed { .. } => "control socket has closed unexpectedly",
        TestError::ClientClosed { .. } => "the client has unexpectedly closed the connection",
        TestError::NotIperf3 { .. } | TestError::OutOfOrder { .. } => UNKNOWN,
        TestError::Oversized { message, .. } | TestError::Malformed { message, .. } => {
            match message {
                JsonMessage::Parameters => "unable to receive parameters from client",
                JsonMessage::Results => "unable to receive results",
                JsonMessage::Report => return None,
            }
        }
        TestError::Server { reason, .. } => of_number(reason.number?)?,
        // The reason says more, but for those that iperf3 has no doubt about.
        TestError::Refused(refusal) => of_number(refusal.number)?,
        TestError::KeyMissing
        | TestError::TicketUnasked
        | TestError::Timeout { .. }
        | TestError::Streams { .. } => return None,
    })
}

/// Returns the sentence for a number that a server sent; none for one whose sentence would be less
/// true than ours.
fn of_number(number: ErrorNumber) -> Option<&'static str> {
    Some(match number {
        ErrorNumber::DURATION => "test duration too long (maximum = 86400 seconds)",
        ErrorNumber::STREAMS => "number of parallel streams too large (maximum = 128)",
        ErrorNumber::BLOCK_SIZE => "block size too large (maximum = 1048576 bytes)",
        ErrorNumber::BUFFER_SIZE => "socket buffer size too large (maximum = 536870912 bytes)",
        ErrorNumber::MSS => "TCP MSS too large (maximum = 9216 bytes)",
        ErrorNumber::OMIT => "bogus value for --omit",
        ErrorNumber::UNIMPLEMENTED => "an option you are trying to set is not implemented yet",
        ErrorNumber::BURST => "invalid burst count (maximum = 1000)",
        ErrorNumber::END_CONDITIONS => "only one test end condition (-t, -n, -k) may be specified",
        ErrorNumber::NO_SCTP => "no SCTP support available",
        ErrorNumber::UDP_BLOCK_SIZE => {
            "block size invalid (minimum = 16 bytes, maximum = 65507 bytes)"
        }
        ErrorNumber::TOS => "bad TOS value (must be between 0 and 255 inclusive)",
        ErrorNumber::TOTAL_RATE => "total required bandwidth is larger than server limit",
        ErrorNumber::MAX_DURATION => {
            "client's requested duration exceeds the server's maximum permitted limit"
        }
        ErrorNumber::UNKNOWN_MESSAGE => UNKNOWN,
        ErrorNumber::PARAMETERS => "unable to receive parameters from client",
        ErrorNumber::RESULTS => "unable to receive results",
        ErrorNumber::BUSY => BUSY,
        ErrorNumber::CONGESTION => {
            "unable to set TCP_CONGESTION: Supplied congestion control algorithm not supported on this host"
        }
        ErrorNumber::AUTHENTICATION => "test authorization failed",
        ErrorNumber::NO_MESSAGE => "idle timeout for receiving data",
        _ => return None,
    })
}
