//! Users as iperf3 has them: a client sends a name and a password, encrypted with the server's RSA
//! key.

use std::sync::Arc;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::{
    KeyPair, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey,
    Pkcs1PrivateDecryptingKey, Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicEncryptingKey,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fullpipe_iperf::{ErrorNumber, TestRefusal, UserCredentials, UserError, UserList};
use fullpipe_units::Span;
use thiserror::Error;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use zeroize::Zeroizing;

use crate::connection::by_reference;

/// The padding of a text that RSA encrypts (RFC 8017, section 7). Both ends must choose the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RsaPadding {
    /// OAEP with SHA-1, which is OpenSSL's default: iperf3's since 3.17.
    Oaep,
    /// PKCS#1 v1.5: the only one of iperf3 before 3.17. A client that can distinguish a server's
    /// answers to badly padded texts from its other refusals can decrypt recorded texts, so ours
    /// are alike.
    Pkcs1,
}

/// The public part of a server's RSA key.
#[derive(Debug, Clone)]
pub struct RsaPublicKey(PublicEncryptingKey);

/// A server's RSA key.
#[derive(Debug, Clone)]
pub struct RsaPrivateKey(PrivateDecryptingKey);

/// The error of a file that holds no RSA key of use.
#[derive(Debug, Error)]
pub enum RsaError {
    /// The file is no PEM, or has no key of the wanted kind.
    #[error("it holds no {wanted} in PEM: {cause}")]
    Pem {
        /// The kind of key that the file should hold.
        wanted: &'static str,
        /// The error of the PEM reader.
        cause: PemError,
    },
    /// The key is none of RSA, or its size is not 2048 to 8192 bits.
    #[error(
        "its key is none of RSA with 2048 to 8192 bits; make one with `openssl genrsa -out FILE 2048`"
    )]
    Unfit,
}

/// The user name and password of a client, with the server's public key.
#[derive(Clone)]
pub struct ClientLogin(Arc<LoginKey>);

struct LoginKey {
    credentials: UserCredentials,
    key: RsaPublicKey,
    padding: RsaPadding,
}

/// The users of a server, with its private key.
#[derive(Clone)]
pub struct LoginAuthenticator(Arc<AuthenticatorKey>);

/// A user name and a password that were decrypted, and not checked yet.
pub struct LoginAttempt {
    authenticator: LoginAuthenticator,
    text: Zeroizing<Vec<u8>>,
}

struct AuthenticatorKey {
    key: RsaPrivateKey,
    padding: RsaPadding,
    users: UserList,
    skew: Span,
}

by_reference!(ClientLogin);
by_reference!(LoginAuthenticator);

impl RsaPublicKey {
    /// Reads the key from PEM with `BEGIN PUBLIC KEY`, as `openssl rsa -pubout` writes it.
    ///
    /// # Errors
    /// If it holds none.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RsaError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|cause| RsaError::Pem {
            wanted: "public key",
            cause,
        })?;
        PublicEncryptingKey::from_der(&der)
            .map(Self)
            .map_err(|_| RsaError::Unfit)
    }
}

impl RsaPrivateKey {
    /// Reads the key from PEM with `BEGIN PRIVATE KEY` or `BEGIN RSA PRIVATE KEY`, without a
    /// passphrase.
    ///
    /// # Errors
    /// If it holds none.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RsaError> {
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|cause| RsaError::Pem {
            wanted: "private key",
            cause,
        })?;
        let key = match der {
            PrivateKeyDer::Pkcs1(der) => from_pkcs1(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => {
                PrivateDecryptingKey::from_pkcs8(der.secret_pkcs8_der()).ok()
            }
            _ => None,
        };
        key.map(Self).ok_or(RsaError::Unfit)
    }
}

/// The library decrypts only with keys in the newer form, and writes both.
fn from_pkcs1(der: &[u8]) -> Option<PrivateDecryptingKey> {
    let pkcs8 = KeyPair::from_der(der).ok()?.as_der().ok()?;
    PrivateDecryptingKey::from_pkcs8(pkcs8.as_ref()).ok()
}

impl ClientLogin {
    /// Returns the login with these `credentials` at the server with this `key`.
    pub fn new(credentials: UserCredentials, key: RsaPublicKey, padding: RsaPadding) -> Self {
        Self(Arc::new(LoginKey {
            credentials,
            key,
            padding,
        }))
    }

