//! The portions of which a stream of a copy consists, each a QUIC stream of its own: their heads
//! say where they belong.

/// Bytes of a portion at most, without its head.
pub(super) const PORTION: usize = 1 << 20;

/// Bytes of the head of a portion.
pub(super) const HEAD: usize = 6;

/// Portions that may be on their way at once.
pub(super) const MAX_PORTIONS: u32 = 1024;

/// The begin of a portion: the stream of the copy, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortionHead {
    pub stream: u16,
    pub number: u32,
}

impl PortionHead {
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..2].copy_from_slice(&self.stream.to_le_bytes());
        bytes[2..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; HEAD]) -> Self {
        let ([stream @ .., _, _, _, _], [_, _, number @ ..]) = (bytes, bytes);
        Self {
            stream: u16::from_le_bytes(stream),
            number: u32::from_le_bytes(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let head = PortionHead {
            stream: 258,
            number: 70_000,
        };
        assert_eq!(head.to_bytes(), [2, 1, 0x70, 0x11, 1, 0]);
        assert_eq!(PortionHead::from_bytes(head.to_bytes()), head);
    }
}
