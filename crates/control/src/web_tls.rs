//! TLS of speed tests over the web, whose data the caller seals and opens itself after the handshake.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as RustlsError, ServerConfig, SignatureScheme,
};

use crate::connection::{
    ControlConnection, HTTP2, TlsError, TlsTrust, by_reference, client_config, provider_of,
    server_config,
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
        let mut config = server_config(provider_of(SUITE_OF_RECORDS), certificates, key)?;
        config.alpn_protocols = [HTTP2, HTTP1].map(<[u8]>::to_vec).into();
        // A ticket would be a record that the next connection is not faster by.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
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
