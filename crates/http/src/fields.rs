//! The fields of a head.

use httparse::Header;

use crate::{BodyFraming, RuleBroken};

/// Bytes of a head at most.
pub const MAX_HEAD: usize = 16 << 10;

/// Fields of a head at most.
pub const MAX_FIELDS: usize = 100;

/// The fields of a head, of a request or an answer.
#[derive(Debug, Clone, Copy)]
pub struct HeadFields<'h>(pub &'h [Header<'h>]);

impl<'h> HeadFields<'h> {
    /// Returns the values of a field that are text.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'h str> {
        let named = self
            .0
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.filter_map(|field| str::from_utf8(field.value).ok().map(str::trim))
    }

    /// Returns the elements of a field that is a list.
    pub fn elements(&self, name: &str) -> impl Iterator<Item = &'h str> {
        self.values(name)
            .flat_map(|value| value.split(','))
            .map(str::trim)
    }

    /// Returns the value of a field that stands once.
    ///
    /// # Errors
    /// Fails if it stands there twice, with different values.
    pub fn only(&self, name: &str) -> Result<Option<&'h str>, RuleBroken> {
        let mut values = self.values(name);
        let first = values.next();
        if values.any(|other| Some(other) != first) {
            return Err("a field of its head stands there twice, with different values");
        }
        Ok(first)
    }

    /// Returns true if the list in a field has this element.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.elements(name)
            .any(|element| element.eq_ignore_ascii_case(token))
    }

    /// Returns the way in which the body ends (RFC 9112, section 6.3); `None` if no field states it.
    ///
    /// # Errors
    /// Fails if the fields contradict each other, or state a coding that not every end knows.
    pub fn stated_framing(&self) -> Result<Option<BodyFraming>, RuleBroken> {
        let mut codings = self.elements("transfer-encoding");
        let length = self.only("content-length")?;
        match (codings.next(), codings.next()) {
            (Some(_), _) if length.is_some() => {
                Err("its head has both Transfer-Encoding and Content-Length")
            }
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => {
                Ok(Some(BodyFraming::Chunked))
            }
            (Some(_), _) => Err("its Transfer-Encoding is not the one that every client knows"),
            (None, _) => length
                .map(|text| {
                    parse_number(text)
                        .map(BodyFraming::Length)
                        .ok_or("its Content-Length is no number")
                })
                .transpose(),
        }
    }
}

/// Reads a number of digits alone, without a sign.
pub fn parse_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}
