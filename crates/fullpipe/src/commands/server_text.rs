//! The text of iperf3 that a server makes of a test, for a client that asks for it with
//! `--get-server-output`.

use std::net::SocketAddr;

use fullpipe_probe::TestText;
use fullpipe_record::{ConnectedTest, Interval, Measurement, Request};
use fullpipe_report::iperf3::{RateUnit, TestHeader, TestRole, TextOptions, TextOutput};

struct Iperf3Text(TextOutput);

/// Begins the text of a test, which is a [`fullpipe_probe::Printer`].
pub(super) fn test_printer(
    client: SocketAddr,
    connected: &ConnectedTest,
) -> (String, Box<dyn TestText>) {
    let options = TextOptions {
        role: TestRole::Server,
        unit: RateUnit::Bits,
        verbose: false,
    };
    let header = TestHeader {
        host: client.ip().to_string(),
        port: client.port(),
        ..TestHeader::default()
    };
    let mut text = TextOutput::new(options, Request::default());
    let lines = text.connection_lines(&header, connected);
    (lines, Box::new(Iperf3Text(text)))
}

impl TestText for Iperf3Text {
    fn interval_lines(&mut self, interval: &Interval) -> String {
        self.0.interval_lines(interval)
    }

    fn result_lines(&self, measurement: &Measurement) -> String {
        self.0.result_lines(measurement)
    }
}
