//! Values of keys and flags, read with an error that is one sentence for the user.

use std::fmt::Display;
use std::ops::RangeBounds;
use std::str::FromStr;

/// Reads a quantity or a number.
///
/// # Errors
/// The sentence of the type's own error.
pub fn parse_quantity<Q: FromStr<Err: Display>>(text: &str) -> Result<Q, String> {
    text.parse().map_err(|error: Q::Err| error.to_string())
}

/// Reads a quantity or a number within `bounds`.
///
/// # Errors
/// The sentence of the type's own error; as [`require_valid`] beyond the bounds.
pub fn parse_within<Q: FromStr<Err: Display> + PartialOrd>(
    text: &str,
    bounds: impl RangeBounds<Q>,
    what: &str,
    requirement: &str,
) -> Result<Q, String> {
    let value = parse_quantity(text)?;
    let valid = bounds.contains(&value);
    require_valid(value, valid, text, what, requirement)
}

/// Returns `value` if it is valid.
///
/// # Errors
/// `"text" is not what: requirement`.
pub fn require_valid<Q>(
    value: Q,
    valid: bool,
    text: &str,
    what: &str,
    requirement: &str,
) -> Result<Q, String> {
    if valid {
        Ok(value)
    } else {
        Err(format!("\"{text}\" is not {what}: {requirement}"))
    }
}
