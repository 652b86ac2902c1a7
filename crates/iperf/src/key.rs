//! A key that both ends know: the client shows that it does without sending it.

use std::fmt;

use fullpipe_units::Span;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use thiserror::Error;

use crate::Cookie;

/// A key shared by clients and a server.
///
/// It authenticates the client and nothing else: nothing is encrypted, what is said later is not protected, and the
/// server does not show that it knows the key. Whoever can change what goes over the wire can take over a test that was
/// let in.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// A text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "a key has {shortest} to {longest} bytes, this one {length}; make one with \
     `head -c 32 /dev/urandom | base64 > FILE`",
    shortest = Key::MIN_LEN,
    longest = Key::MAX_LEN
)]
pub struct KeyError {
    length: usize,
}

/// The proof that the sender knows the key: HMAC-SHA-256 (RFC 2104, FIPS 180-4) over a fixed text, the cookie of its
/// test and the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Seconds since 1970 on the client's clock.
    time: u64,
    /// 64 hexadecimal digits.
    mac: String,
}

/// Why a proof is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProofError {
    /// It was made with another key, or for another test.
    #[error("the client does not know the key")]
    Wrong,
    /// The clocks differ too much, or the proof is an old one that somebody recorded.
    #[error("the client's clock differs from ours by more than {}", Key::TOLERANCE)]
    Stale,
}

/// The label that keeps other uses of the same key apart from a proof.
const PURPOSE: &[u8] = b"fullpipe may run this test";

/// Bytes of an HMAC-SHA-256, and of a SHA-256.
const MAC_LENGTH: usize = 32;

impl Key {
    /// Fewest bytes; a key of so many random ones cannot be guessed.
    pub const MIN_LEN: usize = 16;
    /// Most bytes.
    pub const MAX_LEN: usize = 1024;
    /// By how much the clocks of both ends may differ.
    pub const TOLERANCE: Span = Span::from_secs(30);

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

    /// Shows that we know the key, for the test with this `cookie`, `now` seconds after the beginning of 1970.
    pub fn prove(&self, cookie: &Cookie, now: u64) -> Proof {
        let mac = self.mac(cookie, now).finalize().into_bytes();
        Proof { time: now, mac: to_hex(&mac) }
    }

    /// Returns whether `proof` shows that the client of the test with this `cookie` knows the key, `now` seconds after
    /// the beginning of 1970. Takes the same time whatever is wrong with it.
    ///
    /// # Errors
    /// If it does not, or not any more. Whether the same proof came before is for the caller to know.
    pub fn check(&self, cookie: &Cookie, proof: &Proof, now: u64) -> Result<(), ProofError> {
        let claimed = from_hex(&proof.mac).unwrap_or_default();
        self.mac(cookie, proof.time).verify_slice(&claimed).map_err(|_| ProofError::Wrong)?;
        let apart = Span::from_secs(proof.time.abs_diff(now));
        if apart <= Self::TOLERANCE { Ok(()) } else { Err(ProofError::Stale) }
    }

    fn mac(&self, cookie: &Cookie, time: u64) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(PURPOSE);
        mac.update(cookie.as_bytes());
        mac.update(&time.to_be_bytes());
        mac
    }
}

impl fmt::Debug for Key {
    /// Never the key itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

fn to_hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// 32 bytes in as many pairs of hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<[u8; MAC_LENGTH]> {
    let digits: &[u8; 2 * MAC_LENGTH] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; MAC_LENGTH];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_700_000_000;

    fn key(text: &str) -> Key {
        Key::from_file_content(text.as_bytes()).unwrap()
    }

    fn cookie(letter: u8) -> Cookie {
        Cookie::from_random([letter; 36])
    }

    #[test]
    fn who_knows_the_key_is_known() {
        let key = key("correct horse battery");
        let proof = key.prove(&cookie(1), NOW);
        assert_eq!(key.check(&cookie(1), &proof, NOW), Ok(()));
        assert_eq!(key.check(&cookie(1), &proof, NOW + 30), Ok(()));
        assert_eq!(key.check(&cookie(1), &proof, NOW - 30), Ok(()));
    }

    #[test]
    fn a_proof_is_of_one_key_one_test_and_one_time() {
        let right = key("correct horse battery");
        let proof = right.prove(&cookie(1), NOW);
        assert_eq!(key("correct horse batterz").check(&cookie(1), &proof, NOW), Err(ProofError::Wrong));
        assert_eq!(right.check(&cookie(2), &proof, NOW), Err(ProofError::Wrong));
        let later = Proof { time: NOW + 1, ..proof.clone() };
        assert_eq!(right.check(&cookie(1), &later, NOW), Err(ProofError::Wrong));
        assert_eq!(right.check(&cookie(1), &proof, NOW + 31), Err(ProofError::Stale));
        assert_eq!(right.check(&cookie(1), &proof, NOW - 31), Err(ProofError::Stale));
        assert_eq!(right.check(&cookie(1), &proof, u64::MAX), Err(ProofError::Stale));
    }

    /// Against Python: `hmac.new(b"correct horse battery", b"fullpipe may run this test" + b"b" * 36 + b"\0" +
    /// (1700000000).to_bytes(8, "big"), "sha256").hexdigest()`.
    #[test]
    fn the_proof_is_what_anybody_else_would_calculate() {
        let proof = key("correct horse battery").prove(&cookie(1), NOW);
        assert_eq!(proof.mac, "a744b8e1ac572bbbfb1ae0e130cd55dd1a13cb1ee8718f00b4dc9b3fbe01971e");
    }

    #[test]
    fn a_key_may_end_its_line_and_has_a_fair_length() {
        assert_eq!(key("correct horse battery\r\n"), key("correct horse battery"));
        assert!(Key::from_file_content(b" 15 characters. \n").unwrap_err().to_string().contains("this one 14"));
        assert!(Key::from_file_content(&[b'a'; 1025]).is_err() && Key::from_file_content(&[b'a'; 1024]).is_ok());
        assert_eq!(format!("{:?}", key("correct horse battery")), "Key(…)");
    }

    proptest! {
        #[test]
        fn no_text_is_a_proof(time in any::<u64>(), mac in ".{0,80}|[0-9a-f]{64}") {
            let key = key("correct horse battery");
            prop_assert_eq!(key.check(&cookie(1), &Proof { time, mac }, NOW), Err(ProofError::Wrong));
        }
    }
}
