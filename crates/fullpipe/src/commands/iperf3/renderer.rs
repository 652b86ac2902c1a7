//! The report of one test, as text, as a document or as a stream of events.

use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_probe::Connected;
use fullpipe_record::{Interval, Measurement, Request};
use fullpipe_report::iperf3::{Connections, IPERF3_VERSION, Json, Role, TestHeader, Text, TextOptions};
use fullpipe_units::Span;

use super::arguments::{Form, Shape};
use super::output::Output;

/// Returns the version that the program reports: that of the iperf3 in whose place it runs, and its own.
pub(super) fn version() -> String {
    format!("iperf {IPERF3_VERSION} (fullpipe {})", env!("CARGO_PKG_VERSION"))
}

/// Returns the system as `uname -a` prints it.
pub(super) fn system() -> String {
    let system = rustix::system::uname();
    let parts = [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// Returns the header of a test with `host`, which begins now.
pub(super) fn test_header(host: &str, port: u16) -> TestHeader {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TestHeader { version: version(), system: system(), at: Span::from(now), host: host.to_owned(), port }
}

/// Reason for which a test did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TestFailure {
    /// Something went wrong.
    Error(String),
    /// The user of this end stopped it; iperf3's message for that.
    Interrupted(&'static str),
}

/// Prints the report of one test while it runs.
pub(super) struct Renderer {
    header: TestHeader,
    role: Role,
    format: Format,
    is_connected: bool,
}

enum Format {
    Text(Box<Text>),
    Document(Box<Json>),
    Stream(Box<Json>),
    /// A stream of events, and the document at the end.
    StreamAndDocument(Box<Json>),
}

impl Renderer {
    /// Begins the report of a test with this `request` and this `header`.
    pub(super) fn new(role: Role, shape: &Shape, request: Request, header: TestHeader) -> Self {
        let options = TextOptions { role, unit: shape.unit, verbose: shape.verbose };
        let format = match shape.form {
            Form::Text => Format::Text(Box::new(Text::new(options, request))),
            Form::Json => Format::Document(Box::new(Json::new(role, request, &header))),
            Form::JsonStream => Format::Stream(Box::new(Json::new(role, request, &header))),
            Form::JsonStreamAndDocument => Format::StreamAndDocument(Box::new(Json::new(role, request, &header))),
        };
        Self { header, role, format, is_connected: false }
    }

    /// Reports that the data connections are open.
    pub(super) fn connected(&mut self, connected: &Connected, output: &mut Output) {
        self.is_connected = true;
        let connections = Connections {
            request: connected.request.clone(),
            cookie: connected.cookie.clone(),
            mss: connected.mss,
            sockets: connected.sockets.clone(),
        };
        match &mut self.format {
            Format::Text(text) => output.say(&text.connected(&self.header, &connections)),
            Format::Document(json) => drop(json.connected(&self.header, &connections)),
            Format::Stream(json) | Format::StreamAndDocument(json) => {
                output.say(&json.connected(&self.header, &connections));
            }
        }
    }

    /// Names the other end in the text of a test that failed before its data connections were open.
    pub(super) fn peer(&self, output: &mut Output) {
        if let Format::Text(text) = &self.format
            && !self.is_connected
        {
            output.say(&text.peer(&self.header));
        }
    }

    /// Reports an interval.
    pub(super) fn interval(&mut self, interval: &Interval, output: &mut Output) {
        match &mut self.format {
            Format::Text(text) => output.say(&text.interval(interval)),
            Format::Document(json) => drop(json.interval(interval)),
            Format::Stream(json) | Format::StreamAndDocument(json) => {
                output.say(&json.interval_event(interval).unwrap_or_default());
            }
        }
    }

    /// Reports the results of the test.
    pub(super) fn results(&mut self, seen: &Measurement, output: &mut Output) {
        let printed_there = seen.remote.output.as_deref();
        match &mut self.format {
            Format::Text(text) => {
                output.say(&text.results(seen));
                output.say(&printed_there.map(|printed| text.server_output(printed)).unwrap_or_default());
            }
            Format::Document(json) => {
                json.results(seen);
                printed_there.map(|printed| json.server_output(printed));
            }
            Format::Stream(json) | Format::StreamAndDocument(json) => {
                output.say(&json.results(seen));
                output.say(&printed_there.map(|printed| json.server_output(printed)).unwrap_or_default());
            }
        }
    }

    /// Reports that the test failed.
    pub(super) fn failed(&mut self, failure: &TestFailure, output: &mut Output) {
        let (plain, labelled) = match failure {
            // A server of iperf3 has the label in its documents too.
            TestFailure::Error(why) if self.role == Role::Client => (why.clone(), format!("error - {why}")),
            TestFailure::Error(why) => (format!("error - {why}"), format!("error - {why}")),
            TestFailure::Interrupted(why) => {
                let why = format!("interrupt - {why}");
                (why.clone(), why)
            }
        };
        match &mut self.format {
            Format::Text(_) => output.print_error(&labelled),
            Format::Document(json) => drop(json.failed(&plain)),
            Format::Stream(json) | Format::StreamAndDocument(json) => output.say(&json.failed(&plain)),
        }
    }

    /// Ends the report: prints the document, if there is one.
    pub(super) fn end(self, output: &mut Output) {
        if let Format::Document(json) | Format::StreamAndDocument(json) = self.format {
            output.say(&json.document());
        }
    }

    /// Prints the last line of a client whose test came to its end.
    pub(super) fn done(&self, output: &mut Output) {
        if let Format::Text(text) = &self.format {
            output.say(&text.done());
        }
    }
}
