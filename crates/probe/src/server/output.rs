//! The server's output of a test as text, kept for a client that asks for it.

use std::net::SocketAddr;

use fullpipe_record::{ConnectedTest, Interval, Measurement};

/// Bytes of text after which further intervals are left out: a test may last a day.
const MAX_TEXT: usize = 256 * 1024;

/// A renderer of one test as text. The program that runs the server chooses the format by its
/// [`Printer`].
pub trait TestText {
    /// Returns the lines of an interval.
    fn interval_lines(&mut self, interval: &Interval) -> String;

    /// Returns the lines of the totals.
    fn result_lines(&self, measurement: &Measurement) -> String;
}

/// A function that begins the text of a test. It takes the client's address and the test, and
/// returns the first lines and the renderer of the rest.
pub type Printer = fn(SocketAddr, &ConnectedTest) -> (String, Box<dyn TestText>);

/// The text of one test so far.
pub(super) struct OutputBuffer {
    text: Box<dyn TestText>,
    lines: String,
}

impl OutputBuffer {
    /// Returns the output of a test whose data connections are open.
    pub(super) fn new(printer: Printer, client: SocketAddr, connected: &ConnectedTest) -> Self {
        let (lines, text) = printer(client, connected);
        Self { text, lines }
    }

    /// Adds an interval.
    pub(super) fn add_interval(&mut self, interval: &Interval) {
        let lines = self.text.interval_lines(interval);
        if self.lines.len() < MAX_TEXT {
            self.lines += &lines;
        }
    }

    /// Returns all lines, followed by those of the totals.
    pub(super) fn with_results(&self, measurement: &Measurement) -> String {
        self.lines.clone() + &self.text.result_lines(measurement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use fullpipe_record::Request;

    struct OneLine;

    impl TestText for OneLine {
        fn interval_lines(&mut self, interval: &Interval) -> String {
            format!("{} {}\n", interval.to, interval.rate)
        }

        fn result_lines(&self, _: &Measurement) -> String {
            String::new()
        }
    }

    #[test]
    fn the_text_of_a_long_test_is_bounded() {
        let printer: Printer = |client, _| (format!("{client}\n"), Box::new(OneLine));
        let connected = ConnectedTest {
            request: Request::default(),
            cookie: String::new(),
            mss: None,
            sockets: Vec::new(),
        };
        let mut output = OutputBuffer::new(printer, ([192, 0, 2, 1], 40_000).into(), &connected);
        assert_eq!(output.lines, "192.0.2.1:40000\n");
        for second in 0..50_000 {
            output.add_interval(&fixture::upload_interval(second));
        }
        assert!(
            (MAX_TEXT..MAX_TEXT + 1000).contains(&output.lines.len()),
            "{}",
            output.lines.len()
        );
    }
}
