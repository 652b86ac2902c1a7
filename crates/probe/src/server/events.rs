use std::net::SocketAddr;

use fullpipe_control::RefusedConnections;
use fullpipe_iperf::{TestError, TestTicket};
use fullpipe_record::{ConnectedTest, Interval, Measurement, Request};
use fullpipe_units::{BitRate, ByteCount};

/// An event of a server, reported as it happens.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// The server listens on this address.
    Listening(SocketAddr),
    /// The server of speed tests over the web listens on this address.
    ListeningForWeb(SocketAddr),
    /// The server cannot listen on its second port, or cannot receive datagrams, and goes on
    /// without.
    NotListening {
        /// The reason, with the address.
        why: String,
    },
    /// A test began.
    Began {
        /// Address of the client.
        client: SocketAddr,
        /// The test that the client asked for.
        request: Request,
        /// The ticket that permits it, where the server asks for one.
        ticket: Option<Box<TestTicket>>,
    },
    /// The data connections of a test are open, and data begins to flow.
    Connected {
        /// Address of the client.
        client: SocketAddr,
        /// The test, with its sockets.
        connected: Box<ConnectedTest>,
    },
    /// An interval of a test has passed; if data goes both ways, that of the upload comes before
    /// that of the download.
    Interval {
        /// Address of the client.
        client: SocketAddr,
        /// The counts of the server. The direction is the client's.
        interval: Box<Interval>,
    },
    /// An iperf2 client began to send on a connection, or datagrams. It does not state for how
    /// long.
    BeganIperf2 {
        /// Address of the client.
        client: SocketAddr,
    },
    /// A test is complete.
    Ended {
        /// Address of the client.
        client: SocketAddr,
        /// Bytes that the server counted, in both directions together.
        bytes: ByteCount,
        /// Mean rate that the server measured.
        rate: BitRate,
        /// The test as the server measured it, without samples and intervals; `None` for an iperf2
        /// client. Directions are the client's, and the local end is the server.
        measurement: Option<Box<Measurement>>,
    },
    /// A test ended early.
    Failed {
        /// Address of the client.
        client: SocketAddr,
        /// The reason.
        why: String,
        /// The reason as an error of the protocol; `None` for an iperf2 client.
        cause: Option<TestError>,
        /// The test up to its end; `None` for an iperf2 client, or if no data had flowed.
        measurement: Option<Box<Measurement>>,
    },
    /// Flows of iperf2 datagrams began that are only counted, because their source addresses can be
    /// forged.
    UnreportedFlows {
        /// Number of flows since the last such event.
        flows: u64,
    },
    /// Connections were closed at once, or their tests refused: the first of a reason, or those
    /// that followed.
    Rejected(RefusedConnections),
    /// The server ends because no test came within its idle timeout.
    Idle,
}
