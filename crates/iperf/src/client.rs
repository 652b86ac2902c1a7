use std::collections::VecDeque;

use fullpipe_record::{Direction, EndReport, Request};
use fullpipe_units::{Span, Time};

use crate::error::ServerError;
use crate::inbox::{Inbox, PREFIX};
use crate::{
    Cookie, Error, ErrorNumber, Key, Message, Nonce, Parameters, Refusal, Results, State, Step, Timeouts,
    data_connections, report,
};

/// The next step for the driver of a [`Client`].
#[derive(Debug, Clone, PartialEq)]
pub enum ClientAction {
    /// Write these bytes to the control connection.
    Send(Vec<u8>),
    /// Open data connections to the same port, those on which this end sends first (see [`crate::direction_of`]); then
    /// call [`Client::streams_opened`] or [`Client::open_failed`]. The server numbers them as they arrive. With TCP the
    /// cookie is written first on each; with UDP a [`crate::udp::HELLO`] is sent and its reply awaited.
    OpenStreams {
        /// Number of data connections.
        count: u16,
        /// True if the server answers hellos that arrive together, or twice. An iperf3 server takes any datagram for
        /// the data of the stream that it opened last.
        together: bool,
    },
    /// Let data flow. Call [`Client::transfer_finished`] when the duration, with the omitted time, or the bytes have
    /// passed. In a download keep reading until [`ClientAction::CollectResults`] comes: a server whose write blocks
    /// cannot answer.
    StartTransfer,
    /// The server reported on itself while data flows, as one that is fullpipe does now and then: its settings and
    /// sockets, or what it has seen up to [`EndReport::until`]. Its report with its results replaces it.
    Reported(Box<EndReport>),
    /// Stop what still flows and give [`Client::local_results`].
    CollectResults,
    /// The test is complete, with what the server counted. Write what was to be sent, then close.
    Finished(Results),
    /// The test ended early. Write what was to be sent, close, and keep what was measured so far.
    Failed(Error),
}

/// The client's side of one test.
///
/// Every step has its deadline: one reply time, or for each data connection one; for the server's results a results
/// time in all, within which it is never silent for a reply time; for the transfer its own duration, omitted time
/// included, and 10 s (24 hours and 10 s where bytes limit it). After the test ended, in either way, calls do nothing.
#[derive(Debug)]
pub struct Client {
    parameters: Parameters,
    cookie: Cookie,
    key: Option<Key>,
    connections: u16,
    sends: bool,
    transfer_limit: Span,
    timeouts: Timeouts,
    phase: Phase,
    wait: Span,
    deadline: Time,
    /// When the server's results must be complete.
    results_deadline: Time,
    inbox: Inbox,
    /// Reports that the server may still send.
    reports_left: u64,
    actions: VecDeque<ClientAction>,
    server_results: Results,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    At(Step),
    /// The server announced an error at this step; its numbers are due.
    Refused(Step),
    Over,
}

/// Time by which the driver may end the transfer later than agreed.
const TRANSFER_GRACE: Span = Span::from_secs(10);

/// Time that the numbers behind an error may take. They are one write in most releases; in some the second never comes.
const NUMBERS_WAIT: Span = Span::from_secs(1);

/// Two numbers of 32 bits.
const NUMBERS_LENGTH: usize = 8;

/// Bytes that a server may send while data connections are being opened: 1, 2, and an error with its numbers.
const MAX_HELD: usize = 3 + NUMBERS_LENGTH;

/// The first bytes that a fullpipe server sends when the data connections are open.
const STARTED: [u8; 3] = [State::TestStart.byte(), State::TestRunning.byte(), State::Report.byte()];

/// The longest report.
const MAX_REPORT: u64 = PREFIX as u64 + Message::Report.limit().get();

/// Reports that are accepted however short a test is. A server sends one a second.
const MIN_REPORTS: u64 = 100;

impl Client {
    /// Starts a test over a control connection that is open: the cookie is the first thing to send.
    ///
    /// # Errors
    ///
    /// Refuses a request that [`Parameters::from_request`] refuses.
    pub fn new(request: &Request, cookie: Cookie, now: Time, timeouts: Timeouts) -> Result<Self, Refusal> {
        Self::with_parameters(Parameters::from_request(request)?, cookie, now, timeouts)
    }