    /// Returns a token that proves the login, made `now` seconds after 1970-01-01 UTC. Each token
    /// is another.
    ///
    /// # Errors
    /// If name and password are too long for the server's key.
    pub fn create_token(&self, now: u64) -> Result<String, TestRefusal> {
        let LoginKey {
            credentials,
            key,
            padding,
        } = &*self.0;
        let text = credentials.to_text(now);
        let sealed = rsa_encrypt(key, *padding, text.as_bytes()).map_err(|_| TestRefusal {
            number: ErrorNumber::AUTHENTICATION,
            why: format!(
                "user name and password are too long for the server's key of {} bits",
                8 * key.0.key_size_bytes()
            ),
        })?;
        Ok(BASE64_STANDARD.encode(sealed))
    }
}

fn rsa_encrypt(
    key: &RsaPublicKey,
    padding: RsaPadding,
    text: &[u8],
) -> Result<Vec<u8>, Unspecified> {
    let key = key.0.clone();
    let mut sealed = vec![0; key.key_size_bytes()];
    let length = match padding {
        RsaPadding::Oaep => {
            OaepPublicEncryptingKey::new(key)?.encrypt(&OAEP_SHA1_MGF1SHA1, text, &mut sealed, None)
        }
        RsaPadding::Pkcs1 => Pkcs1PublicEncryptingKey::new(key)?.encrypt(text, &mut sealed),
    }?
    .len();
    sealed.truncate(length);
    Ok(sealed)
}

impl LoginAuthenticator {
    /// Accepts `users` who encrypt with this `key` and `padding`, and whose clocks differ from ours
    /// by `skew` at most.
    pub fn new(users: UserList, key: RsaPrivateKey, padding: RsaPadding, skew: Span) -> Self {
        Self(Arc::new(AuthenticatorKey {
            key,
            padding,
            users,
            skew,
        }))
    }

    /// Decrypts a client's `token`, which takes milliseconds.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn decrypt_token(&self, token: Option<&str>) -> Result<LoginAttempt, UserError> {
        let sealed = BASE64_STANDARD
            .decode(token.ok_or(UserError::Missing)?)
            .unwrap_or_default();
        // What cannot be decrypted goes the same way as a wrong password: no client must be able to
        // distinguish them.
        let text = rsa_decrypt(&self.0.key, self.0.padding, &sealed).unwrap_or_default();
        Ok(LoginAttempt {
            authenticator: self.clone(),
            text,
        })
    }
}

impl LoginAttempt {
    /// Returns the number of its user among those of the server; `None` if it names none of them.
    pub fn user_index(&self) -> Option<usize> {
        self.authenticator.0.users.number_of_user(&self.text)
    }

    /// Checks the password and the time, `now` seconds after 1970-01-01 UTC.
    ///
    /// # Errors
    /// Returns the reason of a refusal, for our log alone.
    pub fn check_login(&self, now: u64) -> Result<(), UserError> {
        self.authenticator
            .0
            .users
            .check_login(&self.text, now, self.authenticator.0.skew)
    }
}

