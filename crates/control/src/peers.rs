//! Two programs that share a key: each proves to the other that it has it, in the clear or inside
//! TLS 1.3.
//!
//! ```text
//! caller                                   listener
//! "fpeer 1\n", 32 random bytes          →
//!                                       ←  32 random bytes, proof of the listener
//! proof of the caller                   →
//! ```
//!
//! A proof is HMAC-SHA-256 over a purpose, the role of the one who proves, 32 bytes of keying
//! material that TLS exports (RFC 8446, section 7.5; zeros in the clear), and the random bytes of
//! both. So no recorded proof is valid again, none is valid for the other role, and nobody in the
//! middle of two TLS connections can pass one on. The listener's TLS key is made anew by each
//! process and needs no certificate (RFC 7250), because the proof is about this very connection.

use std::io;
use std::sync::Arc;

use aws_lc_rs::rand;
use aws_lc_rs::signature::Ed25519KeyPair;
use fullpipe_iperf::SharedKey;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::rustls::CipherSuite;
use tokio_rustls::rustls::crypto::CryptoProvider;

use crate::connection::crypto_provider;
use crate::raw_key::{RawKeyTls, raw_key};
use crate::{ControlConnection, TlsError};

/// First bytes of a caller, with the version of the exchange.
const GREETING: &[u8; 8] = b"fpeer 1\n";

/// Random bytes of each end, keying material, and a proof have the same length.
const LENGTH: usize = 32;

/// Prefixes of what is proved, so that no other use of the same key gives the same bytes.
const PURPOSE: &[u8] = b"fullpipe peers 1";
const TEXT_PURPOSE: &[u8] = b"fullpipe peer text 1";

/// Label of the keying material that TLS exports.
const EXPORTER: &[u8] = b"EXPORTER-fullpipe-peers";

const CALLER: &[u8] = b"caller";
const LISTENER: &[u8] = b"listen";

/// TLS 1.3 between programs that prove by their key who they are.
#[derive(Debug, Clone)]
pub struct PeerTls(pub(crate) RawKeyTls);

/// A connection whose other end has the same key.
#[derive(Debug)]
pub struct AuthenticatedPeer {
    /// The connection.
    pub control: ControlConnection,
    key: SharedKey,
    nonces: [[u8; LENGTH]; 2],
}

impl AuthenticatedPeer {
    /// Bytes of the tag of a text.
    pub const TAG: usize = LENGTH;

    /// Calls the program at the other end of `stream`, inside TLS if `tls` is given. Deadlines are
    /// the caller's affair. Small writes of the stream are no longer delayed: the messages of a
    /// handshake would each wait for an acknowledgement that the other end delays.
    ///
    /// # Errors
    /// Fails with `PermissionDenied` if the other end does not have the key, and if it closes the
    /// connection.
    pub async fn connect_peer(
        stream: TcpStream,
        key: &SharedKey,
        tls: Option<&PeerTls>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::prove_as_caller(stream, key, tls)
            .await
            .map_err(|error| before_proof(error, tls.is_some()))
    }

    async fn prove_as_caller(
        stream: TcpStream,
        key: &SharedKey,
        tls: Option<&PeerTls>,
    ) -> io::Result<Self> {
        let mut control = match tls {
            Some(tls) => tls.0.call(stream).await?,
            None => ControlConnection::Plain(stream),
        };
        let binding = control.exported(EXPORTER)?;
        let ours = random_nonce()?;
        control.send_bytes(&[&GREETING[..], &ours].concat()).await?;
        let nonces = [ours, receive_array(&mut control).await?];
        let proof: [u8; LENGTH] = receive_array(&mut control).await?;
        if !key.verifies_tag(&proof, &proof_parts(LISTENER, &binding, &nonces)) {
            return Err(no_key());
        }
        control
            .send_bytes(&key.tag_parts(&proof_parts(CALLER, &binding, &nonces)))
            .await?;
        Ok(Self {
            control,
            key: key.clone(),
            nonces,
        })
    }