    /// Starts a test with `parameters` that ask for more than a request can say.
    ///
    /// # Errors
    ///
    /// Refuses what [`Parameters::to_request`] refuses.
    pub fn with_parameters(
        parameters: Parameters,
        cookie: Cookie,
        now: Time,
        timeouts: Timeouts,
    ) -> Result<Self, Refusal> {
        let agreed = parameters.to_request()?;
        let transfer_limit = agreed.duration + agreed.omit;
        let reports = MIN_REPORTS + 2 * transfer_limit.as_nanos().div_ceil(1_000_000_000);
        Ok(Self {
            connections: data_connections(&agreed),
            sends: agreed.direction != Direction::Download,
            transfer_limit,
            reports_left: if parameters.speaks_fullpipe() { reports } else { 0 },
            parameters,
            cookie,
            key: None,
            timeouts,
            phase: Phase::At(Step::Greeting),
            wait: timeouts.reply,
            deadline: now + timeouts.reply,
            results_deadline: Time::ZERO,
            inbox: Inbox::default(),
            actions: VecDeque::from([ClientAction::Send(cookie.as_bytes().to_vec())]),
            server_results: Results::default(),
        })
    }

    /// Proves that this end has `key` to a server that asks for it.
    #[must_use]
    pub fn with_key(self, key: Key) -> Self {
        Self { key: Some(key), ..self }
    }

    /// The next thing to do, oldest first. Ask until there is none, after every other call.
    pub fn next_action(&mut self) -> Option<ClientAction> {
        self.actions.pop_front()
    }

    /// When to call [`Client::tick`]; `None` once the test is over.
    pub fn deadline(&self) -> Option<Time> {
        (self.phase != Phase::Over).then_some(self.deadline)
    }

    /// Bytes came on the control connection, cut anywhere.
    pub fn receive(&mut self, now: Time, bytes: &[u8]) {
        if self.phase == Phase::Over {
            return;
        }
        self.inbox.push(bytes);
        if self.phase == Phase::At(Step::Results) {
            self.wait_for_more_results(now);
        }
        self.read_inbox(now);
    }

    /// The data connections are open.
    pub fn streams_opened(&mut self, now: Time) {
        if self.phase == Phase::At(Step::Streams) {
            self.enter(Step::Start, now);
            self.read_inbox(now);
        }
    }

    /// The data connections cannot be opened, because of `why`. The server is informed, so that it is free again at
    /// once.
    pub fn open_failed(&mut self, why: impl Into<String>) {
        if self.phase == Phase::At(Step::Streams) {
            self.terminate(Error::Streams { why: why.into() });
        }
    }

    /// The transfer is over, or shall end now with the results so far.
    pub fn transfer_finished(&mut self, now: Time) {
        if self.phase == Phase::At(Step::Transfer) {
            self.send(vec![State::TestEnd.byte()]);
            self.enter(Step::End, now);
        }
    }

    /// Passes on the counts of this end. A report in them is not sent, nor is output.
    pub fn local_results(&mut self, now: Time, results: Results) {
        if self.phase == Phase::At(Step::LocalResults) {
            self.send(Results { report: None, server_output: None, ..results }.encode(self.sends));
            self.enter(Step::Results, now);
            self.results_deadline = now + self.timeouts.results;
            self.read_inbox(now);
        }
    }

    /// The user wants to stop at once, without the server's results; [`Client::transfer_finished`] gets those too.
    pub fn interrupt(&mut self) {
        if let Some(step) = self.step() {
            self.terminate(Error::ClientTerminated { step });
        }
    }

    /// The control connection was closed by the server or broke.
    pub fn closed(&mut self) {
        match self.phase {
            // All that the test was for is here; one byte of courtesy is missing.
            Phase::At(Step::Finish) => self.finish(),
            Phase::At(step) => self.fail(Error::Closed { step }),
            Phase::Refused(step) => self.conclude_refusal(step),
            Phase::Over => {}
        }
    }

