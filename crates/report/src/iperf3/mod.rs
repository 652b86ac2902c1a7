//! iperf3 3.12's output, text and JSON, made of our records: for people and programs that read it.
//!
//! The layout is iperf3's to the space. It shows the numbers of its sockets, which mean nothing;
//! ours are those that it usually has.

mod amount;
mod json;
mod line;
mod text;
mod view;

use crate::text::prelude::*;

pub use amount::RateUnit;
pub use json::JsonOutput;
pub use text::{TextOutput, greeting_lines, listening_line};

/// The version of iperf3 whose output this is.
pub const IPERF3_VERSION: &str = "3.12";

/// Role of this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestRole {
    /// The end that requests the test.
    Client,
    /// The end that accepts it.
    Server,
}

impl TestRole {
    /// Returns true if this end sends in `direction`, which is as the client sees it.
    fn is_sender(self, direction: Direction) -> bool {
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
    /// Role of this end.
    pub role: TestRole,
    /// Unit of the rates.
    pub unit: RateUnit,
    /// True to print more, as with `-V`.
    pub verbose: bool,
}

/// Facts about a test before it begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestHeader {
    /// Name of the program.
    pub version: String,
    /// The system that it runs on, as `uname -a` has it.
    pub system: String,
    /// Time at which the test began, since 1970 in UTC.
    pub at: Span,
    /// For a client, the server as the user names it; for a server, the client's address.
    pub host: String,
    /// Port of the server, or of the client.
    pub port: u16,
}

/// Returns the number that iperf3 would show for the socket of a stream: it opens a file for each
/// stream.
fn socket_number(stream: u16) -> u32 {
    5 + 2 * u32::from(stream)
}
