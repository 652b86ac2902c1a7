//! Lets in only who knows the key, if there is one.

use std::cell::RefCell;
use std::collections::HashMap;

use fullpipe_iperf::{Cookie, ErrorNumber, Key, Proof, Refusal};

/// The lock of a server, and the proofs that have opened it.
#[derive(Debug, Default)]
pub struct KeyVerifier {
    key: Option<Key>,
    /// Until when, in seconds since 1970, a cookie could be shown again. Only who knows the key adds to it.
    used: RefCell<HashMap<Cookie, u64>>,
}

impl KeyVerifier {
    /// Returns a verifier of `key`; without one, every client is accepted.
    pub fn new(key: Option<Key>) -> Self {
        Self { key, used: RefCell::default() }
    }

    /// Whether the client of the test with this `cookie` may come in, `now` seconds after the beginning of 1970. A proof
    /// opens once: what somebody recorded does not.
    ///
    /// # Errors
    /// Why not, with iperf3's number for a client that is not known.
    pub fn open(&self, cookie: &Cookie, proof: Option<&Proof>, now: u64) -> Result<(), Refusal> {
        let Some(key) = &self.key else { return Ok(()) };
        let refusal = |why: String| Refusal { number: ErrorNumber::AUTHENTICATION, why };
        let proof = proof.ok_or_else(|| refusal("the client shows no key".to_owned()))?;
        key.check(cookie, proof, now).map_err(|error| refusal(error.to_string()))?;
        let mut used = self.used.borrow_mut();
        used.retain(|_, until| *until >= now);
        match used.insert(*cookie, now + 2 * TOLERANCE) {
            Some(_) => Err(refusal("the client shows what has been shown before".to_owned())),
            None => Ok(()),
        }
    }
}

/// Seconds by which clocks may differ.
const TOLERANCE: u64 = Key::TOLERANCE.as_nanos() / 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn key(text: &str) -> Key {
        Key::from_file_content(text.as_bytes()).unwrap()
    }

    #[test]
    fn without_a_key_everybody_comes_in() {
        assert!(KeyVerifier::default().open(&Cookie::from_random([1; 36]), None, NOW).is_ok());
    }

    #[test]
    fn a_proof_opens_once() {
        let lock = KeyVerifier::new(Some(key("correct horse battery")));
        let [one, other] = [1, 2].map(|byte| Cookie::from_random([byte; 36]));
        let proof = key("correct horse battery").prove(&one, NOW);
        let number = |result: Result<(), Refusal>| result.unwrap_err().number.get();
        assert_eq!(number(lock.open(&one, None, NOW)), 142);
        assert_eq!(number(lock.open(&other, Some(&proof), NOW)), 142);
        assert_eq!(number(lock.open(&one, Some(&key("incorrect horse battery").prove(&one, NOW)), NOW)), 142);
        assert!(lock.open(&one, Some(&proof), NOW).is_ok());
        for later in [0, 1, 30, 31, 60, 61, 1000] {
            assert_eq!(number(lock.open(&one, Some(&proof), NOW + later)), 142, "{later}");
        }
    }

    #[test]
    fn what_nobody_could_show_again_is_forgotten() {
        let lock = KeyVerifier::new(Some(key("correct horse battery")));
        for second in 0..1000 {
            let mut random = [0; 36];
            random[..10].iter_mut().zip((0..10).map(|bit| second >> bit & 1)).for_each(|(byte, bit)| *byte = bit as u8);
            let cookie = Cookie::from_random(random);
            let proof = key("correct horse battery").prove(&cookie, NOW + second);
            assert!(lock.open(&cookie, Some(&proof), NOW + second).is_ok());
        }
        assert!(lock.used.borrow().len() <= 61);
    }
}
