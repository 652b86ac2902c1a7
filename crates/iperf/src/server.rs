use std::collections::VecDeque;

use fullpipe_record::{Direction, EndReport, Request};
use fullpipe_units::{Span, Time};

use crate::inbox::{ControlInbox, client_results_limit};
use crate::key::MAC_LENGTH;
use crate::{
    ErrorNumber, JsonMessage, ServerNonce, SessionStep, SharedKey, StateByte, TestCookie,
    TestError, TestParameters, TestRefusal, TestResults, Timeouts, data_connections, report,
};

/// The next step for the driver of a [`ServerSession`].
#[derive(Debug, Clone, PartialEq)]
pub enum ServerAction {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// Write these bytes too, whole and in their turn, but when the control connection takes them:
    /// nothing waits for them, but what is sent later.
    Report(Vec<u8>),
    /// Prepare for this load, or call [`ServerSession::refuse_test`]: what else the client wants is
    /// in [`ServerSession::client_parameters`]. As many connections as [`crate::data_connections`]
    /// says will come, in the order of the streams, with the test's cookie or, with UDP, each with
    /// a [`crate::udp::HELLO`]. Report each with [`ServerSession::stream_connected`]. The direction
    /// is the client's: in an upload, and on the first half of what a test of both directions
    /// opens, this end receives.
    ExpectStreams(Request),
    /// Let data flow.
    StartTransfer,
    /// The client ended the test: stop sending, or reading.
    StopTransfer,
    /// Give [`ServerSession::local_results`].
    CollectResults {
        /// True if the client is fullpipe and wants this end's report in them; it is not sent to
        /// another.
        report: bool,
    },
    /// The test is complete, with what the client counted. Close.
    Finished(TestResults),
    /// The test ended early. Write what was to be sent, then close its connections.
    Failed(TestError),
}

/// The server's side of one test, from the moment its cookie was read.
///
/// Every step has its deadline: one reply time, also for each next data connection, and for all of
/// them together a results time and a second each, so that no client keeps others of its address
/// from opening theirs; a results time for the client's results; for the transfer what the client
/// asked for, omitted time included, and 40 s, as iperf3 has it. A test that bytes limit, or
/// nothing, may take 24 hours ([`crate::MAX_TEST`]), the longest that a client may ask for. After
/// the test ended, in either way, calls do nothing.
///
/// A server that does not want the caller at all has no session: it answers the cookie with
/// [`StateByte::AccessDenied`] and closes.
#[derive(Debug)]
pub struct ServerSession {
    timeouts: Timeouts,
    phase: Option<SessionStep>,
    wait: Span,
    deadline: Time,
    inbox: ControlInbox,
    actions: VecDeque<ServerAction>,
    connections: u16,
    connected: u16,
    /// When all data connections must be open.
    streams_deadline: Time,
    sends: bool,
    transfer_limit: Span,
    parameters: Option<TestParameters>,
    key_check: Option<KeyCheck>,
    client_results: TestResults,
}

/// The key that the clients of a server must prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerKey {
    /// This one.
    Shared(SharedKey),
    /// That of a ticket which was sealed with this secret: see [`crate::TestTicket`].
    OfTickets(SharedKey),
}

/// A key that a client must have, and the nonce of its one proof.
#[derive(Debug)]
pub struct KeyCheck {
    key: ServerKey,
    cookie: TestCookie,
    nonce: ServerNonce,
    /// The parameters as they came.
    parameters: Vec<u8>,
}

impl KeyCheck {
    /// Returns the check that the client of the test with this `cookie` has `key`. No `nonce` may
    /// be used twice.
    pub fn new(key: ServerKey, cookie: TestCookie, nonce: ServerNonce) -> Self {
        Self {
            key,
            cookie,
            nonce,
            parameters: Vec::new(),
        }
    }

    /// Fails if a client with these `parameters` has nothing to prove.
    fn check_client(&self, parameters: &TestParameters) -> Result<(), TestRefusal> {
        let is_provable = parameters.proves_keys();
        if matches!(self.key, ServerKey::OfTickets(_)) && parameters.ticket_text().is_none() {
            let number = if is_provable {
                ErrorNumber::TICKET_MISSING
            } else {
                ErrorNumber::AUTHENTICATION
            };
            return Err(TestRefusal::new(number, "the client has no ticket"));
        }
        let client = match (is_provable, parameters.speaks_fullpipe()) {
            (true, _) => return Ok(()),
            (_, true) => "an older fullpipe, whose proof could be replayed: update it",
            _ => "not fullpipe",
        };
        let why = format!("the client does not prove that it has the key: it is {client}");
        Err(TestRefusal::new(ErrorNumber::AUTHENTICATION, why))
    }

