//! The part of parsing that all quantities share: a number, then a unit.

use thiserror::Error;

/// A text that is not the quantity it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{text}\" is not {quantity}: {why}; write for example {example}")]
pub struct ParseError {
    text: String,
    quantity: &'static str,
    why: String,
    example: &'static str,
}

/// A quantity's name in errors, and the example that errors show.
pub(crate) struct QuantityGrammar {
    pub(crate) quantity: &'static str,
    pub(crate) example: &'static str,
}

impl QuantityGrammar {
    pub(crate) fn parse_error(&self, text: &str, why: impl Into<String>) -> ParseError {
        ParseError {
            text: text.to_owned(),
            quantity: self.quantity,
            why: why.into(),
            example: self.example,
        }
    }

    /// Splits `text` into a finite, non-negative number and the unit behind it, and multiplies by
    /// what `factor` knows of that unit.
    pub(crate) fn read_value(
        &self,
        text: &str,
        factor: impl Fn(&str) -> Option<f64>,
    ) -> Result<f64, ParseError> {
        let trimmed = text.trim();
        let (digits, unit) = trimmed.split_at(number_length(trimmed));
        if digits.is_empty() {
            return Err(self.parse_error(text, "a number must come first"));
        }
        let number: f64 = digits
            .parse()
            .map_err(|_| self.parse_error(text, format!("\"{digits}\" is not a number")))?;
        if !number.is_finite() {
            return Err(self.parse_error(text, "the number is too large"));
        }
        if digits.starts_with('-') {
            return Err(self.parse_error(text, "it must not be negative"));
        }
        let unit = unit.trim();
        let factor = factor(unit).ok_or_else(|| {
            let why = if unit.is_empty() {
                "the unit is missing".to_owned()
            } else {
                format!("its unit cannot be \"{unit}\"")
            };
            self.parse_error(text, why)
        })?;
        Ok(number * factor)
    }

    /// As [`QuantityGrammar::read_value`], rounded to a whole number of the smallest unit.
    pub(crate) fn read_whole(
        &self,
        text: &str,
        factor: impl Fn(&str) -> Option<f64>,
    ) -> Result<u64, ParseError> {
        let value = self.read_value(text, factor)?.round();
        // 2^63: beyond it no link, file or clock of this field reaches, and sums cannot overflow
        // below it.
        if value >= 9.2e18 {
            return Err(self.parse_error(text, "the number is too large"));
        }
        Ok(value as u64)
    }
}

/// Length of the number at the start of `text`: sign, digits, one point, an exponent if digits
/// follow it.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut end = end_of_digits(bytes, sign);
    if bytes.get(end) == Some(&b'.') {
        end = end_of_digits(bytes, end + 1);
    }
    if end == sign {
        return 0;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let digits = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let after = end_of_digits(bytes, digits);
        if after > digits {
            end = after;
        }
    }
    end
}

/// Returns the place behind the digits from `start` on.
fn end_of_digits(bytes: &[u8], start: usize) -> usize {
    let later = bytes.iter().skip(start);
    start + later.take_while(|b| b.is_ascii_digit()).count()
}

/// Four significant digits, without trailing zeros: `335.5`, `12`, `0.125`.
pub(crate) fn format_significant(value: f64) -> String {
    let whole_digits = if value.abs() < 1.0 {
        1
    } else {
        (value.abs().log10().floor() as usize).saturating_add(1)
    };
    let text = format!("{value:.*}", 4_usize.saturating_sub(whole_digits));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_ends_where_its_unit_begins() {
        for (text, length) in [
            ("100Mbit/s", 3),
            ("1e-4", 4),
            ("1e", 1),
            ("1exa", 1),
            ("2.5 G", 3),
            ("-3", 2),
            (".5s", 2),
            ("ms", 0),
            ("-", 0),
            ("1e+", 1),
            ("", 0),
        ] {
            assert_eq!(number_length(text), length, "{text}");
        }
    }

    #[test]
    fn four_digits_are_kept() {
        for (value, text) in [
            (335.544, "335.5"),
            (12.0, "12"),
            (0.125, "0.125"),
            (999.96, "1000"),
            (0.0, "0"),
            (2.8904, "2.89"),
        ] {
            assert_eq!(format_significant(value), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = number_length(&text);
        }
    }
}
