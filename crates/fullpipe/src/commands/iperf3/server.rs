//! `iperf3 -s`.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::process::Stdio;

use fullpipe_control::RefusedConnections;
use fullpipe_iperf::TestError;
use fullpipe_probe::{ServeError, ServerEvent, serve_clients};
use fullpipe_report::iperf3::{TestRole, greeting_lines, listening_line};

use super::arguments::{ProgramFormat, ProgramSettings, ServerPlan};
use super::client::system_message;
use super::output::ResultWriter;
use super::process;
use super::renderer::{TestFailure, TestRenderer, test_header};
use super::sentences::{TERMINATED, error_sentence};
use crate::commands::prelude::*;
use crate::commands::{daemon, interrupt_flag, server_text};

pub(super) fn run(plan: &ServerPlan, output: &mut ResultWriter) -> Result {
    if plan.daemon && !daemon::is_detached() {
        return detach_process().map_err(|error| {
            server_failure(
                &format!("error - unable to become a daemon: {error}"),
                output,
            )
        });
    }
    let flag = interrupt_flag()?;
    let _pidfile = process::prepare_process(&plan.shape)
        .map_err(|why| server_failure(&format!("error - {why}"), output))?;
    let mut printer = ServerPrinter::new(plan, output);
    printer.print_greeting();
    serve_clients(
        &plan.options,
        server_text::test_printer,
        &flag,
        &mut |event| printer.print_event(event),
    )
    .map_err(|error| server_failure(&in_iperf3s_words(&error), printer.output))?;
    if flag.load(std::sync::atomic::Ordering::Relaxed) {
        if !printer.is_interrupted {
            output.print_error(&format!("interrupt - {TERMINATED}"));
        }
        return Err(Failure::already_printed(FAILED));
    }
    Ok(())
}

/// Starts the process in the background. Like iperf3, and unlike our own server, it prints nothing.
fn detach_process() -> io::Result<()> {
    daemon::detached_self()?
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// Prints the tests of a server. They run one after the other, but the next one may begin before
/// the last one is printed.
struct ServerPrinter<'p> {
    shape: &'p ProgramSettings,
    port: u16,
    one_off: bool,
    output: &'p mut ResultWriter,
    tests: HashMap<SocketAddr, TestRenderer>,
    /// True after a test has reported that the server was stopped.
    is_interrupted: bool,
    /// Number of times that the server has waited for a test.
    waits: u64,
}

impl<'p> ServerPrinter<'p> {
    fn new(plan: &'p ServerPlan, output: &'p mut ResultWriter) -> Self {
        let ServerPlan { options, shape, .. } = plan;
        Self {
            shape,
            port: options.port,
            one_off: options.one_off,
            output,
            tests: HashMap::new(),
            is_interrupted: false,
            waits: 0,
        }
    }

    fn print_greeting(&mut self) {
        if self.shape.verbose && self.shape.form == ProgramFormat::Text {
            self.output
                .write_text(&greeting_lines(&test_header("", 0), None));
        }
    }

    fn print_event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Listening(_) => self.print_waiting(),
            ServerEvent::Began {
                client, request, ..
            } => {
                self.tests
                    .insert(client, server_renderer(self.shape, client, request));
            }
            ServerEvent::Connected { client, connected } => {
                if let Some(renderer) = self.tests.get_mut(&client) {
                    renderer.report_connected(&connected, self.output);
                }
            }
            ServerEvent::Interval { client, interval } => {
                if let Some(renderer) = self.tests.get_mut(&client) {
                    renderer.report_interval(&interval, self.output);
                }
            }
            ServerEvent::Ended {
                client,
                measurement: Some(measurement),
                ..
            } => self.print_results(client, &measurement),
            ServerEvent::Ended { client, .. } => drop(self.tests.remove(&client)),
            ServerEvent::Failed {
                client,
                why,
                cause,
                measurement,
            } => self.print_failure(client, why, cause.as_ref(), measurement.as_deref()),
            ServerEvent::Rejected(refused) => self.print_rejected(&refused),
            ServerEvent::NotListening { why } => {
                self.output.print_error(&format!("warning: {why}"));
            }
            // iperf3 ends without a word; iperf2 clients are not served here, as they are not by
            // iperf3.
            ServerEvent::Idle
            | ServerEvent::ListeningForWeb(_)
            | ServerEvent::BeganIperf2 { .. }
            | ServerEvent::UnreportedFlows { .. } => {}
        }
    }

    fn print_rejected(&mut self, refused: &RefusedConnections) {
        let RefusedConnections {
            client,
            why,
            connections,
        } = refused;
        self.output.print_error(&format!(
            "error - turned {connections} connections of {client} away: {why}"
        ));
    }

    fn print_results(&mut self, client: SocketAddr, measurement: &Measurement) {
        if let Some(mut renderer) = self.tests.remove(&client) {
            renderer.report_results(measurement, self.output);
            renderer.finish_report(self.output);
            self.print_waiting();
        }
    }

    /// Prints the figures of a test that failed, and the reason.
    fn print_failure(
        &mut self,
        client: SocketAddr,
        why: String,
        cause: Option<&TestError>,
        measurement: Option<&Measurement>,
    ) {
        let failure = match cause {
            Some(TestError::ServerTerminated { .. }) => TestFailure::Interrupted(TERMINATED),
            Some(cause) => TestFailure::Error(error_sentence(cause).map_or(why, str::to_owned)),
            None => TestFailure::Error(why),
        };
        self.is_interrupted |= failure == TestFailure::Interrupted(TERMINATED);
        let known = self.tests.remove(&client);
        let mut renderer =
            known.unwrap_or_else(|| server_renderer(self.shape, client, Request::default()));
        renderer.report_peer(self.output);
        if let Some(measurement) = measurement {
            renderer.report_results(measurement, self.output);
        }
        renderer.report_failure(&failure, self.output);
        renderer.finish_report(self.output);
        if !self.is_interrupted {
            self.print_waiting();
        }
    }

    /// Prints that the server waits for the next test.
    fn print_waiting(&mut self) {
        let goes_on = self.waits == 0 || !self.one_off;
        if goes_on && self.shape.form == ProgramFormat::Text {
            self.waits += 1;
            self.output
                .write_text(&listening_line(self.port, self.waits));
        }
    }
}

fn server_renderer(shape: &ProgramSettings, client: SocketAddr, request: Request) -> TestRenderer {
    let header = test_header(&client.ip().to_string(), client.port());
    TestRenderer::new(TestRole::Server, shape, request, header)
}

fn server_failure(why: &str, output: &mut ResultWriter) -> Failure {
    output.print_error(why);
    Failure::already_printed(FAILED)
}

fn in_iperf3s_words(error: &ServeError) -> String {
    match error {
        ServeError::Listen(error) | ServeError::ListenForWeb(error) => {
            let reason = system_message(&error.cause);
            format!("error - unable to start listener for connections: {reason}\niperf3: exiting")
        }
        ServeError::Start(cause) | ServeError::File(cause) => format!("error - {cause}"),
        ServeError::Descriptors { .. } => format!("error - {error}"),
    }
}
