//! The headers of `pcap-savefile(5)`, with times in nanoseconds.

use fullpipe_units::Time;

use crate::LinkType;

const NANOSECONDS: u32 = 0xA1B2_3C4D;
const VERSION: u32 = 2 | 4 << 16;
const SECOND: u64 = 1_000_000_000;

/// Returns the header of a file of packets of one link type, of which at most `snap_length` bytes
/// are kept.
pub fn pcap_header(link: LinkType, snap_length: u32) -> [u8; 24] {
    words_to_bytes([NANOSECONDS, VERSION, 0, 0, snap_length, u32::from(link.0)])
}

/// Returns the header of a packet that passed at `at`, counted from 1970, of which `kept` of
/// `length` bytes follow.
pub fn pcap_record(at: Time, kept: u32, length: u32) -> [u8; 16] {
    let nanos = at.as_nanos();
    let seconds = u32::try_from(nanos / SECOND).unwrap_or(u32::MAX);
    words_to_bytes([seconds, (nanos % SECOND) as u32, kept, length])
}

fn words_to_bytes<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_libpcap() {
        let header = pcap_header(LinkType::RAW, 128);
        assert_eq!(header[..8], [0x4D, 0x3C, 0xB2, 0xA1, 2, 0, 4, 0]);
        assert_eq!(header[16..], [128, 0, 0, 0, 101, 0, 0, 0]);
        let record = pcap_record(Time::from_nanos(3_000_000_007), 40, 1500);
        assert_eq!(record, [3, 0, 0, 0, 7, 0, 0, 0, 40, 0, 0, 0, 0xDC, 5, 0, 0]);
    }
}
