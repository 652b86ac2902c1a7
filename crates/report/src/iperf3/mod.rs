//! iperf3 3.12's output, text and JSON, made of our records: for people and programs that read it.
//!
//! The shapes are iperf3's to the space. Where it shows numbers of its sockets, which say nothing, ours are those that
//! it usually has.

mod amount;
mod json;
mod line;
mod text;
mod view;

use fullpipe_record::{Direction, Request, SocketReadback};
use fullpipe_units::{ByteCount, Span};

pub use amount::Unit;
pub use json::Json;
pub use text::{Text, greeting, listening};

/// The version of iperf3 whose output this is.
pub const IPERF3_VERSION: &str = "3.12";

/// Which part this end plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It asked for the test.
    Client,
    /// It was asked.
    Server,
}

impl Role {
    /// True if this end sends what goes in `direction`, which is as the client sees it.
    fn sends(self, direction: Direction) -> bool {
        match direction {
            Direction::Upload => self == Self::Client,
            Direction::Download => self == Self::Server,
            Direction::Both => true,
        }
    }
}

/// Options of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Which part this end plays.
    pub role: Role,
    /// Unit of the rates, in text.
    pub unit: Unit,
    /// True if more is to be printed, in text.
    pub verbose: bool,
}

/// Facts about a test before it begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestHeader {
    /// Name of the program.
    pub version: String,
    /// The system that it runs on, as `uname -a` has it.
    pub system: String,
    /// When it began, since 1970 in UTC.
    pub at: Span,
    /// The server as it was named, for a client; the client's address, for a server.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Facts about a test once its data connections are open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    /// The test as it is carried out: nothing in it is left to be chosen.
    pub request: Request,
    /// The test's cookie.
    pub cookie: String,
    /// Largest segment of the control connection, where the kernel says.
    pub mss: Option<ByteCount>,
    /// The data connections, in the order of the streams.
    pub sockets: Vec<SocketReadback>,
}

/// The number that iperf3 would show for the socket of a stream: it opens a file for each stream.
fn socket(stream: u16) -> u32 {
    5 + 2 * u32::from(stream)
}
