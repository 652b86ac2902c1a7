//! A client and a server session joined by two pipes, in virtual time, with the bytes cut wherever
//! chance will.

use std::collections::VecDeque;

use fullpipe_iperf::{
    ClientAction, ClientSession, DatagramCounts, ServerAction, ServerOutput, ServerSession,
    SessionStep, StreamResult, TestCookie, TestError, TestParameters, TestResults, Timeouts,
    data_connections, direction_of,
};
use fullpipe_record::{Cpu, Direction, EndReport, Request, Sample, TcpInfo, Transport};
use fullpipe_units::{ByteCount, SegCount, Span, Time};
use proptest::prelude::*;

/// Both drivers and the wire between them. One way takes `DELAY`; data connections are open one
/// delay after the client was asked for them, at both ends.
struct World {
    now: Time,
    client: ClientSession,
    server: ServerSession,
    to_server: Pipe,
    to_client: Pipe,
    connecting: VecDeque<Time>,
    transfer_ends: Option<Time>,
    /// When the server sends a report, and how often it has.
    reports: Option<Time>,
    stated: u64,
    request: Request,
    seen: Seen,
}

/// The events that the two drivers saw, in order.
#[derive(Default)]
struct Seen {
    client_flow: Option<Time>,
    server_flow: Option<Time>,
    server_stop: Option<Time>,
    client_collect: Option<Time>,
    server_request: Option<Request>,
    asked_for_report: Option<bool>,
    stated: Vec<(Time, EndReport)>,
    client_end: Option<ClientAction>,
    server_end: Option<ServerAction>,
}

struct Pipe {
    bytes: VecDeque<(Time, u8)>,
    cuts: Vec<usize>,
    taken: usize,
}

const DELAY: Span = Span::from_millis(50);

impl Pipe {
    fn new(cuts: Vec<usize>) -> Self {
        Self {
            bytes: VecDeque::new(),
            cuts,
            taken: 0,
        }
    }

    fn put(&mut self, now: Time, bytes: &[u8]) {
        self.bytes
            .extend(bytes.iter().map(|byte| (now + DELAY, *byte)));
    }

    /// The next chunk of what has arrived by `now`, as long as the next cut says.
    fn take(&mut self, now: Time) -> Vec<u8> {
        let arrived = self.bytes.iter().take_while(|(at, _)| *at <= now).count();
        let chunk = self.cuts[self.taken % self.cuts.len()].min(arrived);
        self.taken += usize::from(chunk > 0);
        self.bytes.drain(..chunk).map(|(_, byte)| byte).collect()
    }
}

impl World {
    fn new(request: Request, cuts: Vec<usize>) -> Self {
        let cookie = TestCookie::from_random([7; 36]);
        let mut client =
            ClientSession::new(&request, cookie, Time::ZERO, Timeouts::default()).unwrap();
        // The listener reads the cookie, and only then is there a session.
        assert_eq!(
            client.next_action(),
            Some(ClientAction::Send(cookie.as_bytes().to_vec()))
        );
        Self {
            now: Time::ZERO,
            client,
            server: ServerSession::new(Time::ZERO, Timeouts::default()),
            to_server: Pipe::new(cuts.clone()),
            to_client: Pipe::new(cuts),
            connecting: VecDeque::new(),
            transfer_ends: None,
            reports: None,
            stated: 0,
            request,
            seen: Seen::default(),
        }
    }

    fn run(&mut self) {
        while self.seen.client_end.is_none() || self.seen.server_end.is_none() {
            self.settle();
            let next = [
                self.to_server.bytes.front().map(|(at, _)| *at),
                self.to_client.bytes.front().map(|(at, _)| *at),
                self.connecting.front().copied(),
                self.transfer_ends,
                self.reports,
                self.client.next_deadline(),
                self.server.next_deadline(),
            ];
            let Some(next) = next.into_iter().flatten().min() else {
                return;
            };
            self.now = self.now.max(next);
        }
    }

    /// Everything that happens at this moment.
    fn settle(&mut self) {
        loop {
            let mut busy = false;
            while let Some(action) = self.client.next_action() {
                busy = true;
                self.drive_client(action);
            }
            while let Some(action) = self.server.next_action() {
                busy = true;
                self.drive_server(action);
            }
            let (up, down) = (self.to_server.take(self.now), self.to_client.take(self.now));
            busy |= !up.is_empty() || !down.is_empty();
            self.server.receive_bytes(self.now, &up);
            self.client.receive_bytes(self.now, &down);
            if self.connecting.pop_front_if(|at| *at <= self.now).is_some() {
                busy = true;
                assert!(self.server.stream_connected(self.now));
                if self.connecting.is_empty() {
                    self.client.streams_opened(self.now);
                }
            }
            if self.transfer_ends.take_if(|at| *at <= self.now).is_some() {
                busy = true;
                self.client.transfer_finished(self.now);
            }
            if self.reports.is_some_and(|at| at <= self.now) {
                busy = true;
                // Received or not: it goes on when the client has ended the test.
                self.server.send_report(&stated(self.stated));
                self.stated += 1;
                self.reports = (self.stated < 20).then(|| self.now + Span::from_secs(1));
            }
            if !busy {
                self.client.check_deadline(self.now);
                self.server.check_deadline(self.now);
                return;
            }
        }
    }

