//! `iperf3 -s`.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::process::Stdio;

use fullpipe_control::RefusedConnections;
use fullpipe_iperf::Error;
use fullpipe_probe::{ServeError, ServerEvent, serve};
use fullpipe_record::{Measurement, Request};
use fullpipe_report::iperf3::{Role, greeting, listening};

use super::arguments::{Form, ServerPlan, Shape};
use super::output::Output;
use super::process;
use super::renderer::{Renderer, TestFailure, test_header};
use super::sentences::{TERMINATED, sentence};
use crate::commands::{daemon, interrupt_flag, server_text};
use crate::failure::{FAILED, Failure};

pub(super) fn run(plan: &ServerPlan, output: &mut Output) -> Result<(), Failure> {
    if plan.daemon && !daemon::is_detached() {
        return detach().map_err(|error| failed(&format!("error - unable to become a daemon: {error}"), output));
    }
    let flag = interrupt_flag()?;
    let _pidfile = process::prepare(&plan.shape).map_err(|why| failed(&format!("error - {why}"), output))?;
    let mut printer = Printer::new(plan, output);
    printer.greet();
    serve(&plan.options, server_text::printer, &flag, &mut |event| printer.print(event))
        .map_err(|error| failed(&in_iperf3s_words(&error), printer.output))?;
    if flag.load(std::sync::atomic::Ordering::Relaxed) {
        if printer.is_interrupted {
            return Err(Failure::already_printed(FAILED));
        }
        return Err(failed(&format!("interrupt - {TERMINATED}"), printer.output));
    }
    Ok(())
}

/// Starts the process in the background. Like iperf3, and unlike our own server, it prints nothing.
fn detach() -> io::Result<()> {
    daemon::detached_self()?.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

/// Prints the tests of a server. They run one after the other, but the next one may begin before the last one is
/// printed.
struct Printer<'p> {
    shape: &'p Shape,
    port: u16,
    one_off: bool,
    output: &'p mut Output,
    tests: HashMap<SocketAddr, Renderer>,
    /// True after a test has reported that the server was stopped.
    is_interrupted: bool,
    /// Number of times that the server has waited for a test.
    waits: u64,
}

impl<'p> Printer<'p> {
    fn new(plan: &'p ServerPlan, output: &'p mut Output) -> Self {
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

    fn greet(&mut self) {
        if self.shape.verbose && self.shape.form == Form::Text {
            self.output.say(&greeting(&test_header("", 0), None));
        }
    }

    fn print(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Listening(_) => self.wait(),
            ServerEvent::Began { client, request } => {
                let header = test_header(&client.ip().to_string(), client.port());
                self.tests.insert(client, Renderer::new(Role::Server, self.shape, request, header));
            }
            ServerEvent::Connected { client, connected } => {
                if let Some(renderer) = self.tests.get_mut(&client) {
                    renderer.connected(&connected, self.output);
                }
            }
            ServerEvent::Interval { client, interval } => {
                if let Some(renderer) = self.tests.get_mut(&client) {
                    renderer.interval(&interval, self.output);
                }
            }
            ServerEvent::Ended { client, measurement, .. } => {
                if let (Some(mut renderer), Some(measurement)) = (self.tests.remove(&client), measurement) {
                    renderer.results(&measurement, self.output);
                    renderer.end(self.output);
                    self.wait();
                }
            }
            ServerEvent::Failed { client, why, cause, measurement } => {
                self.fail(client, why, cause.as_ref(), measurement.as_deref());
            }
            ServerEvent::Rejected(RefusedConnections { client, why, connections }) => {
                self.output.print_error(&format!("error - turned {connections} connections of {client} away: {why}"));
            }
            ServerEvent::NotListening { why } => self.output.print_error(&format!("warning: {why}")),
            // iperf3 ends without a word; iperf2 clients are not served here, as they are not by iperf3.
            ServerEvent::Idle | ServerEvent::BeganIperf2 { .. } | ServerEvent::UnreportedFlows { .. } => {}
        }
    }

    /// Prints the figures of a test that failed, and the reason.
    fn fail(&mut self, client: SocketAddr, why: String, cause: Option<&Error>, measurement: Option<&Measurement>) {
        let failure = match cause {
            Some(Error::ServerTerminated { .. }) => TestFailure::Interrupted(TERMINATED),
            Some(cause) => TestFailure::Error(sentence(cause).map_or(why, str::to_owned)),
            None => TestFailure::Error(why),
        };
        self.is_interrupted |= failure == TestFailure::Interrupted(TERMINATED);
        let new = || {
            let header = test_header(&client.ip().to_string(), client.port());
            Renderer::new(Role::Server, self.shape, Request::default(), header)
        };
        let mut renderer = self.tests.remove(&client).unwrap_or_else(new);
        renderer.peer(self.output);
        if let Some(measurement) = measurement {
            renderer.results(measurement, self.output);
        }
        renderer.failed(&failure, self.output);
        renderer.end(self.output);
        if !self.is_interrupted {
            self.wait();
        }
    }

    /// Prints that the server waits for the next test.
    fn wait(&mut self) {
        let goes_on = self.waits == 0 || !self.one_off;
        if goes_on && self.shape.form == Form::Text {
            self.waits += 1;
            self.output.say(&listening(self.port, self.waits));
        }
    }
}

fn failed(why: &str, output: &mut Output) -> Failure {
    output.print_error(why);
    Failure::already_printed(FAILED)
}

fn in_iperf3s_words(error: &ServeError) -> String {
    match error {
        ServeError::Listen(error) => {
            let cause = error.cause.to_string();
            let reason = cause.split(" (os error").next().unwrap_or_default();
            format!("error - unable to start listener for connections: {reason}\niperf3: exiting")
        }
        ServeError::Start(cause) | ServeError::File(cause) => format!("error - {cause}"),
        ServeError::Descriptors { .. } => format!("error - {error}"),
    }
}
