//! A key pair as TLS takes it without a certificate (RFC 7250).

use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use tokio_rustls::rustls::Error;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Returns the pair with its public key in place of a certificate. `pair` is the answer of the library that makes it.
///
/// # Errors
/// Fails if the library made none, or cannot take it over.
pub(crate) fn raw_key<E>(
    pair: Result<Ed25519KeyPair, E>,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, Error> {
    let general = |what: &str| Error::General(what.to_owned());
    let pair = pair.map_err(|_| general("no key could be made"))?;
    let der = pair.to_pkcs8().map_err(|_| general("no key could be written"))?;
    let key = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(der.as_ref().to_vec()).into())?;
    let public = key.public_key().ok_or_else(|| general("the key has no public part"))?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key)))
}
