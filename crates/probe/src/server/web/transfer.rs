//! A transfer of the web: admitted, watched, measured and judged.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullpipe_http::{
    Answer, BodyDecoder, BodyFraming, Ndt7Connection, Ndt7Endpoint, RequestHead, RequestRefusal,
    SpeedTest, TEST_DURATION,
};
use fullpipe_iperf::{ErrorNumber, TestRefusal};
use fullpipe_record::{Direction, Measurement, Request};
use fullpipe_sys::{lock, random_bytes};
use fullpipe_units::{ByteCount, Span};
use socket2::SockRef;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::super::admission::AdmissionPermit;
use super::super::monitor::{TransferBounds, TransferMonitor};
use super::super::session::{TestTotals, opposite};
use super::super::stall::StallBounds;
use super::super::{POLL_INTERVAL, ServerEvent, TestFailure};
use super::answers::{quota_answer, upgrade_head};
use super::results::{KeptResult, KeptResults};
use super::{ResultPage, WebJudge, WebServer};
use crate::engine::{FramedStream, Framing};
use crate::progress::CountedTransfer;
use crate::web::{WebConnection, WebTransfer, end_at, last_progress};

/// Maximum duration of a transfer that its protocol does not bound, if the limits of the server
/// state none.
pub(super) const MAX_DURATION: Span = Span::from_secs(300);

/// Duration of a test of ndt7 from which a client that leaves does so at its end.
const SHORTEST_WHOLE_TEST: Span = Span::from_secs(9);

/// Time after its due end at which an upload of ndt7 is ended by the server.
const UPLOAD_GRACE: Span = Span::from_secs(3);

/// Time for both ends to close.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Duration below which a transfer is counted but not judged: there is too little to see.
const MIN_JUDGED: Span = Span::from_secs(1);

/// Samples that are kept of a transfer, if there are few at once.
const MAX_SAMPLES: usize = 400;

/// Samples that all transfers share, about 25 MB; each keeps at least [`MIN_SAMPLES`].
const SHARED_SAMPLES: usize = 32_000;

/// Samples that suffice for a verdict.
const MIN_SAMPLES: usize = 60;

/// Tests at once up to which the processors are watched as well, by a thread for each.
const MAX_WATCHED: u32 = 16;

/// A transfer that a request asks for.
pub(super) struct AskedTransfer {
    pub(super) id: String,
    pub(super) request: Request,
    pub(super) framing: Framing,
    /// What is sent before the transfer begins.
    pub(super) greeting: Vec<u8>,
    /// Bytes after whose acknowledgement it ends.
    pub(super) early_exit: Option<ByteCount>,
    /// True if it has no other end than that its client leaves.
    pub(super) ends_with_client: bool,
}

/// A transfer that is over. If it ended early, its measurement has the reason.
pub(super) struct CarriedTransfer {
    id: String,
    measurement: Box<Measurement>,
}

impl WebServer {
    /// Runs the transfer that a request asks for. Returns the connection if another request may
    /// follow.
    pub(super) async fn run_test(
        &self,
        connection: WebConnection,
        client: SocketAddr,
        head: &RequestHead,
        test: SpeedTest<'_>,
    ) -> Option<WebConnection> {
        let asked = asked_transfer(&connection, client, head, test)?;
        let is_http = !matches!(asked.framing, Framing::Ndt7(_));
        let (_test, load) = match self.admit(client, &asked.request, is_http).await {
            Ok(permits) => permits,
            Err(answer) => return self.send(connection, answer, false).await,
        };
        let sends = asked.request.direction == Direction::Upload;
        let id = asked.id.clone();
        let (carried, connection) = self.carry(connection, client, asked, &load).await;
        drop(load);
        self.report_transfer(client, carried).await;
        let (_, connection) = connection?;
        if is_http && !sends {
            let answer = Answer::of_described_data(0, &id);
            return self.send(connection, answer, head.keeps_connection).await;
        }
        if is_http && head.keeps_connection {
            return Some(connection);
        }
        let _ = timeout(CLOSE_TIMEOUT, connection.finish()).await;
        None
    }

