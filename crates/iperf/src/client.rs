use std::collections::VecDeque;

use fullpipe_record::{Direction, EndReport, Request};
use fullpipe_units::{Span, Time};

use crate::error::ServerError;
use crate::inbox::{ControlInbox, PREFIX};
use crate::{
    ErrorNumber, JsonMessage, ServerNonce, SessionStep, SharedKey, StateByte, TestCookie,
    TestError, TestParameters, TestRefusal, TestResults, Timeouts, data_connections, report,
};

/// The next step for the driver of a [`ClientSession`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientAction {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// Open data connections to the same port, those on which this end sends first (see
    /// [`crate::direction_of`]); then call [`ClientSession::streams_opened`] or
    /// [`ClientSession::open_failed`]. The server numbers them as they arrive. With TCP the cookie
    /// is written first on each; with UDP a [`crate::udp::HELLO`] is sent and its reply awaited.
    OpenStreams {
        /// Number of data connections.
        count: u16,
        /// True if the server answers hellos that arrive together, or twice. An iperf3 server takes
        /// any datagram for the data of the stream that it opened last.
        together: bool,
    },
    /// Let data flow. Call [`ClientSession::transfer_finished`] when the duration, with the omitted
    /// time, or the bytes have passed. In a download keep reading until
    /// [`ClientAction::CollectResults`] comes: a server whose write blocks cannot answer.
    StartTransfer,
    /// The server reported on itself while data flows, as one that is fullpipe does now and then:
    /// its settings and sockets, or what it has seen up to [`EndReport::until`]. Its report with
    /// its results replaces it.
    Reported(Box<EndReport>),
    /// Stop what still flows and give [`ClientSession::local_results`].
    CollectResults,
    /// The test is complete, with what the server counted. Write what was to be sent, then close.
    Finished(TestResults),
    /// The test ended early. Write what was to be sent, close, and keep what was measured so far.
    Failed(TestError),
}

/// The client's side of one test.
///
/// Every step has its deadline: one reply time, or for each data connection one; for the server's
/// results a results time in all, within which it is never silent for a reply time; for the
/// transfer its own duration, omitted time included, and 10 s (24 hours and 10 s where bytes limit
/// it). After the test ended, in either way, calls do nothing.
#[derive(Debug)]
pub struct ClientSession {
    parameters: TestParameters,
    cookie: TestCookie,
    key: Option<SharedKey>,
    connections: u16,
    sends: bool,
    transfer_limit: Span,
    timeouts: Timeouts,
    phase: ClientPhase,
    wait: Span,
    deadline: Time,
    /// When the server's results must be complete.
    results_deadline: Time,
    inbox: ControlInbox,
    /// Reports that the server may still send.
    reports_left: u64,
    actions: VecDeque<ClientAction>,
    server_results: TestResults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientPhase {
    At(SessionStep),
    /// The server announced an error at this step; its numbers are due.
    Refused(SessionStep),
    Over,
}

/// Time by which the driver may end the transfer later than agreed.
const TRANSFER_GRACE: Span = Span::from_secs(10);

/// Time that the numbers behind an error may take. They are one write in most releases; in some the
/// second never comes.
const NUMBERS_WAIT: Span = Span::from_secs(1);

/// Two numbers of 32 bits.
const NUMBERS_LENGTH: usize = 8;

/// Bytes that a server may send while data connections are being opened: 1, 2, and an error with
/// its numbers.
const MAX_HELD: usize = 3 + NUMBERS_LENGTH;

/// The first bytes that a fullpipe server sends when the data connections are open.
const STARTED: [u8; 3] = [
    StateByte::TestStart.to_byte(),
    StateByte::TestRunning.to_byte(),
    StateByte::Report.to_byte(),
];

/// The longest report.
const MAX_REPORT: u64 = PREFIX as u64 + JsonMessage::Report.max_length().get();

/// Reports that are accepted however short a test is. A server sends one a second.
const MIN_REPORTS: u64 = 100;

impl ClientSession {
    /// Starts a test over a control connection that is open: the cookie is the first thing to send.
    ///
    /// # Errors
    ///
    /// Refuses a request that [`TestParameters::from_request`] refuses.
    pub fn new(
        request: &Request,
        cookie: TestCookie,
        now: Time,
        timeouts: Timeouts,
    ) -> Result<Self, TestRefusal> {
        Self::with_parameters(
            TestParameters::from_request(request)?,
            cookie,
            now,
            timeouts,
        )
    }