fn rsa_decrypt(
    key: &RsaPrivateKey,
    padding: RsaPadding,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
    let key = key.0.clone();
    let mut text = Zeroizing::new(vec![0; key.key_size_bytes()]);
    let length = match padding {
        RsaPadding::Oaep => OaepPrivateDecryptingKey::new(key)?.decrypt(
            &OAEP_SHA1_MGF1SHA1,
            sealed,
            &mut text,
            None,
        ),
        RsaPadding::Pkcs1 => Pkcs1PrivateDecryptingKey::new(key)?.decrypt(sealed, &mut text),
    }?
    .len();
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl genrsa 2048`, `openssl rsa -pubout`, and `openssl genrsa -traditional 2048`, of
    /// OpenSSL 3.0.
    const PRIVATE: &[u8] = include_bytes!("../tests/rsa/private.pem");
    const PUBLIC: &[u8] = include_bytes!("../tests/rsa/public.pem");
    const TRADITIONAL: &[u8] = include_bytes!("../tests/rsa/traditional.pem");

    /// Of `user: mario`, `pwd:  rossi`, `ts:   1795292129`: what `openssl pkeyutl -encrypt` makes
    /// of it with `rsa_padding_mode:oaep`, as iperf3 since 3.17, and what iperf3 3.12 sent.
    const OAEP: &str = include_str!("../tests/rsa/oaep.token");
    const PKCS1: &str = include_str!("../tests/rsa/pkcs1.token");

    const NOW: u64 = 1_795_292_129;

    fn authenticator(key: &[u8], padding: RsaPadding) -> LoginAuthenticator {
        let file = b"mario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b\n";
        let (users, key) = (
            UserList::from_file_content(file).unwrap(),
            RsaPrivateKey::from_pem(key).unwrap(),
        );
        LoginAuthenticator::new(users, key, padding, Span::from_secs(10))
    }

    fn login(password: &str, padding: RsaPadding) -> ClientLogin {
        let credentials =
            UserCredentials::new("mario".to_owned(), Zeroizing::new(password.to_owned())).unwrap();
        ClientLogin::new(
            credentials,
            RsaPublicKey::from_pem(PUBLIC).unwrap(),
            padding,
        )
    }

    fn check(
        authenticator: &LoginAuthenticator,
        token: Option<&str>,
        now: u64,
    ) -> Result<(), UserError> {
        authenticator.decrypt_token(token)?.check_login(now)
    }

    #[test]
    fn from_3_17_on_tokens_are_padded_with_oaep() {
        assert_eq!(
            check(
                &authenticator(PRIVATE, RsaPadding::Oaep),
                Some(OAEP.trim()),
                NOW
            ),
            Ok(())
        );
        assert_eq!(
            check(
                &authenticator(PRIVATE, RsaPadding::Pkcs1),
                Some(PKCS1.trim()),
                NOW
            ),
            Ok(())
        );
    }

    #[test]
    fn a_token_of_the_other_padding_or_for_another_key_is_unreadable() {
        for (key, padding, token) in [
            (PRIVATE, RsaPadding::Oaep, PKCS1),
            (PRIVATE, RsaPadding::Pkcs1, OAEP),
            (TRADITIONAL, RsaPadding::Oaep, OAEP),
            (TRADITIONAL, RsaPadding::Pkcs1, PKCS1),
        ] {
            let refused = check(&authenticator(key, padding), Some(token.trim()), NOW);
            assert_eq!(refused, Err(UserError::Unreadable), "{padding:?}");
        }
    }

    #[test]
    fn our_tokens_open_with_both_paddings() {
        for padding in [RsaPadding::Oaep, RsaPadding::Pkcs1] {
            let authenticator = authenticator(PRIVATE, padding);
            let token = login("rossi", padding).create_token(NOW).unwrap();
            assert_eq!(check(&authenticator, Some(&token), NOW + 10), Ok(()));
            assert!(matches!(
                check(&authenticator, Some(&token), NOW + 11),
                Err(UserError::Stale { .. })
            ));
            let wrong = login("Rossi", padding).create_token(NOW).unwrap();
            assert_eq!(
                check(&authenticator, Some(&wrong), NOW),
                Err(UserError::Password("mario".to_owned()))
            );
            assert_ne!(
                login("rossi", padding).create_token(NOW).unwrap(),
                token,
                "nobody sees that it is the same again"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for padding in [RsaPadding::Oaep, RsaPadding::Pkcs1] {
            let authenticator = authenticator(PRIVATE, padding);
            assert_eq!(check(&authenticator, None, NOW), Err(UserError::Missing));
            for token in [
                "",
                "not base64!",
                "AAAA",
                &"A".repeat(344),
                &"/".repeat(342),
                &"A".repeat(8000),
            ] {
                assert_eq!(
                    check(&authenticator, Some(token), NOW),
                    Err(UserError::Unreadable),
                    "{token}"
                );
            }
        }
    }

    #[test]
    fn a_password_is_as_long_as_the_key_carries() {
        // A key of 256 bytes; 11 of padding with PKCS#1 and 42 with OAEP; 35 of everything but the
        // password.
        for (padding, longest) in [
            (RsaPadding::Pkcs1, 256 - 11 - 35),
            (RsaPadding::Oaep, 256 - 42 - 35),
        ] {
            assert!(
                login(&"x".repeat(longest), padding)
                    .create_token(NOW)
                    .is_ok(),
                "{padding:?}"
            );
            let refused = login(&"x".repeat(longest + 1), padding)
                .create_token(NOW)
                .unwrap_err();
            assert!(
                refused
                    .why
                    .contains("too long for the server's key of 2048 bits"),
                "{}",
                refused.why
            );
        }
    }

    #[test]
    fn keys_come_in_the_forms_that_openssl_writes() {
        assert!(RsaPrivateKey::from_pem(TRADITIONAL).is_ok());
        let said = |error: RsaError| error.to_string();
        assert!(
            said(RsaPrivateKey::from_pem(PUBLIC).unwrap_err()).contains("no private key in PEM")
        );
        assert!(
            said(RsaPublicKey::from_pem(PRIVATE).unwrap_err()).contains("no public key in PEM")
        );
        let elliptic = include_bytes!("../tests/rsa/elliptic.pem");
        assert!(said(RsaPrivateKey::from_pem(elliptic).unwrap_err()).contains("none of RSA"));
        assert!(said(RsaPublicKey::from_pem(elliptic).unwrap_err()).contains("none of RSA"));
    }
}
