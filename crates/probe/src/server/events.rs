use std::net::{IpAddr, SocketAddr};

use fullpipe_iperf::Error;
use fullpipe_record::{Interval, Measurement, Request};
use fullpipe_units::{BitRate, ByteCount};

use crate::client::Connected;

/// What a server does, as it does it.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// It can be reached here.
    Listening(SocketAddr),
    /// It cannot be reached at a port that is not the one that was asked for, and goes on without.
    NotListening {
        /// Why, with the address.
        why: String,
    },
    /// A test began.
    Began {
        /// Who asked for it.
        client: SocketAddr,
        /// For what.
        request: Request,
    },
    /// The data connections of a test stand, and data begins to flow.
    Connected {
        /// Who asked for it.
        client: SocketAddr,
        /// What is known of it.
        connected: Box<Connected>,
    },
    /// An interval of a test has passed.
    Interval {
        /// Who asked for the test.
        client: SocketAddr,
        /// What this end saw; its direction is as the client sees it. Where data goes both ways, of the upload and then of
        /// the download.
        interval: Box<Interval>,
    },
    /// An iperf2 client began to send on a connection; it does not say for how long.
    BeganIperf2 {
        /// Who sends.
        client: SocketAddr,
    },
    /// A test is complete.
    Ended {
        /// Who asked for it.
        client: SocketAddr,
        /// What this end saw, in both directions together.
        bytes: ByteCount,
        /// The rate that this end saw.
        rate: BitRate,
        /// The whole test as it looks from here, without samples and intervals; not of an iperf2 client. Its directions
        /// are as the client sees them, and what is local is the server's.
        seen: Option<Box<Measurement>>,
    },
    /// A test ended early.
    Failed {
        /// Who asked for it.
        client: SocketAddr,
        /// Why.
        why: String,
        /// The reason as the protocol has it; not of an iperf2 client.
        cause: Option<Error>,
        /// The test so far as it looks from here, if data had flowed; not of an iperf2 client.
        seen: Option<Box<Measurement>>,
    },
    /// Flows of iperf2 datagrams began that are not reported one by one, as anybody can begin them in anybody's name.
    UnreportedFlows {
        /// Flows since the last report.
        flows: u64,
    },
    /// Connections were closed at once.
    TurnedAway {
        /// Who opened the last of them.
        client: IpAddr,
        /// The reason for which that one was closed.
        why: &'static str,
        /// Connections since the last report.
        connections: u64,
    },
    /// No test has come for as long as the server was to wait.
    Idle,
}