    /// Starts a test with `parameters` that ask for more than a request can say.
    ///
    /// # Errors
    ///
    /// Refuses what [`TestParameters::to_request`] refuses.
    pub fn with_parameters(
        parameters: TestParameters,
        cookie: TestCookie,
        now: Time,
        timeouts: Timeouts,
    ) -> Result<Self, TestRefusal> {
        let agreed = parameters.to_request()?;
        let transfer_limit = agreed.duration + agreed.omit;
        let reports = MIN_REPORTS + 2 * transfer_limit.as_nanos().div_ceil(1_000_000_000);
        Ok(Self {
            connections: data_connections(&agreed),
            sends: agreed.direction != Direction::Download,
            transfer_limit,
            reports_left: if parameters.speaks_fullpipe() {
                reports
            } else {
                0
            },
            parameters,
            cookie,
            key: None,
            timeouts,
            phase: ClientPhase::At(SessionStep::Greeting),
            wait: timeouts.reply,
            deadline: now + timeouts.reply,
            results_deadline: Time::ZERO,
            inbox: ControlInbox::default(),
            actions: VecDeque::from([ClientAction::Send(cookie.as_bytes().to_vec())]),
            server_results: TestResults::default(),
        })
    }

    /// Proves that this end has `key` to a server that asks for it.
    #[must_use]
    pub fn with_key(self, key: SharedKey) -> Self {
        Self {
            key: Some(key),
            ..self
        }
    }

    /// The next thing to do, oldest first. Ask until there is none, after every other call.
    pub fn next_action(&mut self) -> Option<ClientAction> {
        self.actions.pop_front()
    }

    /// When to call [`ClientSession::check_deadline`]; `None` once the test is over.
    pub fn next_deadline(&self) -> Option<Time> {
        (self.phase != ClientPhase::Over).then_some(self.deadline)
    }

    /// Bytes came on the control connection, cut anywhere.
    pub fn receive_bytes(&mut self, now: Time, bytes: &[u8]) {
        if self.phase == ClientPhase::Over {
            return;
        }
        self.inbox.push(bytes);
        if self.phase == ClientPhase::At(SessionStep::Results) {
            self.wait_for_more_results(now);
        }
        self.read_inbox(now);
    }

    /// The data connections are open.
    pub fn streams_opened(&mut self, now: Time) {
        if self.phase == ClientPhase::At(SessionStep::Streams) {
            self.enter_step(SessionStep::Start, now);
            self.read_inbox(now);
        }
    }

    /// The data connections cannot be opened, because of `why`. The server is informed, so that it
    /// is free again at once.
    pub fn open_failed(&mut self, why: impl Into<String>) {
        if self.phase == ClientPhase::At(SessionStep::Streams) {
            self.terminate_test(TestError::Streams { why: why.into() });
        }
    }

    /// The transfer is over, or shall end now with the results so far.
    pub fn transfer_finished(&mut self, now: Time) {
        if self.phase == ClientPhase::At(SessionStep::Transfer) {
            self.send_bytes(vec![StateByte::TestEnd.to_byte()]);
            self.enter_step(SessionStep::End, now);
        }
    }

    /// Passes on the counts of this end. A report in them is not sent, nor is output.
    pub fn local_results(&mut self, now: Time, results: TestResults) {
        if self.phase == ClientPhase::At(SessionStep::LocalResults) {
            self.send_bytes(
                TestResults {
                    report: None,
                    server_output: None,
                    ..results
                }
                .encode_message(self.sends),
            );
            self.enter_step(SessionStep::Results, now);
            self.results_deadline = now + self.timeouts.results;
            self.read_inbox(now);
        }
    }

    /// The user wants to stop at once, without the server's results;
    /// [`ClientSession::transfer_finished`] gets those too.
    pub fn interrupt_test(&mut self) {
        if let Some(step) = self.current_step() {
            self.terminate_test(TestError::ClientTerminated { step });
        }
    }

    /// The control connection was closed by the server or broke.
    pub fn connection_closed(&mut self) {
        match self.phase {
            // All that the test was for is here; one byte of courtesy is missing.
            ClientPhase::At(SessionStep::Finish) => self.finish_test(),
            ClientPhase::At(step) => self.fail_test(TestError::Closed { step }),
            ClientPhase::Refused(step) => self.conclude_refusal(step),
            ClientPhase::Over => {}
        }
    }