    /// Answers the program that called, inside TLS if `tls` is given. Deadlines are the caller's
    /// affair. Small writes of the stream are no longer delayed.
    ///
    /// # Errors
    /// Fails with `PermissionDenied` if the caller does not have the key, with `InvalidData` if it
    /// is no such program, and if it closes the connection.
    pub async fn accept_peer(
        stream: TcpStream,
        key: &SharedKey,
        tls: Option<&PeerTls>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::prove_as_listener(stream, key, tls)
            .await
            .map_err(|error| before_proof(error, tls.is_some()))
    }

    async fn prove_as_listener(
        stream: TcpStream,
        key: &SharedKey,
        tls: Option<&PeerTls>,
    ) -> io::Result<Self> {
        let mut control = match tls {
            Some(tls) => tls.0.answer(stream).await?,
            None => ControlConnection::Plain(stream),
        };
        let binding = control.exported(EXPORTER)?;
        if receive_array(&mut control).await? != *GREETING {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let nonces = [receive_array(&mut control).await?, random_nonce()?];
        let proof = key.tag_parts(&proof_parts(LISTENER, &binding, &nonces));
        control.send_bytes(&[nonces[1], proof].concat()).await?;
        let proof: [u8; LENGTH] = receive_array(&mut control).await?;
        if !key.verifies_tag(&proof, &proof_parts(CALLER, &binding, &nonces)) {
            return Err(no_key());
        }
        Ok(Self {
            control,
            key: key.clone(),
            nonces,
        })
    }

    /// Returns the tag of `text` on this connection: no end without the key can make it, and it is
    /// valid on no other.
    pub fn tag_text(&self, text: &[u8]) -> [u8; Self::TAG] {
        self.key
            .tag_parts(&[TEXT_PURPOSE, &self.nonces[0], &self.nonces[1], text])
    }

    /// Returns true if `tag` is that of [`AuthenticatedPeer::tag_text`], in constant time.
    pub fn verifies_tag(&self, tag: &[u8], text: &[u8]) -> bool {
        self.key
            .verifies_tag(tag, &[TEXT_PURPOSE, &self.nonces[0], &self.nonces[1], text])
    }
}

async fn receive_array<const N: usize>(control: &mut ControlConnection) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    control.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn proof_parts<'p>(
    role: &'p [u8],
    binding: &'p [u8],
    nonces: &'p [[u8; LENGTH]; 2],
) -> [&'p [u8]; 5] {
    [PURPOSE, role, binding, &nonces[0], &nonces[1]]
}

/// Returns an error of the time before the other end has proved the key with what a user can do
/// about it.
pub(crate) fn before_proof(error: io::Error, encrypts: bool) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::InvalidData if encrypts => {
            "the other end does not begin with TLS, as this one does"
        }
        io::ErrorKind::InvalidData => {
            "the other end is no such program, or encrypts, which this one does not"
        }
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => {
            "the other end closed the connection before it proved the key: it has another, is another program, or only \
             one end encrypts"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

fn no_key() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the other end does not have the same key",
    )
}

fn random_nonce() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    rand::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

impl PeerTls {
    /// Makes a key for this process.
    ///
    /// # Errors
    /// Fails if the library has no random bytes.
    pub fn new() -> Result<Self, TlsError> {
        // The one whose records this room seals itself.
        Self::of_suite(CipherSuite::TLS13_AES_256_GCM_SHA384)
    }

