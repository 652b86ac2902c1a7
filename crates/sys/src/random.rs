use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes of the kernel, at most 256 (getrandom(2) gives so many whole).
///
/// # Errors
/// Fails if the kernel has none.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    if getrandom(&mut bytes[..], GetRandomFlags::empty())? == N {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
