//! TLS of speed tests over the web, whose data the caller seals and opens itself after the handshake.

use std::io;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore,
    ServerConfig, SignatureScheme,
};

use crate::connection::{
    ControlConnection, HTTP2, TlsError, TlsTrust, VERSIONS, authorities_verifier, by_reference,
    certificate_chain, client_config, private_key, provider_of, server_config,
    signatures_verified_by,
};
use crate::raw_key::tls12_unsupported;
use crate::records::SUITE_OF_RECORDS;

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
        clients: Arc<dyn ClientCertVerifier>,
    ) -> Result<Self, TlsError> {
        let provider = provider_of(SUITE_OF_RECORDS);
        let mut config = server_config(provider, certificates, key, clients)?;
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
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, provider_of(SUITE_OF_RECORDS))
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
        ControlConnection::accept(&self.0, stream).await
    }
}

impl WebClientTls {
    /// Returns the side of a client that takes any certificate: a speed test has no secrets. It
    /// still has the other end prove that it has the key of the certificate.
    ///
    /// # Errors
    /// Fails if the library lacks what is needed.
    pub fn unverified() -> Result<Self, TlsError> {
        Self::verifying_by(Arc::new(AnyCertificate(provider_of(SUITE_OF_RECORDS))))
    }

    /// Returns the side of a client that takes the certificates of `trust`.
    ///
    /// # Errors
    /// Fails if the library lacks what is needed.
    pub fn trusting(trust: &TlsTrust) -> Result<Self, TlsError> {
        Self::verifying_by(trust.verifier())
    }

    /// Returns the side of a client that takes certificates of the authorities that this host
    /// trusts.
    ///
    /// # Errors
    /// Fails if the library lacks what is needed.
    pub fn trusting_system() -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::verifying_by(authorities_verifier(roots)?)
    }

    /// Returns the side of a client that takes certificates of one authority, which a server sends
    /// with its own and whose SHA-256 is `fingerprint`.
    ///
    /// # Errors
    /// Fails if the library lacks what is needed.
    pub fn pinning_authority(fingerprint: [u8; 32]) -> Result<Self, TlsError> {
        Self::verifying_by(Arc::new(PinnedAuthority {
            fingerprint,
            any: AnyCertificate(provider_of(SUITE_OF_RECORDS)),
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
        let mut config = ClientConfig::builder_with_provider(provider_of(SUITE_OF_RECORDS))
            .with_protocol_versions(VERSIONS)?
            .with_root_certificates(root_certificates(authority)?)
            .with_client_auth_cert(certificate_chain(certificate)?, private_key(key)?)?;
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
        let mut config = client_config(provider_of(SUITE_OF_RECORDS), verifier)?;
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
        ControlConnection::connect(&self.0, host, stream).await
    }
}

fn root_certificates(authority: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificate_chain(authority)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Returns the SHA-256 of the certificate of an authority, in PEM, by which
/// [`WebClientTls::pinning_authority`] knows it.
///
/// # Errors
/// Fails if it is none.
pub fn authority_fingerprint(authority: &[u8]) -> Result<[u8; 32], TlsError> {
    let chain = certificate_chain(authority)?;
    Ok(chain.first().map_or([0; 32], sha256))
}

fn sha256(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, certificate).as_ref());
    hash
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
        let authority = intermediates
            .iter()
            .find(|authority| sha256(authority) == self.fingerprint)
            .ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        authorities_verifier(roots)?.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )
    }

    signatures_verified_by!(any);
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