    fn drive_client(&mut self, action: ClientAction) {
        match action {
            ClientAction::Send(bytes) => self.to_server.put(self.now, &bytes),
            ClientAction::OpenStreams { count, together } => {
                assert_eq!(count, data_connections(&self.request));
                assert!(together, "both ends are fullpipe");
                self.connecting.extend((0..count).map(|_| self.now + DELAY));
            }
            ClientAction::StartTransfer => {
                self.seen.client_flow = Some(self.now);
                self.transfer_ends = Some(self.now + self.request.omit + self.request.duration);
            }
            ClientAction::Reported(report) => self.seen.stated.push((self.now, *report)),
            ClientAction::CollectResults => {
                self.seen.client_collect = Some(self.now);
                self.client
                    .local_results(self.now, results_of(Side::Client, &self.request));
            }
            end => assert!(
                self.seen.client_end.replace(end).is_none(),
                "a test ends once"
            ),
        }
    }

    fn drive_server(&mut self, action: ServerAction) {
        match action {
            ServerAction::Send(bytes) | ServerAction::Report(bytes) => {
                self.to_client.put(self.now, &bytes);
            }
            ServerAction::ExpectStreams(request) => self.seen.server_request = Some(request),
            ServerAction::StartTransfer => {
                self.seen.server_flow = Some(self.now);
                self.reports = Some(self.now);
            }
            ServerAction::StopTransfer => self.seen.server_stop = Some(self.now),
            ServerAction::CollectResults { report } => {
                self.seen.asked_for_report = Some(report);
                self.server
                    .local_results(self.now, results_of(Side::Server, &self.request));
            }
            end => assert!(
                self.seen.server_end.replace(end).is_none(),
                "a test ends once"
            ),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Server,
}

fn results_of(side: Side, request: &Request) -> TestResults {
    let sends = |n| (side == Side::Client) == (direction_of(request, n) == Direction::Upload);
    let stream = |n: u16| StreamResult {
        stream: n,
        bytes: ByteCount::new(1000 + u64::from(n)),
        retransmits: sends(n).then_some(SegCount::new(u64::from(n))),
        datagrams: DatagramCounts::from_sender(u64::from(n), 0),
        to: request.duration,
        ..StreamResult::default()
    };
    let sample = Sample {
        at: Span::from_millis(100),
        stream: 0,
        bytes: ByteCount::new(5),
        tcp: TcpInfo {
            rtt: Some(Span::from_millis(100)),
            ..TcpInfo::default()
        },
        memory: None,
    };
    let report = EndReport {
        samples: vec![sample],
        ..EndReport::default()
    };
    TestResults {
        cpu: Cpu::default(),
        congestion: Some(if sends(0) { "bbr" } else { "cubic" }.to_owned()),
        streams: (0..data_connections(request)).map(stream).collect(),
        report: Some(Box::new(report)),
        ..TestResults::default()
    }
}

/// Returns what a server reports so many seconds after the data began to flow.
fn stated(second: u64) -> EndReport {
    EndReport {
        until: Some(Span::from_secs(second)),
        ..EndReport::default()
    }
}

fn any_request() -> impl Strategy<Value = Request> {
    let transport = prop::sample::select(vec![Transport::Tcp, Transport::Udp]);
    let direction = prop::sample::select(vec![
        Direction::Upload,
        Direction::Download,
        Direction::Both,
    ]);
    (
        transport,
        direction,
        prop::sample::select(vec![1_u16, 4]),
        0_u64..5,
    )
        .prop_map(|(transport, direction, streams, omit)| Request {
            transport,
            direction,
            streams,
            omit: Span::from_secs(omit),
            block: ByteCount::new(1448),
            ..Request::default()
        })
}

proptest! {
    #[test]
    fn a_test_comes_to_its_end_however_its_bytes_are_cut(
        request in any_request(),
        cuts in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let mut world = World::new(request.clone(), cuts);
        world.run();
        let seen = world.seen;
        let server_saw = TestResults { report: None, ..results_of(Side::Client, &request) };
        prop_assert_eq!(seen.client_end, Some(ClientAction::Finished(results_of(Side::Server, &request))));
        prop_assert_eq!(seen.server_end, Some(ServerAction::Finished(server_saw)));
        prop_assert_eq!(seen.server_request, Some(request.clone()));
        prop_assert_eq!(seen.asked_for_report, Some(true));
        let flow = seen.client_flow.unwrap();
        let agreed = request.omit + request.duration;
        prop_assert_eq!(seen.server_stop.unwrap().duration_since(flow), agreed + DELAY);
        // The client keeps draining for a round trip, until the server has stopped.
        prop_assert_eq!(seen.client_collect.unwrap().duration_since(flow), agreed + DELAY * 2);
        prop_assert_eq!(flow.duration_since(seen.server_flow.unwrap()), DELAY);
        // All that the server says until it learns that the test is over, each in its time.
        let expected: Vec<_> = (0..=agreed.as_nanos() / 1_000_000_000)
            .map(|second| (flow + Span::from_secs(second), stated(second)))
            .collect();
        prop_assert_eq!(seen.stated, expected);
    }
}

/// Returns what takes a machine from one step to the next.
type ClientMove = fn(&mut ClientSession, Time);
type ServerMove<'a> = &'a dyn Fn(&mut ServerSession, Time);

/// A client that is at `step`, with a server that said what it must to get there, and the time at
/// which it got there.
fn client_at(step: SessionStep, request: &Request) -> (ClientSession, Time) {
    let mut client = ClientSession::new(
        request,
        TestCookie::from_random([0; 36]),
        Time::ZERO,
        Timeouts::default(),
    )
    .unwrap();
    let mut now = Time::ZERO;
    let moves: [(SessionStep, ClientMove); 9] = [
        (SessionStep::Greeting, |client, now| {
            client.receive_bytes(now, &[9]);
        }),
        (SessionStep::Parameters, |client, now| {
            client.receive_bytes(now, &[10]);
        }),
        (SessionStep::Streams, ClientSession::streams_opened),
        (SessionStep::Start, |client, now| {
            client.receive_bytes(now, &[1]);
        }),
        (SessionStep::Preparation, |client, now| {
            client.receive_bytes(now, &[2]);
        }),
        (SessionStep::Transfer, ClientSession::transfer_finished),
        (SessionStep::End, |client, now| {
            client.receive_bytes(now, &[13]);
        }),
        (SessionStep::LocalResults, |client, now| {
            client.local_results(now, TestResults::default());
        }),
        (SessionStep::Results, |client, now| {
            client.receive_bytes(now, b"\x00\x00\x00\x0e{\"streams\":[]}");
        }),
    ];
    for (_, go_on) in moves.iter().take_while(|(at, _)| *at != step) {
        now = now + Span::from_secs(1);
        go_on(&mut client, now);
    }
    while client.next_action().is_some() {}
    (client, now)
}

const CLIENT_STEPS: [SessionStep; 10] = [
    SessionStep::Greeting,
    SessionStep::Parameters,
    SessionStep::Streams,
    SessionStep::Start,
    SessionStep::Preparation,
    SessionStep::Transfer,
    SessionStep::End,
    SessionStep::LocalResults,
    SessionStep::Results,
    SessionStep::Finish,
];

fn last_action(client: &mut ClientSession) -> Option<ClientAction> {
    std::iter::from_fn(|| client.next_action()).last()
}

fn failure(client: &mut ClientSession) -> TestError {
    match last_action(client) {
        Some(ClientAction::Failed(error)) => error,
        other => panic!("the test should have failed, not {other:?}"),
    }
}

fn four_streams() -> Request {
    Request {
        streams: 4,
        omit: Span::from_secs(2),
        ..Request::default()
    }
}

#[test]
fn a_client_that_is_stalled_gives_up_at_its_deadline_in_every_step() {
    for step in CLIENT_STEPS {
        let (mut client, since) = client_at(step, &four_streams());
        let after = Span::from_secs(match step {
            SessionStep::Streams => 4 * 10,
            SessionStep::Transfer => 10 + 2 + 10,
            _ => 10,
        });
        let deadline = client.next_deadline().unwrap();
        assert_eq!(deadline, since + after, "{step:?}");
        client.check_deadline(Time::from_nanos(deadline.as_nanos() - 1));
        assert_eq!(client.next_action(), None, "{step:?}");
        client.check_deadline(deadline);
        assert_eq!(failure(&mut client), TestError::Timeout { step, after });
        assert_eq!(client.next_deadline(), None);
    }
}

#[test]
fn a_server_that_says_nothing_may_be_iperf2() {
    let (mut client, _) = client_at(SessionStep::Greeting, &four_streams());
    client.check_deadline(client.next_deadline().unwrap());
    let sentence = "gave up after 10 s while waiting for the server's first answer (iperf2 servers mostly say nothing \
                    to an iperf3 client)";
    assert_eq!(failure(&mut client).to_string(), sentence);
    // What iperf 2.1.8 says if the cookie begins with 2, recorded.
    let (mut client, now) = client_at(SessionStep::Greeting, &four_streams());
    client.receive_bytes(
        now,
        b"\0\0\0\x02\0\0\0\x1C\0\0\0\0\0\x02\0\x01\0\x08\0\x03\0\0\0\0\0\0\0\0",
    );
    assert!(
        failure(&mut client)
            .to_string()
            .ends_with("it began with the byte 0x00, as iperf2 does")
    );
}

#[test]
fn results_that_trickle_in_have_thirty_seconds_in_all() {
    let (mut client, since) = client_at(SessionStep::Results, &four_streams());
    client.receive_bytes(since, &100_u32.to_be_bytes());
    for second in [9, 18, 27] {
        let now = since + Span::from_secs(second);
        client.check_deadline(now);
        client.receive_bytes(now, b" ");
    }
    let deadline = client.next_deadline().unwrap();
    assert_eq!(deadline, since + Span::from_secs(30));
    client.check_deadline(deadline);
    assert_eq!(
        failure(&mut client),
        TestError::Timeout {
            step: SessionStep::Results,
            after: Span::from_secs(30)
        }
    );
}

#[test]
fn a_client_whose_server_closes_fails_in_every_step_but_the_last() {
    for step in CLIENT_STEPS {
        let (mut client, _) = client_at(step, &four_streams());
        client.connection_closed();
        if step == SessionStep::Finish {
            assert_eq!(
                last_action(&mut client),
                Some(ClientAction::Finished(TestResults::default()))
            );
        } else {
            assert_eq!(failure(&mut client), TestError::Closed { step });
        }
    }
}

#[test]
fn a_server_may_refuse_or_stop_in_every_step() {
    for step in CLIENT_STEPS {
        for (bytes, text) in [
            (
                &[0xFF][..],
                "the server is busy with another test; try again later".to_owned(),
            ),
            (&[11], format!("the server was stopped while {step}")),
            (
                &[0xFE, 0, 0, 0, 37, 0, 0, 0, 0],
                format!(
                    "the server ended the test while {step}: the test would last longer than its operator permits \
                     (iperf3 error 37)"
                ),
            ),
            (
                &[0xFE, 0, 0, 0, 134, 0, 0, 0, 2],
                format!(
                    "the server ended the test while {step}: it could not set the congestion control asked for \
                     (iperf3 error 134): No such file or directory (os error 2) on the server"
                ),
            ),
        ] {
            let (mut client, now) = client_at(step, &four_streams());
            for byte in bytes {
                client.receive_bytes(now, &[*byte]);
            }
            assert_eq!(failure(&mut client).to_string(), text);
        }
    }
}

#[test]
fn an_error_with_one_number_or_none_does_not_block_the_client() {
    for (bytes, text) in [
        (
            &[0xFE, 0, 0, 0, 142][..],
            "it did not accept the user name and password (iperf3 error 142)",
        ),
        (&[0xFE, 0, 0], "it did not say why"),
        (&[0xFE, 0, 0, 0x10, 0, 0, 0], "iperf3 error 4096"),
    ] {
        let (mut client, now) = client_at(SessionStep::Parameters, &four_streams());
        client.receive_bytes(now, bytes);
        assert_eq!(client.next_action(), None);
        client.connection_closed();
        assert!(failure(&mut client).to_string().ends_with(text));

        let (mut client, now) = client_at(SessionStep::Parameters, &four_streams());
        client.receive_bytes(now, bytes);
        assert_eq!(client.next_deadline(), Some(now + Span::from_secs(1)));
        client.check_deadline(now + Span::from_secs(1));
        assert!(failure(&mut client).to_string().ends_with(text));
    }
}

#[test]
fn another_program_on_the_port_is_distinguished_from_iperf3() {
    for banner in [
        &b"SSH-2.0-OpenSSH_9.6\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\n",
        b"220 mail\r\n",
        b"\r\n",
    ] {
        let (mut client, now) = client_at(SessionStep::Greeting, &four_streams());
        client.receive_bytes(now, banner);
        assert_eq!(
            failure(&mut client),
            TestError::NotIperf3 { first: banner[0] }
        );
    }
}

#[test]
fn states_out_of_order_end_the_test() {
    for (step, bytes) in [
        (SessionStep::Parameters, &[9][..]),
        (SessionStep::Start, &[2]),
        (SessionStep::Preparation, &[1]),
        (SessionStep::Transfer, &[13]),
        (SessionStep::End, &[14]),
        (SessionStep::Finish, &[16]),
        (SessionStep::Transfer, &[3]),
        (SessionStep::Streams, &[1; 12]),
        (SessionStep::Parameters, &[0x66]),
        (SessionStep::Start, &[0x66]),
        (SessionStep::Preparation, &[0x66]),
        (SessionStep::Finish, &[0x66]),
        (SessionStep::LocalResults, &[0; 12]),
    ] {
        let (mut client, now) = client_at(step, &four_streams());
        client.receive_bytes(now, bytes);
        assert_eq!(
            failure(&mut client),
            TestError::OutOfOrder {
                got: bytes[0],
                step
            }
        );
    }
}

#[test]
fn a_server_faster_than_the_own_driver_is_waited_for() {
    let (mut client, now) = client_at(SessionStep::Streams, &four_streams());
    client.receive_bytes(now, &[1, 2]);
    assert_eq!(client.next_action(), None);
    client.streams_opened(now);
    assert_eq!(client.next_action(), Some(ClientAction::StartTransfer));
}

/// A report as a server sends it.
fn reported(json: &str) -> Vec<u8> {
    [&[0x66][..], &message(json)].concat()
}

const EMPTY_REPORT: &str = r#"{"sockets":[],"samples":[]}"#;

#[test]
fn a_report_before_the_own_driver_is_ready_is_waited_for() {
    let (mut client, now) = client_at(SessionStep::Streams, &four_streams());
    let report = stated(7);
    let said = [
        &[1, 2][..],
        &reported(&serde_json::to_string(&report).unwrap()),
    ]
    .concat();
    for byte in said {
        client.receive_bytes(now, &[byte]);
        assert_eq!(client.next_action(), None);
    }
    client.streams_opened(now);
    assert_eq!(client.next_action(), Some(ClientAction::StartTransfer));
    assert_eq!(
        client.next_action(),
        Some(ClientAction::Reported(Box::new(report)))
    );
    // But not forever.
    let (mut client, now) = client_at(SessionStep::Streams, &four_streams());
    client.receive_bytes(now, &[&[1, 2, 0x66][..], &vec![0; 2 << 20]].concat());
    assert_eq!(
        failure(&mut client),
        TestError::OutOfOrder {
            got: 1,
            step: SessionStep::Streams
        }
    );
}

#[test]
fn hostile_reports_end_the_test() {
    let announced = "the other end announced interim results of 2 MiB; at most 1 MiB are accepted";
    for step in [SessionStep::Transfer, SessionStep::End] {
        for (bytes, text) in [
            (&b"\x66\x00\x20\x00\x00"[..], announced),
            (
                b"\x66\x00\x00\x00\x02[]",
                "cannot read the other end's interim results: it is not a JSON object",
            ),
            (
                b"\x66\x00\x00\x00\x02{}",
                "cannot read the other end's interim results: missing field `sockets`",
            ),
        ] {
            let (mut client, now) = client_at(step, &four_streams());
            client.receive_bytes(now, bytes);
            let error = failure(&mut client).to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}

#[test]
fn half_a_report_does_not_move_a_deadline() {
    for step in [SessionStep::Transfer, SessionStep::End] {
        let (mut client, now) = client_at(step, &four_streams());
        let deadline = client.next_deadline().unwrap();
        for byte in &reported(EMPTY_REPORT)[..20] {
            client.receive_bytes(now + Span::from_secs(1), &[*byte]);
        }
        assert_eq!(client.next_deadline(), Some(deadline));
        client.check_deadline(deadline);
        assert!(matches!(failure(&mut client), TestError::Timeout { .. }));
    }
}

#[test]
fn a_server_that_reports_without_end_is_not_read_without_end() {
    // Twelve seconds, two reports each, and a hundred.
    let (mut client, now) = client_at(SessionStep::Transfer, &four_streams());
    let report = reported(EMPTY_REPORT);
    for _ in 0..124 {
        client.receive_bytes(now, &report);
        assert!(matches!(
            client.next_action(),
            Some(ClientAction::Reported(_))
        ));
    }
    client.receive_bytes(now, &report);
    assert_eq!(
        failure(&mut client),
        TestError::OutOfOrder {
            got: 0x66,
            step: SessionStep::Transfer
        }
    );
}

#[test]
fn a_client_that_did_not_say_that_it_is_fullpipe_gets_no_report() {
    let parameters = TestParameters::decode_json(br#"{"tcp":true,"time":10}"#).unwrap();
    let cookie = TestCookie::from_random([0; 36]);
    let mut client =
        ClientSession::with_parameters(parameters, cookie, Time::ZERO, Timeouts::default())
            .unwrap();
    client.receive_bytes(Time::ZERO, &[9]);
    client.receive_bytes(Time::ZERO, &[10]);
    client.streams_opened(Time::ZERO);
    client.receive_bytes(Time::ZERO, &[1, 2]);
    client.receive_bytes(Time::ZERO, &reported(EMPTY_REPORT));
    assert_eq!(
        failure(&mut client),
        TestError::OutOfOrder {
            got: 0x66,
            step: SessionStep::Transfer
        }
    );
}

const FULLPIPE: &str = r#"{"tcp":true,"time":1,"parallel":2,"x_fullpipe":{"version":1}}"#;

#[test]
fn a_server_reports_to_fullpipe_clients_alone_and_only_while_data_flows() {
    for (parameters, stated) in [
        (FULLPIPE, &[SessionStep::Transfer][..]),
        (RECORDED_3_12, &[]),
    ] {
        for step in SERVER_STEPS {
            let (mut server, _) = server_at(step, parameters);
            assert_eq!(server.takes_reports(), stated.contains(&step), "{step:?}");
            server.send_report(&EndReport::default());
            let message = reported(r#"{"settings":null,"cpu":null,"sockets":[],"samples":[]}"#);
            let expected = if stated.contains(&step) {
                vec![ServerAction::Report(message)]
            } else {
                Vec::new()
            };
            assert_eq!(actions(&mut server), expected, "{step:?}");
        }
    }
}

#[test]
fn a_report_that_waits_does_not_hold_up_a_servers_deadlines() {
    let (mut server, since) = server_at(SessionStep::Transfer, FULLPIPE);
    for second in 0..41 {
        server.check_deadline(since + Span::from_secs(second));
        server.send_report(&stated(second));
        assert!(matches!(
            actions(&mut server)[..],
            [ServerAction::Report(_)]
        ));
    }
    let after = Span::from_secs(41);
    server.check_deadline(since + after);
    assert_eq!(
        breakdown(&mut server),
        (
            refusal_bytes(160),
            TestError::Timeout {
                step: SessionStep::Transfer,
                after
            }
        )
    );
}

#[test]
fn hostile_results_end_the_test() {
    for (bytes, text) in [
        (
            &b"\x02\x00\x00\x00"[..],
            "the other end announced results of 32 MiB; at most 16 MiB are accepted",
        ),
        (
            b"\x7f\xff\xff\xff",
            "the other end announced results of 2 GiB; at most 16 MiB are accepted",
        ),
        (
            b"\x00\x00\x00\x00",
            "cannot read the other end's results: it is not a JSON object",
        ),
        (
            b"\x00\x00\x00\x02[]",
            "cannot read the other end's results: it is not a JSON object",
        ),
    ] {
        let (mut client, now) = client_at(SessionStep::Results, &four_streams());
        client.receive_bytes(now, bytes);
        assert_eq!(failure(&mut client).to_string(), text);
    }
}

#[test]
fn a_client_that_cannot_open_or_is_interrupted_informs_the_server() {
    let (mut client, _) = client_at(SessionStep::Streams, &four_streams());
    client.open_failed("connection refused");
    assert_eq!(client.next_action(), Some(ClientAction::Send(vec![12])));
    assert_eq!(
        failure(&mut client).to_string(),
        "cannot open the data connections: connection refused"
    );

    let (mut client, _) = client_at(SessionStep::Transfer, &four_streams());
    client.interrupt_test();
    assert_eq!(client.next_action(), Some(ClientAction::Send(vec![12])));
    assert_eq!(
        failure(&mut client),
        TestError::ClientTerminated {
            step: SessionStep::Transfer
        }
    );
    client.interrupt_test();
    client.connection_closed();
    assert_eq!(client.next_action(), None);
}

const SERVER_STEPS: [SessionStep; 6] = [
    SessionStep::Parameters,
    SessionStep::Streams,
    SessionStep::Transfer,
    SessionStep::Results,
    SessionStep::LocalResults,
    SessionStep::Finish,
];

const RECORDED_3_12: &str = concat!(
    r#"{"tcp":true,"omit":1,"time":1,"num":0,"blockcount":0,"MSS":1400,"parallel":2,"reverse":true,"window":65536,"#,
    r#""len":131072,"pacing_timer":1000,"congestion":"reno","client_version":"3.12"}"#
);

fn message(json: &str) -> Vec<u8> {
    [
        &u32::try_from(json.len()).unwrap().to_be_bytes()[..],
        json.as_bytes(),
    ]
    .concat()
}

fn server_at(step: SessionStep, parameters: &str) -> (ServerSession, Time) {
    let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
    let mut now = Time::ZERO;
    let connect_both = |server: &mut ServerSession, now| {
        assert!(server.stream_connected(now) && server.stream_connected(now));
    };
    let moves: [(SessionStep, ServerMove); 5] = [
        (SessionStep::Parameters, &|server, now| {
            server.receive_bytes(now, &message(parameters));
        }),
        (SessionStep::Streams, &connect_both),
        (SessionStep::Transfer, &|server, now| {
            server.receive_bytes(now, &[4]);
        }),
        (SessionStep::Results, &|server, now| {
            server.receive_bytes(now, &message(r#"{"streams":[]}"#));
        }),
        (SessionStep::LocalResults, &|server, now| {
            server.local_results(now, results_of(Side::Server, &Request::default()));
        }),
    ];
    for (_, go_on) in moves.iter().take_while(|(at, _)| *at != step) {
        now = now + Span::from_secs(1);
        go_on(&mut server, now);
    }
    while server.next_action().is_some() {}
    (server, now)
}

fn actions(server: &mut ServerSession) -> Vec<ServerAction> {
    std::iter::from_fn(|| server.next_action()).collect()
}

/// Returns the refusal that the client gets, and why the session failed.
fn breakdown(server: &mut ServerSession) -> (Vec<u8>, TestError) {
    match &actions(server)[..] {
        [ServerAction::Send(bytes), ServerAction::Failed(error)] => (bytes.clone(), error.clone()),
        [ServerAction::Failed(error)] => (Vec::new(), error.clone()),
        other => panic!("the session should have failed, not {other:?}"),
    }
}

fn refusal_bytes(number: u8) -> Vec<u8> {
    vec![0xFE, 0, 0, 0, number, 0, 0, 0, 0]
}

#[test]
fn a_server_whose_client_is_stalled_gives_up_at_its_deadline_in_every_step() {
    for step in SERVER_STEPS {
        let (mut server, since) = server_at(step, RECORDED_3_12);
        let after = Span::from_secs(match step {
            SessionStep::Transfer => 1 + 1 + 40,
            SessionStep::Results => 30,
            _ => 10,
        });
        let deadline = server.next_deadline().unwrap();
        assert_eq!(deadline, since + after, "{step:?}");
        server.check_deadline(Time::from_nanos(deadline.as_nanos() - 1));
        assert_eq!(server.next_action(), None, "{step:?}");
        server.check_deadline(deadline);
        if step == SessionStep::Finish {
            assert_eq!(
                actions(&mut server),
                [ServerAction::Finished(TestResults::default())]
            );
        } else {
            let number = if step == SessionStep::Transfer {
                160
            } else {
                144
            };
            assert_eq!(
                breakdown(&mut server),
                (refusal_bytes(number), TestError::Timeout { step, after })
            );
        }
        assert_eq!(server.next_deadline(), None);
    }
}

#[test]
fn a_test_without_a_duration_is_not_ended_early() {
    let parameters = r#"{"tcp":true,"num":1048576,"parallel":2,"len":131072}"#;
    let (server, since) = server_at(SessionStep::Transfer, parameters);
    assert_eq!(
        server.next_deadline(),
        Some(since + Span::from_secs(86_440))
    );
}

#[test]
fn every_data_connection_renews_the_wait_for_the_next() {
    let (mut server, since) = server_at(SessionStep::Streams, RECORDED_3_12);
    let later = since + Span::from_secs(9);
    assert!(server.stream_connected(later));
    assert_eq!(server.next_deadline(), Some(later + Span::from_secs(10)));
}

#[test]
fn a_data_connection_too_many_is_not_the_tests() {
    for step in SERVER_STEPS
        .into_iter()
        .filter(|step| *step != SessionStep::Streams)
    {
        let (mut server, now) = server_at(step, RECORDED_3_12);
        assert!(!server.stream_connected(now), "{step:?}");
    }
}

#[test]
fn a_client_may_leave_in_every_step() {
    for step in SERVER_STEPS {
        let (mut server, now) = server_at(step, RECORDED_3_12);
        server.receive_bytes(now, &[12]);
        assert_eq!(
            breakdown(&mut server),
            (Vec::new(), TestError::ClientTerminated { step })
        );

        let (mut server, _) = server_at(step, RECORDED_3_12);
        server.connection_closed();
        match step {
            SessionStep::Finish => assert_eq!(
                actions(&mut server),
                [ServerAction::Finished(TestResults::default())]
            ),
            _ => assert_eq!(
                breakdown(&mut server),
                (Vec::new(), TestError::ClientClosed { step })
            ),
        }
    }
}

#[test]
fn a_server_may_be_stopped_in_every_step() {
    for step in SERVER_STEPS {
        let (mut server, _) = server_at(step, RECORDED_3_12);
        server.announce_shutdown();
        assert_eq!(
            breakdown(&mut server),
            (vec![11], TestError::ServerTerminated { step })
        );
    }
}

#[test]
fn bad_parameters_are_answered_with_two_numbers_instead_of_ten() {
    for (parameters, number) in [
        (r#"{"tcp":true,"parallel":500}"#, 6),
        (r#"{"tcp":true,"time":90000}"#, 5),
        (r#"{"udp":true,"parallel":1,"len":8}"#, 20),
        (r#"{"sctp":true,"parallel":1}"#, 18),
        ("[]", 114),
        ("not JSON", 114),
    ] {
        let (mut server, now) = server_at(SessionStep::Parameters, "");
        server.receive_bytes(now, &message(parameters));
        assert_eq!(
            breakdown(&mut server).0,
            refusal_bytes(number),
            "{parameters}"
        );
    }
    let (mut server, now) = server_at(SessionStep::Parameters, "");
    server.receive_bytes(now, &[0, 1, 0, 1]);
    assert_eq!(breakdown(&mut server).0, refusal_bytes(114));
}

#[test]
fn what_the_driver_cannot_do_reaches_the_client() {
    let (mut server, _) = server_at(SessionStep::Streams, RECORDED_3_12);
    let refusal = fullpipe_iperf::TestRefusal {
        number: fullpipe_iperf::ErrorNumber::CONGESTION,
        why: "this kernel has no reno".to_owned(),
    };
    server.refuse_test(refusal.clone(), Some(2));
    let stated = vec![0xFE, 0, 0, 0, 134, 0, 0, 0, 2];
    assert_eq!(
        breakdown(&mut server),
        (stated, TestError::Refused(refusal))
    );
}

#[test]
fn a_refusal_takes_the_place_of_the_consent() {
    let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
    server.receive_bytes(Time::ZERO, &message(RECORDED_3_12));
    assert_eq!(server.next_action(), Some(ServerAction::Send(vec![9])));
    assert!(matches!(
        server.next_action(),
        Some(ServerAction::ExpectStreams(_))
    ));
    let number = fullpipe_iperf::ErrorNumber::MAX_DURATION;
    server.refuse_test(
        fullpipe_iperf::TestRefusal {
            number,
            why: "too long for us".to_owned(),
        },
        None,
    );
    assert_eq!(breakdown(&mut server).0, refusal_bytes(37));
}

#[test]
fn the_servers_output_goes_to_a_client_that_asked() {
    let stated = |parameters: TestParameters| {
        let cookie = TestCookie::from_random([0; 36]);
        let mut client =
            ClientSession::with_parameters(parameters, cookie, Time::ZERO, Timeouts::default())
                .unwrap();
        client.receive_bytes(Time::ZERO, &[9]);
        let asked = std::iter::from_fn(|| client.next_action()).last();
        let Some(ClientAction::Send(asked)) = asked else {
            panic!("parameters should have been sent, not {asked:?}")
        };
        let mut server = ServerSession::new(Time::ZERO, Timeouts::default());
        server.receive_bytes(Time::ZERO, &asked);
        assert!(server.stream_connected(Time::ZERO));
        server.receive_bytes(Time::ZERO, &[4]);
        server.receive_bytes(Time::ZERO, &message(r#"{"streams":[]}"#));
        let output = Some(ServerOutput::Text("what was printed".to_owned()));
        actions(&mut server);
        server.local_results(
            Time::ZERO,
            TestResults {
                server_output: output,
                ..TestResults::default()
            },
        );
        let Some(ServerAction::Send(results)) = server.next_action() else {
            panic!("results should have been sent")
        };
        TestResults::decode_json(&results[4..], 1)
            .unwrap()
            .server_output
    };
    let parameters = TestParameters::from_request(&Request::default()).unwrap();
    assert_eq!(stated(parameters.clone()), None);
    let output = stated(parameters.with_server_output());
    assert_eq!(
        output,
        Some(ServerOutput::Text("what was printed".to_owned()))
    );
}

#[test]
fn a_client_out_of_order_is_reported_so() {
    for (step, byte) in [
        (SessionStep::Streams, 4),
        (SessionStep::Transfer, 16),
        (SessionStep::LocalResults, 4),
        (SessionStep::Finish, 4),
    ] {
        let (mut server, now) = server_at(step, RECORDED_3_12);
        server.receive_bytes(now, &[byte]);
        assert_eq!(
            breakdown(&mut server),
            (
                refusal_bytes(110),
                TestError::OutOfOrder { got: byte, step }
            )
        );
    }
}

#[test]
fn an_iperf3_client_is_not_sent_our_report() {
    let (mut server, now) = server_at(SessionStep::Results, RECORDED_3_12);
    let stated = r#"{"streams":[{"id":1,"bytes":5,"retransmits":18446744073709551615}],"server_output_text":"mine"}"#;
    server.receive_bytes(now, &message(stated));
    assert_eq!(
        actions(&mut server),
        [ServerAction::CollectResults { report: false }]
    );
    server.local_results(now, results_of(Side::Server, &Request::default()));
    let sent = actions(&mut server);
    let [ServerAction::Send(results), ServerAction::Send(display)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert!(!String::from_utf8_lossy(results).contains("x_fullpipe"));
    assert_eq!(display, &[14]);
    server.receive_bytes(now, &[16]);
    let [ServerAction::Finished(results)] = &actions(&mut server)[..] else {
        panic!("it should have finished")
    };
    assert_eq!(
        (results.streams[0].bytes, results.streams[0].retransmits),
        (ByteCount::new(5), None)
    );
    assert_eq!(results.server_output, None);
}

/// The server of iperf3 3.12, word for word, in a reverse test that announced our extension.
#[test]
fn a_recorded_server_of_3_12_is_understood() {
    let (mut client, now) = client_at(SessionStep::Greeting, &Request::default());
    client.receive_bytes(now, &[9]);
    client.receive_bytes(now, &[10]);
    client.streams_opened(now);
    client.receive_bytes(now, &[1, 2]);
    client.transfer_finished(now);
    client.receive_bytes(now, &[13]);
    client.local_results(now, TestResults::default());
    client.receive_bytes(
        now,
        &message(concat!(
            r#"{"cpu_util_total":88.594980437444633,"cpu_util_user":0,"cpu_util_system":88.5959759873366,"#,
            r#""sender_has_retransmits":1,"congestion_used":"bbr","streams":[{"id":1,"bytes":463994880,"#,
            r#""retransmits":6,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":0.200892}]}"#
        )),
    );
    client.receive_bytes(now, &[14]);
    let said: Vec<_> = std::iter::from_fn(|| client.next_action()).collect();
    let [
        ..,
        ClientAction::Send(done),
        ClientAction::Finished(results),
    ] = &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!(done, &[16]);
    assert_eq!(results.streams[0].bytes, ByteCount::new(463_994_880));
    assert_eq!(results.streams[0].retransmits, Some(SegCount::new(6)));
    assert_eq!(results.report, None);
}
