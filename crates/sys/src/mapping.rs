//! Memory that the kernel maps.

use std::io;
use std::ptr::NonNull;

/// Pages of memory of their own.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub start: NonNull<u8>,
    pub length: usize,
}

// SAFETY: the mapping belongs to this value alone, as the memory of a `Vec` does.
unsafe impl Send for Mapping {}

impl Mapping {
    /// `length` bytes that can be read and written, of this kind (`MAP_…`): of the open file
    /// `descriptor`, or of none.
    ///
    /// # Errors
    /// Fails as `mmap` does, for example for no bytes at all.
    pub(crate) fn new(length: usize, kind: i32, descriptor: i32) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes, which overlaps nothing.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, rights, kind, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::other("memory at address zero"))?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing refers to it any
        // more. A failure leaves it mapped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