    /// Gives up whatever is overdue at `now`.
    pub fn check_deadline(&mut self, now: Time) {
        if now < self.deadline {
            return;
        }
        match self.phase {
            ClientPhase::At(step) => self.fail_test(TestError::Timeout {
                step,
                after: self.wait,
            }),
            ClientPhase::Refused(step) => self.conclude_refusal(step),
            ClientPhase::Over => {}
        }
    }

    fn read_inbox(&mut self, now: Time) {
        while self.read_one(now) {}
    }

    /// Understands one state or message; whether there may be more.
    fn read_one(&mut self, now: Time) -> bool {
        let Some(first) = self.inbox.first_byte() else {
            return false;
        };
        match self.phase {
            ClientPhase::Over => false,
            ClientPhase::Refused(step) => {
                if self.inbox.len() >= NUMBERS_LENGTH {
                    self.conclude_refusal(step);
                }
                false
            }
            ClientPhase::At(step) => match StateByte::from_byte(first) {
                // No message within its limit begins with one of these bytes, so they mean the same
                // everywhere.
                Some(
                    ending @ (StateByte::AccessDenied
                    | StateByte::ServerError
                    | StateByte::ServerTerminate),
                ) => {
                    self.inbox.take_bytes(1);
                    self.read_ending(ending, step, now);
                    true
                }
                _ if step == SessionStep::Results => self.read_results(now),
                // The server may be faster than our own driver.
                _ if matches!(step, SessionStep::Streams | SessionStep::LocalResults)
                    && self.may_wait() =>
                {
                    false
                }
                Some(StateByte::Key) if step == SessionStep::Parameters => self.read_nonce(now),
                Some(StateByte::Report) if self.takes_reports(step) => self.read_report(),
                state => {
                    self.inbox.take_bytes(1);
                    self.read_state(state, first, step, now);
                    true
                }
            },
        }
    }

    /// Returns true if what came too early is no more than a server may say before it waits for us.
    fn may_wait(&self) -> bool {
        let report = if self.inbox.starts_with(&STARTED) {
            MAX_REPORT
        } else {
            0
        };
        self.inbox.len() as u64 <= MAX_HELD as u64 + report
    }

    /// Only a server that knows that it talks with fullpipe reports anything, and only from when
    /// data flows until it has received the end of the test.
    fn takes_reports(&self, step: SessionStep) -> bool {
        matches!(step, SessionStep::Transfer | SessionStep::End) && self.reports_left > 0
    }

    /// Reads a server's nonce and answers with the proof; returns whether there may be more to
    /// read.
    fn read_nonce(&mut self, now: Time) -> bool {
        if self.inbox.len() < 1 + ServerNonce::LENGTH {
            return false;
        }
        let random = self.inbox.take_bytes(1 + ServerNonce::LENGTH);
        let Some(random) = random[1..].first_chunk() else {
            return false;
        };
        match &self.key {
            Some(key) => {
                let proof = key.prove_request(
                    &self.cookie,
                    &ServerNonce::new(*random),
                    &self.parameters.encode_message()[PREFIX..],
                );
                self.send_bytes([&[StateByte::Key.to_byte()], &proof[..]].concat());
                self.enter_step(SessionStep::Key, now);
            }
            None => self.terminate_test(TestError::KeyMissing),
        }
        true
    }

    fn read_report(&mut self) -> bool {
        let message = self.inbox.take_behind_state(JsonMessage::Report);
        let Some(json) = message.transpose() else {
            return false;
        };
        match json.and_then(|json| report::decode_report(&json, self.connections)) {
            Ok(report) => {
                self.reports_left -= 1;
                self.actions
                    .push_back(ClientAction::Reported(Box::new(report)));
            }
            Err(error) => self.fail_test(error),
        }
        true
    }

    fn read_ending(&mut self, ending: StateByte, step: SessionStep, now: Time) {
        match ending {
            StateByte::AccessDenied => self.fail_test(TestError::Busy),
            StateByte::ServerTerminate => self.fail_test(TestError::ServerTerminated { step }),
            _ => {
                self.phase = ClientPhase::Refused(step);
                self.wait = NUMBERS_WAIT;
                self.deadline = now + NUMBERS_WAIT;
            }
        }
    }

