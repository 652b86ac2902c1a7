//! Connections that speak HTTP/2: one of them is one test from its first load to its last.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Instant;

use bytes::Bytes;
use fullpipe_http::{RequestHead, SpeedTest};
use fullpipe_record::Request;
use fullpipe_units::Span;
use tokio::time::{timeout, timeout_at};

use super::super::admission::PendingConnection;
use super::WebServer;
use super::answers::{SmallAnswers, asked_test};
use super::transfer::{
    AskedTransfer, CLOSE_TIMEOUT, MAX_DURATION, ends_with_client, random_id, request_of,
};
use crate::engine::{Framing, incompressible_bytes};
use crate::http2::{Http2Reply, Http2Server, MAX_QUEUED};
use crate::web::WebConnection;

/// What downloads consist of.
static DATA: LazyLock<Bytes> = LazyLock::new(|| incompressible_bytes(MAX_QUEUED).into());

/// A connection and its end of HTTP/2.
struct Http2Connection {
    connection: WebConnection,
    server: Box<Http2Server>,
}

impl WebServer {
    /// Serves a connection until it ends, or asks for nothing for too long.
    pub(super) async fn serve_http2(
        &self,
        connection: WebConnection,
        client: SocketAddr,
        mut pending: PendingConnection,
    ) -> Option<()> {
        let answers = self.small_answers(client, connection.is_encrypted());
        let replies = Box::new(move |head: &RequestHead| {
            let test = asked_test(head)?;
            Ok(reply_to(&answers, head, test))
        });
        let mut both = Http2Connection {
            connection,
            server: Box::new(Http2Server::new(DATA.clone(), replies)),
        };
        loop {
            let waited = pending
                .place
                .unless_lost(self.wait_for_load(&mut both))
                .await;
            if waited.flatten().is_none() {
                both.server.shut_down();
                let _ = self.send_output(&mut both).await;
                let _ = timeout(CLOSE_TIMEOUT, both.connection.finish()).await;
                return None;
            }
            drop(pending);
            both = self.run_http2_test(both, client).await?;
            let admission = &self.server.admission;
            pending = admission.admit_pending(client.ip(), Instant::now()).ok()?;
        }
    }

    /// Answers requests until one asks for a load; `None` if none does in time, or the connection
    /// ends.
    async fn wait_for_load(&self, both: &mut Http2Connection) -> Option<()> {
        let mut requests = both.server.request_count();
        let mut deadline = tokio::time::Instant::now() + self.reply_timeout();
        loop {
            let input = both.connection.take_input();
            let taken = both.server.take_input(&input);
            self.send_output(both).await?;
            if both.server.waiting_load().is_some() {
                return Some(());
            }
            if taken.is_err() || both.server.is_closed() {
                return None;
            }
            if both.server.request_count() > requests {
                requests = both.server.request_count();
                deadline = tokio::time::Instant::now() + self.reply_timeout();
            }
            timeout_at(deadline, both.connection.read_more())
                .await
                .ok()?
                .ok()?;
        }
    }

    /// Sends what is due; `None` if the client does not take it in time.
    async fn send_output(&self, both: &mut Http2Connection) -> Option<()> {
        let mut output = Vec::new();
        loop {
            both.server.push_output(Span::ZERO, MAX_QUEUED, &mut output);
            if output.is_empty() {
                return Some(());
            }
            let sent = timeout(self.reply_timeout(), both.connection.send_bytes(&output));
            sent.await.ok()?.ok()?;
        }
    }

    /// Runs the loads that wait, and those that follow until none is left. Returns the connection if
    /// it can be used further.
    async fn run_http2_test(
        &self,
        both: Http2Connection,
        client: SocketAddr,
    ) -> Option<Http2Connection> {
        let Http2Connection {
            connection,
            mut server,
        } = both;
        let head = &server.waiting_load()?.head;
        let request = request_of(head, asked_test(head).ok()?);
        let ends_with_client = ends_with_client(head);
        let (_test, load) = match self.admit(client, &request, true).await {
            Ok(permits) => permits,
            Err(answer) => {
                server.refuse_loads(&answer);
                return Some(Http2Connection { connection, server });
            }
        };
        let id = random_id()?;
        server.permit_loads(&id);
        let asked = AskedTransfer {
            id,
            request: Request {
                // More loads may follow.
                bytes: None,
                duration: MAX_DURATION,
                ..request
            },
            framing: Framing::Http2(server),
            greeting: Vec::new(),
            early_exit: None,
            ends_with_client,
        };
        let (carried, rest) = self.carry(connection, client, asked, &load).await;
        drop(load);
        self.report_transfer(client, carried).await;
        match rest? {
            (Framing::Http2(server), connection) => Some(Http2Connection { connection, server }),
            _ => None,
        }
    }
}

/// Returns what a request gets.
fn reply_to(answers: &SmallAnswers, head: &RequestHead, test: SpeedTest<'_>) -> Http2Reply {
    match (answers.answer_to(head, test), test) {
        (Some(answer), _) => Http2Reply::Answer(answer),
        (None, SpeedTest::Download(bytes)) => Http2Reply::Download(bytes.get()),
        (None, _) => Http2Reply::Upload,
    }
}
