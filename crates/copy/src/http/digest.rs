//! Digests of a whole file, as users and servers state them.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256, SHA512};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fullpipe_units::to_hexadecimal;

/// Bytes that are hashed at a time.
const PIECE: usize = 1 << 20;

/// A digest that a file must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDigest {
    algorithm: DigestAlgorithm,
    value: Vec<u8>,
}

/// The algorithm of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestAlgorithm {
    /// BLAKE3 with 32 bytes, as `b3sum` prints it.
    Blake3,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl DigestAlgorithm {
    const ALL: [Self; 3] = [Self::Blake3, Self::Sha256, Self::Sha512];

    const fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    const fn byte_count(self) -> usize {
        match self {
            Self::Blake3 | Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns the algorithm with this name, with a dash in it or without: `sha-256`.
    fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace('-', "");
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl FileDigest {
    fn new(algorithm: DigestAlgorithm, value: Vec<u8>) -> Option<Self> {
        (value.len() == algorithm.byte_count()).then_some(Self { algorithm, value })
    }

    /// Reads an element of `Repr-Digest` (RFC 9530: `sha-256=:base64:`) or `Digest` (RFC 3230:
    /// `SHA-256=base64`); `None` if its algorithm is another one.
    pub(super) fn from_field(element: &str) -> Option<Self> {
        let (name, value) = element.split_once('=')?;
        let value = STANDARD.decode(value.trim_matches(':')).ok()?;
        Self::new(DigestAlgorithm::from_name(name)?, value)
    }

    /// Returns its algorithm.
    pub const fn algorithm(&self) -> DigestAlgorithm {
        self.algorithm
    }

    /// Returns true if this is the digest.
    pub fn is_equal(&self, value: &[u8]) -> bool {
        self.value == value
    }

    /// Reads a file to its end, and returns true if it has this digest.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn is_of(&self, file: &mut impl Read) -> io::Result<bool> {
        let mut sha = match self.algorithm {
            DigestAlgorithm::Blake3 => {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader(file)?;
                return Ok(self.is_equal(hasher.finalize().as_bytes()));
            }
            DigestAlgorithm::Sha256 => Context::new(&SHA256),
            DigestAlgorithm::Sha512 => Context::new(&SHA512),
        };
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(self.is_equal(sha.finish().as_ref())),
                count => sha.update(&piece[..count]),
            }
        }
    }
}

impl FromStr for FileDigest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = text.split_once(':').and_then(|(name, digits)| {
            Self::new(DigestAlgorithm::from_name(name)?, from_hexadecimal(digits)?)
        });
        found.ok_or("write blake3:, sha256: or sha512: and all hexadecimal digits")
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}:{}",
            self.algorithm.name(),
            to_hexadecimal(&self.value)
        )
    }
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| {
        let text = str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three letters, from FIPS 180-4's examples, and of BLAKE3's own program.
    const OF_ABC: [&str; 3] = [
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
         2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    ];

    #[test]
    fn a_file_has_its_digests_and_no_others() {
        for text in OF_ABC {
            let digest: FileDigest = text.parse().unwrap();
            assert_eq!(digest.to_string(), text);
            assert!(digest.is_of(&mut &b"abc"[..]).unwrap(), "{text}");
            assert!(!digest.is_of(&mut &b"abd"[..]).unwrap(), "{text}");
        }
        for wrong in [
            "sha256:ba78",
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "ba78",
            "sha256:é",
        ] {
            assert!(wrong.parse::<FileDigest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn servers_state_digests_in_base64() {
        let of_abc: FileDigest = OF_ABC[0].parse().unwrap();
        for field in [
            "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:",
            "SHA-256=ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
        ] {
            assert_eq!(
                FileDigest::from_field(field),
                Some(of_abc.clone()),
                "{field}"
            );
        }
        for other in ["sha-256=:AAAA:", "md5=:AAAA:", "sha-256", "unixsum=30637"] {
            assert_eq!(FileDigest::from_field(other), None, "{other}");
        }
    }
}
