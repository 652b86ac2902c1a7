//! Connections for data at the port of a server's call: they are made while the server answers the
//! call, and then join its copy by the secret of that.
//!
//! Data connections use the TLS key of the call, so only a client that has the key gets so far.
//! The secret crosses inside TLS, as in the call: a client with the key but without the
//! secret joins no copy.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};

use fullpipe_control::ControlConnection;
use fullpipe_units::ByteCount;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::connect::{CopyCredentials, MAX_CONNECTIONS, dial_at_once};
use crate::data_stream::DataStream;
use crate::protocol::{Digest, chunk_hash};
use crate::pulse::FIRST_TIMEOUT;
use crate::threads::start_answering;
use fullpipe_sys::lock;

/// Copies at a server that take connections, by the digest of their secrets: the time that it takes
/// to find one says nothing of a secret.
#[derive(Default)]
pub(crate) struct JoinableCopies(Mutex<HashMap<Digest, JoinableCopy>>);

struct JoinableCopy {
    streams: Sender<DataStream>,
    /// Connections that it still takes.
    left: u16,
}

/// A copy that takes connections, until this is dropped.
pub(crate) struct CopyRegistration {
    joining: Arc<JoinableCopies>,
    digest: Digest,
}

impl JoinableCopies {
    /// Lets connections join the copy with this secret: they come out at the other end of
    /// `streams`.
    pub(crate) fn register_copy(
        self: &Arc<Self>,
        secret: &[u8; 32],
        streams: Sender<DataStream>,
    ) -> CopyRegistration {
        let digest = secret_digest(secret);
        lock(&self.0).insert(
            digest,
            JoinableCopy {
                streams,
                left: MAX_CONNECTIONS,
            },
        );
        CopyRegistration {
            joining: Arc::clone(self),
            digest,
        }
    }

    /// Waits for a connection to say which copy it joins, and passes it on. One that says nothing
    /// was not needed.
    ///
    /// # Errors
    /// Fails if there is no such copy, or it has connections enough.
    pub(crate) async fn pass_connection(
        &self,
        mut connection: ControlConnection,
    ) -> Result<(), &'static str> {
        let mut secret = [0; 32];
        // It waits until the call is answered, which has as much time.
        if !matches!(
            timeout(FIRST_TIMEOUT, connection.read_exact(&mut secret)).await,
            Ok(Ok(_))
        ) {
            return Ok(());
        }
        let stream = DataStream::from_control(connection).map_err(|_| NOBODY)?;
        let mut takers = lock(&self.0);
        let taker = takers
            .get_mut(&secret_digest(&secret))
            .filter(|taker| taker.left > 0)
            .ok_or(NOBODY)?;
        taker.left -= 1;
        taker.streams.send(stream).map_err(|_| NOBODY)
    }
}

impl Drop for CopyRegistration {
    fn drop(&mut self) {
        lock(&self.joining.0).remove(&self.digest);
    }
}

/// The reason for which a connection is not taken.
const NOBODY: &str = "it joins no copy that is under way";

fn secret_digest(secret: &[u8; 32]) -> Digest {
    chunk_hash(ByteCount::new(secret.len() as u64), 0, secret)
}

/// Connections to a server that are being made while it answers the call.
pub(crate) struct EarlyConnections {
    address: SocketAddr,
    credentials: CopyCredentials,
    /// Without a thread there are none.
    made: Option<Receiver<Vec<DataStream>>>,
}

impl EarlyConnections {
    /// Begins to make `count` connections to the address that was called.
    pub(crate) fn start_dialling(
        address: SocketAddr,
        credentials: CopyCredentials,
        count: u16,
    ) -> Self {
        let calling = credentials.clone();
        let made = start_answering("copy-early", move || {
            dial_at_once(address, &calling, count).unwrap_or_default()
        });
        Self {
            address,
            credentials,
            made: made.ok(),
        }
    }

    /// Returns `count` connections that have joined the copy with this secret, or as many as can be
    /// made; none if the first could not.
    pub(crate) fn take_joined(&self, secret: &[u8; 32], count: u16) -> Vec<DataStream> {
        let made = self.made.as_ref().and_then(|made| made.recv().ok());
        let mut streams = made.unwrap_or_default();
        streams.truncate(count.into());
        let missing = count - streams.len() as u16;
        if missing > 0 && !streams.is_empty() {
            streams
                .extend(dial_at_once(self.address, &self.credentials, missing).unwrap_or_default());
        }
        streams.retain_mut(|stream| send_secret(stream, secret).is_ok());
        streams
    }
}

