//! The text of iperf3 that a server makes of a test, for a client that asks for it with `--get-server-output`.

use std::net::SocketAddr;

use fullpipe_probe::{Connected, TestText};
use fullpipe_record::{Interval, Measurement, Request};
use fullpipe_report::iperf3::{Connections, Role, TestHeader, Text, TextOptions, Unit};

struct Iperf3Text(Text);

/// Begins the text of a test, which is a [`fullpipe_probe::Printer`].
pub(super) fn printer(client: SocketAddr, connected: &Connected) -> (String, Box<dyn TestText>) {
    let options = TextOptions { role: Role::Server, unit: Unit::Bits, verbose: false };
    let header = TestHeader { host: client.ip().to_string(), port: client.port(), ..TestHeader::default() };
    let connections = Connections {
        request: connected.request.clone(),
        cookie: connected.cookie.clone(),
        mss: connected.mss,
        sockets: connected.sockets.clone(),
    };
    let mut text = Text::new(options, Request::default());
    let lines = text.connected(&header, &connections);
    (lines, Box::new(Iperf3Text(text)))
}

impl TestText for Iperf3Text {
    fn interval(&mut self, interval: &Interval) -> String {
        self.0.interval(interval)
    }

    fn results(&self, measurement: &Measurement) -> String {
        self.0.results(measurement)
    }
}