    /// Gives up whatever is overdue at `now`.
    pub fn tick(&mut self, now: Time) {
        if now < self.deadline {
            return;
        }
        match self.phase {
            Phase::At(step) => self.fail(Error::Timeout { step, after: self.wait }),
            Phase::Refused(step) => self.conclude_refusal(step),
            Phase::Over => {}
        }
    }

    fn read_inbox(&mut self, now: Time) {
        while self.read_one(now) {}
    }

    /// Understands one state or message; whether there may be more.
    fn read_one(&mut self, now: Time) -> bool {
        let Some(first) = self.inbox.first() else { return false };
        match self.phase {
            Phase::Over => false,
            Phase::Refused(step) => {
                if self.inbox.len() >= NUMBERS_LENGTH {
                    self.conclude_refusal(step);
                }
                false
            }
            Phase::At(step) => match State::from_byte(first) {
                // No message within its limit begins with one of these bytes, so they mean the same everywhere.
                Some(ending @ (State::AccessDenied | State::ServerError | State::ServerTerminate)) => {
                    self.inbox.take(1);
                    self.read_ending(ending, step, now);
                    true
                }
                _ if step == Step::Results => self.read_results(now),
                // The server may be faster than our own driver.
                _ if matches!(step, Step::Streams | Step::LocalResults) && self.may_wait() => false,
                Some(State::Key) if step == Step::Parameters => self.read_nonce(now),
                Some(State::Report) if self.takes_reports(step) => self.read_report(),
                state => {
                    self.inbox.take(1);
                    self.read_state(state, first, step, now);
                    true
                }
            },
        }
    }

    /// Returns true if what came too early is no more than a server may say before it waits for us.
    fn may_wait(&self) -> bool {
        let report = if self.inbox.starts_with(&STARTED) { MAX_REPORT } else { 0 };
        self.inbox.len() as u64 <= MAX_HELD as u64 + report
    }

    /// Only a server that knows that it talks with fullpipe reports anything, and only from when data flows until it
    /// has received the end of the test.
    fn takes_reports(&self, step: Step) -> bool {
        matches!(step, Step::Transfer | Step::End) && self.reports_left > 0
    }

    /// Reads a server's nonce and answers with the proof; returns whether there may be more to read.
    fn read_nonce(&mut self, now: Time) -> bool {
        if self.inbox.len() < 1 + Nonce::LENGTH {
            return false;
        }
        let random = self.inbox.take(1 + Nonce::LENGTH);
        let Some(random) = random[1..].first_chunk() else { return false };
        match &self.key {
            Some(key) => {
                let proof = key.prove(&self.cookie, &Nonce::new(*random), &self.parameters.encode()[PREFIX..]);
                self.send([&[State::Key.byte()], &proof[..]].concat());
                self.enter(Step::Key, now);
            }
            None => self.terminate(Error::KeyMissing),
        }
        true
    }

    fn read_report(&mut self) -> bool {
        let message = self.inbox.take_behind_state(Message::Report);
        match message.and_then(|json| json.map(|json| report::decode(&json, self.connections)).transpose()) {
            Ok(None) => return false,
            Ok(Some(report)) => {
                self.reports_left -= 1;
                self.actions.push_back(ClientAction::Reported(Box::new(report)));
            }
            Err(error) => self.fail(error),
        }
        true
    }

    fn read_ending(&mut self, ending: State, step: Step, now: Time) {
        match ending {
            State::AccessDenied => self.fail(Error::Busy),
            State::ServerTerminate => self.fail(Error::ServerTerminated { step }),
            _ => {
                self.phase = Phase::Refused(step);
                self.wait = NUMBERS_WAIT;
                self.deadline = now + NUMBERS_WAIT;
            }
        }
    }