fn send_secret(stream: &mut DataStream, secret: &[u8; 32]) -> io::Result<()> {
    stream.write_all(secret)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_control::{PinnedTls, listen_tcp};
    use fullpipe_iperf::SharedKey;
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::task::{JoinSet, LocalSet};

    const SECRET: [u8; 32] = [7; 32];

    /// Answers so many callers with the key, and lets those that are parts join. Returns what has
    /// become of each.
    fn server(
        joining: &Arc<JoinableCopies>,
        callers: usize,
    ) -> (
        SocketAddr,
        thread::JoinHandle<Vec<Result<(), &'static str>>>,
    ) {
        let (joining, (ready, address)) = (Arc::clone(joining), channel());
        let work = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async {
                let listener = listen_tcp(Some([127, 0, 0, 1].into()), 0, |_| Ok(())).unwrap();
                ready.send(listener.local_addr().unwrap()).unwrap();
                let mut served = JoinSet::new();
                for _ in 0..callers {
                    let (called, joining) =
                        (listener.accept().await.unwrap().0, Arc::clone(&joining));
                    served.spawn_local(async move {
                        let answered = tls().accept_pinned(called).await.unwrap();
                        assert!(answered.is_part());
                        joining.pass_connection(answered).await
                    });
                }
                served.join_all().await
            })
        });
        (address.recv().unwrap(), work)
    }

    fn tls() -> PinnedTls {
        PinnedTls::of_secret(&[1; 32]).unwrap().with_parts()
    }

    fn early(address: SocketAddr, count: u16) -> EarlyConnections {
        let key = SharedKey::from_file_content(b"correct horse battery").unwrap();
        EarlyConnections::start_dialling(address, CopyCredentials::of_tls(&key, tls()), count)
    }

    #[test]
    fn connections_join_the_copy_whose_secret_they_say_and_carry_what_is_written_behind_it() {
        let joining = Arc::<JoinableCopies>::default();
        let (streams, joined) = channel();
        let _taking = joining.register_copy(&SECRET, streams);
        let (address, server) = server(&joining, 3);
        // Two are begun, and a third is made as it is wanted.
        let mut made = early(address, 2).take_joined(&SECRET, 3);
        assert_eq!((made.len(), server.join().unwrap()), (3, vec![Ok(()); 3]));
        for (number, stream) in (0_u8..).zip(&mut made) {
            stream.write_all(&[number]).unwrap();
        }
        let mut came: Vec<u8> = joined
            .try_iter()
            .map(|mut stream| {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                byte[0]
            })
            .collect();
        came.sort_unstable();
        assert_eq!(came, [0, 1, 2]);
    }

    #[test]
    fn who_has_the_key_without_the_secret_joins_nothing() {
        let joining = Arc::<JoinableCopies>::default();
        let (streams, joined) = channel();
        let taking = joining.register_copy(&SECRET, streams);
        let (address, serving) = server(&joining, 1);
        early(address, 1).take_joined(&[8; 32], 1);
        assert!(serving.join().unwrap()[0].is_err());
        // Nor does one that comes when the copy has its connections.
        drop(taking);
        let (address, serving) = server(&joining, 1);
        early(address, 1).take_joined(&SECRET, 1);
        assert!(serving.join().unwrap()[0].is_err());
        // One that was not needed leaves without a word.
        let (address, serving) = server(&joining, 1);
        early(address, 1).take_joined(&SECRET, 0);
        assert!(serving.join().unwrap()[0].is_ok());
        assert!(joined.recv_timeout(Duration::from_millis(10)).is_err());
    }

    #[test]
    fn a_copy_takes_no_more_connections_than_it_may_have() {
        let joining = Arc::<JoinableCopies>::default();
        let (streams, joined) = channel();
        let _taking = joining.register_copy(&SECRET, streams);
        lock(&joining.0)
            .values_mut()
            .for_each(|taker| taker.left = 1);
        let (address, server) = server(&joining, 2);
        early(address, 2).take_joined(&SECRET, 2);
        let served = server.join().unwrap();
        assert_eq!(
            (
                served.iter().filter(|served| served.is_ok()).count(),
                joined.try_iter().count()
            ),
            (1, 1)
        );
    }

    #[test]
    fn without_the_key_there_are_none() {
        let (address, server) = server(&Arc::default(), 0);
        server.join().unwrap();
        assert!(early(address, 2).take_joined(&SECRET, 2).is_empty());
    }
}
