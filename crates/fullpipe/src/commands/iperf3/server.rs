//! `iperf3 -s`.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::process::Stdio;

use fullpipe_iperf::ErrorNumber;
use fullpipe_probe::{ServeError, ServerEvent, serve};
use fullpipe_report::iperf3::{Role, greeting, listening};

use super::arguments::{Form, ServerPlan, Shape};
use super::output::Output;
use super::process;
use super::renderer::{Renderer, TestFailure, UNAUTHORIZED, opening};
use crate::commands::{daemon, interrupt_flag, server_text};
use crate::failure::{FAILED, Failure};

pub(super) fn run(plan: &ServerPlan, output: &mut Output) -> Result<(), Failure> {
    if plan.daemon && !daemon::is_detached() {
        return detach().map_err(|error| failed(&format!("error - unable to become a daemon: {error}"), output));
    }
    let flag = interrupt_flag()?;
    let _pidfile = process::prepare(&plan.shape).map_err(|why| failed(&format!("error - {why}"), output))?;
    let mut desk = Desk::new(plan, output);
    desk.greet();
    serve(&plan.options, server_text::printer, &flag, &mut |event| desk.tell(event))
        .map_err(|error| failed(&in_iperf3s_words(&error), desk.output))?;
    if flag.load(std::sync::atomic::Ordering::Relaxed) {
        return Err(failed("interrupt - the server has terminated", desk.output));
    }
    Ok(())
}

/// Leaves another process behind and ends; unlike our own server it says nothing, as iperf3.
fn detach() -> io::Result<()> {
    daemon::detached_self()?.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

/// Where the tests of a server are told of. There is one at a time, but the next may begin before the last is told of.
struct Desk<'p> {
    shape: &'p Shape,
    port: u16,
    one_off: bool,
    output: &'p mut Output,
    tests: HashMap<SocketAddr, Renderer>,
    /// How often it has been waited for a test.
    waits: u64,
}

impl<'p> Desk<'p> {
    fn new(plan: &'p ServerPlan, output: &'p mut Output) -> Self {
        let ServerPlan { options, shape, .. } = plan;
        Self { shape, port: options.port, one_off: options.one_off, output, tests: HashMap::new(), waits: 0 }
    }

    fn greet(&mut self) {
        if self.shape.verbose && self.shape.form == Form::Text {
            self.output.say(&greeting(&opening("", 0), None));
        }
    }

    fn tell(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Listening(_) => self.wait(),
            ServerEvent::Began { client, request } => {
                let opening = opening(&client.ip().to_string(), client.port());
                self.tests.insert(client, Renderer::new(Role::Server, self.shape, request, opening));
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
            ServerEvent::Ended { client, seen, .. } => {
                if let (Some(mut renderer), Some(seen)) = (self.tests.remove(&client), seen) {
                    renderer.results(&seen, self.output);
                    renderer.end(self.output);
                    self.wait();
                }
            }
            ServerEvent::Failed { refused: Some(ErrorNumber::AUTHENTICATION), .. } => {
                self.output.complain(&format!("error - {UNAUTHORIZED}"));
                self.wait();
            }
            ServerEvent::Failed { client, why, .. } => match self.tests.remove(&client) {
                Some(mut renderer) => {
                    renderer.failed(&TestFailure::Error(why), self.output);
                    renderer.end(self.output);
                    self.wait();
                }
                None => self.output.complain(&format!("error - {why}")),
            },
            ServerEvent::TurnedAway { client, why, connections } => {
                self.output.complain(&format!("error - turned {connections} connections of {client} away: {why}"));
            }
            ServerEvent::NotListening { why } => self.output.complain(&format!("warning: {why}")),
            // iperf3 ends without a word; iperf2 clients are not served here, as they are not by iperf3.
            ServerEvent::Idle | ServerEvent::BeganIperf2 { .. } => {}
        }
    }

    /// Says that the next test may come.
    fn wait(&mut self) {
        let goes_on = self.waits == 0 || !self.one_off;
        if goes_on && self.shape.form == Form::Text {
            self.waits += 1;
            self.output.say(&listening(self.port, self.waits));
        }
    }
}

fn failed(why: &str, output: &mut Output) -> Failure {
    output.complain(why);
    Failure::already_printed(FAILED)
}

fn in_iperf3s_words(error: &ServeError) -> String {
    match error {
        ServeError::Listen { cause, .. } => {
            let cause = cause.to_string();
            let reason = cause.split(" (os error").next().unwrap_or_default();
            format!("error - unable to start listener for connections: {reason}\niperf3: exiting")
        }
        ServeError::Start(cause) | ServeError::File(cause) => format!("error - {cause}"),
    }
}