    fn read_state(&mut self, state: Option<StateByte>, got: u8, step: SessionStep, now: Time) {
        match (step, state) {
            (SessionStep::Greeting, Some(StateByte::ParameterExchange)) => {
                self.send_bytes(self.parameters.encode_message());
                self.enter_step(SessionStep::Parameters, now);
            }
            (SessionStep::Greeting, _) => self.fail_test(TestError::NotIperf3 { first: got }),
            // Whoever has a ticket may load this server only because that wants one.
            (
                SessionStep::Parameters,
                Some(StateByte::CreateStreams | StateByte::CreateStreamsTogether),
            ) if self.parameters.ticket_text().is_some() => {
                self.terminate_test(TestError::TicketUnasked);
            }
            (
                SessionStep::Parameters | SessionStep::Key,
                Some(state @ (StateByte::CreateStreams | StateByte::CreateStreamsTogether)),
            ) => {
                let together = state == StateByte::CreateStreamsTogether;
                self.actions.push_back(ClientAction::OpenStreams {
                    count: self.connections,
                    together,
                });
                self.enter_step(SessionStep::Streams, now);
            }
            (SessionStep::Start, Some(StateByte::TestStart)) => {
                self.enter_step(SessionStep::Preparation, now);
            }
            (SessionStep::Preparation, Some(StateByte::TestRunning)) => {
                self.actions.push_back(ClientAction::StartTransfer);
                self.enter_step(SessionStep::Transfer, now);
            }
            (SessionStep::End, Some(StateByte::ExchangeResults)) => {
                self.actions.push_back(ClientAction::CollectResults);
                self.enter_step(SessionStep::LocalResults, now);
            }
            (SessionStep::Finish, Some(StateByte::DisplayResults)) => self.finish_test(),
            _ => self.fail_test(TestError::OutOfOrder { got, step }),
        }
    }

    /// A part of the results came: the next may take a reply time, as long as all come in time.
    fn wait_for_more_results(&mut self, now: Time) {
        if now + self.timeouts.reply <= self.results_deadline {
            self.deadline = now + self.timeouts.reply;
        } else {
            self.wait = self.timeouts.results;
            self.deadline = self.results_deadline;
        }
    }

    fn read_results(&mut self, now: Time) -> bool {
        let message = self.inbox.take_message(JsonMessage::Results);
        let Some(json) = message.transpose() else {
            return false;
        };
        match json.and_then(|json| TestResults::decode_json(&json, self.connections)) {
            Ok(results) => {
                self.server_results = results;
                self.enter_step(SessionStep::Finish, now);
            }
            Err(error) => self.fail_test(error),
        }
        true
    }

    /// Takes what has come of the server's two numbers.
    fn conclude_refusal(&mut self, step: SessionStep) {
        let bytes = self.inbox.take_bytes(NUMBERS_LENGTH);
        let mut numbers = bytes
            .as_chunks()
            .0
            .iter()
            .map(|four| i32::from_be_bytes(*four));
        let reason = ServerError {
            number: numbers.next().map(ErrorNumber::new),
            os_error: numbers.next().filter(|errno| *errno != 0),
        };
        self.fail_test(TestError::Server { step, reason });
    }

    fn enter_step(&mut self, step: SessionStep, now: Time) {
        self.phase = ClientPhase::At(step);
        self.wait = match step {
            SessionStep::Streams => self.timeouts.reply * u64::from(self.connections),
            SessionStep::Transfer => self.transfer_limit + TRANSFER_GRACE,
            _ => self.timeouts.reply,
        };
        self.deadline = now + self.wait;
    }

    fn current_step(&self) -> Option<SessionStep> {
        match self.phase {
            ClientPhase::At(step) | ClientPhase::Refused(step) => Some(step),
            ClientPhase::Over => None,
        }
    }

    fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.actions.push_back(ClientAction::Send(bytes));
    }

    fn terminate_test(&mut self, error: TestError) {
        self.send_bytes(vec![StateByte::ClientTerminate.to_byte()]);
        self.fail_test(error);
    }

    fn finish_test(&mut self) {
        self.send_bytes(vec![StateByte::Done.to_byte()]);
        let results = std::mem::take(&mut self.server_results);
        self.end_session(ClientAction::Finished(results));
    }

    fn fail_test(&mut self, error: TestError) {
        self.end_session(ClientAction::Failed(error));
    }

    fn end_session(&mut self, last: ClientAction) {
        self.actions.push_back(last);
        self.phase = ClientPhase::Over;
        self.inbox.clear_bytes();
    }
}

#[cfg(test)]
mod tests;
