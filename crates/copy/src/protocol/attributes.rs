use std::collections::BTreeMap;

use fullpipe_units::ByteCount;
use thiserror::Error;

use super::bytes::{ByteReader, Field, Wrong, put_counted};

/// Attributes of a file or folder at most.
const MAX_COUNT: usize = 256;

/// Bytes of a name at most (`XATTR_NAME_MAX`).
const MAX_NAME: usize = 255;

/// Bytes of a value at most: Linux has one more (`XATTR_SIZE_MAX`), which the count of a message
/// does not.
const MAX_VALUE: usize = u16::MAX as usize;

/// Bytes of all names and values of a file or folder at most, so that they fit into a message.
const MAX_BYTES: usize = 256 << 10;

/// Extended attributes of a file or folder, of the kinds that a copy keeps ([`AttributeKind`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ExtendedAttributes(BTreeMap<Vec<u8>, Vec<u8>>);

/// The kind of an attribute that a copy keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeKind {
    /// A POSIX access list, or the one for what is made in a folder.
    AccessList,
    /// One of `user.*`.
    User,
}

/// The error of an attribute that is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AttributeError {
    /// The attribute's name is of another kind, such as `security.*`, which may let a program run
    /// with more rights.
    #[error("attributes of this kind are not kept")]
    Kind,
    /// The entry has an attribute of this name already.
    #[error("an attribute comes twice")]
    Twice,
    /// The attribute is too long, or the entry has too many.
    #[error(
        "attributes are bounded by {MAX_COUNT} with {MAX_VALUE} bytes each and {MAX_BYTES} together"
    )]
    TooLong,
}

impl AttributeKind {
    /// Returns the kind of a name; `None` if a copy does not keep it.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"system.posix_acl_access" | b"system.posix_acl_default" => Some(Self::AccessList),
            _ if name.len() > MAX_NAME || name.contains(&0) => None,
            _ => name
                .strip_prefix(b"user.")
                .filter(|rest| !rest.is_empty())
                .map(|_| Self::User),
        }
    }

    /// Returns the kind in words.
    pub const fn kind_text(self) -> &'static str {
        match self {
            Self::AccessList => "access lists",
            Self::User => "extended attributes",
        }
    }
}

impl ExtendedAttributes {
    /// Adds an attribute.
    ///
    /// # Errors
    /// Fails if its kind is not kept, it is there already, or it exceeds a bound.
    pub fn insert_attribute(&mut self, name: &[u8], value: &[u8]) -> Result<(), AttributeError> {
        AttributeKind::from_name(name).ok_or(AttributeError::Kind)?;
        if self.0.contains_key(name) {
            return Err(AttributeError::Twice);
        }
        let bytes = self.total_bytes().get() as usize + name.len() + value.len();
        if self.0.len() >= MAX_COUNT || value.len() > MAX_VALUE || bytes > MAX_BYTES {
            return Err(AttributeError::TooLong);
        }
        self.0.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    /// Returns the value of an attribute.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// Returns names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// Returns the bytes of all names and values.
    pub fn total_bytes(&self) -> ByteCount {
        ByteCount::new(
            self.0
                .iter()
                .map(|(name, value)| (name.len() + value.len()) as u64)
                .sum(),
        )
    }

    /// Returns true if there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Field<'_> for ExtendedAttributes {
    fn put(&self, into: &mut Vec<u8>) {
        into.extend((self.0.len() as u16).to_le_bytes());
        for (name, value) in &self.0 {
            put_counted(into, name);
            put_counted(into, value);
        }
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Wrong> {
        let mut attributes = Self::default();
        for _ in 0..u16::read(reader)? {
            let (name, value) = (reader.read_counted()?, reader.read_counted()?);
            attributes.insert_attribute(name, value)?;
        }
        Ok(attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_that_give_no_rights_are_kept() {
        assert_eq!(
            AttributeKind::from_name(b"user.a"),
            Some(AttributeKind::User)
        );
        assert_eq!(
            AttributeKind::from_name(b"system.posix_acl_default"),
            Some(AttributeKind::AccessList)
        );
        let long = [&b"user."[..], &[b'a'; MAX_NAME]].concat();
        for name in [
            &b"user."[..],
            b"user",
            b"security.capability",
            b"trusted.x",
            b"user.a\0b",
            b"",
            &long,
        ] {
            assert_eq!(
                AttributeKind::from_name(name),
                None,
                "{}",
                name.escape_ascii()
            );
        }
    }

    #[test]
    fn sizes_and_counts_are_bounded() {
        let mut attributes = ExtendedAttributes::default();
        assert_eq!(
            attributes.insert_attribute(b"user.a", &vec![0; MAX_VALUE + 1]),
            Err(AttributeError::TooLong)
        );
        assert_eq!(
            attributes.insert_attribute(b"security.capability", b""),
            Err(AttributeError::Kind)
        );
        assert_eq!(attributes.insert_attribute(b"user.a", b""), Ok(()));
        assert_eq!(
            attributes.insert_attribute(b"user.a", b"x"),
            Err(AttributeError::Twice)
        );
        for index in 1..MAX_COUNT {
            attributes
                .insert_attribute(format!("user.{index}").as_bytes(), b"x")
                .unwrap();
        }
        assert_eq!(
            attributes.insert_attribute(b"user.b", b""),
            Err(AttributeError::TooLong)
        );
        let mut large = ExtendedAttributes::default();
        let value = vec![1; 40_000];
        let mut insert =
            |index: u8| large.insert_attribute(&[b"user.", &[b'a' + index][..]].concat(), &value);
        assert_eq!(
            (0..9).take_while(|index| insert(*index).is_ok()).count(),
            MAX_BYTES / 40_000
        );
        assert!(large.total_bytes().get() <= MAX_BYTES as u64);
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let read = |bytes: &[u8]| {
            ExtendedAttributes::read(&mut ByteReader(bytes)).map_err(|error| error.to_string())
        };
        assert!(read(&[0xff, 0xff]).unwrap_err().contains("too early"));
        let mut twice = vec![2, 0];
        for _ in 0..2 {
            put_counted(&mut twice, b"user.a");
            put_counted(&mut twice, b"x");
        }
        assert!(read(&twice).unwrap_err().contains("twice"));
        let mut rights = vec![1, 0];
        put_counted(&mut rights, b"security.capability");
        put_counted(&mut rights, b"x");
        assert!(read(&rights).unwrap_err().contains("not kept"));
    }
}
