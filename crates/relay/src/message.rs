//! The messages of a pair, once each relay knows the other: near → far the target, far → near what
//! became of it.
//!
//! ```text
//! near                                         far
//! 0, tag                                    →
//!                                           ←  abilities
//! length, request, tag                      →
//! bytes of the client                       →
//!                                           ←  status
//!                                           ←  bytes of the target
//! ```
//!
//! The length is one byte, the tag 32 ([`fullpipe_control::Peer::tag_text`]), the status one byte.
//! A request is the target as HOST:PORT, behind the word `zstd` and a space if the bytes of both
//! directions come in blocks ([`crate::BlockReader`]). The far relay is asked for its abilities
//! (one byte; bit 0: blocks, bit 1: padding) before a request with blocks, and before one of the
//! word `pad` alone: then 48 KiB of padding follow from near to far, and as many from far to near,
//! and after them another request.

use thiserror::Error;

use crate::rules::{RuleError, TargetAddress};

/// A request to connect to a target, without its length and its tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRequest {
    /// The target.
    pub target: TargetAddress,
    /// Bytes of both directions come in blocks.
    pub compress: bool,
}

/// Word of a request for blocks.
const ZSTD: &str = "zstd ";

/// The error of a request that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The request is not text.
    #[error("the target is no text")]
    NotText,
    /// The text is no target.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

/// Bit of the abilities of a far relay: it takes and sends blocks.
pub(crate) const TAKES_BLOCKS: u8 = 1;

/// Bit of the abilities of a far relay: it takes and sends padding.
pub(crate) const TAKES_PADDING: u8 = 2;

/// The request for padding.
pub(crate) const PAD: &[u8] = b"pad";

/// The answer of a far relay about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetStatus {
    /// The connection to the target is there; its bytes follow.
    Connected,
    /// The far relay does not permit the target.
    Forbidden,
    /// The target could not be reached, or did not accept the connection.
    Unreachable,
}

/// The error of a byte that is no status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0} is no status of a relay")]
pub struct StatusError(pub u8);

impl TargetRequest {
    /// Returns the bytes that stand between length and tag.
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("{}{}", if self.compress { ZSTD } else { "" }, self.target).into_bytes()
    }

    /// Reads the bytes that stand between length and tag.
    ///
    /// # Errors
    /// Fails if they are no target.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TargetError> {
        let text = str::from_utf8(bytes).map_err(|_| TargetError::NotText)?;
        let (compress, target) = text
            .strip_prefix(ZSTD)
            .map_or((false, text), |target| (true, target));
        Ok(Self {
            target: target.parse()?,
            compress,
        })
    }
}

impl TargetStatus {
    /// Returns the byte on the wire.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Connected => 0,
            Self::Forbidden => 1,
            Self::Unreachable => 2,
        }
    }

    /// Reads the byte on the wire.
    ///
    /// # Errors
    /// Fails if it is none of them.
    pub const fn from_byte(byte: u8) -> Result<Self, StatusError> {
        match byte {
            0 => Ok(Self::Connected),
            1 => Ok(Self::Forbidden),
            2 => Ok(Self::Unreachable),
            _ => Err(StatusError(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_status_is_read_as_it_was_written() {
        for status in [
            TargetStatus::Connected,
            TargetStatus::Forbidden,
            TargetStatus::Unreachable,
        ] {
            assert_eq!(TargetStatus::from_byte(status.to_byte()), Ok(status));
        }
        assert_eq!(TargetStatus::from_byte(3), Err(StatusError(3)));
    }

    #[test]
    fn a_request_for_blocks_is_read_as_it_was_written() {
        for compress in [false, true] {
            let request = TargetRequest {
                target: "host:22".parse().unwrap(),
                compress,
            };
            assert_eq!(TargetRequest::from_bytes(&request.to_bytes()), Ok(request));
        }
        assert!(TargetRequest::from_bytes(b"zstd zstd host:22").is_err());
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in prop::collection::vec(any::<u8>(), 0..255)) {
            if let Ok(request) = TargetRequest::from_bytes(&bytes) {
                prop_assert_eq!(TargetRequest::from_bytes(&request.to_bytes()), Ok(request));
            }
        }
    }
}
