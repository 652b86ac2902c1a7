//! Connections that the server opens to this end, where this end can open none to it.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use fullpipe_control::{listen_tcp, single_threaded_runtime};
use fullpipe_sys::random_bytes;
use fullpipe_units::to_hexadecimal;
use socket2::Socket;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::engine::LocalEndpoint;

/// What fails where no call of the server arrives, as in "cannot …".
pub(crate) const GETTING_CALLS: &str = "have the server connect to this end";

/// Random bytes of a token.
const TOKEN: usize = 32;

/// Maximum number of connections whose tokens are awaited at the same time.
const MAX_UNKNOWN: usize = 256;

/// Time after which another connection is accepted, where one was not.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// Connections that a server is asked to open to this end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedCalls {
    /// Port at which this end listens.
    pub port: u16,
    /// Number of connections.
    pub count: u16,
    /// First bytes of each, by which they are told from those of others.
    pub token: String,
}

type RequestFunction = dyn Fn(&RequestedCalls) -> io::Result<()> + Send + Sync;

/// The way to a server that opens the connections of a test itself. Two are equal if one is a copy
/// of the other.
#[derive(Clone)]
pub struct CallBack {
    port: u16,
    request: Arc<RequestFunction>,
}

impl CallBack {
    /// Returns the way to a server that opens connections to `port` of this end (0 for any that is
    /// free) when `request` asks it to; that returns once they are open.
    pub fn new(
        port: u16,
        request: impl Fn(&RequestedCalls) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            port,
            request: Arc::new(request),
        }
    }

    /// Has the server open one connection, which is closed again.
    ///
    /// # Errors
    /// Fails if it does not arrive at `local` within `limit`.
    pub fn check(&self, local: &LocalEndpoint, limit: Duration) -> io::Result<()> {
        let runtime = single_threaded_runtime()?;
        let called = self.await_calls(1, local, limit, |_| ());
        runtime.block_on(called).map(drop)
    }

    /// Returns `count` connections that the server has opened, with the options that `prepare` gave
    /// the listening socket.
    ///
    /// # Errors
    /// Fails if this end cannot listen, the server cannot call, or its calls do not arrive within
    /// `limit` of their being open there.
    pub(crate) async fn await_calls(
        &self,
        count: u16,
        local: &LocalEndpoint,
        limit: Duration,
        prepare: impl Fn(&Socket),
    ) -> io::Result<Vec<TcpStream>> {
        let listener = listen_tcp(local.address, self.port, |socket| {
            if let Some(device) = &local.device {
                socket.bind_device(Some(device.as_bytes()))?;
            }
            // Without the SYN it is not known what devices on the path changed.
            let _ = fullpipe_sys::save_syn(socket);
            prepare(socket);
            Ok(())
        })
        .map_err(io::Error::other)?;
        let token = to_hexadecimal(&random_bytes::<TOKEN>()?);
        let requested = RequestedCalls {
            port: listener.local_addr()?.port(),
            count,
            token: token.clone(),
        };
        let request = Arc::clone(&self.request);
        let asked = spawn_blocking(move || request(&requested));
        let mut arrived = std::pin::pin!(accept_calls(&listener, count.into(), &token));
        tokio::select! {
            calls = &mut arrived => return Ok(calls),
            answer = asked => answer.map_err(io::Error::other)??,
        }
        let late = |_| io::Error::new(ErrorKind::TimedOut, "its calls do not arrive");
        timeout(limit, arrived).await.map_err(late)
    }
}

impl PartialEq for CallBack {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.request, &other.request)
    }
}

impl Eq for CallBack {}

impl std::fmt::Debug for CallBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CallBack({})", self.port)
    }
}

/// Returns the first `count` connections that begin with `token`; closes others.
async fn accept_calls(listener: &TcpListener, count: usize, token: &str) -> Vec<TcpStream> {
    let (mut calls, mut unknown) = (Vec::new(), JoinSet::new());
    while calls.len() < count {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if unknown.len() < MAX_UNKNOWN => {
                    unknown.spawn(known_call(stream, token.to_owned()));
                }
                Ok(_) => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(Ok(call)) = unknown.join_next() => calls.extend(call),
        }
    }
    calls
}

/// Returns a connection whose first bytes are `token`, without them.
async fn known_call(mut stream: TcpStream, token: String) -> Option<TcpStream> {
    let mut first_bytes = vec![0; token.len()];
    stream.read_exact(&mut first_bytes).await.ok()?;
    (first_bytes == token.as_bytes()).then_some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpStream as StdTcpStream};

    const LIMIT: Duration = Duration::from_secs(5);

    fn here() -> LocalEndpoint {
        LocalEndpoint {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            ..LocalEndpoint::default()
        }
    }

    fn call(port: u16, token: &str) -> StdTcpStream {
        let mut stream = StdTcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(token.as_bytes()).unwrap();
        stream
    }

    #[tokio::test]
    async fn calls_are_told_from_strangers() {
        let way = CallBack::new(0, |calls| {
            let wrong = "0".repeat(calls.token.len());
            let strangers = [call(calls.port, &wrong), call(calls.port, "GET / HTTP/1.1")];
            let known: Vec<_> = (0..calls.count)
                .map(|_| call(calls.port, &calls.token))
                .collect();
            drop((strangers, known));
            Ok(())
        });
        let called = way.await_calls(3, &here(), LIMIT, |_| ()).await;
        assert_eq!(called.unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_server_that_cannot_call_is_said_at_once() {
        let way = CallBack::new(0, |_| Err(io::Error::other("no route")));
        let called = way.await_calls(1, &here(), LIMIT, |_| ()).await;
        assert_eq!(called.unwrap_err().to_string(), "no route");
    }

    #[test]
    fn calls_that_do_not_arrive_have_a_deadline() {
        let way = CallBack::new(0, |_| Ok(()));
        let error = way.check(&here(), Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
