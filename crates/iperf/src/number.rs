use std::fmt;

/// The number by which an iperf3 server says why it refused or ended a test. Numbers did not change
/// since 3.1; new ones were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorNumber(i32);

/// The first of fullpipe's own numbers, which iperf3 does not have.
const OWN_NUMBERS: i32 = 9001;

impl ErrorNumber {
    /// The test would last too long.
    pub const DURATION: Self = Self(5);
    /// Too many parallel streams.
    pub const STREAMS: Self = Self(6);
    /// The block size is out of range.
    pub const BLOCK_SIZE: Self = Self(7);
    /// The socket buffer is too large.
    pub const BUFFER_SIZE: Self = Self(8);
    /// The MSS is out of range.
    pub const MSS: Self = Self(10);
    /// The omitted time is out of range.
    pub const OMIT: Self = Self(12);
    /// The server cannot do what was asked.
    pub const UNIMPLEMENTED: Self = Self(13);
    /// A file could not be read or written.
    pub const FILE: Self = Self(14);
    /// The burst is out of range.
    pub const BURST: Self = Self(15);
    /// The conditions that end the test contradict each other.
    pub const END_CONDITIONS: Self = Self(16);
    /// The server has no SCTP.
    pub const NO_SCTP: Self = Self(18);
    /// The UDP block size is out of range.
    pub const UDP_BLOCK_SIZE: Self = Self(20);
    /// The type of service is not one.
    pub const TOS: Self = Self(21);
    /// All streams together would exceed the rate that the server permits.
    pub const TOTAL_RATE: Self = Self(27);
    /// The test would last longer than the server's operator permits.
    pub const MAX_DURATION: Self = Self(37);
    /// The server does not know the message.
    pub const UNKNOWN_MESSAGE: Self = Self(110);
    /// The client cannot send its parameters.
    pub const SEND_PARAMETERS: Self = Self(113);
    /// The server could not read the parameters.
    pub const PARAMETERS: Self = Self(114);
    /// The server is busy. It answers [`crate::StateByte::AccessDenied`] instead of the number.
    pub const BUSY: Self = Self(121);
    /// The server could not read the client's results.
    pub const RESULTS: Self = Self(117);
    /// The server cannot set this congestion control.
    pub const CONGESTION: Self = Self(134);
    /// The server did not accept the user name and password.
    pub const AUTHENTICATION: Self = Self(142);
    /// The client said nothing for too long.
    pub const NO_MESSAGE: Self = Self(144);
    /// The test ran longer than it should have.
    pub const EXPIRED: Self = Self(160);
    /// The client has no ticket. This and the next ones are sent to fullpipe clients only.
    pub const TICKET_MISSING: Self = Self(OWN_NUMBERS);
    /// The ticket's slot has not begun.
    pub const TICKET_EARLY: Self = Self(OWN_NUMBERS + 1);
    /// The ticket's slot is over.
    pub const TICKET_EXPIRED: Self = Self(OWN_NUMBERS + 2);
    /// The ticket has been used.
    pub const TICKET_USED: Self = Self(OWN_NUMBERS + 3);

    /// The number `number`, known or not.
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// The number on the wire.
    pub const fn get(self) -> i32 {
        self.0
    }

    /// Returns the meaning of the number, as the end of a sentence; `None` if it is not known.
    pub const fn meaning_clause(self) -> Option<&'static str> {
        Some(match self.0 {
            5 => "the test would last longer than it permits",
            6 => "it does not permit so many parallel streams",
            7 => "the block size is outside what it permits",
            8 => "the socket buffer asked for is larger than it permits",
            10 => "the segment size is outside what it permits",
            12 => "the time to omit is outside what it permits",
            13 => "it does not offer this kind of test",
            14 => "it could not read or write a file",
            15 => "the burst is outside what it permits",
            16 => "the conditions that end the test contradict each other",
            18 => "it does not offer SCTP",
            20 => "the UDP block size is outside what it permits",
            21 => "the type of service is not a valid one",
            27 => "the test would exceed the total rate that it permits",
            37 => "the test would last longer than its operator permits",
            109 => "it saw the control connection close",
            110 => "it received a message that it does not know",
            113 => "the parameters could not be sent",
            114 => "it could not read the parameters",
            117 => "it could not read the results",
            119 => "the client ended the test",
            120 => "it was stopped",
            121 => "it is busy with another test",
            134 => "it could not set the congestion control asked for",
            142 => "it did not accept the user name and password",
            144 => "it received nothing for too long",
            160 => "the test ran longer than agreed",
            9001 => "it serves only clients that have a ticket",
            9002 => "by its clock, the time of the ticket has not come",
            9003 => "by its clock, the time of the ticket is over",
            9004 => "the ticket has been used before",
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning_clause() {
            Some(meaning) if self.0 >= OWN_NUMBERS => f.write_str(meaning),
            Some(meaning) => write!(f, "{meaning} (iperf3 error {})", self.0),
            None => write!(f, "iperf3 error {}", self.0),
        }
    }
}
