use std::collections::VecDeque;

use fullpipe_record::{Direction, EndReport, Request};
use fullpipe_units::{Span, Time};

use crate::inbox::Inbox;
use crate::{
    Error, ErrorNumber, Message, Parameters, Refusal, Results, State, Step, Timeouts, data_connections, report,
};

/// The next step for the driver of a [`ServerSession`].
#[derive(Debug, Clone, PartialEq)]
pub enum ServerAction {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// Write these bytes too, whole and in their turn, but when the control connection takes them: nothing waits for
    /// them, but what is sent later.
    Report(Vec<u8>),
    /// Prepare for this load, or call [`ServerSession::refuse`]: what else the client wants is in
    /// [`ServerSession::parameters`]. As many connections as [`crate::data_connections`] says will come, in the order
    /// of the streams, with the test's cookie or, with UDP, each with a [`crate::udp::HELLO`]. Report each with
    /// [`ServerSession::stream_connected`]. The direction is the client's: in an upload, and on the first half of what
    /// a test of both directions opens, this end receives.
    ExpectStreams(Request),
    /// Let data flow.
    StartTransfer,
    /// The client ended the test: stop sending, or reading.
    StopTransfer,
    /// Give [`ServerSession::local_results`].
    CollectResults {
        /// True if the client is fullpipe and wants this end's report in them; it is not sent to another.
        report: bool,
    },
    /// The test is complete, with what the client counted. Close.
    Finished(Results),
    /// The test ended early. Write what was to be sent, then close its connections.
    Failed(Error),
}

/// The server's side of one test, from the moment its cookie was read.
///
/// Every step has its deadline: one reply time, also for each next data connection, and for all of them together a
/// results time and a second each, so that nobody keeps others of its address from opening theirs; a results time for
/// the client's results; for the transfer what the client asked for, omitted time included, and 40 s, as iperf3 has it.
/// A test that bytes limit, or nothing, may take 24 hours ([`crate::MAX_TEST`]), the longest that a client may ask for.
/// After the test ended, in either way, calls do nothing.
///
/// A server that does not want the caller at all has no session: it answers the cookie with
/// [`State::AccessDenied`] and closes.
#[derive(Debug)]
pub struct ServerSession {
    timeouts: Timeouts,
    phase: Option<Step>,
    wait: Span,
    deadline: Time,
    inbox: Inbox,
    actions: VecDeque<ServerAction>,
    connections: u16,
    connected: u16,
    /// When all data connections must be open.
    streams_deadline: Time,
    sends: bool,
    transfer_limit: Span,
    parameters: Option<Parameters>,
    client_results: Results,
}

/// Time by which a client may take longer over a transfer than agreed: iperf3's grace since 3.7.
const TRANSFER_GRACE: Span = Span::from_secs(40);

