//! Echo requests as datagrams between two instances of fullpipe. Both messages have the same
//! length, so that a server never sends more bytes than it received:
//!
//! | bytes | request | answer |
//! |---|---|---|
//! | 8 | `FPEC`, 1, 0, 0, 0 | `FPEC`, 2, 0, 0, 0 |
//! | 37 | the test's cookie, which nobody can guess | the same |
//! | 3 | 0 | the same |
//! | 8 | 0 | nanoseconds between its arrival at the server and the answer, big-endian |
//! | 8 | its number, big-endian | the same |
//!
//! As a datagram of iperf2, a message would have a time before 1970-01-13, so that neither is taken
//! for the other.

use fullpipe_iperf::TestCookie;
use fullpipe_units::Span;

/// Bytes of a request or an answer.
pub(crate) const LENGTH: usize = 64;

const REQUEST: [u8; 8] = *b"FPEC\x01\0\0\0";
const ANSWER: [u8; 8] = *b"FPEC\x02\0\0\0";

/// Position of the cookie in a message.
const COOKIE: std::ops::Range<usize> = 8..8 + TestCookie::LENGTH;

const RESIDENCE: usize = 48;
const NUMBER: usize = 56;

/// Returns request `number` of the test with this `cookie`.
pub(crate) fn encode_request(cookie: &TestCookie, number: u64) -> [u8; LENGTH] {
    let mut message = [0; LENGTH];
    message[..8].copy_from_slice(&REQUEST);
    message[COOKIE].copy_from_slice(cookie.as_bytes());
    message[NUMBER..].copy_from_slice(&number.to_be_bytes());
    message
}

/// Returns the cookie of the test that `datagram` belongs to; `None` if it is no request.
pub(crate) fn echo_test(datagram: &[u8]) -> Option<TestCookie> {
    let message: &[u8; LENGTH] = datagram.try_into().ok()?;
    cookie_behind(REQUEST, message)
}

/// Returns the answer to the request `datagram`, which stayed at the server for `residence`; `None`
/// if it has another length than a request.
pub(crate) fn echo_reply(datagram: &[u8], residence: Span) -> Option<[u8; LENGTH]> {
    let mut message: [u8; LENGTH] = datagram.try_into().ok()?;
    message[..8].copy_from_slice(&ANSWER);
    message[RESIDENCE..NUMBER].copy_from_slice(&residence.as_nanos().to_be_bytes());
    Some(message)
}

/// Returns the number of the request that `datagram` answers and the time that it stayed at the
/// server; `None` if it is no answer of the test with this `cookie`.
pub(crate) fn parse_answer(datagram: &[u8], cookie: &TestCookie) -> Option<(u64, Span)> {
    let message: &[u8; LENGTH] = datagram.try_into().ok()?;
    (cookie_behind(ANSWER, message)? == *cookie).then_some(())?;
    let residence = Span::from_nanos(read_u64(message, RESIDENCE)?);
    Some((read_u64(message, NUMBER)?, residence))
}

fn read_u64(message: &[u8; LENGTH], at: usize) -> Option<u64> {
    message[at..]
        .first_chunk()
        .map(|bytes| u64::from_be_bytes(*bytes))
}

fn cookie_behind(magic: [u8; 8], message: &[u8; LENGTH]) -> Option<TestCookie> {
    let cookie = message[COOKIE].try_into().ok()?;
    message
        .starts_with(&magic)
        .then(|| TestCookie::from_bytes(cookie))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_iperf::{DatagramCaller, classify_first_datagram};

    fn cookie(byte: u8) -> TestCookie {
        TestCookie::from_bytes([byte; TestCookie::LENGTH])
    }

    #[test]
    fn a_request_is_answered_with_its_number_and_the_time_it_took() {
        let asked = encode_request(&cookie(b'a'), u64::MAX - 7);
        assert_eq!(echo_test(&asked), Some(cookie(b'a')));
        let stated = echo_reply(&asked, Span::from_micros(12)).unwrap();
        assert_eq!(
            parse_answer(&stated, &cookie(b'a')),
            Some((u64::MAX - 7, Span::from_micros(12)))
        );
        assert_eq!(
            parse_answer(&stated, &cookie(b'b')),
            None,
            "of another test"
        );
    }

    #[test]
    fn answers_are_not_answered() {
        let asked = encode_request(&cookie(b'a'), 1);
        let stated = echo_reply(&asked, Span::ZERO).unwrap();
        assert_eq!(echo_test(&stated), None);
        assert_eq!(parse_answer(&asked, &cookie(b'a')), None);
    }

    #[test]
    fn a_datagram_of_another_length_is_neither() {
        let asked = encode_request(&cookie(b'a'), 1);
        for other in [&asked[..63], &[&asked[..], &[0]].concat(), &[]] {
            assert_eq!(
                (echo_test(other), echo_reply(other, Span::ZERO)),
                (None, None)
            );
            assert_eq!(parse_answer(other, &cookie(b'a')), None);
        }
    }

    #[test]
    fn a_message_is_not_taken_for_one_of_another_client() {
        for message in [
            encode_request(&cookie(b'a'), 1),
            echo_reply(&encode_request(&cookie(b'z'), 9), Span::ZERO).unwrap(),
        ] {
            assert_eq!(classify_first_datagram(&message), DatagramCaller::Unknown);
        }
    }
}
