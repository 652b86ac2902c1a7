//! The report of one test, as text, as a document or as a stream of events.

use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_probe::ConnectedTest;
use fullpipe_record::{Interval, Measurement, Request};
use fullpipe_report::iperf3::{
    IPERF3_VERSION, JsonOutput, TestHeader, TestRole, TextOptions, TextOutput,
};
use fullpipe_units::Span;

use super::arguments::{ProgramFormat, ProgramSettings};
use super::output::ResultWriter;
use crate::commands::server_text::test_connections;

/// Returns the version that the program reports: that of the iperf3 in whose place it runs, and its
/// own.
pub(super) fn program_version() -> String {
    format!(
        "iperf {IPERF3_VERSION} (fullpipe {})",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the system as `uname -a` prints it.
pub(super) fn system_name() -> String {
    let system = rustix::system::uname();
    let parts = [
        system.sysname(),
        system.nodename(),
        system.release(),
        system.version(),
        system.machine(),
    ];
    parts
        .map(|part| part.to_string_lossy().into_owned())
        .join(" ")
}

/// Returns the header of a test with `host`, which begins now.
pub(super) fn test_header(host: &str, port: u16) -> TestHeader {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TestHeader {
        version: program_version(),
        system: system_name(),
        at: Span::from(now),
        host: host.to_owned(),
        port,
    }
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
pub(super) struct TestRenderer {
    header: TestHeader,
    role: TestRole,
    format: ReportFormat,
    is_connected: bool,
}

enum ReportFormat {
    Text(Box<TextOutput>),
    Document(Box<JsonOutput>),
    Stream(Box<JsonOutput>),
    /// A stream of events, and the document at the end.
    StreamAndDocument(Box<JsonOutput>),
}

impl TestRenderer {
    /// Begins the report of a test with this `request` and this `header`.
    pub(super) fn new(
        role: TestRole,
        shape: &ProgramSettings,
        request: Request,
        header: TestHeader,
    ) -> Self {
        let options = TextOptions {
            role,
            unit: shape.unit,
            verbose: shape.verbose,
        };
        let format = match shape.form {
            ProgramFormat::Text => ReportFormat::Text(Box::new(TextOutput::new(options, request))),
            ProgramFormat::Json => {
                ReportFormat::Document(Box::new(JsonOutput::new(role, request, &header)))
            }
            ProgramFormat::JsonStream => {
                ReportFormat::Stream(Box::new(JsonOutput::new(role, request, &header)))
            }
            ProgramFormat::JsonStreamAndDocument => {
                ReportFormat::StreamAndDocument(Box::new(JsonOutput::new(role, request, &header)))
            }
        };
        Self {
            header,
            role,
            format,
            is_connected: false,
        }
    }

    /// Reports that the data connections are open.
    pub(super) fn report_connected(
        &mut self,
        connected: &ConnectedTest,
        output: &mut ResultWriter,
    ) {
        self.is_connected = true;
        let connections = test_connections(connected);
        match &mut self.format {
            ReportFormat::Text(text) => {
                output.write_text(&text.connection_lines(&self.header, &connections));
            }
            ReportFormat::Document(json) => drop(json.add_connections(&self.header, &connections)),
            ReportFormat::Stream(json) | ReportFormat::StreamAndDocument(json) => {
                output.write_text(&json.add_connections(&self.header, &connections));
            }
        }
    }

    /// Names the other end in the text of a test that failed before its data connections were open.
    pub(super) fn report_peer(&self, output: &mut ResultWriter) {
        if let ReportFormat::Text(text) = &self.format
            && !self.is_connected
        {
            output.write_text(&text.unconnected_peer_line(&self.header));
        }
    }

    /// Reports an interval.
    pub(super) fn report_interval(&mut self, interval: &Interval, output: &mut ResultWriter) {
        match &mut self.format {
            ReportFormat::Text(text) => output.write_text(&text.interval_lines(interval)),
            ReportFormat::Document(json) => drop(json.add_interval(interval)),
            ReportFormat::Stream(json) | ReportFormat::StreamAndDocument(json) => {
                output.write_text(&json.interval_event(interval).unwrap_or_default());
            }
        }
    }

    /// Reports the results of the test.
    pub(super) fn report_results(&mut self, seen: &Measurement, output: &mut ResultWriter) {
        let printed_there = seen.remote.output.as_deref();
        match &mut self.format {
            ReportFormat::Text(text) => {
                output.write_text(&text.result_lines(seen));
                output.write_text(
                    &printed_there
                        .map(|printed| text.server_output(printed))
                        .unwrap_or_default(),
                );
            }
            ReportFormat::Document(json) => {
                json.add_results(seen);
                printed_there.map(|printed| json.server_output(printed));
            }
            ReportFormat::Stream(json) | ReportFormat::StreamAndDocument(json) => {
                output.write_text(&json.add_results(seen));
                output.write_text(
                    &printed_there
                        .map(|printed| json.server_output(printed))
                        .unwrap_or_default(),
                );
            }
        }
    }

    /// Reports that the test failed.
    pub(super) fn report_failure(&mut self, failure: &TestFailure, output: &mut ResultWriter) {
        let (plain, labelled) = match failure {
            // A server of iperf3 has the label in its documents too.
            TestFailure::Error(why) if self.role == TestRole::Client => {
                (why.clone(), format!("error - {why}"))
            }
            TestFailure::Error(why) => (format!("error - {why}"), format!("error - {why}")),
            TestFailure::Interrupted(why) => {
                let why = format!("interrupt - {why}");
                (why.clone(), why)
            }
        };
        match &mut self.format {
            ReportFormat::Text(_) => output.print_error(&labelled),
            ReportFormat::Document(json) => drop(json.add_failure(&plain)),
            ReportFormat::Stream(json) | ReportFormat::StreamAndDocument(json) => {
                output.write_text(&json.add_failure(&plain));
            }
        }
    }

    /// Ends the report: prints the document, if there is one.
    pub(super) fn finish_report(self, output: &mut ResultWriter) {
        if let ReportFormat::Document(json) | ReportFormat::StreamAndDocument(json) = self.format {
            output.write_text(&json.document_text());
        }
    }

    /// Prints the last line of a client whose test came to its end.
    pub(super) fn print_done_line(&self, output: &mut ResultWriter) {
        if let ReportFormat::Text(text) = &self.format {
            output.write_text(&text.done_line());
        }
    }
}
