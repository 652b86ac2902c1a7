use fullpipe_units::ByteCount;
pub(crate) use fullpipe_units::{parse_quantity, parse_within, require_valid};

/// A key of a file or a flag whose setter is a plain function.
pub(crate) type Key<T> = NamedSetter<fn(&mut T, &str) -> Result<(), String>>;

/// A key of a file or a flag whose setter depends on a table.
pub(crate) type TableKey<T> =
    NamedSetter<Box<dyn Fn(&mut T, &str) -> Result<(), String> + Send + Sync>>;

/// A key of a file or a flag.
pub(crate) struct NamedSetter<S> {
    pub(crate) name: &'static str,
    /// Sets the value that is given as text; fails with a sentence without the key's name.
    pub(crate) set: S,
}

impl<S> NamedSetter<S> {
    pub(crate) const fn new(name: &'static str, set: S) -> Self {
        Self { name, set }
    }
}

/// Makes keys, each of its name and of what sets the value that a text stands for.
macro_rules! keys {
    (|$target:ident, $text:ident| $($name:literal => $set:expr,)+) => {
        &[$($crate::key::Key::new($name, |$target, $text| {
            $set;
            Ok(())
        })),+]
    };
}

pub(crate) use keys;

impl<T> TableKey<T> {
    pub(crate) fn boxed(
        name: &'static str,
        set: impl Fn(&mut T, &str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Box::new(set))
    }
}

/// Returns the key called `name`; the error lists those in `keys`, and `others`.
pub(crate) fn find_key<'k, S>(
    keys: &'k [NamedSetter<S>],
    others: &[&str],
    name: &str,
) -> Result<&'k NamedSetter<S>, String> {
    keys.iter().find(|key| key.name == name).ok_or_else(|| {
        let names: Vec<_> = keys
            .iter()
            .map(|key| key.name)
            .chain(others.iter().copied())
            .collect();
        format!(
            "\"{name}\" is not a key here; the keys are {}",
            names.join(", ")
        )
    })
}

/// Reads a size that the kernel takes for a socket's buffer: a positive `int` (`setsockopt(2)`,
/// `proc_dointvec_minmax`).
pub(crate) fn buffer_size(text: &str) -> Result<ByteCount, String> {
    parse_within(
        text,
        ByteCount::new(1)..=ByteCount::new(i32::MAX as u64),
        "the size of a buffer",
        "it must be above 0 and below 2 GiB",
    )
}
