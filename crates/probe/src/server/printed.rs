//! The text that a server prints of a test, kept for a client that asks for it.

use std::net::SocketAddr;

use fullpipe_record::{Interval, Measurement};

use crate::client::Connected;

/// Bytes after which intervals are left out: a client may ask for a day of them.
const MAX_TEXT: usize = 256 * 1024;

/// Renders one test as text. The server knows no form of report; the program that runs it passes a [`Printer`].
pub trait TestText {
    /// Returns the lines of an interval that is over.
    fn interval(&mut self, interval: &Interval) -> String;

    /// Returns the lines of the totals.
    fn results(&self, seen: &Measurement) -> String;
}

/// Begins the text of a test: takes the client's address and the test, returns the first lines, and the renderer of the
/// rest.
pub type Printer = fn(SocketAddr, &Connected) -> (String, Box<dyn TestText>);

/// The lines of one test so far.
pub(super) struct Printed {
    text: Box<dyn TestText>,
    lines: String,
}

impl Printed {
    /// Begins with the connections.
    pub(super) fn new(printer: Printer, client: SocketAddr, connected: &Connected) -> Self {
        let (lines, text) = printer(client, connected);
        Self { text, lines }
    }

    /// Adds an interval that is over.
    pub(super) fn interval(&mut self, interval: &Interval) {
        let lines = self.text.interval(interval);
        if self.lines.len() < MAX_TEXT {
            self.lines += &lines;
        }
    }

    /// Returns all lines, with the totals.
    pub(super) fn whole(&self, seen: &Measurement) -> String {
        self.lines.clone() + &self.text.results(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_record::{Direction, Request};
    use fullpipe_units::{BitRate, ByteCount, Span};

    struct OneLine;

    impl TestText for OneLine {
        fn interval(&mut self, interval: &Interval) -> String {
            format!("{} {}\n", interval.to, interval.rate)
        }

        fn results(&self, _: &Measurement) -> String {
            String::new()
        }
    }

    #[test]
    fn a_long_test_is_not_printed_without_end() {
        let printer: Printer = |client, _| (format!("{client}\n"), Box::new(OneLine));
        let connected =
            Connected { request: Request::default(), cookie: String::new(), mss: None, sockets: Vec::new() };
        let mut printed = Printed::new(printer, ([192, 0, 2, 1], 40_000).into(), &connected);
        assert_eq!(printed.lines, "192.0.2.1:40000\n");
        for second in 0..50_000 {
            printed.interval(&interval(second));
        }
        assert!((MAX_TEXT..MAX_TEXT + 1000).contains(&printed.lines.len()), "{}", printed.lines.len());
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
