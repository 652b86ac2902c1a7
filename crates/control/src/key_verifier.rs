//! Accepts only clients that know the shared key, if there is one.

use std::cell::RefCell;
use std::collections::HashMap;

use fullpipe_iperf::{Cookie, ErrorNumber, Key, Proof, Refusal};

/// The shared key of a server, and the proofs that it has accepted.
#[derive(Debug, Default)]
pub struct KeyVerifier {
    key: Option<Key>,
    /// The cookies of accepted proofs, each with the time, in seconds since 1970, until which it could be replayed.
    /// Only clients that know the key add to it.
    used: RefCell<HashMap<Cookie, u64>>,
}

impl KeyVerifier {
    /// Returns a verifier of `key`; without one, every client is accepted.
    pub fn new(key: Option<Key>) -> Self {
        Self { key, used: RefCell::default() }
    }

    /// Checks the proof of the client of the test with this `cookie`, `now` seconds after 1970-01-01 UTC. Each proof is
    /// accepted once, so that a recorded one is of no use.
    ///
    /// # Errors
    /// The reason of a refusal, with iperf3's number for a client that is not known.
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

/// The most seconds by which clocks may differ.
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
