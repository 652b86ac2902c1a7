//! Echo messages (RFC 792, RFC 4443).

use fullpipe_wire::internet_checksum;

/// Bytes of the header of a message.
const HEADER: usize = 8;

/// Bytes of a request: its header, the token of the flow, and its number.
pub(crate) const LENGTH: usize = HEADER + 16;

/// The form of the echo messages of a flow.
#[derive(Clone, Copy)]
pub(crate) struct EchoMessages {
    pub is_ipv6: bool,
    /// Set for a raw socket, which receives the messages of other flows too, and over IPv4 each
    /// with its IP header.
    pub is_raw: bool,
    /// A random number that only the messages of this flow contain.
    pub token: u64,
}

impl EchoMessages {
    /// Returns request `number` with a payload of `payload` bytes, or of the shortest request if
    /// that is longer.
    pub(crate) fn request_of(self, number: u64, payload: usize) -> Vec<u8> {
        let mut message = self.encode_request(number).to_vec();
        // Zeros do not change the checksum.
        message.resize((HEADER + payload).max(LENGTH), 0);
        message
    }

    /// Returns request `number`.
    pub(crate) fn encode_request(self, number: u64) -> [u8; LENGTH] {
        let mut message = [0; LENGTH];
        message[0] = self.request_kind();
        // The kernel replaces the identifier on a ping socket.
        message[4..6].copy_from_slice(&(self.token as u16).to_be_bytes());
        message[6..HEADER].copy_from_slice(&(number as u16).to_be_bytes());
        message[HEADER..HEADER + 8].copy_from_slice(&self.token.to_be_bytes());
        message[HEADER + 8..].copy_from_slice(&number.to_be_bytes());
        if !self.is_ipv6 {
            let sum = internet_checksum(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
        }
        message
    }

    fn request_kind(self) -> u8 {
        const ECHO_REQUEST: u8 = 8;
        const ECHO_REQUEST_V6: u8 = 128;
        if self.is_ipv6 {
            ECHO_REQUEST_V6
        } else {
            ECHO_REQUEST
        }
    }

    /// Returns the last 16 bits of the number of the request that `packet` begins with; `None` if
    /// it is not one of this flow. `packet` is what a router quotes of a packet that it dropped,
    /// without the IP header; some routers quote the ICMP header alone.
    pub(crate) fn quoted_number(self, packet: &[u8]) -> Option<u16> {
        let (header, rest) = packet.split_first_chunk::<HEADER>()?;
        let [identifier, number] =
            [4, 6].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
        let is_ours = header[0] == self.request_kind()
            && (!self.is_raw || identifier == self.token as u16)
            && rest
                .first_chunk()
                .is_none_or(|token| u64::from_be_bytes(*token) == self.token);
        is_ours.then_some(number)
    }

    /// Returns the number of the request that `packet` answers; `None` if it is not one of this
    /// flow. Padding behind the message may be missing.
    pub(crate) fn answered_number(self, packet: &[u8]) -> Option<u64> {
        const ECHO_REPLY: u8 = 0;
        const ECHO_REPLY_V6: u8 = 129;
        let behind_ip = self.is_raw && !self.is_ipv6;
        // The low nibble of the IP header's first byte is its length in words of four bytes.
        let skip = if behind_ip {
            usize::from(packet.first()? & 0x0f) * 4
        } else {
            0
        };
        let message: &[u8; LENGTH] = packet.get(skip..)?.first_chunk()?;
        let wanted = if self.is_ipv6 {
            ECHO_REPLY_V6
        } else {
            ECHO_REPLY
        };
        let (token, number) = message[HEADER..].split_first_chunk()?;
        let is_ours = message[0] == wanted && u64::from_be_bytes(*token) == self.token;
        is_ours.then_some(u64::from_be_bytes(number.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: EchoMessages = EchoMessages {
        is_ipv6: false,
        is_raw: false,
        token: 0x0123_4567_89ab_cdef,
    };

    /// Returns the reply of another host to a request.
    fn reply(echoes: EchoMessages, number: u64) -> [u8; LENGTH] {
        let mut message = echoes.encode_request(number);
        message[0] = if echoes.is_ipv6 { 129 } else { 0 };
        message
    }

    #[test]
    fn the_checksum_of_a_message_with_its_checksum_is_zero() {
        assert_eq!(internet_checksum(&OURS.encode_request(7)), 0);
        let mut odd = [8, 0, 0, 0, 0x12, 0x34, 0, 7, 1, 2, 3];
        let sum = internet_checksum(&odd).to_be_bytes();
        odd[2..4].copy_from_slice(&sum);
        assert_eq!(internet_checksum(&odd), 0);
    }

    #[test]
    fn an_answer_is_recognized_by_its_type_and_its_token() {
        for is_ipv6 in [false, true] {
            let ours = EchoMessages { is_ipv6, ..OURS };
            assert_eq!(ours.answered_number(&reply(ours, 70_000)), Some(70_000));
            assert_eq!(
                ours.answered_number(&ours.encode_request(7)),
                None,
                "a request over loopback"
            );
            assert_eq!(
                ours.answered_number(&reply(EchoMessages { token: 1, ..ours }, 7)),
                None,
                "to another program"
            );
        }
    }

    #[test]
    fn a_quoted_request_is_recognized_by_its_header_and_the_quoted_part_of_its_token() {
        for (is_ipv6, is_raw) in [(false, false), (true, false), (false, true), (true, true)] {
            let ours = EchoMessages {
                is_ipv6,
                is_raw,
                ..OURS
            };
            let quote = |message: &[u8]| ours.quoted_number(message);
            assert_eq!(
                (
                    quote(&ours.encode_request(70_000)),
                    quote(&ours.encode_request(9)[..8])
                ),
                (Some(4_464), Some(9))
            );
            assert_eq!(
                (
                    quote(&ours.request_of(9, 1_000)),
                    quote(&ours.encode_request(9)[..7])
                ),
                (Some(9), None)
            );
            assert_eq!(
                quote(&EchoMessages { token: 1, ..ours }.encode_request(9)),
                None,
                "of another program"
            );
            assert_eq!(quote(&reply(ours, 9)), None);
        }
    }

    #[test]
    fn a_longer_request_has_the_same_checksum() {
        let long = OURS.request_of(7, 1_000);
        assert_eq!((long.len(), internet_checksum(&long)), (1_008, 0));
        assert_eq!(
            OURS.answered_number(&[&reply(OURS, 7)[..], &[0; 100]].concat()),
            Some(7)
        );
    }

    #[test]
    fn a_raw_socket_gives_the_ip_header_too() {
        let raw = EchoMessages {
            is_raw: true,
            ..OURS
        };
        let packet = |words: u8| {
            [
                &[0x40 | words][..],
                &vec![0; usize::from(words) * 4 - 1],
                &reply(raw, 9),
            ]
            .concat()
        };
        assert_eq!(
            (
                raw.answered_number(&packet(5)),
                raw.answered_number(&packet(15))
            ),
            (Some(9), Some(9))
        );
        assert_eq!(
            (raw.answered_number(&[0x4f; 30]), raw.answered_number(&[])),
            (None, None)
        );
        let v6 = EchoMessages {
            is_ipv6: true,
            ..raw
        };
        assert_eq!(v6.answered_number(&reply(v6, 9)), Some(9));
    }
}
