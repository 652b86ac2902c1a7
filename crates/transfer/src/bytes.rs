//! Numbers and texts as bytes, little-endian.

/// Bytes that are read from their beginning.
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

/// The bytes end before what was to be read.
#[derive(Debug)]
pub(crate) struct Short;

impl<'b> Reader<'b> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'b [u8], Short> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads bytes that follow their number, two bytes.
    pub(crate) fn counted(&mut self) -> Result<&'b [u8], Short> {
        let count = self.u16()?;
        self.take(count.into())
    }
}

/// Appends `bytes` behind their number; what does not fit is left out.
pub(crate) fn put_counted(into: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(u16::MAX.into())];
    into.extend((bytes.len() as u16).to_le_bytes());
    into.extend(bytes);
}
