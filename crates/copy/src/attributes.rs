//! Extended attributes and access lists of what is open, as far as a copy keeps them.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use fullpipe_units::printable_bytes;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use crate::protocol::{AttributeKind, ExtendedAttributes};
use fullpipe_sys::lock;

/// Bytes of a value, and of all names, at most (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const MAX_BYTES: usize = 64 << 10;

/// Bytes of attributes that wait for their files at most. Files with the same ones share them.
const MAX_HELD: usize = 256 << 20;

/// Something that is not kept, of a kind of which only the first is said.
#[derive(Debug)]
pub(crate) struct NotKept {
    pub kind: String,
    pub why: String,
}

/// Reads the attributes of what is open. `not_kept` takes those that are left out.
pub(crate) fn read_attributes(
    open: impl AsFd,
    not_kept: &mut dyn FnMut(NotKept),
) -> ExtendedAttributes {
    let mut attributes = ExtendedAttributes::default();
    let names = attribute_names(&open).unwrap_or_else(|error| {
        not_kept(NotKept {
            kind: "attributes".to_owned(),
            why: error.to_string(),
        });
        Vec::new()
    });
    for name in names {
        if let Err(error) = add_attribute(&mut attributes, &open, &name) {
            not_kept(NotKept {
                kind: name_class(&name),
                why: error.to_string(),
            });
        }
    }
    attributes
}

/// Gives what is open these attributes, and no others of the kinds that are kept. `not_kept` takes
/// those that the system refuses.
pub(crate) fn apply_attributes(
    open: impl AsFd,
    wanted: &ExtendedAttributes,
    not_kept: &mut dyn FnMut(NotKept),
) {
    let found = read_attributes(&open, &mut |_| {});
    let more = found.iter().filter(|(name, _)| wanted.get(name).is_none());
    let removed = more.map(|(name, _)| (name, fremovexattr(&open, name)));
    let missing = wanted
        .iter()
        .filter(|(name, value)| found.get(name) != Some(*value));
    let set =
        missing.map(|(name, value)| (name, fsetxattr(&open, name, value, XattrFlags::empty())));
    for (name, done) in removed.chain(set) {
        if let (Err(error), Some(kind)) = (done, AttributeKind::from_name(name)) {
            not_kept(NotKept {
                kind: kind.kind_text().to_owned(),
                why: io::Error::from(error).to_string(),
            });
        }
    }
}

/// Returns true if what is open does not have exactly these attributes.
pub(crate) fn attributes_differ(open: impl AsFd, wanted: &ExtendedAttributes) -> bool {
    read_attributes(open, &mut |_| {}) != *wanted
}

fn attribute_names(open: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; MAX_BYTES];
    let length = match flistxattr(open, &mut list[..]) {
        Err(Errno::NOTSUP) => 0,
        listed => listed?,
    };
    let names = list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// Returns the value of an attribute; `None` if it has gone meanwhile.
fn attribute_value(open: impl AsFd, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; MAX_BYTES];
    match fgetxattr(open, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the namespace of a name, as `security.*`.
fn name_class(name: &[u8]) -> String {
    let end = name
        .iter()
        .position(|byte| *byte == b'.')
        .unwrap_or(name.len());
    format!("{}.*", printable_bytes(&name[..end]))
}

/// The attributes that wait for their files.
#[derive(Default)]
pub(crate) struct HeldAttributes(Mutex<(HashSet<Arc<ExtendedAttributes>>, usize)>);

impl HeldAttributes {
    /// Returns attributes to hold; `None` if those that wait are too many.
    pub(crate) fn hold_attributes(
        &self,
        attributes: ExtendedAttributes,
    ) -> Option<Arc<ExtendedAttributes>> {
        let mut held = lock(&self.0);
        let (all, bytes) = &mut *held;
        if let Some(same) = all.get(&attributes) {
            return Some(Arc::clone(same));
        }
        if *bytes + held_bytes(&attributes) > MAX_HELD {
            all.retain(|attributes| Arc::strong_count(attributes) > 1);
            *bytes = all.iter().map(|attributes| held_bytes(attributes)).sum();
        }
        *bytes += held_bytes(&attributes);
        let attributes = Arc::new(attributes);
        (*bytes <= MAX_HELD && all.insert(Arc::clone(&attributes))).then_some(attributes)
    }
}

fn add_attribute(
    attributes: &mut ExtendedAttributes,
    open: impl AsFd,
    name: &[u8],
) -> io::Result<()> {
    if AttributeKind::from_name(name).is_none() {
        return Err(io::Error::other("attributes of this kind are not kept"));
    }
    match attribute_value(open, name)? {
        Some(value) => attributes
            .insert_attribute(name, &value)
            .map_err(io::Error::other),
        None => Ok(()),
    }
}

fn held_bytes(attributes: &ExtendedAttributes) -> usize {
    attributes.total_bytes().get() as usize + size_of::<ExtendedAttributes>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn attributes(of: &[(&str, &[u8])]) -> ExtendedAttributes {
        let mut attributes = ExtendedAttributes::default();
        for (name, value) in of {
            attributes.insert_attribute(name.as_bytes(), value).unwrap();
        }
        attributes
    }

    /// A file on a file system that has attributes of users; `None` if this one does not.
    fn file(folder: &tempfile::TempDir) -> Option<File> {
        let file = File::create(folder.path().join("file")).unwrap();
        fsetxattr(&file, "user.old", b"old", XattrFlags::empty())
            .is_ok()
            .then_some(file)
    }

    #[test]
    fn a_file_gets_what_is_wanted_and_loses_what_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let Some(file) = file(&folder) else { return };
        let wanted = attributes(&[
            ("user.new", b"new"),
            ("user.empty", b""),
            ("user.caf\u{e9}", &[0xff; 100]),
        ]);
        assert!(attributes_differ(&file, &wanted));
        apply_attributes(&file, &wanted, &mut |not_kept| panic!("{not_kept:?}"));
        assert!(!attributes_differ(&file, &wanted));
        assert_eq!(read_attributes(&file, &mut |_| {}), wanted);
    }

    #[test]
    fn what_the_system_refuses_is_said_and_the_rest_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let Some(file) = file(&folder) else { return };
        // No list of access has such a form.
        let wanted = attributes(&[
            ("system.posix_acl_access", b"nonsense"),
            ("user.new", b"new"),
        ]);
        let mut said = Vec::new();
        apply_attributes(&file, &wanted, &mut |not_kept| said.push(not_kept.kind));
        assert_eq!(said, ["access lists"]);
        assert_eq!(
            read_attributes(&file, &mut |_| {}),
            attributes(&[("user.new", b"new")])
        );
    }

    #[test]
    fn files_share_attributes_and_too_many_are_refused() {
        let held = HeldAttributes::default();
        let first = held
            .hold_attributes(attributes(&[("user.a", b"1")]))
            .unwrap();
        let second = held
            .hold_attributes(attributes(&[("user.a", b"1")]))
            .unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        lock(&held.0).1 = MAX_HELD;
        // What nobody waits for any more does not count.
        let third = held.hold_attributes(attributes(&[("user.a", b"2")]));
        assert!(third.is_some() && lock(&held.0).0.len() == 2);
        drop((first, second));
        lock(&held.0).1 = MAX_HELD;
        assert!(
            held.hold_attributes(attributes(&[("user.a", b"3")]))
                .is_some()
                && lock(&held.0).0.len() == 2
        );
    }
}
