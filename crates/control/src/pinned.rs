//! TLS 1.3 between two programs that know the same random secret: the key of each end follows from
//! it, and each accepts only that of the other one.
//!
//! So a handshake comes to its end only between two who know the secret, and there is nothing to
//! prove behind it. That fits QUIC, whose handshake this is (RFC 9001), and saves a round trip over
//! TCP. The keys are raw ones, without a certificate (RFC 7250). Their seeds are HMAC-SHA-256 over
//! a purpose and the role, under the secret.

use std::io;
use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::Ed25519KeyPair;
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, Error as RustlsError, ServerConfig};

use crate::connection::{PART, crypto_provider};
use crate::peers::before_proof;
use crate::raw_key::{RawKeyTls, raw_key};
use crate::records::SUITE_OF_RECORDS;
use crate::{ControlConnection, TlsError};

/// Name of the protocol inside, for a program of another kind (RFC 7301).
pub(crate) const PROTOCOL: &[u8] = b"fullpipe pinned 1";

const CALLER: &[u8] = b"fullpipe pinned 1 caller";
const LISTENER: &[u8] = b"fullpipe pinned 1 listener";

/// TLS 1.3 whose keys follow from a secret, at either end.
#[derive(Debug, Clone)]
pub struct PinnedTls(RawKeyTls);

impl PinnedTls {
    /// Makes the keys of a secret of 32 bytes, which are random, or a digest of an unguessable key:
    /// who calls sees the public key of the listener, and could try.
    ///
    /// # Errors
    /// Fails if the library cannot make a key.
    pub fn of_secret(secret: &[u8; 32]) -> Result<Self, TlsError> {
        let provider = provider_for_records();
        let [caller, listener] = [CALLER, LISTENER].map(|role| derive_key(secret, role, &provider));
        let tls = RawKeyTls::new(&provider, listener?, Some(caller?))?;
        Ok(Self(tls).with_protocols(&[PROTOCOL], PROTOCOL))
    }

    /// Returns the same with these names of protocols: those that a listener answers, and that of a
    /// caller.
    fn with_protocols(&self, answered: &[&[u8]], called: &[u8]) -> Self {
        let RawKeyTls { server, client } = &self.0;
        let (mut server, mut client) = (ServerConfig::clone(server), ClientConfig::clone(client));
        server.alpn_protocols = answered.iter().map(|name| name.to_vec()).collect();
        client.alpn_protocols = vec![called.to_vec()];
        Self(RawKeyTls {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }

    /// Returns the TLS configuration for parts: connections that belong to another one between the
    /// same ends. It calls as a part, and answers both kinds, which [`ControlConnection::is_part`]
    /// distinguishes.
    #[must_use]
    pub fn with_parts(&self) -> Self {
        self.with_protocols(&[PROTOCOL, PART], PART)
    }

    /// Returns the configuration of the end that listens.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.server)
    }

    /// Returns the configuration of the end that calls.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.client)
    }

    /// Calls the program at the other end of `stream`, which has proved then that it knows the
    /// secret. It has not verified this end by then: one that does not like it breaks the
    /// connection later. Deadlines are the caller's affair. Small writes of the stream are no
    /// longer delayed.
    ///
    /// # Errors
    /// Fails with `PermissionDenied` if the other end does not know the secret, and if it closes
    /// the connection.
    pub async fn connect_pinned(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        stream.set_nodelay(true)?;
        self.0.call(stream).await.map_err(in_handshake)
    }

    /// Answers the program that called, which has proved then that it knows the secret. Nothing but
    /// the handshake is sent before. Deadlines are the caller's affair. Small writes of the stream
    /// are no longer delayed.
    ///
    /// # Errors
    /// Fails with `PermissionDenied` if the caller does not know the secret, with `InvalidData` if
    /// it is no such program, and if it closes the connection.
    pub async fn accept_pinned(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        stream.set_nodelay(true)?;
        self.0.answer(stream).await.map_err(in_handshake)
    }
}

