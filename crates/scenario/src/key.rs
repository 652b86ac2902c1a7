use std::fmt::Display;
use std::str::FromStr;

use fullpipe_units::ByteCount;

/// A key of a file or a flag, and how its value changes what is being described.
pub(crate) struct Key<T> {
    pub(crate) name: &'static str,
    /// Reads the value's text; the error is why it cannot be, without the key's name.
    pub(crate) set: fn(&mut T, &str) -> Result<(), String>,
}

/// The key called `name`; the error says which there are: those in `keys`, and `others`.
pub(crate) fn find<'k, T>(keys: &'k [Key<T>], others: &[&str], name: &str) -> Result<&'k Key<T>, String> {
    keys.iter().find(|key| key.name == name).ok_or_else(|| {
        let names: Vec<_> = keys.iter().map(|key| key.name).chain(others.iter().copied()).collect();
        format!("\"{name}\" is not a key here; the keys are {}", names.join(", "))
    })
}

/// A quantity or number; the error is the type's own sentence.
pub(crate) fn quantity<Q: FromStr<Err: Display>>(text: &str) -> Result<Q, String> {
    text.parse().map_err(|error: Q::Err| error.to_string())
}

/// `value`, where `valid` holds of it; else `"text" is not what: requirement`.
pub(crate) fn require<Q>(value: Q, valid: bool, text: &str, what: &str, requirement: &str) -> Result<Q, String> {
    if valid { Ok(value) } else { Err(format!("\"{text}\" is not {what}: {requirement}")) }
}

/// A size that the kernel takes for a socket's buffer: a positive `int` (`setsockopt(2)`, `proc_dointvec_minmax`).
pub(crate) fn buffer_size(text: &str) -> Result<ByteCount, String> {
    let size: ByteCount = quantity(text)?;
    let valid = (1..=i32::MAX as u64).contains(&size.get());
    require(size, valid, text, "the size of a buffer", "it must be above 0 and below 2 GiB")
}
