use crate::{TestCookie, iperf2, udp};

/// The program that opened a connection to the server's port, judged by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// More bytes are needed; never more than [`TestCookie::LENGTH`].
    Undecided,
    /// An iperf3 client: its cookie, known for a data connection and new for a new test. The bytes
    /// behind the cookie belong to whatever the connection is.
    Iperf3(TestCookie),
    /// An iperf2 client, whose stream starts with a binary header or with digits.
    Iperf2,
    /// Neither.
    Unknown,
}

/// Distinguishes the callers of one port by the first bytes of their connection, as early as
/// possible. An iperf3 client waits for an answer after its cookie, so 37 bytes always decide; what
/// was decided holds however many bytes follow.
pub fn classify_first_bytes(bytes: &[u8]) -> CallerKind {
    let decisive = &bytes[..bytes.len().min(TestCookie::LENGTH)];
    if decisive.starts_with(PLAIN_PAYLOAD) {
        return CallerKind::Iperf2;
    }
    match decisive.iter().position(|byte| !is_text(*byte)) {
        None if decisive.len() < TestCookie::LENGTH => CallerKind::Undecided,
        Some(at) if at < FLAGS_LENGTH && may_start_flags(decisive[0]) => CallerKind::Iperf2,
        Some(_) => decisive
            .try_into()
            .ok()
            .and_then(parse_cookie)
            .map_or(CallerKind::Unknown, CallerKind::Iperf3),
        None => CallerKind::Unknown,
    }
}

/// The program that sent the first datagram of an address to the server's UDP port. Nothing proves
/// who that is: an answer must not be longer than that datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramCaller {
    /// An iperf3 client that opens a stream, of a test that it has agreed on over TCP.
    Iperf3,
    /// An iperf2 client; the datagram is a part of its data.
    Iperf2,
    /// Neither, or what is left of a test that is over.
    Unknown,
}

/// Distinguishes the callers of one UDP port by the first datagram of an address. iperf2 stamps by
/// the wall clock behind its number; what iperf3 sends late has a time there that is less than a
/// second.
pub fn classify_first_datagram(datagram: &[u8]) -> DatagramCaller {
    const MICROS_OF_A_SECOND: u32 = 1_000_000;
    let (second, third) = (udp::read_word(datagram, 4), udp::read_word(datagram, 8));
    match (second, third) {
        _ if udp::is_hello(datagram) => DatagramCaller::Iperf3,
        (Some(seconds), Some(micros))
            if seconds >= MICROS_OF_A_SECOND && micros < MICROS_OF_A_SECOND =>
        {
            // The end of a test that we know nothing of is not the start of one.
            match iperf2::Iperf2Datagram::read_payload(datagram) {
                Some(first) if !first.is_last() => DatagramCaller::Iperf2,
                _ => DatagramCaller::Unknown,
            }
        }
        _ => DatagramCaller::Unknown,
    }
}

/// The pattern with which an iperf2 client without a header fills its blocks.
const PLAIN_PAYLOAD: &[u8] = b"0123";

/// Bytes of the flags with which an iperf2 header starts.
const FLAGS_LENGTH: usize = 4;

