//! Who belongs to the fleet: an authority, its certificates, and invitations.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use fullpipe_control::authority_fingerprint;
use fullpipe_sys::random_bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Days for which the certificate of a host is good.
const CERTIFICATE_DAYS: i64 = 30;

/// Days for which that of the authority is, and that of a controller, which makes it at its start.
const AUTHORITY_DAYS: i64 = 3650;

/// Name of the authority.
const AUTHORITY: &str = "authority of a fullpipe fleet";

/// Why a certificate cannot be made.
#[derive(Debug, Error)]
#[error("cannot make a certificate: {0}")]
pub struct IdentityError(String);

impl From<rcgen::Error> for IdentityError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// The authority of a fleet, which signs the certificates of hosts and controllers: kept in the
/// archive, as whoever can write there commands the fleet.
#[derive(Clone, Serialize, Deserialize)]
pub struct FleetAuthority {
    /// Its certificate in PEM.
    pub certificate: String,
    /// Its private key in PEM.
    key: String,
}

/// A certificate in PEM, and the hash by which the archive knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCertificate {
    /// The certificate.
    pub pem: String,
    /// Its hash.
    pub hash: String,
}

impl FleetAuthority {
    /// Returns a new authority.
    ///
    /// # Errors
    /// Fails if the library does.
    pub fn new(now: Timestamp) -> Result<Self, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let certificate = authority_parameters(now)?.self_signed(&key)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Returns the hash of its certificate, by which hosts know it when they join.
    ///
    /// # Errors
    /// Fails if it is none.
    pub fn fingerprint(&self) -> Result<[u8; 32], IdentityError> {
        authority_fingerprint(self.certificate.as_bytes())
            .map_err(|error| IdentityError(error.to_string()))
    }

    /// Returns the certificates of a controller with these names, its own and the authority's, and
    /// its key, all in PEM.
    ///
    /// # Errors
    /// Fails if a name is none, or if the library does.
    pub fn controller_identity(
        &self,
        names: Vec<String>,
        now: Timestamp,
    ) -> Result<(String, String), IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut parameters = CertificateParams::new(names)?;
        set_days(&mut parameters, now, AUTHORITY_DAYS);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let own = self.sign(&parameters, &key)?;
        Ok((own.pem + &self.certificate, key.serialize_pem()))
    }

    /// Returns a certificate for the public key of a host.
    ///
    /// # Errors
    /// Fails if the key is none of Ed25519, or if the library does.
    pub fn host_certificate(
        &self,
        host: &str,
        public_key: &[u8],
        now: Timestamp,
    ) -> Result<SignedCertificate, IdentityError> {
        let key = Ed25519Key::try_from(public_key)
            .map_err(|_| IdentityError("the key is none of Ed25519".to_owned()))?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, host);
        set_days(&mut parameters, now, CERTIFICATE_DAYS);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&parameters, &key)
    }

    fn sign(
        &self,
        parameters: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<SignedCertificate, IdentityError> {
        let own = KeyPair::from_pem(&self.key)?;
        let issuer = Issuer::new(authority_parameters(Timestamp::UNIX_EPOCH)?, own);
        let signed = parameters.signed_by(key, &issuer)?;
        Ok(SignedCertificate {
            pem: signed.pem(),
            hash: certificate_hash(signed.der()),
        })
    }
}

/// Returns the hash by which the archive knows a certificate in DER.
pub fn certificate_hash(der: &[u8]) -> String {
    blake3::hash(der).to_hex().to_string()
}

fn authority_parameters(now: Timestamp) -> Result<CertificateParams, IdentityError> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_days(&mut parameters, now, AUTHORITY_DAYS);
    Ok(parameters)
}

/// Makes a certificate good from the day before on, since clocks differ, for so many days.
fn set_days(parameters: &mut CertificateParams, now: Timestamp, days: i64) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let day = |offset: i64| {
        let date = today.saturating_add(jiff::Span::new().days(offset));
        date_time_ymd(
            date.year().into(),
            date.month().cast_unsigned(),
            date.day().cast_unsigned(),
        )
    };
    parameters.not_before = day(-1);
    parameters.not_after = day(days);
}

/// A public key of Ed25519.
struct Ed25519Key([u8; 32]);

impl TryFrom<&[u8]> for Ed25519Key {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self)
    }
}

impl PublicKeyData for Ed25519Key {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

/// The key of a host, which it makes itself.
pub struct HostKey(KeyPair);

impl HostKey {
    /// Returns a new key.
    ///
    /// # Errors
    /// Fails if the library does.
    pub fn new() -> Result<Self, IdentityError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ED25519)?))
    }

    /// Returns the public key, of 32 bytes.
    pub fn public_key(&self) -> &[u8] {
        self.0.der_bytes()
    }

    /// Returns the private key in PEM.
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }
}

/// What a new host shows: a secret that is good once, and the authority that it is to trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InviteCode {
    secret: [u8; 16],
    /// SHA-256 of the authority's certificate.
    pub authority: [u8; 32],
}

impl InviteCode {
    /// Returns a new code.
    ///
    /// # Errors
    /// Fails if the system has no random bytes.
    pub fn new(authority: [u8; 32]) -> std::io::Result<Self> {
        Ok(Self {
            secret: random_bytes()?,
            authority,
        })
    }

    /// Returns the code as it is handed to a person.
    pub fn to_text(self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode([&self.secret[..], &self.authority].concat())
    }

    /// Reads a code; `None` if it is none.
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim()).ok()?;
        let (secret, authority) = bytes.split_first_chunk()?;
        Some(Self {
            secret: *secret,
            authority: authority.try_into().ok()?,
        })
    }

    /// Returns the hash by which the archive knows its secret.
    pub fn hash(&self) -> String {
        blake3::hash(&self.secret).to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_read_as_it_was_written_and_nothing_else_is_one() {
        let code = InviteCode::new([7; 32]).unwrap();
        let text = code.to_text();
        assert_eq!(InviteCode::from_text(&format!(" {text}\n")), Some(code));
        assert_ne!(InviteCode::new([7; 32]).unwrap().hash(), code.hash());
        for wrong in ["", "x", &text[1..], &format!("{text}AA"), "ä"] {
            assert_eq!(InviteCode::from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn certificates_differ_and_a_key_of_another_kind_has_none() {
        let now = Timestamp::UNIX_EPOCH;
        let authority = FleetAuthority::new(now).unwrap();
        let [one, other] = [(); 2].map(|()| {
            let key = HostKey::new().unwrap();
            let signed = authority.host_certificate("a", key.public_key(), now);
            signed.unwrap()
        });
        assert_ne!(one.hash, other.hash);
        assert!(authority.host_certificate("a", &[0; 31], now).is_err());
        assert_ne!(
            authority.fingerprint().unwrap(),
            FleetAuthority::new(now).unwrap().fingerprint().unwrap()
        );
    }
}
