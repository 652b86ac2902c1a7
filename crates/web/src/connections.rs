//! Connections of HTTP/1.1 and HTTP/2, in the clear or inside TLS, and what they have at most.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use fullpipe_control::{ClientPlaces, ControlConnection, WebIdentity};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::answer::Answer;

/// Longest time of a connection.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Time for a handshake of TLS.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Time for the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// Time after a failure to accept, as where no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers requests.
pub(crate) trait RequestService: Send + Sync + 'static {
    /// Answers a request, whatever it is, of a client that has shown this certificate, in DER.
    fn answer(
        &self,
        request: Request<Incoming>,
        certificate: Option<&[u8]>,
    ) -> impl Future<Output = Answer> + Send;
}

/// The connections of a server.
pub(crate) struct Connections<S> {
    service: S,
    /// Certificate and key; without them, connections are in the clear.
    identity: Option<WebIdentity>,
    places: Arc<ClientPlaces>,
}

impl<S: RequestService> Connections<S> {
    pub(crate) fn new(
        service: S,
        identity: Option<WebIdentity>,
        places: Arc<ClientPlaces>,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            identity,
            places,
        })
    }

    /// Returns what answers requests.
    pub(crate) fn service(&self) -> &S {
        &self.service
    }

    /// Serves these listeners until the future is dropped.
    pub(crate) async fn serve_listeners(self: Arc<Self>, listeners: Vec<TcpListener>) {
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn(Arc::clone(&self).accept_connections(listener));
        }
        accepting.join_all().await;
    }

    async fn accept_connections(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, client)) = listener.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(place) = self.places.take_place(client.ip()) else {
                continue;
            };
            let server = Arc::clone(&self);
            tokio::spawn(async move {
                // Whoever still reads after that connects again.
                let _ = timeout(MAX_AGE, server.serve_connection(stream)).await;
                drop(place);
            });
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream) {
        let connection = match &self.identity {
            None => ControlConnection::Plain(stream),
            Some(identity) => {
                match timeout(HANDSHAKE_DEADLINE, identity.accept_tls(stream)).await {
                    Ok(Ok(connection)) => connection,
                    _ => return,
                }
            }
        };
        let is_http2 = connection.speaks_http2();
        let certificate: Option<Arc<[u8]>> = connection.peer_certificate().map(Into::into);
        let connection = TokioIo::new(connection);
        let service = service_fn(move |request| {
            let (server, certificate) = (Arc::clone(&self), certificate.clone());
            async move {
                let answer = server.service.answer(request, certificate.as_deref());
                Ok::<_, Infallible>(answer.await)
            }
        });
        // A client that breaks a rule or goes away is nobody else's affair.
        let _ = if is_http2 {
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(HEAD_DEADLINE)
                .serve_connection(connection, service)
                .await
        } else {
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_DEADLINE)
                .serve_connection(connection, service)
                .await
        };
    }
}
