//! The control connection of a test, in the clear or encrypted.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    self, CipherSuite, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::record_stream::RecordStream;
use crate::records::{TlsRecords, TrafficSecrets, client_that_states, server_that_states};

/// The first byte of a TLS client: the type of a handshake record (RFC 8446, section 5.1). No
/// cookie begins so.
pub const HANDSHAKE: u8 = 0x16;

/// The certificate and the key with which a server answers clients that ask for TLS 1.3.
#[derive(Clone)]
pub struct TlsIdentity(Arc<ServerConfig>);

/// The certificates that a client trusts when it asks a server for TLS 1.3.
#[derive(Clone)]
pub struct TlsTrust(Arc<ClientConfig>, Arc<CertificateVerifier>);

/// The error of a certificate or key that cannot be used for TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file is no PEM, or has no object of the wanted kind.
    #[error("it holds no {wanted} in PEM: {cause}")]
    Pem {
        /// The kind of object that the file should hold.
        wanted: &'static str,
        /// The error of the PEM reader.
        cause: PemError,
    },
    /// Certificate and key cannot be used.
    #[error("it cannot be used for TLS: {0}")]
    Unfit(#[from] rustls::Error),
}

impl TlsIdentity {
    /// Reads the certificates of a server, its own first, and its private key, in PEM.
    ///
    /// # Errors
    /// If they cannot be read, or do not belong together.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let clients = WebPkiClientVerifier::no_client_auth();
        let config = server_config(crypto_provider(), pem, pem, clients)?;
        Ok(Self(Arc::new(config)))
    }

    /// Completes the handshake with a client that asks for TLS.
    ///
    /// # Errors
    /// If the client does not speak it, or closes the connection.
    pub async fn accept_tls(&self, stream: TcpStream) -> io::Result<ControlConnection> {
        ControlConnection::accept(&self.0, stream).await
    }
}

impl TlsTrust {
    /// Reads the trusted certificates, in PEM: of authorities, or the server's own.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn from_pem(authorities: &[u8]) -> Result<Self, TlsError> {
        let verifier = Arc::new(CertificateVerifier::new(certificate_chain(authorities)?)?);
        let config = client_config(
            crypto_provider(),
            Arc::<CertificateVerifier>::clone(&verifier),
        )?;
        Ok(Self(Arc::new(config), verifier))
    }

    /// Returns what verifies the certificate of a server.
    pub(crate) fn verifier(&self) -> Arc<dyn ServerCertVerifier> {
        Arc::<CertificateVerifier>::clone(&self.1)
    }

    /// Asks `host`, at the other end of `stream`, for TLS.
    ///
    /// # Errors
    /// If it does not speak it, or has no trusted certificate for its name.
    pub async fn connect_tls(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<ControlConnection> {
        ControlConnection::connect(&self.0, host, stream).await
    }
}

/// Leaves the signatures of a handshake to a verifier in this field.
macro_rules! signatures_verified_by {
    ($verifier:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
            self.$verifier
                .verify_tls12_signature(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
            self.$verifier
                .verify_tls13_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.$verifier.supported_verify_schemes()
        }
    };
}

pub(crate) use signatures_verified_by;

/// Returns what takes the certificates of these authorities.
pub(crate) fn authorities_verifier(
    roots: RootCertStore,
) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto_provider())
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))
}

/// Verifies a server's certificate: one that an authority has signed, or exactly one that the user
/// trusts.
///
/// The usual self-signed certificate may sign others (`openssl req -x509` sets `CA:TRUE`). As an
/// authority it is none of a server, and as a server's it has no authority; yet it is the very one
/// that the user chose.
#[derive(Debug)]
struct CertificateVerifier {
    trusted: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl CertificateVerifier {
    fn new(trusted: Vec<CertificateDer<'static>>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in &trusted {
            roots.add(authority.clone())?;
        }
        Ok(Self {
            trusted,
            authorities: authorities_verifier(roots)?,
        })
    }
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusted.contains(end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )
    }

    signatures_verified_by!(authorities);
}