    /// Admits a transfer as a test with one stream, and reports that it begins. The error is what the
    /// client gets.
    pub(super) async fn admit(
        &self,
        client: SocketAddr,
        request: &Request,
        is_http: bool,
    ) -> Result<(AdmissionPermit, AdmissionPermit), Answer> {
        let wait = self.moved.borrow().wait(client.ip(), Instant::now());
        if let Some(wait) = wait {
            return Err(quota_answer(wait));
        }
        // Only ndt7 states for how long it lasts.
        let stated = Request {
            duration: if is_http { Span::ZERO } else { TEST_DURATION },
            ..request.clone()
        };
        let busy = RequestRefusal {
            status: 503,
            why: "this server carries as many tests as it may",
        };
        let test = self.server.admit_test(client.ip()).await.map_err(|why| {
            self.server.report_rejection(client.ip(), why);
            busy
        })?;
        let load = self.server.admit_load(client.ip(), &stated).await;
        let load = load.map_err(|refusal| match refusal.number {
            ErrorNumber::BUSY => busy,
            _ => RequestRefusal {
                status: 429,
                why: "the limits of this server permit no such test",
            },
        })?;
        self.server.report_event(ServerEvent::Began {
            client,
            request: Request {
                direction: opposite(request.direction),
                ..request.clone()
            },
            ticket: None,
        });
        Ok((test, load))
    }

    /// Carries a transfer to its end. Returns it, and the connection with its frames if it can be
    /// used further.
    pub(super) async fn carry(
        &self,
        mut connection: WebConnection,
        client: SocketAddr,
        asked: AskedTransfer,
        load: &AdmissionPermit,
    ) -> (
        Result<CarriedTransfer, TestFailure>,
        Option<(Framing, WebConnection)>,
    ) {
        let begun = Instant::now();
        let greeting = connection.send_bytes(&asked.greeting);
        if !matches!(timeout(self.reply_timeout(), greeting).await, Ok(Ok(()))) {
            return (Err(no_test("it took no answer")), None);
        }
        let Ok(framed) = connection.into_framed(asked.framing) else {
            return (
                Err(no_test("its connection cannot leave the runtime")),
                None,
            );
        };
        let mut transfer =
            WebTransfer::new(&framed, asked.request, client, client.ip().to_string());
        let tests = self.server.admission.test_count().max(1);
        let samples = (SHARED_SAMPLES / tests as usize).clamp(MIN_SAMPLES, MAX_SAMPLES);
        let mut counted = match transfer.start(&framed, samples, tests <= MAX_WATCHED) {
            Ok(counted) => counted,
            Err(error) => {
                return (
                    Err(no_test(&format!("cannot start a thread: {error}"))),
                    None,
                );
            }
        };
        let checked = self
            .watch(&mut counted, &transfer, &framed, asked.early_exit, load)
            .await;
        counted.end_transfer();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while checked.is_ok() && !counted.is_over() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        let Ok(finished) = spawn_blocking(move || counted.finish()).await else {
            return (Err(no_test("its thread panicked")), None);
        };
        // What a client says of itself is no evidence.
        let (framing, rest) = WebConnection::from_framed(framed);
        let role = transfer.role();
        let end = last_progress(&finished.rest.samples, role).unwrap_or(finished.duration());
        if let Some(Framing::Http2(server)) = &framing {
            transfer.note_http2_wait(server.wait_until(end));
        }
        let mut measurement = transfer.into_measurement(begun, finished, &[], Vec::new());
        let broke = measurement.broken_off.take();
        let left = framing.as_ref().filter(|framing| was_left(framing, end));
        let by_client = broke.or_else(|| left.map(|_| "the client gave it up".to_owned()));
        let refused = checked.err().map(|refusal| refusal.to_string());
        measurement.broken_off = refused.or(by_client.filter(|_| !asked.ends_with_client));
        if measurement.broken_off.is_some() {
            end_at(&mut measurement, end, role);
        }
        let carried = CarriedTransfer {
            id: asked.id,
            measurement: Box::new(measurement),
        };
        (Ok(carried), framing.zip(rest))
    }