    fn read_state(&mut self, state: Option<State>, got: u8, step: Step, now: Time) {
        match (step, state) {
            (Step::Greeting, Some(State::ParameterExchange)) => {
                self.send(self.parameters.encode());
                self.enter(Step::Parameters, now);
            }
            (Step::Greeting, _) => self.fail(Error::NotIperf3 { first: got }),
            (Step::Parameters | Step::Key, Some(state @ (State::CreateStreams | State::CreateStreamsTogether))) => {
                let together = state == State::CreateStreamsTogether;
                self.actions.push_back(ClientAction::OpenStreams { count: self.connections, together });
                self.enter(Step::Streams, now);
            }
            (Step::Start, Some(State::TestStart)) => self.enter(Step::Preparation, now),
            (Step::Preparation, Some(State::TestRunning)) => {
                self.actions.push_back(ClientAction::StartTransfer);
                self.enter(Step::Transfer, now);
            }
            (Step::End, Some(State::ExchangeResults)) => {
                self.actions.push_back(ClientAction::CollectResults);
                self.enter(Step::LocalResults, now);
            }
            (Step::Finish, Some(State::DisplayResults)) => self.finish(),
            _ => self.fail(Error::OutOfOrder { got, step }),
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
        let message = self.inbox.take_message(Message::Results);
        match message.and_then(|json| json.map(|json| Results::decode(&json, self.connections)).transpose()) {
            Ok(None) => return false,
            Ok(Some(results)) => {
                self.server_results = results;
                self.enter(Step::Finish, now);
            }
            Err(error) => self.fail(error),
        }
        true
    }

    /// Takes what has come of the server's two numbers.
    fn conclude_refusal(&mut self, step: Step) {
        let bytes = self.inbox.take(NUMBERS_LENGTH);
        let mut numbers = bytes.as_chunks().0.iter().map(|four| i32::from_be_bytes(*four));
        let reason = ServerError {
            number: numbers.next().map(ErrorNumber::new),
            os_error: numbers.next().filter(|errno| *errno != 0),
        };
        self.fail(Error::Server { step, reason });
    }

    fn enter(&mut self, step: Step, now: Time) {
        self.phase = Phase::At(step);
        self.wait = match step {
            Step::Streams => self.timeouts.reply * u64::from(self.connections),
            Step::Transfer => self.transfer_limit + TRANSFER_GRACE,
            _ => self.timeouts.reply,
        };
        self.deadline = now + self.wait;
    }

    fn step(&self) -> Option<Step> {
        match self.phase {
            Phase::At(step) | Phase::Refused(step) => Some(step),
            Phase::Over => None,
        }
    }

    fn send(&mut self, bytes: Vec<u8>) {
        self.actions.push_back(ClientAction::Send(bytes));
    }

    fn terminate(&mut self, error: Error) {
        self.send(vec![State::ClientTerminate.byte()]);
        self.fail(error);
    }

    fn finish(&mut self) {
        self.send(vec![State::Done.byte()]);
        let results = std::mem::take(&mut self.server_results);
        self.end(ClientAction::Finished(results));
    }

    fn fail(&mut self, error: Error) {
        self.end(ClientAction::Failed(error));
    }

    fn end(&mut self, last: ClientAction) {
        self.actions.push_back(last);
        self.phase = Phase::Over;
        self.inbox.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client_in(step: Step) -> Client {
        let cookie = Cookie::from_random([0; 36]);
        let mut client = Client::new(&Request::default(), cookie, Time::ZERO, Timeouts::default()).unwrap();
        client.enter(step, Time::ZERO);
        client
    }

    #[test]
    fn no_more_than_one_message_is_held() {
        let limit = usize::try_from(Message::Results.limit().get()).unwrap();
        let chunk = vec![b'x'; 60_000];
        let mut client = client_in(Step::Results);
        client.receive(Time::ZERO, &u32::try_from(limit).unwrap().to_be_bytes());
        let mut most = 0;
        for _ in 0..400 {
            client.receive(Time::ZERO, &chunk);
            most = most.max(client.inbox.len());
        }
        assert!(most > limit / 2 && most <= limit + 4, "{most}");
        assert_eq!((client.phase, client.inbox.len()), (Phase::Over, 0));
    }

    proptest! {
        #[test]
        fn outside_a_message_next_to_nothing_is_held(
            chunks in prop::collection::vec(prop::collection::vec(0_u8..17, 0..6), 0..40),
            step in prop::sample::select(vec![Step::Greeting, Step::Streams, Step::Transfer, Step::LocalResults]),
        ) {
            let mut client = client_in(step);
            for chunk in chunks {
                client.receive(Time::ZERO, &chunk);
                prop_assert!(client.inbox.len() <= MAX_HELD);
            }
        }
    }
}