/// Returns an error of a handshake with what a user can do about it.
fn in_handshake(error: io::Error) -> io::Error {
    let of_tls = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<RustlsError>());
    match of_tls {
        // Either end notices, and the other one gets an alert.
        Some(
            RustlsError::InvalidCertificate(_)
            | RustlsError::NoCertificatesPresented
            | RustlsError::AlertReceived(_),
        ) => {
            let why =
                "the other end does not have the same key, or is an older version of this program";
            io::Error::new(io::ErrorKind::PermissionDenied, why)
        }
        _ => before_proof(error, true),
    }
}

/// Returns a provider whose first choice is the suite of which this room seals the records itself.
/// QUIC needs others, too (RFC 9001, section 5.2).
fn provider_for_records() -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&crypto_provider());
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != SUITE_OF_RECORDS);
    Arc::new(provider)
}

fn derive_key(
    secret: &[u8; 32],
    role: &[u8],
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let seed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), role);
    Ok(raw_key(
        Ed25519KeyPair::from_seed_unchecked(seed.as_ref()),
        provider,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::VERSIONS;
    use crate::loopback::{connected_pair, run_test};
    use crate::raw_key::{RawKeyVerifier, UNREAD_NAME};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::client::AlwaysResolvesClientRawPublicKeys;
    use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
    use tokio_rustls::rustls::{ClientConnection, ServerConnection};

    /// Runs a handshake in memory. Returns whether an end refused, and whether each is still in it.
    fn shake_hands(caller: Arc<ClientConfig>, listener: Arc<ServerConfig>) -> (bool, [bool; 2]) {
        let mut client = ClientConnection::new(caller, UNREAD_NAME.try_into().unwrap()).unwrap();
        let mut server = ServerConnection::new(listener).unwrap();
        let mut refused = false;
        for _ in 0..4 {
            let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut to_server).unwrap();
            }
            server.read_tls(&mut to_server.as_slice()).unwrap();
            refused |= server.process_new_packets().is_err();
            while server.wants_write() {
                server.write_tls(&mut to_client).unwrap();
            }
            client.read_tls(&mut to_client.as_slice()).unwrap();
            refused |= client.process_new_packets().is_err();
        }
        (refused, [client.is_handshaking(), server.is_handshaking()])
    }

    /// Returns true if both ends came to the end of a handshake.
    fn agree(caller: &[u8; 32], listener: &[u8; 32]) -> bool {
        let [caller, listener] =
            [caller, listener].map(|secret| PinnedTls::of_secret(secret).unwrap());
        shake_hands(caller.client_config(), listener.server_config()) == (false, [false; 2])
    }

    #[test]
    fn a_handshake_ends_only_between_those_who_know_the_secret() {
        assert!(agree(&[7; 32], &[7; 32]));
        assert!(!agree(&[7; 32], &[8; 32]) && !agree(&[8; 32], &[7; 32]));
    }

    /// Returns the configuration of a caller that accepts the right listener, and presents `key`,
    /// if there is one.
    fn caller_with(key: Option<Arc<CertifiedKey>>, secret: &[u8; 32]) -> Arc<ClientConfig> {
        let listener = super::derive_key(secret, LISTENER, &crypto_provider()).unwrap();
        let builder = ClientConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(VERSIONS)
            .unwrap();
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(RawKeyVerifier::new(Some(&listener)));
        let mut config = match key {
            Some(key) => builder
                .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Arc::new(config)
    }

    #[test]
    fn a_caller_without_a_key_or_with_that_of_the_listener_is_refused() {
        let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
        for key in [
            None,
            Some(derive_key(&[7; 32], LISTENER, &crypto_provider()).unwrap()),
        ] {
            let (refused, [_, listener_waits]) =
                shake_hands(caller_with(key, &[7; 32]), pinned.server_config());
            assert!(refused && listener_waits);
        }
    }

    #[test]
    fn a_listener_with_the_key_of_the_caller_is_refused() {
        let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
        let caller = derive_key(&[7; 32], CALLER, &crypto_provider()).unwrap();
        let builder = ServerConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(VERSIONS)
            .unwrap();
        let mut reflected = builder
            .with_client_cert_verifier(RawKeyVerifier::new(Some(&caller)))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(caller)));
        reflected.alpn_protocols = vec![PROTOCOL.to_vec()];
        let (refused, [caller_waits, _]) = shake_hands(pinned.client_config(), Arc::new(reflected));
        assert!(refused && caller_waits);
    }

    #[test]
    fn the_bytes_of_a_caller_are_not_valid_again() {
        let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
        let mut client =
            ClientConnection::new(pinned.client_config(), UNREAD_NAME.try_into().unwrap()).unwrap();
        let mut server = ServerConnection::new(pinned.server_config()).unwrap();
        let mut recorded = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            let (at, mut answer) = (recorded.len(), Vec::new());
            client.write_tls(&mut recorded).unwrap();
            server.read_tls(&mut &recorded[at..]).unwrap();
            server.process_new_packets().unwrap();
            while server.wants_write() {
                server.write_tls(&mut answer).unwrap();
            }
            client.read_tls(&mut answer.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        assert_eq!(
            client.negotiated_cipher_suite().unwrap().suite(),
            SUITE_OF_RECORDS
        );
        let mut again = ServerConnection::new(pinned.server_config()).unwrap();
        again.read_tls(&mut recorded.as_slice()).unwrap();
        assert!(again.process_new_packets().is_err() && again.is_handshaking());
    }

    #[test]
    fn over_tcp_what_the_caller_sends_with_its_handshake_arrives_and_neither_end_accepts_another_secret()
     {
        run_test(async {
            let [right, wrong] =
                [[7; 32], [8; 32]].map(|secret| PinnedTls::of_secret(&secret).unwrap());
            let (caller, listener) = connected_pair().await;
            let call = async {
                let mut called = right.connect_pinned(caller).await.unwrap();
                called.send_bytes(b"at once").await.unwrap();
                called
            };
            let (called, answered) = tokio::join!(call, right.accept_pinned(listener));
            let mut answered = answered.unwrap();
            assert_eq!(answered.receive_bytes().await.unwrap(), b"at once");
            assert!(
                called.tcp_stream().nodelay().unwrap() && answered.tcp_stream().nodelay().unwrap()
            );
            let (caller, listener) = connected_pair().await;
            let (called, answered) =
                tokio::join!(wrong.connect_pinned(caller), right.accept_pinned(listener));
            for refused in [called.unwrap_err(), answered.unwrap_err()] {
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            }
        });
    }

    #[test]
    fn both_ends_take_the_records_over_with_what_came_before() {
        run_test(async {
            let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
            let (caller, listener) = connected_pair().await;
            let (called, answered) = tokio::join!(
                pinned.connect_pinned(caller),
                pinned.accept_pinned(listener)
            );
            let (mut called, mut answered) = (called.unwrap(), answered.unwrap());
            called.send_bytes(b"name and more").await.unwrap();
            answered.read_exact(&mut [0; 4]).await.unwrap();
            let [(mut near, ours), (mut far, theirs)] =
                [called, answered].map(|end| end.into_records().unwrap());
            let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
            let mut wire = Vec::new();
            ours.seal_payload(b" behind it", &mut wire).unwrap();
            near.write_all(&wire).await.unwrap();
            assert_eq!(theirs.take_arrived(), b" and more");
            far.read_exact(&mut wire).await.unwrap();
            let opened = theirs.open_records(&mut wire).unwrap();
            assert_eq!(wire[..opened], *b" behind it");
        });
    }

    #[test]
    fn a_record_of_which_a_part_has_come_is_taken_over_too() {
        run_test(async {
            let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
            let (caller, listener) = connected_pair().await;
            let call = async {
                let called = pinned.connect_pinned(caller).await.unwrap();
                let (mut near, ours) = called.into_records().unwrap();
                let mut wire = Vec::new();
                ours.unwrap().seal_payload(&[5; 9000], &mut wire).unwrap();
                near.write_all(&wire[..5000]).await.unwrap();
                (near, wire)
            };
            let ((mut near, wire), answered) = tokio::join!(call, pinned.accept_pinned(listener));
            let (mut far, theirs) = answered.unwrap().into_records().unwrap();
            let mut theirs = theirs.unwrap();
            near.write_all(&wire[5000..]).await.unwrap();
            let mut came = theirs.partial_record().to_vec();
            let held = came.len();
            came.resize(wire.len(), 0);
            far.read_exact(&mut came[held..]).await.unwrap();
            assert_eq!(theirs.open_records(&mut came).unwrap(), 9000);
        });
    }

    #[test]
    fn a_part_is_distinguished_by_who_expects_parts_and_refused_by_who_does_not() {
        run_test(async {
            let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
            let parts = pinned.with_parts();
            for (call, is_part) in [(&pinned, false), (&parts, true)] {
                let (caller, listener) = connected_pair().await;
                let (called, answered) =
                    tokio::join!(call.connect_pinned(caller), parts.accept_pinned(listener));
                assert_eq!(
                    [called, answered].map(|end| end.unwrap().is_part()),
                    [is_part; 2]
                );
            }
            let (caller, listener) = connected_pair().await;
            let (called, answered) =
                tokio::join!(parts.connect_pinned(caller), pinned.accept_pinned(listener));
            assert!(called.is_err() && answered.is_err());
            // A part needs the secret as well.
            let other = PinnedTls::of_secret(&[8; 32]).unwrap().with_parts();
            let (caller, listener) = connected_pair().await;
            let (called, answered) =
                tokio::join!(other.connect_pinned(caller), parts.accept_pinned(listener));
            assert!(called.is_err() && answered.is_err());
        });
    }

    /// Passes one connection on to `to`, and returns who sent, in turns, until `caller` closes.
    async fn turns(mut caller: TcpStream, mut to: TcpStream) -> Vec<&'static str> {
        let (mut turns, mut from_caller, mut from_listener) = (Vec::new(), [0; 4096], [0; 4096]);
        loop {
            let (who, count) = tokio::select! {
                count = caller.read(&mut from_caller) => ("caller", count.unwrap()),
                count = to.read(&mut from_listener) => ("listener", count.unwrap()),
            };
            match who {
                _ if count == 0 => return turns,
                "caller" => to.write_all(&from_caller[..count]).await.unwrap(),
                _ => caller.write_all(&from_listener[..count]).await.unwrap(),
            }
            turns.push(who);
            turns.dedup();
        }
    }

    /// A proof behind the handshake would take one more.
    #[test]
    fn what_a_caller_sends_first_goes_after_one_round_trip() {
        run_test(async {
            let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
            let ((caller, near), (far, listener)) =
                (connected_pair().await, connected_pair().await);
            let call = async {
                let mut called = pinned.connect_pinned(caller).await.unwrap();
                called.send_bytes(b"data").await.unwrap();
            };
            let answer = async {
                let mut answered = pinned.accept_pinned(listener).await.unwrap();
                assert_eq!(answered.receive_bytes().await.unwrap(), b"data");
                answered
            };
            let ((), _answered, turns) = tokio::join!(call, answer, turns(near, far));
            assert_eq!(turns, ["caller", "listener", "caller"]);
        });
    }

    /// The caller's own handshake is over before the listener verifies it.
    #[test]
    fn a_caller_that_is_refused_gets_no_answer_to_what_it_sends() {
        run_test(async {
            let listening = PinnedTls::of_secret(&[7; 32]).unwrap();
            let (caller, listener) = connected_pair().await;
            let call = async {
                let other = derive_key(&[8; 32], CALLER, &crypto_provider()).unwrap();
                let connector = TlsConnector::from(caller_with(Some(other), &[7; 32]));
                let mut stream = connector
                    .connect(UNREAD_NAME.try_into().unwrap(), caller)
                    .await
                    .unwrap();
                stream.write_all(b"a request").await.unwrap();
                stream.flush().await.unwrap();
                stream.read(&mut [0]).await
            };
            let (answer, refused) = tokio::join!(call, listening.accept_pinned(listener));
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert!(answer.is_err(), "{answer:?}");
        });
    }

    #[test]
    fn rubbish_is_refused() {
        run_test(async {
            let (mut caller, listener) = connected_pair().await;
            caller.write_all(&[7; 400]).await.unwrap();
            let refused = PinnedTls::of_secret(&[7; 32])
                .unwrap()
                .accept_pinned(listener)
                .await
                .unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        });
    }
}
