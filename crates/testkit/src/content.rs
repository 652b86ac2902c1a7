use std::fs::File;
use std::io::Read;

/// Returns bytes that no compression makes fewer.
///
/// # Panics
/// Panics if the system has none.
pub fn random_bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let filled = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    filled.expect("the system has random bytes");
    bytes
}

/// Returns hexadecimal digits, of which compression saves about half.
///
/// # Panics
/// Panics if the system has no random bytes.
pub fn random_digits(length: usize) -> Vec<u8> {
    let mut bytes = random_bytes(length);
    make_digits(&mut bytes);
    bytes
}

/// Makes a hexadecimal digit of each byte.
pub fn make_digits(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = b"0123456789abcdef"[usize::from(*byte % 16)];
    }
}
