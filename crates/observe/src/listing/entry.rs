//! The line of a connection: its state, its ends and its owner.

use std::net::{IpAddr, SocketAddr};

use super::socket_figures::SocketFigures;
use crate::connections::ConnectionOwner;

/// Words that stand before the states of sockets where `ss` lists more than TCP.
const TCP: &str = "tcp";
const OTHER_SOCKETS: [&str; 4] = ["mptcp", "udp", "dccp", "sctp"];

/// States in which data can move (`ss(8)`).
const STATES_WITH_DATA: [&str; 6] = [
    "ESTAB",
    "CLOSE-WAIT",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "CLOSING",
    "LAST-ACK",
];
const OTHER_STATES: [&str; 7] = [
    "LISTEN",
    "UNCONN",
    "TIME-WAIT",
    "SYN-SENT",
    "SYN-RECV",
    "NEW-SYN-RECV",
    "CLOSED",
];

/// Names of ports that `ss` prints without `-n`; others are 0.
const NAMED_PORTS: [(&str, u16); 8] = [
    ("ssh", 22),
    ("http", 80),
    ("https", 443),
    ("microsoft-ds", 445),
    ("rsync", 873),
    ("nfs", 2049),
    ("postgresql", 5432),
    ("http-alt", 8080),
];

/// A connection in one listing.
pub(super) struct ListedConnection {
    /// This end and the other.
    pub ends: [SocketAddr; 2],
    pub owner: ConnectionOwner,
    pub figures: SocketFigures,
    /// The words behind the ends, of which the figures are made.
    pub words: String,
    /// True if data can move over it by TCP.
    carries_data: bool,
}

/// Returns true for the line of headings.
pub(super) fn is_heading(line: &str) -> bool {
    line.contains("Recv-Q") && line.contains("Send-Q")
}

impl ListedConnection {
    /// Returns the connection that a line begins, and the words behind it; `None` of any other line.
    pub(super) fn from_line(line: &str) -> Option<(Self, &str)> {
        let (mut word, mut rest) = next_word(line)?;
        let mut carries_data = true;
        if word == TCP || OTHER_SOCKETS.contains(&word) {
            carries_data = word == TCP;
            (word, rest) = next_word(rest)?;
        }
        if STATES_WITH_DATA.contains(&word) || OTHER_STATES.contains(&word) {
            carries_data &= STATES_WITH_DATA.contains(&word);
            (word, rest) = next_word(rest)?;
        }
        word.parse::<u64>().ok()?;
        let (word, rest) = next_word(rest)?;
        let send_queue = word.parse::<u64>().ok()?;
        let (local, rest) = next_word(rest)?;
        let (remote, rest) = next_word(rest)?;
        let ends = [socket_address(local)?, socket_address(remote)?];
        let (owner, rest) = owner_in(rest);
        let entry = Self {
            ends,
            owner,
            figures: SocketFigures::with_send_queue(send_queue),
            words: String::new(),
            carries_data,
        };
        Some((entry, rest))
    }

    /// Takes the figures out of the words. Returns the number of words that are not known.
    pub(super) fn read_words(&mut self) -> u64 {
        self.figures.read_words(&std::mem::take(&mut self.words))
    }

    /// Returns true for the same socket in another listing. One of MPTCP has the ends of a subflow.
    pub(super) fn is_same_socket(&self, other: &Self) -> bool {
        (self.ends, self.carries_data) == (other.ends, other.carries_data)
    }

    pub(super) fn has_figures(&self) -> bool {
        self.carries_data && self.figures.is_of_tcp()
    }
}

fn next_word(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let end = line.find(char::is_whitespace).unwrap_or(line.len());
    (end > 0).then(|| line.split_at(end))
}

/// Returns the address in `10.0.0.1:22`, `[fe80::1%eth0]:22`, `10.0.0.1%eth0:22` or `*:*`.
fn socket_address(word: &str) -> Option<SocketAddr> {
    let (host, port) = word.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.split('%').next()?;
    let host: IpAddr = if host == "*" {
        IpAddr::from([0, 0, 0, 0])
    } else {
        host.parse().ok()?
    };
    let named = NAMED_PORTS.iter().find(|(name, _)| *name == port);
    let number = port.parse().ok().or(named.map(|(_, number)| *number));
    Some(SocketAddr::new(host.to_canonical(), number.unwrap_or(0)))
}

/// Returns the first owner in `users:(("iperf3",pid=7,fd=5))`, whose name may have any character,
/// and the words behind.
fn owner_in(rest: &str) -> (ConnectionOwner, &str) {
    let found = rest.split_once("users:((\"").and_then(|(_, users)| {
        let (name, behind) = users.split_once("\",pid=")?;
        let (pid, _) = behind.split_once(',')?;
        let (_, rest) = behind.split_once("))").unwrap_or((behind, ""));
        Some((ConnectionOwner::from_listing(name, pid.parse().ok()?), rest))
    });
    found.unwrap_or_else(|| (ConnectionOwner::default(), rest))
}
