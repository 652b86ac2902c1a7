//! A key that both ends have: the client proves it without sending it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

use crate::TestCookie;

/// A key shared by clients and a server.
///
/// The key authenticates the client and what it asks for, and nothing else: nothing is encrypted,
/// later messages are not protected, and the server does not prove that it has the key. An attacker
/// who can change packets on the path can take over a test that was admitted.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey(Vec<u8>);

/// A text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "a key has {shortest} to {longest} bytes, this one {length}; make one with \
     `(umask 077; head -c 32 /dev/urandom | base64 > FILE)`",
    shortest = SharedKey::MIN_LEN,
    longest = SharedKey::MAX_LEN
)]
pub struct KeyError {
    length: usize,
}

/// Random bytes that a server sends to one client, so that no recorded proof is valid again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerNonce([u8; ServerNonce::LENGTH]);

/// A proof of having a key: HMAC-SHA-256 (RFC 2104, FIPS 180-4) over a fixed text, the cookie of
/// the test, the server's nonce and the parameters of the test.
pub type Proof = [u8; MAC_LENGTH];

/// Prefix of the authenticated text, so that no other use of the same key yields a proof.
const PURPOSE: &[u8] = b"fullpipe test parameters 2";

/// Bytes of an HMAC-SHA-256, and of a SHA-256.
pub(crate) const MAC_LENGTH: usize = 32;

impl ServerNonce {
    /// Bytes on the wire.
    pub const LENGTH: usize = 32;

    /// Returns the nonce of these bytes, which must be random.
    pub const fn new(random: [u8; Self::LENGTH]) -> Self {
        Self(random)
    }

    /// Returns the bytes on the wire.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl SharedKey {
    /// Fewest bytes; a key of so many random ones cannot be guessed.
    pub const MIN_LEN: usize = 16;
    /// Most bytes.
    pub const MAX_LEN: usize = 1024;

    /// The key in a file of this content; white space around it does not belong to it.
    ///
    /// # Errors
    /// If it is too short or too long.
    pub fn from_file_content(content: &[u8]) -> Result<Self, KeyError> {
        let key = content.trim_ascii();
        if (Self::MIN_LEN..=Self::MAX_LEN).contains(&key.len()) {
            Ok(Self(key.to_vec()))
        } else {
            Err(KeyError { length: key.len() })
        }
    }

    /// Returns the key of these bytes.
    pub(crate) fn from_bytes(bytes: &[u8; MAC_LENGTH]) -> Self {
        Self(bytes.to_vec())
    }

    /// Returns the bytes of the key.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the proof for the test with this `cookie` and these `parameters`, as JSON on the
    /// wire, at the server that sent `nonce`.
    pub fn prove_request(
        &self,
        cookie: &TestCookie,
        nonce: &ServerNonce,
        parameters: &[u8],
    ) -> Proof {
        self.request_mac(cookie, nonce, parameters)
            .finalize()
            .into_bytes()
            .into()
    }

    /// Returns true if `proof` is that of [`SharedKey::prove_request`], in constant time.
    pub fn accepts_proof(
        &self,
        proof: &[u8],
        cookie: &TestCookie,
        nonce: &ServerNonce,
        parameters: &[u8],
    ) -> bool {
        self.request_mac(cookie, nonce, parameters)
            .verify_slice(proof)
            .is_ok()
    }

    fn request_mac(
        &self,
        cookie: &TestCookie,
        nonce: &ServerNonce,
        parameters: &[u8],
    ) -> Hmac<Sha256> {
        self.mac_of(&[PURPOSE, cookie.as_bytes(), nonce.as_bytes(), parameters])
    }

    /// Returns the HMAC-SHA-256 of `parts`, one after the other. The first part is a text for one
    /// purpose of the key, and all but the last have a fixed length, so that no two inputs are the
    /// same bytes.
    pub fn tag_parts(&self, parts: &[&[u8]]) -> Proof {
        self.mac_of(parts).finalize().into_bytes().into()
    }

    /// Returns true if `tag` is that of [`SharedKey::tag_parts`], in constant time.
    pub fn verifies_tag(&self, tag: &[u8], parts: &[&[u8]]) -> bool {
        self.mac_of(parts).verify_slice(tag).is_ok()
    }

    fn mac_of(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for SharedKey {
    /// Never the key itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// 32 bytes in as many pairs of hexadecimal digits.
fn hex_digit(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

pub(crate) fn from_hex(text: &str) -> Option<[u8; MAC_LENGTH]> {
    let digits: &[u8; 2 * MAC_LENGTH] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; MAC_LENGTH];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARAMETERS: &[u8] = br#"{"tcp":true,"time":1}"#;

    fn key(text: &str) -> SharedKey {
        SharedKey::from_file_content(text.as_bytes()).unwrap()
    }

    fn cookie(letter: u8) -> TestCookie {
        TestCookie::from_random([letter; 36])
    }

    fn nonce(byte: u8) -> ServerNonce {
        ServerNonce::new([byte; ServerNonce::LENGTH])
    }

    #[test]
    fn a_proof_is_of_one_key_one_test_one_nonce_and_what_is_asked_for() {
        let right = key("correct horse battery");
        let proof = right.prove_request(&cookie(1), &nonce(1), PARAMETERS);
        assert!(right.accepts_proof(&proof, &cookie(1), &nonce(1), PARAMETERS));
        assert!(!key("correct horse batterz").accepts_proof(
            &proof,
            &cookie(1),
            &nonce(1),
            PARAMETERS
        ));
        assert!(!right.accepts_proof(&proof, &cookie(2), &nonce(1), PARAMETERS));
        assert!(
            !right.accepts_proof(&proof, &cookie(1), &nonce(2), PARAMETERS),
            "a recorded proof is not valid again"
        );
        assert!(!right.accepts_proof(&proof, &cookie(1), &nonce(1), br#"{"tcp":true,"time":9}"#));
        assert!(!right.accepts_proof(&proof[..31], &cookie(1), &nonce(1), PARAMETERS));
    }

    /// Against Python:
    /// `hmac.new(b"correct horse battery", b"fullpipe test parameters 2" + b"b" * 36 + b"\0" + b"\1" * 32 + b'{"tcp":true,"time":1}', "sha256").hexdigest()`.
    #[test]
    fn the_proof_is_what_anybody_else_would_calculate() {
        let proof = key("correct horse battery").prove_request(&cookie(1), &nonce(1), PARAMETERS);
        assert_eq!(
            Some(proof),
            from_hex("39397a6eb455698cf7afd485868e5b3aa9a09759785a5d825dc96f8904240f65")
        );
    }

    #[test]
    fn a_key_may_end_its_line_and_has_a_fair_length() {
        assert_eq!(
            key("correct horse battery\r\n"),
            key("correct horse battery")
        );
        assert!(
            SharedKey::from_file_content(b" 15 characters. \n")
                .unwrap_err()
                .to_string()
                .contains("this one 14")
        );
        assert!(
            SharedKey::from_file_content(&[b'a'; 1025]).is_err()
                && SharedKey::from_file_content(&[b'a'; 1024]).is_ok()
        );
        assert_eq!(format!("{:?}", key("correct horse battery")), "Key(…)");
    }

    proptest! {
        #[test]
        fn no_text_is_a_proof(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let key = key("correct horse battery");
            prop_assert!(!key.accepts_proof(&text, &cookie(1), &nonce(1), PARAMETERS));
        }
    }
}
