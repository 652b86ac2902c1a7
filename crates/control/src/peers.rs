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

use aws_lc_rs::signature::Ed25519KeyPair;
use fullpipe_iperf::SharedKey;
use fullpipe_sys::random_bytes;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::rustls::CipherSuite;

use crate::connection::provider_of;
use crate::raw_key::{RawKeyTls, raw_key};
use crate::records::SUITE_OF_RECORDS;
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
        let prove = async {
            let mut control = match tls {
                Some(tls) => tls.0.call(stream).await?,
                None => ControlConnection::Plain(stream),
            };
            let binding = control.exported(EXPORTER)?;
            let ours = random_bytes()?;
            control.send_bytes(&[&GREETING[..], &ours].concat()).await?;
            let nonces = [ours, receive_array(&mut control).await?];
            receive_proof(&mut control, key, &proof_parts(LISTENER, &binding, &nonces)).await?;
            let proof = key.tag_parts(&proof_parts(CALLER, &binding, &nonces));
            control.send_bytes(&proof).await?;
            Ok((control, nonces))
        };
        Self::from_proved(prove.await, key, tls)
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
        let prove = async {
            let mut control = match tls {
                Some(tls) => tls.0.answer(stream).await?,
                None => ControlConnection::Plain(stream),
            };
            let binding = control.exported(EXPORTER)?;
            if receive_array(&mut control).await? != *GREETING {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let nonces = [receive_array(&mut control).await?, random_bytes()?];
            let proof = key.tag_parts(&proof_parts(LISTENER, &binding, &nonces));
            control.send_bytes(&[nonces[1], proof].concat()).await?;
            receive_proof(&mut control, key, &proof_parts(CALLER, &binding, &nonces)).await?;
            Ok((control, nonces))
        };
        Self::from_proved(prove.await, key, tls)
    }

    /// Returns the connection of an exchange that came to its end, or what a user can do about it.
    fn from_proved(
        proved: io::Result<(ControlConnection, [[u8; LENGTH]; 2])>,
        key: &SharedKey,
        tls: Option<&PeerTls>,
    ) -> io::Result<Self> {
        let (control, nonces) = proved.map_err(|error| before_proof(error, tls.is_some()))?;
        let key = key.clone();
        Ok(Self {
            control,
            key,
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

async fn receive_proof(
    control: &mut ControlConnection,
    key: &SharedKey,
    parts: &[&[u8]],
) -> io::Result<()> {
    let proof: [u8; LENGTH] = receive_array(control).await?;
    if key.verifies_tag(&proof, parts) {
        return Ok(());
    }
    let why = "the other end does not have the same key";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

impl PeerTls {
    /// Makes a key for this process.
    ///
    /// # Errors
    /// Fails if the library has no random bytes.
    pub fn new() -> Result<Self, TlsError> {
        Self::of_suite(SUITE_OF_RECORDS)
    }

    /// Makes a key for connections with this cipher suite alone.
    pub(crate) fn of_suite(only: CipherSuite) -> Result<Self, TlsError> {
        let provider = provider_of(only);
        let listener = raw_key(Ed25519KeyPair::generate(), &provider)?;
        Ok(Self(RawKeyTls::new(&provider, listener, None)?))
    }
}

#[cfg(test)]
mod tests;
