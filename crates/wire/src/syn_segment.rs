//! The segments that open a connection.

use fullpipe_units::ByteCount;

use crate::headers::{PacketHeaders, TCP, read_u16};
use crate::options::{MSS, SYN, WINDOW_SCALE, are_blanked, iter_options};

/// The figures of a SYN or SYN-ACK that describe its sender and the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynSegment {
    /// The sender's port, and the port that it was sent to.
    pub ports: [u16; 2],
    /// Window field of the segment, which is never scaled (RFC 7323, 2.2).
    pub window: ByteCount,
    /// The largest segment that its sender takes (RFC 9293, 3.7.1), where it says so.
    pub mss: Option<ByteCount>,
    /// By how much its sender shifts windows (RFC 7323, 2.2), where it offers or agrees to shift
    /// them.
    pub window_scale: Option<u8>,
    /// True if an option was overwritten with padding on the way, as devices do that let none pass:
    /// the header has four bytes of padding in a row. An option that was cut out whole leaves no
    /// trace.
    pub options_overwritten: bool,
}

impl SynSegment {
    /// Reads the headers at the front of an IP packet; `None` for what carries no such segment.
    pub fn of_packet(packet: &[u8]) -> Option<Self> {
        let headers =
            PacketHeaders::parse_packet(packet).filter(|headers| headers.protocol == TCP)?;
        Self::parse_header(packet.get(headers.transport..)?)
    }

    /// Reads the TCP header at the front of `segment`; `None` for anything but the whole header of
    /// a SYN.
    pub fn parse_header(segment: &[u8]) -> Option<Self> {
        let header = segment.first_chunk::<20>()?;
        let opens = header[13] & SYN != 0;
        let options = segment.get(20..usize::from(header[12] >> 4) * 4)?;
        opens.then(|| Self {
            ports: [read_u16(header, 0), read_u16(header, 2)],
            window: ByteCount::new(read_u16(header, 14).into()),
            mss: option_value(options, MSS)
                .map(|mss| ByteCount::new(u16::from_be_bytes(mss).into())),
            window_scale: option_value(options, WINDOW_SCALE).map(|[shift]| shift),
            options_overwritten: are_blanked(options),
        })
    }
}

/// Returns the value of the first option of this kind, if it has this length.
fn option_value<const LENGTH: usize>(options: &[u8], kind: u8) -> Option<[u8; LENGTH]> {
    iter_options(options).find(|option| option[0] == kind)?[2..]
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK: u8 = 0x10;
    const MAX_SEGMENT: [u8; 4] = [2, 4, 5, 180];
    const SCALE: [u8; 4] = [1, 3, 3, 7];
    /// SACK permitted and timestamps, as Linux has them.
    const SACK_AND_TIMES: [u8; 12] = [4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

    /// A header from port 5201 to port 40000 with these flags and options.
    fn header(flags: u8, options: &[&[u8]]) -> Vec<u8> {
        let options = options.concat();
        let length = (20 + options.len()) as u8 / 4;
        let mut header = vec![
            0x14,
            0x51,
            0x9c,
            0x40,
            0,
            0,
            0,
            1,
            0,
            0,
            0,
            2,
            length << 4,
            flags,
            0xfe,
            0x88,
            0,
            0,
            0,
            0,
        ];
        header.extend(options);
        header
    }

    fn options_overwritten(options: &[&[u8]]) -> bool {
        SynSegment::parse_header(&header(SYN | ACK, options))
            .unwrap()
            .options_overwritten
    }

    #[test]
    fn padding_where_an_option_was_is_distinguished_from_what_was_never_there() {
        assert!(!options_overwritten(&[
            &MAX_SEGMENT,
            &SACK_AND_TIMES,
            &SCALE
        ]));
        assert!(
            !options_overwritten(&[&MAX_SEGMENT, &SACK_AND_TIMES]),
            "scaling was not offered"
        );
        assert!(
            options_overwritten(&[&MAX_SEGMENT, &SACK_AND_TIMES, &[1; 4]]),
            "the scale was overwritten"
        );
        // As Windows has them: a scale, then SACK permitted behind two bytes of padding.
        assert!(!options_overwritten(&[&MAX_SEGMENT, &SCALE, &[1, 1, 4, 2]]));
        assert!(options_overwritten(&[&MAX_SEGMENT, &[1; 4], &[1, 1, 4, 2]]));
    }

    #[test]
    fn a_syn_is_found_in_a_packet_of_either_family() {
        let segment = header(SYN, &[&MAX_SEGMENT, &SCALE]);
        let v4 = |protocol: u8| {
            let mut packet = vec![
                0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
            ];
            packet.extend(&segment);
            packet
        };
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, TCP, 64];
        v6.extend([0; 32]);
        v6.extend(&segment);
        assert_eq!(
            SynSegment::of_packet(&v4(TCP)),
            SynSegment::parse_header(&segment)
        );
        assert_eq!(
            SynSegment::of_packet(&v6),
            SynSegment::parse_header(&segment)
        );
        assert_eq!(SynSegment::of_packet(&v4(17)), None, "UDP opens nothing");
        assert_eq!(SynSegment::of_packet(&[]), None);
    }

    #[test]
    fn only_whole_headers_of_syn_segments_are_read() {
        let answer = header(SYN | ACK, &[&MAX_SEGMENT]);
        let read = SynSegment::parse_header(&answer).unwrap();
        assert_eq!(
            (read.ports, read.window),
            ([5201, 40_000], ByteCount::new(0xfe88))
        );
        assert_eq!(
            (read.mss, read.window_scale),
            (Some(ByteCount::new(1460)), None)
        );
        assert_eq!(
            SynSegment::parse_header(&header(SYN, &[&MAX_SEGMENT])),
            Some(read)
        );
        let scaled = SynSegment::parse_header(&header(SYN, &[&SACK_AND_TIMES, &SCALE])).unwrap();
        assert_eq!((scaled.mss, scaled.window_scale), (None, Some(7)));
        let lying =
            SynSegment::parse_header(&header(SYN, &[&[1, 1, 3, 5, 7, 7, 7, 1], &[2, 2, 1, 1]]))
                .unwrap();
        assert_eq!(
            (lying.mss, lying.window_scale),
            (None, None),
            "of other lengths than they have"
        );
        assert_eq!(
            SynSegment::parse_header(&answer[..22]),
            None,
            "its options are cut off"
        );
        assert_eq!(
            SynSegment::parse_header(&header(ACK, &[&MAX_SEGMENT])),
            None
        );
        assert_eq!(SynSegment::parse_header(&[]), None);
        // Options that cannot be read end there.
        assert!(!options_overwritten(&[&[3, 0, 1, 1], &[1; 4]]));
    }
}