    /// Makes a key for connections with this cipher suite alone.
    pub(crate) fn of_suite(only: CipherSuite) -> Result<Self, TlsError> {
        let mut provider = CryptoProvider::clone(&crypto_provider());
        provider.cipher_suites.retain(|suite| suite.suite() == only);
        let provider = Arc::new(provider);
        let listener = raw_key(Ed25519KeyPair::generate(), &provider)?;
        Ok(Self(RawKeyTls::new(&provider, listener, None)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsRecords;
    use crate::loopback::{connected_pair, run_test};
    use tokio::io::AsyncWriteExt;
    use tokio_rustls::TlsStream;

    fn key(text: &str) -> SharedKey {
        SharedKey::from_file_content(text.as_bytes()).unwrap()
    }

    #[test]
    fn both_ends_prove_the_key_in_the_clear_and_inside_tls() {
        run_test(async {
            for tls in [None, Some(PeerTls::new().unwrap())] {
                let (caller, listener) = connected_pair().await;
                let key = key("correct horse battery");
                let (called, answered) = tokio::join!(
                    AuthenticatedPeer::connect_peer(caller, &key, tls.as_ref()),
                    AuthenticatedPeer::accept_peer(listener, &key, tls.as_ref())
                );
                let (mut called, mut answered) = (called.unwrap(), answered.unwrap());
                for control in [&called.control, &answered.control] {
                    assert!(control.tcp_stream().nodelay().unwrap());
                }
                called.control.send_bytes(b"text").await.unwrap();
                assert_eq!(answered.control.receive_bytes().await.unwrap(), b"text");
                assert!(answered.verifies_tag(&called.tag_text(b"text"), b"text"));
                assert!(!answered.verifies_tag(&called.tag_text(b"text"), b"test"));
            }
        });
    }

    /// Two ends that know each other, inside TLS.
    async fn peers() -> [AuthenticatedPeer; 2] {
        let (tls, key) = (PeerTls::new().unwrap(), key("correct horse battery"));
        let (caller, listener) = connected_pair().await;
        let (called, answered) = tokio::join!(
            AuthenticatedPeer::connect_peer(caller, &key, Some(&tls)),
            AuthenticatedPeer::accept_peer(listener, &key, Some(&tls))
        );
        [called.unwrap(), answered.unwrap()]
    }

    /// Reads until `length` bytes of payload have come.
    async fn read_records(
        stream: &mut TcpStream,
        records: &mut TlsRecords,
        length: usize,
    ) -> Vec<u8> {
        let mut payload = records.take_arrived();
        while payload.len() < length {
            let mut buffer = records.partial_record().to_vec();
            stream.read_buf(&mut buffer).await.unwrap();
            let opened = records.open_records(&mut buffer).unwrap();
            payload.extend_from_slice(&buffer[..opened]);
        }
        payload
    }

    async fn read_control(control: &mut ControlConnection, length: usize) -> Vec<u8> {
        let mut payload = vec![0; length];
        control.read_exact(&mut payload).await.unwrap();
        payload
    }

    fn refresh_keys(control: &mut ControlConnection) {
        let ControlConnection::Encrypted(encrypted) = control else {
            panic!("it is encrypted")
        };
        match &mut encrypted.stream {
            TlsStream::Client(stream) => stream.get_mut().1.refresh_traffic_keys(),
            TlsStream::Server(stream) => stream.get_mut().1.refresh_traffic_keys(),
        }
        .unwrap();
    }

    #[test]
    fn an_end_that_takes_its_records_over_understands_the_tls_library_at_the_other_end() {
        run_test(async {
            let payload: Vec<u8> = (0..40_000_u32).map(|number| (number % 251) as u8).collect();
            for caller_takes_over in [true, false] {
                let [called, answered] = peers().await;
                let (taken, mut other) = if caller_takes_over {
                    (called, answered)
                } else {
                    (answered, called)
                };
                let (mut stream, records) = taken.control.into_records().unwrap();
                let mut records = records.expect("it is encrypted");
                for round in 0..3 {
                    let mut sealed = Vec::new();
                    records.seal_payload(&payload, &mut sealed).unwrap();
                    stream.write_all(&sealed).await.unwrap();
                    assert!(
                        read_control(&mut other.control, payload.len()).await == payload,
                        "{round}"
                    );
                    // Its next message asks for new keys of both directions.
                    refresh_keys(&mut other.control);
                    other.control.send_bytes(&payload).await.unwrap();
                    assert!(
                        read_records(&mut stream, &mut records, payload.len()).await == payload,
                        "{round}"
                    );
                }
                let mut end = Vec::new();
                records.seal_end(&mut end).unwrap();
                stream.write_all(&end).await.unwrap();
                assert!(other.control.receive_bytes().await.unwrap().is_empty());
                other.control.shutdown().await.unwrap();
                while !records.has_ended() {
                    let mut buffer = records.partial_record().to_vec();
                    assert!(stream.read_buf(&mut buffer).await.unwrap() > 0);
                    assert_eq!(records.open_records(&mut buffer), Ok(0));
                }
            }
        });
    }

    #[test]
    fn what_came_with_a_message_is_not_lost_when_records_are_taken_over() {
        run_test(async {
            let [mut called, mut answered] = peers().await;
            called
                .control
                .send_bytes(b"request and more")
                .await
                .unwrap();
            called.control.send_bytes(b" and the next").await.unwrap();
            called.control.shutdown().await.unwrap();
            assert_eq!(read_control(&mut answered.control, 7).await, b"request");
            let (mut stream, records) = answered.control.into_records().unwrap();
            let mut records = records.expect("it is encrypted");
            assert!(!records.has_ended());
            assert_eq!(
                read_records(&mut stream, &mut records, 22).await,
                b" and more and the next"
            );
        });
    }

    #[test]
    fn neither_end_accepts_another_key() {
        run_test(async {
            for tls in [None, Some(PeerTls::new().unwrap())] {
                let (caller, listener) = connected_pair().await;
                let (right, wrong) = (key("correct horse battery"), key("correct horse batterz"));
                let (called, answered) = tokio::join!(
                    AuthenticatedPeer::connect_peer(caller, &wrong, tls.as_ref()),
                    AuthenticatedPeer::accept_peer(listener, &right, tls.as_ref())
                );
                assert_eq!(called.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
                assert!(answered.is_err());
            }
        });
    }

    #[test]
    fn a_recorded_call_is_not_valid_again() {
        run_test(async {
            let key = key("correct horse battery");
            // What a caller would send to a listener whose random bytes it has recorded.
            let nonces = [[1; LENGTH], [2; LENGTH]];
            let (mut caller, listener) = connected_pair().await;
            let recorded = [
                &GREETING[..],
                &nonces[0],
                &key.tag_parts(&proof_parts(CALLER, &[0; LENGTH], &nonces)),
            ]
            .concat();
            caller.write_all(&recorded).await.unwrap();
            let refused = AuthenticatedPeer::accept_peer(listener, &key, None)
                .await
                .unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        });
    }

    #[test]
    fn an_echo_of_our_own_proof_proves_nothing() {
        run_test(async {
            let key = key("correct horse battery");
            let (mut caller, listener) = connected_pair().await;
            let echo = async {
                caller
                    .write_all(&[&GREETING[..], &[1; LENGTH]].concat())
                    .await
                    .unwrap();
                let mut answer = [0; 2 * LENGTH];
                caller.read_exact(&mut answer).await.unwrap();
                caller.write_all(&answer[LENGTH..]).await.unwrap();
            };
            let (refused, ()) =
                tokio::join!(AuthenticatedPeer::accept_peer(listener, &key, None), echo);
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        });
    }

    #[test]
    fn rubbish_is_refused() {
        run_test(async {
            for tls in [None, Some(PeerTls::new().unwrap())] {
                let (mut caller, listener) = connected_pair().await;
                caller.write_all(&[7; 400]).await.unwrap();
                assert!(
                    AuthenticatedPeer::accept_peer(
                        listener,
                        &key("correct horse battery"),
                        tls.as_ref()
                    )
                    .await
                    .is_err()
                );
            }
        });
    }
}