/// Bytes that are read at once.
const READ: usize = 16 * 1024;

/// Name of the protocol inside a part of another connection (RFC 7301).
pub(crate) const PART: &[u8] = b"fullpipe pinned 1 part";

/// Name of HTTP/2 inside TLS (RFC 9113, section 3.2).
pub(crate) const HTTP2: &[u8] = b"h2";

/// Both ends are fullpipe, so nothing older is needed.
pub(crate) const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

pub(crate) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Returns a provider with this cipher suite alone.
pub(crate) fn provider_of(only: CipherSuite) -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == only);
    Arc::new(provider)
}

/// Returns the configuration of a server with these certificates, its own first, and this private
/// key, both in PEM, whose clients `clients` verifies.
pub(crate) fn server_config(
    provider: Arc<CryptoProvider>,
    certificates: &[u8],
    key: &[u8],
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsError> {
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(VERSIONS)?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificate_chain(certificates)?, private_key(key)?)?;
    Ok(config)
}

/// Reads a private key in PEM.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|cause| TlsError::Pem {
        wanted: "private key",
        cause,
    })
}

/// Returns the configuration of a client without a key, whose servers `verifier` verifies.
pub(crate) fn client_config(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// At least one certificate.
pub(crate) fn certificate_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .and_then(|chain| {
            if chain.is_empty() {
                Err(PemError::NoItemsFound)
            } else {
                Ok(chain)
            }
        })
        .map_err(|cause| TlsError::Pem {
            wanted: "certificate",
            cause,
        })
}

/// Two are the same if one is a copy of the other.
macro_rules! by_reference {
    ($type:ident) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
            }
        }

        impl Eq for $type {}

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($type), "(…)"))
            }
        }
    };
}

pub(crate) use by_reference;

by_reference!(TlsIdentity);
by_reference!(TlsTrust);

/// A control connection.
#[derive(Debug)]
pub enum ControlConnection {
    /// In the clear.
    Plain(TcpStream),
    /// Inside TLS.
    Encrypted(Box<TlsConnection>),
}

/// A connection inside TLS.
#[derive(Debug)]
pub struct TlsConnection {
    pub(crate) stream: TlsStream<RecordStream>,
    /// The secrets that its handshake stated.
    secrets: Arc<TrafficSecrets>,
}

impl ControlConnection {
    /// Completes a handshake with the client at the other end of `stream`.
    pub(crate) async fn accept(config: &ServerConfig, stream: TcpStream) -> io::Result<Self> {
        let secrets = Arc::default();
        let stream = TlsAcceptor::from(server_that_states(config, &secrets))
            .accept(RecordStream::new(stream))
            .await?
            .into();
        Ok(Self::Encrypted(Box::new(TlsConnection { stream, secrets })))
    }

    /// Completes a handshake with the server `host` at the other end of `stream`.
    pub(crate) async fn connect(
        config: &ClientConfig,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let secrets = Arc::default();
        let stream = TlsConnector::from(client_that_states(config, &secrets))
            .connect(name, RecordStream::new(stream))
            .await?
            .into();
        Ok(Self::Encrypted(Box::new(TlsConnection { stream, secrets })))
    }