    /// Judges a transfer that is over, and reports it. One processor judges, whatever ends at once:
    /// the others are for those that go on.
    pub(super) async fn report_transfer(
        &self,
        client: SocketAddr,
        carried: Result<CarriedTransfer, TestFailure>,
    ) {
        let judge = TransferJudge {
            judge: self.options.judge,
            page: self.options.page,
            results: Arc::clone(&self.results),
        };
        let ended = match carried {
            Ok(carried) => {
                let _turn = self.judging.acquire().await;
                let judged = spawn_blocking(move || judge.judge(carried)).await;
                judged.unwrap_or_else(|_| Err(no_test("what judges it panicked")))
            }
            Err(failure) => Err(failure),
        };
        self.server.report_end(client, ended);
    }

    /// Watches a transfer until its end is due.
    ///
    /// # Errors
    /// Fails if it must end, because it exceeds its bounds or makes too little progress.
    async fn watch(
        &self,
        counted: &mut CountedTransfer,
        transfer: &WebTransfer,
        framed: &FramedStream,
        early_exit: Option<ByteCount>,
        load: &AdmissionPermit,
    ) -> Result<(), TestRefusal> {
        let request = &transfer.request;
        let bounds = self.server.transfer_bounds(request, 1);
        let slowest = self.server.client_timeout.send_timeout().into();
        let mut monitor = TransferMonitor::new(
            TransferBounds {
                max_duration: bounds.max_duration.or(Some(MAX_DURATION)),
                stall: StallBounds::from_request(request, 1, slowest),
                ..bounds
            },
            vec![transfer.role()],
        );
        let (client, mut known) = (transfer.peer.ip(), ByteCount::ZERO);
        while !*self.server.shutdown.borrow() {
            sleep(POLL_INTERVAL).await;
            counted.take_passed_intervals();
            let totals = counted.transfer_totals();
            let bytes: ByteCount = totals.streams.iter().map(|stream| stream.bytes).sum();
            let (moved, now) = (bytes.saturating_sub(known), Instant::now());
            self.moved.borrow_mut().add_bytes(client, moved, now);
            known = bytes;
            let is_enough = early_exit.is_some_and(|enough| {
                let latest = counted.test_snapshot(None);
                latest.streams.iter().any(|stream| stream.bytes >= enough)
            });
            // What was written to a connection that broke is never acknowledged.
            let has_broken = counted.is_over() && (!framed.has_ended() || framed.is_reset());
            let is_due = counted.is_due() && (counted.is_delivered() || !counted.is_over());
            if is_enough || is_due || has_broken {
                break;
            }
            if self.moved.borrow().wait(client, now).is_some() {
                let why = "all bytes that are permitted in a time have been moved";
                return Err(TestRefusal::new(ErrorNumber::MAX_DURATION, why.to_owned()));
            }
            let activity = monitor.check_progress(&totals, || counted.current_samples())?;
            self.server.admission.record_activity(load, activity)?;
        }
        Ok(())
    }
}

/// What judges transfers, away from the thread that serves all connections.
struct TransferJudge {
    judge: WebJudge,
    page: ResultPage,
    results: Arc<Mutex<KeptResults>>,
}

impl TransferJudge {
    /// Returns the totals of a transfer, with its verdict if it lasted long enough.
    ///
    /// # Errors
    /// Returns the same of one that ended early.
    fn judge(&self, carried: CarriedTransfer) -> Result<TestTotals, TestFailure> {
        let summary = &carried.measurement.summary;
        let moved = summary.sent.max(summary.received);
        let totals = TestTotals::from_bytes(moved, summary.duration);
        let why = carried.measurement.broken_off.clone();
        let is_judged = summary.duration >= MIN_JUDGED;
        let measurement = is_judged.then(|| Box::new(self.keep_result(carried)));
        match why {
            None => Ok(TestTotals {
                measurement,
                ..totals
            }),
            Some(why) => Err(TestFailure {
                measurement,
                ..TestFailure::after_data(why)
            }),
        }
    }

