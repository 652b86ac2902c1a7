//! The server of speed tests over the web, beside the one of iperf3's protocol: ndt7,
//! responsiveness, Cloudflare's and LibreSpeed's paths on one port, with the same admission.
//!
//! A connection has a pending place until its first request is read, and between its requests. Each
//! transfer has the permits of a test, runs on a thread of its own, and is judged by what the kernel
//! of this end counted. By HTTP/2, a transfer lasts from the first load on a connection to the last.

mod answers;
mod http2;
mod quotas;
mod results;
mod transfer;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fullpipe_control::{ControlConnection, HANDSHAKE, WebIdentity, canonical_address};
use fullpipe_http::{Answer, RequestHead, RequestRefusal};
use fullpipe_record::{Measurement, Remedy, Verdict};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use self::answers::{SmallAnswers, asked_test};
use self::quotas::MovedBytes;
pub use self::quotas::WebQuotas;
use self::results::KeptResults;
use super::admission::{ClientRejection, PendingConnection};
use super::listen::listen_tcp;
use super::{POLL_INTERVAL, ServerEvent, TestServer};
use crate::error::ServeError;
use crate::web::{HeadFailure, WebConnection};

/// Names the limit of a transfer, and what would lift it.
pub type WebJudge = fn(&Measurement) -> (Verdict, Vec<Remedy>);

/// Returns the page with the charts of a transfer, of which nothing names the client.
pub type ResultPage = fn(Measurement, Verdict, Vec<Remedy>) -> String;

/// Options of the server of speed tests over the web.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Address and port to listen on.
    pub address: SocketAddr,
    /// Certificate and key for clients that ask for TLS.
    pub identity: WebIdentity,
    /// True if clients that do not ask for TLS are served.
    pub serves_plain: bool,
    /// Bytes that clients may move.
    pub quotas: WebQuotas,
    /// Judges each transfer.
    pub judge: WebJudge,
    /// Shows each result to browsers.
    pub page: ResultPage,
}

/// Two are the same if they serve the same, whoever judges and shows it.
impl PartialEq for WebOptions {
    fn eq(&self, other: &Self) -> bool {
        (self.address, self.serves_plain, self.quotas)
            == (other.address, other.serves_plain, other.quotas)
            && self.identity == other.identity
    }
}

impl Eq for WebOptions {}

/// The state that all connections of the web share.
struct WebServer {
    server: Rc<TestServer>,
    options: WebOptions,
    results: Arc<Mutex<KeptResults>>,
    moved: RefCell<MovedBytes>,
    /// The turn to judge a transfer.
    judging: Semaphore,
}

/// Listens, and starts to accept connections.
///
/// # Errors
/// Fails if it cannot listen on the address.
pub(super) fn start_listening(
    server: &Rc<TestServer>,
    options: &WebOptions,
    device: Option<&str>,
) -> Result<(), ServeError> {
    let address = options.address;
    let listener =
        listen_tcp(Some(address.ip()), device, address.port()).map_err(ServeError::ListenForWeb)?;
    let address = listener.local_addr().map_err(ServeError::Start)?;
    server.report_event(ServerEvent::ListeningForWeb(address));
    let web = Rc::new(WebServer {
        server: Rc::clone(server),
        options: options.clone(),
        results: Arc::default(),
        moved: RefCell::new(MovedBytes::new(options.quotas, Instant::now())),
        judging: Semaphore::new(1),
    });
    spawn_local(web.accept_connections(listener));
    Ok(())
}