    /// The connection that carries it.
    pub fn tcp_stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Encrypted(encrypted) => &encrypted.stream.get_ref().0.tcp,
        }
    }

    /// Returns true if the caller has made it as a part of another one
    /// ([`PinnedTls::with_parts`](crate::PinnedTls)).
    pub fn is_part(&self) -> bool {
        self.protocol() == Some(PART)
    }

    /// Returns true if both ends have agreed on HTTP/2.
    pub fn speaks_http2(&self) -> bool {
        self.protocol() == Some(HTTP2)
    }

    /// Returns the protocol inside TLS that both ends have agreed on.
    fn protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Encrypted(encrypted) => encrypted.stream.get_ref().1.alpn_protocol(),
        }
    }

    /// Returns the certificate that the other end has shown, in DER, without those above it; `None`
    /// if it has shown none.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Encrypted(encrypted) => {
                let chain = encrypted.stream.get_ref().1.peer_certificates()?;
                chain.first().map(AsRef::as_ref)
            }
        }
    }

    /// Returns keying material of TLS (RFC 8446, section 7.5), by which a proof holds for this
    /// connection alone; zeros in the clear.
    ///
    /// # Errors
    /// Fails if the library does.
    pub(crate) fn exported(&self, label: &[u8]) -> io::Result<[u8; 32]> {
        let material = [0; 32];
        let exported = match self {
            Self::Plain(_) => return Ok(material),
            Self::Encrypted(encrypted) => match &encrypted.stream {
                TlsStream::Client(stream) => stream
                    .get_ref()
                    .1
                    .export_keying_material(material, label, None),
                TlsStream::Server(stream) => stream
                    .get_ref()
                    .1
                    .export_keying_material(material, label, None),
            },
        };
        exported.map_err(io::Error::other)
    }

    /// Returns the TCP stream and, if the connection is encrypted, its records: their keys, and
    /// what came already.
    ///
    /// # Errors
    /// Fails if a record was read or written in part, if the other end has changed its keys
    /// already, and if its cipher suite is not AES-256-GCM.
    pub fn into_records(self) -> io::Result<(TcpStream, Option<TlsRecords>)> {
        let TlsConnection { stream, secrets } = match self {
            Self::Plain(stream) => return Ok((stream, None)),
            Self::Encrypted(encrypted) => *encrypted,
        };
        let (stream, tls) = split_tls_stream(stream);
        let (tcp, begun) = stream
            .into_parts()
            .ok_or_else(|| io::Error::other("a record of TLS was read in part"))?;
        Ok((tcp, Some(TlsRecords::take_over(tls, &secrets, begun)?)))
    }

    /// Waits for bytes and returns them; none at the end. Holds no buffer while it waits, and loses
    /// nothing if it is cancelled.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn receive_bytes(&mut self) -> io::Result<Vec<u8>> {
        self.receive_and_send(&mut Vec::new()).await
    }

    /// Does the same as [`ControlConnection::receive_bytes`], and meanwhile sends as much of
    /// `waiting` as the connection takes, which is then removed from it, also if this is cancelled.
    ///
    /// # Errors
    /// If the connection broke, and nothing that came before is left.
    pub async fn receive_and_send(&mut self, waiting: &mut Vec<u8>) -> io::Result<Vec<u8>> {
        poll_fn(|context| {
            if let Poll::Ready(Err(_)) = self.poll_send(context, waiting) {
                // What came before it broke is still to be read, and so is that it did.
                waiting.clear();
            }
            let mut bytes = [0; READ];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *self).poll_read(context, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().to_vec()))
        })
        .await
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        waiting: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        while !waiting.is_empty() {
            match ready!(Pin::new(&mut *self).poll_write(context, waiting))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => drop(waiting.drain(..sent)),
            }
        }
        Pin::new(self).poll_flush(context)
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await?;
        self.flush().await
    }
}

/// Returns the stream below TLS, and the state of TLS.
fn split_tls_stream(stream: TlsStream<RecordStream>) -> (RecordStream, rustls::Connection) {
    match stream {
        TlsStream::Client(stream) => {
            let (stream, tls) = stream.into_inner();
            (stream, tls.into())
        }
        TlsStream::Server(stream) => {
            let (stream, tls) = stream.into_inner();
            (stream, tls.into())
        }
    }
}

impl AsyncRead for ControlConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Encrypted(encrypted) => Pin::new(&mut encrypted.stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for ControlConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(encrypted) => {
                Pin::new(&mut encrypted.stream).poll_write(context, bytes)
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(encrypted) => Pin::new(&mut encrypted.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(encrypted) => Pin::new(&mut encrypted.stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests;