    /// Returns the measurement with its verdict, whose result clients may ask for from now on.
    fn keep_result(&self, CarriedTransfer { id, measurement }: CarriedTransfer) -> Measurement {
        let (verdict, remedies) = (self.judge)(&measurement);
        let page = (self.page)((*measurement).clone(), verdict.clone(), remedies.clone());
        let judged = (&verdict, remedies.as_slice());
        let kept = KeptResult::new(&id, &measurement, judged, page, Instant::now());
        lock(&self.results).keep(kept);
        Measurement {
            id,
            limit: Some(verdict),
            ..*measurement
        }
    }
}

/// Returns the transfer that a request asks for; `None` if this host has no random bytes.
fn asked_transfer(
    connection: &WebConnection,
    client: SocketAddr,
    head: &RequestHead,
    test: SpeedTest<'_>,
) -> Option<AskedTransfer> {
    let id = random_id()?;
    let (framing, greeting) = match (&test, &head.websocket) {
        (SpeedTest::Ndt7 { is_download, .. }, Some(offer)) => {
            if *is_download {
                // A kernel without it keeps its own.
                let _ = SockRef::from(connection.socket()).set_tcp_congestion(b"bbr");
            }
            let stated = Ndt7Connection {
                client: client.to_string(),
                server: connection.socket().local_addr().ok()?.to_string(),
                uuid: id.clone(),
            };
            let endpoint = Ndt7Endpoint::of_server(*is_download, stated);
            let accepted = upgrade_head(offer).into_bytes();
            (Framing::Ndt7(Box::new(endpoint)), accepted)
        }
        (SpeedTest::Download(bytes), _) => {
            let answer = Answer::of_described_data(bytes.get(), &id);
            let greeting = answer.to_http1(head.keeps_connection);
            (Framing::Content(bytes.get()), greeting)
        }
        _ => {
            let leave = if head.waits_for_leave {
                "HTTP/1.1 100 Continue\r\n\r\n"
            } else {
                ""
            };
            let body = BodyDecoder::new(head.body);
            (Framing::Body(body), leave.into())
        }
    };
    let early_exit = match test {
        SpeedTest::Ndt7 { early_exit, .. } => early_exit,
        _ => None,
    };
    Some(AskedTransfer {
        id,
        request: request_of(head, test),
        framing,
        greeting,
        early_exit,
        ends_with_client: ends_with_client(head),
    })
}

/// Returns true if the request with this `head` is for a load of responsiveness, which ends when its
/// client has seen enough.
pub(super) fn ends_with_client(head: &RequestHead) -> bool {
    head.path.starts_with("/nq/")
}

/// Returns true if a client left a transfer of `duration` before its end: of ndt7 without a close
/// frame, of HTTP/2 with a load that is not complete.
fn was_left(framing: &Framing, duration: Span) -> bool {
    match framing {
        Framing::Ndt7(endpoint) => endpoint.was_left() && duration < SHORTEST_WHOLE_TEST,
        Framing::Http2(server) => server.was_given_up(),
        _ => false,
    }
}

/// Returns a name for a result that nobody can guess.
pub(super) fn random_id() -> Option<String> {
    let id = u128::from_ne_bytes(random_bytes().ok()?);
    Some(format!("{id:032x}"))
}

/// Returns the load that the request with this `head` is for.
pub(super) fn request_of(head: &RequestHead, test: SpeedTest<'_>) -> Request {
    let (direction, duration, bytes) = match test {
        SpeedTest::Ndt7 {
            is_download: true, ..
        } => (Direction::Upload, TEST_DURATION, None),
        SpeedTest::Ndt7 { .. } => (Direction::Download, TEST_DURATION + UPLOAD_GRACE, None),
        SpeedTest::Download(bytes) => (Direction::Upload, Span::ZERO, Some(bytes)),
        _ => match head.body {
            BodyFraming::Length(bytes) => {
                (Direction::Download, Span::ZERO, Some(ByteCount::new(bytes)))
            }
            _ => (Direction::Download, MAX_DURATION, None),
        },
    };
    Request {
        direction,
        duration,
        bytes,
        // Frames are looked at.
        rx_copy: true,
        title: Some(format!("{} {}", head.method, head.path)),
        ..Request::default()
    }
}

/// Returns the failure of a test that carried no data.
fn no_test(why: &str) -> TestFailure {
    TestFailure {
        is_no_test: true,
        ..why.to_owned().into()
    }
}
