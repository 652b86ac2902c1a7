//! What stands at the beginning of each datagram of a test: when it was sent, and its number, big-endian.

/// When a datagram was sent, by the sender's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Seconds since some origin.
    pub(crate) secs: u32,
    /// Microseconds beyond them.
    pub(crate) micros: u32,
}

impl Stamp {
    /// In microseconds.
    pub(crate) fn as_micros(self) -> u64 {
        u64::from(self.secs) * 1_000_000 + u64::from(self.micros)
    }
}

/// Bytes of a header, with numbers of 64 bits or of 32.
pub(crate) const fn header_length(wide: bool) -> usize {
    if wide { 16 } else { 12 }
}

/// Puts a header to the beginning of `datagram`, of a number of 32 bits its last 32. One that is too short keeps what it
/// has.
pub(crate) fn write_header(datagram: &mut [u8], stamp: Stamp, number: u64, wide: bool) {
    let Some(header) = datagram.get_mut(..header_length(wide)) else { return };
    header[..4].copy_from_slice(&stamp.secs.to_be_bytes());
    header[4..8].copy_from_slice(&stamp.micros.to_be_bytes());
    if wide {
        header[8..].copy_from_slice(&number.to_be_bytes());
    } else {
        header[8..].copy_from_slice(&(number as u32).to_be_bytes());
    }
}

/// The stamp and the number that `datagram` begins with, unless it is too short.
pub(crate) fn read_header(datagram: &[u8], wide: bool) -> Option<(Stamp, u64)> {
    let word = |at: usize| Some(u32::from_be_bytes(*datagram.get(at..)?.first_chunk()?));
    let stamp = Stamp { secs: word(0)?, micros: word(4)? };
    let number = word(8)?;
    let number = if wide { u64::from(number) << 32 | u64::from(word(12)?) } else { number.into() };
    Some((stamp, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { secs: 0x0102_0304, micros: 0x0506_0708 };

    #[test]
    fn headers_are_as_iperf3_writes_them() {
        let mut datagram = [0xff; 16];
        write_header(&mut datagram, STAMP, 0x1_0000_0002, false);
        assert_eq!(datagram, [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(read_header(&datagram, false), Some((STAMP, 2)));
        write_header(&mut datagram, STAMP, 0x1_0000_0002, true);
        assert_eq!(datagram, [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(read_header(&datagram, true), Some((STAMP, 0x1_0000_0002)));
    }

    #[test]
    fn what_is_too_short_has_no_header() {
        for length in 0..16 {
            assert_eq!(read_header(&[0; 16][..length], true), None, "{length}");
            assert_eq!(read_header(&[0; 16][..length], false).is_some(), length >= 12, "{length}");
        }
        let mut short = [7; 11];
        write_header(&mut short, STAMP, 1, false);
        assert_eq!(short, [7; 11]);
    }
}
