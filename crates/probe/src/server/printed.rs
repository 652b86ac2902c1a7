//! What a server prints of a test, as iperf3 does, for a client that asks for it.

use std::net::SocketAddr;

use fullpipe_record::{Interval, Measurement, Request};
use fullpipe_report::iperf3::{Connections, Role, Snapshot, TestHeader, Text, Unit};

use crate::client::Connected;

/// Bytes after which intervals are left out: a client may ask for a day of them.
const ENOUGH: usize = 256 * 1024;

/// The lines so far.
pub(super) struct Printed {
    text: Text,
    lines: String,
}

impl Printed {
    /// Begins with the connections.
    pub(super) fn new(client: SocketAddr, connected: &Connected) -> Self {
        let look = Snapshot { role: Role::Server, unit: Unit::Bits, verbose: false };
        let opening = TestHeader { host: client.ip().to_string(), port: client.port(), ..TestHeader::default() };
        let connections = Connections {
            request: connected.request.clone(),
            cookie: connected.cookie.clone(),
            mss: connected.mss,
            sockets: connected.sockets.clone(),
        };
        let mut text = Text::new(look, Request::default());
        let lines = text.connected(&opening, &connections);
        Self { text, lines }
    }

    /// An interval has passed.
    pub(super) fn interval(&mut self, interval: &Interval) {
        let lines = self.text.interval(interval);
        if self.lines.len() < ENOUGH {
            self.lines += &lines;
        }
    }

    /// All lines, the totals with them.
    pub(super) fn whole(&self, seen: &Measurement) -> String {
        self.lines.clone() + &self.text.results(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::Direction;
    use fullpipe_units::{BitRate, ByteCount, Span};

    #[test]
    fn a_long_test_is_not_printed_without_end() {
        let request = Request { direction: Direction::Upload, streams: 2, ..Request::default() };
        let connected = Connected { request, cookie: String::new(), mss: None, sockets: Vec::new() };
        let mut printed = Printed::new(([192, 0, 2, 1], 40_000).into(), &connected);
        assert_eq!(printed.lines, "Accepted connection from 192.0.2.1, port 40000\n");
        for second in 0..10_000 {
            printed.interval(&interval(second));
        }
        assert!((ENOUGH..ENOUGH + 1000).contains(&printed.lines.len()), "{}", printed.lines.len());
    }

    fn interval(second: u64) -> Interval {
        Interval {
            direction: Direction::Upload,
            from: Span::from_secs(second),
            to: Span::from_secs(second + 1),
            bytes: ByteCount::from_mib(1),
            rate: BitRate::from_mbps(8),
            retransmits: None,
            rtt: None,
            echo_rtt: None,
            cwnd: None,
            omitted: false,
            datagrams_sent: None,
            datagrams: None,
            streams: Vec::new(),
        }
    }
}