    /// Fails if `proof` is not that of the client with these `parameters`.
    fn check_proof(&self, proof: &[u8], parameters: &TestParameters) -> Result<(), TestRefusal> {
        let ticket = parameters.ticket_text().unwrap_or_default();
        let (key, why) = match &self.key {
            ServerKey::Shared(key) => (key.clone(), "the client does not have the key"),
            ServerKey::OfTickets(secret) => (
                secret.ticket_key(ticket),
                "the client's ticket is forged, of another server, or without its key",
            ),
        };
        if key.accepts_proof(proof, &self.cookie, &self.nonce, &self.parameters) {
            Ok(())
        } else {
            Err(TestRefusal::new(ErrorNumber::AUTHENTICATION, why))
        }
    }
}

/// Time that a client may take for a transfer in addition to what was agreed: iperf3's grace since
/// 3.7.
const TRANSFER_GRACE: Span = Span::from_secs(40);

impl ServerSession {
    /// Starts the session: the client is asked for its parameters.
    pub fn new(now: Time, timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            phase: Some(SessionStep::Parameters),
            wait: timeouts.reply,
            deadline: now + timeouts.reply,
            inbox: ControlInbox::default(),
            actions: VecDeque::from([ServerAction::Send(vec![
                StateByte::ParameterExchange.to_byte(),
            ])]),
            connections: 0,
            connected: 0,
            streams_deadline: Time::ZERO,
            sends: false,
            transfer_limit: Span::ZERO,
            parameters: None,
            key_check: None,
            client_results: TestResults::default(),
        }
    }

    /// Admits the client only if it passes `check`.
    #[must_use]
    pub fn with_key(self, check: KeyCheck) -> Self {
        Self {
            key_check: Some(check),
            ..self
        }
    }

    /// The next thing to do, oldest first. Ask until there is none, after every other call.
    pub fn next_action(&mut self) -> Option<ServerAction> {
        self.actions.pop_front()
    }

    /// Returns the parameters that the client asked for; `None` before they have arrived.
    pub fn client_parameters(&self) -> Option<&TestParameters> {
        self.parameters.as_ref()
    }

    /// When to call [`ServerSession::check_deadline`]; `None` once the test is over.
    pub fn next_deadline(&self) -> Option<Time> {
        self.phase.map(|_| self.deadline)
    }

    /// Bytes came on the control connection, cut anywhere.
    pub fn receive_bytes(&mut self, now: Time, bytes: &[u8]) {
        if self.phase.is_none() {
            return;
        }
        self.inbox.push(bytes);
        while self.read_one(now) {}
    }

    /// A data connection came with the test's cookie, or a UDP stream's hello was answered. `false`
    /// where none was due: answer it with [`StateByte::AccessDenied`] and close it.
    #[must_use]
    pub fn stream_connected(&mut self, now: Time) -> bool {
        if self.phase != Some(SessionStep::Streams) {
            return false;
        }
        self.connected += 1;
        if self.connected < self.connections {
            self.enter_step(SessionStep::Streams, now);
        } else {
            self.send_bytes(vec![
                StateByte::TestStart.to_byte(),
                StateByte::TestRunning.to_byte(),
            ]);
            self.actions.push_back(ServerAction::StartTransfer);
            self.enter_step(SessionStep::Transfer, now);
        }
        true
    }

    /// Returns true if the client gets reports now: it is fullpipe, and data flows.
    pub fn takes_reports(&self) -> bool {
        self.phase == Some(SessionStep::Transfer) && self.wants_report()
    }

    /// Sends the client a report of this end while data flows, if it takes reports: settings and
    /// sockets, or what has been seen so far, with one sample of each stream at most. A client
    /// takes one such report a second, and some more.
    pub fn send_report(&mut self, report: &EndReport) {
        if self.takes_reports()
            && let Some(message) = report::encode_report(report)
        {
            self.actions.push_back(ServerAction::Report(message));
        }
    }

    /// Passes on the counts of this end. Its report and output are sent to a client that wants
    /// them.
    pub fn local_results(&mut self, now: Time, results: TestResults) {
        if self.phase != Some(SessionStep::LocalResults) {
            return;
        }
        let report = results.report.filter(|_| self.wants_report());
        let wants_output = self
            .parameters
            .as_ref()
            .is_some_and(TestParameters::wants_server_output);
        let server_output = results.server_output.filter(|_| wants_output);
        self.send_bytes(
            TestResults {
                server_output,
                report,
                ..results
            }
            .encode_message(self.sends),
        );
        self.send_bytes(vec![StateByte::DisplayResults.to_byte()]);
        self.enter_step(SessionStep::Finish, now);
    }

    /// The driver cannot run the test or go on with it, for `refusal` and the operating system's
    /// `os_error`, if there was one (a congestion control that cannot be set, a limit of the
    /// operator's). The client is informed; before anything else, where it is the answer to
    /// [`ServerAction::ExpectStreams`].
    pub fn refuse_test(&mut self, refusal: TestRefusal, os_error: Option<i32>) {
        if self.phase.is_some() {
            let consents = [StateByte::CreateStreams, StateByte::CreateStreamsTogether]
                .map(|state| ServerAction::Send(vec![state.to_byte()]));
            self.actions.retain(|action| !consents.contains(action));
            self.break_off(refusal.number, os_error, TestError::Refused(refusal));
        }
    }

    /// The server is being stopped. The client is informed.
    pub fn announce_shutdown(&mut self) {
        if let Some(step) = self.phase {
            self.send_bytes(vec![StateByte::ServerTerminate.to_byte()]);
            self.fail_test(TestError::ServerTerminated { step });
        }
    }

    /// The control connection was closed by the client or broke.
    pub fn connection_closed(&mut self) {
        match self.phase {
            // Both have both results; older clients close without a word.
            Some(SessionStep::Finish) => self.finish_test(),
            Some(step) => self.fail_test(TestError::ClientClosed { step }),
            None => {}
        }
    }

    /// Gives up whatever is overdue at `now`, and informs the client why.
    pub fn check_deadline(&mut self, now: Time) {
        if now < self.deadline {
            return;
        }
        match self.phase {
            Some(SessionStep::Finish) => self.finish_test(),
            Some(step) => {
                let number = if step == SessionStep::Transfer {
                    ErrorNumber::EXPIRED
                } else {
                    ErrorNumber::NO_MESSAGE
                };
                self.break_off(
                    number,
                    None,
                    TestError::Timeout {
                        step,
                        after: self.wait,
                    },
                );
            }
            None => {}
        }
    }

    /// Understands one state or message; whether there may be more.
    fn read_one(&mut self, now: Time) -> bool {
        let (Some(step), Some(first)) = (self.phase, self.inbox.first_byte()) else {
            return false;
        };
        match (step, StateByte::from_byte(first)) {
            // No message within its limit begins with this byte, so it means the same everywhere.
            (_, Some(StateByte::ClientTerminate)) => {
                self.fail_test(TestError::ClientTerminated { step });
            }
            (SessionStep::Parameters, _) => return self.read_parameters(now),
            (SessionStep::Key, Some(StateByte::Key)) => return self.read_proof(now),
            (SessionStep::Results, _) => return self.read_results(now),
            (SessionStep::Transfer, Some(StateByte::TestEnd)) => {
                self.inbox.take_bytes(1);
                self.actions.push_back(ServerAction::StopTransfer);
                self.send_bytes(vec![StateByte::ExchangeResults.to_byte()]);
                self.enter_step(SessionStep::Results, now);
            }
            (SessionStep::Finish, Some(StateByte::Done)) => self.finish_test(),
            _ => self.break_off(
                ErrorNumber::UNKNOWN_MESSAGE,
                None,
                TestError::OutOfOrder { got: first, step },
            ),
        }
        true
    }

    fn read_parameters(&mut self, now: Time) -> bool {
        let message = self.inbox.take_message(JsonMessage::Parameters);
        let Some(json) = message.transpose() else {
            return false;
        };
        match json.and_then(|json| Ok((TestParameters::decode_json(&json)?, json))) {
            Ok((parameters, json)) => self.request_proof(parameters, json, now),
            Err(error) => self.break_off(ErrorNumber::PARAMETERS, None, error),
        }
        true
    }

    /// Asks the client to prove that it has the key, if there is one.
    fn request_proof(&mut self, parameters: TestParameters, json: Vec<u8>, now: Time) {
        let Some(check) = &mut self.key_check else {
            return self.judge_parameters(parameters, now);
        };
        if let Err(refusal) = check.check_client(&parameters) {
            return self.refuse_test(refusal, None);
        }
        check.parameters = json;
        let nonce = *check.nonce.as_bytes();
        self.parameters = Some(parameters);
        self.send_bytes([&[StateByte::Key.to_byte()], &nonce[..]].concat());
        self.enter_step(SessionStep::Key, now);
    }

    /// Reads the client's proof; returns whether there may be more to read.
    fn read_proof(&mut self, now: Time) -> bool {
        if self.inbox.len() < 1 + MAC_LENGTH {
            return false;
        }
        let proof = self.inbox.take_bytes(1 + MAC_LENGTH);
        let Some((check, parameters)) = self.key_check.take().zip(self.parameters.take()) else {
            return false;
        };
        match check.check_proof(&proof[1..], &parameters) {
            Ok(()) => self.judge_parameters(parameters, now),
            Err(refusal) => self.refuse_test(refusal, None),
        }
        true
    }

    fn judge_parameters(&mut self, parameters: TestParameters, now: Time) {
        match parameters.to_request() {
            Ok(request) => {
                self.connections = data_connections(&request);
                self.streams_deadline =
                    now + self.timeouts.results + Span::from_secs(self.connections.into());
                self.sends = request.direction != Direction::Upload;
                self.transfer_limit = request.duration + request.omit;
                let knows_us = parameters.speaks_fullpipe();
                let consent = if knows_us {
                    StateByte::CreateStreamsTogether
                } else {
                    StateByte::CreateStreams
                };
                self.parameters = Some(parameters);
                self.actions.push_back(ServerAction::ExpectStreams(request));
                self.send_bytes(vec![consent.to_byte()]);
                self.enter_step(SessionStep::Streams, now);
            }
            Err(refusal) => self.refuse_test(refusal, None),
        }
    }

    fn read_results(&mut self, now: Time) -> bool {
        let message = self
            .inbox
            .take_within(JsonMessage::Results, client_results_limit(self.connections));
        let Some(json) = message.transpose() else {
            return false;
        };
        match json.and_then(|json| TestResults::decode_json(&json, self.connections)) {
            Ok(results) => {
                // Only servers have output; a client's would be held for nothing.
                self.client_results = TestResults {
                    server_output: None,
                    ..results
                };
                self.actions.push_back(ServerAction::CollectResults {
                    report: self.wants_report(),
                });
                self.enter_step(SessionStep::LocalResults, now);
            }
            Err(error) => self.break_off(ErrorNumber::RESULTS, None, error),
        }
        true
    }

    fn wants_report(&self) -> bool {
        self.parameters
            .as_ref()
            .is_some_and(TestParameters::speaks_fullpipe)
    }

    fn enter_step(&mut self, step: SessionStep, now: Time) {
        self.phase = Some(step);
        self.wait = match step {
            SessionStep::Transfer => self.transfer_limit + TRANSFER_GRACE,
            SessionStep::Results => self.timeouts.results,
            SessionStep::Streams => self
                .timeouts
                .reply
                .min(self.streams_deadline.duration_since(now)),
            _ => self.timeouts.reply,
        };
        self.deadline = now + self.wait;
    }

    fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.actions.push_back(ServerAction::Send(bytes));
    }

    /// Always sends both numbers: iperf3 clients wait for the second.
    fn break_off(&mut self, number: ErrorNumber, os_error: Option<i32>, error: TestError) {
        if number == ErrorNumber::BUSY {
            self.send_bytes(vec![StateByte::AccessDenied.to_byte()]);
            return self.fail_test(error);
        }
        let mut bytes = vec![StateByte::ServerError.to_byte()];
        bytes.extend(number.get().to_be_bytes());
        bytes.extend(os_error.unwrap_or(0).to_be_bytes());
        self.send_bytes(bytes);
        self.fail_test(error);
    }

    fn finish_test(&mut self) {
        let results = std::mem::take(&mut self.client_results);
        self.end_session(ServerAction::Finished(results));
    }

    fn fail_test(&mut self, error: TestError) {
        self.end_session(ServerAction::Failed(error));
    }

    fn end_session(&mut self, last: ServerAction) {
        self.actions.push_back(last);
        self.phase = None;
        self.inbox.clear_bytes();
    }
}

#[cfg(test)]
mod tests;
