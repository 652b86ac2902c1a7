//! What is told of one test, as text, as a document or as a stream of events.

use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_probe::Connected;
use fullpipe_record::{Interval, Measurement, Request};
use fullpipe_report::iperf3::{Connections, IPERF3_VERSION, Json, Role, Snapshot, TestHeader, Text};
use fullpipe_units::Span;

use super::arguments::{Form, Shape};
use super::output::Output;

/// What the program calls itself: the iperf3 whose place it takes, and who it is.
pub(super) fn version() -> String {
    format!("iperf {IPERF3_VERSION} (fullpipe {})", env!("CARGO_PKG_VERSION"))
}

/// As `uname -a` has it.
pub(super) fn system() -> String {
    let system = rustix::system::uname();
    let parts = [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// What is known before a test with `host` begins.
pub(super) fn opening(host: &str, port: u16) -> TestHeader {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TestHeader { version: version(), system: system(), at: Span::from(now), host: host.to_owned(), port }
}

/// Why a test did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TestFailure {
    /// Something went wrong.
    Error(String),
    /// The user of this end stopped it; iperf3's words for that.
    Interrupted(&'static str),
}

/// One test, told as it goes on.
pub(super) struct Renderer {
    opening: TestHeader,
    role: Role,
    format: Format,
    is_connected: bool,
}

enum Format {
    Text(Box<Text>),
    Document(Box<Json>),
    Stream(Box<Json>),
    /// Events, and the document at the end.
    StreamAndDocument(Box<Json>),
}

impl Renderer {
    /// A test that is asked for by `request`, of which no more than `opening` is known.
    pub(super) fn new(role: Role, shape: &Shape, request: Request, opening: TestHeader) -> Self {
        let look = Snapshot { role, unit: shape.unit, verbose: shape.verbose };
        let format = match shape.form {
            Form::Text => Format::Text(Box::new(Text::new(look, request))),
            Form::Json => Format::Document(Box::new(Json::new(role, request, &opening))),
            Form::JsonStream => Format::Stream(Box::new(Json::new(role, request, &opening))),
            Form::JsonStreamAndDocument => Format::StreamAndDocument(Box::new(Json::new(role, request, &opening))),
        };
        Self { opening, role, format, is_connected: false }
    }

    /// The data connections stand.
    pub(super) fn connected(&mut self, connected: &Connected, output: &mut Output) {
        self.is_connected = true;
        let connections = Connections {
            request: connected.request.clone(),
            cookie: connected.cookie.clone(),
            mss: connected.mss,
            sockets: connected.sockets.clone(),
        };
        match &mut self.format {
            Format::Text(text) => output.say(&text.connected(&self.opening, &connections)),
            Format::Document(json) => drop(json.connected(&self.opening, &connections)),
            Format::Stream(json) | Format::StreamAndDocument(json) => {
                output.say(&json.connected(&self.opening, &connections))
            }
        }
    }

    /// Names the other end in the text of a test that failed before its data connections were open.
    pub(super) fn peer(&self, output: &mut Output) {
        if let Format::Text(text) = &self.format
            && !self.is_connected
        {
            output.say(&text.peer(&self.opening));
        }
    }

    /// An interval has passed.
    pub(super) fn interval(&mut self, interval: &Interval, output: &mut Output) {
        match &mut self.format {
            Format::Text(text) => output.say(&text.interval(interval)),
            Format::Document(json) => drop(json.interval(interval)),
            Format::Stream(json) | Format::StreamAndDocument(json) => {
                output.say(&json.interval_event(interval).unwrap_or_default())
            }
        }
    }

    /// The test is over.
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

    /// The test is over before its time.
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

    /// Nothing more is to come.
    pub(super) fn end(self, output: &mut Output) {
        if let Format::Document(json) | Format::StreamAndDocument(json) = self.format {
            output.say(&json.document());
        }
    }

    /// What a client says of a test that came to its end.
    pub(super) fn done(&self, output: &mut Output) {
        if let Format::Text(text) = &self.format {
            output.say(&text.done());
        }
    }
}
