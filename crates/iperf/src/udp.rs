//! iperf3's datagrams. Nothing here allocates: it is used on the data path.
//!
//! A stream is opened so: the client connects a socket to the server's port and sends a [`HELLO`];
//! the server connects the socket that received it to the client, and answers a [`REPLY`]. No
//! payload flows before the test is running, since clients take no more than two datagrams for the
//! reply. There is no last datagram: the client's word on the control connection ends the test.

use fullpipe_units::Span;

use crate::TestCookie;

/// The datagram with which a client opens a stream.
pub const HELLO: [u8; 4] = *b"9876";

/// The answer of a server. Clients since iperf3 3.12 look for it, older ones take any datagram.
pub const REPLY: [u8; 4] = *b"6789";

/// The answer of servers up to iperf3 3.11, on the usual machines with the least byte first.
const OLD_REPLY: [u8; 4] = [0xB1, 0x68, 0xDE, 0x3A];

/// The least payload of a test's datagrams, in bytes: room for the longer of the two headers.
pub const MIN_PAYLOAD: usize = 16;

/// Bytes of a hello with the cookie of its test.
const OWN_HELLO: usize = HELLO.len() + TestCookie::LENGTH;

/// Returns the hello of a fullpipe client, which a fullpipe server recognises by its `cookie`:
/// anybody can send other hellos, in anybody's name.
pub fn hello_with(cookie: &TestCookie) -> Vec<u8> {
    [&HELLO[..], cookie.as_bytes()].concat()
}

/// Returns true if `datagram` may open a stream: four bytes, which no iperf3 server looks at, and
/// which changed with 3.12; or a hello with a cookie.
pub fn is_hello(datagram: &[u8]) -> bool {
    datagram.len() == HELLO.len() || (datagram.len() == OWN_HELLO && datagram.starts_with(&HELLO))
}

/// Returns true if the hello `datagram` has this `cookie`.
pub fn has_cookie(datagram: &[u8], cookie: &TestCookie) -> bool {
    datagram.get(HELLO.len()..) == Some(cookie.as_bytes())
}

/// Returns true if `datagram` is the answer of an iperf3 server, of whatever age, to a [`HELLO`].
pub fn is_reply(datagram: &[u8]) -> bool {
    // Up to 3.17 a machine with the greatest byte first sends them the other way round.
    [REPLY, OLD_REPLY]
        .iter()
        .any(|reply| datagram.iter().eq(reply) || datagram.iter().rev().eq(reply))
}

/// The header of each datagram of a stream; the rest is filler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHeader {
    /// When it was sent, in whole microseconds on the sender's own clock: since an unknown moment
    /// from iperf3 3.7 on, since 1970 before. Only differences mean anything.
    pub sent: Span,
    /// Number of the datagram in its stream, from 1. In 32 bits it begins again at 0 after 2³²−1.
    pub sequence: u64,
}

impl DatagramHeader {
    /// Bytes of a header; `wide` where both ends agreed on numbers of 64 bits.
    pub const fn header_length(wide: bool) -> usize {
        if wide { 16 } else { 12 }
    }

    /// Writes it to the start of a payload. Of more than 32 bits of number only the low ones are
    /// written where it is not `wide`; of more than 32 bits of seconds, always.
    pub fn write_payload(self, wide: bool, payload: &mut [u8; MIN_PAYLOAD]) {
        let micros = self.sent.as_micros();
        put_word(payload, 0, low_half(micros / 1_000_000));
        put_word(payload, 4, (micros % 1_000_000) as u32);
        if wide {
            payload[8..].copy_from_slice(&self.sequence.to_be_bytes());
        } else {
            put_word(payload, 8, low_half(self.sequence));
        }
    }

    /// Reads it from a payload; `None` where that is shorter than a header.
    pub fn read_payload(wide: bool, payload: &[u8]) -> Option<Self> {
        let sent = Span::from_secs(read_word(payload, 0)?.into())
            + Span::from_micros(read_word(payload, 4)?.into());
        let third = u64::from(read_word(payload, 8)?);
        let sequence = if wide {
            third << 32 | u64::from(read_word(payload, 12)?)
        } else {
            third
        };
        Some(Self { sent, sequence })
    }
}

/// Returns the low 32 bits of `number`, which is all that some fields hold.
pub(crate) const fn low_half(number: u64) -> u32 {
    (number & 0xFFFF_FFFF) as u32
}

/// The big-endian word at `at`.
pub(crate) fn read_word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|four| u32::from_be_bytes(*four))
}

/// Writes `word` at `at`, where there must be room.
pub(crate) fn put_word(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_widths_are_big_endian() {
        let header = DatagramHeader {
            sent: Span::from_micros(7_000_009),
            sequence: 0x0102_0304_0506_0708,
        };
        let mut payload = [0xAA; 16];
        header.write_payload(true, &mut payload);
        assert_eq!(payload, [0, 0, 0, 7, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
        payload = [0xAA; 16];
        header.write_payload(false, &mut payload);
        assert_eq!(
            payload,
            [0, 0, 0, 7, 0, 0, 0, 9, 5, 6, 7, 8, 0xAA, 0xAA, 0xAA, 0xAA]
        );
    }

    #[test]
    fn every_servers_reply_is_known() {
        for reply in [
            b"6789",
            b"9876",
            &[0xB1, 0x68, 0xDE, 0x3A],
            &[0x3A, 0xDE, 0x68, 0xB1],
        ] {
            assert!(is_reply(reply), "{reply:x?}");
        }
        for other in [&b""[..], b"678", b"67890", &[0; 4]] {
            assert!(!is_reply(other), "{other:x?}");
        }
    }

    #[test]
    fn hellos_of_all_ages_are_four_bytes() {
        assert!(is_hello(&HELLO) && is_hello(&[0x15, 0xCD, 0x5B, 0x07]));
        assert!(!is_hello(&[0; 12]) && !is_hello(b""));
    }

    proptest! {
        #[test]
        fn a_header_arrives_as_it_was_sent(seconds: u32, micros in 0..1_000_000_u64, sequence: u64, wide: bool) {
            let sent = Span::from_secs(seconds.into()) + Span::from_micros(micros);
            let mut payload = [0; 16];
            DatagramHeader { sent, sequence }.write_payload(wide, &mut payload);
            let expected = if wide { sequence } else { sequence & 0xFFFF_FFFF };
            prop_assert_eq!(
                DatagramHeader::read_payload(wide, &payload[..DatagramHeader::header_length(wide)]),
                Some(DatagramHeader { sent, sequence: expected })
            );
        }

        #[test]
        fn any_payload_has_a_header_or_is_too_short(payload in prop::collection::vec(any::<u8>(), 0..20), wide: bool) {
            prop_assert_eq!(DatagramHeader::read_payload(wide, &payload).is_some(), payload.len() >= DatagramHeader::header_length(wide));
        }
    }
}
