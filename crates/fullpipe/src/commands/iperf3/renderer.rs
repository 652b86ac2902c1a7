//! The report of one test, as text, as a document or as a stream of events.

use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_record::{ConnectedTest, Interval, Measurement, Request};
use fullpipe_report::iperf3::{
    IPERF3_VERSION, JsonOutput, TestHeader, TestRole, TextOptions, TextOutput,
};
use fullpipe_units::{OptionText, Span};

use super::arguments::{ProgramFormat, ProgramSettings};
use super::output::ResultWriter;

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
    form: ProgramFormat,
    report: TestReport,
    is_connected: bool,
}

enum TestReport {
    Text(Box<TextOutput>),
    Json(Box<JsonOutput>),
}

impl TestRenderer {
    /// Begins the report of a test with this `request` and this `header`.
    pub(super) fn new(
        role: TestRole,
        shape: &ProgramSettings,
        request: Request,
        header: TestHeader,
    ) -> Self {
        let report = if shape.form == ProgramFormat::Text {
            let options = TextOptions {
                role,
                unit: shape.unit,
                verbose: shape.verbose,
            };
            TestReport::Text(Box::new(TextOutput::new(options, request)))
        } else {
            TestReport::Json(Box::new(JsonOutput::new(role, request, &header)))
        };
        Self {
            header,
            role,
            form: shape.form,
            report,
            is_connected: false,
        }
    }

    /// Writes lines of text, or events of a stream; of a document alone nothing is written before
    /// its end.
    fn write(&self, lines: &str, output: &mut ResultWriter) {
        if self.form != ProgramFormat::Json {
            output.write_text(lines);
        }
    }

    /// Reports that the data connections are open.
    pub(super) fn report_connected(
        &mut self,
        connected: &ConnectedTest,
        output: &mut ResultWriter,
    ) {
        self.is_connected = true;
        let lines = match &mut self.report {
            TestReport::Text(text) => text.connection_lines(&self.header, connected),
            TestReport::Json(json) => json.add_connections(&self.header, connected),
        };
        self.write(&lines, output);
    }

    /// Names the other end in the text of a test that failed before its data connections were open.
    pub(super) fn report_peer(&self, output: &mut ResultWriter) {
        if let TestReport::Text(text) = &self.report
            && !self.is_connected
        {
            output.write_text(&text.unconnected_peer_line(&self.header));
        }
    }

    /// Reports an interval.
    pub(super) fn report_interval(&mut self, interval: &Interval, output: &mut ResultWriter) {
        let lines = match &mut self.report {
            TestReport::Text(text) => text.interval_lines(interval),
            TestReport::Json(json) if self.form == ProgramFormat::Json => {
                json.add_interval(interval).unwrap_or_default()
            }
            TestReport::Json(json) => json.interval_event(interval).unwrap_or_default(),
        };
        self.write(&lines, output);
    }

    /// Reports the results of the test.
    pub(super) fn report_results(&mut self, seen: &Measurement, output: &mut ResultWriter) {
        let printed_there = seen.remote.output.as_deref();
        let lines = match &mut self.report {
            TestReport::Text(text) => [
                text.result_lines(seen),
                printed_there.map_text(|printed| text.server_output(printed)),
            ],
            TestReport::Json(json) => [
                json.add_results(seen),
                printed_there.map_text(|printed| json.server_output(printed)),
            ],
        };
        for lines in &lines {
            self.write(lines, output);
        }
    }

    /// Reports that the test failed.
    pub(super) fn report_failure(&mut self, failure: &TestFailure, output: &mut ResultWriter) {
        let labelled = match failure {
            TestFailure::Error(why) => format!("error - {why}"),
            TestFailure::Interrupted(why) => format!("interrupt - {why}"),
        };
        let line = match (&mut self.report, failure) {
            (TestReport::Text(_), _) => return output.print_error(&labelled),
            // A server of iperf3 has the label in its documents too.
            (TestReport::Json(json), TestFailure::Error(why)) if self.role == TestRole::Client => {
                json.add_failure(why)
            }
            (TestReport::Json(json), _) => json.add_failure(&labelled),
        };
        self.write(&line, output);
    }

    /// Ends the report: prints the document, if there is one.
    pub(super) fn finish_report(self, output: &mut ResultWriter) {
        if let TestReport::Json(json) = self.report
            && self.form != ProgramFormat::JsonStream
        {
            output.write_text(&json.document_text());
        }
    }

    /// Prints the last line of a client whose test came to its end.
    pub(super) fn print_done_line(&self, output: &mut ResultWriter) {
        if let TestReport::Text(text) = &self.report {
            output.write_text(&text.done_line());
        }
    }
}
