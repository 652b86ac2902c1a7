//! The Internet checksum (RFC 1071).

use crate::headers::{IpVersion, PacketHeaders};

/// Sum of 16-bit words in one's complement, folded when it is taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct ChecksumSum(u64);

impl ChecksumSum {
    /// Adds `bytes`, the last of which stands for the upper half of a word where their number is
    /// odd.
    #[inline]
    pub(crate) fn add_bytes(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        // Words of 32 bits sum up to the same as their halves, and 2³² of them fit.
        for word in words {
            self.0 += u64::from(u32::from_be_bytes(*word));
        }
        let (halves, last) = rest.as_chunks::<2>();
        for half in halves {
            self.0 += u64::from(u16::from_be_bytes(*half));
        }
        self.0 += last.first().map_or(0, |last| u64::from(*last) << 8);
        self
    }

    pub(crate) fn add_word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// The sum in 16 bits, as a field holds it that waits for the rest.
    pub(crate) fn folded_sum(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum of everything added.
    pub(crate) fn to_checksum(self) -> u16 {
        !self.folded_sum()
    }
}

/// Returns the checksum of a message, without a pseudo header (RFC 1071).
pub fn internet_checksum(message: &[u8]) -> u16 {
    ChecksumSum::default().add_bytes(message).to_checksum()
}

/// The pseudo header of TCP and UDP over IPv4 (RFC 9293, 3.1) or IPv6 (RFC 8200, 8.1), for `length`
/// bytes of transport.
pub(crate) fn pseudo_header(head: &[u8], headers: &PacketHeaders, length: usize) -> ChecksumSum {
    let addresses = match headers.version {
        IpVersion::V4 => &head[12..20],
        IpVersion::V6 => &head[8..40],
    };
    // Lengths beyond 16 bits are of trains, whose segments get their own; the sum takes them in two
    // words.
    let length = (length as u32).to_be_bytes();
    ChecksumSum::default()
        .add_bytes(addresses)
        .add_bytes(&length)
        .add_word(u16::from(headers.protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 3: the bytes sum to 2ddf0, which folds to ddf2.
    #[test]
    fn the_example_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(
            ChecksumSum::default().add_bytes(&bytes).folded_sum(),
            0xddf2
        );
        assert_eq!(
            ChecksumSum::default()
                .add_bytes(&bytes[..3])
                .add_bytes(&[])
                .folded_sum(),
            0xf201
        );
    }

    #[test]
    fn parts_of_even_length_sum_to_the_whole() {
        let bytes: Vec<u8> = (0..=250).collect();
        for cut in (0..bytes.len()).step_by(2) {
            let sum = ChecksumSum::default()
                .add_bytes(&bytes[..cut])
                .add_bytes(&bytes[cut..]);
            assert_eq!(
                sum.folded_sum(),
                ChecksumSum::default().add_bytes(&bytes).folded_sum()
            );
        }
    }
}