/// Up to iperf3 3.1 a cookie is a host name and a time, so any printable text may be one.
fn is_text(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

/// Returns true if an iperf2 flags word may start so: it is zero, or has one of the two top bits
/// (header with version 1, header with extension) and none of those that iperf2 does not know.
fn may_start_flags(first: u8) -> bool {
    first == 0 || (first & 0b1100_0000 != 0 && first & 0b0010_0001 == 0)
}

fn parse_cookie(bytes: &[u8; TestCookie::LENGTH]) -> Option<TestCookie> {
    let (text, end) = bytes.split_at(TestCookie::LENGTH - 1);
    (text.iter().all(|byte| is_text(*byte)) && end == [0]).then(|| TestCookie::from_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;
    use proptest::prelude::*;

    fn decided_after(bytes: &[u8]) -> (usize, CallerKind) {
        (0..=bytes.len())
            .map(|length| (length, classify_first_bytes(&bytes[..length])))
            .find(|(_, caller)| *caller != CallerKind::Undecided)
            .unwrap_or((bytes.len(), CallerKind::Undecided))
    }

    #[test]
    fn iperf3_clients_of_all_ages_are_known_by_37_bytes() {
        for text in [
            "smlukwpdn4x4gtn3vl6k3dgvu3il7zfxjaan",
            "Dev-box.lan.1404827312.123456.2b3c4d5e",
        ] {
            let mut bytes = [0; 37];
            bytes[..36].copy_from_slice(&text.as_bytes()[..36]);
            assert_eq!(
                decided_after(&bytes),
                (37, CallerKind::Iperf3(TestCookie::from_bytes(bytes)))
            );
        }
    }

    #[test]
    fn iperf2_clients_are_known_within_their_flags() {
        for (first_bytes, after) in [
            (&[0x40, 0x01, 0x00, 0x78][..], 2), // 2.1.8: extension, length valid
            (&[0x44, 0x01, 0x00, 0x78], 2),
            (&[0x80, 0, 0, 0], 1),
            (&[0xC0, 0, 0, 1], 1),
            // Recorded from 2.1.8: -X, -d, --permit-key, --trip-times, --bounceback.
            (&[0x46, 0x01, 0x00, 0x78], 2),
            (&[0xC0, 0x01, 0x00, 0x79], 1),
            (&[0x50, 0x01, 0x00, 0x7C], 2),
            (&[0x40, 0x01, 0x00, 0xA0], 2),
            (&[0x00, 0x80, 0x00, 0x00], 1),
            (&[0; 24], 1),
            (b"0123456789", 4),
        ] {
            assert_eq!(
                decided_after(first_bytes),
                (after, CallerKind::Iperf2),
                "{first_bytes:x?}"
            );
        }
    }

    #[test]
    fn other_programs_are_neither() {
        for first_bytes in [
            &b"GET / HTTP/1.1\r\nHost: here\r\n"[..],
            b"POST / HTTP/1.1\r\n",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            &[0x16, 0x03, 0x01, 0x02],
            &[b'a'; 60],
        ] {
            assert_eq!(
                decided_after(first_bytes).1,
                CallerKind::Unknown,
                "{first_bytes:x?}"
            );
        }
    }

    #[test]
    fn datagrams_of_both_tools_are_reported_apart() {
        let iperf2 = |number: i64| {
            let mut payload = [0; 1470];
            let (start, _) = payload.split_first_chunk_mut().unwrap();
            let sent = Span::from_secs(1_763_000_000) + Span::from_micros(999_999);
            iperf2::Iperf2Datagram { number, sent }.write_payload(start);
            payload
        };
        let mut iperf3 = [0; 1448];
        let header = udp::DatagramHeader {
            sent: Span::from_secs(1_763_000_000),
            sequence: 9,
        };
        header.write_payload(false, iperf3.first_chunk_mut().unwrap());
        for (datagram, caller) in [
            (&udp::HELLO[..], DatagramCaller::Iperf3),
            (&[0x15, 0xCD, 0x5B, 0x07], DatagramCaller::Iperf3),
            (&iperf2(1), DatagramCaller::Iperf2),
            (&iperf2(7), DatagramCaller::Iperf2),
            (&iperf2(-7), DatagramCaller::Unknown),
            (&iperf3, DatagramCaller::Unknown),
            (&[], DatagramCaller::Unknown),
            (&[0; 1470], DatagramCaller::Unknown),
        ] {
            assert_eq!(
                classify_first_datagram(datagram),
                caller,
                "{:x?}",
                &datagram[..datagram.len().min(20)]
            );
        }
    }

    proptest! {
        #[test]
        fn any_datagram_is_classified(datagram in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = classify_first_datagram(&datagram);
        }

        #[test]
        fn a_decision_holds_and_37_bytes_force_one(bytes in prop::collection::vec(any::<u8>(), 37..60)) {
            let (after, caller) = decided_after(&bytes);
            prop_assert_ne!(caller, CallerKind::Undecided);
            for length in after..=bytes.len() {
                prop_assert_eq!(classify_first_bytes(&bytes[..length]), caller);
            }
        }
    }
}
