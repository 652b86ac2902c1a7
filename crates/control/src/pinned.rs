//! TLS 1.3 between two programs that know the same random secret: the key of each end follows from it, and each accepts
//! only that of the other one.
//!
//! So a handshake comes to its end only between two who know the secret, and there is nothing to prove behind it. That
//! fits QUIC, whose handshake this is (RFC 9001). The keys are raw ones, without a certificate (RFC 7250). Their seeds
//! are HMAC-SHA-256 over a purpose and the role, under the secret.

use std::sync::Arc;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::Ed25519KeyPair;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use tokio_rustls::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error as RustlsError, ServerConfig,
    SignatureScheme,
};

use crate::TlsError;
use crate::connection::{VERSIONS, provider};
use crate::raw_key::raw_key;

/// Name of the protocol inside, for a program of another kind (RFC 7301).
const PROTOCOL: &[u8] = b"fullpipe pinned 1";

const CALLER: &[u8] = b"fullpipe pinned 1 caller";
const LISTENER: &[u8] = b"fullpipe pinned 1 listener";

/// TLS 1.3 whose keys follow from a secret, at either end.
#[derive(Clone)]
pub struct PinnedTls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl PinnedTls {
    /// Makes the keys of a secret of 32 random bytes. One that can be guessed does not do: who calls sees the public
    /// key of the listener, and could try.
    ///
    /// # Errors
    /// Fails if the library cannot make a key.
    pub fn of_secret(secret: &[u8; 32]) -> Result<Self, TlsError> {
        let provider = provider();
        let [caller, listener] = [CALLER, LISTENER].map(|role| key(secret, role, &provider));
        let (caller, listener) = (caller?, listener?);
        let only = |key: &CertifiedKey| {
            let key = key.cert[0].as_ref().to_vec();
            Arc::new(OnlyKey { key, algorithms: provider.signature_verification_algorithms })
        };
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)?
            .dangerous()
            .with_custom_certificate_verifier(only(&listener))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&caller))));
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)?
            .with_client_cert_verifier(only(&caller))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(listener)));
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// Returns the configuration of the end that listens.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Returns the configuration of the end that calls.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}

impl std::fmt::Debug for PinnedTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PinnedTls(…)")
    }
}

fn key(secret: &[u8; 32], role: &[u8], provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, TlsError> {
    let seed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), role);
    Ok(raw_key(Ed25519KeyPair::from_seed_unchecked(seed.as_ref()), provider)?)
}

/// Accepts one key.
#[derive(Debug)]
struct OnlyKey {
    key: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl OnlyKey {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), RustlsError> {
        if key.as_ref() == self.key {
            return Ok(());
        }
        Err(RustlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

fn not_spoken() -> Result<HandshakeSignatureValid, RustlsError> {
    Err(RustlsError::General("TLS 1.2 is not spoken".to_owned()))
}

impl ServerCertVerifier for OnlyKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        not_spoken()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for OnlyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, RustlsError> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        not_spoken()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.verify(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::{ClientConnection, ServerConnection};

    /// Runs a handshake in memory. Returns whether an end refused, and whether each is still in it.
    fn shake_hands(caller: Arc<ClientConfig>, listener: Arc<ServerConfig>) -> (bool, [bool; 2]) {
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(caller, name).unwrap();
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

    /// Returns whether both ends came to the end of a handshake.
    fn agree(caller: &[u8; 32], listener: &[u8; 32]) -> bool {
        let [caller, listener] = [caller, listener].map(|secret| PinnedTls::of_secret(secret).unwrap());
        shake_hands(caller.client(), listener.server()) == (false, [false; 2])
    }

    #[test]
    fn a_handshake_ends_only_between_those_who_know_the_secret() {
        assert!(agree(&[7; 32], &[7; 32]));
        assert!(!agree(&[7; 32], &[8; 32]) && !agree(&[8; 32], &[7; 32]));
    }

    #[test]
    fn a_caller_without_a_key_or_with_that_of_the_listener_is_refused() {
        let pinned = PinnedTls::of_secret(&[7; 32]).unwrap();
        let of_listener = key(&[7; 32], LISTENER, &provider()).unwrap();
        let builder = || {
            let algorithms = provider().signature_verification_algorithms;
            let key = of_listener.cert[0].as_ref().to_vec();
            let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS).unwrap();
            builder.dangerous().with_custom_certificate_verifier(Arc::new(OnlyKey { key, algorithms }))
        };
        let resolver = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&of_listener));
        for mut config in [builder().with_no_client_auth(), builder().with_client_cert_resolver(Arc::new(resolver))] {
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            let (refused, [_, listener_waits]) = shake_hands(Arc::new(config), pinned.server());
            assert!(refused && listener_waits);
        }
    }
}
