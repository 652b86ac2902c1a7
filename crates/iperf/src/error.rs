use std::fmt;

use fullpipe_units::{ByteCount, Span};
use thiserror::Error;

use crate::{ErrorNumber, JsonMessage};

/// Why a test did not come to its end. What was measured before remains with the driver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TestError {
    /// The first byte is none with which an iperf3 server answers a cookie.
    #[error(
        "something answered, but not as an iperf3 server does first: it began with the byte {first:#04x}{}",
        origin_hint(*first)
    )]
    NotIperf3 {
        /// The first byte that it sent.
        first: u8,
    },
    /// The server runs another test.
    #[error("the server is busy with another test; try again later")]
    Busy,
    /// The server wants a proof of its key, and this end has none.
    #[error("the server asks for a key")]
    KeyMissing,
    /// The server takes a test without the ticket that this end has.
    #[error("the server asks for no ticket, so it is not the one that the ticket is for")]
    TicketUnasked,
    /// The server refused the test or broke it off.
    #[error("the server ended the test while {step}: {reason}")]
    Server {
        /// The step at which the test was.
        step: SessionStep,
        /// The state byte and the numbers that it sent.
        reason: ServerError,
    },
    /// The server was stopped by its operator.
    #[error("the server was stopped while {step}")]
    ServerTerminated {
        /// The step at which the test was.
        step: SessionStep,
    },
    /// The client was interrupted by its user.
    #[error("the client was interrupted while {step}")]
    ClientTerminated {
        /// The step at which the test was.
        step: SessionStep,
    },
    /// The control connection was closed.
    #[error("the other end closed the control connection while {step}{}", closing_hint(*step))]
    Closed {
        /// The step at which the test was.
        step: SessionStep,
    },
    /// The client closed the control connection of this server.
    #[error("the client closed the control connection while {step}")]
    ClientClosed {
        /// Step of the test at that time.
        step: SessionStep,
    },
    /// A deadline passed.
    #[error("gave up after {after} while {step}{}", silence_hint(*step))]
    Timeout {
        /// The step at which the test was.
        step: SessionStep,
        /// Time that was waited.
        after: Span,
    },
    /// A byte that does not belong where it came.
    #[error("the other end sent the byte {got:#04x} while {step}, where it does not belong")]
    OutOfOrder {
        /// The byte.
        got: u8,
        /// The step at which the test was.
        step: SessionStep,
    },
    /// A message announces more than its kind may have.
    #[error("the other end announced {message} of {length}; at most {limit} are accepted")]
    Oversized {
        /// The kind of the message.
        message: JsonMessage,
        /// The length it announced.
        length: ByteCount,
        /// The longest that is accepted.
        limit: ByteCount,
    },
    /// A message that cannot be understood.
    #[error("cannot read the other end's {message}: {why}")]
    Malformed {
        /// The kind of the message.
        message: JsonMessage,
        /// The reason why it is invalid.
        why: String,
    },
    /// The data connections could not be opened.
    #[error("cannot open the data connections: {why}")]
    Streams {
        /// Why, in the driver's words.
        why: String,
    },
    /// This server does not run what the client asked for, or could not go on with it.
    #[error("refused the client's test: {0}")]
    Refused(#[from] TestRefusal),
}

/// Why a server does not run a test, and the number by which an iperf3 client knows it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct TestRefusal {
    /// The number that iperf3 uses for it.
    pub number: ErrorNumber,
    /// The value that was asked for, and those that are possible.
    pub why: String,
}

impl TestRefusal {
    /// Returns a refusal with this number and reason.
    pub fn new(number: ErrorNumber, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { number, why }
    }
}

/// The numbers that a server sent after the state byte that announces an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerError {
    /// The reason for the error; `None` where the connection ended before the number came.
    pub number: Option<ErrorNumber>,
    /// The operating system's `errno` on the server; `None` where there was none, or where it was
    /// not sent (iperf3 3.2 to 3.18 leave it out when they refuse a user).
    pub os_error: Option<i32>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "{number}")?,
            None => write!(f, "it did not say why")?,
        }
        match self.os_error {
            // The numbers of Linux, where most servers run.
            Some(errno) => write!(
                f,
                ": {} on the server",
                std::io::Error::from_raw_os_error(errno)
            ),
            None => Ok(()),
        }
    }
}

/// The step at which a test is, in the order in which the steps follow each other. Each side knows
/// only those in which it waits for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStep {
    /// Client: the cookie was sent, the server has not asked for the parameters.
    Greeting,
    /// The parameters are on their way, or are being judged.
    Parameters,
    /// The client proves that it has the server's key.
    Key,
    /// Data connections are being opened.
    Streams,
    /// Client: all are open, the server has not said so.
    Start,
    /// Client: the server has said so, and prepares.
    Preparation,
    /// Data flows.
    Transfer,
    /// Client: the end of the test was announced.
    End,
    /// This side's driver is asked for its results.
    LocalResults,
    /// The other end's results are due.
    Results,
    /// Both have both results; one byte remains.
    Finish,
}

impl fmt::Display for SessionStep {
    /// Fits behind "while".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greeting => "waiting for the server's first answer",
            Self::Parameters => "agreeing on the parameters",
            Self::Key => "checking the key",
            Self::Streams => "opening the data connections",
            Self::Start => "waiting for the server to start the test",
            Self::Preparation => "waiting for the server to let data flow",
            Self::Transfer => "data was flowing",
            Self::End => "ending the test",
            Self::LocalResults => "collecting this end's results",
            Self::Results => "receiving the other end's results",
            Self::Finish => "closing the test",
        })
    }
}

/// An iperf2 server mistakes the cookie for its header. Mostly it waits for the rest of that; what
/// it says otherwise begins with a zero.
fn origin_hint(first: u8) -> &'static str {
    if first == 0 { ", as iperf2 does" } else { "" }
}

fn silence_hint(step: SessionStep) -> &'static str {
    match step {
        SessionStep::Greeting => " (iperf2 servers mostly say nothing to an iperf3 client)",
        _ => "",
    }
}

fn closing_hint(step: SessionStep) -> &'static str {
    match step {
        SessionStep::Parameters => {
            " (iperf3 servers since 3.21 do so when they ask for a user name and password)"
        }
        _ => "",
    }
}