impl ServerSession {
    /// Starts the session: the client is asked for its parameters.
    pub fn new(now: Time, timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            phase: Some(Step::Parameters),
            wait: timeouts.reply,
            deadline: now + timeouts.reply,
            inbox: Inbox::default(),
            actions: VecDeque::from([ServerAction::Send(vec![State::ParameterExchange.byte()])]),
            connections: 0,
            connected: 0,
            streams_deadline: Time::ZERO,
            sends: false,
            transfer_limit: Span::ZERO,
            parameters: None,
            client_results: Results::default(),
        }
    }

    /// The next thing to do, oldest first. Ask until there is none, after every other call.
    pub fn next_action(&mut self) -> Option<ServerAction> {
        self.actions.pop_front()
    }

    /// Returns what the client asked for, once it has.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.parameters.as_ref()
    }

    /// When to call [`ServerSession::tick`]; `None` once the test is over.
    pub fn deadline(&self) -> Option<Time> {
        self.phase.map(|_| self.deadline)
    }

    /// Bytes came on the control connection, cut anywhere.
    pub fn receive(&mut self, now: Time, bytes: &[u8]) {
        if self.phase.is_none() {
            return;
        }
        self.inbox.push(bytes);
        while self.read_one(now) {}
    }

    /// A data connection came with the test's cookie, or a UDP stream's hello was answered. `false` where none
    /// was due: answer it with [`State::AccessDenied`] and close it.
    #[must_use]
    pub fn stream_connected(&mut self, now: Time) -> bool {
        if self.phase != Some(Step::Streams) {
            return false;
        }
        self.connected += 1;
        if self.connected < self.connections {
            self.enter(Step::Streams, now);
        } else {
            self.send(vec![State::TestStart.byte(), State::TestRunning.byte()]);
            self.actions.push_back(ServerAction::StartTransfer);
            self.enter(Step::Transfer, now);
        }
        true
    }

    /// Returns whether the client gets reports now: it is fullpipe, and data flows.
    pub fn takes_reports(&self) -> bool {
        self.phase == Some(Step::Transfer) && self.wants_report()
    }

    /// Sends the client a report of this end while data flows, if it takes reports: settings and sockets, or what has
    /// been seen so far, with one sample of each stream at most. A client takes one such report a second, and some
    /// more.
    pub fn report(&mut self, report: &EndReport) {
        if self.takes_reports()
            && let Some(message) = report::encode(report)
        {
            self.actions.push_back(ServerAction::Report(message));
        }
    }

    /// Passes on the counts of this end. Its report and output are sent to a client that wants them.
    pub fn local_results(&mut self, now: Time, results: Results) {
        if self.phase != Some(Step::LocalResults) {
            return;
        }
        let report = results.report.filter(|_| self.wants_report());
        let wants_output = self.parameters.as_ref().is_some_and(Parameters::wants_server_output);
        let server_output = results.server_output.filter(|_| wants_output);
        self.send(Results { server_output, report, ..results }.encode(self.sends));
        self.send(vec![State::DisplayResults.byte()]);
        self.enter(Step::Finish, now);
    }

    /// The driver cannot run the test or go on with it, for `refusal` and the operating system's `os_error`, if there
    /// was one (a congestion control that cannot be set, a limit of the operator's). The client is informed; before
    /// anything else, where it is the answer to [`ServerAction::ExpectStreams`].
    pub fn refuse(&mut self, refusal: Refusal, os_error: Option<i32>) {
        if self.phase.is_some() {
            let consents = [State::CreateStreams, State::CreateStreamsTogether]
                .map(|state| ServerAction::Send(vec![state.byte()]));
            self.actions.retain(|action| !consents.contains(action));
            self.break_off(refusal.number, os_error, Error::Refused(refusal));
        }
    }

    /// The server is being stopped. The client is informed.
    pub fn shutdown(&mut self) {
        if let Some(step) = self.phase {
            self.send(vec![State::ServerTerminate.byte()]);
            self.fail(Error::ServerTerminated { step });
        }
    }

    /// The control connection was closed by the client or broke.
    pub fn closed(&mut self) {
        match self.phase {
            // Both have both results; older clients close without a word.
            Some(Step::Finish) => self.finish(),
            Some(step) => self.fail(Error::Closed { step }),
            None => {}
        }
    }

    /// It is `now`: whatever is overdue is given up, and the client informed why.
    pub fn tick(&mut self, now: Time) {
        if now < self.deadline {
            return;
        }
        match self.phase {
            Some(Step::Finish) => self.finish(),
            Some(step) => {
                let number = if step == Step::Transfer { ErrorNumber::EXPIRED } else { ErrorNumber::NO_MESSAGE };
                self.break_off(number, None, Error::Timeout { step, after: self.wait });
            }
            None => {}
        }
    }

    /// Understands one state or message; whether there may be more.
    fn read_one(&mut self, now: Time) -> bool {
        let (Some(step), Some(first)) = (self.phase, self.inbox.first()) else { return false };
        match (step, State::from_byte(first)) {
            // No message within its limit begins with this byte, so it means the same everywhere.
            (_, Some(State::ClientTerminate)) => self.fail(Error::ClientTerminated { step }),
            (Step::Parameters, _) => return self.read_parameters(now),
            (Step::Results, _) => return self.read_results(now),
            (Step::Transfer, Some(State::TestEnd)) => {
                self.inbox.take(1);
                self.actions.push_back(ServerAction::StopTransfer);
                self.send(vec![State::ExchangeResults.byte()]);
                self.enter(Step::Results, now);
            }
            (Step::Finish, Some(State::Done)) => self.finish(),
            _ => self.break_off(ErrorNumber::UNKNOWN_MESSAGE, None, Error::OutOfOrder { got: first, step }),
        }
        true
    }

    fn read_parameters(&mut self, now: Time) -> bool {
        match self.inbox.take_message(Message::Parameters) {
            Ok(None) => return false,
            Ok(Some(json)) => match Parameters::decode(&json) {
                Ok(parameters) => self.judge(parameters, now),
                Err(error) => self.break_off(ErrorNumber::PARAMETERS, None, error),
            },
            Err(error) => self.break_off(ErrorNumber::PARAMETERS, None, error),
        }
        true
    }

    fn judge(&mut self, parameters: Parameters, now: Time) {
        match parameters.to_request() {
            Ok(request) => {
                self.connections = data_connections(&request);
                self.streams_deadline = now + self.timeouts.results + Span::from_secs(self.connections.into());
                self.sends = request.direction != Direction::Upload;
                self.transfer_limit = request.duration + request.omit;
                let knows_us = parameters.speaks_fullpipe();
                let consent = if knows_us { State::CreateStreamsTogether } else { State::CreateStreams };
                self.parameters = Some(parameters);
                self.actions.push_back(ServerAction::ExpectStreams(request));
                self.send(vec![consent.byte()]);
                self.enter(Step::Streams, now);
            }
            Err(refusal) => self.refuse(refusal, None),
        }
    }

    fn read_results(&mut self, now: Time) -> bool {
        let message = self.inbox.take_message(Message::Results);
        match message.and_then(|json| json.map(|json| Results::decode(&json, self.connections)).transpose()) {
            Ok(None) => return false,
            Ok(Some(results)) => {
                // Only servers have output; a client's would be held for nothing.
                self.client_results = Results { server_output: None, ..results };
                self.actions.push_back(ServerAction::CollectResults { report: self.wants_report() });
                self.enter(Step::LocalResults, now);
            }
            Err(error) => self.break_off(ErrorNumber::RESULTS, None, error),
        }
        true
    }

    fn wants_report(&self) -> bool {
        self.parameters.as_ref().is_some_and(Parameters::speaks_fullpipe)
    }

    fn enter(&mut self, step: Step, now: Time) {
        self.phase = Some(step);
        self.wait = match step {
            Step::Transfer => self.transfer_limit + TRANSFER_GRACE,
            Step::Results => self.timeouts.results,
            Step::Streams => self.timeouts.reply.min(self.streams_deadline.since(now)),
            _ => self.timeouts.reply,
        };
        self.deadline = now + self.wait;
    }

    fn send(&mut self, bytes: Vec<u8>) {
        self.actions.push_back(ServerAction::Send(bytes));
    }

    /// Always sends both numbers: iperf3 clients wait for the second.
    fn break_off(&mut self, number: ErrorNumber, os_error: Option<i32>, error: Error) {
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend(number.get().to_be_bytes());
        bytes.extend(os_error.unwrap_or(0).to_be_bytes());
        self.send(bytes);
        self.fail(error);
    }

    fn finish(&mut self) {
        let results = std::mem::take(&mut self.client_results);
        self.end(ServerAction::Finished(results));
    }

    fn fail(&mut self, error: Error) {
        self.end(ServerAction::Failed(error));
    }

    fn end(&mut self, last: ServerAction) {
        self.actions.push_back(last);
        self.phase = None;
        self.inbox.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_trickle_in_are_not_waited_for_longer_than_all_may_take() {
        let second = |second| Time::ZERO + Span::from_secs(second);
        let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
        let parameters = br#"{"udp":true,"time":1,"parallel":20}"#;
        server.receive(Time::ZERO, &(parameters.len() as u32).to_be_bytes());
        server.receive(Time::ZERO, parameters);
        // Each within its ten seconds, the whole within fifty.
        for at in [9, 18, 27, 36, 45] {
            server.tick(second(at));
            assert!(server.stream_connected(second(at)), "at {at} s");
        }
        server.tick(second(49));
        assert_eq!(server.phase, Some(Step::Streams));
        server.tick(second(50));
        assert_eq!(server.phase, None);
    }

    #[test]
    fn no_more_than_one_message_is_held() {
        for (step, message) in [(Step::Parameters, Message::Parameters), (Step::Results, Message::Results)] {
            let limit = message.limit().get() as usize;
            let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
            server.enter(step, Time::ZERO);
            server.receive(Time::ZERO, &(limit as u32).to_be_bytes());
            let mut most = 0;
            for _ in 0..(limit / 1000 + 10) {
                server.receive(Time::ZERO, &[b'x'; 1000]);
                most = most.max(server.inbox.len());
            }
            assert!(most > limit / 2 && most <= limit + 4, "{most}");
            assert_eq!((server.phase, server.inbox.len()), (None, 0));
        }
    }
}
