//! Numbers in the order of the host that wrote them.

/// The order of the bytes of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Big,
    Little,
}

impl ByteOrder {
    /// Returns the order in which the first bytes are this number.
    pub(crate) fn from_magic(bytes: &[u8], number: u32) -> Option<Self> {
        [Self::Big, Self::Little]
            .into_iter()
            .find(|order| order.read_u32(bytes, 0) == Some(number))
    }

    /// Returns the 16 bits at this place, if they are there.
    pub(crate) fn read_u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        self.read_bytes(bytes, at).map(u16::from_be_bytes)
    }

    /// Returns the 32 bits at this place, if they are there.
    pub(crate) fn read_u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        self.read_bytes(bytes, at).map(u32::from_be_bytes)
    }

    /// Returns four numbers of 32 bits.
    #[inline]
    pub(crate) fn read_four(self, bytes: &[u8; 16]) -> [u32; 4] {
        let number = |index: usize| *bytes.as_chunks().0.get(index).unwrap_or(&[0; 4]);
        match self {
            Self::Big => [0, 1, 2, 3].map(|index| u32::from_be_bytes(number(index))),
            Self::Little => [0, 1, 2, 3].map(|index| u32::from_le_bytes(number(index))),
        }
    }

    /// Returns the 64 bits at this place, if they are there.
    pub(crate) fn read_u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        self.read_bytes(bytes, at).map(u64::from_be_bytes)
    }

    /// Returns the bytes of a number at this place, its highest first.
    #[inline]
    fn read_bytes<const N: usize>(self, bytes: &[u8], at: usize) -> Option<[u8; N]> {
        let mut number = *bytes.get(at..)?.first_chunk()?;
        if self == Self::Little {
            number.reverse();
        }
        Some(number)
    }
}
