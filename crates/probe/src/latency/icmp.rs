//! Echo messages (RFC 792, RFC 4443).

/// Header of a message.
const HEADER: usize = 8;

/// A request with its header, what tells this flow from others, and its number.
pub(super) const LENGTH: usize = HEADER + 16;

/// How a flow's messages are made and known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Echoes {
    pub(super) is_ipv6: bool,
    /// A raw IPv4 socket gives each message behind its IP header, and those of others too.
    pub(super) is_raw: bool,
    /// What only answers to this flow can contain.
    pub(super) token: u64,
}

impl Echoes {
    /// Request `number`.
    pub(super) fn request(self, number: u64) -> [u8; LENGTH] {
        const ECHO_REQUEST: u8 = 8;
        const ECHO_REQUEST_V6: u8 = 128;
        let mut message = [0; LENGTH];
        message[0] = if self.is_ipv6 { ECHO_REQUEST_V6 } else { ECHO_REQUEST };
        // A ping socket's identifier is the kernel's choice.
        message[4..6].copy_from_slice(&(self.token as u16).to_be_bytes());
        message[6..HEADER].copy_from_slice(&(number as u16).to_be_bytes());
        message[HEADER..HEADER + 8].copy_from_slice(&self.token.to_be_bytes());
        message[HEADER + 8..].copy_from_slice(&number.to_be_bytes());
        if !self.is_ipv6 {
            let sum = checksum(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
        }
        message
    }

    /// The number of the request that `packet` answers, if it is one of ours.
    pub(super) fn answered(self, packet: &[u8]) -> Option<u64> {
        const ECHO_REPLY: u8 = 0;
        const ECHO_REPLY_V6: u8 = 129;
        let behind_ip = self.is_raw && !self.is_ipv6;
        // The IP header's length is its own low nibble, in words.
        let skip = if behind_ip { usize::from(packet.first()? & 0x0f) * 4 } else { 0 };
        let message: &[u8; LENGTH] = packet.get(skip..)?.try_into().ok()?;
        let wanted = if self.is_ipv6 { ECHO_REPLY_V6 } else { ECHO_REPLY };
        let (token, number) = message[HEADER..].split_first_chunk()?;
        let is_ours = message[0] == wanted && u64::from_be_bytes(*token) == self.token;
        is_ours.then_some(u64::from_be_bytes(number.try_into().ok()?))
    }
}

/// The Internet checksum of `message`, whose own checksum field is zero (RFC 1071).
fn checksum(message: &[u8]) -> u16 {
    let words = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Echoes = Echoes { is_ipv6: false, is_raw: false, token: 0x0123_4567_89ab_cdef };

    /// What another host makes of a request.
    fn reply(echoes: Echoes, number: u64) -> [u8; LENGTH] {
        let mut message = echoes.request(number);
        message[0] = if echoes.is_ipv6 { 129 } else { 0 };
        message
    }

    #[test]
    fn the_checksum_of_a_message_with_its_checksum_is_zero() {
        assert_eq!(checksum(&OURS.request(7)), 0);
        let mut odd = [8, 0, 0, 0, 0x12, 0x34, 0, 7, 1, 2, 3];
        let sum = checksum(&odd).to_be_bytes();
        odd[2..4].copy_from_slice(&sum);
        assert_eq!(checksum(&odd), 0);
    }

    #[test]
    fn an_answer_is_known_by_its_kind_and_its_token() {
        for is_ipv6 in [false, true] {
            let ours = Echoes { is_ipv6, ..OURS };
            assert_eq!(ours.answered(&reply(ours, 70_000)), Some(70_000));
            assert_eq!(ours.answered(&ours.request(7)), None, "a request over loopback");
            assert_eq!(ours.answered(&reply(Echoes { token: 1, ..ours }, 7)), None, "to another program");
        }
    }

    #[test]
    fn a_raw_socket_gives_the_ip_header_too() {
        let raw = Echoes { is_raw: true, ..OURS };
        let packet = |words: u8| [&[0x40 | words][..], &vec![0; usize::from(words) * 4 - 1], &reply(raw, 9)].concat();
        assert_eq!((raw.answered(&packet(5)), raw.answered(&packet(15))), (Some(9), Some(9)));
        assert_eq!((raw.answered(&[0x4f; 30]), raw.answered(&[])), (None, None));
        let v6 = Echoes { is_ipv6: true, ..raw };
        assert_eq!(v6.answered(&reply(v6, 9)), Some(9));
    }
}
