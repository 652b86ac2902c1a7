//! TLS of speed tests over the web, whose data the caller seals and opens itself after the handshake.

use std::io;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, Error as RustlsError,
    RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::connection::{
    ControlConnection, HTTP2, TlsError, TlsTrust, VERSIONS, by_reference, certificate_chain,
    crypto_provider,
};
use crate::raw_key::tls12_unsupported;
use crate::record_stream::RecordStream;
use crate::records::{TrafficSecrets, client_that_states, server_that_states};

/// Name of HTTP/1.1 inside TLS (RFC 7301).
const HTTP1: &[u8] = b"http/1.1";

/// The certificate and the key of a web server for speed tests. It speaks TLS 1.3 with AES-256-GCM
/// and both HTTP/2 and HTTP/1.1, which all browsers do; its records can be taken over
/// ([`ControlConnection::into_records`]).
#[derive(Clone)]
pub struct WebIdentity(Arc<ServerConfig>);

/// The side of a client of such servers.
#[derive(Clone)]
pub struct WebClientTls(Arc<ClientConfig>);

by_reference!(WebIdentity);
by_reference!(WebClientTls);

impl WebIdentity {
    /// Reads the certificates of a server, its own first, and its private key, both in PEM.
    ///
    /// # Errors
    /// Fails if they cannot be read, or do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Self::verifying_clients(certificates, key, WebPkiClientVerifier::no_client_auth())
    }

    fn verifying_clients(
        certificates: &[u8],
        key: &[u8],
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|cause| TlsError::Pem {
            wanted: "private key",
            cause,
        })?;
        let mut config = ServerConfig::builder_with_provider(provider_of_records())
            .with_protocol_versions(VERSIONS)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificate_chain(certificates)?, key)?;
        config.alpn_protocols = [HTTP2, HTTP1].map(<[u8]>::to_vec).into();
        // A ticket would be a record that the next connection is not faster by.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Returns the same for clients of which some have a certificate of `authority`, in PEM
    /// ([`ControlConnection::peer_certificate`]); one of another authority is refused.
    ///
    /// # Errors
    /// Fails if there is no such authority.
    pub fn knowing_clients(
        certificates: &[u8],
        key: &[u8],
        authority: &[u8],
    ) -> Result<Self, TlsError> {
        let roots = Arc::new(root_certificates(authority)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider_of_records())
            .allow_unauthenticated()
            .build()
            .map_err(|error| RustlsError::General(error.to_string()))?;
        Self::verifying_clients(certificates, key, verifier)
    }

    /// Completes the handshake with a client that asks for TLS. Deadlines are the caller's affair.
    ///
    /// # Errors
    /// Fails if the client does not speak it, or closes the connection.
    pub async fn accept_tls(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        let secrets = Arc::<TrafficSecrets>::default();
        let stream = TlsAcceptor::from(server_that_states(&self.0, &secrets))
            .accept(RecordStream::new(stream))
            .await?;
        Ok(ControlConnection::from_tls_stream(stream.into(), secrets))
    }
}

impl WebClientTls {
    /// Returns the side of a client that takes any certificate: a speed test has no secrets. It
    /// still has the other end prove that it has the key of the certificate.
    ///
    /// # Errors
    /// Fails if the library lacks what is needed.
    pub fn unverified() -> Result<Self, TlsError> {
        Self::verifying_by(Arc::new(AnyCertificate(provider_of_records())))
    }

    /// Returns the side of a client that takes the certificates of `trust`.
    ///
    /// # Errors
    /// Fails if the library lacks what is needed.
    pub fn trusting(trust: &TlsTrust) -> Result<Self, TlsError> {
        Self::verifying_by(trust.verifier())
    }

    /// Returns the side of a client that takes certificates of one authority, which a server sends
    /// with its own and whose SHA-256 is `fingerprint`.
    ///
    /// # Errors
    /// Fails if the library lacks what is needed.
    pub fn pinning_authority(fingerprint: [u8; 32]) -> Result<Self, TlsError> {
        Self::verifying_by(Arc::new(PinnedAuthority {
            fingerprint,
            any: AnyCertificate(provider_of_records()),
        }))
    }

    /// Returns the side of a client that takes the certificates of `authority` and shows its own,
    /// all in PEM.
    ///
    /// # Errors
    /// Fails if they cannot be read, or do not belong together.
    pub fn with_certificate(
        authority: &[u8],
        certificate: &[u8],
        key: &[u8],
    ) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|cause| TlsError::Pem {
            wanted: "private key",
            cause,
        })?;
        let mut config = ClientConfig::builder_with_provider(provider_of_records())
            .with_protocol_versions(VERSIONS)?
            .with_root_certificates(root_certificates(authority)?)
            .with_client_auth_cert(certificate_chain(certificate)?, key)?;
        config.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Returns the side of a client that speaks HTTP/2 too, and likes that better.
    #[must_use]
    pub fn preferring_http2(self) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = [HTTP2, HTTP1].map(<[u8]>::to_vec).into();
        Self(Arc::new(config))
    }

    fn verifying_by(verifier: Arc<dyn ServerCertVerifier>) -> Result<Self, TlsError> {
        let mut config = ClientConfig::builder_with_provider(provider_of_records())
            .with_protocol_versions(VERSIONS)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Asks `host`, at the other end of `stream`, for TLS. Deadlines are the caller's affair.
    ///
    /// # Errors
    /// Fails if it does not speak it, or if `host` cannot be the name of a server.
    pub async fn connect_tls(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<ControlConnection> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let secrets = Arc::<TrafficSecrets>::default();
        let stream = TlsConnector::from(client_that_states(&self.0, &secrets))
            .connect(name, RecordStream::new(stream))
            .await?;
        Ok(ControlConnection::from_tls_stream(stream.into(), secrets))
    }
}

/// Returns a provider with the one suite of which this crate seals the records itself.
fn provider_of_records() -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&crypto_provider());
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS13_AES_256_GCM_SHA384);
    Arc::new(provider)
}

fn root_certificates(authority: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificate_chain(authority)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Takes certificates of the one authority that is known by its hash.
#[derive(Debug)]
struct PinnedAuthority {
    fingerprint: [u8; 32],
    any: AnyCertificate,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        let is_pinned = |authority: &&CertificateDer<'_>| {
            digest(&SHA256, authority).as_ref() == self.fingerprint
        };
        let authority = intermediates
            .iter()
            .find(is_pinned)
            .ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.any.0))
            .build()
            .map_err(|error| RustlsError::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.any
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.any
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.any.supported_verify_schemes()
    }
}

/// Takes any certificate whose key signs the handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        Err(tls12_unsupported())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