impl WebServer {
    async fn accept_connections(self: Rc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, client)) = listener.accept().await else {
                sleep(POLL_INTERVAL).await;
                continue;
            };
            let client = canonical_address(client);
            let admission = &self.server.admission;
            match admission.admit_pending(client.ip(), Instant::now()) {
                Ok(pending) => drop(spawn_local(
                    Rc::clone(&self).serve_connection(stream, client, pending),
                )),
                Err(why) => self.server.report_rejection(client.ip(), why),
            }
        }
    }

    /// Returns the time that a client may take for a handshake, for a head, and between requests.
    fn reply_timeout(&self) -> Duration {
        self.server.client_timeout.reply_timeout()
    }

    async fn serve_connection(
        self: Rc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        mut pending: PendingConnection,
    ) {
        let accepted = timeout(self.reply_timeout(), async {
            pending.place.wait_for_first_byte(&stream).await?.ok()?;
            pending.place.unless_lost(self.accept(stream)).await?
        });
        let Ok(Some(mut connection)) = accepted.await else {
            return self
                .server
                .report_rejection(client.ip(), ClientRejection::Unknown);
        };
        if connection.speaks_http2() {
            self.serve_http2(connection, client, pending).await;
            return;
        }
        let mut pending = Some(pending);
        while let Some(next) = self.serve_request(connection, client, pending.take()).await {
            connection = next;
            match self
                .server
                .admission
                .admit_pending(client.ip(), Instant::now())
            {
                Ok(place) => pending = Some(place),
                Err(_) => return,
            }
        }
    }

    /// Accepts TLS, or a client without where that is permitted; `None` if neither comes about.
    async fn accept(&self, stream: TcpStream) -> Option<WebConnection> {
        let mut first_byte = [0];
        stream.peek(&mut first_byte).await.ok()?;
        let control = if first_byte == [HANDSHAKE] {
            self.options.identity.accept_tls(stream).await.ok()?
        } else if self.options.serves_plain {
            ControlConnection::Plain(stream)
        } else {
            return None;
        };
        WebConnection::from_control(control).ok()
    }

    /// Reads one request and answers it. Returns the connection if another one may follow.
    async fn serve_request(
        &self,
        mut connection: WebConnection,
        client: SocketAddr,
        mut pending: Option<PendingConnection>,
    ) -> Option<WebConnection> {
        let place = &mut pending.as_mut()?.place;
        let read = timeout(
            self.reply_timeout(),
            place.unless_lost(connection.read_head(RequestHead::parse)),
        );
        let head = match read.await.ok()?? {
            Ok(head) => head,
            Err(HeadFailure::Ended) => return None,
            Err(HeadFailure::Refused(refusal)) => {
                return self.refuse(connection, refusal).await;
            }
        };
        let test = match asked_test(&head) {
            Ok(test) => test,
            Err(refusal) => return self.refuse(connection, refusal).await,
        };
        let answers = self.small_answers(client, connection.is_encrypted());
        let Some(small) = answers.answer_to(&head, test) else {
            drop(pending);
            return self.run_test(connection, client, &head, test).await;
        };
        let keeps = head.keeps_connection;
        self.send(connection, small.to_method(&head.method), keeps)
            .await
    }

    /// Returns what the small answers to a client are made of.
    fn small_answers(&self, client: SocketAddr, is_encrypted: bool) -> SmallAnswers {
        SmallAnswers {
            results: Arc::clone(&self.results),
            client: client.ip(),
            is_encrypted,
        }
    }

    /// Sends an answer. Returns the connection if it `keeps` it.
    async fn send(
        &self,
        mut connection: WebConnection,
        answer: Answer,
        keeps: bool,
    ) -> Option<WebConnection> {
        let bytes = answer.to_http1(keeps);
        let sent = timeout(self.reply_timeout(), connection.send_bytes(&bytes)).await;
        sent.ok()?.ok()?;
        if keeps {
            return Some(connection);
        }
        let _ = timeout(self.reply_timeout(), connection.finish()).await;
        None
    }

    /// Refuses a request, and closes the connection.
    async fn refuse(
        &self,
        connection: WebConnection,
        refusal: RequestRefusal,
    ) -> Option<WebConnection> {
        self.send(connection, refusal.into(), false).await
    }
}
