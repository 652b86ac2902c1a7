//! TLS 1.3 between ends that have raw keys without a certificate (RFC 7250).

use std::io;
use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::connection::{VERSIONS, client_config, crypto_provider};
use crate::{ControlConnection, TlsError};

/// Returns the pair with its public key in place of a certificate. `pair` is the answer of the
/// library that makes it.
///
/// # Errors
/// Fails if the library made none, or cannot take it over.
pub(crate) fn raw_key<E>(
    pair: Result<Ed25519KeyPair, E>,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, Error> {
    let pair = pair.map_err(|_| general_error("no key could be made"))?;
    let der = pair
        .to_pkcs8()
        .map_err(|_| general_error("no key could be written"))?;
    let key = provider
        .key_provider
        .load_private_key(PrivatePkcs8KeyDer::from(der.as_ref().to_vec()).into())?;
    let public = key
        .public_key()
        .ok_or_else(|| general_error("the key has no public part"))?;
    Ok(Arc::new(CertifiedKey::new(
        vec![CertificateDer::from(public.to_vec())],
        key,
    )))
}

fn general_error(what: &str) -> Error {
    Error::General(what.to_owned())
}

/// Returns the error of a version that no end here offers.
pub(crate) fn tls12_unsupported() -> Error {
    general_error("TLS 1.2 is not spoken")
}

/// Both configurations of connections between such ends, at either end.
#[derive(Clone)]
pub(crate) struct RawKeyTls {
    pub server: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
}

impl RawKeyTls {
    /// Returns TLS whose listener has the key `listener`. If there is a `caller`, each end accepts
    /// only the key of the other one; if not, a caller has none and accepts any.
    pub(crate) fn new(
        provider: &Arc<CryptoProvider>,
        listener: Arc<CertifiedKey>,
        caller: Option<Arc<CertifiedKey>>,
    ) -> Result<Self, TlsError> {
        let accepted = caller.is_some().then_some(&*listener);
        let mut client = client_config(Arc::clone(provider), RawKeyVerifier::new(accepted))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(VERSIONS)?;
        let server = match caller {
            Some(caller) => {
                let server = server.with_client_cert_verifier(RawKeyVerifier::new(Some(&caller)));
                client.client_auth_cert_resolver =
                    Arc::new(AlwaysResolvesClientRawPublicKeys::new(caller));
                server
            }
            None => server.with_no_client_auth(),
        };
        let mut server =
            server.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(listener)));
        // Nobody resumes a session. A listener that says nothing of its own accord can be seen to
        // have gone.
        server.send_tls13_tickets = 0;
        // Nor does a caller keep the tickets of a listener that has not proved itself.
        client.resumption = Resumption::disabled();
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }

    /// Completes a handshake with the program at the other end of `stream`, as the caller.
    pub(crate) async fn call(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        ControlConnection::connect(&self.client, UNREAD_NAME, stream).await
    }

    /// Completes a handshake with the program that called.
    pub(crate) async fn answer(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        ControlConnection::accept(&self.server, stream).await
    }
}

impl std::fmt::Debug for RawKeyTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawKeyTls(…)")
    }
}

/// The name of a listener, which has none; nobody reads it.
pub(crate) const UNREAD_NAME: &str = "0.0.0.0";

/// Accepts one key, or any that signs the handshake.
#[derive(Debug)]
pub(crate) struct RawKeyVerifier {
    key: Option<Vec<u8>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl RawKeyVerifier {
    pub(crate) fn new(key: Option<&CertifiedKey>) -> Arc<Self> {
        let key = key.map(|key| key.cert[0].as_ref().to_vec());
        Arc::new(Self {
            key,
            algorithms: crypto_provider().signature_verification_algorithms,
        })
    }

    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        if self.key.as_ref().is_none_or(|own| key.as_ref() == own) {
            return Ok(());
        }
        Err(Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }
}

/// The signatures of either end: those of its raw key, under TLS 1.3 alone.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(tls12_unsupported())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(key.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for RawKeyVerifier {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl ClientCertVerifier for RawKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    verify_signatures!();
}
